"""Which mask evens LayerNorm's recency along a sequence (Kim et al. 2026, Section 4), tried.

Under the causal mask early tokens attend to few and late ones to many, so what layer 2 makes of a distance
depends on where it stands. Under a sliding window of width w tokens from the w-th on attend to w tokens each,
alike in law; so from query 2(w − 1) on layer 2 has one law at every place. Under the full mask all tokens are
alike and no key is nearer than another in anything but its number.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias.core.seeds import stream
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings, layer_scores
from posbias.theory.masks import Causal, Full, Mask, SlidingWindow
from posbias_papers.statements.kim.simulations import SIGMAS
from posbias_papers.statements.statement import OURS, Instance, Statement, statement

LENGTHS = 4
"""Texts are so many windows long."""


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


def later_excess(shares: Float[np.ndarray, "sample query"]) -> tuple[float, float]:
    """The mean share of the later half of some queries less that of the earlier, and its standard error."""
    half = shares.shape[1] // 2
    apart = shares[:, half:].mean(axis=1) - shares[:, :half].mean(axis=1)
    return float(apart.mean()), float(apart.std(ddof=1)) / math.sqrt(len(apart))


def _draw(rng: Generator, edge: bool) -> Instance:
    return {
        "seed": int(rng.integers(2**31)),
        "samples": 400,
        "width": int(rng.choice([3, 6]) if edge else rng.integers(3, 7)),
        "dimension": int(rng.choice([16, 32]) if edge else rng.integers(16, 33)),
        "anisotropy": float(rng.choice([0.4, 0.6]) if edge else rng.uniform(0.4, 0.6)),
        "residual": bool(rng.random() < 0.5),
    }


def _slack_even(seed: int, samples: int, width: int, **fields: Any) -> float:
    """Later queries prefer recent keys more under the causal mask, not under a window; under the full, none."""
    model, first = RecencyModel(LENGTHS * width, **fields, depth=2), 2 * (width - 1)

    def excess(mask: Mask) -> tuple[float, float]:
        return later_excess(shares_by_query(replace(model, mask=mask), seed, samples)[:, first:])

    uneven, _ = excess(Causal())
    even, error = excess(SlidingWindow(width))
    full = shares_by_query(replace(model, mask=Full()), seed, samples)[:, 2:].mean(axis=1)
    level = SIGMAS * float(full.std(ddof=1)) / math.sqrt(samples)
    return min(uneven, 1.0 - abs(even) / (SIGMAS * error), 1.0 - abs(float(full.mean()) - 0.5) / level)


MASKS: tuple[Statement, ...] = (
    statement(
        "kim-4-masks",
        "Section 4, the mask",
        "layer 2: under the causal mask the recency probability of later queries is higher; under a sliding "
        "window of width w that of all queries from 2(w − 1) on is the same; under the full mask it is one half",
        _draw,
        _slack_even,
        tolerance=0.0,
        note="Holds, at initialisation; the text recommends to modify the mask, these masks are ours. At d = 16, "
        "α = .5 and 24 tokens queries 2, 10 and 23 have .573, .661 and .710 under the causal mask, under a window "
        "of 6 tokens .573, .534 and .533, with its first token as a sink .573, .611 and .606, under a prefix of 8 "
        ".501, .519 and .638. A window evens the bias and lessens it; the full mask leaves none.",
        about={
            **OURS,
            "scope": "d from 16 to 32, α from .4 to .6, windows of 3 to 6, texts four times as long, layer 2, at "
            "initialisation",
            "effort": "none: the paper simulates the causal mask alone",
        },
    ),
)
"""What Section 4 recommends to try."""
