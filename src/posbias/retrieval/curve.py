"""Retrieval by position as a curve with intervals, from margins of a model that is opened or from its answers.

A curve means something only where the model can do the task. Of a model that is opened two things are asked first:
does it pick the right thing more often than by chance, and is the right thing more likely than when somebody else
is asked for? A model that copies whatever stands last passes the first question at that position, and fails the
second. Answers in words are right or wrong (`is_right`): there the arm without the fact says how often it is
guessed, and in a list whoever does not heed the question is right in one of K of lists in a drawn order, whatever
place they copy from.

Comparisons between positions are differences within trials, so what makes a trial hard cancels. The middle is the
mean of all inner places. `decide` gives the verdict of every curve.

What another way to ask changes (a system message, a chat template, another model) is a `CurveDifference`:

    plain, brief = (ask(Endpoint(URL, "m", system=text), job) for text in (None, "Answer in one word."))
    print(*curve_differences({"plain": plain, "brief": brief})[0].sentences(), sep="\n")

Differences are taken within trials, where these are the same. Several are looked at together, so their intervals
are wider than one alone (Bonferroni): all of them hold at once in at least 95 % of experiments.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from posbias.core import machine
from posbias.core.errors import InvalidValueError, one_of, positive
from posbias.profiles.estimate import Estimate, about, otherwise_at_most, quantile_of_t
from posbias.profiles.profile import Profile
from posbias.profiles.summary import Verdict, inconclusive
from posbias.retrieval.trials import ABSENT, ALONE, ARMS, SHUFFLED
from posbias.retrieval.wordings import TOKENS_A_WORD

if TYPE_CHECKING:
    import xarray as xr

QUANTITIES = ("accuracy", "choice", "margin", "margin_mean", "control_margin", "lift")
"""What margins have by position; `lift` is the margin against the others' mean less that of the control."""
EFFECTS = (f"mean - {ABSENT}", f"{ALONE} - middle", f"{SHUFFLED} - mean")
"""What the control arms are held against: the mean over places, or the middle (the mean of all inner places)."""
MEAN, ENDS = "mean", "first - last"
GAPS = ("first - middle", "last - middle", ENDS)
MOST_CUT_OFF = 0.1
"""There is no verdict where a larger share of the answers at a place was cut off before it was right."""
WIDTHS = (0.1, 0.05, 0.02)
"""Half-widths of a gap's interval in accuracy for which the number of trials is estimated."""
EQUIVALENCE = 0.05
"""A difference in accuracy up to this counts as none, unless another is wanted."""
CEILING = 1 - EQUIVALENCE
"""Where surely more than this is right, no place can be much worse than another, whatever position does."""
CLEAR = 0.25
"""At chance is what surely goes less than so far from chance to always right; less surely, it is inconclusive."""
MAY_COPY = "the curve may show where it copies from, not what it can find"
VERDICTS: dict[Verdict, str] = {
    "U": "a U: both ends are found better than the middle",
    "primacy": "primacy: the first place is found better than the middle",
    "recency": "recency: the last place is found better than the middle",
    "middle": "the middle is found better than an end",
    "flat": "flat: no difference beyond {equivalence} between the ends and the middle",
    "inconclusive": "inconclusive: {misses}",
    "at ceiling": "at ceiling: {right} right, ask something harder",
    "at chance": f"at chance: {MAY_COPY}",
}
"""What a curve can be, in words."""
END_WORDS = ("inconclusive", "favoured", "no difference", "at a disadvantage")
"""What an end can be against the middle; of one whose difference has the sign 1, the second, of −1, the last."""
Against = Sequence[tuple[Estimate, float, float]]
"""Numbers, the level that each must exceed, and one that it stays below at chance."""
Within = Mapping[str, Float[np.ndarray, "prompt"]]
"""Numbers by trial, under their names."""


@dataclass(frozen=True)
class Answers:
    """Answers in words, right or wrong.

    `found`: whether the moved fact was in the answer, by trial and position; `every`: whether all asked facts were
    (with one fact: `found`); `rule`: how answers are scored; `words`: mean length of the placed prompts. `until`:
    the half-width of the gaps' intervals that was wanted, if one was. `cut_off`: by position, the share of answers
    that ended before they were right, for want of tokens (`most_out`); they count as not found.
    """

    rule: str
    found: Bool[np.ndarray, "prompt position"]
    every: Bool[np.ndarray, "prompt position"]
    words: float
    until: float | None = None
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
        return not self._cut_off and above_chance(self._against_chance)

    @property
    def verdict(self) -> Verdict:
        """The shape, by the intervals of the deciding gaps (`decide`); it says nothing of an end that is open.

        Of answers inconclusive where too many were cut off, and at ceiling what is always right, or surely in more
        than `CEILING`, where no difference between places is significant.
        """
        if self._cut_off:
            return "inconclusive"
        ceiling = self.answers is not None and at_ceiling(self.answers.found, self.overall[MEAN])
        return decide(self.deciding, self.equivalence, self._against_chance, ceiling=ceiling)

    @property
    def ends(self) -> dict[str, str]:
        """First and last place against the middle, each one of `END_WORDS`; inconclusive unless above chance."""
        words = [compared(self.deciding[name], self.equivalence) for name in GAPS[:2]]
        return dict(zip(("first", "last"), words if self.able else [END_WORDS[0]] * 2, strict=True))

    @property
    def detectable(self) -> dict[str, float | None]:
        """By deciding gap, the least one that this many trials would show; None where no two trials differ."""
        least = {name: gap.detectable for name, gap in self.deciding.items()}
        return {name: one if math.isfinite(one) else None for name, one in least.items()}

    @property
    def prompts_to_tell(self) -> dict[str, int | None]:
        """`Estimate.draws_to_tell` of the deciding gaps; None where its interval leaves out 0 already."""
        return {name: gap.draws_to_tell() for name, gap in self.deciding.items()}

    @property
    def doubts(self) -> list[str]:
        """What the trials leave open of the verdict, as `Profile.doubts` says it; nothing where all is decided."""
        if not self.able:
            whether = f"it does better than chance{self._chance_needs}"
            return inconclusive(self.prompts, [whether]) if self.verdict == "inconclusive" else []
        left = [end for end, words in self.ends.items() if words == END_WORDS[0]]
        needed = {end: _would(self.prompts_to_tell[f"{end} - middle"], "the difference") for end in left}
        return inconclusive(self.prompts, [f"the {end} is favoured{would}" for end, would in needed.items()])

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
        lines = _abilities(self) if self.answers is None else _answered(self, self.answers)
        if self.able:
            unit = "accuracy" if self.answers else "nats"
            gaps = [gap_line(name, gap, self.equivalence, unit) for name, gap in self.deciding.items()]
            lines[1:1] = gaps
        return [*lines, f"verdict: {self._verdict_in_words()}"]

    def _verdict_in_words(self) -> str:
        trials = "trials" if self.answers else "prompts"
        effort = f"{self.prompts} {'questions' if self.job['task'] == 'documents' else trials}"
        if self._cut_off:
            return "inconclusive: too many answers were cut off"
        if self.verdict == "inconclusive" and not self.able:
            return (
                f"inconclusive: {effort} do not distinguish it from chance{self._chance_needs}, so {MAY_COPY}"
            )
        unit, found = ("", self.answers.found) if self.answers else (" nats", None)
        return in_words(self.verdict, self.deciding, self.equivalence, effort, unit, found)

    @property
    def _cut_off(self) -> bool:
        return self.answers is not None and self.answers.too_often_cut_off

    @property
    def _chance_needs(self) -> str:
        """About how many trials would tell it from chance, in brackets."""
        needed = [one.draws_to_tell(level) for one, level, _ in self._against_chance]
        return _would(max(filter(None, needed), default=None), "its shares")

    @property
    def _against_chance(self) -> Against:
        """Each number with what it must exceed, and what it surely does not at chance.

        A lift of ln 2 doubles the odds of the right thing.
        """
        if self.answers is not None:
            numbers = [(self.overall[EFFECTS[0]], 0.0)]
            numbers += [(self.overall[SHUFFLED], self.chance)] if self.chance else []
        else:
            numbers = [(self.overall["choice"], self.chance)]
        against = [(one, level, level + CLEAR * (1.0 - level)) for one, level in numbers]
        copies = self.answers is None and self.job["task"] != "needle"
        return [*against, *([(self.overall["lift"], 0.0, math.log(2))] if copies else [])]


def profile_of_trials(found: Float[np.ndarray, "prompt position"], about: Mapping[str, Any]) -> Profile:
    """Trials as a profile of rates with its standard error; `about` has model, job, rule, able, words and depth.

    Tokens of a prompt are estimated from its words, for who asks what the profile was measured at.
    """
    attrs = dict(about) | {"tokens": TOKENS_A_WORD * about["words"]}
    return Profile.from_rows(found, kind="rate", measures="accuracy", attrs=attrs)


# --- from what was asked --------------------------------------------------------------------------------------


def retrieval_curve(retrieval: "xr.Dataset", equivalence: float | None = None) -> RetrievalCurve:
    """The curve of a dataset that `retrieve` made: means over prompts, which are independent.

    `equivalence`: nats up to which a difference of margins counts as none. Raises `InvalidValueError` for a
    dataset that is no retrieval, and for an equivalence that is not above 0.
    """
    if equivalence is not None:
        positive("equivalence", equivalence)
    if retrieval.attrs.get("posbias_kind") != "retrieval":
        raise InvalidValueError(
            f"retrieval: expected a dataset of kind 'retrieval', got {retrieval.attrs.get('posbias_kind')!r}"
        )
    lift = retrieval["margin_mean"] - retrieval["control_margin_mean"]
    columns = {name: np.asarray(retrieval[name].values) for name in QUANTITIES[:-1]} | {"lift": lift.values}

    def mean(name: str, column: Float[np.ndarray, "prompt"]) -> Estimate:
        share = name in ("accuracy", "choice")
        return Estimate.of_counts(int(column.sum()), column.size) if share else Estimate.of_mean(column)

    choice = Estimate.of_mean(columns["choice"].mean(axis=1))
    low, high = choice.interval
    if choice.se == 0:  # all trials are alike: their number says how sure that is
        choice = Estimate.alike(choice.value, choice.n or 1)
    else:
        choice = replace(choice, ends=(max(0.0, low), min(1.0, high)))
    return RetrievalCurve(
        model=str(retrieval.attrs["model"]),
        job=json.loads(retrieval.attrs["job"]),
        prompts=retrieval.sizes["prompt"],
        chance=1.0 / retrieval.sizes["candidate"],
        depth=retrieval["depth"].values.mean(axis=0),
        curves={name: [mean(name, column) for column in rows.T] for name, rows in columns.items()},
        gaps={
            name: {gap: _difference(column) for gap, column in gaps_of(rows).items()}
            for name, rows in columns.items()
        },
        overall={"choice": choice, "lift": Estimate.of_mean(columns["lift"].mean(axis=1))},
        equivalence=equivalence,
        token=retrieval["token"].values.mean(axis=0),
        tokens=float(retrieval["tokens"].values.mean()),
        candidates=retrieval.sizes["candidate"],
    )


def _difference(within: Float[np.ndarray, "prompt"]) -> Estimate:
    """The mean of paired differences; where all are the same, prompts do not say how sure that is."""
    found = Estimate.of_mean(within)
    return found if found.se else Estimate(found.value, math.nan, found.n)


def answer_curve(
    model: str,
    job: Mapping[str, Any],
    rule: str,
    found: Bool[np.ndarray, "prompt position"],
    every: Bool[np.ndarray, "prompt position"],
    arms: Mapping[str, Bool[np.ndarray, "prompt"]],
    depth: Float[np.ndarray, "position"],
    words: float,
    *,
    chance: float = 0.0,
    equivalence: float = EQUIVALENCE,
    **more: Any,
) -> RetrievalCurve:
    """The curve of answers in words, every number from one set of resamples of its trials.

    `arms`: whether the fact was in the answer, by control arm and trial. Others as of `Answers` and
    `RetrievalCurve`. Raises `InvalidValueError` for fewer than two trials.
    """
    if len(found) < 2:
        raise InvalidValueError(f"prompts: expected at least 2 trials, got {len(found)}")
    share, places = found.astype(float), range(found.shape[1])
    mean, middle = share.mean(axis=1), share[:, 1:-1].mean(axis=1)
    own = {name: arms[name].astype(float) for name in ARMS}
    shares = {MEAN: mean} | {f"at {k}": share[:, k] for k in places} | own
    shares |= {f"every {k}": every[:, k].astype(float) for k in places}
    effects = (mean - own[ABSENT], own[ALONE] - middle, own[SHUFFLED] - mean)
    differences = gaps_of(share) | dict(zip(EFFECTS, effects, strict=True))
    numbers = resampled({(0.0, 1.0): shares, (-1.0, 1.0): differences}, int(job.get("seed", 0)))
    return RetrievalCurve(
        model=model,
        job=job,
        prompts=len(found),
        chance=chance,
        depth=depth,
        curves={
            "accuracy": [numbers[f"at {k}"] for k in places],
            "all_found": [numbers[f"every {k}"] for k in places],
        },
        gaps={"accuracy": {name: numbers[name] for name in GAPS}},
        overall={name: numbers[name] for name in (MEAN, *ARMS, *EFFECTS)},
        equivalence=equivalence,
        answers=Answers(rule, found, every, words, **more),
    )


def verdict_of_trials(found: Float[np.ndarray, "prompt position"], effort: str, measures: str) -> list[str]:
    """Of scores from 0 to 1 by trial and place, whoever made them: the gaps and the verdict."""
    gaps = resampled({(-1.0, 1.0): gaps_of(found), (0.0, 1.0): {MEAN: found.mean(axis=1)}})
    verdict = decide(gaps, EQUIVALENCE, ceiling=at_ceiling(found, gaps.pop(MEAN)))
    lines = [gap_line(name, gap, EQUIVALENCE, measures) for name, gap in gaps.items()]
    return [*lines, f"verdict: {in_words(verdict, gaps, EQUIVALENCE, effort, found=found)}"]


# --- the ends against the middle ------------------------------------------------------------------------------


def gaps_of(found: Float[np.ndarray, "prompt position"]) -> dict[str, Float[np.ndarray, "prompt"]]:
    """`GAPS` within each trial, the middle being the mean of all inner places; of two, first − last alone."""
    first, inner, last = found[:, 0], found[:, 1:-1], found[:, -1]
    if not inner.shape[1]:
        return {ENDS: first - last}
    middle = inner.mean(axis=1)
    return dict(zip(GAPS, (first - middle, last - middle, first - last), strict=True))


def above_chance(against: Against) -> bool:
    """Whether each number's 95 % interval lies above its level."""
    return all(one.interval[0] > level for one, level, _ in against)


def at_ceiling(found: Shaped[np.ndarray, "prompt position"], mean: Estimate) -> bool:
    """Whether all is right, or surely more than `CEILING` of it (`mean`, over trials)."""
    return bool((found == 1).all()) or mean.interval[0] > CEILING


def decide(
    gaps: Mapping[str, Estimate], equivalence: float | None, against: Against = (), *, ceiling: bool = False
) -> Verdict:
    """The verdict of a curve; every place that prints one asks here.

    Each number of `against` must lie above its level, by its 95 % interval; where one surely does not, the curve
    is at chance, else inconclusive. An end is favoured or not where its gap's 95 % interval leaves out 0 (of two
    places, against the other one). Where neither is, the curve is at `ceiling`, or flat if the 90 %
    interval of every gap lies within ± `equivalence`; else it is inconclusive.
    """
    if not above_chance(against):
        return "at chance" if any(one.interval[1] < most for one, _, most in against) else "inconclusive"
    if GAPS[0] in gaps:
        first, last = (gaps[name].sign for name in GAPS[:2])
    else:
        first, last = max(0, gaps[ENDS].sign), max(0, -gaps[ENDS].sign)
    if first > 0 or last > 0:
        return "U" if first > 0 and last > 0 else "primacy" if first > 0 else "recency"
    if first < 0 or last < 0:
        return "middle"
    if ceiling:
        return "at ceiling"
    alike = equivalence is not None and all(gap.within(equivalence) for gap in gaps.values())
    return "flat" if alike else "inconclusive"


def compared(gap: Estimate, equivalence: float | None) -> str:
    """One of `END_WORDS` for a difference: by its 95 % interval, or its 90 % interval within ± `equivalence`."""
    small = equivalence is not None and gap.within(equivalence)
    return END_WORDS[gap.sign or 2 * small]


RESAMPLES = 4000
_AT_ONCE = 4_000_000


def resampled(
    columns: Mapping[tuple[float, float], Within], seed: int = 0, together: int = 1
) -> dict[str, Estimate]:
    """The mean over trials of each column, with intervals from resamples of whole trials that all columns share.

    `columns` stand under the least and the most that they can be: an interval stays within them. Percentiles are
    widened as Student's t is (the expanded percentile interval of Hesterberg 2015, "What teachers should know
    about the bootstrap"): plain ones are too short for few trials. A column without spread has the interval of the
    number of trials alone: at most 1 − .05^(1/n) of all trials differ from those seen. `together` intervals hold
    at once in 95 % of experiments (Bonferroni: each in 1 − .05/`together`).
    """
    limits = {name: ends for ends, named in columns.items() for name in named}
    samples = np.stack([column for named in columns.values() for column in named.values()], axis=1)
    trials, means = len(samples), samples.mean(axis=0).tolist()
    errors = [math.nan] * len(means)
    drawn = np.empty((0, len(means)))
    if trials > 1:
        errors = (samples.std(axis=0, ddof=1) / math.sqrt(trials)).tolist()
        drawn = _means(samples, seed, RESAMPLES * together)
    found = {}
    for (name, (least, most)), mean, se, draws in zip(limits.items(), means, errors, drawn.T, strict=True):
        ends = []
        for miss in (0.05 / together, 0.1 / together):
            if se > 0:
                low, high = np.quantile(draws, _tails(trials, miss)).tolist()
            else:
                others = otherwise_at_most(trials, miss)
                low, high = mean - others * (mean - least), mean + others * (most - mean)
            ends.append((max(least, low), min(most, high)))
        held = {"ends": ends[0], "narrow": ends[1], "method": "bootstrap", "together": together}
        found[name] = Estimate(mean, se, trials, **held)
    return found


def _tails(trials: int, miss: float) -> list[float]:
    from scipy.special import ndtr

    tail = float(ndtr(-quantile_of_t(trials - 1, 1.0 - miss / 2) * math.sqrt(trials / (trials - 1))))
    return [tail, 1.0 - tail]


def _means(
    samples: Float[np.ndarray, "prompt quantity"], seed: int, resamples: int
) -> Float[np.ndarray, "resample quantity"]:
    random = machine.stream(seed, "retrieval.bootstrap")
    trials = len(samples)
    at_once = max(1, _AT_ONCE // trials)
    parts = []
    for begin in range(0, resamples, at_once):
        many = min(at_once, resamples - begin)
        rows = np.repeat(np.arange(many), trials) * trials + random.integers(trials, size=many * trials)
        counts = np.bincount(rows, minlength=many * trials).reshape(many, trials)
        parts.append(counts @ samples / trials)
    return np.concatenate(parts)


# --- in words -------------------------------------------------------------------------------------------------


def _abilities(curve: RetrievalCurve) -> list[str]:
    """What a model that was opened can do."""
    greedy = np.mean([share.value for share in curve.curves["accuracy"]])
    return [
        f"{curve.model} prefers the right thing among {curve.candidates} in {_percent(curve.overall['choice'])}, "
        f"chance {curve.chance:.0%}, and writes it in {greedy:.0%}; asking for it rather than for somebody else "
        f"adds {curve.overall['lift']} nats"
    ]


def _answered(curve: RetrievalCurve, answers: Answers) -> list[str]:
    """How often a model that was only asked finds the fact, and how sure its curve is."""
    lines = [
        f"{curve.model} finds the fact in {answers.found.mean():.0%} of the placed prompts, guesses it without "
        f"the fact in {_percent(curve.overall[ABSENT])}, finds it alone in {_percent(curve.overall[ALONE])}, and "
        f"with everything in a drawn order in {_percent(curve.overall[SHUFFLED])}"
        + (f"; copying any would be right in {curve.chance:.0%} of these" if curve.chance else "")
    ]
    if count := round(sum(answers.cut_off) * curve.prompts):
        most = "" if answers.most_out is None else f" {max(64, 2 * answers.most_out)}"
        lines.append(
            f"{count:,} of {answers.found.size:,} answers were cut off before they were right, or empty, and "
            f"count as not found: --answer-tokens{most} gives them room (2048 where the model reasons first, or "
            "switch that off)"
        )
    if curve.able:
        needs = [f"± {width:g} takes {about(curve.trials_for(width))} trials" for width in WIDTHS]
        lines.append(f"intervals of the gaps are ± {curve.half_width:.3f} at most; {', '.join(needs)}")
    if curve.reached is False:
        needed = about(curve.trials_for(answers.until or 0))
        lines.append(f"± {answers.until:g} is not reached by {curve.prompts} trials; {needed} would reach it")
    return lines


def in_words(
    verdict: Verdict,
    gaps: Mapping[str, Estimate],
    equivalence: float | None,
    effort: str,
    unit: str = "",
    found: Any = None,
) -> str:
    """A verdict in words; of one on one end, what is known of the other. `effort` is the number of trials."""
    misses = f"{effort} miss gaps under {{:.2g}}{unit}"
    rests_on = [gap.detectable for name, gap in gaps.items() if name != ENDS or len(gaps) == 1]
    least = max(filter(math.isfinite, rests_on), default=math.nan)
    right = "nearly all" if found is None else f"{found.sum():,.0f} of {found.size:,}"
    words = VERDICTS[verdict].format(equivalence=equivalence, misses=misses.format(least), right=right)
    if verdict not in ("primacy", "recency"):
        return words
    place = "last" if verdict == "primacy" else "first"
    if GAPS[0] not in gaps:
        return words.replace("middle", place)
    other = gaps[f"{place} - middle"]
    of_the_other = {
        "at a disadvantage": f", the {place} worse",
        "no difference": f", the {place} not beyond {equivalence}",
        "inconclusive": f"; of the {place}, {misses.format(other.detectable)}",
    }
    return words + of_the_other[compared(other, equivalence)]


def gap_line(name: str, gap: Estimate, equivalence: float | None, unit: str) -> str:
    """A difference of two places, with its interval and what it says."""
    words = compared(gap, equivalence)
    if words == "no difference":
        words += f" beyond {equivalence:g}"
    elif name == ENDS and gap.sign:
        words = f"the {'first' if gap.sign > 0 else 'last'} favoured"
    return f"{name}: {_signed(gap, unit)}: {words}"


def _signed(one: Estimate, unit: str) -> str:
    """A difference with its interval."""
    return f"{one.value:+.3f} in {unit} (95 % interval {one.interval[0]:+.3f} to {one.interval[1]:+.3f})"


def _percent(one: Estimate) -> str:
    return f"{one.value:.0%} (95 % interval {one.interval[0]:.0%} to {one.interval[1]:.0%})"


def _would(prompts: int | None, what: str) -> str:
    """In brackets, how many prompts would tell."""
    return "" if prompts is None else f" ({about(prompts)} would, were {what} as seen)"


# --- two curves of the same trials ----------------------------------------------------------------------------


@dataclass(frozen=True)
class CurveDifference:
    """What `way` changes against `against`: `numbers` are differences in accuracy, way − against.

    `MEAN` is that of the mean over places, each of `GAPS` that of a gap between places. Their intervals hold
    together, with those of all differences made at once. `dull`: the ways not above chance, of which
    a gap may show where is copied from. `trials`: how many each has; `paired` says that they are the same ones;
    `unit`: what is compared; `equivalence`: the difference that counts as none.
    """

    way: str
    against: str
    numbers: Mapping[str, Estimate]
    dull: tuple[str, ...]
    trials: tuple[int, int]
    paired: bool = True
    unit: str = "accuracy"
    equivalence: float = EQUIVALENCE

    @property
    def changed(self) -> list[str]:
        """The gaps that surely differ."""
        return [name for name, gap in self._gaps.items() if gap.sign]

    @property
    def _gaps(self) -> dict[str, Estimate]:
        return {name: gap for name, gap in self.numbers.items() if name != MEAN}

    @property
    def verdict(self) -> str:
        """`changes the bias`, `no difference` (90 % intervals within ± `equivalence`), or `inconclusive`."""
        if self.changed:
            return "changes the bias"
        alike = all(gap.within(self.equivalence) for gap in self._gaps.values())
        return "no difference" if alike else "inconclusive"

    def sentences(self) -> list[str]:
        """In words: what it does to accuracy, and what to the effect of position."""
        mean, effort = self.numbers[MEAN], " and ".join(map(str, self.trials[: 2 - self.paired]))
        words = (compared(mean, self.equivalence), "finds more", "finds less")
        lines = [f"{self.way} against {self.against}: {_signed(mean, self.unit)}: {words[mean.sign]}"]
        for name in self.changed:
            gap = self.numbers[name]
            lines.append(f"{name} is {'larger' if gap.sign > 0 else 'smaller'} by {_signed(gap, self.unit)}")
        if self.verdict == "no difference":
            lines.append(
                f"position matters as much to both: no gap differs by more than {self.equivalence:g}"
            )
        elif not self.changed:
            least = max(gap.detectable for gap in self._gaps.values())
            lines.append(
                f"inconclusive whether position matters more to one: {effort} trials miss changes of a gap "
                f"under {least:.2g}"
            )
        same = "the same trials, so differences are taken within them"
        lines.append(f"{effort} trials: {same if self.paired else 'not known to be the same, so unpaired'}")
        if self.dull:
            lines.append(f"not above chance: {', '.join(self.dull)}; gaps may be of what is copied there")
        return lines


def curve_differences(curves: Mapping[str, RetrievalCurve], *, together: int = 1) -> list[CurveDifference]:
    """What each way to ask changes against the first; `curves` by the name of the way.

    All must be of the same trials, scored by the same rule. `together` such tables (one for each size of a list,
    say) are looked at, and all their intervals hold at once.

    Raises `InvalidValueError` for fewer than two curves, and for other trials.
    """
    if len(curves) < 2:
        raise InvalidValueError(f"curves: expected at least two, got {len(curves)}")
    if together < 1:
        raise InvalidValueError(f"together: expected a whole number of at least 1, got {together}")
    (first, base), *others = ((name, curve.profile()) for name, curve in curves.items())
    for name, profile in others:
        if not same_trials(profile, base):
            raise InvalidValueError(
                f"curves: expected the trials of {first!r}, in words and scored by the same rule, got others in "
                f"{name!r}"
            )
    equivalence, count = curves[first].equivalence or EQUIVALENCE, len(others) * together
    return [
        _difference_of(profile, base, name, first, together=count, equivalence=equivalence)
        for name, profile in others
    ]


def profile_difference(
    p: Profile, q: Profile, *, way: str = "p", against: str = "q"
) -> CurveDifference | None:
    """What two curves by place differ in, `p` less `q`, whoever made them; None unless both are rates with trials.

    Where both are known to be of the same trials (`same_trials`), differences are taken within them, as by
    `curve_differences`; else the two are compared as unpaired. Their numbers of places may differ.
    """
    for one in (p, q):
        if one.kind != "rate" or one.tokens < 2 or one.samples is None or len(one.samples) < 2:
            return None
    return _difference_of(p, q, way, against) if p.measures == q.measures else None


def _difference_of(
    p: Profile, q: Profile, way: str, against: str, *, together: int = 1, equivalence: float = EQUIVALENCE
) -> CurveDifference:
    """What two rates with trials differ in; `together` such differences hold at once."""
    rows = [np.asarray(one.samples, dtype=np.float64) for one in (p, q)]
    means, gaps = [{MEAN: one.mean(axis=1)} for one in rows], [gaps_of(one) for one in rows]
    if min(p.tokens, q.tokens) == 2:  # two places have no middle
        gaps = [{ENDS: one[ENDS]} for one in gaps]
    count, paired = together * (1 + len(gaps[0])), same_trials(p, q)
    if paired:
        mean, gap = ({name: one[name] - other[name] for name in one} for one, other in (means, gaps))
        seed = int(p.attrs["job"].get("seed", 0))
        numbers = resampled({(-1.0, 1.0): mean, (-2.0, 2.0): gap}, seed, count)
    else:
        each = [
            resampled({(0.0, 1.0): mean, (-1.0, 1.0): gap}, 0, count)
            for mean, gap in zip(means, gaps, strict=True)
        ]
        numbers = {name: one - each[1][name] for name, one in each[0].items()}
    dull = tuple(name for name, one in ((against, q), (way, p)) if one.attrs.get("able") is False)
    trials = (len(rows[0]), len(rows[1]))
    return CurveDifference(way, against, numbers, dull, trials, paired, p.measures, equivalence)


def same_trials(p: Profile, q: Profile) -> bool:
    """Whether two profiles are known to be of the same trials, by what a retrieval of ours keeps of them."""
    known = ("job", "rule", "words", "tokens", "depth", "text_sha256")
    about, other = ([one.attrs.get(name) for name in known] for one in (p, q))
    counts = [None if one.samples is None else len(one.samples) for one in (p, q)]
    return p.attrs.get("job") is not None and about == other and counts[0] == counts[1]
