"""What a place adds to being chosen: effects of slots and labels, whatever the options are.

The model: the log-odds of choosing an option are effect of its slot + effect of its label + the option's own;
those of slots, and of labels, sum to zero. From answers: of two decisions s, t on one item for options a ≠ b,
P(s → a, t → b | one is for a, the other for b) = σ[(η_sa − η_sb) − (η_ta − η_tb)], in which the options' own parts
cancel; the product of these over all pairs is maximised. From log-probabilities: least squares within items. The
unit that intervals go by is the set of contents (`Decisions.sets`): a sandwich over G sets with G/(G − 1), in its
form that leaves out one set after another (CR3), and Student's t on G − 1 degrees of freedom. Below `LEAST_SETS`
sets there is no interval.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from posbias.core import machine
from posbias.core.errors import wrong
from posbias.profiles.decisions import REFUSED, TIE, Decisions
from posbias.profiles.estimate import Estimate
from posbias.profiles.gaps import gaps_of

LEAST_SETS = 5
"""With fewer sets of contents there is no interval and no test."""
PERMUTATIONS = 1999
ONE_SIDED = 0.025
"""Where all switches go one way, the level of the bound."""
_FAR = 12.0
"""Log-odds beyond which it is tried whether the likelihood has a maximum at all."""
Rows = Float[np.ndarray, "row effect"]
Design = Float[np.ndarray, "decision option effect"]


class Test(NamedTuple):
    """A test: its p-value, and how many sets (or permutations) it rests on."""

    p: float
    draws: int


class _Fit(NamedTuple):
    """Coded effects with their covariance over the sets that say something; NaN where there is no maximum."""

    effects: Float[np.ndarray, "effect"]
    covariance: Float[np.ndarray, "effect effect"]
    sets: int


@dataclass(frozen=True)
class ChoiceEffects:
    """Effects of slots and labels of `Decisions`: of their scores, where these are known, else of the answers.

    Labels that are not crossed with slots are left out: effects are of both `together`. Raises `InvalidValueError`
    for decisions whose orders do not cross, so that no effect of a slot is in them.
    """

    decisions: Decisions

    def __post_init__(self):
        if self.decisions.labels is not None and not _crossed(self.decisions):
            object.__setattr__(self, "decisions", replace(self.decisions, labels=None))
        if not _crossed(self.decisions):
            what = "each item with its options in other slots (and under other labels) in other decisions"
            raise wrong("order", what, got="orders that do not cross: place and content cannot be separated")

    # --- numbers ----------------------------------------------------------------------------------------------

    @property
    def source(self) -> str:
        """What effects are estimated from."""
        return "answers" if self.decisions.scores is None else "scores"

    @cached_property
    def sets(self) -> int:
        """The number of sets of contents."""
        return np.unique(self.decisions.sets[self.decisions.item]).size

    @property
    def together(self) -> bool:
        """Whether labels were shown whose effects cannot be separated from those of slots."""
        return bool(self.decisions.label_names) and self.decisions.labels is None

    @property
    def slots(self) -> list[Estimate]:
        """By slot its effect in log-odds; they sum to zero."""
        return [self._contrast(slots=row) for row in np.eye(self.decisions.slots)]

    @property
    def labels(self) -> dict[str, Estimate]:
        """By label its effect in log-odds, where labels were crossed with slots."""
        names = () if self.decisions.labels is None else self.decisions.label_names
        return {name: self._contrast(labels=row) for name, row in zip(names, np.eye(len(names)), strict=True)}

    @property
    def gaps(self) -> dict[str, Estimate]:
        """Differences in log-odds between the ends and the mean of the inner slots; of two first − last alone."""
        differences = gaps_of(np.eye(self.decisions.slots))
        return {name: self._contrast(slots=row) for name, row in differences.items()}

    @property
    def points(self) -> list[Estimate]:
        """By slot, the share of decisions for it less 1/k: its effect in points of probability, orders asked
        again apart.

        NaN where an option did not stand equally often in every slot of its item: a share is then its own too.
        """
        held, k = self.decisions, self.decisions.slots
        if not held.balanced:
            return [Estimate(math.nan)] * k
        chosen, decided = np.eye(k)[np.maximum(held.chosen, 0)], held.chosen >= 0
        if held.scores is not None:
            from scipy.special import softmax

            chosen, decided = softmax(held.scores, axis=1), np.full(len(held.chosen), True)
        return [self._mean(column - 1 / k, decided & held.first, held.item) for column in chosen.T]

    @property
    def influence(self) -> list[Estimate]:
        """By slot, the share of all options' influence that is of the tokens there; empty where not known."""
        held, rows = self.decisions, self.decisions.influence
        shares = np.zeros((0, 0)) if rows is None else rows / rows.sum(axis=1, keepdims=True)
        return [self._mean(column, held.first, held.item).as_share() for column in shares.T]

    @property
    def flips(self) -> tuple[Estimate, Estimate]:
        """The share of pairs of decisions on one item that differ: in other orders, and in the same order again.

        The second, the floor, is NaN where nothing was asked twice. Ties and refusals differ from a choice.
        """
        differ, same = self.decisions.differ.astype(np.float64), self.decisions.same_order
        item = self.decisions.item[self.decisions.pairs[:, 0]]
        return tuple(self._mean(differ, some, item).as_share() for some in (~same, same))  # type: ignore[return-value]

    @property
    def declined(self) -> dict[str, int]:
        """The numbers of ties and of refusals."""
        kinds = {"ties": TIE, "refusals": REFUSED}
        return {name: int((self.decisions.chosen == kind).sum()) for name, kind in kinds.items()}

    # --- tests ------------------------------------------------------------------------------------------------

    @property
    def slot_test(self) -> Test:
        """Whether slots have any effect (Wald's test, F over sets)."""
        return _wald(self._fit, slice(0, self.decisions.slots - 1))

    @cached_property
    def lack_of_fit(self) -> Test:
        """Whether slots matter more, or less, for options that are chosen often: slot × content.

        How often is counted in the other decisions on the same options, so that under the model it says nothing of
        those it is held against. NaN where nothing but the two orders of a pair was decided, and where it is below
        .005 log-odds.
        """
        design, k = _design(self.decisions), self.decisions.slots
        x, y, cluster = self._rows(np.concatenate([design, design[:, :, : k - 1]], axis=2), interacts=k - 1)
        fit = _fitted(x, y, cluster)
        # what prints as .00 is rounding, or matters to nobody
        seen = np.abs(fit.effects[1 - k :]).max() >= 0.005
        return _wald(fit, slice(1 - k, None)) if seen else Test(math.nan, fit.sets)

    def permutation_test(self, seed: int = 0) -> Test:
        """Whether slots matter at all: options chosen are permuted among the decisions on an item, one an order.

        Where order does not matter, all permutations are alike; the statistic is Σ over slots (sum − mean)² of
        choices, or of scores. p = (1 + b)/(1 + B) with B = `PERMUTATIONS`.
        """
        held, k, rows = self.decisions, self.decisions.slots, np.argsort(self.decisions.item, kind="stable")
        rows = rows[held.first[rows]]
        random, item = machine.stream(seed, "choice.permutations"), held.item[rows]
        option, slot_of, order = held.option[rows], held.slot_of[rows], held.order[rows]
        by_option = np.where(np.arange(k) == option[:, None], 1.0, 0.0)
        if held.scores is not None:
            by_option = np.take_along_axis(held.scores[rows], slot_of, axis=1)
            by_option = by_option - by_option.mean(axis=1, keepdims=True)

        def statistic(shuffled: Int[np.ndarray, "decision"]) -> float:
            by_slot = np.take_along_axis(by_option[shuffled], order, axis=1).sum(axis=0)
            return float(((by_slot - by_slot.mean()) ** 2).sum())

        seen = statistic(np.arange(len(rows))) * (1 - 1e-12)
        beyond = sum(
            statistic(np.argsort(item + random.random(len(rows)))) >= seen for _ in range(PERMUTATIONS)
        )
        return Test((1 + beyond) / (1 + PERMUTATIONS), PERMUTATIONS)

    # --- the fit ----------------------------------------------------------------------------------------------

    def _rows(
        self, design: Design, interacts: int = 0
    ) -> tuple[Rows, Float[np.ndarray, "row"] | None, Int[np.ndarray, "row"]]:
        """Row by row what effects are multiplied by, what is explained (None: the choice), and the set.

        The last `interacts` effects are multiplied by how often the option was chosen elsewhere.
        """
        held = self.decisions
        if held.scores is not None:
            scores = np.take_along_axis(held.scores, held.slot_of, axis=1)
            if interacts:
                centred = scores - scores.mean(axis=1, keepdims=True)
                design = design.copy()
                design[:, :, -interacts:] *= _elsewhere(held, centred, 0.0, np.arange(len(scores)))[
                    :, :, None
                ]
            x, y = _within_items(held, design), _within_items(held, scores[:, :, None])[:, 0]
            return x, y, np.repeat(held.sets[held.item], held.slots)
        first, second = held.pairs.T
        a, b = held.option[first], held.option[second]
        kept = (a >= 0) & (b >= 0) & (a != b)
        first, second, a, b = (each[kept] for each in (first, second, a, b))
        at = design[first, a], design[first, b], design[second, a], design[second, b]
        x = at[0] - at[1] - at[2] + at[3]
        if interacts:
            chosen = np.where(np.arange(held.slots) == held.option[:, None], 1.0, 0.0)
            often = _elsewhere(held, chosen, 1 / held.slots, first, second)
            c, d = often[np.arange(len(a)), a, None], often[np.arange(len(a)), b, None]
            x[:, -interacts:] = (c * (at[0] - at[2]) - d * (at[1] - at[3]))[:, -interacts:]
        return x, None, held.sets[held.item[first]]

    @cached_property
    def _fit(self) -> _Fit:
        return _fitted(*self._rows(_design(self.decisions)))

    def _contrast(
        self, slots: Float[np.ndarray, "slot"] | None = None, labels: Float[np.ndarray, "label"] | None = None
    ) -> Estimate:
        """A sum of effects of slots or labels, each weighted."""
        parts = [(slots, self.decisions.slots)]
        if self.decisions.labels is not None:
            parts.append((labels, len(self.decisions.label_names)))
        weights = np.concatenate([np.zeros(n - 1) if row is None else row @ _coding(n) for row, n in parts])
        value, sets = float(weights @ self._fit.effects), self._fit.sets
        if math.isnan(value):
            return self._bound(weights)
        variance = float(weights @ self._fit.covariance @ weights)
        return Estimate(value, math.sqrt(variance) if sets >= LEAST_SETS else math.nan, sets)

    def _bound(self, weights: Float[np.ndarray, "effect"]) -> Estimate:
        """What is known where the likelihood has no maximum: of n sets that switch, all one way, that
        σ(effect)ⁿ ≥ `ONE_SIDED` (exact, one-sided).

        Of two options sets count in pairs whose labels are the other way about: as log σ is concave, whatever
        effect labels have, σ(effect + label) σ(effect − label) ≤ σ(effect)². Where they do not all go one way, the
        effect is half the sum of both kinds' log-odds, each with its exact limit at half the level; NaN where that
        leaves its sign open.
        """
        x, _, cluster = self._rows(_design(self.decisions))
        factor = x @ weights / (weights @ weights)
        rest = np.where(np.isclose(x, factor[:, None] * weights), 0.0, x - factor[:, None] * weights)
        kept = factor != 0 if self.decisions.slots == 2 else (rest == 0).all(axis=1) & (factor != 0)
        first = np.flatnonzero(kept)[np.unique(cluster[kept], return_index=True)[1]]
        side, ways = np.sign(rest[first] @ np.sign(weights[::-1])), factor[first]
        count = int((side == 0).sum() + 2 * min((side > 0).sum(), (side < 0).sum()))
        if not ways.size:
            return Estimate(math.nan)
        if not count or (not (ways > 0).all() and not (ways < 0).all()):
            limits = [_logits(ways[side * np.sign(ways) == kind] > 0) for kind in (1, -1)]
            low, high = (sum(each) / 2 / float(np.abs(ways).max()) for each in zip(*limits, strict=True))
            if not (low > 0 or high < 0):
                return Estimate(math.nan)
            sign, ends = (1.0, (low, math.inf)) if low > 0 else (-1.0, (-math.inf, high))
            return Estimate(sign * math.inf, math.nan, len(ways), ends=ends, method="exact")
        sign, share = math.copysign(1.0, ways[0]), ONE_SIDED ** (1 / count)
        end = sign * math.log(share / (1 - share)) / float(np.abs(ways).max())
        ends = (end, math.inf) if sign > 0 else (-math.inf, end)
        return Estimate(sign * math.inf, math.nan, count, ends=ends, method="exact")

    def _mean(
        self, values: Float[np.ndarray, "row"], kept: Bool[np.ndarray, "row"], item: Int[np.ndarray, "row"]
    ) -> Estimate:
        """The mean of rows, each item weighing the same, with its error over sets."""
        if not kept.any():
            return Estimate(math.nan)
        items, row_item, counts = np.unique(item[kept], return_inverse=True, return_counts=True)
        return clustered_mean(np.bincount(row_item, values[kept]) / counts, self.decisions.sets[items])


def _logits(ways: Bool[np.ndarray, "set"]) -> tuple[float, float]:
    """The log-odds of going one way, at least and at most: Clopper and Pearson's limits, `ONE_SIDED` / 2 each."""
    from scipy.special import betaincinv, logit

    wins, rest = int(ways.sum()), int((~ways).sum())
    low = betaincinv(wins, rest + 1, ONE_SIDED / 2) if wins else 0.0
    high = betaincinv(wins + 1, rest, 1 - ONE_SIDED / 2) if rest else 1.0
    return float(logit(low)), float(logit(high))


def clustered_mean(values: Float[np.ndarray, "row"], cluster: Int[np.ndarray, "row"]) -> Estimate:
    """The mean of rows whose errors are shared within clusters; without an interval below `LEAST_SETS` of them."""
    value = float(values.mean())
    _, own = np.unique(cluster, return_inverse=True)
    sums = np.bincount(own, values - value)
    sets = len(sums)
    if sets < LEAST_SETS:
        return Estimate(value, math.nan, sets)
    return Estimate(value, math.sqrt(sets / (sets - 1) * float(sums @ sums)) / len(values), sets)


def _crossed(held: Decisions) -> bool:
    """Whether orders tell the effects of slots, labels and contents apart."""
    possible = _within_items(held, _design(held))
    return bool(np.linalg.matrix_rank(possible) == possible.shape[1])


def _coding(count: int) -> Float[np.ndarray, "level effect"]:
    """Effects that sum to zero: by level, what each of count − 1 coded effects is multiplied by."""
    return np.vstack([np.eye(count - 1), -np.ones(count - 1)])


def _design(held: Decisions) -> Design:
    """By decision and option, what the coded effects of slots, then of labels, are multiplied by."""
    parts = [_coding(held.slots)[held.slot_of]]
    if held.labels is not None:
        shown = np.take_along_axis(held.labels, held.slot_of, axis=1)
        parts.append(_coding(len(held.label_names))[shown])
    return np.concatenate(parts, axis=2)


def _within_items(held: Decisions, values: Design) -> Rows:
    """What is left of numbers by decision and option when means over a decision's options, and over an item's
    decisions for each option, are taken away."""
    values = values - values.mean(axis=1, keepdims=True)
    items, own = np.unique(held.item, return_inverse=True)
    sums = np.zeros((len(items), *values.shape[1:]))
    np.add.at(sums, own, values)
    means = sums / np.bincount(own)[:, None, None]
    return (values - means[own]).reshape(-1, values.shape[2])


def _elsewhere(
    held: Decisions,
    values: Float[np.ndarray, "decision option"],
    even: float,
    *left_out: Int[np.ndarray, "row"],
) -> Float[np.ndarray, "row option"]:
    """An option's mean value, less an even one, in the decisions on it but for those left out, by row one of each.

    Without others it is 0. Rows have length 1: then no set weighs more for its options lying farther apart.
    """
    contents = held.contents[held.item]
    sums, counts = np.bincount(contents.ravel(), values.ravel()), np.bincount(contents.ravel())
    own = contents[left_out[0]]
    rest = sums[own] - sum(values[rows] for rows in left_out)
    others = counts[own] - len(left_out)
    means = np.where(others > 0, rest / np.maximum(others, 1) - even, 0.0)
    return means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)


def _fitted(x: Rows, y: Float[np.ndarray, "row"] | None, cluster: Int[np.ndarray, "row"]) -> _Fit:
    """Least squares of `y`, or the logistic fit of what was seen (None), with the jackknife over clusters.

    Where clusters weigh alike that is the sandwich with the factor G/(G − 1); where they do not, it is wider.
    """
    effects = x.shape[1]
    nothing = _Fit(np.full(effects, math.nan), np.full((effects, effects), math.nan), 0)
    if len(x) < effects or np.linalg.matrix_rank(x) < effects:
        return nothing
    if y is not None:
        found = np.linalg.lstsq(x, y, rcond=None)[0]
        scores, weighted = x * (y - x @ found)[:, None], x
    else:
        found = _maximum(x)
        if found is None:
            return nothing
        miss = 1 / (1 + np.exp(x @ found))
        scores, weighted = x * miss[:, None], x * (miss * (1 - miss))[:, None]
    _, own = np.unique(cluster, return_inverse=True)
    sets = int(own.max()) + 1
    sums, parts = np.zeros((sets, effects)), np.zeros((sets, effects, effects))
    np.add.at(sums, own, scores)
    np.add.at(parts, own, weighted[:, :, None] * x[:, None, :])
    without = np.linalg.pinv(parts.sum(axis=0) - parts, hermitian=True)
    shifts = np.einsum("gij,gj->gi", without, sums)
    return _Fit(found, shifts.T @ shifts * (sets - 1) / sets, sets)


def _maximum(x: Rows) -> Float[np.ndarray, "effect"] | None:
    """Where Σ log σ(x·effects) is greatest, by Newton's steps; None where it has no maximum."""
    found = np.zeros(x.shape[1])
    for _ in range(100):
        miss = 1 / (1 + np.exp(np.clip(x @ found, -700, 700)))
        step = np.linalg.solve((x * (miss * (1 - miss))[:, None]).T @ x, x.T @ miss)
        found = found + step * min(1.0, 4.0 / np.abs(x @ step).max(initial=1e-300))
        if np.abs(step).max() < 1e-10:
            return found
        if np.abs(x @ found).max() > _FAR and _separates(x):
            return None
    return None


def _separates(x: Rows) -> bool:
    """Whether some effects make every row's x·effects ≥ 0, and not all 0: then greater ones fit ever better."""
    from scipy.optimize import linprog

    tried = linprog(-x.sum(axis=0), A_ub=-x, b_ub=np.zeros(len(x)), bounds=[(-1, 1)] * x.shape[1])
    return bool(tried.fun < -1e-9)


def _wald(fit: _Fit, which: slice) -> Test:
    """Wald's test that effects are all 0, by F(q, G − q) with Hotelling's factor (G − q)/(q(G − 1))."""
    effects, covariance = fit.effects[which], fit.covariance[which, which]
    q, sets = len(effects), fit.sets
    if not q or sets < max(LEAST_SETS, q + 1) or np.isnan(effects).any():
        return Test(math.nan, sets)
    from scipy.special import fdtrc

    statistic = float(effects @ np.linalg.pinv(covariance) @ effects)
    return Test(float(fdtrc(q, sets - q, statistic * (sets - q) / (q * (sets - 1)))), sets)
