"""The retrieval experiments as pictures: accuracy gaps, gaps along training, attention maps, sinks.

A gap of networks that have not learnt means nothing: such groups of bars are drawn pale, and each group carries
what its networks can do. Every network is a dot, since a mean of three hides as much as it shows.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.plots.style import COLOURS, INK, LINE, MUTED, PAPER, SMALL, THIN, dress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

PAIR_COLOURS = {
    "first-middle": COLOURS["positional"],
    "first-last": COLOURS["energy"],
    "middle-last": COLOURS["attention_only"],
}
"""A colour for each pair of compared items."""
WIDTH = 0.26
"""Width of a bar; groups stand one apart."""
_DOT = {"marker": "o", "markersize": 1.8, "linewidth": 0, "color": INK, "alpha": 0.75, "zorder": 4}


def draw_gaps(
    ax: "Axes",
    groups: Mapping[str, Mapping[str, Float[np.ndarray, "member"]]],
    *,
    notes: Mapping[str, str] | None = None,
    pale: Collection[str] = (),
) -> "Axes":
    """Draw accuracy gaps as bars in groups: mean over networks ± standard error, each network a dot.

    `groups` has, by group and pair of items, one gap per network: accuracy when the answer stands at the
    earlier item less accuracy when it stands at the later one. `notes` are written under the groups' names;
    `pale` names groups to draw faintly. Layout: Wu et al. 2025, Figure 2.
    """
    dress(ax, "", "accuracy gap")
    ax.axhline(0, color=MUTED, linewidth=THIN)
    for place, (name, gaps) in enumerate(groups.items()):
        alpha = 0.3 if name in pale else None
        for step, (pair, values) in enumerate(gaps.items()):
            values = np.asarray(values, dtype=np.float64)
            x = place + (step - (len(gaps) - 1) / 2) * WIDTH
            colour = PAIR_COLOURS.get(pair, MUTED)
            ax.bar(x, values.mean(), 0.92 * WIDTH, color=colour, linewidth=0, alpha=alpha)
            if values.size > 1:
                se = values.std(ddof=1) / np.sqrt(values.size)
                ax.errorbar(x, values.mean(), se, color=INK, elinewidth=THIN * 1.5, capsize=1.5, zorder=3)
            ax.plot(x + _spread(values.size), values, **_DOT)
    ax.set_xticks(range(len(groups)), [_with_note(name, notes) for name in groups], linespacing=1.35)
    ax.tick_params(axis="x", length=0, labelsize=SMALL - 0.5)
    ax.set_xlim(-0.6, len(groups) - 0.4)
    return ax


def gap_key(figure: "Figure | SubFigure") -> None:
    """A legend of the pairs, above all panels of a figure or of a part of one."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(color=colour, linewidth=0, label=pair.replace("-", " vs. "))
        for pair, colour in PAIR_COLOURS.items()
    ]
    handles.append(Line2D([], [], label="one network", **_DOT))
    _key_above(figure, handles)


def draw_trajectories(
    ax: "Axes",
    runs: Mapping[str, tuple[Float[np.ndarray, "member step"], Float[np.ndarray, "member step"]]],
    *,
    vertical: str = "first–last gap",
) -> "Axes":
    """Draw a gap against in-context accuracy along training: a line per network, darker from run to run.

    `runs` has, by name, accuracies and gaps at the same moments. Where two runs overlap sideways they can be
    compared at equal accuracy.
    """
    from matplotlib import colormaps

    dress(ax, "in-context accuracy", vertical)
    ax.axhline(0, color=MUTED, linewidth=THIN)
    for shade, (name, (accuracy, gap)) in zip(np.linspace(0.85, 0.0, len(runs)), runs.items(), strict=True):
        for member, (x, y) in enumerate(zip(accuracy, gap, strict=True)):
            label = name if member == 0 else None
            ax.plot(
                x, y, ".-", color=colormaps["viridis"](shade), linewidth=THIN * 1.5, markersize=3, label=label
            )
    ax.legend(fontsize=SMALL, frameon=False, labelcolor=INK, handlelength=1.4)
    return ax


def draw_attention_map(
    ax: "Axes", attention: Float[np.ndarray, "query key"], *, most: float = 1.0, bar: bool = False
) -> "Axes":
    """Draw attention as colours from 0 to `most`, queries down and keys across; 0 (what no query sees) is blank.

    With `bar`, a colour bar stands at the right. Layout: Wu et al. 2025, Figure 9.
    """
    dress(ax, "key", "query")
    ax.grid(False)
    ax.spines[:].set_visible(False)
    tokens = len(attention)
    shown = np.where(attention > 0, attention, np.nan)
    image = ax.imshow(shown, vmin=0.0, vmax=most, cmap="viridis", interpolation="nearest")
    edges = np.arange(tokens + 1) - 0.5
    ax.hlines(edges, -0.5, tokens - 0.5, color=PAPER, linewidth=THIN / 2)
    ax.vlines(edges, -0.5, tokens - 0.5, color=PAPER, linewidth=THIN / 2)
    ax.set(xlim=(-0.5, tokens - 0.5), ylim=(tokens - 0.5, -0.5))
    places = sorted({0, tokens // 2, tokens - 1})
    ax.set_xticks(places)
    ax.set_yticks(places)
    if bar:
        side = ax.figure.colorbar(image, cax=ax.inset_axes((1.03, 0.0, 0.05, 1.0)))
        side.ax.tick_params(labelsize=SMALL, color=MUTED, labelcolor=INK, width=THIN, length=2)
        side.outline.set_visible(False)
    return ax


def draw_sink_metric(
    ax: "Axes",
    trained: Float[np.ndarray, "member token"],
    *,
    uniform: Float[np.ndarray, "token"],
    untrained: Float[np.ndarray, "member token"],
    pale: bool = False,
) -> "Axes":
    """Draw the share of queries whose attention on a token exceeds the threshold, beside its two nulls.

    Bars: trained networks, mean ± standard error, each a dot. Dashes: even attention under the same mask.
    Rings: the same networks before training, their mean. `pale` bars are of networks that have not learnt.
    Layout: Wu et al. 2025, Figure 10.
    """
    dress(ax, "token", "sink metric")
    token = np.arange(trained.shape[1])
    alpha = 0.3 if pale else None
    ax.bar(
        token, trained.mean(axis=0), 0.8, color=COLOURS["energy"], linewidth=0, alpha=alpha, label="trained"
    )
    if len(trained) > 1:
        se = trained.std(axis=0, ddof=1) / np.sqrt(len(trained))
        ax.errorbar(token, trained.mean(axis=0), se, fmt="none", color=INK, elinewidth=THIN * 1.5, zorder=3)
    ax.plot(np.tile(token, (len(trained), 1)).T, trained.T, **_DOT)
    ax.hlines(
        uniform, token - 0.45, token + 0.45, color=COLOURS["measured_kernels"], linewidth=LINE,
        zorder=3.5, label="even attention",
    )  # fmt: skip
    ax.plot(
        token, untrained.mean(axis=0), "o", markersize=3.6, markerfacecolor=PAPER, markeredgewidth=0.9,
        markeredgecolor=COLOURS["attention_only"], zorder=3.6, label="untrained",
    )  # fmt: skip
    ax.set_xlim(-0.7, len(token) - 0.3)
    ax.set_xticks(token[::4])
    return ax


def sink_key(figure: "Figure | SubFigure") -> None:
    """A legend of trained networks and nulls, above all panels of a figure or of a part of one."""
    _key_above(figure, figure.axes[0].get_legend_handles_labels()[0])


def _key_above(figure: "Figure | SubFigure", handles: list[Any]) -> None:
    look = {"fontsize": SMALL, "frameon": False, "labelcolor": INK, "handlelength": 1.2, "columnspacing": 1.4}
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), borderpad=0, **look)


def _with_note(name: str, notes: Mapping[str, str] | None) -> str:
    note = (notes or {}).get(name, "")
    return f"{name}\n{note}" if note else name


def _spread(points: int) -> np.ndarray:
    """Small sideways steps, so that dots of equal height are all seen."""
    return (np.arange(points) - (points - 1) / 2) * 0.035 if points > 1 else np.zeros(points)
