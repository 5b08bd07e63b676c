"""The Gram-space engine against the token-space simulation in torch: 10 tokens, 4 layers, α = .5, one core.

The plain simulation is written as well as torch allows: chunks of the size that is fastest here, no step that
the answer does not need. `same` gives what the engine gives of it (means and errors of scores, attention and
recency probability) in the same precision; `bare` is in single precision and gives means alone.
"""

import math

import numpy as np
import pytest

from posbias.simulation import RecencyModel, simulate_recency

torch = pytest.importorskip("torch")

TOKENS, DEPTH, ANISOTROPY = 10, 4, 0.5
CHUNK = {("same", 64): 256, ("same", 1024): 32, ("bare", 64): 1024, ("bare", 1024): 64}
"""Samples that are simulated together: what was fastest of 16 to 8,192."""
DIMENSIONS = [16, 64, 1024]


def triples():
    i, j, k = (axis.ravel() for axis in np.indices((TOKENS,) * 3))
    chosen = (i > j) & (j > k)
    return i[chosen], j[chosen], k[chosen]


def token_space(samples: int, dimension: int, kind: str) -> np.ndarray:
    """Recency probability per layer, and the other statistics on the way."""
    chunk, same = CHUNK[kind, dimension], kind == "same"
    dtype = torch.float64 if same else torch.float32
    rng = torch.Generator().manual_seed(0)
    causal = torch.tril(torch.ones(TOKENS, TOKENS, dtype=torch.bool))
    i, j, k = triples()
    scale, shared = 1 / math.sqrt(dimension), math.sqrt(ANISOTROPY / (1 - ANISOTROPY))
    share = torch.zeros(2, DEPTH, dtype=torch.float64)
    means = torch.zeros(4, DEPTH, TOKENS, TOKENS, dtype=torch.float64)
    for _ in range(samples // chunk):
        x = torch.randn(chunk, TOKENS, dimension, generator=rng, dtype=dtype)
        x = (x + shared * torch.randn(chunk, 1, dimension, generator=rng, dtype=dtype)) * scale
        for t in range(DEPTH):
            y = torch.nn.functional.layer_norm(x, (dimension,), eps=1e-12)
            scores = y @ y.transpose(1, 2) * scale
            attention = torch.softmax(scores.masked_fill(~causal, -math.inf), -1)
            later = scores[:, i, j] > scores[:, i, k]
            if same:
                each = later.double().mean(1)
                share[0, t] += each.sum()
                share[1, t] += (each**2).sum()
                for place, drawn in ((0, scores), (2, attention)):
                    means[place, t] += drawn.sum(0)
                    means[place + 1, t] += (drawn**2).sum(0)
            else:
                share[0, t] += later.sum() / len(i)
                means[0, t] += scores.sum(0)
                means[2, t] += attention.sum(0)
            if t < DEPTH - 1:
                x = attention @ y
    return (share[0] / (samples // chunk * chunk)).numpy()


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    simulate_recency(RecencyModel(), 4096)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("kind", "dimension"), CHUNK)
def test_recency_torch(benchmark, kind, dimension):
    samples = 65_536 // dimension * 16
    benchmark.extra_info["samples"] = samples
    found = benchmark.pedantic(token_space, (samples, dimension, kind), rounds=3, warmup_rounds=1)
    truth = simulate_recency(RecencyModel(dimension=dimension), 100_000).recency_probability
    for one, other in zip(found, truth, strict=True):
        assert abs(one - other.value) < 6 * 0.3 / math.sqrt(samples)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_recency_one_core(benchmark, dimension):
    benchmark.extra_info["samples"] = 200_000
    model = RecencyModel(dimension=dimension)
    benchmark.pedantic(simulate_recency, (model, 200_000), {"threads": 1}, rounds=5, warmup_rounds=1)


def test_recency_two_cores(benchmark):
    benchmark.extra_info["samples"] = 1_000_000
    model = RecencyModel(dimension=64)
    benchmark.pedantic(simulate_recency, (model, 1_000_000), {"threads": 2}, rounds=3, warmup_rounds=1)
