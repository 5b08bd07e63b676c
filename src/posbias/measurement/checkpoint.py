"""What survives an interruption: the finished prompts of one job, in one file.

A checkpoint is a plain `.npz` (no pickle) with the float64 state, written whole or not at all, and carries
the fingerprint of its job. It is written after a prompt whenever twenty times the last writing time has
passed, so it costs at most a twentieth of the run. Whoever asked for it removes it, with
`discard_checkpoint`, once the result is safely stored.
"""

import logging
import re
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np

from posbias import files
from posbias.errors import InputFileError, PosbiasError
from posbias.measurement.accumulate import State

log = logging.getLogger(__name__)
_PATIENCE = 20
_MEAN, _ROW = "mean.", "row."


class Checkpoint:
    """The checkpoint file of one job; with path `None` nothing is read or written.

    That a file is resumed from, or damaged and ignored, is logged.
    """

    def __init__(self, path: Path | None, fingerprint: str):
        self._path = path
        self._fingerprint = fingerprint
        self._written = 0
        self._cost = 0.0
        self._last = float("-inf")

    def load(self) -> State:
        """Return the stored state, or an empty one when there is no file or it is damaged.

        Raises `InputFileError` when the file belongs to another job or cannot be read.
        """
        if self._path is None or not self._path.exists():
            return State()
        try:
            with self._path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            fingerprint = str(arrays.pop("fingerprint"))
            state = _state(arrays)
        except (
            ValueError,
            KeyError,
            IndexError,
            EOFError,
            zipfile.BadZipFile,
            zlib.error,
            NotImplementedError,
        ):
            log.warning("checkpoint %s is damaged: starting over", self._path)
            return State()
        except OSError as error:
            raise InputFileError(
                f"checkpoint: {self._path} cannot be read: {error.strerror or error}"
            ) from error
        if fingerprint != self._fingerprint:
            raise InputFileError(
                f"checkpoint: {self._path} belongs to another job ({fingerprint[:12]}, this one is "
                f"{self._fingerprint[:12]}); give another file or remove it"
            )
        log.info("resuming after %d finished prompts from %s", state.finished, self._path)
        self._written = state.finished
        return state

    def forgotten(self) -> State:
        """Return an empty state in place of the one that was loaded; the next writing replaces the file."""
        self._written = 0
        return State()

    def keep_up(self, state: State) -> None:
        """Write `state` if writing has become cheap against the time since the last writing."""
        if time.monotonic() - self._last >= _PATIENCE * self._cost:
            self.write(state)

    def write_after(self, state: State, error: BaseException) -> None:
        """Write `state` because of `error`, which is to be raised on; a failure to write becomes its note."""
        try:
            self.write(state)
        except PosbiasError as failure:
            if failure is not error:
                error.add_note(str(failure))

    def write(self, state: State) -> None:
        """Write `state` unless it is already there. Raises `OutputFileError`."""
        if self._path is None or state.finished == self._written:
            return
        begin = time.monotonic()
        with files.replacing(self._path) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **_arrays(state), fingerprint=np.array(self._fingerprint))
        self._written = state.finished
        self._last = time.monotonic()
        self._cost = self._last - begin


def discard_checkpoint(path: str | Path) -> None:
    """Remove a checkpoint whose measurement has been stored, those of further processes too.

    A missing file is fine.
    """
    Path(path).unlink(missing_ok=True)
    for _, place in ranked(Path(path)):
        place.unlink(missing_ok=True)


def of_rank(path: Path | None, rank: int) -> Path | None:
    """Return where a process keeps its checkpoint: job.npz for the first, job.1.npz, job.2.npz, … for others."""
    return path if path is None or rank == 0 else path.with_name(f"{path.stem}.{rank}{path.suffix}")


def ranked(path: Path) -> list[tuple[int, Path]]:
    """Return the checkpoints beside `path` that processes other than the first left, by their number."""
    ours = re.compile(rf"{re.escape(path.stem)}\.([1-9]\d*){re.escape(path.suffix)}")
    there = path.parent.iterdir() if path.parent.is_dir() else []
    found = ((ours.fullmatch(place.name), place) for place in there)
    return sorted((int(match[1]), place) for match, place in found if match)


def _arrays(state: State) -> dict[str, np.ndarray]:
    rows = {_ROW + name: state.column(name) for name in state.rows[0]}
    means = {_MEAN + name: mean for name, mean in state.means.items()}
    return {"finished": np.array(state.finished), "seconds": np.array(state.seconds), **means, **rows}


def _state(arrays: dict[str, np.ndarray]) -> State:
    finished = int(arrays["finished"])
    columns = {name.removeprefix(_ROW): array for name, array in arrays.items() if name.startswith(_ROW)}
    rows = tuple({name: column[index] for name, column in columns.items()} for index in range(finished))
    means = {name.removeprefix(_MEAN): array for name, array in arrays.items() if name.startswith(_MEAN)}
    return State(finished, means, rows, float(arrays["seconds"]))
