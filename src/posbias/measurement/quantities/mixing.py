"""How much of a layer is attention: the mixing coefficient λ, the norms it is made of, and each head's part.

What head h adds is A_h V_h W_Oʰ; its part λ_h takes that in the numerator of Eq. 1 in place of the whole update.
By the triangle inequality λ ≤ Σ_h λ_h (but for an output bias), and what the sum exceeds λ by, heads cancel.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def token_norms(states: Float[Tensor, "position hidden"]) -> Float[np.ndarray, "position"]:
    """Return ‖x_j‖₂ of each token, accumulated in float64."""
    return torch.linalg.vector_norm(states, dim=-1, dtype=torch.float64).cpu().numpy()


def mixing(stream: Float[np.ndarray, "position"], update: Float[np.ndarray, "position"]) -> float:
    """Return λ = ‖Attn(X)‖ / (‖X‖ + ‖Attn(X)‖) of one layer and prompt, from token norms.

    Frobenius norms over the sequence: Eq. 1 of Herasimchyk et al. 2026 (arXiv 2602.16837).
    """
    whole_stream, whole_update = np.linalg.norm(stream), np.linalg.norm(update)
    return float(whole_update / (whole_stream + whole_update))


def mixing_per_token(stream: Float[np.ndarray, "position"], update: Float[np.ndarray, "position"]) -> float:
    """Return the mean over tokens of ‖a_j‖ / (‖x_j‖ + ‖a_j‖): unlike `mixing`, one huge token counts once."""
    return float(np.mean(update / (stream + update)))


def feed_forward_share(
    stream: Float[Tensor, "position hidden"],
    update: Float[Tensor, "position hidden"],
    left: Float[Tensor, "position hidden"],
) -> float:
    """Return ‖M‖ / (‖Attn(X)‖ + ‖M‖), M = X′ − X − Attn(X) what the feed-forward block adds, in float64.

    X enters the layer, X′ leaves it; Frobenius norms over the sequence. It is the form of λ (Eq. 1 of Herasimchyk
    et al. 2026) with the two updates of a layer in it; NaN where neither adds anything.
    """
    attention = update.double()
    block = left.double().to(attention.device) - stream.double().to(attention.device) - attention
    written, mixed = float(torch.linalg.norm(block)), float(torch.linalg.norm(attention))
    return written / (mixed + written) if mixed + written else float("nan")


def mixing_by_head(
    stream: Float[np.ndarray, "position"],
    update: Float[np.ndarray, "position"],
    heads: Float[np.ndarray, "head"],
) -> Float[np.ndarray, "head"]:
    """Return λ_h = ‖what head h adds‖ / (‖X‖ + ‖Attn(X)‖), Frobenius norms over the sequence."""
    return heads / (np.linalg.norm(stream) + np.linalg.norm(update))


def head_norms(
    mixed: Float[Tensor, "position joined"],
    output: Float[Tensor, "hidden joined"],
    heads: int,
    stretch: Float[Tensor, "position"],
) -> Float[np.ndarray, "head"]:
    """Return the Frobenius norm of what each head adds to the stream, accumulated in float64.

    `mixed` is attention · values of all heads as it enters the output projection W_O = `output`; `stretch` is
    what a norm or multiplier after W_O scales each token's update by, one where nothing comes between.
    """
    weights = output.double().unflatten(1, (heads, -1)).transpose(0, 1)
    context = mixed.double().unflatten(1, (heads, -1)).transpose(0, 1)
    # ‖W c‖² = cᵀ(WᵀW)c: nothing of size head × position × hidden
    squares = ((context @ (weights.transpose(1, 2) @ weights)) * context).sum(dim=2)
    return (squares.clamp(min=0) * stretch.double() ** 2).sum(dim=1).sqrt().cpu().numpy()
