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

from posbias.training.products import mix, rotate, unmix


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
        query = _project(asker, asking, rotation)
        key = y if answering is None else _project(y, answering, rotation)
        mixed, weight = mix(query, key, y, bias)
        ctx.save_for_backward(y, asking, answering, bias, rotation, asker, query, key, weight)
        ctx.tied = answering is None
        ctx.mark_non_differentiable(weight)
        ctx.set_materialize_grads(False)
        return mixed, asker if short else y.view_as(y), weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, mixed_grad, asker_grad, _):  # type: ignore[override]
        y, asking, answering, bias, rotation, asker, query, key, weight = ctx.saved_tensors
        key = y if ctx.tied else key
        query_grad, key_grad, y_grad = unmix(mixed_grad, query, key, y, bias, weight, ctx.needs_input_grad[0])
        back = None if rotation is None else rotation.conj_physical()
        query_grad = rotate(query_grad, back)
        asking_grad, answering_grad = _outer(asker, query_grad), None
        if key_grad is not None:
            key_grad = rotate(key_grad, back)
            answering_grad = _outer(y, key_grad)
        if y_grad is not None:
            if key_grad is not None:
                y_grad.flatten(1, 2).baddbmm_(key_grad.flatten(1, 2), answering.transpose(1, 2))
            if asker_grad is not None:
                y_grad[:, :, -asker.shape[2] :] += asker_grad
            if asker.shape == y.shape:
                y_grad.flatten(1, 2).baddbmm_(query_grad.flatten(1, 2), asking.transpose(1, 2))
            else:
                y_grad[:, :, -1] += torch.bmm(query_grad[:, :, 0], asking.transpose(1, 2))
        return y_grad, asking_grad, answering_grad, None, None, None


def _project(rows: Tensor, matrix: Tensor, rotation: Tensor | None) -> Tensor:
    return rotate(torch.bmm(rows.flatten(1, 2), matrix).view_as(rows), rotation)


def _outer(rows: Tensor, grad: Tensor) -> Tensor:
    """The gradient of a member's matrix: Σ over rows of rowᵀ·grad."""
    return torch.bmm(rows.flatten(1, 2).transpose(1, 2), grad.flatten(1, 2))
