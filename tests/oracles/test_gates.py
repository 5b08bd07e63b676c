"""Gates on heads: rollouts against products of gated sums of the heads' kernels, rows divided by their sums."""

from dataclasses import replace

import numpy as np
import pytest
from architectures import SHORTEST, architectures
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from posbias import gated
from posbias.core.errors import InvalidValueError
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.encodings import ALiBi
from posbias.theory.mixing import (
    AttentionOnly,
    Connection,
    ConstantMixing,
    HyperConnections,
    MeasuredMixing,
    PerLayer,
)
from posbias.theory.rollout import influence
from posbias.theory.rollout.kernel import layer_kernel


def naive(architecture, gates, tokens: int) -> np.ndarray:
    """The last row of ∏ R, R's rows those of (1 − λ)I + λ·Σ_h w_h·g_h·A_h over their sums."""
    product = np.eye(tokens)
    for layer, row, lam in zip(architecture.stack, gates, architecture.coefficients, strict=True):
        step = (1 - lam) * np.eye(tokens)
        for head, (gate, weight) in enumerate(zip(row, layer.head_logits().weights, strict=True)):
            alone = [float(h == head) for h in range(layer.heads)]
            step += lam * weight * gate * layer_kernel(replace(layer, head_weights=alone), tokens)
        product = step / step.sum(axis=1, keepdims=True) @ product
    return product[-1]


@st.composite
def cases(draw):
    architecture = draw(architectures(max_depth=3, sinks=False))
    assume(not architecture.mixing.assumed)
    gate = st.one_of(st.just(0.0), st.floats(0.01, 2))
    gates = [
        draw(st.lists(gate, min_size=n, max_size=n)) for n in (layer.heads for layer in architecture.stack)
    ]
    assume(all(any(row) for row in gates))
    return architecture, gates


@given(cases(), st.integers(SHORTEST, 20))
@examples(60)
def test_any_gates_equal_the_gated_sum_of_kernels(case, tokens):
    architecture, gates = case
    expected = naive(architecture, gates, tokens)
    found = influence(gated(architecture, gates), tokens).mass
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-250)


def test_a_head_that_is_shut_is_not_there():
    layer = Layer(heads=3, positional=ALiBi((0.1, 0.5, 2.0)))
    one = gated(Architecture(4, (layer,), ConstantMixing(0.6)), [0.0, 1.0, 0.0])
    assert one.layers[0].head_weights == (0.0, 1.0, 0.0)
    lam = 0.6 / 3 / (0.4 + 0.6 / 3)
    alone = Architecture(4, (Layer(positional=ALiBi((0.5,))),), ConstantMixing(lam))
    np.testing.assert_allclose(influence(one, 40).mass, influence(alone, 40).mass, rtol=1e-12)


def test_open_gates_change_nothing_and_shut_ones_leave_the_residual():
    architecture = Architecture(3, (Layer(heads=2, positional=ALiBi()), Layer()), ConstantMixing(0.3))
    assert gated(architecture, [1.0]).layers == architecture.layers
    np.testing.assert_allclose(gated(architecture, [1.0]).coefficients, 0.3, rtol=1e-15)
    shut = influence(gated(architecture, [0.0]), 10).mass
    assert shut.tolist() == [0.0] * 9 + [1.0]


def test_lambda_that_has_the_gates_in_it_stays():
    measured = MeasuredMixing((0.2, 0.4), tokens=256, text="a text")
    architecture = Architecture(2, (Layer(heads=4, groups=2),), measured)
    weights = (0.375, 0.375, 0.125, 0.125)
    kept = gated(architecture, [0.9, 0.3], in_mixing=True)
    assert kept.mixing is measured
    np.testing.assert_allclose(kept.layers[0].head_weights, weights, rtol=1e-15)
    changed = gated(architecture, [0.9, 0.3])
    # where and on what λ was measured travels along
    assert (changed.mixing.tokens, changed.mixing.text) == (256, "a text")
    np.testing.assert_allclose(changed.coefficients, [0.12 / 0.92, 0.24 / 0.84], rtol=1e-14)


@pytest.mark.parametrize(
    ("architecture", "gates", "words"),
    [
        (Architecture(2, mixing=ConstantMixing(0.5)), [[0.5]] * 3, "gates: "),
        (Architecture(2, (Layer(heads=3),), ConstantMixing(0.5)), [0.5, 0.5], "gates: "),
        (Architecture(2, mixing=ConstantMixing(0.5)), [-0.5], "gates: "),
        (Architecture(2, mixing=AttentionOnly()), [0.0], "not all 0 needed"),
        (Architecture(2, mixing=ConstantMixing(0.5)), [], "gates: "),
        (Architecture(2), [0.5], "in_mixing: "),
        (
            Architecture(
                2,
                mixing=PerLayer((0.5, 0.5)),
                streams=HyperConnections((Connection(((1.0,),), (1.0,)),), (1.0,)),
            ),
            [0.5],
            "in_mixing: ",
        ),
    ],
)
def test_what_cannot_be_is_refused(architecture, gates, words):
    with pytest.raises(InvalidValueError, match=words):
        gated(architecture, gates)
