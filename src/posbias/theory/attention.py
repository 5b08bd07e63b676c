"""Attention that is there as numbers, whoever computed it: its rollout, what keys receive, sinks, monotonicity.

    attention = posbias.Attention.from_arrays(outputs.attentions)       # transformers, output_attentions=True
    attention = posbias.Attention.from_arrays(cache)                    # TransformerLens, or what nnsight saved
    profile = attention.rollout(0.3)

Rows of attention sum to one. Numbers that were kept in half precision do so up to its rounding: how far they are
off is said (`row_error`), and rows are divided by their sums; what is further off is refused. In a model with
learned sinks they sum to less: what a sink takes is passed on to no token.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.arrays import numbers
from posbias.core.errors import non_negative, position, shortened, wrong
from posbias.profiles.curves import THRESHOLD, received, sink_metric
from posbias.profiles.profile import Profile
from posbias.profiles.stochastic_order import ROUNDING, Monotonicity, monotonicity
from posbias.theory.architecture import LAMBDA
from posbias.theory.masks import Causal, Mask
from posbias.theory.mixing import AttentionOnly, ConstantMixing, Mixing, PerLayer
from posbias.theory.rollout.kernel import Kernel, push

EXACT = 1e-5
"""How far from one a row of float32 or float64 may sum."""
REPORTED = 1e-6
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
        Or what other tools saved of a pass: TransformerLens' `ActivationCache` or dictionary, nnsight's outputs of
        attention modules (tuples, by layer or by name) or its cache; weights are found there by shape and numbers,
        [text, head, query, key] or [head, query, key], layers by the number in a name.
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
        layers = tuple(_layers_of(arrays))
        _check_shapes(layers)
        masks = tuple(mask) if isinstance(mask, Sequence) else (mask or Causal(),) * len(layers)
        if len(masks) != len(layers):
            raise wrong("mask", f"one for all or {len(layers)} (one per layer)", len(masks))
        allowed = _allowed(masks, layers[0].shape[-1])
        _check_texts(layers, allowed)
        seen = zip(layers, masks, allowed, strict=True)
        errors = [_check_layer(number, *each, row_error, learned_sinks) for number, each in enumerate(seen)]
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

        `mixing` is λ, the weight of attention (the residual's is 1 − λ): a number for all layers, one per layer
        (bottom first), a schedule of `posbias.mixing`, or "none": attention only, without residual. `query` is a
        position, negative ones count from the end. With several texts the profile is the mean of their rollouts
        and has them as samples; what learned sinks take on the way is its `missing_mass`. Raises
        `InvalidValueError` for a λ that does not fit and a query outside.
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
        assumed = (schedule.assumed,) if schedule.assumed else ()
        if self.row_error > REPORTED:
            divided = f"rows sum to one up to {self.row_error:.1e} and were divided by their sums"
            assumed += (f"attention: {divided}",)
        about: dict[str, Any] = {
            "query": place,
            "predictor": "attention arrays",
            "assumptions": assumed,
            "left_out": (LAMBDA,) if schedule.assumed else (),
        }
        samples = np.stack(rows)
        if self.learned_sinks:
            about["missing_mass"] = max(0.0, 1.0 - float(samples.sum(axis=1).mean()))
        return Profile.from_rows(samples, **about) if len(rows) > 1 else Profile(rows[0], **about)

    def received(self) -> Float[np.ndarray, "layer head key"]:
        """The attention each key receives, mean over the queries that see it and over texts; NaN if none does."""
        return self._by_key(received)

    def sinks(self, threshold: float = THRESHOLD) -> Float[np.ndarray, "layer head key"]:
        """The sink metric of each key (`sinks`), mean over texts; NaN for keys that no query sees.

        Raises `InvalidValueError` for a threshold that is not between 0 and 1.
        """
        if not 0 <= threshold < 1:
            raise wrong("threshold", "a number from 0 up to below 1", got=str(threshold))
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
        masks = ", ".join(dict.fromkeys(map(_brief, self.masks)))
        several = f"{self.texts} texts" if self.texts > 1 else "a text"
        return (
            f"Attention: {self.depth} layers × {self.heads} heads, {several} of {self.tokens} tokens, {masks}\n"
            f"rows sum to {'at most ' * self.learned_sinks}one up to {self.row_error:.1e}"
        )


def _schedule(mixing: Any) -> Mixing:
    """A mixing schedule from what stands for one."""
    if isinstance(mixing, str):
        if mixing != "none":
            raise wrong("mixing", "a number, one for each layer, a mixing or 'none'", mixing)
        return AttentionOnly()
    if hasattr(mixing, "assumed"):
        return mixing
    coefficients = numbers("mixing", mixing).astype(np.float64)
    if not coefficients.size or not ((coefficients >= 0) & (coefficients <= 1)).all():
        raise wrong("mixing", "numbers between 0 and 1", mixing)
    if not coefficients.ndim:
        return ConstantMixing(float(coefficients))
    return PerLayer(tuple(coefficients.ravel().tolist()))


def _allowed(masks: Sequence[Mask], tokens: int) -> list[Bool[np.ndarray, "query key"]]:
    """Who may see whom in each layer; layers that share a mask share the array."""
    made = {id(mask): mask.allowed(tokens) for mask in {id(one): one for one in masks}.values()}
    return [made[id(mask)] for mask in masks]


# --- arrays, whatever holds them, and whether they are attention at all -----------------------------------------


def _layers_of(arrays: Any) -> list[Float[np.ndarray, "text head query key"]]:
    """An array for each layer, bottom first, with axes for texts and heads."""
    if hasattr(arrays, "keys"):
        arrays = _layers_in(arrays)
    elif isinstance(arrays, list | tuple):
        arrays = [next(_weights_in(one), None) if _is_output(one) else one for one in arrays]
    listed = arrays if isinstance(arrays, list | tuple) else ()
    by_layer = any(one is None or hasattr(one, "shape") for one in listed)
    if by_layer:
        absent = [number for number, one in enumerate(arrays) if one is None]
        if absent and len(absent) < len(arrays):
            kind = "a layer of another kind has (linear attention, a state space); pass the others alone"
            raise wrong(
                f"attention: layer {absent[0]}", "weights", got=f"None where others have some, as {kind}"
            )
        if absent:
            got = "None; sdpa and flash attention give none, load the model with attn_implementation='eager'"
            raise wrong("attention", "weights", got=got)
        layers = [numbers(f"attention: layer {number}", one) for number, one in enumerate(arrays)]
        shapes = "[query, key], [head, query, key] or [text, head, query, key]"
    else:
        whole = numbers("attention", arrays)
        layers = list(whole) if whole.ndim else [whole]
        shapes = "[layer, query, key], [layer, head, query, key] or [layer, text, head, query, key]"
    if not layers:
        raise wrong("attention", "at least one", got="no layer")
    for number, layer in enumerate(layers):
        if not 2 <= layer.ndim <= 4:
            where, shape = (f"layer {number}: ", layer.shape) if by_layer else ("", np.shape(layers))
            raise wrong("attention", shapes, got=f"{where}shape {shape}")
    return [layer[(None,) * (4 - layer.ndim)] for layer in layers]


def _is_output(held: Any) -> bool:
    """Whether it is what an attention module returned: states with weights, or with None in their place."""
    return isinstance(held, tuple) and any(one is None or getattr(one, "ndim", 0) == 4 for one in held)


def _layers_in(saved: Any) -> list[Float[np.ndarray, "..."]]:
    """The weights of each layer, bottom first, in a cache or a dictionary of what modules returned.

    Raises `InvalidValueError` where there are none, or where names do not say which layer they are of.
    """
    layers: dict[int, tuple[str, np.ndarray]] = {}
    for name in saved.keys():  # noqa: SIM118 (caches are no dictionaries)
        held = [*_weights_in(getattr(saved[name], "output", saved[name]))]
        for place, weights in enumerate(held):
            named = f"{name}.{place}" if len(held) > 1 else str(name)
            # as in "blocks.3.attn.hook_pattern" or "layer3"
            number = re.search(r"(?<![A-Za-z0-9])\d+(?![A-Za-z0-9])|\d+$", named)
            other, known = layers.setdefault(int(number[0]) if number else -1, (named, weights))
            if not number or not np.array_equal(known, weights, equal_nan=True):
                raise wrong("attention", "one name with each layer's number", sorted({other, named}))
    if not layers:
        what = "weights [text, head, query, key] in what was saved (fused attention gives none: 'eager' does)"
        raise wrong("attention", what, got=f"none in {shortened([*saved.keys()])}")
    return [weights for _, (_, weights) in sorted(layers.items())]


def _weights_in(held: Any) -> Iterator[Float[np.ndarray, "..."]]:
    """The arrays that are attention weights by shape and numbers, whatever they are called."""
    for one in held if isinstance(held, list | tuple) else [held]:
        if getattr(one, "ndim", 0) in (3, 4) and one.shape[-1] == one.shape[-2] and "float" in str(one.dtype):
            weights = numbers("attention", one)
            if not (weights < 0).any() and (np.nansum(weights, axis=-1, dtype=np.float64) < 1.1).all():
                yield weights


def _brief(mask: Mask) -> str:
    """A mask in words, by its class where it says much."""
    said = repr(mask)
    return said if len(said) <= 60 else type(mask).__name__


def _check_shapes(layers: Sequence[Float[np.ndarray, "text head query key"]]) -> None:
    """Refuse layers that differ in size, and those with more or fewer keys than queries."""
    for number, layer in enumerate(layers):
        queries, keys = layer.shape[-2:]
        if queries != keys or not layer.size:
            given = f"{queries} queries × {keys} keys"
            raise wrong(f"attention: layer {number}", "as many queries as keys", got=given)
        if layer.shape != layers[0].shape:
            names = "texts × heads × queries × keys"
            given, first = (" × ".join(map(str, one.shape)) for one in (layer, layers[0]))
            raise wrong(f"attention: layer {number}", f"{names} {first}, as in layer 0", got=given)


def _check_texts(
    layers: Sequence[Float[np.ndarray, "text head query key"]],
    allowed: Sequence[Bool[np.ndarray, "query key"]],
) -> None:
    """Refuse padding and several texts in a row, by the weights of all layers and heads.

    A padded query has a row of zeros or NaN, or an even one that reaches keys its mask forbids (transformers'
    softmax over masked keys only); a padded key has no weight from any other query. A text begins at k where no
    query from k on gives weight to a key before k. Only pairs count that the mask of some layer allows.
    """
    seen, tokens = np.any(allowed, axis=0), layers[0].shape[-1]
    for text in range(len(layers[0])):
        used, blank = np.zeros((tokens, tokens), dtype=bool), np.ones(tokens, dtype=bool)
        for layer, mask in zip(layers, allowed, strict=True):
            positive = (layer[text] > 0).any(axis=0)
            even = (layer[text] == layer[text][..., :1]).all(axis=(0, 2)) & ~mask.all(axis=1)
            blank &= even | ~positive.any(axis=1)
            used |= positive
        if blank.all():
            continue  # no attention: check_layer says why
        used[blank] = False
        padded = ~used.any(axis=0) & (blank | seen[~blank].any(axis=0))
        starts = np.flatnonzero(_starts(used) & ~_starts(seen))
        real = np.flatnonzero(~padded)
        first, last = int(real[0]), int(real[-1]) + 1
        if padded.any():
            inside = int(padded[first:last].sum())
            found = f"padding: {first} tokens at the start, {inside} inside, {tokens - last} at the end"
        elif len(starts):
            bounds = [0, *starts.tolist(), tokens]
            # the last that is no single token: what stands before it or after may be padding
            first, last = max(pairwise(bounds), key=lambda part: (part[1] - part[0] > 1, part))
            where = shortened(bounds[1:-1])
            found = f"padding, or several texts: tokens at or after {where} give no weight to those before"
        else:
            continue
        alone = f"layer[..., {first}:{last}, {first}:{last}], or a mask= without those pairs"
        got = f"row {text} with {found}; pass each text alone, such as {alone}"
        raise wrong("attention", "one text without padding in each row", got=got)


def _starts(used: Bool[np.ndarray, "query key"]) -> Bool[np.ndarray, "key"]:
    """Whether no query from a position on uses a key before it; never at position 0."""
    earliest = np.where(used.any(axis=1), used.argmax(axis=1), len(used))
    earliest = np.minimum.accumulate(earliest[::-1])[::-1]
    return (earliest >= np.arange(len(used))) & (np.arange(len(used)) > 0)


def _check_layer(
    number: int,
    layer: Float[np.ndarray, "text head query key"],
    mask: Mask,
    allowed: Bool[np.ndarray, "query key"],
    row_error: float | None,
    learned_sinks: bool,
) -> float:
    """The largest distance of a row's sum from one, or above it where learned sinks take a part.

    Raises where the layer is no attention under its mask.
    """
    if not np.isfinite(layer).all() or (layer < 0).any():
        raise wrong(f"attention: layer {number}", "numbers ≥ 0", got="one that is negative or not finite")
    outside = np.argwhere((layer > 0) & ~allowed)
    if len(outside):
        _, head, query, key = outside[0]
        wanted = f"weights that {_brief(mask)} allows (mask of Attention.from_arrays)"
        given = f"weight of query {query} on key {key}"
        raise wrong(f"attention: layer {number}, head {head}", wanted, got=given)
    with np.errstate(over="ignore"):  # what is infinite then is refused
        over = layer.sum(axis=-1, dtype=np.float64) - 1.0
        limit = _rounding(layer) if row_error is None else row_error
    off = np.maximum(over, 0.0) if learned_sinks else np.abs(over)
    if off.max() > limit:
        _, head, query = np.unravel_index(off.argmax(), off.shape)
        hint = "; learned_sinks=True, if a learned sink takes the rest" if over.max() <= limit else ""
        wanted = f"rows that sum to one within {limit:.2g} (row_error of Attention.from_arrays)"
        given = f"{off.max():.2g} away at query {query}{hint}"
        raise wrong(f"attention: layer {number}, head {head}", wanted, got=given)
    return float(off.max())


def _rounding(layer: Float[np.ndarray, "text head query key"]) -> float:
    """How far from one a row may sum: two roundings of the coarsest type whose numbers these all are."""
    single = layer.astype(np.float32)
    if (single == layer).all():
        if not (single.view(np.uint32) & 0xFFFF).any():
            return 2.0**-7  # bfloat16
        half = layer.astype(np.float16)
        if (half == layer).all():
            # below 2⁻¹⁴ a rounding of float16 is absolute
            return 2.0**-10 + layer.shape[-1] * 2.0**-25
    return EXACT
