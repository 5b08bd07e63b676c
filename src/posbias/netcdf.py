"""Labelled arrays on disk: NetCDF files that say what they are, written whole or not at all.

A dataset's attribute `posbias_kind` tells a measurement from a trained cell; a file of another kind is refused.
With `checksum` its content carries a SHA-256, so that a damaged file is known for one.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.errors import InputFileError, MissingPackageError
from posbias.files import replacing

if TYPE_CHECKING:
    import xarray as xr

_CHECKSUM = "content_checksum"  # (a measurement's `checksum` is its model's)


def save(
    dataset: "xr.Dataset",
    path: str | os.PathLike[str],
    *,
    compressed: Iterable[str] = (),
    dtype: str | None = None,
    checksum: bool = False,
) -> Path:
    """Write a dataset; its variables among `compressed` are, as `dtype` if one is given.

    With `checksum`, the attribute `content_checksum` is added. Raises `OutputFileError` if writing fails, leaving
    nothing behind.
    """
    how = {"zlib": True, "complevel": 4} | ({} if dtype is None else {"dtype": dtype})
    encoding = {name: how for name in compressed if name in dataset}
    if checksum:
        dataset = dataset.assign_attrs({_CHECKSUM: _checksum(dataset)})
    with replacing(path) as temporary:
        try:
            dataset.to_netcdf(temporary, engine="h5netcdf", encoding=encoding)
        except RuntimeError as error:
            # HDF5 reports a failed write (a full disk) this way
            raise OSError(None, str(error).splitlines()[0]) from error
    return Path(path)


def load(path: str | os.PathLike[str], kind: str, *, written_by: str) -> "xr.Dataset":
    """Read a dataset of this `kind` back, whole, into memory; `written_by` is the command that writes such.

    Raises `InputFileError` when the file is missing, is not NetCDF, holds something else, or does not match the
    checksum it carries.
    """
    xarray = need_xarray()
    path = Path(path)
    if not path.is_file():
        raise InputFileError(f"{path}: no such file")
    try:
        with xarray.open_dataset(path, engine="h5netcdf") as opened:
            dataset = opened.load()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputFileError(
            f"{path}: not a readable NetCDF file ({' '.join(str(error).split())[:120]})"
        ) from None
    if dataset.attrs.get("posbias_kind") != kind:
        raise InputFileError(f"{path}: NetCDF, but not a posbias {kind}; write one with {written_by!r}")
    if _CHECKSUM in dataset.attrs and dataset.attrs.pop(_CHECKSUM) != _checksum(dataset):
        raise InputFileError(f"{path}: damaged, its content does not match its checksum")
    return dataset


def need_xarray() -> Any:
    """The module `xarray`. Raises `MissingPackageError` when it or its NetCDF engine is not installed."""
    try:
        import h5netcdf  # noqa: F401
        import xarray
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"{error.name}: not installed, needed for .nc files; run: pip install 'posbias[measure]'"
        ) from None
    return xarray


def _checksum(dataset: "xr.Dataset") -> str:
    """SHA-256 over names, dimensions and values of all variables, and over the attributes."""
    digest = hashlib.sha256()
    for name in sorted(map(str, dataset.variables)):
        variable = dataset.variables[name]
        values = np.asarray(variable.values)
        held = (
            "\0".join(map(str, values.ravel())).encode() if values.dtype.kind in "OUS" else values.tobytes()
        )
        digest.update(f"{name}{variable.dims}{values.shape}".encode() + held)
    for name in sorted(dataset.attrs):
        held = dataset.attrs[name]
        digest.update(f"{name}={held.item() if isinstance(held, np.generic) else held}".encode())
    return digest.hexdigest()
