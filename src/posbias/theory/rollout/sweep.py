"""The compiled sweep of exponential families: a row through one layer in O(tokens · heads), additions only.

With logits δ·1[i = j] − m·(i − j) and γ = exp(−m), key j gets Σ_i γ^(i−j−1)·c_i·p_i from the queries after it,
where c_i = exp(−m)/Z_i: a sum that runs from the last token to the first. A window of V tokens before a query ends
it; subtracting what leaves would cancel, so the text is cut into blocks of V tokens (van Herk 1992): a key sees
the rest of its own block, a sum that runs down, and the beginning of the next one, a sum that runs up. A causal
mask is one block. The first tokens that all see get the sums of all blocks, and what the earlier queries of a
prefix or full mask add is the mirror image of a causal text. A logit f on the first column multiplies what arrives
at token 0 by exp(f). Every term is positive, so every entry keeps its relative accuracy down to the smallest:

- sums run inside tiles of `TILE` tokens and are carried from tile to tile with their rounding errors, and the
  rounding of γ^`TILE` is set right, so that nothing adds up over a million tokens;
- Z_i is a sum of closed forms (1 − γ^k)/(1 − γ), none of them a difference; where it changes no more, one row of
  weights serves all tokens. Equal layers share these tables, and heads with equal logits are one head;
- sums below `FLOOR` become zero before they can turn into denormals, on which processors crawl.
"""

import functools
from concurrent.futures import ThreadPoolExecutor
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

Heads = Float[np.ndarray, "head"]
Table = Float[np.ndarray, "token head"]
TILE = 128
"""Tokens whose sums run together."""
EVERY = 32
"""Tiles after which the rounding of γ^`TILE` is set right: before, the correction would be rounded away."""
VANISHED = 41.5
"""exp(−41.5) is less than half a rounding of 1."""
TINY = 1e-300
"""Keeps 0/0 away from the first token, which may see nothing that weighs as much as what others see."""
LARGE = 2**22
"""Heads times tokens up to which the weights of all heads are made at once, and kept for equal layers."""
TOGETHER = 32
"""Heads of larger texts that one thread takes together."""


class Powers(NamedTuple):
    """γ^k for k = 0 … `TILE`; `slack` is the relative error of γ^`TILE`."""

    slopes: Heads
    powers: Float[np.ndarray, "offset head"]
    slack: Heads


class Weights(NamedTuple):
    """What queries give per unit of row, from token 0 on; the last of a table is that of all later tokens too.

    `back` is what each head gives to the token before, `ahead` to the token after (in a prefix), `own` what a
    query keeps of itself and `taken` what the learned sinks take. `first` multiplies what arrives at token 0.
    """

    before: Powers
    after: Powers
    first: Heads
    back: Table
    ahead: Table
    own: Row
    taken: Row


def push(layer: Layer, mixing: float, row: Row, threads: int = 1) -> tuple[Row, float]:
    """row · R for one layer, R = (1 − λ)I + λA, and the mass that its learned sink takes; the same for any
    threads.

    The layer's logits are an exponential family (`slopes_of` is not None), its first-column logits and learned
    sinks at most `rollout.LARGEST`; the row has no negative entry. Every entry is within 1e-12 relative of the
    dense product (below 1e-250 it may be 0). Raises `InvalidValueError` for other encodings or a prefix beyond the
    text.
    """
    tokens = len(row)
    layer.mask.reach(0, tokens)
    if not isinstance(layer.mask, Banded):
        raise InvalidValueError(f"mask: expected one with a band, got {type(layer.mask).__name__}")
    if layer.mask.band().behind == 0:
        return stream.push(layer, mixing, row)
    row, heads = np.require(row, np.float64, ["C"]), len(_merged(layer).weights)
    rows = _settled(_merged(layer), layer.mask.band().at(tokens), tokens)
    if heads * rows <= LARGE:
        parts = [_received(layer, row, _kept(layer, tokens))]
    else:
        together = min(TOGETHER, max(1, LARGE // rows))
        groups = [slice(start, start + together) for start in range(0, heads, together)]
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(lambda some: _received(layer, row, _weights(layer, tokens, some)), groups))
    out = (1.0 - mixing) * row + mixing * functools.reduce(np.add, [received for received, _ in parts])
    out[out < FLOOR] = 0.0
    return out, mixing * sum(lost for _, lost in parts)


def _received(layer: Layer, row: Row, weights: Weights) -> tuple[Row, float]:
    """What every token gets by some heads, and what their sinks take."""
    assert isinstance(layer.mask, Banded)
    band, received, rows = layer.mask.band().at(len(row)), np.zeros(len(row)), len(weights.own)
    if band.prefix > 1:
        given, mirrored = row[: band.prefix][::-1].copy(), np.zeros(band.prefix)
        _ahead(given, mirrored, weights.ahead[::-1].copy(), weights.after)
        received[: band.prefix] = mirrored[::-1]
    _back(row, received, max(band.behind, 1), band.always, weights.first, weights.back, weights.before)
    received[:rows] += weights.own * row[:rows]
    received[rows:] += weights.own[-1] * row[rows:]
    lost = (weights.taken * row[:rows]).sum() + weights.taken[-1] * row[rows:].sum()
    return received, float(lost)


# --- weights of queries ---------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _merged(layer: Layer) -> HeadLogits:
    """The logits of a layer, those of equal heads made one, their weights added. Raises as `push`."""
    logits = layer.head_logits()
    if logits.slopes is None:
        raise InvalidValueError("positional: expected an exponential family for the sweep, got another")
    rows = np.stack([logits.slopes, logits.diagonal, logits.first, logits.sinks], axis=1)
    places: dict[bytes, int] = {}
    place_of = [places.setdefault(row.tobytes(), len(places)) for row in rows]
    kept = np.unique(place_of, return_index=True)[1]
    return HeadLogits(*rows[kept].T, weights=np.bincount(place_of, weights=logits.weights))


def _settled(logits: HeadLogits, band: Band, tokens: int) -> int:
    """The rows of weights that a text needs: later ones are equal to the last of them."""
    assert logits.slopes is not None
    lift = np.log(1.0 + band.always + np.exp(max(0.0, logits.first.max())))
    with np.errstate(divide="ignore"):
        fading = 2 + np.ceil((VANISHED + lift) / logits.slopes.min())
    settled = band.always + fading if band.always else min(band.behind + 2, fading)
    return int(min(max(settled, band.prefix + 1), tokens))


def _weights(layer: Layer, tokens: int, some: slice = slice(None)) -> Weights:
    """The weights of some heads of a layer for a text of `tokens` tokens."""
    assert isinstance(layer.mask, Banded)
    band = layer.mask.band().at(tokens)
    logits = HeadLogits(*(part[some].copy() for part in vars(_merged(layer)).values()))
    assert logits.slopes is not None
    # a slope that cannot move 1 by half a rounding over the whole text is no slope
    slopes = np.where(logits.slopes * tokens < 1e-18, 0.0, logits.slopes)
    later = np.zeros_like(slopes) if isinstance(layer.positional, DecayBias) else slopes
    before, after = _powers(slopes.tobytes()), _powers(later.tobytes())
    rows, inside = _settled(logits, band, tokens), max(band.prefix - 1, 0)
    back, own, taken = np.empty((rows, len(slopes))), np.empty(rows), np.empty(rows)
    ahead, first = np.zeros((band.prefix, len(slopes))), np.exp(logits.first)
    sums = _sums(slopes.tobytes(), rows + 1)
    both = sums if later is slopes else _sums(later.tobytes(), band.prefix)
    # queries that see a key after them, and those that do not: each relative to the largest weight they see
    for start, stop, logit in ((0, inside, -later), (inside, rows, np.full_like(slopes, -np.inf))):
        largest = np.maximum.reduce([logits.diagonal, -slopes, logit, logits.sinks])
        seen = (np.exp(one - largest) for one in (logits.diagonal, -slopes, logit, logits.sinks))
        shape = (start, stop, band.behind, band.always, band.prefix, bool(logits.first.any()))
        _fill(shape, *seen, first, logits.weights, slopes, sums, both, back, ahead, own, taken)
    if not inside:
        # the first token sees nothing but itself and the sink, however little each of them weighs
        margin = logits.diagonal + logits.first - logits.sinks
        own[0], taken[0] = (
            (logits.weights * np.exp(-np.logaddexp(0.0, one))).sum() for one in (-margin, margin)
        )
    return Weights(before, after, first, back, ahead, own, taken)


_kept = functools.lru_cache(maxsize=4)(_weights)


@functools.lru_cache(maxsize=16)
def _powers(slopes: bytes) -> Powers:
    """What the slopes of heads, as bytes, make of a tile."""
    rates, offsets = np.frombuffer(slopes), np.arange(TILE + 1.0)[:, None]
    powers = np.exp(-rates * offsets)
    exact = np.exp(-rates.astype(np.longdouble) * TILE)
    powers[TILE] = exact
    powers[powers < FLOOR] = 0.0
    last = powers[TILE]
    slack = np.divide(exact - last, last, out=np.zeros_like(last), where=last > 0, casting="same_kind")
    return Powers(rates.copy(), powers, slack)


def _geometric(slopes: Heads, terms: Float[np.ndarray, "token 1"]) -> Table:
    """(1 − γ^k)/(1 − γ) for each number of terms k, without cancellation; k itself where γ = 1."""
    with np.errstate(invalid="ignore"):
        return np.where(slopes > 0, np.expm1(-slopes * terms) / np.expm1(-slopes), terms)


@functools.lru_cache(maxsize=4)
def _sums(slopes: bytes, count: int) -> Table:
    """(1 − γ^k)/(1 − γ) for k = 0 … count − 1, tile by tile: those up to the tile, and inside it on top."""
    rates = np.frombuffer(slopes)
    starts, offsets = np.arange(0.0, count, TILE)[:, None], np.arange(float(TILE))[:, None]
    table = np.exp(-rates * starts)[:, None] * _geometric(rates, offsets)
    table += _geometric(rates, starts)[:, None]
    return table.reshape(-1, len(rates))[:count]


@compiled()
def _fill(shape, here, there, after, sinks, first, heads, slopes, sums, both, back, ahead, own, taken):
    """The weights of queries start … stop − 1, by what their heads give to the keys that they see."""
    start, stop, behind, always, prefix, apart = shape
    total, alone = np.zeros(len(heads)), here * first
    for q in range(start, stop):
        # keys of the window; key 0 apart where it has a logit of its own
        near = sums[min(max(q - apart, 0), behind)]
        for h in range(len(heads)):
            total[h] = there[h] * near[h]
        far = min(q - behind, always) - apart
        for h in range(len(heads) if far > 0 else 0):
            m = slopes[h]
            terms = np.expm1(-m * far) / np.expm1(-m) if m > 0 else float(far)
            total[h] += there[h] * np.exp(-m * (q - apart - far)) * terms
        for h in range(len(heads) if apart and q > 0 and (q <= behind or always > 0) else 0):
            total[h] += there[h] * first[h] * np.exp(-slopes[h] * (q - 1))
        for h in range(len(heads) if q < prefix - 1 else 0):
            total[h] += after[h] * both[prefix - 1 - q, h]
        _share(q, total, alone if q == 0 else here, there, sinks, heads, back, own, taken)
        for h in range(len(heads) if q < prefix else 0):
            ahead[q, h] = total[h] * after[h]


@compiled(*SUMS, inlined=True, error_model="numpy")
def _share(q, total, here, there, sinks, heads, back, own, taken):
    """One query's weights from the sums over its keys, which become what the heads give per unit of weight."""
    kept, lost = 0.0, 0.0
    # loops of few arrays: with more a compiler cannot tell that they lie apart, and uses no vectors
    for h in range(len(total)):
        total[h] = heads[h] / (here[h] + sinks[h] + total[h] + TINY)
    for h in range(len(total)):
        kept += total[h] * here[h]
        lost += total[h] * sinks[h]
    row = back[q]
    for h in range(len(total)):
        row[h] = total[h] * there[h]
    own[q], taken[q] = kept, lost


# --- the compiled sums ----------------------------------------------------------------------------------------


@compiled()
def _back(row, out, width, always, first, table, powers):
    """Add to every token what later ones give it: `width` of them, to the first `always` tokens all of them."""
    heads, tokens, start = len(first), len(row), max(always, 1)
    everything, carry, local = np.zeros((2, heads)), np.zeros((2, heads)), np.zeros(heads)
    for begin in range(start + (tokens - 1 - start) // width * width, start - 1, -width):
        carry[:] = 0.0
        _down(row, out, begin, min(begin + width, tokens), table, powers, carry, local)
        if always > 0 or begin == start:
            for h in range(heads):
                term = np.exp(-powers.slopes[h] * (begin - start)) * carry[0, h]
                _add(everything, h, everything[0, h], term)
        if begin > start:
            _up(row, out, begin, width, table, powers, local)
    _down(row, out, 1, min(start, tokens), table, powers, everything, local)
    for h in range(heads):
        out[0] += first[h] * everything[0, h]


@compiled()
def _ahead(row, out, table, powers):
    """Add to every token what later ones of a causal text give it."""
    heads = table.shape[1]
    _down(row, out, 0, len(row), table, powers, np.zeros((2, heads)), np.zeros(heads))


@compiled()
def _down(row, out, start, stop, table, powers, carry, local):
    """Tokens stop − 1 … start: add what `carry` and the later ones pass on; `carry` becomes what passes
    `start`."""
    for tile, a in enumerate(range(start + (stop - 1 - start) // TILE * TILE, start - 1, -TILE)):
        length = min(TILE, stop - a)
        _suffixes(row, out, a, length, table, powers.powers, carry[0], local)
        for h in range(len(local)):
            kept, power = carry[0, h], powers.powers[length, h]
            kept *= power
            if tile % EVERY == EVERY - 1:
                kept += kept * (EVERY * powers.slack[h])
            carry[1, h] *= power
            _add(carry, h, kept, local[h])


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
def _up(row, out, begin, width, table, powers, local):
    """Add to the `width` keys before token `begin` what those of the queries from there on that see them give."""
    heads = len(local)
    total, ahead, far = np.zeros((2, heads)), np.zeros(heads), np.zeros(heads)
    for a in range(0, width, TILE):
        length = min(TILE, width - a)
        for h in range(heads):
            s = np.exp(-powers.slopes[h] * (width - a - length)) * total[0, h]
            ahead[h] = s if s > FLOOR else 0.0
            s = np.exp(-powers.slopes[h] * (width - length))
            far[h] = s if s > FLOOR else 0.0
        _prefixes(row, out, begin + a, width, length, table, powers.powers, ahead, far, local)
        for h in range(heads):
            _add(total, h, total[0, h], np.exp(-powers.slopes[h] * a) * local[h])


@compiled(*SUMS, inlined=True)
def _suffixes(row, out, start, length, table, powers, carry, local):
    """out_k += Σ_h γ^(last − k)·carry + Σ_{i>k} γ^(i−k−1)·c_i·row_i; the latter for k = start − 1 in `local`."""
    gamma, last = powers[1], len(table) - 1
    for h in range(len(local)):
        local[h] = 0.0
    for k in range(length - 1, -1, -1):
        i = start + k
        given, c, g, total = row[i], table[min(i, last)], powers[length - 1 - k], 0.0
        for h in range(len(local)):
            s = local[h]
            total += s + g[h] * carry[h]
            s = gamma[h] * s + c[h] * given
            local[h] = s if s > FLOOR else 0.0
        out[i] += total


@compiled(*SUMS, inlined=True)
def _prefixes(row, out, start, width, length, table, powers, ahead, far, local):
    """out_k += Σ_h γ^(last − k)·(ahead + far·Σ_{i≤k} γ^i·c_i·row_i), `width` tokens back; the last sum in
    `local`."""
    last = len(table) - 1
    for h in range(len(local)):
        local[h] = 0.0
    for k in range(length):
        i = start + k
        given = row[i] if i < len(row) else 0.0
        c, up, g, total = table[min(i, last)], powers[k], powers[length - 1 - k], 0.0
        for h in range(len(local)):
            s = local[h] + up[h] * c[h] * given
            local[h] = s if s > FLOOR else 0.0
        for h in range(len(local)):
            total += g[h] * (ahead[h] + far[h] * local[h])
        out[i - width] += total
