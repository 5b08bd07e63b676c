"""Fits of how a curve falls: known numbers are found again, whatever the scale; the linear part is exact."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from posbias.core.errors import InvalidValueError
from posbias_papers.extensions.decay_fits import FORMS, _weights, deviation, fit_decay

R = np.array([1, 2, 3, 4, 5.5, 8, 11, 15.5, 22, 31, 44, 62, 88, 120])
SHARES = st.floats(0.01, 10.0)


@given(p=st.floats(0.3, 3.0), gamma=st.floats(0.0, 0.05), beta=SHARES)
def test_the_exponent_of_a_power_is_found_again(p, gamma, beta):
    fit = fit_decay(R, gamma * beta + beta * (R + 1) ** -p, "power")
    assert fit.own[0] == pytest.approx(p, rel=1e-3)
    assert fit.beta == pytest.approx(beta, rel=1e-3)
    assert fit.gamma == pytest.approx(gamma * beta, abs=1e-3 * beta)


@given(length=st.floats(3.0, 60.0), gamma=st.floats(0.0, 0.1), beta=SHARES)
def test_the_length_of_an_exponential_is_found_again(length, gamma, beta):
    curve = beta * (gamma + np.exp(-R / length))
    fit = fit_decay(R, curve, "exponential")
    assert fit.own[0] == pytest.approx(length, rel=1e-3)
    np.testing.assert_allclose(fit.at(R), curve, rtol=1e-4)


@given(length=st.floats(3.0, 40.0), power=st.floats(0.4, 0.9))
def test_a_stretched_exponential_is_followed(length, power):
    curve = 0.01 + np.exp(-((R / length) ** power))
    assert fit_decay(R, curve, "stretched").deviation(R, curve) < 2e-3


@given(st.lists(st.floats(0.01, 1.0), min_size=R.size, max_size=R.size), st.floats(1e-6, 1e6))
def test_another_unit_changes_the_scale_alone(curve, unit):
    curve = np.array(curve)
    for form in ("power", "exponential", "none"):
        one, other = fit_decay(R, curve, form), fit_decay(R, unit * curve, form)
        np.testing.assert_allclose(other.at(R), unit * one.at(R), rtol=1e-6)
        assert other.left == pytest.approx(one.left, rel=1e-6, abs=1e-12)


@given(st.lists(st.floats(0.01, 1.0), min_size=R.size, max_size=R.size))
def test_a_form_that_contains_another_leaves_no_more(curve):
    left = {form: fit_decay(R, np.array(curve), form).left for form in FORMS}
    assert max(left["power"], left["exponential"], left["stretched"]) <= left["none"] * (1 + 1e-9)
    # the grids of the two have other places
    assert left["stretched"] <= left["exponential"] * 1.02 + 1e-9


@given(st.lists(st.tuples(SHARES, SHARES), min_size=3, max_size=8))
def test_weights_are_those_of_least_squares_that_are_not_negative(columns):
    one, other = np.array(columns).T
    gamma, beta, left = _weights(one, other)
    _, norm = nnls(np.stack([one, other], axis=1), np.ones(len(one)))
    assert min(gamma, beta) >= 0.0
    assert left == pytest.approx(norm**2, rel=1e-6, abs=1e-9)
    assert left == pytest.approx(((gamma * one + beta * other - 1) ** 2).sum())


def test_each_form_is_nearest_to_curves_of_its_own():
    """With 5 % of noise, judged on other draws."""
    draw = np.random.default_rng(5)
    truths = {"power": 0.02 + (R + 1) ** -0.8, "exponential": 0.02 + np.exp(-R / 12)}
    for true, curve in truths.items():
        fitted, judged = (curve * np.exp(0.05 * draw.normal(size=R.size)) for _ in range(2))
        scores = {form: fit_decay(R, fitted, form).deviation(R, judged) for form in truths}
        assert min(scores, key=scores.__getitem__) == true
        assert max(scores.values()) > 2 * min(scores.values())


def test_deviation_is_a_mean_of_logarithms():
    assert deviation(np.array([1.0, 2.0]), np.array([[1.0, 2.0], [np.e, 2.0]])) == pytest.approx([0.0, 0.5])


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_curve_that_is_not_positive_is_refused(bad):
    with pytest.raises(InvalidValueError, match="curve: zero, negative or not finite"):
        fit_decay(R, np.where(R == 4, bad, 1.0), "power")
