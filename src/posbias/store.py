"""Results on disk: measurements as NetCDF, profiles as JSON, both written whole or not at all.

A measurement's file carries everything that made it (model, text, seed, versions) in its attributes; its
variables are described in `docs/measurement.md`.
"""

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias import netcdf
from posbias.errors import InputFileError, InvalidValueError
from posbias.files import write_text
from posbias.predictors import measured_influence
from posbias.profile import Profile
from posbias.spec import read_text

if TYPE_CHECKING:
    import xarray as xr

_LARGE = ("kernel", "energy_kernel", "kernel_head", "logits", "content")
"""Variables kept as compressed float32; everything else stays float64."""


def save_measurement(measurement: "xr.Dataset", path: str | os.PathLike[str]) -> Path:
    """Write a measurement to a NetCDF file. Raises `OutputFileError` if that fails, leaving nothing behind."""
    return netcdf.save(measurement, path, compressed=_LARGE, dtype="float32")


def load_measurement(path: str | os.PathLike[str]) -> "xr.Dataset":
    """Read a measurement back, whole, into memory.

    Raises `InputFileError` when the file is missing, is not NetCDF or does not hold a measurement.
    """
    return netcdf.load(path, "measurement", written_by="posbias measure")


def dump_json(data: Any) -> str:
    """JSON with every float in full; NaN and infinity, which JSON cannot say, become null."""
    return json.dumps(_finite(data), ensure_ascii=False, allow_nan=False)


def _finite(data: Any) -> Any:
    match data:
        case dict():
            return {key: _finite(inner) for key, inner in data.items()}
        case np.ndarray():
            return _finite(data.tolist())
        case list() | tuple():
            return [_finite(inner) for inner in data]
        case np.generic():
            return _finite(data.item())
        case float() if not math.isfinite(data):
            return None
    return data


def profile_as_dict(profile: Profile) -> dict[str, Any]:
    """A profile with its statistics, ready for JSON and readable by `load_profile`."""
    return {
        "tokens": profile.tokens,
        "query": profile.query,
        "measures": profile.measures,
        "profile": profile.mass.tolist(),
        "summary": profile.summary.as_dict(),
        "lost": profile.lost,
    }


def save_json(data: Any, path: str | os.PathLike[str]) -> Path:
    """Write `data` as JSON. Raises `OutputFileError`."""
    return write_text(path, dump_json(data) + "\n")


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile: the JSON of a prediction, a plain JSON list of weights, or a measurement's `.nc`.

    A plain list is divided by its sum. Raises `InputFileError` naming what the file holds instead.
    """
    path = Path(path)
    if path.suffix.lower() == ".nc":
        return measured_influence(load_measurement(path))
    try:
        data = json.loads(read_text(path))
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
        raise InputFileError(f"{path}: query: {query!r} given, an integer needed")
    try:
        weights = np.array([float(entry) for entry in listed])
        if isinstance(data, dict):
            return Profile(weights, query=query, measures=measures, lost=data.get("lost", 0.0))
        return Profile.from_weights(weights, measures=measures)
    except (InvalidValueError, OverflowError) as error:
        raise InputFileError(f"{path}: {error}") from None


def _is_number(entry: Any) -> bool:
    return isinstance(entry, int | float) and not isinstance(entry, bool)
