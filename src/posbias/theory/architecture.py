"""An architecture as a value: what the theory needs to know of a transformer, and nothing else.

Depth, a pattern of layers that repeats up the stack, and the mixing of each layer. The number of tokens is
an argument of the computation, not of the architecture.

    Architecture(depth=24, layers=(Layer(heads=16, positional=ALiBi()),), mixing=ConstantMixing(0.2))
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from posbias.core.errors import is_number, whole, wrong
from posbias.core.plotting import Plottable
from posbias.core.spec import Count, Fractions, NaturalNumber, Numbers, Positive, Size, later, value
from posbias.theory.content import Content, NoContent, QueryScale
from posbias.theory.masks import Causal, Mask, SlidingWindow, lookahead
from posbias.theory.mixing import (
    REACH,
    HyperConnections,
    MeasuredMixing,
    Mixing,
    PerLayer,
    PreNormInit,
    TrainedMedian,
)
from posbias.theory.normalisers import Normaliser, Softmax
from posbias.theory.positional import (
    DenseLogits,
    DistanceFunction,
    NeedsMeasurement,
    NoPE,
    Positional,
    Tabulated,
    spread,
)

LAMBDA = "λ"
"""What is left out where no mixing was given."""


@dataclass(frozen=True, eq=False)
class HeadLogits:
    """A layer's logits per head in softmax units, and the weight of each head.

    s_ij = bias_h(i − j) + diagonal_h·1[i = j] + first_h·1[j = 0]; `slopes` is m where bias_h(d) = −m_h·d for
    d ≥ 0, else None. `sinks` holds the logit of the learned sink next to the keys, −inf without one. Engines that
    take several layers at once stack theirs.
    """

    slopes: Float[np.ndarray, "*layer head"] | None
    diagonal: Float[np.ndarray, "*layer head"]
    first: Float[np.ndarray, "*layer head"]
    sinks: Float[np.ndarray, "*layer head"]
    weights: Float[np.ndarray, "*layer weight"]


@value
class Layer:
    """One attention layer: mask, positional logits, content logits, heads.

    Lists of numbers per head may hold one for all heads, one per head, or, with `groups` (key-value heads of
    grouped-query attention, which divide the heads), one per group. `head_weights` (one per head, summing to
    one) replace the uniform mean over heads of Herasimchyk et al. 2026, Eq. (4); `temperature` divides the
    logits. `sinks` are logits of a learned sink next to the keys (GPT-OSS): what it draws is lost to the
    tokens. `normaliser` makes rows of logits; only a softmax has sinks. `query_scale` multiplies the logits of
    each query by a number of its position. `cached` is how many numbers are kept of each token for each key-value
    head: 2·d_head, or of latent attention its rank and rotary part (None: not known). Raises `InvalidValueError`
    where counts do not fit.
    """

    heads: Size = 1
    mask: Mask = field(default_factory=Causal)
    positional: Positional = field(default_factory=NoPE)
    content: Content = field(default_factory=NoContent)
    head_weights: Fractions | None = None
    temperature: Positive = 1.0
    groups: Count | None = None
    sinks: Numbers | None = None
    normaliser: Normaliser = later(default=Softmax())
    query_scale: QueryScale | None = later(default=None)
    cached: NaturalNumber | None = later(default=None)

    def __post_init__(self):
        if self.sinks is not None and not isinstance(self.normaliser, Softmax):
            raise wrong("sinks", "the normaliser softmax with them", got=self.normaliser.kind)
        if self.groups is not None and self.heads % self.groups:
            raise wrong("groups", f"a number that divides the {self.heads} heads", self.groups)
        _ = self.head_logits
        self.factors(np.zeros(1, dtype=np.int64))
        # those of a table or a user's own are asked for at the distances of a text alone
        if not isinstance(self.positional, DenseLogits | DistanceFunction | Tabulated):
            self.positional.logits_at(np.zeros(1, dtype=np.int64), self.heads, self.groups)
        if self.head_weights is not None:
            if len(self.head_weights) != self.heads:
                raise wrong("head_weights", f"{self.heads} (one per head)", len(self.head_weights))
            total = float(np.sum(self.head_weights))
            if abs(total - 1.0) > 1e-12:
                raise wrong("head_weights", "a sum of 1", got=f"{total:.13g}")

    @cached_property
    def head_logits(self) -> HeadLogits:
        """What is constant in the layer's logits, divided by the temperature, with the weights of the heads.

        The arrays are read-only.
        """
        weights = np.array(self.head_weights or [1.0 / self.heads] * self.heads)
        slopes = self.positional.slopes_of(self.heads, self.groups)
        sinks = np.full(self.heads, -np.inf)
        if self.sinks is not None:
            # a constant content logit lifts every key against the sink
            sinks = spread("sinks", self.sinks, self.heads, self.groups) - self.constant
        diagonal = self.content.diagonal_of(self.heads, self.groups)
        first = self.content.first_column_of(self.heads, self.groups)
        with np.errstate(over="ignore"):
            slopes = None if slopes is None else slopes / self.temperature
            made = HeadLogits(slopes, diagonal / self.temperature, first / self.temperature, sinks, weights)
        for values in (slopes, made.diagonal, made.first, sinks, weights):
            if values is None:
                continue
            values.flags.writeable = False
            if values is not sinks and not np.isfinite(values).all():
                raise wrong("temperature", "one under which logits stay finite", got=f"{self.temperature:g}")
        return made

    @property
    def constant(self) -> Float[np.ndarray, "head"]:
        """The content logit that all pairs have, divided by the temperature: it cancels in a softmax alone."""
        constant = getattr(self.content, "constant", (0.0,))
        return spread("constant", constant, self.heads, self.groups) / self.temperature

    def factors(self, positions: Int[np.ndarray, "query"]) -> Float[np.ndarray, "head query"] | None:
        """What multiplies the logits of queries at these positions, per head; None where nothing does.

        Raises `InvalidValueError` for a count that does not fit the heads, and factors that are not finite.
        """
        if self.query_scale is None:
            return None
        factors = self.query_scale.factors_at(positions, self.heads, self.groups)
        if not np.isfinite(factors).all():
            raise wrong("query_scale", "finite numbers", got="a factor that is not finite")
        return factors

    def sink_logits(self, positions: Int[np.ndarray, "query"]) -> Float[np.ndarray, "head query"]:
        """Logits of the learned sink next to the keys of queries at these positions, −∞ without one.

        A factor on a row multiplies the constant content logit, which lifts every key against the sink.
        """
        sinks, factors = self.head_logits.sinks[:, None], self.factors(positions)
        if factors is None:
            return np.broadcast_to(sinks, (self.heads, len(positions)))
        return sinks + (1.0 - factors) * self.constant[:, None]

    def bias(self, distance: Int[np.ndarray, "distance"]) -> Float[np.ndarray, "head distance"]:
        """The positional logits at distances i − j, divided by the temperature, one row per head.

        Raises `InvalidValueError` for logits that no distance determines, or that are not finite.
        """
        if isinstance(self.positional, DenseLogits):
            raise wrong("positional", "logits by distance", got="a dense matrix")
        with np.errstate(over="ignore", invalid="ignore"):
            logits = self.positional.logits_at(distance, self.heads, self.groups) / self.temperature
        if not np.isfinite(logits).all():
            raise wrong("positional", "finite logits at these distances", got="an overflow")
        return logits

    def at(self, tokens: int) -> "Layer":
        """The same with what a text's length changes, a bias or rotary angles, as it is at so many tokens."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in ("normaliser", "positional")}
        parts = {name: part.at(tokens) for name, part in parts.items() if hasattr(part, "at")}
        same = all(part is getattr(self, name) for name, part in parts.items())
        return self if same else replace(self, **parts)

    def logits(self, tokens: int) -> Float[np.ndarray, "head query key"]:
        """All logits of the layer for a text of `tokens` tokens, dense; mask and sink not yet applied.

        Without the constant that a softmax does not see.
        """
        if (layer := self.at(tokens)) is not self:
            return layer.logits(tokens)
        position = np.arange(tokens)
        if isinstance(self.positional, DenseLogits):
            logits = self.positional.logits_of(position, position, self.heads, self.groups) / self.temperature
        else:
            behind = lookahead(self.mask, tokens)
            far = self.mask.farthest(tokens)
            bias = self.bias(np.arange(-behind, far + 1))
            distance = position[:, None] - position[None, :]
            logits = bias[:, np.clip(distance, -behind, far) + behind]
        fixed = self.head_logits
        logits[:, position, position] += fixed.diagonal[:, None]
        logits[:, :, 0] += fixed.first[:, None]
        if not isinstance(self.normaliser, Softmax):
            logits += self.constant[:, None, None]
        factors = self.factors(position)
        if factors is not None:
            # what the encoding masks stays masked
            np.multiply(logits, factors[:, :, None], out=logits, where=logits > -np.inf)
        return logits


@value
class Architecture(Plottable):
    """`depth` layers, bottom first: the pattern `layers` repeated up to there, with each one's mixing coefficient.

    Without `mixing` the median over pretrained models is assumed and said (`TrainedMedian`). `remarks` are what a
    reader of configurations has to say about the choice. `streams` are hyper-connections in place of one
    residual. Raises `InvalidValueError` for a pattern of no layer or of more than the depth, and a mixing or
    connections that do not fit the depth.
    """

    _drawn_by: ClassVar[str] = "draw_architecture"

    depth: Size
    layers: tuple[Layer, ...] = (Layer(),)
    mixing: Mixing = field(default_factory=TrainedMedian)
    name: str = ""
    remarks: tuple[str, ...] = ()
    streams: HyperConnections | None = later(default=None)

    def __post_init__(self):
        if self.streams is not None:
            self.streams.of(self.depth)
        if not 1 <= len(self.layers) <= self.depth:
            raise wrong("layers", f"1 to {self.depth} (the depth)", got=f"a pattern of {len(self.layers)}")
        self.mixing.values(self.depth)

    def __str__(self) -> str:
        """What it is, its kinds of layers, λ and what decides a profile and is not known: up to seven lines."""
        kinds = dict.fromkeys(self.layers)
        heads = "/".join(dict.fromkeys(str(layer.heads) for layer in kinds))
        lines = [f"Architecture {self.name}".rstrip() + f": {self.depth} layers of {heads} heads"]
        for name in ("mask", "positional", "normaliser", "query_scale"):
            parts = (getattr(layer, name) for layer in kinds)
            said = dict.fromkeys("none" if part is None else type(part).__name__ for part in parts)
            if said.keys() - {"Softmax", "none"}:
                lines.append(f"{name}: {', '.join(said)}")
        least, most = self.coefficients.min(), self.coefficients.max()
        spread = f"{least:.3g}" if least == most else f"{least:.3g} to {most:.3g}"
        lines.append(f"{LAMBDA}: {spread} ({type(self.mixing).__name__})")
        if self.streams is not None:
            lines.append(f"streams: {len(self.streams.collapse)} ({type(self.streams).__name__})")
        unknown = self.left_out(0)
        return "\n".join([*lines, f"not known: {', '.join(unknown)}"] if unknown else lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What a notebook shows."""
        printer.text(str(self))

    @classmethod
    def pattern(
        cls,
        depth: int,
        *,
        local: int,
        window: int | Mask,
        layer: Layer | None = None,
        full: Layer | None = None,
        mixing: Mixing | None = None,
        name: str = "",
    ) -> "Architecture":
        """`local` layers under a window of `window` tokens, or any mask, then a full one, up to any depth.

        Layer t (from 0) is full where t + 1 is a multiple of `local` + 1, as transformers builds Gemma 2 and 3,
        GPT-OSS and Cohere 2. `layer` is each of them but for its mask, `full` the full ones where they differ
        (Cohere 2's have no encoding). Raises `InvalidValueError` for a number that cannot be.

            Architecture.pattern(62, local=5, window=1024, layer=Layer(heads=32))
            Architecture.pattern(48, local=3, window=Chunked(8192), layer=Layer(heads=40))
        """
        layer = Layer() if layer is None else layer
        near = replace(layer, mask=SlidingWindow(window) if isinstance(window, int) else window)
        most = whole("depth", depth, 1)
        period = [near] * min(whole("local", local, 0), most) + [layer if full is None else full]
        return cls(depth, tuple(period[:most]), mixing or TrainedMedian(), name)

    @property
    def stack(self) -> tuple[Layer, ...]:
        """All layers, bottom first."""
        return (self.layers * -(-self.depth // len(self.layers)))[: self.depth]

    @property
    def coefficients(self) -> Float[np.ndarray, "layer"]:
        """λ of every layer, bottom first."""
        return self.mixing.values(self.depth)

    @property
    def mixing_given(self) -> bool:
        """Whether λ is not that of models like it: one at initialisation was asked for, if assumed in form."""
        return not self.mixing.assumed or isinstance(self.mixing, PreNormInit)

    def left_out(self, tokens: int) -> tuple[str, ...]:
        """What decides the shape of a profile of so many tokens and is not known, in words; nothing if all is.

        Encodings that act through queries and keys alone, and what else of layers only a measurement tells; λ
        where none was given, or where it was measured at less than 1/`REACH` of this length.
        """
        encodings = (layer.positional for layer in self.layers)
        needy = (one for one in encodings if isinstance(one, NeedsMeasurement))
        said = sorted({part for one in needy for part in one.unknown_at(tokens)})
        if not self.mixing_given:
            said.append(LAMBDA)
        if isinstance(self.mixing, MeasuredMixing) and tokens > REACH * self.mixing.tokens:
            said.append(f"{LAMBDA} at {tokens:,} tokens (measured at {self.mixing.tokens:,})")
        return tuple(said)

    def assumptions_at(self, tokens: int) -> tuple[str, ...]:
        """`assumptions`, and that λ is extrapolated where it was measured at another length."""
        one = self.mixing
        if not isinstance(one, MeasuredMixing) or tokens == one.tokens:
            return self.assumptions
        of = f" of {one.text}" if one.text else ""
        said = f"mixing: λ was measured at {one.tokens:,} tokens{of}, and is extrapolated to {tokens:,}"
        return (*self.assumptions, said)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a prediction from this architecture takes for granted, in words; empty when all was given."""
        said = list(self.remarks)
        if self.mixing.assumed:
            said.append(self.mixing.assumed)
        caveats = {layer.positional.caveat for layer in self.layers if not layer.positional.exact}  # type: ignore[union-attr]
        said.extend(f"positional: {caveat}" for caveat in sorted(caveats))
        return tuple(said)


def shortest_pattern(stack: Sequence[Layer]) -> tuple[Layer, ...]:
    """The shortest pattern whose repetition, cut at the depth, is the whole stack."""
    for period in range(1, len(stack)):
        if all(stack[t] == stack[t - period] for t in range(period, len(stack))):
            return tuple(stack[:period])
    return tuple(stack)


def gated(
    architecture: Architecture,
    gates: float | Sequence[float] | Sequence[Sequence[float]],
    *,
    in_mixing: bool = False,
) -> Architecture:
    """The architecture with gates on its heads: each head's output times a number g_h before heads are added.

    The layer's output is (1 − λ)X + λ·Σ_h w_h·g_h·A_h X, whose rows of shares sum to 1 − λ + λ·ḡ, ḡ = Σ_h w_h·g_h.
    Divided by that it is a layer with other weights of heads and another λ, so that there is no field for gates:

        R = (1 − λ')I + λ'·Σ_h w'_h·A_h,    w'_h = w_h·g_h/ḡ,    λ' = λ·ḡ/(1 − λ + λ·ḡ)

    λ measured on a model with gates has them in it already; then the weights alone change. Gates that depend on
    the query (Qwen 3 Next; Qiu et al. 2025) are taken by their mean over queries, exact where they are constant.

    `gates`: numbers ≥ 0, one for all heads of a layer, one per group of heads or one per head; one such list for
    all layers, or one for each, bottom first. `in_mixing`: λ was measured with the gates and stays. Raises
    `InvalidValueError` for counts that do not fit, a number below zero, gates that leave nothing of a layer
    without residual, and, unless `in_mixing`, for λ that was assumed and for hyper-connections.
    """
    given: Any = [gates] if is_number(gates) else gates
    if not len(given):
        raise wrong("gates", "one or more numbers", got="none")
    lists = given if np.ndim(given[0]) else [given]
    depth, rows = architecture.depth, [tuple(map(float, row)) for row in lists]
    if len(rows) not in (1, depth):
        raise wrong("gates", f"one or {depth} (one per layer)", got=f"{len(rows)} lists")
    if not in_mixing and (architecture.mixing.assumed or architecture.streams is not None):
        raise wrong("in_mixing", "True where λ is assumed or of several streams", got="False")
    stack, coefficients = [], []
    for t, (layer, lam) in enumerate(zip(architecture.stack, architecture.coefficients, strict=True)):
        passed = layer.head_logits.weights * spread("gates", rows[t % len(rows)], layer.heads, layer.groups)
        mean = float(passed.sum())
        kept = 1.0 - lam + lam * mean
        if not np.isfinite(kept) or (passed < 0).any() or not kept:
            raise wrong("gates", f"numbers ≥ 0, not all 0, at λ = {lam:g}", got=str(rows[t % len(rows)]))
        stack.append(_weighted(layer, passed / mean) if mean else layer)
        coefficients.append(float(lam * mean / kept))
    changed = replace(architecture, layers=shortest_pattern(stack))
    if in_mixing:
        return changed
    held, made = architecture.mixing, tuple(coefficients)
    mixing = replace(held, coefficients=made) if isinstance(held, PerLayer) else PerLayer(made)
    return replace(changed, mixing=mixing)


def _weighted(layer: Layer, shares: np.ndarray) -> Layer:
    """The layer with these weights of its heads; none where they are even, as before."""
    if np.allclose(shares, 1.0 / layer.heads, rtol=1e-15, atol=0.0):
        return replace(layer, head_weights=None)
    return replace(layer, head_weights=tuple((shares / shares.sum()).tolist()))
