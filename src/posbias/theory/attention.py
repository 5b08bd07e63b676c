"""Attention that is there as numbers, whoever computed it: its rollout, what keys receive, sinks, monotonicity.

    attention = posbias.Attention.from_arrays(outputs.attentions)       # transformers, output_attentions=True
    profile = attention.rollout(0.3)

Rows of attention sum to one. Numbers that were kept in half precision do so up to its rounding: how far they are
off is said (`row_error`), and rows are divided by their sums; what is further off is refused. In a model with
learned sinks they sum to less: what a sink takes is passed on to no token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.arguments import non_negative, position, shortened
from posbias.core.errors import InvalidValueError
from posbias.profiles.profile import Profile
from posbias.profiles.sinks import THRESHOLD, received, sink_metric
from posbias.profiles.stochastic_order import ROUNDING, Monotonicity, monotonicity
from posbias.theory.architecture import LAMBDA
from posbias.theory.attention_arrays import as_array, brief, check_layer, check_shapes, check_texts, layers_of
from posbias.theory.masks import Causal, Mask
from posbias.theory.mixing import AttentionOnly, ConstantMixing, Mixing, PerLayer
from posbias.theory.rollout.kernel import Kernel, push

TOLD = 1e-6
"""Deviations of row sums above this are among a profile's assumptions."""


@dataclass(frozen=True, eq=False, repr=False)
class Attention:
    """Attention of every layer, bottom first, as `from_arrays` checked it.

    `layers` holds the numbers as they came, `masks` who may see whom in each layer, `row_error` the largest
    distance of a row's sum from one, with `learned_sinks` the most by which one exceeds it.
    """

    layers: tuple[Float[np.ndarray, "text head query key"], ...]
    masks: tuple[Mask, ...]
    row_error: float
    learned_sinks: bool = False

    @classmethod
    def from_arrays(
        cls,
        arrays: Any,
        *,
        mask: Mask | Sequence[Mask] | None = None,
        row_error: float | None = None,
        learned_sinks: bool = False,
    ) -> "Attention":
        """Check attention weights and hold them.

        `arrays`: one array [layer, head, query, key], [layer, query, key] (heads averaged) or [layer, text, head,
        query, key]; or a list of an array for each layer, bottom first, [text, head, query, key] as transformers'
        `output_attentions` gives, [head, query, key] or [query, key]. NumPy's, torch's, or what NumPy can read.
        Several texts are of one length; padding and texts packed in one row are refused. `mask`: who may see
        whom, one for all layers or one for each (None: causal). `row_error`: how far from one a row may sum; by
        default 1e-5, and two roundings of float16 or bfloat16 where every number is one of theirs.
        `learned_sinks`: rows may sum to less, the rest goes to a sink that is no token (as in gpt-oss) and is
        lost.

        Raises `InvalidValueError` for other shapes, padding, numbers that are negative or not finite, weight that
        the mask does not allow, and rows that sum to anything but one.
        """
        if row_error is not None:
            non_negative("row_error", row_error)
        layers = tuple(layers_of(arrays))
        check_shapes(layers)
        masks = tuple(mask) if isinstance(mask, Sequence) else (mask or Causal(),) * len(layers)
        if len(masks) != len(layers):
            raise InvalidValueError(
                f"mask: {len(masks)} given, one for all or {len(layers)} (one per layer) needed"
            )
        allowed = _allowed(masks, layers[0].shape[-1])
        check_texts(layers, allowed)
        seen = zip(layers, masks, allowed, strict=True)
        errors = [check_layer(number, *each, row_error, learned_sinks) for number, each in enumerate(seen)]
        return cls(layers, masks, max(errors), learned_sinks)

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.layers)

    @property
    def tokens(self) -> int:
        """The number of positions."""
        return self.layers[0].shape[-1]

    @property
    def texts(self) -> int:
        """The number of texts."""
        return len(self.layers[0])

    @property
    def heads(self) -> int:
        """The number of heads of a layer; 1 where heads came averaged."""
        return self.layers[0].shape[1]

    def kernels(self) -> Float[np.ndarray, "layer query key"]:
        """Attention of each layer, mean over texts and heads (Herasimchyk et al. 2026, Eq. 4).

        Rows sum to one, or to less by what learned sinks take.
        """
        by_text = ([self._kernel(layer, text) for text in range(self.texts)] for layer in self.layers)
        return np.stack([np.mean(kernels, axis=0) for kernels in by_text])

    def rollout(
        self, mixing: float | Sequence[float] | Float[np.ndarray, "layer"] | Mixing | str, query: int = -1
    ) -> Profile:
        """The rollout's row of one token (Herasimchyk et al. 2026, Eqs. 2 to 4), from this attention.

        `mixing` is λ, the weight of attention beside the residual: a number for all layers, one per layer (bottom
        first), a schedule of `posbias.mixing`, or "none": attention only, without residual. `query` is a position,
        negative ones count from the end. With several texts the profile is the mean of their rollouts and has them
        as samples; what learned sinks take on the way is its `missing_mass`. Raises `InvalidValueError` for a λ
        that does not fit and a query outside.
        """
        schedule = _schedule(mixing)
        coefficients = schedule.values(self.depth)[::-1]
        place = position("query", query, self.tokens)
        alone = np.zeros(self.tokens)
        alone[place] = 1.0
        rows = [
            push(alone, (self._kernel(layer, text) for layer in reversed(self.layers)), coefficients)
            for text in range(self.texts)
        ]
        assumed = [schedule.assumed] if schedule.assumed else []
        if self.row_error > TOLD:
            assumed.append(
                f"attention: rows sum to one up to {self.row_error:.1e} and were divided by their sums"
            )
        about: dict[str, Any] = {
            "query": place,
            "attrs": {"predictor": "attention arrays", "assumptions": assumed, "row_error": self.row_error},
            "left_out": (LAMBDA,) if schedule.assumed else (),
        }
        samples = np.stack(rows)
        if self.learned_sinks:
            about["missing_mass"] = max(0.0, 1.0 - float(samples.sum(axis=1).mean()))
        if len(rows) > 1:
            about |= {"samples": samples, "se": samples.std(axis=0, ddof=1) / len(rows) ** 0.5}
        return Profile(samples.mean(axis=0), **about)

    def received(self) -> Float[np.ndarray, "layer head key"]:
        """The attention each key receives, mean over the queries that see it and over texts; NaN if none does."""
        return self._by_key(received)

    def sinks(self, threshold: float = THRESHOLD) -> Float[np.ndarray, "layer head key"]:
        """The sink metric of each key (`sinks`), mean over texts; NaN for keys that no query sees.

        Raises `InvalidValueError` for a threshold that is not between 0 and 1.
        """
        if not 0 <= threshold < 1:
            raise InvalidValueError(f"threshold: {threshold} given, a number from 0 up to below 1 needed")
        return self._by_key(lambda weights, allowed: sink_metric(weights, allowed, float(threshold)))

    def monotonicity(self, tolerance: float = ROUNDING) -> tuple[Monotonicity, ...]:
        """How far each layer's kernel is from Assumption 4.1 of Herasimchyk et al. 2026; see `Monotonicity`."""
        return tuple(monotonicity(kernel, tolerance) for kernel in self.kernels())

    def _kernel(self, layer: Float[np.ndarray, "text head query key"], text: int) -> Kernel:
        weights = layer[text].astype(np.float64)
        sums = weights.sum(axis=-1, keepdims=True)
        return (weights / (np.maximum(sums, 1.0) if self.learned_sinks else sums)).mean(axis=0)

    def _by_key(self, statistic: Any) -> Float[np.ndarray, "layer head key"]:
        pairs = zip(self.layers, _allowed(self.masks, self.tokens), strict=True)
        return np.stack(
            [
                np.mean([statistic(weights.astype(np.float64), allowed) for weights in layer], axis=0)
                for layer, allowed in pairs
            ]
        )

    def __repr__(self) -> str:
        """Two lines: sizes and masks, and how exactly rows sum to one."""
        masks = ", ".join(dict.fromkeys(map(brief, self.masks)))
        several = f"{self.texts} texts" if self.texts > 1 else "a text"
        return (
            f"Attention: {self.depth} layers × {self.heads} heads, {several} of {self.tokens} tokens, {masks}\n"
            f"rows sum to {'at most ' * self.learned_sinks}one up to {self.row_error:.1e}"
        )


def _schedule(mixing: Any) -> Mixing:
    """A mixing schedule from what stands for one."""
    if isinstance(mixing, str):
        if mixing != "none":
            raise InvalidValueError(
                f"mixing: {shortened(mixing)} given, a number, one for each layer, a mixing or 'none' needed"
            )
        return AttentionOnly()
    if hasattr(mixing, "assumed"):
        return mixing
    coefficients = as_array(mixing, "mixing").astype(np.float64)
    if not coefficients.size or not ((coefficients >= 0) & (coefficients <= 1)).all():
        raise InvalidValueError(f"mixing: {shortened(mixing)} given, numbers between 0 and 1 needed")
    if not coefficients.ndim:
        return ConstantMixing(float(coefficients))
    return PerLayer(tuple(coefficients.ravel().tolist()))


def _allowed(masks: Sequence[Mask], tokens: int) -> list[Bool[np.ndarray, "query key"]]:
    """Who may see whom in each layer; layers that share a mask share the array."""
    made = {id(mask): mask.allowed(tokens) for mask in {id(one): one for one in masks}.values()}
    return [made[id(mask)] for mask in masks]
