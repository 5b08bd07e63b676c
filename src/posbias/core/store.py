"""Cells: computations that can be done alone, anywhere and again, each kept in a file of its own.

    FOLDER/simulate-dimension16-seed0-1f0c….json        a cell: words, twelve digits of its fingerprint
    FOLDER/simulate-dimension16-seed0-1f0c…-2.json      the same computed again; the newest good file counts

A `Cell` says what decides its result; its file in a `Store` is found by the fingerprint of that. `compute` takes
what a store has and computes the rest on an engine, each result written as it comes. A `Checkpoint` keeps the
state of one unfinished computation.

Nothing is deleted or overwritten: a file that does not load, or was made by another version of posbias, stays, and
its cell is computed again under the next number. Several runs may share a folder: equal cells give equal results,
so if two compute the same one the last writer wins, and what they wrote differs in cost alone.
"""

import datetime
import itertools
import json
import logging
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from posbias.core import files, spec
from posbias.core.errors import DamagedError, InputFileError, PosbiasError, SchemaError
from posbias.core.files import replacing
from posbias.core.formats import VERSION, Header, JsonCodec, dump_json, versions_here
from posbias.core.packages import need
from posbias.core.progress import OnEvent
from posbias.core.running import Engine, Failed, InProcess, Task, run

log = logging.getLogger(__name__)
LEAST = 2.0
"""Seconds between two writings of a checkpoint at least, unless another number is given."""
RATE = 100e6
"""Bytes a second that a disk is taken to write of what no writing has timed yet."""
_NOTE = "note"
_NAME = re.compile(r"[^.].*-(?P<digits>[0-9a-f]{12})(-(?P<number>\d+))?\.\w+")


class Cell:
    """A computation whose result is decided by its `specification`; a class of cells is a subclass.

    `kind` is the word in its files and `schema` the version of their layout, `codec` writes and reads them.
    `amount` is how much it draws, where a result of more serves as well; None where the specification decides
    that. Progress is counted in `unit`s; `cores` and `gpus` are what it takes.
    """

    kind = ""
    schema = 1
    codec: Any = JsonCodec()
    amount: int | None = None
    unit = "cell"
    cores: int = 1
    gpus: float = 0.0

    @property
    def specification(self) -> Mapping[str, Any]:
        """All that decides the result, the seed included, in JSON's terms."""
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of the specification, equal for equal ones in any order of keys."""
        return spec.fingerprint(self.specification)

    @property
    def name(self) -> str:
        """Words for its file, without digits of its fingerprint."""
        return self.kind

    @property
    def label(self) -> str:
        """What people read."""
        return self.name

    @property
    def size(self) -> float:
        """How many `unit`s it is."""
        return 1.0

    @property
    def packages(self) -> tuple[str, ...]:
        """What it needs beyond the base packages; their versions are kept with its result."""
        return ()

    def compute(self, on_event: OnEvent) -> Any:
        """The result; of any type that other processes can send back. Raises what it cannot do."""
        raise NotImplementedError

    def to_content(self, result: Any) -> Any:
        """What the codec writes of a result."""
        return result

    def from_content(self, header: Header, content: Any) -> Any:
        """The result again. Raises `InvalidValueError`, KeyError, TypeError or ValueError if it is none."""
        return content

    def read(self, path: Path) -> "Stored":
        """The finished cell of a file, whatever its name. Raises `InputFileError`."""
        header, content = self.codec.read(path, self.kind, self.schema)
        return self.restored(header, content, path)

    def restored(self, header: Header, content: Any, path: Path) -> "Stored":
        """The finished cell that the codec has read from a file. Raises `DamagedError`."""
        if header.fingerprint != self.fingerprint:
            raise DamagedError(f"{path}: damaged, it holds another cell than its name says")
        try:
            return Stored(self.from_content(header, content), header, path)
        except InputFileError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:120]
            raise DamagedError(f"{path}: damaged, not a whole {self.kind} ({reason})") from None


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
        self._listed: dict[tuple[str, str], list[tuple[int, Path]]] | None = None

    def find(self, cell: Cell, *, at_least: int | None = None) -> Stored | None:
        """The newest good file of a cell, with an amount of `at_least` if that is given; None if there is none.

        Files that do not load are logged, and so are those of another main version of posbias (the first two
        numbers). Raises `SchemaError` for another schema.
        """
        for _, path in sorted(self._numbered(cell), reverse=True):
            try:
                stored = cell.read(path)
            except SchemaError:
                raise
            except InputFileError as error:
                log.warning("%s, computed again", error)
                continue
            made = stored.header.version
            if made.split(".")[:2] != VERSION.split(".")[:2]:
                log.warning("%s: made by posbias %s, this is %s; kept, computed again", path, made, VERSION)
            elif at_least is None or (stored.header.amount or 0) >= at_least:
                return stored
        return None

    def save(
        self,
        cell: Cell,
        result: Any,
        cost: Mapping[str, Any] | None = None,
        *,
        versions: Mapping[str, str] | None = None,
        amount: int | None = None,
    ) -> Stored:
        """Write the result of a cell to a new file, and return it as `find` would.

        Its number is one more than the greatest when the folder was listed, so that equal runs leave one file.
        `cost` is what computing took, to which the time is added unless it says that; `versions`
        are those that computed it, by default those here; `amount` is how much was drawn, if that is no part of
        the specification. Raises `OutputFileError`.
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
        digits, listed = cell.fingerprint[:12], self._numbered(cell)
        number = 1 + max((number for number, _ in listed), default=0)
        ending = "" if number == 1 else f"-{number}"
        path = self.folder / f"{cell.name}-{digits}{ending}{cell.codec.suffix}"
        cell.codec.write(path, header, cell.to_content(result))
        listed.append((number, path))
        return cell.read(path)

    def _numbered(self, cell: Cell) -> list[tuple[int, Path]]:
        """The files of a cell, each with its number."""
        if self._listed is None:
            self._listed = {}
            for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else []:
                if match := _NAME.fullmatch(path.name):
                    numbered = int(match["number"] or 1), path
                    self._listed.setdefault((match["digits"], path.suffix), []).append(numbered)
        return self._listed.setdefault((cell.fingerprint[:12], cell.codec.suffix), [])


AnyCell = TypeVar("AnyCell", bound=Cell)


class Computed(NamedTuple):
    """Cells that are finished, those that failed, and which of them were computed: the store had none."""

    stored: dict[Any, Stored]
    failed: dict[Any, Failed]
    new: tuple[Any, ...]

    def results(self) -> dict[Any, Any]:
        """The result of every cell. Raises the error of the first that failed."""
        for failed in self.failed.values():
            raise failed.error()
        return {cell: stored.result for cell, stored in self.stored.items()}


def compute(
    cells: Iterable[AnyCell],
    store: Store,
    *,
    engine: Engine | None = None,
    again: bool = False,
    on_event: OnEvent | None = None,
) -> Computed:
    """Take the cells that a store has, of their amounts at least, and compute the rest on an engine.

    Without an engine they are computed here. What killed writers of this machine had begun is removed. Every
    result is written as it comes; a cell that fails is logged and stops no other. `again` computes all and leaves
    earlier files. `on_event` is called with the progress in the cells' units. Raises `MissingPackageError` before
    any cell, `SchemaError`, `OutputFileError`, what the engine raises, and KeyboardInterrupt on Ctrl-C, saying
    what is kept.
    """
    engine = engine or InProcess()
    files.clear_leftovers(store.folder)
    held = {cell: None if again else store.find(cell, at_least=cell.amount) for cell in cells}
    stored = {cell: one for cell, one in held.items() if one is not None}
    missing = tuple(cell for cell in held if cell not in stored)
    unit = next((cell.unit for cell in held), "cell")
    if engine.shares_disk:  # what is installed is installed for each of its processes
        need(*dict.fromkeys(name for cell in missing for name in cell.packages), work=f"a {unit}")

    def keep(cell: AnyCell, done: tuple[Any, dict[str, Any], dict[str, str]]) -> None:
        result, cost, versions = done
        cost["engine"] = type(engine).__name__
        stored[cell] = store.save(cell, result, cost, versions=versions, amount=cell.amount)

    failed = run(
        {cell: Task(perform_cell, {"cell": cell}, cell.label, cell.cores, cell.gpus) for cell in missing},
        keep,
        engine=engine,
        sizes={cell: cell.size for cell in missing},
        unit=unit,
        on_event=on_event,
        kept=lambda: f"{len(stored)} of {len(held)} cells are kept in {store.folder}",
    )
    return Computed({cell: stored[cell] for cell in held if cell in stored}, failed, missing)


def perform_cell(cell: Cell, on_event: OnEvent | None = None) -> tuple[Any, dict[str, Any], dict[str, str]]:
    """Compute a cell, wherever that is: its result, what it cost, and the versions that computed it."""
    began, used = time.monotonic(), time.process_time()
    result = cell.compute(on_event or (lambda event: None))
    unit = 1 if sys.platform == "darwin" else 1024
    cost = {
        "seconds": time.monotonic() - began,
        "cpu_seconds": time.process_time() - used,
        "cores": cell.cores,
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    }
    return result, cost, versions_here(cell.packages)


def file_of_job(
    place: Path, name: str, held: Callable[[Path], object], fingerprint: str, rerun: bool = False
) -> tuple[Path, bool]:
    """The file of a job whose place a person chose, and whether it is finished: else the first name that is free.

    `place` is a .nc file or the folder of a file `name`; `held` is the fingerprint in a file. Those of other jobs
    stay, and with `rerun` all do: a.nc, a-2.nc, …, or folder, folder-2, …. What a killed writer began there goes.
    """
    stem, suffix = (place.stem, ".nc") if place.suffix == ".nc" else (place.name, "")
    for number in itertools.count(1):
        spot = place.with_name(f"{stem}{f'-{number}' if number > 1 else ''}{suffix}")
        file = spot if suffix else spot / name
        files.clear_leftovers(file.parent)
        if not file.exists():
            return file, False
        if held(file) == fingerprint and not rerun:
            return file, True
    raise AssertionError


class Tensors(NamedTuple):
    """Arrays by name, of any shape and numeric type, and what else belongs to them, in JSON's terms."""

    arrays: Mapping[str, np.ndarray]
    note: Mapping[str, Any] = {}

    @property
    def nbytes(self) -> int:
        """How many bytes the arrays take."""
        return sum(array.nbytes for array in self.arrays.values())


class Checkpoint:
    """The checkpoint file of the computation with this fingerprint; with path `None` nothing is read or written.

    It is one .npz file, whose parts have checksums.

    Before each writing pass `patience` times the seconds that the last one took (`RATE` before the first), and
    `least` seconds.
    """

    def __init__(self, path: Path | None, fingerprint: str, patience: float, least: float | None = None):
        self._path, self._fingerprint, self._patience = path, fingerprint, patience
        self._least = LEAST if least is None else least
        self._end, self._took = time.monotonic(), 0.0
        self._next = self._end + self._least
        self._note: object = None

    def load(self) -> Tensors | None:
        """The stored state, or None when there is no file or it is damaged, which is logged.

        Raises `InputFileError` when the file belongs to another computation or cannot be read.
        """
        if self._path is None:
            return None
        try:
            with self._path.open("rb") as file, np.load(file) as held:
                arrays = dict(held)
            note = json.loads(str(arrays.pop(_NOTE)))
            fingerprint, note = str(note["fingerprint"]), note["note"]
        except (FileNotFoundError, NotADirectoryError):
            return None  # not yet, or removed by an equal run that has finished
        except OSError as error:
            raise InputFileError(f"checkpoint: {self._path}: cannot be read: {error.strerror}") from None
        except Exception:  # NumPy raises many kinds for what it has not written
            log.warning("checkpoint %s is damaged: starting over", self._path)
            return None
        if fingerprint != self._fingerprint:
            raise InputFileError(
                f"checkpoint: {self._path} belongs to another job ({fingerprint[:12]}, this one is "
                f"{self._fingerprint[:12]}); give another file or remove it"
            )
        self._note = note
        return Tensors(arrays, note)

    def forget(self) -> None:
        """Take what was loaded for nothing; the next writing replaces the file."""
        self._note = None

    def keep_up(self, state: Callable[[], Tensors]) -> None:
        """Write what `state` returns if the share of the run allows it. Raises `OutputFileError`."""
        if self._path is None or time.monotonic() < self._next:
            return
        tensors = state()
        self._next = self._end + self._patience * max(self._took, tensors.nbytes / RATE)
        if time.monotonic() >= self._next:
            self.write(lambda: tensors)

    def write(self, state: Callable[[], Tensors]) -> None:
        """Write what `state` returns, if it is something and not in the file already. Raises `OutputFileError`."""
        if self._path is None:
            return
        begin, tensors = time.monotonic(), state()
        if not tensors.arrays or (tensors.note and tensors.note == self._note):
            return
        note = json.loads(dump_json(tensors.note))
        about = dump_json({"fingerprint": self._fingerprint, "note": note})
        with replacing(self._path) as temporary, temporary.open("wb") as file:
            held: Any = {**tensors.arrays, _NOTE: np.array(about)}
            np.savez(file, **held)
        self._end, self._note = time.monotonic(), note
        self._took, self._next = self._end - begin, self._end + self._least

    def write_after(self, state: Callable[[], Tensors], error: BaseException) -> None:
        """Write because of `error`, which is to be raised on; a failure to write becomes its note."""
        try:
            self.write(state)
        except PosbiasError as failure:
            if failure is not error:
                error.add_note(str(failure))
