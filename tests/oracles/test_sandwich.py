"""Sandwich's biases against a plain loop over the sum, sinusoidal vectors, and the logarithm that they follow."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import posbias
from posbias import Architecture, ConstantMixing, Layer, Sandwich
from posbias.theory.rollout.kernel import dense_influence


def plain(distance, ratio, dimension, base):
    """Chi et al. 2023, term by term."""
    return (
        math.fsum(math.cos(distance / base ** (2 * k / dimension)) for k in range(1, dimension // 2 + 1))
        / ratio
    )


@given(
    st.lists(st.floats(0.1, 20), min_size=3, max_size=3),
    st.sampled_from([2, 8, 128]),
    st.sampled_from([10.0, 10_000.0, 5e5]),
    st.lists(st.integers(-5000, 5000), min_size=1, max_size=5),
)
def test_the_biases_are_the_sum_of_the_paper(ratios, dimension, base, distances):
    logits = Sandwich(ratios, dimension, base).logits_at(np.array(distances), 3)
    expected = [[plain(distance, ratio, dimension, base) for distance in distances] for ratio in ratios]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-11 * dimension / min(ratios))


def test_they_are_products_of_sinusoidal_vectors():
    angles = np.array([10_000.0 ** (-2 * k / 128) for k in range(1, 65)])
    at = np.arange(50)[:, None] * angles
    vectors = np.hstack([np.sin(at), np.cos(at)])
    distance = np.subtract.outer(np.arange(50), np.arange(50))
    logits = Sandwich((1.0,)).logits_at(distance.ravel(), 1).reshape(50, 50)
    np.testing.assert_allclose(logits, vectors @ vectors.T, rtol=0, atol=1e-11)


@pytest.mark.parametrize("heads", [1, 3, 8])
def test_left_out_ratios_are_eight_times_the_share_of_heads(heads):
    given = Sandwich([8 * head / heads for head in range(1, heads + 1)])
    distance = np.arange(30)
    np.testing.assert_array_equal(Sandwich().logits_at(distance, heads), given.logits_at(distance, heads))


def test_they_fall_as_the_logarithm_of_the_distance():
    distance = np.unique(np.geomspace(10, 1000, 200).astype(int))
    logits = Sandwich((1.0,)).logits_at(distance, 1)[0]
    slope, _ = np.polyfit(np.log(distance), logits, 1)
    assert slope == pytest.approx(-128 / (2 * math.log(10_000)), rel=0.03)


def test_a_prediction_is_that_of_the_dense_product():
    architecture = Architecture(3, (Layer(heads=4, positional=Sandwich()),), ConstantMixing(0.4))
    profile = posbias.influence(architecture, 60)
    np.testing.assert_allclose(profile.mass, dense_influence(architecture, 60), rtol=1e-11)


def test_an_odd_dimension_is_refused():
    with pytest.raises(posbias.PosbiasError, match="dimension: "):
        Sandwich(dimension=7)
