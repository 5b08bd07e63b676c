"""The answer in plain words: sentences that follow from the numbers and from nothing else."""

from posbias.comparison import Score
from posbias.estimate import Estimate
from posbias.reports.evidence import Findings
from posbias.reports.scores import LABELS, SPEARMAN, WASSERSTEIN, Measure, interval, number, overlap, percent

_PAPERS_OWN = "measured_kernels"
_SINKS_AT = 5.0
"""Token 0 counts as a sink when it draws so many times the attention of an even spread …"""
_SPOILS_AT = 3.0
"""… and spoils a prediction that gives it so many times its measured influence."""


def answer(found: Findings) -> list[str]:
    """The answer, a sentence or two to the entry: where the model looks, what it loses, what explains it."""
    sentences = [_looks(found), _loses(found), _best(found), _ceiling(found), _papers_own(found)]
    return [sentence for sentence in sentences if sentence]


def _looks(found: Findings) -> str:
    s = found.measured.summary
    assert s.verdict is not None  # measured: nothing is left out
    opening = {
        "U": "favours both ends over what lies between (U-shaped)",
        "recency": "favours the most recent tokens (recency)",
        "primacy": "favours the earliest tokens (primacy)",
        "middle": "favours the middle over both ends (middle)",
        "flat": "favours no part of its context (flat)",
    }[s.verdict]
    ends = "token holds" if s.ends == 1 else f"{s.ends} tokens hold"
    return (
        f"{found.model} {opening}: of the influence on the last of {s.tokens} tokens, the last {ends} "
        f"{percent(found.shape.last)} ({_against(found.shape.last, found)}) and the first {ends} "
        f"{percent(found.shape.first)} ({_against(found.shape.first, found)})."
    )


def _against(share: Estimate, found: Findings) -> str:
    """A share beside an even spread and beside the trough."""
    s = found.measured.summary
    even = s.ends / s.tokens
    trough = (1.0 - found.shape.depth.value) * even
    beside = f", {share.value / trough:.2g} times the trough's" if trough > 0 else ""
    return f"{share.value / even:.2g} times an even share{beside}"


def _loses(found: Findings) -> str:
    s = found.measured.summary
    place = s.trough / max(s.tokens - 1, 1)
    part = "early part" if place < 0.2 else "late part" if place > 0.8 else "middle"
    where = f"around position {s.trough} of 0 … {s.query}"
    if found.shape.trough_range is not None:
        low, high = found.shape.trough_range
        where += f" ({low} to {high} in 95 % of resamples of the prompts)"
    below = f"{percent(found.shape.depth)} below an even spread"
    if s.verdict == "flat":
        return f"No part of the context is lost: even at its least, {where}, influence is only {below}."
    return f"It loses the {part}: influence is least {where}, {below}."


def _best(found: Findings) -> str:
    agreements = found.comparison.agreements
    order, mass = SPEARMAN.best(agreements), WASSERSTEIN.best(agreements)
    if not order or not mass:
        return ""
    if order[0] == mass[0]:
        opening = (
            f"Of {len(agreements)} predictors, {_label(order[0])} explains it best: "
            f"{_score(found, SPEARMAN, order[0])}, {_score(found, WASSERSTEIN, mass[0])}."
        )
    else:
        opening = (
            f"No predictor is best in both respects: {_label(order[0])} orders the positions best "
            f"({_score(found, SPEARMAN, order[0])}), {_label(mass[0])} puts the influence nearest to where it "
            f"is ({_score(found, WASSERSTEIN, mass[0])})."
        )
    return opening + _rivals(found, SPEARMAN, order[0]) + _rivals(found, WASSERSTEIN, mass[0])


def _rivals(found: Findings, measure: Measure, best: str) -> str:
    """Who cannot be told from the best: their intervals meet."""
    agreements = found.comparison.agreements
    score = measure.of(agreements[best])
    near = [key for key, one in agreements.items() if key != best and overlap(score, measure.of(one))]
    if not near:
        return ""
    listed = " and ".join(filter(None, [", ".join(map(_label, near[:-1])), _label(near[-1])]))
    return f" By {measure.name}, intervals overlap with {listed}, so these are not told apart."


def _ceiling(found: Findings) -> str:
    ceiling = found.comparison.ceiling
    if ceiling is None:
        return "With fewer than four prompts there is no ceiling to hold these scores against."
    agreements = found.comparison.agreements
    pairs = [
        (measure, measure.of(agreements[key]), measure.of(ceiling))
        for measure in (SPEARMAN, WASSERSTEIN)
        for key in measure.best(agreements)[:1]
    ]
    gaps = " and ".join(_gap(found, *pair) for pair in pairs)
    met = [overlap(best, limit) for _, best, limit in pairs]
    sentence = (
        f"The ceiling, how well two random halves of the prompts agree with each other, is "
        f"{_written(found, SPEARMAN, ceiling.spearman)} and "
        f"{_written(found, WASSERSTEIN, ceiling.wasserstein)}: {gaps}."
    )
    if pairs and all(met):
        sentence += (
            " The intervals overlap: the best predict the whole about as well as one half predicts the other "
            "(halves are noisier than the whole, so a perfect prediction would score higher)."
        )
    return sentence


def _gap(found: Findings, measure: Measure, best: Score, limit: Score) -> str:
    digits = measure.digits_in(found.comparison)
    # the difference of the numbers as they are printed, so that a reader can take it
    gap = number(abs(round(best.value, digits) - round(limit.value, digits)), digits)
    better = (best.value > limit.value) == measure.more_is_better
    overlaps = "" if overlap(best, limit) is not False else ", intervals apart"
    return f"the best {measure.name} is {gap} {'better' if better else 'short of it'}{overlaps}"


def _papers_own(found: Findings) -> str:
    agreement = found.comparison.agreements.get(_PAPERS_OWN)
    if agreement is None:
        return ""
    sentence = (
        f"The paper's own predictor from measured attention, {_label(_PAPERS_OWN)}, scores "
        f"{_score(found, SPEARMAN, _PAPERS_OWN)}, {_score(found, WASSERSTEIN, _PAPERS_OWN)}"
    )
    ignorant = found.comparison.baselines.get("uniform")
    if ignorant is not None and agreement.wasserstein.value > ignorant.wasserstein.value:
        sentence += f"; a plain even spread has {_written(found, WASSERSTEIN, ignorant.wasserstein)}"
    return f"{sentence}.{_spoiled(found)}"


def _spoiled(found: Findings) -> str:
    """Why a sink spoils it; said only where token 0 is a sink and is given far more than it has."""
    one, given = found.sink, float(found.predictions[_PAPERS_OWN].mass[0])
    measured = float(found.measured.mass[0])
    if one.share < _SINKS_AT * one.even or given < _SPOILS_AT * measured:
        return ""
    norm = ""
    if one.norm_ratio >= _SPOILS_AT:
        norm = (
            f". The rollout takes no account of the normalisation, which divides its huge norm (up to "
            f"{one.norm_ratio:.0f} times the median of the other tokens') away before each layer reads it"
        )
    return (
        f" A sink spoils it: token 0 draws {_whole(one.share)} of the attention (evenly spread: "
        f"{_whole(one.even)}; more than half in {one.ruled} of {one.heads} heads), so the rollout gives it "
        f"{_whole(given)} of the influence where {100 * measured:.1f} % is measured{norm}.{_without_it(found)}"
    )


def _without_it(found: Findings) -> str:
    own = found.comparison.agreements[_PAPERS_OWN].wasserstein_without_first
    even = found.comparison.baselines.get("uniform")
    beside = f" (even spread: {_written(found, WASSERSTEIN, even.wasserstein_without_first)})" if even else ""
    return f" With token 0 left out of the comparison it scores {_written(found, WASSERSTEIN, own)}{beside}."


def _whole(share: float) -> str:
    return f"{100 * share:.0f} %"


def _label(key: str) -> str:
    return f"‘{LABELS.get(key, key)}’"


def _score(found: Findings, measure: Measure, key: str) -> str:
    return _written(found, measure, measure.of(found.comparison.agreements[key]))


def _written(found: Findings, measure: Measure, score: Score) -> str:
    digits = measure.digits_in(found.comparison)
    return " ".join(filter(None, [measure.name, number(score.value, digits), interval(score, digits)]))
