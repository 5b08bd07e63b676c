"""Attention arrays of any origin: rollout, received attention, sinks and monotonicity by plain loops."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import measurement

import posbias
from posbias import Attention
from posbias.comparison.predictors import PREDICTORS, measured_mixing
from posbias.core.errors import InvalidValueError
from posbias.theory.masks import Causal, Full, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PerLayer, PreNormInit
from posbias.theory.rollout.kernel import masked_softmax


def weights(shape, mask: Any = Causal(), seed=0):  # noqa: B008
    """Random attention [*shape, query, key] under a mask, float64."""
    tokens = shape[-1]
    logits = np.random.default_rng(seed).normal(0, 2, (*shape, tokens))
    return masked_softmax(logits, mask.allowed(tokens))


def rollout(layers, mixing, query):
    """The row of a query of R_T ⋯ R_1 by dense products, of [layer, head, query, key]."""
    product = np.eye(layers.shape[-1])
    for heads, lam in zip(layers, mixing, strict=True):
        product = ((1 - lam) * np.eye(len(product)) + lam * heads.mean(axis=0)) @ product
    return product[query]


sizes = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 9))


@given(sizes, st.integers(0, 99), st.data())
def test_the_rollout_is_the_dense_product(size, seed, data):
    layers = weights(size, seed=seed)
    mixing = data.draw(st.lists(st.floats(0, 1), min_size=size[0], max_size=size[0]))
    query = data.draw(st.integers(-size[2], size[2] - 1))
    attention = Attention.from_arrays(layers)
    profile = attention.rollout(mixing, query)
    np.testing.assert_allclose(profile.mass, rollout(layers, mixing, query), rtol=1e-12, atol=1e-15)
    assert profile.query == query % size[2]
    assert (profile.left_out, profile.attrs["assumptions"]) == ((), [])
    # heads averaged before, a list of layers, a text axis of one: the same
    for same in (layers.mean(axis=1), list(layers), [one[None] for one in layers], layers[:, None]):
        again = Attention.from_arrays(same).rollout(np.array(mixing), query)
        np.testing.assert_allclose(again.mass, profile.mass, rtol=1e-12, atol=1e-15)


@given(sizes, st.integers(0, 99), st.sampled_from([Causal(), Full(), SlidingWindow(2), SlidingWindow(1)]))
def test_received_attention_and_sinks_are_those_of_plain_loops(size, seed, mask):
    layers, allowed = weights(size, mask, seed), mask.allowed(size[2])
    attention = Attention.from_arrays(layers, mask=mask)
    received, sinks = attention.received(), attention.sinks(0.3)
    for layer, head, key in np.ndindex(*size):
        column = layers[layer, head][allowed[:, key], key]
        assert received[layer, head, key] == pytest.approx(np.mean(column), rel=1e-12)
        assert sinks[layer, head, key] == np.mean(column > 0.3)


def test_uniform_attention_has_the_known_sinks():
    uniform = np.tri(17) / np.arange(1, 18)[:, None]
    found = Attention.from_arrays(uniform[None]).sinks()
    np.testing.assert_allclose(found[0, 0, :5], [4 / 17, 3 / 16, 2 / 15, 1 / 14, 0], rtol=1e-15)


@given(sizes, st.integers(1, 3), st.integers(0, 99), st.floats(0, 1))
def test_what_learned_sinks_take_is_missing(size, texts, seed, lam):
    """Substochastic rows: the rollout is the dense product of the rows as they are, and loses what they lack."""
    kept = np.random.default_rng(seed).uniform(0.1, 1.0, (size[0], texts, size[1], size[2], 1))
    layers = np.stack([weights(size, seed=seed + text) for text in range(texts)], axis=1) * kept
    profile = Attention.from_arrays(layers, learned_sinks=True).rollout(lam)
    rows = np.stack([rollout(layers[:, text], [lam] * size[0], -1) for text in range(texts)])
    np.testing.assert_allclose(profile.mass, rows.mean(axis=0), rtol=1e-12, atol=1e-15)
    assert profile.missing_mass == pytest.approx(1 - rows.sum(axis=1).mean(), abs=1e-12)
    if lam and kept.min() < 0.99:
        with pytest.raises(InvalidValueError, match="learned_sinks=True"):
            Attention.from_arrays(layers)


def test_texts_are_samples():
    layers = weights((3, 5, 2, 8))
    attention = Attention.from_arrays(list(layers))
    profile = attention.rollout(0.4)
    assert profile.samples is not None
    assert attention.texts == len(profile.samples) == 5
    for text, sample in enumerate(profile.samples):
        np.testing.assert_allclose(sample, rollout(layers[:, text], [0.4] * 3, -1), rtol=1e-12)
    np.testing.assert_allclose(profile.mass, np.mean(profile.samples, axis=0), rtol=1e-12)
    single = [Attention.from_arrays(layers[:, text]) for text in range(5)]
    for name in ("received", "sinks", "kernels"):
        mean = np.mean([getattr(one, name)() for one in single], axis=0)
        np.testing.assert_allclose(getattr(attention, name)(), mean, rtol=1e-12)


def test_monotonicity_is_that_of_the_kernels():
    from posbias.profiles.stochastic_order import monotonicity

    layers = weights((2, 3, 7))
    found = Attention.from_arrays(layers).monotonicity()
    assert [one.violations for one in found] == [monotonicity(one.mean(axis=0)).violations for one in layers]
    assert any(one.violations for one in found)
    uniform = np.tri(9) / np.arange(1, 10)[:, None]
    assert all(one.holds for one in Attention.from_arrays(uniform[None]).monotonicity())


def test_measured_kernels_give_the_measured_prediction():
    measured = measurement()
    attention = Attention.from_arrays(measured["kernel"].values)
    profile = attention.rollout(measured_mixing(measured))
    (predictor,) = (one for one in PREDICTORS if one.key == "measured_kernels")
    np.testing.assert_allclose(profile.mass, predictor.predict(measured), rtol=1e-12)


@pytest.mark.parametrize(
    ("mixing", "schedule"),
    [
        ("none", ConstantMixing(1.0)),
        (1, ConstantMixing(1.0)),
        (0.25, ConstantMixing(0.25)),
        ((0.1, 0.2), PerLayer((0.1, 0.2))),
        (ConstantMixing(0.3), ConstantMixing(0.3)),
    ],
)
def test_mixing_is_a_number_numbers_a_schedule_or_none(mixing, schedule):
    layers = weights((2, 2, 6))
    profile = Attention.from_arrays(layers).rollout(mixing)
    np.testing.assert_allclose(profile.mass, rollout(layers, schedule.values(2), -1), rtol=1e-12)


def test_an_assumed_mixing_has_no_verdict():
    profile = Attention.from_arrays(weights((2, 2, 6))).rollout(PreNormInit())
    assert (profile.left_out, profile.summary.verdict) == (("λ",), None)
    assert profile.attrs["assumptions"] == [PreNormInit.assumed]


@pytest.mark.parametrize(("dtype", "least", "most"), [("float16", 1e-5, 2e-3), ("bfloat16", 1e-4, 8e-3)])
@pytest.mark.parametrize("kept", [True, False])
def test_half_precision_is_noticed_and_its_rows_divided(dtype, least, most, kept):
    """Also where the numbers were cast to float32 afterwards, as NumPy has no bfloat16."""
    torch = pytest.importorskip("torch")
    exact = weights((2, 3, 40))
    rounded = torch.from_numpy(exact).to(getattr(torch, dtype))
    attention = Attention.from_arrays(rounded if kept else rounded.float().numpy())
    assert least < attention.row_error < most
    profile = attention.rollout(0.5)
    assert profile.attrs["row_error"] == attention.row_error
    assert profile.attrs["assumptions"]
    np.testing.assert_allclose(profile.mass, rollout(exact, [0.5, 0.5], -1), rtol=most)
    with pytest.raises(InvalidValueError, match="row_error"):
        Attention.from_arrays(rounded, row_error=1e-6)


def test_tensors_with_gradients_and_plain_lists_are_read():
    torch = pytest.importorskip("torch")
    exact = weights((2, 1, 5))
    expected = Attention.from_arrays(exact).rollout(0.5).mass
    tensor = torch.from_numpy(exact).requires_grad_()
    for held in (tensor, tuple(tensor), exact.tolist()):
        np.testing.assert_array_equal(Attention.from_arrays(held).rollout(0.5).mass, expected)


def changed(place, value):
    layers = weights((2, 2, 4))
    layers[place] = value
    return layers


@pytest.mark.parametrize(
    ("arrays", "place"),
    [
        (changed((1, 0, 2, 0), np.nan), "layer 1"),
        (changed((1, 0, 2, 0), -0.1), "layer 1"),
        (changed((0, 1, 2, 3), 0.1), "layer 0, head 1: query 2 .* key 3"),
        (changed((1, 1, 3, 0), 1.5), "layer 1, head 1: the row of query 3"),
        (np.ones((3, 4)), "shape"),
        ([np.ones((1, 1, 2, 1, 1, 1))], "layer 0"),
        (np.ones((2, 3, 1, 4)), "layer 0"),
        ([weights((2, 4)), weights((3, 4))], "layer 1"),
        ((None, None), "layer 0"),
        ([], ""),
        ("attention", "str"),
        ([[1, 2], [3]], "list"),
        (weights((2, 1, 4)) > 0, "booleans"),
    ],
)
def test_what_is_no_attention_is_refused_by_its_place(arrays, place):
    with pytest.raises(InvalidValueError, match=f"^attention: .*{place}") as caught:
        Attention.from_arrays(arrays)
    assert "\n" not in str(caught.value)


def test_arguments_that_do_not_fit_are_refused():
    attention = Attention.from_arrays(weights((2, 2, 4)))
    for name, call in (
        ("mixing", lambda: attention.rollout((0.1, 0.2, 0.3))),
        ("mixing", lambda: attention.rollout(1.5)),
        ("mixing", lambda: attention.rollout("residual")),
        ("query", lambda: attention.rollout(0.5, 4)),
        ("threshold", lambda: attention.sinks(1.0)),
        ("mask", lambda: Attention.from_arrays(weights((2, 2, 4)), mask=[Causal()])),
    ):
        with pytest.raises(InvalidValueError, match=f"^{name}: "):
            call()


def test_a_mask_for_each_layer():
    masks = [SlidingWindow(2), Full()]
    layers = [weights((1, 6), mask) for mask in masks]
    assert Attention.from_arrays(layers, mask=masks).depth == 2
    with pytest.raises(InvalidValueError, match=r"layer 0, head 0: query 0 .* key 1"):
        Attention.from_arrays(layers[::-1], mask=masks)


def test_the_theory_of_an_architecture_comes_back_from_its_attention():
    layer = posbias.Layer(heads=4, positional=posbias.ALiBi())
    heads = masked_softmax(layer.logits(24), layer.mask.allowed(24))
    architecture = posbias.Architecture(3, (layer,), ConstantMixing(0.3))
    profile = Attention.from_arrays([heads] * 3).rollout(0.3)
    np.testing.assert_allclose(profile.mass, posbias.influence(architecture, 24).mass, rtol=1e-12)
