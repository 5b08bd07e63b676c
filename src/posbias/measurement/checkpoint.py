"""Checkpoints of measurements: a process's own file, those that other processes left, and their removal.

What such a file holds is the state of the finished prompts (`accumulate.State`). It is written after a prompt
whenever all writing so far has taken less than a twentieth of the run. Whoever asked for it removes it, with
`discard_checkpoint`, once the result is safely stored.
"""

import logging
import re
from pathlib import Path

from posbias.core.store import Checkpoint
from posbias.measurement.accumulate import State

log = logging.getLogger(__name__)
_PATIENCE = 20


def begun(path: Path | None, fingerprint: str) -> tuple[Checkpoint, State]:
    """The checkpoint of one job at `path` and the state in it, empty if there is none; resuming is logged.

    Raises `InputFileError` when the file belongs to another job or cannot be read.
    """
    checkpoint = Checkpoint(path, fingerprint, _PATIENCE, least=0.0)
    stored = checkpoint.load()
    if stored is None:
        return checkpoint, State()
    state = State.of(stored)
    log.info("resuming after %d finished prompts from %s", state.finished, path)
    return checkpoint, state


def discard_checkpoint(path: str | Path) -> None:
    """Remove a checkpoint whose measurement has been stored, those of further processes too.

    A missing file is fine.
    """
    for place in (Path(path), *(place for _, place in ranked(Path(path)))):
        place.unlink(missing_ok=True)


def of_rank(path: Path | None, rank: int) -> Path | None:
    """Where a process keeps its checkpoint: job.ending for the first, job.1.ending, job.2.ending, … for others."""
    return path if path is None or rank == 0 else path.with_name(f"{path.stem}.{rank}{path.suffix}")


def ranked(path: Path) -> list[tuple[int, Path]]:
    """The checkpoints beside `path` that processes other than the first left, by their number."""
    ours = re.compile(rf"{re.escape(path.stem)}\.([1-9]\d*){re.escape(path.suffix)}")
    there = path.parent.iterdir() if path.parent.is_dir() else []
    return sorted((int(match[1]), place) for place in there if (match := ours.fullmatch(place.name)))
