"""Attention arrays and predictors of a measurement: by plain loops and dense products."""

import math
from typing import Any

import numpy as np
import pytest
import xarray as xr
from dense import last_row
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from posbias import Attention
from posbias.comparison.predictors import PREDICTORS, predictions
from posbias.core.errors import InputFileError, InvalidValueError
from posbias.measurement import measure
from posbias.profiles.measurements import load_measurement, load_profile, save_measurement
from posbias.profiles.profile import measured_influence
from posbias.profiles.stochastic_order import monotonicity
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
    return last_row(layers.mean(axis=1), mixing, query)


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
    assert (profile.left_out, profile.assumptions) == ((), ())
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
    assert f"{attention.row_error:.1e}" in profile.assumptions[-1]
    np.testing.assert_allclose(profile.mass, rollout(exact, [0.5, 0.5], -1), rtol=most)
    with pytest.raises(InvalidValueError, match="row_error"):
        Attention.from_arrays(rounded, row_error=1e-6)


def test_what_mixing_masks_and_arrays_may_be():
    layers = weights((2, 2, 6))
    for mixing, schedule in (
        ("none", ConstantMixing(1.0)),
        (1, ConstantMixing(1.0)),
        ((0.1, 0.2), PerLayer((0.1, 0.2))),
        (ConstantMixing(0.3), ConstantMixing(0.3)),
    ):
        profile = Attention.from_arrays(layers).rollout(mixing)
        np.testing.assert_allclose(profile.mass, rollout(layers, schedule.values(2), -1), rtol=1e-12)
    assumed = Attention.from_arrays(layers).rollout(PreNormInit())
    assert (assumed.left_out, assumed.summary.verdict) == (("λ",), None)
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(layers).requires_grad_()
    for held in (tensor, tuple(tensor), layers.tolist()):
        np.testing.assert_array_equal(
            Attention.from_arrays(held).rollout(0.5).mass, Attention.from_arrays(layers).rollout(0.5).mass
        )
    masks = [SlidingWindow(2), Full()]
    each = [weights((1, 6), mask) for mask in masks]
    assert Attention.from_arrays(each, mask=masks).depth == 2
    refused("attention", lambda: Attention.from_arrays(each[::-1], mask=masks))
    found = Attention.from_arrays(layers).monotonicity()
    assert [one.violations for one in found] == [monotonicity(one.mean(axis=0)).violations for one in layers]


def test_what_is_no_attention_is_refused():
    def changed(place, value):
        layers = weights((2, 2, 4))
        layers[place] = value
        return layers

    spoilt = [((1, 0, 2, 0), np.nan), ((1, 0, 2, 0), -0.1), ((0, 1, 2, 3), 0.1), ((1, 1, 3, 0), 1.5)]
    ragged = [
        [weights((2, 4)), weights((3, 4))],
        [[1, 2], [3]],
        [np.ones((1, 1, 2, 1, 1, 1))],
        (None, None),
        [],
    ]
    shapes = [np.ones((3, 4)), np.ones((2, 3, 1, 4)), "attention", weights((2, 1, 4)) > 0]
    for arrays in (*(changed(*one) for one in spoilt), *ragged, *shapes):
        refused("attention", lambda arrays=arrays: Attention.from_arrays(arrays))
    attention = Attention.from_arrays(weights((2, 2, 4)))
    for mixing in ((0.1, 0.2, 0.3), 1.5, "residual"):
        refused("mixing", lambda mixing=mixing: attention.rollout(mixing))
    refused("query", lambda: attention.rollout(0.5, 4))
    refused("threshold", lambda: attention.sinks(1.0))
    refused("mask", lambda: Attention.from_arrays(weights((2, 2, 4)), mask=[Causal()]))


def test_weights_are_found_in_what_other_tools_saved_whatever_their_names():
    """Of the structure that TransformerLens and nnsight give; `tests/adapters` has the packages themselves."""
    layers, states = weights((12, 2, 3, 6)), np.random.default_rng(0).normal(size=(2, 3, 6, 6))
    patterns = {f"blocks.{layer}.attn.hook_pattern": layers[layer] for layer in (10, *range(10), 11)}
    scores = {f"blocks.{layer}.attn.hook_attn_scores": states for layer in range(12)}
    outputs = [(states[0], layer) for layer in layers]
    for saved in (patterns | scores, outputs, {"logits": states[0], "attentions": (*layers,)}):
        np.testing.assert_array_equal(Attention.from_arrays(saved).layers, layers)
    both = {"encoder.0": layers[0], "decoder.0": layers[1]}
    for saved in (scores, both, {"attention": layers[0]}, {}, [(states[0], None)] * 2):
        refused("attention", lambda saved=saved: Attention.from_arrays(saved))


# --- predictors of a measurement -------------------------------------------------------------------------


TOKENS = 9


@pytest.fixture(scope="module")
def measured() -> xr.Dataset:
    return measure("tiny-rope", tokens=TOKENS, prompts=5)


def softmax_rows(logit) -> np.ndarray:
    kernel = np.zeros((TOKENS, TOKENS))
    for i in range(TOKENS):
        weights = [math.exp(logit(i, j)) for j in range(i + 1)]
        for j in range(i + 1):
            kernel[i, j] = weights[j] / sum(weights)
    return kernel


def expected(measured: xr.Dataset, key: str) -> np.ndarray:
    """The last row of the product of all transitions, with every matrix written out."""
    if key == "energy":
        product = np.eye(TOKENS)
        for energy in measured["energy_kernel"].values:
            product = (np.eye(TOKENS) + energy) @ product
        row = np.sqrt(product[-1])
    else:
        mixing = measured["mixing"].values.mean(axis=0)
        row = last_row(kernels(measured, key), mixing**0 if key == "attention_only" else mixing)
    return row / row.sum()


def kernels(measured: xr.Dataset, key: str) -> np.ndarray:
    """[layer, query, key], head by head from logits by distance."""
    if key == "measured_kernels":
        return measured["kernel"].values
    found = np.zeros(measured["kernel"].shape)
    name = "logits_distance" if key == "fitted" else "positional_distance"
    for t, h in np.ndindex(measured[name].shape[:2]):
        by_distance, column = measured[name].values[t, h], measured["logits_first_column"].values[t, h]

        def logit(i, j, by_distance=by_distance, column=column):
            return column[i] if key == "fitted" and j == 0 else by_distance[min(i - j, TOKENS - 2)]

        found[t] += softmax_rows(logit) / measured.sizes["head"]
    return found


def test_predictors_equal_their_definitions_and_a_measurement_survives_its_file(measured, tmp_path):
    found, mean = predictions(measured), measured["influence"].values.mean(axis=0)
    assert list(found) == [predictor.key for predictor in PREDICTORS]
    for key, profile in found.items():
        np.testing.assert_allclose(profile.mass, expected(measured, key), rtol=1e-12)
    np.testing.assert_allclose(measured_influence(measured).mass, mean / mean.sum(), rtol=1e-14)
    path = save_measurement(measured, tmp_path / "deep" / "m.nc")
    again = load_measurement(path)
    assert again.attrs["model"] == measured.attrs["model"]
    for name in measured:
        rtol = 1e-6 if "kernel" in str(name) else 0
        np.testing.assert_allclose(again[name], measured[name], rtol=rtol)
    np.testing.assert_array_equal(load_profile(path).mass, measured_influence(measured).mass)
    assert [one.name for one in path.parent.iterdir()] == ["m.nc"]
    assert path.read_bytes() == save_measurement(measured, tmp_path / "other.nc").read_bytes()
    with pytest.raises(InvalidValueError):
        predictions(measured.drop_vars("kernel"))
    xr.Dataset({"a": 1}).to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    with pytest.raises(InputFileError):
        load_measurement(tmp_path / "a.nc")


def test_every_predictor_knows_a_sliding_window():
    """Keys beyond the window have no logit: they get no weight."""
    windowed = measure("tiny-window", tokens=96, prompts=2)
    for profile in predictions(windowed).values():
        assert profile.mass.sum() == pytest.approx(1, abs=1e-9)
    single = predictions(windowed.isel(layer=[0]))
    # one layer's reach is 63 tokens back
    for key in ("attention_only", "positional", "fitted"):
        np.testing.assert_array_equal(single[key].mass > 0, np.arange(96) >= 96 - 64)
