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
from posbias.core.machine import SUMS, compiled
from posbias.theory.architecture import HeadLogits, Layer
from posbias.theory.masks import Band, Banded
from posbias.theory.positional import DecayBias
from posbias.theory.rollout import stream
from posbias.theory.rollout.kernel import FLOOR, Row
from posbias.theory.rollout.sweep import (
    VANISHED,
    Weights,
    exponential,
    geometric,
    rounded_power,
    weights_of,
)

Heads = Float[np.ndarray, "head"]
TILE = 128
"""Tokens whose sums run together; a multiple of four."""
EVERY = 32
"""Tiles after which the rounding of γ^`TILE` is set right: before, the correction would be rounded away."""


class Powers(NamedTuple):
    """γ^k and (1 − γ^k)/(1 − γ) for k = 0 … `TILE`; `slack` is the relative error of γ^`TILE`."""

    slopes: Heads
    gamma: Heads
    powers: Float[np.ndarray, "offset head"]
    sums: Float[np.ndarray, "offset head"]
    slack: Heads


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
    local: Heads
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
        raise InvalidValueError(f"mask: expected one with a band, got {type(layer.mask).__name__}")
    band = layer.mask.band()
    if band.behind == 0:
        return stream.push(layer, mixing, row)
    logits = exponential(layer, tokens)
    slopes = logits.slopes
    assert slopes is not None
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


def _spans(band: Band, logits: HeadLogits, slopes: Heads, later: Heads, tokens: int) -> list[Span]:
    """The text in spans of one formula for Z each, first to last; cut also where streaming sinks end."""
    behind, always, prefix = max(band.behind, 1), band.always, band.prefix
    none = np.zeros_like(slopes)
    causal, both = weights_of(logits), weights_of(logits, later)
    margin = logits.diagonal + logits.first - logits.sinks
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


def _power(slopes, tokens):
    """exp(−m·tokens), without denormals."""
    value = np.exp(-slopes * tokens)
    return np.where(value < FLOOR, 0.0, value)


def _powers(slopes: Heads) -> Powers:
    offsets = np.arange(TILE + 1.0)[:, None]
    powers = _power(slopes, offsets)
    powers[TILE], slack = rounded_power(slopes, TILE)
    return Powers(slopes, powers[1].copy(), powers, geometric(slopes, offsets), slack)


def _block(slopes: Heads, behind: int) -> Block:
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


# --- the compiled parts: weights of a tile, and sums that run down or up through tiles -----------------------


@compiled()
def _geometric(slope, terms):
    """(1 − γ^terms)/(1 − γ) without cancellation; `terms` itself where γ = 1."""
    return np.expm1(-slope * terms) / np.expm1(-slope) if slope > 0 else float(terms)


@compiled()
def _terms(span, before, after, a, length, terms):
    """What makes up Z in a tile, per head: factors of 1, of the sums and powers before, and of those after."""
    behind, always, weights = span.behind, span.always, span.weights
    for h in range(len(weights.here)):
        m = before.slopes[h]
        const, rate, decay = 0.0, 0.0, 0.0
        if 0 < a <= behind:
            rate, decay = 1.0, _geometric(m, a - 1)
        elif behind < a < behind + always:
            const, rate = _geometric(m, behind), np.exp(-m * behind)
            decay = rate * _geometric(m, a - behind - 1)
        elif a > 0:
            const = _geometric(m, behind)
            if always > 0:
                decay = np.exp(-m * (a - always)) * _geometric(m, always - 1)
        if 0 < a <= behind or (a > 0 and always > 0):
            decay += np.exp(-m * (a - 1)) * weights.first[h]
        terms[0, h] = weights.here[h] + weights.sinks[h] + weights.there[h] * const
        terms[1, h], terms[2, h] = weights.there[h] * rate, weights.there[h] * decay
        terms[3, h] = weights.after[h]
        terms[4, h] = weights.after[h] * _geometric(after.slopes[h], max(span.prefix - a - length, 0))


@compiled()
def _weigh(span, before, after, a, factor, terms, tile, own, taken):
    """Tokens from a on: `factor` times the heads' weights over Z; what each keeps, what its sink takes."""
    weights, length = span.weights, len(own)
    _terms(span, before, after, a, length, terms)
    for k in range(length):
        for h in range(tile.shape[1]):
            tile[k, h] = terms[0, h]
    _add_up(tile, terms[1], terms[2], before.sums, before.powers, length, 0)
    if a + length < span.prefix:
        _add_up(tile, terms[3], terms[4], after.sums, after.powers, length, length - 1)
    _share(tile, factor, weights.here, weights.sinks, weights.heads, own, taken)


@compiled(*SUMS, inlined=True)
def _add_up(tile, rate, decay, sums, powers, length, last):
    """Add rate·sums + decay·powers, the k-th of each to the k-th row, or to the one before `last` by k."""
    for k in range(length):
        r = last - k if last > 0 else k
        for h in range(tile.shape[1]):
            tile[k, h] += rate[h] * sums[r, h] + decay[h] * powers[r, h]


@compiled(*SUMS, inlined=True, error_model="numpy")
def _share(tile, factor, here, sinks, weights, own, taken):
    """Replace Z by the weight that it leaves to other tokens; note what is kept and what the sink takes."""
    for k in range(len(own)):
        kept, lost = 0.0, 0.0
        for h in range(tile.shape[1]):
            share = weights[h] / tile[k, h]
            tile[k, h] = share * factor[h]
            kept += share * here[h]
            lost += share * sinks[h]
        own[k], taken[k] = kept, lost


@compiled()
def _prepare(span, before, after, room):
    """The weights where they are steady, once for the whole span."""
    if span.steady < span.stop:
        a = max(span.start, span.steady)
        _weigh(
            span, before, after, a, span.weights.there, room.terms, room.flat, room.flat_own, room.flat_taken
        )
        for k in range(TILE):
            for h in range(room.flat.shape[1]):
                room.lifted[k, h] = before.powers[k, h] * room.flat[0, h]


@compiled()
def _clear(sums):
    for h in range(sums.size):
        sums.flat[h] = 0.0


@compiled()
def _add(carry, h, kept, term):
    """carry = kept + term for one head, with its rounding error (Kahan)."""
    term -= carry[1, h]
    s = kept + term
    carry[1, h] = (s - kept) - term
    carry[0, h] = s
    if s < FLOOR:
        carry[0, h], carry[1, h] = 0.0, 0.0


@compiled()
def _pass_on(carry, local, powers, length, tile):
    """Take `carry` over a tile whose own sum is `local`, setting the rounding of γ^`TILE` right now and then."""
    for h in range(len(local)):
        power = powers.powers[length, h]
        kept = carry[0, h] * power
        if tile % EVERY == EVERY - 1:
            kept += kept * (EVERY * powers.slack[h])
        carry[1, h] *= power
        _add(carry, h, kept, local[h])


@compiled()
def descend_span(row, out, span, before, after, room, lam, keep):
    """A span from its last token to its first, on top of `room.carry`; what the sink takes."""
    _prepare(span, before, after, room)
    return _descend(row, out, span.start, span.stop, span, before, after, room, lam, keep)


@compiled()
def _descend(row, out, start, stop, span, before, after, room, lam, keep):
    """Tokens stop − 1 … start: add what `room.carry` and the later ones pass on, and finish the entries."""
    drawn = 0.0
    for a in range(start + (stop - 1 - start) // TILE * TILE, start - 1, -TILE):
        length = min(TILE, stop - a)
        tile, own, taken, step = room.flat, room.flat_own, room.flat_taken, 0
        if a < span.steady:
            tile, own, taken, step = room.tile, room.own, room.taken, 1
            _weigh(span, before, after, a, span.weights.there, room.terms, tile, own[:length], taken)
        if a == 0:
            # a tile of one token, to which the later ones look through their own logit
            for h in range(len(room.local)):
                room.carry[0, h] *= span.weights.first[h]
        given, made = row[a : a + length], out[a : a + length]
        _suffixes(given, made, tile, step, before.gamma, before.powers, room.carry[0], room.local)
        lost = 0.0
        for k in range(length):
            p = given[k]
            lost += p * taken[step * k]
            p = keep * p + lam * (made[k] + own[step * k] * p)
            made[k] = p if p > FLOOR else 0.0
        drawn += lost
        _pass_on(room.carry, room.local, before, length, (a - start) // TILE)
    return drawn


@compiled()
def ascend(row, out, span, before, after, room):
    """A span of a prefix from first to last: add what `room.carry` and the earlier tokens pass on."""
    for a in range(span.start, span.stop, TILE):
        length = min(TILE, span.stop - a)
        own, taken, tile = room.own[:length], room.taken[:length], room.lifted
        _weigh(span, before, after, a, span.weights.after, room.terms, room.tile, own, taken)
        # the mirror image of going down
        for k in range(length):
            own[k], taken[k] = row[a + length - 1 - k], 0.0
            for h in range(tile.shape[1]):
                tile[k, h] = room.tile[length - 1 - k, h]
        _suffixes(own, taken, tile, 1, after.gamma, after.powers, room.carry[0], room.local)
        for k in range(length):
            out[a + k] += taken[length - 1 - k]
        _pass_on(room.carry, room.local, after, length, (a - span.start) // TILE)


@compiled()
def slide(row, out, span, before, after, room, block, everything, lam, keep):
    """A span of whole windows, block by block from the last; what the sink takes.

    Leaves in `everything` what streaming sinks receive: the sum over all tokens, as seen from before the span.
    """
    _prepare(span, before, after, room)
    drawn = 0.0
    width = span.behind
    for b in range(span.start + (span.stop - 1 - span.start) // width * width, span.start - 1, -width):
        e = min(b + width, span.stop)
        _clear(room.carry)
        drawn += _descend(row, out, b, e, span, before, after, room, lam, keep)
        if span.always > 0:
            for h in range(len(room.local)):
                term = np.exp(-before.slopes[h] * (b - span.start)) * room.carry[0, h]
                _add(everything, h, everything[0, h], term)
        _reach_back(row, out, b, span, before, after, room, block)
    return drawn


@compiled()
def _reach_back(row, out, b, span, before, after, room, block):
    """Add to the V keys before token b what those of the V tokens from b on that see them pass to them."""
    slopes, total, ahead = before.slopes, room.carry, room.terms[0]
    _clear(total)
    for a in range(b, b + span.behind, TILE):
        length = min(TILE, b + span.behind - a)
        place = (a - b) // TILE
        lifted = room.lifted
        if a < span.steady:
            lifted = room.tile
            _weigh(
                span, before, after, a, span.weights.there, room.terms, lifted, room.own[:length], room.taken
            )
            for k in range(length):
                for h in range(len(slopes)):
                    lifted[k, h] *= before.powers[k, h]
        for h in range(len(slopes)):
            s = block.ahead[place, h] * total[0, h]
            ahead[h] = s if s > FLOOR else 0.0
        made = out[a - span.behind : a - span.behind + length]
        _prefixes(row[a : a + length], made, lifted, before.powers, ahead, block.far[place], room.local)
        for h in range(len(slopes)):
            _add(total, h, total[0, h], block.reach[place, h] * room.local[h])


@compiled(*SUMS, inlined=True)
def _suffixes(row, out, tile, step, gamma, powers, carry, local):
    """out_k += Σ_h γ^(last − k)·carry + Σ_{i>k} γ^(i−k−1)·tile_i·row_i; the latter for k = −1 in `local`."""
    last = len(row) - 1
    k = last
    _clear(local)
    while k >= 3:
        p0, p1, p2, p3 = row[k], row[k - 1], row[k - 2], row[k - 3]
        c0, c1, c2, c3 = tile[step * k], tile[step * (k - 1)], tile[step * (k - 2)], tile[step * (k - 3)]
        g0, g1, g2, g3 = powers[last - k], powers[last - k + 1], powers[last - k + 2], powers[last - k + 3]
        a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
        for h in range(len(local)):
            s = local[h]
            a0 += s + g0[h] * carry[h]
            s = gamma[h] * s + c0[h] * p0
            a1 += s + g1[h] * carry[h]
            s = gamma[h] * s + c1[h] * p1
            a2 += s + g2[h] * carry[h]
            s = gamma[h] * s + c2[h] * p2
            a3 += s + g3[h] * carry[h]
            s = gamma[h] * s + c3[h] * p3
            local[h] = s if s > FLOOR else 0.0
        out[k] += a0
        out[k - 1] += a1
        out[k - 2] += a2
        out[k - 3] += a3
        k -= 4
    while k >= 0:
        c0, g0 = tile[step * k], powers[last - k]
        a0 = 0.0
        for h in range(len(local)):
            s = local[h]
            a0 += s + g0[h] * carry[h]
            s = gamma[h] * s + c0[h] * row[k]
            local[h] = s if s > FLOOR else 0.0
        out[k] += a0
        k -= 1


@compiled(*SUMS, inlined=True)
def _prefixes(row, out, lifted, powers, ahead, far, local):
    """out_k += Σ_h γ^(last − k)·(ahead + far·Σ_{i≤k} lifted_i·row_i); the sum for the last k in `local`."""
    last = len(row) - 1
    k = 0
    _clear(local)
    while k + 3 <= last:
        p0, p1, p2, p3 = row[k], row[k + 1], row[k + 2], row[k + 3]
        t0, t1, t2, t3 = lifted[k], lifted[k + 1], lifted[k + 2], lifted[k + 3]
        g0, g1, g2, g3 = powers[last - k], powers[last - k - 1], powers[last - k - 2], powers[last - k - 3]
        a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
        for h in range(len(local)):
            s = local[h] + t0[h] * p0
            a0 += g0[h] * (ahead[h] + far[h] * s)
            s += t1[h] * p1
            a1 += g1[h] * (ahead[h] + far[h] * s)
            s += t2[h] * p2
            a2 += g2[h] * (ahead[h] + far[h] * s)
            s += t3[h] * p3
            a3 += g3[h] * (ahead[h] + far[h] * s)
            local[h] = s if s > FLOOR else 0.0
        out[k] += a0
        out[k + 1] += a1
        out[k + 2] += a2
        out[k + 3] += a3
        k += 4
    while k <= last:
        t0, g0 = lifted[k], powers[last - k]
        a0 = 0.0
        for h in range(len(local)):
            s = local[h] + t0[h] * row[k]
            a0 += g0[h] * (ahead[h] + far[h] * s)
            local[h] = s if s > FLOOR else 0.0
        out[k] += a0
        k += 1
