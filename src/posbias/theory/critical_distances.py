"""Critical distances: where depth and decay balance, against depth.

A walk of depth layers over a distance d can be stepped in C(t+d, d) ways, t = depth − 1: the count grows
with depth. The envelope of its weight falls with distance. Their product is
highest at a distance x*, t/(e^m − 1) for a decay mask (Wu et al. 2025, Theorem 4.5) and the root of ln(1 +
t/x) = 2cθ²x for RoPE (Theorem 4.7, Appendix H). That is the peak of the rollout itself for the former only:
a RoPE rollout drifts by the mean attended distance per layer (`drift_distance`).

`depth` is the number of layers, the paper's t + 1; distances count from 0, the token itself.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import brentq

from posbias.core.errors import non_negative, positive, whole, wrong
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.mixing import AttentionOnly
from posbias.theory.positional import DecayBias, RoPE
from posbias.theory.rollout.dispatch import trajectory


def critical_distance(depth: float, rate: float) -> float:
    """x* = t/(e^m − 1), where C(t+x, x)e^(−mx) is highest under Stirling's approximation (Theorem 4.5).

    t = `depth` − 1, m = `rate`; ∞ at m = 0. Without the approximation the highest point lies in
    (x* − 1, x* − ½], or at 0 where the harmonic number H_t is at most m. Raises `InvalidValueError` for
    depth < 1 or a rate that is negative or not finite.
    """
    before = _layers_before(depth)
    if non_negative("rate", rate) == 0.0:
        return math.inf if before else 0.0
    return before * math.exp(-rate) / -math.expm1(-rate)


def modal_distance(depth: int, rate: float) -> int:
    """⌊x*⌋: the whole distance at which C(t+x, x)e^(−mx) is highest (at x* − 1 too, where x* is whole).

    Exact: neighbouring values have the ratio e^−m(t + x)/x. Far from the first token the rollout of a decay
    mask without content is this product times (1 − e^−m)^(t+1), a negative binomial distribution. Raises
    `InvalidValueError` as `critical_distance`, and for a rate of 0, with which no distance is the highest.
    """
    found = critical_distance(depth, rate)
    if not math.isfinite(found):
        raise wrong("rate", "a number above 0", got=str(rate))
    return math.floor(found)


def rope_critical_distance(depth: float, angle: float, rate: float = 1.0) -> float:
    """The root x* of ln(1 + t/x) = 2cθ²x, where Stirling's approximation of C(t+x, x)e^(−cθ²x²) is highest.

    t = `depth` − 1, θ = `angle` in radians per token, c = `rate` (the paper's L has c = 1, and its Appendix H
    prints 2θ for 2θ²). Relative accuracy 1e-14. Without the approximation the highest point lies in
    (x* − 1, x*), over whole distances in (x* − 1, x* + ½). Raises `InvalidValueError` for depth < 1 or an
    angle or rate that is not above 0. Source: Theorem 4.7, Appendix H.
    """
    before = _layers_before(depth)
    strength = positive("rate·angle²", 2.0 * positive("rate", rate) * positive("angle", angle) ** 2)
    if before == 0.0:
        return 0.0
    # with x = t·e^v the root depends on 2cθ²t alone, and lies between those of two simpler equations
    scaled = strength * before
    low, high = 2.0 / (scaled + math.sqrt(scaled * (scaled + 4.0))), 1.0 / math.sqrt(scaled)

    def excess(v: float) -> float:
        return math.log(math.log1p(math.exp(-v)) / scaled) - v

    root = brentq(excess, math.log(low) - 1e-9, math.log(high) + 1e-9, xtol=1e-15)
    return before * math.exp(root)  # type: ignore[arg-type]


def rope_modal_distance(depth: int, angle: float, rate: float = 1.0) -> int:
    """The whole distance at which C(t+x, x)e^(−cθ²x²) is highest: exact but where two neighbours tie.

    The last x with ln(1 + t/x) ≥ (2x − 1)cθ², which the ratio of neighbours gives; 0 if there is none.
    Raises `InvalidValueError` as `rope_critical_distance`.
    """
    before, near = _layers_before(depth), rope_critical_distance(depth, angle, rate)
    found = math.floor(near)
    following = found + 1
    if before and math.log1p(before / following) >= (2 * following - 1) * rate * angle**2:
        return following
    return found


def drift_distance(logits: Float[np.ndarray, "distance"], depth: int) -> float:
    """Where the rollout of one logit per distance peaks far from the first token, to second order.

    Tκ₁ − κ₃/2κ₂: there the rollout of T = `depth` layers is the T-fold convolution of softmax(`logits`)
    over distances 0, 1, …; κ are that step's cumulants (Edgeworth). For a decay mask x* − ½ exactly; for
    RoPE it grows like T, not like √T as `rope_critical_distance`. Not in the paper. Raises
    `InvalidValueError` for depth < 1 or fewer than two logits.
    """
    logits = np.asarray(logits, dtype=np.float64)
    if logits.ndim != 1 or logits.size < 2 or not np.isfinite(logits).all():
        raise wrong("logits", "two finite numbers or more", got=f"shape {logits.shape}")
    step, share = np.arange(logits.size), np.exp(logits - logits.max())
    share = share / share.sum()
    mean = float(share @ step)
    second, third = (float(share @ (step - mean) ** order) for order in (2, 3))
    return whole("depth", depth, 1) * mean - third / (2 * second)


@dataclass(frozen=True, eq=False)
class DistanceCurve:
    """Critical distances against depth: x* `predicted`, the whole distance `modal` where walks × envelope
    peak, where the `rollout` itself peaks (its first token left out), where `drift_distance` puts that."""

    name: str
    depth: Int[np.ndarray, "step"]
    predicted: Float[np.ndarray, "step"]
    modal: Int[np.ndarray, "step"]
    rollout: Int[np.ndarray, "step"]
    drift: Float[np.ndarray, "step"]


def distance_curve(positional: DecayBias | RoPE, depths: Sequence[int], tokens: int) -> DistanceCurve:
    """Critical distances of an attention-only causal network without content, for the last of its tokens.

    For one pair of RoPE with amplitude a, a·cos(dθ) ≈ a − ½aθ²d² makes c = a/2. Raises `InvalidValueError`
    for another encoding, several pairs or a phase, and for no depths.
    """
    if not len(depths):
        raise wrong("depths", "one depth or more", got="none")
    if isinstance(positional, DecayBias):
        name, given = f"decay, m = {positional.rate:g}", (positional.rate,)
        distances = critical_distance, modal_distance
    elif (
        isinstance(positional, RoPE)
        and len(positional.amplitudes) == len(positional.angles) == 1
        and not np.any(positional.phases)
    ):
        angle, amplitude = float(positional.angles[0]), positional.gain * positional.amplitudes[0][0]
        name, given = f"RoPE, θ = {angle:g}, a = {amplitude:g}", (angle, amplitude / 2)
        distances = rope_critical_distance, rope_modal_distance
    else:
        raise wrong("positional", "DecayBias or RoPE with one pair and phase 0", got="another encoding")
    predicted, modal = (np.array([of(depth, *given) for depth in depths]) for of in distances)
    layer = Layer(positional=positional)
    profiles = trajectory(Architecture(max(depths), (layer,), AttentionOnly()), tokens)
    peaks = np.array([int(profiles[depth].mass[:0:-1].argmax()) for depth in depths])
    logits = layer.bias(np.arange(tokens))[0]
    drift = np.array([drift_distance(logits, depth) for depth in depths])
    return DistanceCurve(name, np.array(depths), predicted, modal, peaks, drift)


def _layers_before(depth: float) -> float:
    if not 1 <= depth < math.inf:
        raise wrong("depth", "a finite number ≥ 1", depth)
    return depth - 1.0
