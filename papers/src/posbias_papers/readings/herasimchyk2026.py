"""Herasimchyk et al. 2026, statements: what is printed beside what the witness of `statements` shows.

Published is the number that the printed statement gives for the instance, corrected the true one. Positions and
layers count from 0. What concerns models is in `models` and `measured`.
"""

import math

import numpy as np

from posbias.theory.closed_forms import residual_bounds
from posbias.theory.mixing import PowerDecay
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.readings.reading import Answer, Material, answer, reading
from posbias_papers.statements.herasimchyk import HERASIMCHYK
from posbias_papers.statements.herasimchyk.draws import admitted
from posbias_papers.statements.herasimchyk.infinite import deep_rollouts
from posbias_papers.statements.herasimchyk.network import assumed_constants, hidden_bound, run_network
from posbias_papers.statements.margins import operator_norm, rollout_row
from posbias_papers.statements.statement import fields

WITNESSES = {one.key: fields(one.witness) for one in HERASIMCHYK if one.witness is not None}
TWO_TOKENS = {
    "kernels": [[[1.0, 0.0], [0.5, 0.5]]],
    "initial": 0.5,
    "exponent": 2.0,
    "depth": 10,
    "width": 2,
}
"""Kernels and λ of which Theorem 5.4 (i) speaks; it is about all tokens but the first."""


@reading(
    "herasimchyk2026/proposition-4.5",
    "mass of the first of three tokens once the top layer's δ is raised: printed at most, true",
)
def _layerwise(material: Material) -> Answer:
    witness = WITNESSES["herasimchyk-4.5-layerwise"]
    positional, allowed = witness["positional"], admitted(3, witness["width"])
    first = []
    for name in ("diagonal", "larger_diagonal"):
        extra = np.asarray(witness[name])[:, None, None] * np.eye(3)
        first.append(float(rollout_row(masked_softmax(positional + extra, allowed), witness["mixing"])[0]))
    return answer(*first)


@reading(
    "herasimchyk2026/appendix-a.1.2",
    "mass of token 0 under kernels that dominate row by row: at most by Lemma A.4 alone, true",
)
def _induction(material: Material) -> Answer:
    witness = WITNESSES["herasimchyk-A.1.2"]
    later, earlier = (rollout_row(witness[name], witness["mixing"]) for name in ("later", "earlier"))
    return answer(float(earlier[0]), float(later[0]))


@reading(
    "herasimchyk2026/appendix-a.1.4",
    "mass of token 0 in the last row of two layers: by the printed recursion, true",
)
def _reverse(material: Material) -> Answer:
    witness = WITNESSES["herasimchyk-A.1.4"]
    kernels, mixing = witness["kernels"], witness["mixing"]
    return answer(float(rollout_row(kernels[::-1], mixing[::-1])[0]), float(rollout_row(kernels, mixing)[0]))


@reading(
    "herasimchyk2026/lemma-5.3-i", "norm of a token after 41 layers of W_V = 2, ½, 2, …: printed bound, true"
)
def _norms(material: Material) -> Answer:
    witness = WITNESSES["herasimchyk-5.3-i"]
    C, C_V = assumed_constants(**witness)
    return answer(
        C * C_V, float(run_network(**witness)[0][-1]), amended_bound=float(hidden_bound(**witness)[-1])
    )


@reading(
    "herasimchyk2026/lemma-5.3-ii", "weight of a key with positional logit −5: printed lower bound, true"
)
def _floor(material: Material) -> Answer:
    witness = WITNESSES["herasimchyk-5.3-ii"]
    hidden, positional = witness["hidden"], witness["positional"]
    query, key = witness["query"], witness["key"]
    tokens = len(hidden)
    allowed = admitted(tokens, witness["width"])
    kernel = masked_softmax((hidden @ query) @ (hidden @ key).T + positional, allowed)
    strength = max(float(operator_norm(query)), float(operator_norm(key)))
    M = (float(np.linalg.norm(hidden, axis=1).max()) * strength) ** 2
    span = float(np.ptp(positional[-1]))
    return answer(
        math.exp(-2 * M) / tokens,
        residual_bounds.smallest_admitted(kernel, allowed),
        amended_bound=residual_bounds.softmax_floor(tokens, M, span),
    )


@reading(
    "herasimchyk2026/section-5.1", "norm of a token after 20 layers of two heads, λ = 1: printed bound, true"
)
def _heads(material: Material) -> Answer:
    witness = WITNESSES["herasimchyk-5.1-values"]
    X, values = witness["hidden"], witness["values"]
    start, product, largest = float(np.linalg.norm(X, axis=1).max()), np.eye(X.shape[1]), 0.0
    for kernels, value in zip(witness["heads"], values, strict=True):
        X = (kernels @ (X @ value)).mean(axis=0)
        product = product @ value
        largest = max(largest, float(operator_norm(product).max()))
    mixing = witness["mixing"]
    amended = residual_bounds.hidden_state_bound(mixing, operator_norm(values).mean(axis=1), start)
    return answer(start * largest, float(np.linalg.norm(X, axis=1).max()), amended_bound=float(amended[-1]))


@reading(
    "herasimchyk2026/theorem-5.4-i",
    "what the first token draws from itself, λ_t = ½/(t + 1)², ε = ½: printed at most, true",
)
def _first_token(material: Material) -> Answer:
    witness = fields(TWO_TOKENS)
    rollouts, _, floor = deep_rollouts(**witness)
    limit = residual_bounds.dichotomy(PowerDecay(witness["initial"], witness["exponent"]), floor)
    return answer(
        limit.first_token, float(rollouts[-1, 0, 0]), the_other_token_draws=float(rollouts[-1, 1, 0])
    )


@reading(
    "herasimchyk2026/theorem-5.4-attention-only",
    "what the second of two tokens keeps after ten layers of even attention, λ = 1: printed bound, Wu et al.'s",
)
def _attention_only(material: Material) -> Answer:
    rollouts, mixing, floor = deep_rollouts(**fields(TWO_TOKENS | {"initial": 1.0, "exponent": 0.0}))
    bounds = residual_bounds.exponential_bound, residual_bounds.suffix_bound
    printed, theirs = (float(bound(mixing, floor, 1)[-1]) for bound in bounds)
    return answer(printed, theirs, kept=float(rollouts[-1, 1, 1]))


@reading(
    "herasimchyk2026/theorem-5.4-ii-window",
    "log10 of what the last of four tokens keeps after 200 layers, w = 2: printed bound, true",
)
def _window(material: Material) -> Answer:
    rollouts, mixing, floor = deep_rollouts(**WITNESSES["herasimchyk-5.4-ii-window"])
    kept, last = rollouts[-1, -1], rollouts.shape[-1] - 1
    printed = residual_bounds.exponential_bound(mixing, floor, last)[-1]
    amended = residual_bounds.window_bound(mixing, floor, last)
    return answer(
        math.log10(printed),
        math.log10(kept[-1]),
        printed=float(printed),
        kept=float(kept[-1]),
        amended_bound_on_all_that_the_first_token_lacks=float(amended),
    )


@reading(
    "herasimchyk2026/theorem-5.4-ii",
    "what the second token keeps after 60 layers of W_V = 30, 1/30, …: printed bound, true",
)
def _network(material: Material) -> Answer:
    witness = WITNESSES["herasimchyk-5.4-ii-network"]
    kernels, mixing = run_network(**witness)[1], witness["mixing"]
    C, C_V = assumed_constants(**witness)
    floor = math.exp(-2 * (C * C_V * C) ** 2) / len(kernels[0])
    row = rollout_row(kernels, mixing)
    return answer(float(np.prod(1 - floor * mixing)), float(1 - row[0]))
