"""Gates: each head's output times a number g_h before heads are added, as Qwen 3 Next does with a sigmoid.

The layer's output is (1 − λ)X + λ·Σ_h w_h·g_h·A_h X, whose rows of shares sum to 1 − λ + λ·ḡ with ḡ = Σ_h w_h·g_h.
Divided by that sum it is a layer as any other,

    R = (1 − λ')I + λ'·Σ_h w'_h·A_h,    w'_h = w_h·g_h/ḡ,    λ' = λ·ḡ/(1 − λ + λ·ḡ):

a gate is other weights of heads and another λ, so there is no field for it. λ measured on a model with gates has
them in it already; then the weights alone change. Gates that depend on the query (Qiu et al. 2025) are taken by
their mean over queries: exact where they are constant, and not where a head opens for certain keys.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from posbias.core.errors import InvalidValueError
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.distance import spread
from posbias.theory.mixing import PerLayer


def gated(
    architecture: Architecture,
    gates: Sequence[float] | Sequence[Sequence[float]],
    *,
    in_mixing: bool = False,
) -> Architecture:
    """The architecture with gates on its heads.

    `gates`: numbers ≥ 0, one for all heads of a layer, one per group of heads or one per head; one such list for
    all layers, or one for each, bottom first. `in_mixing`: λ was measured with the gates and stays. Raises
    `InvalidValueError` for counts that do not fit, a number below zero, gates that leave nothing of a layer
    without residual, and, unless `in_mixing`, for λ that was assumed and for hyper-connections.
    """
    if not len(gates):
        raise InvalidValueError("gates: none given, one or more numbers needed")
    depth, rows = architecture.depth, _rows(gates)
    if len(rows) not in (1, depth):
        raise InvalidValueError(f"gates: {len(rows)} lists given, one or {depth} (one per layer) needed")
    if not in_mixing and (architecture.mixing.assumed or architecture.streams is not None):
        raise InvalidValueError(
            "in_mixing: False given, and λ is assumed or of several streams; λ of one residual, or true needed"
        )
    stack, coefficients = [], []
    for t, (layer, lam) in enumerate(zip(architecture.stack, architecture.coefficients, strict=True)):
        passed = layer.head_logits().weights * spread("gates", rows[t % len(rows)], layer.heads, layer.groups)
        mean = float(passed.sum())
        kept = 1.0 - lam + lam * mean
        if not np.isfinite(kept) or (passed < 0).any() or not kept:
            raise InvalidValueError(
                f"gates: {rows[t % len(rows)]} given at λ = {lam:g}, numbers ≥ 0, not all 0 needed"
            )
        stack.append(_weighted(layer, passed / mean) if mean else layer)
        coefficients.append(float(lam * mean / kept))
    changed = replace(architecture, layers=shortest_pattern(stack))
    if in_mixing:
        return changed
    held, made = architecture.mixing, tuple(coefficients)
    mixing = replace(held, coefficients=made) if isinstance(held, PerLayer) else PerLayer(made)
    return replace(changed, mixing=mixing)


def _rows(gates: Sequence) -> list[tuple[float, ...]]:
    """One list of gates for each layer that has its own."""
    lists = gates if np.ndim(gates[0]) else [gates]
    return [tuple(map(float, row)) for row in lists]


def _weighted(layer: Layer, shares: np.ndarray) -> Layer:
    """The layer with these weights of its heads; none where they are even, as before."""
    if np.allclose(shares, 1.0 / layer.heads, rtol=1e-15, atol=0.0):
        return replace(layer, head_weights=None)
    return replace(layer, head_weights=tuple((shares / shares.sum()).tolist()))
