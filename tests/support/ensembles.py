"""Ensembles for the tests of what is measured of them: untrained and made by hand."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from posbias.theory.masks import SlidingWindow
from posbias.training.experiments import Experiment
from posbias.training.loop import Trained
from posbias.training.network import Network, Sinusoidal, initial_weights, wire
from posbias.training.task import RetrievalTask, make_world, novel_sequences

SMALL = RetrievalTask(items=4, dimension=16, classes=64, labels=4, burstiness=2)


@dataclass(frozen=True)
class Ensemble(Trained):
    """What the measures read of a trained ensemble."""

    curves: dict[str, Any] = field(default_factory=dict)
    stopped: dict[int, int] = field(default_factory=dict)

    def member(self, index: int) -> "Ensemble":
        alone = replace(self.experiment, seeds=(self.experiment.seeds[index],))
        return Ensemble(alone, {name: one[index : index + 1] for name, one in self.weights.items()})


def untrained(network: Network, task: RetrievalTask = SMALL, seeds: tuple[int, ...] = (0, 1)) -> Ensemble:
    return Ensemble(Experiment(task, network, seeds), initial_weights(network.depth, task, seeds))


def scrambled(network: Network, task: RetrievalTask = SMALL, seeds: tuple[int, ...] = (0, 1)) -> Ensemble:
    """Initial weights times four: attention that follows content, answers that differ."""
    made = untrained(network, task, seeds)
    return Ensemble(made.experiment, {name: 4.0 * one for name, one in made.weights.items()})


def copier(task: RetrievalTask, item: int, seeds: tuple[int, ...] = (0, 1, 2)) -> Ensemble:
    """Networks that answer the label of one item, whatever is asked: attention finds its place."""
    network = Network(depth=1, positional=Sinusoidal(base=20.0))
    made = untrained(network, task, seeds)
    weights = {name: torch.zeros_like(one) for name, one in made.weights.items()}
    places = wire([network], task.tokens, task.dimension).added[0].double()
    # the sine pattern of a place stands out from unit-length content, and differs from its neighbours'
    ask, find = (places[at] / places[at].square().sum() for at in (-1, 2 * item + 1))
    weights["query"][:, 0, :, 0] = 1e4 * ask.float()
    weights["key"][:, 0, :, 0] = find.float()
    weights["value"][:] = torch.eye(task.dimension)
    _read_labels(weights, task, seeds, places[2 * item + 1])
    return Ensemble(made.experiment, weights)


def last_label(
    task: RetrievalTask, seeds: tuple[int, ...] = (0, 1, 2), residual: bool = False, width: int = 2
) -> Ensemble:
    """Networks with uniform attention over the last two tokens, which answer the last item's label."""
    network = Network(depth=1, mask=SlidingWindow(width), residual=residual)
    made = untrained(network, task, seeds)
    weights = {name: torch.zeros_like(one) for name, one in made.weights.items()}
    weights["value"][:] = width * torch.eye(task.dimension)
    _read_labels(weights, task, seeds, torch.zeros(task.dimension))
    return Ensemble(made.experiment, weights)


def _read_labels(weights: dict, task: RetrievalTask, seeds: tuple[int, ...], offset: torch.Tensor) -> None:
    """Classifiers that find the label in (label vector + offset)."""
    read = torch.linalg.pinv(make_world(task, seeds).label_vectors.double())
    weights["hidden"][:, 0, :, : task.labels] = read.float()
    weights["hidden_bias"][:, 0, : task.labels] = -(offset.double() @ read).float()
    weights["hidden"][:, 1:] = torch.eye(task.dimension)
    weights["output"][:, : task.labels] = torch.eye(task.labels)


def shown(
    task: RetrievalTask, seed: int, sequences: int, number: int, item: int | None = None
) -> list[tuple[np.ndarray, int]]:
    """Tokens and target of one member's sequences of new classes, one after another."""
    batch = novel_sequences(task, make_world(task, [seed]), number, sequences).asking(item)
    return [
        (tokens.numpy(), int(right)) for tokens, right in zip(batch.tokens[0], batch.target[0], strict=True)
    ]


def plain_forward(made: Ensemble, member: int, tokens: np.ndarray) -> tuple[np.ndarray, list, list]:
    """One sequence through one member in float64, by the definition: logits, attentions, λ per layer."""
    network, d = made.experiment.network, tokens.shape[1]
    weights = {name: one[member].double().numpy() for name, one in made.weights.items()}
    n, x = len(tokens), tokens.astype(np.float64)
    base = getattr(network.positional, "base", 1.0) ** (-np.arange(0, d, 2) / d)
    angle = np.arange(n)[:, None] * base
    kind = network.positional.kind
    if kind == "sinusoidal":
        x = x + np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(n, d)
    attentions, mixing = [], []
    for t in range(network.depth):
        q, k = x @ weights["query"][t], x @ weights["key"][t]
        if kind == "rotary":
            q, k = ((z[:, : d // 2] + 1j * z[:, d // 2 :]) * np.exp(1j * angle) for z in (q, k))
        attention = np.zeros((n, n))
        for i in range(n):
            allowed = np.flatnonzero(network.mask.allowed(n)[i])
            logits = np.array([(q[i] @ k[j].conj()).real / np.sqrt(d) for j in allowed])
            if kind == "decay":
                logits -= network.positional.rate * np.maximum(i - allowed, 0)
            share = np.exp(logits - logits.max())
            attention[i, allowed] = share / share.sum()
        update = attention @ x @ weights["value"][t]
        attentions.append(attention)
        mixing.append(np.linalg.norm(update) / (np.linalg.norm(x) + np.linalg.norm(update)))
        x = update + x if network.residual else update
    y = x[-1]
    for hidden, bias in zip(weights["hidden"], weights["hidden_bias"], strict=True):
        y = np.maximum(y @ hidden + bias, 0.0)
    return y @ weights["output"] + weights["output_bias"], attentions, mixing
