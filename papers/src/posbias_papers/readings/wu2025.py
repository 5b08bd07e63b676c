"""Wu et al. 2025 in both readings: critical distances, and what the paper says was run against what its code runs.

Statements with a counterexample are read on that (`posbias_papers.statements`). Nothing is trained: the data's
numbers are exact, and what an option does to a network is the gap that the theory expects, (m_a − m_b)/(m_a + m_b)
for the masses m at the labels of items a and b in networks of two layers under the causal mask. Published is what
the code does, or the formula that is printed.
"""

import math
from typing import Any

import numpy as np

from posbias.theory import critical_distances
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.mixing import AttentionOnly, Mixing, PreNormInit
from posbias.theory.positional import DecayBias, NoPE, RoPE
from posbias.theory.rollout.dispatch import influence
from posbias_papers.errata import Comparison, Material, answer, discrepancy

ITEMS, BURSTINESS, LABELS, DIMENSION, NOISE = 8, 4, 32, 64, 0.75
"""n, B, L, d and γ = λ of Appendix J, and the defaults of `posbias.training`."""
LAST, MIDDLE = ITEMS - 1, ITEMS // 2
SAME_CLASS = (BURSTINESS - 1) / (ITEMS - 1)
"""The share of test sequences that have one class at both places."""
LARGEST = (1.0 - SAME_CLASS) * (1.0 - 1.0 / LABELS)
"""The largest gap there can be: the share of sequences with two labels at both places."""
RATE = -math.log(0.8)
"""m of the decay mask, Appendix J."""


# --- critical distances --------------------------------------------------------------------------------------


@discrepancy("wu2025/theorem-4.5-distance")
def _decay_distance(material: Material) -> Comparison:
    """distance at which L is highest, two layers, m = 1"""
    heights: dict[str, Any] = {f"L({x})": math.log(math.comb(1 + x, x)) - x for x in (1, 2)}
    exact = critical_distances.modal_distance(2, 1.0)
    layer = Layer(positional=DecayBias(RATE))
    short = np.asarray(influence(Architecture(4, (layer,), AttentionOnly()), 17, threads=1).mass)
    heights |= {"four layers": critical_distances.critical_distance(4, RATE)}
    heights |= {"four layers of 17 tokens": 16 - int(short.argmax())}
    return answer(critical_distances.critical_distance(2, 1.0), exact, **heights)


@discrepancy("wu2025/theorem-4.7-distance")
def _rope_distance(material: Material) -> Comparison:
    """critical distance x*, five layers, θ = .1"""
    # ln(1 + t/x) = 2θx is the right equation for √θ in place of θ
    printed, right = (critical_distances.rope_critical_distance(5, angle) for angle in (math.sqrt(0.1), 0.1))
    return answer(printed, right)


@discrepancy("wu2025/theorem-4.7-drift", "wu2025/theorem-4.7-distance")
def _rope_drift(material: Material) -> Comparison:
    """most favoured distance of a RoPE rollout of 20 layers: x*, true"""
    curve = critical_distances.distance_curve(RoPE(((100.0,),), frequencies=(0.01,)), (10, 20), 310)
    (less, more), (few, many) = curve.predicted, curve.rollout
    return answer(
        float(more),
        int(many),
        "One pair of dimensions, θ = .01, amplitude 100, no content. Published is the right root of the paper's "
        "L, which is not where the rollout peaks; doubling the depth moves the one by √2, the other by 2.",
        x_grows_from_10_layers_by=float(more / less),
        the_rollout_by=float(many / few),
    )


# --- experiments -----------------------------------------------------------------------------------------------


def expected_gap(
    first: int, second: int, positional: DecayBias | NoPE | None = None, mixing: Mixing | None = None
) -> float:
    """(m_a − m_b)/(m_a + m_b) for two items (from 0), times the largest gap that the test sequences allow.

    By default without encoding or residual connections.
    """
    layer = Layer(positional=positional or NoPE())
    architecture = Architecture(2, (layer,), mixing or AttentionOnly())
    mass = np.asarray(influence(architecture, 2 * ITEMS + 1, threads=1).mass)
    # item a stands at token 2a, its label after it
    a, b = (float(mass[2 * item + 1]) for item in (first, second))
    return (a - b) / (a + b) * LARGEST


@discrepancy("wu2025/embeddings")
def _embeddings(material: Material) -> Comparison:
    """length of an embedding: as coded, as printed"""
    coded, printed = (math.sqrt(DIMENSION) * deviation for deviation in (1 / DIMENSION, DIMENSION**-0.5))
    shorter = (printed / coded) ** 2
    return answer(
        coded, printed, f"d = {DIMENSION}; logits before training are shorter by d.", ratio_of_logits=shorter
    )


@discrepancy("wu2025/item-formula")
def _item_formula(material: Material) -> Comparison:
    """mean squared length of an item: as printed, corrected

    Mean squared norms of μ + γη/√(1 + γ²) and (μ + γη)/√(1 + γ²), and cosines of two items of a class.
    """
    printed, corrected = 1 + NOISE**2 / (1 + NOISE**2), 1.0
    return answer(
        printed,
        corrected,
        "γ = .75; the smaller of the two cosines makes classes harder to tell.",
        cosine_of_two_items_of_a_class_as_printed=1 / printed,
        cosine_corrected=1 / (1 + NOISE**2),
    )


@discrepancy("wu2025/pe-decay")
def _decay(material: Material) -> Comparison:
    """expected gap first–last with --pe decay: as coded, with the decay mask"""
    return answer(expected_gap(0, LAST), expected_gap(0, LAST, DecayBias(RATE)))


@discrepancy("wu2025/not-res")
def _residual(material: Material) -> Comparison:
    """expected gap first–last with --not_res: as coded, as named"""
    return answer(expected_gap(0, LAST, mixing=PreNormInit()), expected_gap(0, LAST))


@discrepancy("wu2025/middle")
def _middle(material: Material) -> Comparison:
    """expected gap first–middle: item n/2 from 0, from 1"""
    note = "posbias takes the code's item, n/2 counted from 0, as the figures did; `middle` says otherwise."
    return answer(expected_gap(0, MIDDLE), expected_gap(0, MIDDLE - 1), note)


@discrepancy("wu2025/uninformative")
def _uninformative(material: Material) -> Comparison:
    """largest gap there can be: were all test sequences informative, in the paper's task"""
    return answer(1.0, LARGEST, share_of_one_class=SAME_CLASS, share_of_one_label=1.0 - LARGEST)


@discrepancy("wu2025/new-direction")
def _direction(material: Material) -> Comparison:
    """cosine of items of new and of known classes, fixed vocabulary: direction drawn anew, that of training

    The share of the direction they have in common.
    """
    return answer(0.0, NOISE**2 / (1 + NOISE**2), "λ = .75; classes are independent in either case.")
