"""Retrieval and choices by place as pictures: shares, margins and log-odds with 95 % intervals, arms, ways, sizes.

Accuracy has its chance level, the margin its zero and the control, in which another fact is asked for.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from posbias.choice.answer import ChoiceAnswer
from posbias.profiles.estimate import Estimate
from posbias.profiles.gaps import ENDS
from posbias.profiles.places import NATS, Places
from posbias.profiles.profile import Profile, measured_influence
from posbias.reports.plots import style
from posbias.reports.plots.influence import draw_profiles

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = "place of the answer (0 = first, 1 = last)"
_LINES = {
    "share": (("choice", "preferred among the candidates"), ("accuracy", "written")),
    "margin": (("margin", "asked for it"), ("control_margin", "asked for somebody else")),
}
PANEL = 3.2
"""Inches of a panel."""
FEW = 6
"""Those who chose of whom every slot is drawn, and a page has words: of more, whose decisions differ most."""
_ARMS = {"no gold": ":", "gold alone": "--", "shuffled": "-."}
"""A line style for each control arm."""


def draw_retrieval(ax: "Axes", curve: Places, quantity: Literal["share", "margin"] = "share") -> "Axes":
    """Draw retrieval by place of the answer, with 95 % intervals over prompts.

    `share`: how often the answer is preferred and written, with chance dashed. `margin`: its log-probability
    less the best other's, in nats, with 0 dashed, and the same where somebody else is asked for.
    """
    share = quantity == "share"
    _dress(ax, curve.chance if share else 0.0, "share of prompts" if share else "margin (nats)", share)
    looks = (style.ACCENT, "o-", -0.006), (style.SECOND if share else style.MUTED, "s-", 0.006)
    for (name, label), (colour, form, aside) in zip(_LINES[quantity], looks, strict=True):
        style.draw_estimates(ax, curve.depth + aside, curve.curves[name], label=label, color=colour, fmt=form)
    style.key(ax, columns=2)
    return ax


def draw_answers(ax: "Axes", curve: Places) -> "Axes":
    """Draw the share of trials that find the fact by its place, with 95 % intervals, and the control arms."""
    _dress(ax, curve.chance)
    for name, dashes in _ARMS.items():
        arm = curve.overall[name]
        ax.axhline(arm.value, color=style.MUTED, linewidth=style.THIN * 1.5, linestyle=dashes, label=name)
        ax.axhspan(*arm.interval, color=style.MUTED, alpha=0.08, linewidth=0)
    style.draw_estimates(ax, curve.depth, curve.curves["accuracy"], label="found", color=style.ACCENT)
    style.key(ax, columns=4)
    return ax


def draw_ways(ax: "Axes", curves: Mapping[str, Places], quantity: str = "accuracy") -> "Axes":
    """Draw a quantity by place for each way to ask, by its name, with 95 % intervals side by side.

    Chance is drawn where it is the same for all, of nats 0.
    """
    share, chances = quantity not in NATS, {curve.chance for curve in curves.values()}
    _dress(ax, chances.pop() * share if len(chances) == 1 else 0.0, quantity + " (nats)" * (not share), share)
    end = max([1.0, *(float(curve.depth.max()) for curve in curves.values())])
    for place, (name, curve) in enumerate(curves.items()):
        # intervals of several ways would hide each other at one place
        x = curve.depth + 0.012 * end * (place - (len(curves) - 1) / 2)
        label = name if curve.able else f"{name} ({curve.verdict})"
        look = {"fmt": "-", "label": label} | style.series(place)
        style.draw_estimates(ax, x, curve.curves[quantity], **look)
    if end > 1:  # places by their own numbers
        ax.set(xlim=(-0.03 * end, 1.03 * end), xlabel="place of the answer")
    style.key(ax, columns=2)
    return ax


def retrieval_figure(
    curve: Places, measurement: "xr.Dataset | None" = None, width: float = 3 * PANEL
) -> "Figure":
    """Shares and margins by place, and the influence by place in a measurement of the same model, if given.

    Panels stand side by side as far as `width` inches have room for them.
    """
    panels = 2 if measurement is None else 3
    figure, axes = style.new_panels(panels, max(1, int(width / PANEL)), min(width, PANEL), 2.9)
    draw_retrieval(axes[0], curve, "share")
    draw_retrieval(axes[1], curve, "margin")
    if measurement is not None:
        influence = {"measured": measured_influence(measurement)}
        if "rollout_energy" in measurement:
            rollout = measurement["rollout_energy"].values
            influence["energy rollout"] = Profile.from_samples(rollout, measures="rollout")
        draw_profiles(axes[2], influence)
    about = [f"{curve.model}, prompts of about {curve.tokens:,.0f} tokens"]
    if not curve.able:
        about.append("at chance, or not shown to be above it: where it copies from, not what it finds")
    return style.entitled(figure, about)


def answers_figure(curves: Sequence[Places], width: float = 4.6) -> "Figure":
    """One curve with its control arms, or one for each size."""
    figure, about = style.new_figure(width, 2.9), [_trials(curves)]
    if len(curves) > 1:
        sizes = {f"{size} {name}".removesuffix(" task"): one for one in curves for name, size in [_size(one)]}
        draw_ways(figure.subplots(), sizes)
    else:
        draw_answers(figure.subplots(), curves[0])
        cut = "answers cut off, or " * curves[0].too_often_cut_off
        about += [f"{cut}not shown to be found more often than guessed or copied"] * (not curves[0].able)
    return style.entitled(figure, about)


def ways_figure(sizes: Sequence[Mapping[str, Places]]) -> "Figure":
    """Every way to ask in one picture: a panel for each size, a curve for each way."""
    figure, axes = style.new_panels(len(sizes), 1, 4.6, 2.9)
    for ax, curves in zip(axes, sizes, strict=True):
        draw_ways(ax, curves)
    shown = [next(iter(curves.values())) for curves in sizes]
    named = [f"{_size(shown[0])[0]}: {', '.join(_size(one)[1] for one in shown)}, from above"]
    return style.entitled(figure, [_trials(shown), *named * (len(sizes) > 1)])


def _dress(ax: "Axes", level: float = 0.0, vertical: str = "share of trials", share: bool = True) -> None:
    """Axes of a curve by place, with its level (chance, or zero) dashed."""
    style.dress(ax, PLACE, vertical)
    if level or not share:
        style.level_line(ax, level)
    if share:
        ax.set_ylim(-0.02, 1.02)
        if level:
            look = {"fontsize": style.SMALL, "color": style.MUTED, "ha": "right", "va": "bottom"}
            ax.text(1.0, level, "chance", **look)
    ax.set_xlim(-0.03, 1.03)


def _trials(curves: Sequence[Places]) -> str:
    """Model and number of trials of curves that are drawn together."""
    counts = [curve.prompts for curve in curves]
    span = " to ".join(map(str, dict.fromkeys((min(counts), max(counts)))))
    return f"{curves[0].model}, {span} trials, 95 % intervals"


def _size(curve: Places) -> tuple[str, str]:
    """What the size of a task is counted in, and the size."""
    name = "pairs" if curve.job["pairs"] else "length" if curve.job["length"] else "task"
    return {"length": "words"}.get(name, name), f"{curve.kind} {curve.job[name]}".strip()


def effects_of(choices: Mapping[str, ChoiceAnswer]) -> dict[str, Estimate]:
    """The effect of every slot by who chose; of more than `FEW` the first slot's less the last's."""
    if len(choices) > FEW:
        return {who: held.effects.gaps[ENDS] for who, held in choices.items()}
    slots = [(who, slot, one) for who, held in choices.items() for slot, one in enumerate(held.effects.slots)]
    return {f"{who}, " * (len(choices) > 1) + f"slot {slot}": one for who, slot, one in slots}


def draw_effects(ax: "Axes", effects: Mapping[str, Estimate]) -> "Axes":
    """Draw effects by their names, one below another; of a bound its finite end, as a triangle."""
    style.dress(ax, "log-odds of being chosen", "")
    ax.axvline(0.0, color=style.MUTED, linewidth=style.THIN, linestyle=style.DASHES, zorder=1)
    for place, one in enumerate(effects.values()):
        ends = [end for end in one.interval if math.isfinite(end)]
        value = one.value if not math.isinf(one.value) else ends[0]
        marker = "o" if math.isfinite(one.value) else ">" if one.value > 0 else "<"
        ax.plot(ends or [value], [place] * max(len(ends), 1), color=style.ACCENT, linewidth=style.LINE)
        ax.plot([value], [place], marker, color=style.ACCENT, markersize=3.5)
    ax.set_yticks(range(len(effects)), [textwrap.fill(name, 30) for name in effects])
    ax.set_ylim(len(effects) - 0.4, -0.6)
    ax.locator_params(axis="x", nbins=4)
    return ax
