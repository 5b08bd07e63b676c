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
from posbias.profiles.profile import Profile, harmonic, uniform
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
def test_same_data_same_bytes(measured, name):
    pictures = []
    for _ in range(2):
        figure = plots.new_figure()
        ax = figure.subplots()
        assert DRAW[name](ax, measured) is ax
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        pictures.append(plots.picture_bytes(figure, "svg"))
    assert pictures[0] == pictures[1]
    assert b"<dc:date>" not in pictures[0]


def test_curves_show_the_numbers(measured):
    influence = measured_influence(measured)
    ax = DRAW["predictions"](plots.new_figure().subplots(), measured)
    curves = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    np.testing.assert_allclose(curves["measured"], influence.mass * influence.tokens)
    np.testing.assert_allclose(
        curves["energy rollout"], predictions(measured)["energy"].mass * influence.tokens
    )


@pytest.mark.parametrize(
    "profile",
    [
        uniform(1),
        harmonic(300),
        Profile(np.eye(1, 50, 0)[0]),
        Profile(np.eye(1, 50, 9)[0], query=9),
        Profile.from_weights(10.0 ** -np.arange(200.0)),
    ],
    ids=["one", "harmonic", "collapsed", "itself", "steep"],
)
def test_any_profile_can_be_drawn(profile):
    figure = plots.new_figure()
    low, high = plots.draw_profile(figure.subplots(), profile).get_ylim()
    assert 0 < low < 1 < high
    assert plots.picture_bytes(figure, "svg")


def test_drawing_touches_no_global_state():
    before = dict(matplotlib.rcParams)
    plots.picture_bytes(plots.draw_profile(plots.new_figure().subplots(), harmonic(30)).figure, "svg")
    assert dict(matplotlib.rcParams) == before


def tags(markup):
    """The tags of a piece of HTML, and the attributes of the last."""
    reader = Reader()
    reader.feed(markup)
    return reader.tags, {name: value for tag, name, value in reader.attributes if tag == reader.tags[-1]}


@pytest.mark.parametrize("place", [0, 3])
def test_a_notebook_shows_escaped_words_over_the_picture_of_plot(place):
    architecture = Architecture(6, (Layer(heads=4, positional=ALiBi()),), name=HOSTILE)
    samples = np.random.default_rng(0).uniform(0.5, 1.5, (4, 32))
    measured = Profile.from_samples(samples, attrs={"model": HOSTILE})
    shown = (architecture, predict(architecture, 32), measured, compare(harmonic(32), measured))[place]
    markup = shown._repr_html_()
    kinds, picture = tags(markup)
    assert kinds == ["div", "p", "img"]
    assert not re.search(r"<(script|b)\b", markup)
    assert picture.keys() == {"style", "alt", "src"}
    figure = plots.new_figure()
    shown.plot(figure.subplots())
    kind, _, data = picture["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == plots.picture_bytes(figure, "svg")


def test_a_measurement_shows_its_curve_over_its_table(hostile, tmp_path):
    save_measurement(hostile, tmp_path / "measured.nc")
    measured = load_measurement(tmp_path / "measured.nc")
    curve = measured_influence(measured)._repr_html_()
    assert measured._repr_html_().startswith(curve)
    assert "xr-header" in measured._repr_html_()
    # what is taken of it is such a measurement too, and shows what it has
    assert "<img" in measured.sel(prompt=[0, 1])._repr_html_()
    assert "<img" not in measured[["mixing"]]._repr_html_()
    assert "<img" not in measured.isel(prompt=[])._repr_html_()
    assert pickle.loads(pickle.dumps(measured))._repr_html_().startswith(curve)
