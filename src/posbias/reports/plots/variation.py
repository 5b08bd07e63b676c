"""What if, as a picture: profiles against the quantity that was varied."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.core.text_tables import plain
from posbias.profiles.profile import Profile
from posbias.reports.plots import style
from posbias.reports.plots.influence import density, entitle_figure, scale_influence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

BINS = 256
"""Places along the text that a heat map tells apart."""
TICKS = 8
"""Values that are written beside an axis, of those tried."""
LEAST, MOST = 1 / 32, 32.0
"""Influence, in units of an even spread, at the ends of the colour scale."""
Varied = Sequence[tuple[float, Profile]]
Axes2 = Sequence[tuple[str, Sequence[float]]]
"""Both quantities that were varied, each with its values: rows, columns."""


def variation_figure(quantity: str, varied: Varied) -> "Figure":
    """The heat map of all profiles beside small multiples of six of them."""
    figure = style.new_figure(9.6, 3.8)
    left, right = figure.subfigures(1, 2, width_ratios=(1.0, 1.15)).flat  # type: ignore[union-attr]
    draw_variation(left.subplots(), varied, quantity)
    entitle_figure(figure, [profile for _, profile in varied])
    shown = np.unique(np.linspace(0, len(varied) - 1, min(6, len(varied))).round().astype(int))
    columns = min(3, len(shown))
    axes = right.subplots(-(-len(shown) // columns), columns, sharex=True, sharey=True, squeeze=False)
    heights = [density(varied[k][1]) for k in shown]
    high = max(4.0, *(float(height.max()) for height in heights)) * 1.3
    for place, ax in enumerate(axes.flat):
        if place >= len(shown):
            ax.set_visible(False)
            continue
        value, _ = varied[shown[place]]
        style.dress(ax, "", "")
        style.level_line(ax, 1)
        ax.plot(
            np.linspace(0, 1, heights[place].size), heights[place], color=style.ACCENT, linewidth=style.LINE
        )
        scale_influence(ax, min(0.1, 1 / high), high)
        ax.set_xlim(0, 1)
        ax.set_title(f"{quantity} = {plain(value)}", fontsize=style.SMALL, color=style.INK, loc="left", pad=3)
    right.supxlabel("place in the text (0 first, 1 the query)", fontsize=style.TEXT, color=style.INK)
    right.supylabel("influence (even spread = 1)", fontsize=style.TEXT, color=style.INK)
    return figure


def draw_variation(ax: "Axes", varied: Varied, quantity: str) -> "Axes":
    """Draw every profile as a row of colours: blue below an even spread, red above, one row per value."""
    from matplotlib.colors import LogNorm

    style.dress(ax, "place in the text (0 first, 1 the query)", quantity)
    ax.grid(False)
    image = np.stack([_resampled(density(profile)) for _, profile in varied])
    values = np.array([value for value, _ in varied], dtype=np.float64)
    edges = _edges(values)
    places, shown = np.linspace(0, 1, image.shape[1] + 1), np.clip(image, LEAST, MOST)
    look = {"cmap": "RdBu_r", "rasterized": True, "linewidth": 0}
    drawn = ax.pcolormesh(places, edges, shown, norm=LogNorm(LEAST, MOST), **look)
    if _geometric(values):
        ax.set_yscale("log")
    _ticks(ax.yaxis, values)
    ax.set_ylim(edges[0], edges[-1])
    bar = ax.figure.colorbar(drawn, ax=ax, pad=0.02, ticks=[1 / 32, 1 / 8, 1 / 2, 1, 2, 8, 32])
    bar.ax.set_yticklabels(
        ["≤ 1/32", "1/8", "1/2", "1", "2", "8", "≥ 32"], fontsize=style.SMALL, color=style.INK
    )
    bar.ax.minorticks_off()
    bar.outline.set_edgecolor(style.RULE)  # type: ignore[union-attr]
    bar.set_label("influence (even spread = 1)", fontsize=style.SMALL, color=style.INK)
    return ax


def map_figure(axes: Axes2, profiles: Sequence[Sequence[Profile]]) -> "Figure":
    """Heat maps of the shares of the first and of the last 5 %, over both quantities that were varied.

    A circle marks the flattest of those tried.
    """
    figure = style.new_figure(9.6, 3.8)
    left, right = figure.subplots(1, 2).flat
    for ax, name, words in ((left, "first_mass", "first 5 %"), (right, "last_mass", "last 5 %")):
        shares = [[getattr(profile.summary, name) for profile in row] for row in profiles]
        draw_map(ax, np.array(shares), axes, f"share of the {words}")
    (_, rows), (_, columns) = axes
    flatness = np.array([[profile.summary.flatness for profile in row] for row in profiles])
    row, column = divmod(int(flatness.argmax()), flatness.shape[1])
    look = {"markersize": 8, "markerfacecolor": style.PAPER, "markeredgecolor": style.INK, "zorder": 5}
    for ax in (left, right):
        ax.plot(columns[column], rows[row], "o", **look)
    circle = f"circle: the flattest of these, flatness {flatness.max():.3f}"
    entitle_figure(figure, [profile for row in profiles for profile in row], circle)
    return figure


def draw_map(ax: "Axes", shares: Float[np.ndarray, "row column"], axes: Axes2, words: str) -> "Axes":
    """Draw a share as colours, from 0 to its largest, over two quantities: the first upwards, the second right."""
    (vertical, rows), (horizontal, columns) = axes
    style.dress(ax, horizontal, vertical)
    ax.grid(False)
    at = [np.array(values, dtype=np.float64) for values in (columns, rows)]
    drawn = ax.pcolormesh(
        *map(_edges, at),
        shares,
        vmin=0,
        vmax=float(shares.max()) or 1.0,
        cmap="viridis",
        rasterized=True,
        linewidth=0,
    )
    for values, scale, axis in zip(at, (ax.set_xscale, ax.set_yscale), (ax.xaxis, ax.yaxis), strict=True):
        if _geometric(values):
            scale("log")
        _ticks(axis, values)
    bar = ax.figure.colorbar(drawn, ax=ax, pad=0.02)
    bar.ax.tick_params(labelsize=style.SMALL)
    bar.set_label(words, fontsize=style.SMALL, color=style.INK)
    return ax


def draw_growth(ax: "Axes", measured: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> "Axes":
    """Draw seconds against tokens, by name, both logarithmic, with the power that the last two points show."""
    style.dress(ax, "tokens", "seconds")
    for colour, (name, (tokens, seconds)) in zip(style.COLOURS.values(), measured.items(), strict=False):
        power = np.log(seconds[-1] / seconds[-2]) / np.log(tokens[-1] / tokens[-2])
        label = f"{name} (∝ tokens^{power:.2g})"
        ax.plot(tokens, seconds, "o-", color=colour, linewidth=style.LINE, markersize=3, label=label)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    style.key(ax, columns=2)
    return ax


def _resampled(height: Float[np.ndarray, "position"]) -> Float[np.ndarray, "place"]:
    """Means over `BINS` equal stretches of the text; a short text keeps its positions, each over its stretch."""
    total = np.concatenate([[0.0], np.cumsum(height)])
    edges = np.linspace(0, height.size, BINS + 1)
    return np.diff(np.interp(edges, np.arange(height.size + 1), total)) / np.diff(edges)


def _ticks(axis: "Axis", values: Float[np.ndarray, "value"]) -> None:
    """Ticks at values that were tried, at most `TICKS` of them, evenly among them."""
    from matplotlib.ticker import NullLocator

    shown = values[np.unique(np.linspace(0, values.size - 1, min(TICKS, values.size)).round().astype(int))]
    axis.set_ticks(shown, [plain(value) for value in shown])
    axis.set_minor_locator(NullLocator())


def _geometric(values: Float[np.ndarray, "value"]) -> bool:
    """Whether the values are spaced by ratios rather than by differences."""
    if values.size < 3 or values.min() <= 0:
        return False
    steps, ratios = np.diff(values), np.diff(np.log(values))
    return bool(np.ptp(ratios) / abs(ratios.mean()) < np.ptp(steps) / abs(steps.mean()))


def _edges(values: Float[np.ndarray, "value"]) -> Float[np.ndarray, "edge"]:
    """The boundaries of the rows: half way between neighbouring values, by ratio where they are so spaced."""
    if values.size == 1:
        return np.array([values[0] - 0.5, values[0] + 0.5])
    scaled = np.log(values) if _geometric(values) else values
    middles = (scaled[1:] + scaled[:-1]) / 2
    edges = np.concatenate([[2 * scaled[0] - middles[0]], middles, [2 * scaled[-1] - middles[-1]]])
    return np.exp(edges) if _geometric(values) else edges
