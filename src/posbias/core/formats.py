"""Files of results: JSON and NetCDF, each with a header that says what it holds, and a digest.

A `Header` says what a file was computed from, with what versions and at what cost. A codec writes a header with
content of its own type, and reads them again: `JsonCodec` a mapping, `NetCDFCodec` an `xarray.Dataset`.
Files are written whole or not at all; what was altered since is noticed.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic_core import to_jsonable_python

from posbias import __version__
from posbias.core import spec
from posbias.core.errors import DamagedError, InputFileError, OtherKindError, SchemaError, wrong
from posbias.core.files import replacing, write_text
from posbias.core.packages import need

if TYPE_CHECKING:
    import xarray as xr


VERSION = __version__
_DIGEST = "digest"


@dataclass(frozen=True)
class Header:
    """What a file says of its content.

    `specification` is all that decides the content, its seed included, in JSON's terms; the fingerprint is of
    that alone, so that neither versions nor cost change it. `amount` is how much was drawn (samples, instances,
    sequences) where more of it serves a smaller wish; it is no part of the specification then. `versions` are
    those that computed it, `cost` what it took. `digest` covers all of this and the content; a codec sets it.
    """

    kind: str
    schema: int
    specification: Mapping[str, Any] = field(default_factory=dict)
    amount: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of the specification."""
        return spec.fingerprint(self.specification)

    @property
    def version(self) -> str:
        """The version of posbias that computed this file's numbers."""
        return self.versions.get("posbias", "")

    def as_dict(self) -> dict[str, Any]:
        """The header as a file has it, what is empty left out."""
        keys = {"posbias_kind": self.kind, "schema": self.schema, "digest": self.digest}
        keys |= {"fingerprint": self.fingerprint, "specification": dict(self.specification)}
        rest = {name: getattr(self, name) for name in ("amount", "versions", "cost")}
        return keys | {name: held for name, held in rest.items() if held not in (None, {}, "")}

    @classmethod
    def of(cls, keys: Mapping[str, Any], path: Any) -> "Header":
        """The header of the file `path` from what `as_dict` made. Raises `DamagedError` for anything else."""
        keys = {"kind" if name == "posbias_kind" else name: held for name, held in keys.items()}
        fingerprint = keys.pop("fingerprint", None)
        try:
            header = cls(**keys)
            if header.fingerprint != fingerprint:
                raise ValueError("of another specification")
        except (TypeError, ValueError):
            raise DamagedError(f"{path}: damaged, its header is not whole") from None
        return header


def versions_here(packages: tuple[str, ...] = ()) -> dict[str, str]:
    """The versions of Python, posbias, numpy and `packages`."""
    named = {name: importlib.metadata.version(name) for name in ("numpy", *packages)}
    return {"python": platform.python_version(), "posbias": VERSION, **named}


class Codec:
    """How a kind of file is written and read: a header in JSON's terms, and content of the codec's own type."""

    suffix = ""

    def write(self, path: Path, header: Header, content: Any) -> Header:
        """Write a file, whole or not at all; return its header with the digest. Raises `OutputFileError`."""
        header, content = self.signed(header, content)
        with replacing(path) as temporary:
            self._write(temporary, header, content)
        return header

    def read(self, path: Path, kind: str, schema: int) -> tuple[Header, Any]:
        """The header and content of a file.

        Raises `OtherKindError` for a file of another kind, `SchemaError` for another schema, `DamagedError` where
        the digest does not match, `InputFileError` when it is missing or cannot be read.
        """
        return self.verified(*self._read(Path(path)), path, kind, schema)

    def signed(self, header: Header, content: Any) -> tuple[Header, Any]:
        """The header with its digest, and the content as it will be read."""
        return replace(header, digest=self._signature(header, content)), content

    def verified(
        self, keys: Mapping[str, Any], content: Any, path: Any, kind: str, schema: int
    ) -> tuple[Header, Any]:
        """Header and content from what a file holds. Raises as `read`."""
        held, version = keys.get("posbias_kind"), keys.get("schema")
        if held != kind:
            holds = f"a posbias {held}" if held else "no posbias result"
            error = OtherKindError(f"{path}: holds {holds}, not a posbias {kind}")
            error.held = held if isinstance(held, str) else None
            raise error
        if version != schema:
            held = "no schema version" if version is None else f"schema version {version}"
            raise SchemaError(f"{path}: {held}, this posbias reads and writes {schema}")
        header = Header.of(keys, path)
        if header.digest != self._signature(header, content):
            raise DamagedError(f"{path}: damaged, its content does not match its digest")
        return header, content

    def _signature(self, header: Header, content: Any) -> str:
        """SHA-256 over a header without its digest, and the content."""
        keys = {name: held for name, held in header.as_dict().items() if name != _DIGEST}
        digest = hashlib.sha256(canonical(keys))
        for part in self._parts(content):
            digest.update(part)
        return digest.hexdigest()

    def _parts(self, content: Any) -> Iterator[Any]:
        """The bytes of the content, one piece after another."""
        raise NotImplementedError

    def _write(self, path: Path, header: Header, content: Any) -> None:
        raise NotImplementedError

    def _read(self, path: Path) -> tuple[Mapping[str, Any], Any]:
        """The keys of the header, and the content. Raises `InputFileError`."""
        raise NotImplementedError


def canonical(data: Any) -> bytes:
    """JSON's terms as bytes that are equal for equal data, in any order of keys; half a character is one too."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="surrogatepass")


# --- JSON -----------------------------------------------------------------------------------------------------


def dump_json(data: Any) -> str:
    """JSON with every float in full; NaN and infinity, which JSON cannot say, become null."""
    plain = to_jsonable_python(data, inf_nan_mode="null", fallback=lambda held: held.tolist())
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)


def save_json(data: Any, path: str | os.PathLike[str]) -> Path:
    """Write `data` as JSON, of a mapping with its SHA-256 as the last key. Raises `OutputFileError`."""
    text = dump_json(data)
    if isinstance(data, Mapping):
        keys = json.loads(text)
        keys.pop(_DIGEST, None)
        text = dump_json(keys | {_DIGEST: hashlib.sha256(canonical(keys)).hexdigest()})
    return write_text(path, text + "\n")


def undamaged(data: Mapping[str, Any], path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `save_json` was given, without its digest; a mapping that somebody wrote has none.

    Raises `DamagedError` where the digest is another's.
    """
    keys = dict(data)
    digest = keys.pop(_DIGEST, None)
    if digest is not None and digest != hashlib.sha256(canonical(keys)).hexdigest():
        raise DamagedError(f"{path}: damaged, its content does not match its digest")
    return keys


def parse_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping that a JSON file of results holds.

    Raises `InputFileError` when it is missing or cannot be read, `DamagedError` when it is no mapping in JSON.
    """
    try:
        data = json.loads(Path(path).read_bytes(), parse_constant=_refuse)
    except OSError as error:
        raise _unreadable(path, error) from None
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: damaged, not valid JSON ({error})") from None
    if not isinstance(data, dict):
        raise DamagedError(f"{path}: damaged, no mapping of keys")
    return data


class JsonCodec(Codec):
    """A header and a mapping in JSON's terms (key `content`) as one JSON file of one line."""

    suffix = ".json"

    def signed(self, header: Header, content: Mapping[str, Any]) -> tuple[Header, Any]:
        """As `Codec` says."""
        keys, content = json.loads(dump_json([replace(header, digest="").as_dict(), content]))
        return super().signed(Header.of(keys, "header"), content)

    def _parts(self, content: Any) -> Iterator[Any]:
        yield canonical(content)

    def _write(self, path: Path, header: Header, content: Any) -> None:
        path.write_text(dump_json(header.as_dict() | {"content": content}) + "\n", encoding="utf-8")

    def _read(self, path: Path) -> tuple[Mapping[str, Any], Any]:
        keys = parse_json(path)
        return keys, keys.pop("content", None)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _unreadable(path: Any, error: OSError) -> InputFileError:
    missing = isinstance(error, FileNotFoundError)
    return InputFileError(
        f"{path}: no such file" if missing else f"{path}: cannot be read: {error.strerror or error}"
    )


# --- NetCDF ---------------------------------------------------------------------------------------------------

_KIND, _PREFIX = "posbias_kind", "posbias_"
_TABLES = ("specification", "versions", "cost")
_FAULTS = (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError)
"""What reading a damaged file raises, where it raises."""


@dataclass(frozen=True)
class NetCDFCodec(Codec):
    """A header and a dataset as one NetCDF file; variables named in `compressed` become compressed float32.

    The header lies in the file's attributes: `posbias_kind`, which a dataset keeps in memory too, and the rest as
    `posbias_schema`, `posbias_specification`, …, with the digest as `posbias_digest`. Needs xarray and netCDF4.
    """

    compressed: tuple[str, ...] = ()

    suffix = ".nc"

    def signed(self, header: Header, content: "xr.Dataset") -> tuple[Header, "xr.Dataset"]:
        """As `Codec` says: large variables as float32."""
        need_xarray()
        large = {name: content[name].astype("float32") for name in self.compressed if name in content}
        return super().signed(header, content.assign(large))

    def _parts(self, content: "xr.Dataset") -> Iterator[Any]:
        own = {name: held for name, held in content.attrs.items() if not str(name).startswith(_PREFIX)}
        yield canonical(_words(own))
        for name in sorted(map(str, content.variables)):
            variable = content.variables[name]
            values = np.asarray(variable.values)
            yield from _bytes(values)
            about = [name, list(map(str, variable.dims)), list(values.shape), _words(variable.attrs)]
            yield canonical(about)

    def _write(self, path: Path, header: Header, content: "xr.Dataset") -> None:
        keys = {name.removeprefix(_PREFIX): held for name, held in header.as_dict().items()}
        own = {_PREFIX + name: json.dumps(held) if name in _TABLES else held for name, held in keys.items()}
        kept = {name: held for name, held in content.attrs.items() if name not in own}
        how = {"zlib": True, "complevel": 4, "dtype": "float32"}
        large = [name for name in self.compressed if name in content]
        texts = {name: _plain(held) for name, held in (kept | own).items() if isinstance(held, str)}
        try:
            content.assign_attrs(kept | own | texts).to_netcdf(
                path, engine="netcdf4", encoding=dict.fromkeys(large, how)
            )
        except (RuntimeError, UnicodeEncodeError) as error:
            # HDF5 reports a failed write (a full disk) in the first way; netCDF4 writes no name that is not UTF-8
            raise OSError(None, str(error).splitlines()[0]) from error

    def _read(self, path: Path) -> tuple[Mapping[str, Any], "xr.Dataset"]:
        dataset = open_netcdf(path)
        own = {name: _plain(held) for name, held in dataset.attrs.items() if str(name).startswith(_PREFIX)}
        dataset.attrs = {
            name: held for name, held in dataset.attrs.items() if name == _KIND or name not in own
        }
        keys = {name if name == _KIND else name.removeprefix(_PREFIX): held for name, held in own.items()}
        try:
            return keys | {name: json.loads(keys[name]) for name in _TABLES if name in keys}, dataset
        except (TypeError, ValueError, RecursionError):
            raise DamagedError(f"{path}: damaged, its header is not whole") from None


def open_netcdf(path: Path) -> "xr.Dataset":
    """Any NetCDF file, whole in memory, verified by nothing.

    Raises `InputFileError` when it is missing, `DamagedError` when it is not NetCDF, `MissingPackageError`.
    """
    xarray = need_xarray()
    if Path(path).is_dir():
        raise wrong(path, "a NetCDF file", got="a folder", kind=InputFileError)
    if not Path(path).is_file():
        raise InputFileError(f"{path}: no such file")
    try:
        with xarray.open_dataset(path, engine="netcdf4") as opened:
            return opened.load()
    except PermissionError as error:
        raise _unreadable(path, error) from None
    except _FAULTS as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        reason = " ".join(str(reason).split())[:120]
        raise DamagedError(f"{path}: not a readable NetCDF file ({reason})") from None


def need_xarray() -> Any:
    """The module `xarray`. Raises `MissingPackageError` when it or its NetCDF engine is not installed."""
    need("netCDF4", "xarray", work="a .nc file")
    import xarray

    return xarray


def _bytes(values: np.ndarray) -> Iterator[Any]:
    """The type and the bytes of an array; of strings, each with its length."""
    if values.dtype.kind in "OUST":
        yield b"text"
        for entry in values.ravel():
            written = str(entry).encode()
            yield str(len(written)).encode() + b":" + written
    else:
        yield values.dtype.str.encode()
        # row by row, without a copy where it is contiguous
        yield np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _words(attributes: Any) -> dict[str, Any]:
    return {str(name): _plain(held) for name, held in attributes.items()}


def _plain(held: Any) -> Any:
    """An attribute as JSON's terms, the same before and after it was in a file; what is no UTF-8 is escaped."""
    if isinstance(held, str):
        return held.encode(errors="backslashreplace").decode()
    if isinstance(held, np.ndarray):
        return _plain(held.tolist())
    if isinstance(held, list | tuple):
        return _plain(held[0]) if len(held) == 1 else [_plain(entry) for entry in held]
    return held.item() if isinstance(held, np.generic) else held
