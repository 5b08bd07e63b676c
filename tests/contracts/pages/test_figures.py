"""Figures: pure functions of data and axes, with bytes that depend on nothing else."""

import inspect
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import combinations

import numpy as np
import pytest

from posbias.comparison.predictors import predictions
from posbias.core.errors import InvalidValueError
from posbias.profiles.profile import Profile, harmonic, measured_influence, uniform
from posbias.reports import plots


def draw(name, measurement):
    """Each draw function on an axes of its own; returns figure, axes and what came back."""
    measured, predicted = measured_influence(measurement), predictions(measurement)
    figure = plots.new_figure()
    ax = figure.subplots()
    calls = {
        "draw_influence": lambda: plots.draw_influence(ax, measured),
        "draw_predictions": lambda: plots.draw_influence(ax, measured, predicted),
        "draw_one": lambda: plots.draw_influence(ax, measured, {"energy": predicted["energy"]}),
        "draw_cumulative": lambda: plots.draw_cumulative(ax, measured, predicted),
        "draw_profile": lambda: plots.draw_profile(ax, predicted["positional"]),
        "draw_mixing": lambda: plots.draw_mixing(ax, measurement),
        "draw_sinks": lambda: plots.draw_sinks(ax, measurement),
        "draw_norms": lambda: plots.draw_norms(ax, measurement),
        "draw_kernels": lambda: plots.draw_kernels([ax], measurement)[0],
    }
    return figure, ax, calls[name]()


DRAWN = [
    "draw_influence",
    "draw_predictions",
    "draw_one",
    "draw_cumulative",
    "draw_profile",
    "draw_mixing",
    "draw_sinks",
    "draw_norms",
    "draw_kernels",
]


SAVED = [
    pytest.param(name, kind, marks=[pytest.mark.slow] * (kind != "svg" and name != "draw_predictions"))
    for name in DRAWN
    for kind in plots.FILE_KINDS
]


@pytest.mark.parametrize(("name", "kind"), SAVED)
def test_same_data_same_bytes(make_measurement, name, kind):
    pictures = []
    for _ in range(2):
        figure, ax, back = draw(name, make_measurement("U", sink=True))
        assert back is ax
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        pictures.append(plots.picture_bytes(figure, kind))
    assert pictures[0] == pictures[1]
    start = {"svg": b"<?xml", "png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF"}[kind]
    assert pictures[0].startswith(start)


def test_files_carry_no_date(make_measurement, tmp_path):
    figure, _, _ = draw("draw_mixing", make_measurement())
    path = plots.save_figure(figure, tmp_path / "mixing.svg")
    ET.parse(path)
    text = path.read_text()
    assert "<dc:date>" not in text
    assert "matplotlib" not in text.lower().replace("matplotlib.axis", "")
    assert [one.name for one in tmp_path.iterdir()] == ["mixing.svg"]


@pytest.mark.parametrize("name", ["figure", "figure.jpeg", "figure.svgg"])
def test_other_kinds_are_refused(name, tmp_path):
    with pytest.raises(InvalidValueError, match="svg, png, pdf"):
        plots.save_figure(plots.new_figure(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_curves_show_the_numbers(make_measurement):
    measurement = make_measurement("U")
    measured = measured_influence(measurement)
    _, ax, _ = draw("draw_predictions", measurement)
    curves = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    np.testing.assert_allclose(curves["measured"], measured.mass * measured.tokens)
    np.testing.assert_allclose(
        curves["energy rollout"], predictions(measurement)["energy"].mass * measured.tokens
    )
    _, ax, _ = draw("draw_sinks", measurement)
    even = np.mean(1 / np.arange(2, measured.tokens + 1))
    assert any(np.allclose(line.get_ydata(), even) for line in ax.get_lines())


@pytest.mark.parametrize(
    "profile",
    [
        uniform(1),
        uniform(500),
        harmonic(300),
        Profile(np.eye(1, 50, 0)[0]),
        Profile(np.eye(1, 50, 9)[0], query=9),
        Profile.from_weights(10.0 ** -np.arange(200.0)),
    ],
    ids=["one", "flat", "harmonic", "collapsed", "itself", "steep"],
)
def test_any_profile_can_be_drawn(profile):
    figure = plots.new_figure()
    ax = plots.draw_profile(figure.subplots(), profile)
    low, high = ax.get_ylim()
    assert 0 < low < 1 < high
    assert plots.picture_bytes(figure, "svg")


@pytest.mark.parametrize("least", [0, 36, 128, 255])
def test_the_names_of_the_ends_and_of_the_trough_do_not_run_into_each_other(least):
    mass = 1.0 + np.abs(np.arange(256) - least)
    figure = plots.new_figure(3.3)
    ax = plots.draw_profile(figure.subplots(), Profile(mass / mass.sum()))
    figure.draw_without_rendering()
    boxes = {text.get_text(): text.get_window_extent() for text in ax.texts}
    assert {*boxes} >= {"first 5 %", "trough", "last 5 %"}
    assert not any(one.overlaps(other) for one, other in combinations(boxes.values(), 2))


def test_drawing_touches_no_global_state():
    program = """
import sys, matplotlib
read = lambda: {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}
before = read()
from posbias.reports.plots import draw_profile, new_figure, picture_bytes
from posbias.profiles.profile import harmonic
figure = new_figure()
draw_profile(figure.subplots(), harmonic(30))
picture_bytes(figure, "svg")
assert read() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_importing_plots_loads_no_matplotlib():
    program = "import posbias.reports.plots, sys; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_draws_takes_axes_then_data_with_several_by_name_and_returns_the_axes():
    drawing = {name: getattr(plots, name) for name in plots.__all__ if name.startswith("draw_")}
    assert len(drawing) > 15
    for name, draw in drawing.items():
        parameters = inspect.signature(draw).parameters
        first = next(iter(parameters.values()))
        assert first.name in ("ax", "axes"), name
        assert str(inspect.signature(draw).return_annotation).strip("'") == str(first.annotation).strip(
            "'"
        ), name
        assert not any("Sequence[tuple[str, posbias" in str(one.annotation) for one in parameters.values()), (
            name
        )
    profile = uniform(3)
    ax = plots.new_figure().subplots()
    assert plots.draw_profiles(ax, {"first": profile, "second": profile}) is ax
    assert [text.get_text() for text in ax.get_legend().get_texts()][:2] == ["first", "second"]
