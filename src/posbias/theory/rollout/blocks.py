"""The compiled parts of `convolution`: sums inside a block, spectra gathered over blocks, and what is redone.

Blocks are stretches of 64, 256, 1024, … tokens; a block of keys draws from blocks of queries a few blocks away.
"""

import numpy as np

from posbias.core.compiling import compiled
from posbias.theory.rollout import stream


@compiled()
def share_out(weight, here, first, drain, table, sums, draw, own, column, sink):
    """Add one head's shares to what `Prepared` holds."""
    for i in range(len(sums)):
        share = weight / sums[i]
        draw[i] += share
        sink[i] += share * drain
        if i == 0:
            column[0] += share * here * first
            continue
        own[i] += share * here
        if i < len(table):
            column[i] += share * (table[i] * first)


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


def largest_share(exact, parts, errors) -> float:
    """The largest error bound of an entry relative to the least that the entry can be."""
    bound = errors.sum(axis=0)
    least = exact + np.maximum(parts - errors, 0.0).sum(axis=0)
    return float(np.max(bound[bound > 0] / np.maximum(least[bound > 0], stream.FLOOR), initial=0.0))


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
