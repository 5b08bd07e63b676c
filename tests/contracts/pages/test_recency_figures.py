"""Pictures of scores show what was estimated, and no noise as structure."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posbias.profiles.estimate import Estimate
from posbias.reports.plots import new_figure, picture_bytes
from posbias.reports.plots.recency import (
    LEAST_SPAN,
    colour_span,
    draw_key_factors,
    draw_scores,
    probability_text,
    scores_figure,
)
from posbias.simulation import Averages, RecencyModel, simulate_recency


@pytest.fixture(scope="module")
def result():
    return simulate_recency(RecencyModel(tokens=6), 4096, threads=1)


@pytest.mark.parametrize("diagonal", [False, True])
def test_entries_have_their_place_and_the_future_is_blank(result, diagonal):
    scores, se = result.mean_scores.value[1], result.mean_scores.se[1]
    ax = draw_scores(new_figure().subplots(), scores, se, diagonal=diagonal)
    image = np.ma.filled(ax.images[-1].get_array(), np.nan)
    seen = np.tri(6, k=0 if diagonal else -1, dtype=bool)
    np.testing.assert_array_equal(image[seen], scores[seen])
    assert np.isnan(image[~seen]).all()
    # the first query is at the top, the first key at the left
    assert ax.get_ylim() == (5.5, -0.5)
    assert ax.get_xlim() == (-0.5, 5.5)
    assert len(ax.images) == (1 if diagonal else 2)


def test_a_masked_diagonal_leaves_the_colours_to_the_others(result):
    scores, se = result.mean_scores.value[1], result.mean_scores.se[1]
    below = scores[np.tri(6, k=-1, dtype=bool)]
    ax = draw_scores(new_figure().subplots(), scores, se)
    low, high = ax.images[-1].get_clim()
    assert low <= below.min()
    assert below.max() <= high < scores[5, 5] == pytest.approx(4.0)


@given(
    st.lists(st.tuples(st.floats(-50, 50), st.floats(0, 1)), min_size=1, max_size=20),
)
@example([(1.0, 5e-324)])
def test_colours_reach_over_all_scores_and_far_beyond_their_errors(entries):
    scores, se = np.array(entries).T
    low, high = colour_span(scores, se)
    assert low <= scores.min() + 1e-12
    assert high >= scores.max() - 1e-12
    # ends are rounded to the digits of the scores
    assert high - low >= LEAST_SPAN * se.max() * (1 - 1e-9) - 1e-15 * max(abs(low), abs(high))
    assert high > low
    wide = scores.max() - scores.min()
    if wide > LEAST_SPAN * se.max() > 0:
        assert (low, high) == (scores.min(), scores.max())


def test_no_errors_are_known_of_one_sample():
    low, high = colour_span(np.array([1.0, 2.0]), np.array([np.nan, np.nan]))
    assert (low, high) == (1.0, 2.0)


def test_equal_scores_of_a_first_layer_are_of_one_colour(result):
    scores, se = result.mean_scores.value[0], result.mean_scores.se[0]
    ax = draw_scores(new_figure().subplots(), scores, se)
    colours = ax.images[-1].norm(scores[np.tri(6, k=-1, dtype=bool)])
    assert np.ptp(colours) < 0.2
    later = draw_scores(new_figure().subplots(), result.mean_scores.value[1], result.mean_scores.se[1])
    assert np.ptp(later.images[-1].norm(result.mean_scores.value[1][np.tri(6, k=-1, dtype=bool)])) > 0.9


@pytest.mark.parametrize(
    ("value", "se", "text"),
    [
        (0.63821, 0.00012, "0.6382 ± 0.0001"),
        (0.638074, 0.00007, "0.63807 ± 0.00007"),
        (0.5000016, 1.2e-7, "0.5000016 ± 1e-7"),
        (0.505025, 8.5e-6, "0.505025 ± 8e-6"),
        (0.5, 0.096, "0.5 ± 0.1"),
        (0.5, 9.6e-6, "0.50000 ± 0.00001"),
        (0.5, 0.0, "0.5"),
        (0.5, float("nan"), "0.5"),
        (0.0, 8.3e-10, "0.0000000000 ± 8e-10"),
    ],
)
def test_probabilities_have_as_many_digits_as_their_errors_allow(value, se, text):
    assert probability_text(Estimate(value, se, 10)) == text


@pytest.mark.parametrize(("depth", "norm"), [(1, "layernorm"), (4, "none"), (6, "layernorm")])
def test_a_simulation_is_drawn_layer_by_layer(depth, norm):
    result = simulate_recency(RecencyModel(tokens=5, depth=depth, norm=norm), 2048, threads=1)
    axes = [ax for ax in scores_figure(result).axes if ax.get_visible()]
    assert len(axes) == depth
    for layer, ax in enumerate(axes):
        probability = probability_text(result.recency_probability[layer])
        assert ax.get_title() == f"layer {layer + 1}\nRP = {probability}"
        assert len(ax.images) == (1 if norm == "none" else 2)


@pytest.mark.parametrize("tokens", [2, 3, 60])
def test_few_and_many_tokens_can_be_drawn(tokens):
    result = simulate_recency(RecencyModel(tokens=tokens, depth=2), 256, threads=1)
    figure = scores_figure(result)
    assert [ax.get_title().split("\n")[0] for ax in figure.axes] == ["layer 1", "layer 2"]
    assert picture_bytes(figure, "png").startswith(b"\x89PNG")


def test_the_same_simulation_gives_the_same_file(result):
    assert picture_bytes(scores_figure(result), "svg") == picture_bytes(scores_figure(result), "svg")


def test_unknown_points_are_left_out():
    points = Averages(np.array([1.0, 1.1, np.nan, 1.3]), np.array([0.0, 0.01, np.nan, 0.02]))
    curve = np.array([1.0, 1.1, 1.2, 1.3])
    ax = draw_key_factors(
        new_figure().subplots(), {0.5: curve}, others={0.5: curve**2}, simulated={0.5: points}
    )
    (container,) = ax.containers
    np.testing.assert_array_equal(container[0].get_xdata(), [1, 3])
    np.testing.assert_array_equal(container[0].get_ydata(), [1.1, 1.3])
    (bars,) = container[2]
    lengths = [segment[1, 1] - segment[0, 1] for segment in bars.get_segments()]
    np.testing.assert_allclose(lengths, [2 * 1.96 * 0.01, 2 * 1.96 * 0.02])
    assert [text.get_text() for text in ax.get_legend().get_texts()][-1] == "simulated, 95 %"


def test_names_at_the_ends_of_curves_do_not_overlap():
    ends = {alpha: np.array([1.0, 1.0 + 0.001 * alpha]) for alpha in (0.0, 0.25, 0.5)}
    figure = new_figure()
    ax = draw_key_factors(figure.subplots(), ends | {0.9: np.array([1.0, 1.5])})
    figure.canvas.draw()
    boxes = sorted((text.get_window_extent() for text in ax.texts), key=lambda box: box.y0)
    assert len(boxes) == 4
    assert all(above.y0 >= below.y1 for below, above in pairwise(boxes))
