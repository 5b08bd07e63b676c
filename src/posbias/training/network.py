"""The attention-only network, many of them at once: weights stacked along a first axis `member`.

    X ← A·X·W_V (+ X),   A = softmax(X·W_Q·(X·W_K)ᵀ/√d + bias) under the mask, or another normaliser's

then a classifier at the last token: three hidden ReLU layers of width d and an output layer (Wu et al. 2025,
Section 3 and Appendix J; one head, no output projection).
Rearrangements, none of which changes a value beyond rounding, make it fast. Without rotary encoding
X·(W_Q·W_Kᵀ)·Xᵀ needs one projection of the tokens instead of two. Values are projected after they are mixed,
and as late as possible: what a layer hands on stays a sum of tokens times matrices, and the matrices (few and
small) are multiplied with each other. In the last layer only the last token's row is computed, since nothing
else is read.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Bool, Complex, Float
from pydantic import Field
from torch import Tensor

from posbias.core.errors import wrong
from posbias.core.spec import Positive, Size, later, tag, value
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal, NoContent
from posbias.theory.masks import Causal, Mask, Prefix, SlidingWindow
from posbias.theory.mixing import AttentionOnly, PreNormInit
from posbias.theory.normalisers import ReLU, Softmax
from posbias.theory.positional import DecayBias, NeedsMeasurement, NoPE
from posbias.training.attention import SOFTMAX, Normaliser, SinkSoftmax, attend
from posbias.training.philox import Draws
from posbias.training.task import RetrievalTask


@value
class Sinusoidal:
    """Sines and cosines of the position, added to the tokens (Vaswani et al. 2017)."""

    base: Positive = 10_000.0
    kind: Literal["sinusoidal"] = tag(default="sinusoidal")


@value
class Rotary:
    """Rotary encoding of queries and keys, half-split pairs of dimensions (Su et al. 2024)."""

    base: Positive = 10_000.0
    kind: Literal["rotary"] = tag(default="rotary")


Encoding = Annotated[NoPE | DecayBias | Sinusoidal | Rotary, Field(discriminator="kind")]
ENCODINGS = {"none": NoPE(), "sinusoidal": Sinusoidal(), "rope": Rotary(), "decay": DecayBias(-math.log(0.8))}
"""The encodings of Wu et al. by the name that commands use; decay with m = −ln 0.8 (Appendix J)."""
HIDDEN = 3
"""Hidden layers of the classifier."""


@value
class Network:
    """An attention-only network: depth, residual connections, mask, encoding, and what makes rows of attention."""

    depth: Size = 2
    residual: bool = False
    mask: Mask = Causal()
    positional: Encoding = NoPE()
    normaliser: Normaliser = later(default=Softmax())

    def architecture(self) -> Architecture:
        """What the theory knows of it: mask, encoding by distance, mixing at initialisation.

        Rotary and sinusoidal encodings act through content and need a measurement, which the architecture says. A
        learned sink has the logit it begins with. ReLU sees what content is common to all pairs, taken to be 1.
        """
        known = self.positional
        if not isinstance(known, NoPE | DecayBias):
            known = NeedsMeasurement(known.kind)
        mixing = PreNormInit() if self.residual else AttentionOnly()
        rows, sinks, content = self.normaliser, None, NoContent()
        if isinstance(rows, SinkSoftmax):
            rows, sinks = Softmax(), (rows.logit,)
        if isinstance(rows, ReLU):
            content = ConstantDiagonal((0.0,), (1.0,))
        layer = Layer(mask=self.mask, positional=known, content=content, sinks=sinks, normaliser=rows)
        return Architecture(self.depth, (layer,), mixing, remarks=self._remarks)

    @property
    def _remarks(self) -> tuple[str, ...]:
        """What `architecture` takes for granted of the normaliser."""
        if isinstance(self.normaliser, ReLU):
            return ("normaliser: ReLU needs the content logit that all pairs share, taken to be 1",)
        if isinstance(self.normaliser, SinkSoftmax) and self.normaliser.learned:
            return (f"normaliser: the learned sink's logit was taken to be {self.normaliser.logit:g}",)
        return ()

    def check(self, tokens: int) -> None:
        """Raise `InvalidValueError` for a window or prefix that is longer than the sequence."""
        size = {SlidingWindow: "width", Prefix: "length"}.get(type(self.mask))
        if size is not None and (given := getattr(self.mask, size)) > tokens:
            raise wrong(f"mask.{size}", f"at most the sequence's {tokens} tokens", given)


@dataclass(frozen=True)
class Wiring:
    """What is fixed in a group of networks: biases with the mask in them, encodings, residual connections.

    `residual` is 1 for members that have them and 0 for others, None where all or none have (`residuals`).
    """

    bias: Float[Tensor, "member query key"]
    added: Float[Tensor, "member token dimension"] | None
    rotation: Complex[Tensor, "member token pair"] | None
    residual: Float[Tensor, "member"] | None
    residuals: bool
    depth: int
    normaliser: Normaliser


def wire(
    networks: Sequence[Network],
    tokens: int,
    dimension: int,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Wiring:
    """Put networks of equal depth and normaliser side by side. Raises `InvalidValueError` if they cannot be."""
    if len({network.depth for network in networks}) != 1:
        raise wrong("networks", "one depth to train together", got="several")
    if len({network.normaliser for network in networks}) != 1:
        raise wrong("networks", "one normaliser to train together", got="several")
    for network in networks:
        network.check(tokens)
    angles = torch.stack([_angles(network.positional, tokens, dimension) for network in networks])
    rotary, sinusoidal = (
        torch.tensor([isinstance(network.positional, kind) for network in networks])
        for kind in (Rotary, Sinusoidal)
    )
    residual = torch.tensor([network.residual for network in networks])
    turns = angles.masked_fill(~rotary[:, None, None], 0.0)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(2)

    def ready(x: Tensor) -> Tensor:
        return x.to(device=device, dtype=dtype)

    return Wiring(
        bias=ready(torch.stack([_bias(network, tokens) for network in networks])),
        added=ready(waves.masked_fill(~sinusoidal[:, None, None], 0.0)) if sinusoidal.any() else None,
        rotation=torch.complex(ready(turns.cos()), ready(turns.sin())) if rotary.any() else None,
        residual=None if residual.all() or not residual.any() else ready(residual),
        residuals=bool(residual.any()),
        depth=networks[0].depth,
        normaliser=networks[0].normaliser,
    )


def initial_weights(
    depth: int, task: RetrievalTask, seeds: Sequence[int], normaliser: Normaliser = SOFTMAX
) -> dict[str, Float[Tensor, "..."]]:
    """The weights that members with these seeds begin with, along a first axis; deeper networks add layers.

    Uniform within ±1/√fan-in, as `torch.nn.Linear` has them; a sink has its logit, one "sink" per layer.
    """
    d = task.dimension

    def uniform(name: str, rows: int, *shape: int) -> Tensor:
        drawn = Draws(seeds, f"train/weights/{name}").uniform(0, rows, math.prod(shape))
        return drawn.view(len(seeds), rows, *shape) / math.sqrt(d)

    learnt = {}
    if isinstance(normaliser, SinkSoftmax) and normaliser.learned:
        learnt["sink"] = torch.full((len(seeds), depth), normaliser.logit)
    return {
        **{name: uniform(name, depth, d, d) for name in ("query", "key", "value")},
        "hidden": uniform("hidden", HIDDEN, d, d),
        "hidden_bias": uniform("hidden_bias", HIDDEN, d),
        "output": uniform("output", 1, d, task.labels)[:, 0],
        "output_bias": uniform("output_bias", 1, task.labels)[:, 0],
    } | learnt


def finite_members(weights: Mapping[str, Tensor]) -> Bool[np.ndarray, "member"]:
    """Which members have no weight that is NaN or infinite."""
    finite = torch.stack([tensor.isfinite().flatten(1).all(dim=1) for tensor in weights.values()])
    return finite.all(dim=0).cpu().numpy()


def forward(
    weights: dict[str, Tensor],
    wiring: Wiring,
    tokens: Float[Tensor, "member sequence token dimension"],
    attention: list[Tensor] | None = None,
) -> Float[Tensor, "member sequence label"]:
    """Logits of the labels. With a list `attention`, every layer's full attention is appended to it."""
    y, carried = tokens if wiring.added is None else tokens + wiring.added[:, None], None
    stacks = (weights[name].unbind(1) for name in ("query", "key", "value"))
    sinks = _sinks(weights, wiring, y)
    for t, (query, key, value_) in enumerate(zip(*stacks, strict=True)):
        short = t == wiring.depth - 1 and attention is None
        asking, answering = _projections(_times(carried, query), _times(carried, key), wiring)
        given = y, asking, answering, wiring.bias, wiring.rotation, short, wiring.normaliser, sinks[t]
        mixed, asker, weight = attend(*given)
        if attention is not None:
            attention.append(weight)
        y, carried = mixed, _times(carried, value_)
        if wiring.residuals:
            kept = asker if wiring.residual is None else wiring.residual[:, None, None, None] * asker
            y, carried = torch.baddbmm(kept.flatten(1, 2), y.flatten(1, 2), carried).view_as(y), None
    y = y[:, :, -1] if carried is None else torch.bmm(y[:, :, -1], carried)
    for matrix, bias in zip(weights["hidden"].unbind(1), weights["hidden_bias"].unbind(1), strict=True):
        y = torch.relu(torch.baddbmm(bias[:, None], y, matrix))
    return torch.baddbmm(weights["output_bias"][:, None], y, weights["output"])


def _sinks(weights: dict[str, Tensor], wiring: Wiring, y: Tensor) -> Sequence[Tensor | None]:
    """The logit of every layer's sink, if it has one."""
    if "sink" in weights:
        return weights["sink"].unbind(1)
    if isinstance(wiring.normaliser, SinkSoftmax):
        return [y.new_full((len(y),), wiring.normaliser.logit)] * wiring.depth
    return [None] * wiring.depth


def _projections(query: Tensor, key: Tensor, wiring: Wiring) -> tuple[Tensor, Tensor | None]:
    """What turns tokens into queries and keys; one matrix W_Q·W_Kᵀ does it unless both are rotated."""
    d = query.shape[-1]
    query = query / math.sqrt(d)
    if wiring.rotation is None:
        return torch.bmm(query, key.transpose(1, 2)), None
    # the half-split pairs (i, i + d/2) are put next to each other, in queries and keys alike
    neighbours = torch.arange(d, device=query.device).view(2, -1).T.flatten()
    return query[:, :, neighbours], key[:, :, neighbours]


def _times(left: Tensor | None, matrix: Tensor) -> Tensor:
    return matrix if left is None else torch.bmm(left, matrix)


def _bias(network: Network, tokens: int) -> Float[Tensor, "query key"]:
    """What is added to scores: decay by distance, −∞ where the mask forbids."""
    bias = np.zeros((tokens, tokens))
    if isinstance(network.positional, DecayBias):
        distance = np.subtract.outer(np.arange(tokens), np.arange(tokens))
        bias = network.positional.logits_at(distance.ravel(), 1).reshape(tokens, tokens)
    return torch.as_tensor(np.where(network.mask.allowed(tokens), bias, -np.inf))


def _angles(positional: object, tokens: int, dimension: int) -> Float[Tensor, "token pair"]:
    """Angles of rotary and sinusoidal encodings."""
    base = getattr(positional, "base", 10_000.0)
    pair = torch.arange(0, dimension, 2, dtype=torch.float64)
    return torch.arange(tokens, dtype=torch.float64)[:, None] * base ** (-pair / dimension)
