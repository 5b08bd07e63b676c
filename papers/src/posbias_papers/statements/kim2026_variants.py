"""Kim et al. 2026, beyond the statements: norms, heads, encodings, masks, other parts of a layer and lengths.

All at initialisation. LayerNorm(x) is √d·x/‖x‖ turned by the angle between x and the vectors whose entries have
mean 0. Its sine s is the share of x along (1, …, 1)/√d: for normal x, s² is Beta(½, (d − 1)/2), and the squared
distance in units of d is 2 − 2√(1 − s²). Heads without projections are the parts of a vector; where heads share a
key head, its keys and values are the mean of theirs. Rules that the text gives only a direction for are tried as
the direction (at α from .45 to .8, where the recency probability is well above ½ in so few draws). Under the
causal mask what layer 2 makes of a distance depends on where it stands; under a sliding window of width w tokens
from the w-th on attend to w tokens each, so from query 2(w − 1) on layer 2 has one law at every place; under the
full mask no key is nearer.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from posbias.core.machine import stream
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings, hidden_states, layer_scores, normalised
from posbias.theory.masks import Causal, Full, Mask, SlidingWindow
from posbias_papers.simulation.variants import Variant, draw_inputs, draw_weights, recency_share, run_layers
from posbias_papers.statements import draws
from posbias_papers.statements.kim2026_layernorm import (
    SIGMAS,
    near,
    recency_shares,
    standard_error,
    strict,
    strictly,
)
from posbias_papers.statements.margins import least
from posbias_papers.statements.record import OURS, Draw

COSINES = 1.25
"""The root mean square by which two cosines differ is at most this times (1 − α²)/d, from 16 dimensions on."""
OFF = 0.2
"""By which share of itself a rise may be off that of a single head."""
APART = 0.01
"""How far two recency probabilities may be apart and be called the same."""
LONGER = 3
"""How many times longer the longer of two texts is."""
WINDOWS = 4
"""Texts under masks are this many windows long."""
STREAM = "verify/kim/extensions"
UNPRINTED: Mapping[str, Any] = {"evidence": "none: the paper simulates none"}
NO_NUMBER: Mapping[str, Any] = {**OURS, "evidence": "none: no number is printed"}

Scores = Float[np.ndarray, "input head query key"]


# --- LayerNorm and the ℓ2 norm, and what two hidden states share -----------------------------------------------


def drawn_states(
    model: RecencyModel, seed: int, samples: int
) -> Float[np.ndarray, "layer sample token dimension"]:
    """The residual stream of `samples` drawn inputs before every layer."""
    return hidden_states(model, embeddings(stream(seed, STREAM), model, samples))


def cosines(x: Float[np.ndarray, "*batch token dimension"]) -> Float[np.ndarray, "*batch pair"]:
    """The cosines of all pairs i > j of the vectors of an input."""
    unit = x / np.linalg.norm(x, axis=-1, keepdims=True)
    query, key = np.tril_indices(x.shape[-2], -1)
    return (unit @ unit.swapaxes(-1, -2))[..., query, key]


def mean_squared_distance(dimension: int) -> float:
    """E‖LayerNorm(x) − √d·x/‖x‖‖²/d of normal x: 2 − 2·Γ(d/2)²/(Γ((d+1)/2)·Γ((d−1)/2))."""
    log_cosine = 2 * gammaln(dimension / 2) - gammaln((dimension + 1) / 2) - gammaln((dimension - 1) / 2)
    return float(-2.0 * np.expm1(log_cosine))


@strictly(
    "kim-2.2-layernorm",
    "Section 2.2, large d",
    lambda rng, edge: {
        "seed": draws.SEED(rng, edge),
        "samples": 300,
        "dimension": int(rng.choice([4, 1024]) if edge else 2.0 ** rng.uniform(2.0, 10.0)),
    },
    **NO_NUMBER,
)
def near_the_unit_vector(seed: int, samples: int, dimension: int) -> float:
    """for normal x the mean of ‖LayerNorm(x) − √d·x/‖x‖‖²/d is 2 − 2Γ(d/2)²/(Γ((d+1)/2)Γ((d−1)/2)), between 1/d
    and 1.21/d from d = 4 on: the two are about 1/√d apart, relative to their length

    Holds; the text says that they are approximately equal for large d, the number is ours: root mean squares of
    .256 at d = 16, .126 at 64, .063 at 256 and .031 at 1,024. A mean of the entries is what LayerNorm takes away,
    so x whose entries share an offset are farther apart at every d.

    Scope: normal embeddings, d from 4 to 1,024
    """
    model = RecencyModel(2, dimension, 0.0)
    x = embeddings(stream(seed, STREAM), model, samples)[:, 0]
    apart = normalised(model, x) / math.sqrt(dimension) - x / np.linalg.norm(x, axis=-1, keepdims=True)
    exact = mean_squared_distance(dimension)
    return min(near((apart**2).sum(axis=-1), exact), exact * dimension - 1.0, 1.21 - exact * dimension)


def _states(least: int, largest: int, samples: int) -> Draw:
    """An input's model: α from 0 to .95."""
    return draws.instance(
        seed=draws.SEED,
        samples=samples,
        tokens=draws.whole(3, 12),
        dimension=draws.whole(least, largest, (least, largest)),
        anisotropy=draws.real(0.0, 0.95, (0.0, 0.95)),
    )


@strictly("kim-3-cosine", "Section 3, cosine similarity", _states(16, 512, samples=100), **NO_NUMBER)
def cosine_similarity(seed: int, samples: int, **model: Any) -> float:
    """⟨LayerNorm(x), LayerNorm(y)⟩/d is the cosine of two embeddings up to a root mean square of 1.25·(1 − α²)/d,
    from d = 16 on

    Holds; the text says approximated under mild assumptions, the bound is ours: (1 − α²)/d to leading order.
    Without a residual connection outputs of a layer have entries of mean 0 already, and there is no difference.

    Scope: normal embeddings, any α, d from 16 to 512
    """
    drawn = RecencyModel(**model, depth=1)
    (x,) = drawn_states(drawn, seed, samples)
    squared = ((cosines(normalised(drawn, x)) - cosines(x)) ** 2).mean(axis=-1)
    return near(squared, 0.0, (COSINES * (1.0 - drawn.anisotropy**2) / drawn.dimension) ** 2)


@strictly(
    "kim-3-shared",
    "Section 3, shared components",
    _states(16, 64, samples=200),
    strength="observation",
    evidence="10,000,000 simulations",
)
def shared_components(seed: int, samples: int, **model: Any) -> float:
    """a residual connection lowers the mean cosine of the states of two tokens after the first layer

    Holds, for the same embeddings with and without. At 10 tokens and α = .5 the mean cosine falls from .682 to
    .633 at d = 16 and from .549 to .541 at d = 64.

    Scope: no learnable parameters, after layer 1; the text: α = 0.5, d = 16 and 64, 10 tokens
    """
    models = (RecencyModel(**model, residual=residual, depth=2) for residual in (False, True))
    without, having = (float(cosines(drawn_states(one, seed, samples)[1]).mean()) for one in models)
    return strict((without - having) / abs(without))


# --- heads, encodings, and other parts of a layer ------------------------------------------------------------


def second_layer(variant: Variant, seed: int, inputs: int) -> tuple[list[Scores], list[Scores]]:
    """Scores of layers 1 and 2 of a network given `inputs` inputs, and their content without an encoding."""
    weights = draw_weights(variant, seed, 0)
    drawn = [[*run_layers(x, variant, weights)] for x in draw_inputs(variant, seed, 0, inputs)]
    layers = [
        [np.concatenate([block[layer][part] for block in drawn]) for layer in (0, 1)] for part in (0, 1)
    ]
    return layers[0], layers[1]


def _variants(inputs: int, **choices: tuple[Any, ...]) -> Draw:
    """Dimensions of a head, how many there are, α and tokens, and one of each of the `choices`."""
    return draws.instance(
        seed=draws.SEED,
        inputs=inputs,
        head_dimension=lambda rng, edge: int(rng.choice([16, 32]) if edge else rng.integers(8, 17) * 2),
        heads=lambda rng, edge: int(rng.choice([2, 4])),
        anisotropy=draws.real(0.45, 0.8, (0.45, 0.8)),
        tokens=draws.whole(8, 10),
        **{name: draws.one_of(*given) for name, given in choices.items()},
    )


def _scores(
    seed: int, inputs: int, head_dimension: int, heads: int, anisotropy: float, tokens: int, **fields: Any
) -> tuple[list[Scores], list[Scores]]:
    """The same of `heads` heads of `head_dimension` dimensions."""
    model = RecencyModel(tokens, heads * head_dimension, anisotropy, depth=2)
    return second_layer(Variant(model, direction="input", heads=heads, **fields), seed, inputs)


def _above_half(scores: Scores) -> float:
    return float(recency_share(scores).mean()) - 0.5


@strictly(
    "kim-4-heads",
    "Section 4, heads",
    _variants(150, kind=("each", "grouped", "one"), projections=("none", "tied")),
    strength="observation",
    **UNPRINTED,
)
def several_heads(kind: str, **drawn: Any) -> float:
    """several heads, with a key head each, one for every two or one for all: the recency probability of layer 2
    is above one half, without projections and with W_Q = W_K

    Holds, at initialisation. At d = 64, α = .5, 10 tokens and four heads without projections .598 with a key head
    each, .704 with two and .878 with one (a single head: .553 at d = 64, .638 at 16); with W_Q = W_K .620, .639
    and .626. With W_Q and W_K drawn apart it is one half over networks, as with a single head.

    Scope: multi-head, grouped and multi-query attention; tried at d_h from 16 to 32, 2 or 4 heads, α from .45
    to .8, 8 to 10 tokens, layer 2, at initialisation
    """
    groups = {"each": None, "grouped": max(1, drawn["heads"] // 2), "one": 1}[kind]
    return _above_half(_scores(groups=groups, **drawn)[0][1])


@strictly(
    "kim-4-head-dimension",
    "Section 4, dimension of a head",
    _variants(300),
    witness={"seed": 0, "inputs": 1000, "head_dimension": 16, "heads": 4, "anisotropy": 0.75, "tokens": 10},
    **OURS,
    **UNPRINTED,
)
def same_probability(corrected: bool, **drawn: Any) -> float:
    """with a key head each the recency probability of layer 2 is that of a single head of d_h dimensions, within
    .01 and 5 standard errors

    Corrected: with a key head each the mean scores of the last query rise as those of a single head of d_h
    dimensions, within a fifth and 5 standard errors

    Wider than the paper, which puts √d_h for √d in its derivation, one on mean scores: of these it is so (at d_h
    = 16 and α = .5 .233 with four heads, .229 with one). LayerNorm makes whole vectors alike in length, not a
    head's part of them, so single scores scatter more and the probability is lower: .598 against .638. With shared
    key heads mean scores rise more (.313 with two key heads, .356 with one): a direction, no rule.

    Scope: heads without projections; d_h from 16 to 32, 2 or 4 heads, α from .45 to .8, 8 to 10 tokens, layer
    2, at initialisation
    """
    both = [_scores(**drawn | {"heads": count})[0][1] for count in (1, drawn["heads"])]
    if not corrected:
        one, several = map(recency_share, both)
        allowed = APART + SIGMAS * math.hypot(standard_error(one), standard_error(several))
        apart = abs(float(one.mean()) - float(several.mean()))
        return least(1.0 - apart / allowed, several.mean(), one.mean())
    # S(last, last but one)/S(last, 0) − 1 of mean scores over inputs and heads
    rises = [
        (scores[..., -1, -2] - scores[..., -1, 0]).mean(axis=1) / scores[..., -1, 0].mean() for scores in both
    ]
    one, other = (float(rise.mean()) for rise in rises)
    return 1.0 - abs(one - other) / (OFF * one + SIGMAS * math.hypot(*map(standard_error, rises)))


def beyond_distance(scores: Scores) -> Float[np.ndarray, "input"]:
    """The last query's scores less those of the first query that has the distance, over distances and heads."""
    last = scores.shape[-1] - 1
    away = np.arange(1, last)
    return (scores[..., last, last - away] - scores[..., away, 0]).mean(axis=(1, 2))


@strictly(
    "kim-4-relative",
    "Section 4, relative encodings",
    _variants(200, positional=("rope", "alibi")),
    strength="hedged",
    **UNPRINTED,
)
def relative_encodings(**drawn: Any) -> float:
    """mean scores of layer 1 under RoPE or ALiBi are the same at every place of a distance; those of layer 2
    under LayerNorm alone are higher for later queries

    Holds, at initialisation. The text says that the two may differ, in that LayerNorm's bias is not one of
    distance.

    Scope: LayerNorm, RoPE with base 10,000, ALiBi with its standard slopes; tried at d_h from 16 to 32, 2 or 4
    heads, α from .45 to .8, 8 to 10 tokens, layer 2, at initialisation
    """
    encoded, plain = (_scores(**{**drawn, "positional": one})[0] for one in (drawn["positional"], "none"))
    return min(near(beyond_distance(encoded[0]), 0.0), float(beyond_distance(plain[1]).mean()))


@strictly(
    "kim-limitations-encodings",
    "Limitations, RoPE",
    _variants(200, positional=("rope", "alibi")),
    **OURS,
    **UNPRINTED,
)
def content_under_encodings(**drawn: Any) -> float:
    """under RoPE or ALiBi too LayerNorm gives the content of layer 2 a recency probability above one half

    Holds, at initialisation; the paper leaves the interaction open. At d = 64, four heads and α = .5 the content
    has .598 without an encoding, .584 under RoPE and .591 under ALiBi, and scores with the encoding .655 and
    .673: the two biases add, and the encoding weakens LayerNorm's own a little.

    Scope: heads without projections; d_h from 16 to 32, 2 or 4 heads, α from .45 to .8, 8 to 10 tokens, layer
    2, at initialisation
    """
    return _above_half(_scores(**drawn)[1][1])


@strictly(
    "kim-limitations-parts",
    "Limitations, parts of a layer",
    _variants(400, part=("feed-forward", "values", "tied")),
    **OURS,
    **UNPRINTED,
)
def parts_of_a_layer(head_dimension: int, part: str, **drawn: Any) -> float:
    """a feed-forward block, value projections, or W_Q = W_K, all drawn, leave the recency probability of layer 2
    above one half

    Holds, at initialisation; the paper analyses none of them. At d = 64 and α = .5 .541, .532 and .551, against
    .553 without. W_Q and W_K drawn apart leave one half over networks (−W_Q is as likely as W_Q).

    Scope: one head, d from 32 to 64, α from .45 to .8, 8 to 10 tokens, layer 2, at initialisation
    """
    more: dict[str, Any] = {
        "feed-forward": {"feed_forward": True},
        "values": {"values": True},
        "tied": {"projections": "tied"},
    }[part]
    return _above_half(_scores(**drawn | {"heads": 1}, head_dimension=2 * head_dimension, **more)[0][1])


# --- lengths and masks -----------------------------------------------------------------------------------------


@strictly(
    "kim-4-length",
    "Section 4, length",
    draws.instance(
        seed=draws.SEED,
        samples=300,
        tokens=draws.whole(8, 12),
        dimension=draws.whole(16, 64, (16, 64)),
        anisotropy=draws.real(0.4, 0.6, (0.4, 0.6)),
        residual=draws.coin,
    ),
    **OURS,
    **UNPRINTED,
)
def longer_texts(seed: int, samples: int, tokens: int, **model: Any) -> float:
    """the recency probability of layer 2 is higher in a text three times as long

    Holds, at initialisation: at d = 64 and α = .5 .531, .554, .596, .654 and .717 with 5, 10, 20, 40 and 80
    tokens. The text conjectures that an uneven bias harms length generalisation; that the bias a model sees
    changes with length is what a simulation can say of it.

    Scope: d from 16 to 64, α from .4 to .6, 8 to 12 tokens and 24 to 36, at initialisation
    """
    models = [RecencyModel(length, **model, depth=2) for length in (tokens, LONGER * tokens)]
    drawn = (embeddings(stream(seed, "verify/kim/length"), one, samples) for one in models)
    short, long = (recency_shares(layer_scores(*pair)[0][1]) for pair in zip(models, drawn, strict=True))
    return float(long.mean() - short.mean())


def shares_by_query(model: RecencyModel, seed: int, samples: int) -> Float[np.ndarray, "sample query"]:
    """Of every query the share of pairs of earlier keys it sees of which the nearer scores higher, layer 2."""
    drawn = embeddings(stream(seed, "verify/kim/masks"), model, samples)
    scores, allowed = layer_scores(model, drawn)[0][1], model.mask.allowed(model.tokens)
    shares = np.full((samples, model.tokens), math.nan)
    for query in range(2, model.tokens):
        keys = scores[:, query, :query][:, allowed[query, :query]]
        nearer, farther = np.tril_indices(keys.shape[1], -1)
        if nearer.size:
            shares[:, query] = (keys[:, nearer] > keys[:, farther]).mean(axis=1)
    return shares


@strictly(
    "kim-4-masks",
    "Section 4, the mask",
    draws.instance(
        seed=draws.SEED,
        samples=400,
        width=draws.whole(3, 6, (3, 6)),
        dimension=draws.whole(16, 32, (16, 32)),
        anisotropy=draws.real(0.4, 0.6, (0.4, 0.6)),
        residual=draws.coin,
    ),
    **OURS,
    evidence="none: the paper simulates the causal mask alone",
)
def even_bias(seed: int, samples: int, width: int, **fields: Any) -> float:
    """layer 2: under the causal mask the recency probability of later queries is higher; under a sliding window
    of width w that of all queries from 2(w − 1) on is the same; under the full mask it is one half

    Holds, at initialisation; the text recommends to modify the mask, these masks are ours. At d = 16, α = .5 and
    24 tokens queries 2, 10 and 23 have .573, .661 and .710 under the causal mask, under a window of 6 tokens
    .573, .534 and .533, with its first token as a sink .573, .611 and .606, under a prefix of 8 .501, .519 and
    .638. A window evens the bias and lessens it; the full mask leaves none.

    Scope: d from 16 to 32, α from .4 to .6, windows of 3 to 6, texts four times as long, layer 2, at
    initialisation
    """
    model, first = RecencyModel(WINDOWS * width, **fields, depth=2), 2 * (width - 1)

    def excess(mask: Mask) -> Any:
        """The mean share of the later half of some queries less that of the earlier."""
        shares = shares_by_query(replace(model, mask=mask), seed, samples)[:, first:]
        half = shares.shape[1] // 2
        return shares[:, half:].mean(axis=1) - shares[:, :half].mean(axis=1)

    full = shares_by_query(replace(model, mask=Full()), seed, samples)[:, 2:].mean(axis=1)
    return min(float(excess(Causal()).mean()), near(excess(SlidingWindow(width)), 0.0), near(full, 0.5))
