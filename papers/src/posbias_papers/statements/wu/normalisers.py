"""What Wu et al. 2025 say of the softmax in §4.1: that it loses no edge of the mask, where ReLU can.

Logits are drawn here, of either sign; rows are those of `posbias.theory.normalisers`. With ReLU an edge is kept
where its logit is positive. Two kinds of graphs are drawn: in one every token has the first one within reach, and
the share of all others in the context falls with depth as under the softmax; in the other some tokens attend to
each other and to no token outside, and nothing of the first token ever reaches them.
"""

import math
from functools import partial

import numpy as np
from numpy.random import Generator

from posbias.theory.closed_forms.collapse_bounds import log_collapse_bound
from posbias.theory.masks import Causal
from posbias.theory.normalisers import ReLU
from posbias_papers.statements.margins import Stack, below, log_below, log_softmax, rollouts
from posbias_papers.statements.statement import OURS, Instance, Statement, statement
from posbias_papers.statements.wu import draws


def _draw_logits(rng: Generator, edge: bool) -> Instance:
    """Logits of any layers under one of the masks of §4.1, so far apart at the edge that weights underflow."""
    tokens, depth = draws.length(rng, edge), draws.depth(rng, edge, 6)
    spread = float(rng.choice([0.0, 1.0, 2000.0]) if edge else rng.choice([0.3, 3.0]))
    kind = str(rng.choice(["causal", "window", "prefix", "full"]))
    size = int(rng.integers(1, tokens + 1))
    return {"logits": spread * rng.normal(size=(depth, tokens, tokens)), "kind": kind, "size": size}


def _slack_edges(logits: Stack, kind: str, size: int) -> float:
    """ln of every admitted weight against −span − ln n, span that of its row's logits; others are zero."""
    tokens = logits.shape[-1]
    allowed = draws.mask_of(kind, int(size)).allowed(tokens)
    rows = np.where(allowed, logits, np.nan)
    span = np.nanmax(rows, axis=-1, keepdims=True) - np.nanmin(rows, axis=-1, keepdims=True)
    least = -span - math.log(tokens)
    log_weights = log_softmax(logits, allowed)
    return log_below(np.broadcast_to(least, logits.shape)[:, allowed], log_weights[:, allowed])


def _draw_signs(rng: Generator, edge: bool, apart: bool) -> Instance:
    """Logits of either sign under the causal mask, by layer.

    The first token's own is positive. `apart`: a set of other tokens has positive logits within and none outside;
    else every token has a positive one on an earlier token, some edges being lost.
    """
    tokens, depth = max(3, draws.length(rng, edge)), draws.depth(rng, edge)
    signs = np.where(rng.random((depth, tokens, tokens)) < rng.choice([0.2, 0.5, 0.8]), 1.0, -1.0)
    queries = np.arange(tokens)
    signs[:, 0, 0] = 1.0
    if apart:
        group = np.append(False, rng.random(tokens - 1) < 0.5)
        group[rng.integers(1, tokens)] = True
        signs[:, group] = np.where(group, signs[:, group], -1.0)
        signs[:, queries[group], queries[group]] = 1.0
    else:
        earlier = rng.integers(0, np.maximum(queries, 1), size=(depth, tokens))
        signs[np.arange(depth)[:, None], queries, earlier] = 1.0
        signs[:, tokens - 1, tokens - 2] = -1.0 if tokens > 2 else 1.0
        signs[:, tokens - 1, 0] = 1.0
    size = np.full(signs.shape, 1.0) if edge and rng.random() < 0.5 else rng.uniform(0.1, 3, signs.shape)
    return {"logits": signs * size}


def relu_rollouts(logits: Stack) -> Stack:
    """P⁽ᵗ⁾ for every t of causal layers whose rows ReLU makes of these logits, bottom first."""
    allowed = Causal().allowed(logits.shape[-1])
    return rollouts(ReLU().weights_of(np.where(allowed, logits, -np.inf)))


def softmax_rollouts(logits: Stack) -> Stack:
    """The same where a softmax makes them."""
    allowed = Causal().allowed(logits.shape[-1])
    return rollouts(np.exp(log_softmax(logits, allowed)))


def _slack_apart(logits: Stack) -> float:
    """Tokens that no kept edges lead to the first draw nothing on it; by softmax all others hold Π(1 − ε) at most.

    Where edges lead every token to the first one there is nothing to show: slack −1.
    """
    causal = Causal().allowed(logits.shape[-1])
    reach, cut = np.eye(logits.shape[-1], dtype=bool), np.ones(logits.shape[-1], dtype=bool)
    for kept in causal & (logits > 0):
        reach = (kept.astype(int) @ reach.astype(int)) > 0
        cut &= ~reach[:, 0]
    if not cut.any():
        return -1.0
    drawn = float(relu_rollouts(logits)[:, cut, 0].max())
    floors = np.exp(log_softmax(logits, causal)[:, causal].min(axis=1))
    left = softmax_rollouts(logits)[:, :, 1:].sum(axis=2).max(axis=1)
    collapse = below(left, log_collapse_bound(floors, 1))
    return collapse if drawn == 0 else -drawn


def _slack_within_reach(logits: Stack) -> float:
    """All but the first token hold at most (1 − εʰ)^⌊(t+1)/h⌋, h = n − 1, ε the least weight that is kept."""
    tokens = logits.shape[-1]
    weights = ReLU().weights_of(np.where(Causal().allowed(tokens), logits, -np.inf))
    log_least = (tokens - 1) * math.log(float(weights[weights > 0].min()))
    blocks = np.arange(1, len(logits) + 1) // (tokens - 1)
    escaped = math.log1p(-math.exp(log_least)) if log_least < 0 else -math.inf
    bound = np.array([count * escaped if count else 0.0 for count in blocks.tolist()])
    left = relu_rollouts(logits)[:, :, 1:].sum(axis=2).max(axis=1)
    return below(left[left > 0], bound[left > 0])


SOFTMAX: tuple[Statement, ...] = (
    statement(
        "wu-4.1-softmax",
        "Section 4.1, the role of softmax",
        "softmax disconnects no edge: every weight that the mask admits is at least e^(min − max)/N of its row's "
        "logits",
        _draw_logits,
        _slack_edges,
        note="Holds, for finite logits; in float64 a weight may underflow to zero, so logarithms are compared.",
    ),
    statement(
        "wu-4.1-relu-apart",
        "Section 4.1, ReLU, edges lost",
        "ReLU in place of softmax, logits of either sign: an edge is kept where its logit is positive; tokens "
        "from which no kept edges lead to the first draw nothing on it at any depth, while under the softmax of "
        "the same logits all but the first hold at most Π(1 − ε)",
        partial(_draw_signs, apart=True),
        _slack_apart,
        about=OURS,
        note="Holds: the collapse onto the first token need not happen; these instances show that it can fail to, "
        "not that trained networks do so. The text says that others found ReLU to mitigate sinks, and why it can. "
        "Rows are divided by their sums; one without a positive logit is empty.",
    ),
    statement(
        "wu-4.1-relu-reach",
        "Section 4.1, ReLU, edges kept",
        "ReLU in place of softmax, every token with a positive logit on an earlier one: all but the first hold at "
        "most (1 − εʰ)^⌊(t+1)/h⌋ together, h = N − 1, ε the least weight that is kept",
        partial(_draw_signs, apart=False),
        _slack_within_reach,
        about=OURS,
        note="Holds: where the edges that are kept lead everywhere back to the first token the collapse stays, "
        "however many others are lost.",
    ),
)
"""What is said of the softmax, and what ReLU does instead."""
