"""The report's figures: what stands on each, and what to see in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.comparison.parts import ENDS, LABELS, shares
from posbias.profiles.profile import Profile
from posbias.reports import numbers
from posbias.reports.evidence import Findings
from posbias.reports.pages import Table
from posbias.reports.plots import (
    draw_cumulative,
    draw_influence,
    draw_kernels,
    draw_mixing,
    draw_norms,
    draw_sinks,
    new_figure,
)
from posbias.reports.plots.influence import share_scale
from posbias.reports.plots.parts import draw_parts
from posbias.reports.plots.style import LEGEND

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Illustration:
    """A figure with its file name (no suffix), its title, its caption (what to see, and whose idea it is), and the
    numbers that it draws."""

    name: str
    title: str
    caption: str
    figure: "Figure"
    numbers: Table


_CAPTIONS = {
    "influence": (
        "Where it looks",
        "Measured influence of every token on the prediction at the last one, in units of an even spread "
        "(dashed). The band is the 95 % interval over prompts at each position (by Student's "
        "t); shaded are the two ends and the trough, the place where influence is least. Logarithmic scale.",
    ),
    "predictors": (
        "What the predictors expect",
        "One predictor to a panel (colour) over the measured influence (thin line and band as above), on one "
        "scale; the dot is token 0. Curves that leave the panel at the bottom expect next to nothing "
        "there. Last panel: all influence up to a position (0 to 1); the mean distance between two curves is "
        "their Wasserstein distance, the dashed diagonal an even spread. Sources: see the method.",
    ),
    "parts": (
        "What makes the curve",
        "Influence on the first 5 % of positions, on those between and on the last 5 %: from an even spread "
        "(dashed) each bar adds something that is known, up to the measured share (black). The order is a "
        "choice: what a part adds depends on what was there before it. Where content gives the first tokens "
        "much and norms take it away again, a sink draws more attention than it has influence.",
    ),
    "mixing": (
        "How much attention changes the stream",
        "Weight of attention against the residual, by layer: mean over prompts with its 95 % interval "
        "(by Student's t). Where the two definitions part, one token of huge norm rules the norm "
        "of the sequence. The rollouts use the first, Herasimchyk et al. 2026, Eqs. (1) and (5); the "
        "second is what their code averages.",
    ),
    "sinks": (
        "The first token",
        "Left: attention that token 0 draws from later tokens, by head and layer; dashed is what even "
        "attention would give it. Right: norm of the residual stream entering each layer. A token that "
        "is far above the line on the left and far above the others on the right is a sink whose attention "
        "counts for less than its weight says.",
    ),
    "kernels": (
        "What attends to what",
        "Attention averaged over prompts and heads, A of Eq. (4) in Herasimchyk et al. 2026, in layers from "
        "bottom to top, on a logarithmic scale. The strip at the left repeats the first column, token 0, "
        "which is too thin to see; a bright diagonal is attention to near tokens, stripes are single "
        "tokens of these prompts.",
    ),
}
"""Title and caption of each figure: what to see, and whose idea it is."""


def illustrations(found: Findings) -> list[Illustration]:
    """All figures of the report, drawn."""
    measurement, measured, predictions = found.measurement, found.measured, found.predictions
    depth = measurement.sizes["layer"]
    shown = [round(layer) for layer in np.linspace(0, depth - 1, min(6, depth))]
    known = {name: one.mass for name, one in found.parts.items()}
    drawn = {
        "influence": (_figure(3.1, draw_influence, measured), numbers.influence(measured)),
        "predictors": (_predictors(measured, predictions), numbers.predicted(measured, predictions)),
        "parts": (_parts(known), numbers.parts(known)),
        "mixing": (_figure(2.9, draw_mixing, measurement), numbers.mixing(measurement)),
        "sinks": (_first_token(measurement), numbers.first_token(measurement)),
        "kernels": (_kernels(measurement, shown), numbers.kernels(measurement, shown)),
    }
    return [Illustration(name, *_CAPTIONS[name], *one) for name, one in drawn.items()]


def _figure(height: float, draw: Callable[["Axes", Any], "Axes"], data: Any) -> "Figure":
    """A figure of one panel, as wide as the page's text."""
    figure = new_figure(6.6, height)
    draw(figure.subplots(), data)
    return figure


def _predictors(measured: Profile, predictions: Mapping[str, Profile]) -> "Figure":
    rows = len(predictions) // 3 + 1
    figure = new_figure(6.6, 2.05 * rows)
    panels = list(figure.subplots(rows, 3, squeeze=False).flat)
    drawn = [
        draw_influence(ax, measured, {name: one})
        for ax, (name, one) in zip(panels, predictions.items(), strict=False)
    ]
    share_scale(drawn)
    for place, ax in enumerate(drawn):
        ax.set_ylabel("influence" if place % 3 == 0 else "")
        ax.tick_params(labelleft=place % 3 == 0)
        ax.set_xlabel("position" if place + 3 >= len(panels) else "")
    draw_cumulative(panels[len(drawn)], measured, predictions).set(xlabel="position", ylabel="")
    for ax in panels[len(drawn) + 1 :]:
        ax.set_axis_off()
    return figure


def _parts(known: Mapping[str, np.ndarray]) -> "Figure":
    figure = new_figure(6.6, 3.0)
    ax = draw_parts(figure.subplots(), shares(known), [*LABELS.values()], (ENDS, 1.0 - 2.0 * ENDS, ENDS))
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3, **LEGEND)
    return figure


def _first_token(measurement: "xr.Dataset") -> "Figure":
    figure = new_figure(6.6, 2.8)
    left, right = figure.subplots(1, 2)
    draw_sinks(left, measurement)
    draw_norms(right, measurement)
    return figure


def _kernels(measurement: "xr.Dataset", layers: Sequence[int]) -> "Figure":
    rows = -(-len(layers) // 3)
    figure = new_figure(6.6, 2.05 * rows)
    panels = list(figure.subplots(rows, min(len(layers), 3), squeeze=False).flat)
    draw_kernels(panels[: len(layers)], measurement, layers)
    for ax in panels[len(layers) :]:
        ax.set_axis_off()
    return figure
