"""One job of training: experiments that train together and become cells of a store, here or on another machine."""

import hashlib
import logging
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from posbias.core.errors import InputFileError
from posbias.core.files import write_bytes
from posbias.core.progress import OnEvent
from posbias.core.spec import decode, fingerprint, value
from posbias.core.store import Store
from posbias.training.loop import Trained, log_of, train
from posbias.training.results import (
    Cell,
    TrainingCell,
    load_trained,
    measure_cell,
    save_beside,
    save_trained,
    weights_path,
)
from posbias.training.shorthand import name_of
from posbias.training.specification import Experiment

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
        return save_beside(cell, self.folder, versions, number).path

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
        """Where the state of the training is kept, beside the cells."""
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
    trained = [_trained(path, own) for path, own in zip(weights, job.experiments, strict=True)]
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


def _trained(path: Path, experiment: Experiment) -> Trained | None:
    """What an interrupted job left of a cell that it had trained and not tested."""
    if not path.exists():
        return None
    try:
        trained = load_trained(path)
    except InputFileError as error:
        log.warning("%s; not used", error)
        return None
    return trained if trained.experiment == experiment else None
