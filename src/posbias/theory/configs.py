"""Architectures from files: ours, a Hugging Face `config.json`, or the rollout files of Herasimchyk et al.

Which of the three a file is shows in its keys: `model_type` is Hugging Face's, `lambda_schedule_config` the
authors', anything else is ours. What a configuration does not say is assumed in the open, as a remark.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from posbias.errors import InputFileError, InvalidValueError, PosbiasError, nearest
from posbias.spec import (
    Count,
    Fraction,
    Fractions,
    NonNegative,
    NonNegatives,
    Numbers,
    Positive,
    decode,
    read_mapping,
    value,
)
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal, NoContent
from posbias.theory.mixing import AtInitialisation, Constant, Mixing, PerLayer, PowerDecay
from posbias.theory.positional import ALiBi, NeedsMeasurement, NoPE, Positional, alibi_slopes


@dataclass(frozen=True)
class ArchitectureFile:
    """An architecture and the number of tokens its file was written for (None where it does not say)."""

    architecture: Architecture
    tokens: int | None


def load_architecture(path: str | os.PathLike[str]) -> Architecture:
    """Read an architecture from our TOML, YAML or JSON, a `config.json` (or its folder), or a rollout YAML.

    Rotary and learned encodings of a `config.json` come back as `NeedsMeasurement`; a file without λ gets
    the documented default and says so in `.assumptions`. Raises `InputFileError` for a file that cannot be
    read and `InvalidValueError` for one whose keys or values are wrong.
    """
    return read_architecture(path).architecture


def read_architecture(path: str | os.PathLike[str]) -> ArchitectureFile:
    """Like `load_architecture`, with the number of tokens that the file names, if it names one."""
    path = Path(path)
    if path.is_dir():
        path = path / "config.json"
    data = read_mapping(path)
    try:
        if "model_type" in data:
            name = path.parent.name if path.name == "config.json" else path.stem
            return ArchitectureFile(from_huggingface(data, name), None)
        if "lambda_schedule_config" in data or "attention_config" in data:
            return from_published(data, path.stem)
        return ArchitectureFile(decode(Architecture, data), None)
    except InputFileError:
        raise
    except PosbiasError as error:
        raise InvalidValueError(f"{path}: {error}") from None


# --- Hugging Face -----------------------------------------------------------------------------------------


def _bloom(config: dict[str, Any]) -> Positional:
    return ALiBi()


def _mpt(config: dict[str, Any]) -> Positional:
    attention = config.get("attn_config") or {}
    if not attention.get("alibi", True):
        return NeedsMeasurement("learned")
    bias_max = float(attention.get("alibi_bias_max", 8))
    if bias_max == 8.0:
        return ALiBi()
    return ALiBi(tuple(alibi_slopes(_integer(config, "n_heads", "num_attention_heads"), bias_max).tolist()))


def _falcon(config: dict[str, Any]) -> Positional:
    if not config.get("alibi", False):
        return NeedsMeasurement("rotary")
    heads = _integer(config, "num_attention_heads", "n_head")
    head_size = _integer(config, "hidden_size") // heads
    return ALiBi(scale=1.0 / math.sqrt(head_size))


def _rotary(config: dict[str, Any]) -> Positional:
    return NeedsMeasurement("rotary")


_ROTARY = (  # noqa: SIM905
    "llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 gemma3 gemma3_text phi phi3 olmo olmo2 "
    "olmo3 cohere cohere2 gpt_neox gptj stablelm starcoder2 smollm3 granite gpt_oss persimmon deepseek_v2 "
    "deepseek_v3 glm glm4 exaone4 codegen"
).split()

FAMILIES: dict[str, Callable[[dict[str, Any]], Positional]] = {
    "bloom": _bloom,
    "mpt": _mpt,
    "falcon": _falcon,
    "RefinedWeb": _falcon,
    "RefinedWebModel": _falcon,
    **dict.fromkeys(_ROTARY, _rotary),
}
"""Hugging Face `model_type` → how its configuration spells the positional encoding."""


def from_huggingface(config: dict[str, Any], name: str = "") -> Architecture:
    """Read depth, heads and positional encoding from the contents of a `config.json`.

    BLOOM and MPT add ALiBi after scaling, Falcon before it, so its slopes shrink by √d_head. Raises
    `InvalidValueError` for a family that is not known or a key that is missing.
    """
    family = config.get("model_type")
    if family not in FAMILIES:
        raise InvalidValueError(
            f"model_type: {family!r} given, one of the known families needed{nearest(str(family), FAMILIES)}; "
            f"known: {', '.join(sorted(FAMILIES))}"
        )
    inner = config.get("text_config")
    if isinstance(inner, dict):
        config = {**config, **inner}
    depth = _integer(config, "num_hidden_layers", "n_layer", "n_layers")
    heads = _integer(config, "num_attention_heads", "n_head", "n_heads")
    remarks = []
    window = config.get("sliding_window")
    if window and config.get("use_sliding_window", True):
        remarks.append(f"mask: the configuration's sliding window of {window} tokens is read as plain causal")
    layer = Layer(heads=heads, positional=FAMILIES[family](config))
    return Architecture(depth=depth, layers=(layer,), name=name or str(family), remarks=tuple(remarks))


def _integer(config: dict[str, Any], *keys: str) -> int:
    """The first of `keys` that the configuration holds, as an integer of at least one."""
    for key in keys:
        if config.get(key) is not None:
            if isinstance(config[key], bool) or not isinstance(config[key], int) or config[key] < 1:
                raise InvalidValueError(f"{key}: {config[key]!r} given, an integer ≥ 1 needed")
            return config[key]
    raise InvalidValueError(
        f"key {keys[0]!r} is missing (or its older spelling {', '.join(keys[1:]) or '–'})"
    )


# --- The rollout files of Herasimchyk et al. ---------------------------------------------------------------


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
    factor 1/√d_head. Raises `InvalidValueError` for unknown keys, counts that do not fit and other masks.
    """
    rollout = decode(PublishedRollout, data)
    if rollout.mask_config.mask_type != "causal":
        raise InvalidValueError(
            f"mask_config.mask_type: {rollout.mask_config.mask_type!r} given, 'causal' needed (so far)"
        )
    attention, content, depth = rollout.attention_config, rollout.content_config, rollout.num_layers
    slopes = _per_layer("attention_config.alibi_slopes", attention.alibi_slopes, depth)
    weights = _per_layer("attention_config.head_weights", attention.head_weights, depth)
    diagonal = _per_layer("content_config.diagonal_scores", content.diagonal_scores, depth)
    constant = _per_layer("content_config.base_scores", content.base_scores, depth)
    layers = tuple(
        Layer(
            heads=attention.num_heads,
            positional=NoPE() if slopes is None else ALiBi(slopes[t]),
            content=_content(diagonal, constant, t),
            head_weights=None if weights is None else _shares(weights[t], attention.num_heads),
            temperature=attention.softmax_temperature,
        )
        for t in range(depth)
    )
    pattern = layers[:1] if len(set(layers)) == 1 else layers
    mixing = _mixing(rollout.lambda_schedule_config)
    architecture = Architecture(depth=depth, layers=pattern, mixing=mixing, name=name)
    return ArchitectureFile(architecture, rollout.sequence_length)


def _per_layer(key: str, rows: tuple | None, depth: int) -> tuple | None:
    if rows is None:
        return None
    if len(rows) not in (1, depth):
        raise InvalidValueError(f"{key}: {len(rows)} lists given, one or {depth} (one per layer) needed")
    return rows if len(rows) == depth else rows * depth


def _content(diagonal: tuple | None, constant: tuple | None, layer: int) -> NoContent | ConstantDiagonal:
    assert diagonal is not None
    assert constant is not None
    if not any(diagonal[layer]) and not any(constant[layer]):
        return NoContent()
    return ConstantDiagonal(diagonal[layer], constant[layer])


def _shares(weights: tuple[float, ...], heads: int) -> tuple[float, ...]:
    """Published head weights are relative: a head's share is its weight over their sum."""
    weights = weights * heads if len(weights) == 1 else weights
    total = sum(weights)
    if total <= 0:
        raise InvalidValueError("attention_config.head_weights: all zero, at least one above zero needed")
    return tuple(weight / total for weight in weights)


def _mixing(schedule: PublishedConstant | PublishedPowerDecay | PublishedCustom | None) -> Mixing:
    match schedule:
        case PublishedConstant():
            return Constant(schedule.lambda_const)
        case PublishedPowerDecay():
            return PowerDecay(schedule.lambda_0, schedule.beta)
        case PublishedCustom():
            return PerLayer(schedule.lambdas_custom)
        case None:
            return AtInitialisation()
