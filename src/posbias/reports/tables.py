"""The report's tables, as text by row and column."""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posbias.comparison.reliability import ROWS
from posbias.comparison.scores import Agreement, Comparison
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias.reports.evidence import Findings, Judged
from posbias.reports.scores import LABELS, MEASURES, Measure, decided, digits_of, interval, number, percent

if TYPE_CHECKING:
    import xarray as xr

_NEGLIGIBLE = 1e-4
"""Half an interval below which a difference is shown as known."""
_BASELINES = {"uniform": "even spread", "recency_only": "1/(distance + 1)"}


@dataclass(frozen=True)
class Cell:
    """A value, its interval or error in small print, and whether it is the best of its kind."""

    value: str
    around: str = ""
    best: bool = False


@dataclass(frozen=True)
class Row:
    """A line of a table: its name, its cells, and `kind`, by which lines are set apart."""

    name: str
    cells: list[Cell]
    kind: str = ""


def scores(comparison: Comparison) -> list[Row]:
    """Predictors, then baselines, then what noise allows, by `MEASURES`."""
    noise = comparison.reliability
    rows = {label: getattr(noise, name) for name, label in ROWS.items()} if noise is not None else {}
    return _scores(comparison, comparison.agreements, comparison.baselines, rows)


def held_out(comparison: Comparison) -> list[Row]:
    """The same of scores on prompts that the predictors did not use; nothing where there are none."""
    found, noise = comparison.held_out, comparison.reliability
    if found is None:
        return []
    rows = {"noise ceiling against half the prompts (estimated)": noise.noiseless_half} if noise else {}
    return _scores(comparison, found.agreements, found.baselines, rows)


def _scores(
    comparison: Comparison,
    agreements: Mapping[str, Agreement],
    baselines: Mapping[str, Agreement],
    noise: Mapping[str, Agreement],
) -> list[Row]:
    """A row for each agreement; only predictors compete for the best."""
    best = {measure.field: measure.best(agreements) for measure in MEASURES}
    digits = {measure.field: measure.digits_in(comparison) for measure in MEASURES}

    def cell(measure: Measure, agreement: Agreement, key: str) -> Cell:
        score, shown = measure.of(agreement), digits[measure.field]
        return Cell(number(score.value, shown), interval(score, shown), key in best[measure.field])

    def row(name: str, agreement: Agreement, kind: str, key: str = "") -> Row:
        return Row(name, [cell(measure, agreement, key) for measure in MEASURES], kind)

    rows = [row(LABELS.get(key, key), one, "predictor", key) for key, one in agreements.items()]
    rows += [row(_BASELINES.get(key, key), one, "baseline") for key, one in baselines.items()]
    return rows + [row(label, one, "reference") for label, one in noise.items()]


def differences(judged: Judged) -> list[Row]:
    """Every pair of predictors: the scores of one minus those of the other; set in bold where 0 is left out."""
    rows = []
    for pair in judged.differences:
        cells = []
        for measure in MEASURES:
            score = measure.of(pair.scores)
            reach = score.half_width if score.bounds else 0.0
            digits, around = measure.digits, ""
            if reach > _NEGLIGIBLE:
                digits = digits_of(reach)
                around = interval(score, digits)
            cells.append(Cell(number(score.value, digits), around, decided(score)))
        rows.append(Row(f"{LABELS.get(pair.more, pair.more)} − {LABELS.get(pair.less, pair.less)}", cells))
    return rows


SHAPE_COLUMNS = (
    "verdict",
    "token 0",
    "first 5 %",
    "last 5 %",
    "density first : middle : last",
    "trough at",
    "below even",
    "90 % within",
    "entropy (nats)",
)


def shapes(found: Findings) -> list[Row]:
    """The statistics of the measured profile, with errors where they are known, and of each prediction."""
    measured, shape = found.measured, found.shape
    lead = _shape_cells(measured)
    lead[2], lead[3], depth = map(_share, (shape.first, shape.last, shape.depth))
    around = [part for part in (depth.around, lead[6].around) if part]
    lead[6] = Cell(depth.value, ", ".join(around))
    if measured.se is not None:
        lead[1] = _share(Estimate(float(measured.mass[0]), float(measured.se[0]), shape.first.n))
    if shape.trough_range is not None:
        lead[5] = Cell(str(measured.summary.trough), "[{}, {}]".format(*shape.trough_range))
    rows = [Row("measured", lead, "reference")]
    for key, profile in found.predictions.items():
        rows.append(Row(LABELS.get(key, key), _shape_cells(profile), "predictor"))
    return rows


def _share(estimate: Estimate) -> Cell:
    value, _, error = percent(estimate).removesuffix(" %").partition(" ± ")
    return Cell(f"{value} %", f"± {error}" if error else "")


def _shape_cells(profile: Profile) -> list[Cell]:
    s = profile.summary
    texts = (
        Cell(s.verdict or "–", "; ".join(s.ends_alone)),
        f"{100 * profile.mass[0]:.2f} %",
        f"{100 * s.first_mass:.2f} %",
        f"{100 * s.last_mass:.2f} %",
        " : ".join(f"{one:.2f}" for one in s.ratio),
        str(s.trough),
        Cell(f"{100 * s.trough_depth:.1f} %", "cross-fitted" if profile.cross_fitted else ""),
        "–" if s.reaches_all else f"{s.effective_range} tokens",
        f"{s.entropy:.2f}",
    )
    return [text if isinstance(text, Cell) else Cell(text) for text in texts]


LAYER_COLUMNS = ("λ_t", "λ by token", "attention on token 0", "largest head", "norm of token 0 / others")


def layers(measurement: "xr.Dataset") -> list[Row]:
    """Layer by layer: both weights of attention with their standard errors, and what token 0 draws and weighs."""
    import numpy as np

    sinks, norms = measurement["sink_share"].values, measurement["residual_norm"].values
    ratio = norms[:, 0] / np.median(norms[:, 1:], axis=1)
    rows = []
    for layer, share in enumerate(sinks):
        mixing = [
            str(Estimate.of_mean(measurement[name].values[:, layer])) for name in ("mixing", "mixing_token")
        ]
        shares = [f"{100 * of_heads:.1f} %" for of_heads in (share.mean(), share.max())]
        rows.append(Row(str(layer), [Cell(text) for text in (*mixing, *shares, f"{ratio[layer]:.3g}")]))
    return rows


_ATTRIBUTES = {
    "model": "model",
    "family": "family",
    "checksum": "checksum of the model",
    "text": "text",
    "text_sha256": "SHA-256 of the text",
    "tokens": "tokens in a prompt",
    "prompts": "prompts",
    "bos": "prompts begin with",
    "seed": "seed of the prompts",
    "depth": "layers",
    "heads": "heads",
    "hidden_size": "width",
    "dtype": "number type",
    "device": "device",
    "attention": "attention implementation",
    "selfcheck": "self-check",
    "seconds": "seconds taken",
    "versions": "versions",
    "created": "measured at",
    "starts": "where the prompts start",
}


def provenance(attributes: Mapping[Any, Any], seed: int) -> list[tuple[str, str]]:
    """What made the measurement, name and text: the attributes in a fixed order, others after them."""
    known = [(label, attributes[name]) for name, label in _ATTRIBUTES.items() if name in attributes]
    others = [(str(name), value) for name, value in attributes.items() if name not in _ATTRIBUTES]
    entries = itertools.chain(known, [("seed of the resampling", seed)], others)
    return [(label, ", ".join(_texts(value))) for label, value in entries]


def _texts(value: Any) -> Iterator[str]:
    """An attribute as words; JSON objects and lists are taken apart."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            yield value
            return
    match value:
        case dict():
            yield from (f"{key.replace('_', ' ')} {' '.join(_texts(inner))}" for key, inner in value.items())
        case list():
            yield from (word for inner in value for word in _texts(inner))
        case bool():
            yield "yes" if value else "no"
        case float():
            yield f"{value:.3g}"
        case _:
            yield str(value)
