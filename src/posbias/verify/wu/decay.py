"""Lemma 4.4 and Theorem 4.5: under a decay mask, weights and rollouts lie between envelopes e^(−m·distance).

Any two positive numbers are Θ of each other, so the constants are tried: those that Appendix D prints, and
those of `posbias.theory.closed_forms.collapse_bounds.decay_envelope`.
"""

import math

import numpy as np
from numpy.random import Generator

from posbias.theory.closed_forms import collapse_bounds
from posbias.verify.statement import Instance, Reading, Statement
from posbias.verify.wu import draws
from posbias.verify.wu.margins import SOURCE, Distances, Stack, inside, log_rollouts, log_softmax


def _draw_decay(rng: Generator, edge: bool, positive: bool = True) -> Instance:
    tokens, depth = draws.length(rng, edge), draws.depth(rng, edge, 12)
    spread = float(rng.choice([0.0, 1e-6, 50.0]) if edge else rng.choice([0.3, 2.0]))
    content = rng.uniform(-0.5, 0.5, (depth, tokens, tokens))
    if edge and rng.random() < 0.5:  # one key as high as can be, all others as low
        content = np.where(rng.integers(tokens, size=(depth, tokens, 1)) == np.arange(tokens), 0.5, -0.5)
    rates = [1e-9, 1e-3, 10.0, 500.0] + ([] if positive else [0.0])
    rate = float(rng.choice(rates) if edge else rng.exponential())
    return {"content": spread * content, "rate": rate}


def _decay(instance: Instance) -> tuple[Stack, float, Distances]:
    """ln A of every layer, the range of admitted content logits, and the distances; −inf outside the mask."""
    content = np.asarray(instance["content"], dtype=float)
    place = np.arange(content.shape[-1])
    distance = place[:, None] - place
    log_kernels = log_softmax(content - instance["rate"] * distance, distance >= 0)
    seen = content[:, distance >= 0]
    return log_kernels, float(seen.max() - seen.min()), distance


def _printed_decay(instance: Instance, span: float) -> collapse_bounds.Envelope:
    """C_min and C_max as Appendix D prints them."""
    m = float(instance["rate"])
    low, high = math.log(-math.expm1(-m)) - span, span - math.log1p(math.exp(-m))
    return collapse_bounds.Envelope(low, high, m, m, power=1)


def _slack_decay(instance: Instance, amended: bool, layers: bool) -> float:
    """Every weight (`layers`) or every rollout against its envelope."""
    log_kernels, span, distance = _decay(instance)
    tokens = len(distance)
    envelope = (
        collapse_bounds.decay_envelope(instance["rate"], span, tokens)
        if amended
        else _printed_decay(instance, span)
    )
    return inside(envelope, log_kernels if layers else log_rollouts(log_kernels), distance, layers)


_FLAT = {"content": [[[0.0, 0.0], [0.0, 0.0]]], "rate": 1.0}


DECAY: tuple[Statement, ...] = (
    Statement(
        "wu-4.4",
        "Lemma 4.4",
        SOURCE,
        Reading(
            "C_min = (1 − e^−m)e^(I_min−I_max), C_max = e^(I_max−I_min)/(1 + e^−m), as Appendix D prints "
            "them",
            _draw_decay,
            lambda instance: _slack_decay(instance, amended=False, layers=True),
        ),
        Reading(
            "C_min = e^(I_min−I_max)(1 − e^−m)/(1 − e^−Nm), C_max = e^(I_max−I_min)",
            lambda rng, edge: _draw_decay(rng, edge, positive=False),
            lambda instance: _slack_decay(instance, amended=True, layers=True),
        ),
        note="The proof sums over k = 0 … i where the row has k = 1 … i: row 1 has one key, A_11 = 1, and "
        "the factor 1/(1 + e^−m) is not there. e^(I_max−I_min) holds in all rows, the printed C_max from row "
        "2 on. The printed C_min holds, but is 0 at m = 0, where the amended one is e^(I_min−I_max)/N.",
        witness=_FLAT,
    ),
    Statement(
        "wu-4.5",
        "Theorem 4.5",
        SOURCE,
        Reading(
            "C_min^(t+1) ≤ P_ij/(binom(t+i−j, i−j)·e^(−(i−j)m)) ≤ C_max^(t+1) with Appendix D's constants",
            _draw_decay,
            lambda instance: _slack_decay(instance, amended=False, layers=False),
        ),
        Reading(
            "the same with C_min = e^(I_min−I_max)(1 − e^−m)/(1 − e^−Nm), C_max = e^(I_max−I_min)",
            lambda rng, edge: _draw_decay(rng, edge, positive=False),
            lambda instance: _slack_decay(instance, amended=True, layers=False),
        ),
        note="The Θ stands; the constants of its proof inherit Lemma 4.4's C_max, which fails wherever walks "
        "pass the first row. As they lie (C_max/C_min)^(t+1) apart, the Θ alone does not place the peak of "
        "P.",
        witness=_FLAT,
    ),
)
"""Lemma 4.4, Theorem 4.5."""
