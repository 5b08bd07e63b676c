"""Retrieval by position as pictures: how often, by how much, and beside the influence of the same places.

Accuracy has its chance level, the margin its zero and the control: what the model would have said unasked.
"""

from typing import TYPE_CHECKING, Literal

import numpy as np

from posbias.profiles.profile import Profile
from posbias.reports.plots import style
from posbias.reports.plots.influence import FAINTEST, density, predictor_label, scale_influence
from posbias.retrieval.curve import RetrievalCurve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = "place of the answer (0 = first, 1 = last)"
_SHARES = (
    ("choice", "preferred among the candidates", style.ACCENT, "o"),
    ("accuracy", "written", style.SECOND, "s"),
)
_MARGINS = (
    ("margin", "asked for it", style.ACCENT, "o"),
    ("control_margin", "asked for somebody else", style.MUTED, "s"),
)


def draw_retrieval(
    ax: "Axes", curve: RetrievalCurve, quantity: Literal["share", "margin"] = "share"
) -> "Axes":
    """Draw retrieval by place of the answer, with 95 % intervals over prompts.

    `share`: how often the answer is preferred and written, with chance dashed. `margin`: its log-probability
    less the best other's, in nats, with 0 dashed, and the same where somebody else is asked for.
    """
    style.dress(ax, PLACE, "share of prompts" if quantity == "share" else "margin (nats)")
    level = curve.chance if quantity == "share" else 0.0
    style.level_line(ax, level)
    if quantity == "share":
        ax.text(1.0, level, "chance", fontsize=style.SMALL, color=style.MUTED, ha="right", va="bottom")
    lines = _SHARES if quantity == "share" else _MARGINS
    for shift, (name, label, colour, marker) in zip((-0.006, 0.006), lines, strict=True):
        entries = curve.curves[name]
        height = np.array([one.value for one in entries])
        ends = np.array([one.interval for one in entries])
        # a share of exactly 0 or 1 may differ from its interval's end in the last bit
        lengths = np.maximum(0.0, np.array([height - ends[:, 0], ends[:, 1] - height]))
        look = {"fmt": f"{marker}-", "color": colour, "markersize": 3.5, "linewidth": style.LINE}
        look |= {"elinewidth": style.THIN * 1.5, "capsize": 1.5, "label": label}
        ax.errorbar(curve.depth + shift, height, lengths, **look)
    if quantity == "share":
        ax.set_ylim(-0.02, 1.02)
    ax.set_xlim(-0.03, 1.03)
    style.key(ax, columns=2)
    return ax


def draw_places(ax: "Axes", measured: Profile, others: "Mapping[str, Profile] | None" = None) -> "Axes":
    """Draw influence by place (0 = first token, 1 = last), even spread = 1, on a logarithmic scale.

    `measured` is black; `others`, predictions of it, are in their colours.
    """
    style.dress(ax, "place of the token (0 = first, 1 = last)", "influence (even spread = 1)")
    style.level_line(ax, 1.0)
    shown = [1.0]
    for name, profile in {"measured": measured, **(others or {})}.items():
        height = density(profile)
        colour = style.INK if profile is measured else style.COLOURS.get(name, style.ACCENT)
        place = np.arange(height.size) / max(1, height.size - 1)
        height = np.where(height > FAINTEST, height, np.nan)
        ax.plot(place, height, color=colour, linewidth=0.9, label=predictor_label(name, profile))
        shown += height.tolist()
    scale_influence(ax, 0.8 * float(np.nanmin(shown)), 1.2 * float(np.nanmax(shown)))
    ax.set_xlim(-0.03, 1.03)
    style.key(ax, columns=2)
    return ax


def retrieval_figure(
    curve: RetrievalCurve, measured: Profile | None = None, others: "Mapping[str, Profile] | None" = None
) -> "Figure":
    """Shares and margins by place, and beside them the influence by place of the same model, if given."""
    panels = 2 if measured is None else 3
    figure = style.new_figure(3.2 * panels, 2.9)
    axes = figure.subplots(1, panels)
    draw_retrieval(axes[0], curve, "share")
    draw_retrieval(axes[1], curve, "margin")
    if measured is not None:
        draw_places(axes[2], measured, others)
    about = [f"{curve.model}, prompts of about {curve.tokens:,.0f} tokens"]
    if not curve.able:
        about.append("at chance, or not told from it: where it copies from, not what it finds")
    figure.suptitle("\n".join(about), fontsize=style.SMALL, color=style.INK)
    return figure
