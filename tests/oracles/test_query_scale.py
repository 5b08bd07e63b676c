"""Temperature by position: rows made by hand against the stream and the dense kernel."""

import math

import numpy as np
import pytest
from architectures import fractions, layers, query_scales
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.core.spec import decode, encode, fingerprint
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal, ScalableSoftmax, StepScale
from posbias.theory.encodings import ALiBi, DenseLogits, KerpleLog
from posbias.theory.masks import Causal, Chunked, SlidingWindow
from posbias.theory.mixing import ConstantMixing
from posbias.theory.normalisers import Sigmoid
from posbias.theory.rollout import influence
from posbias.theory.rollout.dispatch import engines
from posbias.theory.rollout.kernel import dense_influence, layer_kernel


def factor(scale, query: int, head: int) -> float:
    """What a row is multiplied by, from its equation."""
    if isinstance(scale, StepScale):
        return 1.0 + scale.beta * math.log(1.0 + math.floor((query + scale.first) / scale.period))
    bias, slope = (numbers[head % len(numbers)] for numbers in (scale.bias, scale.scale))
    return bias + slope * math.log(query + 1)


def kernel_by_hand(layer: Layer, tokens: int) -> np.ndarray:
    """Pair by pair in plain Python: (positional + content) · factor, a sink that no factor touches."""
    allowed = layer.mask.allowed(tokens)
    kernel = np.zeros((tokens, tokens))
    for head in range(layer.heads):
        for i in range(tokens):
            keys = np.flatnonzero(allowed[i]).tolist()
            logits = []
            for j in keys:
                plain = layer.positional.logits_at(np.array([i - j]), layer.heads)[head, 0]
                content = layer.content.constant[0] + 0.7 * (i == j) - 0.4 * (j == 0)
                logits.append((plain + content) / layer.temperature * factor(layer.query_scale, i, head))
            sink = [] if layer.sinks is None else [layer.sinks[0]]
            total = math.fsum(math.exp(logit) for logit in [*logits, *sink])
            for j, logit in zip(keys, logits, strict=True):
                kernel[i, j] += math.exp(logit) / total / layer.heads
    return kernel


@st.composite
def cases(draw):
    heads = draw(st.integers(1, 3))
    return Layer(
        heads=heads,
        mask=draw(st.sampled_from([Causal(), SlidingWindow(4, 1), Chunked(5)])),
        positional=draw(st.sampled_from([ALiBi(), KerpleLog((0.5,))])),
        content=ConstantDiagonal((0.7,), (draw(st.floats(-2, 2)),), (-0.4,)),
        temperature=draw(st.sampled_from([1.0, 2.0])),
        sinks=(draw(st.floats(-3, 3)),) if draw(st.booleans()) else None,
        query_scale=draw(query_scales(heads)),
    )


@given(cases(), st.integers(1, 20), fractions)
@examples(60)
def test_rows_are_those_made_by_hand(layer, tokens, lam):
    kernel = kernel_by_hand(layer, tokens)
    np.testing.assert_allclose(layer_kernel(layer, tokens), kernel, rtol=1e-12, atol=1e-15)
    row = np.eye(tokens)[-1]
    for _ in range(3):
        row = (1 - lam) * row + lam * row @ kernel
    profile = influence(Architecture(3, (layer,), ConstantMixing(lam)), tokens)
    np.testing.assert_allclose(profile.mass, row, rtol=1e-12, atol=1e-15)
    assert profile.missing_mass == pytest.approx(1 - row.sum(), abs=1e-12)
    assert profile.attrs["method"] == {"stream": 3}


@given(layers(scaled=True), st.integers(4, 60), fractions)
@examples(60)
def test_any_layer_equals_its_dense_kernel(layer, tokens, lam):
    """Every mask, encoding, content and number of heads, one layer in six with a temperature by position."""
    architecture = Architecture(2, (layer,), ConstantMixing(lam))
    found, dense = influence(architecture, tokens).mass, dense_influence(architecture, tokens)
    large = dense > 1e-250
    np.testing.assert_allclose(found[large], dense[large], rtol=1e-12, atol=0)


def test_steps_begin_where_both_models_have_them():
    """Llama 4 counts from one, Ministral 3 from zero."""
    position = np.arange(33)
    llama, ministral = StepScale(0.1, 8), StepScale(0.1, 8, 0)
    for scale, begin in ((llama, 7), (ministral, 8)):
        (factors,) = scale.factors_at(position, 1)
        assert (factors[:begin] == 1.0).all()
        assert factors[begin] == pytest.approx(1 + 0.1 * math.log(2), rel=1e-15)
    np.testing.assert_array_equal(
        llama.factors_at(position, 2)[:, :-1], ministral.factors_at(position, 2)[:, 1:]
    )


def test_scaling_holds_against_the_flattening_of_long_rows():
    """A diagonal of 1 and s = 1: its share is n^1/(n^1 + n − 1), one half, however long the row is."""
    content = ConstantDiagonal((1.0,))
    plain, scaled = (Layer(content=content, query_scale=scale) for scale in (None, ScalableSoftmax((1.0,))))
    for tokens in (10, 300):
        assert layer_kernel(scaled, tokens)[-1, -1] == pytest.approx(tokens / (2 * tokens - 1), rel=1e-12)
    assert layer_kernel(plain, 300)[-1, -1] < 0.01


def test_it_is_written_only_where_there_is_one():
    assert "query_scale" not in encode(Layer())
    # of a layer from before there was one
    assert fingerprint(Layer()) == "79e9d8471256248d"
    for scale in (ScalableSoftmax((0.5, 1.0), (0.1,)), StepScale(0.1, 8192), StepScale(0.1, 16384, 0)):
        layer = Layer(heads=2, query_scale=scale)
        assert decode(Layer, encode(layer)) == layer
        assert type(scale).__name__ in str(Architecture(1, (layer,)))
    assert "query_scale" not in str(Architecture(1))


def test_other_engines_are_refused_and_what_cannot_be_is_said():
    layer = Layer(query_scale=StepScale(0.1, 4))
    assert engines(layer) == ["stream"]
    with pytest.raises(InvalidValueError, match="'sweep' given, stream needed"):
        influence(Architecture(1, (layer,)), 8, method="sweep")
    with pytest.raises(InvalidValueError, match="scale: 3 given"):
        Layer(heads=2, query_scale=ScalableSoftmax((1.0, 2.0, 3.0)))
    with pytest.raises(InvalidValueError, match="beta"):
        StepScale(-0.1, 4)


def test_what_an_encoding_masks_stays_masked_under_a_factor_of_zero():
    matrix = np.where(np.tri(6, k=-1, dtype=bool) & (np.arange(6) % 2 == 1), -np.inf, 0.0)
    layer = Layer(positional=DenseLogits(matrix), query_scale=ScalableSoftmax((0.0,)))
    kernel = layer_kernel(layer, 6)
    assert kernel[5].tolist() == pytest.approx([0.25, 0, 0.25, 0, 0.25, 0.25])
    found = influence(Architecture(2, (layer,), ConstantMixing(0.5)), 6).mass
    np.testing.assert_allclose(found, dense_influence(Architecture(2, (layer,), ConstantMixing(0.5)), 6))


def test_other_normalisers_see_the_factor_on_every_logit():
    layer = Layer(
        content=ConstantDiagonal((0.0,), (-2.0,)), normaliser=Sigmoid(-3.0), query_scale=StepScale(1.0, 2)
    )
    expected = 1 / (1 + math.exp(2 * (1 + math.log(1 + 5 // 2)) + 3))
    np.testing.assert_allclose(layer_kernel(layer, 5)[-1], expected, rtol=1e-12)
    one = influence(Architecture(1, (layer,), ConstantMixing(1.0)), 5)
    np.testing.assert_allclose(one.mass, expected, rtol=1e-12)
