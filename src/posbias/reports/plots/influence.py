"""Influence by position: measured with its error, predicted, compared with a reference, taken apart."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Num

from posbias.profiles.estimate import intervals
from posbias.profiles.profile import Profile
from posbias.reports.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posbias.comparison.scores import Comparison

POSITION, INFLUENCE = "position of the token", "influence (uniform = 1)"
SHARE = "place in the text (0 first, 1 the query)"
NOTE, LETTERS = 90, 14
"""Letters of a line above a figure, and above an axes for each inch of it."""
LONG = 2048
"""Positions beyond which a peak at an end is narrower than a line."""
FEW = 16
"""Places that are marked and named one by one."""
CURVE, MARK = "curve", "mark"
"""What a curve of `draw_profile` is known by on its axes, and what is marked of the only one."""
FAINTEST = 1e-4
"""Influence below this, relative to uniform, lies outside the picture."""


def draw_influence(ax: "Axes", measured: Profile, predictions: Mapping[str, Profile] | None = None) -> "Axes":
    """Draw measured influence with its 95 % band, and predictions over it, on a logarithmic scale.

    A single prediction is named above the axes in its colour, several in a legend; without any, the ends
    and the trough that the summary speaks of are marked. Influence is relative to uniform, mass × tokens.
    """
    style.dress(ax, POSITION, INFLUENCE)
    height = density(measured)
    if predictions is None:
        _mark_ends(ax, measured)
    draw_band(ax, measured, color=style.MUTED, alpha=0.3, label="95 % interval")
    ax.plot(height, color=style.INK, linewidth=0.9, label="measured", zorder=3)
    lines = [
        (density(prediction), prediction.predictor or name, style.COLOURS.get(name, style.ACCENT))
        for name, prediction in (predictions or {}).items()
    ]
    for line, label, colour in lines:
        ax.plot(line, color=colour, linewidth=style.LINE, label=label, zorder=4)
    _scale(ax, height, *(line for line, _, _ in lines))
    for line, _, colour in lines:
        if line[0] >= ax.get_ylim()[0]:  # a dot on the first token, which is easily lost against the axis
            ax.plot(0, line[0], "o", color=colour, markersize=3.5, clip_on=False, zorder=5)
    if len(lines) == 1:
        style.direct_label(ax, lines[0][1], lines[0][2])
    elif lines:
        style.key(ax)
    return ax


def draw_profile(ax: "Axes", profile: Profile, name: str = "") -> "Axes":
    """Draw one profile by position, relative to uniform, on a logarithmic scale.

    The title says what it is of and how long. Rates and signed numbers are drawn as they are, by the places where
    they are few. On axes that have profiles already it takes the next colour, marker and dashes; then a legend
    names all of them (by `name`, where given), in place of the title and of what is marked of a single one.
    """
    curves = [line for line in ax.lines if line.get_gid() == CURVE]
    labels = ax.get_legend_handles_labels()[1]
    mass, few = profile.kind == "mass", profile.kind != "mass" and profile.tokens <= FEW
    vertical = INFLUENCE if mass else profile.measures
    style.dress(ax, "place" if profile.kind == "rate" else POSITION, vertical)
    look = style.apart(len(curves))
    height = density(profile) if mass else profile.mass
    if (band := profile.band) is not None:
        label = f"with λ of {len(band.models)} pretrained models"
        label *= label not in labels
        _draw_known(ax, profile, np.arange(height.size), color=look["color"], label=label)
    label = "95 % interval over prompts" if mass else ""
    draw_band(ax, profile, color=look["color"], alpha=0.15, label=label * (label not in labels))
    label = (name or f"{subject([profile])}: {profile.measures}") + " (no verdict)" * bool(profile.left_out)
    places = range(profile.tokens) if few else (0, height.size - 1) if mass else ()
    ax.plot(height, markevery=[*places], markersize=3.5, label=label, gid=CURVE, **look)
    if few:
        ax.set_xticks(places, [f"{place:.3g}" for place in profile.at])
    if mass:
        _scale(ax, np.concatenate([height, *(np.asarray(line.get_ydata()) for line in curves)]))
    if curves:
        for mark in ax.findobj(lambda one: one.get_gid() == MARK):
            mark.remove()
        ax.set_title("")
        style.key(ax, 1)
    else:
        _name_the_only(ax, profile)
    return ax


def draw_profiles(ax: "Axes", profiles: Mapping[str, Profile]) -> "Axes":
    """Draw profiles of any lengths by share of the text, each in a colour and marker of its own.

    Measured ones have their 95 % interval. The name of one that leaves out what decides it says that it has no
    verdict. Where λ was not given, a band is what the λ of pretrained models would give. Markers at both ends are
    hollow and the larger the earlier a line is drawn, and long texts have their ends widened, so that no peak
    hides another.
    """
    style.dress(ax, SHARE, INFLUENCE)
    heights = [density(profile) for profile in profiles.values()]
    sizes = np.linspace(9.0, 3.5, len(heights))
    for place, ((name, profile), height) in enumerate(zip(profiles.items(), heights, strict=True)):
        x, look = np.linspace(0, 1, height.size), style.apart(place)
        _draw_known(ax, profile, x, color=look["color"])
        draw_band(ax, profile, x, color=look["color"], alpha=0.15)
        label = f"{name} (no verdict)" if profile.left_out else name
        look |= {"markersize": sizes[place], "markerfacecolor": "none", "markevery": [0, height.size - 1]}
        ax.plot(x, height, label=label, **look)
    style.level_line(ax, 1)
    high = max(4.0, *(float(height.max()) for height in heights)) * 1.3
    low = min(float(height[height > 0].min()) for height in heights)
    scale_influence(ax, max(FAINTEST, min(0.1, low / 1.3)), high)
    ax.set_xlim(-0.02, 1.02)
    if max(height.size for height in heights) > LONG:
        ax.set_xscale("function", functions=(_widened, _narrowed))
        ax.set_xticks([0, 0.02, 0.1, 0.5, 0.9, 0.98, 1])
        ax.set_xlim(-0.004, 1.004)
    style.key(ax, 1 if len(heights) < 4 else 2)
    return ax


def draw_cumulative(ax: "Axes", measured: Profile, predictions: Mapping[str, Profile]) -> "Axes":
    """Draw the mass of all positions up to each one: areas between curves are Wasserstein distances."""
    style.dress(ax, POSITION, "influence up to here")
    ax.plot([0, measured.query], [0, 1], color=style.MUTED, linewidth=style.THIN, linestyle=style.DASHES)
    for name, prediction in predictions.items():
        colour, label = style.COLOURS.get(name, style.ACCENT), prediction.predictor or name
        ax.plot(prediction.cumulative, color=colour, linewidth=style.LINE, label=label)
    ax.plot(measured.cumulative, color=style.INK, linewidth=style.LINE, label="measured", zorder=4)
    style.direct_label(ax, "summed up to a position", style.INK)
    ax.set_xlim(-0.01 * measured.tokens, measured.query * 1.01)
    ax.set_ylim(0, 1.02)
    return ax


def draw_comparison(ax: "Axes", comparison: "Comparison") -> "Axes":
    """Draw the reference (with its 95 % band) and each profile by position, with Spearman and Wasserstein.

    Masses are relative to uniform, on a logarithmic scale. Lines differ in colour and marker.
    """
    reference = comparison.reference
    kinds = {one.kind for one in (reference, *comparison.profiles.values())}
    masses, rates = kinds == {"mass"}, kinds == {"rate"}
    place = "place" if rates else POSITION
    if comparison.shares is not None:
        place = f"share of the context, in {comparison.shares} parts"
    style.dress(ax, place, INFLUENCE if masses else reference.measures if rates else reference.kind)
    if masses or reference.kind != "mass":
        over = f"95 % interval over {'trials' if rates else 'prompts'}"
        draw_band(ax, reference, color=style.MUTED, alpha=0.3, label=over)
    lines = {f"reference: {subject([reference])}": reference}
    for name, profile in comparison.profiles.items():
        scores = comparison.agreements[name]
        label = f"{name}: Spearman {scores.spearman.value:.2f}"
        lines[label + f", Wasserstein {scores.wasserstein.value:.3f}" * masses] = profile
    if masses:
        heights = np.concatenate([density(one) for one in lines.values()])
        low = max(FAINTEST, float(heights[heights > 0].min()))
        scale_influence(ax, low / 1.3, float(heights.max()) * 1.3)
    colours = (style.INK, *style.SERIES)
    for number, (label, profile) in enumerate(lines.items()):
        colour, height = colours[number % len(colours)], density(profile) if masses else profile.mass
        if rates and number:
            draw_band(ax, profile, color=colour, alpha=0.15)
        look = {"marker": style.MARKERS[number % len(style.MARKERS)], "markersize": 3.5}
        look |= {"markevery": max(1, height.size // 10), "linewidth": style.LINE if number else 0.9}
        ax.plot(height, color=colour, label=label, **look)
    style.key(ax)
    return ax


def draw_parts(
    ax: "Axes", shares: Mapping[str, Sequence[float]], steps: Sequence[str], lengths: Sequence[float]
) -> "Axes":
    """Draw how the share of each stretch goes from a uniform profile to the measured one, a bar for each step.

    `shares`: by stretch its share of influence under one profile after the other, uniform first; `steps`
    names what each next one knows. Each bar begins where the one before it ended, so that they sum. `lengths` are
    the stretches' shares of the context, drawn as a dashed line: the uniform profile.
    """
    style.dress(ax, "", "share of influence")
    width, left = 0.8 / len(steps), np.arange(len(shares)) - 0.4
    rows = np.array(list(shares.values()))
    for place, step in enumerate(steps):
        look = {"color": style.SERIES[place % len(style.SERIES)], "label": step, "linewidth": 0}
        change = rows[:, place + 1] - rows[:, place]
        ax.bar(left + (place + 0.5) * width, change, 0.9 * width, bottom=rows[:, place], **look)
    ax.hlines(lengths, left, left + 0.8, color=style.MUTED, linewidth=style.THIN, linestyle="--")
    ax.hlines(rows[:, -1], left + 0.8 - width, left + 0.8, color=style.INK, linewidth=style.LINE)
    ax.set_xticks(left + 0.4, [*shares])
    ax.set_ylim(0.0, 1.0)
    return ax


def draw_band(ax: "Axes", profile: Profile, places: Any = None, **look: Any) -> "Axes":
    """Draw the 95 % interval of a measured profile over prompts, as far as it lies in the picture.

    A mass is drawn relative to uniform, rates (within 0 … 1) and signed numbers as they are; over `places`, by
    default positions from 0. `look` are options of `fill_between`.
    """
    if profile.se is not None:
        mass = profile.kind == "mass"
        height = density(profile) if mass else profile.mass
        draws = None if profile.samples is None else len(profile.samples)
        se = np.asarray(profile.se)[: height.size] * (height.size if mass else 1)
        low, high = intervals(height, se, draws, profile.kind)
        if profile.counts is not None and profile.limits is not None:
            low, high = profile.limits
        low = np.maximum(low, FAINTEST) if mass else low
        places = np.arange(height.size) if places is None else places
        ax.fill_between(places, low, high, linewidth=0, **look)
    return ax


def subject(profiles: Sequence[Profile]) -> str:
    """What profiles of one architecture are of, and their length where it is one: 'bloom-176b, 256 positions'."""
    lengths = {profile.positions or profile.tokens for profile in profiles}
    length = f"{lengths.pop():,} positions" if len(lengths) == 1 else ""
    return ", ".join(filter(None, [profiles[0].name, length]))


def headline(profiles: Sequence[Profile], *notes: str, letters: int = NOTE) -> str:
    """Lines above a picture: what the profiles are of, notes, and what a prediction leaves out."""
    lines = ["; ".join([subject(profiles), *notes])]
    if unknown := next((profile for profile in profiles if profile.left_out), None):
        lines.append(f"{unknown.remainder}: {' and '.join(unknown.left_out)} not known, no verdict")
    return "\n".join(textwrap.fill(line, letters) for line in lines if line)


def density(profile: Profile) -> Float[np.ndarray, "position"]:
    """Mass relative to uniform over the positions up to the query."""
    return profile.mass[: profile.query + 1] * (profile.query + 1)


def scale_influence(ax: "Axes", low: float, high: float) -> "Axes":
    """Give an axes of influence a logarithmic scale from `low` to `high`, with plain numbers on it."""
    from matplotlib.ticker import LogLocator

    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 300 else (1.0,)))
    style.plain_numbers(ax.yaxis)
    return ax


def share_scale(axes: Sequence["Axes"]) -> None:
    """Give axes of influence one scale, from the lowest end of theirs to the highest."""
    ends = [ax.get_ylim() for ax in axes]
    for ax in axes:
        scale_influence(ax, min(low for low, _ in ends), max(high for _, high in ends))


def _widened(place: np.ndarray) -> np.ndarray:
    """Places where the first and the last few percent of a text have room: ln((x + 2 %)/(1 − x + 2 %))."""
    return np.log((place + 0.02) / (1.02 - place))


def _narrowed(place: np.ndarray) -> np.ndarray:
    return (1.02 * np.exp(place) - 0.02) / (1.0 + np.exp(place))


def _draw_known(ax: "Axes", profile: Profile, places: Num[np.ndarray, "position"], **look: Any) -> None:
    """Draw the least and the most that known λ give, where λ was not given."""
    if (band := profile.band) is not None:
        low, high = (edge[: places.size] * places.size for edge in (band.low, band.high))
        ax.fill_between(places, np.maximum(low, FAINTEST), high, alpha=0.15, linewidth=0, **look)


def _name_the_only(ax: "Axes", profile: Profile) -> None:
    """Say in a title what the only profile of an axes is of, mark its ends and trough, and name its bands."""
    notes = [profile.calibration.lines()[0]] if profile.calibration else []
    title = headline([profile], *notes, letters=int(ax.get_window_extent().width / ax.figure.dpi * LETTERS))
    ax.set_title(title, fontsize=style.SMALL, color=style.INK, pad=14, parse_math=False)
    if profile.kind == "mass":
        _mark_ends(ax, profile)
    if bands := [band for band in ax.collections if band in ax.get_legend_handles_labels()[0]]:
        ax.legend(handles=bands, loc="upper center", handlelength=1.2, **style.LEGEND)


def _mark_ends(ax: "Axes", profile: Profile) -> None:
    """Shade and name the first and last 5 % above the axes and the trough within it, and draw uniform."""
    s = profile.summary
    style.level_line(ax, 1)
    trough, last = s.trough - (s.ends - 1) // 2, s.query - s.ends + 1
    for left, text, side in (
        (0, "first 5 %", "left"),
        (trough, "trough", "center"),
        (last, "last 5 %", "right"),
    ):
        look = {"color": style.RULE, "alpha": 0.6, "linewidth": 0, "zorder": 0, "gid": MARK}
        ax.axvspan(left - 0.5, left + s.ends - 0.5, **look)
        anchor = left + {"left": 0, "center": (s.ends - 1) / 2, "right": s.ends - 1}[side]
        y, below = (0.99, "top") if text == "trough" else (1.01, "bottom")
        look = {"ha": side, "va": below, "fontsize": style.SMALL, "color": style.MUTED, "gid": MARK}
        ax.text(anchor, y, text, transform=ax.get_xaxis_transform(), **look)


def _scale(ax: "Axes", decisive: Float[np.ndarray, "..."], *others: Float[np.ndarray, "..."]) -> None:
    """A scale as low as the decisive numbers need and as high as any, over all positions that are drawn."""
    least, end = float(decisive[decisive > FAINTEST].min()) / 1.6, ax.dataLim.x1 + 1
    scale_influence(ax, min(0.5, least), max(2.0, *(1.4 * float(line.max()) for line in (decisive, *others))))
    ax.set_xlim(-0.01 * end, end * 1.01)
