"""Influence by gradient: how the last token's prediction depends on each token's embedding.

One forward pass with gradients to the input embeddings serves everything: whoever watches it (`Capture`)
sees the same pass whose outputs are differentiated here.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Prediction:
    """What the model said: the input embeddings (a leaf with gradients) and its outputs before softmax."""

    embeddings: Float[Tensor, "1 position hidden"]
    outputs: Float[Tensor, "position vocabulary"]


@dataclass(frozen=True)
class Influence:
    """Influence of every position on the last prediction, and that prediction.

    `influence` is ‖∇_{e_j} P(y|x)‖₂, not normalised, `next_token` is y = argmax, `probability` is P(y|x), and
    `loss` the mean next-token cross-entropy of the prompt in nats.
    """

    influence: Float[np.ndarray, "position"]
    probability: float
    next_token: int
    loss: float


def predict(model: Any, ids: Int[Tensor, "position"]) -> Prediction:
    """Run the model forward on one prompt, keeping what a backward pass to the embeddings needs."""
    embeddings = model.get_input_embeddings()(ids[None]).detach().requires_grad_(True)
    with torch.enable_grad():
        outputs = model(inputs_embeds=embeddings, use_cache=False).logits[0]
    return Prediction(embeddings, outputs)


def influence(prediction: Prediction, ids: Int[Tensor, "position"]) -> Influence:
    """Differentiate the probability of the most likely next token (Eq. 6 of Herasimchyk et al. 2026)."""
    with torch.enable_grad():
        probabilities = prediction.outputs[-1].double().softmax(dim=-1)
        chosen = int(probabilities.argmax())
        (gradient,) = torch.autograd.grad(probabilities[chosen], prediction.embeddings)
    with torch.no_grad():
        outputs = prediction.outputs.detach()[:-1]
        said = outputs.gather(1, ids[1:, None])[:, 0].double()
        loss = (outputs.logsumexp(dim=1).double() - said).mean()
        norms = torch.linalg.vector_norm(gradient[0], dim=-1, dtype=torch.float64)
    return Influence(norms.numpy(), float(probabilities[chosen].detach()), chosen, float(loss))
