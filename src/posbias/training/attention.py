"""One attention layer with its gradient written out, for tokens Y multiplied by a matrix: X = Y·P.

    Q = rotate(Y·W_q)   K = rotate(Y·W_k), or Y itself   A = softmax(Q·Kᵀ + bias)   Z = A·Y

or the rows of another normaliser in place of the softmax: with a sink, ReLU, sigmoid (`rows`).

The caller multiplies P into W_q and W_k. What automatic differentiation would do besides is left out: the
gradient of tokens that need none, a pass over all tokens for each of the three ways in which a layer reads
them (the three parts are added in place), and, where only the last token asks, products with one row.
"""

from collections.abc import Callable
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


Scores = Float[Tensor, "member sequence query token"]
PerRow = Float[Tensor, "member sequence query 1"]
Logit = Float[Tensor, "member"]


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


def rows(
    scores: Scores, normaliser: SinkSoftmax | ReLU | Sigmoid, sink: Logit | None
) -> tuple[Scores, PerRow | None]:
    """Attention A from scores (−∞ where the mask forbids), and what of each row the gradient needs besides.

    That is the sink's part under `SinkSoftmax`, whose logit is `sink`, and the sum under `ReLU`.
    """
    match normaliser:
        case SinkSoftmax():
            assert sink is not None
            logit = sink[:, None, None, None]
            top = torch.maximum(scores.amax(dim=-1, keepdim=True), logit)
            weight, own = torch.exp(scores - top), torch.exp(logit - top)
            total = weight.sum(dim=-1, keepdim=True) + own
            return weight / total, own / total
        case ReLU():
            kept = torch.relu(scores)
            total = kept.sum(dim=-1, keepdim=True)
            return torch.where(total > 0, kept / total, 0.0), total
        case Sigmoid():
            bias = normaliser.at(scores.shape[-1]).bias
            assert bias is not None
            return torch.sigmoid(scores + bias), None


def scores_gradient(
    normaliser: SinkSoftmax | ReLU | Sigmoid, weight: Scores, row: PerRow | None, grad: Scores
) -> tuple[Scores, Logit | None]:
    """The gradient of the scores from that of A, and that of the sink's logit, if there is one.

    `weight` and `row` are what `rows` gave.
    """
    if isinstance(normaliser, Sigmoid):
        return weight * (1 - weight) * grad, None
    assert row is not None
    inner = (weight * grad).sum(dim=-1, keepdim=True)
    if isinstance(normaliser, SinkSoftmax):
        return weight * (grad - inner), -(row * inner).flatten(1).sum(dim=1)
    return torch.where(weight > 0, (grad - inner) / row, 0.0), None


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
