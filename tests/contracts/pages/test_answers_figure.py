"""The pictures of retrieval asked in words show what the curves hold."""

import numpy as np
import pytest

from posbias.core.errors import InvalidValueError
from posbias.reports.plots import new_figure, picture_bytes
from posbias.reports.plots.answers import answers_figure, draw_answer_map, draw_answers, ways_figure
from posbias.retrieval.answer_curve import AnswerCurve
from posbias.retrieval.trials import ARMS


def made(shares, *, pairs=8, trials=40, seed=3):
    """A curve with about these shares by place."""
    random = np.random.default_rng(seed)
    found = random.random((trials, len(shares))) < np.array(shares)
    arms = {name: random.random(trials) < rate for name, rate in zip(ARMS, (0.0, 0.9, 0.5), strict=True)}
    job = {
        "task": "keys",
        "pairs": pairs,
        "length": None,
        "wording": "json",
        "positions": len(shares),
        "seed": 0,
    }
    return AnswerCurve(
        "toy", job, "first", found, found, arms, np.linspace(0, 1, len(shares)), 40.0, 1 / pairs
    )


def test_a_curve_has_its_shares_its_intervals_and_its_arms():
    curve = made([0.9, 0.4, 0.8])
    ax = draw_answers(new_figure(4, 3).subplots(), curve)
    line, _, (bars,) = ax.containers[0].lines
    assert line.get_ydata() == pytest.approx([one.value for one in curve.accuracy])
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    assert ends == pytest.approx(np.array([one.interval for one in curve.accuracy]))
    shown = {text.get_text() for text in ax.get_legend().get_texts()}
    assert shown == {"found", *ARMS}
    levels = {round(float(one.get_ydata()[0]), 6) for one in ax.lines if len(one.get_ydata()) == 2}
    assert {round(one.value, 6) for one in curve.controls.values()} | {round(1 / 8, 6)} <= levels


def test_a_map_has_a_row_for_each_size_with_numbers_and_intervals():
    curves = [made([0.9, 0.4, 0.8], pairs=4), made([0.5, 0.1, 0.7], pairs=16)]
    ax = draw_answer_map(new_figure(4, 3).subplots(), curves)
    expected = np.array([[one.value for one in curve.accuracy] for curve in curves])
    assert np.asarray(ax.images[0].get_array()) == pytest.approx(expected)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["4", "16"]
    cells = [text.get_text() for text in ax.texts]
    first = curves[0].accuracy[0]
    assert cells[0] == f"{first.value:.2f}\n[{first.interval[0]:.2f}, {first.interval[1]:.2f}]"
    assert len(cells) == 6


def test_several_ways_are_a_curve_each_with_intervals_and_a_panel_for_each_size():
    sizes = [
        {"plain": made([0.9, 0.4, 0.8], pairs=pairs), "told": made([0.0, 0.0, 0.0], pairs=pairs, seed=4)}
        for pairs in (8, 16)
    ]
    figure = ways_figure(sizes)
    assert "pairs: 8, 16, from above" in figure.get_suptitle()
    assert len(figure.axes) == 2
    for ax, curves in zip(figure.axes, sizes, strict=True):
        for drawn, curve in zip(ax.containers, curves.values(), strict=True):
            line, _, (bars,) = drawn.lines
            assert line.get_ydata() == pytest.approx([one.value for one in curve.accuracy])
            ends = np.array([segment[:, 1] for segment in bars.get_segments()])
            assert ends == pytest.approx(np.array([one.interval for one in curve.accuracy]))
            assert line.get_xdata() == pytest.approx(curve.depth, abs=0.03)
        places = [one.lines[0].get_xdata()[0] for one in ax.containers]
        assert places[0] != places[1], "intervals stand beside each other"
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["plain", "told (at chance)"]


def test_a_figure_says_model_trials_and_what_cannot_be_told():
    able, dull = made([0.9, 0.4, 0.8]), made([0.0, 0.05, 0.0], pairs=16)
    assert "toy, 40 trials" in answers_figure([able]).get_suptitle()
    assert "not told" not in answers_figure([able]).get_suptitle()
    figure = answers_figure([able, dull])
    assert "not shown to be found more often than guessed or copied at 16" in figure.get_suptitle()
    assert picture_bytes(figure, "svg") == picture_bytes(answers_figure([able, dull]), "svg")


def test_curves_of_other_places_are_no_map():
    with pytest.raises(InvalidValueError, match="curves: of different numbers of places"):
        draw_answer_map(new_figure(4, 3).subplots(), [made([0.9, 0.4, 0.8]), made([0.9, 0.4])])
