"""Rollouts of one prompt: the last token's row of a product over layers, pushed from the top layer down.

Of a product R⁽ᵀ⁾ ⋯ R⁽¹⁾ only the last row is wanted: a row vector times one layer's matrix after another. The
matrices are not kept. Each layer leaves what its attention can be computed from again (queries and keys, or
its arguments where the model makes whole matrices itself), and blocks of queries are pushed through as they
are recomputed: memory is layers × tokens × hidden numbers, and one layer's attention at most.
Three matrices, made from the same attention A, differ in what they say a head passes on:
kernel: (1 − λ)I + λ·mean_h A_h, as in theory; value: the same with A_h,ij weighted by ‖W_O^h v_j‖; energy:
I + Σ_h g_h A²_h,ij / r_j², squared Jacobian norms, which add in quadrature and know the norm's division by r_j.
A layer without a softmax has matrices of any sign and sum: of them the kernel takes mean_h |M_h|, rows divided by
their sums, since the norm after it takes their scale away; of its value and energy nothing is known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from posbias.core.errors import ModelError, one_of, wrong
from posbias.measurement.capture.forward import SeenLayer
from posbias.measurement.capture.recurrences import Effective
from posbias.measurement.capture.rerun import Call
from posbias.measurement.capture.scores import Given, Scores
from posbias.measurement.quantities.jacobian import HeadGains, stretch_of
from posbias.measurement.quantities.mixing import mixing, token_norms
from posbias.measurement.result import ROLLOUTS

_BLOCK_ENTRIES = 4_000_000
"""Attention weights of all heads that are recomputed at a time (in float64, a few copies of 32 MB)."""


@dataclass(frozen=True)
class _Kept:
    """What one layer leaves: how to have its scores again, λ, what each head passes on from every key, by
    kind, and what each query's update was scaled by (squared)."""

    scores: Callable[[], Scores]
    mixing: float
    weights: dict[str, Float[Tensor, "head key"]]
    stretch: Float[Tensor, "query"] | None


class Rollouts:
    """Collects the layers of one forward pass (`see`), then gives the last token's rows (`rows`).

    `kinds` as in `ROLLOUTS`; "energy" needs `gains`. With the `calls` of the decoder layers (`rerun.recording`
    around the forward pass), layers whose attention the model makes itself are run again for it, one at a time;
    without, that attention is kept: layers × heads × tokens² numbers. Use a new one for each prompt. Raises
    `InvalidValueError` for an unknown kind or missing gains. Sources: kernel, Herasimchyk et al. 2026, Eqs. 2
    to 4, with this prompt's λ (Eq. 1) and attention (after Abnar and Zuidema 2020); value, weights of
    Kobayashi et al. 2020; energy is posbias's own.
    """

    def __init__(
        self,
        tokens: int,
        kinds: Sequence[str] = tuple(ROLLOUTS),
        gains: HeadGains | None = None,
        calls: Sequence[Call] = (),
    ):
        for kind in kinds:
            one_of("kinds", kind, ROLLOUTS)
        if "energy" in kinds and gains is None:
            raise wrong("gains", "those of the model for the kind 'energy'", got="None")
        self._tokens = tokens
        self._kinds = tuple(kinds)
        self._gains = gains
        self._calls = calls
        self._layers: list[_Kept] = []

    def see(self, seen: SeenLayer) -> None:
        """Keep what is needed of the next layer (bottom first).

        Raises `InvalidValueError` when it is not the next one or has another number of tokens, `ModelError`
        when the kind "value" is asked for and the capture could not tell the layer's values.
        """
        if seen.layer != len(self._layers) or seen.scores.tokens != self._tokens:
            got = f"layer {seen.layer} of {seen.scores.tokens}"
            raise wrong("seen", f"layer {len(self._layers)} of {self._tokens} tokens", got=got)
        weights, factor = {}, None
        if "value" in self._kinds:
            if seen.values is None or seen.output_weight is None:
                what = f"the values of layer {seen.layer} are not known, the value rollout needs them"
                raise ModelError(f"model: {what}")
            weights["value"] = value_norms(seen.values, seen.output_weight)
        if self._gains is not None and "energy" in self._kinds:
            weights["energy"] = self._gains.weights(seen.layer, seen.stream)
            scale = stretch_of(seen) if self._gains.stretched[seen.layer] else None
            factor = None if scale is None else scale.square().cpu()
        share = mixing(token_norms(seen.stream), token_norms(seen.update))
        # the scores alone, or how to have them by running the layer again: what else it showed is let go
        scores = seen.scores
        again = self._calls[-1].scores if self._calls and isinstance(scores, Given) else lambda: scores
        self._layers.append(_Kept(again, share, weights, factor))

    def rows(self) -> dict[str, Float[np.ndarray, "position"]]:
        """Return each rollout of the last token over positions, in float64, under its variable's name.

        The rows of kernel and value sum to one (kernel: less the mass that learned sinks take); energy is √q
        of q = e_nᵀB⁽ᵀ⁾⋯B⁽¹⁾, in proportion to influence and not normalised.
        """
        rows = {kind: torch.zeros(self._tokens, dtype=torch.float64) for kind in self._kinds}
        for row in rows.values():
            row[-1] = 1.0
        with torch.no_grad():
            for layer in reversed(self._layers):
                rows = _through(layer, rows)
        if "energy" in rows:
            rows["energy"] = rows["energy"].sqrt()
        return {ROLLOUTS[kind]: row.numpy() for kind, row in rows.items()}


def value_norms(
    values: Float[Tensor, "head position channel"], output_weight: Float[Tensor, "hidden head_channel"]
) -> Float[Tensor, "head position"]:
    """Return ‖W_O^h v_j^h‖₂ of every head and token, in float64."""
    by_head = output_weight.unflatten(1, (values.shape[0], values.shape[2])).unbind(dim=1)
    return torch.stack(
        [
            torch.linalg.vector_norm(value @ weight.T.to(value.dtype), dim=-1, dtype=torch.float64)
            for value, weight in zip(values, by_head, strict=True)
        ]
    )


def _through(layer: _Kept, rows: dict[str, Tensor]) -> dict[str, Tensor]:
    """Push each kind's row through one layer, block by block of the queries that hold any of it."""
    scores = layer.scores()
    if isinstance(scores, Effective):  # the kernel alone: what heads pass on is not known
        sizes = scores.sizes()
        sizes /= sizes.sum(dim=1, keepdim=True).clamp(min=torch.finfo(sizes.dtype).tiny)
        return {kind: (1 - layer.mixing) * row + layer.mixing * (row @ sizes) for kind, row in rows.items()}
    stays = {"kernel": 1.0 - layer.mixing, "value": 1.0 - layer.mixing, "energy": 1.0}
    passed = {kind: torch.zeros_like(row) for kind, row in rows.items()}
    holding = torch.stack([row != 0 for row in rows.values()]).any(dim=0).nonzero()[:, 0]
    size = max(1, _BLOCK_ENTRIES // (scores.heads * scores.tokens))
    for start in range(int(holding[0]), scores.tokens, size):
        block = slice(start, min(start + size, scores.tokens))
        attention = scores.rows(block.start, block.stop)[1].double()
        keys = slice(attention.shape[2])
        for kind, row in rows.items():
            here = row[block] if layer.stretch is None or kind != "energy" else (row * layer.stretch)[block]
            here = here.to(attention.device)
            weights = layer.weights.get(kind)
            weights = weights if weights is None else weights[:, keys].to(attention.device)
            passed[kind][keys] += _pushed(kind, here, attention, weights).cpu()
    for kind in {"kernel", "value"} & rows.keys():
        passed[kind] *= layer.mixing
    return {kind: stays[kind] * row + passed[kind] for kind, row in rows.items()}


def _pushed(kind: str, row: Tensor, attention: Tensor, weights: Tensor | None) -> Tensor:
    """What the queries of a block pass on to each key: Σ_i row_i times the kind's weight of i on j."""
    if weights is None:
        return (row @ attention).mean(dim=0)
    if kind == "energy":
        return (row @ attention.square() * weights).sum(dim=0)
    # rows Σ_h A_h,ij w_hj divided by their sums; what a query holds is lost where nothing is passed to it
    total = (attention @ weights[:, :, None]).sum(dim=0)[:, 0]
    return ((row / total.clamp(min=torch.finfo(total.dtype).tiny)) @ attention * weights).sum(dim=0)
