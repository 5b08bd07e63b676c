"""One attention layer with its gradient written out, for tokens Y that stand beside a matrix: X = Y·P.

    Q = rotate(Y·W_q)   K = rotate(Y·W_k), or Y itself   A = softmax(Q·Kᵀ + bias)   Z = A·Y

or another normaliser's rows in place of the softmax (`training.normalisers`).

The caller multiplies P into W_q and W_k. What automatic differentiation would do besides is left out: the
gradient of tokens that need none, a pass over all tokens for each of the three ways in which a layer reads
them (the three parts are added in place), and, where only the last token asks, products with one row.
"""

from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from posbias.theory.normalisers import Softmax
from posbias.training.normalisers import Normaliser, rows, scores_gradient
from posbias.training.products import mix, product, rotate, scores_of, unmix

SOFTMAX = Softmax()


def attend(
    tokens: Float[Tensor, "member sequence token dimension"],
    asking: Float[Tensor, "member dimension dimension"],
    answering: Float[Tensor, "member dimension dimension"] | None,
    bias: Float[Tensor, "member token token"],
    rotation: Complex[Tensor, "member token pair"] | None,
    short: bool,
    normaliser: Normaliser = SOFTMAX,
    sink: Float[Tensor, "member"] | None = None,
) -> tuple[
    Float[Tensor, "member sequence query dimension"],
    Float[Tensor, "member sequence query dimension"],
    Float[Tensor, "member sequence query token"],
]:
    """Mixed tokens Z, the rows of `tokens` that asked, and the attention A.

    `asking` and `answering` project the tokens to queries and keys (None: the tokens are the keys); `rotation`
    turns pairs of neighbouring dimensions of both. With `short` only the last token asks. `sink` is the logit of a
    normaliser that has one. Differentiable in tokens, asking, answering and sink; A is a record without gradient.
    """
    return _Attend.apply(tokens, asking, answering, bias, rotation, short, normaliser, sink)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, y, asking, answering, bias, rotation, short, normaliser, sink
    ):
        asker = y[:, :, -1:].contiguous() if short else y
        query = _project(asker, asking, rotation)
        key = y if answering is None else _project(y, answering, rotation)
        row = None
        if isinstance(normaliser, Softmax):
            mixed, weight = mix(query, key, y, bias)
        else:
            weight, row = rows(scores_of(query, key, bias), normaliser, sink)
            mixed = product(weight, y)
        ctx.save_for_backward(y, asking, answering, rotation, asker, query, key, weight, row)
        ctx.tied, ctx.normaliser = answering is None, normaliser
        ctx.mark_non_differentiable(weight)
        ctx.set_materialize_grads(False)
        return mixed, asker if short else y.view_as(y), weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, mixed_grad, asker_grad, _):  # type: ignore[override]
        y, asking, answering, rotation, asker, query, key, weight, row = ctx.saved_tensors
        key, wanted, sink_grad = y if ctx.tied else key, ctx.needs_input_grad[0], None
        if isinstance(ctx.normaliser, Softmax):
            query_grad, key_grad, y_grad = unmix(mixed_grad, query, key, y, weight, wanted)
        else:

            def through(weight_grad: Tensor) -> Tensor:
                nonlocal sink_grad
                scores_grad, sink_grad = scores_gradient(ctx.normaliser, weight, row, weight_grad)
                return scores_grad

            query_grad, key_grad, y_grad = unmix(mixed_grad, query, key, y, weight, wanted, through)
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
        return y_grad, asking_grad, answering_grad, None, None, None, None, sink_grad


def _project(rows: Tensor, matrix: Tensor, rotation: Tensor | None) -> Tensor:
    return rotate(torch.bmm(rows.flatten(1, 2), matrix).view_as(rows), rotation)


def _outer(rows: Tensor, grad: Tensor) -> Tensor:
    """The gradient of a member's matrix: Σ over rows of rowᵀ·grad."""
    return torch.bmm(rows.flatten(1, 2).transpose(1, 2), grad.flatten(1, 2))
