"""Curves of retrieval in sentences: what the model can do, then what position does to it."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.core.arguments import shortened
from posbias.profiles.estimate import Estimate, about
from posbias.retrieval import statistics
from posbias.retrieval.resampling import resampled
from posbias.retrieval.statistics import EQUIVALENCE, WIDTHS, at_ceiling, gap_words, gaps_of, would
from posbias.retrieval.trials import ABSENT, ALONE, SHUFFLED

if TYPE_CHECKING:
    from posbias.retrieval.curve import Answers, RetrievalCurve

SELDOM = 0.5
"""A fact that is surely found less often than so when alone is not read: something before position is wrong."""


def of_margins(curve: "RetrievalCurve") -> list[str]:
    """Of a model that was opened."""
    choice, lift = curve.overall["choice"], curve.overall["lift"]
    greedy = np.mean([share.value for share in curve.curves["accuracy"]])
    said = [
        f"{curve.model} prefers the right thing among {curve.candidates} in {_percent(choice)}, chance "
        f"{curve.chance:.0%}, and writes it in {greedy:.0%}; asking for it rather than for somebody else adds "
        f"{lift} nats"
    ]
    if not curve.able:
        would_tell = would(curve.chance_needs, "its shares")
        doubt = f"inconclusive: {curve.prompts} prompts do not distinguish it from chance{would_tell}"
        at_chance = "at chance: the curve shows where it copies from, not what it can find"
        return [*said, at_chance if curve.verdict == "at chance" else f"{doubt}: {statistics.MAY_COPY}"]
    for name, gap in curve.deciding.items():
        low, high = gap.interval
        said.append(
            f"{name}: {gap} nats (95 % interval {low:.2f} to {high:.2f}), {curve.gaps['accuracy'][name]} in "
            f"accuracy: {gap_words(name, gap, curve.equivalence)}{_needed(curve.prompts_to_tell[name])}"
        )
    effort = f"{curve.prompts} prompts"
    verdict = statistics.in_words(curve.verdict, curve.deciding, curve.equivalence, effort, " nats")
    return [*said, *_widths(curve), f"verdict: {verdict}"]


def of_answers(curve: "RetrievalCurve", answers: "Answers") -> list[str]:
    """Of a model that was only asked."""
    said = [
        f"{curve.model} finds the fact in {answers.found.mean():.0%} of the placed prompts, guesses it without "
        f"the fact in {_percent(curve.overall[ABSENT])}, finds it alone in {_percent(curve.overall[ALONE])}, and "
        f"with everything in a drawn order in {_percent(curve.overall[SHUFFLED])}"
        + (f"; copying any would be right in {curve.chance:.0%} of these" if curve.chance else "")
    ]
    said += _were_cut_off(curve, answers)
    verdict = f"verdict: {_verdict(curve, answers)}"
    if not curve.able:
        return [*said, *_not_even_alone(curve, answers), *_ran_out(curve, answers), verdict]
    said += [
        f"{name}: {signed(gap)}: {gap_words(name, gap, curve.equivalence)}"
        for name, gap in curve.deciding.items()
    ]
    takes = ", ".join(f"± {width:g} takes {about(curve.trials_for(width))} trials" for width in WIDTHS)
    said.append(f"intervals of the gaps are ± {curve.half_width:.3f} at most; {takes}")
    return [*said, *_ran_out(curve, answers), verdict]


def of_trials(found: Float[np.ndarray, "prompt position"], effort: str, measures: str) -> list[str]:
    """Of scores from 0 to 1 by trial and place, whoever made them: the gaps and the verdict."""
    columns = gaps_of(found) | {"mean": found.mean(axis=1)}
    limits = [(float(name == "mean") - 1.0, 1.0) for name in columns]
    gaps = dict(zip(columns, resampled(np.stack(list(columns.values()), axis=1), limits), strict=True))
    ceiling = at_ceiling(found, gaps.pop("mean"))
    verdict = statistics.decide(gaps, EQUIVALENCE, ceiling=ceiling)
    said = [
        f"{name}: {signed(gap, measures)}: {gap_words(name, gap, EQUIVALENCE)}" for name, gap in gaps.items()
    ]
    return [*said, f"verdict: {statistics.in_words(verdict, gaps, EQUIVALENCE, effort, found=found)}"]


def signed(one: Estimate, unit: str = "accuracy") -> str:
    """A difference with its interval, in words."""
    return f"{one.value:+.3f} in {unit} (95 % interval {one.interval[0]:+.3f} to {one.interval[1]:+.3f})"


def _widths(curve: "RetrievalCurve") -> list[str]:
    """How well the gaps in accuracy are known, and what it takes to know them better."""
    known = [gap for gap in curve.gaps["accuracy"].values() if gap.known]
    if not known:
        return []
    half = max(gap.half_width for gap in known)
    needs = {width: max(gap.draws_for(width) for gap in known) for width in WIDTHS if width < half}
    takes = ", ".join(f"± {width:g} takes {about(draws)} prompts" for width, draws in needs.items())
    return [f"in accuracy the intervals of the gaps are ± {half:.3f} at most{f'; {takes}' if takes else ''}"]


def _verdict(curve: "RetrievalCurve", answers: "Answers") -> str:
    effort = f"{curve.prompts} {'questions' if curve.job['task'] == 'documents' else 'trials'}"
    if answers.too_often_cut_off:
        return "inconclusive: too many answers were cut off"
    if curve.verdict == "inconclusive" and not curve.able:
        return f"inconclusive: {effort} do not distinguish it from chance, so {statistics.MAY_COPY}"
    return statistics.in_words(curve.verdict, curve.deciding, curve.equivalence, effort, found=answers.found)


def _were_cut_off(curve: "RetrievalCurve", answers: "Answers") -> list[str]:
    """How many answers ended before they were right, and what helps."""
    count = round(sum(answers.cut_off) * curve.prompts)
    if not count:
        return []
    most = "" if answers.most_out is None else f" {max(64, 2 * answers.most_out)}"
    return [
        f"{count:,} of {answers.found.size:,} answers were cut off before they were right, or empty, and count "
        f"as not found: --answer-tokens{most} gives them room (2048 where the model reasons first, or switch "
        "that off)"
    ]


def _not_even_alone(curve: "RetrievalCurve", answers: "Answers") -> list[str]:
    """That something is wrong before position: with an answer, where one is known."""
    if curve.overall[ALONE].interval[1] >= SELDOM or answers.too_often_cut_off:
        return []
    answer, right = (shortened(one.strip()) for one in answers.missed or ("", ""))
    shown = f" (to one, {answer} is answered, where {right} is right)" if answers.missed else ""
    return [
        f"it is seldom found even alone{shown}: read some answers; the prompt, the server's template, or what "
        "counts as right may not fit"
    ]


def _ran_out(curve: "RetrievalCurve", answers: "Answers") -> list[str]:
    """That the trials ended before the gaps were known as well as was wanted."""
    if curve.reached is not False:
        return []
    return [
        f"± {answers.until:g} was wanted and is not reached by the {curve.prompts} trials that there were: "
        f"{about(curve.trials_for(answers.until or 0))} would reach it, were the spread as seen"
    ]


def _needed(prompts: int | None) -> str:
    if prompts is None:
        return ""
    return f" ({about(prompts)} prompts would take the interval off 0, were the difference as seen)"


def _percent(one: Estimate) -> str:
    return f"{one.value:.0%} (95 % interval {one.interval[0]:.0%} to {one.interval[1]:.0%})"
