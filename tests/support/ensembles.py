"""Ensembles for the tests of what is measured of them, untrained and made by hand; a member computed plainly."""

import math
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


def member_of(made: Trained, index: int) -> Trained:
    """One seed of an ensemble alone."""
    seed, one = made.experiment.seeds[index], slice(index, index + 1)
    curves = {name: held if name == "iteration" else held[one] for name, held in made.curves.items()}
    stopped = {key: at for key, at in made.stopped.items() if key == seed}
    weights = {name: held[one] for name, held in made.weights.items()}
    return replace(
        made,
        experiment=replace(made.experiment, seeds=(seed,)),
        weights=weights,
        curves=curves,
        stopped=stopped,
    )


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
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [sequence, token, dimension] and targets of one member's sequences of new classes."""
    batch = novel_sequences(task, make_world(task, [seed]), number, sequences).asking(item)
    return batch.tokens[0], batch.target[0]


class Reference:
    """One member in float64: Wu et al. 2025, Section 3 and Appendix J, without any rearrangement."""

    def __init__(self, network: Network, weights: dict[str, torch.Tensor]):
        self.network = network
        self.weights = {name: one.detach().clone().double().requires_grad_() for name, one in weights.items()}

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, list, list]:
        """Logits of sequences, and by layer attention and ‖update‖ / (‖stream‖ + ‖update‖) of each sequence."""
        w, kind, (tokens, dimension) = self.weights, self.network.positional.kind, x.shape[1:]
        mask, attentions, mixing = torch.as_tensor(self.network.mask.allowed(tokens)), [], []
        x = x.double()
        if kind == "sinusoidal":
            for i, k in np.ndindex(tokens, dimension // 2):
                angle, turn = i / self.network.positional.base ** (2 * k / dimension), torch.zeros_like(x)
                turn[:, i, 2 * k], turn[:, i, 2 * k + 1] = math.sin(angle), math.cos(angle)
                x = x + turn
        for t in range(self.network.depth):
            q, k = x @ w["query"][t], x @ w["key"][t]
            if kind == "rotary":
                q, k = self.rotate(q), self.rotate(k)
            scores = q @ k.transpose(1, 2) / math.sqrt(dimension)
            if kind == "decay":
                i = torch.arange(tokens, dtype=torch.float64)
                scores = scores - self.network.positional.rate * (i[:, None] - i).clamp(min=0)
            attentions.append(self.rows(scores.masked_fill(~mask, -math.inf), t))
            update = attentions[-1] @ x @ w["value"][t]
            size, added = (one.flatten(1).norm(dim=1) for one in (x, update))
            mixing.append(added / (size + added))
            x = x + update if self.network.residual else update
        y = x[:, -1]
        for hidden, bias in zip(w["hidden"], w["hidden_bias"], strict=True):
            y = torch.relu(y @ hidden + bias)
        return y @ w["output"] + w["output_bias"], attentions, mixing

    def rows(self, scores: torch.Tensor, layer: int) -> torch.Tensor:
        normaliser = self.network.normaliser
        match normaliser.kind:
            case "softmax":
                return torch.softmax(scores, dim=-1)
            case "sink_softmax":
                learned = torch.tensor(normaliser.logit, dtype=torch.float64)
                sink = self.weights["sink"][layer] if normaliser.learned else learned
                logits = torch.cat([sink.expand(*scores.shape[:-1], 1), scores], dim=-1)
                return torch.softmax(logits, dim=-1)[..., 1:]
            case "sigmoid":
                bias = -math.log(scores.shape[-1]) if normaliser.bias is None else normaliser.bias
                return torch.sigmoid(scores + bias)
            case "relu":
                kept = scores.clamp(min=0)
                return kept / kept.sum(dim=-1, keepdim=True).clamp(min=1e-300)
        raise ValueError(normaliser.kind)

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        half, turned = x.shape[2] // 2, torch.empty_like(x)
        for i, k in np.ndindex(x.shape[1], half):
            angle = i * self.network.positional.base ** (-k / half)
            a, b = x[:, i, k], x[:, i, k + half]
            turned[:, i, k] = a * math.cos(angle) - b * math.sin(angle)
            turned[:, i, k + half] = a * math.sin(angle) + b * math.cos(angle)
        return turned


def plainly(made: Ensemble, member: int, tokens: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits [sequence, label], attention [sequence, layer, query, key], λ [sequence, layer] of one member."""
    alone = Reference(made.experiment.network, {name: one[member] for name, one in made.weights.items()})
    with torch.no_grad():
        logits, attentions, mixing = alone(tokens)
    return logits.numpy(), torch.stack(attentions, 1).numpy(), torch.stack(mixing, 1).numpy()
