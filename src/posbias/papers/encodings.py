"""Encodings under control: small models that differ in nothing else, measured, predicted and compared.

    from posbias.papers.encodings import make

    made = make("results/encodings")
    print(*made.page.claims, sep="\n")

No paper has this comparison: its models differ in size, text and training too. Predictions are the levels of
Herasimchyk et al. 2026 (rollouts of each architecture with its measured λ_t) and the energy rollout. Measurements
are kept in `cells` and found again.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.claims import Claim, Evidence, Judged, judged
from posbias.comparison import Comparison, compare_all
from posbias.estimate import Estimate
from posbias.events import OnEvent
from posbias.files import need_writable, write_text
from posbias.papers.herasimchyk2026.agreement import Agreement
from posbias.papers.herasimchyk2026.cells import Corpus, Effort, Wanted, check, gather
from posbias.papers.herasimchyk2026.levels import Curves, curves_of
from posbias.papers.herasimchyk2026.schedules import FALLS, fall
from posbias.papers.herasimchyk2026.scores import DIGITS, score_text
from posbias.plots.captions import captioned_figure, settle
from posbias.plots.encodings import SIZE, EncodingCurves, draw_encodings
from posbias.plots.style import INK, new_figure, save_figure
from posbias.predictors import PREDICTORS
from posbias.profile import Profile
from posbias.reports.pages import Page, Table
from posbias.store import save_json

if TYPE_CHECKING:
    import xarray as xr

MODELS = ("tiny-alibi", "tiny-nope", "tiny-rope", "tiny-window", "tiny-learned")
"""The family that comes with the package."""
PROMPTS = 128
CLAIMS = tuple(
    Claim("", "", sentence, provenance="ours")
    for sentence in (
        FALLS,
        "Residual-aware rollout (b) is nearer to the measured influence than attention alone (a) "
        "(difference of Wasserstein distances)",
        "The energy rollout (e) is nearer still than (b)",
    )
)


@dataclass(frozen=True, eq=False)
class Encoding:
    """One model: λ and losses by prompt, levels with measured influence, the energy rollout as level "e"."""

    mixing: np.ndarray
    loss: np.ndarray
    curves: Curves
    comparison: Comparison

    @property
    def measured(self) -> Profile:
        """Measured influence."""
        assert self.curves.measured is not None
        return self.curves.measured


@dataclass(frozen=True)
class Made:
    """What was made: pictures and pages, the page as a value, every number."""

    figures: tuple[Path, ...]
    files: tuple[Path, ...]
    page: Page
    data: Mapping[str, Any]
    seconds: float

    @property
    def written(self) -> tuple[Path, ...]:
        """All files."""
        return (*self.figures, *self.files)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the picture itself, for JSON."""
        return {
            "files": [str(path) for path in self.written],
            "claims": [claim.as_dict() for claim in self.page.claims],
            **self.data,
            "seconds": self.seconds,
        }


def make(
    folder: str | os.PathLike[str],
    *,
    models: Sequence[str] = MODELS,
    prompts: int = PROMPTS,
    tokens: int = 256,
    seed: int = 0,
    again: bool = False,
    on_event: OnEvent | None = None,
) -> Made:
    """Measure the models on the bundled text (held out of their training), and write the figure and its numbers.

    `models`: names, folders, hub ids, or `.nc` of finished measurements. Writes encodings.svg, .png, .md and
    .json into `folder`. `on_event` hears the prompts of each model. Raises `InvalidValueError` for counts that
    cannot be right, `OutputFileError` before any work if `folder` cannot be written, and as `posbias.measure`.
    """
    began, folder = time.monotonic(), Path(folder)
    effort = Effort("encodings", prompts, prompts)
    check(models, [None], [tokens], effort)
    need_writable(folder / "cells" / "cell.nc")
    new_figure()  # is matplotlib there?
    cells = gather(
        models,
        {Corpus(): Wanted((tokens,))},
        folder / "cells",
        effort,
        seed=seed,
        again=again,
        on_event=on_event,
    )
    shown = [encoding_of(cell, seed) for cell in cells.values()]
    note = (
        f"{len(shown)} models on {prompts} prompts of {tokens} tokens that none was trained on; λ is the weight "
        "of attention (Eq. 1 of Herasimchyk et al. 2026), influence the gradient of the predicted token's "
        "probability (Eq. 6). Intervals and bands: 95 % over prompts."
    )
    data = {"models": [_data(one) for one in shown]}
    page = Page("Encodings under control", note, _tables(shown), _claims(shown, seed))
    figure = _figure(shown, note)
    figures = tuple(save_figure(figure, folder / f"encodings.{kind}") for kind in ("svg", "png"))
    files = (
        write_text(folder / "encodings.md", page.markdown()),
        save_json(data | page.as_dict(), folder / "encodings.json"),
    )
    return Made(figures, files, page, data, time.monotonic() - began)


def encoding_of(measurement: "xr.Dataset", seed: int = 0) -> Encoding:
    """A measured model with its levels and, where its energy kernels were measured, the energy rollout.

    Raises `InvalidValueError` for a measurement that lacks a variable that the levels need.
    """
    curves = curves_of(measurement, str(measurement.attrs.get("text", "")))
    energy = next(one for one in PREDICTORS if one.key == "energy")
    levels = dict(curves.levels)
    if all(name in measurement for name in energy.needs):
        attrs = {"predictor": f"(e) {energy.label}"}
        levels["e"] = Profile.from_weights(energy.predict(measurement), measures="rollout", attrs=attrs)
    curves = Curves(curves.model, curves.corpus, levels, curves.measured, curves.additive, curves.remarks)
    assert curves.measured is not None
    return Encoding(
        measurement["mixing"].values,
        measurement["loss"].values,
        curves,
        compare_all(levels, curves.measured, seed=seed),
    )


def _figure(shown: Sequence[Encoding], note: str) -> Any:
    figure, part = captioned_figure(*SIZE, [(note, INK)])
    draw_encodings(
        part,
        [EncodingCurves(one.curves.model, one.mixing, one.measured, one.curves.levels) for one in shown],
    )
    return settle(figure)


def _tables(shown: Sequence[Encoding]) -> tuple[Table, ...]:
    """What was measured, and how well each prediction agrees, by score."""
    head = ["model", "perplexity", "λ bottom", "λ mean", "λ top", "first 5 %", "last 5 %", "trough", "shape"]
    measured = Table("Measured", head, [_row(one) for one in shown])
    letters = sorted({letter for one in shown for letter in one.curves.levels})
    head = ["model", *(f"({letter})" for letter in letters), "uniform", "recency only", "ceiling"]
    return (
        measured,
        *(
            Table(
                f"{score.title()} with the measured influence",
                head,
                [_scores(one, score, letters) for one in shown],
            )
            for score in DIGITS
        ),
    )


def _row(one: Encoding) -> list[str]:
    summary, loss = one.measured.summary, Estimate.of(one.loss)
    perplexity = Estimate(float(np.exp(loss.value)), float(np.exp(loss.value)) * loss.se, loss.n)
    places = (one.mixing[:, 0], one.mixing.mean(axis=1), one.mixing[:, -1])
    ends = summary.ends
    shares = (
        one.measured.share(0, ends),
        one.measured.share(one.measured.tokens - ends, one.measured.tokens),
    )
    numbers = (perplexity, *map(Estimate.of, places), *shares)
    return [one.curves.model, *map(str, numbers), str(summary.trough), str(summary.verdict)]


def _scores(one: Encoding, score: str, letters: Sequence[str]) -> list[str]:
    agreements, found = one.comparison.agreements, one.comparison
    cells = [getattr(agreements.get(letter), score, None) for letter in letters]
    cells += [getattr(baseline, score) for baseline in found.baselines.values()]
    cells.append(getattr(found.ceiling, score, None))
    return [one.curves.model, *(score_text(cell, DIGITS[score]) for cell in cells)]


def _claims(shown: Sequence[Encoding], seed: int) -> tuple[Judged, ...]:
    """What Herasimchyk et al. state of large models, on these: λ falls, the residual stream matters."""
    agreements = [Agreement(one.curves, seed) for one in shown]

    def nearer(than: str, level: str) -> list[Evidence]:
        return [
            one.difference(one.curves.model, "wasserstein", than, level)
            for one in agreements
            if level in one.curves.levels
        ]

    falls = [fall(one.curves.model, one.mixing) for one in shown]
    evidence = (falls, nearer("a", "b"), nearer("b", "e"))
    return tuple(judged(claim, pieces) for claim, pieces in zip(CLAIMS, evidence, strict=True))


def _data(one: Encoding) -> dict[str, Any]:
    """Every number behind the figure, in full."""
    se = one.measured.se
    return {
        "model": one.curves.model,
        "loss": _estimate(one.loss),
        "mixing": [_estimate(layer) for layer in one.mixing.T],
        "influence": {
            "mass": one.measured.mass.tolist(),
            "se": None if se is None else np.asarray(se).tolist(),
            "summary": one.measured.summary.as_dict(),
        },
        "predictions": {letter: level.mass.tolist() for letter, level in one.curves.levels.items()},
        "agreement": one.comparison.as_dict(),
    }


def _estimate(samples: np.ndarray) -> dict[str, float | None]:
    estimate = Estimate.of(samples)
    return {"value": estimate.value, "se": estimate.se, "n": estimate.n}
