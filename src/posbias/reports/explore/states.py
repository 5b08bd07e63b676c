"""An architecture as what is chosen on the page, where its controls can say it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from posbias.core.spec import encode
from posbias.reports.explore.menu import HEADS, MOST_LAYERS
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.positional import NeedsMeasurement


def state_of(architecture: Architecture, choices: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What the page's controls say of an architecture, but for λ nothing and the reason where they cannot.

    `choices` is `posbias.reports.explore.menu.menu`.
    """
    state: dict[str, Any] = {"depth": architecture.depth} | mixing_state(architecture, choices)
    if architecture.depth > MOST_LAYERS:
        return {}, f"{architecture.depth} layers, where the page has at most {MOST_LAYERS}"
    *local, last = (encode(layer) for layer in architecture.layers)
    if local:
        alike = all(one == local[0] for one in local) and last | {"mask": local[0]["mask"]} == local[0]
        if not alike or last["mask"]["kind"] != choices["global"]:
            return {}, "its layers differ in more than a global layer at a fixed period"
        state["every"] = len(architecture.layers)
    layer, reason = _layer_state(architecture.layers[0], choices)
    return ({}, reason) if reason else (state | layer, "")


def mixing_state(architecture: Architecture, choices: Mapping[str, Any]) -> dict[str, Any]:
    """What the page's controls say of λ: a schedule of the menu, else λ by layer."""
    value = encode(architecture.mixing)
    schedules = [one for one in choices["schedules"] if not one.get("drawn")]
    for one in schedules:
        if (numbers := _numbers(value, one)) is not None:
            named = {} if one["alone"] else {"schedule": one["key"]}
            return {"residual": not one["alone"], "scheduled": numbers} | named
    drawn = next(one["key"] for one in choices["schedules"] if one.get("drawn"))
    return {"schedule": drawn, "drawn": architecture.coefficients.tolist()}


def _layer_state(layer: Layer, choices: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What the controls say of a layer, or why they cannot."""
    value = encode(layer)
    mask, positional = value["mask"], value["positional"]
    encoding = _encoding_state(positional, choices)
    content = _content_state(layer)
    if layer.heads not in HEADS:
        return {}, f"{layer.heads} heads, where the page has {', '.join(map(str, HEADS))}"
    if layer.query_scale is not None or layer.temperature != 1 or layer.head_weights is not None:
        return {}, "factors on logits or weights of heads, which its controls do not have"
    if not any(one["key"] == mask["kind"] and one["reason"] is None for one in choices["masks"]):
        return {}, f"a mask that its controls do not have ({mask['kind']})"
    if encoding is None:
        return {}, f"an encoding that its controls do not have ({positional['kind']})"
    if content is None:
        return {}, "content logits or sinks that differ by head"
    numbers = {name: number for name, number in mask.items() if name != "kind"}
    return {"heads": layer.heads, "mask": mask["kind"], "numbers": numbers} | encoding | content, ""


def _encoding_state(value: Mapping[str, Any], choices: Mapping[str, Any]) -> dict[str, Any] | None:
    for one in choices["encodings"]:
        if one["key"] == value["kind"] and one["reason"] is None:
            numbers = {} if value["kind"] == NeedsMeasurement.kind else _numbers(value, one)
            return None if numbers is None else {"encoding": one["key"], "encoded": numbers}
    return None


def _numbers(value: Mapping[str, Any], option: Mapping[str, Any]) -> dict[str, float] | None:
    """The numbers of an option's sliders in an encoded value; None where it has others, or is another."""
    paths = {role: control["path"][0] for role, control in option["controls"].items()}
    fixed = option["value"].keys() - set(paths.values())
    if value.keys() != option["value"].keys() or any(value[key] != option["value"][key] for key in fixed):
        return None
    found = {}
    for role, path in paths.items():
        control = option["controls"][role]
        now, unit = (np.asarray(one, dtype=float) for one in (value[path], control["unit"]))
        if now.shape != unit.shape:
            return None
        at = np.unravel_index(np.argmax(np.abs(unit)), unit.shape)
        number = float(now[at] / unit[at])
        if not np.array_equal(number * unit, now) or not control["least"] <= number <= control["most"]:
            return None
        found[role] = number
    return found


def _content_state(layer: Layer) -> dict[str, Any] | None:
    heads, constant = layer.head_logits(), layer.constant
    columns = {"diagonal": heads.diagonal, "first": heads.first, "constant": constant}
    sinks = heads.sinks + constant
    if any(len(set(column)) > 1 for column in (*columns.values(), sinks)):
        return None
    content = {name: float(column[0]) for name, column in columns.items() if column[0]}
    return {"content": content, "sink": float(sinks[0]) if np.isfinite(sinks[0]) else None}
