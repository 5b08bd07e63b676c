"""How many layers a model's files say it has, held against what they hold: asked before so many are built."""

import mmap
import re
import struct
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from posbias.errors import InputFileError, ModelError
from posbias.input_files import read_mapping
from posbias.spec import MOST_LAYERS

_FEW = 256
"""Layers that may share their weights, as those of some families do."""
_HEADER = 1 << 26
"""Bytes of a GGUF file in which its metadata is looked for."""
# a key of GGUF's metadata, its type (uint32, uint64) and its value
_BLOCKS = re.compile(rb"\.block_count(?:\x04\0\0\0(.{4})|\x0a\0\0\0(.{8}))", re.DOTALL)


def check_layers_said(path: Path) -> None:
    """Raise `ModelError` when a GGUF file, or a folder's config.json, says more layers than any model has.

    Configurations of some families make lists of that length. What cannot be read is for the loader to refuse.
    """
    if path.suffix == ".gguf":
        said = _blocks_of(path)
    else:
        try:
            said = max(_layers_of(read_mapping(path / "config.json")), default=0)
        except InputFileError as error:
            raise ModelError(f"model: {path} could not be loaded: {error}") from None
    if said > MOST_LAYERS:
        raise ModelError(f"model: {path} says {said} layers, at most {MOST_LAYERS:,} needed")


def check_layers_held(depth: int, path: Path) -> None:
    """Raise `ModelError` when a model of `depth` layers cannot be in the tensors of its files."""
    if depth <= _FEW:
        return
    with suppress(OSError, ValueError, struct.error, zipfile.BadZipFile):
        tensors = _tensors_of(path)
        if depth > tensors:
            raise ModelError(
                f"model: {path} says {depth} layers and holds {tensors} tensors, at least one a layer needed"
            )


def _layers_of(held: Any) -> Iterator[int]:
    """Every number in a configuration that counts layers."""
    for key, value in held.items() if isinstance(held, dict) else ():
        if isinstance(value, dict):
            yield from _layers_of(value)
        elif "layer" in str(key) and isinstance(value, int):
            yield value


def _blocks_of(path: Path) -> int:
    if path.stat().st_size == 0:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
        match = _BLOCKS.search(held, 0, _HEADER)
        return int.from_bytes(match[1] or match[2], "little") if match else 0


def _tensors_of(path: Path) -> int:
    """How many tensors the files of a model hold."""
    if path.suffix == ".gguf":
        with path.open("rb") as file:
            return struct.unpack("<4sIQ", file.read(16))[2]
    if parts := [*path.glob("*.safetensors")]:
        return sum(map(_tensors_in, parts))
    return sum(len(zipfile.ZipFile(part).namelist()) for part in path.glob("pytorch_model*.bin"))


def _tensors_in(part: Path) -> int:
    import safetensors

    try:
        with safetensors.safe_open(part, framework="numpy") as file:
            return len(file.keys())
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from None
