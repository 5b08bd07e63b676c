"""The sweep under windows on one core: 32 layers of 32 heads, distinct slopes and content in every layer and head.

`window` is the whole `influence`; the dense reference is `dense_influence` of tests/support.
"""

import functools

import numpy as np
import pytest
from dense import dense_influence

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.masks import Full, Prefix, SlidingWindow
from posbias.theory.mixing import PerLayer
from posbias.theory.positional import ALiBi
from posbias.theory.rollout import sweep
from posbias.theory.rollout.dispatch import influence

DEPTH, HEADS = 32, 32
MILLION = 1_000_000


@functools.cache
def architecture(width: int) -> Architecture:
    rng = np.random.default_rng(0)

    def layer() -> Layer:
        slopes = 0.8 * np.exp(-rng.uniform(0, 6, HEADS))
        return Layer(HEADS, SlidingWindow(width), ALiBi(slopes), ConstantDiagonal(rng.normal(0, 2, HEADS)))

    return Architecture(DEPTH, tuple(layer() for _ in range(DEPTH)), PerLayer(rng.uniform(0.05, 0.3, DEPTH)))


def pushed(architecture: Architecture, tokens: int):
    return influence(architecture, tokens, threads=1)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    pushed(architecture(64), 256)
    sweep.push(Layer(mask=Full()), 0.5, np.ones(9))


def of_length(tokens: int) -> Architecture:
    """A window of 4,096, or of a quarter of a shorter text."""
    return architecture(min(4096, tokens // 4))


@pytest.mark.parametrize("tokens", [256, 1024])
def test_window_dense(benchmark, tokens):
    mass = benchmark.pedantic(dense_influence, (of_length(tokens), tokens), rounds=1 if tokens > 256 else 3)
    np.testing.assert_allclose(pushed(of_length(tokens), tokens).mass, mass, rtol=1e-12)


@pytest.mark.parametrize("tokens", [256, 1024, 4096, 16_384, 65_536, 262_144, MILLION])
def test_window(benchmark, tokens):
    profile = benchmark.pedantic(pushed, (of_length(tokens), tokens), rounds=5, warmup_rounds=1)
    assert profile.method == {"sweep": DEPTH}
    assert abs(profile.mass.sum() - 1) < 1e-12


@pytest.mark.parametrize("width", [2, 16, 128, 65_536, MILLION])
def test_window_width(benchmark, width):
    """One layer over 1,000,000 tokens."""
    layer, row = architecture(width).layers[0], np.full(MILLION, 1e-6)
    benchmark.pedantic(sweep.push, (layer, 0.3, row), rounds=3, warmup_rounds=1)


@pytest.mark.parametrize(
    "mask", [SlidingWindow(4096, sinks=4), Prefix(MILLION // 2), Full()], ids=["sinks", "prefix", "full"]
)
def test_window_masks(benchmark, mask):
    """One layer over 1,000,000 tokens under the other masks."""
    layer = Layer(HEADS, mask, architecture(4096).layers[0].positional)
    benchmark.pedantic(sweep.push, (layer, 0.3, np.full(MILLION, 1e-6)), rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("decay", ["mild", "to_denormals"])
def test_window_denormals(benchmark, decay):
    """All mass decays through the range of denormals, against a decay that never gets there."""
    slopes = np.linspace(0.001, 0.004, HEADS) if decay == "mild" else np.linspace(0.3, 3.0, HEADS)
    stack = Architecture(DEPTH, (Layer(HEADS, SlidingWindow(8192), ALiBi(slopes)),), PerLayer([0.3] * DEPTH))
    benchmark.pedantic(pushed, (stack, 65_536), rounds=5, warmup_rounds=1)
