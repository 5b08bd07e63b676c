"""What is said of decisions: effects of slots and labels, flips and their floor, accuracy, win rates.

    answer = posbias.choose("smollm2-135m", "items.jsonl")     # a `ChoiceAnswer`
    print(*answer.sentences(), sep="\n")

Every number names what it is of: items, their sets of contents (the unit of intervals), decisions.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from posbias import imports
from posbias.choice.effects import LEAST_SETS, ChoiceEffects, Test, clustered_mean
from posbias.core.answers import Number, OverPrompts, Part, Texts, entry
from posbias.core.errors import InputFileError
from posbias.core.formats import dump_json
from posbias.imports.columns import Choice
from posbias.imports.decisions import read_decisions
from posbias.profiles.decisions import REFUSED, TIE, Decisions
from posbias.profiles.estimate import Estimate
from posbias.profiles.gaps import ENDS, percent
from posbias.profiles.places import Places
from posbias.profiles.profile import Profile

if TYPE_CHECKING:
    import pandas as pd

    from posbias.imports import AnyProfile

ALPHA = 0.05
"""The level below which a p-value is said to show something."""
BySlot = tuple[Float[np.ndarray, "whole slot"], Int[np.ndarray, "whole"]]
"""By item that has decisions in every slot, and by slot, a share of them; and the items' sets of contents."""


class Wins(NamedTuple):
    """How often one of two sides is chosen, by item; a tie counts half, a refusal not at all.

    `balanced`: both orders counted alike. `slot_free`: were there no effect of slots: the share whose log-odds are
    the mean of those of both orders (after Davidson & Beaver 1977, Biometrics 33). `first`, `last`: where its
    option stands first, and last.
    """

    balanced: Estimate
    slot_free: Estimate
    first: Estimate
    last: Estimate


class WinsOf(Part):
    """How often one of two sides is chosen."""

    balanced: OverPrompts = entry("both orders counted alike")
    slot_free: OverPrompts = entry("were there no effect of slots")
    first: OverPrompts = entry("where its option stands first")
    last: OverPrompts


class TestOf(Part):
    """A test."""

    p: Number = entry("null where it says nothing")
    draws: int = entry("sets of contents, or permutations")


class Choices(Part):
    """What somebody's decisions show of order; intervals are over sets of contents, null below 5 of them."""

    model: str
    count: int = entry("decisions")
    items: int
    sets: int = entry("sets of contents: items that share an option are one", of="effects.sets")
    source: Literal["answers", "scores"] = entry("what effects are estimated from", of="effects.source")
    together: bool = entry("whether effects are those of slot and label together", of="effects.together")
    slots: list[OverPrompts] = entry(
        "effects in log-odds; null with an interval: a bound", of="effects.slots"
    )
    labels: dict[str, OverPrompts] = entry("by label its effect in log-odds", of="effects.labels")
    gaps: dict[str, OverPrompts] = entry("between slots, in log-odds", of="effects.gaps")
    points: list[OverPrompts] = entry("by slot, share of decisions less an even share", of="effects.points")
    influence: list[OverPrompts] = entry("by slot, share of options' influence", of="effects.influence")
    declined: dict[Literal["ties", "refusals"], int] = entry(of="effects.declined")
    flips: tuple[OverPrompts, OverPrompts] = entry("in other orders, in the same one", of="effects.flips")
    changed: tuple[int, int] = entry("items whose decision order changes, and items in several orders")
    order_test: TestOf = entry("permutations within items: whether slots matter")
    lack_of_fit: TestOf = entry("whether slots matter more for some options", of="effects.lack_of_fit")
    accuracy: list[OverPrompts] = entry("by the right option's slot; empty where not known, or below 5 sets")
    wins: dict[str, WinsOf] = entry("by side, where two are compared")
    deltas: dict[str, Number] = entry("δ of BiasBusters by API, place and model; empty of other files")
    answer: Texts = entry("in sentences")


@dataclass(frozen=True, eq=False)
class ChoiceAnswer:
    """What decisions show of order. Raises `InvalidValueError` where orders do not cross."""

    decisions: Decisions

    def __post_init__(self):
        _ = self.effects

    @cached_property
    def effects(self) -> ChoiceEffects:
        """Effects of slots and labels, flips, tests."""
        return ChoiceEffects(self.decisions)

    @property
    def count(self) -> int:
        """The number of decisions, ties and refusals among them."""
        return len(self.decisions.item)

    @property
    def items(self) -> int:
        """The number of items that were decided."""
        return np.unique(self.decisions.item).size

    @property
    def model(self) -> str:
        """The name of who chose."""
        return str(self.decisions.asked.get("model", "the model"))

    @property
    def deltas(self) -> dict[str, float]:
        """Of rows of BiasBusters what its paper (arXiv 2510.00307) measures (`read_decisions`); else empty."""
        return self.decisions.job.get("deltas", {})

    @property
    def always(self) -> str:
        """In words the slot or label that is chosen in every decision, whatever option is there; else empty."""
        held = self.effects.decisions
        rows = np.flatnonzero(held.chosen >= 0)
        found = {"Slot": held.chosen[rows]}
        if held.labels is not None:
            found["Label"] = np.array(held.label_names)[held.labels[rows, held.chosen[rows]]]
        same = [f"{kind} {one[0]}" for kind, one in found.items() if np.unique(one).size == 1]
        declined = f" but {len(held.chosen) - rows.size:,} without a choice" * (rows.size < len(held.chosen))
        return f"{same[0]} is chosen in all decisions{declined}, whatever option is there" if same else ""

    @cached_property
    def order_test(self) -> Test:
        """Whether slots matter at all in these items (`ChoiceEffects.permutation_test`)."""
        return self.effects.permutation_test()

    @property
    def changed(self) -> tuple[int, int]:
        """On how many of the items that were asked in several orders the decision changes; and their number."""
        item, other = self.decisions.item[self.decisions.pairs[:, 0]], ~self.decisions.same_order
        return np.unique(item[other & self.decisions.differ]).size, np.unique(item[other]).size

    @cached_property
    def places(self) -> Places | None:
        """Accuracy by set of contents and slot of the right option, of items with one in every slot.

        None below `LEAST_SETS` sets.
        """
        held = self.decisions
        rows, sets = self._by_slot(np.array(held.right or [-1] * len(held.options)))
        if np.unique(sets).size < LEAST_SETS:
            return None
        shares = np.array([rows[sets == one].mean(axis=0) for one in np.unique(sets)])
        about: dict[str, Any] = {"asked": held.asked, "job": held.job, "rows": "sets of contents"}
        return Places({"accuracy": shares}, np.arange(held.slots), chance=1 / held.slots, **about)

    @property
    def accuracy(self) -> list[Estimate]:
        """Accuracy by slot of the right option, where there are `places`."""
        return [] if self.places is None else self.places.curves["accuracy"]

    @cached_property
    def wins(self) -> dict[str, Wins]:
        """By side how often it is chosen, where two options whose sides are known are compared."""
        found, held = {}, self.decisions
        for name in dict.fromkeys(side for own in held.sides for side in own) if held.slots == 2 else ():
            own = [sides.index(name) if list(sides).count(name) == 1 else -1 for sides in held.sides]
            rows, sets = self._by_slot(np.array(own), ties=True)
            if len(rows):
                columns = (rows.mean(axis=1), *rows.T)
                balanced, *by_slot = (clustered_mean(column, sets).as_share() for column in columns)
                found[name] = Wins(balanced, _even_log_odds(rows, sets), *by_slot)
        return found

    def _by_slot(self, own: Int[np.ndarray, "item"], ties: bool = False) -> BySlot:
        """How often an item's option `own` (−1: none) is chosen by the slot where it stands, in items that have
        it in every slot; with `ties` these count half, and refusals not."""
        held = self.decisions
        option = own[held.item]
        slot = held.slot_of[np.arange(len(option)), np.maximum(option, 0)]
        won = np.where(held.chosen == TIE, 0.5 * ties, held.option == option)
        kept = held.first & (option >= 0) & ~(ties & (held.chosen == REFUSED))
        sums, counts = np.zeros((2, len(held.options), held.slots))
        np.add.at(sums, (held.item[kept], slot[kept]), won[kept])
        np.add.at(counts, (held.item[kept], slot[kept]), 1)
        whole = (counts > 0).all(axis=1)
        return sums[whole] / counts[whole], held.sets[whole]

    # --- in words and numbers ---------------------------------------------------------------------------------

    def sentences(self) -> list[str]:
        """The answer in words: what was decided, effects of order, then what is known of the options."""
        effects, test, (changed, items) = self.effects, self.order_test, self.changed
        ties, refusals = effects.declined.values()
        few = f": below {LEAST_SETS} no interval" * (effects.sets < LEAST_SETS)
        of = f"{self.items:,} items in {effects.sets:,} sets of contents{few}"
        lines = [
            f"decisions of {self.model}: {self.count:,} on {of}; {ties:,} ties, {refusals:,} without a choice"
        ]
        if bounds := self.decisions.asked.get("bounds"):
            what = "of options that the server did not list; effects take them as scores"
            lines.append(f"{bounds:,} scores are but bounds, {what}")
        if self.decisions.asked.get("api") == "completion":
            lines.append("prompts were asked as they are, in no chat template")
        what = "slot and label together" if effects.together else "slot"
        known = {f"{what}, {name}": gap for name, gap in effects.gaps.items()}
        if effects.labels:
            label, most = max(effects.labels.items(), key=lambda one: one[1].value)
            known[f"label, {label} has the greatest effect"] = most
        if self.always:
            lines.append(self.always)
            known = {name: one for name, one in known.items() if not math.isnan(one.value)}
        lines += [f"{name}: {log_odds(one)}" for name, one in known.items()]
        lines.append(f"slots in these items: p = {test.p:.2g} by {test.draws:,} permutations within them")
        if effects.lack_of_fit.p < ALPHA:
            lines.append(f"one effect of slots for all options does not fit: p = {effects.lack_of_fit.p:.2g}")
        other, same = map(percent, effects.flips)
        lines.append(f"flips: {other} of pairs in other orders differ; of pairs in the same order: {same}")
        lines.append(f"order changes the decision on {changed:,} of {items:,} items")
        lines += [f"BiasBusters' δ (2510.00307), {name}: {one:.3f}" for name, one in self.deltas.items()]
        return [*lines, *self._known()]

    def _known(self) -> list[str]:
        lines = []
        if self.places is not None:
            (first, *_, last), mean = self.accuracy, self.places.overall["accuracy"]
            above = "" if mean.interval[0] > self.places.chance else ", not shown to be above chance"
            above = ", at ceiling" if self.places.verdict == "at ceiling" else above
            lines.append(
                f"right: {percent(mean)}, chance {self.places.chance:.0%}{above}; {percent(first)} where it "
                f"stands first, {percent(last)} last"
            )
        for side, wins in list(self.wins.items())[: 1 if len(self.wins) == 2 else None]:
            lead, order = abs(wins.balanced.value - 0.5), abs(wins.first.value - wins.last.value) / 2
            within = f"; {100 * lead:.1f} points from even are within the {100 * order:.1f} that order does"
            lines.append(
                f"{side} wins {percent(wins.balanced)} balanced, {percent(wins.slot_free)} slot-free"
                f"{within * (0 < lead < order)}"
            )
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Every number, in JSON's terms (`Choices`)."""
        return json.loads(dump_json(Choices.of(self, answer=self.sentences()).model_dump(mode="json")))


def table_of(answers: Mapping[str, ChoiceAnswer]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table with a row for each of several who chose, by their names."""
    head, rows = ["who", "items", "sets", ENDS, "flips", "same order", "balanced", "slot-free"], []
    for name, one in answers.items():
        wins = next(iter(one.wins.values()), (Estimate(math.nan),) * 2)
        cells = [log_odds(one.effects.gaps[ENDS]), *map(percent, (*one.effects.flips, *wins[:2]))]
        rows.append([name, str(one.items), str(one.effects.sets), *cells])
    return head, rows


def log_odds(one: Estimate) -> str:
    """An effect with its interval; of one that is only bounded, the bound."""
    low, high = one.interval
    if math.isinf(one.value):
        bound = f"≥ {low:+.2f}" if one.value > 0 else f"≤ {high:+.2f}"
        return f"{bound} in log-odds (a bound: {one.n} sets switch)"
    if math.isnan(one.value):
        return "not determined by these decisions"
    interval = f" (95 % interval {low:+.2f} to {high:+.2f})" if one.bounds else ""
    return f"{one.value:+.2f} in log-odds{interval}"


def _even_log_odds(rows: Float[np.ndarray, "item slot"], sets: Int[np.ndarray, "item"]) -> Estimate:
    """The share whose log-odds are the mean of those of the slots (½ added to each count), with its jackknife."""
    left_out = [sets == one for one in np.unique(sets)]
    shares = [_even_share(rows[~own]) for own in left_out] if len(left_out) >= LEAST_SETS else [math.nan]
    se = math.sqrt((len(left_out) - 1) * float(np.var(shares)))
    return Estimate(_even_share(rows), se, len(left_out)).as_share()


def _even_share(rows: Float[np.ndarray, "item slot"]) -> float:
    won, lost = rows.sum(axis=0), (1 - rows).sum(axis=0)
    return float(1 / (1 + np.exp(-np.log((won + 0.5) / (lost + 0.5)).mean())))


def read(
    path: "AnyProfile | pd.DataFrame", *, columns: Mapping[str, str] | None = None, **how: Any
) -> Profile | dict[str, ChoiceAnswer]:
    """Read results that anybody made: decisions as `read_choices`, all else as `posbias.imports.read`.

    A DataFrame is read as a file of its rows would be.
    """
    given: Any = path
    if hasattr(given, "to_json"):
        with TemporaryDirectory() as folder:
            given.to_json(file := Path(folder, "table.jsonl"), orient="records", lines=True)
            try:
                return read(file, columns=columns, **how)
            except InputFileError as error:
                raise InputFileError(str(error).replace(str(file), "table")) from None
    found = read_choices(given, columns) if isinstance(given, str | os.PathLike) else {}
    return found or imports.read(given, columns=columns, **how)


def read_choices(
    path: str | os.PathLike[str], columns: Mapping[str, str] | None = None
) -> dict[str, ChoiceAnswer]:
    """By who chose, what the decisions in a file or folder show of order (`read_decisions`)."""
    found = read_decisions(Path(path), Choice(columns=columns or {}))
    return {who: ChoiceAnswer(decisions) for who, decisions in found.items()}
