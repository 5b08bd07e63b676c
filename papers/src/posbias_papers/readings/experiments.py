"""Wu et al. 2025, experiments: what the paper says was run beside what its code runs.

Nothing is trained: the data's numbers are exact, and what an option does to a network is told by the gap that the
theory expects, (m_a − m_b)/(m_a + m_b) for the masses m at the labels of items a and b in networks of two layers
under the causal mask. Published is what the code does, or the formula that is printed.
"""

import math

import numpy as np

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.mixing import AttentionOnly, Mixing, PreNormInit
from posbias.theory.positional import DecayBias, NoPE
from posbias.theory.rollout.dispatch import influence
from posbias_papers.readings.reading import Answer, Material, answer, reading

ITEMS, BURSTINESS, LABELS, DIMENSION, NOISE = 8, 4, 32, 64, 0.75
"""n, B, L, d and γ = λ of Appendix J, and the defaults of `posbias.training`."""
RATE = -math.log(0.8)
"""m of the decay mask, Appendix J."""
DEPTH = 2


def expected_gap(
    first: int, second: int, positional: DecayBias | NoPE | None = None, mixing: Mixing | None = None
) -> float:
    """(m_a − m_b)/(m_a + m_b) for two items (from 0), by default without encoding or residual connections."""
    layer = Layer(positional=positional or NoPE())
    architecture = Architecture(DEPTH, (layer,), mixing or AttentionOnly())
    mass = np.asarray(influence(architecture, 2 * ITEMS + 1, threads=1).mass)
    # item a stands at token 2a, its label after it
    a, b = (float(mass[2 * item + 1]) for item in (first, second))
    return (a - b) / (a + b)


@reading("wu2025/embeddings", "length of an embedding: as coded, as printed")
def _embeddings(material: Material) -> Answer:
    coded, printed = (math.sqrt(DIMENSION) * deviation for deviation in (1 / DIMENSION, DIMENSION**-0.5))
    return answer(
        coded,
        printed,
        f"d = {DIMENSION}; logits before training are shorter by d.",
        ratio_of_logits=(printed / coded) ** 2,
    )


@reading("wu2025/item-formula", "mean squared length of an item: as printed, corrected")
def _item_formula(material: Material) -> Answer:
    """Mean squared norms of μ + γη/√(1 + γ²) and (μ + γη)/√(1 + γ²), and cosines of two items of a class."""
    noise = NOISE**2 / (1 + NOISE**2)
    printed, corrected = 1 + noise, 1.0
    return answer(
        printed,
        corrected,
        "γ = .75; the smaller of the two cosines makes classes harder to tell.",
        cosine_of_two_items_of_a_class_as_printed=1 / printed,
        cosine_corrected=1 / (1 + NOISE**2),
    )


@reading("wu2025/pe-decay", "expected gap first–last with --pe decay: as coded, with the decay mask")
def _decay(material: Material) -> Answer:
    last = ITEMS - 1
    return answer(expected_gap(0, last), expected_gap(0, last, DecayBias(RATE)))


@reading("wu2025/not-res", "expected gap first–last with --not_res: as coded, as named")
def _residual(material: Material) -> Answer:
    last = ITEMS - 1
    return answer(expected_gap(0, last, mixing=PreNormInit()), expected_gap(0, last))


@reading("wu2025/middle", "expected gap first–middle: item n/2 from 0, from 1")
def _middle(material: Material) -> Answer:
    """The gap first–middle with item n/2 counted from 0, and from 1."""
    coded, printed = ITEMS // 2, ITEMS // 2 - 1
    return answer(
        expected_gap(0, coded),
        expected_gap(0, printed),
        "posbias takes the code's item, n/2 counted from 0, as the figures did; `middle` says otherwise.",
        middle_to_last_as_coded=expected_gap(coded, ITEMS - 1),
        middle_to_last_counted_from_1=expected_gap(printed, ITEMS - 1),
    )


@reading(
    "wu2025/uninformative",
    "largest gap there can be: were all test sequences informative, in the paper's task",
)
def _uninformative(material: Material) -> Answer:
    same_class = (BURSTINESS - 1) / (ITEMS - 1)
    same_label = same_class + (1 - same_class) / LABELS
    return answer(1.0, 1 - same_label, share_of_one_class=same_class, share_of_one_label=same_label)


@reading(
    "wu2025/new-direction",
    "cosine of items of new and of known classes, fixed vocabulary: direction drawn anew, that of training",
)
def _direction(material: Material) -> Answer:
    """Cosine between items of new and of known classes: the share of the direction they have in common."""
    return answer(0.0, NOISE**2 / (1 + NOISE**2), "λ = .75; classes are independent in either case.")
