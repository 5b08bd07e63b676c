"""Logits by distance through 32 layers of 32 heads on one core, against the plain dense algorithm.

`rope` and `table` differ in every head and layer, so that nothing is shared; `kerple` and `t5` are the same
in all layers, as in the models that use them, and are prepared once.
"""

import functools

import numpy as np
import pytest
from dense import dense_influence

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.masks import Causal, SlidingWindow
from posbias.theory.mixing import AttentionOnly, PerLayer
from posbias.theory.positional import T5, KerpleLog, RoPE, Tabulated
from posbias.theory.rollout.dispatch import influence

DEPTH, HEADS = 32, 32


@functools.cache
def architecture(encoding: str, tokens: int, attention_only: bool = False, window: int = 0) -> Architecture:
    rng = np.random.default_rng(0)
    mask = SlidingWindow(window) if window else Causal()

    def layer() -> Layer:
        positional = {
            "rope": lambda: RoPE(rng.normal(0, 0.3, (HEADS, 64)), dimension=128),
            "table": lambda: Tabulated(
                rng.normal(0, 0.5, (HEADS, tokens)) - rng.uniform(0, 0.002, (HEADS, 1)) * np.arange(tokens)
            ),
            "kerple": lambda: KerpleLog(rng.uniform(0.1, 3, HEADS), rng.uniform(0.1, 2, HEADS)),
            "t5": lambda: T5(rng.normal(0, 2, (HEADS, 32))),
        }[encoding]()
        return Layer(heads=HEADS, mask=mask, positional=positional)

    shared = encoding in ("kerple", "t5")
    layers = (layer(),) if shared else tuple(layer() for _ in range(DEPTH))
    mixing = AttentionOnly() if attention_only else PerLayer(rng.uniform(0.1, 0.3, DEPTH))
    # a name, so that no time goes into a fingerprint of a million logits per layer
    return Architecture(DEPTH, layers, mixing, name=encoding)


def pushed(architecture: Architecture, tokens: int, method: str = "auto"):
    return influence(architecture, tokens, method=method, threads=1)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    for method in ("fft", "stream"):
        pushed(architecture("kerple", 1024), 1024, method)


@pytest.mark.parametrize("encoding", ["rope", "kerple"])
def test_dense_by_distance(benchmark, encoding):
    stack = architecture(encoding, 1024)
    mass = benchmark.pedantic(dense_influence, (stack, 1024), rounds=1)
    for method in ("fft", "stream"):
        np.testing.assert_allclose(pushed(stack, 1024, method).mass, mass, rtol=1e-10)


@pytest.mark.parametrize("method", ["fft", "stream"])
@pytest.mark.parametrize("encoding", ["rope", "kerple"])
def test_by_distance(benchmark, encoding, method):
    """At 1,024 tokens, for the ratio to the dense algorithm."""
    benchmark.pedantic(pushed, (architecture(encoding, 1024), 1024, method), rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("tokens", [4096, 8192, 16_384, 32_768])
@pytest.mark.parametrize("encoding", ["rope", "table", "kerple", "t5"])
def test_convolution(benchmark, encoding, tokens):
    profile = benchmark.pedantic(pushed, (architecture(encoding, tokens), tokens), rounds=1)
    assert abs(profile.mass.sum() - 1) < 1e-9
    assert set(profile.method) == {"fft"}


@pytest.mark.parametrize("encoding", ["rope", "kerple"])
def test_convolution_attention_only(benchmark, encoding):
    stack = architecture(encoding, 32_768, attention_only=True)
    profile = benchmark.pedantic(pushed, (stack, 32_768), rounds=1)
    assert abs(profile.mass.sum() - 1) < 1e-9


def test_convolution_window(benchmark):
    """A window of 4,096 over a long text: time grows with the tokens, not with their square."""
    stack = architecture("kerple", 262_144, window=4096)
    profile = benchmark.pedantic(pushed, (stack, 262_144), rounds=1)
    assert abs(profile.mass.sum() - 1) < 1e-9
