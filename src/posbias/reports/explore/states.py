"""An architecture as what is chosen on the page, where its controls can say it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from posbias.core.spec import encode
from posbias.reports.explore.menu import HEADS, MOST_LAYERS
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.positional import NeedsMeasurement

PATTERN = "its layers differ in more than every so many-th one that sees all"


def state_of(architecture: Architecture, choices: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What the page's controls say of an architecture, but for λ nothing and the reason where they cannot.

    `choices` is `posbias.reports.explore.menu.menu`.
    """
    state: dict[str, Any] = {"depth": architecture.depth} | mixing_state(architecture, choices)
    if architecture.depth > MOST_LAYERS:
        return {}, f"{architecture.depth} layers, where the page has at most {MOST_LAYERS}"
    *local, last = (encode(layer) for layer in architecture.layers)
    if local:
        wide = last | {"mask": local[0]["mask"]}
        if (
            any(one != local[0] for one in local)
            or wide != local[0]
            or last["mask"]["kind"] != choices["global"]
        ):
            return {}, PATTERN
        state["every"] = len(architecture.layers)
    layer = _layer_state(architecture.layers[0], choices)
    return ({}, layer) if isinstance(layer, str) else (state | layer, "")


def mixing_state(architecture: Architecture, choices: Mapping[str, Any]) -> dict[str, Any]:
    """What the page's controls say of λ: a schedule of the menu, else λ by layer."""
    spelt = encode(architecture.mixing)
    for one in choices["schedules"]:
        numbers = {} if one.get("drawn") else _numbers(spelt, one)
        if not one.get("drawn") and numbers is not None:
            return {"residual": not one["alone"], "scheduled": numbers} | (
                {} if one["alone"] else {"schedule": one["key"]}
            )
    drawn = next(one["key"] for one in choices["schedules"] if one.get("drawn"))
    return {"schedule": drawn, "drawn": architecture.coefficients.tolist()}


def _layer_state(layer: Layer, choices: Mapping[str, Any]) -> dict[str, Any] | str:
    """What the controls say of a layer, or why they cannot."""
    spelt = encode(layer)
    if layer.heads not in HEADS:
        return f"{layer.heads} heads, where the page has {', '.join(map(str, HEADS))}"
    if layer.query_scale is not None or layer.temperature != 1 or layer.head_weights is not None:
        return "factors on logits or weights of heads, which its controls do not have"
    mask = next(
        (one for one in choices["masks"] if one["key"] == spelt["mask"]["kind"]), {"reason": "unknown"}
    )
    if mask["reason"] is not None:
        return f"a mask that its controls do not have ({spelt['mask']['kind']})"
    encoding = _encoding_state(spelt["positional"], choices)
    if encoding is None:
        return f"an encoding that its controls do not have ({spelt['positional']['kind']})"
    content = _content_state(layer)
    if content is None:
        return "content logits or sinks that differ by head"
    numbers = {name: value for name, value in spelt["mask"].items() if name != "kind"}
    return {"heads": layer.heads, "mask": mask["key"], "numbers": numbers} | encoding | content


def _encoding_state(spelt: Mapping[str, Any], choices: Mapping[str, Any]) -> dict[str, Any] | None:
    for one in choices["encodings"]:
        if one["key"] != spelt["kind"] or one["reason"] is not None:
            continue
        exempt = spelt["kind"] == NeedsMeasurement.kind
        numbers = {} if exempt else _numbers(spelt, one)
        if numbers is not None:
            return {"encoding": one["key"], "encoded": numbers}
    return None


def _numbers(spelt: Mapping[str, Any], option: Mapping[str, Any]) -> dict[str, float] | None:
    """The numbers of an option's sliders in a spelt value; None where the value has others, or is another."""
    paths = {role: control["path"][0] for role, control in option["controls"].items()}
    fixed = option["value"].keys() - set(paths.values())
    if spelt.keys() != option["value"].keys() or any(spelt[key] != option["value"][key] for key in fixed):
        return None
    found = {}
    for role, path in paths.items():
        control = option["controls"][role]
        now, unit = (np.asarray(one, dtype=float) for one in (spelt[path], control["unit"]))
        if now.shape != unit.shape:
            return None
        at = np.unravel_index(np.argmax(np.abs(unit)), unit.shape)
        value = float(now[at] / unit[at])
        if not np.array_equal(value * unit, now) or not control["least"] <= value <= control["most"]:
            return None
        found[role] = value
    return found


def _content_state(layer: Layer) -> dict[str, Any] | None:
    heads, constant = layer.head_logits(), layer.constant
    columns = {"diagonal": heads.diagonal, "first": heads.first, "constant": constant}
    sinks = heads.sinks + constant
    if any(len(set(column)) > 1 for column in (*columns.values(), sinks)):
        return None
    content = {name: float(column[0]) for name, column in columns.items() if column[0]}
    return {"content": content, "sink": float(sinks[0]) if np.isfinite(sinks[0]) else None}
