"""One block of samples through all layers, compiled: Gram space, lanes of samples side by side.

A token is a row of a lower-triangular factor (see `posbias.simulate.gram`), and causal attention keeps it
lower-triangular: token i only mixes tokens up to i. All loops end in one over `LANES` samples, which the
compiler turns into vector instructions; for that exp is written out (to about one unit in the last place).
"""

import numpy as np
from numba import njit

LANES = 64
"""Samples that pass through all layers together."""
LOG2E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
MAGIC = 6755399441055744.0
"""1.5·2^52: added to a number of ordinary size, it leaves the nearest integer in the lowest bits."""
LEAST = -700.0
"""Exponents below this are taken as this: e^−700 beside a weight of 1 is nothing."""


@njit(cache=True, nogil=True, fastmath={"contract"})
def exponentials(x, scratch):
    """x ← e^x for −∞ < x ≤ 0, in place; `scratch` is as long as `x`."""
    high, bits = scratch.view(np.int64), x.view(np.int64)
    for s in range(LANES):
        t = max(x[s], LEAST) * LOG2E + MAGIC
        scratch[s] = t
        whole = t - MAGIC
        r = (max(x[s], LEAST) - whole * LN2_HIGH) - whole * LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        x[s] = p * r + 1.0
    for s in range(LANES):
        bits[s] += high[s] << 52


@njit(cache=True, nogil=True, fastmath={"contract"})
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
                for s in range(LANES):
                    z = chis[i, first + s]
                    x[i, k, s] = own * z + total[k, s]
                    total[k, s] += later * z
            else:
                for s in range(LANES):
                    z = normals[drawn, first + s]
                    x[i, k, s] = own * z + total[k, s]
                    total[k, s] += later * z
                drawn += 1


@njit(cache=True, nogil=True, fastmath={"contract"})
def normalise(x, i, start, stop, length, inverse):
    """Scale token i to `length` over the columns from `start`; `inverse` gets one over the factor."""
    square = np.zeros(LANES)
    for k in range(start, stop):
        for s in range(LANES):
            square[s] += x[i, k, s] * x[i, k, s]
    for s in range(LANES):
        inverse[i, s] = np.sqrt(square[s]) / length
        square[s] = 1.0 / inverse[i, s]
    for k in range(start):
        for s in range(LANES):
            x[i, k, s] = 0.0
    for k in range(start, stop):
        for s in range(LANES):
            x[i, k, s] *= square[s]


@njit(cache=True, nogil=True, fastmath={"contract"})
def attend(x, v, own, scale, offset, extra, freedom, last):
    """Fill in scores and attention of one layer from its inputs x, and x ← A·x + own·x unless it is the last.

    `own` [token, lane] is the residual's weight on a token's own row. Rows go from the last token to the
    first, since a row needs only those before it.
    """
    tokens = x.shape[0]
    pairs = tokens * (tokens + 1) // 2
    top, total, scratch = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    for i in range(tokens - 1, -1, -1):
        row = i * (i + 1) // 2
        for j in range(i + 1):
            score = v[row + j]
            for s in range(LANES):
                score[s] = x[i, 0, s] * x[j, 0, s]
            for k in range(1, extra + min(j + 1, freedom)):
                for s in range(LANES):
                    score[s] += x[i, k, s] * x[j, k, s]
            for s in range(LANES):
                score[s] = score[s] * scale + offset
        for s in range(LANES):
            top[s], total[s] = v[row + i, s], 0.0
        for j in range(i):
            for s in range(LANES):
                top[s] = max(top[s], v[row + j, s])
        for j in range(i + 1):
            weight = v[pairs + row + j]
            for s in range(LANES):
                weight[s] = v[row + j, s] - top[s]
            exponentials(weight, scratch)
            for s in range(LANES):
                total[s] += weight[s]
        for s in range(LANES):
            total[s] = 1.0 / total[s]
        for j in range(i + 1):
            for s in range(LANES):
                v[pairs + row + j, s] *= total[s]
        if last:
            continue
        for k in range(extra + min(i + 1, freedom)):
            for s in range(LANES):
                x[i, k, s] *= v[pairs + row + i, s] + own[i, s]
        for j in range(i):
            for k in range(extra + min(j + 1, freedom)):
                for s in range(LANES):
                    x[i, k, s] += v[pairs + row + j, s] * x[j, k, s]


@njit(cache=True, nogil=True, fastmath={"contract"})
def compare(v, tokens, triples):
    """Fill in steps, rises and shares of one layer from its scores; `triples` as in `Layout`."""
    pairs = tokens * (tokens + 1) // 2
    steps = 2 * pairs
    rises = steps + tokens * (tokens - 1) // 2
    shares = rises + (tokens - 1) * (tokens - 2) // 2
    gaps, distances = shares + tokens - 2, shares + 2 * (tokens - 2)
    found = np.empty(LANES)
    for g in range(triples.size):
        for s in range(LANES):
            v[shares + g, s] = 0.0
    for i in range(1, tokens):
        row = i * (i + 1) // 2
        for j in range(i):
            for s in range(LANES):
                v[steps + i * (i - 1) // 2 + j, s] = v[row + j + 1, s] - v[row + j, s]
        for j in range(1, i):
            for s in range(LANES):
                v[rises + (i - 1) * (i - 2) // 2 + j - 1, s] = v[row + j, s] - v[row, s]
                found[s] = 0.0
            for k in range(j):
                for s in range(LANES):
                    later = 1.0 if v[row + j, s] > v[row + k, s] else 0.0
                    found[s] += later
                    v[gaps + j - k, s] += later
            for s in range(LANES):
                v[shares, s] += found[s]
                v[shares + i - 1, s] += found[s]
                v[distances + i - j, s] += found[s]
    for g in range(triples.size):
        for s in range(LANES):
            v[shares + g, s] /= triples[g]


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})
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


@njit(cache=True, nogil=True)
def run_block(
    normals, chis, used, depth, tokens, extra, freedom,
    shared, unit, length, bias, scale, before, after, residual,
    triples, mean, squares, products,
):  # fmt: skip
    """Take the first `used` samples of a block through all layers into the moments of an empty tally.

    `length` is that of a normalised token (0: no norm), `before` and `after` say whether the norm comes
    before or after attention, `bias` what it adds to scores, `scale` what inner products are multiplied with.
    """
    x = np.zeros((tokens, extra + min(tokens, freedom), LANES))
    v, control = np.empty((mean.shape[1], LANES)), np.empty((mean.shape[1], LANES))
    own = np.zeros((tokens, LANES))
    centre, total = np.empty(products.shape[1]), np.empty(products.shape[1])
    for seen in range(0, used, LANES):
        lanes = min(LANES, used - seen)
        embed(x, normals, chis, seen, shared, unit, extra, freedom)
        if residual and not before:
            own[:] = 1.0
        for t in range(depth):
            if before:
                for i in range(tokens):
                    normalise(x, i, extra, extra + min(i + 1, freedom), length, own)
                if not residual:
                    own[:] = 0.0
            here = control if t == 0 else v
            attend(x, here, own, scale, bias if before or t else 0.0, extra, freedom, t == depth - 1)
            compare(here, tokens, triples)
            absorb(here, control, lanes, seen, mean[t], squares[t], products[t], centre, total, t == 0)
            if after and t < depth - 1:
                for i in range(tokens):
                    normalise(x, i, extra, extra + min(i + 1, freedom), length, own)
                own[:] = 1.0 if residual else 0.0
