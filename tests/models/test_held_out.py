"""Halves of a measurement: even and odd prompts, and nothing of both."""

import numpy as np
import pytest

from posbias.comparison.predictors import PREDICTORS, folds, half, predictions
from posbias.measurement import load_model, measure


@pytest.fixture(scope="module")
def loaded():
    return load_model("tiny-rope")


@pytest.fixture(scope="module")
def measured(loaded):
    return measure(loaded, tokens=16, prompts=5, threads=1)


def test_the_odd_half_is_the_rest_of_the_mean(measured):
    """Of five prompts three are even; what both have, weighted, is the whole."""
    even, odd = half(measured, even=True), half(measured, even=False)
    assert (even.sizes["prompt"], odd.sizes["prompt"]) == (3, 2)
    for name in ("kernel", "energy_kernel", "logits_distance", "content_mean"):
        whole = (3 * even[name] + 2 * odd[name]) / 5
        np.testing.assert_allclose(whole, measured[name], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(odd["kernel"].sum("key"), 1.0, atol=1e-6)
    assert (odd["energy_kernel"] >= 0).all()


def test_a_half_knows_nothing_of_the_other(measured):
    """It has what predictors need, and no mean over all prompts."""
    one = half(measured, even=True)
    assert {name for predictor in PREDICTORS for name in predictor.needs} <= {*one.data_vars}
    assert "sink_share" not in one
    whole = predictions(measured)
    for name, profile in predictions(one).items():
        assert np.abs(profile.mass - whole[name].mass).max() > 0 or name == "attention_only"


def test_folds_judge_each_half_on_the_other_and_need_two_prompts_of_each(measured):
    found = folds(measured)
    assert [fold.judged.tolist() for fold in found] == [[1, 3], [0, 2, 4]]
    assert [*found[0].predictions] == [predictor.key for predictor in PREDICTORS]
    assert folds(measured.isel(prompt=slice(0, 3))) == ()
    assert folds(measured.drop_vars("energy_kernel_even")) == ()
