"""How much of a layer is attention: the mixing coefficient λ and the norms it is made of."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def token_norms(states: Float[Tensor, "position hidden"]) -> Float[np.ndarray, "position"]:
    """Return ‖x_j‖₂ of each token, accumulated in float64."""
    return torch.linalg.vector_norm(states, dim=-1, dtype=torch.float64).numpy()


def mixing(stream: Float[np.ndarray, "position"], update: Float[np.ndarray, "position"]) -> float:
    """Return λ = ‖Attn(X)‖ / (‖X‖ + ‖Attn(X)‖) of one layer and prompt, from token norms.

    Frobenius norms over the sequence: Eq. 1 of Herasimchyk et al. 2026 (arXiv 2602.16837).
    """
    whole_stream, whole_update = np.linalg.norm(stream), np.linalg.norm(update)
    return float(whole_update / (whole_stream + whole_update))


def mixing_per_token(stream: Float[np.ndarray, "position"], update: Float[np.ndarray, "position"]) -> float:
    """Return the mean over tokens of ‖a_j‖ / (‖x_j‖ + ‖a_j‖): unlike `mixing`, one huge token counts once."""
    return float(np.mean(update / (stream + update)))
