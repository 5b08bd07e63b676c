"""Lemma 5.3: norms stay bounded, and so every admitted weight stays above a floor.

Part (i) fails for the residual update: bounded products of value matrices do not bound a stream that skips
them, as running such networks shows. Part (ii) bounds content logits only, so its floor fails wherever
positional logits matter, which one attention kernel shows.
"""

from typing import Any

import numpy as np
from numpy.random import Generator

from posbias.theory.closed_forms import residual_bounds
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.statements.herasimchyk import draws
from posbias_papers.statements.herasimchyk.network import (
    assumed_constants,
    draw_network,
    growing,
    hidden_bound,
    run_network,
)
from posbias_papers.statements.margins import distances, operator_norm, room
from posbias_papers.statements.statement import OURS, Instance, Statement, both_readings, statement


def _slack_bounded(corrected: bool, **network: Any) -> float:
    C, C_V = assumed_constants(**network)
    norms = run_network(**network)[0]
    if not corrected:
        return room(norms, C * C_V)
    whole = room(run_network(**network, whole_stream=True)[0], C * C_V)
    return min(whole, room(norms, hidden_bound(**network)))


def _draw_attention(rng: Generator, edge: bool) -> Instance:
    (tokens, width), dim = draws.size(rng, edge), int(rng.integers(1, 4))
    hidden = rng.normal(size=(tokens, dim)) / np.sqrt(dim)
    weights = rng.normal(size=(2, dim, dim)) / np.sqrt(dim)
    if edge:  # the first key opposite to all others: the sharp case
        hidden, weights = np.ones((tokens, 1)), np.full((2, 1, 1), rng.choice([0.0, 1.0, 1.4]))
        hidden[0] = -1.0
    slope = rng.choice([0.0, 0.5, 5.0])
    positional = -slope * np.abs(distances(tokens))
    attention = {"hidden": hidden, "query": weights[0], "key": weights[1], "positional": positional}
    return attention | {"width": width}


def _slack_floor(hidden: Any, query: Any, key: Any, positional: Any, width: int, corrected: bool) -> float:
    allowed = draws.admitted(len(hidden), width)
    kernel = masked_softmax((hidden @ query) @ (hidden @ key).T + positional, allowed)
    C, C_X = max(operator_norm(query), operator_norm(key)), np.linalg.norm(hidden, axis=1).max()
    M = float((C_X * C) ** 2)
    floor = np.exp(-2 * M) / len(hidden)
    if corrected:
        high, low = (np.where(allowed, positional, fill) for fill in (-np.inf, np.inf))
        ranges = high.max(axis=1) - low.min(axis=1)
        floor = residual_bounds.softmax_floor(int(allowed.sum(axis=1).max()), M, float(ranges.max()))
    return room(floor, residual_bounds.smallest_admitted(kernel, allowed), kernel, lower=True)


UPDATE = "networks under Assumptions 5.1 and 5.2 with the residual update of Section 3, written with W_V"
SEEN = "any network with bounded hidden states, whose positional logits are bounded too"
BOUNDED: tuple[Statement, ...] = (
    statement(
        "herasimchyk-5.3-i",
        "Lemma 5.3 (i)",
        "Under Assumptions 5.1 and 5.2 and ‖X⁽⁰⁾‖ ≤ C, the residual update X ← (1 − λ)X + λAXW_V keeps every "
        "token's norm bounded at all depths (by C_X = C·C_V).",
        draw_network,
        both_readings(_slack_bounded),
        corrected="Norms stay within C·C_V if W_V acts on the residual stream too, X ← ((1 − λ)I + λA)XW_V; "
        "for the residual update they stay within the input's times Π(1 − λ + λ‖W_V‖).",
        witness=growing([[1.0]], 1.0, 2.0, 41),
        about={"scope": UPDATE},
        note="The proof writes X⁽ᵗ⁾ = P⁽ᵗ⁾X⁽⁰⁾V⁽ᵗ⁾, true without residuals or if W_V multiplies them. "
        "Otherwise W_V = 2, ½, 2, … (products ≤ 2) with λ = ½ grows by 9/8 every two layers, beyond any C_X; "
        "‖W_V‖ ≤ 1 suffices.",
    ),
    statement(
        "herasimchyk-5.3-ii",
        "Lemma 5.3 (ii)",
        "Every admitted weight is at least e^(−2M)/n, M = (C_X C)², whatever the positional logits.",
        _draw_attention,
        both_readings(_slack_floor),
        corrected="Every admitted weight is at least 1/(1 + (k − 1)e^(2M + B)), for k keys in the longest "
        "row and positional logits that range over B within a row.",
        witness={
            "hidden": [[0.1], [0.1]],
            "query": [[1.0]],
            "key": [[1.0]],
            "positional": [[0.0, -5.0], [-5.0, 0.0]],
            "width": 2,
        },
        asserts="Where hidden states are bounded as in (i), there is an ε > 0, the same at all depths, below "
        "every admitted weight (positional logits that range over no more than B).",
        about={"scope": SEEN, "proof": OURS},
        note="The proof prints no constant: this is the nearest. It bounds content logits only, though "
        "§5 makes 'no assumptions on positional encodings': an ε for all depths exists if their range is bounded "
        "over layers (and C_X exists; see 5.3 (i)).",
    ),
)
"""Lemma 5.3 (i) and (ii)."""
