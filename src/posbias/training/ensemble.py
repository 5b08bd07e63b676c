"""Members that train side by side: their stacked weights, one optimiser, and what is known of them so far.

`step` does one iteration; `evaluate`, every so often, adds a point to the curves, tests on new classes and stops
the members that are no longer finite. A stopped member's place in the stack goes on from zero weights, so that
nobody else's matrix products change; what it had is in `kept`.
"""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from posbias.store import Tensors
from posbias.training.feed import Feed
from posbias.training.network import finite_members, forward, stacked_weights, wire
from posbias.training.specification import Experiment
from posbias.training.task import PAIRS, Batch, RetrievalTask, World, make_world, novel_tests, paired_tests

log = logging.getLogger(__name__)
SEQUENCES = 256
"""Sequences per member of each test set of the curves."""
TEST_SET = 2**61
"""Number of the curves' test sets: no other test asks for it."""
_CURVES = ("loss", "accuracy", "in_context_accuracy", *(f"{a}-{b}" for a, b in PAIRS))


class Ensemble:
    """Members of compatible experiments, experiment by experiment and seed by seed."""

    def __init__(self, experiments: Sequence[Experiment], device: str):
        self.members = [(experiment, seed) for experiment in experiments for seed in experiment.seeds]
        shape = experiments[0]
        self.total, self._size = shape.iterations, shape.batch
        self.every = min(shape.evaluate_every, shape.iterations)
        tasks, seeds = [member.task for member, _ in self.members], [seed for _, seed in self.members]
        worlds = [make_world(task, seed) for task, seed in zip(tasks, seeds, strict=True)]
        networks = [member.network for member, _ in self.members]
        self._wiring = wire(networks, shape.task.tokens, shape.task.dimension, device)
        self.weights = {
            name: weights.to(device).requires_grad_()
            for name, weights in stacked_weights(shape.network.depth, shape.task, seeds).items()
        }
        self._optimiser = torch.optim.AdamW(
            list(self.weights.values()), lr=shape.learning_rate, weight_decay=shape.weight_decay, fused=True
        )
        self._feed = Feed(tasks, worlds, seeds, shape.batch, device)
        self._tests = _tests(tasks, worlds, seeds, device)
        self.iteration, self.seconds = 0, 0.0
        self.stopped: dict[int, int] = {}
        self.curves: dict[str, np.ndarray] = {name: np.zeros((len(seeds), 0)) for name in _CURVES}
        self.curves["iteration"] = np.zeros(0, dtype=np.int64)
        self.kept = {name: weights.detach().clone() for name, weights in self.weights.items()}
        self._losses: list[Tensor] = []
        self._right: list[Tensor] = []
        # glibc gives freed memory back, and gets it anew page by page, in units that grow with the largest piece
        # it has seen freed: without this line a fifth of the time goes there
        torch.empty(31 * 10**6, dtype=torch.uint8)

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train."""
        return self.iteration >= self.total or len(self.stopped) == len(self.members)

    def step(self) -> None:
        """One iteration of every member."""
        tokens, target = self._feed.batch(self.iteration)
        logits = forward(self.weights, self._wiring, tokens)
        losses = (
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
            .view_as(target)
            .mean(dim=1)
        )
        self._optimiser.zero_grad()
        losses.sum().backward()
        self._optimiser.step()
        self._losses.append(losses.detach())
        self._right.append((logits.detach().argmax(dim=-1) == target).sum(dim=1))
        self.iteration += 1

    def evaluate(self) -> None:
        """Add a point to the curves, of the iterations since the last one; stop members that are not finite."""
        losses = torch.stack(self._losses).double().cpu()
        sound = losses.isfinite().all(dim=0).numpy() & finite_members(self.weights)
        going = []
        for member in range(len(sound)):
            if not sound[member] and member not in self.stopped:
                self._stop(member, losses[:, member])
            if member not in self.stopped:
                going.append(member)
        with torch.no_grad():
            for name, kept in self.kept.items():
                kept[going] = self.weights[name].detach()[going]
        point = {
            "loss": losses.mean(dim=0),
            "accuracy": torch.stack(self._right).double().mean(dim=0) / self._size,
            **self._tested(),
        }
        self._losses, self._right = [], []
        self.curves["iteration"] = np.append(self.curves["iteration"], self.iteration)
        for name, values in point.items():
            column = values.double().cpu().numpy().copy()
            column[list(self.stopped)] = np.nan
            self.curves[name] = np.column_stack([self.curves[name], column])

    def _stop(self, member: int, losses: Tensor) -> None:
        """Stop a member: its place in the stack becomes zero."""
        bad = (~losses.isfinite()).nonzero().flatten()
        at = self.iteration - len(losses) + int(bad[0]) if len(bad) else self.iteration - 1
        self.stopped[member] = at
        with torch.no_grad():
            for weights in self.weights.values():
                weights[member] = 0.0
                for moment in ("exp_avg", "exp_avg_sq"):
                    self._optimiser.state[weights][moment][member] = 0.0
        since = int(self.curves["iteration"][-1]) if len(self.curves["iteration"]) else 0
        log.warning(
            "seed %d: loss or weights were not finite at iteration %d; this member is stopped with its weights of "
            "iteration %d, the others go on",
            *(self.members[member][1], at, since),
        )

    def _tested(self) -> dict[str, Tensor]:
        """In-context accuracy and gaps on the curves' test sets [member]."""
        with torch.no_grad():
            accuracy = [
                (forward(self.weights, self._wiring, tokens).argmax(dim=-1) == target).double().mean(dim=1)
                for tokens, target in self._tests
            ]
        whole, *pairs = accuracy
        gaps = zip(PAIRS, zip(pairs[0::2], pairs[1::2], strict=True), strict=True)
        return {"in_context_accuracy": whole} | {
            f"{a}-{b}": first - second for (a, b), (first, second) in gaps
        }

    def state(self) -> Tensors:
        """All that decides what comes next."""
        tensors = {}
        for name, weights in self.weights.items():
            moments = self._optimiser.state[weights]
            tensors |= {
                f"weights.{name}": weights.detach(),
                f"kept.{name}": self.kept[name],
                f"mean.{name}": moments["exp_avg"],
                f"square.{name}": moments["exp_avg_sq"],
            }
        if self._losses:
            tensors |= {"losses": torch.stack(self._losses), "right": torch.stack(self._right)}
        arrays = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
        arrays |= {f"curves.{name}": curve for name, curve in self.curves.items()}
        note = {"iteration": self.iteration, "seconds": self.seconds, "stopped": list(self.stopped.items())}
        return Tensors(arrays, note)

    def restore(self, state: Tensors) -> None:
        """Go on from what `state` gave."""
        self.iteration, self.seconds = state.note["iteration"], state.note["seconds"]
        self.stopped = dict(state.note["stopped"])
        device = self._wiring.bias.device
        # copied: the memory of a file is neither aligned nor ours
        tensors = {name: torch.tensor(array).to(device) for name, array in state.arrays.items()}
        with torch.no_grad():
            for name, weights in self.weights.items():
                weights.copy_(tensors[f"weights.{name}"])
                self.kept[name].copy_(tensors[f"kept.{name}"])
                self._optimiser.state[weights] = {
                    "step": torch.tensor(float(self.iteration), device=device),
                    "exp_avg": tensors[f"mean.{name}"],
                    "exp_avg_sq": tensors[f"square.{name}"],
                }
        self.curves = {name: np.array(state.arrays[f"curves.{name}"]) for name in self.curves}
        for pending, name in ((self._losses, "losses"), (self._right, "right")):
            pending[:] = tensors[name].unbind(0) if name in tensors else []


def _tests(
    tasks: Sequence[RetrievalTask], worlds: Sequence[World], seeds: Sequence[int], device: str
) -> list[tuple[Tensor, Tensor]]:
    """The curves' test sets, tokens and targets stacked over members: any item, then each pair both ways."""
    sets: list[list[Batch]] = []
    for task, world, seed in zip(tasks, worlds, seeds, strict=True):
        batches = [novel_tests(task, world, seed, SEQUENCES, number=TEST_SET)]
        for a, b in PAIRS:
            both = paired_tests(task, world, seed, task.places[a], task.places[b], SEQUENCES, number=TEST_SET)
            batches += [both.first, both.second]
        sets.append(batches)
    return [
        (
            torch.stack([batch.tokens for batch in column]).to(device),
            torch.stack([batch.target for batch in column]).to(device),
        )
        for column in zip(*sets, strict=True)
    ]
