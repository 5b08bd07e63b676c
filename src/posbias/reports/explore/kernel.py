"""An architecture as the numbers that kernel.js sweeps: spans, slopes or tables by distance, factors by query.

No class of mask or encoding is named there or here: a layer is asked what the engines ask of it. One that has no
such form is refused with the reason, which the page shows.
"""

import json
from typing import Any

import numpy as np

from posbias.core.errors import InvalidValueError
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.masks import ALL, Banded, Split, lookahead
from posbias.theory.normalisers import Softmax
from posbias.theory.positional import DenseLogits, RoPE
from posbias.theory.rollout.dispatch import engines

MOST_TOKENS, MOST_AHEAD, MOST_DENSE = 1_000_000, 100_000, 4_096
"""Tokens at most, where a mask looks ahead, and with logits by distance, which take O(tokens²) for each layer."""
RISE = 600
"""The most that a logit by distance may lie above that at 0: exponentials of both are kept."""
OTHER_KEYS = "a query sees other keys than one run of neighbours and the first few"
"""Why there is no form for a mask that is neither a band nor pieces."""


def not_expressed(architecture: Architecture) -> str | None:
    """Why kernel.js has no form for an architecture, in words; None where it has one."""
    if architecture.streams is not None:
        return "several residual streams, where the page has one"
    reasons = (layer_not_expressed(layer) for layer in architecture.layers)
    return next((reason for reason in reasons if reason is not None), None)


def layer_not_expressed(layer: Layer) -> str | None:
    """Why kernel.js has no form for a layer, in words; None where it has one."""
    if not isinstance(layer.normaliser, Softmax):
        return "rows of attention that no softmax makes"
    if isinstance(layer.positional, DenseLogits):
        return "logits by query and key, where the page has logits by distance"
    if not isinstance(layer.mask, Banded | Split):
        return OTHER_KEYS
    return None


def sweeps(layer: Layer) -> bool:
    """Whether a layer's heads are slopes, swept in O(tokens); else its kernel is made whole."""
    alone = isinstance(layer.mask, Banded) and layer.mask.band().behind < 1
    return "sweep" in engines(layer) and not alone


def longest(architecture: Architecture) -> int:
    """Tokens up to which the page computes an architecture."""
    if not all(map(sweeps, architecture.layers)):
        return MOST_DENSE
    ahead = any(lookahead(layer.mask, MOST_TOKENS) for layer in architecture.layers)
    return MOST_AHEAD if ahead else MOST_TOKENS


def exported(architecture: Architecture, tokens: int) -> dict[str, Any]:
    """The architecture for texts of up to `tokens` tokens, ready for JSON.

    λ by layer (`mixing`) and the pattern of `layers`. Raises `InvalidValueError` for an architecture that
    kernel.js has no form for, and for more than `longest` tokens.
    """
    reason = not_expressed(architecture)
    if reason is not None:
        raise InvalidValueError(f"architecture: expected plain attention by distance, got {reason}")
    if tokens > longest(architecture):
        raise InvalidValueError(f"tokens: expected at most {longest(architecture):,}, got {tokens:,}")
    layers = [
        exported_span(layer.mask, tokens) | {"heads": exported_heads(layer, tokens)}
        for layer in (one.at(tokens) for one in architecture.layers)
    ]
    return {"mixing": architecture.coefficients.tolist(), "layers": layers}


def exported_span(mask: Any, tokens: int) -> dict[str, Any]:
    """Which keys a query sees: `behind`, `always` and `prefix` (null: all), or where pieces of the text begin.

    `step` is the length of equal pieces, null where the text is one; `starts` lists others.
    """
    if isinstance(mask, Split):
        places = mask.pieces(tokens)
        step = places[1] if len(places) > 1 else tokens
        equal = tuple(places) == tuple(range(0, tokens, step))
        starts = None if equal else list(places)
        return {"behind": None, "always": 0, "prefix": 0, "step": step if equal else None, "starts": starts}
    mask.reach(0, tokens)
    band = mask.band()._asdict()
    numbers = {name: None if number >= ALL else number for name, number in band.items()}
    return {**numbers, "step": None, "starts": None}


def exported_heads(layer: Layer, tokens: int) -> list[dict[str, Any]]:
    """The heads of a layer: weight, logits of diagonal, first column and sink, and a slope or a table each.

    `later` are slopes and `after` logits after the query; `factors` multiply all logits of a query, of which
    `constant` is one; `waves` are amplitudes and phases of rotary pairs, which `table` and `after` follow from.
    Heads with equal logits are one, with their weight.
    Raises `InvalidValueError` for logits that rise by more than `RISE` within the text.
    """
    fixed = layer.head_logits
    ahead = lookahead(layer.mask, tokens)
    by_head: dict[str, Any] = {"diagonal": fixed.diagonal, "first": fixed.first}
    if sweeps(layer):
        by_head |= {"slope": fixed.slopes, "later": np.abs(layer.bias(np.array([-min(ahead, 1)]))[:, 0])}
    else:
        bias = layer.bias(np.arange(-ahead, layer.mask.farthest(tokens) + 1))
        factors = layer.factors(np.arange(tokens))
        if factors is not None:
            by_head |= {"factors": factors, "constant": layer.constant}
        extremes = [1.0] if factors is None else [factors.min(1)[:, None], factors.max(1)[:, None]]
        if max(np.max(factor * (bias - bias[:, [ahead]])) for factor in extremes) > RISE:
            raise InvalidValueError(f"architecture: expected logits that rise by at most {RISE}, got more")
        by_head |= {"table": bias[:, ahead:], "after": bias[:, :ahead][:, ::-1]}
    if isinstance(layer.positional, RoPE):
        amplitudes, phases = layer.positional.waves_of(layer.heads, layer.groups)
        by_head["waves"] = np.stack([amplitudes / layer.temperature, phases], axis=1)
    by_head["sink"] = [float(sink) if np.isfinite(sink) else None for sink in fixed.sinks]
    rows = {name: values if isinstance(values, list) else values.tolist() for name, values in by_head.items()}
    weights: dict[str, float] = {}
    for h, weight in enumerate(fixed.weights.tolist()):
        head = json.dumps({name: values[h] for name, values in rows.items()})
        weights[head] = weights.get(head, 0.0) + weight
    empty = dict.fromkeys(("slope", "later", "table", "after", "factors", "waves"))
    return [empty | json.loads(head) | {"weight": weight} for head, weight in weights.items()]
