"""Random instances that satisfy the hypotheses of the papers' statements; `edge` asks for the extreme ones.

An instance is a table of fields (`instance`), kernels that are stochastically monotone (Assumption 4.1 of
Herasimchyk et al.: every row dominates those before it), kernels with weight on every admitted pair, for bounds by
ε, the smallest admitted weight, or a network. Callers write `draws.monotone`, so that a test can put another draw
in its place.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.random import Generator

from posbias.theory.architecture import Layer
from posbias.theory.masks import Causal, Full, Mask, Prefix, SlidingWindow
from posbias.theory.positional import ALiBi, DecayBias, NoPE
from posbias.theory.rollout.kernel import layer_kernel, masked_softmax
from posbias_papers.statements.margins import Matrix
from posbias_papers.statements.record import Draw, Instance

Sampler = Callable[[Generator, bool], Any]
MASKS = ("causal", "window", "prefix", "full")


# --- fields of an instance -----------------------------------------------------------------------------------


def whole(low: int, high: int, edge: tuple[int, ...] = ()) -> Sampler:
    """A whole number from `low` to `high`, at the edge one of `edge`."""
    return lambda rng, at: int(rng.choice(edge) if at and edge else rng.integers(low, high + 1))


def real(low: float, high: float, edge: tuple[float, ...] = ()) -> Sampler:
    """A number between `low` and `high`, at the edge one of `edge`."""
    return lambda rng, at: float(rng.choice(edge) if at and edge else rng.uniform(low, high))


def one_of(*choices: Any) -> Sampler:
    """One of these."""
    return lambda rng, at: choices[int(rng.integers(len(choices)))]


def coin(rng: Generator, edge: bool) -> bool:
    """True in half of the instances."""
    return bool(rng.random() < 0.5)


SEED = whole(0, 2**31 - 1)
"""The seed of a simulation."""


def instance(**given: Any) -> Draw:
    """Instances whose fields are fixed, or drawn by samplers, in this order."""
    return lambda rng, edge: {name: one(rng, edge) if callable(one) else one for name, one in given.items()}


def length(rng: Generator, edge: bool) -> int:
    """Tokens: 2 … 8, often two at the edge."""
    return 2 if edge and rng.random() < 0.4 else int(rng.integers(2, 9))


def layers(rng: Generator, edge: bool, most: int = 40) -> int:
    """Layers: 1 … `most`, often one or two at the edge."""
    return int(rng.integers(1, 3) if edge and rng.random() < 0.5 else rng.integers(1, most + 1))


def mixing(rng: Generator, depth: int, edge: bool) -> Float[np.ndarray, "layer"]:
    """λ of each layer, bottom first: power decays with β = 0 or 1 and noise; at the edge 0, 1 and between."""
    if edge:
        return rng.choice([0.0, 1e-9, 0.5, 1.0], size=depth)
    return rng.random() * np.arange(1.0, depth + 1) ** -rng.choice([0.0, 1.0]) * rng.random(depth) ** 0.2


# --- monotone kernels ----------------------------------------------------------------------------------------


def admitted(tokens: int, width: int) -> Bool[np.ndarray, "query key"]:
    """Who may attend to whom under a sliding window; causal where it is as wide as the text."""
    return SlidingWindow(int(width)).allowed(tokens)


def size(rng: Generator, edge: bool) -> tuple[int, int]:
    """Tokens and window width; half of the windows are as wide as the text, which is the causal mask."""
    tokens = 2 if edge and rng.random() < 0.5 else int(rng.integers(2, 9))
    return tokens, tokens if rng.random() < 0.5 else int(rng.integers(1, tokens + 1))


def prefixes(rng: Generator, tokens: int, width: int, edge: bool, ahead: bool = False) -> Matrix:
    """Prefix masses of random rows inside the mask; `ahead` admits every key, `edge` has ties and zeros."""
    prefix = np.zeros((tokens, tokens))
    sharpness = rng.choice([0.1, 1.0, 5.0])
    for i in range(tokens):
        first, last = (0, tokens - 1) if ahead else (max(0, i - width + 1), i)
        cuts = rng.random(last - first) ** sharpness
        prefix[i, first:last] = np.sort(np.round(4 * cuts) / 4 if edge else cuts)
        prefix[i, last:] = 1.0
    return prefix


def kernel_of(prefix: Matrix) -> Matrix:
    """The weights whose prefix masses along each row are given."""
    return np.diff(prefix, axis=-1, prepend=0.0)


def monotone(rng: Generator, tokens: int, width: int, edge: bool, ahead: bool = False) -> Matrix:
    """A stochastically monotone kernel inside the mask, in one of five ways."""
    way = int(rng.integers(5))
    if way == 0:  # order statistics of the prefix masses of random rows
        return kernel_of(-np.sort(-prefixes(rng, tokens, width, edge, ahead), axis=0))
    if way == 1:  # their running minimum: every row dominates those before it, with many ties
        return kernel_of(np.minimum.accumulate(prefixes(rng, tokens, width, edge, ahead), axis=0))
    if way == 2:  # a mixture of non-decreasing maps i ↦ key, one map at the edge
        keys = np.sort(rng.integers(0, tokens, (1 if edge else 4, tokens)), axis=1)
        if not ahead:
            keys = np.clip(keys, np.maximum(0, np.arange(tokens) - width + 1), np.arange(tokens))
        return np.eye(tokens)[keys].mean(axis=0)
    if way == 3:  # what the theory of this package gives
        slope = float(rng.choice([0.0, 40.0]) if edge else rng.exponential())
        positional = [NoPE(), ALiBi(), DecayBias(slope)][rng.integers(3)]
        return layer_kernel(Layer(2, positional=positional, mask=SlidingWindow(width)), tokens)
    return 0.5 * (monotone(rng, tokens, width, edge) + monotone(rng, tokens, width, edge, ahead))


def positive(rng: Generator, tokens: int, width: int, edge: bool) -> Matrix:
    """A stochastically monotone kernel with weight on every admitted pair."""
    share = rng.choice([1e-6, 1.0]) if edge else rng.choice([0.02, 0.3])
    even = layer_kernel(Layer(mask=SlidingWindow(width)), tokens)
    return (1 - share) * monotone(rng, tokens, width, edge) + share * even


def log_weights(kernel: Matrix) -> Matrix:
    """Logits whose softmax over the kernel's support is the kernel; finite everywhere, for JSON's sake."""
    return np.log(np.where(kernel > 0, kernel, 1.0))


def stack(rng: Generator, edge: bool) -> dict[str, Any]:
    """Monotone kernels of up to eight layers, bottom first, with their λ and the width of the window."""
    (tokens, width), depth = size(rng, edge), int(rng.integers(1, 9))
    kernels = np.stack([monotone(rng, tokens, width, edge) for _ in range(depth)])
    return {"kernels": kernels, "mixing": mixing(rng, depth, edge), "width": width}


def ordered(
    rng: Generator, shape: tuple[int, int], edge: bool, monotone: bool = False
) -> tuple[Matrix, Matrix]:
    """Two kernels, the first dominating the second row by row; one of them monotone, or neither need be."""
    one, other = (prefixes(rng, *shape, edge) for _ in range(2))
    if monotone:
        one = -np.sort(-one, axis=0)
        if rng.random() < 0.5:
            return kernel_of(one), kernel_of(np.maximum(one, other))
        return kernel_of(np.minimum(one, other)), kernel_of(one)
    return kernel_of(np.minimum(one, other)), kernel_of(np.maximum(one, other))


# --- kernels under a mask ------------------------------------------------------------------------------------


def mask_of(kind: str, size: float) -> Mask:
    """The mask by its kind: causal, window (of width `size`), prefix (of length `size`) or full."""
    masks = {"causal": Causal, "window": SlidingWindow, "prefix": Prefix, "full": Full}
    return masks[kind](int(size)) if kind in ("window", "prefix") else masks[kind]()


def masked(rng: Generator, edge: bool, kind: str) -> dict[str, Any]:
    """Up to three kernels, used in turn; `size` is the width of the window or the length of the prefix."""
    tokens, narrowest = length(rng, edge), 2 if kind == "window" else 1
    size = int(rng.choice([narrowest, tokens]) if edge else rng.integers(narrowest, tokens + 1))
    allowed, spread = mask_of(kind, size).allowed(tokens), rng.choice([0.0, 0.5, 3.0])
    if (
        edge and rng.random() < 0.6
    ):  # the floor everywhere, the rest on the token itself, the first or the last key
        floor = float(rng.choice([1e-12, 1e-3, 0.5, 1.0])) / allowed.sum(axis=1).max()
        way, kernels = rng.integers(3), floor * allowed[None]
        target = (np.arange(tokens), allowed.argmax(axis=1), tokens - 1 - allowed[:, ::-1].argmax(axis=1))[
            way
        ]
        kernels[0, np.arange(tokens), target] += 1.0 - floor * allowed.sum(axis=1)
    else:
        shape = (int(rng.integers(1, 4)), tokens, tokens)
        kernels = masked_softmax(rng.normal(0, spread, shape), allowed)
    return {"kernels": kernels, "size": size, "depth": layers(rng, edge)}


# --- networks ------------------------------------------------------------------------------------------------


def values(rng: Generator, depth: int, dim: int, edge: bool) -> Float[np.ndarray, "layer out in"]:
    """W_t with W_1⋯W_t = G_t for random invertible G_t, so that every product is bounded (Assumption 5.2)."""
    turns = np.linalg.qr(rng.normal(size=(depth + 1, dim, dim)))[0]
    shape = (depth + 1, 1, dim)
    products = turns * (rng.choice([0.2, 1.0, 2.0], shape) if edge else rng.uniform(0.5, 1, shape))
    products[0] = np.eye(dim)
    return np.linalg.solve(products[:-1], products[1:])


def alternating(high: float, depth: int) -> list[list[list[float]]]:
    """1×1 value matrices whose products stay at `high` or 1."""
    return [[[high if layer % 2 == 0 else 1 / high]] for layer in range(depth)]


def growing(hidden: list[list[float]], weight: float, high: float, depth: int) -> Instance:
    """A network of width one with values high, 1/high, … and λ = ½: their products are at most `high`."""
    weights = [[[weight]]] * depth
    network = {"hidden": hidden, "queries": weights, "keys": weights, "values": alternating(high, depth)}
    return network | {"mixing": [0.5] * depth}


def network(rng: Generator, edge: bool) -> Instance:
    """A network under Assumptions 5.1 and 5.2: small weights, or at the edge values that grow."""
    if edge and rng.random() < 0.3:  # a first token of zeros, others that grow
        hidden = [[0.0]] + [[0.1]] * int(rng.integers(1, 4))
        return growing(hidden, 0.1, float(rng.uniform(2, 40)), int(rng.integers(20, 61)))
    tokens, dim, depth = (int(rng.integers(low, high)) for low, high in ((2, 6), (1, 4), (1, 25)))
    scale = rng.choice([0.1, 1.0]) / np.sqrt(dim)
    return {
        "hidden": rng.normal(size=(tokens, dim)) * scale,
        "queries": rng.normal(size=(depth, dim, dim)) * scale,
        "keys": rng.normal(size=(depth, dim, dim)) * scale,
        "values": values(rng, depth, dim, edge),
        "mixing": mixing(rng, depth, edge),
    }


def masked_network(rng: Generator, edge: bool) -> Instance:
    """A network without residual connections under any mask; at the edge one key opposite to all others."""
    given, sharp = dict(network(rng, False)), edge and rng.random() < 0.5
    del given["mixing"]
    tokens = len(given["hidden"])
    if sharp:
        given["hidden"] = np.ones((tokens, 1))
        given["hidden"][0] = -1.0
        weight = np.full((1, 1, 1), rng.choice([0.0, 1.0, 3.0]))
        given |= {"queries": weight, "keys": weight, "values": np.ones((1, 1, 1))}
    return given | {"kind": str(rng.choice(MASKS)), "size": int(rng.integers(1, tokens + 1))}
