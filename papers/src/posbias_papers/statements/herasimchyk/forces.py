"""§4, the four forces: depth, mixing, encoding and content each move the last row of the rollout one way.

Each claim is first-order dominance between two rollouts that differ in one of them, for kernels that are
stochastically monotone. Proposition 4.5 is tried twice: as it stands, with one sign of δ in all layers, and
layer by layer, which its closing 'equivalently' suggests and which fails where a larger δ meets a kernel
that content has made non-monotone.
"""

from typing import Any

import numpy as np
from numpy.random import Generator

from posbias.profiles import stochastic_order
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.statements.herasimchyk import draws
from posbias_papers.statements.margins import Stack, distances, dominance, rollout_row
from posbias_papers.statements.statement import OURS, ROUNDING, Instance, Statement, statement


def _draw_distance(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    falls = rng.exponential(size=tokens) * (rng.random(tokens) < 0.5) * (40 if edge else 1)
    return {"logits": -np.cumsum(falls), "width": width}


def _slack_distance(logits: Any, width: int) -> float:
    tokens = len(logits)
    kernel = masked_softmax(logits[np.abs(distances(tokens))], draws.admitted(tokens, width))
    return stochastic_order.monotonicity(kernel).margin


def slack_depth(kernels: Stack, mixing: Any, width: int | None = None) -> float:
    """Least gain of any prefix from one depth to the next, the input (depth 0) included."""
    rows = [rollout_row(kernels[:depth], mixing[:depth]) for depth in range(1, len(mixing) + 1)]
    start = np.eye(len(rows[0]))[-1]
    return min(dominance(*pair) for pair in zip([start, *rows], rows, strict=False))


def _draw_schedules(rng: Generator, edge: bool) -> Instance:
    stack = draws.stack(rng, edge)
    pair = np.sort([stack["mixing"], draws.mixing(rng, len(stack["mixing"]), edge)], axis=0)
    # some layers keep their λ (at the edge all but the top): what is raised is seen through their kernels
    larger = np.where(rng.random(len(pair[0])) < 0.5, pair[0], pair[1])
    if edge and rng.random() < 0.5:
        larger = np.ones_like(larger)
        pair[0] = larger - np.eye(len(larger))[-1]
    return {"kernels": stack["kernels"], "mixing": pair[0], "larger_mixing": larger}


def _slack_schedules(kernels: Stack, mixing: Any, larger_mixing: Any) -> Any:
    return dominance(rollout_row(kernels, mixing), rollout_row(kernels, larger_mixing))


def draw_encoding(rng: Generator, edge: bool) -> Instance:
    """Two inputs per layer, neither need be monotone, their mean is; logits that rise along each row."""
    (tokens, width), depth = draws.size(rng, edge), int(rng.integers(1, 6))
    content, positional = [], []
    for _ in range(depth):
        kernel = draws.positive(rng, tokens, width, edge)
        tilt = rng.uniform(-0.9, 0.9, kernel.shape)
        tilt = (tilt - (kernel * tilt).sum(axis=1, keepdims=True)) / 2
        constants = rng.normal(size=(2, tokens, 1))
        inputs = [draws.log_weights(kernel * (1 + sign * tilt)) for sign in (1, -1)]
        content.append(np.stack(inputs) + constants)
        rises = rng.exponential(size=kernel.shape) * (rng.random(kernel.shape) < rng.random())
        positional.append(np.cumsum(rises, axis=1) * (rng.choice([0.0, 100.0]) if edge else 1.0))
    mixing = draws.mixing(rng, depth, edge)
    if edge and rng.random() < 0.5:  # a change in the top layer, seen through all others
        positional[:-1], mixing = [np.zeros_like(one) for one in positional[:-1]], np.ones(depth)
    layers = {"content": np.array(content), "positional": np.array(positional)}
    return layers | {"mixing": mixing, "width": width}


def _slack_encoding(content: Any, positional: Any, mixing: Any, width: int) -> Any:
    allowed = draws.admitted(content.shape[-1], width)
    logits = (content, content + positional[:, None])
    plain, biased = (masked_softmax(each, allowed).mean(axis=1) for each in logits)
    return dominance(rollout_row(biased, mixing), rollout_row(plain, mixing))


def _draw_diagonal(rng: Generator, edge: bool) -> Instance:
    (tokens, width), depth = draws.size(rng, edge), int(rng.integers(1, 6))
    sizes = rng.exponential(size=depth) * (rng.choice([0.0, 1.0, 30.0], size=depth) if edge else 2.0)
    mixing = draws.mixing(rng, depth, edge)
    if edge and rng.random() < 0.5:  # a change in the top layer, seen through all others
        sizes[:-1], mixing = 0.0, np.ones(depth)
    positional = [draws.log_weights(draws.positive(rng, tokens, width, edge)) for _ in range(depth)]
    return {
        "positional": np.stack(positional),
        "diagonal": sizes * rng.choice([-1.0, 1.0]),
        "mixing": mixing,
        "width": width,
        "query": int(rng.integers(1, tokens)),
    }


def _with_diagonal(positional: Stack, diagonal: Any, width: int) -> Stack:
    tokens = positional.shape[-1]
    return masked_softmax(
        positional + diagonal[:, None, None] * np.eye(tokens), draws.admitted(tokens, width)
    )


def _content_row(diagonal: Any, positional: Stack, mixing: Any, width: int, query: int) -> Any:
    """The rollout's row of the query up to itself, so that the cutoffs are those before it."""
    return rollout_row(_with_diagonal(positional, diagonal, width), mixing, query)[: query + 1]


def _slack_diagonal(diagonal: Any, **layers: Any) -> Any:
    with_content, without = _content_row(diagonal, **layers), _content_row(0 * diagonal, **layers)
    pair = (with_content, without) if (diagonal >= 0).all() else (without, with_content)
    return dominance(*pair)


def _draw_raised(rng: Generator, edge: bool) -> Instance:
    """δ of any sign, and another that is nowhere smaller."""
    if edge and rng.random() < 0.5:
        return _draw_crossing(rng)
    instance = dict(_draw_diagonal(rng, edge))
    smaller, rise = rng.normal(0, 2, len(instance["diagonal"])), rng.exponential(3, len(instance["diagonal"]))
    larger = smaller + rise * (rng.random(len(rise)) < 0.5)
    return instance | {"diagonal": smaller, "larger_diagonal": larger}


def _draw_crossing(rng: Generator) -> Instance:
    """A bottom layer whose δ > 0 keeps the second token's mass, not the later ones', and a δ raised above."""
    tokens = int(rng.integers(3, 7))
    bottom = np.eye(tokens)
    for i in range(1, tokens):
        bottom[i, i] = rng.uniform(0.3, 0.7) if i == 1 else 10.0 ** -rng.uniform(1, 3)
        bottom[i, :i] = (1 - bottom[i, i]) * bottom[i - 1, :i]
    top = np.zeros((tokens, tokens))
    top[:, 0] = -rng.uniform(2, 9)
    diagonal = np.array([rng.uniform(1, 4), 0.0])
    return {
        "positional": np.stack([draws.log_weights(bottom), top]),
        "diagonal": diagonal,
        "larger_diagonal": np.array([diagonal[0], rng.uniform(0, 4)]),
        "mixing": rng.uniform(0.5, 1, 2),
        "width": tokens,
        "query": tokens - 1,
    }


def _draw_raised_monotone(rng: Generator, edge: bool) -> Instance:
    """The same, where in each layer one of the two kernels is monotone: if neither is, one δ becomes 0."""
    instance = dict(_draw_raised(rng, edge))
    smaller, larger = instance["diagonal"], instance["larger_diagonal"]
    kernels = (_with_diagonal(instance["positional"], each, instance["width"]) for each in (smaller, larger))
    for layer, pair in enumerate(zip(*kernels, strict=True)):
        if not any(stochastic_order.monotonicity(kernel).holds for kernel in pair):
            (smaller if larger[layer] > 0 else larger)[layer] = 0.0
    return instance


def _slack_raised(diagonal: Any, larger_diagonal: Any, **layers: Any) -> Any:
    return dominance(_content_row(larger_diagonal, **layers), _content_row(diagonal, **layers))


FORCES: tuple[Statement, ...] = (
    statement(
        "herasimchyk-4.1",
        "Assumption 4.1 (remark)",
        "Logits that do not rise with distance give stochastically monotone kernels under causal and "
        "sliding-window masks.",
        _draw_distance,
        _slack_distance,
        tolerance=ROUNDING,
        about={"strength": "observation", "scope": "attention by distance alone", "effort": "a remark"},
        note="Neither a full mask (weights 1, 1, 0.1, 0.1 by distance) nor logits that rise with distance, "
        "as those of RoPE may, need give a monotone kernel.",
    ),
    statement(
        "herasimchyk-4.2",
        "Proposition 4.2",
        "Each prefix mass of the last row grows with every layer added on top.",
        draws.stack,
        slack_depth,
        tolerance=ROUNDING,
        note="Monotone kernels suffice: the proof never uses the mask, so the drift is not the mask's alone.",
    ),
    statement(
        "herasimchyk-4.3",
        "Proposition 4.3",
        "λ ≤ λ′ in every layer gives p ⪰ p′.",
        _draw_schedules,
        _slack_schedules,
        tolerance=ROUNDING,
        note="The printed induction needs Lemma A.2 beside Lemma A.4; see Appendix A.1.2.",
    ),
    statement(
        "herasimchyk-4.4",
        "Proposition 4.4",
        "Logits that rise towards recent keys, added to any content whose mean kernel is monotone, give a "
        "later rollout.",
        draw_encoding,
        _slack_encoding,
        tolerance=ROUNDING,
        note="Two inputs per layer, monotone only in the mean. The printed induction needs Lemma A.2 too.",
    ),
    statement(
        "herasimchyk-4.5",
        "Proposition 4.5",
        "δ ≥ 0 in all layers gives a later row than δ = 0, δ ≤ 0 in all layers an earlier one.",
        _draw_diagonal,
        _slack_diagonal,
        tolerance=ROUNDING,
        note="Says nothing where δ changes sign between layers, as it does in measured models.",
    ),
    statement(
        "herasimchyk-4.5-layerwise",
        "Proposition 4.5, layer by layer",
        "Raising δ in any layer, others of either sign left as they are, gives a later row.",
        (_draw_raised, _draw_raised_monotone),
        _slack_raised,
        corrected="It does where in every layer the kernel with the smaller or with the larger δ is itself "
        "monotone.",
        tolerance=ROUNDING,
        witness={
            "positional": [
                [[0.0, 0.0, 0.0], np.log([0.5, 0.5, 1.0]).tolist(), np.log([0.49, 0.5, 0.01]).tolist()],
                [[0.0, 0.0, 0.0], [-8.0, 0.0, 0.0], [-9.0, 0.0, 0.0]],
            ],
            "diagonal": [2.0, 0.0],
            "larger_diagonal": [2.0, 3.0],
            "mixing": [1.0, 1.0],
            "width": 3,
            "query": 2,
        },
        about={**OURS, "scope": "δ of either sign, raised in single layers"},
        note="Proposition 4.5 stands. The closing 'equivalently' read for single layers and mixed "
        "signs: a monotone baseline does not keep the kernel with content monotone, and then a larger δ above it "
        "can move mass to earlier tokens.",
    ),
)
"""§4: the remark on Assumption 4.1, Propositions 4.2 to 4.5."""
