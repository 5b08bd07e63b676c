"""Herasimchyk et al. 2026, Theorem 5.4 in both readings; models are in `models` and `measured`.

Statements whose counterexample is a pair of numbers are read on that (`posbias_papers.statements`). Positions and
layers count from 0.
"""

from typing import Any

import numpy as np

from posbias.theory.mixing import PowerDecay
from posbias_papers.closed_forms import residual_bounds
from posbias_papers.readings.reading import Comparison, Material, answer, reading
from posbias_papers.statements.herasimchyk2026_depth import deep_rollouts, window
from posbias_papers.statements.record import fields


def _two_tokens(initial: float, exponent: float) -> Any:
    """Ten layers of even attention with λ_t = initial/(t + 1)^exponent: rollouts, λ, ε."""
    return deep_rollouts(np.array([[[1.0, 0.0], [0.5, 0.5]]]), initial, exponent, depth=10, width=2)


@reading(
    "herasimchyk2026/theorem-5.4-i",
    "what the first token draws from itself, λ_t = ½/(t + 1)², ε = ½: printed at most, true",
)
def _first_token(material: Material) -> Comparison:
    rollouts, _, floor = _two_tokens(0.5, 2.0)
    return answer(
        residual_bounds.dichotomy(PowerDecay(0.5, 2.0), floor).first_token, float(rollouts[-1, 0, 0])
    )


@reading(
    "herasimchyk2026/theorem-5.4-attention-only",
    "what the second of two tokens keeps after ten layers of even attention, λ = 1: printed bound, Wu et al.'s",
)
def _attention_only(material: Material) -> Comparison:
    rollouts, mixing, floor = _two_tokens(1.0, 0.0)
    bounds = residual_bounds.exponential_bound, residual_bounds.suffix_bound
    printed, theirs = (float(bound(mixing, floor, 1)[-1]) for bound in bounds)
    return answer(printed, theirs, kept=float(rollouts[-1, 1, 1]))


@reading(
    "herasimchyk2026/theorem-5.4-ii-window",
    "what the last of four tokens keeps after 200 layers, w = 2: printed bound, true",
)
def _window(material: Material) -> Comparison:
    rollouts, mixing, floor = deep_rollouts(**fields(window.witness or {}))
    printed = residual_bounds.exponential_bound(mixing, floor, rollouts.shape[-1] - 1)[-1]
    return answer(float(printed), float(rollouts[-1, -1, -1]))
