"""What the page lets one choose: masks, encodings and schedules of λ, as numbers and as what a file holds.

A member of a union becomes an option by being asked what kernel.py asks it: spans by how they follow its numbers,
slopes or a table of logits by distance, λ by layer. The page composes these and puts the numbers at their `path`
in `value`. Members of their own numbers, and those that kernel.js has no form for, are listed with the reason.
"""

import base64
import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float
from pydantic_core import PydanticUndefined

from posbias.core.spec import encode
from posbias.reports.explore.kernel import MOST_DENSE, OTHER_KEYS, exported_span, layer_not_expressed
from posbias.theory.architecture import Layer
from posbias.theory.content import ConstantDiagonal, NoContent
from posbias.theory.distance import T5, KerpleLog, KerplePower, RoPE
from posbias.theory.masks import MASKS, Banded, Causal, Split
from posbias.theory.mixing import (
    DEFINITION,
    MIXINGS,
    AttentionOnly,
    ConstantMixing,
    PerLayer,
    PowerDecay,
    TrainedMedian,
    known_mixing,
    plausible_mixing,
)
from posbias.theory.positional import POSITIONALS, ALiBi, DecayBias, NeedsMeasurement, NoPE, Sandwich

MOST_LAYERS, MOST_TOKENS, MOST_AHEAD = 128, 1_000_000, 100_000
HEADS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 15, 16, 20, 24, 25, 32, 40, 48, 56, 64, 96, 112, 128)
"""Numbers of heads to choose from: those of models that have a name, and powers of two."""
PROBES = (64, 128)
SPANS = ("behind", "always", "prefix", "step")
OWN = "its numbers are a model's own: begin from a file that holds them"

ENCODINGS: dict[type, tuple[Any, str, dict[str, Any]]] = {
    NoPE: (NoPE(), "", {}),
    ALiBi: (ALiBi(), "", {"times": ("scale", "Factor on the slopes", 1 / 64, 64, 1.0)}),
    DecayBias: (DecayBias(1.0), "", {"times": ("rate", "Decay per token", 1e-4, 4, 0.05)}),
    RoPE: (
        RoPE(((1.0,),), dimension=64),
        "32 pairs with base 10,000, all of one amplitude and without phase",
        {"times": ("amplitudes", "Amplitude of each pair", 1e-3, 4, 0.1)},
    ),
    T5: (
        T5((tuple(-k / 31 for k in range(32)),), bidirectional=False),
        "32 buckets up to 128 tokens, whose biases fall by equal steps",
        {"times": ("biases", "Fall from first to last bucket", 1 / 16, 32, 4.0)},
    ),
    KerpleLog: (KerpleLog((1.0,)), "", {"times": ("scale", "Scale r₁", 1 / 64, 16, 1.0)}),
    KerplePower: (
        KerplePower((1.0,), (1.0,)),
        "",
        {
            "times": ("scale", "Scale r₁", 1e-3, 8, 0.2),
            "power": ("exponent", "Exponent r₂", 0.05, 2, 0.5),
        },
    ),
    Sandwich: (Sandwich((1.0,)), "128 dimensions, one ratio for all heads", {}),
    NeedsMeasurement: (NeedsMeasurement("rotary or learned"), "", {}),
}
"""What the menu has of an encoding: a value, what was chosen in it, and the numbers that a slider moves: field,
label, least, most and first. What `times` names multiplies logits, what `power` names is the exponent of the
distance."""
TITLES = {
    "causal": "causal: all earlier tokens",
    "sliding_window": "sliding window",
    "prefix": "prefix: first tokens see each other, the rest is causal",
    "full": "full: all tokens, as in an encoder",
    "chunked": "chunks: earlier tokens of the same chunk",
    "dilated": "dilated: every few tokens",
    "block_sparse": "block-sparse",
    "fixed": "fixed blocks (Sparse Transformer)",
    "custom": "your own mask",
    "nope": "none (NoPE)",
    "alibi": "ALiBi: linear in the distance, a slope per head",
    "decay": "linear in the distance, one rate for all heads",
    "rope": "rotary, amplitudes given",
    "t5": "T5: learned biases by bucket of distance",
    "kerple_log": "KERPLE, logarithmic in the distance",
    "kerple_power": "KERPLE, a power of the distance",
    "sandwich": "Sandwich: cosines of the distance",
    "tabulated": "a table of logits by distance",
    "function": "a function of the distance",
    "dense": "logits by query and key",
    "selected": "rate of selection by distance",
    "needs_measurement": "rotary or learned: needs a measured model",
    "constant": "the same in every layer",
    "power_decay": "falls as a power of the layer",
    "attention_only": "1: no residual connection",
    "abnar_zuidema": "½ in every layer (attention rollout)",
    "at_initialisation": "pre-norm network before training",
    "trained_median": "median of trained models",
    "per_layer": "set layer by layer",
}
"""The names of what can be chosen, by `kind`."""
SCHEDULES: dict[type, tuple[Any, dict[str, Any]]] = {
    ConstantMixing: (ConstantMixing(1.0), {"times": ("value", "λ", 0.0, 1.0, 0.2)}),
    PowerDecay: (
        PowerDecay(1.0, 1.0),
        {"times": ("initial", "λ₀", 0.0, 1.0, 0.5), "power": ("exponent", "β", 0.0, 2.0, 0.5)},
    ),
}


def menu() -> dict[str, Any]:
    """Everything to choose from, ready for JSON."""
    return {
        "limits": {
            "layers": MOST_LAYERS,
            "tokens": MOST_TOKENS,
            "ahead": MOST_AHEAD,
            "tables": MOST_DENSE,
            "heads": HEADS,
        },
        "masks": [_mask(cls) for cls in MASKS],
        "global": Causal().kind,
        "encodings": [_encoding(cls) for cls in POSITIONALS],
        "content": _content(),
        "schedules": [*_schedules()],
        "known": _known(),
    }


def _about(cls: Any) -> dict[str, Any]:
    """Key, name and first sentence of a member; the name of one that `TITLES` lacks begins its docstring."""
    words = " ".join((inspect.getdoc(cls) or "").split()).replace("`", "")
    sentence = re.split(r"(?<! al)(?<!\bEq)[.] ", words)[0].rstrip(".")
    title = TITLES.get(cls.kind) or re.split(r"[:;(,]", sentence)[0].strip()
    return {"key": cls.kind, "title": title, "words": sentence}


def _control(path: list[Any], label: str, least: float, most: float, first: float) -> dict[str, Any]:
    """A number that a slider moves: where it stands in a file, what it is called, its range and first value."""
    return {"path": path, "label": label, "least": least, "most": most, "first": first}


# ── masks ──


def _mask(cls: Any) -> dict[str, Any]:
    about = _about(cls) | {"numbers": [], "span": None, "value": None, "reason": None}
    if not issubclass(cls, Banded | Split):
        return about | {"reason": OTHER_KEYS}
    fields, numbers, first = _fields(cls), [], {}
    here = dict.fromkeys(fields, PROBES[0])
    for name, needed in fields.items():
        label = getattr(cls, "varied", "") if needed else "first tokens that are always seen"
        least, first[name] = (2, PROBES[0]) if needed else (0, 0)
        numbers.append(_control([name], label[:1].upper() + label[1:], least, MOST_TOKENS, first[name]))
    ahead = bool(exported_span(cls(**here), MOST_TOKENS)["prefix"] != 0)
    return about | {
        "numbers": numbers,
        "span": _span(cls, here),
        "ahead": ahead,
        "value": encode(cls(**first)),
    }


def _fields(cls: Any) -> dict[str, bool]:
    """The fields of a member, and whether each must be given."""
    fields = [field for field in dataclasses.fields(cls) if field.name != "kind"]
    return {field.name: _default(field) in (dataclasses.MISSING, PydanticUndefined) for field in fields}


def _default(field: Any) -> Any:
    return getattr(field.default, "default", field.default)


def _span(cls: Any, here: dict[str, int]) -> dict[str, Any]:
    """Each number of a span as [what it is at 0, {field: factor}], null where it is all of the text."""
    near = exported_span(cls(**here), MOST_TOKENS)
    found: dict[str, Any] = {}
    for key in SPANS:
        if near[key] is None or near["step"] == MOST_TOKENS:
            found[key] = None
            continue
        offset, factors = near[key], {}
        for name in here:
            far = exported_span(cls(**here | {name: PROBES[1]}), MOST_TOKENS)
            factor = (far[key] - near[key]) / (PROBES[1] - PROBES[0])
            if factor:
                factors[name] = factor
                offset -= factor * PROBES[0]
        found[key] = [offset, factors]
    return found


# ── encodings ──


def _encoding(cls: Any) -> dict[str, Any]:
    about = _about(cls) | {"reason": OWN, "controls": {}, "slopes": None, "table": None, "caveat": None}
    if cls not in ENCODINGS:
        return about
    given, chosen, controls = ENCODINGS[cls]
    layer = Layer(positional=given)
    caveat = "" if given.exact else getattr(given, "caveat", "")
    value = encode(given)
    return about | {
        "reason": layer_not_expressed(layer),
        "caveat": "; ".join(filter(None, (chosen, caveat))) or None,
        "exact": given.exact,
        "controls": {
            role: _control([field], *numbers) | {"unit": value[field]}
            for role, (field, *numbers) in controls.items()
        },
        "value": value,
        **_logits(given),
    }


def _logits(given: Any) -> dict[str, Any]:
    """Slopes by number of heads with what they are times after the query, or a table by distance for all heads."""
    one = given.slopes_of(1)
    if one is None:
        distances = np.arange(MOST_DENSE)
        before, after = (given.logits_at(sign * distances, 1)[0] for sign in (1, -1))
        mirrored = np.allclose(before, after, rtol=0, atol=1e-12)
        return {"table": packed(before), "after": None if mirrored else packed(after[1:])}
    slopes = {str(count): given.slopes_of(count).tolist() for count in HEADS}
    alike = all(set(some) == set(one) for some in slopes.values())
    later = -float(given.logits_at(np.array([-1]), 1)[0, 0])
    return {
        "slopes": {"1": one.tolist()} if alike else slopes,
        "later": later / float(one[0]) if one[0] else 0.0,
    }


def packed(numbers: Float[np.ndarray, "entry"]) -> dict[str, Any]:
    """Numbers as runs of equal ones where they are few, else their bytes (float64, little-endian) in base 64."""
    ends = np.flatnonzero(np.append(np.diff(numbers) != 0, True))
    if len(ends) <= 64:
        return {"runs": [numbers[ends].tolist(), np.diff(ends, prepend=-1).tolist()]}
    if np.array_equal(numbers, numbers[1] * np.arange(len(numbers))):
        return {"line": [float(numbers[1]), len(numbers)]}
    return {"bytes": base64.b64encode(numbers.astype("<f8").tobytes()).decode()}


# ── content and λ ──


def _content() -> dict[str, Any]:
    """What tokens add to logits whatever they say: the numbers, and where a head of kernel.js holds each."""
    controls = {
        "diagonal": _control(["diagonal"], "Logit of a token on itself", -8, 12, 0.0),
        "first": _control(["first_column"], "Logit on the first token", -8, 12, 0.0),
        "constant": _control(["constant"], "Logit on every token", -8, 8, 0.0),
    }
    return {
        "none": encode(NoContent()),
        "value": encode(ConstantDiagonal((0.0,))),
        "controls": {role: control | {"unit": [1.0]} for role, control in controls.items()},
        "sink": _control(["sinks"], "Logit of a learned sink", -8, 12, 0.0) | {"unit": [1.0]},
    }


def _known() -> dict[str, dict[str, list[float]]]:
    """λ of each pretrained model: those of the median's definition, and those of another as checks."""
    models, known = plausible_mixing(1, DEFINITION), known_mixing()
    pretrained = {name: list(known[name].coefficients) for name in plausible_mixing(1)}
    return {
        "models": {name: values for name, values in pretrained.items() if name in models},
        "checks": {name: values for name, values in pretrained.items() if name not in models},
    }


def _by_layer(given: Any) -> dict[str, Any]:
    """λ by layer: a table whatever the depth, or the median over the known λ at the same relative depth."""
    return (
        {"median": True} if isinstance(given, TrainedMedian) else {"table": packed(given.values(MOST_LAYERS))}
    )


def _schedules() -> Iterator[dict[str, Any]]:
    """Schedules of λ by layer, the published ones, and what a file holds of any that is drawn by hand."""
    for cls in MIXINGS:
        if cls in SCHEDULES:
            given, controls = SCHEDULES[cls]
            sliders = {
                role: _control([field], *numbers) | {"unit": 1.0}
                for role, (field, *numbers) in controls.items()
            }
        elif any(_fields(cls).values()):
            continue
        else:
            given, sliders = cls(), {}
        yield _about(cls) | {
            **_by_layer(given),
            "controls": sliders,
            "value": encode(given),
            "caveat": (getattr(given, "assumed", "") or "").removeprefix("mixing: ") or None,
            "assumed": bool(getattr(given, "assumed", "")),
            "alone": cls is AttentionOnly,
        }
    for name, known in known_mixing().items():
        yield {
            "key": f"of {name}",
            "title": f"measured in {name}",
            "words": f"λ of {name} at {known.tokens:,} tokens of {known.text}; {known.source}",
            "coefficients": list(known.coefficients),
            "controls": {},
            "value": encode(known),
            "caveat": f"λ is that of {name} at {known.tokens:,} tokens, at the same relative depth and any length",
            "alone": False,
            "assumed": False,
        }
    drawn = {"drawn": ["coefficients"], "controls": {}, "value": encode(PerLayer((1.0,))), "caveat": None}
    yield _about(PerLayer) | drawn
