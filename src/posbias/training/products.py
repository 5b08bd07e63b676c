"""What attention multiplies within each sequence, forwards and backwards: scores, mixed tokens, their gradients.

    A = softmax(Q·Kᵀ + bias)    Z = A·Y

Shapes are those of `attention.attend`.
"""

from collections.abc import Callable

import torch
from jaxtyping import Complex, Float
from torch import Tensor

Rows = Float[Tensor, "member sequence query dimension"]
Tokens = Float[Tensor, "member sequence token dimension"]
Weights = Float[Tensor, "member sequence query token"]
Bias = Float[Tensor, "member token token"]


def rotate(rows: Rows, rotation: Complex[Tensor, "member token pair"] | None) -> Rows:
    """Turn pairs of neighbouring dimensions of the last tokens, if at all."""
    if rotation is None:
        return rows
    rotation = rotation[:, -rows.shape[2] :]
    turned = torch.view_as_complex(rows.unflatten(-1, (-1, 2))) * rotation[:, None]
    return torch.view_as_real(turned).flatten(-2)


def mix(query: Rows, key: Tokens, y: Tokens, bias: Bias) -> tuple[Rows, Weights]:
    """Mixed tokens Z and attention A."""
    weight = torch.softmax(scores_of(query, key, bias), dim=-1)
    return product(weight, y), weight


def scores_of(query: Rows, key: Tokens, bias: Bias) -> Weights:
    """Q·Kᵀ + bias, −∞ where the mask forbids."""
    scores = product(query, key.transpose(2, 3))
    scores += bias[:, None, -query.shape[2] :]
    return scores


def unmix(
    grad: Rows,
    query: Rows,
    key: Tokens,
    y: Tokens,
    weight: Weights,
    wanted: bool,
    through: Callable[[Weights], Weights] | None = None,
) -> tuple[Rows, Tokens | None, Tokens | None]:
    """Gradients of queries, keys and tokens, from that of the mixed tokens.

    Where tokens are the keys (`key is y`) theirs is among that of the tokens, and None. That of the tokens is
    None if it is not `wanted`. `through` is the way from A's gradient to that of the scores, by default that of a
    softmax.
    """
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
