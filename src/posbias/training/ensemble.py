"""Members that train side by side: their stacked weights, one optimiser, and what is known of them so far.

`step` does one iteration, on a GPU as a CUDA graph that nothing on the host waits for; `evaluate` adds a point
to the learning curves, tests on new classes and stops the members that are no longer finite. A stopped member's
place in the stack goes on from zero weights, so that nobody else's matrix products change.
"""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from posbias.core.formats import Tensors
from posbias.training.feed import Feed
from posbias.training.network import finite_members, forward, initial_weights, wire
from posbias.training.specification import Experiment
from posbias.training.task import PAIRS, Batch, blocks_of, make_world, novel_sequences

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
    """Members of compatible experiments, experiment by experiment and seed by seed.

    `graph` says whether steps run as a CUDA graph; None: on a GPU.
    """

    def __init__(self, experiments: Sequence[Experiment], device: str, graph: bool | None = None):
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
        self._side = torch.cuda.Stream(device) if cuda and graph is not False else None
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

    def trained(self, members: slice) -> dict[str, Tensor]:
        """A copy of some members' weights; NaN for those that were stopped."""
        stopped = [
            member - members.start for member in self.stopped if member in range(*members.indices(10**9))
        ]
        weights = {name: held.detach()[members].clone() for name, held in self.weights.items()}
        for held in weights.values():
            held[stopped] = torch.nan
        return weights

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
        # copied: the memory of a file is neither aligned nor ours
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
