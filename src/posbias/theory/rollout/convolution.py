"""A row vector through one layer by Fourier transforms, every entry within `TOLERANCE` of the dense product.

With u_hi = w_h·row_i/Z_hi and g_h = exp(bias_h), key j draws Σ_h Σ_i u_hi·g_h(i − j): a correlation per head.
A transform errs by a fraction of the largest values it handles, so that one transform over the whole text
would drown small entries. Instead:

- Pairs are split by distance, as in the fast multipole method. Near ones (`BASE`) are added directly. At each
  level the text is cut into blocks, `RADIX` times longer than below, and a key block meets by one transform
  each the query blocks that are too far for the level below and too near for the one above. Over so narrow
  a range of distances g varies little; a tilt, u_i·e^{−θi} against g(d)·e^{θd}, takes out its mean slope.
- Heads are added up as spectra, so one inverse transform serves all; heads with equal bias share theirs.
- Each block's error is bounded (`_bound`). An entry whose bounds exceed the tolerance is taken from those
  levels again by direct addition of positive terms; where that would cost as much as the stream, or the row
  has few entries, `stream.push` does the whole.

Time is O(tokens · log² tokens) per head. Diagonal, first column, and the tokens that a window always sees are
added directly. Sources: Higham 2002, Theorem 24.2, for the transform's error; Wilson & Keich 2016 for tilting.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.fft
from jaxtyping import Float

from posbias.core.machine import compiled
from posbias.theory import masks
from posbias.theory.architecture import Layer
from posbias.theory.positional import DenseLogits
from posbias.theory.rollout import stream
from posbias.theory.rollout.kernel import FLOOR, Row, distinct_rows, through

fft: Any = scipy.fft
TOLERANCE = 1e-10
"""The largest relative error of an entry above 1e-250."""
SHARE = 0.9
"""The part of the tolerance that transforms may take; the rest is for sums of rounded positive terms."""
BASE, RADIX = 64, 4
"""Tokens of the smallest block, and how many blocks make one of the next level; powers of two."""
FEW = 256
"""A row with no more entries than this is streamed."""
KEPT = 2**27
"""Layers that take up to this many bytes are kept prepared, four at a time."""
EPSILON = 2.0**-53
STEPS = 7.0
"""A transform of length N errs in norm by at most STEPS·ε·log₂N (Higham: μ + γ₄(√2 + μ) per doubling, with
rotation factors good to μ ≤ ε)."""


class Sums(NamedTuple):
    """What the keys draw from a row, and the share of the sums (one per key and level) that were added directly.

    `exact` was added directly; `parts` are transforms by level, with bounds of each one's absolute `errors`.
    """

    exact: Float[np.ndarray, "key"]
    parts: Float[np.ndarray, "level key"]
    errors: Float[np.ndarray, "level key"]
    recomputed: float
    lost: float


def push(layer: Layer, mixing: float, row: Row) -> tuple[Row, float]:
    """row · R for one layer, R = (1 − λ)I + λA, and the mass that its learned sink takes.

    Every entry is within `TOLERANCE` relative of the dense product (below 1e-250 it may be 0), none is
    negative. Raises `InvalidValueError` for logits that the layer cannot give for this many tokens.
    """
    if (sums := transform(layer, mixing, row)) is None:
        return stream.push(layer, mixing, row)
    out = sums.exact + sums.parts.sum(axis=0)
    # below this a transform's rounding is no longer relative
    out[np.abs(out) < FLOOR] = 0.0
    return out, sums.lost


def transform(layer: Layer, mixing: float, row: Row) -> Sums | None:
    """The sums of `push`; None where the stream has to take the row."""
    mask = layer.mask
    if isinstance(layer.positional, DenseLogits) or not isinstance(mask, masks.Banded):
        return None
    if not mask.band().looks_back or mixing <= 0 or np.count_nonzero(row) <= FEW:
        return None
    prepared = prepare(layer, len(row))
    if prepared is None or not prepared.levels:
        return None
    row = np.where(row < FLOOR, 0.0, row)
    u = row * prepared.draw
    exact = (1.0 - mixing) * row + mixing * near(prepared, row, u)
    # what overflows becomes infinite or NaN, is doubted below and added directly
    with np.errstate(over="ignore", invalid="ignore"):
        parts, errors = (mixing * part for part in far(prepared, u))
    blocks = np.array([level.block for level in prepared.levels])
    marked, work = mark(exact, parts, errors, SHARE * TOLERANCE, blocks, RADIX, prepared.reach)
    pairs = float(np.minimum(np.arange(len(row)), prepared.reach).sum())
    if work > pairs / 2:
        return None
    recompute(marked, u, prepared.all_bias, mixing, blocks, RADIX, prepared.reach, parts, errors)
    lost = mixing * float((row * prepared.sink).sum())
    return Sums(exact, parts, errors, float(marked.mean()), lost)


@dataclass(frozen=True, eq=False)
class Level:
    """One level: blocks of `block` tokens, met at 2 … `offsets` + 1 blocks' distance under the tilt θ."""

    block: int
    offsets: int
    tilt: float

    @functools.cached_property
    def rise(self) -> Float[np.ndarray, "offset"]:
        """The factors of queries, e^{−θk}, at most 1; those of keys are the same read backwards."""
        step = np.arange(self.block)
        return np.exp(-self.tilt * (step if self.tilt >= 0 else step - self.block + 1))


@dataclass(frozen=True, eq=False)
class Prepared:
    """What does not depend on the row; heads with equal bias make one group.

    `bias` holds g of each group by distance, without what a window cuts off (`reach` is the largest distance
    kept), `all_bias` with it; `draw` is Σ w_h/Z_hi over the heads of a group, `own`, `column` and `sink` what
    a query gives to itself, to token 0 and to the learned sinks per unit of row. `always` tokens at the start
    are seen by all, from beyond the `width` of the window as well.
    """

    all_bias: Float[np.ndarray, "group distance"]
    draw: Float[np.ndarray, "group query"]
    own: Float[np.ndarray, "query"]
    column: Float[np.ndarray, "query"]
    sink: Float[np.ndarray, "query"]
    reach: int
    width: int
    always: int
    levels: tuple[Level, ...]
    spectra: dict[tuple[int, int], tuple]
    keep: bool

    @property
    def bias(self) -> Float[np.ndarray, "group distance"]:
        """g up to the reach."""
        return self.all_bias[:, : self.reach + 1]

    def spectrum(self, group: int, place: int) -> tuple:
        """The spectra and norms of g of one group over the ranges of one level."""
        known = self.spectra.get((group, place))
        if known is None:
            known = _spectrum(self.bias[group], self.levels[place])
            if self.keep:
                self.spectra[group, place] = known
        return known


def prepare(layer: Layer, tokens: int) -> Prepared | None:
    """The layer's denominators and levels for a text of `tokens` tokens; None if the stream must take it."""
    # the denominators of all tokens, g of all distances, and its spectra, at most four times as long
    needed = 8 * layer.heads * (tokens + 5 * layer.mask.farthest(tokens))
    return _kept(layer, tokens) if needed <= KEPT else _prepare(layer, tokens, False)


@functools.lru_cache(maxsize=4)
def _kept(layer: Layer, tokens: int) -> Prepared | None:
    return _prepare(layer, tokens, True)


def _prepare(layer: Layer, tokens: int, keep: bool) -> Prepared | None:
    tables, bounds = stream.tables(layer, tokens), masks.bounds(layer.mask, tokens)
    if tables is None or bounds is None or not isinstance(layer.mask, masks.Banded):
        return None
    low, high, always = bounds
    weights = layer.head_logits.weights
    groups, group_of = distinct_rows(tables.bias)
    bias = tables.bias if len(groups) == layer.heads else tables.bias[groups]
    draw = np.zeros((len(bias), tokens))
    own, column, sink = np.zeros((3, tokens))
    for h, (here, first, drain, table) in enumerate(zip(*tables, strict=True)):
        share = weights[h] / stream.denominators(table, here, first, drain, 0, low, high, always)
        draw[group_of[h]] += share
        sink += share * drain
        own[1:] += share[1:] * here
        seen = min(len(table), tokens)
        column[0] += share[0] * here * first
        column[1:seen] += share[1:seen] * (table[1:seen] * first)
    width = layer.mask.band().at(tokens).behind + 1
    reach = int(np.flatnonzero(bias[:, :width].any(axis=0)).max(initial=0))
    levels = _levels(through(draw[:, -1], bias[:, : reach + 1]), tokens)
    return Prepared(bias, draw, own, column, sink, reach, width, always, levels, {}, keep)


def _levels(mean: Float[np.ndarray, "distance"], tokens: int) -> tuple[Level, ...]:
    """The levels for a text, each with the tilt that levels out `mean`, the mean of g over heads."""
    reach = len(mean) - 1
    levels, block = [], BASE
    while 2 * block < tokens and block < reach:
        offsets = min(2 * RADIX - 2, (reach - 1) // block)
        distance = np.unique(np.linspace(block + 1, min((offsets + 2) * block - 1, reach), 64).astype(int))
        distance = distance[mean[distance] > 0]
        tilt = 0.0
        if len(distance) > 1:
            tilt = -np.polyfit(distance - distance[0], np.log(mean[distance]), 1)[0]
        # few enough digits that θ·d is exact, small enough that e^{2θ·block} stays far from overflow
        levels.append(Level(block, offsets, float(np.float32(np.clip(tilt, -150 / block, 150 / block)))))
        block *= RADIX
    return tuple(levels)


def near(prepared: Prepared, row: Float[np.ndarray, "query"], u: Float[np.ndarray, "group query"]):
    """What keys draw by direct addition: from themselves and their neighbours, and through seen-by-all keys."""
    drawn = row * prepared.own
    for group, bias in enumerate(prepared.all_bias):
        neighbours(u[group], prepared.bias[group], BASE, drawn)
        always_seen(u[group], bias, prepared.width, prepared.always, drawn)
    drawn[0] = (row * prepared.column).sum()
    return drawn


def far(
    prepared: Prepared, u: Float[np.ndarray, "group query"]
) -> tuple[Float[np.ndarray, "level key"], Float[np.ndarray, "level key"]]:
    """What keys draw from beyond their neighbours, by level, and a bound of each one's absolute error."""
    tokens = u.shape[1]
    parts, errors = np.zeros((2, len(prepared.levels), tokens))
    for place, level in enumerate(prepared.levels):
        size = level.block
        padded = np.zeros((-(-tokens // size), 2 * size))
        total = np.zeros((2, len(padded), size + 1))
        sizes, norms = np.zeros((2, len(padded)))
        for group in range(len(u)):
            tilted(u[group], level.rise, padded, sizes)
            spectra = fft.rfft(padded, axis=1, workers=1)
            kernel, widths = prepared.spectrum(group, place)
            gather(spectra.view(np.float64), sizes, kernel, widths, RADIX, total, norms)
        spectra = np.empty(total.shape[1:], dtype=np.complex128)
        spectra.real, spectra.imag = total
        values = fft.irfft(spectra, 2 * size, axis=1, workers=1)
        bound = _bound(2 * size, len(u) * level.offsets, norms, _norm(values))
        fall = level.rise[::-1]
        parts[place] = (values[:, :size] * fall).ravel()[:tokens]
        errors[place] = (bound[:, None] * fall).ravel()[:tokens]
    parts[:, 0] = errors[:, 0] = 0.0
    return parts, errors


def _spectrum(
    bias: Float[np.ndarray, "distance"], level: Level
) -> tuple[Float[np.ndarray, "2 offset frequency"], Float[np.ndarray, "offset"]]:
    """The conjugate spectra of tilted g around 2, 3, … blocks' distance (real, imaginary), and their norms."""
    ranges, widths = np.zeros((level.offsets, 2 * level.block)), np.zeros(level.offsets)
    step = np.arange(2 * level.block - 1)
    growth = np.exp(level.tilt * (step if level.tilt >= 0 else step - step[-1]))
    range_norms(bias, growth, level.block, ranges, widths)
    spectra = fft.rfft(ranges, axis=1, workers=1)
    return np.stack([spectra.real, -spectra.imag]), widths


def _norm(rows: Float[np.ndarray, "row entry"]) -> Float[np.ndarray, "row"]:
    """A bound of the Euclidean norm of each row, √(max · sum), that neither overflows nor underflows."""
    size = np.abs(rows)
    return np.sqrt(size.max(axis=1)) * np.sqrt(size.sum(axis=1))


def _bound(length: int, terms: int, norms: Float[np.ndarray, "block"], values: Float[np.ndarray, "block"]):
    """A bound of the error of every entry x of a block, x = Σ u·g over `terms` pairs of spectra.

    With δ = STEPS·ε·log₂(length), the transforms of u and g each err by δ in norm, so that by Cauchy and
    Schwarz the products err by 2δ·Σ‖u‖‖g‖ in any entry of x; summing `terms` of them and tilting adds
    (terms + 24)·ε·Σ‖u‖‖g‖; the inverse errs by δ‖x‖. `norms` holds Σ‖u‖‖g‖ and `values` ‖x‖ as computed.
    """
    delta = STEPS * np.log2(length)
    return EPSILON * ((2 * delta + terms + 24) * norms + delta * values)


# --- the compiled parts: sums inside a block, spectra gathered over blocks, and what is added again ------------


@compiled("contract")
def range_norms(bias, growth, size, ranges, widths):
    """Lay g, tilted, around 2, 3, … blocks' distance into rows, circularly, and bound their Euclidean norms."""
    for offset in range(len(ranges)):
        out = ranges[offset]
        start = (offset + 1) * size + 1
        part = bias[start : start + 2 * size - 1]
        largest, total = 0.0, 0.0
        for k in range(len(part)):
            value = part[k] * growth[k]
            out[k + size + 1 if k < size - 1 else k - size + 1] = value
            largest = max(largest, value)
            total += value
        widths[offset] = np.sqrt(largest) * np.sqrt(total)


@compiled("contract")
def tilted(u, rise, padded, sizes):
    """Lay the blocks of u, tilted, into the first halves of the rows, and bound their Euclidean norms."""
    size = len(rise)
    for block in range(len(padded)):
        part, out = u[block * size : (block + 1) * size], padded[block, :size]
        largest, total = 0.0, 0.0
        for k in range(len(part)):
            out[k] = part[k] * rise[k]
            largest = max(largest, out[k])
            total += out[k]
        sizes[block] = np.sqrt(largest) * np.sqrt(total)


@compiled("contract")
def gather(spectra, sizes, kernel, widths, radix, total, norms):
    """Add to every key block's spectrum its query blocks' times the kernel's, and to `norms` theirs."""
    blocks, offsets, length = len(spectra), len(widths), kernel.shape[2]
    real, imaginary = np.empty((blocks, length)), np.empty((blocks, length))
    for query in range(2, blocks):
        for f in range(length):
            real[query, f] = spectra[query, 2 * f]
            imaginary[query, f] = spectra[query, 2 * f + 1]
    for key in range(blocks):
        out_real, out_imaginary = total[0, key], total[1, key]
        for query in range(key + 2, min((key // radix + 2) * radix, blocks, key + 2 + offsets)):
            offset = query - key - 2
            weight = sizes[query] * widths[offset]
            if weight == 0.0:
                continue
            norms[key] += weight
            a, b, c, d = real[query], imaginary[query], kernel[0, offset], kernel[1, offset]
            for f in range(length):
                out_real[f] += a[f] * c[f] - b[f] * d[f]
                out_imaginary[f] += a[f] * d[f] + b[f] * c[f]


@compiled("contract")
def neighbours(u, bias, base, drawn):
    """Add to every key what later queries of its own block and of the next give it, four queries at a time."""
    tokens = len(u)
    reverse = np.zeros(2 * base)
    for d in range(1, min(2 * base, len(bias))):
        reverse[2 * base - d] = bias[d]
    for i in range(0, tokens, 4):
        end = min(i + 4, tokens)
        for k in range(i + 1, end):
            for j in range(max(i, 1), k):
                drawn[j] += u[k] * reverse[2 * base - k + j]
        start = max((i // base - 1) * base, 0)
        u0, u1 = u[i], u[i + 1] if i + 1 < tokens else 0.0
        u2, u3 = u[i + 2] if i + 2 < tokens else 0.0, u[i + 3] if i + 3 < tokens else 0.0
        if i == start or u0 + u1 + u2 + u3 == 0.0:
            continue
        place = 2 * base - i + start
        length = i - start
        out, first, second = drawn[start:i], reverse[place:], reverse[place - 1 : place - 1 + length]
        third, fourth = reverse[place - 2 : place - 2 + length], reverse[place - 3 : place - 3 + length]
        for j in range(length):
            out[j] += (u0 * first[j] + u1 * second[j]) + (u2 * third[j] + u3 * fourth[j])


@compiled()
def always_seen(u, bias, width, always, drawn):
    """Add to the tokens that all see, but token 0, what queries beyond the window give them."""
    for key in range(1, min(always, len(u))):
        for query in range(key + width, len(u)):
            drawn[key] += u[query] * bias[query - key]


@compiled()
def mark(exact, parts, errors, allowed, blocks, radix, reach):
    """Which sums are to be added directly so that every entry is right, and how many terms they have.

    The sums with the largest bounds first, until those left are within `allowed` of the least that the
    entry can be.
    """
    levels, tokens = parts.shape
    marked = np.zeros((levels, tokens), dtype=np.bool_)
    work = 0
    for key in range(tokens):
        least, bound = exact[key], 0.0
        for level in range(levels):
            least += max(parts[level, key] - errors[level, key], 0.0)
            bound += errors[level, key]
        # written so that a NaN is marked as well
        while not bound <= allowed * least:
            worst = -1
            for level in range(levels):
                if not marked[level, key] and (worst < 0 or not errors[level, key] <= errors[worst, key]):
                    worst = level
            if worst < 0:
                break
            marked[worst, key] = True
            start, end = _range(key, blocks[worst], radix, reach, tokens)
            work += max(end - start, 0)
            bound = 0.0
            for level in range(levels):
                if not marked[level, key]:
                    bound += errors[level, key]
    return marked, work


@compiled()
def _range(key, block, radix, reach, tokens):
    """The queries that a key meets at a level, first and one past the last."""
    own = key // block
    return (own + 2) * block, min((own // radix + 2) * radix * block, key + reach + 1, tokens)


@compiled("contract", "reassoc")
def recompute(marked, u, bias, mixing, blocks, radix, reach, parts, errors):
    """Put the marked sums in place of what the transforms gave."""
    for level in range(len(blocks)):
        for key in np.flatnonzero(marked[level]):
            start, end = _range(key, blocks[level], radix, reach, u.shape[1])
            total = 0.0
            if end > start:
                for group in range(len(u)):
                    left, right = u[group, start:end], bias[group, start - key : end - key]
                    for k in range(len(left)):
                        total += left[k] * right[k]
            parts[level, key] = mixing * total
            errors[level, key] = 0.0
