"""Closed forms beside the simulation: the key factor h(j) and the scores of layer 2, as printed and corrected."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.claims import Claim, Effect
from posbias.papers.kim2026.effects import factored, where_of
from posbias.papers.kim2026.figures import SURE, KeyFactors, key_factor_ratios
from posbias.papers.kim2026.table import Results
from posbias.simulate import RecencyModel, RecencyResult
from posbias.theory.layernorm import (
    ReadingName,
    isotropic_scores,
    log_key_factors,
    scores_without_layernorm,
    second_layer_scores,
)

GOOD = 0.1
"""Up to this share of a simulated number, a closed form may be off."""
KNOWN = 0.05
"""How well a simulated score has to be known for a closed form to be held against it, as a share of itself."""
SAME = 0.02
"""How far ratios of scores may be apart and be said to be one factor's."""
WORDS: dict[ReadingName, str] = {"published": "as printed", "corrected": "corrected"}


@dataclass(frozen=True)
class Compared:
    """One number of a model in both readings of its closed form and as simulated (NaN: not told from zero)."""

    model: RecencyModel
    quantity: str
    key: int
    published: float
    corrected: float
    simulated: float
    se: float
    base: float = 0.0
    """What of the number is there without any recency: 1 of a ratio."""

    def effect(self, reading: ReadingName) -> Effect:
        """That a reading is within `GOOD` of the simulated number, both less their base."""
        where, form = where_of(self.model), self.published if reading == "published" else self.corrected
        size, truth = form - self.base, self.simulated - self.base
        if not abs(truth) > SURE * self.se:
            return Effect(where, near=True, flaw="too few samples to tell the simulated number from none")
        return Effect(
            where, size / truth - 1.0, abs(size / truth**2) * self.se, math.inf, near=True, tolerance=GOOD
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        about = {name: getattr(self.model, name) for name in ("norm", "dimension", "anisotropy", "residual")}
        readings = {"published": self.published, "corrected": self.corrected}
        less = {f"{name}_less_simulated": value - self.simulated for name, value in readings.items()}
        ours = {"simulated": self.simulated, "se": self.se}
        return about | {"quantity": self.quantity, "key": self.key} | readings | ours | less


def key_factor_rows(shown: KeyFactors, results: Results) -> Iterator[Compared]:
    """h(j)/h(0) of every model of Figure 2 or 7, for every key before the last query."""
    for model in shown.models:
        simulated = key_factor_ratios(results[model])
        published, corrected = (
            np.exp(log_key_factors(model.tokens, *_place(model), residual=model.residual, reading=reading))
            for reading in ("published", "corrected")
        )
        for j in range(1, model.tokens - 1):
            forms = float(published[j]), float(corrected[j])
            found = float(simulated.value[j]), float(simulated.se[j])
            yield Compared(model, f"h({j})/h(0)", j, *forms, *found, base=1.0)


def score_row(result: RecencyResult) -> Compared:
    """The mean score that the last query gives the key before it in layer 2: Eq. 19, 5 or 41."""
    model, last = result.model, result.model.tokens - 1
    scores = result.mean_scores
    name = "Eq. 19" if model.norm == "none" else "Eq. 41" if model.anisotropy or model.residual else "Eq. 5"
    forms = [float(_scores(model, reading)[last, last - 1]) for reading in ("published", "corrected")]
    found = [float(part[1, last, last - 1]) for part in (scores.value, scores.se)]
    return Compared(model, f"S({last}, {last - 1}), {name}", last - 1, *forms, *found)


def _scores(model: RecencyModel, reading: ReadingName) -> np.ndarray:
    if model.norm == "none":
        return scores_without_layernorm(model.tokens, model.dimension, reading=reading)
    if not model.anisotropy and not model.residual:
        return isotropic_scores(model.tokens, model.dimension, reading=reading)
    return second_layer_scores(model.tokens, *_place(model), residual=model.residual, reading=reading)


def _place(model: RecencyModel) -> tuple[int, float]:
    return model.dimension, model.anisotropy


# --- what is claimed of them -------------------------------------------------------------------------------


def score_claims(simulated: Sequence[RecencyResult]) -> Iterator[Claim]:
    """That the closed forms give the scores of layer 2, as printed and corrected; where those are known well."""
    rows = [row for row in map(score_row, simulated) if row.se < KNOWN * abs(row.simulated)]
    for reading, words in WORDS.items():
        yield Claim(
            f"(closed form, {words}) It gives the last query's score for the key before it in layer 2 within 10 %",
            tuple(row.effect(reading) for row in rows),
        )


def key_factor_claims(shown: KeyFactors, results: Results) -> Iterator[Claim]:
    """That h rises, faster for anisotropic embeddings, as the simulated scores do; Figures 2 and 7."""
    printed = {model: _curve(model, model.residual) for model in shown.models}
    yield Claim(
        "(closed form, as printed) h rises from key to key, at every anisotropy",
        tuple(_exact(where_of(model), float(np.diff(curve).min())) for model, curve in printed.items()),
    )
    for sentence, key in (
        ("From the first key to the second h rises more at every anisotropy above 0 than at 0", 1),
        ("From the first key to the last but one h rises more at every anisotropy above 0 than at 0", -2),
    ):
        yield Claim(f"(closed form, as printed) {sentence}", tuple(_faster(shown, printed, key)))
    yield Claim(
        "(simulated) From the first key to the last but one scores rise more at α > 0 than at α = 0, in layer 2",
        tuple(_faster_simulated(shown, results)),
    )
    yield Claim(
        "Mean scores of layer 2 are a factor of the query times one of the key: rows rise alike (within .02)",
        tuple(
            factored(results[model], key_factor_ratios, SAME) for model in shown.models if model.anisotropy
        ),
    )
    last = shown.models[0].tokens - 2
    rows = [row for row in key_factor_rows(shown, results) if row.key == last and row.model.anisotropy]
    for reading, words in WORDS.items():
        for d in shown.dimensions:
            yield Claim(
                f"(closed form, {words}) Eq. 42 gives the rise to the last key but one within 10 % at d = {d}",
                tuple(row.effect(reading) for row in rows if row.model.dimension == d),
            )
    if shown.residual:
        yield Claim(
            "(closed form, as printed) With a residual connection h rises less than without, at every anisotropy",
            tuple(
                _exact(where_of(model), float(_curve(model, False)[-1] - curve[-1]))
                for model, curve in printed.items()
            ),
        )


def _curve(model: RecencyModel, residual: bool) -> np.ndarray:
    """h(j)/h(0) as printed."""
    return np.exp(log_key_factors(model.tokens, *_place(model), residual=residual, reading="published"))


def _exact(where: str, value: float) -> Effect:
    return Effect(where, value, 0.0, math.inf, least=0.0)


def _faster(shown: KeyFactors, curves: Mapping[RecencyModel, np.ndarray], key: int) -> Iterator[Effect]:
    for model in shown.models:
        if model.anisotropy:
            base = curves[shown.model(model.dimension, 0.0)]
            yield _exact(f"{where_of(model)}, less α = 0", float(curves[model][key] - base[key]))


def _faster_simulated(shown: KeyFactors, results: Results) -> Iterator[Effect]:
    for model in (one for one in shown.models if one.anisotropy):
        base, ratio = (
            key_factor_ratios(results[shown.model(model.dimension, alpha)])
            for alpha in (0.0, model.anisotropy)
        )
        value, se = float(ratio.value[-2] - base.value[-2]), math.hypot(ratio.se[-2], base.se[-2])
        flaw = "" if math.isfinite(value) else "too few samples to tell the scores at α = 0 from none"
        yield Effect(f"{where_of(model)}, less α = 0", value, se, math.inf, least=0.0, flaw=flaw)
