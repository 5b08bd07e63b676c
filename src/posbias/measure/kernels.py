"""Attention as transition kernels: the head mean, the share of the first token, and the energy kernel.

The energy kernel follows squared Jacobian norms: what a token passes on is divided by its own RMS (the norm
before attention does that), goes through W_V and W_O of each head, and adds up over heads in quadrature.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from posbias.measure.families import Family, decoder_layers, part


def head_mean(attention: Float[Tensor, "head query key"]) -> Float[np.ndarray, "query key"]:
    """Return the attention averaged over heads (Eq. 4 of Herasimchyk et al. 2026), in float64."""
    return attention.mean(dim=0, dtype=torch.float64).numpy()


def sink_share(attention: Float[Tensor, "head query key"]) -> Float[np.ndarray, "head"]:
    """Return the attention that token 0 receives, averaged over the queries that have a choice (i ≥ 1)."""
    return attention[:, 1:, 0].mean(dim=1, dtype=torch.float64).numpy()


def energy_kernel(
    attention: Float[Tensor, "head query key"],
    gain: Float[np.ndarray, "head"],
    mean_square: Float[np.ndarray, "key"],
) -> Float[np.ndarray, "query key"]:
    """Return Σ_h gain_h · A²_h,ij / r_j², in float64; `mean_square` is r_j²: mean(x_j²) + ε."""
    # one head at a time: all squares in float64 at once would be the largest array of a measurement
    total = torch.zeros(attention.shape[1:], dtype=torch.float64)
    for weights, factor in zip(attention, gain, strict=True):
        total.add_(weights.double().square_(), alpha=float(factor))
    return total.numpy() / mean_square


def head_gains(model: Any, family: Family) -> Float[np.ndarray, "layer head"]:
    """Return ‖W_O^h W_V^h diag(g)‖²_F / d_model for each head; g is the gain of the norm before attention.

    Computed as the inner product of two Gram matrices of head size, in float64. Raises `ModelError` when the
    model lacks a part that its family's row names.
    """
    heads = model.config.num_attention_heads
    return np.stack([_gains(layer, family, heads) for layer in decoder_layers(model, family)])


def _gains(layer: Any, family: Family, heads: int) -> Float[np.ndarray, "head"]:
    attention = part(layer, family.attention)
    gain = part(layer, family.norm).weight.double()
    out = part(attention, family.output).weight.double()
    channels = out.shape[1] // heads
    reading = (part(attention, family.value).weight.double() * gain).unflatten(0, (-1, channels))
    reading = reading.repeat_interleave(heads // reading.shape[0], dim=0)
    writing = out.unflatten(1, (heads, channels)).transpose(0, 1)
    grams = (reading @ reading.transpose(1, 2)) * (writing.transpose(1, 2) @ writing)
    return (grams.sum(dim=(1, 2)) / out.shape[0]).numpy()
