"""Retrieval asked in words as pictures: a curve with its control arms, or a map over sizes and places."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posbias.core.errors import InvalidValueError
from posbias.profiles.estimate import Estimate
from posbias.reports.plots import style
from posbias.reports.plots.behaviour import PLACE
from posbias.retrieval.curve import RetrievalCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {"no gold": ":", "gold alone": "--", "shuffled": "-."}
"""A line style for each control arm."""


def draw_answers(ax: "Axes", curve: RetrievalCurve) -> "Axes":
    """Draw the share of trials that find the fact by its place, with 95 % intervals, and the control arms."""
    style.dress(ax, PLACE, "share of trials")
    for name, look in _LOOKS.items():
        number = curve.overall[name]
        ax.axhline(number.value, color=style.MUTED, linewidth=style.THIN * 1.5, linestyle=look, label=name)
        ax.axhspan(*number.interval, color=style.MUTED, alpha=0.08, linewidth=0)
    if curve.chance:
        style.level_line(ax, curve.chance)
        ax.text(1.0, curve.chance, "chance", fontsize=style.SMALL, color=style.MUTED, ha="right", va="bottom")
    height = np.array([one.value for one in curve.curves["accuracy"]])
    ends = np.array([one.interval for one in curve.curves["accuracy"]])
    lengths = np.maximum(0.0, np.array([height - ends[:, 0], ends[:, 1] - height]))
    look = {"color": style.ACCENT, "markersize": 3.5, "linewidth": style.LINE, "capsize": 1.5}
    ax.errorbar(curve.depth, height, lengths, fmt="o-", elinewidth=style.THIN * 1.5, label="found", **look)
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlim(-0.03, 1.03)
    style.key(ax, columns=4)
    return ax


def draw_answer_map(ax: "Axes", curves: Sequence[RetrievalCurve]) -> "Axes":
    """Draw a map: a row for each size, a column for each place, the share found as colour and with its interval.

    Raises `InvalidValueError` for curves of different numbers of places, or none.
    """
    if not curves or len({len(curve.depth) for curve in curves}) > 1:
        raise InvalidValueError("curves: of different numbers of places given, or none; one number needed")
    style.dress(ax, PLACE, _size_name(curves[0]))
    shares = np.array([[one.value for one in curve.curves["accuracy"]] for curve in curves])
    image = style.draw_matrix(ax, shares, vmin=0.0, vmax=1.0, aspect="auto")
    for row, curve in enumerate(curves):
        for column, one in enumerate(curve.curves["accuracy"]):
            # viridis is dark below two thirds
            colour = style.INK if one.value > 0.65 else "white"
            place = {"ha": "center", "va": "center", "fontsize": style.SMALL - 1, "color": colour}
            ax.text(column, row, _cell(one), linespacing=1.3, **place)
    ax.set_xticks(range(shares.shape[1]), [f"{place:.2g}" for place in curves[0].depth])
    ax.set_yticks(range(len(curves)), [str(_size(curve)) for curve in curves])
    style.colour_bar(ax, image).set_label("share of trials", fontsize=style.SMALL, color=style.INK)
    return ax


def draw_ways(ax: "Axes", curves: Mapping[str, RetrievalCurve]) -> "Axes":
    """Draw the share found by place for each way to ask, by its name, with 95 % intervals side by side."""
    style.dress(ax, PLACE, "share of trials")
    for number, (name, curve) in enumerate(curves.items()):
        height = np.array([one.value for one in curve.curves["accuracy"]])
        ends = np.array([one.interval for one in curve.curves["accuracy"]])
        colour = style.SERIES[number % len(style.SERIES)]
        # intervals of several ways would hide each other at one place
        aside = 0.012 * (number - (len(curves) - 1) / 2)
        look = {"color": colour, "marker": style.MARKERS[number % len(style.MARKERS)], "markersize": 3.5}
        ax.errorbar(
            curve.depth + aside, height, np.maximum(0.0, [height - ends[:, 0], ends[:, 1] - height]),
            label=name if curve.able else f"{name} ({curve.verdict})", linewidth=style.LINE, capsize=1.5,
            elinewidth=style.THIN * 1.5, **look,
        )  # fmt: skip
    ax.set_ylim(-0.02, 1.02)
    style.key(ax, columns=2)
    return ax


def ways_figure(sizes: Sequence[Mapping[str, RetrievalCurve]]) -> "Figure":
    """Every way to ask in one picture: a panel for each size, a curve for each way."""
    figure = style.new_figure(4.6, 2.9 * len(sizes))
    axes = figure.subplots(len(sizes), squeeze=False)[:, 0]
    for ax, curves in zip(axes, sizes, strict=True):
        draw_ways(ax, curves)
    shown = [next(iter(curves.values())) for curves in sizes]
    about = [f"{shown[0].model}, {_trials(shown)} trials, 95 % intervals"]
    if len(sizes) > 1:
        about.append(f"{_size_name(shown[0])}: {', '.join(str(_size(one)) for one in shown)}, from above")
    figure.suptitle("\n".join(about), fontsize=style.SMALL, color=style.INK)
    return figure


def answers_figure(curves: Sequence[RetrievalCurve]) -> "Figure":
    """One curve with its control arms, or several as a map."""
    several = len(curves) > 1
    figure = style.new_figure(4.6, 1.5 + 0.5 * len(curves) if several else 2.9)
    ax = figure.subplots()
    if several:
        draw_answer_map(ax, curves)
    else:
        draw_answers(ax, curves[0])
    about = [f"{curves[0].model}, {_trials(curves)} trials, 95 % intervals"]
    if dull := [str(_size(curve)) for curve in curves if not curve.able]:
        which = f" at {', '.join(dull)}" if several else ""
        cut = (
            "answers cut off, or "
            if any(curve.answers and curve.answers.too_often_cut_off for curve in curves)
            else ""
        )
        about.append(f"{cut}not shown to be found more often than guessed or copied{which}")
    figure.suptitle("\n".join(about), fontsize=style.SMALL, color=style.INK)
    return figure


def _cell(one: Estimate) -> str:
    return f"{one.value:.2f}\n[{one.interval[0]:.2f}, {one.interval[1]:.2f}]"


def _trials(curves: Sequence[RetrievalCurve]) -> str:
    counts = sorted({curve.prompts for curve in curves})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _size(curve: RetrievalCurve) -> int | str:
    return curve.job["pairs"] or curve.job["length"] or curve.job["task"]


def _size_name(curve: RetrievalCurve) -> str:
    return "pairs" if curve.job["pairs"] else "words" if curve.job["length"] else "task"
