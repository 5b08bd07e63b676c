"""What attention multiplies within each sequence, forwards and backwards: scores, mixed tokens, their gradients.

    A = softmax(Q·Kᵀ + bias)    Z = A·Y

`mix` and `unmix` do it in compiled code where numbers are float32 on a CPU: only pairs that the mask allows are
visited, and a sequence (17 tokens of 64 dimensions) stays in the cache for all of it. A batched matrix product
spends most of its time elsewhere for matrices this small. `mix_plain` and `unmix_plain` are the same in tensor
operations, for other devices and as the reference. Shapes are those of `attention.attend`.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from posbias.core.compiling import compiled

Rows = Float[Tensor, "member sequence query dimension"]
Tokens = Float[Tensor, "member sequence token dimension"]
Weights = Float[Tensor, "member sequence query token"]
Bias = Float[Tensor, "member token token"]

ZERO, ONE, HALF = (np.float32(x) for x in (0, 1, 0.5))
LOG2E, LOG2_HIGH, LOG2_LOW = (np.float32(x) for x in (1.4426950408889634, 0.693359375, -2.12194440e-4))
LEAST = np.float32(-87)
"""Below it an exponential is zero: less than the smallest normal number."""
# the minimax polynomial of Moshier's Cephes library for (eˣ − 1 − x)/x² on |x| ≤ ln(2)/2
C5, C4, C3, C2, C1, C0 = (
    np.float32(x)
    for x in (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
)
BIAS, MANTISSA = np.int32(127), np.int32(23)


def mix(query: Rows, key: Tokens, y: Tokens, bias: Bias) -> tuple[Rows, Weights]:
    """Mixed tokens Z and attention A."""
    if not _compiled(y):
        return mix_plain(query, key, y, bias)
    mixed = torch.empty(query.shape)
    weight = torch.empty(*query.shape[:3], y.shape[2])
    _mix(*map(_sequences, (query, key, y)), bias.numpy(), *map(_sequences, (weight, mixed)))
    return mixed, weight


def unmix(
    grad: Rows, query: Rows, key: Tokens, y: Tokens, bias: Bias, weight: Weights, wanted: bool
) -> tuple[Rows, Tokens | None, Tokens | None]:
    """Gradients of queries, keys and tokens, from that of the mixed tokens.

    Where tokens are the keys (`key is y`) theirs is among that of the tokens, and None. That of the tokens is
    None if it is not `wanted`.
    """
    if not _compiled(y):
        return unmix_plain(grad, query, key, y, weight, wanted)
    tied = key is y
    query_grad = torch.empty(query.shape)
    y_grad = torch.empty(y.shape) if wanted else None
    key_grad = None if tied else torch.empty(y.shape)
    onto = (torch.empty(0, 0, 0, 0) if one is None else one for one in (key_grad, y_grad))
    _unmix(
        *map(_sequences, (grad, query, key, y)),
        bias.numpy(),
        *map(_sequences, (weight, query_grad, *onto)),
    )
    return query_grad, key_grad, y_grad


def rotate(rows: Rows, rotation: Complex[Tensor, "member token pair"] | None) -> Rows:
    """Turn pairs of neighbouring dimensions of the last tokens, if at all; in place where it is compiled."""
    if rotation is None:
        return rows
    rotation = rotation[:, -rows.shape[2] :]
    if not _compiled(rows):
        turned = torch.view_as_complex(rows.unflatten(-1, (-1, 2))) * rotation[:, None]
        return torch.view_as_real(turned).flatten(-2)
    _rotate(
        rows.detach().flatten(0, 1).numpy(),
        *(part.contiguous().numpy() for part in (rotation.real, rotation.imag)),
    )
    return rows


def mix_plain(query: Rows, key: Tokens, y: Tokens, bias: Bias) -> tuple[Rows, Weights]:
    """As `mix`."""
    weight = torch.softmax(scores_of(query, key, bias), dim=-1)
    return product(weight, y), weight


def scores_of(query: Rows, key: Tokens, bias: Bias) -> Weights:
    """Q·Kᵀ + bias, −∞ where the mask forbids."""
    scores = product(query, key.transpose(2, 3))
    scores += bias[:, None, -query.shape[2] :]
    return scores


def unmix_plain(
    grad: Rows,
    query: Rows,
    key: Tokens,
    y: Tokens,
    weight: Weights,
    wanted: bool,
    through: Callable[[Weights], Weights] | None = None,
) -> tuple[Rows, Tokens | None, Tokens | None]:
    """As `unmix`; `through` is the way from A's gradient to that of the scores, by default that of a softmax."""
    weight_grad = product(grad, y.transpose(2, 3))
    if through is None:
        scores_grad = torch.ops.aten._softmax_backward_data(weight_grad, weight, -1, weight.dtype)
    else:
        scores_grad = through(weight_grad)
    query_grad = product(scores_grad, key)
    y_grad = _spread(None, weight, grad) if wanted else None
    if key is not y:
        return query_grad, _spread(None, scores_grad, query), y_grad
    if y_grad is not None:
        _spread(y_grad, scores_grad, query)
    return query_grad, None, y_grad


def _compiled(y: Tensor) -> bool:
    return y.device.type == "cpu" and y.dtype == torch.float32


def _sequences(x: Tensor) -> np.ndarray:
    """One axis for members and sequences."""
    return x.detach().contiguous().flatten(0, 1).numpy()


def product(a: Tensor, b: Tensor) -> Tensor:
    """Matrix products over two leading axes."""
    return torch.bmm(a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, a.shape[:2])


def _spread(onto: Tensor | None, weight: Tensor, rows: Tensor) -> Tensor:
    """weightᵀ·rows, added to `onto` in place; elementwise where there is one row, for which bmm is slow."""
    if weight.shape[2] == 1:
        column = weight.transpose(2, 3)
        return column * rows if onto is None else onto.addcmul_(column, rows)
    columns, rows = weight.flatten(0, 1).transpose(1, 2), rows.flatten(0, 1)
    if onto is None:
        return torch.bmm(columns, rows).unflatten(0, weight.shape[:2])
    onto.flatten(0, 1).baddbmm_(columns, rows)
    return onto


@compiled("contract", inlined=True, error_model="numpy")
def _exponential(x):
    """eˣ for x ≤ 0 in float32, to two units in the last place; 0 below `LEAST`."""
    tiny = x < LEAST
    x = ZERO if tiny else x
    twos = np.floor(x * LOG2E + HALF)
    x = x - twos * LOG2_HIGH
    x = x - twos * LOG2_LOW
    power = ((((C5 * x + C4) * x + C3) * x + C2) * x + C1) * x + C0
    power = power * x * x + x + ONE
    scale = np.int32((np.int32(twos) + BIAS) << MANTISSA).view(np.float32)
    return ZERO if tiny else power * scale


@compiled(inlined=True)
def _ends(bias, ends):
    """For each query the key after the last one that it may attend to; after all where there is none."""
    for i in range(len(ends)):
        ends[i] = len(ends)
        for j in range(len(ends)):
            if bias[i, j] > -np.inf:
                ends[i] = j + 1


@compiled(inlined=True)
def _clear(row):
    for k in range(len(row)):
        row[k] = ZERO


@compiled("reassoc", "contract", "nsz", error_model="numpy")
def _mix(query, key, y, bias, weight, mixed):
    rows, asked, dimensions = query.shape
    each, tokens = rows // bias.shape[0], y.shape[1]
    ends = np.empty(tokens, np.int64)
    for b in range(rows):
        keys, values, added = key[b], y[b], bias[b // each]
        if b % each == 0:
            _ends(added, ends)
        for i in range(asked):
            at = tokens - asked + i
            q, w, z, end = query[b, i], weight[b, i], mixed[b, i], ends[at]
            top = -np.float32(np.inf)
            for j in range(end):
                score = ZERO
                for k in range(dimensions):
                    score += q[k] * keys[j, k]
                w[j] = score + added[at, j]
                top = max(top, w[j])
            total = ZERO
            for j in range(end):
                w[j] = _exponential(w[j] - top)
                total += w[j]
            _clear(w[end:])
            _clear(z)
            share = ONE / total
            for j in range(end):
                part = w[j] * share
                w[j] = part
                for k in range(dimensions):
                    z[k] += part * values[j, k]


@compiled("reassoc", "contract", "nsz", error_model="numpy")
def _unmix(grad, query, key, y, bias, weight, query_grad, key_grad, y_grad):
    """Write all gradients that are wanted (the others are empty); without that of keys, tokens are the keys."""
    rows, asked, dimensions = query.shape
    each, tokens = rows // bias.shape[0], y.shape[1]
    ends, slopes = np.empty(tokens, np.int64), np.empty(tokens, np.float32)
    tied = ONE if len(key_grad) == 0 else ZERO
    for b in range(rows):
        keys, values = key[b], y[b]
        if b % each == 0:
            _ends(bias[b // each], ends)
        if len(key_grad):
            _clear(key_grad[b].ravel())
        if len(y_grad):
            _clear(y_grad[b].ravel())
        for i in range(asked):
            g, q, w, back, end = (
                grad[b, i],
                query[b, i],
                weight[b, i],
                query_grad[b, i],
                ends[tokens - asked + i],
            )
            inner = ZERO
            for j in range(end):
                slope = ZERO
                for k in range(dimensions):
                    slope += g[k] * values[j, k]
                slopes[j] = slope
                inner += w[j] * slope
            _clear(back)
            for j in range(end):
                slope = w[j] * (slopes[j] - inner)
                slopes[j] = slope
                for k in range(dimensions):
                    back[k] += slope * keys[j, k]
            if len(key_grad):
                for j in range(end):
                    slope, onto = slopes[j], key_grad[b, j]
                    for k in range(dimensions):
                        onto[k] += slope * q[k]
            if len(y_grad):
                for j in range(end):
                    part, slope, onto = w[j], tied * slopes[j], y_grad[b, j]
                    for k in range(dimensions):
                        onto[k] += part * g[k] + slope * q[k]


@compiled("contract")
def _rotate(rows, cosine, sine):
    each = rows.shape[0] // cosine.shape[0]
    for b in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            row, c, s = rows[b, i], cosine[b // each, i], sine[b // each, i]
            for k in range(len(c)):
                x, y = row[2 * k], row[2 * k + 1]
                row[2 * k], row[2 * k + 1] = x * c[k] - y * s[k], x * s[k] + y * c[k]
