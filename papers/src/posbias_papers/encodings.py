"""Encodings under control: small models that differ in nothing else, measured, predicted and compared.

    from posbias_papers.encodings import make

    made = make("results/encodings")
    print(*made.page.claims, sep="\n")

No paper has this comparison: its models differ in size, text and training too. Predictions are the levels of
Herasimchyk et al. 2026 (rollouts of each architecture with its measured λ_t) and the energy rollout. Measurements
are kept in `cells` and found again.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.comparison.predictors import PREDICTORS
from posbias.core.errors import whole
from posbias.core.files import need_writable, write_text
from posbias.core.formats import save_json
from posbias.core.progress import OnEvent
from posbias.profiles.claims import Claim, Evidence, Judged, judged
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias.reports.answers.numbers import Comparison
from posbias.reports.plots import style
from posbias.reports.plots.influence import (
    INFLUENCE,
    POSITION,
    density,
    draw_band,
    predictor_label,
    scale_influence,
)
from posbias.reports.plots.style import new_figure, save_figure
from posbias_papers.herasimchyk2026.figures import DIGITS, score_text
from posbias_papers.herasimchyk2026.levels import Curves, curves_of
from posbias_papers.herasimchyk2026.measure import Corpus, Effort, check, gather
from posbias_papers.herasimchyk2026.table import NOISE, fall, scores_of
from posbias_papers.pages import Page, Table
from posbias_papers.plots.captions import captioned_figure, settle
from posbias_papers.plots.levels import draw_mixing_series

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

MODELS = ("tiny-alibi", "tiny-nope", "tiny-rope", "tiny-window", "tiny-learned")
"""The family that comes with the package."""
PROMPTS = 128
SIZE = (7.6, 4.6)
"""Inches that `draw_encodings` takes with five models."""
DRAWN = ("a", "b", "e")
"""Predictions that are drawn, by letter, where a model has them."""
FAINTEST = 1e-3
"""Influence below this, in units of an even spread, lies outside the picture."""
_COLOUR = dict(
    zip(DRAWN, (style.COLOURS[one] for one in ("attention_only", "positional", "energy")), strict=True)
)
CLAIMS = tuple(
    Claim("", "", sentence, provenance="ours")
    for sentence in (
        "λ falls with depth: its mean over the lower half of the layers exceeds that over the upper",
        "Residual-aware rollout (b) is nearer to the measured influence than attention alone (a) "
        "(difference of Wasserstein distances)",
        "The energy rollout (e) is nearer still than (b)",
    )
)


@dataclass(frozen=True, eq=False)
class Encoding:
    """One model: λ and losses by prompt, and its curves, of which level "e" is the energy rollout."""

    mixing: np.ndarray
    loss: np.ndarray
    curves: Curves


@dataclass(frozen=True)
class Made:
    """What was made: the files, the page as a value, every number."""

    written: tuple[Path, ...]
    page: Page
    data: Mapping[str, Any]
    seconds: float

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
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> Made:
    """Measure the models on the bundled text (held out of their training), and write the figure and its numbers.

    `models`: names, folders, hub ids, or `.nc` of finished measurements. Writes encodings.svg, .png, .md and
    .json into `folder`. `threads` as in `measure`; `on_event` hears the prompts of each model. Raises
    `InvalidValueError` for counts that cannot be right, `OutputFileError` before any work if `folder` cannot be
    written, and as `posbias.measure`.
    """
    began, folder = time.monotonic(), Path(folder)
    effort = Effort("encodings", prompts, prompts)
    whole("tokens", tokens, 3)
    whole("seed", seed, 0)
    check(models, [None], [tokens], effort)
    need_writable(folder / "cells" / "cell.nc")
    new_figure()  # is matplotlib there?
    options: dict[str, Any] = {"seed": seed, "again": again, "threads": threads, "on_event": on_event}
    cells = gather(models, {Corpus(): {tokens: False}}, folder / "cells", effort, **options)
    shown = [encoding_of(cell, seed) for cell in cells.values()]
    note = (
        f"{len(shown)} models on {prompts} prompts of {tokens} tokens that none was trained on; λ is the weight "
        "of attention (Eq. 1 of Herasimchyk et al. 2026), influence the gradient of the predicted token's "
        "probability (Eq. 6). Intervals and bands: 95 % over prompts."
    )
    data = {"models": [_data(one) for one in shown]}
    page = Page("Encodings under control", note, _tables(shown), _claims(shown))
    figure, part = captioned_figure(*SIZE, note)
    draw_encodings(part, shown)
    settle(figure)
    written = (
        *(save_figure(figure, folder / f"encodings.{kind}") for kind in ("svg", "png")),
        write_text(folder / "encodings.md", page.markdown()),
        save_json(data | page.as_dict(), folder / "encodings.json"),
    )
    return Made(written, page, data, time.monotonic() - began)


def encoding_of(measurement: "xr.Dataset", seed: int = 0) -> Encoding:
    """A measured model with its levels and, where its energy kernels were measured, the energy rollout.

    Raises `InvalidValueError` for a measurement that lacks a variable that the levels need.
    """
    curves = curves_of(measurement, str(measurement.attrs.get("text", "")), seed=seed, more=_energy)
    return Encoding(measurement["mixing"].values, measurement["loss"].values, curves)


def _energy(measurement: "xr.Dataset") -> dict[str, Profile]:
    """Level (e), where energy kernels were measured."""
    energy = next(one for one in PREDICTORS if one.key == "energy")
    if any(name not in measurement for name in energy.needs):
        return {}
    attrs = {"predictor": f"(e) {energy.label}"}
    return {"e": Profile.from_weights(energy.predict(measurement), measures="rollout", attrs=attrs)}


def _tables(shown: Sequence[Encoding]) -> tuple[Table, ...]:
    """What was measured, and how well each prediction agrees, by score."""
    head = ["model", "perplexity", "λ bottom", "λ mean", "λ top", "first 5 %", "last 5 %", "trough", "shape"]
    measured = Table("Measured", head, [_row(one) for one in shown])
    letters = sorted({letter for one in shown for letter in one.curves.levels})
    head = ["model", *(f"({letter})" for letter in letters), "uniform", "recency only", *NOISE.values()]
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
    measured, loss = one.curves.influence, Estimate.of_mean(one.loss)
    summary, ends, perplexity = measured.summary, measured.summary.ends, float(np.exp(loss.value))
    numbers = (
        Estimate(perplexity, perplexity * loss.se, loss.n),
        *map(Estimate.of_mean, (one.mixing[:, 0], one.mixing.mean(axis=1), one.mixing[:, -1])),
        measured.share(0, ends),
        measured.share(measured.tokens - ends, measured.tokens),
    )
    return [one.curves.model, *map(str, numbers), str(summary.trough), str(summary.verdict)]


def _scores(one: Encoding, score: str, letters: Sequence[str]) -> list[str]:
    found, names = scores_of(one.curves), [*letters, "uniform", "recency_only", *NOISE]
    texts = (score_text(getattr(found.get(name), score, None), DIGITS[score]) for name in names)
    return [one.curves.model, *texts]


def _claims(shown: Sequence[Encoding]) -> tuple[Judged, ...]:
    """What Herasimchyk et al. state of large models, on these: λ falls, the residual stream matters."""

    def nearer(than: str, level: str) -> list[Evidence]:
        known = [one.curves for one in shown if level in one.curves.levels]
        return [
            Evidence(one.model, one.ahead("wasserstein", one.levels[level], one.levels[than]))
            for one in known
        ]

    falls = [Evidence(one.curves.model, fall(one.mixing)) for one in shown]
    evidence = (falls, nearer("a", "b"), nearer("b", "e"))
    return tuple(judged(claim, pieces) for claim, pieces in zip(CLAIMS, evidence, strict=True))


def _data(one: Encoding) -> dict[str, Any]:
    """Every number behind the figure, in full."""
    measured = one.curves.influence
    return {
        "model": one.curves.model,
        "loss": _estimate(one.loss),
        "mixing": [_estimate(layer) for layer in one.mixing.T],
        "influence": {
            "mass": measured.mass,
            "se": measured.se,
            "summary": asdict(measured.summary),
        },
        "predictions": {letter: level.mass for letter, level in one.curves.levels.items()},
        "agreement": Comparison.of(one.curves.comparison).model_dump(mode="json"),
    }


def _estimate(samples: np.ndarray) -> dict[str, float | None]:
    estimate = Estimate.of_mean(samples)
    return {"value": estimate.value, "se": estimate.se, "n": estimate.n}


# --- drawing -----------------------------------------------------------------------------------------------


def draw_encodings(part: "Figure | SubFigure", shown: Sequence[Encoding]) -> "Figure | SubFigure":
    """Draw above mixing by layer and influence by position of all models, each with its 95 % band; below, for each
    model, measured influence with its band and the predictions over it. Influence panels share one scale.
    """
    rows: Any = part.subfigures(2, 1, height_ratios=(1.15, 1.0))
    above, below = rows
    left, right = above.subplots(1, 2)
    draw_mixing_series(left, {one.curves.model: one.mixing for one in shown})
    style.key(left, 3)
    draw_measured(right, shown)
    panels = below.subplots(1, len(shown), squeeze=False)[0]
    for place, (one, ax) in enumerate(zip(shown, panels, strict=True)):
        draw_predicted(ax, one, style.SERIES[place % len(style.SERIES)])
        ax.tick_params(labelleft=place == 0)
        if place:
            ax.set_ylabel("")
    heights = np.concatenate([density(one.curves.influence) for one in shown])
    low, high = max(FAINTEST, min(0.5, float(heights.min()) / 2)), 1.5 * float(heights.max())
    for ax in (right, *panels):
        scale_influence(ax, low, high)
    handles, labels = panels[0].get_legend_handles_labels()
    below.legend(handles, labels, loc="outside lower center", ncols=4, **style.LEGEND)
    return part


def draw_measured(ax: "Axes", shown: Sequence[Encoding]) -> "Axes":
    """Draw measured influence of several models with 95 % bands, in units of an even spread.

    Colours are those of `draw_mixing_series`, whose legend names the models.
    """
    style.dress(ax, POSITION, INFLUENCE)
    style.level_line(ax, 1)
    for place, one in enumerate(shown):
        colour = style.SERIES[place % len(style.SERIES)]
        draw_band(ax, one.curves.influence, colour, 0.2)
        ax.plot(density(one.curves.influence), color=colour, linewidth=0.8, label=one.curves.model)
    return ax


def draw_predicted(ax: "Axes", one: Encoding, colour: str) -> "Axes":
    """Draw one model's measured influence, its 95 % band, and its predictions (`DRAWN`), named above the axes."""
    style.dress(ax, POSITION, INFLUENCE)
    draw_band(ax, one.curves.influence, style.MUTED, 0.35)
    ax.plot(
        density(one.curves.influence), color=style.INK, linewidth=0.6, label="measured, 95 % band", zorder=5
    )
    for letter in DRAWN:
        if letter in one.curves.levels:
            height, colour_of = density(one.curves.levels[letter]), _COLOUR[letter]
            label = predictor_label(letter, one.curves.levels[letter])
            ax.plot(height, color=colour_of, linewidth=style.LINE, label=label)
            ax.plot(0, height[0], "o", color=colour_of, markersize=2.5)
    style.whole_numbers(ax.xaxis, 3)
    ax.set_title(one.curves.model, fontsize=style.SMALL, color=colour, loc="left", pad=3)
    return ax
