"""Closed forms beside the simulation: the key factor h(j) and the scores of layer 2, as printed and corrected."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Above, Evidence, Near
from posbias.reports.pages import Table
from posbias.reports.plots.recency import draw_key_factors
from posbias.reports.plots.style import INK, MUTED, SMALL, TEXT, new_figure
from posbias.simulation import Averages, RecencyModel, RecencyResult
from posbias.theory.closed_forms.layernorm import (
    ReadingName,
    isotropic_scores,
    key_factors,
    log_key_factors,
    scores_without_layernorm,
    second_layer_scores,
)
from posbias_papers.claims import Maker, claims_of, quantity
from posbias_papers.kim2026.models import ALPHAS, by_anisotropy, describe, samples_text, where_of
from posbias_papers.kim2026.quantities import factored
from posbias_papers.kim2026.quantities import rising as simulated_rising
from posbias_papers.study import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SURE = 5.0
"""A ratio is shown if what it is divided by is so many standard errors from 0."""
GOOD = 0.1
"""Up to this share of a simulated number, a closed form may be off."""
KNOWN = 0.05
"""How well a simulated score has to be known for a closed form to be held against it, as a share of itself."""
DRAWN_DIMENSION, DRAWN_ANISOTROPY = 64, 0.8
"""That of the paper's Figures 2 and 7, and their greatest: the authors' notebook has them, no caption does."""
TEXT_ANISOTROPY = 0.5
"""The one α above 0 of which the text speaks, at d = 16 and 64."""
BEYOND = "10 tokens, d = 16 and 64, α up to 0.9: ours"
"""What our own claims on h are about."""
SHOWN_KEYS = (1, 4, 8)
"""Keys whose h(j)/h(0) a page shows; the JSON has all."""
READINGS: dict[ReadingName, str] = {"published": "as printed", "corrected": "corrected"}
"""The readings of a closed form, in words."""


@dataclass(frozen=True)
class Compared:
    """One number of a model in both readings of its closed form, and as simulated (NaN: not told from zero).

    `base` is what of the number is there without any recency: 1 of a ratio.
    """

    model: RecencyModel
    quantity: str
    key: int
    forms: Mapping[ReadingName, float]
    simulated: Estimate
    base: float = 0.0

    def evidence(self, reading: ReadingName) -> Evidence:
        """By which share a reading is off the simulated number, both less their base; within `GOOD`."""
        where, size = where_of(self.model), self.forms[reading] - self.base
        truth = self.simulated.value - self.base
        if not abs(truth) > SURE * self.simulated.se:
            return Evidence(where, flaw="too few samples to tell the simulated number from none")
        error = abs(size / truth**2) * self.simulated.se
        return Evidence(where, Estimate(size / truth - 1.0, error, self.simulated.n, math.inf))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        model = {name: getattr(self.model, name) for name in ("norm", "dimension", "anisotropy", "residual")}
        less = {f"{name}_less_simulated": form - self.simulated.value for name, form in self.forms.items()}
        ours = {"simulated": self.simulated.value, "se": self.simulated.se}
        return model | {"quantity": self.quantity, "key": self.key, **self.forms} | ours | less

    @property
    def row(self) -> list[str]:
        """In words, under `HEAD`."""
        value, se = self.simulated.value, self.simulated.se
        known = math.isfinite(value)
        digits = max(2, min(6, -math.floor(math.log10(se)))) if known and se > 0.0 else 4
        words = [describe(self.model), str(self.model.dimension), self.quantity]
        words.append(f"{value:.{digits}f} ± {se:.{digits}f}" if known else "–")
        for form in self.forms.values():
            less = f"{form - value:+,.{digits if form < 10.0 else 0}f}".replace("-", "−") if known else "–"
            words += [f"{form:,.{5 if form < 10.0 else 1}f}", less]
        return words


HEAD = ["model", "d", "number", "simulated", "as printed", "less simulated", "corrected", "less simulated"]


def table_of(compared: Sequence[Compared]) -> Table:
    """Closed forms beside the simulation, for people."""
    rows = [one.row for one in compared if one.base == 0.0 or one.key in SHOWN_KEYS]
    return Table("Closed forms beside the simulation, layer 2", HEAD, rows)


# --- scores of layer 2 -------------------------------------------------------------------------------------


def score_row(result: RecencyResult) -> Compared:
    """The mean score that the last query gives the key before it in layer 2: Eq. 19, 5 or 41."""
    model, last = result.model, result.model.tokens - 1
    equation = (
        "Eq. 19" if model.norm == "none" else "Eq. 41" if model.anisotropy or model.residual else "Eq. 5"
    )
    forms: dict[ReadingName, float] = {
        reading: float(_scores(model, reading)[last, last - 1]) for reading in READINGS
    }
    value, se = (float(part[1, last, last - 1]) for part in (result.mean_scores.value, result.mean_scores.se))
    simulated = Estimate(value, se, result.samples)
    return Compared(model, f"S({last}, {last - 1}), {equation}", last - 1, forms, simulated)


@quantity
def scores(results: Results, models: Sequence[RecencyModel], reading: ReadingName) -> Iterator[Evidence]:
    """By which share a reading of the closed form is off each score that is known well."""
    for row in (score_row(results[model]) for model in models):
        if row.simulated.se < KNOWN * abs(row.simulated.value):
            yield row.evidence(reading)


@quantity
def rising(results: Results, models: Sequence[RecencyModel]) -> Iterator[Evidence]:
    """That scores of layer 2 rise along every row: as simulated, or, where draws cannot tell, in closed form.

    At α = 0 means rise by some e^−2√d, and rare inputs make much of that: where it is not `SURE` standard errors,
    draws say nothing. The closed form is that of many dimensions, of which Theorem 1 and the propositions speak;
    simulations agree with it where they see the rise (`posbias_papers.statements.kim`).
    """
    for model in models:
        (drawn,) = simulated_rising([model], 2)(results)
        rise, error = least_rise(model), drawn.estimate.se
        if rise < SURE * error:
            where = f"{where_of(model, 2)}, least rise per key in closed form"
            where += f" ({results[model].samples:,} samples know a rise to {error:.0e} only)"
            drawn = Evidence(where.replace("e-0", "e-"), Estimate(rise), test=Above(least=0.0))
        yield drawn


def least_rise(model: RecencyModel) -> float:
    """The least rise from key to key below the diagonal of layer 2, in the corrected closed form."""
    steps = np.expm1(
        np.diff(log_key_factors(model.tokens, model.dimension, model.anisotropy, residual=model.residual))
    )
    rises = _scores(model, "corrected")[:, :-1] * steps
    return float(rises[np.tril_indices(model.tokens, -2, model.tokens - 1)].min())


def _scores(model: RecencyModel, reading: ReadingName) -> Float[np.ndarray, "query key"]:
    if model.norm == "none":
        return scores_without_layernorm(model.tokens, model.dimension, reading=reading)
    if not model.anisotropy and not model.residual:
        return isotropic_scores(model.tokens, model.dimension, reading=reading)
    place = model.dimension, model.anisotropy
    return second_layer_scores(model.tokens, *place, residual=model.residual, reading=reading)


# --- the key factor h(j): Figures 2 and 7 ------------------------------------------------------------------


def key_factor_ratios(result: RecencyResult, query: int = -1) -> Averages:
    """Mean S_ij over mean S_i0 of a query i (the last) in layer 2, [key]: h(j)/h(0) where S_ij = g(i)·h(j).

    1 and 0 for the first key; NaN from the query itself on, and throughout where S_i0 is not surely apart from 0
    (`SURE` standard errors). The standard error is an upper bound: errors of S_ij − S_i0 and S_i0 are added.
    """
    rise, rise_se = result.rises.value[1, query], result.rises.se[1, query]
    first, first_se = result.mean_scores.value[1, query, 0], result.mean_scores.se[1, query, 0]
    if not abs(first) > SURE * first_se:
        return Averages(np.full_like(rise, math.nan), np.full_like(rise, math.nan))
    return Averages(1.0 + rise / first, np.abs(rise_se / first) + np.abs(rise / first**2) * first_se)


def key_factor_rows(models: Sequence[RecencyModel], results: Results) -> Iterator[Compared]:
    """h(0) of every model, and h(j)/h(0) for every key before the last query; h(0) is not simulated."""
    for model in models:
        first: dict[ReadingName, float] = {one: float(key_factor_curve(model, one)[0]) for one in READINGS}
        yield Compared(model, "h(0)", 0, first, Estimate(math.nan))
        ratios, curves = key_factor_ratios(results[model]), {one: curve(model, one) for one in READINGS}
        for j in range(1, model.tokens - 1):
            forms: dict[ReadingName, float] = {name: float(curves[name][j]) for name in READINGS}
            simulated = Estimate(float(ratios.value[j]), float(ratios.se[j]), results[model].samples)
            yield Compared(model, f"h({j})/h(0)", j, forms, simulated, base=1.0)


def curve(model: RecencyModel, reading: ReadingName) -> Float[np.ndarray, "key"]:
    """h(j)/h(0) in a reading."""
    place = model.tokens, model.dimension, model.anisotropy
    return np.exp(log_key_factors(*place, residual=model.residual, reading=reading))


def key_factor_curve(model: RecencyModel, reading: ReadingName) -> Float[np.ndarray, "key"]:
    """h(j) in a reading."""
    place = model.tokens, model.dimension, model.anisotropy
    return key_factors(*place, residual=model.residual, reading=reading)


def key_factor_claims(study: str, *, residual: bool, alphas: Sequence[float] = ALPHAS) -> Iterator[Claim]:
    """That h rises, faster for anisotropic embeddings; and, of ours, how simulated scores compare with it."""
    figure = "Figure 7" if residual else "Figure 2"
    scope = (
        f"Eq. 42 with γ = {int(residual)}, 10 tokens, every α; {figure} draws several, its caption not which"
    )
    every = {"scope": scope, "effort": "a closed form, no draws"}
    claim = claims_of(study, figure, **every)
    extended = claims_of(study, f"beyond {figure}", **every | {"scope": BEYOND}, provenance="ours")
    shown, exact = by_anisotropy(residual=residual, alphas=alphas), Above(least=0.0)
    curved = [model for model in shown if model.anisotropy]

    sentence = "(closed form, as printed) h rises from key to key, at every anisotropy"
    least = _forms(shown, lambda model: np.diff(_printed(model)).min())
    place = "Appendix A.3, Eqs. 38 to 42"
    yield claim(1, sentence, least, exact, place=place, strength="constant")
    for number, key, word in ((2, 1, "second"), (3, -2, "last but one")):
        sentence = f"From the first key to the {word} h rises more at every anisotropy above 0 than at 0"
        beyond = _forms(curved, lambda model, key=key: _beyond_isotropic(model)[key], ", less α = 0")
        yield extended(number, f"(closed form, as printed) {sentence}", beyond, exact)
    sentence = "From the first key to the last but one scores rise more at α > 0 than at α = 0, in layer 2"
    yield extended(4, f"(simulated) {sentence}", _faster(curved), exact)
    sentence = (
        "Mean scores of layer 2 are a factor of the query times one of the key: rows rise alike (within .02)"
    )
    yield extended(5, sentence, factored(curved, key_factor_ratios), exact, place="Section 3, Eq. 41")
    yield from _agreement(extended, curved)
    if residual:
        sentence = "With a residual connection h rises less than without, at every anisotropy"
        lost = _forms(shown, lambda model: (_printed(replace(model, residual=False)) - _printed(model))[-1])
        yield extended(10, f"(closed form, as printed) {sentence}", lost, exact)
    drawn = [model for model in curved if _is_told(model)]
    sentence = "At α = 0 h(j) grows slowly, at α ≠ 0 it increases rapidly"
    words = f"{sentence}{' with a residual connection too' * residual}: more at every key than at α = 0"
    yield claim(
        11 if residual else 10,
        f"(closed form, as printed) {words}",
        _forms(drawn, lambda model: _beyond_isotropic(model)[1:].min(), ", less α = 0"),
        exact,
        place=f"Section 3, {'last paragraph' if residual else 'on the third row of Figure 1'}; {figure}",
        scope=f"Eq. 42 with γ = {int(residual)}, 10 tokens; α = 0.5, at d = 64 up to 0.8 as the authors' notebook",
    )


def _agreement(extended: Maker, curved: Sequence[RecencyModel]) -> Iterator[Claim]:
    """Claims 6 to 9: how well Eq. 42, printed and corrected, gives the simulated rise."""
    places: list[tuple[ReadingName, int]] = [(reading, d) for reading in READINGS for d in (16, 64)]
    for number, (reading, d) in enumerate(places, start=6):
        sentence = f"Eq. 42 gives the rise to the last key but one within 10 % at d = {d}"
        rise = _last_rise([model for model in curved if model.dimension == d], reading)
        sentence = f"(closed form, {READINGS[reading]}) {sentence}"
        yield extended(number, sentence, rise, Near(0.0, GOOD), place="Eq. 42")


def _printed(model: RecencyModel) -> Float[np.ndarray, "key"]:
    return curve(model, "published")


def _beyond_isotropic(model: RecencyModel) -> Float[np.ndarray, "key"]:
    """By how much the printed h(j)/h(0) is above that of α = 0."""
    return _printed(model) - _printed(replace(model, anisotropy=0.0))


def _is_told(model: RecencyModel) -> bool:
    """Whether the paper's figures draw h of such a model, or its text speaks of it."""
    drawn = model.dimension == DRAWN_DIMENSION and model.anisotropy <= DRAWN_ANISOTROPY
    return drawn or model.anisotropy == TEXT_ANISOTROPY


@quantity
def _forms(
    results: Results, models: Sequence[RecencyModel], value: Callable[[RecencyModel], float], less: str = ""
) -> Iterator[Evidence]:
    """An exact number of each model, of the closed form alone."""
    for model in models:
        yield Evidence(f"{where_of(model)}{less}", Estimate(float(value(model))))


@quantity
def _faster(results: Results, models: Sequence[RecencyModel]) -> Iterator[Evidence]:
    """By how much simulated scores rise more than those of isotropic embeddings."""
    for model in models:
        base, ratio = (key_factor_ratios(results[one]) for one in (replace(model, anisotropy=0.0), model))
        value, se = float(ratio.value[-2] - base.value[-2]), math.hypot(ratio.se[-2], base.se[-2])
        flaw = "" if math.isfinite(value) else "too few samples to tell the scores at α = 0 from none"
        rise = Estimate(value, se, results[model].samples, math.inf)
        yield Evidence(f"{where_of(model)}, less α = 0", rise, flaw)


@quantity
def _last_rise(results: Results, models: Sequence[RecencyModel], reading: ReadingName) -> Iterator[Evidence]:
    """By which share a reading is off the simulated rise to the last key but one."""
    for row in key_factor_rows(models, results):
        if row.key == row.model.tokens - 2:
            yield row.evidence(reading)


def draw_key_factor_figure(
    results: Results,
    *,
    residual: bool,
    alphas: Sequence[float] = ALPHAS,
    reading: ReadingName = "corrected",
) -> "Figure":
    """Draw h(j) against j for several anisotropies, and below h(j)/h(0) beside what a simulation gives.

    One panel per dimension; `reading` is the closed form drawn as a line, the other is dashed.
    """
    figure = new_figure(8.0, 6.4)
    other: ReadingName = "published" if reading == "corrected" else "corrected"
    shown = {
        model: key_factor_ratios(results[model]) for model in by_anisotropy(residual=residual, alphas=alphas)
    }
    names = (f"closed form, {reading}", f"closed form, {other}")
    for (top, bottom), d in zip(figure.subplots(2, 2).T, (16, 64), strict=True):
        here = {alpha: RecencyModel(dimension=d, anisotropy=alpha, residual=residual) for alpha in alphas}
        for ax, form, label in ((top, key_factor_curve, "h(j)"), (bottom, curve, "h(j) / h(0)")):
            curves, others = (
                {alpha: form(model, one) for alpha, model in here.items()} for one in (reading, other)
            )
            simulated = {alpha: shown[model] for alpha, model in here.items()} if ax is bottom else None
            draw_key_factors(ax, curves, others=others, simulated=simulated, names=names, label=label)
        top.set_title(f"d = {d}", fontsize=TEXT, color=INK)
    kind = "with" if residual else "without"
    drawn = samples_text({model: results[model] for model in shown})
    note = f"{kind} residual connection; simulated: S(9, j)/S(9, 0) of layer 2, {drawn}"
    if any(np.isnan(ratios.value).all() for ratios in shown.values()):
        note += f", where S(9, 0) is at least {SURE:g} standard errors"
    figure.suptitle(note, fontsize=SMALL, color=MUTED)
    return figure
