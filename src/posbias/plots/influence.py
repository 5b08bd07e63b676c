"""Influence by position: what was measured, with its error, and what was predicted."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.plots.style import ACCENT, COLOURS, INK, LINE, MUTED, RULE, SMALL, THIN, direct_label, dress, key
from posbias.profile import Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POSITION, INFLUENCE = "position of the token", "influence (even spread = 1)"
FAINTEST = 1e-4
"""Influence below this, in units of an even spread, lies outside the picture."""


def draw_influence(ax: "Axes", measured: Profile, predictions: Mapping[str, Profile] | None = None) -> "Axes":
    """Draw measured influence with its 95 % band, and predictions over it, on a logarithmic scale.

    A single prediction is named above the axes in its colour, several in a legend; without any, the ends
    and the trough that the summary speaks of are marked. Influence is in units of an even spread, mass × tokens.
    """
    dress(ax, POSITION, INFLUENCE)
    position = np.arange(measured.query + 1)
    height = _height(measured)
    if predictions is None:
        _mark_ends(ax, measured)
    if measured.se is not None:
        spread = 1.96 * np.asarray(measured.se)[: position.size] * position.size
        low = np.maximum(height - spread, FAINTEST)
        ax.fill_between(
            position, low, height + spread, color=MUTED, alpha=0.3, linewidth=0, label="95 % interval"
        )
    ax.plot(position, height, color=INK, linewidth=0.9, label="measured", zorder=3)
    shown = [height]
    for name, prediction in (predictions or {}).items():
        line = _height(prediction)
        colour = COLOURS.get(name, ACCENT)
        ax.plot(
            np.arange(line.size), line, color=colour, linewidth=LINE, label=_label(name, prediction), zorder=4
        )
        shown.append(line)
    _scale(ax, shown, height)
    for name, line in zip(predictions or {}, shown[1:], strict=True):
        _mark_first(ax, line, COLOURS.get(name, ACCENT))
    if predictions and len(predictions) == 1:
        [(name, prediction)] = predictions.items()
        direct_label(ax, _label(name, prediction), COLOURS.get(name, ACCENT))
    elif predictions:
        key(ax)
    return ax


def draw_profile(ax: "Axes", profile: Profile) -> "Axes":
    """Draw one profile (a prediction) by position, in units of an even spread, on a logarithmic scale."""
    dress(ax, POSITION, INFLUENCE)
    height = _height(profile)
    _mark_ends(ax, profile)
    ax.plot(np.arange(height.size), height, color=ACCENT, linewidth=LINE)
    _scale(ax, [height], height)
    _mark_first(ax, height, ACCENT)
    if profile.left_out:
        note_left_out(ax, profile)
    return ax


def note_left_out(ax: "Axes", profile: Profile) -> "Axes":
    """Say above an axes what a prediction does not cover."""
    parts = " and ".join(profile.left_out)
    ax.set_title(
        f"mask and residual only: {parts} positions left out, no verdict",
        fontsize=SMALL,
        color=ACCENT,
        pad=14,
    )
    return ax


def draw_cumulative(ax: "Axes", measured: Profile, predictions: Mapping[str, Profile]) -> "Axes":
    """Draw the mass of all positions up to each one: areas between curves are Wasserstein distances."""
    dress(ax, POSITION, "influence up to here")
    ax.plot([0, measured.query], [0, 1], color=MUTED, linewidth=THIN, linestyle=(0, (2, 2)))
    for name, prediction in predictions.items():
        ax.plot(
            prediction.cumulative,
            color=COLOURS.get(name, ACCENT),
            linewidth=LINE,
            label=_label(name, prediction),
        )
    ax.plot(measured.cumulative, color=INK, linewidth=LINE, label="measured", zorder=4)
    direct_label(ax, "summed up to a position", INK)
    ax.set_xlim(-0.01 * measured.tokens, measured.query * 1.01)
    ax.set_ylim(0, 1.02)
    return ax


def _label(name: str, prediction: Profile) -> str:
    return str(prediction.attrs.get("predictor", name))


def _height(profile: Profile) -> Float[np.ndarray, "position"]:
    """Mass in units of an even spread over the positions that the query can see."""
    return profile.mass[: profile.query + 1] * (profile.query + 1)


def _mark_ends(ax: "Axes", profile: Profile) -> None:
    """Shade the first and last 5 % and the trough, and draw the even spread."""
    s = profile.summary
    ax.axhline(1, color=MUTED, linewidth=THIN, linestyle=(0, (2, 2)), zorder=1)
    start = s.trough - (s.ends - 1) // 2
    places = (
        (0, "first 5 %", "left"),
        (start, "trough", "center"),
        (s.query - s.ends + 1, "last 5 %", "right"),
    )
    for left, text, side in places:
        ax.axvspan(left - 0.5, left + s.ends - 0.5, color=RULE, alpha=0.6, linewidth=0, zorder=0)
        anchor = {"left": left, "center": left + (s.ends - 1) / 2, "right": left + s.ends - 1}[side]
        ax.text(
            anchor,
            1.01,
            text,
            transform=ax.get_xaxis_transform(),
            ha=side,
            va="bottom",
            fontsize=SMALL,
            color=MUTED,
        )


def _mark_first(ax: "Axes", height: Float[np.ndarray, "position"], colour: str) -> None:
    """A dot on the first token, which is easily lost against the axis, if it is in the picture."""
    if height[0] >= ax.get_ylim()[0]:
        ax.plot(0, height[0], "o", color=colour, markersize=3.5, clip_on=False, zorder=5)


def _scale(
    ax: "Axes", shown: list[Float[np.ndarray, "..."]], decisive: Float[np.ndarray, "position"]
) -> None:
    """A scale as low as the decisive curve needs and as high as any."""
    positive = decisive[decisive > FAINTEST]
    scale_influence(
        ax, min(0.5, float(positive.min()) / 1.6), max(2.0, *(float(line.max()) * 1.4 for line in shown))
    )
    ax.set_xlim(-0.01 * decisive.size, decisive.size * 1.01)


def scale_influence(ax: "Axes", low: float, high: float) -> "Axes":
    """Give an axes of influence a logarithmic scale from `low` to `high`, with plain numbers on it."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 300 else (1.0,)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    return ax
