"""Results by place: what each trial gave at each place, by quantity, and what was asked of whom.

    curve = ask(lambda prompt: my_model(prompt), retrieval_job("keys", pairs=20))    # a `Places`
    print(*curve.sentences(), sep="\n")

A curve means something only where the model can do the task. Of a model that is opened two things are asked first:
does it pick the right thing more often than by chance, and is the right thing more likely than when somebody else
is asked for? A model that copies whatever stands last passes the first question at that position, and fails the
second. Answers in words are right or wrong: there the arm without the fact says how often it is guessed, and in a
list whoever does not heed the question is right in one of K of lists in a drawn order, whatever place they copy
from. Curves, gaps, intervals and verdict are computed from the results, whoever made them.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Shaped

from posbias.core.errors import DamagedError, one_of, positive, wrong
from posbias.core.formats import Header, JsonCodec, dump_json, undamaged, versions_here
from posbias.core.matching import TOKENS_A_WORD
from posbias.profiles import gaps
from posbias.profiles.estimate import Estimate, about
from posbias.profiles.gaps import ENDS, EQUIVALENCE, GAPS, MEAN, Against, Columns
from posbias.profiles.profile import Profile
from posbias.profiles.summary import Verdict, inconclusive

if TYPE_CHECKING:
    import xarray as xr

KIND, SCHEMA = "places", 1
ABSENT, ALONE, SHUFFLED = ARMS = ("no gold", "gold alone", "shuffled")
"""Control arms: the asked fact left out, nothing but it, and all facts or sentences in a drawn order."""
EFFECTS = (f"mean - {ABSENT}", f"{ALONE} - middle", f"{SHUFFLED} - mean")
"""What the control arms are held against: the mean over places, or the middle (the mean of all inner places)."""
NATS = ("margin", "margin_mean", "control_margin", "lift")
"""Quantities in nats; `lift` is the margin against the others' mean less that of the control."""
QUANTITIES = ("accuracy", "choice", *NATS)
"""What a model that is opened gives."""
PROMPT = ("token", "cut_off", "bounded")
"""What of the results is about prompt and answer: the token at which the fact begins, 1 where an answer was cut
off before it was right, 1 where the margin is a bound."""
MOST_CUT_OFF = 0.1
"""There is no verdict where a larger share of the answers at a place was cut off before it was right."""
SHARE, DIFFERENCE, ANY = (0.0, 1.0), (-1.0, 1.0), (-math.inf, math.inf)
"""The least and the most that a share can be, a difference of two, and a number in nats."""


class Key(NamedTuple):
    """What distinguishes several curves: the model, the way to ask it, and the length of what was asked."""

    model: str
    way: str = ""
    length: float | None = None


@dataclass(frozen=True, eq=False)
class Places:
    """Results by trial and place, by quantity; the same trial was asked at every place.

    `depth`: where the places are, as shares of what else there is, or as the places' own numbers. `asked`: of
    whom, and how ("model" its name, "way" the way). `job`: what was asked, empty where nobody knows. `arms`:
    accuracy by trial in each control arm. `rule`: how answers are scored. `chance`: the share that guessing or
    copying gets right (0: there is nothing to copy, or nobody knows). `length`: of the prompts, in the mean, in
    `unit`. `rows`: what a trial is called. `trials`: their names: the id of the first prompt, or
    as results made elsewhere have them.
    `equivalence`: the difference, in the unit of what decides, that counts as none; without one no two places are
    said to be alike. `until`: the half-width of the gaps' intervals that was wanted, if one was.
    `flaws`: why the results say nothing of places, where that is known.
    """

    results: Mapping[str, Shaped[np.ndarray, "trial place"]]
    depth: Shaped[np.ndarray, "place"]
    asked: Mapping[str, Any] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    arms: Mapping[str, Shaped[np.ndarray, "trial"]] = field(default_factory=dict)
    rule: str = ""
    chance: float = 0.0
    length: float = math.nan
    unit: Literal["tokens", "words", "documents"] = "tokens"
    rows: str = "trials"
    trials: tuple[str, ...] = ()
    equivalence: float | None = None
    until: float | None = None
    flaws: tuple[str, ...] = ()

    def __post_init__(self):
        for name in ("results", "arms"):
            arrays = {key: np.asarray(held, dtype=np.float64) for key, held in getattr(self, name).items()}
            object.__setattr__(self, name, arrays)
        object.__setattr__(self, "depth", np.asarray(self.depth, dtype=np.float64))
        if self.equivalence is not None:
            positive("equivalence", self.equivalence)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]

    @property
    def model(self) -> str:
        """The name of who was asked."""
        return str(self.asked.get("model", ""))

    @property
    def key(self) -> Key:
        """Model, way (of rules with their kind) and length."""
        size = self.job.get("pairs") or self.job.get("length")
        length = size if size is not None else self.length if math.isfinite(self.length) else None
        return Key(self.model, ", ".join(filter(None, (self.asked.get("way"), self.kind))), length)

    @property
    def kind(self) -> str:
        """Of rules, must or must not; else empty."""
        return str(self.job.get("kind") or "")

    @property
    def quantities(self) -> list[str]:
        """What there is a number of for each trial at each place."""
        return [name for name in self.results if name not in PROMPT]

    @property
    def measures(self) -> str:
        """The quantity that the verdict rests on: the margin, where there is one, else the first."""
        return "margin" if "margin" in self.results else self.quantities[0]

    @property
    def prompts(self) -> int:
        """The number of trials, each asked at every place."""
        return len(self.results[self.measures])

    @property
    def tokens(self) -> float:
        """The mean length of the prompts in tokens; of words it is estimated."""
        factor = {"tokens": 1.0, "words": TOKENS_A_WORD, "documents": math.nan}[self.unit]
        return self.length * factor

    @property
    def cut_off(self) -> list[float]:
        """By place, the share of answers that ended before they were right, for want of tokens."""
        return self.results["cut_off"].mean(axis=0).tolist() if "cut_off" in self.results else []

    @property
    def several(self) -> bool:
        """Whether there is more to find than the moved fact, and not all of it was found wherever that was."""
        whole = self.results.get("all_found")
        return whole is not None and bool((whole != self.results["accuracy"]).any())

    # --- numbers ----------------------------------------------------------------------------------------------

    @cached_property
    def _numbers(self) -> dict[tuple[str, int | str], Estimate]:
        """Every number: of a quantity at a place (its number), in the mean over places, between places, in an arm.

        Of margins by Student's t and Wilson's intervals of counts, of answers from one set of resamples of trials.
        """
        columns: dict[tuple[float, float], dict[Any, np.ndarray]] = {}
        for name in self.quantities:
            rows, nats = self.results[name], name in NATS
            own = {(name, k): column for k, column in enumerate(rows.T)} | {(name, MEAN): rows.mean(axis=1)}
            columns.setdefault(ANY if nats else SHARE, {}).update(own)
            apart = {(name, gap): column for gap, column in gaps.gaps_of(rows).items()}
            columns.setdefault(ANY if nats else DIFFERENCE, {}).update(apart)
        if self.arms:
            rows, arms = self.results["accuracy"], self.arms
            mean, middle = rows.mean(axis=1), rows[:, 1:-1].mean(axis=1)
            columns[SHARE] |= {("accuracy", arm): arms[arm] for arm in ARMS}
            effects = (mean - arms[ABSENT], arms[ALONE] - middle, arms[SHUFFLED] - mean)
            columns[DIFFERENCE] |= {
                ("accuracy", name): held for name, held in zip(EFFECTS, effects, strict=True)
            }
        if "margin" in self.results:
            return by_t(columns)
        return gaps.resampled(columns, int(self.job.get("seed", 0)))

    @property
    def curves(self) -> dict[str, list[Estimate]]:
        """By quantity, its number at every place."""
        return {name: [self._numbers[name, k] for k in range(self.depth.size)] for name in self.quantities}

    @property
    def gaps(self) -> dict[str, dict[str, Estimate]]:
        """By quantity, the differences of `GAPS` within trials; of two places the last of them alone."""
        known = GAPS if self.depth.size > 2 else (ENDS,)
        return {name: {gap: self._numbers[name, gap] for gap in known} for name in self.quantities}

    @property
    def overall(self) -> dict[str, Estimate]:
        """The mean over places of each quantity, accuracy in the control arms, and their effects."""
        means = {name: self._numbers[name, MEAN] for name in self.quantities}
        controls = (*ARMS, *EFFECTS) if self.arms else ()
        return means | {name: self._numbers["accuracy", name] for name in controls}

    @property
    def deciding(self) -> dict[str, Estimate]:
        """The gaps that the verdict rests on."""
        return self.gaps[self.measures]

    # --- verdict ----------------------------------------------------------------------------------------------

    @property
    def able(self) -> bool:
        """Whether the curve means something: whether what was asked goes surely better than by chance.

        Of margins: choice lies above chance and, in a list, lift above 0, each with its 95 % interval (around a
        needle there is nothing else to copy: there a lift of 0 is no failure). Of answers: the fact is found more
        often than without it and, in a drawn order, than by copying; not where too many were cut off.
        """
        return not self.flaws and not self.too_often_cut_off and gaps.above_chance(self._against_chance)

    @property
    def verdict(self) -> Verdict:
        """The shape, by the intervals of the deciding gaps (`decide`); it says nothing of an end that is open.

        Inconclusive where too many answers were cut off; at ceiling what is always right, or surely in more than
        `CEILING`, where no difference between places is significant.
        """
        if self.too_often_cut_off or self.flaws:
            return "inconclusive"
        share = self.measures not in NATS
        ceiling = share and gaps.at_ceiling(self.results[self.measures], self.overall[self.measures])
        return gaps.decide(self.deciding, self.equivalence, self._against_chance, ceiling=ceiling)

    @property
    def ends(self) -> dict[str, str]:
        """First and last place against the middle, each one of `END_WORDS`; inconclusive unless above chance."""
        words, able = gaps.compared(self.deciding, self.equivalence), self.able
        ends = {name.split()[0]: said for name, said in words.items() if name != ENDS}
        return ends if able else dict.fromkeys(ends, gaps.END_WORDS[0])

    @property
    def detectable(self) -> dict[str, float | None]:
        """By deciding gap, the least one that this many trials would show; None where no two trials differ."""
        looks = min(2, len(self.deciding))
        least = {name: gap.jointly(looks).detectable for name, gap in self.deciding.items()}
        return {name: one if math.isfinite(one) else None for name, one in least.items()}

    @property
    def prompts_to_tell(self) -> dict[str, int | None]:
        """`Estimate.draws_to_tell` of the deciding gaps; None where its interval leaves out 0 already."""
        return {name: gap.draws_to_tell() for name, gap in self.deciding.items()}

    @property
    def doubts(self) -> list[str]:
        """What the trials leave open of the verdict, as `Profile.doubts` says it; nothing where all is decided."""
        if self.flaws:
            return [*self.flaws]
        if not self.able:
            whether = f"it does better than chance{self._chance_needs}"
            return inconclusive(self.prompts, [whether]) if self.verdict == "inconclusive" else []
        left = [end for end, words in self.ends.items() if words == gaps.END_WORDS[0]]
        needed = {end: gaps.would(self.prompts_to_tell[f"{end} - middle"], "the difference") for end in left}
        return inconclusive(self.prompts, [f"the {end} is favoured{more}" for end, more in needed.items()])

    @property
    def too_often_cut_off(self) -> bool:
        """Whether at some place a larger share than `MOST_CUT_OFF` of the answers was cut off."""
        return max(self.cut_off, default=0.0) > MOST_CUT_OFF

    @property
    def _against_chance(self) -> Against:
        """Each number with what it must exceed, and what it surely does not at chance.

        A lift of ln 2 doubles the odds of the right thing.
        """
        overall, numbers = self.overall, []
        if "choice" in overall:
            numbers.append((overall["choice"], self.chance))
        if self.arms:
            numbers.append((overall[EFFECTS[0]], 0.0))
            numbers += [(overall[SHUFFLED], self.chance)] if self.chance else []
        against = [(one, level, level + gaps.CLEAR * (1.0 - level)) for one, level in numbers]
        copies = "lift" in overall and self.job.get("task") != "needle"
        return [*against, *([(overall["lift"], 0.0, math.log(2))] if copies else [])]

    @property
    def _chance_needs(self) -> str:
        """About how many trials would tell it from chance, in brackets."""
        needed = [one.draws_to_tell(level) for one, level, _ in self._against_chance]
        return gaps.would(max(filter(None, needed), default=None), "its shares")

    # --- widths -----------------------------------------------------------------------------------------------

    @property
    def half_width(self) -> float:
        """Half the widest interval of the deciding gaps."""
        return max(gap.half_width for gap in self.deciding.values())

    @property
    def reached(self) -> bool | None:
        """Whether the wanted half-width was reached; None where none was wanted."""
        return None if self.until is None else bool(self.half_width <= self.until)

    def trials_for(self, half_width: float) -> int:
        """About how many trials make every deciding gap's interval ± `half_width`, were the spread as seen."""
        return max(gap.draws_for(half_width) for gap in self.deciding.values())

    # --- as a profile, in words -------------------------------------------------------------------------------

    def profile(self, quantity: str = "", **fields: Any) -> Profile:
        """A quantity, by default accuracy, as a profile over places with its trials, for `posbias.compare`.

        `fields` as of `Profile`. Raises `InvalidValueError` for a quantity that there is not.
        """
        name = one_of("quantity", quantity, self.quantities) if quantity else self.quantities[0]
        kind = "signed" if name in NATS else "rate"
        about = {"model": self.model, "places": self} | fields
        return Profile.from_rows(self.results[name], kind=kind, measures=name, **about)

    def sentences(self) -> list[str]:
        """The answer in words: what the model can do, then what position does to it."""
        lines = [*self._abilities(), *self._control_arms()]
        lines[1:1] = gaps.gap_lines(self.deciding, self.equivalence, self.unit_of_gaps) if self.able else []
        return [*lines, f"verdict: {self.verdict_in_words}"]

    @property
    def unit_of_gaps(self) -> str:
        """What the deciding gaps are in."""
        return "nats" if self.measures in NATS else self.measures

    @property
    def verdict_in_words(self) -> str:
        """What the curve shows, and what is known of an end that the verdict says nothing of."""
        effort = f"{self.prompts} {self.rows}"
        if self.too_often_cut_off or self.flaws:
            return f"inconclusive: {'; '.join(self.flaws) or 'too many answers were cut off'}"
        if self.verdict == "inconclusive" and not self.able:
            needs = self._chance_needs
            return f"inconclusive: {effort} do not distinguish it from chance{needs}, so {self._at_chance}"
        nats = self.measures in NATS
        about = (" nats", None) if nats else ("", self.results[self.measures])
        words = gaps.in_words(self.verdict, self.deciding, self.equivalence, effort, *about)
        return words.replace(gaps.MAY_COPY, self._at_chance)

    @property
    def _at_chance(self) -> str:
        """Why a curve that is not shown to be above chance says nothing of places."""
        return gaps.NOT_KEPT if self.job.get("task") == "rules" else gaps.MAY_COPY

    def _abilities(self) -> list[str]:
        """What a model that was opened can do."""
        if "choice" not in self.results:
            return []
        written, overall = self.results["accuracy"].mean(), self.overall
        preferred, candidates = gaps.percent(overall["choice"]), round(1 / self.chance)
        return [
            f"{self.model} prefers the right thing among {candidates} in {preferred}, chance {self.chance:.0%}, "
            f"and writes it in {written:.0%}; asking for it rather than for somebody else adds {overall['lift']} "
            "nats"
        ]

    def _control_arms(self) -> list[str]:
        """How often a model that was only asked finds the fact, and how sure its curve is."""
        if not self.arms:
            return []
        found, arms = self.results["accuracy"], {name: gaps.percent(self.overall[name]) for name in ARMS}
        rule = ("keeps", "by chance", f'"{self.kind}"')
        does, guesses, what = rule if self.kind else ("finds", "guesses it", "fact")
        lines = [
            f"{self.model} {does} the {what} in {found.mean():.0%} of the placed prompts, {guesses} without the "
            f"{what} in {arms[ABSENT]}, {does} it alone in {arms[ALONE]}, and with everything in a drawn order in "
            f"{arms[SHUFFLED]}"
            + (f"; copying any would be right in {self.chance:.0%} of these" if self.chance else "")
        ]
        if count := round(sum(self.cut_off) * self.prompts):
            most_out = self.asked.get("most_out")
            most = "" if most_out is None else f" {max(64, 2 * most_out)}"
            lines.append(
                f"{count:,} of {found.size:,} answers were cut off before they were right, or empty, and "
                f"count as not found: --answer-tokens{most} gives them room (2048 where the model reasons "
                "first, or switch that off)"
            )
        if self.able:
            needs = [f"± {width:g} takes {about(self.trials_for(width))} trials" for width in gaps.WIDTHS]
            half = gaps.share_size(self.half_width, self.prompts)
            lines.append(f"intervals of the gaps are ± {half} at most; {', '.join(needs)}")
        if self.until is not None and not self.reached:
            needed = about(self.trials_for(self.until))
            lines.append(f"± {self.until:g} is not reached by {self.prompts} trials; {needed} would reach it")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """In JSON's terms, what is as by default left out."""
        held = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: one for name, one in json.loads(dump_json(held)).items() if one not in (None, {}, [], "")
        }


def by_t(columns: Columns[tuple[str, int | str]]) -> dict[tuple[str, int | str], Estimate]:
    """Means over trials by Student's t, shares at one place by Wilson's interval of counts.

    A difference that is the same in all trials has no error: trials do not say how sure that is. A mean share that
    is the same in all of them has that of their number.
    """
    numbers = {}
    for limits, named in columns.items():
        for (quantity, place), column in named.items():
            one = Estimate.of_mean(column)
            if limits == SHARE and isinstance(place, int):
                one = Estimate.of_counts(int(column.sum()), column.size)
            elif limits == SHARE:
                one = one.as_share()
            elif place in GAPS and not one.se:
                one = Estimate(one.value, math.nan, one.n)
            numbers[quantity, place] = one
    return numbers


# --- files ----------------------------------------------------------------------------------------------------


def retrieval_curve(retrieval: "xr.Dataset", equivalence: float | None = None) -> Places:
    """The results of a dataset that `retrieve` made, whose prompts are independent trials.

    `equivalence`: nats up to which a difference of margins counts as none. Raises `InvalidValueError` for a
    dataset that is no retrieval, and for an equivalence that is not above 0.
    """
    if retrieval.attrs.get("posbias_kind") != "retrieval":
        kind = retrieval.attrs.get("posbias_kind")
        raise wrong("retrieval", "a dataset of kind 'retrieval'", kind)
    results = {name: retrieval[name].values for name in (*QUANTITIES[:-1], "token")}
    known = ("model", "checksum", "text_sha256", "treatment")
    return Places(
        results | {"lift": (retrieval["margin_mean"] - retrieval["control_margin_mean"]).values},
        retrieval["depth"].values.mean(axis=0),
        {name: str(retrieval.attrs[name]) for name in known if name in retrieval.attrs},
        json.loads(retrieval.attrs["job"]),
        rule="greedy",
        chance=1.0 / retrieval.sizes["candidate"],
        length=float(retrieval["tokens"].values.mean()),
        rows="prompts",
        equivalence=equivalence,
    )


def save_places(curves: Iterable[Places], path: str | os.PathLike[str]) -> Path:
    """Write curves by place to a JSON file, whole or not at all. Raises `OutputFileError`."""
    held = [one.as_dict() for one in curves]
    specification = {"curves": [{key: one.get(key, {}) for key in ("job", "asked")} for one in held]}
    header = Header(KIND, SCHEMA, specification, versions=versions_here())
    JsonCodec().write(Path(path), header, {"curves": held})
    return Path(path)


def places_in(data: Mapping[str, Any], path: str | os.PathLike[str]) -> list[Places]:
    """The curves of what a JSON file holds: of `save_places`, or of the answer of `posbias retrieve` up to 0.3.

    Raises `DamagedError` for what is no whole file of either.
    """
    try:
        if data.get("posbias_kind") == KIND:
            keys = dict(data)
            content = keys.pop("content", None)
            _, content = JsonCodec().verified(keys, content, path, KIND, SCHEMA)
            return [_checked(_restored(held)) for held in content["curves"]]
        curves = undamaged(data, path)["curves"] if "curves" in data else [data]
        return [_checked(_of_answer(held)) for held in curves]
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        raise DamagedError(f"{path}: expected a curve of posbias retrieve, got {error!r:.80}") from None


def _restored(held: Mapping[str, Any]) -> Places:
    """What `Places.as_dict` made."""
    about: Any = {**held, **{name: tuple(held.get(name, ())) for name in ("trials", "flaws")}}
    for name in ("results", "arms"):
        about[name] = {key: np.array(one) for key, one in held.get(name, {}).items()}
    return Places(**about | {"depth": np.array(held["depth"])})


def _of_answer(curve: Mapping[str, Any]) -> Places:
    """The results in an answer of `posbias retrieve`, which has no arms trial by trial."""
    found = np.array(curve["found"], dtype=np.float64)
    if len(found) < 2 or found.shape[1] < 3 or not np.isin(found, (0, 1)).all():
        raise ValueError("found: expected 0 or 1 of two trials or more at three places or more")
    places = curve.get("positions", [{"depth": k} for k in range(found.shape[1])])
    return Places(
        {"accuracy": found},
        np.array([place["depth"] for place in places]),
        {"model": str(curve["model"])},
        curve["job"],
        rule=curve["rule"],
        length=float(curve["words"]),
        unit="words",
        equivalence=curve.get("equivalence", EQUIVALENCE),
        flaws=() if curve["able"] else ("not above chance, as its file says",),
    )


def _checked(places: Places) -> Places:
    """Results whose shapes go together. Raises ValueError."""
    shapes = {held.shape for held in places.results.values()}
    if len(shapes) != 1 or (shape := shapes.pop())[1:] != places.depth.shape or min(shape) < 2:
        raise ValueError(f"results: expected trials × places alike, got {shapes or 'others'}")
    arms = places.arms
    if any(len(held) != shape[0] for held in arms.values()) or (arms and {*arms} != {*ARMS}):
        raise ValueError("arms: expected a number for each trial in each control arm")
    return places
