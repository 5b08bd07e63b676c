"""What the page lets one choose: masks, encodings and schedules of λ, as numbers and as what a file holds.

A member of a union becomes an option by being asked what kernel.py asks it: spans by how they follow its numbers,
slopes or a table of logits by distance, λ by layer. The page composes these, and puts the number of each control,
times its `unit`, at its `field` of `value`; `state_of` is the way back. Members of their own numbers, and those
that kernel.js has no form for, are listed with the reason.
"""

import base64
import dataclasses
import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.core.files import data_table
from posbias.core.spec import encode
from posbias.reports.explore import kernel
from posbias.theory import mixing, positional
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal, NoContent
from posbias.theory.masks import MASKS, Banded, Causal, Split
from posbias.theory.rope_scaling import plain_angles
from posbias.theory.variation import MEASURED, SCALINGS

MOST_LAYERS = 128
HEADS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 15, 16, 20, 24, 25, 32, 40, 48, 56, 64, 96, 112, 128)
"""Numbers of heads to choose from: those of models that have a name, and powers of two."""
PROBES = (64, 128)
TRAINED = 1024
"""Trained length of rotary scalings, where the page begins from nothing."""
SPANS = ("behind", "always", "prefix", "step")
OWN = "its numbers are a model's own: begin from a file that holds them"

Controls = Mapping[str, Sequence[Any]]
"""Sliders by what their number does: `times` multiplies logits (or λ), `power` is the exponent of the distance (or
the layer). Field, label, least, most and first value."""
WORDS: Mapping[str, dict[str, Any]] = data_table(__file__)
"""What a page begins with; titles, sliders and what was chosen, by the `kind` of a member."""
CONTENT: Controls = WORDS["sliders"]["content"]
GIVEN: dict[type, Any] = {
    positional.DecayBias: positional.DecayBias(1.0),
    positional.RoPE: positional.RoPE(((1.0,),), dimension=64),
    positional.T5: positional.T5((tuple(-k / 31 for k in range(32)),), bidirectional=False),
    positional.KerpleLog: positional.KerpleLog((1.0,)),
    positional.KerplePower: positional.KerplePower((1.0,), (1.0,)),
    positional.Sandwich: positional.Sandwich((1.0,)),
    positional.NeedsMeasurement: positional.NeedsMeasurement("rotary or learned"),
    mixing.ConstantMixing: mixing.ConstantMixing(1.0),
    mixing.PowerDecay: mixing.PowerDecay(1.0, 1.0),
}
"""What the menu has of a member that needs numbers; any other is offered as it is, an encoding if all heads share
it."""


def menu() -> dict[str, Any]:
    """Everything to choose from, ready for JSON."""
    return {
        "limits": {
            "layers": MOST_LAYERS,
            "tokens": kernel.MOST_TOKENS,
            "ahead": kernel.MOST_AHEAD,
            "tables": kernel.MOST_DENSE,
            "heads": HEADS,
        },
        "masks": [_mask(cls) for cls in MASKS],
        "global": Causal().kind,
        "encodings": [_encoding(cls) for cls in positional.POSITIONALS],
        "scalings": scalings(TRAINED),
        "scaled": MEASURED["rope_factor"],
        "content": {
            "none": encode(NoContent()),
            **_numbered("content", ConstantDiagonal((0.0,)), CONTENT, unit=[1.0]),
            "sink": {
                "key": "sink",
                "label": "Logit of a learned sink",
                "least": -8,
                "most": 12,
                "first": 0.0,
            },
        },
        "schedules": [*_schedules()],
        "known": _known(),
    }


def _about(cls: Any) -> dict[str, Any]:
    """Key, name and first sentence of a member."""
    words = " ".join((inspect.getdoc(cls) or "").split()).replace("`", "")
    sentence = re.split(r"(?<! al)(?<!\bEq)[.] ", words)[0].rstrip(".")
    return {
        "key": cls.kind,
        "title": WORDS["titles"].get(cls.kind, cls.kind.replace("_", " ")),
        "words": sentence,
    }


def _sliders(cls: Any) -> Controls:
    return WORDS["sliders"].get(cls.kind, {})


def _numbered(part: str, given: Any, controls: Controls, **more: Any) -> dict[str, Any]:
    """A value as a file holds it, and the controls of its numbers; `unit` is what a field holds at 1."""
    value = encode(given)
    keys = ("field", "label", "least", "most", "first")
    named = {role: dict(zip(keys, numbers, strict=True)) for role, numbers in controls.items()}
    return {
        "value": value,
        "controls": [
            {"key": f"{part}.{role}", "role": role, **one, "unit": value[one["field"]], **more}
            for role, one in named.items()
        ],
    }


# ── masks ──


def _mask(cls: Any) -> dict[str, Any]:
    if not issubclass(cls, Banded | Split):
        return _about(cls) | {"reason": kernel.OTHER_KEYS}
    fields = _fields(cls)
    here = dict.fromkeys(fields, PROBES[0])
    span = _span(cls, here)
    controls: dict[str, Sequence[Any]] = {}
    for name, needed in fields.items():
        label = getattr(cls, "varied", "") if needed else "first tokens that are always seen"
        least = 2 if needed else 0
        controls[name] = name, label[:1].upper() + label[1:], least, kernel.MOST_TOKENS, PROBES[0] * needed
    # how many first tokens see each other is at most all
    more = {"unit": 1, "whole": True, "within": span["prefix"] != [0, {}]}
    given = cls(**{name: first for name, *_, first in controls.values()})
    return _about(cls) | {"reason": None, "span": span, **_numbered("mask", given, controls, **more)}


def _fields(cls: Any) -> dict[str, bool]:
    """The fields of a member, and whether each must be given."""
    fields = cls.__pydantic_fields__
    return {name: field.is_required() for name, field in fields.items() if name != "kind"}


def _span(cls: Any, here: dict[str, int]) -> dict[str, Any]:
    """Each number of a span as [what it is at 0, {field: factor}], null where it is all of the text."""
    near = kernel.exported_span(cls(**here), kernel.MOST_TOKENS)
    found: dict[str, Any] = {}
    for key in SPANS:
        if near[key] is None or near["step"] == kernel.MOST_TOKENS:
            found[key] = None
            continue
        offset, factors = near[key], {}
        for name in here:
            far = kernel.exported_span(cls(**here | {name: PROBES[1]}), kernel.MOST_TOKENS)
            factor = (far[key] - near[key]) / (PROBES[1] - PROBES[0])
            if factor:
                factors[name] = factor
                offset -= factor * PROBES[0]
        found[key] = [offset, factors]
    return found


# ── encodings ──


def _encoding(cls: Any) -> dict[str, Any]:
    given = GIVEN.get(cls) or _as_it_is(cls)
    if given is None:
        return _about(cls) | {"reason": OWN}
    caveat = "" if given.exact else getattr(given, "caveat", "")
    return _about(cls) | {
        "reason": kernel.layer_not_expressed(Layer(positional=given)),
        "caveat": "; ".join(filter(None, (WORDS["chosen"].get(cls.kind), caveat))) or None,
        "exact": given.exact,
        **_numbered("encoding", given, _sliders(cls)),
        **_logits(given),
    }


def _as_it_is(cls: Any) -> Any:
    """An encoding without sliders: with its defaults, where it has them all and logits that heads share."""
    if any(_fields(cls).values()):
        return None
    given = cls()
    if given.slopes_of(1) is None and np.ptp(given.logits_at(np.arange(PROBES[0]), 4), axis=0).any():
        return None
    return given


def _logits(given: Any) -> dict[str, Any]:
    """Slopes by number of heads with what they are times after the query, or a table by distance for all heads."""
    if isinstance(given, positional.RoPE):
        return {"waves": given.waves_of(1)[:, 0].tolist(), "turns": turns(given)}
    one = given.slopes_of(1)
    if one is None:
        distances = np.arange(kernel.MOST_DENSE)
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


def scalings(trained: int | None) -> list[dict[str, Any]]:
    """The rotary scalings, by their factor; none that goes by the trained length where that is not known."""
    none = {"key": "none", "title": "none, or the file's own", "words": "", "value": {}, "controls": []}
    made = [SCALINGS[name](1.0, trained) for name in (SCALINGS if trained else ("linear", "ntk"))]
    numbered = (_numbered("scaling", one, _sliders(type(one)), whole=True) for one in made)
    return [none, *(_about(type(one)) | more for one, more in zip(made, numbered, strict=True))]


def turns(rope: positional.RoPE) -> dict[str, Any]:
    """Angles by rotary scaling of a factor f, as kernel.js computes them: θ_l·(keep_l + (1 − keep_l)/f^power_l).

    `plain` are θ_l, `own` the angles and gain as they are; a gain is (1 + `gain`·ln f)².
    """
    made: dict[str, Any] = {"own": [rope.angles.tolist(), rope.gain]}
    if rope.dimension is None or rope.dimension < 4 or rope.base <= 1:
        return made
    plain, trained = plain_angles(rope.base, rope.dimension), getattr(rope.scaling, "trained", TRAINED)
    for make in SCALINGS.values():
        two, three, e = (make(factor, trained) for factor in (2.0, 3.0, math.e))
        twice, thrice = (one.angles_of(rope.base, rope.dimension) / plain for one in (two, three))
        keep, power = 2 * twice - 1, np.ones(len(plain))
        if not np.allclose(keep + (1 - keep) / 3, thrice, rtol=1e-12):
            keep, power = np.zeros(len(plain)), -np.log2(twice)
        made[two.kind] = {"keep": keep.tolist(), "power": power.tolist(), "gain": math.sqrt(e.gain) - 1}
    return made | {"plain": plain.tolist()}


def packed(numbers: Float[np.ndarray, "entry"]) -> dict[str, Any]:
    """Numbers as runs of equal ones where they are few, else their bytes (float64, little-endian) in base 64."""
    ends = np.flatnonzero(np.append(np.diff(numbers) != 0, True))
    if len(ends) <= 64:
        return {"runs": [numbers[ends].tolist(), np.diff(ends, prepend=-1).tolist()]}
    if np.array_equal(numbers, numbers[1] * np.arange(len(numbers))):
        return {"line": [float(numbers[1]), len(numbers)]}
    return {"bytes": base64.b64encode(numbers.astype("<f8").tobytes()).decode()}


# ── λ ──


def _known() -> dict[str, dict[str, list[float]]]:
    """λ of each pretrained model: those of the median's definition, and those of another as checks."""
    models, known = mixing.plausible_mixing(1, mixing.DEFINITION), mixing.known_mixing()
    pretrained = {name: list(known[name].coefficients) for name in mixing.plausible_mixing(1)}
    return {
        "models": {name: values for name, values in pretrained.items() if name in models},
        "checks": {name: values for name, values in pretrained.items() if name not in models},
    }


def _schedules() -> Iterator[dict[str, Any]]:
    """Schedules of λ by layer, the published ones, and what a file holds of any that is drawn by hand.

    Each has a `table` whatever the depth, or is the `median` over known λ at the same relative depth, or has
    `coefficients`, or is `drawn` into that field.
    """
    for cls in mixing.MIXINGS:
        given = GIVEN.get(cls)
        if given is None:
            if any(_fields(cls).values()):
                continue
            given = cls()
        assumed = getattr(given, "assumed", "") or ""
        median = isinstance(given, mixing.TrainedMedian)
        by_layer = {"median": True} if median else {"table": packed(given.values(MOST_LAYERS))}
        yield (
            _about(cls)
            | by_layer
            | {
                **_numbered("schedule", given, _sliders(cls)),
                "caveat": assumed.removeprefix("mixing: ") or None,
                "assumed": bool(assumed),
                "alone": cls is mixing.AttentionOnly,
            }
        )
    for name, known in mixing.known_mixing().items():
        about = f"{name} at {known.tokens:,} tokens"
        yield {
            "key": f"of {name}",
            "title": f"measured in {name}",
            "words": f"λ of {about} of {known.text}; {known.source}",
            "coefficients": list(known.coefficients),
            "caveat": f"λ is that of {about}, at the same relative depth and any length",
            **_numbered("schedule", known, {}),
        }
    yield _about(mixing.PerLayer) | {
        "drawn": "coefficients",
        **_numbered("schedule", mixing.PerLayer((1.0,)), {}),
    }


# ── an architecture as what is chosen ──


def state_of(architecture: Architecture, choices: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What the page's controls say of an architecture, or nothing and the reason where they cannot.

    `choices` is `menu()`.
    """
    state: dict[str, Any] = {"depth": architecture.depth, "every": 0, **mixing_state(architecture, choices)}
    if architecture.depth > MOST_LAYERS:
        return {}, f"{architecture.depth} layers, where the page has at most {MOST_LAYERS}"
    *local, last = (encode(dataclasses.replace(layer, cached=None)) for layer in architecture.layers)
    if local:
        alike = all(one == local[0] for one in local) and last | {"mask": local[0]["mask"]} == local[0]
        if not alike or last["mask"]["kind"] != choices["global"]:
            return {}, "its layers differ in more than a global layer at a fixed period"
        state["every"] = len(architecture.layers)
    layer = architecture.layers[0]
    value = encode(layer)
    scaling = _option_state(value["positional"].pop("scaling", {}), choices["scalings"])
    mask = _option_state(value["mask"], choices["masks"])
    encoding = _option_state(value["positional"], choices["encodings"])
    content = _content_state(layer)
    if layer.heads not in HEADS:
        return {}, f"{layer.heads} heads, where the page has {', '.join(map(str, HEADS))}"
    if layer.query_scale is not None or layer.temperature != 1 or layer.head_weights is not None:
        return {}, "factors on logits or weights of heads, which its controls do not have"
    if mask is None:
        return {}, f"a mask that its controls do not have ({value['mask']['kind']})"
    if encoding is None:
        return {}, f"an encoding that its controls do not have ({value['positional']['kind']})"
    if scaling is None:
        return {}, "a rotary scaling that its controls do not have"
    if content is None:
        return {}, "content logits or sinks that differ by head"
    numbers = state["numbers"] | mask[1] | encoding[1] | scaling[1] | content
    chosen = {"mask": mask[0], "encoding": encoding[0], "scaling": scaling[0]}
    return state | chosen | {"heads": layer.heads, "numbers": numbers}, ""


def mixing_state(architecture: Architecture, choices: Mapping[str, Any]) -> dict[str, Any]:
    """What the page's controls say of λ: a schedule of the menu, else λ by layer."""
    drawn = next(one for one in choices["schedules"] if one.get("drawn"))
    others = [one for one in choices["schedules"] if one is not drawn]
    found = _option_state(encode(architecture.mixing), others)
    if found is None:
        return {"schedule": drawn["key"], "drawn": architecture.coefficients.tolist(), "numbers": {}}
    key, numbers = found
    if key == mixing.AttentionOnly.kind:
        return {"residual": False, "numbers": {}}
    return {"residual": True, "schedule": key, "numbers": numbers}


def _option_state(value: Mapping[str, Any], options: Any) -> tuple[str, dict[str, float]] | None:
    """The option that a value is of, and the numbers of its controls; None where there is none."""
    for one in options:
        if one.get("reason") is None and one["value"].get("kind") == value.get("kind"):
            exact = value.get("kind") != positional.NeedsMeasurement.kind
            if (numbers := _numbers(value, one) if exact else {}) is not None:
                return one["key"], numbers
    return None


def _numbers(value: Mapping[str, Any], option: Mapping[str, Any]) -> dict[str, float] | None:
    """The numbers of an option's controls in an encoded value; None where another field differs."""
    fields = {control["field"] for control in option["controls"]}
    fixed = option["value"].keys() - fields
    if value.keys() != option["value"].keys() or any(value[key] != option["value"][key] for key in fixed):
        return None
    found = {}
    for control in option["controls"]:
        now, unit = (np.asarray(one, dtype=float) for one in (value[control["field"]], control["unit"]))
        if now.shape != unit.shape:
            return None
        at = np.unravel_index(np.argmax(np.abs(unit)), unit.shape)
        number = float(now[at] / unit[at])
        if not np.array_equal(number * unit, now) or not control["least"] <= number <= control["most"]:
            return None
        if control.get("whole") and not number.is_integer():
            return None
        found[control["key"]] = number
    return found


def _content_state(layer: Layer) -> dict[str, float] | None:
    """The numbers of content and sinks; None where they differ by head."""
    heads, constant = layer.head_logits, layer.constant
    columns = {"diagonal": heads.diagonal, "first": heads.first, "constant": constant}
    sinks = heads.sinks + constant
    if any(len(set(column)) > 1 for column in (*columns.values(), sinks)):
        return None
    content = {f"content.{name}": float(column[0]) for name, column in columns.items() if column[0]}
    return content | ({"sink": float(sinks[0])} if np.isfinite(sinks[0]) else {})
