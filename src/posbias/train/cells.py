"""Experiments become cells in a folder: those that are there are taken, the others trained.

A cell is one experiment with all its seeds, in two files (`results`). On a CPU every core trains one cell at a
time; on a GPU compatible cells train together as one ensemble. Whatever stops it, finished cells stay, and running
ones go on from their checkpoints when the same call is made again. No cell is deleted: beside one that is damaged
or of another version, or with `again`, the new one is written as NAME-2, NAME-3, …, and the last good one counts.
"""

import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias import netcdf
from posbias.errors import InputFileError, InvalidValueError, OutputFileError
from posbias.files import need_writable
from posbias.spec import decode, encode, fingerprint
from posbias.train.loop import Trained, log_of, train
from posbias.train.probes import compared
from posbias.train.results import (
    Cell,
    load_cell,
    load_trained,
    measure_cell,
    save_cell,
    save_trained,
    weights_path,
)
from posbias.train.specification import Experiment, compatible
from posbias.train.spelling import name_of
from posbias.train.workers import share_out

TOGETHER = 512
"""The most members that train as one ensemble on a GPU."""
Progress = Callable[[int, int], None]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """Experiments that train together, and the file of each."""

    experiments: tuple[Experiment, ...]
    paths: tuple[Path, ...]

    @property
    def size(self) -> int:
        """Iterations, summed over members."""
        return sum(len(one.seeds) * one.iterations for one in self.experiments)

    @property
    def checkpoint(self) -> Path:
        """Where the state of the training is kept, beside the cells."""
        first, *others = self.paths
        all_of_it = " ".join([*map(fingerprint, self.experiments), *(path.stem for path in self.paths)])
        together = f"{len(self.paths)}-cells-{hashlib.sha256(all_of_it.encode()).hexdigest()[:12]}"
        return first.with_name(f".{together if others else first.stem}.checkpoint")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"experiments": [*map(encode, self.experiments)], "paths": [*map(str, self.paths)]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Job":
        """What `as_dict` said."""
        experiments = tuple(decode(Experiment, one) for one in data["experiments"])
        return cls(experiments, tuple(map(Path, data["paths"])))


def run_cells(
    experiments: Iterable[Experiment],
    folder: str | os.PathLike[str],
    *,
    sequences: int = 2000,
    again: bool = False,
    device: str = "cpu",
    workers: int | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
) -> list[Cell]:
    """The cell of every experiment, in order, from `folder` where it is there and whole.

    A cell that was tested on fewer than `sequences` sequences is tested anew, not trained; `again` trains
    everything. `workers` is the number of cores (default: all): so many cells at a time, or threads for a
    single cell. `progress` is called with (iterations done, to do), over the members of all cells that are
    trained; `say` with what is worth a line, such as a damaged file.

    Raises `InvalidValueError` for wrong values before anything is trained, and as `train` does;
    `OutputFileError` when the folder cannot be written; KeyboardInterrupt on Ctrl-C, saying what is kept.
    """
    wanted, folder, say = list(experiments), Path(folder), say or _silent
    _check(wanted, folder, sequences, workers)
    found = {one: None if again else find_cell(folder, one, say) for one in wanted}
    jobs = _jobs([one for one, cell in found.items() if cell is None], folder, together=device != "cpu")
    heard = _Heard(jobs, progress or _silent, say)
    settings: dict[str, Any] = {"sequences": sequences, "device": device}
    cores = workers or _cores()
    try:
        if device == "cpu" and len(jobs) > 1 and cores > 1:
            tasks = [{"job": job.as_dict(), "threads": 1, **settings} for job in jobs]
            share_out(tasks, cores, heard.hear)
        else:
            for number, job in enumerate(jobs):
                finish(job, threads=workers, **settings, **heard.callbacks(number))
                heard.hear(number, {"finished": True})
        for one, cell in found.items():
            if cell is not None and cell.evaluation.sequences < sequences:
                say(f"testing again, on {sequences:,} sequences: {cell.path}")
                found[one] = save_cell(measure_cell(cell.trained, sequences), cell.path)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        kept = len(found) - sum(len(job.paths) for job in jobs) + heard.finished
        raise KeyboardInterrupt(
            f"{kept} of {len(found)} cells and the running ones' checkpoints are kept in {folder}, the same "
            "command goes on from there"
        ) from None
    for job in jobs:
        found |= zip(job.experiments, map(load_cell, job.paths), strict=True)
    return [found[one] for one in wanted]  # type: ignore[misc]


def finish(
    job: Job, *, sequences: int, device: str, threads: int | None, progress: Progress, say: Say
) -> None:
    """Train a job, or go on from where it was left; test it and write its cells. Raises as `run_cells`.

    What is trained is written before the tests, which can take as long as the training on a GPU.
    """
    trained = [_kept(one, path, say) for one, path in zip(job.experiments, job.paths, strict=True)]
    if None in trained:
        settings: dict[str, Any] = {"device": device, "threads": threads, "progress": progress, "say": say}
        trained = train(job.experiments, checkpoint=job.checkpoint, **settings)
        for one, path in zip(trained, job.paths, strict=True):
            save_trained(one, weights_path(path))
    job.checkpoint.unlink(missing_ok=True)
    log_of(job.checkpoint).unlink(missing_ok=True)
    for one, path in zip(trained, job.paths, strict=True):
        assert one is not None
        save_cell(measure_cell(one, sequences), path)


def _kept(experiment: Experiment, path: Path, say: Say) -> Trained | None:
    """What an interrupted job left of a cell that it had trained and not tested."""
    if not weights_path(path).exists():
        return None
    try:
        trained = load_trained(weights_path(path))
    except InputFileError as error:
        say(f"{error}; not used")
        return None
    return trained if trained.experiment == experiment else None


def find_cell(folder: Path, experiment: Experiment, say: Say = lambda line: None) -> Cell | None:
    """The last good cell of an experiment in `folder`, if there is one. Files that are not are named to `say`."""
    there = list(itertools.takewhile(Path.exists, _places(folder, experiment)))
    for path in reversed(there):
        try:
            cell = load_cell(path)
            if cell.experiment != experiment:
                raise InputFileError(f"{path}: holds another experiment than its name says")
            return cell
        except InputFileError as error:
            say(f"{error}; not used")
    return None


class _Heard:
    """What the jobs tell of themselves, as one progress over all."""

    def __init__(self, jobs: Sequence[Job], progress: Progress, say: Say):
        self._jobs, self._progress, self._say = jobs, progress, say
        self._shares = [0.0] * len(jobs)
        self.finished = 0

    def hear(self, number: int, news: dict[str, Any]) -> None:
        """News of job `number`: {"say"}, {"done", "total"} or {"finished"}."""
        if "say" in news:
            self._say(news["say"])
            return
        if "finished" in news:
            self.finished += len(self._jobs[number].paths)
        self._shares[number] = 1.0 if "finished" in news else news["done"] / max(1, news["total"])
        done = sum(job.size * share for job, share in zip(self._jobs, self._shares, strict=True))
        self._progress(round(done), sum(job.size for job in self._jobs))

    def callbacks(self, number: int) -> dict[str, Any]:
        """`progress` and `say` of a job that runs here."""
        return {
            "progress": lambda done, total: self.hear(number, {"done": done, "total": total}),
            "say": self._say,
        }


def _check(experiments: Sequence[Experiment], folder: Path, sequences: int, workers: int | None) -> None:
    """Say before hours of training what would be wrong after them."""
    for name, given in (("sequences", sequences), ("workers", workers)):
        if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
            raise InvalidValueError(f"{name}: {given!r} given, an integer ≥ 1 needed")
    for task in {one.task for one in experiments}:
        compared(task)
    netcdf.need_xarray()
    need_writable(folder / "cell.nc")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputFileError(f"cannot write {folder}: {error.strerror or error}") from None


def _jobs(experiments: Sequence[Experiment], folder: Path, together: bool) -> list[Job]:
    """The jobs, largest first; with `together`, compatible experiments in one."""
    groups: list[list[Experiment]] = []
    for one in experiments:
        fits = (
            group
            for group in groups
            if together
            and compatible(group[0], one)
            and sum(len(other.seeds) for other in [*group, one]) <= TOGETHER
        )
        home = next(fits, None)
        if home is None:
            groups.append([one])
        else:
            home.append(one)
    jobs = [Job(tuple(group), tuple(_free(folder, one) for one in group)) for group in groups]
    return sorted(jobs, key=_cost, reverse=True)


def _cost(job: Job) -> float:
    """Work, so that the longest begins first: a layer costs the same whatever its place."""
    return job.size * job.experiments[0].network.depth


def _places(folder: Path, experiment: Experiment) -> Iterator[Path]:
    """NAME.nc, NAME-2.nc, NAME-3.nc, …"""
    name = name_of(experiment)
    return (folder / f"{name}{'' if number == 1 else f'-{number}'}.nc" for number in itertools.count(1))


def _free(folder: Path, experiment: Experiment) -> Path:
    return next(path for path in _places(folder, experiment) if not path.exists())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _silent(*_: Any) -> None:
    return
