"""The retrieval figure shows what the curve holds: values, intervals, chance, and influence beside it."""

import json

import numpy as np
import pytest
import xarray as xr

from posbias.profiles.profile import Profile
from posbias.reports.plots import new_figure, picture_bytes
from posbias.reports.plots.behaviour import draw_places, draw_retrieval, retrieval_figure
from posbias.retrieval.statistics import retrieval_curve

PROMPTS, POSITIONS, CANDIDATES = 30, 5, 4


def made(margins, *, control=-2.0):
    """A retrieval dataset with margins by position, noise, and what follows from them."""
    random = np.random.default_rng(4)
    margin = np.array(margins) + random.normal(0, 0.3, (PROMPTS, POSITIONS))
    quantities = {
        "margin": margin,
        "margin_mean": margin + 1,
        "choice": (margin > 0).astype(float),
        "accuracy": (margin > 0.5).astype(float),
        "control_margin": np.full(margin.shape, control),
        "control_margin_mean": np.full(margin.shape, control + 1),
        "depth": np.tile(np.linspace(0, 1, POSITIONS), (PROMPTS, 1)),
        "token": np.tile(np.arange(POSITIONS) * 10.0, (PROMPTS, 1)),
        "tokens": np.full(margin.shape, 60.0),
    }
    variables = {name: (("prompt", "position"), values) for name, values in quantities.items()}
    scores = np.zeros((PROMPTS, POSITIONS, CANDIDATES))
    variables["log_probability"] = (("prompt", "position", "candidate"), scores)
    job = json.dumps({"task": "keys", "pairs": CANDIDATES})
    return xr.Dataset(variables, attrs={"posbias_kind": "retrieval", "model": "toy", "job": job})


@pytest.fixture(scope="module")
def curve():
    return retrieval_curve(made([2.0, 0.6, 0.2, 0.6, 2.0]))


def test_shares_are_drawn_with_their_intervals_and_chance(curve):
    ax = draw_retrieval(new_figure().subplots(), curve, "share")
    choice, accuracy = ax.containers
    assert choice.get_label() == "preferred among the candidates"
    for container, name in ((choice, "choice"), (accuracy, "accuracy")):
        np.testing.assert_allclose(container[0].get_ydata(), [one.value for one in curve.curves[name]])
        np.testing.assert_allclose(container[0].get_xdata(), curve.depth, atol=0.01)
        ends = [segment[:, 1] for segment in container[2][0].get_segments()]
        np.testing.assert_allclose(ends, [one.interval for one in curve.curves[name]], atol=1e-12)
    assert ax.lines[0].get_ydata()[0] == curve.chance == 0.25


def test_margins_are_drawn_with_their_control(curve):
    ax = draw_retrieval(new_figure().subplots(), curve, "margin")
    asked, control = ax.containers
    np.testing.assert_allclose(asked[0].get_ydata(), [one.value for one in curve.curves["margin"]])
    np.testing.assert_allclose(control[0].get_ydata(), -2.0)
    assert ax.lines[0].get_ydata()[0] == 0.0


def test_influence_stands_beside_the_curve_on_the_same_scale_of_places(curve):
    measured = Profile.from_weights(np.array([3.0, 1.0, 1.0, 3.0]), measures="gradient")
    other = Profile.from_weights(
        np.array([1.0, 0.0, 0.0, 1.0]), measures="rollout", attrs={"predictor": "energy"}
    )
    ax = draw_places(new_figure().subplots(), measured, {"energy": other})
    even, line, predicted = ax.lines
    assert even.get_ydata()[0] == 1.0
    np.testing.assert_allclose(line.get_xdata(), [0, 1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(line.get_ydata(), [1.5, 0.5, 0.5, 1.5])
    assert predicted.get_label() == "energy"
    assert np.isnan(predicted.get_ydata()[1])
    figure = retrieval_figure(curve, measured)
    assert len(figure.axes) == 3
    assert len(retrieval_figure(curve).axes) == 2
    assert picture_bytes(figure, "png").startswith(b"\x89PNG")


def test_a_model_at_chance_is_not_drawn_as_if_it_were_not(curve):
    at_chance = retrieval_curve(made([-3.0, -3.0, -3.0, -3.0, 1.0], control=-2.0))
    assert not at_chance.able
    assert "at chance" in retrieval_figure(at_chance).get_suptitle()
    assert retrieval_figure(curve).get_suptitle() == "toy, prompts of about 60 tokens"


def test_the_same_curve_gives_the_same_file(curve):
    assert picture_bytes(retrieval_figure(curve), "svg") == picture_bytes(retrieval_figure(curve), "svg")
