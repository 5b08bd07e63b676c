"""Masks that cut the text: chunks pushed one by one against the dense kernel, by every engine."""

import numpy as np
import pytest
from architectures import curved, exponential, fractions, layers
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.encodings import ALiBi, KerpleLog
from posbias.theory.masks import Causal, Chunked, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PerLayer
from posbias.theory.rollout import convolution, dispatch, influence, windows
from posbias.theory.rollout.dispatch import push_pieces, sweep_pieces
from posbias.theory.rollout.kernel import dense_influence, layer_kernel

chunks = st.builds(Chunked, st.one_of(st.integers(1, 9), st.integers(100, 400)))


def chunked(layer: Layer, row: np.ndarray, lam: float) -> np.ndarray:
    """row · R by the definition, chunk by chunk and query by query, with plain exponentials in float64."""
    tokens, width = len(row), layer.mask.width
    logits, fixed = layer.logits(tokens), layer.head_logits()
    out = (1.0 - lam) * row
    for i in range(tokens):
        low = i // width * width
        for h in range(layer.heads):
            seen = logits[h, i, low : i + 1]
            top = max(seen.max(), fixed.sinks[h])
            shares = np.exp(seen - top)
            total = shares.sum() + np.exp(fixed.sinks[h] - top)
            out[low : i + 1] += lam * row[i] * fixed.weights[h] * shares / total
    return out


def agree(found: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    large = expected > 1e-250
    np.testing.assert_allclose(found[large], expected[large], rtol=rtol, atol=0)
    assert (found[~large] <= 1e-250).all()


@given(layers(mask=chunks, positional=exponential), fractions, st.integers(1, 300), st.integers(0, 9))
@examples(60)
def test_each_chunk_is_a_causal_text(layer, lam, tokens, seed):
    """The first column is that of the first chunk alone; what chunks lose to the sink adds up."""
    row = np.random.default_rng(seed).random(tokens)
    expected = chunked(layer, row, lam)
    lacking = lam * (1.0 - layer_kernel(layer, tokens).sum(axis=1))
    cuts = layer.mask.pieces(tokens)
    for found, lost in (
        dispatch._pushed("stream", layer, lam, row),
        *([] if "sweep" not in dispatch.engines(layer) else [push_pieces(windows.push, layer, lam, row)]),
        *(
            []
            if "sweep" not in dispatch.engines(layer)
            else [sweep_pieces([layer], np.array([lam]), row, cuts, 1)]
        ),
    ):
        agree(found, expected, 1e-12)
        np.testing.assert_allclose(lost, row @ lacking, rtol=1e-9, atol=1e-11)


@given(layers(mask=st.builds(Chunked, st.integers(300, 700)), positional=curved), st.integers(0, 9))
@examples(15)
def test_transforms_take_chunk_by_chunk(layer, seed):
    row = np.random.default_rng(seed).random(900)
    found, _ = push_pieces(convolution.push, layer, 0.7, row)
    agree(found, chunked(layer, row, 0.7), 2e-10)


@given(
    st.lists(
        st.sampled_from([Chunked(150), Causal(), SlidingWindow(40), Chunked(400)]), min_size=1, max_size=6
    )
)
@examples(15)
def test_layers_that_are_cut_alike_are_swept_together(masks):
    content = ConstantDiagonal((0.4,), first_column=(1.5,))
    stack = tuple(Layer(2, mask, ALiBi(), content, sinks=(0.3,)) for mask in masks)
    architecture = Architecture(len(stack), stack, PerLayer(tuple(np.linspace(0.3, 0.8, len(stack)))))
    profile = influence(architecture, 700)
    agree(profile.mass, dense_influence(architecture, 700), 1e-12)
    assert profile.attrs["method"] == {"sweep": len(stack)}
    for threads in (1, 3):
        np.testing.assert_array_equal(influence(architecture, 700, threads=threads).mass, profile.mass)


@pytest.mark.parametrize("width", [300, 10_000])
def test_which_engine_takes_chunks(width):
    curved = "fft" if width > dispatch.FEW else "stream"
    for positional, engine in ((ALiBi(), "sweep"), (KerpleLog((1.0,), (0.5,)), curved)):
        layer = Layer(mask=Chunked(width), positional=positional)
        assert dispatch.engine(layer, 5000) == engine
        assert dispatch.engine(Layer(mask=Chunked(16), positional=positional), 5000) == "stream"
    one = Architecture(2, (Layer(mask=Chunked(width), positional=ALiBi()),), ConstantMixing(0.5))
    profile = influence(one, 1000)
    assert (profile.mass[: 999 // width * width] == 0).all()
    assert profile.mass.sum() == pytest.approx(1.0, abs=1e-12)
