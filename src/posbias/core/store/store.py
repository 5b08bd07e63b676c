"""Finished cells in a folder: each in a file of its own, found by the fingerprint of its specification.

    FOLDER/simulate-dimension16-seed0-1f0c….json        a cell: words, twelve digits of its fingerprint
    FOLDER/simulate-dimension16-seed0-1f0c…-2.json      the same computed again; the newest good file counts

Nothing is deleted or overwritten: a file that does not load, or was made by another version of posbias, stays, and
its cell is computed again under the next number. Several runs may share a folder: equal cells give equal results,
so if two compute the same one the last writer wins, and what they wrote differs in cost alone.
"""

import datetime
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from posbias.core import files, spec
from posbias.core.errors import DamagedError, InputFileError, SchemaError
from posbias.core.store.header import VERSION, Header, versions_here

log = logging.getLogger(__name__)
_NAME = re.compile(r"[^.].*-(?P<digits>[0-9a-f]{12})(-(?P<number>\d+))?(?P<suffix>\.\w+)")


class Codec(Protocol):
    """How the content of a kind of file is written and read; `content` is of the codec's own type."""

    @property
    def suffix(self) -> str:
        """What its files end in."""
        ...

    def write(self, path: Path, header: Header, content: Any) -> Header:
        """Write a file, whole or not at all; return its header with the digest. Raises `OutputFileError`."""
        ...

    def read(self, path: Path, kind: str, schema: int) -> tuple[Header, Any]:
        """Read a file and verify it. Raises `InputFileError`."""
        ...


class StoredCell(Protocol):
    """What the store needs to know of a cell: what it is, what decides its result, how that is written."""

    @property
    def kind(self) -> str:
        """The word by which its files are told from others."""
        ...

    @property
    def schema(self) -> int:
        """The version of how its files are laid out."""
        ...

    @property
    def codec(self) -> Codec:
        """How its files are written and read."""
        ...

    @property
    def specification(self) -> Mapping[str, Any]:
        """All that decides the result, the seed included, in JSON's terms."""
        ...

    @property
    def name(self) -> str:
        """Words for its file, without digits of its fingerprint."""
        ...

    def to_content(self, result: Any) -> Any:
        """What the codec writes of a result."""
        ...

    def from_content(self, header: Header, content: Any) -> Any:
        """The result again. Raises `InvalidValueError`, KeyError, TypeError or ValueError if it is none."""
        ...


@dataclass(frozen=True, eq=False)
class Stored:
    """A finished cell: its result, its file and what that says of itself."""

    result: Any
    header: Header
    path: Path


class Store:
    """The finished cells in `folder`, which need not exist before something is saved.

    The folder is listed once, when first looked into; a new store sees what others have written since.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        self._listed: dict[str, list[tuple[int, Path]]] | None = None

    def find(
        self, cell: StoredCell, *, at_least: int | None = None, any_version: bool = False
    ) -> Stored | None:
        """The newest good file of a cell, with an amount of `at_least` if that is given; None if there is none.

        Files that do not load are named to the log, and so are those of another main version of posbias (the
        first two numbers) unless `any_version`. Raises `SchemaError` for another schema.
        """
        for path in self._files(cell):
            try:
                stored = load(cell, path)
            except SchemaError:
                raise
            except InputFileError as error:
                log.warning("%s, computed again", error)
                continue
            if not any_version and _main(stored.header.version) != _main(VERSION):
                made = stored.header.version
                log.warning("%s: made by posbias %s, this is %s; kept, computed again", path, made, VERSION)
            elif at_least is None or (stored.header.amount or 0) >= at_least:
                return stored
        return None

    def save(
        self,
        cell: StoredCell,
        result: Any,
        cost: Mapping[str, Any] | None = None,
        *,
        versions: Mapping[str, str] | None = None,
        amount: int | None = None,
        number: int | None = None,
    ) -> Stored:
        """Write the result of a cell to a file of its own, beside those that it has; return it as `find` would.

        `number` is that of the file, by default `next_number`: equal runs that each fixed it before they began
        leave one file.

        `cost` is what computing took, to which the time is added unless it says that; `versions` are those that
        computed it, by default those here; `amount` is how much was drawn, if that is no part of the
        specification. Raises `OutputFileError`.
        """
        finished = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        header = Header(
            kind=cell.kind,
            schema=cell.schema,
            specification=cell.specification,
            amount=amount,
            versions=versions_here() if versions is None else versions,
            cost={"finished": finished} | dict(cost or {}),
        )
        digits, number = _digits(cell), number or self.next_number(cell)
        ending = "" if number == 1 else f"-{number}"
        path = self.folder / f"{cell.name}-{digits}{ending}{cell.codec.suffix}"
        cell.codec.write(path, header, cell.to_content(result))
        self._listing().setdefault(digits, []).append((number, path))
        return load(cell, path)

    def next_number(self, cell: StoredCell) -> int:
        """The number that the next file of a cell gets: one more than the greatest when the folder was listed.

        What a killed writer left without a file of the cell itself, such as weights alone, is written again.
        """
        listed, suffix = self._listing().get(_digits(cell), []), cell.codec.suffix
        return max((number for number, path in listed if path.suffix == suffix), default=0) + 1

    def clear_leftovers(self) -> None:
        """Remove what writers of this machine that were killed had begun."""
        files.clear_leftovers(self.folder)

    def _files(self, cell: StoredCell) -> list[Path]:
        """The files of a cell, the newest first."""
        listed = sorted(self._listing().get(_digits(cell), []), reverse=True)
        return [path for _, path in listed if path.suffix == cell.codec.suffix]

    def _listing(self) -> dict[str, list[tuple[int, Path]]]:
        """Number and path of every file, by the digits of its name."""
        if self._listed is None:
            self._listed = {}
            for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else []:
                if match := _NAME.fullmatch(path.name):
                    numbered = int(match["number"] or 1), path
                    self._listed.setdefault(match["digits"], []).append(numbered)
        return self._listed


def load(cell: StoredCell, path: Path) -> Stored:
    """The finished cell of a file, whatever its name. Raises `InputFileError`."""
    return stored_of(cell, *cell.codec.read(path, cell.kind, cell.schema), path)


def stored_of(cell: StoredCell, header: Header, content: Any, path: Path) -> Stored:
    """The finished cell that a codec has read from a file. Raises `DamagedError`."""
    if header.fingerprint != spec.fingerprint(cell.specification):
        raise DamagedError(f"{path}: damaged, it holds another cell than its name says")
    try:
        return Stored(cell.from_content(header, content), header, path)
    except InputFileError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise DamagedError(f"{path}: damaged, not a whole {cell.kind} ({reason})") from None


def _digits(cell: StoredCell) -> str:
    return spec.fingerprint(cell.specification)[:12]


def _main(version: str) -> list[str]:
    """The first two numbers of a version: those that say whether results may differ."""
    return version.split(".")[:2]
