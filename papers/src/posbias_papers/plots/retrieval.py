"""The retrieval experiments as pictures: accuracy gaps, gaps along training, attention maps, sinks.

A gap of networks that have not learnt means nothing: such groups of bars are drawn pale, and each group carries
what its networks can do. Every network is a dot, since a mean of three hides as much as it shows.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.reports.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

PAIR_COLOURS = {
    "first-middle": style.COLOURS["positional"],
    "first-last": style.COLOURS["energy"],
    "middle-last": style.COLOURS["attention_only"],
}
"""A colour for each pair of compared items."""
WIDTH = 0.26
"""Width of a bar; groups stand one apart."""
_DOT = {"marker": "o", "markersize": 1.8, "linewidth": 0, "color": style.INK, "alpha": 0.75, "zorder": 4}


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
    style.dress(ax, "", "accuracy gap")
    ax.axhline(0, color=style.MUTED, linewidth=style.THIN)
    for place, (name, gaps) in enumerate(groups.items()):
        for step, (pair, values) in enumerate(gaps.items()):
            x = place + (step - (len(gaps) - 1) / 2) * WIDTH
            members = np.asarray(values, dtype=np.float64)[:, None]
            look = {"color": PAIR_COLOURS.get(pair, style.MUTED), "alpha": 0.3 if name in pale else None}
            _draw_bars(ax, np.array([x]), members, 0.92 * WIDTH, **look)
            ax.plot(x + _spread(len(members)), members[:, 0], **_DOT)
    labels = [f"{name}\n{(notes or {}).get(name, '')}".rstrip("\n") for name in groups]
    ax.set_xticks(range(len(groups)), labels, linespacing=1.35)
    ax.tick_params(axis="x", length=0, labelsize=style.SMALL - 0.5)
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
    horizontal: str = "in-context accuracy",
    among: Sequence[str] | None = None,
) -> "Axes":
    """Draw a gap against in-context accuracy along training: a line per network, darker from run to run.

    `runs` has, by name, accuracies and gaps at the same moments. Where two runs overlap sideways they can be
    compared at equal accuracy. Other curves than these are `horizontal` and `vertical`. `among` are the names of
    all runs of a figure, so that a name has one shade in all its panels.
    """
    from matplotlib import colormaps

    names = list(among or runs)
    shades = dict(zip(names, np.linspace(0.85, 0.0, len(names)), strict=True))

    style.dress(ax, horizontal, vertical)
    ax.axhline(0, color=style.MUTED, linewidth=style.THIN)
    for name, (accuracy, gap) in runs.items():
        # a line per network, of which the first is named
        labels = [name, *[None] * (len(accuracy) - 1)]
        look = {"color": colormaps["viridis"](shades[name]), "linewidth": style.THIN * 1.5, "markersize": 3}
        ax.plot(np.transpose(accuracy), np.transpose(gap), ".-", label=labels, **look)
    ax.legend(handlelength=1.4, **style.LEGEND)
    return ax


def draw_by_position(ax: "Axes", runs: Mapping[str, Float[np.ndarray, "member item"]]) -> "Axes":
    """Draw accuracy by the item that is asked for: a line per run, the mean over networks, each network a dot.

    A run without networks is named in the legend and has no line. After Wu et al. 2025, Section 5.2.
    """
    style.dress(ax, "item", "accuracy")
    for colour, (name, members) in zip(style.SERIES, runs.items(), strict=False):
        items = np.arange(members.shape[1])
        mean = members.mean(axis=0) if len(members) else np.full(len(items), np.nan)
        ax.plot(
            items, mean, "-", color=colour, linewidth=style.LINE, label=name if len(members) else f"{name}: –"
        )
        dots: dict[str, Any] = _DOT | {"color": colour}
        ax.plot(np.tile(items, (len(members), 1)).T, members.T, **dots)
        ax.set_xticks(items)
    ax.set_ylim(bottom=0)
    ax.legend(handlelength=1.4, **style.LEGEND)
    return ax


def draw_attention_map(
    ax: "Axes", attention: Float[np.ndarray, "query key"], *, most: float = 1.0, bar: bool = False
) -> "Axes":
    """Draw attention as colours from 0 to `most`, queries down and keys across; 0 (what no query sees) is blank.

    With `bar`, a colour bar stands at the right. Layout: Wu et al. 2025, Figure 9.
    """
    style.dress(ax, "key", "query")
    tokens = len(attention)
    image = style.draw_matrix(ax, np.where(attention > 0, attention, np.nan), vmin=0.0, vmax=most)
    edges = np.arange(tokens + 1) - 0.5
    ax.hlines(edges, -0.5, tokens - 0.5, color=style.PAPER, linewidth=style.THIN / 2)
    ax.vlines(edges, -0.5, tokens - 0.5, color=style.PAPER, linewidth=style.THIN / 2)
    ax.set(xlim=(-0.5, tokens - 0.5), ylim=(tokens - 0.5, -0.5))
    if bar:
        style.colour_bar(ax, image).set_label("attention", fontsize=style.SMALL, color=style.INK)
    return ax


def draw_sink_metric(
    ax: "Axes",
    trained: Float[np.ndarray, "member token"],
    *,
    uniform: Float[np.ndarray, "token"],
    untrained: Float[np.ndarray, "member token"],
    pale: bool = False,
) -> "Axes":
    """Draw the share of queries whose attention on a token exceeds the threshold, with its two nulls.

    Bars: trained networks, mean ± standard error, each a dot. Dashes: even attention under the same mask.
    Rings: the same networks before training, their mean. `pale` bars are of networks that have not learnt.
    Layout: Wu et al. 2025, Figure 10.
    """
    style.dress(ax, "token", "sink metric")
    token = np.arange(trained.shape[1])
    look = {"color": style.COLOURS["energy"], "alpha": 0.3 if pale else None, "label": "trained"}
    _draw_bars(ax, token, trained, 0.8, **look)
    ax.plot(np.tile(token, (len(trained), 1)).T, trained.T, **_DOT)
    ax.hlines(
        uniform, token - 0.45, token + 0.45, color=style.COLOURS["measured_kernels"], linewidth=style.LINE,
        zorder=3.5, label="even attention",
    )  # fmt: skip
    ax.plot(
        token, untrained.mean(axis=0), "o", markersize=3.6, markerfacecolor=style.PAPER, markeredgewidth=0.9,
        markeredgecolor=style.COLOURS["attention_only"], zorder=3.6, label="untrained",
    )  # fmt: skip
    ax.set_xlim(-0.7, len(token) - 0.3)
    ax.set_xticks(token[::4])
    return ax


def _draw_bars(
    ax: "Axes",
    x: Float[np.ndarray, "bar"],
    members: Float[np.ndarray, "member bar"],
    width: float,
    **look: Any,
) -> None:
    """Bars of the mean over members, with its standard error where there are several."""
    mean = members.mean(axis=0)
    ax.bar(x, mean, width, linewidth=0, **look)
    if len(members) > 1:
        se = members.std(axis=0, ddof=1) / np.sqrt(len(members))
        ax.errorbar(
            x, mean, se, fmt="none", color=style.INK, elinewidth=style.THIN * 1.5, capsize=1.5, zorder=3
        )


def panel_key(figure: "Figure | SubFigure") -> None:
    """A legend of what the first panel shows, above all panels of a figure or of a part of one."""
    _key_above(figure, figure.axes[0].get_legend_handles_labels()[0])


def _key_above(figure: "Figure | SubFigure", handles: list[Any]) -> None:
    place = {"loc": "outside upper center", "ncols": len(handles), "borderpad": 0}
    figure.legend(handles=handles, handlelength=1.2, columnspacing=1.4, **place, **style.LEGEND)


def _spread(points: int) -> np.ndarray:
    """Small sideways steps, so that dots of equal height are all seen."""
    return (np.arange(points) - (points - 1) / 2) * 0.035 if points > 1 else np.zeros(points)
