"""NetCDF: labelled arrays; the codec of results that are an `xarray.Dataset`.

The header lies in the file's attributes: `posbias_kind`, which a dataset keeps in memory too, and the rest as
`posbias_schema`, `posbias_specification`, …, with the SHA-256 of the content as `posbias_digest`. Needs xarray
and netCDF4.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.core.errors import DamagedError, InputFileError, MissingPackageError
from posbias.core.files import replacing
from posbias.core.store.header import Header, canonical, check, digest_of, raw_bytes

if TYPE_CHECKING:
    import xarray as xr

_KIND, _PREFIX = "posbias_kind", "posbias_"
_FAULTS = (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError)
"""What reading a damaged file raises, where it raises."""
_TABLES = ("specification", "versions", "cost")


@dataclass(frozen=True)
class NetCDFCodec:
    """A header and a dataset as one NetCDF file; variables named in `compressed` become compressed float32."""

    compressed: tuple[str, ...] = ()

    suffix = ".nc"

    def write(self, path: Path, header: Header, content: "xr.Dataset") -> Header:
        """Write a file, whole or not at all; return its header. Raises `OutputFileError`."""
        need_xarray()
        large = [name for name in self.compressed if name in content]
        header = replace(header, digest=_digest(header, content, large))
        told = _attributes(header)
        kept = {name: held for name, held in content.attrs.items() if name not in told}
        how = {"zlib": True, "complevel": 4, "dtype": "float32"}
        with replacing(path) as temporary:
            try:
                content.assign_attrs(kept | told).to_netcdf(
                    temporary, engine="netcdf4", encoding=dict.fromkeys(large, how)
                )
            except RuntimeError as error:
                # HDF5 reports a failed write (a full disk) this way
                raise OSError(None, str(error).splitlines()[0]) from error
        return header

    def read(self, path: Path, kind: str, schema: int) -> tuple[Header, "xr.Dataset"]:
        """The header and content of a file, whole in memory. Raises as `JsonCodec.read`; `MissingPackageError`."""
        dataset = open_netcdf(path)
        told = _header_keys(dataset.attrs, path)
        check(told, path, kind, schema)
        return verified_dataset(dataset, path)


def verified_dataset(dataset: "xr.Dataset", path: Path) -> tuple[Header, "xr.Dataset"]:
    """The header of what `open_netcdf` gave, of any kind, and the dataset without it.

    Raises `DamagedError` unless the digest matches.
    """
    header = Header.of(_header_keys(dataset.attrs, path), path)
    own = {name: held for name, held in dataset.attrs.items() if name == _KIND or not _of_header(name)}
    dataset.attrs = own
    if header.digest != _digest(header, dataset, ()):
        raise DamagedError(f"{path}: damaged, its content does not match its digest")
    return header, dataset


def _of_header(name: Any) -> bool:
    return str(name).startswith(_PREFIX)


def open_netcdf(path: Path) -> "xr.Dataset":
    """Any NetCDF file, whole in memory, verified by nothing.

    Raises `InputFileError` when it is missing, `DamagedError` when it is not NetCDF, `MissingPackageError`.
    """
    need_xarray()
    if not Path(path).is_file():
        raise InputFileError(f"{path}: no such file")
    try:
        with need_xarray().open_dataset(path, engine="netcdf4") as opened:
            return opened.load()
    except PermissionError as error:
        raise InputFileError(f"{path}: cannot be read: {error.strerror}") from None
    except _FAULTS as error:
        raise DamagedError(unreadable(path, error)) from None


def unreadable(path: Path, error: Exception) -> str:
    """Say that a file is no NetCDF that can be read, and why."""
    return f"{path}: not a readable NetCDF file ({_reason(error)})"


def _reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return " ".join(str(reason).split())[:120]


def need_xarray() -> Any:
    """The module `xarray`. Raises `MissingPackageError` when it or its NetCDF engine is not installed."""
    try:
        import netCDF4  # noqa: F401
        import xarray
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"{error.name}: not installed, needed for .nc files; run: pip install 'posbias[measure]'"
        ) from None
    return xarray


def _attributes(header: Header) -> dict[str, Any]:
    """A header as attributes of a file: mappings as JSON."""
    told = {name.removeprefix(_PREFIX): held for name, held in header.as_dict().items()}
    return {_PREFIX + name: json.dumps(held) if name in _TABLES else held for name, held in told.items()}


def _header_keys(attributes: Any, path: Path) -> dict[str, Any]:
    """What `_attributes` was made from."""
    told = {name: _plain(held) for name, held in attributes.items() if _of_header(name)}
    keys = {name if name == _KIND else name.removeprefix(_PREFIX): held for name, held in told.items()}
    try:
        return keys | {name: json.loads(keys[name]) for name in _TABLES if name in keys}
    except (TypeError, ValueError, RecursionError):
        raise DamagedError(f"{path}: damaged, its header is not whole") from None


def _digest(header: Header, dataset: "xr.Dataset", large: Iterable[str]) -> str:
    """SHA-256 over header, attributes and variables, one after another; those of `large` as float32."""
    digest = digest_of(header)
    own = {name: held for name, held in dataset.attrs.items() if not str(name).startswith(_PREFIX)}
    digest.update(canonical(_words(own)))
    for name in sorted(map(str, dataset.variables)):
        variable = dataset.variables[name]
        values = np.asarray(variable.values, dtype="float32" if name in large else None)
        for part in _bytes(values):
            digest.update(part)
        about = [name, list(map(str, variable.dims)), list(values.shape), _words(variable.attrs)]
        digest.update(canonical(about))
    return digest.hexdigest()


def _bytes(values: np.ndarray) -> Iterator[Any]:
    """The type and the bytes of an array; of strings, each with its length."""
    if values.dtype.kind in "OUST":
        yield b"text"
        for entry in values.ravel():
            written = str(entry).encode()
            yield str(len(written)).encode() + b":" + written
    else:
        yield values.dtype.str.encode()
        yield raw_bytes(values)


def _words(attributes: Any) -> dict[str, Any]:
    return {str(name): _plain(held) for name, held in attributes.items()}


def _plain(held: Any) -> Any:
    """An attribute as JSON's terms, the same before and after it was in a file."""
    if isinstance(held, np.ndarray):
        return _plain(held.tolist())
    if isinstance(held, list | tuple):
        return _plain(held[0]) if len(held) == 1 else [_plain(entry) for entry in held]
    return held.item() if isinstance(held, np.generic) else held
