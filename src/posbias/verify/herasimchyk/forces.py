"""§4, the four forces: depth, mixing, encoding and content each move the last row of the rollout one way.

Each claim is first-order dominance between two rollouts that differ in one of them, for kernels that are
stochastically monotone. Proposition 4.5 is tried twice: as it stands, with one sign of δ in all layers, and
layer by layer, which its closing 'equivalently' suggests and which fails where a larger δ meets a kernel
that content has made non-monotone.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias import stochastic_order
from posbias.theory.rollout.kernel import masked_softmax
from posbias.verify.herasimchyk import draws
from posbias.verify.herasimchyk.margins import rollout_row, rounded, statement
from posbias.verify.statement import Instance, Statement


def _draw_distance(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    falls = rng.exponential(size=tokens) * (rng.random(tokens) < 0.5) * (40 if edge else 1)
    return {"logits": -np.cumsum(falls), "width": width}


def _slack_distance(instance: Instance) -> float:
    by_distance = np.asarray(instance["logits"], dtype=float)
    tokens = len(by_distance)
    distance = np.abs(np.subtract.outer(np.arange(tokens), np.arange(tokens)))
    return stochastic_order.monotonicity(
        masked_softmax(by_distance[distance], draws.admitted(tokens, instance["width"]))
    ).margin


def slack_depth(instance: Instance) -> float:
    """Least gain of any prefix from one depth to the next, the input (depth 0) included."""
    kernels, mixing = instance["kernels"], instance["mixing"]
    rows = [rollout_row(kernels[:depth], mixing[:depth]) for depth in range(1, len(mixing) + 1)]
    start = np.eye(len(rows[0]))[-1]
    return min(
        float(stochastic_order.dominance(before, after))
        for before, after in zip([start, *rows], rows, strict=False)
    )


def _draw_schedules(rng: Generator, edge: bool) -> Instance:
    stack = draws.stack(rng, edge)
    pair = np.sort([stack["mixing"], draws.mixing(rng, len(stack["mixing"]), edge)], axis=0)
    # some layers keep their λ (at the edge all but the top): what is raised is seen through their kernels
    larger = np.where(rng.random(len(pair[0])) < 0.5, pair[0], pair[1])
    if edge and rng.random() < 0.5:
        larger = np.ones_like(larger)
        pair[0] = larger - np.eye(len(larger))[-1]
    return {"kernels": stack["kernels"], "mixing": pair[0], "larger_mixing": larger}


def _slack_schedules(instance: Instance) -> float:
    kernels = instance["kernels"]
    return float(
        stochastic_order.dominance(
            rollout_row(kernels, instance["mixing"]), rollout_row(kernels, instance["larger_mixing"])
        )
    )


def draw_encoding(rng: Generator, edge: bool) -> Instance:
    """Two inputs per layer, neither need be monotone, their mean is; logits that rise along each row."""
    (tokens, width), depth = draws.size(rng, edge), int(rng.integers(1, 6))
    content, positional = [], []
    for _ in range(depth):
        kernel = draws.positive(rng, tokens, width, edge)
        tilt = rng.uniform(-0.9, 0.9, kernel.shape)
        tilt = (tilt - (kernel * tilt).sum(axis=1, keepdims=True)) / 2
        constants = rng.normal(size=(2, tokens, 1))
        content.append(
            np.stack([draws.log_weights(kernel * (1 + tilt)), draws.log_weights(kernel * (1 - tilt))])
            + constants
        )
        rises = rng.exponential(size=kernel.shape) * (rng.random(kernel.shape) < rng.random())
        positional.append(np.cumsum(rises, axis=1) * (rng.choice([0.0, 100.0]) if edge else 1.0))
    mixing = draws.mixing(rng, depth, edge)
    if edge and rng.random() < 0.5:  # a change in the top layer, seen through all others
        positional[:-1], mixing = [np.zeros_like(one) for one in positional[:-1]], np.ones(depth)
    return {
        "content": np.array(content),
        "positional": np.array(positional),
        "mixing": mixing,
        "width": width,
    }


def _slack_encoding(instance: Instance) -> float:
    content, positional = np.asarray(instance["content"]), np.asarray(instance["positional"])[:, None]
    allowed = draws.admitted(content.shape[-1], instance["width"])
    plain, biased = (masked_softmax(s, allowed).mean(axis=1) for s in (content, content + positional))
    return float(
        stochastic_order.dominance(
            rollout_row(biased, instance["mixing"]), rollout_row(plain, instance["mixing"])
        )
    )


def _draw_diagonal(rng: Generator, edge: bool) -> Instance:
    (tokens, width), depth = draws.size(rng, edge), int(rng.integers(1, 6))
    sizes = rng.exponential(size=depth) * (rng.choice([0.0, 1.0, 30.0], size=depth) if edge else 2.0)
    mixing = draws.mixing(rng, depth, edge)
    if edge and rng.random() < 0.5:  # a change in the top layer, seen through all others
        sizes[:-1], mixing = 0.0, np.ones(depth)
    return {
        "positional": np.stack(
            [draws.log_weights(draws.positive(rng, tokens, width, edge)) for _ in range(depth)]
        ),
        "diagonal": sizes * rng.choice([-1.0, 1.0]),
        "mixing": mixing,
        "width": width,
        "query": int(rng.integers(1, tokens)),
    }


def _with_diagonal(instance: Instance, diagonal: Any) -> Float[np.ndarray, "layer query key"]:
    positional = np.asarray(instance["positional"], dtype=float)
    tokens = positional.shape[-1]
    extra = np.asarray(diagonal, dtype=float)[:, None, None] * np.eye(tokens)
    return masked_softmax(positional + extra, draws.admitted(tokens, instance["width"]))


def _content_row(instance: Instance, diagonal: Any) -> Float[np.ndarray, "key"]:
    """The rollout's row of the query up to itself, so that the cutoffs are those before it."""
    query = instance["query"]
    return rollout_row(_with_diagonal(instance, diagonal), instance["mixing"], query)[: query + 1]


def _slack_diagonal(instance: Instance) -> float:
    diagonal = np.asarray(instance["diagonal"], dtype=float)
    with_content, without = _content_row(instance, diagonal), _content_row(instance, 0 * diagonal)
    return float(
        stochastic_order.dominance(with_content, without)
        if (diagonal >= 0).all()
        else stochastic_order.dominance(without, with_content)
    )


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
    kernels = zip(_with_diagonal(instance, smaller), _with_diagonal(instance, larger), strict=True)
    for layer, pair in enumerate(kernels):
        if not any(stochastic_order.monotonicity(kernel).holds for kernel in pair):
            (smaller if larger[layer] > 0 else larger)[layer] = 0.0
    return instance


def _slack_raised(instance: Instance) -> float:
    smaller, larger = (_content_row(instance, instance[key]) for key in ("diagonal", "larger_diagonal"))
    return float(stochastic_order.dominance(larger, smaller))


FORCES: tuple[Statement, ...] = (
    statement(
        "4.1",
        "Assumption 4.1 (remark)",
        rounded(
            "Logits that do not rise with distance give stochastically monotone kernels under causal and "
            "sliding-window masks.",
            _draw_distance,
            _slack_distance,
        ),
        note="Neither a full mask (weights 1, 1, 0.1, 0.1 by distance) nor logits that rise with distance, "
        "as those of RoPE may, need give a monotone kernel.",
    ),
    statement(
        "4.2",
        "Proposition 4.2",
        rounded(
            "Each prefix mass of the last row grows with every layer added on top, from depth 0 on.",
            draws.stack,
            slack_depth,
        ),
        note="Monotone kernels suffice: the proof never uses the mask, so the drift is not the mask's alone.",
    ),
    statement(
        "4.3",
        "Proposition 4.3",
        rounded("λ ≤ λ′ in every layer gives p ⪰ p′.", _draw_schedules, _slack_schedules),
        note="The printed induction needs Lemma A.2 beside Lemma A.4; see Appendix A.1.2.",
    ),
    statement(
        "4.4",
        "Proposition 4.4",
        rounded(
            "Logits that rise towards recent keys, added to any content whose mean kernel is monotone, give "
            "a later rollout.",
            draw_encoding,
            _slack_encoding,
        ),
        note="Two inputs per layer, monotone only in the mean. The printed induction needs Lemma A.2 too.",
    ),
    statement(
        "4.5",
        "Proposition 4.5",
        rounded(
            "δ ≥ 0 in all layers gives a later row than δ = 0, δ ≤ 0 in all layers an earlier one.",
            _draw_diagonal,
            _slack_diagonal,
        ),
        note="Says nothing where δ changes sign between layers, as it does in measured models.",
    ),
    statement(
        "4.5-layerwise",
        "Proposition 4.5, layer by layer",
        rounded(
            "Raising δ in any layer, others of either sign left as they are, gives a later row.",
            _draw_raised,
            _slack_raised,
        ),
        corrected=rounded(
            "It does where in every layer the kernel with the smaller or with the larger δ is itself "
            "monotone.",
            _draw_raised_monotone,
            _slack_raised,
        ),
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
        note="The closing 'equivalently' read for single layers and mixed signs: a monotone baseline does "
        "not keep the kernel with content monotone, and then a larger δ above it can move mass to earlier "
        "tokens.",
    ),
)
"""§4: the remark on Assumption 4.1, Propositions 4.2 to 4.5."""
