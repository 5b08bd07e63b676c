"""What the claims are about: gaps of trained networks and their sinks, as evidence for `posbias.profiles.claims`.

The first functions make evidence of cells; `of_gaps` and those below it give quantities: functions from outcomes,
by setting, to evidence. Errors are over networks.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from posbias.profiles.claims import Claim, judge
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import LEAST, Above, Below, Evidence, Near, difference, mean, share
from posbias_papers.claims import Quantity, quantity
from posbias_papers.study import Results
from posbias_papers.wu2025.outcomes import LEARNT, Gaps, Sinks
from posbias_papers.wu2025.settings import Setting
from posbias_papers.wu2025.settled import change

if TYPE_CHECKING:
    from posbias.training.loop import Trained
    from posbias_papers.wu2025.matching import Matched

Places = Collection[tuple[Any, ...]]
NETWORKS = "networks that learnt to retrieve"
LEARNT_LOSS = 2.4
"""Loss of training, in nats, by which networks of depth 2 have reached an in-context accuracy of `LEARNT`."""


# --- evidence of gaps --------------------------------------------------------------------------------------


def signed(where: str, cell: Gaps, pair: str, sign: int = 1) -> Evidence:
    """That a cell's gap is above zero (sign 1) or below it (−1)."""
    return mean(f"{where} {pair}", cell.of(pair), draws=NETWORKS, test=Above() if sign > 0 else Below())


def null(where: str, cell: Gaps, pair: str) -> Evidence:
    """That a cell's gap is near zero."""
    return mean(f"{where} {pair}", cell.of(pair), draws=NETWORKS, test=Near())


def rises(where: str, deep: Gaps, shallow: Gaps, pair: str = "first-last") -> Evidence:
    """That a gap is larger in one cell than in another."""
    return difference(f"{where} {pair}", deep.of(pair), shallow.of(pair), draws=NETWORKS, test=Above())


def smaller(where: str, cell: Gaps, other: str = "first-last") -> Evidence:
    """That |middle-last| is below another gap's size, the signs being those of the means over networks."""
    sides = [cell.of(pair) for pair in (other, "middle-last")]
    if min(side.size for side in sides) == 0:
        return mean(where, sides[0], draws=NETWORKS)
    wide, narrow = (np.sign(side.mean()) * side for side in sides)
    return mean(where, wide - narrow, draws=NETWORKS)


def present(where: str, cell: Gaps, pair: str = "first-last") -> Evidence:
    """That a gap is there, whichever its sign: the p-value is that of the sign found, twice."""
    gap = mean(f"{where} |{pair}|", cell.of(pair), draws=NETWORKS, test=Above())
    return gap if gap.flaw else replace(gap, estimate=_size(gap.estimate), picked=2)


def differs(where: str, one: Gaps, other: Gaps, pair: str = "first-last") -> Evidence:
    """That a gap is another in one cell than in another, whichever its sign: the p-value found, twice."""
    apart = difference(f"{where} |{pair}|", one.of(pair), other.of(pair), draws=NETWORKS, test=Above())
    return apart if apart.flaw else replace(apart, estimate=_size(apart.estimate), picked=2)


def spared(where: str, cell: Gaps) -> Evidence:
    """That a cell is not lost in the middle: that the first or the last item is not ahead of the middle one.

    It holds if one of the two is surely ahead by less than `LEAST` (Bonferroni over both), and fails if both are
    surely ahead. The effect is what the surer one lacks of `LEAST`.
    """
    ends = [signed(where, cell, "first-middle"), signed(where, cell, "middle-last", -1)]
    if any(end.flaw for end in ends):
        return Evidence(f"{where}, not lost in the middle", flaw=ends[0].flaw or ends[1].flaw)
    surer = min(ends, key=lambda end: end.against)
    opposite = max(end.p for end in ends)
    lead = surer.estimate if surer is ends[0] else -surer.estimate
    lacks = f"{where}, {LEAST} − ({'first − middle' if surer is ends[0] else 'last − middle'})"
    return Evidence(lacks, Estimate(LEAST) - lead, test=Above(), picked=2, opposite=opposite)


def interaction(
    where: str, before: Gaps, after: Gaps, other_before: Gaps, other_after: Gaps, pair: str = "first-last"
) -> Evidence:
    """That a gap changes from one cell to another otherwise than from a third to a fourth, either way.

    All four cells have networks of their own (Welch's test of the difference of differences, two-sided).
    """
    cells = [cell.of(pair) for cell in (before, after, other_before, other_after)]
    fewest = min(values.size for values in cells)
    if fewest < 2:
        return Evidence(f"{where} |{pair}|", flaw=f"{NETWORKS}: {fewest}, two needed", test=Above())
    first, second, third, fourth = map(Estimate.of_mean, cells)
    change = (second - first) - (fourth - third)
    return Evidence(f"{where} |{pair}|", _size(change), test=Above(), picked=2)


def _size(estimate: Estimate) -> Estimate:
    """Its absolute value."""
    return estimate if estimate.value >= 0 else -estimate


# --- of several, one ---------------------------------------------------------------------------------------


def surest(effects: Sequence[Evidence]) -> Evidence:
    """The surest of effects of which one at least is claimed, its p-value times their number.

    It fails where each of them does; one that decides nothing might be the one. Raises nothing: of flawed
    effects alone the first stands for all.
    """
    sound = [effect for effect in effects if not effect.flaw]
    if not sound:
        return effects[0]
    return _surest(sound, len(sound), whole=len(sound) == len(effects))


def turns(series: Mapping[str, Mapping[str, Gaps]], pair: str = "first-last") -> tuple[Evidence, ...]:
    """That a gap both rises and falls along at least one series of named cells, from neighbour to neighbour.

    The evidence is the surest rise and the surest fall of the series where both are surest, their p-values times
    the number of steps looked at. It fails only if every series surely lacks a rise, or a fall, at each of its
    steps; a step from or to a cell that has not learnt might be one.
    """
    looked_at = [
        [rises(f"{name}, {a} to {b},", cells[b], cells[a], pair) for a, b in pairwise(cells)]
        for name, cells in series.items()
    ]
    whole = not any(step.flaw for steps in looked_at for step in steps)
    sound = [[step for step in steps if not step.flaw] for steps in looked_at]
    tests = sum(map(len, sound))
    turned = [
        tuple(
            _surest([replace(step, test=test) for step in steps], tests, whole) for test in (Above(), Below())
        )
        for steps in sound
        if len(steps) > 1
    ]
    if not turned:
        return (Evidence(pair, flaw="fewer than two steps between cells that learnt"),)
    left = [both for both in turned if all(end.verdict(len(both)) != "fails" for end in both)] or turned
    return min(left, key=lambda both: max(end.p for end in both))


def _surest(steps: list[Evidence], tests: int, whole: bool) -> Evidence:
    """The surest of effects of which one at least is claimed; it fails, if these are all, where each does."""
    opposite = max(step.against for step in steps) if whole else 1.0
    step = min(steps, key=lambda step: step.p)
    return replace(step, picked=step.picked * tests, opposite=opposite)


# --- evidence of training and of sinks ---------------------------------------------------------------------


def equally_accurate(where: str, deep: "Trained", shallow: "Trained") -> Evidence:
    """That the gap first–last is larger in `deep`, on average over the accuracies from `LEARNT` on both reach."""
    from posbias_papers.wu2025.matching import at_equal_accuracy

    both = at_equal_accuracy(deep, shallow, "first-last", np.arange(LEARNT, 1.0, 0.02).tolist())
    return _matched(where, both, f"no common accuracy from {LEARNT} on", ".2f")


def equally_low(where: str, deep: "Trained", shallow: "Trained") -> Evidence:
    """The same at equal loss of training, on average over the losses that both reach, from `LEARNT_LOSS` down."""
    from posbias_papers.wu2025.matching import at_equal_loss

    both = at_equal_loss(deep, shallow, "first-last", np.arange(LEARNT_LOSS, 0.0, -0.1).tolist())
    return _matched(where, both, f"no common loss from {LEARNT_LOSS} down", ".1f")


def _matched(where: str, both: "Matched", flaw: str, digits: str) -> Evidence:
    """By how much the gap is larger in the first of two ensembles, on average over where they are matched."""
    if not both.points.size:
        return Evidence(where, flaw=flaw)
    at = f"{where} at {both.by} {both.points[0]:{digits}} to {both.points[-1]:{digits}}"
    return difference(at, both.one.mean(axis=1), both.other.mean(axis=1), draws=NETWORKS)


def relative(where: str, deep: Gaps, shallow: Gaps, pair: str = "first-last") -> Evidence:
    """That a gap is the larger share of in-context accuracy in one cell than in another."""
    shares = [cell.of(pair) / cell.accuracy[cell.learnt] for cell in (deep, shallow)]
    return difference(f"{where} {pair} / accuracy", *shares, draws=NETWORKS, test=Above())


def settled(where: str, trained: "Trained", curve: str) -> Evidence:
    """That a learning curve surely changes by less than `LEAST` over the last third of training, at 95 %."""
    changed = change(trained, curve)
    if changed is None:
        return Evidence(f"{where} {curve}", flaw="no point of its curve lies in the first two thirds")
    return Evidence(f"{where} {curve}", changed, test=Near(0.0, LEAST), picked=2)


def margin(where: str, sinks: Sinks, first: int) -> Evidence:
    """By how much the least of the first tokens is ahead of the greatest of the others."""
    return mean(where, sinks.trained[:, :first].min(axis=1) - sinks.trained[:, first:].max(axis=1))


def beyond_average(where: str, sinks: Sinks, first: int) -> Evidence:
    """By how much the least of the first tokens is ahead of the average of the others."""
    return mean(where, sinks.trained[:, :first].min(axis=1) - sinks.trained[:, first:].mean(axis=1))


def above(where: str, sinks: Sinks, first: int, null: Literal["even", "untrained"]) -> Evidence:
    """By how much the first tokens draw more than under even attention, or than before training."""
    nulls = sinks.uniform[None] if null == "even" else sinks.untrained
    excess = sinks.trained[:, :first].mean(axis=1) - nulls[:, :first].mean(axis=1)
    return mean(f"{where}, less {null}", excess)


def wider(
    where: str, wide: Sinks, narrow: Sinks, part: Callable[[Sinks], Float[np.ndarray, "network"]]
) -> Evidence:
    """By how much a part of the sink metric is larger in one cell than in another."""
    return difference(where, part(wide), part(narrow))


def _above_even(
    attention: Float[np.ndarray, "network layer query key"], width: int, within: bool
) -> Float[np.ndarray, "network"]:
    """Mean attention beyond the even share to the first token in sight, over layers and queries.

    Of queries whose window does not hold token 0, to the first token `within` it; else of those from the second
    on whose window does, to token 0.
    """
    queries = np.arange(width, attention.shape[-1]) if within else np.arange(1, width)
    keys = np.maximum(queries - width + 1, 0)
    return (attention[:, :, queries, keys] - 1.0 / (queries - keys + 1)).mean(axis=(1, 2))


def none_within(where: str, attention: Float[np.ndarray, "network layer query key"], width: int) -> Evidence:
    """That the first token within each window draws less than `LEAST` above its even share."""
    beyond = _above_even(attention, width, True)
    return mean(where, beyond, draws=NETWORKS, test=Below(LEAST, least=0.0))


def absolute_first(
    where: str, attention: Float[np.ndarray, "network layer query key"], width: int
) -> Evidence:
    """By how much token 0 is further above its even share than the first token within each window is."""
    ahead = _above_even(attention, width, False) - _above_even(attention, width, True)
    return mean(where, ahead, draws=NETWORKS)


# --- quantities --------------------------------------------------------------------------------------------


@quantity
def _each(
    results: Results,
    part: Callable[[Any], Any],
    leaves_out: bool,
    effect: Callable[..., Evidence],
    places: Places,
) -> Iterator[Evidence]:
    for place in places:
        cells = {one: results[one] for one in place if isinstance(one, Setting)}
        piece = effect(*(part(cells[one]) if isinstance(one, Setting) else one for one in place))
        few = _left_out(cells.values()) if leaves_out else ""
        yield replace(piece, where=f"{piece.where}{few}")


def _left_out(outcomes: Iterable[Any]) -> str:
    """' (2 of 3 networks have learnt)', where some of a cell have not and are left out."""
    learnt = [outcome.gaps.learnt for outcome in outcomes]
    few = [f"{one.sum()} of {one.size}" for one in learnt if not one.all()]
    return f" ({', '.join(few)} networks have learnt, others are left out)" if few else ""


of_gaps = partial(_each, attrgetter("gaps"), True)
"""(effect, places): the evidence at each place, whose settings stand for their gaps: (where, settings, …)."""
of_training = partial(_each, attrgetter("trained"), False)
"""The same, of learning curves, which are those of all networks."""
of_sinks = partial(_each, attrgetter("sinks.kept"), True)
"""The same, of the sinks of networks that have learnt."""
of_attention = partial(_each, attrgetter("kept_attention"), True)
"""The same, of their mean attention."""


@quantity
def surest_of(results: Results, quantity: Quantity) -> list[Evidence]:
    """The surest evidence of a quantity, of which one piece at least is claimed."""
    return [surest(tuple(quantity(results)))]


@quantity
def mostly(results: Results, quantity: Quantity) -> list[Evidence]:
    """The share of a quantity's pieces that are above zero: what is tended to."""
    return [share("settings", [piece.tested(Above()) for piece in quantity(results)])]


@quantity
def most(results: Results, claims: Sequence[Claim], beside: Sequence[Setting] = ()) -> Iterator[Evidence]:
    """That of some claims more than half hold; one that is undecided may be either.

    Nothing is decided without the cells `beside`.
    """
    if not {*beside} <= {*results}:
        yield Evidence("findings", flaw="the cells of Figure 15 were not trained along with those of 13")
        return
    verdicts = [judge(claim, results).verdict for claim in claims]
    share = (verdicts.count("holds") + 0.5 * verdicts.count("undecided")) / len(verdicts)
    se = 0.5 * math.sqrt(verdicts.count("undecided")) / len(verdicts)
    where = f"share of {len(verdicts)} findings, less one half"
    yield Evidence(where, Estimate(share - 0.5, se), test=Above(least=0.0))


@quantity
def turning(results: Results, series: Mapping[str, Mapping[str, Setting]]) -> tuple[Evidence, ...]:
    """That the gap first–last both rises and falls along at least one series."""
    gaps = {
        title: {f"{name}{_left_out([results[cell]])}": results[cell].gaps for name, cell in cells.items()}
        for title, cells in series.items()
    }
    return turns(gaps)


@quantity
def learnt_less(results: Results, cells: Sequence[Setting]) -> Iterator[Evidence]:
    """By how much in-context accuracy is below that with the Gaussian mixture, after as many iterations.

    Every network counts. Where the mixture was not trained along with it, nothing is decided.
    """
    from posbias_papers.wu2025.matching import at_equal_iterations

    for setting in cells:
        mixture = replace(setting, inputs="gaussian_mixture")
        where = f"{setting.positional}, depth {setting.depth}"
        if mixture not in results:
            yield Evidence(where, flaw="the Gaussian mixture was not trained along with it")
            continue
        both = at_equal_iterations(results[mixture].trained, results[setting].trained, "in_context_accuracy")
        if not both.points.size:
            yield Evidence(where, flaw=both.remark)
            continue
        at = f"{where}, after {both.points[-1]:.0f} iterations,"
        yield difference(at, both.one[:, -1], both.other[:, -1], draws="networks")
