"""Experiments become cells in a folder: those that are there are taken, the others trained.

A cell is one experiment with all its seeds, in two files (`results`). On a CPU every core trains one cell at a
time; on a GPU compatible cells train together as one ensemble; a cluster trains them on other machines. Whatever
stops it, finished cells stay, and running ones go on from their checkpoints when the same call is made again (on a
cluster they begin anew). No cell is deleted: beside one that is damaged or of another version, or with `again`,
the new one is written as NAME-2, NAME-3, …, and the last good one counts.
"""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from posbias import netcdf
from posbias.errors import InputFileError, InvalidValueError, OutputFileError
from posbias.files import need_writable
from posbias.train.jobs import Job, Progress, Say, write_files
from posbias.train.probes import compared
from posbias.train.results import Cell, load_cell, measure_cell, save_cell
from posbias.train.specification import Experiment, compatible
from posbias.train.spelling import name_of
from posbias.workers import Engine, InProcess, News, Processes, Task, error_of

TOGETHER = 512
"""The most members that train as one ensemble on a GPU."""


def run_cells(
    experiments: Iterable[Experiment],
    folder: str | os.PathLike[str],
    *,
    sequences: int = 2000,
    again: bool = False,
    device: str = "cpu",
    workers: int | None = None,
    engine: Engine | None = None,
    gpus_per_cell: float = 0,
    progress: Progress | None = None,
    say: Say | None = None,
) -> list[Cell]:
    """The cell of every experiment, in order, from `folder` where it is there and whole.

    A cell that was tested on fewer than `sequences` sequences is tested anew, not trained; `again` trains
    everything. `workers` is the number of cores (default: all): so many cells at a time, or threads for a
    single cell. An `engine` takes its place; a cluster sets aside `gpus_per_cell` (a half: two cells side by side
    on one) when `device` is not the CPU. `progress` is called with (iterations done, to do), over the members of
    all cells that are trained; `say` with what is worth a line, such as a damaged file.

    A cell that fails does not stop the others; afterwards its error is raised (the first one's, the rest are
    said). Raises `InvalidValueError` for wrong values before anything is trained, and as `train` does;
    `OutputFileError` when the folder cannot be written; `WorkerError` for a process that keeps being ended from
    without; as the engine does; KeyboardInterrupt on Ctrl-C, saying what is kept.
    """
    wanted, folder, say = list(experiments), Path(folder), say or _silent
    _check_engine(engine, workers, device, gpus_per_cell)
    _check(wanted, folder, sequences, workers)
    found = {one: None if again else find_cell(folder, one, say) for one in wanted}
    jobs = _jobs(
        [one for one, cell in found.items() if cell is None], folder, device != "cpu" and engine is None
    )
    heard = _Heard(jobs, progress or _silent, say)
    if engine is None:
        beside = device == "cpu" and len(jobs) > 1 and (workers or _cores()) > 1
        engine = Processes(workers or _cores()) if beside else InProcess()
    threads = workers if isinstance(engine, InProcess) else 1
    try:
        engine.run(
            [
                Task(
                    f"posbias.train.jobs:{'finish_here' if engine.shares_disk else 'finish_elsewhere'}",
                    {"job": job.as_dict(), "sequences": sequences, "device": device, "threads": threads},
                    label=job.paths[0].stem,
                    gpus=gpus_per_cell,
                )
                for job in jobs
            ],
            heard.hear,
        )
        heard.raise_failures()
        for one, cell in found.items():
            if cell is not None and cell.evaluation.sequences < sequences:
                say(f"testing again, on {sequences:,} sequences: {cell.path}")
                found[one] = save_cell(measure_cell(cell.trained, sequences), cell.path)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        kept = len(found) - sum(len(job.paths) for job in jobs) + heard.finished
        running = " and the running ones' checkpoints" if engine.shares_disk else ""
        raise KeyboardInterrupt(
            f"{kept} of {len(found)} cells{running} are kept in {folder}, the same command goes on from there"
        ) from None
    for job in jobs:
        found |= zip(job.experiments, map(load_cell, job.paths), strict=True)
    return [found[one] for one in wanted]  # type: ignore[misc]


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
        self._failures: dict[int, News] = {}
        self.finished = 0

    def hear(self, number: int, news: News) -> None:
        """News of job `number`; files that come with a result are written."""
        name = self._jobs[number].paths[0].stem
        if "say" in news:
            self._say(news["say"] if name in news["say"] else f"{name}: {news['say']}")
        elif "failed" in news:
            of_worker = news["kind"] == "WorkerError"
            self._failures[number] = news | {"failed": f"{name}: {news['failed']}"} if of_worker else news
        else:
            job = self._jobs[number]
            if "result" in news:
                write_files(job, news["result"])
                self.finished += len(job.paths)
            self._shares[number] = 1.0 if "result" in news else news["done"] / max(1, news["total"])
            done = sum(job.size * share for job, share in zip(self._jobs, self._shares, strict=True))
            self._progress(round(done), sum(job.size for job in self._jobs))

    def raise_failures(self) -> None:
        """Raise the error of the first job that failed, having said those of the others."""
        failures = [self._failures[number] for number in sorted(self._failures)]
        for one in failures[1:]:
            self._say(one["failed"])
        if failures:
            raise error_of(failures[0])


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


def _check_engine(engine: Engine | None, workers: int | None, device: str, gpus: float) -> None:
    """Refuse what would be ignored, or leave cells without their GPU."""
    afar = engine is not None and not engine.shares_disk
    if engine is not None and workers is not None:
        raise InvalidValueError(f"workers: {workers} given together with an engine, one of the two needed")
    if isinstance(gpus, bool) or not isinstance(gpus, int | float) or not 0 <= gpus < float("inf"):
        raise InvalidValueError(f"gpus_per_cell: {gpus!r} given, a number ≥ 0 needed")
    if gpus and not afar:
        raise InvalidValueError(f"gpus_per_cell: {gpus} given without a cluster, which would share them out")
    if gpus and device == "cpu":
        raise InvalidValueError(f"gpus_per_cell: {gpus} given with device cpu, device cuda needed")
    if afar and not gpus and device != "cpu":
        raise InvalidValueError(
            f"device: {device} given on a cluster with gpus_per_cell 0, a share of a GPU such as 1 needed"
        )


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
