"""Orders of documents in a prompt: which one a profile calls best, and what it gains over the usual ones.

    from posbias.ordering import order

    found = order(documents, scores, lengths, profile="smollm2-135m")
    print(found)                      # the verdict first
    documents = found.of(documents)

Scores say how likely each document is to hold what is asked for. A slot's worth is what the profile gives the
tokens a document would take there; the best order is searched for (`posbias.ordering.search`), and its gain is
read off other prompts of the profile than those that chose it.
"""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InputFileError, is_integer, nearest, wrong
from posbias.imports import QUANTITY, read
from posbias.imports.columns import FEWEST_PLACES, MOST
from posbias.ordering.search import (
    Found,
    GainEstimator,
    Slots,
    at_all_places,
    best_order,
    places_of_job,
    worths,
)
from posbias.profiles.estimate import Estimate, about
from posbias.profiles.places import NATS, Places
from posbias.profiles.profile import Profile

if TYPE_CHECKING:
    from posbias.imports import AnyProfile

__all__ = ["STRATEGIES", "Ordering", "order", "profile_of"]

OrderVerdict = Literal["reorder", "no difference", "not known"]
FOLDER = Path(__file__).with_name("profiles")
"""Bundled profiles: retrieval by place, trial by trial (`tools/order_profiles.py` makes them)."""
ALIKE = 1.5
"""How many times longer or shorter than the prompts behind a profile others may be without a word."""
MOST_CHARACTERS = 8
"""Characters of a token at most, on average over a prompt: running English has four to five."""
BASELINE = "baseline"
"""What a profile measures that was not measured."""
LONGEST = 1e12
"""Of a document, and of what stands before or behind."""
LENGTHS_DIFFER = "lengths differ: whether a document covers its share of the places was not measured"
NEGLIGIBLE = 0.01
"""A gain below this counts as none: in accuracy, or as a share of what a uniform profile gives."""


def best_first(scores: Float[np.ndarray, "document"]) -> list[int]:
    """By falling score; equal ones as given."""
    return np.argsort(-scores, kind="stable").tolist()


def both_ends(scores: Float[np.ndarray, "document"]) -> list[int]:
    """The best first, the next last, the third second, and so on: the worst in the middle."""
    ranked = best_first(scores)
    return ranked[::2] + ranked[1::2][::-1]


STRATEGIES: Mapping[str, Callable[[Float[np.ndarray, "document"]], list[int]]] = {
    "as given": lambda scores: list(range(len(scores))),
    "best first": best_first,
    "best last": lambda scores: best_first(scores)[::-1],
    "both ends": both_ends,
}
"""The usual orders, each a function of the scores."""


@dataclass(frozen=True)
class Ordering:
    """An order of documents, what it is expected to gain over the usual ones, and whether that is significant.

    `permutation` has the places of the documents as given, in the order to put them. `worth` is Σ w·worth of
    the place, w the scores divided by their sum: an accuracy where the profile is one, else in units of an even
    spread.
    `gains` are that of this order minus that of each of `STRATEGIES`, cross-fitted: orders found from one half
    of the profile's prompts are judged on the other half. `loss` is by how much no other order can be worth more
    under this profile (0: none is). `instead`: the name and permutation of the usual order to take, where this one
    is not shown to be better than it; `gains` are then those of the usual one, on all prompts. `basis` says what
    the profile is, `warnings` what its use assumes; `extrapolated` where it was measured otherwise than with these
    documents, which no interval covers.
    """

    permutation: tuple[int, ...]
    worth: float
    gains: Mapping[str, Estimate]
    loss: float
    basis: str
    warnings: tuple[str, ...] = ()
    unit: str = field(default="relative to uniform")
    extrapolated: tuple[str, ...] = ()
    instead: tuple[str, tuple[int, ...]] | None = None

    @property
    def recommended(self) -> tuple[int, ...]:
        """The order to take: as given unless the verdict is to reorder, and then `instead` where there is one."""
        if self.verdict != "reorder":
            return tuple(range(len(self.permutation)))
        return self.instead[1] if self.instead else self.permutation

    def of(self, documents: Sequence[Any]) -> list[Any]:
        """The documents in this order, or in that to take `instead`.

        Raises `InvalidValueError` for another number of them.
        """
        if len(documents) != len(self.permutation):
            raise wrong("documents", f"the {len(self.permutation)} that were ordered", len(documents))
        return [documents[place] for place in (self.instead[1] if self.instead else self.permutation)]

    @property
    def verdict(self) -> OrderVerdict:
        """Whether to reorder: by the gain over the order as given and its 95 % interval.

        "no difference" where the interval lies within ± `NEGLIGIBLE`, or where the order as given is the best;
        "not known" wherever the profile is `extrapolated`: its interval is of other prompts. "reorder" where a
        usual order is better than both (`instead`).
        """
        gain = self.gains["as given"]
        if self.instead:
            return "reorder"
        if self.extrapolated and len(self.permutation) > 1:
            return "not known"
        if self.permutation == tuple(range(len(self.permutation))):
            return "no difference"
        if not gain.known:
            return "not known"
        low, high = gain.interval
        if low > 0.0 and high > NEGLIGIBLE:
            return "reorder"
        return "no difference" if low > -NEGLIGIBLE and high < NEGLIGIBLE else "not known"

    @property
    def prompts_to_tell(self) -> int | None:
        """About how many prompts the profile would need for the gain's interval to leave 0 (`Estimate`).

        Of an extrapolated profile, how many with these documents, were the gain as it says: at most as many as
        are behind it where they tell it.
        """
        gain = self.gains["as given"]
        if self.extrapolated and gain.known and gain.tells():
            return gain.n
        return gain.draws_to_tell()

    def __str__(self) -> str:
        name = f", {self.instead[0]}" if self.instead else ""
        said = {
            "reorder": f"reorder{name}: {', '.join(map(str, self.recommended))}, counted from 0",
            "no difference": "no difference: leave the order as it is",
            "not known": "not known whether another order helps",
        }[self.verdict]
        beaten = [name for name, gain in self.gains.items() if gain.known and gain.interval[0] > 0]
        best_usual = self.gains["as given"].value <= min(gain.value for gain in self.gains.values())
        if self.verdict != "reorder" and not self.extrapolated and best_usual and beaten:
            over = " and ".join(beaten)
            said = f"keep the order as it is: better than {over}, and no other is shown to be better"
        elif self.verdict == "not known":
            said += f": {'; '.join(self.extrapolated)}" if self.extrapolated else ""
            where = "with such documents" if self.extrapolated else "behind the profile"
            more = self.prompts_to_tell
            said += f"; {about(more)} prompts {where} would tell" if more else "; leave the order as it is"
        lines = [f"{said} ({self.basis})"]
        if self.verdict == "not known":
            like = "if these documents were like those measured, " if self.extrapolated else ""
            lines += [
                f"{like}best by the profile's means: {', '.join(map(str, self.permutation))}, counted from 0"
            ]
        lines += [f"gain over {name}: {_words(gain)} {self.unit}" for name, gain in self.gains.items()]
        return "\n".join([*lines, *self.warnings])


def _words(gain: Estimate) -> str:
    """A gain with its interval; all digits where it has none."""
    if not gain.known or not gain.se:
        return f"{gain.value:.4g}"
    number, _, error = str(gain).partition(" ± ")
    digits = len(error.partition(".")[2]) if "e" not in error else 6
    low, high = gain.interval
    return f"{number} (95 % interval {low:.{digits}f} to {high:.{digits}f})"


def order(
    documents: int | Sequence[Any],
    scores: Sequence[float] | Float[np.ndarray, "document"],
    lengths: Sequence[float] | Float[np.ndarray, "document"] | None = None,
    *,
    profile: "AnyProfile",
    prefix: float = 0.0,
    suffix: float = 0.0,
    in_tokens: bool = True,
) -> Ordering:
    """The order of documents in a prompt that a profile calls best, and its gains over the usual ones.

    - `documents`: they themselves, or how many.
    - `scores`: [document], ≥ 0, in proportion to the chance that a document holds what is asked for.
    - `lengths`: [document], ≥ 0, in tokens or characters (`in_tokens`); None: all are as long.
    - `profile`: what a place is worth: a `Profile`, a measurement, a known model or a file, as for `profile_of`.
    - `prefix`, `suffix`: the length of what stands before and behind the documents, in the unit of `lengths`.
    - `in_tokens`: whether lengths are in tokens; else in characters.

    Raises `InvalidValueError` for numbers that cannot be right, and as `profile_of`.
    """
    profile = profile_of(str(profile)) if isinstance(profile, str | os.PathLike) else read(profile)
    if not is_integer(documents) and not hasattr(documents, "__len__"):
        raise wrong("documents", "they themselves, or how many", documents)
    count = documents if isinstance(documents, int) else len(documents)
    weights, sizes = _checked(count, scores, lengths)
    for name, given in (("prefix", prefix), ("suffix", suffix)):
        if not 0 <= given <= LONGEST:
            raise wrong(name, f"a length from 0 to {LONGEST:g}", got=f"{given:g}")
    asked, profile = profile.tokens, at_all_places(profile)
    slots = Slots(profile, float(sizes.sum()), float(prefix), float(suffix))
    curve = np.asarray(profile.mass, dtype=np.float64)
    found, judged = best_order(slots, curve, weights, sizes), GainEstimator(slots, weights, sizes)
    beyond = extrapolated(profile, slots, count, None if lengths is None else in_tokens, asked)
    assumed = warnings(profile)
    if profile.kind != "mass" and sizes.min() < sizes.max():
        found, judged, gain, rests = _whatever_lengths_are_worth(found, judged, curve)
        said = f"{LENGTHS_DIFFER}; with one place for each the gain over as given is {_words(gain)}"
        if rests or sizes.max() > ALIKE * sizes.min():
            (beyond if rests else assumed).append(said)
    gains = {name: judged.gain(found, strategy(weights)) for name, strategy in STRATEGIES.items()}
    about = basis(profile), tuple(assumed), unit(profile), tuple(beyond)
    return _or_usual(Ordering(found.order, found.worth, gains, found.loss, *about), judged, weights)


def _whatever_lengths_are_worth(
    found: Found, judged: GainEstimator, curve: Float[np.ndarray, "position"]
) -> tuple[Found, GainEstimator, Estimate, bool]:
    """An order that gains both if documents cover their share of the places and if each has one place.

    That found by share, else that found by place; with its judge, and its gain with one place for each. If neither
    gains either way, the first, and whether its gain rests on the share.
    """
    count = len(judged.weights)
    slots, as_given = replace(judged.slots, total=float(count)), range(count)
    single = GainEstimator(slots, judged.weights, np.ones(count))
    other = best_order(slots, curve, single.weights, single.lengths).order
    worth = float(worths(judged.slots, curve, judged.weights, judged.lengths, [other])[0])
    by_place = Found(other, worth, max(0.0, found.worth + found.loss - worth))
    tried = []
    for order, chooser in ((found, judged), (by_place, single)):
        judges = [replace(one, chooser=chooser) for one in (judged, single)]
        gains = [one.gain(order, as_given) for one in judges]
        tried.append((order, judges[0], gains[1], gains[0].interval[0] > 0))
        if all(gain.interval[0] > 0 for gain in gains):
            return order, judges[0], gains[1], False
    return tried[0]


def _or_usual(best: Ordering, judged: GainEstimator, weights: Float[np.ndarray, "document"]) -> Ordering:
    """With the best usual order to take instead, where the one found is not shown to be better than it.

    Where that is not shown to be better than the order as given either, the usual one must be better than both.
    """
    name = min(best.gains, key=lambda one: best.gains[one].value)
    gain, order = best.gains[name], tuple(STRATEGIES[name](weights))
    if best.extrapolated or name == "as given" or not gain.known or gain.interval[0] > 0:
        return best
    gains = {name: judged.over(order, strategy(weights)) for name, strategy in STRATEGIES.items()}
    low, high = gains["as given"].interval
    sure = best.verdict == "reorder" or gain.interval[1] < 0
    if order == best.permutation or not (sure and low > 0 and high > NEGLIGIBLE):
        return best
    said = f"{name} is recommended: the order found by the profile is not shown to be better"
    return replace(best, gains=gains, instead=(name, order), warnings=(*best.warnings, said))


def _checked(count: int, scores: Any, lengths: Any) -> tuple[np.ndarray, np.ndarray]:
    if count < 1:
        raise wrong("documents", "one at least", count)
    weights = np.asarray(scores, dtype=np.float64)
    sizes = np.ones(count) if lengths is None else np.asarray(lengths, dtype=np.float64)
    for name, numbers in (("scores", weights), ("lengths", sizes)):
        if numbers.shape != (count,):
            raise wrong(name, f"one for each of {count} documents", got=f"shape {numbers.shape}")
        if not ((numbers >= 0) & (numbers <= MOST)).all():
            raise wrong(name, f"numbers from 0 to {MOST:g}", numbers.tolist())
    if not weights.sum() > 0:
        raise wrong("scores", "one above 0", got="all 0")
    if not ((sizes > 0) & (sizes <= LONGEST)).all():
        beyond = sizes.min() if sizes.min() <= 0 else sizes.max()
        raise wrong("lengths", f"numbers above 0, at most {LONGEST:g}", got=f"{beyond:g}")
    return weights / weights.sum(), sizes


# --- what a profile is, and what it was not measured at -------------------------------------------------------


def basis(profile: Profile) -> str:
    """What was measured or predicted, of which model, over how many prompts."""
    kinds = {
        "gradient": "measured influence",
        "rollout": "predicted influence",
        "extrapolated": "calibrated prediction",
    }
    what = kinds.get(
        profile.measures, f"{profile.measures} by place" if profile.kind != "mass" else profile.measures
    )
    prompts = "" if profile.samples is None else f", {len(profile.samples)} prompts"
    return f"{what}{f' of {profile.name}' if profile.name else ''}{prompts}"


def unit(profile: Profile) -> str:
    """What worth is counted in."""
    if profile.kind == "mass":
        return "relative to uniform"
    return "nats" if profile.kind == "signed" and profile.measures in NATS else f"in {profile.measures}"


def warnings(profile: Profile) -> list[str]:
    """What the use of a profile assumes, a sentence each."""
    said = []
    if profile.left_out:
        said.append(f"the profile has no verdict: {profile.caveat}")
    if profile.kind == "mass" and profile.measures != BASELINE:
        said.append("influence is not retrieval: whether more of it finds more was not measured")
    job = {} if profile.places is None else profile.places.job
    if job.get("task") == "documents" and not places_of_job(profile):
        had = "its prompts had {} to {} documents".format(
            *job.get("documents") or ("an unknown number", "more")
        )
        said.append(f"{had}: taken for {profile.tokens}, the places asked at")
    if profile.places is not None and not profile.places.able:
        said.append("the profile is not above chance: it may show where the model copies from")
    return said


def extrapolated(
    profile: Profile, slots: Slots, documents: int, in_tokens: bool | None, asked: int
) -> list[str]:
    """In what the documents differ from those measured, which were asked at `asked` places; a baseline fits all.

    `in_tokens`: whether lengths are tokens, or else characters, of which a token has one to `MOST_CHARACTERS`;
    None: no lengths are known.
    """
    said = []
    if profile.measures == BASELINE:
        return said
    job = {} if profile.places is None else profile.places.job
    places = places_of_job(profile) or profile.tokens
    if profile.kind != "mass" and documents != places:
        many = f"--pairs {documents} --positions {documents}"
        many = f"--trials` with {documents} documents each" if job.get("task") == "documents" else f"{many}`"
        how = f": `posbias retrieve MODEL {many} asks about as many" if documents >= FEWEST_PLACES else ""
        said.append(f"measured with {places} documents, these are {documents}{how}")
    if asked < profile.tokens:
        said.append(f"measured at {asked} of {profile.tokens} places, those between are taken on a line")
    length = profile.tokens if profile.kind == "mass" else math.nan
    measured = length if profile.places is None else profile.places.tokens
    whole = slots.before + slots.total + slots.after
    if not math.isfinite(measured) or in_tokens is None:
        return said
    if in_tokens and not 1 / ALIKE <= whole / measured <= ALIKE:
        said.append(f"measured at {measured:,.0f} tokens, these are {whole:,.0f}")
    if not in_tokens and not measured / ALIKE <= whole <= ALIKE * measured * MOST_CHARACTERS:
        said.append(f"measured at {measured:,.0f} tokens, these are {whole:,.0f} characters")
    return said


def profile_of(
    source: str, tokens: int | Literal["all"] | None = None, columns: Mapping[str, str] | None = None
) -> Profile:
    """The profile of a model that comes along, or of whatever `posbias.read` reads, which takes the same.

    Raises `InputFileError` for what is none of these, `MissingPackageError` for an .nc without xarray.
    """
    known = {path.stem: path for path in sorted(FOLDER.glob("*.json"))}
    if source in known:
        if tokens or columns:
            expected = "a file of results for tokens or columns"
            raise wrong(source, expected, got="a known model", kind=InputFileError)
        held = json.loads(known[source].read_text(encoding="utf-8"))
        asked, samples = {key: held[key] for key in ("model", "checksum")}, np.array(held["samples"])
        depth = np.linspace(0.0, 1.0, samples.shape[1])
        return Places({QUANTITY: samples}, depth, asked, held["job"], length=held["tokens"]).profile()
    path = Path(source)
    if not path.suffix and not path.exists():
        close = nearest(source, known) or (
            f"; {', '.join(known)} comes along, and `posbias retrieve MODEL --endpoint URL --pairs N "
            "--positions N` measures another, into a folder to give here"
        )
        raise InputFileError(f"{source}: no such file and no profile of a known model{close}")
    return read(path, tokens=tokens, columns=columns)
