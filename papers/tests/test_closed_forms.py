"""The closed forms of layer 2 as d grows: which reading becomes right, and how fast."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.simulation import RecencyModel, simulate_recency
from posbias_papers.closed_forms import layernorm
from posbias_papers.closed_forms.layernorm import SecondLayer, closed_form, deviation_curve
from posbias_papers.closed_forms.recency import exact_scores

HALF = {"anisotropy": 0.5}


def found(dimensions, quantity, **model):
    """What `deviation_curve` takes, of three tokens."""
    pairs = {}
    for d in dimensions:
        exact = exact_scores(3, d, nodes=8, **model)
        level = exact.scores.value[1, 2, 0]
        pairs[d] = (level if quantity == "level" else exact.rises.value[1] / level, 0.0)
    return pairs


def deviations(dimensions, quantity, reading="corrected", norm="layernorm", **model):
    pairs = found(dimensions, quantity, norm=norm, **model)
    options = {"layernorm": norm == "layernorm", "reading": reading}
    return deviation_curve(quantity, pairs, 3, **model, **options).deviation


# --- rates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("alpha", "dimension"), [(0.25, 1024), (0.5, 2048), (0.75, 4096)])
def test_what_is_left_of_the_rise_falls_like_one_over_root_d(alpha, dimension, residual):
    """−α(1 − α)²/(2√d): weights and lengths are correlated, and the weights' exponent tilts them."""
    (off,) = deviations([dimension], "rise", anisotropy=alpha, residual=residual)
    limit = -alpha * (1 - alpha) ** 2 / (2 * math.sqrt(dimension))
    assert off == pytest.approx(limit, rel=0.3 if residual else 0.06)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("alpha", [0.25, 0.5, 0.75])
def test_what_is_left_of_the_level_falls_like_one_over_d(alpha, residual):
    """E r = α − α(1 − α²)/(2d): the mean of a sample correlation."""
    off = deviations([512, 2048], "level", anisotropy=alpha, residual=residual)
    assert off * [512, 2048] == pytest.approx((1 - alpha**2) / 2, rel=0.02)


def test_equation_nineteen_over_root_d_is_right_to_a_power_of_three_halves():
    off = deviations([64, 256, 1024, 4096], "level", norm="none", anisotropy=0.0)
    slopes = np.diff(np.log(np.abs(off))) / math.log(4)
    np.testing.assert_allclose(slopes, -1.5, atol=0.06)


# --- readings that do not become right ---------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True])
def test_without_kappa_the_rise_stays_off_by_it(residual):
    off = deviations([1024], "rise", "means", residual=residual, **HALF)
    kappa = layernorm.fluctuation_factor(1024, 0.5)
    assert off == pytest.approx(1 / kappa - 1, abs=0.003)
    assert abs(off[0]) > 50 * abs(deviations([1024], "rise", residual=residual, **HALF)[0])


# --- ten tokens, simulated ---------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True])
def test_ten_simulated_tokens_decide_for_the_corrected_form(residual):
    rise, level = {}, {}
    for d in (256, 512, 1024):
        model = RecencyModel(dimension=d, depth=2, residual=residual)
        result = simulate_recency(model, 2**17, seed=2, threads=1)
        below, error = (part[1, 9, 0] for part in (result.mean_scores.value, result.mean_scores.se))
        last, last_error = (part[1, 9, 8] for part in (result.rises.value, result.rises.se))
        level[d] = (below, error)
        rise[d] = (last / below, math.hypot(last_error / below, last * error / below**2))
    for quantity, pairs in (("rise", rise), ("level", level)):
        curve = deviation_curve(quantity, pairs, 10, residual=residual, **HALF)
        assert (curve.dimension == [256, 512, 1024]).all()
        assert (np.abs(curve.deviation) < 4 * curve.se + 0.005).all()
    for reading in ("means", "published"):
        curve = deviation_curve("rise", rise, 10, residual=residual, reading=reading, **HALF)
        assert (curve.deviation < -0.18).all()
        assert (np.abs(curve.deviation) > 50 * curve.se).all()


# --- the forms and the curve -------------------------------------------------------------------------------


@given(st.integers(3, 12), st.integers(4, 900), st.floats(0.0, 0.95), st.booleans())
def test_rise_and_level_are_those_of_the_scores(tokens, dimension, alpha, residual):
    for reading in layernorm.READINGS:
        form = SecondLayer(tokens, dimension, alpha, residual, reading)
        row = form.scores[-1]
        assert closed_form("rise", form) == pytest.approx(row[-2] / row[0] - 1, rel=1e-6, abs=1e-14)
        if alpha or residual:
            assert closed_form("level", form) == row[0]


def test_a_curve_holds_deviations_with_their_errors_and_leaves_noise_out():
    right = {d: closed_form("rise", SecondLayer(5, d, 0.5)) for d in (16, 64, 256)}
    pairs = {
        256: (right[256] / 1.5, 0.01 * right[256]),
        16: (right[16] / 0.9, 0.2 * right[16]),
        64: (right[64], 1.01 * layernorm.NOISIEST * right[64]),
    }
    curve = deviation_curve("rise", pairs, 5, **HALF)
    assert curve.dimension.tolist() == [16, 256]
    assert curve.deviation == pytest.approx([-0.1, 0.5])
    assert curve.se == pytest.approx([0.2 * 0.9**2, 0.01 * 1.5**2])
