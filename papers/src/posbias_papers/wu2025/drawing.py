"""Figures 2 to 24 drawn: panels in the paper's layout, under each group what its networks can do.

Each function draws the outcomes of a figure's own settings, from its table; `caption` stands beneath.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.reports.plots.style import INK, SMALL, TEXT
from posbias_papers.plots.captions import captioned_figure, settle
from posbias_papers.plots.retrieval import (
    draw_attention_map,
    draw_by_position,
    draw_gaps,
    draw_sink_metric,
    draw_trajectories,
    gap_key,
    panel_key,
)
from posbias_papers.wu2025.outcomes import PAIRS, Gaps, Outcome
from posbias_papers.wu2025.settings import ABSOLUTE, RELATIVE, Setting
from posbias_papers.wu2025.table import outcomes_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

WIDTH = 8.0
CURVES = {"first-last": "first–last gap", "in_context_accuracy": "in-context accuracy"}
"""The curves that are drawn by iteration, and what their axes say."""
Panels = Mapping[str, Mapping[str, Mapping[str, Outcome]]]
"""Outcomes by row, panel and group of bars."""


def draw_depths(frame: "pd.DataFrame", caption: str) -> "Figure":
    """Gaps against depth: a panel per encoding, a row without and with residual connections.

    Beneath the bars stands the gap first–last along training against in-context accuracy.
    """
    rows = _by_depth(frame)
    figure, part = captioned_figure(WIDTH, 3.9 * len(rows), caption)
    grid = part.add_gridspec(2, 1, height_ratios=(1.2, 1))
    bars, lines = part.add_subfigure(grid[0]), part.add_subfigure(grid[1])
    _draw_gap_rows(bars, rows)
    for ax, _, groups, _ in _axes(lines, rows, "first–last gap", "in-context accuracy", sharex=True):
        curves = {group: outcome.trained.curves for group, outcome in groups.items()}
        runs = {g: (c["in_context_accuracy"], c["first-last"]) for g, c in curves.items()}
        draw_trajectories(ax, runs, among=_groups(rows))
        _no_legend(ax)
    panel_key(lines)
    return settle(figure)


def draw_curves(frame: "pd.DataFrame", caption: str) -> "Figure":
    """Learning curves: the gap first–last and in-context accuracy by iteration, a panel per encoding."""
    rows = _by_depth(frame)
    figure, part = captioned_figure(WIDTH, 3.4 * len(rows), caption)
    grid = part.add_gridspec(2, 1)
    parts = [part.add_subfigure(grid[row]) for row in range(2)]
    for own, (curve, name) in zip(parts, CURVES.items(), strict=True):
        for ax, title, groups, _ in _axes(own, rows, name, "iteration", sharex=True):
            curves = {group: outcome.trained.curves for group, outcome in groups.items()}
            runs = {g: (np.broadcast_to(c["iteration"], c[curve].shape), c[curve]) for g, c in curves.items()}
            draw_trajectories(ax, runs, vertical=name, horizontal="iteration", among=_groups(rows))
            ax.set_xscale("log")
            ax.set_title(title if own is parts[0] else "", fontsize=TEXT, color=INK, pad=4)
            _no_legend(ax)
    panel_key(parts[0])
    return settle(figure)


def draw_biased_training(frame: "pd.DataFrame", caption: str) -> "Figure":
    """After training that asks for certain items: a panel per mask, gaps above, below accuracy by position.

    A group or a line per encoding; lines are of the networks that have learnt.
    """
    titles = {"full": "no mask", "causal": "causal mask"}
    rows = _panels(frame, lambda cell: ("", titles[cell.mask.kind], ABSOLUTE[cell.positional]))
    figure, part = captioned_figure(WIDTH, 4.9, caption)
    grid = part.add_gridspec(2, 1, height_ratios=(1.3, 1))
    bars, lines = part.add_subfigure(grid[0]), part.add_subfigure(grid[1])
    _draw_gap_rows(bars, rows)
    for ax, _, groups, first in _axes(lines, rows, "accuracy", "item that is asked for (from 0)"):
        shown = {name: one.accuracy_by_position[one.gaps.learnt] for name, one in groups.items()}
        draw_by_position(ax, shown)
        if not first and (legend := ax.get_legend()):
            legend.remove()
    return settle(figure)


def draw_groups(frame: "pd.DataFrame", caption: str, *, groups: Mapping[Setting, str]) -> "Figure":
    """Gaps by what a study compares: a panel without and with residual connections, a group of bars each."""
    rows = _panels(frame, lambda cell: ("", cell.row, groups[cell]))
    figure, part = captioned_figure(WIDTH, 2.9, caption)
    _draw_gap_rows(part, rows)
    return settle(figure)


def draw_sinks(frame: "pd.DataFrame", caption: str) -> "Figure":
    """The sink metric by token: a panel per mask, a row without and with residual connections.

    Where there is one mask its rows stand side by side.
    """
    masks = len({cell.mask for cell in outcomes_of(frame)})

    def words(cell: Setting) -> tuple[str, str, str]:
        return (cell.row, cell.masked, "") if masks > 1 else ("", cell.row, "")

    rows = _panels(frame, words)
    figure, part = captioned_figure(WIDTH, 2.6 if masks == 1 else 4.2, caption)
    for ax, title, groups, _ in _axes(part, rows, "sink metric (τ = .2)", "token (even: items, odd: labels)"):
        gaps, sinks = groups[""].gaps, groups[""].sinks
        pale = sinks.learnt.sum() < 2
        shown = sinks if pale else sinks.kept
        draw_sink_metric(ax, shown.trained, uniform=shown.uniform, untrained=shown.untrained, pale=pale)
        state = note_of(gaps).replace("\n", ", ")
        ax.set_title(f"{title} ({state})", fontsize=SMALL, color=INK, pad=4)
    panel_key(part)
    return settle(figure)


def draw_maps(frame: "pd.DataFrame", caption: str) -> "Figure":
    """Attention maps of the first seed: a panel per layer, means over sequences above, one sequence below.

    Networks on record have no weights, so that nothing is drawn below where all are.
    """
    results = outcomes_of(frame)
    examples = {setting: outcome.example for setting, outcome in results.items()}
    means = {setting: outcome.attention[0] for setting, outcome in results.items()}
    maps = {"mean": means}
    if any(one is not None for one in examples.values()):
        maps["one sequence"] = examples
    layers = [(setting, t) for setting, mean in means.items() for t in range(len(mean))]
    figure, part = captioned_figure(WIDTH, 2.2 * len(maps) + 0.4, caption)
    axes = part.subplots(len(maps), len(layers), squeeze=False)
    for row, (name, shown) in zip(axes, maps.items(), strict=True):
        for ax, (setting, t) in zip(row, layers, strict=True):
            one = shown[setting]
            if one is None:
                ax.axis("off")
                ax.set_title("no weights on record", fontsize=SMALL, color=INK, pad=4)
                continue
            draw_attention_map(ax, one[t], bar=ax is row[-1])
            ax.set_title(f"{setting.row}, layer {t}\n{name}", fontsize=SMALL, color=INK, pad=4)
            ax.label_outer()
    return settle(figure)


def note_of(gaps: Gaps) -> str:
    """Loss and in-context accuracy of a cell's networks in two lines, and how many have learnt if not all."""
    learnt = gaps.learnt
    few = f"\n{learnt.sum()} of {learnt.size} learnt" if not learnt.all() else ""
    accuracy, loss = gaps.means
    return f"acc {accuracy:.2f}\nloss {loss:.2f}{few}"


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


def _groups(rows: Panels) -> list[str]:
    """The groups of all panels."""
    return sorted({group for panels in rows.values() for groups in panels.values() for group in groups})


def _draw_gap_rows(part: "SubFigure", rows: Panels) -> None:
    """A row of panels of bars for each row of the figure, all of one height."""
    for ax, title, groups, first in _axes(part, rows, "accuracy gap"):
        gaps = {group: outcome.gaps for group, outcome in groups.items()}
        shown = {group: {pair: _finite(one, pair) for pair in PAIRS} for group, one in gaps.items()}
        pale = [group for group, one in gaps.items() if one.learnt.sum() < 2]
        # five groups stand so close that "2 of 3 learnt" would run into the next
        notes = {group: note_of(one).replace(" learnt", "\nlearnt") for group, one in gaps.items()}
        draw_gaps(ax, shown, notes=notes, pale=pale)
        ax.set_title(title, fontsize=TEXT, color=INK, pad=4)
        ax.tick_params(labelleft=first)
    gap_key(part)


def _axes(
    part: "SubFigure", rows: Panels, y: str, x: str = "", **shared: Any
) -> "Iterator[tuple[Axes, str, Mapping[str, Outcome], bool]]":
    """The axes of all panels, of one height: title, groups, whether a row begins; labelled after each is drawn."""
    axes = part.subplots(len(rows), max(map(len, rows.values())), squeeze=False, sharey=True, **shared)
    for row, (name, panels) in zip(axes, rows.items(), strict=True):
        for ax, (title, groups) in zip(row, panels.items(), strict=True):
            yield ax, title, groups, ax is row[0]
            ax.set_ylabel(f"{name}\n{y}".strip() if ax is row[0] else "", fontsize=SMALL, color=INK)
            if x:
                ax.set_xlabel(x if row[0] is axes[-1, 0] else "", fontsize=SMALL, color=INK)


def _no_legend(ax: "Axes") -> None:
    """Take the legend away: one stands above all panels, where it hides no curve."""
    if legend := ax.get_legend():
        legend.remove()


def _finite(gaps: Gaps, pair: str) -> Float[np.ndarray, "network"]:
    """The gaps to draw: of the networks that have learnt, or, where fewer than two have, of all finite ones."""
    learnt = gaps.of(pair)
    values = np.asarray(gaps.gaps[pair], dtype=np.float64)
    return learnt if learnt.size > 1 else values[np.isfinite(values)]
