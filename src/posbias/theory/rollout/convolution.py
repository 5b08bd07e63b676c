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

from posbias.theory import masks
from posbias.theory.architecture import Layer
from posbias.theory.positional import DenseLogits
from posbias.theory.rollout import stream
from posbias.theory.rollout.blocks import (
    always_seen,
    gather,
    largest_share,
    mark,
    neighbours,
    range_norms,
    recompute,
    share_out,
    tilted,
)
from posbias.theory.rollout.kernel import Row, through

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


class Accuracy(NamedTuple):
    """How a row went through a layer.

    `engine` is fft or stream; `recomputed` the share of the sums (one per key and level) that were added
    directly, `work` the multiplications this took as a share of the stream's; `doubt` the largest relative
    error bound of an entry before that, `error` after it.
    """

    engine: str
    recomputed: float = 0.0
    work: float = 0.0
    doubt: float = 0.0
    error: float = 0.0


def push(layer: Layer, mixing: float, row: Row) -> tuple[Row, float]:
    """row · R for one layer, R = (1 − λ)I + λA, and the mass that its learned sink takes.

    Every entry is within `TOLERANCE` relative of the dense product (below 1e-250 it may be 0), none is
    negative. Raises `InvalidValueError` for logits that the layer cannot give for this many tokens.
    """
    return _push(layer, mixing, row)[:2]


def accuracy(layer: Layer, mixing: float, row: Row) -> Accuracy:
    """How `push` fares with these arguments: engine, what was recomputed, error bounds."""
    return _push(layer, mixing, row)[2]


def _push(layer: Layer, mixing: float, row: Row) -> tuple[Row, float, Accuracy]:
    prepared = None
    if _fits(layer) and mixing > 0 and np.count_nonzero(row) > FEW:
        prepared = prepare(layer, len(row))
    if prepared is None or not prepared.levels:
        return *stream.push(layer, mixing, row), Accuracy("stream")
    row = np.where(row < stream.FLOOR, 0.0, row)
    u = row * prepared.draw
    exact = (1.0 - mixing) * row + mixing * near(prepared, row, u)
    # what overflows becomes infinite or NaN, is doubted below and added directly
    with np.errstate(over="ignore", invalid="ignore"):
        parts, errors = (mixing * part for part in far(prepared, u))
        doubt = largest_share(exact, parts, errors)
    blocks = np.array([level.block for level in prepared.levels])
    marked, work = mark(exact, parts, errors, SHARE * TOLERANCE, blocks, RADIX, prepared.reach)
    pairs = float(np.minimum(np.arange(len(row)), prepared.reach).sum())
    if work > pairs / 2:
        return *stream.push(layer, mixing, row), Accuracy("stream", doubt=doubt)
    recompute(marked, u, prepared.all_bias, mixing, blocks, RADIX, prepared.reach, parts, errors)
    out = exact + parts.sum(axis=0)
    # below this a transform's rounding is no longer relative
    out[np.abs(out) < stream.FLOOR] = 0.0
    error = largest_share(exact, parts, errors)
    how = Accuracy("fft", float(marked.mean()), work / pairs, doubt, error)
    return out, mixing * float((row * prepared.sink).sum()), how


def _fits(layer: Layer) -> bool:
    mask = layer.mask
    if isinstance(layer.positional, DenseLogits) or not isinstance(mask, masks.Banded):
        return False
    return mask.band().looks_back


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
    weights = layer.head_logits().weights
    bias, group_of = _groups(tables.bias)
    draw = np.zeros((len(bias), tokens))
    own, column, sink = np.zeros((3, tokens))
    for h, (here, first, drain, table) in enumerate(zip(*tables, strict=True)):
        sums = stream.denominators(table, here, first, drain, 0, low, high, always)
        share_out(weights[h], here, first, drain, table, sums, draw[group_of[h]], own, column, sink)
    width = layer.mask.band().at(tokens).behind + 1
    reach = int(np.flatnonzero(bias[:, :width].any(axis=0)).max(initial=0))
    levels = _levels(through(draw[:, -1], bias[:, : reach + 1]), tokens)
    return Prepared(bias, draw, own, column, sink, reach, width, always, levels, {}, keep)


def _groups(bias: Float[np.ndarray, "head distance"]) -> tuple[np.ndarray, list[int]]:
    """The distinct rows, and which of them each head has."""
    kinds: dict[bytes, int] = {}
    numbers = [kinds.setdefault(row.tobytes(), len(kinds)) for row in bias]
    if len(kinds) == len(bias):
        return bias, numbers
    return np.stack([bias[numbers.index(k)] for k in range(len(kinds))]), numbers


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
