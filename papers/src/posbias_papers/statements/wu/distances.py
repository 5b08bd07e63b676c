"""Theorems 4.5 and 4.7, critical distances: where the count of walks times the envelope is highest.

L(x) = log of that product. Its peak is looked for over whole distances, with exact binomials, and over real
ones by the sign of its slope, and compared with the x* of the paper and of
`posbias.theory.closed_forms.critical_distances`.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator
from scipy.special import loggamma

from posbias.theory.closed_forms import critical_distances
from posbias_papers.statements.margins import least
from posbias_papers.statements.statement import OURS, Instance, Statement, both_readings, statement


def _draw_distance(rng: Generator, edge: bool) -> Instance:
    depth = int(rng.choice([1, 2, 3]) if edge else rng.integers(2, 200))
    if edge and depth > 1 and rng.random() < 0.5:  # x* a whole number: two distances tie
        return {"depth": depth, "rate": math.log1p((depth - 1) / int(rng.integers(1, 20)))}
    return {"depth": depth, "rate": float(rng.choice([5e-3, 1.0, 30.0]) if edge else rng.uniform(0.01, 3))}


def _slack_peak(depth: int, rate: float) -> float:
    """L, with Γ for factorials, at x* against whole and real distances around; and that L rises at all."""
    star, t = critical_distances.critical_distance(depth, rate), depth - 1

    def height(x: Any) -> Any:
        return loggamma(t + x + 1) - loggamma(x + 1) - loggamma(t + 1) - x * rate

    around = np.concatenate([np.arange(math.ceil(star) + 3.0), np.linspace(max(0.0, star - 1), star + 1, 41)])
    rises = (math.log1p(t) - rate) if t else -rate
    highest = height(around).max()
    return min(least(height(star) - highest, highest, height(star)), rises)


def _slack_stirling(depth: int, rate: float) -> float:
    """Minus the relative slope of Stirling's L at t/(e^m − 1); its slope before and after; how x* moves."""
    critical, t = critical_distances.critical_distance, depth - 1
    star = t / math.expm1(rate)

    def slope(x: float) -> float:
        return math.log1p(t / x) - rate

    moves = (
        critical(depth + 1, rate) - critical(depth, rate),
        critical(depth, rate) - critical(depth, 1.1 * rate),
    )
    return min(-abs(slope(star)) / rate, slope(0.9 * star), -slope(1.1 * star), *moves)


def _draw_distance_of_some(rng: Generator, edge: bool) -> Instance:
    drawn = _draw_distance(rng, edge)
    return dict(drawn) | {"depth": max(2, drawn["depth"])}


def _slack_monotone(depth: int, rate: float, corrected: bool) -> float:
    """How much L rises at first; corrected, whether it does where t > e^m − 1 and only there."""
    first = math.log(depth) - rate
    if not corrected:
        return least(first, first, 0.0)
    heights = _heights(depth, rate * np.arange(2 * critical_distances.modal_distance(depth, rate) + 6))
    rises = bool((np.diff(heights) > 0).any())
    return abs(first) if rises == (depth - 1 > math.expm1(rate)) else -abs(first)


def _heights(depth: int, falls: Float[np.ndarray, "distance"]) -> Any:
    """L at 0, 1, …, the binomials exact."""
    return np.array([math.log(math.comb(depth - 1 + x, x)) for x in range(len(falls))]) - falls


def _slack_modal(depth: int, rate: float) -> float:
    """⌊x*⌋ is highest among whole distances, the real peak is where it should be, x* moves rightly."""
    critical = critical_distances.critical_distance
    star, best = critical(depth, rate), critical_distances.modal_distance(depth, rate)
    heights = _heights(depth, rate * np.arange(2 * best + 6))
    top = float(heights[best] - heights.max())

    def slope(x: float) -> float:
        return float((1.0 / (x + np.arange(1, depth))).sum()) - rate

    left = slope(star - 1) if star > 1 else math.inf
    right = -slope(max(star - 0.5, 0.0)) if star > 0.5 else math.inf
    deeper, steeper = critical(depth + 1, rate), critical(depth, 1.1 * rate)
    return min(top, left, right, deeper - star, star - steeper)


def _draw_root(rng: Generator, edge: bool) -> Instance:
    depth = int(rng.choice([2, 3]) if edge else rng.integers(2, 100))
    angle = rng.choice([0.01, 0.5, 3.0]) if edge else 10 ** rng.uniform(-2, 0)
    return {"depth": depth, "angle": float(angle)}


def _slack_printed_root(depth: int, angle: float) -> float:
    """Minus the relative slope of L (Stirling) at the root of Appendix H's ln(1 + t/x) = 2θx."""
    t = depth - 1
    # that equation is the right one for √θ in place of θ
    x = critical_distances.rope_critical_distance(t + 1, math.sqrt(angle))
    rise, fall = math.log1p(t / x), 2 * angle**2 * x
    return least(-abs(rise - fall) / max(rise, fall), rise, fall)


def _slack_root(depth: int, angle: float) -> float:
    """The right root; the whole distance that is highest; x* grows with depth and shrinks with the angle."""
    critical = critical_distances.rope_critical_distance
    x, best = critical(depth, angle), critical_distances.rope_modal_distance(depth, angle)
    rise = math.log1p((depth - 1) / x)
    heights = _heights(depth, (angle * np.arange(best + 4 + best // 4)) ** 2)
    by_depth, by_angle = critical_distances.critical_distance_slopes(depth, angle)
    return min(
        -abs(1 - 2 * angle**2 * x / rise),
        float(heights[best] - heights.max()),
        best - (x - 1),
        x + 0.5 - best,
        critical(depth + 1, angle) / x - 1,
        1 - critical(depth, 1.01 * angle) / x,
        by_depth,
        -by_angle,
    )


DECAY_DISTANCE: tuple[Statement, ...] = (
    statement(
        "wu-4.5-stirling",
        "Theorem 4.5, critical point",
        "under Stirling's approximation L(x) = log(binom(t+x, x)e^(−xm)) is not monotone for t ≥ 1: it rises to "
        "t/(e^m − 1) and falls from there; that point falls with m and grows with t",
        _draw_distance_of_some,
        _slack_stirling,
        note="Holds for L without the ½·log terms of Stirling's formula.",
    ),
    statement(
        "wu-4.5-monotone",
        "Theorem 4.5, L",
        "L(x) = log(binom(t+x, x)e^(−xm)) is not a monotone function of the distance x",
        _draw_distance_of_some,
        both_readings(_slack_monotone),
        corrected="over whole distances L rises at first where t > e^m − 1, and falls throughout elsewhere",
        witness={"depth": 2, "rate": 1.0},
        note="A flat sentence, before Stirling's approximation is made: with one layer more than the first and "
        "m = 1, L(x) = log(1 + x) − x falls from the start. It is so where layers are many against the decay.",
        about={"strength": "observation", "scope": "every depth and decay"},
    ),
    statement(
        "wu-4.5-distance",
        "Theorem 4.5, critical distance",
        "L(x) = log(binom(t+x, x)e^(−xm)), Γ for factorials, is highest at t/(e^m − 1)",
        _draw_distance,
        (_slack_peak, _slack_modal),
        corrected="highest at ⌊x*⌋ over whole x, in (x* − 1, x* − ½] or at 0 over real x; x* grows with t, "
        "falls with m",
        witness={"depth": 2, "rate": 1.0},
        about=OURS,
        note="The text says this under Stirling's approximation only, where it holds: x* = t/(e^m − 1) is exact "
        "for L without the ½·log terms. L itself peaks ½ to 1 lower, and falls from the start where 1 + ½ + … + "
        "1/t ≤ m (over whole distances where t < e^m − 1). Over whole distances the peak is exactly ⌊x*⌋, and "
        "without content, far from the first token, that is the peak of P too (a negative binomial "
        "distribution).",
    ),
)
"""The critical distance of Theorem 4.5."""

ROPE_DISTANCE: tuple[Statement, ...] = (
    statement(
        "wu-4.7-distance",
        "Theorem 4.7, critical distance (Appendix H)",
        "by Stirling's approximation the critical point of L solves log((t+x)/x) = 2θx, as Appendix H prints it",
        _draw_root,
        (_slack_printed_root, _slack_root),
        corrected="by Stirling's approximation it solves log((t+x)/x) = 2θ²x, grows with t, falls with θ; "
        "the highest whole distance lies in (x* − 1, x* + ½)",
        witness={"depth": 5, "angle": 0.1},
        asserts="the critical point x* of L grows with the depth t and falls with the base angle θ",
        note="The derivative of θ²x² is 2θ²x. With it ∂x/∂t = 1/(2θ²(x+t) + t/x) and ∂x/∂θ = −4θx/(2θ² + "
        "t/(x(x+t))): both signs survive. But x* is the peak of L, not of P: where θ√t is small it grows "
        "like √t, while the peak of a RoPE rollout moves by the mean attended distance in every layer, like "
        "t.",
    ),
)
"""The critical distance of Theorem 4.7, Appendix H."""
