"""Retrieval by position as a curve with intervals, from margins of a model that is opened or from its answers.

A curve means something only where the model can do the task. Of a model that is opened two things are asked first:
does it pick the right thing more often than by chance, and is the right thing more likely than when somebody else
is asked for? A model that copies whatever stands last passes the first question at that position, and fails the
second. Answers in words are right or wrong (`scoring`): there the arm without the fact says how often it is
guessed, and in a list whoever does not heed the question is right in one of K of lists in a drawn order, whatever
place they copy from.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.arguments import one_of, shortened
from posbias.profiles.estimate import Estimate, about
from posbias.profiles.profile import Profile
from posbias.profiles.summary import Verdict
from posbias.profiles.telling import not_told
from posbias.retrieval import statistics
from posbias.retrieval.trials import ABSENT, ALONE, SHUFFLED
from posbias.retrieval.words import TOKENS_A_WORD

if TYPE_CHECKING:
    pass

QUANTITIES = ("accuracy", "choice", "margin", "margin_mean", "control_margin", "lift")
"""What margins have by position; `lift` is the margin against the others' mean less that of the control."""
EFFECTS = (f"mean - {ABSENT}", f"{ALONE} - middle", f"{SHUFFLED} - mean")
"""What the control arms are held against: the mean over places, or the middle (the mean of all inner places)."""
SELDOM = 0.5
"""A fact that is surely found less often than so when alone is not read: something before position is wrong."""
MOST_CUT_OFF = 0.1
"""There is no verdict where a larger share of the answers at a place was cut off before it was right."""


@dataclass(frozen=True)
class Answers:
    """Answers in words, right or wrong.

    `found`: whether the moved fact was in the answer, by trial and position; `every`: whether all asked facts were
    (with one fact: `found`); `rule`: how answers are scored; `words`: mean length of the placed prompts. `until`:
    the half-width of the gaps' intervals that was wanted, if one was. `missed`: an answer to the fact alone that
    is not right, and what is. `cut_off`: by position, the share of answers that ended before they were right, for
    want of tokens (`most_out`); they count as not found.
    """

    rule: str
    found: Bool[np.ndarray, "prompt position"]
    every: Bool[np.ndarray, "prompt position"]
    words: float
    until: float | None = None
    missed: tuple[str, str] | None = None
    cut_off: tuple[float, ...] = ()
    most_out: int | None = None

    @property
    def several(self) -> bool:
        """Whether there is more to find than the moved fact, and not all of it was found wherever that was."""
        return bool((self.every != self.found).any())

    @property
    def too_often_cut_off(self) -> bool:
        """Whether at some place a larger share than `MOST_CUT_OFF` of the answers was cut off."""
        return max(self.cut_off, default=0.0) > MOST_CUT_OFF


@dataclass(frozen=True)
class RetrievalCurve:
    """Retrieval by position, over `prompts` trials, each asked at every position.

    `job`: what was asked. `depth`: mean place of the fact, as a share of what else there is. `chance`: the share
    that guessing or copying gets right (0: there is nothing to copy, or nobody knows). `curves`: by quantity and
    position, an `Estimate` (nats, or a share). `gaps`: by quantity, first − middle, last − middle, first − last,
    within trials. `overall`: over all positions. `equivalence`: the difference, of margins in nats or in accuracy,
    that counts as none; without one no two places are said to be alike.

    Of margins: `token`, mean place in tokens; `tokens`, mean length; `candidates`; `overall` has choice and lift.
    Of answers in words: `answers`; `overall` has the mean, the control arms and their effects.
    """

    model: str
    job: Mapping[str, Any]
    prompts: int
    chance: float
    depth: Float[np.ndarray, "position"]
    curves: Mapping[str, list[Estimate]]
    gaps: Mapping[str, Mapping[str, Estimate]]
    overall: Mapping[str, Estimate]
    equivalence: float | None = None
    token: Float[np.ndarray, "position"] | None = None
    tokens: float = math.nan
    candidates: int | None = None
    answers: Answers | None = None

    @property
    def deciding(self) -> Mapping[str, Estimate]:
        """The gaps that the verdict rests on: of margins, where there are any, else of accuracy."""
        return self.gaps["accuracy" if self.answers else "margin"]

    @property
    def able(self) -> bool:
        """Whether the curve means something: whether what was asked goes surely better than by chance.

        Of margins: choice lies above chance and, in a list, lift above 0, each with its 95 % interval (around a
        needle there is nothing else to copy: there a lift of 0 is no failure). Of answers: the fact is found more
        often than without it and, in a drawn order, than by copying; not where too many were cut off.
        """
        return not self._cut_off and statistics.above_chance(self._against_chance)

    @property
    def verdict(self) -> Verdict:
        """The shape, by the intervals of the deciding gaps (`decide`); it says nothing of an end that is open.

        Of answers inconclusive where too many were cut off, and at ceiling what is always right, or surely in more
        than `statistics.CEILING`, where no difference between places is significant.
        """
        if self._cut_off:
            return "inconclusive"
        ceiling = self.answers is not None and statistics.at_ceiling(self.answers.found, self.overall["mean"])
        return statistics.decide(self.deciding, self.equivalence, self._against_chance, ceiling=ceiling)

    @property
    def ends(self) -> dict[str, str]:
        """The first and the last place against the middle; inconclusive unless above chance."""
        return statistics.ends_of(self.deciding, self.equivalence, self.able)

    @property
    def detectable(self) -> dict[str, float | None]:
        """By deciding gap, the least one that so many trials would show; None where no two trials differ."""
        return statistics.detectable_of(self.deciding)

    @property
    def prompts_to_tell(self) -> dict[str, int | None]:
        """`Estimate.draws_to_tell` of the deciding gaps; None where its interval leaves out 0 already."""
        return {name: gap.draws_to_tell() for name, gap in self.deciding.items()}

    @property
    def doubts(self) -> list[str]:
        """What the trials leave open of the verdict, as `Profile.doubts` says it; nothing where all is decided."""
        if not self.able:
            whether = f"it does better than chance{statistics.would(self.chance_needs, 'its shares')}"
            return not_told(self.prompts, [whether]) if self.verdict == "inconclusive" else []
        left = [end for end, said in self.ends.items() if said == statistics.END_WORDS[0]]
        needed = {end: self.prompts_to_tell[f"{end} - middle"] for end in left}
        return not_told(
            self.prompts,
            [
                f"the {end} is favoured{statistics.would(one, 'the difference')}"
                for end, one in needed.items()
            ],
        )

    @property
    def chance_needs(self) -> int | None:
        """About how many trials would tell it from chance."""
        needed = [one.draws_to_tell(level) for one, level, _ in self._against_chance]
        return max(filter(None, needed), default=None)

    @property
    def half_width(self) -> float:
        """Half the widest interval of the gaps in accuracy."""
        return max(gap.half_width for gap in self.gaps["accuracy"].values())

    @property
    def reached(self) -> bool | None:
        """Whether the wanted half-width (`Answers.until`) was reached; None where none was wanted."""
        wanted = self.answers and self.answers.until
        return None if wanted is None else bool(self.half_width <= wanted)

    def trials_for(self, half_width: float) -> int:
        """About how many trials make every gap's interval in accuracy ± `half_width`, were the spread as seen."""
        return max(gap.draws_for(half_width) for gap in self.gaps["accuracy"].values())

    def profile(self, quantity: str = "accuracy") -> Profile:
        """A curve as a profile over places, for `posbias.compare` and `posbias.order`; of answers with its trials.

        Raises `InvalidValueError` for a quantity that there is not.
        """
        numbers = self.curves[one_of("quantity", quantity, self.curves)]
        if self.answers is not None and quantity == "accuracy":
            attrs = {"model": self.model, "job": dict(self.job), "rule": self.answers.rule, "able": self.able}
            attrs |= {"depth": self.depth.tolist(), "words": self.answers.words}
            return profile_of_trials(self.answers.found.astype(float), attrs)
        values = np.array([number.value for number in numbers])
        se, kind = np.array([number.se for number in numbers]), "signed"
        if numbers[0].method == "wilson":
            se, kind = np.sqrt(values * (1.0 - values) / self.prompts), "rate"
        return Profile(values, measures=quantity, se=se, attrs={"model": self.model}, kind=kind)

    def sentences(self) -> list[str]:
        """The answer in words: what the model can do, then what position does to it."""
        return _of_margins(self) if self.answers is None else _of_answers(self, self.answers)

    @property
    def _cut_off(self) -> bool:
        return self.answers is not None and self.answers.too_often_cut_off

    @property
    def _against_chance(self) -> statistics.Against:
        """Each number with what it must exceed, and what it surely does not at chance.

        A lift of ln 2 doubles the odds of the right thing.
        """
        if self.answers is not None:
            numbers = [(self.overall[EFFECTS[0]], 0.0)]
            numbers += [(self.overall[SHUFFLED], self.chance)] if self.chance else []
        else:
            numbers = [(self.overall["choice"], self.chance)]
        against = [(one, level, level + statistics.CLEAR * (1.0 - level)) for one, level in numbers]
        copies = self.answers is None and self.job["task"] != "needle"
        return [*against, *([(self.overall["lift"], 0.0, math.log(2))] if copies else [])]


def profile_of_trials(found: Float[np.ndarray, "prompt position"], about: Mapping[str, Any]) -> Profile:
    """Trials as a profile of rates with its standard error; `about` has model, job, rule, able, words and depth.

    Tokens of a prompt are estimated from its words, for who asks what the profile was measured at.
    """
    attrs = dict(about) | {"tokens": TOKENS_A_WORD * about["words"]}
    se = found.std(axis=0, ddof=1) / math.sqrt(len(found))
    return Profile(found.mean(axis=0), kind="rate", measures="accuracy", samples=found, se=se, attrs=attrs)


# --- in sentences ---------------------------------------------------------------------------------------------


def _of_margins(curve: RetrievalCurve) -> list[str]:
    """Of a model that was opened."""
    choice, lift = curve.overall["choice"], curve.overall["lift"]
    greedy = np.mean([share.value for share in curve.curves["accuracy"]])
    said = [
        f"{curve.model} prefers the right thing among {curve.candidates} in {_percent(choice)}, chance "
        f"{curve.chance:.0%}, and writes it in {greedy:.0%}; asking for it rather than for somebody else adds "
        f"{lift} nats"
    ]
    if not curve.able:
        would_tell = statistics.would(curve.chance_needs, "its shares")
        doubt = f"inconclusive: {curve.prompts} prompts do not distinguish it from chance{would_tell}"
        at_chance = "at chance: the curve shows where it copies from, not what it can find"
        return [*said, at_chance if curve.verdict == "at chance" else f"{doubt}: {statistics.MAY_COPY}"]
    for name, gap in curve.deciding.items():
        low, high = gap.interval
        said.append(
            f"{name}: {gap} nats (95 % interval {low:.2f} to {high:.2f}), {curve.gaps['accuracy'][name]} in "
            f"accuracy: {statistics.gap_words(name, gap, curve.equivalence)}{_needed(curve.prompts_to_tell[name])}"
        )
    effort = f"{curve.prompts} prompts"
    verdict = statistics.in_words(curve.verdict, curve.deciding, curve.equivalence, effort, " nats")
    return [*said, *_widths(curve), f"verdict: {verdict}"]


def _of_answers(curve: RetrievalCurve, answers: Answers) -> list[str]:
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
        f"{name}: {signed(gap)}: {statistics.gap_words(name, gap, curve.equivalence)}"
        for name, gap in curve.deciding.items()
    ]
    takes = ", ".join(
        f"± {width:g} takes {about(curve.trials_for(width))} trials" for width in statistics.WIDTHS
    )
    said.append(f"intervals of the gaps are ± {curve.half_width:.3f} at most; {takes}")
    return [*said, *_ran_out(curve, answers), verdict]


def signed(one: Estimate, unit: str = "accuracy") -> str:
    """A difference with its interval, in words."""
    return f"{one.value:+.3f} in {unit} (95 % interval {one.interval[0]:+.3f} to {one.interval[1]:+.3f})"


def _widths(curve: RetrievalCurve) -> list[str]:
    """How well the gaps in accuracy are known, and what it takes to know them better."""
    known = [gap for gap in curve.gaps["accuracy"].values() if gap.known]
    if not known:
        return []
    half = max(gap.half_width for gap in known)
    needs = {width: max(gap.draws_for(width) for gap in known) for width in statistics.WIDTHS if width < half}
    takes = ", ".join(f"± {width:g} takes {about(draws)} prompts" for width, draws in needs.items())
    return [f"in accuracy the intervals of the gaps are ± {half:.3f} at most{f'; {takes}' if takes else ''}"]


def _verdict(curve: RetrievalCurve, answers: Answers) -> str:
    effort = f"{curve.prompts} {'questions' if curve.job['task'] == 'documents' else 'trials'}"
    if answers.too_often_cut_off:
        return "inconclusive: too many answers were cut off"
    if curve.verdict == "inconclusive" and not curve.able:
        return f"inconclusive: {effort} do not distinguish it from chance, so {statistics.MAY_COPY}"
    return statistics.in_words(curve.verdict, curve.deciding, curve.equivalence, effort, found=answers.found)


def _were_cut_off(curve: RetrievalCurve, answers: Answers) -> list[str]:
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


def _not_even_alone(curve: RetrievalCurve, answers: Answers) -> list[str]:
    """That something is wrong before position: with an answer, where one is known."""
    if curve.overall[ALONE].interval[1] >= SELDOM or answers.too_often_cut_off:
        return []
    answer, right = (shortened(one.strip()) for one in answers.missed or ("", ""))
    shown = f" (to one, {answer} is answered, where {right} is right)" if answers.missed else ""
    return [
        f"it is seldom found even alone{shown}: read some answers; the prompt, the server's template, or what "
        "counts as right may not fit"
    ]


def _ran_out(curve: RetrievalCurve, answers: Answers) -> list[str]:
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
