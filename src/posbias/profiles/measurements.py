"""Profiles, measurements and retrievals as files, at whatever path a person gives; and the influence in them.

`docs/measure.md` describes a measurement's file. A profile's is the JSON of a prediction or a plain list.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, FiniteFloat

from posbias.core import machine
from posbias.core.errors import DamagedError, InputFileError, errors_of, is_number, wrong
from posbias.core.files import data_table, read_text
from posbias.core.formats import Header, NetCDFCodec, undamaged
from posbias.core.spec import decode, value
from posbias.profiles.calibration import Calibration
from posbias.profiles.profile import Kind, Profile, measured_influence

if TYPE_CHECKING:
    import xarray as xr

    AnyMeasurement = xr.Dataset | str | os.PathLike[str]

HALVES = EVEN, ODD = "_even", "_odd"
"""What the names of means over prompts with even and with odd numbers end with."""
MEASUREMENT, RETRIEVAL, SCHEMA = "measurement", "retrieval", 2
BUNDLED = Path(__file__).with_name("smollm2-135m.nc")
"""Influence and λ of SmolLM2-135M on 32 prompts of 512 tokens of the bundled text."""


@dataclass(frozen=True)
class Quantity:
    """A variable of a measurement: its dimensions, what it is, its unit, and how its sum over prompts is kept.

    `halved`: even and odd prompts are summed apart. `about`: it is a variance over pairs and prompts about that
    quantity; one prompt gives the variance within it. `causal`: encoders have none, since no output of theirs says
    what comes next, or since it is a mean over earlier keys, which are not all that their queries see.
    """

    dimensions: tuple[str, ...]
    what: str
    unit: str = "1"
    halved: bool = False
    about: str = ""
    causal: bool = False

    @property
    def by_prompt(self) -> bool:
        """Whether it is kept of every prompt."""
        return self.dimensions[0] == "prompt"


Quantities = Mapping[str, Quantity]
_HELD = data_table(__file__, "quantities.toml")
RETRIEVED, QUANTITIES = (
    {name: Quantity(tuple(row.pop("dimensions")), **row) for name, row in rows.items()}
    for rows in (_HELD.pop("retrieval"), _HELD)
)
"""What a retrieval holds, and what a measurement may hold, in the order of its dataset."""
_MATRICES = {name: quantity for name, quantity in QUANTITIES.items() if "query" in quantity.dimensions}
_CODECS = {
    MEASUREMENT: NetCDFCodec(
        compressed=(*_MATRICES, *(name + EVEN for name, held in _MATRICES.items() if held.halved))
    ),
    RETRIEVAL: NetCDFCodec(),
}
"""Matrices of a measurement are kept as compressed float32; everything else stays float64."""
_READ = ("influence", "mixing", "kernel", "energy_kernel", "positional_distance", "logits_distance")
_DIMENSIONS = {
    MEASUREMENT: {name: QUANTITIES[name].dimensions for name in (*_READ, "logits_first_column")},
    RETRIEVAL: {name: one.dimensions for name, one in RETRIEVED.items() if "candidate" not in one.dimensions},
}
"""The dimensions of the variables that are read; a file may lack some of them, or have more variables."""
_NEEDED = {MEASUREMENT: ("influence",), RETRIEVAL: tuple(_DIMENSIONS[RETRIEVAL])}
_ALIKE = {MEASUREMENT: ("position", "query", "key", "distance"), RETRIEVAL: ("position",)}
"""Dimensions that are as long as the text."""
_JSON = ("asked", "job", "rope", "selfcheck", "skipped", "treatment", "versions")
"""Attributes that are JSON, where a file has them."""
_DECIDES = ("checksum", "text_sha256", "attention", "dtype", "asked", "job", "treatment")
"""The attributes that, where a file has them, say what it was computed from."""


def save_measurement(measurement: "xr.Dataset", path: str | os.PathLike[str]) -> Path:
    """Write a measurement to a NetCDF file. Raises `OutputFileError` if that fails, leaving nothing behind."""
    return _save(measurement, path, MEASUREMENT)


def load_measurement(
    path: "AnyMeasurement", needs: tuple[str, ...] = (), of: Mapping[str, Any] | None = None
) -> "xr.Dataset":
    """Read a measurement back, whole, into memory; `needs` are variables it must have in addition to `influence`.

    `smollm2-135m` is one that comes along; one that is in memory is returned as it is. `of`: the name (`model`)
    and `checksum` of the model that it must be of. Raises `InputFileError` when the file is missing, is not
    NetCDF, does not hold a measurement, lacks a variable or is damaged, `InvalidValueError` for a measurement of
    another model, and for what is none of these.
    """
    if not isinstance(path, str | os.PathLike):
        if not hasattr(path, "data_vars"):
            raise wrong("measurement", f"a measurement, its .nc or {BUNDLED.stem}", path)
        return path
    # which says what to install where xarray is absent
    read = _load(BUNDLED if path == BUNDLED.stem else path, MEASUREMENT, needs)
    if of is not None and read.attrs.get("checksum") != of.get("checksum"):
        got = f"{path} of {read.attrs.get('model')!r}, or of other weights"
        raise wrong("measurement", f"one of {of.get('model')!r}", got=got)
    from posbias.profiles.labelled import Measurement

    return Measurement(read.data_vars, read.coords, read.attrs)


def save_retrieval(retrieval: "xr.Dataset", path: str | os.PathLike[str]) -> Path:
    """Write a retrieval to a NetCDF file. Raises `OutputFileError`."""
    return _save(retrieval, path, RETRIEVAL)


def load_retrieval(path: str | os.PathLike[str]) -> "xr.Dataset":
    """Read a retrieval back. Raises as `load_measurement`."""
    return _load(path, RETRIEVAL)


def _save(dataset: "xr.Dataset", path: str | os.PathLike[str], kind: str) -> Path:
    attributes = dataset.attrs
    specification: dict[str, Any] = {name: attributes[name] for name in _DECIDES if name in attributes}
    for name in {"asked", "job", "treatment"} & specification.keys():
        specification[name] = json.loads(specification[name])
    versions = json.loads(attributes.get("versions", "{}"))
    _CODECS[kind].write(Path(path), Header(kind, SCHEMA, specification, versions=versions), dataset)
    return Path(path)


def _load(path: str | os.PathLike[str], kind: str, needs: tuple[str, ...] = ()) -> "xr.Dataset":
    _, dataset = _CODECS[kind].read(Path(path), kind, SCHEMA)
    if fault := _fault(dataset, kind, (*_NEEDED[kind], *needs)):
        raise DamagedError(f"{path}: not a whole {kind}, {fault}")
    return dataset


def _fault(dataset: "xr.Dataset", kind: str, needs: tuple[str, ...]) -> str:
    """What keeps a dataset from being what it says it is; empty where nothing does."""
    for name in needs:
        if name not in dataset.data_vars:
            return f"it has no variable {name!r}"
    for name, dimensions in _DIMENSIONS[kind].items():
        if name not in dataset.data_vars:
            continue
        held = tuple(map(str, dataset[name].dims))
        if held != dimensions:
            return f"its {name} is by {', '.join(held) or 'nothing'}, not by {', '.join(dimensions)}"
        if dataset[name].dtype.kind not in "fiub":
            return f"its {name} is no numbers"
    sizes = {name: dataset.sizes[name] for name in _ALIKE[kind] if name in dataset.sizes}
    if len({*sizes.values()}) > 1:
        return "it has " + " and ".join(f"{size} along {name!r}" for name, size in sizes.items())
    for name in _JSON:
        try:
            json.loads(dataset.attrs.get(name, "{}"))
        except (TypeError, ValueError, RecursionError):
            return f"its attribute {name!r} is not JSON"
    return ""


# --- profiles --------------------------------------------------------------------------------------------------


@value
class _Prediction:
    """What of a prediction's JSON is read, apart from its numbers."""

    query: int = -1
    lost: FiniteFloat = 0.0
    left_out: tuple[str, ...] = ()
    measures: str = "rollout"
    kind: Kind = "mass"
    architecture: Mapping[str, Any] = Field(default_factory=dict)
    calibration: Calibration | None = None


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile: the JSON of a prediction, a plain JSON list of weights, or a measurement's `.nc`.

    A plain list is divided by its sum. Raises `InputFileError` naming what the file holds instead.
    """
    path = Path(path)
    if path.suffix.lower() == ".nc":
        return influence_in(path)
    try:
        text = read_text(path)
        machine.require(64 * (text.count(",") + text.count("[")), f"{path}: bytes", len(text))
        data = json.loads(text)
        data = undamaged(data, path) if isinstance(data, dict) else data
    except (RecursionError, ValueError) as error:
        why = "JSON nested too deeply" if isinstance(error, RecursionError) else f"invalid JSON ({error})"
        raise InputFileError(f"{path}: expected a prediction, a list or a .nc, got {why}") from None
    listed = data.get("profile") if isinstance(data, dict) else data
    if not isinstance(listed, list) or not all(map(is_number, listed)) or not listed:
        raise InputFileError(f"{path}: holds no list of numbers and no key 'profile' with one")
    with errors_of(path):
        weights = np.array(listed, dtype=np.float64)
        if not isinstance(data, dict):
            return Profile.from_weights(weights, measures="weights")
        said = decode(
            _Prediction, {key: data[key] for key in _Prediction.__dataclass_fields__ if key in data}
        )
        about = {key: getattr(said, key) for key in ("query", "left_out", "measures", "kind", "calibration")}
        model = str(said.architecture.get("name") or "")
        return Profile(weights, missing_mass=said.lost, model=model, **about)


def influence_in(path: str | os.PathLike[str]) -> Profile:
    """The influence that a measurement's file holds. Raises as `load_measurement`."""
    with errors_of(path):
        return measured_influence(load_measurement(path))
