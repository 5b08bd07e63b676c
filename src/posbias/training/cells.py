"""Experiments become cells in a folder: those that are there are taken, the others trained.

A cell is one experiment with all its seeds (`results`), in a store. On a CPU every core trains one cell at a time;
on a GPU compatible cells train together as one ensemble; a cluster trains them on other machines. Whatever stops
it, finished cells stay, and running ones go on from their checkpoints when the same call is made again (on a
cluster they begin anew). No cell is deleted: next to one that is damaged or of another version, or with `again`,
the new one is written as NAME-2, NAME-3, …, and the last good one counts.

A `Job` is what trains together and becomes cells of a store, here or on another machine.
"""

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from posbias.core.errors import InputFileError, InvalidValueError, OutputFileError, counted, shortened, whole
from posbias.core.files import need_writable, write_bytes
from posbias.core.formats import need_xarray
from posbias.core.machine import cores
from posbias.core.progress import OnEvent
from posbias.core.running import Engine, InProcess, Processes, Task, run
from posbias.core.spec import decode, encode, fingerprint, value
from posbias.core.store import Store
from posbias.training.experiments import Experiment, compatible, name_of
from posbias.training.loop import Trained, check_device, log_of, train
from posbias.training.network import Rotary
from posbias.training.probes import compared
from posbias.training.results import (
    Cell,
    TrainingCell,
    load_cell,
    load_trained,
    measure_cell,
    save_numbered,
    save_trained,
    weights_path,
)

log = logging.getLogger(__name__)


@value
class Job:
    """Experiments that train together, the folder of their cells, and the numbers that their files get there.

    The numbers are fixed before anything is trained, so that equal runs leave one file each; none: the next ones.
    """

    experiments: tuple[Experiment, ...]
    folder: Path
    numbers: tuple[int, ...] = ()

    @classmethod
    def of(cls, experiments: Iterable[Experiment], store: Store) -> "Job":
        """The job whose files get the next numbers of a store."""
        together = tuple(experiments)
        return cls(together, store.folder, tuple(store.next_number(TrainingCell(one)) for one in together))

    def save(
        self, experiment: Experiment, cell: Cell, versions: Mapping[str, str] | None = None
    ) -> Path | None:
        """Save the cell of one of the experiments, and return its file. Raises `OutputFileError`."""
        number = self.numbers[self.experiments.index(experiment)] if self.numbers else None
        return save_numbered(cell, self.folder, versions, number).path

    @property
    def size(self) -> int:
        """Iterations, summed over members."""
        return sum(len(experiment.seeds) * experiment.iterations for experiment in self.experiments)

    @property
    def work(self) -> int:
        """What it takes, in any unit: every layer costs the same."""
        return self.size * self.experiments[0].network.depth

    @property
    def label(self) -> str:
        """What it is called: the first cell's name."""
        return name_of(self.experiments[0])

    @property
    def checkpoint(self) -> Path:
        """Where the state of the training is kept, next to the cells."""
        digits = hashlib.sha256(" ".join(map(fingerprint, self.experiments)).encode()).hexdigest()[:12]
        name = self.label if len(self.experiments) == 1 else f"{len(self.experiments)}-cells-{digits}"
        return self.folder / f".{name}.checkpoint"

    @property
    def weights(self) -> list[Path]:
        """Where what is trained and not tested is kept, by experiment."""
        return [untested(self.folder, experiment) for experiment in self.experiments]

    def discard(self) -> None:
        """Remove what an unfinished training has left."""
        self.checkpoint.unlink(missing_ok=True)
        log_of(self.checkpoint).unlink(missing_ok=True)


def untested(folder: Path, experiment: Experiment) -> Path:
    """Where the weights of an experiment are kept until it is tested."""
    return folder / f".{name_of(experiment)}.safetensors"


def finish(
    job: Job,
    *,
    sequences: int,
    device: str,
    threads: int | None,
    tests: bool = True,
    on_event: OnEvent | None = None,
) -> list[Path]:
    """Train a job, or go on from where it was left; test it and save its cells. Raises as `run_cells`.

    What is trained is written before the tests, which can take as long as the training on a GPU; without `tests`
    it is all, and what is returned.
    """
    weights = job.weights
    trained = [_left(path, own) for path, own in zip(weights, job.experiments, strict=True)]
    if None in trained:
        trained = train(
            job.experiments, checkpoint=job.checkpoint, device=device, threads=threads, on_event=on_event
        )
        for path, own in zip(weights, trained, strict=True):
            save_trained(own, path)
    job.discard()
    if not tests:
        return weights
    cells = []
    for path, own in zip(weights, trained, strict=True):
        assert own is not None
        cells.append(job.save(own.experiment, measure_cell(own, sequences)))
        path.unlink(missing_ok=True)
    return cells


def finish_here(job: dict[str, Any], **settings: Any) -> list[str]:
    """`finish` as a task whose files can be written where they belong; returns the paths."""
    return [*map(str, finish(decode(Job, job), **settings))]


def finish_elsewhere(job: dict[str, Any], **settings: Any) -> dict[str, bytes]:
    """`finish` as a task on another machine: in a temporary folder; returns the files by name."""
    with tempfile.TemporaryDirectory(prefix="posbias-cells-") as folder:
        made = finish(replace(decode(Job, job), folder=Path(folder)), **settings)
        both = (path for one in made for path in dict.fromkeys((weights_path(one), one)))
        return {path.name: path.read_bytes() for path in both}


def take_files(job: Job, files: Mapping[str, bytes]) -> list[str]:
    """Save what `finish_elsewhere` returned, and drop what an earlier run on this machine had begun."""
    if all(path.name in files for path in job.weights):
        for path in job.weights:
            write_bytes(path, files[path.name])
        job.discard()
        return [*map(str, job.weights)]
    with tempfile.TemporaryDirectory(prefix="posbias-cells-") as folder:
        for name, content in files.items():
            write_bytes(Path(folder) / name, content)
        brought = [Store(folder).find(TrainingCell(experiment)) for experiment in job.experiments]
    paths = []
    for experiment, stored in zip(job.experiments, brought, strict=True):
        if stored is None:
            raise InputFileError(f"{name_of(experiment)}: damaged on its way from another machine")
        paths.append(str(job.save(experiment, stored.result, stored.header.versions)))
    job.discard()
    return paths


def _left(path: Path, experiment: Experiment) -> Trained | None:
    """What an interrupted job left of a cell that it had trained and not tested."""
    if not path.exists():
        return None
    try:
        trained = load_trained(path)
    except InputFileError as error:
        log.warning("%s; not used", error)
        return None
    return trained if trained.experiment == experiment else None


TOGETHER = 512
"""The most members that train as one ensemble on a GPU."""


def run_cells(
    experiments: Iterable[Experiment],
    folder: str | os.PathLike[str],
    *,
    sequences: int = 2000,
    tests: bool = True,
    again: bool = False,
    device: str = "cpu",
    workers: int | None = None,
    engine: Engine | None = None,
    gpus_per_cell: float = 0,
    on_event: OnEvent | None = None,
) -> list[Cell]:
    """The cell of every experiment, in order, from `folder` where it is there and whole.

    A cell that was tested on fewer than `sequences` sequences is tested anew, not trained; `again` trains
    everything. Without `tests` what is not there is only trained: its weights are kept in `folder`
    (`untested`) for a later call, and it is left out of what is returned. `workers` is the number of
    cores: so many cells at a time (default: all), or threads for a single cell (default: one). An `engine` takes
    its place; a cluster sets aside `gpus_per_cell` (a half: two cells side by side on one) when `device` is not
    the CPU. `on_event` counts iterations, over the members of all cells that are trained. What is worth a line,
    such as a damaged file, is logged.

    A cell that fails is logged and stops no other; afterwards the first one's error is raised. Raises
    `InvalidValueError` for wrong values before anything is trained, and as `train` does; `OutputFileError` when
    the folder cannot be written; `WorkerError` for a process that keeps being ended from without; as the engine
    does; KeyboardInterrupt on Ctrl-C, saying what is kept.
    """
    wanted, folder = list(experiments), Path(folder)
    _check_engine(engine, workers, device, gpus_per_cell)
    _check(wanted, folder, sequences, workers, device)
    cells = {one: None if again else find_cell(folder, one) for one in wanted}
    store = Store(folder)
    store.clear_leftovers()
    _clear_tested(cell for cell in cells.values() if cell is not None)
    numbers = {one: store.next_number(TrainingCell(one)) for one in cells}
    missing = [experiment for experiment, cell in cells.items() if cell is None]
    jobs = _jobs(missing, store, together=device != "cpu" and engine is None)
    jobs = jobs if tests else [job for job in jobs if not all(map(Path.exists, job.weights))]
    if engine is None:
        parallel = device == "cpu" and len(jobs) > 1 and (workers or cores()) > 1
        engine = Processes(workers or cores()) if parallel else InProcess()
    threads = workers or 1 if isinstance(engine, InProcess) else 1
    how = {"sequences": sequences, "device": device, "threads": threads, "tests": tests}
    paths = _made(jobs, engine, how, gpus_per_cell, len(cells), on_event)
    if not tests:
        return [cell for cell in cells.values() if cell is not None]
    _test_again(cells, sequences, folder, numbers)
    cells |= {cell.experiment: cell for cell in map(load_cell, paths)}
    return [cells[experiment] for experiment in wanted]  # type: ignore[misc]


def _made(
    jobs: Sequence[Job],
    engine: Engine,
    how: Mapping[str, Any],
    gpus: float,
    wanted: int,
    on_event: OnEvent | None,
) -> list[Path]:
    """The files of the cells that jobs make, of `wanted` cells in all. Raises as `run_cells`."""
    call, paths = finish_here if engine.shares_disk else finish_elsewhere, list[Path]()
    there = wanted - sum(len(job.experiments) for job in jobs)

    def keep(number: int, made: Any) -> None:
        paths.extend(map(Path, take_files(jobs[number], made) if isinstance(made, dict) else made))

    def kept() -> str:
        running = " and the running ones' checkpoints" if engine.shares_disk else ""
        return f"{there + len(paths)} of {wanted} cells{running} are kept in {jobs[0].folder}"

    numbered = dict(enumerate(jobs))
    tasks = {
        number: Task(call, {"job": encode(job), **how}, label=job.label, gpus=gpus)
        for number, job in numbered.items()
    }
    sizes = {number: job.size for number, job in numbered.items()}
    failed = run(tasks, keep, engine=engine, sizes=sizes, unit="iteration", on_event=on_event, kept=kept)
    if failed:
        raise failed[min(failed)].error()
    return paths


def _clear_tested(cells: Iterable[Cell]) -> None:
    """Remove weights that were kept for a test and are older than it: the training was killed between the two."""
    for cell in cells:
        assert cell.path is not None
        weights = untested(cell.path.parent, cell.experiment)
        with contextlib.suppress(OSError):
            if weights.stat().st_mtime <= cell.path.stat().st_mtime:
                weights.unlink()


def _test_again(
    cells: dict[Experiment, Cell | None], sequences: int, folder: Path, numbers: Mapping[Experiment, int]
) -> None:
    """Test on `sequences` sequences what was tested on fewer, and keep both."""
    for experiment, cell in cells.items():
        if cell is not None and cell.evaluation.sequences < sequences:
            log.info("testing again, on %s sequences: %s", f"{sequences:,}", cell.path)
            again = measure_cell(cell.trained, sequences)
            cells[experiment] = save_numbered(again, folder, number=numbers[experiment])


def find_cell(folder: Path, experiment: Experiment) -> Cell | None:
    """The last good cell of an experiment in `folder`, if there is one; what is damaged is logged."""
    stored = Store(folder).find(TrainingCell(experiment))
    return None if stored is None else replace(stored.result, path=stored.path)


def _check(
    experiments: Sequence[Experiment], folder: Path, sequences: int, workers: int | None, device: str
) -> None:
    """Refuse before hours of training what would fail after them."""
    whole("sequences", sequences, 1)
    counted("workers", 1 if workers is None else workers)
    for experiment in experiments if device == "cpu" else ():
        experiment.check_memory()
    for task in {experiment.task for experiment in experiments}:
        compared(task)
    need_xarray()
    need_writable(folder / "cell.nc")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputFileError(f"cannot write {folder}: {error.strerror or error}") from None


def _check_engine(engine: Engine | None, workers: int | None, device: str, gpus: float) -> None:
    """Refuse what would be ignored, or leave cells without their GPU."""
    afar = engine is not None and not engine.shares_disk
    if not afar:
        check_device(device)
    if engine is not None and workers is not None:
        raise InvalidValueError(f"workers: expected none together with an engine, got {workers}")
    if isinstance(gpus, bool) or not isinstance(gpus, int | float) or not 0 <= gpus < float("inf"):
        raise InvalidValueError(f"gpus_per_cell: expected a number ≥ 0, got {shortened(gpus)}")
    if gpus and not afar:
        raise InvalidValueError(
            f"gpus_per_cell: expected none without a cluster, which would share them out, got {gpus}"
        )
    if gpus and device == "cpu":
        raise InvalidValueError(
            f"gpus_per_cell: expected none with device cpu, got {gpus}; device='cuda' uses them"
        )
    if afar and not gpus and device != "cpu":
        raise InvalidValueError(
            f"gpus_per_cell: expected a share of a GPU such as 1 for device {device} on a cluster, got 0"
        )


def _jobs(experiments: Sequence[Experiment], store: Store, together: bool) -> list[Job]:
    """The jobs, longest first; with `together`, compatible experiments in one.

    What is trained and not tested is a job of its own, unless it belongs to a training that is begun.
    """
    begun = [job for job in _grouped(experiments, store, together) if job.checkpoint.exists()]
    fresh = [one for one in experiments if not any(one in job.experiments for job in begun)]
    trained = [one for one in fresh if untested(store.folder, one).exists()]
    jobs = [*begun, *(Job.of((one,), store) for one in trained)]
    jobs += _grouped([one for one in fresh if one not in trained], store, together)
    return sorted(jobs, key=lambda job: job.work, reverse=True)


def _alike(one: Experiment, other: Experiment) -> bool:
    """Whether neither pays, trained together, for what only the other needs: rotations, residual connections."""
    needs = [(isinstance(own.network.positional, Rotary), own.network.residual) for own in (one, other)]
    return compatible(one, other) and needs[0] == needs[1]


def _grouped(experiments: Sequence[Experiment], store: Store, together: bool) -> list[Job]:
    groups: list[list[Experiment]] = []
    for experiment in experiments:
        for group in groups if together else []:
            members = sum(len(other.seeds) for other in [*group, experiment])
            if _alike(group[0], experiment) and members <= TOGETHER:
                group.append(experiment)
                break
        else:
            groups.append([experiment])
    return [Job.of(group, store) for group in groups]
