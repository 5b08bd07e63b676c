"""Training against a plain loop: batch 128, 8 items, 64 dimensions, one core; iterations × members per second.

The plain loop is written as the paper's own code is: a dataset whose sequence number i is drawn from generators
seeded with i, one torch call per item, and collated by a loader; a module with a linear map each for queries,
keys and values; AdamW on its parameters. Times are of the processor, not of the clock, so that other work on
the machine does not enter the ratios.
"""

import math
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from posbias.training.experiments import Experiment  # noqa: E402
from posbias.training.loop import Ensemble  # noqa: E402
from posbias.training.network import ENCODINGS, HIDDEN, Network  # noqa: E402
from posbias.training.task import RetrievalTask, World, make_world  # noqa: E402

BATCH = 128
TASK = RetrievalTask()


class Sequences(torch.utils.data.Dataset):
    """Sequence by sequence, item by item."""

    def __init__(self, task: RetrievalTask, world: World):
        self.task = task
        self.centre = dict(enumerate(world.centres[0]))
        self.label = dict(enumerate(world.class_labels[0].tolist()))
        self.label_vector = dict(enumerate(world.label_vectors[0]))

    def __len__(self):
        return 128 * 500_000

    def item(self, k: int):
        noise = torch.normal(
            mean=torch.tensor(0.0), std=torch.tensor(self.task.deviation), size=(self.task.dimension,)
        )
        weight = self.task.within_class_noise
        return (self.centre[k] + weight * noise) / np.sqrt(1 + weight**2)

    def __getitem__(self, number):
        torch.random.manual_seed(number)
        rng = np.random.RandomState(number)
        kinds = rng.choice(self.task.classes, size=self.task.kinds, replace=False)
        classes = rng.permutation(np.tile(kinds, self.task.burstiness))
        asked = classes[rng.choice(self.task.items)]
        tokens = []
        for k in classes:
            tokens += [self.item(k).unsqueeze(0), self.label_vector[self.label[k]].unsqueeze(0)]
        tokens.append(self.item(asked).unsqueeze(0))
        return torch.cat(tokens), self.label[asked]


class Plain(torch.nn.Module):
    """The network as the equations write it."""

    def __init__(self, depth: int, rotary: bool):
        super().__init__()
        d = TASK.dimension
        names = ("query", "key", "value")
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict({name: torch.nn.Linear(d, d, bias=False) for name in names})
            for _ in range(depth)
        )
        hidden = [part for _ in range(HIDDEN) for part in (torch.nn.Linear(d, d), torch.nn.ReLU())]
        self.classifier = torch.nn.Sequential(*hidden, torch.nn.Linear(d, TASK.labels))
        self.register_buffer("mask", torch.ones(TASK.tokens, TASK.tokens).tril().bool())
        angles = torch.arange(TASK.tokens)[:, None] * 10_000.0 ** (-torch.arange(0, d, 2) / d)
        self.cosine, self.sine, self.rotary = angles.cos(), angles.sin(), rotary

    def rotate(self, x):
        first, second = x.chunk(2, dim=-1)
        turned = (first * self.cosine - second * self.sine, first * self.sine + second * self.cosine)
        return torch.cat(turned, dim=-1)

    def forward(self, x):
        for layer in self.layers:
            q, k, v = layer["query"](x), layer["key"](x), layer["value"](x)
            if self.rotary:
                q, k = self.rotate(q), self.rotate(k)
            scores = q @ k.transpose(1, 2) / math.sqrt(x.shape[-1])
            x = torch.softmax(scores.masked_fill(~self.mask, -math.inf), dim=-1) @ v
        return self.classifier(x[:, -1])


def plain_loop(depth: int, encoding: str):
    """A function that does some iterations of the plain loop."""
    torch.manual_seed(0)
    model = Plain(depth, encoding == "rope")
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-6)
    loader = iter(torch.utils.data.DataLoader(Sequences(TASK, make_world(TASK, [0])), batch_size=BATCH))

    def run(iterations: int) -> float:
        for _ in range(iterations):
            tokens, target = next(loader)
            loss = torch.nn.functional.cross_entropy(model(tokens), target)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return float(loss.detach())

    return run


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


pytestmark = pytest.mark.benchmark(timer=time.process_time)
CASES = [(depth, encoding) for depth in (2, 4, 6) for encoding in ("none", "rope")]


@pytest.mark.parametrize(("depth", "encoding"), CASES)
def test_training_plain(benchmark, depth, encoding):
    run = plain_loop(depth, encoding)
    benchmark.extra_info["member_iterations"] = 4
    loss = benchmark.pedantic(run, (4,), rounds=5, warmup_rounds=1)
    assert abs(loss - math.log(TASK.labels)) < 0.3


@pytest.mark.parametrize("members", [1, 5])
@pytest.mark.parametrize(("depth", "encoding"), CASES)
def test_training_ensemble(benchmark, depth, encoding, members):
    network = Network(depth, positional=ENCODINGS[encoding])
    ensemble = Ensemble([Experiment(network=network, seeds=tuple(range(members)))], "cpu")
    iterations = 100 // depth // members + 4

    def run() -> None:
        for _ in range(iterations):
            ensemble.step()

    benchmark.extra_info["member_iterations"] = iterations * members
    benchmark.pedantic(run, rounds=9, warmup_rounds=1)
    ensemble.evaluate()
    assert (ensemble.curves["loss"] < math.log(TASK.labels) + 0.1).all()
