"""Random instances that satisfy the hypotheses of the papers' statements; `edge` asks for the extreme ones.

Three kinds: models from a table of fields (`instance`), kernels that are stochastically monotone (Assumption 4.1
of Herasimchyk et al.: every row dominates those before it), and kernels with weight on every admitted pair, for
bounds by ε, the smallest admitted weight (Wu et al.). Kernels are drawn in several ways each, so that a claim is
not tried on one family alone. Callers write `draws.monotone`, so that a test can put another draw in its place.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.random import Generator

from posbias.theory.architecture import Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.distance import RoPE
from posbias.theory.masks import Causal, Full, Mask, Prefix, SlidingWindow
from posbias.theory.positional import ALiBi, DecayBias, NoPE
from posbias.theory.rollout.kernel import layer_kernel, masked_softmax
from posbias_papers.statements.margins import Matrix
from posbias_papers.statements.record import Draw, Instance

Sampler = Callable[[Generator, bool], Any]


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


# --- monotone kernels ----------------------------------------------------------------------------------------


def admitted(tokens: int, width: int) -> Bool[np.ndarray, "query key"]:
    """Who may attend to whom under a sliding window; causal where it is as wide as the text."""
    return SlidingWindow(int(width)).allowed(tokens)


def size(rng: Generator, edge: bool) -> tuple[int, int]:
    """Tokens and window width; half of the windows are as wide as the text, which is the causal mask."""
    tokens = 2 if edge and rng.random() < 0.5 else int(rng.integers(2, 9))
    return tokens, tokens if rng.random() < 0.5 else int(rng.integers(1, tokens + 1))


def mixing(rng: Generator, depth: int, edge: bool) -> Float[np.ndarray, "layer"]:
    """λ of each layer, bottom first: power decays with β = 0 or 1 and noise; at the edge 0, 1 and between."""
    if edge:
        return rng.choice([0.0, 1e-9, 0.5, 1.0], size=depth)
    return rng.random() * np.arange(1.0, depth + 1) ** -rng.choice([0.0, 1.0]) * rng.random(depth) ** 0.2


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
    """A stochastically monotone kernel inside the mask, in one of seven ways."""
    way = int(rng.integers(7))
    if way == 0:  # order statistics of the prefix masses of random rows
        return kernel_of(-np.sort(-prefixes(rng, tokens, width, edge, ahead), axis=0))
    if way == 1:  # their running minimum: every row dominates those before it, with many ties
        return kernel_of(np.minimum.accumulate(prefixes(rng, tokens, width, edge, ahead), axis=0))
    if way == 2:  # a mixture of non-decreasing maps i ↦ key, one map at the edge
        keys = np.sort(rng.integers(0, tokens, (1 if edge else 4, tokens)), axis=1)
        if not ahead:
            keys = np.clip(keys, np.maximum(0, np.arange(tokens) - width + 1), np.arange(tokens))
        return np.eye(tokens)[keys].mean(axis=0)
    if way == 3:  # logits of the key alone
        logits = np.tile(rng.normal(0, 30 if edge else 2, tokens), (tokens, 1))
        return masked_softmax(logits, admitted(tokens, width))
    if way == 4:  # what the theory of this package gives
        slope = float(rng.choice([0.0, 40.0]) if edge else rng.exponential())
        heads = int(rng.integers(1, 5))
        positional = [NoPE(), ALiBi(), DecayBias(slope)][rng.integers(3)]
        return layer_kernel(Layer(heads=heads, positional=positional, mask=SlidingWindow(width)), tokens)
    if way == 5 and width == tokens:  # each row is the one before it, with a little moved to the token itself
        kernel = np.eye(tokens)
        for i in range(1, tokens):
            own = rng.choice([0.0, 1e-9, 1.0]) if edge else rng.random() ** rng.choice([1, 10])
            kernel[i, :i] = (1 - own) * kernel[i - 1, :i]
            kernel[i, i] = own
        return kernel
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


def ordered(rng: Generator, shape: tuple[int, int], edge: bool) -> tuple[Matrix, Matrix]:
    """Two kernels, the first dominating the second row by row or equal to it, neither need be monotone."""
    one, other = (prefixes(rng, *shape, edge) for _ in range(2))
    if rng.random() < 0.4:
        other = one
    return kernel_of(np.minimum(one, other)), kernel_of(np.maximum(one, other))


# --- kernels under a mask ------------------------------------------------------------------------------------


def layers(rng: Generator, edge: bool, most: int = 40) -> int:
    """Layers: 1 … `most`, often one or two at the edge."""
    return int(rng.integers(1, 3) if edge and rng.random() < 0.5 else rng.integers(1, most + 1))


def length(rng: Generator, edge: bool) -> int:
    """Tokens: 2 … 8, often two at the edge."""
    return 2 if edge and rng.random() < 0.4 else int(rng.integers(2, 9))


def mask_of(kind: str, size: int) -> Mask:
    """The mask by its kind: causal, window (of width `size`), prefix (of length `size`) or full."""
    size = int(size)
    return {
        "causal": Causal,
        "window": lambda: SlidingWindow(size),
        "prefix": lambda: Prefix(size),
        "full": Full,
    }[kind]()


def masked(rng: Generator, edge: bool, kind: str) -> Instance:
    """Up to three kernels, used in turn; `size` is the width of the window or the length of the prefix."""
    tokens = length(rng, edge)
    least = 2 if kind == "window" else 1
    most = tokens + 2 if kind == "window" else tokens
    size = int(rng.choice([least, max(least, tokens)]) if edge else rng.integers(least, most + 1))
    kernels = [_kernel(rng, mask_of(kind, size), tokens, edge) for _ in range(rng.integers(1, 4))]
    return {"kernels": np.stack(kernels), "size": size, "depth": layers(rng, edge)}


def _kernel(rng: Generator, mask: Mask, tokens: int, edge: bool) -> Matrix:
    """A kernel with weight on every admitted pair: from random logits, or of an architecture of ours."""
    if edge and rng.random() < 0.6:
        return _spiked(rng, mask.allowed(tokens))
    if rng.random() < 0.3:
        heads, slope = int(rng.integers(1, 5)), float(rng.exponential())
        positional = [NoPE(), ALiBi(), DecayBias(slope), RoPE(((2.0,),), frequencies=(0.3,))]
        content = ConstantDiagonal((float(rng.normal()),), first_column=(float(rng.normal()),))
        return layer_kernel(Layer(heads, mask, positional[rng.integers(4)], content), tokens)
    logits = rng.normal(0, rng.choice([0.0, 0.5, 3.0]), (tokens, tokens))
    return masked_softmax(logits, mask.allowed(tokens))


def _spiked(rng: Generator, allowed: Bool[np.ndarray, "query key"]) -> Matrix:
    """The floor everywhere and the rest of each row on one key: itself, the first or last seen, or any."""
    seen = allowed.sum(axis=1)
    floor = float(rng.choice([1e-12, 1e-3, 0.5, 1.0])) / seen.max()
    keys = [np.flatnonzero(row) for row in allowed]
    way = rng.integers(4)
    target = [(i, row[0], row[-1], rng.choice(row))[way] for i, row in enumerate(keys)]
    kernel = floor * allowed
    kernel[np.arange(len(seen)), target] += 1.0 - floor * seen
    return kernel
