"""What no contrast says of trained networks: evidence from the rows of a table, by functions that rows name.

Gaps drift with the stage of training: of two networks after the same iterations, the one that learns faster is
further along. Ensembles are therefore compared when they can do equally much too: each network's curve is read
where its in-context accuracy (or loss) first reaches a level, linearly between the evaluations around that
moment.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from posbias.profiles.claims import LEAST, Above, Claim, Evidence, judged, mean
from posbias.profiles.estimate import Estimate
from posbias_papers.contrasts import difference
from posbias_papers.wu2025.outcomes import LEARNT, Outcome
from posbias_papers.wu2025.settings import RELATIVE

if TYPE_CHECKING:
    import pandas as pd

LEARNT_LOSS = 2.4
"""Loss of training, in nats, by which networks of depth 2 have reached an in-context accuracy of `LEARNT`."""
NETWORKS = "networks that learnt to retrieve"


def _settings(rows: "pd.DataFrame") -> "Iterator[tuple[dict[str, Any], pd.DataFrame]]":
    """Every setting of some rows with its networks."""
    levels = [name for name in rows.index.names if name != "network"]
    for place, own in rows.groupby(level=levels, sort=False):
        yield dict(zip(levels, place if isinstance(place, tuple) else (place,), strict=True)), own


# --- the middle --------------------------------------------------------------------------------------------


def spared(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """That a setting is not lost in the middle: that the first or the last item is not ahead of the middle one.

    It holds if one of the two is surely ahead by less than `LEAST` (Bonferroni over both), and fails if both are
    surely ahead. The effect is what the surer one lacks of `LEAST`.
    """
    for setting, own in _settings(rows):
        where = f"{setting['mask']}, {setting['positional']}, depth {setting['depth']}"
        where += "" if setting["residual"] else ", no residual"
        leads = own["first_middle"].dropna().to_numpy(), -own["middle_last"].dropna().to_numpy()
        ends = [mean("", lead, draws=NETWORKS, test=Above()) for lead in leads]
        if any(end.flaw for end in ends):
            yield Evidence(f"{where}, not lost in the middle", flaw=ends[0].flaw or ends[1].flaw)
            continue
        surer = min(ends, key=lambda end: end.against)
        lacks = f"{where}, {LEAST} − ({'first' if surer is ends[0] else 'last'} − middle)"
        opposite = max(end.p for end in ends)
        lacking = Estimate(LEAST) - surer.estimate
        yield Evidence(lacks, lacking, test=Above(), picked=2, opposite=opposite)


# --- compared when they can do as much, or after as many iterations ----------------------------------------


class Matched(NamedTuple):
    """A curve of two ensembles at the same points of accuracy, loss or iteration; none where they have none."""

    points: Float[np.ndarray, "point"]
    one: Float[np.ndarray, "member point"]
    other: Float[np.ndarray, "partner point"]


def at_equal(
    by: str, one: Outcome, other: Outcome, levels: Sequence[float], name: str = "first-last"
) -> Matched:
    """A curve of two ensembles where another (`in_context_accuracy`, `loss` or `iteration`) first meets levels.

    Levels that not every network of both meets are left out.
    """
    # levels are met from below, so the loss is looked at upside down
    sign = -1.0 if by == "loss" else 1.0
    points = sign * np.asarray(levels, dtype=np.float64)
    rising = [sign * _curve(outcome, by) for outcome in (one, other)]
    for curves in rising:
        met = (curves[:, :1] <= points) & (points <= curves.max(axis=1, keepdims=True))
        points = points[met.all(axis=0) & bool(len(curves))]
    sides = (_curve(outcome, name) for outcome in (one, other))
    return Matched(
        sign * points, *(_first_reached(*both, points) for both in zip(rising, sides, strict=True))
    )


def _curve(outcome: Outcome, name: str) -> Float[np.ndarray, "member step"]:
    """A learning curve of the networks that trained to the end; their iterations are the same."""
    curves = np.broadcast_to(outcome.curves[name], (len(outcome.loss), len(outcome.curves["iteration"])))
    return curves[outcome.finite]


def _first_reached(
    rising: Float[np.ndarray, "member step"],
    curves: Float[np.ndarray, "member step"],
    levels: Float[np.ndarray, "point"],
) -> Float[np.ndarray, "member point"]:
    """Each network's curve at the moment its rising one first reaches each level (all within its range)."""
    after = (rising[:, :, None] >= levels).argmax(axis=1)
    before = np.maximum(after - 1, 0)
    low, high = (np.take_along_axis(rising, place, axis=1) for place in (before, after))
    first, last = (np.take_along_axis(curves, place, axis=1) for place in (before, after))
    with np.errstate(invalid="ignore"):
        share = np.where(high > low, (levels - low) / (high - low), 1.0)
    return first + share * (last - first)


def _ends(rows: "pd.DataFrame") -> Iterator[tuple[str, Outcome, Outcome]]:
    """By encoding the networks of the greatest depth and of the least."""
    cells = rows.reset_index().drop_duplicates(["positional", "depth"]).to_dict("records")
    outcomes = {(row["positional"], row["depth"]): row["outcome"] for row in cells}
    least, most = (pick(depth for _, depth in outcomes) for pick in (min, max))
    for word, title in RELATIVE.items():
        if {(word, least), (word, most)} <= outcomes.keys():
            yield title, outcomes[word, most], outcomes[word, least]


def equally_accurate(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """That the gap first–last is larger in the deepest networks, averaged over the accuracies that both reach."""
    levels = np.arange(LEARNT, 1.0, 0.02).tolist()
    return _matched(rows, "in_context_accuracy", levels, f"no common accuracy from {LEARNT} on")


def equally_low(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """The same at equal loss of training."""
    levels = np.arange(LEARNT_LOSS, 0.0, -0.1).tolist()
    return _matched(rows, "loss", levels, f"no common loss from {LEARNT_LOSS} down")


def _matched(rows: "pd.DataFrame", by: str, levels: Sequence[float], flaw: str) -> Iterator[Evidence]:
    for where, deep, shallow in _ends(rows):
        both = at_equal(by, deep, shallow, levels)
        if not both.points.size:
            yield Evidence(where, flaw=flaw)
            continue
        word, digits = ("loss", ".1f") if by == "loss" else ("accuracy", ".2f")
        at = f"{where} at {word} {both.points[0]:{digits}} to {both.points[-1]:{digits}}"
        yield difference(at, both.one.mean(axis=1), both.other.mean(axis=1), draws=NETWORKS)


def harder_to_train(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """By how much the loss of training is higher, and in-context accuracy lower, in the deepest networks."""
    for curve, sign in (("loss", 1), ("in_context_accuracy", -1)):
        for where, deep, shallow in _ends(rows):
            yield _after_as_many(f"{where} {curve}", deep, shallow, curve, sign)


def learnt_less(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """By how much in-context accuracy is below that with the Gaussian mixture, after as many iterations.

    Where the mixture was not trained along with it, nothing is decided.
    """
    for setting, own in _settings(rows):
        where = f"{setting['positional']}, depth {setting['depth']}"
        mixture, outcome = own["mixture"].iloc[0], own["outcome"].iloc[0]
        if mixture is None:
            yield Evidence(where, flaw="the Gaussian mixture was not trained along with it")
            continue
        yield _after_as_many(where, mixture, outcome, "in_context_accuracy", 1)


def _after_as_many(where: str, one: Outcome, other: Outcome, curve: str, sign: int) -> Evidence:
    both = at_equal("iteration", one, other, one.curves["iteration"].tolist(), curve)
    if not both.points.size:
        return Evidence(where, flaw="no iteration at which both were looked at")
    at = f"{where} after {both.points[-1]:,.0f} iterations"
    return difference(at, sign * both.one[:, -1], sign * both.other[:, -1], draws="networks")


# --- other claims ------------------------------------------------------------------------------------------


def most_of(findings: Callable[[], Sequence[Claim]]) -> "Callable[[pd.DataFrame], Iterable[Evidence]]":
    """That most findings hold of some rows too: their share less one half, where an open one counts half."""

    def most(rows: "pd.DataFrame") -> Iterator[Evidence]:
        verdicts = []
        for claim in findings():
            evidence = tuple(claim.quantity(rows)) if claim.quantity else ()
            if not evidence:
                yield Evidence("findings", flaw=f"the networks of {claim.id} were not trained along with it")
                return
            verdicts.append(judged(claim, evidence).verdict)
        count, undecided = len(verdicts), verdicts.count("undecided")
        share = (verdicts.count("holds") + 0.5 * undecided) / count
        se = 0.5 * math.sqrt(undecided) / count
        yield Evidence(
            f"share of {count} findings, less one half", Estimate(share - 0.5, se), test=Above(least=0.0)
        )

    return most


def not_measured(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """That no model at hand is of the kind that a claim speaks of."""
    yield Evidence("language models", flaw="not measured: pretrained models of this kind needed")
