"""Wu et al. 2025, statements: printed bounds beside what the witness of `posbias_papers.statements` shows.

Published is the number that the printed statement gives for the instance, corrected the true one, or what the
amended statement gives. Positions and layers count from 0 here, so the paper's P_32 is row 2, key 1.
"""

import math
from dataclasses import replace

import numpy as np

from posbias.theory.closed_forms import collapse_bounds, critical_distances
from posbias.theory.distance import RoPE
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.readings.reading import Answer, Material, answer, reading
from posbias_papers.statements.statement import fields
from posbias_papers.statements.wu import WU

WITNESSES = {one.key: fields(one.witness) for one in WU if one.witness is not None}


def _kernels(key: str) -> tuple[np.ndarray, np.ndarray]:
    """The kernels of a witness, bottom layer first, and their product."""
    given = WITNESSES[key]["kernels"]
    layers = given[np.arange(WITNESSES[key]["depth"]) % len(given)]
    product = np.eye(given.shape[-1])
    for kernel in layers:
        product = kernel @ product
    return layers, product


@reading("wu2025/appendix-b.2", "P_32 of three tokens, w = 2, two layers: printed bound, true")
def _few_layers(material: Material) -> Answer:
    layers, product = _kernels("wu-B.2")
    floor, width, t = float(layers[layers > 0].min()), WITNESSES["wu-B.2"]["size"], len(layers) - 1
    return answer((1 - floor) ** ((t + 1) / (width - 1)), float(product[2, 1]), amended_bound=1 - floor)


@reading("wu2025/appendix-c", "P_31/P_32 of three tokens, K = 2, two layers: printed bound, true")
def _ratio(material: Material) -> Answer:
    layers, product = _kernels("wu-C")
    bottom = layers[0][:, 0] / layers[0][:, 1]
    length = WITNESSES["wu-C"]["size"]
    # of the last token: l ≤ min(i, K) as printed, l ≤ max(i, K) as amended
    return answer(
        float(bottom[:length].min()), float(product[2, 0] / product[2, 1]), amended_bound=float(bottom.min())
    )


@reading("wu2025/lemma-4.4", "A_11 of two tokens, m = 1, no content: printed C_max, true")
def _decay(material: Material) -> Answer:
    content, rate = WITNESSES["wu-4.4"]["content"][0], WITNESSES["wu-4.4"]["rate"]
    tokens = len(content)
    distance = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    weights = masked_softmax(content - rate * np.maximum(distance, 0), distance >= 0)
    span = float(np.ptp(content))
    amended = collapse_bounds.decay_envelope(rate, span, tokens)
    return answer(
        math.exp(span) / (1 + math.exp(-rate)),
        float(weights[0, 0]),
        amended_bound=math.exp(amended.log_upper),
    )


_theorem_4_5 = replace(
    _decay,
    key="wu2025/theorem-4.5",
    quantity="P_11 of the same instance, one layer: printed bound, true",
)


@reading("wu2025/theorem-4.5-distance", "distance at which L is highest, two layers, m = 1")
def _decay_distance(material: Material) -> Answer:
    depth, rate = WITNESSES["wu-4.5-distance"]["depth"], WITNESSES["wu-4.5-distance"]["rate"]
    t = depth - 1
    heights = [math.log(math.comb(t + x, x)) - x * rate for x in range(3)]
    others = {f"L({x})": height for x, height in enumerate(heights)}
    return answer(
        critical_distances.critical_distance(depth, rate),
        critical_distances.modal_distance(depth, rate),
        **others,
    )


def _rope(key: str) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """Logits of a RoPE witness's layers, |q_l||k_l| of its admitted pairs, δθ₁, and the angles."""
    witness = WITNESSES[key]
    angles, tokens = witness["angles"], witness["queries"].shape[1]
    pairs = [witness[name].reshape(-1, tokens, len(angles), 2) for name in ("queries", "keys")]
    turn = np.exp(1j * np.arange(tokens)[:, None] * angles)
    turned = [(v[..., 0] + 1j * v[..., 1]) * turn for v in pairs]
    logits = np.einsum("tip,tjp->tij", turned[0], turned[1].conj()).real
    norms = np.einsum("tip,tjp->tijp", np.abs(turned[0]), np.abs(turned[1]))[:, np.tri(tokens, dtype=bool)]
    return logits, norms, witness["delta"] * float(angles.min()), angles


def _lower(key: str) -> Answer:
    """The printed lower bound of the weight of the first token on the second, c from the least |q_l||k_l|."""
    logits, norms, deviation, angles = _rope(key)
    tokens, pairs = logits.shape[-1], len(angles)
    # the largest angle between vectors of several pairs: Lemma I.3 stretches δ; here all are parallel
    least, largest = float(norms.min()), float(norms.max())
    printed = pairs * (least * (1 - deviation**2) - largest) - math.log(tokens)
    printed -= least * float((angles**2).sum())
    weight = float(masked_softmax(logits[0], np.tri(tokens, dtype=bool))[1, 0])
    return answer(math.exp(printed), weight, printed_over_true=math.exp(printed) / weight)


def _upper(key: str) -> Answer:
    """log10 of what is printed as the most that the last token draws from the first, and of what it draws."""
    logits, norms, deviation, angles = _rope(key)
    depth, tokens = logits.shape[:2]
    product = np.eye(tokens)
    for layer in logits:
        product = masked_softmax(layer, np.tri(tokens, dtype=bool)) @ product
    envelope = collapse_bounds.rope_envelope(
        norms.min(axis=(0, 1)), norms.max(axis=(0, 1)), angles, deviation, tokens
    )
    far = tokens - 1
    walks = float(collapse_bounds.log_walks(depth, np.array(far)))
    printed = walks + depth * envelope.log_upper - envelope.upper_rate / 2 * far**2
    amended = float(envelope.log_bounds(np.array(far), depth)[1])
    drawn = math.log(float(product[-1, 0]))
    return answer(
        printed / math.log(10),
        drawn / math.log(10),
        drawn_over_printed=math.exp(drawn - printed),
        amended_bound=amended / math.log(10),
    )


@reading("wu2025/lemma-4.6", "weight of a token half a turn away: printed lower bound, true")
def _lemma_4_6(material: Material) -> Answer:
    return _lower("wu-4.6")


@reading(
    "wu2025/theorem-4.7",
    "log10 of P_(21)1 after 20 layers, half a turn in 20 equal steps: printed upper bound, true",
)
def _theorem_4_7(material: Material) -> Answer:
    return _upper("wu-4.7")


@reading("wu2025/theorem-4.7-distance", "critical distance x*, five layers, θ = .1")
def _rope_distance(material: Material) -> Answer:
    depth, angle = WITNESSES["wu-4.7-distance"]["depth"], WITNESSES["wu-4.7-distance"]["angle"]
    # ln(1 + t/x) = 2θx is the right equation for √θ in place of θ
    printed = critical_distances.rope_critical_distance(depth, math.sqrt(angle))
    return answer(printed, critical_distances.rope_critical_distance(depth, angle))


@reading(
    "wu2025/theorem-4.7-drift",
    "most favoured distance of a RoPE rollout of 20 layers: x*, true",
    "wu2025/theorem-4.7-distance",
)
def _rope_drift(material: Material) -> Answer:
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


@reading("wu2025/lemma-i.1", "weight of a token half a turn away in two pairs: printed lower bound, true")
def _lemma_i_1(material: Material) -> Answer:
    return _lower("wu-I.1")


@reading("wu2025/theorem-i.2", "log10 of P_(21)1 after 20 layers in two pairs: printed upper bound, true")
def _theorem_i_2(material: Material) -> Answer:
    return _upper("wu-I.2")
