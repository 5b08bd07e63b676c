"""What if, as pictures: profiles against what was varied, designs against their target, a study over an axis."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from posbias.core.terminal import plain
from posbias.profiles.curves import at_shares
from posbias.profiles.profile import Profile
from posbias.reports.plots import style
from posbias.reports.plots.influence import INFLUENCE, SHARE, density, headline, scale_influence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from posbias.study.tables import Line

BINS = 256
"""Places along the text that a heat map distinguishes."""
TICKS = 8
"""Values that are written at an axis, of those tried."""
LEAST, MOST = 1 / 32, 32.0
"""Influence, relative to uniform, at the ends of the colour scale."""
WIDE = 10.0
"""Positive values of an axis whose ends are further apart than this factor stand on a logarithmic scale."""
Varied = Sequence[tuple[float, Profile]]
Axes2 = Sequence[tuple[str, Sequence[float]]]
"""Both quantities that were varied, each with its values: rows, columns."""


def variation_figure(quantity: str, varied: Varied) -> "Figure":
    """The heat map of all profiles, and small multiples of six of them."""
    figure = style.new_figure(9.6, 3.8)
    left, right = figure.subfigures(1, 2, width_ratios=(1.0, 1.15)).flat  # type: ignore[union-attr]
    draw_variation(left.subplots(), varied, quantity)
    style.entitled(figure, [headline([profile for _, profile in varied])])
    shown = [varied[k] for k in _among(len(varied), 6)]
    columns = min(3, len(shown))
    axes = right.subplots(-(-len(shown) // columns), columns, sharex=True, sharey=True, squeeze=False).flat
    high = max(4.0, *(float(density(profile).max()) for _, profile in shown)) * 1.3
    for ax, (value, profile) in zip(axes, shown, strict=False):
        style.dress(ax, "", "")
        style.level_line(ax, 1)
        height = density(profile)
        ax.plot(np.linspace(0, 1, height.size), height, color=style.ACCENT, linewidth=style.LINE)
        scale_influence(ax, min(0.1, 1 / high), high)
        ax.set_xlim(0, 1)
        ax.set_title(f"{quantity} = {plain(value)}", fontsize=style.SMALL, color=style.INK, loc="left", pad=3)
    for ax in axes[len(shown) :]:
        ax.set_visible(False)
    right.supxlabel(SHARE, fontsize=style.TEXT, color=style.INK)
    right.supylabel(INFLUENCE, fontsize=style.TEXT, color=style.INK)
    return figure


def draw_variation(ax: "Axes", varied: Varied, quantity: str) -> "Axes":
    """Draw every profile as a row of colours: blue below a uniform profile, red above, one row per value."""
    from matplotlib.colors import LogNorm

    image = np.stack([at_shares(density(profile), BINS, total=False) for _, profile in varied])
    values, places = np.array([value for value, _ in varied], dtype=np.float64), np.linspace(0, 1, BINS + 1)
    style.dress(ax, SHARE, quantity)
    bar = _draw_colours(
        ax,
        (places, _edges(values)),
        np.clip(image, LEAST, MOST),
        INFLUENCE,
        cmap="RdBu_r",
        norm=LogNorm(LEAST, MOST),
    )
    _scale(ax.yaxis, values)
    ax.set_ylim(*_edges(values)[[0, -1]])
    ticks = {LEAST: "≤ 1/32", 1 / 8: "1/8", 1 / 2: "1/2", 1: "1", 2: "2", 8: "8", MOST: "≥ 32"}
    bar.set_ticks([*ticks], labels=[*ticks.values()])
    bar.ax.minorticks_off()
    return ax


def map_figure(axes: Axes2, profiles: Sequence[Sequence[Profile]]) -> "Figure":
    """Heat maps of the shares of the first and of the last 5 %, over both quantities that were varied.

    A circle marks the flattest of those tried.
    """
    figure = style.new_figure(9.6, 3.8)
    summaries = [[profile.summary for profile in row] for row in profiles]
    flatness = np.array([[one.flatness for one in row] for row in summaries])
    row, column = divmod(int(flatness.argmax()), flatness.shape[1])
    look = {"markersize": 8, "markerfacecolor": style.PAPER, "markeredgecolor": style.INK, "zorder": 5}
    for ax, end in zip(figure.subplots(1, 2), ("first", "last"), strict=True):
        shares = np.array([[getattr(one, f"{end}_mass") for one in row] for row in summaries])
        draw_map(ax, shares, axes, f"share of the {end} 5 %")
        ax.plot(axes[1][1][column], axes[0][1][row], "o", **look)
    circle = f"circle: the flattest of these, flatness {flatness.max():.3f}"
    return style.entitled(figure, [headline([profile for row in profiles for profile in row], circle)])


def draw_map(ax: "Axes", shares: Float[np.ndarray, "row column"], axes: Axes2, words: str) -> "Axes":
    """Draw a share as colours, from 0 to its largest, over two quantities: the first upwards, the second right.

    Where some are below 0, 0 is white and both signs have one scale. NaN is blank.
    """
    (vertical, rows), (horizontal, columns) = axes
    style.dress(ax, horizontal, vertical)
    across, up = (np.array(values, dtype=np.float64) for values in (columns, rows))
    most, signed = float(np.nanmax(abs(shares))) or 1.0, bool((shares < 0).any())
    look = {"cmap": "RdBu_r" if signed else "viridis", "vmin": -most * signed, "vmax": most}
    _draw_colours(ax, (_edges(across), _edges(up)), shares, words, **look)
    _scale(ax.xaxis, across)
    _scale(ax.yaxis, up)
    return ax


def draw_designs(ax: "Axes", front: Sequence[Any], baseline: Any, within: float) -> "Axes":
    """Draw a Pareto front: `cache` across, `distance` up, `reach` as colour; the dashed line is `within`.

    `front` and `baseline` are candidates of `posbias.design`.
    """
    from matplotlib.ticker import LogLocator

    style.dress(ax, "keys in the cache", "distance to the target")
    cache, distance, reach = (
        [getattr(one, name) for one in front] for name in ("cache", "distance", "reach")
    )
    dots = ax.scatter(cache, distance, 22.0, reach, cmap="viridis", label="on the front")
    ax.plot(baseline.cache, baseline.distance, "x", color=style.ACCENT, markersize=6, label="baseline")
    style.level_line(ax, within)
    look = {"color": style.MUTED, "linewidth": style.THIN, "linestyle": style.DASHES}
    ax.plot([], [], label=f"near enough ({within:g})", **look)
    ax.set_xscale("log")
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    style.plain_numbers(ax.xaxis)
    style.colour_bar(ax, dots).set_label("reach (tokens)", fontsize=style.SMALL, color=style.INK)
    style.key(ax)
    return ax


def draw_study(ax: "Axes", lines: "Sequence[Line]", axis: str, quantity: str) -> "Axes":
    """Draw the lines over `axis` with their 95 % intervals."""
    drawn = any(reach > 0 for line in lines for reach in line.reach)
    style.dress(ax, axis, f"{quantity} ± 95 %" if drawn else quantity)
    for place, line in enumerate(lines):
        look = {"markersize": 3, "linewidth": style.LINE, "capsize": 2, "label": line.label}
        ax.errorbar(line.x, line.value, line.reach if drawn else None, **look, **style.series(place))
    values = sorted({x for line in lines for x in line.x})
    if values[0] > 0 and values[-1] > WIDE * values[0]:
        ax.set_xscale("log")
        ax.set_xticks(values, [f"{x:g}" for x in values])
        ax.minorticks_off()
    if any(line.label for line in lines):
        style.key(ax, 2)
    return ax


def _draw_colours(
    ax: "Axes", edges: Sequence[Float[np.ndarray, "edge"]], image: np.ndarray, words: str, **look: Any
) -> Any:
    """Draw numbers as colours between edges (horizontal, vertical), and return their bar."""
    ax.grid(False)
    drawn = ax.pcolormesh(*edges, image, rasterized=True, linewidth=0, **look)
    bar = style.colour_bar(ax, drawn)
    bar.set_label(words, fontsize=style.SMALL, color=style.INK)
    return bar


def _scale(axis: "Axis", values: Float[np.ndarray, "value"]) -> None:
    """A scale by ratios where the values are so spaced, with at most `TICKS` ticks, evenly among them."""
    from matplotlib.ticker import NullLocator

    if _geometric(values):
        (axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale)("log")
    shown = values[_among(values.size, TICKS)]
    axis.set_ticks(shown, [plain(value) for value in shown])
    axis.set_minor_locator(NullLocator())


def _among(count: int, most: int) -> Int[np.ndarray, "place"]:
    """Up to `most` of so many places, the ends included and the others evenly between."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))


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
