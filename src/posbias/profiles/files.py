"""Profiles as files: a prediction's JSON, a plain list, a measurement's influence."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from posbias.core import memory
from posbias.core.arguments import shortened
from posbias.core.errors import InputFileError, InvalidValueError
from posbias.core.input_files import read_text
from posbias.core.store import undamaged
from posbias.profiles.influence import measured_influence
from posbias.profiles.measurements import load_measurement
from posbias.profiles.profile import Profile


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile: the JSON of a prediction, a plain JSON list of weights, or a measurement's `.nc`.

    A plain list is divided by its sum. Raises `InputFileError` naming what the file holds instead.
    """
    path = Path(path)
    if path.suffix.lower() == ".nc":
        return influence_in(path)
    try:
        text = read_text(path)
        memory.require(64 * (text.count(",") + text.count("[")), f"{path}: bytes", len(text))
        data = json.loads(text)
        data = undamaged(data, path) if isinstance(data, dict) else data
    except RecursionError:
        raise InputFileError(f"{path}: nested too deeply; a prediction, a list or a .nc needed") from None
    except ValueError as error:
        raise InputFileError(
            f"{path}: not valid JSON ({error}); a prediction, a list or a .nc needed"
        ) from None
    listed = data.get("profile") if isinstance(data, dict) else data
    if not isinstance(listed, list) or not all(_is_number(entry) for entry in listed) or not listed:
        raise InputFileError(f"{path}: holds no list of numbers and no key 'profile' with one")
    query = data.get("query", -1) if isinstance(data, dict) else -1
    measures = str(data.get("measures", "rollout")) if isinstance(data, dict) else "weights"
    if isinstance(query, bool) or not isinstance(query, int):
        raise InputFileError(f"{path}: query: {shortened(query)} given, an integer needed")
    try:
        weights = np.array([float(entry) for entry in listed])
        if isinstance(data, dict):
            left_out = data.get("left_out", [])
            if not isinstance(left_out, list):
                raise InvalidValueError(f"left_out: {shortened(left_out)} given, a list of texts needed")
            left_out = tuple(map(str, left_out))
            kind, missing = data.get("kind", "mass"), data.get("lost", 0.0)
            about = {"query": query, "measures": measures, "left_out": left_out, "kind": kind}
            about["attrs"] = _named(data)
            return Profile(weights, missing_mass=missing, **about)
        return Profile.from_weights(weights, measures=measures)
    except (InvalidValueError, OverflowError) as error:
        raise InputFileError(f"{path}: {error}") from None


def influence_in(path: str | os.PathLike[str]) -> Profile:
    """The influence that a measurement's file holds. Raises as `load_measurement`."""
    measurement = load_measurement(path)
    try:
        return measured_influence(measurement)
    except InvalidValueError as error:
        raise InputFileError(f"{path}: {error}") from None


def _named(prediction: Mapping[str, Any]) -> dict[str, str]:
    """The model that a prediction's JSON is about, and that whose measurement of its length calibrated it."""
    architecture, calibration = (prediction.get(name) for name in ("architecture", "calibration"))
    names = {"model": isinstance(architecture, dict) and architecture.get("name")}
    if isinstance(calibration, dict) and calibration.get("tokens") == prediction.get("tokens"):
        names["calibrated_by"] = calibration.get("model")
    return {key: name for key, name in names.items() if name and isinstance(name, str)}


def _is_number(entry: Any) -> bool:
    return isinstance(entry, int | float) and not isinstance(entry, bool)
