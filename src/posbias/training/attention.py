"""One attention layer, for tokens Y multiplied by a matrix: X = Y·P.

    Q = rotate(Y·W_q)   K = rotate(Y·W_k), or Y itself   A = softmax(Q·Kᵀ + bias)   Z = A·Y

or the rows of another normaliser in place of the softmax: with a sink, ReLU, sigmoid (`rows`).

The caller multiplies P into W_q and W_k. The gradient of a softmax's layer is written out, without what automatic
differentiation would do besides: the gradient of tokens that need none, a pass over all tokens for each of the
three ways in which a layer reads them (the three parts are added in place), and, where only the last token asks,
products with one row.
"""

from typing import Annotated, Any, Literal

import torch
from jaxtyping import Complex, Float
from pydantic import Field, FiniteFloat
from torch import Tensor
from torch.autograd.function import once_differentiable

from posbias.core.spec import tag, value
from posbias.theory.normalisers import ReLU, Sigmoid, Softmax

Rows = Float[Tensor, "member sequence query dimension"]
Tokens = Float[Tensor, "member sequence token dimension"]
Weights = Float[Tensor, "member sequence query token"]
Bias = Float[Tensor, "member token token"]
Logit = Float[Tensor, "member"]
Rotation = Complex[Tensor, "member token pair"]
Matrix = Float[Tensor, "member dimension dimension"]


@value
class SinkSoftmax:
    """A softmax over the keys' logits and one more, that of a sink: A_ij = exp(s_ij)/(e^σ + Σ_k exp(s_ik)).

    `logit` is σ, from which training begins where it is `learned` (one number per layer, as in gpt-oss per
    head); 0 and not learned is "softmax off by one" (Miller 2023). What the sink draws reaches no token.
    """

    logit: FiniteFloat = 0.0
    learned: bool = False
    kind: Literal["sink_softmax"] = tag(default="sink_softmax")


Normaliser = Annotated[Softmax | SinkSoftmax | ReLU | Sigmoid, Field(discriminator="kind")]
"""How a network's rows of attention are made; a sink, which the theory has as `Layer.sinks`, can be learned."""
NORMALISERS: dict[str, Softmax | SinkSoftmax | ReLU | Sigmoid] = {
    "softmax": Softmax(),
    "off_by_one": SinkSoftmax(),
    "learned_sink": SinkSoftmax(learned=True),
    "relu": ReLU(),
    "sigmoid": Sigmoid(),
}
"""The normalisers by the name that commands use."""
SOFTMAX = Softmax()


def attend(
    tokens: Tokens,
    asking: Matrix,
    answering: Matrix | None,
    bias: Bias,
    rotation: Rotation | None,
    short: bool,
    normaliser: Normaliser = SOFTMAX,
    sink: Logit | None = None,
) -> tuple[Rows, Rows, Weights]:
    """Mixed tokens Z, the rows of `tokens` that asked, and the attention A.

    `asking` and `answering` project the tokens to queries and keys (None: the tokens are the keys); `rotation`
    turns pairs of neighbouring dimensions of both. With `short` only the last token asks. `sink` is the logit of a
    normaliser that has one. Differentiable in tokens, asking, answering and sink; A is a record without gradient.
    """
    if isinstance(normaliser, Softmax):
        return _Attend.apply(tokens, asking, answering, bias, rotation, short)
    asker = tokens[:, :, -1:] if short else tokens
    key = tokens if answering is None else _project(tokens, answering, rotation)
    weight = rows(_scores(_project(asker, asking, rotation), key, bias), normaliser, sink)
    return product(weight, tokens), asker, weight.detach()


def rows(scores: Weights, normaliser: SinkSoftmax | ReLU | Sigmoid, sink: Logit | None) -> Weights:
    """Attention A from scores (−∞ where the mask forbids); `sink` is the logit of `SinkSoftmax`."""
    match normaliser:
        case SinkSoftmax():
            assert sink is not None
            logit = sink[:, None, None, None].expand(*scores.shape[:-1], 1)
            return torch.softmax(torch.cat([scores, logit], dim=-1), dim=-1)[..., :-1]
        case ReLU():
            kept = torch.relu(scores)
            total = kept.sum(dim=-1, keepdim=True)
            return kept / torch.where(total > 0, total, 1.0)
        case Sigmoid():
            bias = normaliser.at(scores.shape[-1]).bias
            assert bias is not None
            return torch.sigmoid(scores + bias)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Matrix products over two leading axes."""
    return torch.bmm(a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, a.shape[:2])


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y, asking, answering, bias, rotation, short):  # type: ignore[override]
        asker = y[:, :, -1:].contiguous() if short else y
        query = _project(asker, asking, rotation)
        key = y if answering is None else _project(y, answering, rotation)
        weight = torch.softmax(_scores(query, key, bias), dim=-1)
        ctx.save_for_backward(y, asking, answering, rotation, asker, query, key, weight)
        ctx.tied = answering is None
        ctx.mark_non_differentiable(weight)
        ctx.set_materialize_grads(False)
        return product(weight, y), asker if short else y.view_as(y), weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, mixed_grad, asker_grad, _):  # type: ignore[override]
        y, asking, answering, rotation, asker, query, key, weight = ctx.saved_tensors
        back = None if rotation is None else rotation.conj_physical()
        weight_grad = product(mixed_grad, y.transpose(2, 3))
        scores_grad = torch.ops.aten._softmax_backward_data(weight_grad, weight, -1, weight.dtype)
        query_grad = _rotate(product(scores_grad, key), back)
        y_grad = _spread(None, weight, mixed_grad) if ctx.needs_input_grad[0] else None
        answering_grad = None
        if ctx.tied and y_grad is not None:
            _spread(y_grad, scores_grad, query)
        if not ctx.tied:
            key_grad = _rotate(_spread(None, scores_grad, query), back)
            answering_grad = _outer(y, key_grad)
            if y_grad is not None:
                y_grad.flatten(1, 2).baddbmm_(key_grad.flatten(1, 2), answering.transpose(1, 2))
        if y_grad is not None:
            if asker_grad is not None:
                y_grad[:, :, -asker.shape[2] :] += asker_grad
            if asker.shape == y.shape:
                y_grad.flatten(1, 2).baddbmm_(query_grad.flatten(1, 2), asking.transpose(1, 2))
            else:
                y_grad[:, :, -1] += torch.bmm(query_grad[:, :, 0], asking.transpose(1, 2))
        return y_grad, _outer(asker, query_grad), answering_grad, None, None, None


def _rotate(rows: Rows, rotation: Rotation | None) -> Rows:
    """Turn pairs of neighbouring dimensions of the last tokens, if at all."""
    if rotation is None:
        return rows
    turned = torch.view_as_complex(rows.unflatten(-1, (-1, 2))) * rotation[:, None, -rows.shape[2] :]
    return torch.view_as_real(turned).flatten(-2)


def _project(rows: Tensor, matrix: Tensor, rotation: Tensor | None) -> Tensor:
    return _rotate(torch.bmm(rows.flatten(1, 2), matrix).view_as(rows), rotation)


def _scores(query: Rows, key: Tokens, bias: Bias) -> Weights:
    """Q·Kᵀ + bias, −∞ where the mask forbids."""
    scores = product(query, key.transpose(2, 3))
    scores += bias[:, None, -query.shape[2] :]
    return scores


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


def _outer(rows: Tensor, grad: Tensor) -> Tensor:
    """The gradient of a member's matrix: Σ over rows of rowᵀ·grad."""
    return torch.bmm(rows.flatten(1, 2).transpose(1, 2), grad.flatten(1, 2))
