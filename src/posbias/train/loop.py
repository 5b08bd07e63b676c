"""Training: many members, one optimiser, each its own loss.

The weights of all members lie in the same tensors, along a first axis; the loss is the sum of the members'
mean cross-entropies, so no gradient of one depends on another, and AdamW works element by element. A member is
therefore what it would be alone, up to the rounding of matrix products of another shape.

    trained = train(Experiment(network=Network(depth=2), iterations=2500))
    trained.weights["query"].shape        # member, layer, dimension, dimension
    trained.curves["in_context_accuracy"]     # member, step: one every `evaluate_every` iterations

A member whose loss or weights become NaN or infinite is stopped: it keeps the weights of the last step at
which it was sound, and its curves are NaN from there on.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from posbias.errors import InvalidValueError
from posbias.files import write_text
from posbias.spec import fingerprint
from posbias.train.averages import plain
from posbias.train.checkpoints import Checkpoint
from posbias.train.ensemble import Ensemble
from posbias.train.specification import Experiment, compatible

Progress = Callable[[int, int], None]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    """An experiment's networks after training.

    `weights` have a first axis member, in the order of `experiment.seeds`. `curves` hold "iteration" [step] and,
    [member, step]: "loss" and "accuracy" (of training, means since the last step), "in_context_accuracy" (new
    classes, any item), and the gaps "first-middle", "first-last", "middle-last" (accuracy where the first of the
    two is right minus where the second is), from small test sets that are the same at every step. `stopped`
    says at which iteration which seed's loss or weights stopped being finite. `cost` has "seconds",
    "member_iterations_per_second" (of all that trained together), "device" and "threads".
    """

    experiment: Experiment
    weights: dict[str, Tensor]
    curves: dict[str, Float[np.ndarray, "..."]]
    stopped: dict[int, int] = field(default_factory=dict)
    cost: dict[str, Any] = field(default_factory=dict)

    def member(self, index: int) -> "Trained":
        """One seed alone. Raises `InvalidValueError` for an index outside."""
        count = len(self.experiment.seeds)
        if not 0 <= index < count:
            raise InvalidValueError(f"index: {index} given, a member from 0 to {count - 1} needed")
        seed = self.experiment.seeds[index]
        return replace(
            self,
            experiment=replace(self.experiment, seeds=(seed,)),
            weights={name: one[index : index + 1] for name, one in self.weights.items()},
            curves={
                name: curve if name == "iteration" else curve[index : index + 1]
                for name, curve in self.curves.items()
            },
            stopped={stopped: at for stopped, at in self.stopped.items() if stopped == seed},
        )


@overload
def train(
    experiment: Experiment,
    *,
    checkpoint: Path | None = ...,
    device: str = ...,
    threads: int | None = ...,
    progress: Progress | None = ...,
    say: Say | None = ...,
) -> Trained: ...
@overload
def train(
    experiment: Sequence[Experiment],
    *,
    checkpoint: Path | None = ...,
    device: str = ...,
    threads: int | None = ...,
    progress: Progress | None = ...,
    say: Say | None = ...,
) -> list[Trained]: ...
def train(
    experiment: Experiment | Sequence[Experiment],
    *,
    checkpoint: Path | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Trained | list[Trained]:
    """Train an experiment, or several compatible ones as one ensemble.

    `checkpoint` is a file that is written every few seconds and gone on from when it is there; on the same
    machine with the same `threads` (default: those of torch) the result is the same to the bit. It stays after the
    end, for the caller to remove once the result is safe, as does the file `log_of(checkpoint)`, in which the
    learning curves so far are written at every evaluation, as JSON lines. `progress` is called with (iterations
    done, to do), `say` with what is worth a line: a stopped member, a checkpoint that was used or is damaged.

    Raises `InvalidValueError` for experiments that are not compatible, a device that is not there, threads < 1;
    `InputFileError` for a checkpoint of other experiments; `OutputFileError` when it cannot be written.
    """
    experiments = [experiment] if isinstance(experiment, Experiment) else list(experiment)
    say = say or (lambda line: None)
    _check(experiments, device, threads)
    file = Checkpoint(checkpoint, _fingerprint(experiments, device), say)
    with _threads(threads):
        stored = file.load()
        ensemble = Ensemble(experiments, device)
        if stored is not None:
            ensemble.restore(*stored)
            say(f"resuming after {ensemble.iteration} iterations from {checkpoint}")
        begin, before, first = time.monotonic(), ensemble.seconds, ensemble.iteration
        while not ensemble.finished:
            ensemble.step()
            if ensemble.iteration % ensemble.every == 0 or ensemble.finished:
                for line in ensemble.look():
                    say(line)
                if checkpoint is not None:
                    _log(checkpoint, ensemble)
            ensemble.seconds = before + time.monotonic() - begin
            file.keep_up(ensemble.state)
            if progress:
                progress(ensemble.iteration, ensemble.total)
        if ensemble.iteration > first:
            file.write(ensemble.state)
        trained = _results(experiments, ensemble, device)
    return trained[0] if isinstance(experiment, Experiment) else trained


def log_of(checkpoint: Path) -> Path:
    """Return where the learning curves of a run with this checkpoint are to be seen while it runs."""
    return checkpoint.with_name(f"{checkpoint.stem.removeprefix('.')}.log.jsonl")


def _log(checkpoint: Path, ensemble: Ensemble) -> None:
    """Write the curves so far: a line for each evaluation, a number for each member."""
    lines = []
    for step, iteration in enumerate(ensemble.curves["iteration"].tolist()):
        found = {name: plain(curve[..., step]) for name, curve in ensemble.curves.items()}
        lines.append(json.dumps(found | {"iteration": iteration}) + "\n")
    write_text(log_of(checkpoint), "".join(lines))


def _results(experiments: list[Experiment], ensemble: Ensemble, device: str) -> list[Trained]:
    rate = ensemble.iteration * len(ensemble.members) / max(ensemble.seconds, 1e-9)
    cost = {
        "seconds": ensemble.seconds,
        "member_iterations_per_second": rate,
        "device": torch.cuda.get_device_name(device) if device != "cpu" else "cpu",
        "threads": torch.get_num_threads(),
    }
    results, start = [], 0
    for one in experiments:
        place = slice(start, start + len(one.seeds))
        start = place.stop
        weights = {name: kept[place].clone() for name, kept in ensemble.kept.items()}
        curves = {
            name: curve if name == "iteration" else curve[place] for name, curve in ensemble.curves.items()
        }
        stopped = {
            one.seeds[member - place.start]: at
            for member, at in ensemble.stopped.items()
            if place.start <= member < place.stop
        }
        results.append(Trained(one, weights, curves, stopped, dict(cost)))
    return results


def _check(experiments: list[Experiment], device: str, threads: int | None) -> None:
    if not experiments:
        raise InvalidValueError("experiment: none given, at least one needed")
    for number, one in enumerate(experiments):
        if not compatible(experiments[0], one):
            raise InvalidValueError(
                f"experiment: number {number} given differs from number 0 in shape, depth or optimisation; "
                "compatible ones needed to train together"
            )
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise InvalidValueError(f"threads: {threads!r} given, an integer ≥ 1 needed")
    there = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if device not in there and not (device == "cuda" and len(there) > 1):
        raise InvalidValueError(f"device: {device!r} given, one of {', '.join(there)} needed on this machine")


def _fingerprint(experiments: list[Experiment], device: str) -> str:
    """Equal exactly when the numbers that are computed are."""
    ours = " ".join([torch.device(device).type, *map(fingerprint, experiments)])
    return hashlib.sha256(ours.encode()).hexdigest()[:16]


@contextmanager
def _threads(threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
