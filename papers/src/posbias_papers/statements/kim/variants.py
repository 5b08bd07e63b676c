"""What Kim et al. 2026 say of heads, encodings, other parts of a layer and lengths (Section 4, Limitations).

All at initialisation, on `variants`. Heads without projections are the parts of a vector; where
heads share a key head, its keys and values are the mean of theirs. Rules that the text gives only a direction for
are tried as the direction (at α from .45 to .8, where the recency probability is well above ½ in so few draws).
"""

import math
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias.core.seeds import stream
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings, layer_scores
from posbias_papers.simulation.variants import Variant, draw_inputs, draw_weights, recency_share, run_layers
from posbias_papers.statements.kim.simulations import SIGMAS, recency_shares
from posbias_papers.statements.margins import least
from posbias_papers.statements.statement import OURS, Instance, Statement, statement

OFF = 0.2
"""By which share of itself a rise may be off that of a single head."""
APART = 0.01
"""How far two recency probabilities may be apart and be called the same."""
LONGER = 3
"""How many times longer the longer of two texts is."""

Scores = Float[np.ndarray, "input head query key"]


def second_layer(variant: Variant, seed: int, inputs: int) -> tuple[list[Scores], list[Scores]]:
    """Scores of layers 1 and 2 of a network given `inputs` inputs, and their content without an encoding."""
    weights = draw_weights(variant, seed, 0)
    drawn = [[*run_layers(x, variant, weights)] for x in draw_inputs(variant, seed, 0, inputs)]
    layers = [
        [np.concatenate([block[layer][part] for block in drawn]) for layer in (0, 1)] for part in (0, 1)
    ]
    return layers[0], layers[1]


def _variant(dimension: int, anisotropy: float, tokens: int, **fields: Any) -> Variant:
    return Variant(RecencyModel(tokens, dimension, anisotropy, depth=2), direction="input", **fields)


def _draw(rng: Generator, edge: bool, *, inputs: int, **choices: tuple[Any, ...]) -> Instance:
    """Dimensions of a head, how many there are, α and tokens, and one of each of the `choices`."""
    told = {
        "seed": int(rng.integers(2**31)),
        "inputs": inputs,
        "head_dimension": int(rng.choice([16, 32]) if edge else rng.integers(8, 17) * 2),
        "heads": int(rng.choice([2, 4])),
        "anisotropy": float(rng.choice([0.45, 0.8]) if edge else rng.uniform(0.45, 0.8)),
        "tokens": int(rng.integers(8, 11)),
    }
    return told | {name: given[int(rng.integers(len(given)))] for name, given in choices.items()}


# --- heads -------------------------------------------------------------------------------------------------


def _slack_heads(
    seed: int, inputs: int, head_dimension: int, heads: int, kind: str, projections: Any, **model: Any
) -> float:
    """By how much layer 2 is above ½ with a key head for each head, for every two, or one for all."""
    groups = {"each": None, "grouped": max(1, heads // 2), "one": 1}[kind]
    variant = _variant(heads * head_dimension, heads=heads, groups=groups, projections=projections, **model)
    return float(recency_share(second_layer(variant, seed, inputs)[0][1]).mean()) - 0.5


def _rise(scores: Scores) -> tuple[float, float]:
    """S(last, last but one)/S(last, 0) − 1 of mean scores over inputs and heads, and its standard error."""
    rises = (scores[..., -1, -2] - scores[..., -1, 0]).mean(axis=1)
    level = float(scores[..., -1, 0].mean())
    return float(rises.mean()) / level, float(rises.std(ddof=1)) / math.sqrt(len(rises)) / level


def _single_and_several(
    seed: int, inputs: int, head_dimension: int, heads: int, **model: Any
) -> tuple[Scores, Scores]:
    """Layer 2 of one head of `head_dimension` dimensions, and of several such heads with keys of their own."""
    single, several = (
        second_layer(_variant(count * head_dimension, heads=count, **model), seed, inputs)[0][1]
        for count in (1, heads)
    )
    return single, several


def _same_probability(**drawn: Any) -> float:
    shares = [recency_share(scores) for scores in _single_and_several(**drawn)]
    allowed = APART + SIGMAS * math.hypot(*(one.std(ddof=1) / math.sqrt(one.size) for one in shares))
    one, several = (float(share.mean()) for share in shares)
    return least(1.0 - abs(one - several) / allowed, several, one)


def _same_rise(**drawn: Any) -> float:
    (one, its_error), (other, other_error) = (_rise(scores) for scores in _single_and_several(**drawn))
    return 1.0 - abs(one - other) / (OFF * one + SIGMAS * math.hypot(its_error, other_error))


# --- encodings, and other parts of a layer -----------------------------------------------------------------


def beyond_distance(scores: Scores) -> Float[np.ndarray, "input"]:
    """The last query's scores less those of the first query that has the distance, over distances and heads."""
    last = scores.shape[-1] - 1
    away = np.arange(1, last)
    return (scores[..., last, last - away] - scores[..., away, 0]).mean(axis=(1, 2))


def _slack_relative(
    seed: int, inputs: int, head_dimension: int, heads: int, positional: Any, **model: Any
) -> float:
    """An encoding's scores in layer 1 depend on distance alone; LayerNorm's in layer 2 rise with the query too."""
    encoded, plain = (
        second_layer(_variant(heads * head_dimension, heads=heads, positional=one, **model), seed, inputs)[0]
        for one in (positional, "none")
    )
    own, induced = beyond_distance(encoded[0]), beyond_distance(plain[1])
    allowed = SIGMAS * float(own.std(ddof=1)) / math.sqrt(own.size)
    return min(1.0 - abs(float(own.mean())) / allowed, float(induced.mean()))


def _slack_content(
    seed: int, inputs: int, head_dimension: int, heads: int, positional: Any, **model: Any
) -> float:
    """By how much the content of layer 2, before rotation or what is subtracted, is above ½."""
    variant = _variant(heads * head_dimension, heads=heads, positional=positional, **model)
    return float(recency_share(second_layer(variant, seed, inputs)[1][1]).mean()) - 0.5


def _slack_parts(seed: int, inputs: int, head_dimension: int, heads: int, part: str, **model: Any) -> float:
    """By how much layer 2 is above ½ with one more part of a layer; a single head, of two heads' dimensions."""
    fields: dict[str, dict[str, Any]] = {
        "feed-forward": {"feed_forward": True},
        "values": {"values": True},
        "tied": {"projections": "tied"},
    }
    variant = _variant(2 * head_dimension, **fields[part], **model)
    return float(recency_share(second_layer(variant, seed, inputs)[0][1]).mean()) - 0.5


# --- lengths -----------------------------------------------------------------------------------------------


def _draw_length(rng: Generator, edge: bool) -> Instance:
    return {
        "seed": int(rng.integers(2**31)),
        "samples": 300,
        "tokens": int(rng.integers(8, 13)),
        "dimension": int(rng.choice([16, 64]) if edge else rng.integers(16, 65)),
        "anisotropy": float(rng.choice([0.4, 0.6]) if edge else rng.uniform(0.4, 0.6)),
        "residual": bool(rng.random() < 0.5),
    }


def _slack_length(seed: int, samples: int, tokens: int, **model: Any) -> float:
    """By how much the recency probability of layer 2 is higher in a text `LONGER` times as long."""
    shares = []
    for length in (tokens, LONGER * tokens):
        drawn = RecencyModel(length, **model, depth=2)
        shares.append(
            recency_shares(
                layer_scores(drawn, embeddings(stream(seed, "verify/kim/length"), drawn, samples))[0][1]
            )
        )
    return float(shares[1].mean() - shares[0].mean())


_AT_ONCE = "d_h from 16 to 32, 2 or 4 heads, α from .45 to .8, 8 to 10 tokens, layer 2, at initialisation"
_UNPRINTED = "none: the paper simulates none"

VARIANTS: tuple[Statement, ...] = (
    statement(
        "kim-4-heads",
        "Section 4, heads",
        "several heads, with a key head each, one for every two or one for all: the recency probability of layer "
        "2 is above one half, without projections and with W_Q = W_K",
        partial(_draw, inputs=150, kind=("each", "grouped", "one"), projections=("none", "tied")),
        _slack_heads,
        tolerance=0.0,
        note="Holds, at initialisation. At d = 64, α = .5, 10 tokens and four heads without projections .598 "
        "with a key head each, .704 with two and .878 with one (a single head: .553 at d = 64, .638 at 16); with "
        "W_Q = W_K .620, .639 and .626. With W_Q and W_K drawn apart it is one half over networks, as with a "
        "single head.",
        about={
            "strength": "observation",
            "scope": f"multi-head, grouped and multi-query attention; tried at {_AT_ONCE}",
            "effort": _UNPRINTED,
        },
    ),
    statement(
        "kim-4-head-dimension",
        "Section 4, dimension of a head",
        "with a key head each the recency probability of layer 2 is that of a single head of d_h dimensions, "
        "within .01 and 5 standard errors",
        partial(_draw, inputs=300),
        (_same_probability, _same_rise),
        corrected="with a key head each the mean scores of the last query rise as those of a single head of d_h "
        "dimensions, within a fifth and 5 standard errors",
        tolerance=0.0,
        note="Wider than the paper, which puts √d_h for √d in its derivation, one on mean scores: of these it is "
        "so (at d_h = 16 and α = .5 .233 with four heads, .229 with one). LayerNorm makes whole vectors alike in "
        "length, not a head's part of them, so single scores scatter more and the probability is lower: .598 "
        "beside .638. With shared key heads mean scores rise more (.313 with two key heads, .356 with one): a "
        "direction, no rule.",
        witness={
            "seed": 0,
            "inputs": 1000,
            "head_dimension": 16,
            "heads": 4,
            "anisotropy": 0.75,
            "tokens": 10,
        },
        about={**OURS, "scope": f"heads without projections; {_AT_ONCE}", "effort": _UNPRINTED},
    ),
    statement(
        "kim-4-relative",
        "Section 4, relative encodings",
        "mean scores of layer 1 under RoPE or ALiBi are the same at every place of a distance; those of layer 2 "
        "under LayerNorm alone are higher for later queries",
        partial(_draw, inputs=200, positional=("rope", "alibi")),
        _slack_relative,
        tolerance=0.0,
        note="Holds, at initialisation. The text says that the two may differ, in that LayerNorm's bias is not "
        "one of distance.",
        about={
            "strength": "hedged",
            "scope": f"LayerNorm, RoPE with base 10,000, ALiBi with its standard slopes; tried at {_AT_ONCE}",
            "effort": _UNPRINTED,
        },
    ),
    statement(
        "kim-limitations-encodings",
        "Limitations, RoPE",
        "under RoPE or ALiBi too LayerNorm gives the content of layer 2 a recency probability above one half",
        partial(_draw, inputs=200, positional=("rope", "alibi")),
        _slack_content,
        tolerance=0.0,
        note="Holds, at initialisation; the paper leaves the interaction open. At d = 64, four heads and α = .5 "
        "the content has .598 without an encoding, .584 under RoPE and .591 under ALiBi, and scores with the "
        "encoding .655 and .673: the two biases add, and the encoding weakens LayerNorm's own a little.",
        about={**OURS, "scope": f"heads without projections; {_AT_ONCE}", "effort": _UNPRINTED},
    ),
    statement(
        "kim-limitations-parts",
        "Limitations, parts of a layer",
        "a feed-forward block, value projections, or W_Q = W_K, all drawn, leave the recency probability of "
        "layer 2 above one half",
        partial(_draw, inputs=400, part=("feed-forward", "values", "tied")),
        _slack_parts,
        tolerance=0.0,
        note="Holds, at initialisation; the paper analyses none of them. At d = 64 and α = .5 .541, .532 and "
        ".551, beside .553 without. W_Q and W_K drawn apart leave one half over networks (−W_Q is as likely as "
        "W_Q).",
        about={
            **OURS,
            "scope": "one head, d from 32 to 64, α from .45 to .8, 8 to 10 tokens, layer 2, at initialisation",
            "effort": _UNPRINTED,
        },
    ),
    statement(
        "kim-4-length",
        "Section 4, length",
        "the recency probability of layer 2 is higher in a text three times as long",
        _draw_length,
        _slack_length,
        tolerance=0.0,
        note="Holds, at initialisation: at d = 64 and α = .5 .531, .554, .596, .654 and .717 with 5, 10, 20, 40 "
        "and 80 tokens. The text conjectures that an uneven bias harms length generalisation; that the bias a "
        "model sees changes with length is what a simulation can say of it.",
        about={
            **OURS,
            "scope": "d from 16 to 64, α from .4 to .6, 8 to 12 tokens and 24 to 36, at initialisation",
            "effort": _UNPRINTED,
        },
    ),
)
"""Sentences of Section 4 and of the Limitations."""
