"""The sweep against the plain dense algorithm on the shape of BLOOM-176B: 70 layers of 112 heads.

Content differs in every layer and head, so nothing can be shared between layers; `uniform` has none, which
lets the sweep share its weights. The dense reference is `dense_influence` of tests/support.
"""

import numpy as np
import pytest
from dense import dense_influence

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.mixing import PerLayer
from posbias.theory.positional import ALiBi
from posbias.theory.rollout import influence, sweep

DEPTH, HEADS = 70, 112


def bloom(content: bool = True) -> Architecture:
    rng = np.random.default_rng(0)
    layers = tuple(
        Layer(heads=HEADS, positional=ALiBi(), content=ConstantDiagonal(rng.normal(0, 2, HEADS)))
        for _ in range(DEPTH)
    )
    if not content:
        layers = (Layer(heads=HEADS, positional=ALiBi()),)
    return Architecture(DEPTH, layers, PerLayer(rng.uniform(0.05, 0.3, DEPTH)))


def swept(architecture: Architecture, tokens: int, threads: int = 1) -> np.ndarray:
    row = np.zeros(tokens)
    row[-1] = 1.0
    return sweep.sweep(sweep.plan(architecture.stack, architecture.coefficients, tokens), row, threads)[0]


def rounds(tokens: int) -> int:
    return 20 if tokens <= 4096 else 5


@pytest.fixture(scope="module", autouse=True)
def compiled():
    swept(bloom(), 64)


@pytest.mark.parametrize("tokens", [256, 512])
def test_dense(benchmark, tokens):
    mass = benchmark.pedantic(dense_influence, (bloom(), tokens), rounds=1 if tokens > 256 else 3)
    np.testing.assert_allclose(swept(bloom(), tokens), mass, rtol=1e-12)


@pytest.mark.parametrize("tokens", [256, 512, 4096, 16_384, 65_536, 262_144, 1_000_000])
def test_sweep_one_core(benchmark, tokens):
    mass = benchmark.pedantic(swept, (bloom(), tokens), rounds=rounds(tokens), warmup_rounds=1)
    assert abs(mass.sum() - 1) < 1e-12


def test_influence_content(benchmark):
    """The whole prediction for 256 tokens: what it takes in addition to the sweep and its plan."""
    stack = bloom()
    profile = benchmark.pedantic(influence, (stack, 256), {"threads": 1}, rounds=20, warmup_rounds=1)
    np.testing.assert_array_equal(profile.mass, swept(stack, 256))


@pytest.mark.parametrize("tokens", [256, 512, 1_000_000])
def test_sweep_uniform_one_core(benchmark, tokens):
    benchmark.pedantic(swept, (bloom(content=False), tokens), rounds=rounds(tokens), warmup_rounds=1)


@pytest.mark.parametrize("tokens", [65_536, 262_144, 1_000_000])
def test_sweep_two_cores(benchmark, tokens):
    benchmark.pedantic(swept, (bloom(), tokens, 2), rounds=rounds(tokens), warmup_rounds=1)


@pytest.mark.parametrize("decay", ["mild", "to_denormals"])
def test_denormals(benchmark, decay):
    """All mass decays through the range of denormals, at every token, against a decay that never gets there."""
    slopes = np.linspace(0.001, 0.004, HEADS) if decay == "mild" else np.linspace(0.3, 3.0, HEADS)
    architecture = Architecture(
        DEPTH, (Layer(heads=HEADS, positional=ALiBi(slopes)),), PerLayer([0.3] * DEPTH)
    )
    benchmark.pedantic(swept, (architecture, 65_536), rounds=5, warmup_rounds=1)
