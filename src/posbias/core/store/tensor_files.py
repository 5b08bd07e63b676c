"""safetensors: arrays by name with a note in JSON's terms; the codec of weights and of checkpoints.

Read and written as NumPy arrays, so that torch is not needed. Needs safetensors.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posbias.core.errors import DamagedError, InputFileError, MissingPackageError
from posbias.core.files import replacing
from posbias.core.store.header import Header, canonical, check, digest_of, raw_bytes
from posbias.core.store.json_files import dump_json


class Tensors(NamedTuple):
    """Arrays by name, of any shape and numeric type, and what else belongs to them, in JSON's terms."""

    arrays: Mapping[str, np.ndarray]
    note: Mapping[str, Any] = {}

    @property
    def nbytes(self) -> int:
        """How many bytes the arrays take."""
        return sum(array.nbytes for array in self.arrays.values())


class SafetensorsCodec:
    """A header and `Tensors` as one safetensors file; header and note are JSON in its metadata."""

    suffix = ".safetensors"

    def write(self, path: Path, header: Header, content: Tensors) -> Header:
        """Write a file, whole or not at all; return its header.

        Raises `OutputFileError`, `MissingPackageError`.
        """
        package = _need_safetensors()
        arrays = {name: np.asarray(array, order="C") for name, array in content.arrays.items()}
        content = Tensors(arrays, json.loads(dump_json(content.note)))
        header = replace(header, digest=_digest(header, content))
        told = {"posbias": dump_json(header.as_dict()), "note": dump_json(content.note)}
        with replacing(path) as temporary:
            try:
                # as bytes: `save_file` would begin a file under a name of its own, which nobody clears
                temporary.write_bytes(package.numpy.save(arrays, metadata=told))
            except package.SafetensorError as error:
                raise OSError(None, str(error)) from error
        return header

    def read(self, path: Path, kind: str, schema: int) -> tuple[Header, Tensors]:
        """The header and content of a file. Raises as `JsonCodec.read`; `MissingPackageError`."""
        metadata, arrays = open_tensors(path)
        told = header_keys(metadata)
        check(told, path, kind, schema)
        return verified_tensors(metadata, arrays, path)


def header_keys(metadata: Mapping[str, str]) -> dict[str, Any]:
    """What the metadata of a file says as its header; nothing where that is none."""
    try:
        told = json.loads(metadata["posbias"])
    except (KeyError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def verified_tensors(
    metadata: Mapping[str, str], arrays: Mapping[str, np.ndarray], path: Path
) -> tuple[Header, Tensors]:
    """Header and content of a file as `open_tensors` gave it. Raises `DamagedError` unless the digest matches."""
    header = Header.of(header_keys(metadata), path)
    try:
        content = Tensors(arrays, json.loads(metadata["note"]))
    except (KeyError, ValueError, RecursionError):
        raise DamagedError(f"{path}: damaged, its note is not whole") from None
    if header.digest != _digest(header, content):
        raise DamagedError(f"{path}: damaged, its content does not match its digest")
    return header, content


def open_tensors(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The metadata and arrays of any safetensors file, verified by nothing.

    Raises `InputFileError` when it is missing or cannot be read, `DamagedError` when it is not safetensors.
    """
    package = _need_safetensors()
    try:
        with package.safe_open(path, framework="numpy") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise InputFileError(f"{path}: no such file") from None
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (package.SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"{path}: damaged, not safetensors ({' '.join(str(error).split())[:120]})"
        ) from None


def _digest(header: Header, content: Tensors) -> str:
    """SHA-256 over header, note and arrays, one after another."""
    digest = digest_of(header)
    digest.update(canonical(content.note))
    _add(digest, content.arrays)
    return digest.hexdigest()


def digest_of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, types, shapes and bytes of arrays: the same whoever wrote them, and when."""
    digest = hashlib.sha256()
    _add(digest, arrays)
    return digest.hexdigest()


def _add(digest: "hashlib._Hash", arrays: Mapping[str, np.ndarray]) -> None:
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(canonical([name, array.dtype.str, list(array.shape)]))
        digest.update(raw_bytes(array))


def _need_safetensors() -> Any:
    """The package `safetensors`. Raises `MissingPackageError`."""
    try:
        import safetensors
        import safetensors.numpy
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"{error.name}: not installed, needed for .safetensors files; run: pip install 'posbias[train]'"
        ) from None
    return safetensors
