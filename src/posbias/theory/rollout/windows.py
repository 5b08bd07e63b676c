"""The compiled sweep of exponential families under windows, prefixes and full masks, additions only.

What key j gets from later queries is Σ_i γ^(i−j−1)·c_i·p_i with γ = exp(−m) and c_i = exp(−m)/Z_i, over the V =
width − 1 queries after j. Subtracting what leaves the window would cancel, so the text is cut into blocks of V
tokens (van Herk 1992): j sees the rest of its own block, a sum that runs down, and the beginning of the next
one, a sum that runs up. The tokens before the first block need the sum that runs down alone; so does a causal
mask, and what the earlier queries of a prefix or full mask add is the mirror image of it.

Sums run inside tiles of `TILE` tokens and are carried from tile to tile, so that no rounding adds up over a long
window. In a tile Z_i is const + rate·(1 − γ^k)/(1 − γ) + decay·γ^k at the k-th token; where it changes no more,
one row of weights serves all tiles. Sums below `FLOOR` become zero.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError
from posbias.theory.architecture import HeadLogits, Layer
from posbias.theory.masks import Band, Banded
from posbias.theory.positional import DecayBias
from posbias.theory.rollout import stream
from posbias.theory.rollout.kernel import Row
from posbias.theory.rollout.plan import FLOOR, merge
from posbias.theory.rollout.tiles import TILE, ascend, descend_span, slide

VANISHED = 41.5
"""exp(−41.5) is less than half a rounding of 1."""


class Powers(NamedTuple):
    """γ^k and (1 − γ^k)/(1 − γ) for k = 0 … `TILE`; `slack` is the relative error of γ^`TILE`."""

    slopes: Float[np.ndarray, "head"]
    gamma: Float[np.ndarray, "head"]
    powers: Float[np.ndarray, "offset head"]
    sums: Float[np.ndarray, "offset head"]
    slack: Float[np.ndarray, "head"]


class Weights(NamedTuple):
    """exp of the logits that a query sees, each head divided by its largest, and the weights of the heads.

    Of the token itself, of the one before, of the one after and of the sink (0 where there is none). `first`
    multiplies those of the first column and is not divided.
    """

    here: Float[np.ndarray, "head"]
    there: Float[np.ndarray, "head"]
    after: Float[np.ndarray, "head"]
    sinks: Float[np.ndarray, "head"]
    first: Float[np.ndarray, "head"]
    heads: Float[np.ndarray, "head"]


class Span(NamedTuple):
    """Tokens start … stop − 1, whose Z follows one formula and is constant from token `steady` on.

    They see `behind` tokens before them, the first `always` tokens, and all tokens before `prefix`.
    """

    start: int
    stop: int
    steady: int
    behind: int
    always: int
    prefix: int
    weights: Weights


class Room(NamedTuple):
    """Working memory: a tile's weights, the same where they are steady, and running sums.

    `carry` is the sum over the tiles so far, and what roundings added to it too much.
    """

    tile: Float[np.ndarray, "offset head"]
    own: Float[np.ndarray, "offset"]
    taken: Float[np.ndarray, "offset"]
    flat: Float[np.ndarray, "1 head"]
    flat_own: Float[np.ndarray, "1"]
    flat_taken: Float[np.ndarray, "1"]
    lifted: Float[np.ndarray, "offset head"]
    terms: Float[np.ndarray, "5 head"]
    local: Float[np.ndarray, "head"]
    carry: Float[np.ndarray, "2 head"]


class Block(NamedTuple):
    """γ to the power of the tokens of a block that come before a tile, after it, and before or after it."""

    reach: Float[np.ndarray, "tile head"]
    ahead: Float[np.ndarray, "tile head"]
    far: Float[np.ndarray, "tile head"]


def push(layer: Layer, mixing: float, row: Row) -> tuple[Row, float]:
    """row · R for one layer, R = (1 − λ)I + λA, and the mass that its learned sink takes.

    The layer's logits are an exponential family (`slopes_of` is not None), its first-column logits and learned
    sinks at most `rollout.LARGEST`; the row has no negative entry. O(tokens · heads) time, O(tokens + width ·
    heads / `TILE`) memory. Every entry is a sum of positive terms, within 1e-12 relative of the dense product
    (below 1e-250 it may be 0). Raises `InvalidValueError` for other encodings or a prefix beyond the text.
    """
    tokens = len(row)
    layer.mask.reach(0, tokens)
    if not isinstance(layer.mask, Banded):
        raise InvalidValueError(f"mask: {type(layer.mask).__name__} given, one with a band needed")
    band = layer.mask.band()
    if band.behind == 0:
        return stream.push(layer, mixing, row)
    logits = merge(layer.head_logits())
    slopes = np.array(logits.slopes)
    # a slope that cannot move 1 by half a rounding over the whole text is no slope
    slopes[slopes * tokens < 1e-18] = 0.0
    later = np.zeros_like(slopes) if isinstance(layer.positional, DecayBias) else slopes
    spans = _spans(band.at(tokens), logits, slopes, later, tokens)
    before, room = _powers(slopes), _room(len(slopes))
    after = before if later is slopes else _powers(later)
    row, out = np.require(row, np.float64, ["C", "W"]), np.zeros(tokens)
    lam, keep, lost = float(mixing), 1.0 - float(mixing), 0.0
    for span in spans:
        if span.start < span.prefix - 1:
            ascend(row, out, span, before, after, room)
        elif span.start < span.prefix:
            out[span.start] += room.carry[0].sum()
    room.carry[:] = 0.0
    everything = np.zeros((2, len(slopes)))
    for span in reversed(spans):
        if span.start >= span.behind + max(span.always, 1):
            block = _block(slopes, span.behind)
            # whole blocks: the keys before an incomplete one see all of it
            row = np.concatenate([row, np.zeros(span.behind)])
            lost += slide(row, out, span, before, after, room, block, everything, lam, keep)
            room.carry[:] = 0.0
            everything *= _power(slopes, span.behind)
            continue
        if span.stop == span.always:
            room.carry[:] += everything
        lost += descend_span(row, out, span, before, after, room, lam, keep)
    return out, lam * lost


def _spans(band: Band, logits: HeadLogits, slopes, later, tokens: int) -> list[Span]:
    """The text in spans of one formula for Z each, first to last; cut also where streaming sinks end."""
    behind, always, prefix = max(band.behind, 1), band.always, band.prefix
    causal = _weights(logits, slopes, None)
    both = _weights(logits, slopes, later)
    margin = logits.diagonal + logits.first - logits.sinks
    none = np.zeros_like(slopes)
    alone = causal._replace(
        here=np.exp(-np.logaddexp(0, -margin)), there=none, sinks=np.exp(-np.logaddexp(0, margin))
    )
    lift = np.log(1.0 + always + np.exp(np.maximum(logits.first, 0.0)))
    with np.errstate(divide="ignore"):
        fading = np.ceil((VANISHED + lift) / slopes)
    growing = min(1 + fading.max(), tokens)
    sliding = min(always + np.where(slopes > 0, fading, 0).max(), tokens) if always else 0
    spans = []
    edges = sorted({0, 1, behind + 1, behind + max(always, 1), always, max(prefix - 1, 0), tokens})
    for start, stop in pairwise(edges):
        if start >= tokens:
            break
        weights, steady = causal, tokens
        if start == 0:
            weights = both._replace(here=both.here * both.first, there=none) if prefix > 1 else alone
        elif start < prefix - 1:
            weights = both
        elif start <= behind:
            steady = growing
        elif start >= behind + max(always, 1):
            steady = sliding
        spans.append(Span(start, stop, int(steady), behind, always, prefix, weights))
    return spans


def _weights(logits: HeadLogits, slopes, later) -> Weights:
    """The weights of queries that see a key before them, and one after them at −`later` if that is given."""
    largest = np.maximum.reduce([logits.diagonal, -slopes, logits.sinks])
    if later is not None:
        largest = np.maximum(largest, -later)
    after = np.zeros_like(slopes) if later is None else np.exp(-later - largest)
    here, there, sinks = (np.exp(each - largest) for each in (logits.diagonal, -slopes, logits.sinks))
    return Weights(here, there, after, sinks, np.exp(logits.first), logits.weights.copy())


def _power(slopes, tokens):
    """exp(−m·tokens), without denormals."""
    value = np.exp(-slopes * tokens)
    return np.where(value < FLOOR, 0.0, value)


def _powers(slopes: Float[np.ndarray, "head"]) -> Powers:
    offsets = np.arange(TILE + 1.0)[:, None]
    powers = _power(slopes, offsets)
    exact = np.exp(-slopes.astype(np.longdouble) * TILE)
    slack = np.zeros_like(slopes)
    np.divide(exact - powers[TILE], powers[TILE], out=slack, where=powers[TILE] > 0, casting="same_kind")
    with np.errstate(invalid="ignore"):
        sums = np.where(slopes > 0, np.expm1(-slopes * offsets) / np.expm1(-slopes), offsets)
    return Powers(slopes, powers[1].copy(), powers, sums, slack)


def _block(slopes: Float[np.ndarray, "head"], behind: int) -> Block:
    starts = np.arange(0, behind, TILE, dtype=np.float64)[:, None]
    stops = np.minimum(starts + TILE, behind)
    return Block(
        _power(slopes, starts),
        _power(slopes, behind - stops),
        _power(slopes, behind - (stops - starts)),
    )


def _room(heads: int) -> Room:
    tile, flat = np.zeros((TILE, heads)), np.zeros((1, heads))
    return Room(tile, np.zeros(TILE), np.zeros(TILE), flat, np.zeros(1), np.zeros(1), np.zeros_like(tile),
                np.zeros((5, heads)), np.zeros(heads), np.zeros((2, heads)))  # fmt: skip
