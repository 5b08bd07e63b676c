"""How much of a layer is attention: the mixing coefficient λ, the norms it is made of, and each head's part.

What head h adds is A_h V_h W_Oʰ; its part λ_h takes that in the numerator of Eq. 1 in place of the whole update.
By the triangle inequality λ ≤ Σ_h λ_h (but for an output bias), and what the sum exceeds λ by, heads cancel.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from posbias.measurement.capture.forward import SeenLayer
from posbias.measurement.result import Arrays


def mixings(seen: SeenLayer, stretch: Float[Tensor, "position"] | None) -> Arrays:
    """Return λ of one layer and prompt in its variants, the norms of tokens, and the largest of them.

    `stretch` is what each token's update is scaled by after the output projection (`jacobian.stretch`); λ of
    single heads is left out where it is None.
    """
    stream, update = token_norms(seen.stream), token_norms(seen.update)
    ratio, token = massive(stream)
    found = {
        "mixing": np.array(mixing(stream, update)),
        "mixing_token": np.array(np.mean(update / (stream + update))),
        "massive_ratio": np.array(ratio),
        "massive_token": np.array(token),
        "residual_norm": stream,
        "update_norm": update,
    }
    if stretch is not None and seen.mixed is not None and seen.output_weight is not None:
        heads = head_norms(seen.mixed, seen.output_weight, seen.scores.heads, stretch)
        found["mixing_head"] = heads / (np.linalg.norm(stream) + np.linalg.norm(update))
    return found


def token_norms(states: Float[Tensor, "position hidden"]) -> Float[np.ndarray, "position"]:
    """Return ‖x_j‖₂ of each token, accumulated in float64."""
    return torch.linalg.vector_norm(states, dim=-1, dtype=torch.float64).cpu().numpy()


def mixing(stream: Float[np.ndarray, "position"], update: Float[np.ndarray, "position"]) -> float:
    """Return λ = ‖Attn(X)‖ / (‖X‖ + ‖Attn(X)‖) of one layer and prompt, from token norms.

    Frobenius norms over the sequence: Eq. 1 of Herasimchyk et al. 2026 (arXiv 2602.16837). The mean over tokens of
    the same ratio (`mixing_token`) counts one huge token once.
    """
    whole_stream, whole_update = np.linalg.norm(stream), np.linalg.norm(update)
    return float(whole_update / (whole_stream + whole_update))


def massive(norms: Float[np.ndarray, "position"]) -> tuple[float, int]:
    """Return the largest norm of a residual stream over the median one, and the position that has it.

    A ratio near one says that no token is massive; sinks go with a large one. Infinite where the median is 0.
    """
    token = int(norms.argmax())
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(norms[token] / np.median(norms)), token


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
    return (squares.clamp(min=0) * stretch.to(squares) ** 2).sum(dim=1).sqrt().cpu().numpy()
