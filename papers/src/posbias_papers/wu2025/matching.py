"""Compare two ensembles when they can do equally much, not only when they have trained equally long.

Gaps drift with the stage of training: of two networks after the same iterations, the one that learns faster is
further along. Each member's learning curve is therefore read where its in-context accuracy first reaches a
level, linearly between the two evaluations around that moment, and gaps are compared level by level. Levels that
not every member of both reaches from below are outside the common range; where there is none, the comparison
holds no points and says so.

    >>> matched = at_equal_accuracy(shallow, deep, "first-last")        # doctest: +SKIP
    >>> matched.difference(), matched.remark                            # doctest: +SKIP
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError
from posbias.profiles.estimate import Estimate
from posbias.reports.answers.numbers import Value
from posbias.training.averages import estimate_members
from posbias.training.loop import Trained
from posbias.training.trials import running

POINTS = 11
"""Levels of accuracy compared, when none are given."""


@dataclass(frozen=True, eq=False)
class Matched:
    """One gap of two ensembles at the same `points` of accuracy, loss or iteration (`by`).

    `one` and `other` hold each member's gap, `ranges` where either ensemble could be read, in the unit of
    `points`; `remark` says what is missing, if anything is.
    """

    by: str
    pair: str
    points: Float[np.ndarray, "point"]
    one: Float[np.ndarray, "member point"]
    other: Float[np.ndarray, "partner point"]
    ranges: tuple[tuple[float, float], tuple[float, float]]
    remark: str

    @property
    def differences(self) -> list[Estimate]:
        """Gap of `one` minus gap of `other` at every point, errors over the members of both (independent)."""
        pairs = zip(self.one.T, self.other.T, strict=True)
        return [estimate_members(one) - estimate_members(other) for one, other in pairs]

    def difference(self) -> Estimate:
        """The same averaged over points, each member's mean being one sample; NaN without points."""
        if not self.points.size:
            return Estimate(math.nan, math.nan, 1)
        return estimate_members(self.one.mean(axis=1)) - estimate_members(self.other.mean(axis=1))

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        means = {
            name: [estimate_members(at).value for at in getattr(self, name).T] for name in ("one", "other")
        }
        differences = {
            "difference": [Value.of(one).model_dump() for one in self.differences],
            "mean_difference": Value.of(self.difference()).model_dump(),
        }
        return vars(self) | means | differences


def at_equal_accuracy(
    one: Trained, other: Trained, pair: str = "first-last", levels: Sequence[float] | None = None
) -> Matched:
    """The gap `pair` of two ensembles at equal in-context accuracy.

    `levels` are accuracies; left out, eleven across the common range. Those outside it are dropped, which the
    remark says. Raises `InvalidValueError` for a pair that the curves do not hold, or levels outside 0 … 1.
    """
    if levels is not None and not all(0.0 <= level <= 1.0 for level in levels):
        raise InvalidValueError(f"levels: {list(levels)} given, accuracies from 0 to 1 needed")
    return _at_equal("accuracy", one, other, pair, levels)


def at_equal_loss(
    one: Trained, other: Trained, pair: str = "first-last", levels: Sequence[float] | None = None
) -> Matched:
    """The gap `pair` of two ensembles where the loss of training (nats) first falls to the same levels.

    Otherwise as `at_equal_accuracy`.
    """
    return _at_equal("loss", one, other, pair, levels)


def _at_equal(
    by: Literal["accuracy", "loss"], one: Trained, other: Trained, pair: str, levels: Sequence[float] | None
) -> Matched:
    """Levels of a curve are met from below, so the loss is looked at upside down."""
    name, sign = ("in_context_accuracy", 1.0) if by == "accuracy" else ("loss", -1.0)
    curves = [(sign * _curve(t, name), _curve(t, pair)) for t in (one, other)]
    met = [_range(curve[:, 0], curve.max(axis=1, initial=-math.inf)) for curve, _ in curves]
    low, high = max(met[0][0], met[1][0]), min(met[0][1], met[1][1])
    wanted = np.linspace(low, high, POINTS) if levels is None else sign * np.asarray(levels, dtype=np.float64)
    points = wanted[(low <= wanted) & (wanted <= high)] if low < high else wanted[:0]
    first, second = (_first_reached(*both, points) for both in curves)
    ranges = tuple((min(sign * a, sign * b), max(sign * a, sign * b)) for a, b in met)
    remark = _remark(ranges, wanted, points)
    return Matched(by, pair, sign * points, first, second, (ranges[0], ranges[1]), remark)


def at_equal_iterations(one: Trained, other: Trained, pair: str = "first-last") -> Matched:
    """The gap `pair` of two ensembles after equally many iterations: at those of `one` that `other` covers.

    Between the evaluations of `other` its gaps are interpolated. Raises as `at_equal_accuracy`.
    """
    steps = [np.asarray(t.curves["iteration"], dtype=np.float64) for t in (one, other)]
    ranges = tuple(_range(s[:1], s[-1:]) for s in steps)
    points = steps[0][(ranges[1][0] <= steps[0]) & (steps[0] <= ranges[1][1])]
    first, second = (
        np.array([np.interp(points, s, row) for row in _curve(t, pair)]).reshape(-1, len(points))
        for t, s in zip((one, other), steps, strict=True)
    )
    remark = _remark(ranges, steps[0], points)
    return Matched("iteration", pair, points, first, second, (ranges[0], ranges[1]), remark)


def _curve(trained: Trained, name: str) -> Float[np.ndarray, "member step"]:
    """A learning curve of the members that trained to the end."""
    if name not in trained.curves:
        raise InvalidValueError(
            f"pair: {shortened(name)} given, a curve of {', '.join(trained.curves)} needed"
        )
    return np.asarray(trained.curves[name], dtype=np.float64)[running(trained)]


def _range(begins: np.ndarray, ends: np.ndarray) -> tuple[float, float]:
    """From where the last member begins to where the first one ends; NaN without members."""
    return (float(begins.max()), float(ends.min())) if begins.size else (math.nan, math.nan)


def _first_reached(
    rising: Float[np.ndarray, "member step"],
    gap: Float[np.ndarray, "member step"],
    levels: Float[np.ndarray, "point"],
) -> Float[np.ndarray, "member point"]:
    """Each member's gap at the moment its curve first reaches each level (all within its range)."""
    read = np.empty((len(rising), len(levels)))
    for m, (curve, values) in enumerate(zip(rising, gap, strict=True)):
        for p, level in enumerate(levels):
            after = int(np.argmax(curve >= level))
            before = max(after - 1, 0)
            rise = curve[after] - curve[before]
            share = (level - curve[before]) / rise if rise > 0 else 1.0
            read[m, p] = values[before] + share * (values[after] - values[before])
    return read


def _remark(ranges: Sequence[tuple[float, float]], wanted: np.ndarray, points: np.ndarray) -> str:
    """What could not be compared, in words; empty if all could."""
    told = " and ".join(f"{low:.3g} … {high:.3g}" for low, high in ranges)
    if not points.size:
        return f"nothing to compare: the ensembles cover {told}"
    dropped = len(wanted) - len(points)
    return f"{dropped} of {len(wanted)} points are outside what both cover ({told})" if dropped else ""
