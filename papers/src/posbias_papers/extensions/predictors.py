"""The fair test of predictors: does any of them predict measured position bias where it was not chosen?

The protocol is `docs/predictors.md`, committed before the runs. What each cell found is in `predictors.jsonl`
(`extensions/run_predictors.py` made it, `predictor_trials` says how); here it is judged: every pair of
predictors by Holm's correction over its cells.
"""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from posbias.comparison.predictors import PREDICTORS
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import LEVEL, Above, Below, Evidence
from posbias.reports.pages import Table
from posbias_papers.claims import AtHand, claims_of
from posbias_papers.extensions.predictor_trials import COLUMN, IGNORANT, estimate
from posbias_papers.study import Study

FILE = Path(__file__).with_name("predictors.jsonl")
CEILING = 0.3
"""Cells whose noise ceiling by rank is below this tell nothing by rank."""
MOST = 0.75
"""The share of a model's cells in which a predictor that predicts it wins."""
RANK, PLACE = "spearman", "wasserstein"
Side = Literal["win", "loss", "open"]
SIDES: tuple[Side, ...] = ("win", "loss", "open")
Cell = Mapping[str, Any]


@functools.cache
def cells() -> tuple[Cell, ...]:
    """What each cell found, in the order of the runs."""
    return tuple(json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines())


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: the k-th smallest of m times m − k + 1, never below one before it, at most 1.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted.tolist()


def differences(more: str, less: str, score: str, among: Sequence[Cell]) -> dict[int, Estimate]:
    """The paired difference of a score in each cell, by the cell's place; cells that cannot tell are left out."""
    found = {}
    for place, one in enumerate(among):
        ceiling = one["noise"]["noiseless"][RANK]
        told = estimate(one["differences"][f"{more} - {less}"][score])
        if told is not None and (score != RANK or (ceiling is not None and ceiling[0] >= CEILING)):
            found[place] = told
    return found


def sides(more: str, less: str, score: str, among: Sequence[Cell]) -> dict[int, Side]:
    """In which cells `more` wins against `less`, loses, or is open (not told apart), after Holm over all cells."""
    found = differences(more, less, score, among)
    better = [(-one if score == PLACE else one).p_above() for one in found.values()]
    adjusted = holm([min(1.0, 2.0 * min(p, 1.0 - p)) for p in better])
    return {
        place: "open" if p >= LEVEL else "win" if side < 0.5 else "loss"
        for place, side, p in zip(found, better, adjusted, strict=True)
    }


def predicted(key: str, among: Sequence[Cell]) -> dict[str, bool]:
    """Whether a predictor predicts each model: better than recency by both scores in most cells, worse in none."""
    told = dict.fromkeys(_models(among), True)
    for score in (RANK, PLACE):
        found = sides(key, "recency", score, among)
        for model in told:
            own = [side for place, side in found.items() if among[place]["model"] == model]
            told[model] &= bool(own) and "loss" not in own and own.count("win") >= MOST * len(own)
    return told


def counts(more: str, less: str, score: str, among: Sequence[Cell]) -> dict[str, str]:
    """'wins:losses:open' of a pair by model."""
    found = sides(more, less, score, among)
    told = {}
    for model in _models(among):
        own = [side for place, side in found.items() if among[place]["model"] == model]
        told[model] = ":".join(str(own.count(side)) for side in SIDES) if own else "–"
    return told


def _models(among: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(one["model"] for one in among))


def _evidence(more: str, less: str, score: str, model: str = "") -> Iterator[Evidence]:
    """The paired differences of all cells, or of one model's."""
    for place, found in differences(more, less, score, cells()).items():
        one = cells()[place]
        if model in ("", one["model"]):
            yield Evidence(f"{one['model']}, {one['text']}, {one['tokens']} tokens", found)


def basis() -> str:
    """'44 cells of 6 models'."""
    return f"{len(cells())} cells of {len(_models(cells()))} models"


def _tables(results: Any) -> Iterator[Table]:
    models = _models(cells())
    questions = [
        ("energy", "measured_kernels", (RANK, PLACE)),
        *((one.key, "recency", (RANK, PLACE)) for one in PREDICTORS),
        *((one.key, "even", (PLACE,)) for one in PREDICTORS),
        *((f"{key}_weighed", other, (RANK, PLACE)) for key in COLUMN for other in (key, f"{key}_dropped")),
        *((f"{key}_dropped", key, (RANK, PLACE)) for key in COLUMN),
    ]
    rows = [
        [f"{more} against {less}", score.capitalize(), *counts(more, less, score, cells()).values()]
        for more, less, scores in questions
        for score in scores
    ]
    yield Table("Cells won:lost:open after Holm's correction", ("pair", "score", *models), rows)
    yield Table(
        "Which models each predicts: better than recency alone by both scores in three quarters of the cells",
        ("predictor", *models),
        [
            [one.label, *("yes" if told else "no" for told in predicted(one.key, cells()).values())]
            for one in PREDICTORS
        ],
    )
    yield Table(
        "Scores, held out, ± standard error: Spearman / Wasserstein",
        ("model", "text", "tokens", *(one.key for one in PREDICTORS), *IGNORANT, "noise ceiling"),
        [_scores(one) for one in cells()],
    )


def _score(told: list[float | None] | None, digits: int) -> str:
    """'0.57 ± 0.04', an estimate and its standard error; '0.57' where that is not known."""
    if told is None:
        return "–"
    return f"{told[0]:.{digits}f}" + ("" if told[1] is None else f" ± {told[1]:.{digits}f}")


def _ceiling(told: list[float] | None, digits: int) -> str:
    """'0.44 (0.17 to 0.64)': a noise row, which has an interval."""
    return "–" if told is None else f"{told[0]:.{digits}f} ({told[1]:.{digits}f} to {told[2]:.{digits}f})"


def _scores(one: Cell) -> list[str]:
    def pair(scores: Mapping[str, Any], told: Callable[[Any, int], str]) -> str:
        return f"{told(scores[RANK], 2)} / {told(scores[PLACE], 3)}"

    names = [*(each.key for each in PREDICTORS), *IGNORANT]
    told = [pair(one["scores"][name], _score) for name in names]
    return [
        one["model"],
        one["text"],
        str(one["tokens"]),
        *told,
        pair(one["noise"]["noiseless_half"], _ceiling),
    ]


_claim = claims_of(
    "ours/predictors",
    "docs/predictors.md",
    provenance="ours",
    scope="the gradient influence of small decoders of ours and of SmolLM2-135M on four texts",
    effort="64 prompts a cell (32 of 1,024 tokens), predicted from one half and judged on the other",
)
_SINK = "smollm2-135m"


def _of(more: str, less: str, score: str, model: str = "") -> AtHand:
    return AtHand(lambda: _evidence(more, less, score, model), "the runs on record")


_HIGHER, _NEARER = Above(least=0.0), Below(least=0.0)
CLAIMS = (
    _claim(
        1,
        "The energy rollout ranks positions better than the residual-aware rollout of measured kernels",
        _of("energy", "measured_kernels", RANK),
        _HIGHER,
    ),
    _claim(
        2,
        "It places influence nearer to where it is, by Wasserstein",
        _of("energy", "measured_kernels", PLACE),
        _NEARER,
    ),
    _claim(3, "The energy rollout ranks better than recency alone", _of("energy", "recency", RANK), _HIGHER),
    _claim(4, "It is nearer than recency alone", _of("energy", "recency", PLACE), _NEARER),
    _claim(
        5,
        "Weighed by norms, the rollout of fitted logits is nearer than as it is in the model with a sink",
        _of("fitted_weighed", "fitted", PLACE, _SINK),
        _NEARER,
    ),
    _claim(
        6,
        "So is the rollout of measured kernels",
        _of("measured_kernels_weighed", "measured_kernels", PLACE, _SINK),
        _NEARER,
    ),
    _claim(
        7,
        "Weighing is as good as dropping the sink's column of fitted logits there, up to .01 of Wasserstein",
        _of("fitted_weighed", "fitted_dropped", PLACE, _SINK),
        Below(0.01, least=0.0),
    ),
)
STUDY = Study(
    "ours/predictors",
    "a fair test of predictors",
    "Does a predictor of position bias predict it on models, texts and lengths that had no part in its choice?",
    (),
    CLAIMS,
    {"quick": 2, "full": 2},
    "runs",
    {"quick": 0.05, "full": 0.05},
    _tables,
    lambda results: {"cells": [*cells()]},
    lambda results: f"{basis()}; the protocol was written before the runs, in docs/predictors.md",
)
"""The test as a study without cells of its own: nothing is measured for it anew."""
