"""Rows of attention from scores, and their gradient, where no softmax makes them: with a sink, ReLU, sigmoid."""

from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field, FiniteFloat
from torch import Tensor

from posbias.core.spec import tag, value
from posbias.theory.normalisers import ReLU, Sigmoid, Softmax

Scores = Float[Tensor, "member sequence query token"]
PerRow = Float[Tensor, "member sequence query 1"]
Logit = Float[Tensor, "member"]


@value
class SinkSoftmax:
    """A softmax beside the keys' logits over one more, that of a sink: A_ij = exp(s_ij)/(e^σ + Σ_k exp(s_ik)).

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
