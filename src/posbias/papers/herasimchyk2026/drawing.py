"""Figures 1 to 5 drawn in the paper's layout, each ending in its claims."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.claims import Judged
from posbias.papers.herasimchyk2026.cells import Key, names
from posbias.papers.herasimchyk2026.homogeneity import Fit
from posbias.papers.herasimchyk2026.levels import Curves
from posbias.plots.captions import captioned_figure, settle
from posbias.plots.content import ContentMap, content_size, draw_content_rows
from posbias.plots.levels import draw_levels, draw_mixing_series, levels_size
from posbias.plots.style import COLOURS, INK, MUTED, SECOND, TEXT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK_OF = {"holds": COLOURS["fitted"], "fails": SECOND, "undecided": MUTED}
PANELS = 4
"""Heads of a model in Figure 5: those at even steps of R², from the worst to the best."""


def draw_mixings(mixings: Mapping[Key, np.ndarray], claims: Sequence[Judged], note: str) -> "Figure":
    """Figures 1 and 4: a column per model, a row per corpus, a line per length."""
    models, corpora = names(mixings, "model"), names(mixings, "corpus")
    size = (max(5.0, 0.5 + 3.4 * len(models)), 2.9 * len(corpora))
    figure, part = captioned_figure(*size, _lines(claims, note))
    panels = part.subplots(len(corpora), len(models), squeeze=False)
    for corpus, row in zip(corpora, panels, strict=True):
        for model, ax in zip(models, row, strict=True):
            series = {
                f"{key.tokens:,} tokens": mixing
                for key, mixing in mixings.items()
                if (key.model, key.corpus) == (model, corpus)
            }
            if not series:
                ax.set_axis_off()
                continue
            draw_mixing_series(ax, series)
            words = {"transform": ax.transAxes, "ha": "right", "va": "top", "fontsize": TEXT, "color": INK}
            ax.text(0.98, 0.96, f"{model}\n{corpus}", **words)
    return settle(figure)


def draw_curves(shown: Sequence[Curves], claims: Sequence[Judged], note: str) -> "Figure":
    """Figures 2 and 3: a row per model, a column per level, and the measured influence."""
    rows = [(one.model, one.levels, one.measured) for one in shown]
    figure, part = captioned_figure(*levels_size(rows), _lines(claims, note))
    draw_levels(part, rows)
    return settle(figure)


def draw_contents(
    contents: Mapping[str, Float[np.ndarray, "layer head query key"]],
    fits: Mapping[str, Fit],
    claims: Sequence[Judged],
    note: str,
) -> "Figure":
    """Figure 5: a row per model, heads from the worst to the best described by constant and diagonal."""
    rows = [(model, chosen_heads(content, fits[model].r2)) for model, content in contents.items()]
    figure, part = captioned_figure(*content_size(rows), _lines(claims, note))
    draw_content_rows(part, rows)
    return settle(figure)


def chosen_heads(
    content: Float[np.ndarray, "layer head query key"], r2: Float[np.ndarray, "layer head"]
) -> list[ContentMap]:
    """`PANELS` heads at even steps of R² (fewer where there are fewer heads), each with a title that says it."""
    order = np.argsort(np.nan_to_num(r2, nan=-1.0), axis=None, kind="stable")
    steps = dict.fromkeys(np.linspace(0, order.size - 1, PANELS).round().astype(int).tolist())
    places = [np.unravel_index(order[step], r2.shape) for step in steps]
    return [
        ContentMap(f"layer {layer}, head {head}, R² = {r2[layer, head]:.2f}", content[layer, head])
        for layer, head in places
    ]


def _lines(claims: Sequence[Judged], note: str) -> list[tuple[str, str]]:
    return [(note, INK), *((str(claim), _INK_OF[claim.verdict]) for claim in claims)]
