"""A folder of results as one file, to be taken to another machine and gone on with there.

    pack(Path("results/train/bias"), Path("bias.zip"))
    unpack(Path("bias.zip"), Path("results/train/bias"))

The archive is a zip file, without compression, of everything that lies in the folder: finished cells, weights,
checkpoints with their pieces, what is trained and not tested. Its first member, `posbias-pack.json`, has the size
and SHA-256 of every other. Unpacking verifies all of them before it writes anything.
"""

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from posbias.errors import DamagedError, InputFileError, OutputFileError, SchemaError
from posbias.files import is_leftover, replacing

CONTENTS = "posbias-pack.json"
"""The member that says what the others are."""
SCHEMA = 1
_BLOCK = 1 << 20
_LAST = (".nc", ".json", ".checkpoint")
"""Files that make others count: weights are written before their cell, pieces before their checkpoint."""


class Packed(NamedTuple):
    """An archive and its folder, the files in it by name with their bytes, and how many of them were written."""

    archive: Path
    folder: Path
    files: dict[str, int]
    written: int


def pack(folder: Path, archive: Path) -> Packed:
    """Write all files of a folder, and of folders in it, to one archive; what nobody writes to meanwhile.

    Left out are files that a writer had begun, and the archive itself. Raises `InputFileError` for a folder that
    is missing, empty or changes, `OutputFileError`.
    """
    if not folder.is_dir():
        raise InputFileError(f"{folder}: no such folder")
    members = [path for path in sorted(folder.rglob("*")) if path.is_file() and not is_leftover(path)]
    members = [path for path in members if path.resolve() != archive.resolve()]
    if not members:
        raise InputFileError(f"{folder}: no files in it")
    names = {path.relative_to(folder).as_posix(): path for path in members}
    try:
        told = {name: _measured(path) for name, path in names.items()}
        with replacing(archive) as temporary, zipfile.ZipFile(temporary, "w") as target:
            target.writestr(
                CONTENTS, json.dumps({"posbias_kind": "pack", "schema": SCHEMA, "files": told}, indent=1)
            )
            for name, path in names.items():
                target.write(path, name)
    except FileNotFoundError as error:
        raise InputFileError(f"{error.filename}: gone while it was packed; a folder at rest needed") from None
    return Packed(archive, folder, {name: held["bytes"] for name, held in told.items()}, len(told))


def unpack(archive: Path, folder: Path) -> Packed:
    """Write the files of an archive to a folder, beside what is there; a file that is there and equal stays.

    Raises `InputFileError` for an archive that is missing, damaged or holds names that leave the folder, and
    `OutputFileError` where another file of a name is there, before anything is written; `OutputFileError` too
    when the disk is full, and then nothing that was written stays.
    """
    with _opened(archive) as source:
        told = _contents(source, archive)
        places = {name: _inside(folder, name, archive) for name in told}
        for name, held in told.items():
            _verify(source, name, held, archive)
        new = [name for name, held in told.items() if not _there(places[name], held)]
        written: list[Path] = []
        try:
            for name in sorted(new, key=lambda name: (name.endswith(_LAST), name)):
                with (
                    replacing(places[name]) as temporary,
                    source.open(name) as member,
                    temporary.open("wb") as file,
                ):
                    shutil.copyfileobj(member, file, _BLOCK)
                written.append(places[name])
        except BaseException:
            for place in written:
                place.unlink(missing_ok=True)
            raise
    return Packed(archive, folder, {name: held["bytes"] for name, held in told.items()}, len(new))


def _measured(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        size, digest = _digest(file)
    return {"bytes": size, "sha256": digest}


def _digest(file: IO[bytes]) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    while block := file.read(_BLOCK):
        size += len(block)
        digest.update(block)
    return size, digest.hexdigest()


@contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(archive) as source:
            yield source
    except FileNotFoundError:
        raise InputFileError(f"{archive}: no such file") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise DamagedError(f"{archive}: damaged, not a whole zip file ({error})") from None
    except OSError as error:
        raise InputFileError(f"{archive}: cannot be read: {error.strerror or error}") from None


def _contents(source: zipfile.ZipFile, archive: Path) -> dict[str, dict[str, Any]]:
    """What the archive says of its members, which are all of them."""
    names = source.namelist()
    # as `pack` writes them: then a member is no longer than the archive, and nothing is decompressed
    if any(
        member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in source.infolist()
    ):
        raise DamagedError(f"{archive}: damaged, its members are compressed or encrypted")
    if CONTENTS not in names:
        raise DamagedError(f"{archive}: no archive of `posbias study pack`")
    try:
        told = json.loads(source.read(CONTENTS))
        files = {
            name: {"bytes": int(held["bytes"]), "sha256": str(held["sha256"])}
            for name, held in told["files"].items()
        }
        schema = told["schema"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DamagedError(f"{archive}: damaged, its {CONTENTS} is not whole") from None
    if schema != SCHEMA:
        raise SchemaError(f"{archive}: schema version {schema}, this posbias reads and writes {SCHEMA}")
    if sorted(names) != sorted([CONTENTS, *files]):
        raise DamagedError(f"{archive}: damaged, its members are not those that {CONTENTS} names")
    return files


def _inside(folder: Path, name: str, archive: Path) -> Path:
    """Where a member goes."""
    pure = PurePosixPath(name)
    place = folder / pure
    safe = not pure.is_absolute() and ".." not in pure.parts and "\\" not in name and "\0" not in name
    if not safe or not place.parent.resolve().is_relative_to(folder.resolve()):
        raise InputFileError(f"{archive}: its member {name!r} leaves the folder; names within it needed")
    return place


def _verify(source: zipfile.ZipFile, name: str, held: dict[str, Any], archive: Path) -> None:
    with source.open(name) as member:
        size, digest = _digest(member)
    if (size, digest) != (held["bytes"], held["sha256"]):
        raise DamagedError(f"{archive}: damaged, its {name} does not match its digest")


def _there(place: Path, held: dict[str, Any]) -> bool:
    """Whether the file is there already. Raises `OutputFileError` for another one."""
    if not os.path.lexists(place):
        return False
    if place.is_file() and not place.is_symlink() and _measured(place) == held:
        return True
    raise OutputFileError(f"cannot write {place}: another file is there; a folder without it needed")
