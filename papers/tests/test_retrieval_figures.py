"""The pictures of the retrieval experiments show the numbers they were given."""

import numpy as np
import pytest

from posbias.reports.plots import new_figure, picture_bytes
from posbias_papers.plots.retrieval import (
    PAIR_COLOURS,
    draw_attention_map,
    draw_gaps,
    draw_sink_metric,
    draw_trajectories,
    gap_key,
    panel_key,
)

GROUPS = {
    "depth 2": {pair: np.array([0.1, 0.2, 0.3]) + k for k, pair in enumerate(PAIR_COLOURS)},
    "depth 4": {pair: np.array([-0.1, -0.2, -0.6]) - k for k, pair in enumerate(PAIR_COLOURS)},
}


def axes():
    return new_figure().subplots()


def dots(ax):
    return [
        line.get_ydata() for line in ax.get_lines() if line.get_marker() == "o" and line.get_linewidth() == 0
    ]


def whiskers(ax):
    """Lower and upper end of every error bar."""
    bars = [one for one in ax.containers if hasattr(one, "has_yerr")]
    return np.array([ends[:, 1] for bar in bars for ends in bar.lines[2][0].get_segments()])


def test_a_bar_is_the_mean_its_whisker_the_standard_error_and_every_network_a_dot():
    ax = axes()
    assert draw_gaps(ax, GROUPS) is ax
    values = [gap for gaps in GROUPS.values() for gap in gaps.values()]
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], [v.mean() for v in values])
    means, errors = (
        np.array(x) for x in zip(*((v.mean(), v.std(ddof=1) / 3**0.5) for v in values), strict=True)
    )
    np.testing.assert_allclose(whiskers(ax), np.stack([means - errors, means + errors], axis=1))
    for drawn, given in zip(dots(ax), values, strict=True):
        np.testing.assert_array_equal(drawn, given)


def test_bars_of_a_group_stand_side_by_side_in_the_colours_of_their_pairs():
    from matplotlib.colors import to_rgba

    ax = draw_gaps(axes(), GROUPS)
    edges = np.array([(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches])
    assert (np.diff(edges.reshape(-1)) > 0).all()
    assert [bar.get_facecolor() for bar in ax.patches[:3]] == [to_rgba(c) for c in PAIR_COLOURS.values()]


def test_groups_carry_their_notes_and_pale_ones_are_pale():
    ax = draw_gaps(axes(), GROUPS, notes={"depth 4": "acc 0.05"}, pale=["depth 4"])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["depth 2", "depth 4\nacc 0.05"]
    assert [bar.get_alpha() for bar in ax.patches] == [None] * 3 + [0.3] * 3


def test_one_network_has_no_whisker():
    ax = draw_gaps(axes(), {"only": {"first-last": np.array([0.2])}})
    assert len(whiskers(ax)) == 0
    assert ax.patches[0].get_height() == pytest.approx(0.2)


def test_a_trajectory_is_a_line_per_network_and_a_name_per_run():
    accuracy = np.array([[0.1, 0.5], [0.2, 0.6]])
    ax = draw_trajectories(axes(), {"depth 2": (accuracy, accuracy / 2), "depth 4": (accuracy, -accuracy)})
    lines = [line for line in ax.get_lines() if line.get_marker() == "."]
    np.testing.assert_array_equal([line.get_xdata() for line in lines], np.concatenate([accuracy, accuracy]))
    np.testing.assert_array_equal(
        [line.get_ydata() for line in lines], np.concatenate([accuracy / 2, -accuracy])
    )
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["depth 2", "depth 4"]


def test_a_map_shows_attention_and_leaves_out_what_no_query_sees():
    attention = np.tril(np.random.default_rng(0).uniform(0.1, 1.0, (5, 5)))
    shown = draw_attention_map(axes(), attention, bar=True).get_images()[0]
    np.testing.assert_array_equal(shown.get_array().filled(0.0), attention)
    assert (shown.get_array().mask == (attention == 0)).all()
    assert shown.get_clim() == (0.0, 1.0)


def test_sinks_are_drawn_with_both_nulls():
    rng = np.random.default_rng(0)
    trained, untrained, uniform = rng.uniform(size=(3, 17)), rng.uniform(size=(3, 17)), rng.uniform(size=17)
    ax = draw_sink_metric(axes(), trained, uniform=uniform, untrained=untrained)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], trained.mean(axis=0))
    (rings,) = [line for line in ax.get_lines() if line.get_markerfacecolor() == "#ffffff"]
    np.testing.assert_allclose(rings.get_ydata(), untrained.mean(axis=0))
    levels = [line for one in ax.collections for line in one.get_segments() if line[0, 1] == line[1, 1]]
    np.testing.assert_allclose([line[0, 1] for line in levels], uniform)
    panel_key(ax.figure)
    (legend,) = ax.figure.legends
    assert {text.get_text() for text in legend.get_texts()} == {
        "trained",
        "even attention",
        "untrained",
    }


def test_the_key_names_every_pair():
    ax = draw_gaps(axes(), GROUPS)
    gap_key(ax.figure)
    (legend,) = ax.figure.legends
    named = [text.get_text() for text in legend.get_texts()]
    assert {"first vs. middle", "first vs. last", "middle vs. last", "one network"} == set(named)


def test_same_data_same_bytes():
    pictures = []
    for _ in range(2):
        figure = new_figure()
        left, right = figure.subplots(1, 2)
        draw_gaps(left, GROUPS, notes={"depth 2": "acc 0.50"})
        draw_sink_metric(right, np.ones((2, 4)), uniform=np.ones(4), untrained=np.zeros((2, 4)))
        pictures.append(picture_bytes(figure, "png"))
    assert pictures[0] == pictures[1]
