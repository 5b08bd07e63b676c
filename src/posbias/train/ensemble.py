"""Members that train side by side: their stacked weights, one optimiser, and what is known of them so far.

`step` does one iteration; `look`, every so often, writes down the curves, tests on new classes and stops the
members that are no longer finite. A stopped member's place in the stack goes on from zero weights, so that
nobody else's matrix products change; what it had is in `kept`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posbias.train.feed import Feed
from posbias.train.network import forward, initial_weights, wire
from posbias.train.specification import Experiment
from posbias.train.task import Batch, RetrievalTask, World, make_world, novel_tests, paired_tests

PAIRS = (("first", "middle"), ("first", "last"), ("middle", "last"))
"""The pairs of items whose accuracies are compared."""
WATCHED = 256
"""Sequences per member of each test set of the curves."""
WATCH = 2**61
"""Number of the curves' test sets: no other test asks for it."""


class Ensemble:
    """Members of compatible experiments, experiment by experiment and seed by seed."""

    def __init__(self, experiments: Sequence[Experiment], device: str):
        self.members = [(one, seed) for one in experiments for seed in one.seeds]
        one = experiments[0]
        task = one.task
        self.total, self.every, self._size = (
            one.iterations,
            min(one.evaluate_every, one.iterations),
            one.batch,
        )
        worlds = [make_world(each.task, seed) for each, seed in self.members]
        tasks, seeds = [each.task for each, _ in self.members], [seed for _, seed in self.members]
        self._wiring = wire([each.network for each, _ in self.members], task.tokens, task.dimension, device)
        begun = [initial_weights(one.network.depth, task.dimension, task.labels, seed) for seed in seeds]
        self.weights = {
            name: torch.stack([each[name] for each in begun]).to(device).requires_grad_() for name in begun[0]
        }
        self._optimiser = torch.optim.AdamW(
            list(self.weights.values()), lr=one.learning_rate, weight_decay=one.weight_decay, fused=True
        )
        self._feed = Feed(tasks, worlds, seeds, one.batch, device)
        self._tests = _tests(tasks, worlds, seeds, device)
        self.iteration, self.seconds = 0, 0.0
        self.stopped: dict[int, int] = {}
        self.curves: dict[str, np.ndarray] = {name: np.zeros((len(seeds), 0)) for name in _CURVES}
        self.curves["iteration"] = np.zeros(0, dtype=np.int64)
        self.kept = {name: one.detach().clone() for name, one in self.weights.items()}
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

    def look(self) -> list[str]:
        """Write down the curves since the last look and stop who is not finite; returns a line for each."""
        losses = torch.stack(self._losses).double().cpu()
        finite = torch.stack([one.detach().isfinite().flatten(1).all(dim=1) for one in self.weights.values()])
        sound = (losses.isfinite().all(dim=0) & finite.all(dim=0).cpu()).numpy()
        lines = [
            self._stop(member, losses[:, member])
            for member in range(len(sound))
            if not sound[member] and member not in self.stopped
        ]
        going = [member for member in range(len(sound)) if member not in self.stopped]
        with torch.no_grad():
            for name, kept in self.kept.items():
                kept[going] = self.weights[name].detach()[going]
        point = {
            "loss": losses.mean(dim=0),
            "accuracy": torch.stack(self._right).double().mean(dim=0) / self._size,
            **self._watch(),
        }
        self._losses, self._right = [], []
        self.curves["iteration"] = np.append(self.curves["iteration"], self.iteration)
        for name, values in point.items():
            column = values.double().cpu().numpy().copy()
            column[list(self.stopped)] = np.nan
            self.curves[name] = np.column_stack([self.curves[name], column])
        return lines

    def _stop(self, member: int, losses: Tensor) -> str:
        """Stop a member: its place in the stack becomes zero."""
        bad = (~losses.isfinite()).nonzero().flatten()
        at = self.iteration - len(losses) + int(bad[0]) if len(bad) else self.iteration - 1
        self.stopped[member] = at
        with torch.no_grad():
            for one in self.weights.values():
                one[member] = 0.0
                for moment in ("exp_avg", "exp_avg_sq"):
                    self._optimiser.state[one][moment][member] = 0.0
        since = int(self.curves["iteration"][-1]) if len(self.curves["iteration"]) else 0
        return (
            f"seed {self.members[member][1]}: loss or weights were not finite at iteration {at}; this member is "
            f"stopped with its weights of iteration {since}, the others go on"
        )

    def _watch(self) -> dict[str, Tensor]:
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

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that decides what comes next, as tensors and as values for JSON."""
        tensors = {}
        for name, one in self.weights.items():
            moments = self._optimiser.state[one]
            tensors |= {
                f"weights.{name}": one.detach(),
                f"kept.{name}": self.kept[name],
                f"mean.{name}": moments["exp_avg"],
                f"square.{name}": moments["exp_avg_sq"],
            }
        tensors |= {f"curves.{name}": torch.from_numpy(curve) for name, curve in self.curves.items()}
        if self._losses:
            tensors |= {"losses": torch.stack(self._losses), "right": torch.stack(self._right)}
        note = {"iteration": self.iteration, "seconds": self.seconds, "stopped": list(self.stopped.items())}
        return tensors, note

    def restore(self, tensors: dict[str, Tensor], note: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.iteration, self.seconds = note["iteration"], note["seconds"]
        self.stopped = dict(note["stopped"])
        with torch.no_grad():
            for name, one in self.weights.items():
                one.copy_(tensors[f"weights.{name}"])
                self.kept[name].copy_(tensors[f"kept.{name}"])
                self._optimiser.state[one] = {
                    "step": torch.tensor(float(self.iteration), device=one.device),
                    "exp_avg": tensors[f"mean.{name}"].to(one.device),
                    "exp_avg_sq": tensors[f"square.{name}"].to(one.device),
                }
        for name in self.curves:
            self.curves[name] = tensors[f"curves.{name}"].numpy()
        device = self._wiring.bias.device
        for pending, name in ((self._losses, "losses"), (self._right, "right")):
            pending[:] = tensors[name].to(device).unbind(0) if name in tensors else []


_CURVES = ("loss", "accuracy", "in_context_accuracy", *(f"{a}-{b}" for a, b in PAIRS))


def _tests(
    tasks: Sequence[RetrievalTask], worlds: Sequence[World], seeds: Sequence[int], device: str
) -> list[tuple[Tensor, Tensor]]:
    """The curves' test sets, tokens and targets stacked over members: any item, then each pair both ways."""
    sets: list[list[Batch]] = []
    for task, world, seed in zip(tasks, worlds, seeds, strict=True):
        batches = [novel_tests(task, world, seed, WATCHED, number=WATCH)]
        for a, b in PAIRS:
            both = paired_tests(task, world, seed, task.places[a], task.places[b], WATCHED, number=WATCH)
            batches += [both.first, both.second]
        sets.append(batches)
    return [
        (
            torch.stack([batch.tokens for batch in column]).to(device),
            torch.stack([batch.target for batch in column]).to(device),
        )
        for column in zip(*sets, strict=True)
    ]
