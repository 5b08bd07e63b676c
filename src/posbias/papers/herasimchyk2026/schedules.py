"""Figures 1 and 4: λ by layer at several lengths, a row per corpus; its claims, tables and drawing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.claims import LEVEL, Claim, Evidence, Near, difference, mean
from posbias.estimate import Estimate
from posbias.papers.herasimchyk2026.cells import Key, names
from posbias.papers.herasimchyk2026.measurements import Measurements, study_of
from posbias.papers.study import Study
from posbias.plots.captions import captioned_figure, settle
from posbias.plots.levels import draw_mixing_series
from posbias.plots.style import INK, TEXT
from posbias.reports.pages import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Mixings = Mapping[Key, Float[np.ndarray, "prompt layer"]]
Shown = Callable[[Measurements], Mixings]
FALLS = "λ falls with depth: its mean over the lower half of the layers exceeds that over the upper"
HEAD = ("model", "corpus", "tokens", "prompts", "layer 0", "lower half", "upper half", "last layer")


def note(results: Measurements) -> str:
    """What λ is."""
    kind = "Frobenius norms, Eq. (1)" if results.reading == "corrected" else "mean over tokens"
    return f"λ by layer ({kind}), mean over prompts with its 95 % interval."


def schedule_study(
    name: str, title: str, question: str, claims: Sequence[Claim], shown: Shown, **options: Any
) -> Study:
    """The study of one of Figures 1 and 4, of the schedules `shown`."""
    described = lambda results: tables(shown(results)), lambda results: data(shown(results))
    return study_of(name, title, question, claims, *described, note, draw=drawing(shown), **options)


# --- claims ------------------------------------------------------------------------------------------------


def falls(mixings: Mixings) -> Iterator[Evidence]:
    """That λ_t falls with depth, for every model, length and corpus."""
    several = len(names(mixings, "corpus")) > 1
    for key, mixing in mixings.items():
        yield fall(f"{key.model}, {key.tokens} tokens" + (f", {key.corpus}" if several else ""), mixing)


def fall(where: str, mixing: Float[np.ndarray, "prompt layer"]) -> Evidence:
    """By how much the mean of λ over the lower half of the layers exceeds that over the upper."""
    half = mixing.shape[1] // 2
    if not half:
        return Evidence(where, flaw="one layer, two needed")
    return mean(where, mixing[:, :half].mean(axis=1) - mixing[:, -half:].mean(axis=1))


def unchanged(mixings: Mixings) -> Iterator[Evidence]:
    """That λ_t of every other corpus is that of the first (as a table that shares λ assumes)."""
    first = names(mixings, "corpus")[0]
    for key, mixing in mixings.items():
        reference = Key(key.model, first, key.tokens)
        if key.corpus != first and reference in mixings:
            where = f"{key.model}, {key.tokens} tokens, {key.corpus}"
            yield _apart(where, mixing, mixings[reference])


def _apart(
    where: str, own: Float[np.ndarray, "prompt layer"], first: Float[np.ndarray, "prompt layer"]
) -> Evidence:
    """That two schedules are near each other in every layer: the layer that decides it.

    Near in every layer is an "and", which the least sure layer decides; apart in some layer is an "or", for which
    the surest layer's p-value is taken times the number of layers.
    """
    layers = [
        difference(f"{where}, layer {t}", a, b, draws="prompts", test=Near())
        for t, (a, b) in enumerate(zip(own.T, first.T, strict=True))
    ]
    if layers[0].flaw:
        return replace(layers[0], where=where)
    apart = min(layers, key=lambda layer: layer.against)
    opposite = min(1.0, len(layers) * apart.against)
    deciding = apart if opposite < LEVEL else max(layers, key=lambda layer: layer.p)
    return replace(deciding, opposite=opposite)


# --- numbers and pictures ----------------------------------------------------------------------------------


def tables(mixings: Mixings) -> Iterator[Table]:
    """λ in words: bottom, lower half, upper half and top layer, by model, corpus and length."""
    rows = []
    for key, mixing in mixings.items():
        half = max(1, mixing.shape[1] // 2)
        parts = (mixing[:, 0], mixing[:, :half].mean(axis=1), mixing[:, -half:].mean(axis=1), mixing[:, -1])
        sizes = [key.model, key.corpus, str(key.tokens), str(len(mixing))]
        rows.append([*sizes, *(str(Estimate.of(part)) for part in parts)])
    yield Table("λ, mean ± standard error over prompts", HEAD, rows)


def data(mixings: Mixings) -> dict[str, Any]:
    """λ by layer with its standard error, by model, corpus and length."""
    rows = []
    for key, mixing in mixings.items():
        estimates = [Estimate.of(column) for column in mixing.T]
        numbers = {"mixing": [one.value for one in estimates], "se": [one.se for one in estimates]}
        rows.append({**vars(key), "prompts": len(mixing), **numbers})
    return {"mixing": rows}


def drawing(shown: Shown) -> "Callable[[Measurements, Sequence[tuple[str, str]]], Figure]":
    """The `draw` of a figure of these schedules: a column per model, a row per corpus, a line per length."""
    return lambda results, caption: _draw(shown(results), caption)


def _draw(mixings: Mixings, caption: Sequence[tuple[str, str]]) -> "Figure":
    models, corpora = names(mixings, "model"), names(mixings, "corpus")
    size = (max(5.0, 0.5 + 3.4 * len(models)), 2.9 * len(corpora))
    figure, part = captioned_figure(*size, caption)
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
