"""Files of measurements and retrievals, at whatever path a person gives; `docs/measurement.md` describes them."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.store.header import Header
from posbias.store.netcdf_files import NetCDFCodec

if TYPE_CHECKING:
    import xarray as xr

MEASUREMENT, RETRIEVAL, SCHEMA = "measurement", "retrieval", 2
_CODECS = {
    MEASUREMENT: NetCDFCodec(
        compressed=(
            "kernel",
            "kernel_even",
            "energy_kernel",
            "energy_kernel_even",
            "kernel_head",
            "logits",
            "content",
        )
    ),
    RETRIEVAL: NetCDFCodec(),
}
"""Matrices of a measurement are kept as compressed float32; everything else stays float64."""
_COMMANDS = {MEASUREMENT: "posbias measure", RETRIEVAL: "posbias retrieve"}
_DECIDES = ("checksum", "text_sha256", "attention", "dtype", "asked", "job")
"""The attributes that, where a file has them, say what it was computed from."""


def save_measurement(measurement: "xr.Dataset", path: str | os.PathLike[str]) -> Path:
    """Write a measurement to a NetCDF file. Raises `OutputFileError` if that fails, leaving nothing behind."""
    return _save(measurement, path, MEASUREMENT)


def load_measurement(path: str | os.PathLike[str]) -> "xr.Dataset":
    """Read a measurement back, whole, into memory.

    Raises `InputFileError` when the file is missing, is not NetCDF, does not hold a measurement or is damaged.
    """
    return _load(path, MEASUREMENT)


def save_retrieval(retrieval: "xr.Dataset", path: str | os.PathLike[str]) -> Path:
    """Write a retrieval to a NetCDF file. Raises `OutputFileError`."""
    return _save(retrieval, path, RETRIEVAL)


def load_retrieval(path: str | os.PathLike[str]) -> "xr.Dataset":
    """Read a retrieval back. Raises as `load_measurement`."""
    return _load(path, RETRIEVAL)


def _save(dataset: "xr.Dataset", path: str | os.PathLike[str], kind: str) -> Path:
    attributes = dataset.attrs
    specification: dict[str, Any] = {name: attributes[name] for name in _DECIDES if name in attributes}
    for name in {"asked", "job"} & specification.keys():
        specification[name] = json.loads(specification[name])
    versions = json.loads(attributes.get("versions", "{}"))
    _CODECS[kind].write(Path(path), Header(kind, SCHEMA, specification, versions=versions), dataset)
    return Path(path)


def _load(path: str | os.PathLike[str], kind: str) -> "xr.Dataset":
    _, dataset = _CODECS[kind].read(Path(path), kind, SCHEMA, made_by=_COMMANDS[kind])
    return dataset
