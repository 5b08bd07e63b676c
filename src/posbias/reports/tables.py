"""The report's tables, as text by row and column: for a page and for a terminal."""

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.comparison.agreement import PAIRED, ROWS
from posbias.comparison.scores import Agreement, Comparison, HeldOut
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias.reports.profile_sentences import ends_of, percent
from posbias.reports.sentences import LABELS, MEASURES, Findings, digits_of, interval, number

if TYPE_CHECKING:
    import xarray as xr

_NEGLIGIBLE = 1e-4
"""Half an interval below which a difference is shown as known."""
_BASELINES = {"uniform": "uniform", "recency_only": "1/(distance + 1)"}


@dataclass(frozen=True)
class TableCell:
    """A value, its interval or error in small print, and whether it is the best of its kind."""

    value: str
    around: str = ""
    best: bool = False

    def __str__(self) -> str:
        return f"{self.value} {self.around}".rstrip()


@dataclass(frozen=True)
class Row:
    """A line of a table: its name, its cells, and `kind`, by which lines are set apart."""

    name: str
    cells: list[TableCell]
    kind: str = ""


def scores(comparison: Comparison, names: Mapping[str, str] = LABELS) -> list[Row]:
    """Predictors, then baselines, then what noise allows, by `MEASURES`."""
    noise, rows = comparison.reliability, {}
    if noise is not None:
        rows = {label: getattr(noise, name) for name, label in ROWS.items()}
        if comparison.same_prompts is not None:
            rows = {ROWS["split_half"]: noise.split_half, PAIRED: comparison.same_prompts}
    return _scores(comparison, comparison, rows, names)


def held_out(comparison: Comparison) -> list[Row]:
    """The same of scores on prompts that the predictors did not use; nothing where there are none."""
    found, noise = comparison.held_out, comparison.reliability
    if found is None:
        return []
    rows = {"noise ceiling against half the prompts (estimated)": noise.noiseless_half} if noise else {}
    return _scores(comparison, found, rows, LABELS)


def _scores(
    comparison: Comparison,
    judged: Comparison | HeldOut,
    noise: Mapping[str, Agreement],
    names: Mapping[str, str],
) -> list[Row]:
    """A row for each agreement; only predictors compete for the best."""
    best = [measure.best(judged.agreements) for measure in MEASURES]
    digits = [measure.digits_in(comparison) for measure in MEASURES]

    def row(name: str, agreement: Agreement, kind: str, key: str = "") -> Row:
        found = zip(MEASURES, digits, best, strict=True)
        shown = [(measure.of(agreement), places, key in keys) for measure, places, keys in found]
        return Row(
            name, [TableCell(number(one.value, k), interval(one, k), top) for one, k, top in shown], kind
        )

    rows = [row(names.get(key, key), one, "predictor", key) for key, one in judged.agreements.items()]
    rows += [row(_BASELINES.get(key, key), one, "baseline") for key, one in judged.baselines.items()]
    return rows + [row(label, one, "reference") for label, one in noise.items()]


def differences(found: Findings) -> list[Row]:
    """Every pair of predictors: the scores of one minus those of the other; set in bold where 0 is left out."""

    def cell(score: Estimate, usual: int) -> TableCell:
        reach = score.half_width if score.bounds else 0.0
        sure = reach <= _NEGLIGIBLE
        digits = usual if sure else digits_of(reach)
        return TableCell(number(score.value, digits), "" if sure else interval(score, digits), score.tells())

    rows = []
    for pair in found.judged.differences:
        cells = [cell(measure.of(pair.scores), measure.digits) for measure in MEASURES]
        rows.append(Row(" − ".join(LABELS.get(key, key) for key in (pair.more, pair.less)), cells))
    return rows


def shapes(found: Findings) -> list[Row]:
    """The statistics of the measured profile, with errors where they are known, and of each prediction."""
    measured = Row("measured", _shape(found.measured, found.trough_range), "reference")
    others = found.predictions.items()
    return [measured, *(Row(LABELS.get(key, key), _shape(one), "predictor") for key, one in others)]


def _shape(profile: Profile, span: tuple[int, int] | None = None) -> list[TableCell]:
    """The cells of a profile, whose trough is surely within `span`."""
    s, depth = profile.summary, _share(profile.trough_depth, 1)
    first = Estimate(float(profile.mass[0]), math.nan if profile.se is None else float(profile.se[0]))
    fitted = [depth.around, "cross-fitted" * profile.cross_fitted]
    return [
        TableCell(s.verdict or "–", "; ".join(s.ends_alone)),
        *(_share(one, 2) for one in (first, *ends_of(profile))),
        TableCell(" : ".join(f"{one:.2f}" for one in s.ratio)),
        TableCell(str(s.trough), "" if span is None else str([*span])),
        TableCell(depth.value, ", ".join(filter(None, fitted))),
        TableCell("–" if s.reaches_all else f"{s.effective_range} tokens"),
        TableCell(f"{s.entropy:.2f}"),
    ]


def _share(estimate: Estimate, digits: int) -> TableCell:
    """A share with its error, or where that is not known with these digits."""
    if not estimate.se > 0:
        return TableCell(f"{100 * estimate.value:.{digits}f} %")
    value, _, error = percent(estimate).removesuffix(" %").partition(" ± ")
    return TableCell(f"{value} %", f"± {error}")


def layers(measurement: "xr.Dataset") -> list[Row]:
    """Layer by layer: both weights of attention with their standard errors, and what token 0 draws and weighs."""
    sinks, norms = measurement["sink_share"].values, measurement["residual_norm"].values
    ratio = norms[:, 0] / np.median(norms[:, 1:], axis=1)
    rows = []
    for layer, share in enumerate(sinks):
        mixing = [Estimate.of_mean(measurement[name].values[:, layer]) for name in ("mixing", "mixing_token")]
        shares = [f"{100 * of_heads:.1f} %" for of_heads in (share.mean(), share.max())]
        rows.append(
            Row(str(layer), [TableCell(str(one)) for one in (*mixing, *shares, f"{ratio[layer]:.3g}")])
        )
    return rows


def provenance(attributes: Mapping[Any, Any], seed: int) -> dict[str, str]:
    """What made the measurement, by name; JSON is taken apart."""
    entries = {"seed of the resampling": seed, **attributes}
    return {str(name).replace("_", " "): _words(value) for name, value in entries.items()}


def _words(value: Any) -> str:
    """A value for people: what lies within JSON by name, numbers with three digits."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        with contextlib.suppress(json.JSONDecodeError):
            value = json.loads(value)
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_words(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
