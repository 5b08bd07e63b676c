"""Logits by where they stand: by distance, on the diagonal, in the first column.

Averages over prompts of whole n × n logit matrices are large and mostly redundant; what the theory uses are
their means along diagonals. A diagonal sum is a column sum after shearing: in a buffer of 2n rows, entry
(j + d, j) lies at d·n + j·(n + 1), so a strided view with steps (n, n + 1) has one distance a row.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def rotation_free(
    query: Float[Tensor, "head query channel"], key: Float[Tensor, "head key channel"], scale: float
) -> Float[Tensor, "head query key"]:
    """Return q·k before rotation, times `scale`: the logits that content alone would give."""
    return (query @ key.transpose(1, 2)) * scale


def distance_means(logits: Float[Tensor, "head query key"]) -> Float[np.ndarray, "head distance"]:
    """Return, for each distance d = i − j ≥ 0, the mean of logits_ij over keys j ≥ 1, summed in float64.

    Only entries on and below the diagonal are read, so masked ones may hold anything. Key 0 is left out: it
    attracts attention for its own sake. The last distance has no such pair and is NaN.
    """
    heads, tokens, _ = logits.shape
    buffer = logits.new_zeros(heads, 2 * tokens, tokens)
    buffer[:, :tokens] = logits
    sheared = buffer.as_strided((heads, tokens, tokens), (2 * tokens * tokens, tokens, tokens + 1))
    sums = sheared[:, :, 1:].sum(dim=2, dtype=torch.float64)
    # the row of each distance runs past the last query into the buffer's zeros
    counts = torch.arange(tokens - 1, -1, -1, dtype=torch.float64)
    return (sums / counts).numpy()


def diagonal(logits: Float[Tensor, "head query key"]) -> Float[np.ndarray, "head position"]:
    """Return logits_ii in float64."""
    return logits.diagonal(dim1=1, dim2=2).double().numpy()


def first_column(logits: Float[Tensor, "head query key"]) -> Float[np.ndarray, "head position"]:
    """Return logits_i0 in float64."""
    return logits[:, :, 0].double().numpy()


def visible(logits: Float[Tensor, "head query key"]) -> Float[np.ndarray, "head query key"]:
    """Return all logits in float64, NaN where the query cannot see the key."""
    tokens = logits.shape[1]
    hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    return logits.double().masked_fill(hidden, torch.nan).numpy()
