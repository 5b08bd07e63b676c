"""Attention as transition kernels, from blocks of queries: the head mean and the energy kernel.

The energy kernel follows squared Jacobian norms: what a token passes on is divided by its own RMS (the norm
before attention does that), goes through W_V and W_O of each head, and adds up over heads in quadrature. Whole
kernels grow with the square of the tokens, so they are kept up to `KERNEL_TOKENS` only; sums over queries and
rollouts of single prompts serve longer prompts.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

KERNEL_TOKENS = 1024
"""Longest prompts whose averaged kernels are kept: 30 layers of them take 250 MB in float64."""


def head_mean(attention: Float[Tensor, "head query key"]) -> Float[np.ndarray, "query key"]:
    """Return the attention averaged over heads (Eq. 4 of Herasimchyk et al. 2026), in float64."""
    return attention.mean(dim=0, dtype=torch.float64).cpu().numpy()


def energy_kernel(
    attention: Float[Tensor, "head query key"], weights: Float[Tensor, "head key"]
) -> Float[np.ndarray, "query key"]:
    """Return Σ_h A²_h,ij w_hj in float64.

    `weights` are gain_h / r_j², with r_j² = mean(x_j²) + ε of the stream at key j.
    """
    # one head at a time: all squares in float64 at once would be the largest array of a measurement
    total = torch.zeros(attention.shape[1:], dtype=torch.float64, device=attention.device)
    for seen, weight in zip(attention, weights.to(total), strict=True):
        total.add_(seen.double().square().mul_(weight))
    return total.cpu().numpy()
