"""Tensors in several safetensors files of a limited size, that are there together or not at all.

    NAME                    the note, and with it what the pieces are called and their digests
    NAME.1f0c22aa-0.piece   the arrays, one after another, cut where a piece is full
    NAME.1f0c22aa-1.piece

NAME is written last, and new pieces have new names: until then it is the old state that is whole, and what a
killed writer left of the new one is removed at the next writing. What fits in one file is written as one.
"""

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from posbias.core.errors import DamagedError, OutputFileError
from posbias.core.store.header import Header
from posbias.core.store.tensor_files import SafetensorsCodec, Tensors

SIZE = 15 * 2**20
"""Bytes of arrays in a file at most: with header and note it stays below 16 MiB."""
_KIND, _KEY = "piece", "pieces"


def write_pieces(path: Path, header: Header, content: Tensors) -> None:
    """Write arrays and note, all of it or none. Raises `OutputFileError`."""
    codec, old = SafetensorsCodec(), pieces_of(path)
    if content.nbytes <= SIZE:
        codec.write(path, header, content)
    else:
        token, digests = secrets.token_hex(4), dict[str, str]()
        try:
            for number, piece in enumerate(_cut(content.arrays)):
                place = path.with_name(f"{path.name}.{token}-{number}.piece")
                digests[place.name] = codec.write(place, replace(header, kind=_KIND), Tensors(piece)).digest
            shapes = {name: list(array.shape) for name, array in content.arrays.items()}
            note = {**content.note, _KEY: {"digests": digests, "shapes": shapes}}
            codec.write(path, header, Tensors({}, note))
        except OutputFileError:
            _remove(place for place in pieces_of(path) if place not in old)
            raise
    _remove(old)


def read_pieces(path: Path, kind: str, schema: int) -> tuple[Header, Tensors]:
    """What `write_pieces` wrote. Raises as `SafetensorsCodec.read`, `DamagedError` for a missing piece."""
    codec = SafetensorsCodec()
    header, content = codec.read(path, kind, schema)
    note = dict(content.note)
    cut = note.pop(_KEY, None)
    if cut is None:
        return header, content
    arrays: dict[str, np.ndarray] = {}
    filled = dict.fromkeys(cut["shapes"], 0)
    for name, digest in cut["digests"].items():
        place = path.with_name(name)
        if not place.is_file():
            raise DamagedError(f"{path}: damaged, its piece {name} is missing")
        own, piece = codec.read(place, _KIND, schema)
        if own.digest != digest:
            raise DamagedError(f"{path}: damaged, its piece {name} is of another state")
        for array, part in piece.arrays.items():
            whole = arrays.setdefault(array, np.empty(cut["shapes"][array], part.dtype)).reshape(-1)
            whole[filled[array] : filled[array] + part.size] = part
            filled[array] += part.size
    return header, Tensors(arrays, note)


def remove_pieces(path: Path) -> None:
    """Remove a file with its pieces; what is missing is fine."""
    path.unlink(missing_ok=True)
    _remove(pieces_of(path))


def pieces_of(path: Path) -> list[Path]:
    """The pieces that lie beside a file, its own and those that a killed writer left."""
    names = re.compile(rf"{re.escape(path.name)}\.[0-9a-f]{{8}}-\d+\.piece")
    there = path.parent.iterdir() if path.parent.is_dir() else ()
    return [place for place in there if names.fullmatch(place.name)]


def _cut(arrays: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """The arrays as rows of numbers, in pieces of `SIZE` bytes at most."""
    piece: dict[str, np.ndarray] = {}
    free = SIZE
    for name, array in arrays.items():
        flat = np.ascontiguousarray(array).reshape(-1)
        piece[name], rest = np.split(flat, [free // flat.itemsize])
        while rest.size:
            yield piece
            piece, free = {}, SIZE
            piece[name], rest = np.split(rest, [free // flat.itemsize])
        free -= piece[name].nbytes
    if piece:
        yield piece


def _remove(places: Iterable[Path]) -> None:
    for place in places:
        place.unlink(missing_ok=True)
