"""Simulations of Kim et al. 2026: as cells that are kept (`RecencyCell`), and beyond the paper (`Variant`).

Does LayerNorm's recency survive parameters, heads, a feed-forward block, an encoding? A variant adds parts of a
real layer at initialisation to a `RecencyModel`, all of them drawn, none learned:

    Q = Y·W_Q,  K = Y·W_K,  V = Y·W_V,  S = QKᵀ/√d_h per head (+ an encoding),  O = softmax(S)·V·W_O (+ X)
    X ← O,  or with a feed-forward block  X ← max(norm(O)·W_1, 0)·W_2 + O          (Kim et al. 2026, §2.1)

A network is one draw of the weights and of the direction that embeddings share (a property of an embedding
table, not of a text), and is given many inputs. With W_Q and W_K independent, −W_Q is as likely as W_Q and
turns every QKᵀ around: without ALiBi the recency probability over networks is ½ at every layer, whatever each
of them does. So a network's own probability is estimated, and its spread over networks is given with its mean.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from posbias.core.errors import whole, wrong
from posbias.core.files import data_table
from posbias.core.formats import Header
from posbias.core.machine import sequence
from posbias.core.progress import Event, OnEvent
from posbias.core.spec import Size, decode, encode, value
from posbias.core.store import Cell
from posbias.profiles.estimate import Estimate
from posbias.simulation.model import RecencyModel
from posbias.simulation.run import RecencyResult
from posbias.simulation.tally import Layout, Tally
from posbias.simulation.token_space import normalised
from posbias.theory.masks import Causal
from posbias.theory.positional import alibi_slopes
from posbias.theory.rollout.kernel import masked_softmax

# --- a simulation as a cell of the store: model and seed decide it, more samples serve whoever wants fewer ---

MOMENTS = ("mean", "squares", "products")


@dataclass(frozen=True)
class RecencyCell(Cell):
    """The samples of a model that a seed draws; `amount` in the store is how many of them were counted.

    Its file holds what `RecencyResult` is made of (engine, samples and the moments of its tally), every float in
    full.
    """

    model: RecencyModel
    seed: int = 0
    amount: int | None = field(default=None, compare=False)
    threads: int | None = field(default=None, compare=False)

    kind = "recency_cell"
    schema = 2
    unit = "sample"

    @property
    def size(self) -> float:
        """How many samples."""
        return float(self.amount or 0)

    @property
    def specification(self) -> Mapping[str, Any]:
        """Model and seed."""
        return {"model": encode(self.model), "seed": self.seed}

    @property
    def name(self) -> str:
        """Such as layernorm-d16-alpha0.5-seed0."""
        residual = "-residual" if self.model.residual else ""
        words = f"{self.model.norm}{residual}-d{self.model.dimension}-alpha{self.model.anisotropy:g}"
        return f"{words}-seed{self.seed}"

    def compute(self, on_event: OnEvent) -> RecencyResult:
        """Draw the samples."""
        from posbias.simulation import simulate_recency

        samples = self.amount or 0
        return simulate_recency(self.model, samples, seed=self.seed, threads=self.threads, on_event=on_event)

    def to_content(self, result: RecencyResult) -> dict[str, Any]:
        """Engine, samples and moments."""
        moments = {name: getattr(result.tally, name).tolist() for name in MOMENTS}
        return {"engine": result.engine, "samples": result.samples, **moments}

    def from_content(self, header: Header, content: Mapping[str, Any]) -> RecencyResult:
        """The result, every float as it was. Raises `KeyError` or `ValueError` for content that is not whole."""
        tally = Tally(Layout(self.model.tokens, self.model.mask), self.model.depth, int(content["samples"]))
        for name in MOMENTS:
            moments = np.array(content[name], dtype=np.float64)
            if moments.shape != getattr(tally, name).shape or not np.isfinite(moments).all():
                raise ValueError(f"{name} are not as many numbers as the model has features")
            setattr(tally, name, moments)
        return RecencyResult(self.model, self.seed, str(content["engine"]), tally)


# --- variants ------------------------------------------------------------------------------------------

Array = Float[np.ndarray, "..."]
Weights = dict[str, Array]
STREAM = "simulate/variants"
BASE = 10_000.0
"""Base of the rotary frequencies (Su et al. 2024)."""
WIDEN = 4
"""Width of the feed-forward block in units of d (Vaswani et al. 2017)."""
NUMBERS = 2**19
"""About how many numbers of one kind are held at a time."""


@value
class Variant:
    """What is added to `model`. Without any addition this is the model itself.

    `projections` draws W_Q and W_K ("tied": one matrix for both), `values` W_V and W_O. Entries are normal with
    standard deviation 1/√(rows), which keeps the variance of what they act on. `heads` split d; `groups` of heads
    share keys and values (default: none do; 1: all share one key head, Shazeer 2019), drawn for the group where
    keys or values have a matrix of their own, else the mean of its heads' (Ainslie et al. 2023). `feed_forward`
    adds a block of width 4d with ReLU, which halves the second moment: W_2 makes up for it. Its residual
    connection is always there, `model.residual` being that of attention. `positional` is ALiBi with its standard
    slopes per head, or rotary with base 10,000, dimension l of a head paired with l + d_h/2. `direction` says how
    often the embeddings' shared direction is drawn; the paper draws it for every input.

    Raises `InvalidValueError` for heads that do not divide d, groups that do not divide heads, an odd head
    dimension with "rope", fewer than 3 tokens or order "post".
    """

    model: RecencyModel = RecencyModel(dimension=64)
    projections: Literal["none", "tied", "independent"] = "none"
    values: bool = False
    heads: Size = 1
    groups: Size | None = None
    feed_forward: bool = False
    positional: Literal["none", "rope", "alibi"] = "none"
    direction: Literal["network", "input"] = "network"

    def __post_init__(self):
        d, tokens = self.model.dimension, self.model.tokens
        if tokens < 3:
            raise wrong("tokens", "at least 3", tokens)
        if self.model.order != "pre":
            raise wrong("order", "'pre'", self.model.order)
        if self.model.mask != Causal():
            raise wrong("mask", "the causal one", got=f"{self.model.mask}")
        if d % self.heads:
            raise wrong("heads", f"a divisor of the dimension {d}", self.heads)
        if self.groups is not None and self.heads % self.groups:
            raise wrong("groups", f"a divisor of the {self.heads} heads", self.groups)
        if self.positional == "rope" and self.head_dimension % 2:
            raise wrong("heads", "an even head dimension with 'rope'", self.heads)

    @property
    def head_dimension(self) -> int:
        """d_h = d/heads."""
        return self.model.dimension // self.heads

    @property
    def key_heads(self) -> int:
        """How many heads have keys and values of their own."""
        return self.heads if self.groups is None else self.groups

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """The weight matrices of a layer, (rows, columns): they act from the right."""
        d, shared = self.model.dimension, self.key_heads * self.head_dimension
        shapes = {}
        if self.projections != "none":
            shapes["query"] = (d, d)
        if self.projections == "independent":
            shapes["key"] = (d, shared)
        if self.values:
            shapes |= {"value": (d, shared), "output": (d, d)}
        if self.feed_forward:
            shapes |= {"up": (d, WIDEN * d), "down": (WIDEN * d, d)}
        return shapes


VARIANTS = {name: decode(Variant, row) for name, row in data_table(__file__, "variants.toml").items()}
"""The variants of the gallery's figure: 10 tokens, 4 layers, d = 64, α = 0.5 unless the name says otherwise."""


@dataclass(frozen=True)
class OverNetworks:
    """Recency probabilities, network by network and layer by layer, and what they say about all networks.

    `share` is a network's mean over its inputs, `noise` the variance of that mean. Both properties are one
    `Estimate` per layer, with errors over networks.
    """

    share: Float[np.ndarray, "network layer"]
    noise: Float[np.ndarray, "network layer"]

    @property
    def recency_probability(self) -> tuple[Estimate, ...]:
        """The mean over networks; ½ is no preference, or none that networks agree on."""
        return tuple(Estimate.of_mean(column) for column in self.share.T)

    @property
    def variance(self) -> tuple[Estimate, ...]:
        """The variance over networks without that of the inputs; it estimates without bias, so below 0 too."""
        networks = len(self.share)
        if networks < 2:
            return tuple(Estimate(math.nan, math.nan, 1) for _ in self.share[0])
        apart = (self.share - self.share.mean(axis=0)) ** 2 * (networks / (networks - 1))
        return tuple(Estimate.of_mean(column) for column in (apart - self.noise).T)

    @property
    def layers(self) -> list[dict[str, Any]]:
        """Both by layer, numbered from 1."""
        both = zip(self.recency_probability, self.variance, strict=True)
        return [
            {"layer": n, "recency_probability": p, "variance": v} for n, (p, v) in enumerate(both, start=1)
        ]


@dataclass(frozen=True)
class VariantResult:
    """A variant, simulated: `score` is of all that enters the softmax, `content` of it without the encoding.

    The content of rotary scores is the inner product before rotation, of ALiBi's what it is added to.
    """

    variant: Variant
    seed: int
    inputs: int
    score: OverNetworks
    content: OverNetworks

    @property
    def networks(self) -> int:
        """How many networks were drawn."""
        return len(self.score.share)

    def parts(self, name: str) -> list[tuple[str, OverNetworks]]:
        """What is to be shown of it under a name: the score, and the content where that differs."""
        both = [(name, self.score), (f"{name}, content", self.content)]
        return both[:1] if self.variant.positional == "none" else both

    @property
    def specification(self) -> dict[str, Any]:
        """The variant in JSON's terms."""
        return encode(self.variant) | {"model": encode(self.variant.model)}


def simulate_variant(
    variant: Variant,
    networks: int = 100,
    inputs: int = 200,
    *,
    seed: int = 0,
    on_event: OnEvent | None = None,
) -> VariantResult:
    """Draw `networks` networks of `variant` and give each of them `inputs` inputs of its own.

    On one kind of processor seed and sizes fix every byte; networks and inputs are the first of any larger
    run, and equally shaped parts of two variants get the same numbers, so that their difference is surer than
    either. `on_event` counts networks. Memory grows by 48 bytes per input of
    one network and layer.

    Raises `InvalidValueError` for networks < 1, inputs < 2 or a seed that is no integer ≥ 0.
    Source: Kim et al. 2026, §2.1, and what its Limitations name.
    """
    whole("networks", networks, 1)
    whole("inputs", inputs, 2)
    share, noise = np.empty((2, networks, variant.model.depth)), np.empty((2, networks, variant.model.depth))
    for network in range(networks):
        weights = draw_weights(variant, seed, network)
        shares = np.concatenate(
            [_shares(x, variant, weights) for x in draw_inputs(variant, seed, network, inputs)]
        )
        share[:, network] = shares.mean(axis=0)
        noise[:, network] = shares.var(axis=0, ddof=1) / inputs
        if on_event:
            on_event(Event(network + 1, networks, "network"))
    parts = [OverNetworks(share[k], noise[k]) for k in range(2)]
    return VariantResult(variant, seed, inputs, *parts)


def draw_weights(variant: Variant, seed: int, network: int) -> tuple[Weights, ...]:
    """The weights of network number `network`, layer by layer. Raises `InvalidValueError` for a wrong seed."""

    def draw(name: str, shape: tuple[int, int], layer: int) -> Array:
        rng = np.random.default_rng(sequence(seed, f"{STREAM}/{name}", network, layer))
        kept = 0.5 if name == "down" else 1.0  # of the second moment, by ReLU
        return rng.standard_normal(shape) * (1.0 / math.sqrt(shape[0] * kept))

    shapes = variant.shapes.items()
    return tuple({name: draw(name, s, layer) for name, s in shapes} for layer in range(variant.model.depth))


def draw_inputs(
    variant: Variant, seed: int, network: int, inputs: int
) -> Iterator[Float[np.ndarray, "input token dimension"]]:
    """The embeddings that network number `network` is given (Eq. 6), a limited number of them at a time."""
    model = variant.model
    rng = np.random.default_rng(sequence(seed, f"{STREAM}/inputs", network))
    one = np.random.default_rng(sequence(seed, f"{STREAM}/direction", network))
    shared = one.standard_normal(model.dimension)
    widest = max(model.dimension * max(1, WIDEN * variant.feed_forward), model.tokens * variant.heads)
    size = max(1, NUMBERS // (model.tokens * widest))
    for first in range(0, inputs, size):
        count = min(size, inputs - first)
        if variant.direction == "input":
            shared = one.standard_normal((count, 1, model.dimension))
        own = rng.standard_normal((count, model.tokens, model.dimension))
        yield (own + model.shared * shared) / math.sqrt(model.dimension)


def run_layers(
    x: Float[np.ndarray, "input token dimension"], variant: Variant, weights: tuple[Weights, ...]
) -> Iterator[tuple[Array, Array, Array]]:
    """Scores, their content and attention of every layer from the bottom, all [input, head, query, key].

    Scores above the diagonal are there but seen by nobody.
    """
    model = variant.model
    causal = np.tri(model.tokens, dtype=bool)
    for layer in weights:
        y = normalised(model, x)
        query, key, values = _heads(y, variant, layer)
        scale = 1.0 / (math.sqrt(variant.head_dimension) * model.temperature)
        content = scale * query @ key.swapaxes(-1, -2)
        score = content
        if variant.positional == "rope":
            score = scale * _rotate(query) @ _rotate(key).swapaxes(-1, -2)
        elif variant.positional == "alibi":
            position = np.arange(model.tokens)
            distance = position[:, None] - position
            score = content - alibi_slopes(variant.heads)[:, None, None] * distance
        attention = masked_softmax(score, causal)
        yield score, content, attention
        mixed = (attention @ values).swapaxes(1, 2).reshape(x.shape)
        mixed = mixed @ layer["output"] if variant.values else mixed
        x = mixed + x if model.residual else mixed
        if variant.feed_forward:
            x = x + np.maximum(normalised(model, x) @ layer["up"], 0.0) @ layer["down"]


# --- the parts of a layer ------------------------------------------------------------------------------


def _heads(y: Array, variant: Variant, weights: Weights) -> tuple[Array, Array, Array]:
    """Queries, keys and values [input, head, token, head dimension]."""
    inputs, tokens, _ = y.shape
    within = variant.heads // variant.key_heads

    def split(projected: Array, heads: int) -> Array:
        return projected.reshape(inputs, tokens, heads, -1).swapaxes(1, 2)

    def shared(name: str, each: Array) -> Array:
        """For every head what its group has: a projection of its own, or else the mean of what each head has."""
        if name in weights:
            kept = split(y @ weights[name], variant.key_heads)
        else:
            kept = each.reshape(inputs, variant.key_heads, within, tokens, -1).mean(axis=2)
        return np.repeat(kept, within, axis=1)

    query = split(y @ weights["query"] if "query" in weights else y, variant.heads)
    return query, shared("key", query), shared("value", split(y, variant.heads))


def _rotate(
    x: Float[np.ndarray, "input head token dimension"],
) -> Float[np.ndarray, "input head token dimension"]:
    """Turn the pair (l, l + d_h/2) of token p by p·BASE^(−2l/d_h) (Su et al. 2024)."""
    tokens, dimension = x.shape[-2:]
    angle = np.outer(np.arange(tokens), BASE ** (-np.arange(0, dimension, 2) / dimension))
    first, second = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


# --- counting ------------------------------------------------------------------------------------------


def _shares(
    x: Array, variant: Variant, weights: tuple[Weights, ...]
) -> Float[np.ndarray, "input part layer"]:
    """The shares of triples with S_ij > S_ik over all heads, of scores and of their content."""
    layers = []
    for score, content, _ in run_layers(x, variant, weights):
        share = recency_share(score)
        layers.append(np.stack([share, share if content is score else recency_share(content)], axis=1))
    return np.stack(layers, axis=2)


def recency_share(scores: Float[np.ndarray, "input head query key"]) -> Float[np.ndarray, "input"]:
    """Of each input, the share of heads and triples i > j > k with S_ij > S_ik."""
    inputs, heads, tokens, _ = scores.shape
    later = np.zeros(inputs, dtype=np.int64)
    for j in range(1, tokens - 1):
        queries = scores[:, :, j + 1 :]
        later += (queries[..., j, None] > queries[..., :j]).sum(axis=(1, 2, 3))
    return later / (heads * math.comb(tokens, 3))
