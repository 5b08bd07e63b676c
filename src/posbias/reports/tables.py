"""The report's tables, as text by row and column: for a page and for a terminal."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.comparison.agreement import PAIRED, ROWS
from posbias.comparison.scores import Agreement, Comparison
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias.reports.profile_sentences import ends_of, percent
from posbias.reports.sentences import LABELS, MEASURES, Findings, decided, digits_of, interval, number

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
    return _scores(comparison, comparison.agreements, comparison.baselines, rows, names)


def held_out(comparison: Comparison) -> list[Row]:
    """The same of scores on prompts that the predictors did not use; nothing where there are none."""
    found, noise = comparison.held_out, comparison.reliability
    if found is None:
        return []
    rows = {"noise ceiling against half the prompts (estimated)": noise.noiseless_half} if noise else {}
    return _scores(comparison, found.agreements, found.baselines, rows, LABELS)


def _scores(
    comparison: Comparison,
    agreements: Mapping[str, Agreement],
    baselines: Mapping[str, Agreement],
    noise: Mapping[str, Agreement],
    names: Mapping[str, str],
) -> list[Row]:
    """A row for each agreement; only predictors compete for the best."""
    best = [measure.best(agreements) for measure in MEASURES]
    digits = [measure.digits_in(comparison) for measure in MEASURES]

    def row(name: str, agreement: Agreement, kind: str, key: str = "") -> Row:
        found = zip(MEASURES, digits, best, strict=True)
        shown = [(measure.of(agreement), places, key in keys) for measure, places, keys in found]
        return Row(
            name, [TableCell(number(one.value, k), interval(one, k), top) for one, k, top in shown], kind
        )

    rows = [row(names.get(key, key), one, "predictor", key) for key, one in agreements.items()]
    rows += [row(_BASELINES.get(key, key), one, "baseline") for key, one in baselines.items()]
    return rows + [row(label, one, "reference") for label, one in noise.items()]


def differences(found: Findings) -> list[Row]:
    """Every pair of predictors: the scores of one minus those of the other; set in bold where 0 is left out."""

    def cell(score: Estimate, usual: int) -> TableCell:
        reach = score.half_width if score.bounds else 0.0
        sure = reach <= _NEGLIGIBLE
        digits = usual if sure else digits_of(reach)
        return TableCell(number(score.value, digits), "" if sure else interval(score, digits), decided(score))

    return [
        Row(
            f"{LABELS.get(pair.more, pair.more)} − {LABELS.get(pair.less, pair.less)}",
            [cell(measure.of(pair.scores), measure.digits) for measure in MEASURES],
        )
        for pair in found.judged.differences
    ]


def shapes(found: Findings) -> list[Row]:
    """The statistics of the measured profile, with errors where they are known, and of each prediction."""
    measured, (first, last) = found.measured, ends_of(found.measured)
    rows = [Row("measured", _shape(measured), "reference")]
    cells, fitted = rows[0].cells, rows[0].cells[6].around
    cells[2], cells[3], depth = map(_share, (first, last, measured.trough_depth))
    cells[6] = TableCell(depth.value, ", ".join(filter(None, (depth.around, fitted))))
    if measured.se is not None:
        cells[1] = _share(Estimate(float(measured.mass[0]), float(measured.se[0]), first.n))
    if found.trough_range is not None:
        cells[5] = TableCell(cells[5].value, str([*found.trough_range]))
    return rows + [
        Row(LABELS.get(key, key), _shape(one), "predictor") for key, one in found.predictions.items()
    ]


def _share(estimate: Estimate) -> TableCell:
    value, _, error = percent(estimate).removesuffix(" %").partition(" ± ")
    return TableCell(f"{value} %", f"± {error}" if error else "")


def _shape(profile: Profile) -> list[TableCell]:
    s = profile.summary
    return [
        TableCell(s.verdict or "–", "; ".join(s.ends_alone)),
        TableCell(f"{100 * profile.mass[0]:.2f} %"),
        TableCell(f"{100 * s.first_mass:.2f} %"),
        TableCell(f"{100 * s.last_mass:.2f} %"),
        TableCell(" : ".join(f"{one:.2f}" for one in s.ratio)),
        TableCell(str(s.trough)),
        TableCell(f"{100 * s.trough_depth:.1f} %", "cross-fitted" if profile.cross_fitted else ""),
        TableCell("–" if s.reaches_all else f"{s.effective_range} tokens"),
        TableCell(f"{s.entropy:.2f}"),
    ]


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
