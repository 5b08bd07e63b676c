"""Retrieval by position as a curve with intervals, from margins of a model that is opened or from its answers.

A curve means something only where the model can do the task. Of a model that is opened two things are asked first:
does it pick the right thing more often than by chance, and is the right thing more likely than when somebody else
is asked for? A model that copies whatever stands last passes the first question at that position, and fails the
second. Answers in words are right or wrong (`scoring`): there the arm without the fact says how often it is
guessed, and in a list whoever does not heed the question is right in one of K of lists in a drawn order, whatever
place they copy from.

What another way to ask changes (a system message, a chat template, another model) is a `CurveDifference`:

    plain, brief = (ask(Endpoint(URL, "m", system=text), job) for text in (None, "Answer in one word."))
    print(*curve_differences({"plain": plain, "brief": brief})[0].sentences(), sep="\n")

Differences are taken within trials, where these are the same. Several are looked at together, so their intervals
are wider than one alone (Bonferroni): all of them hold at once in at least 95 % of experiments.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.errors import InvalidValueError, one_of, positive
from posbias.profiles.estimate import Estimate, about
from posbias.profiles.profile import Profile
from posbias.profiles.summary import Verdict, inconclusive
from posbias.retrieval import statistics
from posbias.retrieval.statistics import ENDS, EQUIVALENCE, GAPS, gap_words, gaps_of, resampled
from posbias.retrieval.trials import ABSENT, ALONE, ARMS, SHUFFLED
from posbias.retrieval.wordings import TOKENS_A_WORD

if TYPE_CHECKING:
    import xarray as xr

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
        """By deciding gap, the least one that this many trials would show; None where no two trials differ."""
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
            return inconclusive(self.prompts, [whether]) if self.verdict == "inconclusive" else []
        left = [end for end, words in self.ends.items() if words == statistics.END_WORDS[0]]
        needed = {
            end: statistics.would(self.prompts_to_tell[f"{end} - middle"], "the difference") for end in left
        }
        return inconclusive(self.prompts, [f"the {end} is favoured{would}" for end, would in needed.items()])

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
    held = {name: np.asarray(retrieval[name].values) for name in QUANTITIES if name in retrieval}
    held["lift"] = (retrieval["margin_mean"] - retrieval["control_margin_mean"]).values
    curves: dict[str, list[Estimate]] = {
        name: [
            Estimate.of_counts(int(column.sum()), column.size)
            if name in ("accuracy", "choice")
            else Estimate.of_mean(column)
            for column in held[name].T
        ]
        for name in QUANTITIES
    }
    gaps = {
        name: {gap: _difference(column) for gap, column in gaps_of(held[name]).items()} for name in QUANTITIES
    }
    return RetrievalCurve(
        model=str(retrieval.attrs["model"]),
        job=json.loads(retrieval.attrs["job"]),
        prompts=retrieval.sizes["prompt"],
        chance=1.0 / retrieval.sizes["candidate"],
        depth=retrieval["depth"].values.mean(axis=0),
        curves=curves,
        gaps=gaps,
        overall={
            "choice": _share(Estimate.of_mean(held["choice"].mean(axis=1))),
            "lift": Estimate.of_mean(held["lift"].mean(axis=1)),
        },
        equivalence=equivalence,
        token=retrieval["token"].values.mean(axis=0),
        tokens=float(retrieval["tokens"].values.mean()),
        candidates=retrieval.sizes["candidate"],
    )


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
    own = {name: arms[name].astype(float) for name in ARMS}
    mean, middle = share.mean(axis=1), share[:, 1:-1].mean(axis=1)
    shares = {"mean": mean} | {f"at {k}": share[:, k] for k in places}
    shares |= {f"every {k}": every[:, k].astype(float) for k in places} | own
    effects = (mean - own[ABSENT], own[ALONE] - middle, own[SHUFFLED] - mean)
    columns = shares | gaps_of(share) | dict(zip(EFFECTS, effects, strict=True))
    limits = [(0.0, 1.0) if name in shares else (-1.0, 1.0) for name in columns]
    table = resampled(np.stack(list(columns.values()), axis=1), limits, int(job.get("seed", 0)))
    numbers = dict(zip(columns, table, strict=True))
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
        overall={name: numbers[name] for name in ("mean", *ARMS, *EFFECTS)},
        equivalence=equivalence,
        answers=Answers(rule, found, every, words, **more),
    )


def verdict_of_trials(found: Float[np.ndarray, "prompt position"], effort: str, measures: str) -> list[str]:
    """Of scores from 0 to 1 by trial and place, whoever made them: the gaps and the verdict."""
    columns = gaps_of(found) | {"mean": found.mean(axis=1)}
    limits = [(float(name == "mean") - 1.0, 1.0) for name in columns]
    gaps = dict(zip(columns, resampled(np.stack(list(columns.values()), axis=1), limits), strict=True))
    ceiling = statistics.at_ceiling(found, gaps.pop("mean"))
    verdict = statistics.decide(gaps, EQUIVALENCE, ceiling=ceiling)
    said = [
        f"{name}: {signed(gap, measures)}: {gap_words(name, gap, EQUIVALENCE)}" for name, gap in gaps.items()
    ]
    return [*said, f"verdict: {statistics.in_words(verdict, gaps, EQUIVALENCE, effort, found=found)}"]


def _share(choice: Estimate) -> Estimate:
    """A mean share, its interval within 0 to 1; where all trials are alike, as their number has it."""
    if choice.se == 0:
        return Estimate.alike(choice.value, choice.n or 1)
    low, high = choice.interval
    return replace(choice, ends=(max(0.0, low), min(1.0, high)))


def _difference(within: Float[np.ndarray, "prompt"]) -> Estimate:
    """The mean of paired differences; where all are the same, prompts do not say how sure that is."""
    found = Estimate.of_mean(within)
    return found if found.se else Estimate(found.value, math.nan, found.n)


# --- in sentences ---------------------------------------------------------------------------------------------


def _of_margins(curve: RetrievalCurve) -> list[str]:
    """Of a model that was opened."""
    choice, lift = curve.overall["choice"], curve.overall["lift"]
    greedy = np.mean([share.value for share in curve.curves["accuracy"]])
    lines = [
        f"{curve.model} prefers the right thing among {curve.candidates} in {_percent(choice)}, chance "
        f"{curve.chance:.0%}, and writes it in {greedy:.0%}; asking for it rather than for somebody else adds "
        f"{lift} nats"
    ]
    if not curve.able:
        would_tell = statistics.would(curve.chance_needs, "its shares")
        doubt = f"inconclusive: {curve.prompts} prompts do not distinguish it from chance{would_tell}"
        at_chance = statistics.VERDICTS["at chance"]
        return [*lines, at_chance if curve.verdict == "at chance" else f"{doubt}: {statistics.MAY_COPY}"]
    for name, gap in curve.deciding.items():
        low, high = gap.interval
        draws = curve.prompts_to_tell[name]
        needed = "" if draws is None else f" ({about(draws)} prompts would take the interval off 0)"
        lines.append(
            f"{name}: {gap} nats (95 % interval {low:.2f} to {high:.2f}), {curve.gaps['accuracy'][name]} in "
            f"accuracy: {gap_words(name, gap, curve.equivalence)}{needed}"
        )
    effort = f"{curve.prompts} prompts"
    verdict = statistics.in_words(curve.verdict, curve.deciding, curve.equivalence, effort, " nats")
    return [*lines, f"verdict: {verdict}"]


def _of_answers(curve: RetrievalCurve, answers: Answers) -> list[str]:
    """Of a model that was only asked."""
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
        lines += [
            f"{name}: {signed(gap)}: {gap_words(name, gap, curve.equivalence)}"
            for name, gap in curve.deciding.items()
        ]
        needs = [f"± {width:g} takes {about(curve.trials_for(width))} trials" for width in statistics.WIDTHS]
        lines.append(f"intervals of the gaps are ± {curve.half_width:.3f} at most; {', '.join(needs)}")
    elif curve.overall[ALONE].interval[1] < SELDOM and not answers.too_often_cut_off:
        lines.append(
            "it is seldom found even alone: read some answers; the prompt, the server's template, or what counts "
            "as right may not fit"
        )
    if curve.reached is False:
        lines.append(
            f"± {answers.until:g} was wanted and is not reached by {curve.prompts} trials; "
            f"{about(curve.trials_for(answers.until or 0))} would reach it, were the spread as seen"
        )
    return [*lines, f"verdict: {_verdict(curve, answers)}"]


def _verdict(curve: RetrievalCurve, answers: Answers) -> str:
    effort = f"{curve.prompts} {'questions' if curve.job['task'] == 'documents' else 'trials'}"
    if answers.too_often_cut_off:
        return "inconclusive: too many answers were cut off"
    if curve.verdict == "inconclusive" and not curve.able:
        return f"inconclusive: {effort} do not distinguish it from chance, so {statistics.MAY_COPY}"
    return statistics.in_words(curve.verdict, curve.deciding, curve.equivalence, effort, found=answers.found)


def signed(one: Estimate, unit: str = "accuracy") -> str:
    """A difference with its interval, in words."""
    return f"{one.value:+.3f} in {unit} (95 % interval {one.interval[0]:+.3f} to {one.interval[1]:+.3f})"


def _percent(one: Estimate) -> str:
    return f"{one.value:.0%} (95 % interval {one.interval[0]:.0%} to {one.interval[1]:.0%})"


# --- two curves of the same trials ----------------------------------------------------------------------------

MEAN = "mean"
"""The difference in accuracy over all places; the others are those of the ends."""


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
    def at_most(self) -> float:
        """The largest change of a gap, up or down, that the intervals leave."""
        return max(abs(end) for gap in self._gaps.values() for end in gap.interval)

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
        words = (gap_words(MEAN, mean, self.equivalence), "finds more", "finds less")
        lines = [f"{self.way} against {self.against}: {signed(mean, self.unit)}: {words[mean.sign]}"]
        for name in self.changed:
            gap = self.numbers[name]
            lines.append(f"{name} is {'larger' if gap.sign > 0 else 'smaller'} by {signed(gap, self.unit)}")
        if self.verdict == "no difference":
            lines.append(
                f"position matters as much to both: no gap differs by more than {self.equivalence:g}"
            )
        elif not self.changed:
            least = max(gap.detectable for gap in self._gaps.values())
            lines.append(
                f"inconclusive whether position matters more to one: {effort} trials miss changes of a gap "
                f"under {least:.2g}; gaps differ by {self.at_most:.2f} at most"
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
    (first, base), *others = curves.items()
    for name, curve in others:
        if _trials(curve) != _trials(base):
            raise InvalidValueError(
                f"curves: expected the trials of {first!r} scored by the same rule, got others in {name!r}"
            )
    parts = {name: _parts(_answers(curve).found.astype(float)) for name, curve in curves.items()}
    within = [
        one - of_base for name, _ in others for one, of_base in zip(parts[name], parts[first], strict=True)
    ]
    names = (MEAN, *GAPS)
    numbers = _paired(within, len(names), int(base.job.get("seed", 0)), len(within) * together)
    return [
        CurveDifference(
            name,
            first,
            dict(zip(names, numbers[k * len(names) : (k + 1) * len(names)], strict=True)),
            tuple(one for one, held in ((first, base), (name, curve)) if not held.able),
            (curve.prompts, base.prompts),
        )
        for k, (name, curve) in enumerate(others)
    ]


def _trials(curve: RetrievalCurve) -> tuple[Any, ...]:
    """What two curves of the same trials share; the files of documents are not known, their words are counted."""
    answers = _answers(curve)
    return dict(curve.job), answers.rule, curve.prompts, answers.words, curve.depth.tolist()


def _answers(curve: RetrievalCurve) -> Answers:
    if curve.answers is None:
        raise InvalidValueError("curves: expected curves of answers in words, got one of margins")
    return curve.answers


def _parts(found: Float[np.ndarray, "prompt position"]) -> list[Float[np.ndarray, "prompt"]]:
    """By trial, the mean over places and the gaps."""
    return [found.mean(axis=1), *gaps_of(found).values()]


def _paired(within: list[np.ndarray], parts: int, seed: int, together: int) -> list[Estimate]:
    """Differences within trials, of a mean and the gaps by turns."""
    limits = [(-1.0, 1.0), *[(-2.0, 2.0)] * (parts - 1)] * (len(within) // parts)
    return resampled(np.stack(within, axis=1), limits, seed, together)


def profile_difference(
    p: Profile, q: Profile, *, way: str = "p", against: str = "q"
) -> CurveDifference | None:
    """What two curves by place differ in, `p` less `q`, whoever made them; None unless both are rates with trials.

    Where both are known to be of the same trials (`same_trials`), differences are taken within them, as by
    `curve_differences`; else the two are compared as unpaired. Their numbers of places may differ.
    """
    rows = [None if one.kind != "rate" or one.tokens < 2 else one.samples for one in (p, q)]
    if p.measures != q.measures or any(one is None or len(one) < 2 for one in rows):
        return None
    columns = [_parts(np.asarray(one, dtype=np.float64)) for one in rows]
    # two places have no middle
    names: tuple[str, ...] = (MEAN, *GAPS) if min(p.tokens, q.tokens) > 2 else (MEAN, ENDS)
    columns, paired = [[one[0], *one[1 - len(names) :]] for one in columns], same_trials(p, q)
    if paired:
        within = [one - other for one, other in zip(*columns, strict=True)]
        numbers = _paired(within, len(names), int(p.attrs["job"].get("seed", 0)), len(names))
    else:
        limits = [(0.0, 1.0), *[(-1.0, 1.0)] * (len(names) - 1)]
        each = [resampled(np.stack(one, axis=1), limits, 0, len(names)) for one in columns]
        numbers = [one - other for one, other in zip(*each, strict=True)]
    dull = tuple(name for name, one in ((against, q), (way, p)) if one.attrs.get("able") is False)
    trials = (len(columns[0][0]), len(columns[1][0]))
    found: dict[str, Estimate] = dict(zip(names, numbers, strict=True))
    return CurveDifference(way, against, found, dull, trials, paired, p.measures)


def same_trials(p: Profile, q: Profile) -> bool:
    """Whether two profiles are known to be of the same trials, by what a retrieval of ours keeps of them."""
    known = ("job", "rule", "words", "tokens", "depth", "text_sha256")
    about, other = ([one.attrs.get(name) for name in known] for one in (p, q))
    counts = [None if one.samples is None else len(one.samples) for one in (p, q)]
    return p.attrs.get("job") is not None and about == other and counts[0] == counts[1]
