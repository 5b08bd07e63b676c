"""What answers in words say of retrieval by position: a curve, the gaps of its ends, and what the controls say.

Answers are right or wrong (`scoring`); there are no probabilities. A curve means something where the fact is
found more often than it is guessed: the arm without it says how often that is. In a list there is more to copy:
whoever does not heed the question is right in one of K of lists in a drawn order, whatever place they copy from.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError
from posbias.profiles.estimate import Estimate, about
from posbias.profiles.profile import Profile
from posbias.profiles.summary import Verdict
from posbias.profiles.telling import not_told
from posbias.retrieval import statistics
from posbias.retrieval.resampling import resampled
from posbias.retrieval.statistics import GAPS, gaps_of
from posbias.retrieval.trials import ABSENT, ALONE, ARMS, SHUFFLED
from posbias.retrieval.words import TOKENS_A_WORD

EFFECTS = (f"mean - {ABSENT}", f"{ALONE} - middle", f"{SHUFFLED} - mean")
"""What the control arms are held against: the mean over places, or the middle (the mean of all inner places)."""
SELDOM = 0.5
"""A fact that is surely found less often than so when alone is not read: something before position is wrong."""
CEILING = 1 - statistics.EQUIVALENCE
"""Where surely more than this is right, no place can be much worse than another, whatever position does."""
MOST_CUT_OFF = 0.1
"""There is no verdict where a larger share of the answers at a place was cut off before it was right."""


@dataclass(frozen=True)
class AnswerCurve:
    """Retrieval by position from answers in words, over `len(found)` trials.

    `found`: whether the moved fact was in the answer, by trial and position; `arms`: the same for each control
    arm; `every`: whether all asked facts were, by trial and position (with one fact: `found`). `depth`: mean place
    of the fact as a share of what else there is; `words`: mean length of the placed prompts. `job` is what was
    asked, `rule` how answers are scored; `chance` is how often copying is right in a drawn order (0: there is
    nothing else to copy, or nobody knows). `until`: the half-width of the gaps' intervals that was wanted, if one
    was. `missed`: an answer to the fact alone that is not right, and what is. `equivalence`: the difference in
    accuracy that counts as none. `cut_off`: by position, the share of answers that ended before they were right,
    for want of tokens (`most_out`); they count as not found. Raises `InvalidValueError` for fewer than two trials.
    """

    model: str
    job: Mapping[str, Any]
    rule: str
    found: Bool[np.ndarray, "prompt position"]
    every: Bool[np.ndarray, "prompt position"]
    arms: Mapping[str, Bool[np.ndarray, "prompt"]]
    depth: Float[np.ndarray, "position"]
    words: float
    chance: float = 0.0
    until: float | None = None
    missed: tuple[str, str] | None = None
    equivalence: float = statistics.EQUIVALENCE
    cut_off: tuple[float, ...] = ()
    most_out: int | None = None

    def __post_init__(self):
        if len(self.found) < 2:
            raise InvalidValueError(f"prompts: {len(self.found)} given, at least 2 trials needed")

    @property
    def prompts(self) -> int:
        """Trials, each asked at every position."""
        return len(self.found)

    @property
    def accuracy(self) -> list[Estimate]:
        """By position, the share of trials in which the moved fact was found."""
        return [self._numbers[f"at {k}"] for k in range(self.found.shape[1])]

    @property
    def all_found(self) -> list[Estimate]:
        """By position, the share of trials in which all asked facts were found."""
        return [self._numbers[f"every {k}"] for k in range(self.found.shape[1])]

    @property
    def several(self) -> bool:
        """Whether there is more to find than the moved fact, and not all of it was found wherever that was."""
        return bool((self.every != self.found).any())

    @property
    def controls(self) -> dict[str, Estimate]:
        """By control arm, the share of trials in which the fact was in the answer."""
        return {name: self._numbers[name] for name in ARMS}

    @property
    def gaps(self) -> dict[str, Estimate]:
        """Differences between places, within trials."""
        return {name: self._numbers[name] for name in GAPS}

    @property
    def effects(self) -> dict[str, Estimate]:
        """Differences to the control arms, within trials."""
        return {name: self._numbers[name] for name in EFFECTS}

    @cached_property
    def _numbers(self) -> dict[str, Estimate]:
        """Every number, from one set of resamples."""
        found, places = self.found.astype(float), self.found.shape[1]
        arms = {name: self.arms[name].astype(float) for name in ARMS}
        mean, middle = found.mean(axis=1), found[:, 1:-1].mean(axis=1)
        shares = {"mean": mean} | {f"at {k}": found[:, k] for k in range(places)}
        shares |= {f"every {k}": self.every[:, k].astype(float) for k in range(places)} | arms
        effects = (mean - arms[ABSENT], arms[ALONE] - middle, arms[SHUFFLED] - mean)
        columns = shares | gaps_of(found) | dict(zip(EFFECTS, effects, strict=True))
        limits = [(0.0, 1.0) if name in shares else (-1.0, 1.0) for name in columns]
        table = resampled(np.stack(list(columns.values()), axis=1), limits, int(self.job.get("seed", 0)))
        return dict(zip(columns, table, strict=True))

    @property
    def able(self) -> bool:
        """Whether the fact is surely found more often than without it, and in a drawn order than by chance.

        Not where a larger share of the answers at a place was cut off than `MOST_CUT_OFF`.
        """
        return not self.too_often_cut_off and statistics.above_chance(self._against_chance)

    @property
    def too_often_cut_off(self) -> bool:
        """Whether at some place a larger share than `MOST_CUT_OFF` of the answers was cut off."""
        return max(self.cut_off, default=0.0) > MOST_CUT_OFF

    @property
    def _against_chance(self) -> statistics.Against:
        """What places add to guessing and, in a list, a drawn order, each with what it must exceed."""
        against = [
            (self.effects[EFFECTS[0]], 0.0),
            *([(self.controls[SHUFFLED], self.chance)] if self.chance else []),
        ]
        return [(one, level, level + statistics.CLEAR * (1.0 - level)) for one, level in against]

    @property
    def verdict(self) -> Verdict:
        """The shape, by the gaps' intervals (`decide`); inconclusive where too many answers were cut off.

        It says nothing of an end that is `inconclusive` (`ends`, `doubts`). At ceiling is what is always right, or
        surely in more than `CEILING`, where no difference between places is significant.
        """
        if self.too_often_cut_off:
            return "inconclusive"
        ceiling = at_ceiling(self.found, self._numbers["mean"])
        return statistics.decide(self.gaps, self.equivalence, self._against_chance, ceiling=ceiling)

    @property
    def ends(self) -> dict[str, str]:
        """The first and the last place against the middle; inconclusive where there is no verdict."""
        return statistics.ends_of(self.gaps, self.equivalence, self.able)

    @property
    def reached(self) -> bool | None:
        """Whether the wanted half-width (`until`) was reached; None where none was wanted."""
        return None if self.until is None else bool(self.half_width <= self.until)

    @property
    def half_width(self) -> float:
        """Half the widest interval of the gaps."""
        return max(gap.half_width for gap in self.gaps.values())

    def trials_for(self, half_width: float) -> int:
        """About how many trials make every gap's interval ± `half_width`, were the spread as seen."""
        return max(gap.draws_for(half_width) for gap in self.gaps.values())

    @property
    def doubts(self) -> list[str]:
        """What of the verdict the trials do not tell."""
        if not self.able:
            open_ = (
                ["it is found more often than guessed or copied"] if self.verdict == "inconclusive" else []
            )
            return not_told(self.prompts, open_)
        left = [end for end, said in self.ends.items() if said == "inconclusive"]
        return not_told(self.prompts, [f"the {end} is favoured" for end in left])

    def profile(self) -> Profile:
        """Accuracy as a profile over places, with its trials, ready for `posbias.compare` and `posbias.order`."""
        about = {"model": self.model, "job": dict(self.job), "rule": self.rule, "able": self.able}
        about["depth"] = self.depth.tolist()
        return profile_of_trials(self.found.astype(float), about | {"words": self.words})

    def sentences(self) -> list[str]:
        """The answer in words: what is guessed and what can be done, then what position does to it."""
        controls = self.controls
        told = [
            f"{self.model} finds the fact in {self.found.mean():.0%} of the placed prompts, guesses it without "
            f"the fact in {_percent(controls[ABSENT])}, finds it alone in {_percent(controls[ALONE])}, and with "
            f"everything in a drawn order in {_percent(controls[SHUFFLED])}"
            + (f"; copying any would be right in {self.chance:.0%} of these" if self.chance else "")
        ]
        told += self._were_cut_off()
        if not self.able:
            return [*told, *self._not_even_alone(), *self._ran_out(), f"verdict: {self._in_words()}"]
        told += [
            f"{name}: {signed(gap)}: {statistics.gap_words(name, gap, self.equivalence)}"
            for name, gap in self.gaps.items()
        ]
        told.append(
            f"intervals of the gaps are ± {self.half_width:.3f} at most; "
            + ", ".join(
                f"± {width:g} takes {about(self.trials_for(width))} trials" for width in statistics.WIDTHS
            )
        )
        return [*told, *self._ran_out(), f"verdict: {self._in_words()}"]

    @property
    def _effort(self) -> str:
        return f"{self.prompts} {'questions' if self.job['task'] == 'documents' else 'trials'}"

    def _in_words(self) -> str:
        """The verdict in words."""
        if self.too_often_cut_off:
            return "inconclusive: too many answers were cut off"
        if self.verdict == "inconclusive" and not self.able:
            return f"inconclusive: {self._effort} do not distinguish it from chance, so {statistics.MAY_COPY}"
        return statistics.in_words(self.verdict, self.gaps, self.equivalence, self._effort, found=self.found)

    def _were_cut_off(self) -> list[str]:
        """How many answers ended before they were right, and what helps."""
        count = round(sum(self.cut_off) * self.prompts)
        if not count:
            return []
        most = "" if self.most_out is None else f" {max(64, 2 * self.most_out)}"
        return [
            f"{count:,} of {self.found.size:,} answers were cut off before they were right, or empty, and count "
            f"as not found: --answer-tokens{most} gives them room (2048 where the model reasons first, or switch "
            "that off)"
        ]

    def _not_even_alone(self) -> list[str]:
        """That something is wrong before position: with an answer, where one is known."""
        if self.controls[ALONE].interval[1] >= SELDOM or self.too_often_cut_off:
            return []
        answer, right = (shortened(one.strip()) for one in self.missed or ("", ""))
        shown = f" (to one, {answer} is answered, where {right} is right)" if self.missed else ""
        return [
            f"it is seldom found even alone{shown}: read some answers; the prompt, the server's template, or what "
            "counts as right may not fit"
        ]

    def _ran_out(self) -> list[str]:
        """That the trials ended before the gaps were known as well as was wanted."""
        if self.reached is not False:
            return []
        return [
            f"± {self.until:g} was wanted and is not reached by the {self.prompts} trials that there were: "
            f"{about(self.trials_for(self.until or 0))} would reach it, were the spread as seen"
        ]


def profile_of_trials(found: Float[np.ndarray, "prompt position"], about: Mapping[str, Any]) -> Profile:
    """Trials as a profile of rates with its standard error; `about` has model, job, rule, able, words and depth.

    Tokens of a prompt are estimated from its words, for who asks what the profile was measured at.
    """
    attrs = dict(about) | {"tokens": TOKENS_A_WORD * about["words"]}
    se = found.std(axis=0, ddof=1) / math.sqrt(len(found))
    return Profile(found.mean(axis=0), kind="rate", measures="accuracy", samples=found, se=se, attrs=attrs)


def at_ceiling(found: Shaped[np.ndarray, "prompt position"], mean: Estimate) -> bool:
    """Whether all is right, or surely more than `CEILING` of it (`mean`, over trials)."""
    return bool((found == 1).all()) or mean.interval[0] > CEILING


def verdict_of_trials(found: Float[np.ndarray, "prompt position"], effort: str, measures: str) -> list[str]:
    """Of scores from 0 to 1 by trial and place, the gaps and the verdict in words, as of an `AnswerCurve`."""
    columns = gaps_of(found) | {"mean": found.mean(axis=1)}
    limits = [(float(name == "mean") - 1.0, 1.0) for name in columns]
    gaps = dict(zip(columns, resampled(np.stack(list(columns.values()), axis=1), limits), strict=True))
    ceiling = at_ceiling(found, gaps.pop("mean"))
    verdict = statistics.decide(gaps, statistics.EQUIVALENCE, ceiling=ceiling)
    said = [
        f"{name}: {signed(gap, measures)}: {statistics.gap_words(name, gap, statistics.EQUIVALENCE)}"
        for name, gap in gaps.items()
    ]
    return [
        *said,
        f"verdict: {statistics.in_words(verdict, gaps, statistics.EQUIVALENCE, effort, found=found)}",
    ]


def _percent(one: Estimate) -> str:
    return f"{one.value:.0%} (95 % interval {one.interval[0]:.0%} to {one.interval[1]:.0%})"


def signed(one: Estimate, unit: str = "accuracy") -> str:
    """A difference with its interval, in words."""
    return f"{one.value:+.3f} in {unit} (95 % interval {one.interval[0]:+.3f} to {one.interval[1]:+.3f})"
