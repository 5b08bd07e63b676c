"""What a sliding window does to the bias to early tokens (Wu et al. 2025, after Theorem 4.2), without content.

Where logits depend on the key alone, beside a decay, a row of attention is one set of weights, cut off by the
window. Cut off later it lies on earlier keys, and that of an earlier query lies on earlier keys too; so every
layer more, and every wider window, moves the context to the front.
"""

import math
from typing import Any

import numpy as np
from numpy.random import Generator

from posbias.theory.masks import SlidingWindow
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.statements.margins import distances, rollouts, room
from posbias_papers.statements.statement import OURS, Instance, Statement, statement
from posbias_papers.statements.wu import draws

LONGEST = 256
"""The tokens up to which layers are counted."""


def _draw_widths(rng: Generator, edge: bool) -> Instance:
    """Logits of keys by layer, a decay m or none, and two windows."""
    tokens = draws.length(rng, edge)
    narrow = int(rng.integers(1, tokens + 1))
    spread = float(rng.choice([0.0, 50.0]) if edge else rng.choice([0.5, 3.0]))
    return {
        "logits": rng.normal(0, spread, (draws.depth(rng, edge), tokens)),
        "rate": float(rng.choice([0.0, 1e-9, 20.0]) if edge else rng.choice([0.0, 1.0]) * rng.exponential()),
        "narrow": narrow,
        "wide": int(rng.integers(narrow, tokens + 1)),
    }


def _slack_widths(logits: Any, rate: float, narrow: int, wide: int) -> float:
    """By how much a wide window leaves more on the first j tokens, for every query, depth and j."""
    tokens = logits.shape[-1]
    biased = logits[:, None, :] - rate * distances(tokens)
    masks = (SlidingWindow(int(width)).allowed(tokens) for width in (narrow, wide))
    less, more = (rollouts(masked_softmax(biased, allowed)).cumsum(axis=-1) for allowed in masks)
    return room(less, more)


def _draw_layers(rng: Generator, edge: bool) -> Instance:
    tokens = int(rng.choice([2, 3, LONGEST]) if edge else rng.integers(2, LONGEST + 1))
    width = int(rng.choice([2, tokens]) if edge else rng.integers(2, tokens + 1))
    return {"tokens": tokens, "width": width}


def layers_to_half(tokens: int, width: int) -> int:
    """Layers of even attention in a window after which the first token holds half of the last one's context.

    A half is one up to 1e-9, since sums round.
    """
    first = np.maximum(np.arange(tokens) - width + 1, 0)
    keys = np.arange(tokens) - first + 1
    mass, layers = np.zeros(tokens), 0
    mass[-1] = 1.0
    while mass[0] < 0.5 - 1e-9:
        # what every key gets: from all queries at or after it whose window begins at or before it
        each = mass / keys
        begun = np.cumsum(np.bincount(first, each, tokens))
        mass, layers = begun - np.concatenate([[0.0], np.cumsum(each)[:-1]]), layers + 1
    return layers


def _slack_layers(tokens: int, width: int) -> float:
    """How far the layers lie within 2(N − w)/(w − 1) + ln w … 2.5 ln w, in shares of them."""
    tokens, width = int(tokens), int(width)
    layers, walked = layers_to_half(tokens, width), 2 * (tokens - width) / (width - 1)
    low, high = walked + math.log(width), walked + 2.5 * math.log(width)
    return min(layers - low, high - layers) / layers


WINDOWS: tuple[Statement, ...] = (
    statement(
        "wu-4.2-narrower",
        "Section 4.1, narrower windows",
        "where logits depend on the key alone, beside the decay mask or not, a narrower window leaves no more of "
        "any token's context on the first j tokens, for every j and depth",
        _draw_widths,
        _slack_widths,
        about={**OURS, "strength": "hedged"},
        note="Holds; the text says that a smaller window helps, and gives no condition: content for which queries "
        "differ can make a narrow window prefer the front. Rows are one set of weights cut off by the window, so "
        "that they order as the windows do, and products keep the order.",
    ),
    statement(
        "wu-4.2-rate",
        "Section 4.1, rate by window",
        "even attention: the first token holds half of the last one's context after 2(N − w)/(w − 1) + c·ln w "
        f"layers, 1 ≤ c ≤ 2.5, for 2 ≤ w ≤ N ≤ {LONGEST}",
        _draw_layers,
        _slack_layers,
        about=OURS,
        note="Holds; the text says that N/w determines the rate, the constants are ours. A layer goes back "
        "(w − 1)/2 tokens on average, until the window reaches the front; from there on ln w counts, so that "
        "for windows near N the rate is not one of N/w.",
    ),
)
"""Sentences on the window after Theorem 4.2."""
