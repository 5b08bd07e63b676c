"""Lemma 4.4 and Theorem 4.5: under a decay mask, weights and rollouts lie between envelopes e^(−m·distance).

Any two positive numbers are Θ of each other, so the constants are tried: those that Appendix D prints, and
those of `posbias.theory.closed_forms.collapse_bounds.decay_envelope`.
"""

import math
from functools import partial

import numpy as np
from numpy.random import Generator

from posbias.theory.closed_forms import collapse_bounds
from posbias_papers.statements.margins import Stack, distances, inside, log_rollouts, log_softmax
from posbias_papers.statements.statement import OURS, Instance, Statement, both_readings, statement
from posbias_papers.statements.wu import draws


def _draw_decay(rng: Generator, edge: bool, positive: bool = True) -> Instance:
    tokens, depth = draws.length(rng, edge), draws.depth(rng, edge, 12)
    spread = float(rng.choice([0.0, 1e-6, 50.0]) if edge else rng.choice([0.3, 2.0]))
    content = rng.uniform(-0.5, 0.5, (depth, tokens, tokens))
    if edge and rng.random() < 0.5:  # one key as high as can be, all others as low
        content = np.where(rng.integers(tokens, size=(depth, tokens, 1)) == np.arange(tokens), 0.5, -0.5)
    rates = [1e-9, 1e-3, 10.0, 500.0] + ([] if positive else [0.0])
    rate = float(rng.choice(rates) if edge else rng.exponential())
    return {"content": spread * content, "rate": rate}


def _slack_decay(content: Stack, rate: float, corrected: bool, layers: bool) -> float:
    """Every weight (`layers`) or every rollout against its envelope, printed in Appendix D or corrected."""
    tokens = content.shape[-1]
    distance = distances(tokens)
    log_kernels = log_softmax(content - rate * distance, distance >= 0)
    seen = content[:, distance >= 0]
    span = float(seen.max() - seen.min())
    if corrected:
        envelope = collapse_bounds.decay_envelope(rate, span, tokens)
    else:
        low, high = math.log(-math.expm1(-rate)) - span, span - math.log1p(math.exp(-rate))
        envelope = collapse_bounds.Envelope(low, high, rate, rate, power=1)
    return inside(envelope.log_bounds, log_kernels if layers else log_rollouts(log_kernels), layers)


_FLAT = {"content": [[[0.0, 0.0], [0.0, 0.0]]], "rate": 1.0}

DECAY: tuple[Statement, ...] = (
    statement(
        "wu-4.4",
        "Lemma 4.4",
        "C_min = (1 − e^−m)e^(I_min−I_max), C_max = e^(I_max−I_min)/(1 + e^−m), as Appendix D prints them",
        (_draw_decay, partial(_draw_decay, positive=False)),
        both_readings(_slack_decay, layers=True),
        corrected="C_min = e^(I_min−I_max)(1 − e^−m)/(1 − e^−Nm), C_max = e^(I_max−I_min)",
        witness=_FLAT,
        asserts="there are C_min, C_max > 0 with C_min·e^(−(i−j)m) ≤ A_ij ≤ C_max·e^(−(i−j)m) in every layer",
        note="The proof sums over k = 0 … i where the row has k = 1 … i: row 1 has one key, A_11 = 1, and "
        "the factor 1/(1 + e^−m) is not there. e^(I_max−I_min) holds in all rows, the printed C_max from row "
        "2 on. The printed C_min holds, but is 0 at m = 0, where the amended one is e^(I_min−I_max)/N.",
    ),
    statement(
        "wu-4.5",
        "Theorem 4.5",
        "C_min^(t+1) ≤ P_ij/(binom(t+i−j, i−j)·e^(−(i−j)m)) ≤ C_max^(t+1) with Appendix D's constants",
        (_draw_decay, partial(_draw_decay, positive=False)),
        both_readings(_slack_decay, layers=False),
        corrected="the same with C_min = e^(I_min−I_max)(1 − e^−m)/(1 − e^−Nm), C_max = e^(I_max−I_min)",
        witness=_FLAT,
        about={"proof": OURS},
        asserts="P_ij = Θ(binom(t+i−j, i−j)·e^(−(i−j)m)) for all j ≤ i and t ≤ T (N and T fixed)",
        note="The Θ stands; the constants of its proof inherit Lemma 4.4's C_max, which can fail where walks "
        "pass the first row. As they lie (C_max/C_min)^(t+1) apart, the Θ alone does not place the peak of "
        "P.",
    ),
)
"""Lemma 4.4, Theorem 4.5."""
