"""What no contrast says of trained networks: evidence from the rows of a table, by functions that rows name."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.profiles.claims import Claim, judged
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import LEAST, Above, Evidence, difference, mean
from posbias_papers.wu2025.outcomes import LEARNT
from posbias_papers.wu2025.settings import RELATIVE

if TYPE_CHECKING:
    import pandas as pd

    from posbias.training.loop import Trained
    from posbias_papers.wu2025.matching import Matched

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


# --- compared when they can do as much ---------------------------------------------------------------------


def _ends(rows: "pd.DataFrame") -> "Iterator[tuple[str, Trained, Trained]]":
    """By encoding the networks of the greatest depth and of the least."""
    depths = rows.index.get_level_values("depth").to_numpy()
    for word, title in RELATIVE.items():
        of_word = (rows.index.get_level_values("positional") == word).astype(bool)
        sides = [
            rows["outcome"].to_numpy()[of_word & (depths == depth)] for depth in (depths.max(), depths.min())
        ]
        if all(side.size for side in sides):
            deep, shallow = (side[0].trained for side in sides)
            yield title, deep, shallow


def equally_accurate(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """That the gap first–last is larger in the deepest networks, averaged over the accuracies that both reach."""
    from posbias_papers.wu2025.matching import at_equal_accuracy

    levels = np.arange(LEARNT, 1.0, 0.02).tolist()
    for where, deep, shallow in _ends(rows):
        both = at_equal_accuracy(deep, shallow, "first-last", levels)
        yield _matched(where, both, f"no common accuracy from {LEARNT} on", ".2f")


def equally_low(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """The same at equal loss of training."""
    from posbias_papers.wu2025.matching import at_equal_loss

    levels = np.arange(LEARNT_LOSS, 0.0, -0.1).tolist()
    for where, deep, shallow in _ends(rows):
        both = at_equal_loss(deep, shallow, "first-last", levels)
        yield _matched(where, both, f"no common loss from {LEARNT_LOSS} down", ".1f")


def _matched(where: str, both: "Matched", flaw: str, digits: str) -> Evidence:
    if not both.points.size:
        return Evidence(where, flaw=flaw)
    at = f"{where} at {both.by} {both.points[0]:{digits}} to {both.points[-1]:{digits}}"
    return difference(at, both.one.mean(axis=1), both.other.mean(axis=1), draws=NETWORKS)


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
        yield _after_as_many(where, mixture.trained, outcome.trained, "in_context_accuracy", 1)


def _after_as_many(where: str, one: "Trained", other: "Trained", curve: str, sign: int) -> Evidence:
    from posbias_papers.wu2025.matching import at_equal_iterations

    both = at_equal_iterations(one, other, curve)
    if not both.points.size:
        return Evidence(where, flaw=both.remark)
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
