"""What the scores of the predictors say: sentences that follow from the numbers and from nothing else."""

import math

from posbias.comparison.parts import LABELS as LABELS_OF_PARTS
from posbias.comparison.predictors import PREDICTORS
from posbias.profiles.agreement import Agreement
from posbias.profiles.curves import wasserstein
from posbias.profiles.estimate import Estimate, about
from posbias.reports.evidence import Findings
from posbias.reports.scores import (
    LABELS,
    SPEARMAN,
    WASSERSTEIN,
    Measure,
    decided,
    digits_of,
    interval,
    number,
)

PREDICTOR = {predictor.key: predictor for predictor in PREDICTORS}
_PAPERS_OWN = "measured_kernels"
_SINKS_AT = 5.0
"""Token 0 counts as a sink when it draws so many times the attention of an even spread …"""
_SPOILS_AT = 3.0
"""… and spoils a prediction that gives it so many times its measured influence."""


def verdicts(found: Findings) -> list[str]:
    """What the scores say, a sentence or two to the entry: the best, what noise allows, the papers' own."""
    sentences = [_best(found), _noise(found), _by_parts(found), _papers_own(found)]
    return [sentence for sentence in sentences if sentence]


def _by_parts(found: Findings) -> str:
    """How far from the measured curve one is with each part known, one after the other."""
    if not found.parts:
        return ""
    known = [one.mass for one in found.parts.values()]
    even, *far = (f"{wasserstein(one, known[-1]):.3f}" for one in known[:-1])
    labels = (LABELS_OF_PARTS[key].removeprefix("+ ") for key in [*found.parts][1:-1])
    steps = ", ".join(f"{label} {one}" for label, one in zip(labels, far, strict=True))
    return (
        f"By parts: Wasserstein to the measured curve is {even} for an even spread and, with one thing after the "
        f"other known, {steps}. The order is a choice: what a part adds depends on what was there before it."
    )


def _best(found: Findings) -> str:
    agreements = found.judged.agreements
    order, mass = SPEARMAN.best(agreements), WASSERSTEIN.best(agreements)
    if not order or not mass:
        return ""
    if order[0] == mass[0]:
        verdict = (
            f"{_label(order[0])} explains it best: {_score(found, SPEARMAN, order[0])}, "
            f"{_score(found, WASSERSTEIN, mass[0])}{_even(found, mass[0])}."
        )
    else:
        verdict = (
            f"none is best in both respects: {_label(order[0])} orders the positions best "
            f"({_score(found, SPEARMAN, order[0])}; {_score(found, WASSERSTEIN, order[0])}"
            f"{_even(found, order[0])}), {_label(mass[0])} puts the influence nearest to where it is "
            f"({_score(found, WASSERSTEIN, mass[0])}{_even(found, mass[0])}; "
            f"{_score(found, SPEARMAN, mass[0])})."
        )
    how = (
        "each taking its statistics from one half of the prompts and judged on the other"
        if found.judged.held_out
        else "each judged on the very prompts whose statistics it uses, which flatters it"
    )
    opening = f"Of {len(agreements)} predictors, {how}, {verdict}"
    chosen = [PREDICTOR[key].chosen for key in dict.fromkeys((order[0], mass[0])) if key in PREDICTOR]
    rivals = _rivals(found, SPEARMAN, order[0]) + _rivals(found, WASSERSTEIN, mass[0])
    return " ".join([opening + rivals, *filter(None, chosen)])


def _even(found: Findings, key: str) -> str:
    """What an even spread scores beside a Wasserstein distance, and that it does better where it does."""
    even = found.judged.baselines.get("uniform")
    if even is None:
        return ""
    own, scored = found.judged.agreements[key].wasserstein.value, even.wasserstein.value
    written = number(scored, WASSERSTEIN.digits_in(found.comparison))
    return f", an even spread is nearer with {written}" if own > scored else f", {written} for an even spread"


def _rivals(found: Findings, measure: Measure, best: str) -> str:
    """Whether paired differences tell the best from the others, and from the nearest by how much."""
    differences = {
        key: found.judged.difference(best, key, measure.field)
        for key in found.judged.agreements
        if key != best
    }
    rivals = [(key, one) for key, one in differences.items() if one is not None and one.bounds is not None]
    if not rivals:
        return ""
    rivals.sort(key=lambda rival: abs(rival[1].value))
    opening = f" By {measure.name}, {_label(best)} is"
    near = [f"{_label(key)} ({_by(one, measure)}{_needed(one)})" for key, one in rivals if not decided(one)]
    if near:
        listed = " and ".join(filter(None, [", ".join(near[:-1]), near[-1]]))
        counted = any(_needed(one) for _, one in rivals if not decided(one))
        seen = (
            "; with so many prompts the interval would leave out 0, were the difference as seen"
            if counted
            else ""
        )
        return f"{opening} not told apart from {listed}{seen}."
    nearest, one = rivals[0]
    return (
        f"{opening} better than every other predictor (each at 95 %): than the nearest, {_label(nearest)}, "
        f"{_by(one, measure)}{_but_for_first(found, measure, best)}."
    )


def _but_for_first(found: Findings, measure: Measure, best: str) -> str:
    """Whom the best is not better than once token 0 is left out of the comparison."""
    field = f"{measure.field}_without_first"
    open_ = [
        _label(key)
        for key in found.judged.agreements
        if key != best
        and (one := found.judged.difference(best, key, field)) is not None
        and (not decided(one) or (one.value > 0) != measure.more_is_better)
    ]
    return f"; without token 0 it is not shown to be better than {' or '.join(open_)}" if open_ else ""


def _by(difference: Estimate, measure: Measure) -> str:
    """How much better the best is, on the same prompts."""
    low, high = difference.bounds or (0.0, 0.0)
    value = difference.value
    if not measure.more_is_better:
        value, low, high = -value, -high, -low
    digits = digits_of((high - low) / 2) if high > low else measure.digits
    around = interval(Estimate(value, math.nan, ends=(low, high)), digits)
    return f"by {number(value, digits)} {around}"


def _needed(difference: Estimate) -> str:
    """About how many prompts would tell."""
    prompts = difference.draws_to_tell()
    return f"; {about(prompts)} prompts" if prompts else ""


def _noise(found: Findings) -> str:
    judged = found.judged
    if judged.ceiling is None:
        return "With fewer than four prompts it is not known how much noise they leave in the measured influence."

    def both(row: Agreement) -> str:
        return " and ".join(_written(found, measure, measure.of(row)) for measure in (SPEARMAN, WASSERSTEIN))

    verdicts = [
        _against_ceiling(found, measure, measure.of(judged.agreements[key]), measure.of(judged.ceiling))
        for measure in (SPEARMAN, WASSERSTEIN)
        for key in measure.best(judged.agreements)[:1]
    ]
    against = "half the prompts, as here," if judged.held_out else "these prompts"
    return (
        f"Noise: against {against} a noiseless predictor would score about {both(judged.ceiling)} (the noise "
        "ceiling)"
        f"{': ' if verdicts else ''}{'; '.join(verdicts)}."
    )


def _against_ceiling(found: Findings, measure: Measure, best: Estimate, ceiling: Estimate) -> str:
    """Whether these prompts can tell the best predictor from a noiseless one."""
    best_of = f"the best {measure.name}, {number(best.value, measure.digits_in(found.comparison))},"
    if ceiling.bounds is None:
        return f"{best_of} cannot be held against it"
    low, high = ceiling.bounds
    if low <= best.value <= high:
        return f"{best_of} lies within its interval and is not to be told from it"
    if (best.value < low) == measure.more_is_better:
        return f"{best_of} falls short of it: noise alone hardly explains what it lacks"
    return f"{best_of} is beyond it, so it owes something to these very prompts or to chance"


def _papers_own(found: Findings) -> str:
    agreement = found.judged.agreements.get(_PAPERS_OWN)
    if agreement is None:
        return ""
    sentence = (
        f"The predictor of Herasimchyk et al. 2026 from measured attention, {_label(_PAPERS_OWN)}, scores "
        f"{_score(found, SPEARMAN, _PAPERS_OWN)}, {_score(found, WASSERSTEIN, _PAPERS_OWN)}"
    )
    return f"{sentence}{_even(found, _PAPERS_OWN)}.{_spoiled(found)}"


def _spoiled(found: Findings) -> str:
    """Why a sink spoils it; said only where token 0 is a sink and is given far more than it has."""
    one, given = found.sink, float(found.predictions[_PAPERS_OWN].mass[0])
    measured = float(found.measured.mass[0])
    if one.share < _SINKS_AT * one.even or given < _SPOILS_AT * measured:
        return ""
    norm = ""
    if one.norm_ratio >= _SPOILS_AT:
        norm = (
            f". This rollout takes no account of the normalisation, which divides that token's huge norm (up to "
            f"{one.norm_ratio:.0f} times the median of the other tokens') away before each layer reads it"
        )
    return (
        f" Part of that distance is a sink: token 0 draws {_whole(one.share)} of the attention (evenly spread: "
        f"{_whole(one.even)}; more than half in {one.ruled} of {one.heads} heads), so the rollout gives it "
        f"{_whole(given)} of the influence where {100 * measured:.1f} % is measured{norm}.{_without_it(found)}"
    )


def _without_it(found: Findings) -> str:
    own = found.judged.agreements[_PAPERS_OWN].wasserstein_without_first
    even = found.judged.baselines.get("uniform")
    beside = f" (even spread: {_written(found, WASSERSTEIN, even.wasserstein_without_first)})" if even else ""
    sentence = (
        f" With token 0 left out of the comparison it scores {_written(found, WASSERSTEIN, own)}{beside}"
    )
    if even is not None and own.value >= even.wasserstein_without_first.value:
        sentence += ": the sink is not all of it"
    return f"{sentence}."


def _whole(share: float) -> str:
    return f"{100 * share:.0f} %"


def _label(key: str) -> str:
    return f"‘{LABELS.get(key, key)}’"


def _score(found: Findings, measure: Measure, key: str) -> str:
    return _written(found, measure, measure.of(found.judged.agreements[key]))


def _written(found: Findings, measure: Measure, score: Estimate) -> str:
    digits = measure.digits_in(found.comparison)
    return " ".join(filter(None, [measure.name, number(score.value, digits), interval(score, digits)]))
