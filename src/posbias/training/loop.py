"""Training: many members, one optimiser, each its own loss.

The weights of all members lie in the same tensors, along a first axis; the loss is the sum of the members'
mean cross-entropies, so no gradient of one depends on another, and AdamW works element by element. A member is
therefore what it would be alone, up to the rounding of matrix products of another shape.

    trained = train(Experiment(network=Network(depth=2), iterations=2500))
    trained.weights["query"].shape        # member, layer, dimension, dimension
    trained.curves["in_context_accuracy"]     # member, step: one of `experiment.points`

A member whose loss or weights become NaN or infinite is stopped at the next point of the curves: its weights are
NaN, and its curves are from there on.
"""

import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from posbias.core.errors import InvalidValueError, shortened, whole
from posbias.core.files import write_text
from posbias.core.formats import dump_json
from posbias.core.machine import torch_threads
from posbias.core.progress import Deferred, Event, OnEvent
from posbias.core.spec import fingerprint
from posbias.core.store import Checkpoint
from posbias.training.ensemble import Ensemble
from posbias.training.precision import multiplying
from posbias.training.specification import Experiment, compatible

log = logging.getLogger(__name__)
PATIENCE = 100.0
"""Writing checkpoints takes at most one part in so many of a training."""


@dataclass(frozen=True)
class Trained:
    """An experiment's networks after training.

    `weights` have a first axis member, in the order of `experiment.seeds`. `curves` hold "iteration" [step] and,
    [member, step]: "loss" and "accuracy" (of training, means since the last step), "in_context_accuracy" (new
    classes, any item), and the gaps "first-middle", "first-last", "middle-last" (accuracy where the first of the
    two is right minus where the second is), from small test sets that are the same at every step. `stopped`
    says at which iteration which seed's loss or weights stopped being finite. `cost` has "seconds"
    and "cpu_seconds", "member_iterations_per_second" (of all that trained together), "device" and "threads".
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
            curves=_rows(self.curves, slice(index, index + 1)),
            stopped={stopped: at for stopped, at in self.stopped.items() if stopped == seed},
        )


class Settings(TypedDict, total=False):
    """How to train, which changes nothing that is learnt; see `train`."""

    checkpoint: Path | None
    device: str
    threads: int | None
    on_event: OnEvent | None


@overload
def train(experiment: Experiment, **settings: Unpack[Settings]) -> Trained: ...
@overload
def train(experiment: Sequence[Experiment], **settings: Unpack[Settings]) -> list[Trained]: ...
def train(
    experiment: Experiment | Sequence[Experiment],
    *,
    checkpoint: Path | None = None,
    device: str = "cpu",
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> Trained | list[Trained]:
    """Train an experiment, or several compatible ones as one ensemble.

    `checkpoint` is a file that is written every few seconds, and at an interruption, and gone on from when it is
    there; on the same machine with the same `threads` (default: those of torch) the result is the same to the bit.
    It stays after the end, for the caller to remove once the result is safe, as does the file
    `log_of(checkpoint)`, in which the learning curves so far are written at every evaluation, as JSON lines.
    `on_event` is called after every iteration; a stopped member, or a checkpoint that is used or damaged, is
    logged.

    Raises `InvalidValueError` for experiments that are not compatible, a device that is not there, threads < 1;
    `InputFileError` for a checkpoint of other experiments; `OutputFileError` when it cannot be written;
    KeyboardInterrupt on Ctrl-C, after the iteration that was begun.
    """
    experiments = [experiment] if isinstance(experiment, Experiment) else list(experiment)
    _check(experiments, device, threads)
    file = Checkpoint(checkpoint, _fingerprint(experiments, device), PATIENCE)
    with torch_threads(threads), multiplying(experiments[0].precision, device):
        stored = file.load()
        ensemble = Ensemble(experiments, device)
        if stored is not None:
            ensemble.restore(stored)
            log.info("resuming after %d iterations from %s", ensemble.iteration, checkpoint)
        _finish(ensemble, file, None if checkpoint is None else log_of(checkpoint), on_event)
        trained = _results(experiments, ensemble, device)
    return trained[0] if isinstance(experiment, Experiment) else trained


def _finish(ensemble: Ensemble, file: Checkpoint, curves: Path | None, on_event: OnEvent | None) -> None:
    """Train to the end, or to an interruption: the file then holds the iteration that was reached."""
    before, first = (ensemble.seconds, ensemble.cpu_seconds), ensemble.iteration
    begin, began = time.monotonic(), time.process_time()
    with Deferred() as interruption:
        while not ensemble.finished:
            ensemble.step()
            if ensemble.iteration in ensemble.points:
                ensemble.evaluate()
                if curves is not None:
                    _write_curves(curves, ensemble.curves)
            ensemble.seconds = before[0] + time.monotonic() - begin
            ensemble.cpu_seconds = before[1] + time.process_time() - began
            file.keep_up(ensemble.state)
            try:
                if on_event:
                    on_event(Event(ensemble.iteration, ensemble.total, "iteration"))
                interruption.check()
            except BaseException as error:
                file.write_after(ensemble.state, error)
                raise
        if ensemble.iteration > first:
            file.write(ensemble.state)


def log_of(checkpoint: Path) -> Path:
    """Return where the learning curves of a run with this checkpoint are to be seen while it runs."""
    return checkpoint.with_name(f"{checkpoint.stem.removeprefix('.')}.log.jsonl")


def _write_curves(path: Path, curves: Mapping[str, np.ndarray]) -> None:
    """Write the curves so far: a line for each evaluation, a number for each member."""
    lines = []
    for step, iteration in enumerate(curves["iteration"].tolist()):
        point = {name: curve[..., step] for name, curve in curves.items()}
        lines.append(dump_json(point | {"iteration": iteration}) + "\n")
    write_text(path, "".join(lines))


def _rows(curves: Mapping[str, np.ndarray], members: slice) -> dict[str, np.ndarray]:
    """The curves of some members."""
    return {name: curve if name == "iteration" else curve[members] for name, curve in curves.items()}


def _results(experiments: list[Experiment], ensemble: Ensemble, device: str) -> list[Trained]:
    rate = ensemble.iteration * len(ensemble.members) / max(ensemble.seconds, 1e-9)
    cost = {
        "seconds": ensemble.seconds,
        "cpu_seconds": ensemble.cpu_seconds,
        "member_iterations_per_second": rate,
        "device": torch.cuda.get_device_name(device) if device != "cpu" else "cpu",
        "threads": torch.get_num_threads(),
    }
    results, start = [], 0
    for experiment in experiments:
        rows = slice(start, start + len(experiment.seeds))
        weights = ensemble.trained(rows)
        stopped = {
            ensemble.members[member][1]: iteration
            for member, iteration in ensemble.stopped.items()
            if rows.start <= member < rows.stop
        }
        results.append(Trained(experiment, weights, _rows(ensemble.curves, rows), stopped, dict(cost)))
        start = rows.stop
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
    whole("threads", 1 if threads is None else threads, 1)
    check_device(device)


def check_device(device: str) -> None:
    """Raise `InvalidValueError` for what is no device of this machine to train on."""
    there = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if device not in there and not (device == "cuda" and len(there) > 1):
        raise InvalidValueError(
            f"device: {shortened(device)} given, one of {', '.join(there)} needed on this machine"
        )


def _fingerprint(experiments: list[Experiment], device: str) -> str:
    """Equal exactly when the numbers that are computed are."""
    ours = " ".join([torch.device(device).type, *map(fingerprint, experiments)])
    return hashlib.sha256(ours.encode()).hexdigest()[:16]
