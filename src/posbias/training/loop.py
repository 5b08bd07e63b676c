"""Training: many members, one optimiser, each its own loss.

The weights of all members lie in the same tensors, along a first axis; the loss is the sum of the members'
mean cross-entropies, so no gradient of one depends on another, and AdamW works element by element. A member is
therefore what it would be alone, up to the rounding of matrix products of another shape.

    trained = train(Experiment(network=Network(depth=2), iterations=2500))
    trained.weights["query"].shape        # member, layer, dimension, dimension
    trained.curves["in_context_accuracy"]     # member, step: one of `experiment.points`

A member whose loss or weights become NaN or infinite is stopped at the next point of the curves: its weights are
NaN, and its curves are from there on.

`Experiment.precision` says in what numbers matrices are multiplied while training; sums, weights and the
optimiser are float32 throughout.

float32     as it is
tf32        on a GPU: factors rounded to 10 bits of mantissa

What is faster changes the numbers that are learnt, so it is part of an experiment. Tests are float32 always.

`Ensemble.step` does one iteration, on a GPU as a CUDA graph that nothing on the host waits for; `evaluate` adds a
point to the learning curves, tests on new classes and stops the members that are no longer finite. A stopped
member's place in the stack goes on from zero weights, so that nobody else's matrix products change.
"""

import hashlib
import itertools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import numpy as np
import torch
from jaxtyping import Num
from torch import Tensor

from posbias.core.errors import whole, wrong
from posbias.core.files import write_text
from posbias.core.formats import dump_json
from posbias.core.machine import torch_threads
from posbias.core.progress import Deferred, Event, OnEvent
from posbias.core.spec import fingerprint
from posbias.core.store import Checkpoint, Tensors
from posbias.training.experiments import Experiment, Precision, compatible
from posbias.training.network import finite_members, forward, initial_weights, wire
from posbias.training.task import PAIRS, Batch, Feed, blocks_of, make_world, novel_sequences


@contextmanager
def multiplying(precision: Precision, device: str) -> Iterator[None]:
    """Multiply matrices in this precision, whatever was set. Raises `InvalidValueError` for tf32 without a GPU."""
    cuda = torch.device(device).type == "cuda"
    if precision == "tf32" and not cuda:
        raise wrong("precision", f"float32 on this {device}", got="tf32, which needs a GPU")
    backends: Any = torch.backends
    matmul = (backends.cuda if cuda else backends.mkldnn).matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = before


log = logging.getLogger(__name__)
FEWEST, MOST, SHARE = 256, 10_000, 4
"""Sequences per member of each test set of the curves: as many as `SHARE` for every iteration since the last
point, within bounds. All are the first of the same sequences: a change along a curve is known better than its
points."""
TEST_SET = 0
"""Number of the curves' test sets; `evaluate` and the like count theirs from 1."""
NEVER = 2**62
"""The iteration at which a sound member's loss was first not finite."""
WARM = 3
"""Iterations before a step is captured as a CUDA graph: the first ones allocate and choose kernels."""
_CURVES = ("loss", "accuracy", "in_context_accuracy", *(f"{a}-{b}" for a, b in PAIRS))


class Ensemble:
    """Members of compatible experiments, experiment by experiment and seed by seed."""

    def __init__(self, experiments: Sequence[Experiment], device: str):
        self.members = [(experiment, seed) for experiment in experiments for seed in experiment.seeds]
        shape = experiments[0]
        self.total, self._size = shape.iterations, shape.batch
        self.points = set(shape.points)
        self._device = torch.device(device)
        cuda = self._device.type == "cuda"
        tasks, seeds = [member.task for member, _ in self.members], [seed for _, seed in self.members]
        networks = [member.network for member, _ in self.members]
        self._wiring = wire(networks, shape.task.tokens, shape.task.dimension, device)
        began = initial_weights(shape.network.depth, shape.task, seeds, shape.network.normaliser)
        self.weights = {name: weights.to(device).requires_grad_() for name, weights in began.items()}
        self._optimiser = torch.optim.AdamW(
            list(self.weights.values()),
            lr=shape.learning_rate,
            weight_decay=shape.weight_decay,
            fused=True,
            capturable=cuda,
        )
        self._feed = Feed(tasks, seeds, shape.batch, device)
        self._worlds = [(one.task, make_world(one.task, one.seeds, device)) for one in experiments]
        self.iteration, self.seconds, self.cpu_seconds = 0, 0.0, 0.0
        self.stopped: dict[int, int] = {}
        self.curves: dict[str, np.ndarray] = {name: np.zeros((len(seeds), 0)) for name in _CURVES}
        self.curves["iteration"] = np.zeros(0, dtype=np.int64)
        # since the last point of the curves: sums of losses and of right answers, the first bad iteration
        self._since = {
            "loss": torch.zeros(len(seeds), dtype=torch.float64, device=device),
            "right": torch.zeros(len(seeds), dtype=torch.int64, device=device),
            "bad": torch.full((len(seeds),), NEVER, device=device),
        }
        self._at = torch.zeros((), dtype=torch.int64, device=device)
        self._side = torch.cuda.Stream(device) if cuda else None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = 0
        # glibc gives freed memory back, and gets it anew page by page, in units that grow with the largest piece
        # it has seen freed: without this line a fifth of the time goes there
        torch.empty(31 * 10**6, dtype=torch.uint8)

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train."""
        return self.iteration >= self.total or len(self.stopped) == len(self.members)

    def step(self) -> None:
        """One iteration of every member."""
        if self._side is not None:
            self._step_captured(self._side)
        else:
            self._step(self.iteration)
        self.iteration += 1

    def _step(self, iteration: int | Tensor) -> None:
        """What an iteration computes; with the counter as a tensor, nothing but work for the device."""
        tokens, target = self._feed.batch(iteration)
        logits = forward(self.weights, self._wiring, tokens)
        losses = (
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
            .view_as(target)
            .mean(dim=1)
        )
        self._optimiser.zero_grad()
        losses.sum().backward()
        self._optimiser.step()
        with torch.no_grad():
            since, losses = self._since, losses.detach()
            since["loss"] += losses
            since["right"] += (logits.argmax(dim=-1) == target).sum(dim=1)
            bad = self._at.expand_as(losses).masked_fill(losses.isfinite(), NEVER)
            torch.minimum(since["bad"], bad, out=since["bad"])
            self._at += 1

    def _step_captured(self, side: torch.cuda.Stream) -> None:
        """Launch the graph; the first steps run as they are, then one is captured."""
        # what the default stream made or changed, at the beginning and at an evaluation
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            if self._graph is None and self._warm == WARM:
                self._optimiser.zero_grad()
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph, stream=side):
                    self._step(self._at)
            if self._graph is None:
                self._step(self._at)
                self._warm += 1
            else:
                self._graph.replay()

    def evaluate(self) -> None:
        """Add a point to the curves, of the iterations since the last one; stop members that are not finite."""
        if self._side is not None:
            self._side.synchronize()
        since = int(self.curves["iteration"][-1]) if len(self.curves["iteration"]) else 0
        bad = self._since["bad"].cpu().numpy()
        sound = (bad == NEVER) & finite_members(self.weights)
        for member in np.flatnonzero(~sound):
            if member not in self.stopped:
                self._stop(int(member), min(int(bad[member]), self.iteration - 1))
        steps = self.iteration - since
        point = {
            "loss": self._since["loss"] / steps,
            "accuracy": self._since["right"] / (steps * self._size),
            **self._tested(min(MOST, max(FEWEST, SHARE * steps))),
        }
        for name, held in self._since.items():
            held.fill_(NEVER if name == "bad" else 0)
        self.curves["iteration"] = np.append(self.curves["iteration"], self.iteration)
        for name, values in point.items():
            column = values.double().cpu().numpy().copy()
            column[list(self.stopped)] = np.nan
            self.curves[name] = np.column_stack([self.curves[name], column])

    def _stop(self, member: int, at: int) -> None:
        """Stop a member: its place in the stack becomes zero."""
        self.stopped[member] = at
        with torch.no_grad():
            for weights in self.weights.values():
                weights[member] = 0.0
                for moment in ("exp_avg", "exp_avg_sq"):
                    self._optimiser.state[weights][moment][member] = 0.0
        log.warning(
            "seed %d: loss or weights were not finite at iteration %d; this member is stopped, the others go on",
            *(self.members[member][1], at),
        )

    def _tested(self, sequences: int) -> dict[str, Tensor]:
        """In-context accuracy and gaps on so many sequences of the curves' test sets [member]."""
        right = [torch.zeros(len(self.members), device=self._device) for _ in range(1 + 2 * len(PAIRS))]
        with torch.no_grad():
            for start, rows in blocks_of(sequences):
                for counted, batch in zip(right, self._tests(rows, start), strict=True):
                    said = forward(self.weights, self._wiring, batch.tokens).argmax(dim=-1)
                    counted += (said == batch.target).sum(dim=1)
        whole, *pairs = (counted / sequences for counted in right)
        gaps = zip(PAIRS, zip(pairs[0::2], pairs[1::2], strict=True), strict=True)
        return {"in_context_accuracy": whole} | {
            f"{a}-{b}": first - second for (a, b), (first, second) in gaps
        }

    def _tests(self, rows: int, start: int) -> Sequence[Batch]:
        """A block of the curves' test sets, of all members: any item, then each pair both ways."""
        sets: list[list[Batch]] = []
        for task, world in self._worlds:
            batches = [novel_sequences(task, world, TEST_SET, rows, start).asking()]
            for a, b in PAIRS:
                items = task.places[a], task.places[b]
                both = novel_sequences(task, world, TEST_SET, rows, start, place=items).paired(*items)
                batches += [both.first, both.second]
            sets.append(batches)
        return [
            Batch(torch.cat([one.tokens for one in column]), torch.cat([one.target for one in column]))
            for column in zip(*sets, strict=True)
        ]

    def trained(self, experiment: Experiment, first: int, cost: Mapping[str, Any]) -> "Trained":
        """A copy of one experiment's networks, of which `first` is the first; NaN for those that were stopped."""
        members = slice(first, first + len(experiment.seeds))
        stopped = {member: at for member, at in self.stopped.items() if first <= member < members.stop}
        weights = {name: held.detach()[members].clone() for name, held in self.weights.items()}
        for held in weights.values():
            held[[member - first for member in stopped]] = torch.nan
        steps = {"iteration": self.curves["iteration"]}
        curves = {name: curve[members] for name, curve in self.curves.items()} | steps
        by_seed = {self.members[member][1]: at for member, at in stopped.items()}
        return Trained(experiment, weights, curves, by_seed, dict(cost))

    def state(self) -> Tensors:
        """All that decides what comes next: twelve bytes a weight, curves, and sums since their last point."""
        if self._side is not None:
            self._side.synchronize()
        tensors = {f"since.{name}": held for name, held in self._since.items()}
        for name, weights in self.weights.items():
            moments = self._optimiser.state[weights]
            tensors |= {
                f"weights.{name}": weights.detach(),
                f"mean.{name}": moments["exp_avg"],
                f"square.{name}": moments["exp_avg_sq"],
            }
        arrays = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
        arrays |= {f"curves.{name}": curve for name, curve in self.curves.items()}
        clocks = {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds}
        note = {"iteration": self.iteration, "stopped": list(self.stopped.items())} | clocks
        return Tensors(arrays, note)

    def restore(self, state: Tensors) -> None:
        """Go on from what `state` gave, before any step."""
        self.iteration = state.note["iteration"]
        self.seconds, self.cpu_seconds = state.note["seconds"], state.note["cpu_seconds"]
        self.stopped = dict(state.note["stopped"])
        self._at.fill_(self.iteration)
        tensors = {name: torch.tensor(array).to(self._device) for name, array in state.arrays.items()}
        with torch.no_grad():
            for name, weights in self.weights.items():
                weights.copy_(tensors[f"weights.{name}"])
                self._optimiser.state[weights] = {
                    "step": torch.tensor(float(self.iteration), device=self._device),
                    "exp_avg": tensors[f"mean.{name}"],
                    "exp_avg_sq": tensors[f"square.{name}"],
                }
        for name, held in self._since.items():
            held.copy_(tensors[f"since.{name}"])
        self.curves = {name: np.array(state.arrays[f"curves.{name}"]) for name in self.curves}


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
    curves: dict[str, Num[np.ndarray, "..."]]
    stopped: dict[int, int] = field(default_factory=dict)
    cost: dict[str, Any] = field(default_factory=dict)


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


def _results(experiments: list[Experiment], ensemble: Ensemble, device: str) -> list[Trained]:
    rate = ensemble.iteration * len(ensemble.members) / max(ensemble.seconds, 1e-9)
    cost = {
        "seconds": ensemble.seconds,
        "cpu_seconds": ensemble.cpu_seconds,
        "member_iterations_per_second": rate,
        "device": torch.cuda.get_device_name(device) if device != "cpu" else "cpu",
        "threads": torch.get_num_threads(),
    }
    ends = itertools.accumulate(len(one.seeds) for one in experiments)
    return [
        ensemble.trained(one, end - len(one.seeds), cost) for one, end in zip(experiments, ends, strict=True)
    ]


def _check(experiments: list[Experiment], device: str, threads: int | None) -> None:
    if not experiments:
        raise wrong("experiment", "at least one experiment", got="none")
    for number, one in enumerate(experiments):
        if not isinstance(one, Experiment):
            raise wrong("experiment", "an Experiment (read_experiments reads a file)", one)
        if not compatible(experiments[0], one):
            what = "one shape, depth and optimisation to train together"
            raise wrong("experiment", what, got=f"another in number {number} than in number 0")
    whole("threads", 1 if threads is None else threads, 1)
    check_device(device)


def check_device(device: str) -> None:
    """Raise `InvalidValueError` for what is no device of this machine to train on."""
    there = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if device not in there and not (device == "cuda" and len(there) > 1):
        raise wrong("device", f"one of {', '.join(there)} on this machine", device)


def _fingerprint(experiments: list[Experiment], device: str) -> str:
    """Equal exactly when the numbers that are computed are."""
    ours = " ".join([torch.device(device).type, *map(fingerprint, experiments)])
    return hashlib.sha256(ours.encode()).hexdigest()[:16]
