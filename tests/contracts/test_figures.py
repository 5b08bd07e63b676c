"""Figures: pure functions of data and axes, with bytes that depend on nothing else; a notebook shows them."""

import base64
import pickle
import re
from dataclasses import replace
from random import Random

import matplotlib
import numpy as np
import pytest
from browser import Reader
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from project import ROOT

import posbias
from posbias import (
    ALiBi,
    Architecture,
    Layer,
    compare,
    load_measurement,
    measured_influence,
    predict,
    preset,
    save_measurement,
)
from posbias.choice import Item
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


def test_a_peak_that_all_profiles_share_shows_the_marker_of_each():
    profile = harmonic(5000)
    canvas = FigureCanvasAgg(plots.new_figure(12, 6))
    ax = plots.draw_profiles(canvas.figure.subplots(), {str(k): profile for k in range(6)})
    canvas.draw()
    column, row = ax.transData.transform((0, profile.mass[0] * 5000)).astype(int)
    around = np.asarray(canvas.buffer_rgba())[::-1][row - 8 : row + 9, column - 8 : column + 9, :3]
    for line in ax.get_lines()[:6]:
        assert (np.abs(around - 255 * np.array(to_rgb(line.get_color()))).max(axis=2) < 60).any(), line
    first, last = ax.transData.transform([(0.98, 1), (1, 1)])[:, 0]
    assert last - first > 0.05 * ax.bbox.width


@pytest.mark.parametrize(
    "mass", [np.ones(1), np.eye(1, 50)[0], 10.0 ** -np.arange(200.0)], ids=["one", "collapsed", "steep"]
)
def test_any_profile_can_be_drawn_and_drawing_touches_no_global_state(mass):
    figure, before = plots.new_figure(), dict(matplotlib.rcParams)
    low, high = plots.draw_profile(figure.subplots(), Profile.from_weights(mass)).get_ylim()
    assert 0 < low < 1 < high
    assert plots.picture_bytes(figure, "svg")
    assert dict(matplotlib.rcParams) == before


NOISE = np.random.default_rng(0).uniform(0.5, 1.5, (6, 256))
NO_MIXING = Architecture(4, (Layer(heads=4, positional=ALiBi()),), name="no-lambda-given")
ON_ONE_AXES = {
    "predictions": (predict(preset("bloom-176b"), 256), predict(preset("mpt-7b"), 256)),
    "lengths": (predict(preset("bloom-176b"), 256), predict(preset("bloom-176b"), 64)),
    "bands": (predict(NO_MIXING, 256), Profile.from_samples(NOISE, model="smollm2-135m", measures="gradient")),
    "rates": [Profile(NOISE[k, :5] / 2, kind="rate", measures="accuracy", model=f"m{k}") for k in (0, 1)],
    "architectures": (preset("bloom-176b"), preset("mpt-7b")),
}  # fmt: skip


def words(text):
    return text.get_text().replace("\n", " ")


def beyond(axis):
    """Labels of ticks that lie outside the axes, which matplotlib does not draw."""
    low, high = sorted(axis.get_view_interval())
    return [tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]


@pytest.mark.parametrize("layout", [None, "constrained"])
@pytest.mark.parametrize("values", ON_ONE_AXES.values(), ids=ON_ONE_AXES)
def test_values_drawn_on_one_small_axes_are_all_seen_and_named(values, layout, request):
    figure, ax = pyplot.subplots(figsize=(3.4, 2.4), layout=layout)
    for value in values:
        value.plot(ax)
    figure.draw_without_rendering()
    curves = {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}
    assert len({line.get_color() for line in curves.values()}) == len(curves) == 2
    for line in curves.values():
        low, high = ax.get_ylim()
        assert low <= min(line.get_ydata()) <= max(line.get_ydata()) <= high
    named = [words(text) for text in ax.get_legend().get_texts()]
    assert set(curves) <= {*named}
    assert len(named) == 2 + 2 * ("bands" in request.node.name)
    assert {ax.get_xlabel(), ax.get_ylabel(), *named} <= legible(figure)
    assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1 - 1
    pyplot.close(figure)


def legible(figure):
    """The words of a figure, none of which are small, cut off or hide others."""
    texts = [text for text in figure.findobj(Text) if text.get_visible() and words(text)]
    for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis):
        texts = [text for text in texts if text not in beyond(axis)]
    assert min(text.get_fontsize() for text in texts) >= 7
    boxes = [text.get_window_extent() for text in texts]
    for place, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:place])
    return {words(text) for text in texts}


def test_a_figure_in_one_line_is_as_large_as_asked_and_has_intervals(measured):
    rates, random = posbias.read(ROOT / "tests/elsewhere/liu_kv"), Random(1)
    items = [Item(f"{n}?", (f"{n} is", f"{n} is not")) for n in range(40)]
    judge = posbias.choose(lambda _: random.choice("AAB"), items)
    for one in (measured, rates, rates.places, judge):
        ax = posbias.plot({"a": one, "a long name of a model, in a folder of several words": one})
        ax.figure.draw_without_rendering()
        legible(ax.figure)
        assert [*ax.figure.get_size_inches()] == [3.4, 2.4]
        drawn = ax.lines[1].get_xdata() if one is judge else ax.collections[0].get_paths()[0].vertices[:, 1]
        assert np.ptp(drawn) > 0
        pyplot.close(ax.figure)


def test_a_file_is_drawn_as_what_it_holds(measured, tmp_path):
    path = posbias.save_measurement(measured, tmp_path / "m.nc")
    (drawn, expected) = (posbias.plot({"a": of}).collections[0].get_paths()[0] for of in (path, measured))
    np.testing.assert_array_equal(drawn.vertices, expected.vertices)
    assert posbias.plot(path).get_legend_handles_labels()[1] == [posbias.measured_influence(measured).model]
    assert posbias.plot(ROOT / "tests/elsewhere/liu_kv").get_ylabel() == "accuracy"


def test_each_of_several_sizes_is_a_curve_that_is_named():
    one = posbias.read(ROOT / "tests/elsewhere/liu_kv").places
    sizes = [replace(one, job={"pairs": pairs, "length": None}) for pairs in (75, 140)]
    (ax,) = plots.answers_figure(sizes).axes
    assert [words(text).split(" (")[0] for text in ax.get_legend().get_texts()] == ["75 pairs", "140 pairs"]
    assert len(ax.collections) == len(sizes)


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
