"""The figure of deviations shows the curves it was given, and no more than is known of them."""

import numpy as np
import pytest

from posbias.reports.plots import new_figure, picture_bytes
from posbias.theory.closed_forms import layernorm
from posbias.theory.closed_forms.deviation import DeviationCurve
from posbias_papers.plots.closed_forms import READINGS, draw_deviation, draw_reading_key


def curve(deviation, se):
    return DeviationCurve(8 * 4 ** np.arange(len(deviation)), np.array(deviation), np.array(se))


def lines(ax):
    return [line for line in ax.lines if line.get_linestyle() != "None" and line.get_label() in NAMES]


NAMES = [name for name, _, _ in READINGS.values()]


def test_lines_are_sizes_of_deviations_as_far_as_known():
    exact = {
        "published": curve([2.0, 8.0, 30.0], [0, 0, 0]),
        "corrected": curve([-0.1, 0.01, 1e-9], [0, 0, 1e-8]),
    }
    ax = draw_deviation(new_figure().subplots(), exact, {})
    drawn = {line.get_label(): np.asarray(line.get_ydata(), dtype=float) for line in lines(ax)}
    np.testing.assert_array_equal(drawn[READINGS["published"][0]], [2.0, 8.0, 30.0])
    np.testing.assert_array_equal(drawn[READINGS["corrected"][0]], [0.1, 0.01, np.nan])
    assert ax.get_xscale() == ax.get_yscale() == "log"


def test_points_have_intervals_and_unknown_ones_only_an_upper_end():
    ax = draw_deviation(new_figure().subplots(), {}, {"corrected": curve([-0.5, 0.02], [0.1, 0.05])})
    (bars,) = ax.containers
    (segment,) = bars.lines[2][0].get_segments()
    assert bars.lines[0].get_ydata().tolist() == [0.5]
    assert segment[:, 1] == pytest.approx([0.5 - 0.196, 0.5 + 0.196])
    (mark,) = (line for line in ax.lines if line.get_marker() == "v")
    assert mark.get_xdata().tolist() == [32]
    assert mark.get_ydata() == pytest.approx([0.02 + 1.96 * 0.05])


@pytest.mark.parametrize(("slope", "words"), [(-0.5, "∝ 1/√d"), (-1.0, "∝ 1/d"), (-2.0, "∝ d^-2")])
def test_a_guide_has_its_slope_and_names_it(slope, words):
    exact = {"corrected": curve([0.3, 0.1, 0.05, 1e-9], [0, 0, 0, 1.0])}
    ax = draw_deviation(new_figure().subplots(), exact, {}, slope=slope)
    (text,) = (text.get_text() for text in ax.texts)
    assert text == words
    guide = next(line for line in ax.lines if line.get_label() not in NAMES)
    x, y = np.log(guide.get_xdata()), np.log(guide.get_ydata())
    assert (y[1] - y[0]) / (x[1] - x[0]) == pytest.approx(slope)
    assert np.exp(x[1]) == pytest.approx(8 * 16)  # the last known point


def test_nothing_known_draws_no_guide():
    ax = draw_deviation(new_figure().subplots(), {"corrected": curve([1e-9], [1.0])}, {}, slope=-1.0)
    assert not ax.texts


def test_every_reading_has_a_look_and_a_place_in_the_key():
    assert set(READINGS) == set(layernorm.READINGS)
    figure = new_figure()
    draw_reading_key(figure.subplots())
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][:3] == NAMES
    assert picture_bytes(figure, "png").startswith(b"\x89PNG")
