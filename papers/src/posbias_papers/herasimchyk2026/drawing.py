"""Figures 1 to 5 of Herasimchyk et al. 2026, drawn from tidy tables: λ by layer, levels over what was measured,
mean content logits."""

import itertools
from typing import TYPE_CHECKING

import numpy as np

from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias.reports.plots import style
from posbias.reports.plots.influence import density, draw_influence, scale_influence, share_scale
from posbias.reports.plots.layers import LAYER
from posbias_papers.herasimchyk2026.configs import FIGURES
from posbias_papers.plots import captioned_figure, settle

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = dict(zip("abcd", ("attention_only", "positional", "measured_kernels", "fitted"), strict=True))
"""The house's colour of each level."""
TAILS = (1.0, 99.0)
"""Percentiles of what is visible at which colours of Figure 5 end: a single sink would use all of them."""


def of_figure(rows: "pd.DataFrame", name: str) -> "pd.DataFrame":
    """Those rows of a kind of table that one of its figures or tables shows."""
    match name:
        case "fig1" | "fig4":
            return rows.query(f"source == 'measured' and place {'>' if name == 'fig4' else '=='} 0")
        case "fig2" | "fig3":
            return rows.query(f"model in {shown_models(rows, name)}")
        case "fig5":
            return rows.query("panel == panel") if "panel" in rows else rows.iloc[:0]
        case "table2" | "table3":
            featured = f"model in {FIGURES['fig2']} and text == 'FineWeb-Edu'"
            return rows.query(f"source == 'printed' and {featured} or source == 'measured' and place == 0")
    return rows


def shown_models(frame: "pd.DataFrame", name: str) -> list[str]:
    """The models of Figure 2, 3 or 5: the paper's in its order, then others; without any, those that there are.

    Of others Figure 2 has those that add a line by distance to their logits, Figure 3 the rest. Figure 5 has the
    paper's fifth model, which the paper leaves out, where there are no others.
    """
    if name == "fig5":
        rows = of_figure(frame, name)
    else:
        about = f"additive == {float(name == 'fig2')} or called in {FIGURES[name]}"
        rows = frame.query(f"curve == 'b' and ({about})")
    called = dict(zip(rows.index.get_level_values("model"), rows["called"], strict=True))
    chosen = [model for paper in (*FIGURES[name], "") for model in called if called[model] == paper]
    return chosen or [*called]


# --- λ by layer --------------------------------------------------------------------------------------------


def draw_schedules(frame: "pd.DataFrame", caption: str, name: str) -> "Figure":
    """Draw λ by layer, mean and 95 % interval: a row per corpus, a column per model, a line per length."""
    rows = of_figure(frame.query("layer >= 0"), name).reset_index()
    models, corpora, lengths = ([*rows[column].unique()] for column in ("model", "corpus", "tokens"))
    figure, part = captioned_figure(max(5.0, 0.5 + 3.4 * len(models)), 2.9 * len(corpora), caption)
    panels = part.subplots(len(corpora), len(models), squeeze=False)
    for (corpus, model), ax in zip(itertools.product(corpora, models), panels.flat, strict=True):
        own = rows.query(f"model == {model!r} and corpus == {corpus!r}")
        if own.empty:
            ax.set_axis_off()
            continue
        style.dress(ax, LAYER, "weight of attention λ")
        for place, tokens in enumerate(sorted(lengths)):
            line, look = own.query(f"tokens == {tokens}"), style.series(place)
            if line.empty:
                continue
            values = line["mixing"].to_numpy()
            numbers = zip(values, line["mixing_se"], line["n"].astype(int), strict=True)
            low, high = np.array([Estimate(*number).interval for number in numbers]).T
            ax.fill_between(range(len(line)), low, high, color=look["color"], alpha=0.2, linewidth=0)
            ax.plot(values, linewidth=style.LINE, markersize=3, label=f"{tokens:,.0f} tokens", **look)
        ax.set_ylim(bottom=0)
        style.whole_numbers(ax.xaxis, 8)
        style.key(ax, 2)
        words = {"transform": ax.transAxes, "ha": "right", "va": "top", "fontsize": style.TEXT}
        ax.text(0.98, 0.96, f"{model}\n{corpus}", color=style.INK, **words)
    return settle(figure)


# --- levels and what was measured --------------------------------------------------------------------------


def draw_curves(frame: "pd.DataFrame", caption: str, name: str) -> "Figure":
    """Draw a row per model, a column per level, and the measured influence.

    Every level stands alone in colour over the measured curve; all panels of a row share their scale. Panel (d) is
    the measured curve unless a level has that letter.
    """
    rows = of_figure(frame.query("first_token == first_token"), name)
    curves: dict[str, dict[str, Profile]] = {model: {} for model in shown_models(rows, name)}
    for row in rows.reset_index().to_dict("records"):
        curves[row["model"]][row["curve"]] = row["profile"]
    letters = sorted({letter for by in curves.values() for letter in by} & {*COLOURS})
    figure, part = captioned_figure(0.7 + 1.85 * (len(letters) + 1), 0.35 + 1.75 * len(curves), caption)
    panels = part.subplots(len(curves), len(letters) + 1, squeeze=False)
    for place, ((model, by), line) in enumerate(zip(curves.items(), panels, strict=True)):
        measured, levels = by.get("measured"), zip(letters, line, strict=False)
        shown = [ax for letter, ax in levels if _level(ax, letter, by.get(letter), measured)]
        if measured is None:
            _empty(line[-1], "not measured here")
        else:
            draw_influence(line[-1], measured, {})
            style.direct_label(line[-1], "measured" if "d" in letters else "(d) measured", style.INK)
            shown.append(line[-1])
        share_scale(shown)
        for ax in line:
            ax.tick_params(labelleft=ax is line[0])
            ax.set_ylabel(f"{model}\ninfluence (uniform = 1)" if ax is line[0] else "", fontsize=style.TEXT)
            ax.set_xlabel("position" if place == len(curves) - 1 else "", fontsize=style.TEXT)
    return settle(figure)


def _level(ax: "Axes", letter: str, profile: Profile | None, measured: Profile | None) -> bool:
    """A level in its colour; an empty panel that says so, and False, where the model has none such."""
    if profile is None:
        return _empty(ax, "not given")
    if measured is not None:
        draw_influence(ax, measured, {COLOURS[letter]: profile})
        return True
    colour, height = style.COLOURS[COLOURS[letter]], density(profile)
    style.dress(ax, "", "")
    style.level_line(ax, 1)
    ax.plot(height, color=colour, linewidth=style.LINE)
    ax.plot(0, height[0], "o", color=colour, markersize=3.5, clip_on=False)
    # a broad curve whole, and of one that collapses what is above a hundredth of the uniform
    low = max(0.01, min(0.5, float(height.min()) / 1.6))
    scale_influence(ax, low, max(2.0, float(height.max()) * 1.4))
    style.direct_label(ax, profile.predictor or letter, colour)
    return True


def _empty(ax: "Axes", word: str) -> bool:
    ax.set_axis_off()
    look = {"ha": "center", "va": "center", "fontsize": style.SMALL, "color": style.MUTED}
    ax.text(0.5, 0.5, word, transform=ax.transAxes, **look)
    return False


# --- content -----------------------------------------------------------------------------------------------


def draw_content(frame: "pd.DataFrame", caption: str, name: str) -> "Figure":
    """Draw a row per model: mean content logits of heads from the worst to the best described by constant and
    diagonal, every panel with colours of its own."""
    rows = of_figure(frame, name).sort_values("panel", kind="stable").reset_index()
    models = shown_models(frame, name)
    maps = {model: rows.query(f"model == {model!r}").to_dict("records") for model in models}
    columns = max(map(len, maps.values()))
    figure, part = captioned_figure(0.6 + 1.95 * columns, 0.35 + 1.8 * len(maps), caption)
    panels = part.subplots(len(maps), columns, squeeze=False)
    for place, ((model, heads), line) in enumerate(zip(maps.items(), panels, strict=True)):
        for ax in line[len(heads) :]:
            ax.set_axis_off()
        for head, ax in zip(heads, line, strict=False):
            style.dress(
                ax, "key" if place == len(maps) - 1 else "", f"{model}\nquery" if ax is line[0] else ""
            )
            low, high = np.nanpercentile(head["matrix"], TAILS)
            style.colour_bar(ax, style.draw_matrix(ax, head["matrix"], vmin=low, vmax=high), extend="both")
            title = f"layer {head['layer']:.0f}, head {head['head']:.0f}, R² = {head['r2']:.2f}"
            ax.set_title(title, fontsize=style.SMALL, color=style.INK, pad=3)
    return settle(figure)
