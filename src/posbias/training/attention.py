"""One attention layer with its gradient written out, for tokens Y that stand beside a matrix: X = Y·P.

    Q = rotate(Y·W_q)   K = rotate(Y·W_k), or Y itself   A = softmax(Q·Kᵀ + bias)   Z = A·Y

The caller multiplies P into W_q and W_k. What automatic differentiation would do besides is left out: the
gradient of tokens that need none, a pass over all tokens for each of the three ways in which a layer reads
them (the three parts are added in place), and, where only the last token asks, products with one row.
"""

from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def attend(
    tokens: Float[Tensor, "member sequence token dimension"],
    asking: Float[Tensor, "member dimension dimension"],
    answering: Float[Tensor, "member dimension dimension"] | None,
    bias: Float[Tensor, "member token token"],
    rotation: Complex[Tensor, "member token pair"] | None,
    short: bool,
) -> tuple[
    Float[Tensor, "member sequence query dimension"],
    Float[Tensor, "member sequence query dimension"],
    Float[Tensor, "member sequence query token"],
]:
    """Mixed tokens Z, the rows of `tokens` that asked, and the attention A.

    `asking` and `answering` project the tokens to queries and keys (None: the tokens are the keys); `rotation`
    turns pairs of neighbouring dimensions of both. With `short` only the last token asks. Differentiable in
    tokens, asking and answering; A is a record without gradient.
    """
    return _Attend.apply(tokens, asking, answering, bias, rotation, short)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y, asking, answering, bias, rotation, short):  # type: ignore[override]
        asker = y[:, :, -1:].contiguous() if short else y
        query = _project(asker, asking, None if rotation is None else rotation[:, -asker.shape[2] :])
        key = y if answering is None else _project(y, answering, rotation)
        scores = _product(query, key.transpose(2, 3))
        scores += bias[:, None, -asker.shape[2] :]
        weight = torch.softmax(scores, dim=-1)
        ctx.save_for_backward(y, asking, answering, rotation, asker, query, key, weight)
        ctx.short = short
        ctx.mark_non_differentiable(weight)
        ctx.set_materialize_grads(False)
        return _product(weight, y), asker if short else y.view_as(y), weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, mixed_grad, asker_grad, _):  # type: ignore[override]
        y, asking, answering, rotation, asker, query, key, weight = ctx.saved_tensors
        weight_grad = _product(mixed_grad, y.transpose(2, 3))
        scores_grad = torch.ops.aten._softmax_backward_data(weight_grad, weight, -1, weight.dtype)
        query_grad = _turn_back(_product(scores_grad, key), rotation, asker.shape[2])
        asking_grad = _outer(asker, query_grad)
        y_grad = _spread(None, weight, mixed_grad) if ctx.needs_input_grad[0] else None
        if answering is None:
            answering_grad = None
            if y_grad is not None:
                _spread(y_grad, scores_grad, query)
        else:
            key_grad = _turn_back(_spread(None, scores_grad, query), rotation, y.shape[2])
            answering_grad = _outer(y, key_grad)
            if y_grad is not None:
                y_grad.flatten(1, 2).baddbmm_(key_grad.flatten(1, 2), answering.transpose(1, 2))
        if y_grad is not None:
            back = torch.bmm(query_grad.flatten(1, 2), asking.transpose(1, 2)).view_as(asker)
            y_grad[:, :, -asker.shape[2] :] += back if asker_grad is None else back + asker_grad
        return y_grad, asking_grad, answering_grad, None, None, None


def _project(rows: Tensor, matrix: Tensor, rotation: Tensor | None) -> Tensor:
    made = torch.bmm(rows.flatten(1, 2), matrix).view_as(rows)
    return made if rotation is None else _rotate(made, rotation[:, None])


def _rotate(rows: Tensor, rotation: Tensor) -> Tensor:
    """Turn pairs of neighbouring dimensions."""
    turned = torch.view_as_complex(rows.unflatten(-1, (-1, 2))) * rotation
    return torch.view_as_real(turned).flatten(-2)


def _turn_back(grad: Tensor, rotation: Tensor | None, rows: int) -> Tensor:
    return grad if rotation is None else _rotate(grad, rotation[:, None, -rows:].conj())


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Matrix products over two leading axes."""
    return torch.bmm(a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, a.shape[:2])


def _outer(rows: Tensor, grad: Tensor) -> Tensor:
    """The gradient of a member's matrix: Σ over rows of rowᵀ·grad."""
    return torch.bmm(rows.flatten(1, 2).transpose(1, 2), grad.flatten(1, 2))


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
