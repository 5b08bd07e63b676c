"""Figures 1 and 4: λ by layer at several lengths, a row per corpus; their claims, tables and drawing.

Figure 1 is of each model's first corpus, Figure 4 of all others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import LEVEL, Above, Evidence, Near, difference, mean, share
from posbias.reports.plots.style import INK, TEXT
from posbias_papers.herasimchyk2026.cells import Key, names
from posbias_papers.herasimchyk2026.levels import MIXING
from posbias_papers.herasimchyk2026.measurements import Measurements, study_of
from posbias_papers.herasimchyk2026.printed import PLOTTED, TABLE1
from posbias_papers.herasimchyk2026.standing import EFFORT, OURS, SCOPE, decided_by, model_of
from posbias_papers.pages import Table
from posbias_papers.plots.captions import captioned_figure, settle
from posbias_papers.plots.levels import draw_mixing_series
from posbias_papers.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Mixings = Mapping[Key, Float[np.ndarray, "prompt layer"]]
"""λ by prompt and layer of some cells."""
Shown = Callable[[Measurements], Mixings]
FALLS = "falls with depth: its mean over the lower half of the layers exceeds that over the upper"
HEAD = ("model", "corpus", "tokens", "prompts", "layer 0", "lower half", "upper half", "last layer")


def _mixings(results: Measurements, keys: Iterable[Key]) -> Mixings:
    """λ of some cells: of Eq. (1), or, as published, averaged over tokens."""
    return {key: results.cells[key][MIXING[results.reading]].values for key in keys}


def _study(
    name: str, title: str, question: str, claims: Sequence[Claim], shown: Shown, **options: Any
) -> Study:
    """The study of one of Figures 1 and 4, of the schedules `shown`."""
    return study_of(
        name,
        title,
        question,
        claims,
        lambda results: [_table(shown(results))],
        lambda results: {"mixing": _data(shown(results))},
        _note,
        draw=lambda results, caption: _draw(shown(results), caption),
        **options,
    )


def _note(results: Measurements) -> str:
    kind = "Frobenius norms, Eq. (1)" if results.reading == "corrected" else "mean over tokens"
    return f"λ by layer ({kind}), mean over prompts with its 95 % interval."


def _mostly_falls(
    schedules: Mixings, from_files: Mapping[str, Float[np.ndarray, "layer"]]
) -> Iterator[Evidence]:
    """The share of models whose λ_t falls with depth, each at its longest prompts or as in the authors' files.

    Of the paper's models, where there is one, those of which nothing is known are counted too.
    """
    longest = {key.model: key for key in sorted(schedules, key=lambda key: key.tokens)}
    falls = [fall(f"{key.model}, {key.tokens} tokens", schedules[key]) for key in longest.values()]
    had = {*map(model_of, longest)} - {None}
    for model, mixing in from_files.items():
        if model not in had:
            half = len(mixing) // 2
            found = Estimate(float(mixing[:half].mean() - mixing[-half:].mean()))
            falls.append(Evidence(f"{model}, the authors' file", found, test=Above(least=0.0)))
    had |= {*from_files}
    falls += [Evidence(model, flaw="λ not known") for model in TABLE1 if had and model not in had]
    if falls:
        yield share("models", [one.tested(Above()) for one in falls])


def _falls(schedules: Mixings) -> Iterator[Evidence]:
    """That λ_t falls with depth, for every model, length and corpus."""
    several = len(names(schedules, "corpus")) > 1
    for key, mixing in schedules.items():
        yield fall(f"{key.model}, {key.tokens} tokens" + (f", {key.corpus}" if several else ""), mixing)


def fall(where: str, mixing: Float[np.ndarray, "prompt layer"]) -> Evidence:
    """By how much the mean of λ over the lower half of the layers exceeds that over the upper."""
    half = mixing.shape[1] // 2
    if not half:
        return Evidence(where, flaw="one layer, two needed")
    return mean(where, mixing[:, :half].mean(axis=1) - mixing[:, -half:].mean(axis=1))


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
    furthest = min(layers, key=lambda layer: layer.against)
    opposite = min(1.0, len(layers) * furthest.against)
    deciding = furthest if opposite < LEVEL else max(layers, key=lambda layer: layer.p)
    return replace(deciding, opposite=opposite)


def _table(schedules: Mixings) -> Table:
    """λ in words: bottom, lower half, upper half and top layer, by model, corpus and length."""
    rows = []
    for key, mixing in schedules.items():
        half = max(1, mixing.shape[1] // 2)
        parts = (mixing[:, 0], mixing[:, :half].mean(axis=1), mixing[:, -half:].mean(axis=1), mixing[:, -1])
        sizes = [key.model, key.corpus, str(key.tokens), str(len(mixing))]
        rows.append([*sizes, *(str(Estimate.of_mean(part)) for part in parts)])
    return Table("λ, mean ± standard error over prompts", HEAD, rows)


def _data(schedules: Mixings) -> list[dict[str, Any]]:
    """λ by layer with its standard error, by model, corpus and length."""
    rows = []
    for key, mixing in schedules.items():
        layers = [Estimate.of_mean(layer) for layer in mixing.T]
        numbers = {"mixing": [one.value for one in layers], "se": [one.se for one in layers]}
        rows.append({**vars(key), "prompts": len(mixing), **numbers})
    return rows


def _draw(schedules: Mixings, caption: str) -> "Figure":
    models, corpora = names(schedules, "model"), names(schedules, "corpus")
    size = (max(5.0, 0.5 + 3.4 * len(models)), 2.9 * len(corpora))
    figure, part = captioned_figure(*size, caption)
    panels = part.subplots(len(corpora), len(models), squeeze=False)
    for corpus, row in zip(corpora, panels, strict=True):
        for model, ax in zip(models, row, strict=True):
            series = {
                f"{key.tokens:,} tokens": mixing
                for key, mixing in schedules.items()
                if (key.model, key.corpus) == (model, corpus)
            }
            if not series:
                ax.set_axis_off()
                continue
            draw_mixing_series(ax, series)
            words = {"transform": ax.transAxes, "ha": "right", "va": "top", "fontsize": TEXT, "color": INK}
            ax.text(0.98, 0.96, f"{model}\n{corpus}", **words)
    return settle(figure)


# --- Figure 1 ----------------------------------------------------------------------------------------------


def _of_first_corpus(results: Measurements) -> Mixings:
    return _mixings(results, (key for key in results.cells if key.corpus == results.first(key.model)))


FIG1 = _study(
    "fig1",
    "λ by layer at several lengths",
    "Does the weight of attention against the residual stream fall with depth?",
    [
        Claim(
            "herasimchyk2026/fig1/1",
            "Figure 1",
            f"In most models λ {FALLS}",
            lambda results: _mostly_falls(_of_first_corpus(results), results.mixings),
            strength="hedged",
            scope=f"{SCOPE}, FineWeb-Edu, {PLOTTED:,} tokens",
            effort=EFFORT,
        )
    ],
    _of_first_corpus,
    minutes={"quick": 7.5, "full": 160},
    counts={"quick": 5, "full": 7},
    missing=lambda results: "" if results.cells else "nothing measured",
    decided_by=f"{decided_by('fig1', PLOTTED)}; the authors' rollout files hold such λ too, --configs",
)


# --- Figure 4 ----------------------------------------------------------------------------------------------


def _of_others(results: Measurements) -> Mixings:
    return _mixings(results, (key for key in results.cells if key.corpus != results.first(key.model)))


def _unchanged(results: Measurements) -> Iterator[Evidence]:
    """That λ_t of every other corpus is that of the first (as a table that shares λ assumes)."""
    schedules, first = _mixings(results, results.cells), names(results.cells, "corpus")[0]
    for key, mixing in schedules.items():
        reference = Key(key.model, first, key.tokens)
        if key.corpus != first and reference in schedules:
            yield _apart(f"{key.model}, {key.tokens} tokens, {key.corpus}", mixing, schedules[reference])


FIG4 = _study(
    "fig4",
    "λ by layer on further texts",
    "Is the schedule of λ the same on every text?",
    [
        Claim(
            "herasimchyk2026/fig4/1",
            "Figure 4",
            f"λ {FALLS}, on every text",
            lambda results: _falls(_mixings(results, results.cells)),
            **OURS,
        ),
        Claim(
            "herasimchyk2026/fig4/2",
            "Figure 4",
            "λ of further or shuffled texts is that of the first, layer by layer (within .05)",
            _unchanged,
            **OURS,
        ),
    ],
    _of_others,
    minutes={"quick": 0.5, "full": 10},
    counts={"quick": 4, "full": 4},
    options="--shuffle-tokens",
    missing=lambda results: "" if _of_others(results) else "one corpus only",
)
