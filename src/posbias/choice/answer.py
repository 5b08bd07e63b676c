"""What is said of decisions: effects of slots and labels, flips and their floor, accuracy, win rates.

    answer = posbias.choose("smollm2-135m", "items.jsonl")     # a `ChoiceAnswer`
    print(*answer.sentences(), sep="\n")

Every number names what it is of: items, their sets of contents (the unit of intervals), decisions.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from posbias.choice.effects import LEAST_SETS, ChoiceEffects, Test, clustered_mean
from posbias.core.errors import InvalidValueError
from posbias.core.formats import dump_json
from posbias.profiles.decisions import REFUSED, TIE, Decisions
from posbias.profiles.estimate import Estimate
from posbias.profiles.gaps import CEILING, ENDS, percent
from posbias.profiles.places import Places

ALPHA = 0.05
"""The level below which a p-value is said to show something."""


class Wins(NamedTuple):
    """How often one of two sides is chosen, a tie counting half, by item.

    `balanced`: both orders counted alike. `slot_free`: were there no effects of slot and label: of scores, each
    decision again with the effects taken away; of answers, the share whose log-odds are the mean of those of both
    orders (½ added to each count; after Davidson & Beaver 1977, Biometrics 33), with the jackknife over sets.
    `first`, `last`: where its option stands first, and last.
    """

    balanced: Estimate
    slot_free: Estimate
    first: Estimate
    last: Estimate

    @property
    def within_order(self) -> bool:
        """Whether its distance from even is less than what order adds or takes."""
        return 0 < abs(self.balanced.value - 0.5) < abs(self.first.value - self.last.value) / 2


@dataclass(frozen=True, eq=False)
class ChoiceAnswer:
    """What decisions show of order. `source` as of `ChoiceEffects`.

    Raises `InvalidValueError` where orders do not cross, even if slot and label are taken as one.
    """

    decisions: Decisions
    source: str = ""

    def __post_init__(self):
        _ = self.effects

    @cached_property
    def effects(self) -> ChoiceEffects:
        """Effects of slots and labels; of both together where labels were not crossed with slots."""
        try:
            return ChoiceEffects(self.decisions, self.source)
        except InvalidValueError:
            if self.decisions.labels is None:
                raise
            return ChoiceEffects(replace(self.decisions, labels=None), self.source)

    # --- numbers ----------------------------------------------------------------------------------------------

    @property
    def model(self) -> str:
        """The name of who chose."""
        return str(self.decisions.asked.get("model", "the model"))

    @property
    def items(self) -> int:
        """The number of items that were decided."""
        return np.unique(self.decisions.item).size

    @property
    def sets(self) -> int:
        """The number of sets of contents."""
        return self.effects.sets

    @property
    def asked(self) -> int:
        """The number of decisions, ties and refusals among them."""
        return len(self.decisions.item)

    @property
    def together(self) -> bool:
        """Whether labels were shown whose effect cannot be told from that of their slot."""
        return bool(self.decisions.label_names) and self.effects.decisions.labels is None

    @property
    def slots(self) -> list[Estimate]:
        """By slot its effect in log-odds."""
        return self.effects.slots

    @property
    def labels(self) -> dict[str, Estimate]:
        """By label its effect in log-odds, where it can be told from that of slots."""
        return {} if self.together else self.effects.labels

    @property
    def gaps(self) -> dict[str, Estimate]:
        """Differences of slots in log-odds: of the ends and, from three slots on, the middle."""
        return self.effects.gaps

    @property
    def points(self) -> list[Estimate]:
        """By slot its share of decisions less an even share."""
        return self.effects.points

    @property
    def flips(self) -> Estimate:
        """The share of pairs of decisions on one item, in different orders, that differ."""
        return _within_shares(self.effects.flips[0])

    @property
    def floor(self) -> Estimate:
        """The share that differ of pairs in the same order; NaN where none was asked twice."""
        return _within_shares(self.effects.flips[1])

    @property
    def declined(self) -> dict[str, int]:
        """The numbers of ties and of refusals."""
        return self.effects.declined

    @cached_property
    def order_test(self) -> Test:
        """Whether order matters at all (`ChoiceEffects.permutation_test`)."""
        return self.effects.permutation_test()

    @property
    def label_test(self) -> Test:
        """Whether labels have any effect."""
        return self.effects.label_test if self.labels else Test(math.nan, 0)

    @property
    def lack_of_fit(self) -> Test:
        """Whether slots matter more, or less, for options that are chosen often."""
        return self.effects.lack_of_fit

    @property
    def changed(self) -> tuple[int, int]:
        """Of the items that were asked in several orders, on how many the decision changes; and their number."""
        held = self.decisions
        first, second = held.pairs[~held.same_order].T
        differ = held.option[first] != held.option[second]
        return np.unique(held.item[first[differ]]).size, np.unique(held.item[first]).size

    # --- where options are known ------------------------------------------------------------------------------

    @cached_property
    def _right(self) -> tuple[Float[np.ndarray, "item slot"], Int[np.ndarray, "item"]]:
        held = self.decisions
        right = np.array(held.right or [-1] * len(held.options))[held.item]
        slot = np.take_along_axis(held.slot_of, np.maximum(right, 0)[:, None], axis=1)[:, 0]
        return self._by_slot(held.option == right, slot, held.first & (right >= 0))

    @property
    def accuracy(self) -> list[Estimate]:
        """By the slot of the right option, how often it is chosen; empty where no item has one in every slot."""
        return _means(*self._right)

    @property
    def right(self) -> Estimate:
        """How often the right option is chosen, all slots counted alike; NaN where nobody knows it."""
        rows, sets = self._right
        return _mean(rows, sets) if len(rows) else Estimate(math.nan)

    @property
    def places(self) -> Places | None:
        """Accuracy by set of contents and slot of the right option; None below `LEAST_SETS` sets."""
        rows, sets = self._right
        names, own = np.unique(sets, return_inverse=True)
        if len(names) < LEAST_SETS:
            return None
        sums = np.zeros((len(names), rows.shape[1]))
        np.add.at(sums, own, rows)
        results = {"accuracy": sums / np.bincount(own)[:, None]}
        about: dict[str, Any] = {"asked": dict(self.decisions.asked), "job": dict(self.decisions.job)}
        return Places(
            results, np.arange(rows.shape[1]), chance=1 / rows.shape[1], rows="sets of contents", **about
        )

    @cached_property
    def wins(self) -> dict[str, Wins]:
        """By side how often it is chosen, where two options of known sides are compared."""
        names = dict.fromkeys(side for own in self.decisions.sides for side in own)
        return {name: wins for name in names if (wins := self._wins(name)) is not None}

    def _wins(self, side: str) -> Wins | None:
        held = self.decisions
        own = np.array([sides.index(side) if [*sides].count(side) == 1 else -1 for sides in held.sides])
        option = own[held.item]
        slot = np.take_along_axis(held.slot_of, np.maximum(option, 0)[:, None], axis=1)[:, 0]
        kept = held.first & (option >= 0) & (held.chosen != REFUSED)
        won = np.where(held.chosen == TIE, 0.5, held.option == option)
        rows, sets = self._by_slot(won, slot, kept)
        if held.slots != 2 or not len(rows):
            return None
        slot_free = _even_log_odds(rows, sets)
        if self.effects.source == "scores" and held.scores is not None:
            again = np.take_along_axis(
                held.order, (held.scores - self._effects_shown).argmax(axis=1)[:, None], 1
            )
            slot_free = _mean(*self._by_slot(again[:, 0] == option, slot, kept))
        return Wins(_mean(rows, sets), slot_free, *_means(rows, sets))

    @property
    def _effects_shown(self) -> Float[np.ndarray, "decision slot"]:
        """By decision and slot the effects of slot and label."""
        shown = np.array([one.value for one in self.slots])[None]
        if self.labels:
            shown = shown + np.array([one.value for one in self.labels.values()])[self.decisions.labels]
        return shown

    def _by_slot(
        self, values: Any, slot: Int[np.ndarray, "decision"], kept: Bool[np.ndarray, "decision"]
    ) -> tuple[Float[np.ndarray, "item slot"], Int[np.ndarray, "item"]]:
        """By item and slot the mean of decisions, of items that have some in every slot; and the items' sets."""
        held = self.decisions
        sums, counts = np.zeros((2, len(held.options), held.slots))
        np.add.at(sums, (held.item[kept], slot[kept]), np.asarray(values, dtype=np.float64)[kept])
        np.add.at(counts, (held.item[kept], slot[kept]), 1)
        whole = (counts > 0).all(axis=1)
        return sums[whole] / counts[whole], held.sets[whole]

    # --- in words ---------------------------------------------------------------------------------------------

    def sentences(self) -> list[str]:
        """The answer in words."""
        return [*self._scope(), *self._slot_lines(), *self._flip_lines(), *self._known_lines()]

    def _scope(self) -> list[str]:
        ties, refusals = self.declined.values()
        of = f"{self.items:,} items in {self.sets:,} sets of contents, {self.asked:,} decisions"
        lines = [f"{self.model}: {of}, {ties:,} ties and {refusals:,} answers without a choice among them"]
        if self.sets < LEAST_SETS:
            lines.append(f"no interval: {self.sets} sets of contents, {LEAST_SETS} are the fewest")
        return lines

    def _slot_lines(self) -> list[str]:
        what = "slot and label together" if self.together else "slot"
        lines = [f"{what}, {name}: {log_odds(gap)}{_favours(name, gap)}" for name, gap in self.gaps.items()]
        lines.append(
            f"order matters at all in these items: p = {self.order_test.p:.2g}, {self.order_test.draws:,} permutations"
        )
        if self.labels:
            most = max(self.labels, key=lambda name: self.labels[name].value)
            p = (
                ""
                if math.isnan(self.label_test.p)
                else f"; labels matter at all: p = {self.label_test.p:.2g}"
            )
            lines.append(f"label {most} has the greatest effect: {log_odds(self.labels[most])}{p}")
        if self.lack_of_fit.p < ALPHA:
            lines.append(
                f"the effect of slots differs with how often an option is chosen (p = {self.lack_of_fit.p:.2g}): "
                "one effect for all options does not fit"
            )
        return lines

    def _flip_lines(self) -> list[str]:
        changed, items = self.changed
        floor = "no order was asked twice, so how many flip by chance is not known"
        if not math.isnan(self.floor.value):
            floor = f"in the same order again {percent(self.floor)}"
        return [
            f"flips: in another order {percent(self.flips)} of pairs of decisions differ, {floor}",
            f"the decision changes with order on {changed:,} of {items:,} items",
        ]

    def _known_lines(self) -> list[str]:
        lines = []
        if self.accuracy:
            chance, low = 1 / self.decisions.slots, self.right.interval[0]
            doubt = f"; not shown to be above chance, {chance:.0%}" if not low > chance else ""
            doubt = "; at ceiling" if self.right.value == 1 or low > CEILING else doubt
            ends = f"{percent(self.accuracy[0])} where it stands first, {percent(self.accuracy[-1])} last"
            lines.append(f"the right option is chosen in {percent(self.right)}: {ends}{doubt}")
        for side, wins in [*self.wins.items()][: 1 if len(self.wins) == 2 else None]:
            lines.append(
                f"{side} wins {percent(wins.balanced)} with both orders counted alike (balanced), "
                f"{percent(wins.slot_free)} without effects of order (slot-free)"
            )
            if wins.within_order:
                lead = 100 * abs(wins.balanced.value - 0.5)
                order = 50 * abs(wins.first.value - wins.last.value)
                lines.append(
                    f"its distance from even, {lead:.1f} points, is within what order does: {order:.1f} points "
                    f"either way ({wins.first.value:.0%} where it stands first, {wins.last.value:.0%} last)"
                )
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Every number, in JSON's terms; estimates have value, se, n and interval."""
        return json.loads(dump_json({name: _plain(getattr(self, name)) for name in NAMES}))


NAMES = (
    *("model", "items", "sets", "asked", "together", "slots", "labels", "gaps", "points", "flips", "floor"),
    *("declined", "changed", "order_test", "label_test", "lack_of_fit", "accuracy", "right", "wins"),
)
"""What `ChoiceAnswer.as_dict` has."""


def table_of(answers: Iterable[ChoiceAnswer]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table with a row for each of several who chose; intervals of 95 % in brackets."""
    answers, rows = [*answers], []
    more = ["right"] * any(one.accuracy for one in answers)
    more += ["balanced", "slot-free"] * any(one.wins for one in answers)
    for one in answers:
        side = next(iter(one.wins), None)
        known = {"right": one.right} | ({} if side is None else one.wins[side]._asdict())
        shares = [one.flips, one.floor, *(known.get(name.replace("-", "_")) for name in more)]
        cells = [_cell(one.gaps[ENDS], "+.2f"), *(_cell(share, ".2f") for share in shares)]
        rows.append([one.model, f"{one.items}", f"{one.sets}", *cells])
    return ["who", "items", "sets", f"{ENDS}, log-odds", "flips", "same order again", *more], rows


def _cell(one: Estimate | None, digits: str) -> str:
    if one is None or math.isnan(one.value):
        return "–"
    low, high = (format(end, digits) for end in one.interval)
    value = format(one.value, digits) if math.isfinite(one.value) else "bound"
    return value if math.isnan(one.interval[0]) else f"{value} [{low}, {high}]"


def log_odds(one: Estimate) -> str:
    """An effect with its interval; one that is only bounded as the bound, one without an interval alone."""
    low, high = one.interval
    if math.isinf(one.value):
        bound = f"at least {low:+.2f}" if one.value > 0 else f"at most {high:+.2f}"
        return f"{bound} in log-odds (all {one.n} sets that switch go one way)"
    if math.isnan(one.value):
        return "not known, the decisions do not determine it"
    interval = f" (95 % interval {low:+.2f} to {high:+.2f})" if math.isfinite(low) else ""
    return f"{one.value:+.2f} in log-odds{interval}"


def _favours(name: str, gap: Estimate) -> str:
    if not gap.sign:
        return ""
    return f": the {name.split(' - ')[gap.sign < 0]} favoured"


def _means(rows: Float[np.ndarray, "item slot"], sets: Int[np.ndarray, "item"]) -> list[Estimate]:
    return [_within_shares(clustered_mean(column, sets)) for column in rows.T] if len(rows) else []


def _mean(rows: Float[np.ndarray, "item slot"], sets: Int[np.ndarray, "item"]) -> Estimate:
    """The mean of all slots, each counted alike."""
    return _within_shares(clustered_mean(rows.mean(axis=1), sets))


def _within_shares(one: Estimate) -> Estimate:
    """A mean of shares with an interval within 0 to 1; where all are alike, that of their number alone."""
    if not math.isfinite(one.se):
        return one
    return one.clipped(0.0, 1.0) if one.se else Estimate.alike(one.value, one.n or 1)


def _even_log_odds(rows: Float[np.ndarray, "item slot"], sets: Int[np.ndarray, "item"]) -> Estimate:
    """The share whose log-odds are the mean of those of the two slots."""
    _, own = np.unique(sets, return_inverse=True)
    counts = np.bincount(own)[:, None]
    sums = np.zeros((len(counts), rows.shape[1]))
    np.add.at(sums, own, rows)

    def share(won: Any, of: Any) -> Any:
        odds = np.log(won + 0.5) - np.log(of - won + 0.5)
        return 1 / (1 + np.exp(-odds.mean(axis=-1)))

    value = float(share(sums.sum(axis=0), counts.sum()))
    if len(counts) < LEAST_SETS:
        return Estimate(value, math.nan, len(counts))
    without = share(sums.sum(axis=0) - sums, counts.sum() - counts)
    se = math.sqrt((len(counts) - 1) * float(np.var(without)))
    return Estimate(value, se, len(counts)).clipped(0.0, 1.0)


def _plain(held: Any) -> Any:
    """Estimates and tests, within lists and mappings, as mappings."""
    if isinstance(held, Estimate):
        return {"value": held.value, "se": held.se, "n": held.n, "interval": held.interval}
    if isinstance(held, tuple) and hasattr(held, "_asdict"):
        held = held._asdict()
    if isinstance(held, dict):
        return {name: _plain(one) for name, one in held.items()}
    return [_plain(one) for one in held] if isinstance(held, Sequence) and not isinstance(held, str) else held
