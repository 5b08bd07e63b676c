"""Figures 2 to 24 drawn: panels in the paper's layout, under each group what its networks can do, then claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.claims import Judged
from posbias.papers.wu2025.figures import (
    RELATIVE,
    DataFigure,
    DepthFigure,
    Figure,
    MapFigure,
    Setting,
    SinkFigure,
)
from posbias.papers.wu2025.gaps import PAIRS, Gaps
from posbias.papers.wu2025.sinks import Sinks, sink_claims
from posbias.papers.wu2025.statements import depth_claims, harder, matched
from posbias.papers.wu2025.training_data import data_claims
from posbias.plots.captions import captioned_figure, settle
from posbias.plots.retrieval import (
    draw_attention_map,
    draw_gaps,
    draw_sink_metric,
    draw_trajectories,
    gap_key,
    sink_key,
)
from posbias.plots.style import COLOURS, INK, MUTED, SECOND, SMALL, TEXT

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture
    from matplotlib.figure import SubFigure

    from posbias.training.kernels import Agreement
    from posbias.training.loop import Trained

_INK_OF = {"holds": COLOURS["fitted"], "fails": SECOND, "undecided": MUTED}


@dataclass(frozen=True)
class Outcome:
    """What is known of a trained cell: gaps, sinks, the first network's attention, learning curves, and what
    its own kernels and the theory predict of the gaps, by the names of `posbias.training.kernels.LABELS`."""

    gaps: Gaps
    sinks: Sinks
    attention: Float[np.ndarray, "layer query key"]
    trained: "Trained"
    agreements: Mapping[str, "Agreement"] = field(default_factory=dict)


Outcomes = Mapping[Setting, Outcome]


def claims_of(figure: Figure, outcomes: Outcomes) -> list[Judged]:
    """The claims of a figure on the cells that were trained for it; others, where there are, are compared with."""
    match figure:
        case DepthFigure():
            trained = {setting: outcome.trained for setting, outcome in outcomes.items()}
            claims = depth_claims(figure, _gaps(outcomes)) + matched(figure, trained)
            return claims + harder(figure, trained)
        case DataFigure():
            return data_claims(figure, _gaps(outcomes))
        case SinkFigure():
            return sink_claims(figure, {setting: outcome.sinks for setting, outcome in outcomes.items()})


def draw(figure: Figure, outcomes: Outcomes, claims: Sequence[Judged], note: str = "") -> "Picture":
    """Draw a figure with its claims beneath; `note` says in a line what was trained."""
    lines = [(note, MUTED), *((str(claim), _INK_OF[claim.verdict]) for claim in claims)]
    picture, above = captioned_figure(8.0, _height(figure), lines)
    match figure:
        case MapFigure():
            _draw_maps(above, figure, outcomes)
        case SinkFigure():
            _draw_sinks(above, figure, outcomes)
        case DepthFigure():
            _draw_depths(above, figure, outcomes)
        case DataFigure():
            _draw_gap_rows(above, figure, outcomes)
    return settle(picture)


def _height(figure: Figure) -> float:
    """Inches of the panels."""
    match figure:
        case DepthFigure():
            return 3.9 * len(figure.rows)
        case DataFigure():
            return 2.9
    return 2.6 if isinstance(figure, MapFigure) or len(figure.masks) == 1 else 4.2


def note_of(gaps: Gaps) -> str:
    """Loss and in-context accuracy of a cell's networks in two lines, and how many have learnt if not all."""
    learnt = gaps.learnt
    few = f"\n{learnt.sum()} of {learnt.size} learnt" if not learnt.all() else ""
    accuracy, loss = gaps.means
    return f"acc {accuracy:.2f}\nloss {loss:.2f}{few}"


def _gaps(outcomes: Outcomes) -> dict[Setting, Gaps]:
    return {setting: outcome.gaps for setting, outcome in outcomes.items()}


def _draw_gap_rows(part: "SubFigure", figure: DepthFigure | DataFigure, outcomes: Outcomes) -> None:
    """A row of panels of bars for each row of the figure, all of one height."""
    rows = figure.rows
    axes = part.subplots(len(rows), max(map(len, rows.values())), squeeze=False, sharey=True)
    for row, (name, panels) in zip(axes, rows.items(), strict=True):
        for place, (ax, (title, cells)) in enumerate(zip(row, panels.items(), strict=True)):
            gaps = {group: outcomes[cell].gaps for group, cell in cells.items()}
            shown = {group: {pair: _finite(one, pair) for pair in PAIRS} for group, one in gaps.items()}
            pale = [group for group, one in gaps.items() if one.learnt.sum() < 2]
            # five groups stand so close that "2 of 3 learnt" would run into the next
            notes = {group: note_of(one).replace(" learnt", "\nlearnt") for group, one in gaps.items()}
            draw_gaps(ax, shown, notes=notes, pale=pale)
            ax.set_title(title, fontsize=TEXT, color=INK, pad=4)
            ax.set_ylabel(f"{name}\naccuracy gap".strip() if place == 0 else "", fontsize=SMALL, color=INK)
            ax.tick_params(labelleft=place == 0)
    gap_key(part)


def _draw_depths(part: "SubFigure", figure: DepthFigure, outcomes: Outcomes) -> None:
    """The bars, and beneath them the gap first–last along training against in-context accuracy."""
    rows = figure.rows
    grid = part.add_gridspec(2, 1, height_ratios=(1.2, 1))
    bars, lines = part.add_subfigure(grid[0]), part.add_subfigure(grid[1])
    _draw_gap_rows(bars, figure, outcomes)
    axes = lines.subplots(len(rows), len(RELATIVE), sharey=True, sharex=True, squeeze=False)
    for place, (row, (name, panels)) in enumerate(zip(axes, rows.items(), strict=True)):
        for ax, settings in zip(row, panels.values(), strict=True):
            curves = {group: outcomes[setting].trained.curves for group, setting in settings.items()}
            draw_trajectories(ax, {g: (c["in_context_accuracy"], c["first-last"]) for g, c in curves.items()})
            ax.set_ylabel(f"{name}\nfirst–last gap" if ax is row[0] else "", fontsize=SMALL, color=INK)
            ax.set_xlabel("in-context accuracy" if place == len(rows) - 1 else "", fontsize=SMALL, color=INK)
            if ax is not row[0]:
                ax.get_legend().remove()


def _draw_sinks(part: "SubFigure", figure: SinkFigure, outcomes: Outcomes) -> None:
    rows = figure.rows
    if all(len(panels) == 1 for panels in rows.values()):
        # one mask: its rows stand side by side
        rows = {"": {name: cell for name, panels in rows.items() for cell in panels.values()}}
    axes = part.subplots(len(rows), max(map(len, rows.values())), squeeze=False, sharey=True)
    for row, (name, panels) in zip(axes, rows.items(), strict=True):
        for place, (ax, (title, cell)) in enumerate(zip(row, panels.items(), strict=True)):
            gaps, sinks = outcomes[cell].gaps, outcomes[cell].sinks
            pale = sinks.learnt.sum() < 2
            shown = sinks if pale else sinks.kept
            draw_sink_metric(ax, shown.trained, uniform=shown.uniform, untrained=shown.untrained, pale=pale)
            words = note_of(gaps).replace("\n", ", ")
            ax.set_title(f"{title} ({words})", fontsize=SMALL, color=INK, pad=4)
            ax.set_ylabel(f"{name}\nsink metric".strip() if place == 0 else "", fontsize=SMALL, color=INK)
            ax.set_xlabel(
                "token (even: items, odd: labels)" if row[0] is axes[-1, 0] else "", fontsize=SMALL, color=INK
            )
    sink_key(part)


def _draw_maps(part: "SubFigure", figure: MapFigure, outcomes: Outcomes) -> None:
    cells = [(name, cell) for name, panels in figure.rows.items() for cell in panels.values()]
    maps = [
        (f"{name}, layer {t}", one) for name, cell in cells for t, one in enumerate(outcomes[cell].attention)
    ]
    axes = part.subplots(1, len(maps), squeeze=False)[0]
    for ax, (title, one) in zip(axes, maps, strict=True):
        draw_attention_map(ax, one, bar=ax is axes[-1])
        ax.set_title(title, fontsize=TEXT, color=INK, pad=4)
        ax.label_outer()


def _finite(gaps: Gaps, pair: str) -> Float[np.ndarray, "network"]:
    """The gaps to draw: of the networks that have learnt, or, where fewer than two have, of all finite ones."""
    learnt = gaps.of(pair)
    values = np.asarray(gaps.gaps[pair], dtype=np.float64)
    return learnt if learnt.size > 1 else values[np.isfinite(values)]
