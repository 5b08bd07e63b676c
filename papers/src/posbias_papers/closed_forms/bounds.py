"""How fast rollouts collapse: the bounds of Wu et al. 2025 and of Herasimchyk et al. 2026, §5, as functions.

The rollout after T layers is R⁽ᵀ⁾⋯R⁽¹⁾ with R = (1 − λ)I + λA (Wu et al.: λ = 1), a sum over walks through the
mask. Where every admitted weight of A is at least ε (`log_attention_floor`), a query after position j hands at
least jελ to positions before j in each layer, so that later positions lose their mass geometrically, and keeps at
least 1 − (1 − ε)λ of itself: everything turns on Σλ (Theorem 5.4). Where a layer's weights lie between envelopes
C·e^(−rate·dᵖ) in the distance d (`Envelope`), a walk of T steps over a distance d does too, and there are
C(T−1+d, d) walks. Where the two balance is in `posbias.theory.critical_distances`.

Stated are the forms that survive checking (`posbias_papers.statements` tries the printed ones). Names in log_ are
natural logarithms, for these bounds under- and overflow. Positions count from 0, so the papers' j − 1 is j here;
`depth` is the number of layers, Wu et al.'s t + 1. Bounds at finite depth take the λ of the layers, limits a
schedule from `posbias.theory.mixing`.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import zeta

from posbias.core.errors import InvalidValueError
from posbias.theory.mixing import Layers, Mixing, PerLayer, PowerDecay

Distances = Int[np.ndarray, "*distance"]
Logarithms = Float[np.ndarray, "*distance"]
Pairs = Float[np.ndarray, "pair"]
EXPLICIT = 64
"""Layers of a power decay that are taken one by one before the series for the rest."""


# --- the floor of attention weights, and the norms that it rests on ------------------------------------------


def log_attention_floor(keys: int, bound: float, positional_range: float = 0.0) -> float:
    """ln ε: ε = 1/(1 + (keys − 1)e^r), the least weight among `keys` whose content logits lie in ±`bound`.

    r = 2·bound + `positional_range`, the largest minus the smallest positional logit of a row (0 for RoPE, which
    turns queries and keys but keeps their norms). Attained where one key is as low and all others as high as can
    be. Wu et al., Lemma A.1; the sharp form of Lemma 5.3 (ii), which has no positional logits.
    """
    return -float(np.logaddexp(0.0, math.log(keys - 1) + 2.0 * bound + positional_range)) if keys > 1 else 0.0


def hidden_state_bound(mixing: Layers, value_norms: Layers, initial: float) -> Layers:
    """A bound on every token's norm after each layer: initial·Π(1 − λ + λ‖W_V‖).

    For the residual update X ← (1 − λ)X + λ·A·X·W_V with operator norms `value_norms`, and `initial` the
    largest norm of an input row. Stands in for Lemma 5.3 (i), whose C·C_V holds only where W_V acts on the
    residual stream too.
    """
    return initial * np.cumprod(1.0 - mixing + mixing * value_norms)


# --- collapse on the first token or on a prefix ----------------------------------------------------------------


def log_collapse_bound(floors: Layers, position: int, mixing: Layers | float = 1.0) -> Layers:
    """ln Π(1 − jε_tλ_t) after each layer: the most that positions ≥ j hold together, for any query.

    For the causal mask, and the prefix mask where j ≥ K; `floors` are the layers' ε, `mixing` their λ. Wu et al.,
    Theorems 4.1 and 4.3, whose C(1 − (j − 1)ε)^t with C = 1 − ε lies above it; Theorem 5.4 (ii) with C′ = 1, for
    the whole suffix and before 1 − x ≤ e^−x. With j = 1 it says how much the first token has not yet drawn.
    """
    with np.errstate(divide="ignore"):
        # jε is at most 1 for a position of the text, but for rounding
        return np.cumsum(np.log1p(-np.minimum(position * np.asarray(floors), 1.0) * mixing))


def exponential_bound(mixing: Layers, floor: float, position: int) -> Layers:
    """exp(−jε Σλ) after each layer: Theorem 5.4 (ii) as printed, with C′ = 1; never below `log_collapse_bound`."""
    return np.exp(-position * floor * np.cumsum(mixing))


def self_bound(mixing: Layers, floor: float) -> Layers:
    """What every token keeps of itself, at least, after each layer: Π(1 − (1 − ε)λ), Theorem 5.4 (i).

    Holds under every mask in which tokens see themselves.
    """
    coefficients = np.asarray(mixing, dtype=np.float64)
    return np.cumprod((1.0 - coefficients) + floor * coefficients)


def hops(tokens: int, width: int) -> int:
    """⌈(N − 1)/(w − 1)⌉: layers after which, under a window of `width` w ≥ 2, every token sees all before it."""
    return -(-(int(tokens) - 1) // (int(width) - 1))


def log_block_bound(floor: float, block: int, depth: int, position: int = 1) -> Layers:
    """⌊layers/h⌋·ln(1 − jεʰ) after 1 … `depth` layers: the most that positions ≥ j hold together.

    For masks under which `block` h layers together weigh every token before j with at least εʰ: a window after
    `hops` layers (Lemma B.1), and for j = 1 all but the centre of a graph. Theorem 4.2 without its factor 1/2 in
    the exponent, without rounding N − 1 to a multiple of w − 1, and for the whole suffix.
    """
    blocks = np.arange(1, depth + 1) // block
    with np.errstate(divide="ignore"):
        together = np.log1p(-position * np.float64(floor) ** block)
    return np.multiply(blocks, together, out=np.zeros(depth), where=blocks > 0)


def window_bound(mixing: Layers, floor: float, query: int) -> float:
    """The most that `query` has not yet drawn from the first token, under a window of width ≥ 2.

    In every layer a token after the first moves its mass to an earlier one with at least ελ; `query` such
    moves suffice. The bound is the probability that fewer succeed: the lower tail of a Poisson binomial.
    In place of Theorem 5.4 (ii), whose rate (j − 1)ε is not that of a window.
    """
    moved = np.zeros(query)
    moved[:1] = 1.0
    for chance in floor * np.asarray(mixing):
        moved[1:] = (1.0 - chance) * moved[1:] + chance * moved[:-1]
        moved[:1] *= 1.0 - chance
    return float(moved.sum())


def prefix_share(kernel: Float[np.ndarray, "query key"], length: int) -> Float[np.ndarray, "prefix"]:
    """κ of Theorem 4.3: the least that any query holds of each of the first `length` tokens, at every depth.

    The least weight of the column in the bottom layer: P⁽ᵗ⁾ = (A⁽ᵗ⁾⋯A⁽¹⁾)A⁽⁰⁾ only averages its rows. Above 0
    under a prefix mask of that length, where all tokens see the whole prefix.
    """
    return kernel[:, : int(length)].min(axis=0)


# --- infinite depth --------------------------------------------------------------------------------------------


def retained(mixing: Mixing, floor: float) -> float:
    """Π(1 − (1 − ε)λ), what every token keeps of itself at infinite depth: 0 where Σλ diverges (Theorem 5.4).

    For kernels with the floor ε > 0 under the causal mask; there the first token takes all. Σλ converges, to
    λ₀ζ(β), for a power decay with β > 1: `EXPLICIT` layers one by one, then −Σ_k ((1 − ε)λ₀)^k ζ(kβ, EXPLICIT +
    1)/k, to about 1e-14 of the logarithm. Raises `InvalidValueError` for `PerLayer`, which has no infinite depth.
    """
    if isinstance(mixing, PerLayer):
        raise InvalidValueError("mixing: expected a schedule for every depth, got λ of single layers")
    if mixing.values(1)[0] == 0.0:
        return 1.0
    if not isinstance(mixing, PowerDecay) or mixing.exponent <= 1.0:
        return 0.0
    share, layers = 1.0 - floor, mixing.values(EXPLICIT)
    with np.errstate(divide="ignore"):
        # near λ = 1 what is left is of the order of ε, which 1 − (1 − ε)λ would lose
        logs = np.where(layers > 0.5, np.log((1.0 - layers) + floor * layers), np.log1p(-share * layers))
    orders = np.arange(1.0, 41.0)
    rest = (share * mixing.initial) ** orders * zeta(orders * mixing.exponent, EXPLICIT + 1.0) / orders
    return math.exp(float(logs.sum()) - float(rest[::-1].sum()))


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
        steps). Theorems 4.5 (p = 1), 4.7 and I.2 (p = 2, printed with 2 for T).
        """
        walks = log_walks(depth, distance)
        reach = np.asarray(distance, dtype=np.float64) ** self.power
        return (
            walks + depth * self.log_lower - self.lower_rate * reach,
            walks + depth * self.log_upper - self.upper_rate * reach / depth ** (self.power - 1),
        )


def log_walks(depth: int, distance: Distances) -> Logarithms:
    """ln C(depth − 1 + d, d): walks of `depth` steps over a distance d ≥ 0 in the causal graph (Appendix E).

    A sum of d positive logarithms, within 1e-12 relative up to d = 100,000.
    """
    steps = np.log1p((depth - 1) / np.arange(1.0, distance.max(initial=0) + 1))
    return np.concatenate([[0.0], np.cumsum(steps)])[distance]


def decay_envelope(rate: float, logit_range: float, tokens: int) -> Envelope:
    """Lemma 4.4 for logits z_ij − m(i − j), `rate` m ≥ 0, z within a range I_max − I_min (`logit_range`).

    C_min = e^(−range)(1 − e^−m)/(1 − e^(−Nm)) and C_max = e^range. The printed C_max is smaller by 1 + e^−m,
    which row 1 does not have; the printed C_min has no N and is 0 at m = 0.
    """
    total = float(np.logaddexp.reduce(-rate * np.arange(tokens)))
    return Envelope(-logit_range - total, logit_range, rate, rate, power=1)


def rope_envelope(smallest: Pairs, largest: Pairs, angles: Pairs, deviation: float, tokens: int) -> Envelope:
    """Lemma I.1, and Lemma 4.6 for one pair: envelopes e^(−c·d²·Σθ_l²) for logits Σ_l a_l cos(φ_l − dθ_l).

    `smallest` and `largest` bound a_l = |q_l|·|k_l| > 0 in each pair of dimensions over all tokens, `angles` are
    θ_l, `deviation` bounds |φ_l| in radians (δθ₁ in Lemma 4.6, ½π√(1/β_qβ_k)·δθ₁ in Lemma I.1 by Lemma
    I.3); deviation + (tokens − 1)·θ_l may be π at most. The rates are Σa_lθ_l² below and that over π² above, with
    a_l the largest; printed below with the least, which fails where cosines are negative.
    """
    rate, own = float(largest @ angles**2), (smallest - largest * deviation**2 / 2).sum()
    return Envelope(
        log_lower=float((smallest - largest * deviation**2).sum() - largest.sum() - math.log(tokens)),
        log_upper=float(largest.sum() * (1 + 2 * deviation**2 / math.pi**2) - own),
        lower_rate=rate,
        upper_rate=rate / math.pi**2,
        power=2,
    )
