"""Architectures from the rollout files that Herasimchyk et al. publish with their code, as they are."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from posbias.core.errors import InvalidValueError
from posbias.core.spec import (
    Count,
    Fraction,
    Fractions,
    NonNegative,
    NonNegatives,
    Numbers,
    Positive,
    decode,
    value,
)
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.content import ConstantDiagonal, NoContent
from posbias.theory.masks import Causal, Full, Mask, SlidingWindow
from posbias.theory.mixing import ConstantMixing, Mixing, PerLayer, PowerDecay, TrainedMedian
from posbias.theory.positional import ALiBi, NoPE


@dataclass(frozen=True)
class ArchitectureFile:
    """An architecture and the number of tokens its file was written for (None where it does not say)."""

    architecture: Architecture
    tokens: int | None


@value
class PublishedMask:
    """`mask_config` of a rollout file."""

    mask_type: Literal["causal", "full", "sliding_window"] = "causal"
    window_size: Count | None = None


@value
class PublishedAttention:
    """`attention_config` of a rollout file: outer lists are layers, inner ones heads."""

    num_heads: Count
    alibi_slopes: tuple[NonNegatives, ...] | None = None
    head_weights: tuple[NonNegatives, ...] | None = None
    softmax_temperature: Positive = 1.0


@value
class PublishedContent:
    """`content_config` of a rollout file: outer lists are layers, inner ones heads."""

    diagonal_scores: tuple[Numbers, ...] = ((0.0,),)
    base_scores: tuple[Numbers, ...] = ((0.0,),)


@value
class PublishedConstant:
    """A `lambda_schedule_config` of type constant."""

    lambda_const: Fraction
    schedule_type: Literal["constant"] = "constant"


@value
class PublishedPowerDecay:
    """A `lambda_schedule_config` of type power_decay: λ₀/(t + 1)^β."""

    lambda_0: Fraction
    beta: NonNegative
    schedule_type: Literal["power_decay"] = "power_decay"


@value
class PublishedCustom:
    """A `lambda_schedule_config` of type custom: one λ per layer."""

    lambdas_custom: Fractions
    schedule_type: Literal["custom"] = "custom"


@value
class PublishedRollout:
    """A rollout file as Herasimchyk et al. publish them; `save_dir` is read and not used."""

    sequence_length: Count
    num_layers: Count
    attention_config: PublishedAttention
    mask_config: PublishedMask = PublishedMask()
    content_config: PublishedContent = PublishedContent()
    lambda_schedule_config: (
        Annotated[
            PublishedConstant | PublishedPowerDecay | PublishedCustom, Field(discriminator="schedule_type")
        ]
        | None
    ) = None
    save_dir: str | None = None


def from_published(data: dict[str, Any], name: str = "") -> ArchitectureFile:
    """Read a rollout file of Herasimchyk et al.; lists of length one stand for all layers or all heads.

    Scores and slopes are taken as they stand, in softmax units, although the published scores lack the
    factor 1/√d_head. Raises `InvalidValueError` for unknown keys and counts that do not fit.
    """
    rollout = decode(PublishedRollout, data)
    attention, content, depth = rollout.attention_config, rollout.content_config, rollout.num_layers
    slopes = _per_layer("attention_config.alibi_slopes", attention.alibi_slopes, depth)
    weights = _per_layer("attention_config.head_weights", attention.head_weights, depth)
    diagonal = _per_layer("content_config.diagonal_scores", content.diagonal_scores, depth)
    constant = _per_layer("content_config.base_scores", content.base_scores, depth)
    layers = tuple(
        Layer(
            heads=attention.num_heads,
            mask=_published_mask(rollout.mask_config),
            positional=NoPE() if slopes[t] is None else ALiBi(slopes[t]),
            content=_content(diagonal[t], constant[t]),
            head_weights=None if weights[t] is None else _shares(weights[t], attention.num_heads),
            temperature=attention.softmax_temperature,
        )
        for t in range(depth)
    )
    mixing = _mixing(rollout.lambda_schedule_config)
    architecture = Architecture(depth=depth, layers=shortest_pattern(layers), mixing=mixing, name=name)
    return ArchitectureFile(architecture, rollout.sequence_length)


def _published_mask(mask: PublishedMask) -> Mask:
    match mask.mask_type:
        case "causal":
            return Causal()
        case "full":
            return Full()
        case "sliding_window":
            if mask.window_size is None:
                raise InvalidValueError("mask_config.window_size: expected an integer ≥ 1, got none")
            return SlidingWindow(mask.window_size)


def _per_layer(key: str, rows: tuple | None, depth: int) -> tuple:
    """A list for each layer, from one for all or one each; of nothing, nothing for each."""
    rows = (None,) if rows is None else rows
    if len(rows) not in (1, depth):
        raise InvalidValueError(f"{key}: expected one or {depth} (one per layer), got {len(rows)} lists")
    return rows if len(rows) == depth else rows * depth


def _content(diagonal: tuple[float, ...], constant: tuple[float, ...]) -> NoContent | ConstantDiagonal:
    return NoContent() if diagonal == constant == (0.0,) else ConstantDiagonal(diagonal, constant)


def _shares(weights: tuple[float, ...], heads: int) -> tuple[float, ...]:
    """Published head weights are relative: a head's share is its weight over their sum."""
    weights = weights * heads if len(weights) == 1 else weights
    total = sum(weights)
    if total <= 0:
        raise InvalidValueError(
            "attention_config.head_weights: expected at least one above zero, got all zero"
        )
    return tuple(weight / total for weight in weights)


def _mixing(schedule: PublishedConstant | PublishedPowerDecay | PublishedCustom | None) -> Mixing:
    match schedule:
        case PublishedConstant():
            return ConstantMixing(schedule.lambda_const)
        case PublishedPowerDecay():
            return PowerDecay(schedule.lambda_0, schedule.beta)
        case PublishedCustom():
            return PerLayer(schedule.lambdas_custom)
        case None:
            return TrainedMedian()
