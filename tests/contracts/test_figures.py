"""Figures: pure functions of data and axes, with bytes that depend on nothing else; a notebook shows them."""

import base64
import pickle
import re

import matplotlib
import numpy as np
import pytest
from browser import Reader

from posbias import (
    ALiBi,
    Architecture,
    Layer,
    compare,
    load_measurement,
    measured_influence,
    predict,
    save_measurement,
)
from posbias.comparison.predictors import predictions
from posbias.profiles.profile import Profile, harmonic
from posbias.reports import plots

HOSTILE = "<script>alert(1)</script> & \"quoted\" '<img src=x onerror=alert(2)>' $\\frac{$ -->\n<b>"

DRAW = {
    "influence": lambda ax, data: plots.draw_influence(ax, measured_influence(data)),
    "predictions": lambda ax, data: plots.draw_influence(ax, measured_influence(data), predictions(data)),
    "cumulative": lambda ax, data: plots.draw_cumulative(ax, measured_influence(data), predictions(data)),
    "profile": lambda ax, data: plots.draw_profile(ax, predictions(data)["positional"]),
    "mixing": plots.draw_mixing,
    "sinks": plots.draw_sinks,
    "norms": plots.draw_norms,
    "kernels": lambda ax, data: plots.draw_kernels([ax], data)[0],
}


@pytest.mark.parametrize("name", DRAW)
def test_what_draws_hands_its_axes_back(measured, name):
    """That the same data make the same bytes is held by the page of a report, which has them all."""
    ax = plots.new_figure().subplots()
    assert DRAW[name](ax, measured) is ax


def test_curves_show_the_numbers(measured):
    influence = measured_influence(measured)
    ax = DRAW["predictions"](plots.new_figure().subplots(), measured)
    curves = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    np.testing.assert_allclose(curves["measured"], influence.mass * influence.tokens)
    np.testing.assert_allclose(
        curves["energy rollout"], predictions(measured)["energy"].mass * influence.tokens
    )


@pytest.mark.parametrize(
    "mass", [np.ones(1), np.eye(1, 50)[0], 10.0 ** -np.arange(200.0)], ids=["one", "collapsed", "steep"]
)
def test_any_profile_can_be_drawn_and_drawing_touches_no_global_state(mass):
    figure, before = plots.new_figure(), dict(matplotlib.rcParams)
    low, high = plots.draw_profile(figure.subplots(), Profile.from_weights(mass)).get_ylim()
    assert 0 < low < 1 < high
    assert plots.picture_bytes(figure, "svg")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("place", [0, 3])
def test_a_notebook_shows_escaped_words_over_the_picture_of_plot(place):
    architecture = Architecture(6, (Layer(heads=4, positional=ALiBi()),), name=HOSTILE)
    samples = np.random.default_rng(0).uniform(0.5, 1.5, (4, 32))
    measured = Profile.from_samples(samples, model=HOSTILE)
    shown = (architecture, predict(architecture, 32), measured, compare(harmonic(32), measured))[place]
    markup, reader = shown._repr_html_(), Reader()
    reader.feed(markup)
    assert reader.tags == ["div", "p", "img"]
    figure = plots.new_figure()
    shown.plot(figure.subplots())
    (picture,) = re.findall(r'"data:image/svg\+xml;base64,([^"]*)"', markup)
    assert base64.b64decode(picture) == plots.picture_bytes(figure, "svg")


def test_a_measurement_shows_its_curve_over_its_table(hostile, tmp_path):
    save_measurement(hostile, tmp_path / "measured.nc")
    measured = load_measurement(tmp_path / "measured.nc")
    curve = measured_influence(measured)._repr_html_()
    assert pickle.loads(pickle.dumps(measured))._repr_html_().startswith(curve)
    # what is taken of it is such a measurement too, and shows what it has
    assert "<img" in measured.sel(prompt=[0, 1])._repr_html_()
    for less in (measured[["mixing"]], measured.isel(prompt=[])):
        assert "<img" not in less._repr_html_()
