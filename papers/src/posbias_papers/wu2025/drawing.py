"""Figures 2 to 24 drawn: panels in the paper's layout, under each group what its networks can do.

A gap of networks that have not learnt means nothing: such groups of bars are drawn pale. Every network is a
dot, since a mean of three hides as much as it shows. Each function draws the outcomes of a figure's own
settings, from its table; `caption` stands beneath.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.reports.plots import style
from posbias_papers.contrasts import RELATIVE
from posbias_papers.plots import captioned_figure, settle
from posbias_papers.wu2025.outcomes import PAIRS, Outcome
from posbias_papers.wu2025.settings import ABSOLUTE, Setting
from posbias_papers.wu2025.table import comparable, outcomes_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

WIDTH = 8.0
PAIR_COLOURS = {
    "first-middle": style.COLOURS["positional"],
    "first-last": style.COLOURS["energy"],
    "middle-last": style.COLOURS["attention_only"],
}
"""A colour for each pair of compared items."""
BAR = 0.26
"""Width of a bar; groups stand one apart."""
CURVES = {
    "first-last": "first–last gap",
    "in_context_accuracy": "in-context accuracy",
    "iteration": "iteration",
}
"""The curves that are drawn, and what their axes say."""
DOT: dict[str, Any] = {"marker": "o", "markersize": 1.8, "linewidth": 0, "color": style.INK, "alpha": 0.75}
SMALL: dict[str, Any] = {"fontsize": style.SMALL, "color": style.INK}
TEXT: dict[str, Any] = {"fontsize": style.TEXT, "color": style.INK, "pad": 4}
Panels = Mapping[str, Mapping[str, Mapping[str, Outcome]]]
"""Outcomes by row, panel and group of bars."""


def draw_depths(frame: "pd.DataFrame", caption: str) -> "Figure":
    """Gaps against depth: a panel per encoding, a row without and with residual connections.

    Beneath the bars stands the gap first–last along training against in-context accuracy.
    """
    rows = _by_depth(frame)
    figure, part = captioned_figure(WIDTH, 3.9 * len(rows), caption)
    bars, lines = part.subfigures(2, 1, squeeze=False, height_ratios=(1.2, 1)).flat
    _draw_gap_rows(bars, rows)
    _draw_curve_rows(lines, rows, "first-last", "in_context_accuracy", titled=False)
    return settle(figure)


def draw_curves(frame: "pd.DataFrame", caption: str) -> "Figure":
    """Learning curves: the gap first–last and in-context accuracy by iteration, a panel per encoding."""
    rows = _by_depth(frame)
    figure, part = captioned_figure(WIDTH, 3.4 * len(rows), caption)
    above, below = part.subfigures(2, 1, squeeze=False).flat
    _draw_curve_rows(above, rows, "first-last", "iteration", titled=True)
    _draw_curve_rows(below, rows, "in_context_accuracy", "iteration", titled=False)
    return settle(figure)


def draw_biased_training(frame: "pd.DataFrame", caption: str) -> "Figure":
    """After training that asks for certain items: a panel per mask, gaps above, below accuracy by position.

    A group or a line per encoding; lines are of the networks that have learnt.
    """
    titles = {"full": "no mask", "causal": "causal mask"}
    rows = _panels(frame, lambda cell: ("", titles[cell.mask.kind], ABSOLUTE[cell.positional]))
    figure, part = captioned_figure(WIDTH, 4.9, caption)
    bars, lines = part.subfigures(2, 1, squeeze=False, height_ratios=(1.3, 1)).flat
    _draw_gap_rows(bars, rows)
    for ax, _, groups, first in _axes(lines, rows, "accuracy", "item that is asked for (from 0)"):
        style.dress(ax, "", "")
        for colour, (name, outcome) in zip(style.SERIES, groups.items(), strict=False):
            learnt = outcome.by_position[outcome.learnt]
            items = np.arange(outcome.by_position.shape[1])
            mean = learnt.mean(axis=0) if len(learnt) else np.full(len(items), np.nan)
            label = name if len(learnt) else f"{name}: –"
            ax.plot(items, mean, "-", color=colour, linewidth=style.LINE, label=label)
            ax.plot(np.tile(items, (len(learnt), 1)).T, learnt.T, **{**DOT, "color": colour})
            ax.set_xticks(items)
        ax.set_ylim(0, 1.03)
        if first:
            ax.legend(handlelength=1.4, **style.LEGEND)
    return settle(figure)


def draw_groups(frame: "pd.DataFrame", caption: str, *, groups: Mapping[Setting, str]) -> "Figure":
    """Gaps by what a study compares: a panel without and with residual connections, a group of bars each."""
    rows = _panels(frame, lambda cell: ("", cell.row, groups[cell]))
    figure, part = captioned_figure(WIDTH, 2.9, caption)
    _draw_gap_rows(part, rows)
    return settle(figure)


def draw_sinks(frame: "pd.DataFrame", caption: str) -> "Figure":
    """The sink metric by token: a panel per mask, a row without and with residual connections.

    Where there is one mask its rows stand side by side. Bars: trained networks, mean ± standard error, each a dot
    (hollow: keys that fewer than five queries see, which are not compared);
    lines: even attention under the same mask; rings: the mean of the same networks before training.
    """
    masks = len({cell.mask for cell in outcomes_of(frame)})

    def words(cell: Setting) -> tuple[str, str, str]:
        return (cell.row, cell.masked, "") if masks > 1 else ("", cell.row, "")

    rows = _panels(frame, words)
    figure, part = captioned_figure(WIDTH, 2.6 if masks == 1 else 4.2, caption)
    seen = {id(outcome): comparable(cell) for cell, outcome in outcomes_of(frame).items()}
    for ax, title, groups, _ in _axes(part, rows, "sink metric (τ = .2)", "token (even: items, odd: labels)"):
        outcome = groups[""]
        pale = outcome.learnt.sum() < 2
        shown = outcome.finite if pale else outcome.learnt
        token = np.arange(len(outcome.even))
        look = {"color": style.COLOURS["energy"], "alpha": 0.3 if pale else None, "label": "trained"}
        style.dress(ax, "", "")
        _draw_bars(ax, token, outcome.sinks[shown], 0.8, **look)
        for bar in np.array(ax.patches)[~seen[id(outcome)]]:
            bar.set(facecolor=style.PAPER, edgecolor=look["color"], linewidth=style.THIN * 1.5)
        ax.plot(np.tile(token, (shown.sum(), 1)).T, outcome.sinks[shown].T, **DOT, zorder=4)
        look = {"color": style.COLOURS["measured_kernels"], "linewidth": style.LINE, "zorder": 3.5}
        ax.hlines(outcome.even, token - 0.45, token + 0.45, label="even attention", **look)
        look = {"markersize": 3.6, "markerfacecolor": style.PAPER, "markeredgewidth": 0.9, "zorder": 3.6}
        look |= {"markeredgecolor": style.COLOURS["attention_only"], "label": "untrained"}
        ax.plot(token, outcome.untrained[shown].mean(axis=0), "o", **look)
        ax.set(xlim=(-0.7, len(token) - 0.3), xticks=token[::4])
        ax.set_title(f"{title} ({_state(outcome)})".replace("\n", ", "), **SMALL, pad=4)
    _key_above(part, part.axes[0].get_legend_handles_labels()[0])
    return settle(figure)


def draw_maps(frame: "pd.DataFrame", caption: str) -> "Figure":
    """Attention maps of the first seed, means over sequences: a panel per layer."""
    layers = [
        (cell, one.attention[0], t) for cell, one in outcomes_of(frame).items() for t in range(cell.depth)
    ]
    figure, part = captioned_figure(WIDTH, 2.2, caption)
    for (cell, attention, t), ax in zip(layers, part.subplots(1, len(layers)), strict=True):
        _draw_map(ax, attention[t], bar=t == cell.depth - 1 and cell == layers[-1][0])
        ax.set_title(f"{cell.row}, layer {t}", **SMALL, pad=4)
        ax.label_outer()
    return settle(figure)


# --- panels ------------------------------------------------------------------------------------------------


def _by_depth(frame: "pd.DataFrame") -> Panels:
    """Outcomes by residual connections, encoding and depth."""
    return _panels(frame, lambda cell: (cell.row, RELATIVE[cell.positional], f"depth {cell.depth}"))


def _panels(frame: "pd.DataFrame", words: Callable[[Setting], tuple[str, str, str]]) -> Panels:
    """Outcomes by the `words` of their settings: row, panel and group."""
    rows: dict[str, dict[str, dict[str, Outcome]]] = {}
    for setting, outcome in outcomes_of(frame).items():
        row, title, group = words(setting)
        rows.setdefault(row, {}).setdefault(title, {})[group] = outcome
    return rows


def _axes(
    part: "SubFigure", rows: Panels, y: str, x: str = "", **shared: Any
) -> "Iterator[tuple[Axes, str, Mapping[str, Outcome], bool]]":
    """The axes of all panels, of one height: title, groups, whether a row begins; labelled after each is drawn."""
    axes = part.subplots(len(rows), max(map(len, rows.values())), squeeze=False, sharey=True, **shared)
    for row, (name, panels) in zip(axes, rows.items(), strict=True):
        for ax, (title, groups) in zip(row, panels.items(), strict=True):
            yield ax, title, groups, ax is row[0]
            ax.set_ylabel(f"{name}\n{y}".strip() if ax is row[0] else "", **SMALL)
            if x:
                ax.set_xlabel(x if row[0] is axes[-1, 0] else "", **SMALL)


def _draw_gap_rows(part: "SubFigure", rows: Panels) -> None:
    """A row of panels of bars for each row of the figure: a group of networks, a bar a pair of items, a dot a
    network."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    for ax, title, groups, first in _axes(part, rows, "accuracy gap"):
        style.dress(ax, "", "")
        ax.axhline(0, color=style.MUTED, linewidth=style.THIN)
        for place, outcome in enumerate(groups.values()):
            few = outcome.learnt.sum() < 2
            for step, pair in enumerate(PAIRS):
                x = place + (step - (len(PAIRS) - 1) / 2) * BAR
                # where fewer than two have learnt, all that were trained to the end
                gaps = outcome.gaps[pair][outcome.finite if few else outcome.learnt][:, None]
                _draw_bars(
                    ax, np.array([x]), gaps, 0.92 * BAR, color=PAIR_COLOURS[pair], alpha=0.3 if few else None
                )
                spread = (np.arange(len(gaps)) - (len(gaps) - 1) / 2) * 0.035
                ax.plot(x + spread, gaps[:, 0], **DOT, zorder=4)
        # five groups stand so close that "2 of 3 learnt" would run into the next
        labels = [f"{name}\n{_state(one)}".replace(" learnt", "\nlearnt") for name, one in groups.items()]
        ax.set_xticks(range(len(groups)), labels, linespacing=1.35)
        ax.tick_params(axis="x", length=0, labelsize=style.SMALL - 0.5)
        ax.set_xlim(-0.6, len(groups) - 0.4)
        ax.set_title(title, **TEXT)
        ax.tick_params(labelleft=first)
    colours = PAIR_COLOURS.items()
    handles = [Patch(color=colour, linewidth=0, label=pair.replace("-", " vs. ")) for pair, colour in colours]
    _key_above(part, [*handles, Line2D([], [], label="one network", **DOT)])


def _state(outcome: Outcome) -> str:
    """Loss and in-context accuracy of a cell's networks in two lines, and how many have learnt if not all."""
    learnt, kept = outcome.learnt, outcome.finite
    few = f"\n{learnt.sum()} of {learnt.size} learnt" if not learnt.all() else ""
    accuracy, loss = (one[kept].mean() if kept.any() else np.nan for one in (outcome.accuracy, outcome.loss))
    return f"acc {accuracy:.2f}\nloss {loss:.2f}{few}"


def _draw_curve_rows(part: "SubFigure", rows: Panels, y: str, x: str, *, titled: bool) -> None:
    """One curve against another along training: a line per network, a shade for each group of all panels."""
    from matplotlib import colormaps

    names = sorted({group for panels in rows.values() for groups in panels.values() for group in groups})
    shades = dict(zip(names, colormaps["viridis"](np.linspace(0.85, 0.0, len(names))), strict=True))
    for ax, title, groups, _ in _axes(part, rows, CURVES[y], CURVES[x], sharex=True):
        style.dress(ax, "", "")
        ax.axhline(0, color=style.MUTED, linewidth=style.THIN)
        for name, outcome in groups.items():
            lines = outcome.curves[y]
            # a line per network, of which the first is named
            labels = [name, *[None] * (len(lines) - 1)]
            look = {"color": shades[name], "linewidth": style.THIN * 1.5, "markersize": 3, "label": labels}
            ax.plot(np.broadcast_to(outcome.curves[x], lines.shape).T, lines.T, ".-", **look)
        if x == "iteration":
            ax.set_xscale("log")
        ax.set_title(title if titled else "", **TEXT)
    _key_above(part, part.axes[0].get_legend_handles_labels()[0])


def _draw_map(ax: "Axes", attention: Float[np.ndarray, "query key"], *, bar: bool) -> None:
    """Attention as colours from 0 to 1, queries down and keys across; 0 (what no query sees) is blank."""
    style.dress(ax, "key", "query")
    image = style.draw_matrix(ax, np.where(attention > 0, attention, np.nan), vmin=0.0, vmax=1.0)
    edges = np.arange(len(attention) + 1) - 0.5
    for lines in (ax.hlines, ax.vlines):
        lines(edges, -0.5, len(attention) - 0.5, color=style.PAPER, linewidth=style.THIN / 2)
    if bar:
        style.colour_bar(ax, image).set_label("attention", **SMALL)


def _draw_bars(
    ax: "Axes", x: Any, members: Float[np.ndarray, "member bar"], width: float, **look: Any
) -> None:
    """Bars of the mean over members, with its standard error where there are several."""
    mean = members.mean(axis=0)
    ax.bar(x, mean, width, linewidth=0, **look)
    if len(members) > 1:
        se = members.std(axis=0, ddof=1) / np.sqrt(len(members))
        error = {"fmt": "none", "color": style.INK, "elinewidth": style.THIN * 1.5, "capsize": 1.5}
        ax.errorbar(x, mean, se, zorder=3, **error)


def _key_above(part: "SubFigure", handles: Collection[Any]) -> None:
    """A legend above all panels."""
    place = {"loc": "outside upper center", "ncols": len(handles), "borderpad": 0}
    part.legend(handles=[*handles], handlelength=1.2, columnspacing=1.4, **place, **style.LEGEND)
