"""One job of training: experiments that train together, and the files they become, here or on another machine."""

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from posbias.errors import InputFileError
from posbias.files import write_bytes
from posbias.spec import decode, encode, fingerprint
from posbias.train.loop import Trained, log_of, train
from posbias.train.results import load_trained, measure_cell, save_cell, save_trained, weights_path
from posbias.train.specification import Experiment

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


def finish_here(job: dict[str, Any], **settings: Any) -> None:
    """`finish` as a task whose files can be written where they belong."""
    finish(Job.from_dict(job), **settings)


def finish_elsewhere(job: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """`finish` as a task on another machine: trains in a temporary folder and returns {"files": {name: bytes}}."""
    wanted = Job.from_dict(job)
    with tempfile.TemporaryDirectory(prefix="posbias-cells-") as name:
        folder = Path(name)
        moved = replace(wanted, paths=tuple(folder / path.name for path in wanted.paths))
        finish(moved, **settings)
        return {"files": {path.name: path.read_bytes() for path in _files_of(moved)}}


def _files_of(job: Job) -> list[Path]:
    """What a finished job leaves: a cell counts once it has its second file."""
    return [file for path in job.paths for file in (weights_path(path), path)]


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


def write_files(job: Job, result: dict[str, Any] | None) -> None:
    """Write what a job brought from another machine, and drop what an earlier run on this one had begun."""
    if result is None:
        return
    for path in _files_of(job):
        write_bytes(path, result["files"][path.name])
    job.checkpoint.unlink(missing_ok=True)
    log_of(job.checkpoint).unlink(missing_ok=True)
