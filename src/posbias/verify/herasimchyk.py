"""The statements of Herasimchyk et al. 2026 (§4, §5, Appendix A), each as something that can be tried.

Finite depth: kernels are drawn stochastically monotone in several ways (`_monotone`) and the claim is a signed
margin of first-order dominance. Infinite depth: made concrete with the constants the proofs give at every
finite depth (ε the smallest admitted weight, C′ = 1), so that a bound is compared at each layer. Statements
about a network run one: X ← (1 − λ)X + λ·A·X·W_V, the residual update of §3, with A = softmax(X W_Q (X W_K)ᵀ).

Positions and layers count from 0 here, bottom layer first.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.random import Generator

from posbias.theory import residual
from posbias.theory.architecture import Layer
from posbias.theory.kernel import layer_kernel, masked_softmax, push
from posbias.theory.masks import SlidingWindow
from posbias.theory.mixing import PowerDecay
from posbias.theory.order import dominance, monotonicity
from posbias.theory.positional import ALiBi, Decay, NoPE
from posbias.verify.statement import Instance, Reading, Statement

SOURCE = "herasimchyk2026"
ROUNDING = 1e-12
"""What prefix masses of a few layers in float64 may be off by."""

Draw = Callable[[Generator, bool], Instance]
Matrix = Float[np.ndarray, "query key"]


# --- what is drawn -----------------------------------------------------------------------------------------


def _allowed(tokens: int, width: int) -> Bool[np.ndarray, "query key"]:
    return SlidingWindow(int(width)).allowed(tokens)


def _size(rng: Generator, edge: bool) -> tuple[int, int]:
    """Tokens and window width; half of the windows are as wide as the text, which is the causal mask."""
    tokens = 2 if edge and rng.random() < 0.5 else int(rng.integers(2, 9))
    return tokens, tokens if rng.random() < 0.5 else int(rng.integers(1, tokens + 1))


def _coefficients(rng: Generator, depth: int, edge: bool) -> Float[np.ndarray, "layer"]:
    if edge:
        return rng.choice([0.0, 1e-9, 0.5, 1.0], size=depth)
    return rng.random() * np.arange(1.0, depth + 1) ** -rng.choice([0.0, 1.0]) * rng.random(depth) ** 0.2


def _prefixes(rng: Generator, tokens: int, width: int, edge: bool, ahead: bool = False) -> Matrix:
    """Prefix masses of random rows inside the mask; `ahead` admits every key, `edge` has ties and zeros."""
    prefix = np.zeros((tokens, tokens))
    sharpness = rng.choice([0.1, 1.0, 5.0])
    for i in range(tokens):
        first, last = (0, tokens - 1) if ahead else (max(0, i - width + 1), i)
        cuts = rng.random(last - first) ** sharpness
        prefix[i, first:last] = np.sort(np.round(4 * cuts) / 4 if edge else cuts)
        prefix[i, last:] = 1.0
    return prefix


def _kernel(prefix: Matrix) -> Matrix:
    return np.diff(prefix, axis=-1, prepend=0.0)


def _monotone(rng: Generator, tokens: int, width: int, edge: bool, ahead: bool = False) -> Matrix:
    """A stochastically monotone kernel inside the mask, in one of seven ways."""
    way = int(rng.integers(7))
    if way == 0:  # order statistics of the prefix masses of random rows
        return _kernel(-np.sort(-_prefixes(rng, tokens, width, edge, ahead), axis=0))
    if way == 1:  # their running minimum: every row dominates those before it, with many ties
        return _kernel(np.minimum.accumulate(_prefixes(rng, tokens, width, edge, ahead), axis=0))
    if way == 2:  # a mixture of non-decreasing maps i ↦ key, one map at the edge
        maps = rng.integers(0, tokens, (1 if edge else 4, tokens))
        keys = np.sort(maps, axis=1)
        if not ahead:
            keys = np.clip(keys, np.maximum(0, np.arange(tokens) - width + 1), np.arange(tokens))
        return np.eye(tokens)[keys].mean(axis=0)
    if way == 3:  # logits of the key alone
        logits = np.tile(rng.normal(0, 30 if edge else 2, tokens), (tokens, 1))
        return masked_softmax(logits, _allowed(tokens, width))
    if way == 4:  # what the theory of this package gives
        slope = float(rng.choice([0.0, 40.0]) if edge else rng.exponential())
        heads = int(rng.integers(1, 5))
        positional = [NoPE(), ALiBi(), Decay(slope)][rng.integers(3)]
        return layer_kernel(Layer(heads=heads, positional=positional, mask=SlidingWindow(width)), tokens)
    if way == 5 and width == tokens:  # each row is the one before it, with a little moved to the token itself
        kernel = np.eye(tokens)
        for i in range(1, tokens):
            own = rng.choice([0.0, 1e-9, 1.0]) if edge else rng.random() ** rng.choice([1, 10])
            kernel[i, :i] = (1 - own) * kernel[i - 1, :i]
            kernel[i, i] = own
        return kernel
    return 0.5 * (_monotone(rng, tokens, width, edge) + _monotone(rng, tokens, width, edge, ahead))


def _positive(rng: Generator, tokens: int, width: int, edge: bool) -> Matrix:
    """A stochastically monotone kernel with weight on every admitted pair."""
    share = rng.choice([1e-6, 1.0]) if edge else rng.choice([0.02, 0.3])
    even = layer_kernel(Layer(mask=SlidingWindow(width)), tokens)
    return (1 - share) * _monotone(rng, tokens, width, edge) + share * even


def _logits(kernel: Matrix) -> Matrix:
    """Logits whose softmax over the kernel's support is the kernel; finite everywhere, so that JSON has them."""
    return np.log(np.where(kernel > 0, kernel, 1.0))


def _stack(rng: Generator, edge: bool) -> dict[str, Any]:
    (tokens, width), depth = _size(rng, edge), int(rng.integers(1, 9))
    kernels = np.stack([_monotone(rng, tokens, width, edge) for _ in range(depth)])
    return {"kernels": kernels, "mixing": _coefficients(rng, depth, edge), "width": width}


def _ordered(rng: Generator, shape: tuple[int, int], edge: bool) -> tuple[Matrix, Matrix]:
    """Two kernels, the first dominating the second row by row or equal to it, neither need be monotone."""
    one, other = (_prefixes(rng, *shape, edge) for _ in range(2))
    if rng.random() < 0.4:
        other = one
    return _kernel(np.minimum(one, other)), _kernel(np.maximum(one, other))


def _room(value: Any, bound: Any) -> float:
    """The least of bound − value, in units of the larger of the two (both ≥ 0): within [−1, 1]."""
    value, bound = np.broadcast_arrays(np.asarray(value, dtype=float), np.asarray(bound, dtype=float))
    larger = np.maximum(value, bound)
    return float(np.divide(bound - value, larger, out=np.zeros(larger.shape), where=larger > 0).min())


def _rollout_row(kernels: Any, mixing: Any, query: int = -1) -> Float[np.ndarray, "key"]:
    kernels = np.asarray(kernels, dtype=float)
    row = np.eye(kernels.shape[-1])[query]
    return push(row, kernels[::-1], np.asarray(mixing, dtype=float)[::-1])


# --- Appendix A.1: the order -------------------------------------------------------------------------------


def _draw_definition(rng: Generator, edge: bool) -> Instance:
    tokens, width = _size(rng, edge)
    if rng.random() < 0.5:
        kernel = _monotone(rng, tokens, width, edge, ahead=True)
    else:
        kernel = _kernel(_prefixes(rng, tokens, width, edge, ahead=True))
    values = np.sort(rng.random((5, tokens)) if not edge else rng.integers(0, 2, (5, tokens)) * 1.0, axis=1)
    return {"kernel": kernel, "values": values}


def _slack_definition(instance: Instance) -> float:
    kernel, values = np.asarray(instance["kernel"]), np.asarray(instance["values"])
    by_prefix = monotonicity(kernel).margin
    # the indicators of later positions are themselves increasing functions, and give each prefix mass
    indicators = np.triu(np.ones(kernel.shape), k=1)[:-1]

    def least_rise(functions: np.ndarray) -> float:
        means = functions @ kernel.T
        return float(min((means[:, j + 1 :] - means[:, [j]]).min() for j in range(len(kernel) - 1)))

    exact = -abs(least_rise(indicators) - by_prefix)
    return min(exact, least_rise(values) - min(by_prefix, 0.0))


def _draw_preserved(rng: Generator, edge: bool) -> Instance:
    tokens, width = _size(rng, edge)
    pair = np.sort(_prefixes(rng, tokens, width, edge, ahead=True)[:2], axis=0)
    kernel = _monotone(rng, tokens, width, edge, ahead=True)
    return {"kernel": kernel, "later": _kernel(pair[:1])[0], "earlier": _kernel(pair[1:])[0]}


def _slack_preserved(instance: Instance) -> float:
    kernel = np.asarray(instance["kernel"])
    return float(dominance(np.asarray(instance["later"]) @ kernel, np.asarray(instance["earlier"]) @ kernel))


def _slack_residual(instance: Instance) -> float:
    kernels = zip(np.asarray(instance["kernels"]), np.asarray(instance["mixing"]), strict=True)
    return min(monotonicity((1 - lam) * np.eye(len(A)) + lam * A).margin for A, lam in kernels)


def _draw_rowwise(rng: Generator, edge: bool) -> Instance:
    tokens, width = _size(rng, edge)
    later, earlier = _ordered(rng, (tokens, width), edge)
    return {"later": later, "earlier": earlier, "mass": rng.dirichlet(np.full(tokens, 0.3 if edge else 1.0))}


def _slack_rowwise(instance: Instance) -> float:
    mass = np.asarray(instance["mass"])
    return float(dominance(mass @ np.asarray(instance["later"]), mass @ np.asarray(instance["earlier"])))


def _draw_vector(rng: Generator, edge: bool) -> Instance:
    tokens, width = _size(rng, edge)
    values = rng.integers(-1, 2, tokens) * 1.0 if edge else rng.normal(size=tokens)
    return {"kernel": _monotone(rng, tokens, width, edge, ahead=True), "values": -np.sort(-values)}


def _slack_vector(instance: Instance) -> float:
    values = np.asarray(instance["values"], dtype=float)
    return float(-np.diff(np.asarray(instance["kernel"]) @ values).max() / max(np.abs(values).max(), 1e-300))


# --- §4: the four forces -----------------------------------------------------------------------------------


def _draw_distance(rng: Generator, edge: bool) -> Instance:
    tokens, width = _size(rng, edge)
    falls = rng.exponential(size=tokens) * (rng.random(tokens) < 0.5) * (40 if edge else 1)
    return {"logits": -np.cumsum(falls), "width": width}


def _slack_distance(instance: Instance) -> float:
    by_distance = np.asarray(instance["logits"], dtype=float)
    tokens = len(by_distance)
    distance = np.abs(np.subtract.outer(np.arange(tokens), np.arange(tokens)))
    return monotonicity(masked_softmax(by_distance[distance], _allowed(tokens, instance["width"]))).margin


def _slack_depth(instance: Instance) -> float:
    """Least gain of any prefix from one depth to the next, the input (depth 0) included."""
    kernels, mixing = instance["kernels"], instance["mixing"]
    rows = [_rollout_row(kernels[:depth], mixing[:depth]) for depth in range(1, len(mixing) + 1)]
    start = np.eye(len(rows[0]))[-1]
    return min(float(dominance(before, after)) for before, after in zip([start, *rows], rows, strict=False))


def _draw_schedules(rng: Generator, edge: bool) -> Instance:
    stack = _stack(rng, edge)
    pair = np.sort([stack["mixing"], _coefficients(rng, len(stack["mixing"]), edge)], axis=0)
    # some layers keep their λ (at the edge all but the top): what is raised is seen through their kernels
    larger = np.where(rng.random(len(pair[0])) < 0.5, pair[0], pair[1])
    if edge and rng.random() < 0.5:
        larger = np.ones_like(larger)
        pair[0] = larger - np.eye(len(larger))[-1]
    return {"kernels": stack["kernels"], "mixing": pair[0], "larger_mixing": larger}


def _slack_schedules(instance: Instance) -> float:
    kernels = instance["kernels"]
    return float(
        dominance(_rollout_row(kernels, instance["mixing"]), _rollout_row(kernels, instance["larger_mixing"]))
    )


def _draw_encoding(rng: Generator, edge: bool) -> Instance:
    """Two inputs per layer, neither need be monotone, their mean is; logits that rise along each row."""
    (tokens, width), depth = _size(rng, edge), int(rng.integers(1, 6))
    content, positional = [], []
    for _ in range(depth):
        kernel = _positive(rng, tokens, width, edge)
        tilt = rng.uniform(-0.9, 0.9, kernel.shape)
        tilt = (tilt - (kernel * tilt).sum(axis=1, keepdims=True)) / 2
        constants = rng.normal(size=(2, tokens, 1))
        content.append(np.stack([_logits(kernel * (1 + tilt)), _logits(kernel * (1 - tilt))]) + constants)
        rises = rng.exponential(size=kernel.shape) * (rng.random(kernel.shape) < rng.random())
        positional.append(np.cumsum(rises, axis=1) * (rng.choice([0.0, 100.0]) if edge else 1.0))
    mixing = _coefficients(rng, depth, edge)
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
    allowed = _allowed(content.shape[-1], instance["width"])
    plain, biased = (masked_softmax(s, allowed).mean(axis=1) for s in (content, content + positional))
    return float(dominance(_rollout_row(biased, instance["mixing"]), _rollout_row(plain, instance["mixing"])))


def _draw_diagonal(rng: Generator, edge: bool) -> Instance:
    (tokens, width), depth = _size(rng, edge), int(rng.integers(1, 6))
    sizes = rng.exponential(size=depth) * (rng.choice([0.0, 1.0, 30.0], size=depth) if edge else 2.0)
    mixing = _coefficients(rng, depth, edge)
    if edge and rng.random() < 0.5:  # a change in the top layer, seen through all others
        sizes[:-1], mixing = 0.0, np.ones(depth)
    return {
        "positional": np.stack([_logits(_positive(rng, tokens, width, edge)) for _ in range(depth)]),
        "diagonal": sizes * rng.choice([-1.0, 1.0]),
        "mixing": mixing,
        "width": width,
        "query": int(rng.integers(1, tokens)),
    }


def _with_diagonal(instance: Instance, diagonal: Any) -> Float[np.ndarray, "layer query key"]:
    positional = np.asarray(instance["positional"], dtype=float)
    tokens = positional.shape[-1]
    extra = np.asarray(diagonal, dtype=float)[:, None, None] * np.eye(tokens)
    return masked_softmax(positional + extra, _allowed(tokens, instance["width"]))


def _content_row(instance: Instance, diagonal: Any) -> Float[np.ndarray, "key"]:
    """The rollout's row of the query up to itself, so that the cutoffs are those before it."""
    query = instance["query"]
    return _rollout_row(_with_diagonal(instance, diagonal), instance["mixing"], query)[: query + 1]


def _slack_diagonal(instance: Instance) -> float:
    diagonal = np.asarray(instance["diagonal"], dtype=float)
    with_content, without = _content_row(instance, diagonal), _content_row(instance, 0 * diagonal)
    return float(
        dominance(with_content, without) if (diagonal >= 0).all() else dominance(without, with_content)
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
    """A bottom layer whose δ > 0 keeps the second token's mass but not the later ones', and a δ raised above."""
    tokens = int(rng.integers(3, 7))
    bottom = np.eye(tokens)
    for i in range(1, tokens):
        bottom[i, i] = rng.uniform(0.3, 0.7) if i == 1 else 10.0 ** -rng.uniform(1, 3)
        bottom[i, :i] = (1 - bottom[i, i]) * bottom[i - 1, :i]
    top = np.zeros((tokens, tokens))
    top[:, 0] = -rng.uniform(2, 9)
    diagonal = np.array([rng.uniform(1, 4), 0.0])
    return {
        "positional": np.stack([_logits(bottom), top]),
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
        if not any(monotonicity(kernel).holds for kernel in pair):
            (smaller if larger[layer] > 0 else larger)[layer] = 0.0
    return instance


def _slack_raised(instance: Instance) -> float:
    smaller, larger = (_content_row(instance, instance[key]) for key in ("diagonal", "larger_diagonal"))
    return float(dominance(larger, smaller))


# --- Appendix A.1.2 to A.1.4: steps of the proofs ----------------------------------------------------------


def _draw_families(rng: Generator, edge: bool) -> Instance:
    shape, depth = _size(rng, edge), int(rng.integers(2, 6))
    later, earlier = zip(*[_ordered(rng, shape, edge) for _ in range(depth)], strict=True)
    return {"later": np.stack(later), "earlier": np.stack(earlier), "mixing": _coefficients(rng, depth, edge)}


def _draw_families_monotone(rng: Generator, edge: bool) -> Instance:
    """In each layer one of the two is monotone, the other dominates it or is dominated by it."""
    shape, depth = _size(rng, edge), int(rng.integers(2, 6))
    later, earlier = [], []
    for _ in range(depth):
        base, other = np.cumsum(_monotone(rng, *shape, edge), axis=1), _prefixes(rng, *shape, edge)
        pair = (np.minimum(base, other), base) if rng.random() < 0.5 else (base, np.maximum(base, other))
        later.append(_kernel(pair[0]))
        earlier.append(_kernel(pair[1]))
    return {"later": np.stack(later), "earlier": np.stack(earlier), "mixing": _coefficients(rng, depth, edge)}


def _slack_families(instance: Instance) -> float:
    rows = (_rollout_row(instance[key], instance["mixing"]) for key in ("later", "earlier"))
    return float(dominance(*rows))


def _slack_order(instance: Instance, top_first: bool) -> float:
    """Minus the largest difference of the recursion's row from the last row of R⁽ᵀ⁾⋯R⁽¹⁾."""
    kernels, mixing = np.asarray(instance["kernels"]), np.asarray(instance["mixing"])
    layers = [(1 - lam) * np.eye(len(A)) + lam * A for A, lam in zip(kernels, mixing, strict=True)]
    product = np.eye(kernels.shape[-1])
    for layer in layers:
        product = layer @ product
    row = np.eye(kernels.shape[-1])[-1]
    for layer in reversed(layers) if top_first else layers:
        row = row @ layer
    return -float(np.abs(row - product[-1]).max())


# --- Lemma 5.3: a network that runs ------------------------------------------------------------------------


def _norm(matrices: Any) -> Any:
    return np.linalg.norm(np.asarray(matrices, dtype=float), 2, axis=(-2, -1))


def _bounded_products(rng: Generator, depth: int, dim: int, edge: bool) -> Float[np.ndarray, "layer out in"]:
    """W_t with W_1⋯W_t = G_t for random invertible G_t, so that every product is bounded (Assumption 5.2)."""
    turns = np.linalg.qr(rng.normal(size=(depth + 1, dim, dim)))[0]
    stretch = (
        rng.choice([0.2, 1.0, 2.0], (depth + 1, 1, dim)) if edge else rng.uniform(0.5, 1, (depth + 1, 1, dim))
    )
    products = turns * stretch
    products[0] = np.eye(dim)
    return np.linalg.solve(products[:-1], products[1:])


def _alternating(high: float, depth: int) -> list[list[list[float]]]:
    """1×1 value matrices whose products stay at `high` or 1."""
    return [[[high if layer % 2 == 0 else 1 / high]] for layer in range(depth)]


def _growing(hidden: list[list[float]], weight: float, high: float, depth: int) -> Instance:
    """A network of width one with values high, 1/high, … and λ = ½: their products are at most `high`."""
    weights = [[[weight]]] * depth
    return {
        "hidden": hidden,
        "queries": weights,
        "keys": weights,
        "values": _alternating(high, depth),
        "mixing": [0.5] * depth,
    }


def _draw_network(rng: Generator, edge: bool) -> Instance:
    if edge and rng.random() < 0.3:  # a first token of zeros, others that grow
        hidden = [[0.0]] + [[0.1]] * int(rng.integers(1, 4))
        return _growing(hidden, 0.1, float(rng.uniform(2, 40)), int(rng.integers(20, 61)))
    tokens, dim, depth = (int(rng.integers(low, high)) for low, high in ((2, 6), (1, 4), (1, 25)))
    scale = rng.choice([0.1, 1.0]) / np.sqrt(dim)
    return {
        "hidden": rng.normal(size=(tokens, dim)) * scale,
        "queries": rng.normal(size=(depth, dim, dim)) * scale,
        "keys": rng.normal(size=(depth, dim, dim)) * scale,
        "values": _bounded_products(rng, depth, dim, edge),
        "mixing": _coefficients(rng, depth, edge),
    }


def _constants(instance: Instance) -> tuple[float, float]:
    """C of Assumption 5.1 and of the input (Frobenius, the largest of the usual norms), C_V of 5.2."""
    weights = max(_norm(instance["queries"]).max(), _norm(instance["keys"]).max())
    product, largest = np.eye(np.shape(instance["hidden"])[-1]), 0.0
    for value in np.asarray(instance["values"], dtype=float):
        product = product @ value
        largest = max(largest, float(_norm(product)))
    return max(float(weights), float(np.linalg.norm(instance["hidden"]))), largest


def _run(instance: Instance, whole_stream: bool = False) -> tuple[Float[np.ndarray, "layer"], list[Matrix]]:
    """The largest norm of a token after each layer, and the attention kernels (causal).

    `whole_stream` multiplies the residual stream by W_V as well, as the proof of Lemma 5.3 does.
    """
    X = np.asarray(instance["hidden"], dtype=float)
    allowed, norms, kernels = np.tri(len(X), dtype=bool), [], []
    weights = (np.asarray(instance[key], dtype=float) for key in ("queries", "keys", "values", "mixing"))
    for query, key, value, lam in zip(*weights, strict=True):
        A = masked_softmax((X @ query) @ (X @ key).T, allowed)
        X = (1 - lam) * (X @ value if whole_stream else X) + lam * A @ X @ value
        kernels.append(A)
        norms.append(np.linalg.norm(X, axis=1).max())
    return np.array(norms), kernels


def _slack_bounded(instance: Instance) -> float:
    C, C_V = _constants(instance)
    return _room(_run(instance)[0], C * C_V)


def _hidden_bound(instance: Instance) -> Float[np.ndarray, "layer"]:
    start = float(np.linalg.norm(instance["hidden"], axis=1).max())
    return residual.hidden_state_bound(
        np.asarray(instance["mixing"], float), _norm(instance["values"]), start
    )


def _slack_bounded_amended(instance: Instance) -> float:
    C, C_V = _constants(instance)
    whole = _room(_run(instance, whole_stream=True)[0], C * C_V)
    return min(whole, _room(_run(instance)[0], _hidden_bound(instance)))


def _draw_attention(rng: Generator, edge: bool) -> Instance:
    (tokens, width), dim = _size(rng, edge), int(rng.integers(1, 4))
    hidden = rng.normal(size=(tokens, dim)) / np.sqrt(dim)
    weights = rng.normal(size=(2, dim, dim)) / np.sqrt(dim)
    if edge:  # the first key opposite to all others: the sharp case
        hidden, weights = np.ones((tokens, 1)), np.full((2, 1, 1), rng.choice([0.0, 1.0, 1.4]))
        hidden[0] = -1.0
    slope = rng.choice([0.0, 0.5, 5.0])
    positional = -slope * np.abs(np.subtract.outer(np.arange(tokens), np.arange(tokens)))
    return {
        "hidden": hidden,
        "query": weights[0],
        "key": weights[1],
        "positional": positional,
        "width": width,
    }


def _slack_floor(instance: Instance, amended: bool) -> float:
    X, positional = np.asarray(instance["hidden"], float), np.asarray(instance["positional"], float)
    query, key = np.asarray(instance["query"], float), np.asarray(instance["key"], float)
    allowed = _allowed(len(X), instance["width"])
    kernel = masked_softmax((X @ query) @ (X @ key).T + positional, allowed)
    C, C_X = max(_norm(query), _norm(key)), np.linalg.norm(X, axis=1).max()
    M = float((C_X * C) ** 2)
    floor = np.exp(-2 * M) / len(X)
    if amended:
        high, low = (np.where(allowed, positional, fill) for fill in (-np.inf, np.inf))
        ranges = high.max(axis=1) - low.min(axis=1)
        floor = residual.softmax_floor(int(allowed.sum(axis=1).max()), M, float(ranges.max()))
    return _room(floor, residual.smallest_admitted(kernel, allowed))


# --- Theorem 5.4: infinite depth ---------------------------------------------------------------------------


def _draw_deep(rng: Generator, edge: bool, exponents: tuple[float, ...], depth: int, widths: str) -> Instance:
    """Kernels with a floor, used in turn; λ_t = initial/(t + 1)^exponent."""
    tokens = 2 if edge and widths == "causal" and rng.random() < 0.5 else int(rng.integers(2, 7))
    least = 2 if widths == "two or more" else 1
    width = tokens if widths == "causal" else int(rng.integers(min(least, tokens), tokens + 1))
    allowed = _allowed(tokens, width)
    kernels = masked_softmax(rng.normal(0, rng.choice([0.0, 1.0, 3.0]), (3, tokens, tokens)), allowed)
    if edge and rng.random() < 0.5:  # all but the floor on the token itself, or on the first
        column = np.arange(tokens) if rng.random() < 0.5 or width < tokens else np.zeros(tokens, dtype=int)
        kernels = masked_softmax(5.0 * np.eye(tokens)[column][None], allowed)
    return {
        "kernels": kernels,
        "initial": float(rng.choice([0.0, 1e-6, 1.0]) if edge else rng.random()),
        "exponent": float(rng.choice(exponents)),
        "depth": int(rng.integers(1, depth + 1)),
        "width": width,
    }


def _deep(
    instance: Instance,
) -> tuple[Float[np.ndarray, "layer query key"], Float[np.ndarray, "layer"], float]:
    """The rollout at every depth, the λ, and the floor ε."""
    kernels = np.asarray(instance["kernels"], dtype=float)
    tokens, depth = kernels.shape[-1], instance["depth"]
    mixing = PowerDecay(instance["initial"], instance["exponent"]).values(depth)
    allowed = _allowed(tokens, instance["width"])
    floor = min(residual.smallest_admitted(kernel, allowed) for kernel in kernels)
    product, rollouts = np.eye(tokens), []
    for layer, lam in enumerate(mixing):
        product = (1 - lam) * product + lam * kernels[layer % len(kernels)] @ product
        rollouts.append(product)
    return np.stack(rollouts), mixing, floor


def _slack_retained(instance: Instance, first: bool) -> float:
    """Diagonal against its bound, and the first column against 1 − Π over infinitely many layers."""
    rollouts, mixing, floor = _deep(instance)
    diagonal = np.diagonal(rollouts, axis1=1, axis2=2)
    own = _room(residual.self_bound(mixing, floor)[:, None], diagonal)
    limit = residual.dichotomy(PowerDecay(instance["initial"], instance["exponent"]), floor)
    drawn = limit.first_token - rollouts[:, (0 if first else 1) :, 0]
    return float(min(own, drawn.min()))


def _slack_collapse(instance: Instance) -> float:
    """Everything at j and later, and so P_ij and 1 − P_i0, against exp(−jεΣλ), at every depth."""
    rollouts, mixing, floor = _deep(instance)
    suffix = np.flip(np.cumsum(np.flip(rollouts, -1), axis=-1), -1).max(axis=1)
    positions = range(1, rollouts.shape[-1])
    bound = [residual.exponential_bound(mixing, floor, j) for j in positions]
    return _room(suffix[:, 1:].T, bound)


def _slack_window(instance: Instance) -> float:
    rollouts, mixing, floor = _deep(instance)
    missing = rollouts[-1, :, 1:].sum(axis=1)
    return _room(missing[1:], [residual.window_bound(mixing, floor, i) for i in range(1, len(missing))])


def _slack_network(instance: Instance, amended: bool) -> float:
    """What the first token has not drawn, against Π(1 − ε_t λ_t)."""
    mixing, (_, kernels) = np.asarray(instance["mixing"], float), _run(instance)
    tokens = len(kernels[0])
    C, C_V = _constants(instance)
    floors = np.full(len(mixing), np.exp(-2 * (C * C_V * C) ** 2) / tokens)
    if amended:
        start = np.linalg.norm(instance["hidden"], axis=1).max()
        states = np.concatenate([[start], _hidden_bound(instance)[:-1]])
        logits = states**2 * _norm(instance["queries"]) * _norm(instance["keys"])
        floors = np.array([residual.softmax_floor(tokens, float(M)) for M in logits])
    product = np.eye(tokens)
    for A, lam in zip(kernels, mixing, strict=True):
        product = (1 - lam) * product + lam * A @ product
    return _room(product[:, 1:].sum(axis=1), np.prod(1 - floors * mixing))


# --- §5.1: heads -------------------------------------------------------------------------------------------


def _draw_heads(rng: Generator, edge: bool) -> Instance:
    (tokens, width), depth, heads = _size(rng, edge), int(rng.integers(1, 5)), int(rng.integers(1, 5))
    kernels = [[_positive(rng, tokens, width, edge) for _ in range(heads)] for _ in range(depth)]
    return {"heads": np.array(kernels), "mixing": _coefficients(rng, depth, edge), "width": width}


def _slack_heads(instance: Instance) -> float:
    """Order, mask, row sums and floor of the mean kernel, and Proposition 4.2 for it."""
    heads = np.asarray(instance["heads"], dtype=float)
    allowed = _allowed(heads.shape[-1], instance["width"])
    means = np.stack([residual.average_heads(layer) for layer in heads])
    floor = min(float(kernel[allowed].min()) for kernel in heads.reshape(-1, *allowed.shape))
    return min(
        min(monotonicity(kernel).margin for kernel in means),
        _room(floor, [residual.smallest_admitted(kernel, allowed) for kernel in means]),
        _slack_depth({"kernels": means, "mixing": instance["mixing"]}),
    )


def _draw_head_values(rng: Generator, edge: bool) -> Instance:
    tokens, dim, depth, heads = (int(rng.integers(1, high)) for high in (5, 4, 20, 4))
    return {
        "hidden": rng.normal(size=(tokens, dim)),
        "heads": masked_softmax(rng.normal(size=(depth, heads, tokens, tokens)), np.tri(tokens, dtype=bool)),
        "values": np.stack([_bounded_products(rng, depth, dim, edge) for _ in range(heads)], axis=1),
        "mixing": _coefficients(rng, depth, edge),
    }


def _draw_head_values_only(rng: Generator, edge: bool) -> Instance:
    """λ = 1, where both readings of the residual dynamics are the same."""
    instance = dict(_draw_head_values(rng, edge))
    return instance | {"mixing": np.ones(len(instance["mixing"]))}


def _slack_head_values(instance: Instance, amended: bool) -> float:
    X, values = np.asarray(instance["hidden"], float), np.asarray(instance["values"], float)
    start, largest, norms = np.linalg.norm(X, axis=1).max(), 0.0, []
    products = np.broadcast_to(np.eye(X.shape[1]), values.shape[1:])
    for kernels, value, lam in zip(np.asarray(instance["heads"]), values, instance["mixing"], strict=True):
        X = (1 - lam) * X + lam * (kernels @ (X @ value)).mean(axis=0)
        products = products @ value
        largest = max(largest, float(_norm(products).max()))
        norms.append(np.linalg.norm(X, axis=1).max())
    bound = np.full(len(norms), start * largest)
    if amended:
        mixing = np.asarray(instance["mixing"], float)
        bound = residual.hidden_state_bound(mixing, _norm(values).mean(axis=1), float(start))
    return _room(norms, bound)


# --- the statements ----------------------------------------------------------------------------------------


def _rounded(claim: str, draw: Draw, slack: Callable[[Instance], float]) -> Reading:
    """A reading about prefix masses, tight to rounding."""
    return Reading(claim, draw, slack, ROUNDING)


def _statement(key: str, name: str, published: Reading, **others: Any) -> Statement:
    return Statement(f"herasimchyk-{key}", name, SOURCE, published, **others)


_ORDER = (
    _statement(
        "A.1",
        "Definition A.1",
        _rounded(
            "The order of rows by all prefix masses and by all increasing test functions is one and the same.",
            _draw_definition,
            _slack_definition,
        ),
    ),
    _statement(
        "A.2",
        "Lemma A.2",
        _rounded(
            "A stochastically monotone kernel preserves dominance: μ ⪰ ν gives μK ⪰ νK.",
            _draw_preserved,
            _slack_preserved,
        ),
    ),
    _statement(
        "A.3",
        "Lemma A.3",
        _rounded("(1 − λ)I + λA is stochastically monotone where A is.", _stack, _slack_residual),
    ),
    _statement(
        "A.4",
        "Lemma A.4",
        _rounded(
            "Row-wise dominance gives μK ⪰ μK′ for one and the same μ; neither kernel need be monotone.",
            _draw_rowwise,
            _slack_rowwise,
        ),
    ),
    _statement(
        "A.5",
        "Lemma A.5",
        _rounded(
            "A stochastically monotone kernel keeps a decreasing vector decreasing.",
            _draw_vector,
            _slack_vector,
        ),
    ),
)

_FORCES = (
    _statement(
        "4.1",
        "Assumption 4.1 (remark)",
        _rounded(
            "Logits that do not rise with distance give stochastically monotone kernels under causal and "
            "sliding-window masks.",
            _draw_distance,
            _slack_distance,
        ),
        note="Neither a full mask (weights 1, 1, 0.1, 0.1 by distance) nor logits that rise with distance, as "
        "those of RoPE may, need give a monotone kernel.",
    ),
    _statement(
        "4.2",
        "Proposition 4.2",
        _rounded(
            "Each prefix mass of the last row grows with every layer added on top, from depth 0 on.",
            _stack,
            _slack_depth,
        ),
        note="Monotone kernels suffice: the proof never uses the mask, so the drift is not the mask's alone.",
    ),
    _statement(
        "4.3",
        "Proposition 4.3",
        _rounded("λ ≤ λ′ in every layer gives p ⪰ p′.", _draw_schedules, _slack_schedules),
        note="The printed induction needs Lemma A.2 beside Lemma A.4; see Appendix A.1.2.",
    ),
    _statement(
        "4.4",
        "Proposition 4.4",
        _rounded(
            "Logits that rise towards recent keys, added to any content whose mean kernel is monotone, give "
            "a later rollout.",
            _draw_encoding,
            _slack_encoding,
        ),
        note="Two inputs per layer, monotone only in the mean. The printed induction needs Lemma A.2 too.",
    ),
    _statement(
        "4.5",
        "Proposition 4.5",
        _rounded(
            "δ ≥ 0 in all layers gives a later row than δ = 0, δ ≤ 0 in all layers an earlier one.",
            _draw_diagonal,
            _slack_diagonal,
        ),
        note="Says nothing where δ changes sign between layers, as it does in measured models.",
    ),
    _statement(
        "4.5-layerwise",
        "Proposition 4.5, layer by layer",
        _rounded(
            "Raising δ in any layer, others of either sign left as they are, gives a later row.",
            _draw_raised,
            _slack_raised,
        ),
        amended=_rounded(
            "It does where in every layer the kernel with the smaller or with the larger δ is itself monotone.",
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
        note="The closing 'equivalently' read for single layers and mixed signs: a monotone baseline does not "
        "keep the kernel with content monotone, and then a larger δ above it can move mass to earlier tokens.",
    ),
)

_STEPS = (
    _statement(
        "A.1.2",
        "Appendix A.1.2 and A.1.3, induction",
        _rounded(
            "Row-wise dominance in every layer gives dominance of the rollouts, by Lemma A.4 alone.",
            _draw_families,
            _slack_families,
        ),
        amended=_rounded(
            "It does where in every layer one of the two kernels is stochastically monotone (Lemma A.2 too).",
            _draw_families_monotone,
            _slack_families,
        ),
        witness={
            "later": [[[1, 0, 0], [0, 1, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]],
            "earlier": [[[1, 0, 0], [0, 1, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [0, 1, 0]]],
            "mixing": [1.0, 1.0],
        },
        note="Lemma A.4 compares two kernels on one distribution, but after a layer the distributions differ. "
        "Assumption 4.1 supplies what is missing, so Propositions 4.3 and 4.4 stand.",
    ),
    _statement(
        "A.1.4",
        "Appendix A.1.4, order of the product",
        _rounded(
            "μ_t = μ_{t−1}R⁽ᵗ⁾ from e_i ends in row i of P⁽ᵀ⁾ = R⁽ᵀ⁾⋯R⁽¹⁾.",
            _stack,
            lambda instance: _slack_order(instance, top_first=False),
        ),
        amended=_rounded(
            "μ_s = μ_{s−1}R⁽ᵀ⁺¹⁻ˢ⁾, the top layer first, does.",
            _stack,
            lambda instance: _slack_order(instance, top_first=True),
        ),
        witness={
            "kernels": [[[1, 0, 0], [1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5]]],
            "mixing": [1.0, 1.0],
            "width": 3,
        },
        note="The recursion as printed gives a row of R⁽¹⁾⋯R⁽ᵀ⁾. Each step of the induction is the same with "
        "the layers counted from the top, so Proposition 4.5 stands.",
    ),
)

_BOUNDED = (
    _statement(
        "5.3-i",
        "Lemma 5.3 (i)",
        Reading(
            "Under Assumptions 5.1 and 5.2 and ‖X⁽⁰⁾‖ ≤ C, the residual update X ← (1 − λ)X + λAXW_V keeps "
            "every token's norm within C·C_V.",
            _draw_network,
            _slack_bounded,
        ),
        amended=Reading(
            "Norms stay within C·C_V if W_V acts on the residual stream too, X ← ((1 − λ)I + λA)XW_V; for the "
            "residual update they stay within the input's times Π(1 − λ + λ‖W_V‖).",
            _draw_network,
            _slack_bounded_amended,
        ),
        witness=_growing([[1.0]], 1.0, 2.0, 41),
        note="The proof writes X⁽ᵗ⁾ = P⁽ᵗ⁾X⁽⁰⁾V⁽ᵗ⁾, true without residuals or if W_V multiplies them. Otherwise "
        "W_V = 2, ½, 2, … (products ≤ 2) with λ = ½ grows by 9/8 every two layers; ‖W_V‖ ≤ 1 suffices.",
    ),
    _statement(
        "5.3-ii",
        "Lemma 5.3 (ii)",
        Reading(
            "Every admitted weight is at least e^(−2M)/n, M = (C_X C)², whatever the positional logits.",
            _draw_attention,
            lambda instance: _slack_floor(instance, amended=False),
        ),
        amended=Reading(
            "Every admitted weight is at least 1/(1 + (k − 1)e^(2M + B)), for k keys in the longest row and "
            "positional logits that range over B within a row.",
            _draw_attention,
            lambda instance: _slack_floor(instance, amended=True),
        ),
        witness={
            "hidden": [[0.1], [0.1]],
            "query": [[1.0]],
            "key": [[1.0]],
            "positional": [[0.0, -5.0], [-5.0, 0.0]],
            "width": 2,
        },
        note="The proof bounds content logits only, though §5 makes 'no assumptions on positional encodings': "
        "an ε for all depths exists if their range is bounded over layers (and C_X exists; see 5.3 (i)).",
    ),
)

_INFINITE = (
    _statement(
        "5.4-i",
        "Theorem 5.4 (i)",
        Reading(
            "For summable λ (power decay, β > 1) every token i keeps P_ii ≥ Π(1 − (1 − ε)λ) at every depth, and "
            "draws at most 1 − Π_∞ < 1 from the first.",
            lambda rng, edge: _draw_deep(rng, edge, (1.01, 1.5, 2.0, 4.0), 60, "any"),
            lambda instance: _slack_retained(instance, first=True),
        ),
        amended=Reading(
            "Every token keeps P_ii ≥ Π(1 − (1 − ε)λ) at every depth, and every token but the first draws at "
            "most 1 − Π_∞ < 1 from the first.",
            lambda rng, edge: _draw_deep(rng, edge, (1.01, 1.5, 2.0, 4.0), 60, "any"),
            lambda instance: _slack_retained(instance, first=False),
        ),
        witness={
            "kernels": [[[1.0, 0.0], [0.5, 0.5]]],
            "initial": 0.5,
            "exponent": 2.0,
            "depth": 10,
            "width": 2,
        },
        note="The bound on P_ii holds for every token and mask; 'no collapse' is false for the first token, "
        "whose row is a point mass on itself at every depth.",
    ),
    _statement(
        "5.4-ii",
        "Theorem 5.4 (ii)",
        Reading(
            "For divergent λ (power decay, β ≤ 1) and kernels with floor ε under the causal mask, all that "
            "positions ≥ j (from 0) hold is at most exp(−jεΣλ) at every depth, so P_ij is, and P_i0 → 1.",
            lambda rng, edge: _draw_deep(rng, edge, (0.0, 0.5, 1.0), 150, "causal"),
            _slack_collapse,
        ),
        note="Holds with C′ = 1 and for whole suffixes; as printed C′ and ε may depend on T, which says nothing. "
        "The step from P_jj to P_ij is sound: each layer takes at least jελ of what positions ≥ j hold, for good.",
    ),
    _statement(
        "5.4-ii-window",
        "Theorem 5.4 (ii), sliding window",
        Reading(
            "The same rate under the sliding-window masks of §3.",
            lambda rng, edge: _draw_deep(rng, edge, (0.0, 0.5, 1.0), 150, "any"),
            _slack_collapse,
        ),
        amended=Reading(
            "Under windows of width ≥ 2, what token i (from 0) has not drawn from the first is at most the "
            "probability that fewer than i of independent trials with chances ελ_t succeed, which tends to 0.",
            lambda rng, edge: _draw_deep(rng, edge, (0.0, 0.5, 1.0), 150, "two or more"),
            _slack_window,
        ),
        witness={
            "kernels": [[[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]]],
            "initial": 0.5,
            "exponent": 0.0,
            "depth": 200,
            "width": 2,
        },
        note="The proof gives the first token ε in every row, which a window does not: width 1 never collapses, "
        "and for j ≥ the width a token is left at (w − 1)ε, not jε, so no C′ helps. Collapse holds for w ≥ 2.",
    ),
    _statement(
        "5.4-ii-network",
        "Theorem 5.4 (ii) from Assumptions 5.1 and 5.2",
        Reading(
            "For a network under these assumptions, with ε of Lemma 5.3's constants, 1 − P_i0 ≤ Π(1 − ελ).",
            _draw_network,
            lambda instance: _slack_network(instance, amended=False),
        ),
        amended=Reading(
            "1 − P_i0 ≤ Π(1 − ε_t λ_t), with ε_t from the norm bound of 5.3 (i) as amended at each layer; for "
            "‖W_V‖ ≤ 1 one ε serves all depths, and the first token takes all if Σλ = ∞.",
            _draw_network,
            lambda instance: _slack_network(instance, amended=True),
        ),
        witness=_growing([[0.0], [0.1]], 0.1, 30.0, 60),
        note="Norms that grow (5.3 (i)) sharpen attention until A_i0 is summable: with W_V = 30, 1/30, 30, … and "
        "λ = ½ the second token keeps a share for ever although Σλ = ∞. A uniform ε must be assumed.",
    ),
)

_HEADS = (
    _statement(
        "5.1",
        "§5.1, multi-head averaging",
        _rounded(
            "The mean of monotone kernels is monotone, its floor is at least the least of the heads', and "
            "Proposition 4.2 holds for it.",
            _draw_heads,
            _slack_heads,
        ),
    ),
    _statement(
        "5.1-values",
        "§5.1, Lemma 5.3 (i) for heads",
        Reading(
            "With Assumption 5.2 uniform across heads, norms stay within ‖X⁽⁰⁾‖·C_V, C_V the largest product of "
            "any one head's value matrices (λ = 1).",
            _draw_head_values_only,
            lambda instance: _slack_head_values(instance, amended=False),
        ),
        amended=Reading(
            "Norms stay within the input's times Π(1 − λ + λ·mean_h‖W_V^h‖), for every λ.",
            _draw_head_values,
            lambda instance: _slack_head_values(instance, amended=True),
        ),
        witness={
            "hidden": [[1.0]],
            "heads": [[[[1.0]], [[1.0]]]] * 20,
            "values": [
                [one, other] for one, other in zip(_alternating(2, 20), _alternating(0.5, 20), strict=True)
            ],
            "mixing": [1.0] * 20,
        },
        note="Not verbatim: paths change heads between layers, so products of one head's matrices bound nothing. "
        "Values 2, ½, … and ½, 2, … in two heads (products ≤ 2) grow by 5/4 per layer.",
    ),
)

HERASIMCHYK: tuple[Statement, ...] = (*_FORCES, *_ORDER, *_STEPS, *_BOUNDED, *_INFINITE, *_HEADS)
"""The statements of the paper: §4, Appendix A.1 with two steps of its proofs, §5."""
