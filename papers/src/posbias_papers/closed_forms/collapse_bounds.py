"""Wu et al. 2025 as functions: how fast attention alone collapses, and what envelopes decay sets.

Without residual connections the rollout after t + 1 layers is P⁽ᵗ⁾ = A⁽ᵗ⁾⋯A⁽⁰⁾, a sum over walks through the
mask. Two facts carry everything here. Where every admitted weight is at least ε (`log_attention_floor`), a
query after position j sends at least jε before it in each layer: later positions lose their mass
geometrically. And where a layer's weights lie between envelopes C·e^(−rate·dᵖ) in the distance d
(`Envelope`), a walk of T steps over a distance d does too, and there are C(t+d, d) walks. Where the two
balance is in `posbias.theory.critical_distances`.

Stated are the forms that survive checking (`wu` tries the printed ones). Bounds are natural
logarithms, for they under- and overflow. Positions count from 0, so the paper's j − 1 is j here; `depth` is
the number of layers, the paper's t + 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from posbias.core import machine
from posbias.core.errors import InvalidValueError, non_negative, positive, whole
from posbias.theory import critical_distances
from posbias.theory.architecture import Architecture
from posbias.theory.masks import Causal
from posbias.theory.mixing import Layers
from posbias.theory.rollout.dispatch import trajectory
from posbias.theory.rollout.kernel import layer_kernel
from posbias_papers.closed_forms.residual_bounds import smallest_admitted

Distances = Int[np.ndarray, "*distance"]
Logarithms = Float[np.ndarray, "*distance"]
Pairs = Float[np.ndarray, "pair"]
BOUNDARY = 1e-9
"""How far an angle may be above π by rounding alone."""


# --- Lemma A.1, Theorems 4.1 to 4.3: collapse --------------------------------------------------------------


def logit_bound(hidden_norm: float, weight_bound: float, value_bound: float) -> float:
    """The largest |logit| of any layer: (‖X‖·C_V·C)², Lemma A.1, Eq. (6).

    ‖X‖ (`hidden_norm`) is the largest norm of an input row, C (`weight_bound`) bounds the operator norms of
    all W_Q and W_K (A1), C_V (`value_bound`) those of 1, W_V⁽⁰⁾, W_V⁽⁰⁾W_V⁽¹⁾, … (A2). Logits are in softmax
    units (d_QK = 1). Raises `InvalidValueError` for a number that is negative or not finite.
    """
    for name, given in (
        ("hidden_norm", hidden_norm), ("weight_bound", weight_bound), ("value_bound", value_bound)
    ):  # fmt: skip
        non_negative(name, given)
    return (hidden_norm * value_bound * weight_bound) ** 2


def log_attention_floor(keys: int, bound: float, positional_range: float = 0.0) -> float:
    """ln ε of Lemma A.1: ε = 1/(1 + (keys − 1)e^r), the least weight among `keys` with logits in ±`bound`.

    r = 2·bound + `positional_range`, the largest minus the smallest positional logit of a row (0 for RoPE,
    which turns queries and keys but keeps their norms). Attained where one key is as low and all others as
    high as can be. Raises `InvalidValueError` for keys < 1 or a number that is negative or not finite.
    """
    whole("keys", keys, 1)
    spread = 2.0 * non_negative("bound", bound) + non_negative("positional_range", positional_range)
    return -float(np.logaddexp(0.0, math.log(keys - 1) + spread)) if keys > 1 else 0.0


def log_collapse_bound(floors: Layers, position: int, mixing: Layers | None = None) -> Layers:
    """ln Π(1 − jε_tλ_t) after each layer: the most that positions ≥ j hold together, for any query.

    For the causal mask, and the prefix mask where j ≥ K; `floors` are the layers' ε, `mixing` their λ
    (default: attention only, λ = 1). Theorems 4.1 and 4.3, whose C(1 − (j − 1)ε)^t with C = 1 − ε lies
    above it. With j = 1 it says how much the first token has not yet drawn. Raises `InvalidValueError` for
    j < 0, ε or λ outside [0, 1], or jε > 1, which no kernel has for a position of the text.
    """
    floors = _shares("floors", floors)
    weights = np.ones_like(floors) if mixing is None else _shares("mixing", mixing)
    if weights.shape != floors.shape:
        raise InvalidValueError(f"mixing: {weights.size} λ given, {floors.size} (one per layer) needed")
    lost = whole("position", position, 0) * floors
    if (lost > 1.0 + BOUNDARY).any():
        raise InvalidValueError(
            f"position: {position} given with a floor of {floors.max():.6g}, position·floor ≤ 1 needed"
        )
    with np.errstate(divide="ignore"):
        return np.cumsum(np.log1p(-np.minimum(lost, 1.0) * weights))


def hops(tokens: int, width: int) -> int:
    """⌈(N − 1)/(w − 1)⌉: layers after which, under a window of `width` w, every token sees all before it.

    Theorem 4.2. Raises `InvalidValueError` for tokens < 1 or a width < 2, under which tokens see only
    themselves.
    """
    return -(-(whole("tokens", tokens, 1) - 1) // (whole("width", width, 2) - 1))


def log_window_bound(floor: float, position: int, tokens: int, width: int, depth: int) -> Layers:
    """⌊layers/h⌋·ln(1 − jεʰ) after 1 … `depth` layers: the most that positions ≥ j ≥ 1 hold together.

    For a window of `width`; h = `hops` layers together weigh every earlier token with at least εʰ (Lemma
    B.1). Theorem 4.2 without its factor 1/2 in the exponent, without rounding N − 1 to a multiple of w − 1,
    and for the whole suffix. Raises `InvalidValueError` for a position outside 1 … tokens − 1, and as
    `hops`.
    """
    whole("tokens", tokens, 2)
    if not 1 <= position < tokens:
        raise InvalidValueError(f"position: {position} given, one from 1 to {tokens - 1} needed")
    together = hops(tokens, width)
    blocks = np.arange(1, machine.length("depth", depth, each=24) + 1) // together
    share = position * float(_shares("floor", [floor])[0]) ** together
    if not share < 1.0:
        raise InvalidValueError(f"floor: {floor} given, less than one over the keys a query sees needed")
    return blocks * math.log1p(-share)


def prefix_share(kernel: Float[np.ndarray, "query key"], length: int) -> Float[np.ndarray, "prefix"]:
    """κ of Theorem 4.3: the least that any query holds of each of the first `length` tokens, at every depth.

    The least weight of the column in the bottom layer: P⁽ᵗ⁾ = (A⁽ᵗ⁾⋯A⁽¹⁾)A⁽⁰⁾ only averages its rows. Above 0
    under a prefix mask of that length, where all tokens see the whole prefix. Raises `InvalidValueError` for
    a length outside 1 … tokens.
    """
    kernel = np.asarray(kernel, dtype=np.float64)
    if not 1 <= length <= len(kernel):
        raise InvalidValueError(f"length: {length} given, one from 1 to {len(kernel)} needed")
    return kernel[:, :length].min(axis=0)


# --- Lemmas 4.4, 4.6, I.1 and Theorems 4.5, 4.7, I.2: envelopes --------------------------------------------


@dataclass(frozen=True)
class Envelope:
    """Two-sided bound on the weights of causal attention by distance d = i − j:

    log_lower − lower_rate·dᵖ ≤ ln A_ij ≤ log_upper − upper_rate·dᵖ for all j ≤ i, with p = `power` ≥ 1.
    """

    log_lower: float
    log_upper: float
    lower_rate: float
    upper_rate: float
    power: int

    def log_bounds(self, distance: Distances, depth: int = 1) -> tuple[Logarithms, Logarithms]:
        """ln of the lower and the upper bound on the rollout of `depth` layers T at each distance d.

        ln C(T−1+d, d) + T·log_lower − lower_rate·dᵖ and ln C(T−1+d, d) + T·log_upper − upper_rate·dᵖ/T^(p−1):
        among T steps ≥ 0 over d in all, Σ stepᵖ is at most dᵖ (one jump) and at least d(d/T)^(p−1) (equal
        steps). Theorems 4.5 (p = 1), 4.7 and I.2 (p = 2, printed with 2 for T). Raises as `log_walks`.
        """
        walks = log_walks(depth, distance)
        reach = np.asarray(distance, dtype=np.float64) ** self.power
        return (
            walks + depth * self.log_lower - self.lower_rate * reach,
            walks + depth * self.log_upper - self.upper_rate * reach / depth ** (self.power - 1),
        )


def log_walks(depth: int, distance: Distances) -> Logarithms:
    """ln C(depth − 1 + d, d): walks of `depth` steps over a distance d in the causal graph (Appendix E).

    A sum of d positive logarithms, within 1e-12 relative up to d = 100,000. Raises `InvalidValueError` for a
    depth < 1 or a negative distance.
    """
    before = whole("depth", depth, 1) - 1
    distance = np.asarray(distance, dtype=np.int64)
    if (distance < 0).any():
        raise InvalidValueError(f"distance: {distance.min()} given, integers ≥ 0 needed")
    machine.require(24 * int(distance.max(initial=0)), "distance", int(distance.max(initial=0)))
    steps = np.log1p(before / np.arange(1.0, distance.max(initial=0) + 1))
    return np.concatenate([[0.0], np.cumsum(steps)])[distance]


def decay_envelope(rate: float, logit_range: float, tokens: int) -> Envelope:
    """Lemma 4.4 for logits z_ij − m(i − j), `rate` m, z within a range I_max − I_min (`logit_range`).

    C_min = e^(−range)(1 − e^−m)/(1 − e^(−Nm)) and C_max = e^range. The printed C_max is smaller by 1 + e^−m,
    which row 1 does not have; the printed C_min has no N and is 0 at m = 0. Raises `InvalidValueError` for
    a rate or range that is negative or not finite, or tokens < 1.
    """
    rate = float(non_negative("rate", rate))
    total = np.logaddexp.reduce(-rate * np.arange(machine.length("tokens", tokens, each=16)))
    span = non_negative("logit_range", logit_range)
    return Envelope(-span - float(total), span, rate, rate, power=1)


def rope_envelope(
    least: Pairs,
    largest: Pairs,
    angles: Pairs,
    deviation: float,
    tokens: int,
) -> Envelope:
    """Lemma I.1, and Lemma 4.6 for one pair: envelopes e^(−c·d²·Σθ_l²) for logits Σ_l a_l cos(φ_l − dθ_l).

    `least` and `largest` bound a_l = |q_l|·|k_l| in each pair of dimensions over all tokens, `angles` are
    θ_l, `deviation` bounds |φ_l| in radians (δθ₁ in Lemma 4.6, ½π√(1/β_qβ_k)·δθ₁ in Lemma I.1 by Lemma
    I.3). The rates are Σa_lθ_l² below and that over π² above, with a_l the largest; printed below with the
    least, which fails where cosines are negative. Raises `InvalidValueError` unless
    deviation + (tokens − 1)·θ_l ≤ π for every pair, 0 < least ≤ largest, and there is one of each per pair.
    """
    least, largest, angles = (np.asarray(given, dtype=np.float64) for given in (least, largest, angles))
    if not least.shape == largest.shape == angles.shape or least.ndim != 1 or not least.size:
        raise InvalidValueError(
            f"angles: shape {angles.shape} given, the shape {least.shape} of least and {largest.shape} of "
            "largest needed, one number per pair"
        )
    if not ((least > 0) & (least <= largest) & np.isfinite(largest)).all():
        raise InvalidValueError(f"least: {least} given, numbers above 0 and at most {largest} needed")
    if (angles < 0).any():
        raise InvalidValueError(f"angles: {angles.min()} given, numbers ≥ 0 needed")
    turn = non_negative("deviation", deviation) + (whole("tokens", tokens, 1) - 1) * angles.max()
    if not turn <= math.pi + BOUNDARY:
        raise InvalidValueError(
            f"angles: deviation + (tokens − 1)·angle reaches {turn:.6g}, at most π needed for the envelope"
        )
    rate = float(largest @ angles**2)
    own, high = (least - largest * deviation**2 / 2).sum(), largest.sum()
    return Envelope(
        log_lower=float((least - largest * deviation**2).sum() - high - math.log(tokens)),
        log_upper=float(high * (1 + 2 * deviation**2 / math.pi**2) - own),
        lower_rate=rate,
        upper_rate=rate / math.pi**2,
        power=2,
    )


# --- what a network does, next to its bounds -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Collapse:
    """What a query draws from `position` j, and from j and all `later` ones, after 0, 1, … layers.

    `log_bound` is `log_collapse_bound` there, 0 before the first layer: no query draws more from j and later.
    """

    position: int
    mass: Float[np.ndarray, "step"]
    later: Float[np.ndarray, "step"]
    log_bound: Float[np.ndarray, "step"]


def collapse(architecture: Architecture, tokens: int, position: int, query: int = -1) -> Collapse:
    """Mass of a position against depth with its bound, ε read off each layer's dense kernel.

    Raises `InvalidValueError` for a mask that is not causal, hyper-connections, a position or query outside the
    text.
    """
    if not all(isinstance(layer.mask, Causal) for layer in architecture.layers):
        raise InvalidValueError(
            "layers: another mask than the causal one given, Causal() needed for the bound"
        )
    if architecture.streams is not None:
        raise InvalidValueError("streams: hyper-connections given, one residual needed for the bound")
    machine.length("tokens", tokens, each=24, squared=True)
    if not 0 <= position < tokens:
        raise InvalidValueError(f"position: {position} given, one from 0 to {tokens - 1} needed")
    floors = {
        layer: smallest_admitted(layer_kernel(layer, tokens), layer.mask.allowed(tokens))
        for layer in set(architecture.layers)
    }
    bound = log_collapse_bound(
        np.array([floors[layer] for layer in architecture.stack]), position, architecture.coefficients
    )
    masses = np.stack([profile.mass for profile in trajectory(architecture, tokens, query)])
    later = masses[:, position:].sum(axis=1)
    return Collapse(position, masses[:, position], later, np.concatenate([[0.0], bound]))


def critical_distance_slopes(depth: float, angle: float, rate: float = 1.0) -> tuple[float, float]:
    """∂x*/∂t > 0 and ∂x*/∂θ < 0 of `rope_critical_distance` for depth > 1: Appendix H with 2cθ² for its 2θ.

    1/(2cθ²(x + t) + t/x) and −4cθx/(2cθ² + t/(x(x + t))). Raises `InvalidValueError` as there, and for
    depth 1.
    """
    before = positive("depth − 1", depth - 1.0)
    x, strength = critical_distances.rope_critical_distance(depth, angle, rate), 2 * rate * angle**2
    by_depth = 1.0 / (strength * (x + before) + before / x)
    return by_depth, -4 * rate * angle * x / (strength + before / (x * (x + before)))


def _shares(name: str, given: Layers | Sequence[float]) -> Layers:
    numbers = np.asarray(given, dtype=np.float64)
    if numbers.ndim != 1 or not ((numbers >= 0) & (numbers <= 1)).all():
        raise InvalidValueError(f"{name}: {numbers} given, one number between 0 and 1 per layer needed")
    return numbers
