"""How much of each layer's output is attention: the mixing coefficient λ_t, as a schedule or as it was measured.

    known_mixing()["bloom-176b"].coefficients     # λ of its 70 layers, at 256 tokens
    trained_median(24)                            # λ of a model of 24 layers of which nothing else is known

λ is the weight of **attention** in R = (1 − λ)I + λA; 1 − λ is what the residual stream keeps. Layers are
counted from 0 at the bottom. Published and measured λ are facts with their source, in `known_mixing.toml`. Two
definitions of λ stand there, which differ several times on one model: the median is over models of one of them,
and those of the other are a check.

Hyper-connections: a residual of s streams instead of one, which every layer mixes, reads from and writes to.

What stream s holds after a layer is Σ_r C_sr·X_r + w_s·F(Σ_r q_r·X_r), with F the attention: as shares, each
stream keeps 1 − λ·w_s, split over the streams before it by C, and takes λ·w_s from what the layer read,

    R[(s, i), (r, j)] = (1 − λ·w_s)·C_sr·1[i = j] + λ·w_s·q_r·A_ij.

States are pairs (stream, position) and rows sum to one, so that a rollout is as before, over s times as many
states; attention goes by position alone, so that a layer costs one push of a row, and s² additions for each token.
All streams begin as the embedding; at the end they are read with the shares of `collapse`. One stream makes it the
rollout of Herasimchyk et al. 2026, Eqs. (2) to (4). Source: Zhu et al. 2025; Xie et al. 2025 (C is doubly
stochastic).

In models C, q and w depend on the token. A prediction has their means, and is exact only where they are constant.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic import Field

from posbias.core.errors import wrong
from posbias.core.files import data_table
from posbias.core.spec import Count, Fraction, Fractions, NonNegative, Open, Rows, members, tag, value

Layers = Float[np.ndarray, "layer"]
"""A number per layer, bottom first."""


DEFINITION = "per_token_ratio"
"""The definition of λ whose median is the default: that of most pretrained models whose λ is known."""
REACH = 2
"""Up to this many times the length at which λ was measured a prediction has a verdict."""


class _Known:
    """A schedule that was given: nothing is assumed."""

    assumed: ClassVar[str] = ""


@value
class ConstantMixing(_Known):
    """The same λ in every layer."""

    value: Fraction
    kind: Literal["constant"] = tag(default="constant")

    def values(self, depth: int) -> Float[np.ndarray, "layer"]:
        """λ per layer."""
        return np.full(depth, self.value)


@value
class PowerDecay(_Known):
    """λ_t = λ₀/(t + 1)^β with `initial` λ₀ and `exponent` β (the setting of Theorem 5.4's dichotomy)."""

    initial: Fraction
    exponent: NonNegative
    kind: Literal["power_decay"] = tag(default="power_decay")

    def values(self, depth: int) -> Float[np.ndarray, "layer"]:
        """λ per layer."""
        return self.initial / np.arange(1.0, depth + 1) ** self.exponent


@value
class PerLayer(_Known):
    """One λ per layer, usually measured (Herasimchyk et al. 2026, Eq. 5)."""

    coefficients: Fractions
    kind: Literal["per_layer"] = tag(default="per_layer")

    def values(self, depth: int) -> Float[np.ndarray, "layer"]:
        """λ per layer. Raises `InvalidValueError` if there are not `depth` of them."""
        if len(self.coefficients) != depth:
            raise wrong("mixing", f"{depth} (one per layer)", got=f"{len(self.coefficients)} coefficients")
        return np.array(self.coefficients, dtype=np.float64)


@value
class MeasuredMixing(PerLayer):
    """One λ per layer as measured on a model, with the length of its texts in `tokens`; λ changes with it.

    `text` and `source` say what was measured, and by whom. Predictions for another length say that λ is
    extrapolated, and those beyond `REACH` times the length have no verdict.
    """

    tokens: Count = field(kw_only=True)
    text: str = ""
    source: str = ""
    kind: Literal["measured"] = tag(default="measured")  # type: ignore[assignment]


@value
class AttentionOnly(_Known):
    """λ = 1: no residual connection, the setting of Wu et al. 2025."""

    kind: Literal["attention_only"] = tag(default="attention_only")

    def values(self, depth: int) -> Float[np.ndarray, "layer"]:
        """λ per layer."""
        return np.ones(depth)


@value
class AbnarZuidema(_Known):
    """λ = ½: the fixed residual of attention rollout as first proposed (Abnar and Zuidema 2020)."""

    kind: Literal["abnar_zuidema"] = tag(default="abnar_zuidema")

    def values(self, depth: int) -> Float[np.ndarray, "layer"]:
        """λ per layer."""
        return np.full(depth, 0.5)


@value
class PreNormInit:
    """λ_t = 1/(1 + √(1 + 2t)): a pre-norm network at initialisation, before any training.

    Embeddings and every update have unit variance and are independent. Layer t's attention then adds to a
    stream of variance 1 + 2t (its own and the feed-forward updates of the t layers below), and Eq. (1) of
    Herasimchyk et al. 2026 gives 1/(1 + √(1 + 2t)). An assumption, and every output that rests on it says so: λ
    of known pretrained models is smaller in most layers of networks of up to 32.
    """

    kind: Literal["at_initialisation"] = tag(default="at_initialisation")
    assumed: ClassVar[str] = (
        "mixing: assumed λ_t = 1/(1 + √(1 + 2t)), a pre-norm network at initialisation, not a trained one"
    )

    def values(self, depth: int) -> Float[np.ndarray, "layer"]:
        """λ per layer."""
        return 1.0 / (1.0 + np.sqrt(1.0 + 2.0 * np.arange(depth)))


@value
class TrainedMedian:
    """λ of trained models: layer by layer the median over pretrained ones; the default when no λ is known.

    Over the five models whose λ Herasimchyk et al. 2026 publish, the ratio averaged over tokens, each at the same
    relative depth (`trained_median`). An assumption, and every output that rests on it says so.
    """

    kind: Literal["trained_median"] = tag(default="trained_median")

    @property
    def assumed(self) -> str:
        """What is taken for granted, and from which models."""
        models = plausible_mixing(1, DEFINITION)
        return (
            f"mixing: no λ was given; assumed the median over {len(models)} pretrained models at the same "
            f"relative depth ({', '.join(models)}; ratio averaged over 256 tokens), whose band is given as well"
        )

    def values(self, depth: int) -> Float[np.ndarray, "layer"]:
        """λ per layer."""
        return trained_median(depth)


Mixing = Annotated[
    ConstantMixing
    | PowerDecay
    | PerLayer
    | MeasuredMixing
    | AttentionOnly
    | AbnarZuidema
    | PreNormInit
    | TrainedMedian,
    Field(discriminator="kind"),
    Open("values"),
]
"""The mixing schedules; one's own, with `values` and the words `assumed`, is one too."""

MIXINGS = members(Mixing)
"""Every class of the union, for tests, menus and tables."""


class _Record(NamedTuple):
    pretrained: bool
    definition: str
    mixing: MeasuredMixing


def known_mixing() -> Mapping[str, MeasuredMixing]:
    """λ by model, with the length and text at which it was measured."""
    return MappingProxyType({name: known.mixing for name, known in _read().items()})


def plausible_mixing(depth: int, definition: str | None = None) -> Mapping[str, MeasuredMixing]:
    """λ of a model of `depth` layers, were it that of each pretrained model that was measured (by `definition`).

    λ is taken at the same relative depth (`at_depth`).
    """
    known = {
        name: one.mixing
        for name, one in _read().items()
        if one.pretrained and definition in (None, one.definition)
    }
    return {name: replace(at_depth(mixing, depth), text="", source=name) for name, mixing in known.items()}


@functools.cache
def trained_median(depth: int) -> Float[np.ndarray, "layer"]:
    """λ by layer: the median over models of `DEFINITION`, each at the same relative depth; read-only."""
    models = plausible_mixing(depth, DEFINITION).values()
    median = np.median([mixing.coefficients for mixing in models], axis=0)
    median.flags.writeable = False
    return median


def at_depth(mixing: MeasuredMixing, depth: int) -> MeasuredMixing:
    """λ of a model of another depth: layer t of T lies at (t + ½)/T, and between two layers λ is linear."""
    layers = len(mixing.coefficients)
    place, places = ((np.arange(count) + 0.5) / count for count in (depth, layers))
    values = np.interp(place, places, mixing.coefficients)
    return replace(mixing, coefficients=tuple(values.tolist()))


@functools.cache
def _read() -> dict[str, _Record]:
    return {
        name: _Record(one.pop("pretrained"), one.pop("definition"), MeasuredMixing(**one))
        for name, one in data_table(__file__, "known_mixing.toml").items()
    }


# --- several residual streams ----------------------------------------------------------------------------------

States = Float[np.ndarray, "stream token"]
Row = Float[np.ndarray, "token"]
ROUNDING = 1e-9


@value
class Connection:
    """How one layer is connected with the streams.

    `mix` is C: row s holds the shares of the streams before in what stream s keeps (DeepSeek V4's `comb`
    transposed). `read` is q, the shares of streams in what attention sees; `write` is w, a factor from 0 to 1 on λ
    for each stream (None: 1 for all). Rows of `mix`, and `read`, sum to one. Where a feed-forward block mixes the
    streams again, `mix` is the product of both, the feed-forward block's on the left. Raises `InvalidValueError`
    where numbers do not fit.
    """

    mix: Rows
    read: Fractions
    write: Fractions | None = None

    def __post_init__(self):
        streams = len(self.read)
        _sums_to_one("read", self.read)
        if len(self.mix) != streams or any(len(row) != streams or min(row) < 0 for row in self.mix):
            raise wrong("mix", f"{streams} rows of {streams} numbers ≥ 0, as `read` has", got="others")
        for row in self.mix:
            _sums_to_one("mix", row)
        if self.write is not None and len(self.write) != streams:
            raise wrong("write", f"{streams} (one per stream)", len(self.write))

    def push(
        self, mixing: float, states: States, attend: Callable[[Row], tuple[Row, float]]
    ) -> tuple[States, float]:
        """states · R for one layer, and what its sinks take; `attend` gives row · A and that of its attention."""
        written = mixing * (np.ones(len(self.read)) if self.write is None else np.array(self.write))
        kept = np.einsum("s,sr,sj->rj", 1.0 - written, np.array(self.mix), states)
        asked = np.einsum("s,sj->j", written, states)
        if not asked.any():
            return kept, 0.0
        drawn, lost = attend(asked)
        return kept + np.array(self.read)[:, None] * drawn, lost


@value
class HyperConnections:
    """The streams of an architecture: a `Connection` for all layers, or one for each, bottom first.

    `collapse` are the shares of streams in what is read at the end. Raises `InvalidValueError` where counts do not
    fit or shares do not sum to one.

        HyperConnections((Connection(((0.9, 0.1), (0.1, 0.9)), (0.5, 0.5)),), (0.5, 0.5))
    """

    connections: tuple[Connection, ...]
    collapse: Fractions

    def __post_init__(self):
        _sums_to_one("collapse", self.collapse)
        counts = {len(one.read) for one in self.connections}
        if counts != {len(self.collapse)}:
            given = f"some of {', '.join(map(str, sorted(counts)))}" if counts else "none"
            wanted = f"one or more, each of {len(self.collapse)} streams as in `collapse`"
            raise wrong("connections", wanted, got=given)

    def of(self, depth: int) -> tuple[Connection, ...]:
        """The connection of each layer. Raises `InvalidValueError` unless there is one, or one per layer."""
        if len(self.connections) not in (1, depth):
            raise wrong("connections", f"one or {depth} (one per layer)", len(self.connections))
        return self.connections * (depth // len(self.connections))

    def begin(self, row: Row) -> States:
        """The states of a row at the top: each stream with its share of what is read."""
        return np.array(self.collapse)[:, None] * row


def _sums_to_one(name: str, shares: tuple[float, ...]) -> None:
    if abs(sum(shares) - 1.0) > ROUNDING:
        raise wrong(name, "a sum of 1", got=f"shares that sum to {sum(shares):.13g}")
