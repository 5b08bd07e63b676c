"""The Gram-space engine: the model exactly in distribution, at a cost that does not grow with d.

Scores and attention depend on the embeddings only through their inner products, and the outputs of a layer
are mixtures of its inputs. So n tokens may be replaced by any n vectors with the same Gram matrix. For normal
embeddings that matrix is Wishart, and Bartlett's decomposition draws a lower-triangular factor of it at once:
normals below the diagonal, chi variates of d, d − 1, … degrees of freedom on it (d − 1, d − 2, … under
LayerNorm, which takes one direction away; without any left, a row has zeros). Where LayerNorm comes only
after attention, the first layer still sees the direction it takes away: one more coordinate.

Samples come in blocks, each with a generator of its own: the same seed gives the same samples however many
are asked for and however many threads share them out.

A token is a row of the factor, and causal attention keeps it lower-triangular: token i only mixes tokens up to i.
All compiled loops end in one over `LANES` samples, which the compiler turns into vector instructions; for that
exp is written out, and normals are made by Box and Muller's transform:

    z₁ = r·cos φ,  z₂ = r·sin φ,   r = √(−2 ln(1 − u)),  φ uniform on [−π, π)

exact in distribution (to 8.5 standard deviations, beyond which 53 bits do not reach): 4 ns a variate where NumPy's
own, which reject, take 10. Logarithm, sine and cosine are series to about one unit in the last place; sine and
cosine are taken at φ/2, which keeps the series short, and doubled.
"""

import math

import numpy as np
from jaxtyping import Float

from posbias.core.errors import wrong
from posbias.core.machine import compiled, sequence
from posbias.simulation.model import RecencyModel
from posbias.simulation.tally import Layout, Tally

BLOCK = 2048
"""Samples per block; a multiple of the lanes."""
STREAM = "simulate/recency"
LANES = 128
"""Samples that pass through all layers together."""
LOG2E = 1.4426950408889634
MAGIC = 6755399441055744.0
"""1.5·2^52: added to a number of ordinary size, it leaves the nearest integer in the lowest bits."""
LEAST = -700.0
"""Exponents below this are taken as this: e^−700 is nothing against a weight of 1."""
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROOT_HALF = 0x3FE6A09E667F3BCD
"""The bits of √½: mantissas are taken between √½ and √2, where the logarithm's series is shortest."""
ONE = 0x3FF0000000000000
MANTISSA = 0x000FFFFFFFFFFFFF
PIECE = 1024
"""Pairs that are transformed together while they are in the cache."""


EXP_ODD = tuple(1.0 / math.factorial(k) for k in range(13, 2, -2))
EXP_EVEN = tuple(1.0 / math.factorial(k) for k in range(12, 1, -2))
LOGARITHM = tuple(2.0 / k for k in range(21, 0, -2))
SINE = tuple((-1.0) ** (k // 2) / math.factorial(k) for k in range(23, 2, -2))
COSINE = tuple((-1.0) ** (k // 2) / math.factorial(k) for k in range(22, 1, -2))
"""Taylor's coefficients, of e^x, of ln((1 + f)/(1 − f))/f, of sin x/x³ and of cos x/x², the last one first."""


def block_size(model: RecencyModel) -> int:
    """Samples per block: the same for every model."""
    return BLOCK


def memory(model: RecencyModel) -> int:
    """Bytes that a block takes while it is computed, its tally aside."""
    entries = model.tokens * (model.tokens + 1) // 2
    return 8 * (entries * BLOCK + 2 * Layout(model.tokens).size * LANES)


def extra_coordinates(model: RecencyModel) -> int:
    """Coordinates in addition to the Bartlett factor: one where the first layer comes before any LayerNorm."""
    return int(model.order == "post" and model.norm == "layernorm")


def draw_block(
    model: RecencyModel, seed: int, block: int
) -> tuple[Float[np.ndarray, "entry sample"], Float[np.ndarray, "token sample"]]:
    """What block number `block` consists of: normals row by row, and the factor's diagonal."""
    rng = np.random.Generator(np.random.SFC64(sequence(seed, STREAM, block)))
    diagonal = min(model.tokens, model.freedom)
    entries = sum(min(i, model.freedom) for i in range(model.tokens))
    normals = np.empty((entries + model.tokens * extra_coordinates(model), BLOCK))
    fill_with_normals(rng, normals)
    chis = np.empty((diagonal, BLOCK))
    for i in range(diagonal):
        rng.standard_gamma((model.freedom - i) / 2.0, out=chis[i])
    return normals, np.sqrt(2.0 * chis, out=chis)


def run_block(model: RecencyModel, seed: int, block: int, samples: int = BLOCK) -> Tally:
    """The tally of the first `samples` samples of block number `block`.

    A bias is left out until the end: it adds the same to every score of a normalised layer, and next to a large
    one their differences would lose their digits. Raises `InvalidValueError` for samples < 1 or above `BLOCK`,
    for a mask by which a token sees one after it, under which the factor does not stay triangular, or not itself,
    with which normalised tokens score highest, and for scores whose squares are not finite.
    """
    if not 1 <= samples <= BLOCK:
        raise wrong("samples", f"an integer from 1 to {BLOCK}", samples)
    allowed = model.mask.allowed(model.tokens)
    if np.triu(allowed, 1).any() or not allowed.diagonal().all():
        got = f"{model.mask}; engine='token_space' (--engine token_space) takes any"
        raise wrong("mask", "one by which a token sees itself and none after it", got=got)
    tally = Tally(Layout(model.tokens, model.mask), model.depth, samples)
    normals, chis = draw_block(model, seed, block)
    normed, root = model.norm != "none", np.sqrt(model.dimension)
    sizes = samples, model.depth, model.tokens, extra_coordinates(model), model.freedom
    scales = model.shared, 1.0 / root, root * model.gain if normed else 0.0, model.scale
    order = normed and model.order == "pre", normed and model.order == "post", model.residual
    counted = tally.layout.triples, tally.layout.seen, tally.mean, tally.squares, tally.products
    _run_block(normals, chis, *sizes, *scales, *order, *counted)
    first = int(model.order == "post")
    tally.mean[first:, : tally.layout.pairs] += model.bias * model.bias * model.dimension * model.scale
    for layer in range(model.depth):
        if not (np.isfinite(tally.mean[layer]).all() and np.isfinite(tally.squares[layer]).all()):
            advice = "raise the temperature, or lower gain, bias or depth"
            got = f"others in layer {layer + 1} of {model}; {advice}"
            raise wrong("model", "finite scores and squares of them", got=got)
    return tally


# --- one block of samples through all layers --------------------------------------------------------------------


@compiled("contract", inlined=True, error_model="numpy")
def series(q, coefficients):
    """A polynomial in q by Horner's rule."""
    total = coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * q + coefficient
    return total


@compiled("contract", inlined=True, error_model="numpy")
def exponentials(x, scratch):
    """x ← e^x for x ≤ 0 (or hardly above), in place; `scratch`, as long as x, holds powers of two meanwhile."""
    powers, bits = scratch.view(np.int64), x.view(np.int64)
    for s in range(x.size):
        below = max(x[s], LEAST)
        scratch[s] = below * LOG2E + MAGIC
        whole = scratch[s] - MAGIC
        r = (below - whole * LN2_HIGH) - whole * LN2_LOW
        # Taylor's series to the 13th power, in two halves that a processor can take at the same time
        q = r * r
        x[s] = 1.0 + (r + q * (series(q, EXP_EVEN) + r * series(q, EXP_ODD)))
    for s in range(x.size):
        bits[s] += powers[s] << 52


@compiled("contract", inlined=True, error_model="numpy")
def embed(x, normals, chis, first, shared, unit, extra, freedom):
    """x ← the tokens of samples `first` to `first` + LANES: unit·(B + shared directions), row by row.

    `normals` holds, row by row, `extra` coordinates and the entries of the Bartlett factor B left of its
    diagonal, `chis` the diagonal. Tokens of covariance 1 + shared² and shared² are a triangular mixture of
    the rows of B, with equal weights below the diagonal of each column: so a running sum is enough.
    """
    tokens = x.shape[0]
    total = np.zeros((x.shape[1], LANES))
    drawn = 0
    for i in range(tokens):
        before, after = 1.0 + i * shared**2, 1.0 + (i + 1) * shared**2
        own = np.sqrt(after / before) * unit
        later = shared**2 / np.sqrt(before * after) * unit
        for k in range(extra + min(i + 1, freedom)):
            if k == extra + i:
                row = chis[i]
            else:
                row = normals[drawn]
                drawn += 1
            for s in range(LANES):
                z = row[first + s]
                x[i, k, s] = own * z + total[k, s]
                total[k, s] += later * z


@compiled("contract", inlined=True, error_model="numpy")
def normalise(x, factor, length, extra, freedom):
    """Scale all tokens to `length`, the extra coordinates left out; `factor` [token, lane] is by how much."""
    tokens = x.shape[0]
    for i in range(tokens):
        for s in range(LANES):
            factor[i, s] = x[i, extra, s] * x[i, extra, s]
        for k in range(extra + 1, extra + min(i + 1, freedom)):
            for s in range(LANES):
                factor[i, s] += x[i, k, s] * x[i, k, s]
    flat = factor.reshape(tokens * LANES)
    for e in range(flat.size):
        flat[e] = length / np.sqrt(flat[e])
    for i in range(tokens):
        for k in range(extra):
            for s in range(LANES):
                x[i, k, s] = 0.0
        for k in range(extra, extra + min(i + 1, freedom)):
            for s in range(LANES):
                x[i, k, s] *= factor[i, s]


@compiled("contract", inlined=True, error_model="numpy")
def attend(x, v, scratch, scale, top, extra, freedom, admits):
    """Fill in scores and attention of one layer from its inputs x; `admits` [pair] says what is seen.

    `top` is the score of a token with itself if that is the highest of its row and the same for all (as among
    normalised tokens), else infinite: then the highest is looked for. `scratch` is as long as the scores.
    """
    tokens = x.shape[0]
    pairs = tokens * (tokens + 1) // 2
    for i in range(tokens):
        row = i * (i + 1) // 2
        for j in range(i + 1):
            for s in range(LANES):
                v[row + j, s] = x[i, 0, s] * x[j, 0, s]
            for k in range(1, extra + min(j + 1, freedom)):
                for s in range(LANES):
                    v[row + j, s] += x[i, k, s] * x[j, k, s]
    flat = v[: 2 * pairs].reshape(2 * pairs * LANES)
    scores, weights = flat[: pairs * LANES], flat[pairs * LANES :]
    for e in range(scores.size):
        scores[e] *= scale
        weights[e] = scores[e] - top
    if top == np.inf:
        below_highest(v, tokens, admits)
    exponentials(weights, scratch)
    for p in range(pairs):
        if not admits[p]:
            for s in range(LANES):
                v[pairs + p, s] = 0.0
    total = np.empty(LANES)
    for i in range(tokens):
        first = pairs + i * (i + 1) // 2
        for s in range(LANES):
            total[s] = v[first, s]
        for j in range(1, i + 1):
            for s in range(LANES):
                total[s] += v[first + j, s]
        for s in range(LANES):
            total[s] = 1.0 / total[s]
        for j in range(i + 1):
            for s in range(LANES):
                v[first + j, s] *= total[s]


@compiled(error_model="numpy")
def below_highest(v, tokens, admits):
    """Set what is to become weights to the scores less the highest of their row that is seen, or to 0."""
    pairs = tokens * (tokens + 1) // 2
    top = np.empty(LANES)
    for i in range(tokens):
        row = i * (i + 1) // 2
        for s in range(LANES):
            top[s] = v[row + i, s]
        for j in range(i):
            if admits[row + j]:
                for s in range(LANES):
                    top[s] = max(top[s], v[row + j, s])
        for j in range(i + 1):
            for s in range(LANES):
                v[pairs + row + j, s] = min(v[row + j, s] - top[s], 0.0)


@compiled("contract", inlined=True, error_model="numpy")
def mix(x, v, own, extra, freedom):
    """x ← A·x + own·x, with `own` [token, lane] the residual's weight on a token's own row.

    From the last token to the first, since a token needs only those before it as they were.
    """
    tokens = x.shape[0]
    pairs = tokens * (tokens + 1) // 2
    for i in range(tokens - 1, -1, -1):
        first = pairs + i * (i + 1) // 2
        for k in range(extra + min(i + 1, freedom)):
            for s in range(LANES):
                x[i, k, s] *= v[first + i, s] + own[i, s]
        for j in range(i):
            for k in range(extra + min(j + 1, freedom)):
                for s in range(LANES):
                    x[i, k, s] += v[first + j, s] * x[j, k, s]


@compiled("contract", inlined=True, error_model="numpy")
def compare(v, tokens, found, counts, triples, admits):
    """Fill in steps, rises and shares of one layer from its scores; `triples` as in `Layout`.

    `found` [lane] and `counts` [group, lane] are room for integers.
    """
    steps = tokens * (tokens + 1)
    rises = steps + tokens * (tokens - 1) // 2
    shares = rises + (tokens - 1) * (tokens - 2) // 2
    counts[:] = 0
    for i in range(1, tokens):
        scores, sees = v[i * (i + 1) // 2 :], admits[i * (i + 1) // 2 :]
        for j in range(i):
            step, left, right = v[steps + i * (i - 1) // 2 + j], scores[j], scores[j + 1]
            for s in range(LANES):
                step[s] = right[s] - left[s]
        for j in range(1, i):
            rise, first, score = v[rises + (i - 1) * (i - 2) // 2 + j - 1], scores[0], scores[j]
            for s in range(LANES):
                rise[s] = score[s] - first[s]
            if not sees[j]:
                continue
            count_below(scores, j, found, counts[tokens - 2 :], sees)
            by_query, by_distance = counts[i - 1], counts[2 * (tokens - 2) + i - j]
            for s in range(LANES):
                by_query[s] += found[s]
                by_distance[s] += found[s]
    for i in range(2, tokens):
        for s in range(LANES):
            counts[0, s] += counts[i - 1, s]
    for g in range(triples.size):
        share, count, of = v[shares + g], counts[g], 1.0 / max(triples[g], 1)
        for s in range(LANES):
            share[s] = count[s] * of


@compiled(error_model="numpy")
def count_below(scores, j, found, by_gap, sees):
    """found ← how many of the first j keys that are seen score below key j; by_gap[j − k] has each added."""
    score = scores[j]
    for s in range(LANES):
        found[s] = 0
    for k in range(j):
        if not sees[k]:
            continue
        other, gap = scores[k], by_gap[j - k]
        for s in range(LANES):
            later = np.int64(score[s] > other[s])
            found[s] += later
            gap[s] += later


@compiled("contract", "reassoc", "nsz", inlined=True, error_model="numpy")
def absorb(v, control, used, seen, mean, squares, products, centre, total, bottom):
    """Add the first `used` lanes of all features of a layer to moments of `seen` samples.

    Sums are taken about the mean so far (about the first lane at the beginning), so they cancel nothing.
    `control` are the first layer's lanes, `centre` and `total` what its sums were taken about and gave: they
    are written when `bottom`, that is when `v` is the first layer itself.
    """
    steps = mean.size - products.size
    share = 1.0 / (seen + used)
    for f in range(mean.size):
        about = mean[f] if seen else v[f, 0]
        first, second = 0.0, 0.0
        for s in range(used):
            apart = v[f, s] - about
            first += apart
            second += apart * apart
        squares[f] += second - first * first * share
        mean[f] = about + first * share
        if f >= steps:
            c = f - steps
            if bottom:
                centre[c], total[c] = about, first
                products[c] = squares[f]
            else:
                product = 0.0
                for s in range(used):
                    product += (v[f, s] - about) * (control[f, s] - centre[c])
                products[c] += product - first * total[c] * share


@compiled(error_model="numpy")
def _run_block(
    normals, chis, used, depth, tokens, extra, freedom,
    shared, unit, length, scale, before, after, residual,
    triples, admits, mean, squares, products,
):  # fmt: skip
    """Take the first `used` samples of a block through all layers into the moments of an empty tally.

    `length` is that of a normalised token (0: no norm), `before` and `after` say whether the norm comes
    before or after attention, `scale` what inner products are multiplied with; `admits` is `Layout.seen`.
    """
    x = np.zeros((tokens, extra + min(tokens, freedom), LANES))
    v, control = np.empty((mean.shape[1], LANES)), np.empty((mean.shape[1], LANES))
    scratch = np.empty(tokens * (tokens + 1) // 2 * LANES)
    found, counts = np.empty(LANES, np.int64), np.empty((max(triples.size, 1), LANES), np.int64)
    centre, total = np.empty(products.shape[1]), np.empty(products.shape[1])
    factor = np.empty((tokens, LANES))
    own = np.full((tokens, LANES), 1.0 if residual else 0.0)
    for seen in range(0, used, LANES):
        lanes = min(LANES, used - seen)
        embed(x, normals, chis, seen, shared, unit, extra, freedom)
        for t in range(depth):
            if before:
                normalise(x, factor, length, extra, freedom)
                if residual:
                    for i in range(tokens):
                        for s in range(LANES):
                            own[i, s] = 1.0 / factor[i, s]
            here = control if t == 0 else v
            normed = before or (after and t > 0)
            top = length * length * scale if normed else np.inf
            attend(x, here, scratch, scale, top, extra, freedom, admits)
            compare(here, tokens, found, counts, triples, admits)
            absorb(here, control, lanes, seen, mean[t], squares[t], products[t], centre, total, t == 0)
            if t < depth - 1:
                mix(x, here, own, extra, freedom)
                if after:
                    normalise(x, factor, length, extra, freedom)


# --- normals ----------------------------------------------------------------------------------------------------


def fill_with_normals(rng: np.random.Generator, out: Float[np.ndarray, "..."]) -> None:
    """Overwrite a contiguous float64 array with standard normals."""
    flat = out.reshape(-1)
    rng.random(out=flat)
    half = flat.size // 2
    transform(flat[:half], flat[half : 2 * half])
    if flat.size % 2:
        flat[-1] = rng.standard_normal()


@compiled()
def transform(u, w):
    """Pairs of uniforms from [0, 1) ← pairs of independent standard normals, in place."""
    scratch = np.empty(PIECE)
    for start in range(0, u.size, PIECE):
        stop = min(start + PIECE, u.size)
        _radii(u[start:stop], scratch)
        _rotate(u[start:stop], w[start:stop])


@compiled("contract", inlined=True, error_model="numpy")
def _radii(u, scratch):
    """u ← √(−2 ln(1 − u))."""
    bits = scratch.view(np.int64)
    for s in range(u.size):
        scratch[s] = 1.0 - u[s]
    for s in range(u.size):
        # 1 − u = 2^e·m, with m between √½ and √2
        shifted = bits[s] + (ONE - ROOT_HALF)
        u[s] = np.float64((shifted >> 52) - 1023)
        bits[s] = (shifted & MANTISSA) + ROOT_HALF
    for s in range(u.size):
        f = (scratch[s] - 1.0) / (scratch[s] + 1.0)
        q = f * f
        u[s] = np.sqrt(max(-2.0 * (u[s] * LN2_HIGH + (u[s] * LN2_LOW + f * series(q, LOGARITHM))), 0.0))


@compiled("contract", inlined=True)
def _rotate(r, w):
    """(r, w) ← (r·cos φ, r·sin φ) with φ/2 = π(w − ½)."""
    for s in range(r.size):
        x = math.pi * (w[s] - 0.5)
        q = x * x
        sine = x + x * q * series(q, SINE)
        cosine = 1.0 + q * series(q, COSINE)
        w[s] = r[s] * (2.0 * sine * cosine)
        r[s] *= 1.0 - 2.0 * sine * sine
