"""Random instances that satisfy the hypotheses of the papers' statements, at their edge or well inside.

A `Sampler` draws the parts of one instance: numbers, λ, kernels that are stochastically monotone (Assumption 4.1
of Herasimchyk et al.: every row dominates those before it), kernels with weight on every admitted pair, for bounds
by ε, the smallest admitted weight, and networks. What is drawn depends on the generator and the order of calls
alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.random import Generator

from posbias.theory.architecture import Layer
from posbias.theory.masks import Causal, Full, Mask, Prefix, SlidingWindow
from posbias.theory.positional import ALiBi, DecayBias, NoPE
from posbias.theory.rollout.kernel import layer_kernel, masked_softmax
from posbias_papers.statements.margins import Matrix, Stack

Instance = Mapping[str, Any]
"""What one trial needs, as numbers, strings, lists and arrays; it can be saved and tried again."""
MASKS = ("causal", "window", "prefix", "full")


@dataclass(eq=False)
class Sampler:
    """A generator for one instance; `edge` asks for the extremes of the hypotheses."""

    rng: Generator
    edge: bool = False

    # --- numbers ---------------------------------------------------------------------------------------------

    def pick(self, usual: Any, edge: Any, size: Any = None) -> Any:
        """One of the usual choices, or at the edge one of others."""
        return self.rng.choice(edge if self.edge else usual, size)

    def whole(self, low: int, high: int, edge: tuple[int, ...] = ()) -> int:
        """A whole number from `low` to `high`, at the edge one of `edge`."""
        return int(self.rng.choice(edge) if self.edge and edge else self.rng.integers(low, high + 1))

    def real(self, low: float, high: float, edge: tuple[float, ...] = ()) -> float:
        """A number between `low` and `high`, at the edge one of `edge`."""
        return float(self.rng.choice(edge) if self.edge and edge else self.rng.uniform(low, high))

    def coin(self) -> bool:
        """True in half of the instances."""
        return bool(self.rng.random() < 0.5)

    def one_of(self, *choices: Any) -> Any:
        """One of these."""
        return choices[self.whole(0, len(choices) - 1)]

    def seed(self) -> int:
        """The seed of a simulation."""
        return self.whole(0, 2**31 - 1)

    def length(self) -> int:
        """Tokens: 2 … 8, often two at the edge."""
        return 2 if self.edge and self.rng.random() < 0.4 else self.whole(2, 8)

    def layers(self, most: int = 40) -> int:
        """Layers: 1 … `most`, often one or two at the edge."""
        return self.whole(1, 2 if self.edge and self.coin() else most)

    def mixing(self, depth: int) -> Float[np.ndarray, "layer"]:
        """λ of each layer, bottom first: power decays with β = 0 or 1 and noise; at the edge 0, 1 and between."""
        if self.edge:
            return self.rng.choice([0.0, 1e-9, 0.5, 1.0], size=depth)
        layers, random = np.arange(1.0, depth + 1), self.rng.random
        return random() * layers ** -self.rng.choice([0.0, 1.0]) * random(depth) ** 0.2

    # --- monotone kernels ------------------------------------------------------------------------------------

    @cached_property
    def size(self) -> tuple[int, int]:
        """Tokens and window width; half of the windows are as wide as the text, which is the causal mask."""
        tokens = self.length()
        return tokens, tokens if self.coin() else self.whole(1, tokens)

    def prefixes(self, ahead: bool = False) -> Matrix:
        """Prefix masses of random rows inside the mask; `ahead` admits every key, `edge` has ties and zeros."""
        tokens, width = self.size
        prefix, sharpness = np.zeros((tokens, tokens)), self.rng.choice([0.1, 1.0, 5.0])
        for i in range(tokens):
            first, last = (0, tokens - 1) if ahead else (max(0, i - width + 1), i)
            cuts = self.rng.random(last - first) ** sharpness
            prefix[i, first:last] = np.sort(np.round(4 * cuts) / 4 if self.edge else cuts)
            prefix[i, last:] = 1.0
        return prefix

    def monotone(self, ahead: bool = False) -> Matrix:
        """A stochastically monotone kernel inside the mask, in one of five ways."""
        (tokens, width), way = self.size, self.whole(0, 4)
        if way == 0:  # order statistics of the prefix masses of random rows
            return kernel_of(-np.sort(-self.prefixes(ahead), axis=0))
        if way == 1:  # their running minimum: every row dominates those before it, with many ties
            return kernel_of(np.minimum.accumulate(self.prefixes(ahead), axis=0))
        if way == 2:  # a mixture of non-decreasing maps i ↦ key, one map at the edge
            keys = np.sort(self.rng.integers(0, tokens, (1 if self.edge else 4, tokens)), axis=1)
            if not ahead:
                keys = np.clip(keys, np.maximum(0, np.arange(tokens) - width + 1), np.arange(tokens))
            return np.eye(tokens)[keys].mean(axis=0)
        if way == 3:  # what the theory of this package gives
            slope = float(self.rng.choice([0.0, 40.0]) if self.edge else self.rng.exponential())
            positional = self.one_of(NoPE(), ALiBi(), DecayBias(slope))
            return layer_kernel(Layer(2, positional=positional, mask=SlidingWindow(width)), tokens)
        return 0.5 * (self.monotone() + self.monotone(ahead))

    def positive(self) -> Matrix:
        """A stochastically monotone kernel with weight on every admitted pair."""
        (tokens, width), share = self.size, self.pick([0.02, 0.3], [1e-6, 1.0])
        return (1 - share) * self.monotone() + share * layer_kernel(Layer(mask=SlidingWindow(width)), tokens)

    def ordered(self, monotone: bool = False) -> tuple[Matrix, Matrix]:
        """Two kernels, the first dominating the second row by row; one of them monotone, or neither need be."""
        one, other = self.prefixes(), self.prefixes()
        if monotone:
            one = -np.sort(-one, axis=0)
        least, most = np.minimum(one, other), np.maximum(one, other)
        if not monotone:
            return kernel_of(least), kernel_of(most)
        return (kernel_of(one), kernel_of(most)) if self.coin() else (kernel_of(least), kernel_of(one))

    def stack(self) -> dict[str, Any]:
        """Monotone kernels of up to eight layers, bottom first, with their λ and the width of the window."""
        (_, width), depth = self.size, self.whole(1, 8)
        kernels = np.stack([self.monotone() for _ in range(depth)])
        return {"kernels": kernels, "mixing": self.mixing(depth), "width": width}

    # --- kernels under a mask --------------------------------------------------------------------------------

    def masked(self, kind: str, most: int = 40) -> dict[str, Any]:
        """Up to three kernels, used in turn; `size` is the width of the window or the length of the prefix."""
        tokens, narrowest = self.length(), 2 if kind == "window" else 1
        size = self.whole(narrowest, tokens, (narrowest, tokens))
        allowed = mask_of(kind, size).allowed(tokens)
        if self.edge and self.rng.random() < 0.6:
            # the floor everywhere, the rest on the token itself, the first or the last key
            floor = self.rng.choice([1e-12, 1e-3, 0.5, 1.0]) / allowed.sum(axis=1).max()
            targets = np.arange(tokens), allowed.argmax(axis=1), tokens - 1 - allowed[:, ::-1].argmax(axis=1)
            rest = np.eye(tokens)[self.one_of(*targets)] * (1.0 - floor * allowed.sum(axis=1, keepdims=True))
            kernels = (floor * allowed + rest)[None]
        else:
            spread, period = self.rng.choice([0.0, 0.5, 3.0]), self.whole(1, 3)
            kernels = masked_softmax(self.rng.normal(0, spread, (period, tokens, tokens)), allowed)
        return {"kernels": in_turn(kernels, self.layers(most)), "size": size}

    # --- networks --------------------------------------------------------------------------------------------

    def values(self, depth: int, dim: int) -> Float[np.ndarray, "layer out in"]:
        """W_t with W_1⋯W_t = G_t for random invertible G_t, so that every product is bounded (Assumption 5.2)."""
        turns, shape = np.linalg.qr(self.rng.normal(size=(depth + 1, dim, dim)))[0], (depth + 1, 1, dim)
        sizes = self.rng.choice([0.2, 1.0, 2.0], shape) if self.edge else self.rng.uniform(0.5, 1, shape)
        products = turns * sizes
        products[0] = np.eye(dim)
        return np.linalg.solve(products[:-1], products[1:])

    def network(self) -> Instance:
        """A network under Assumptions 5.1 and 5.2: small weights, or at the edge values that grow."""
        if self.edge and self.rng.random() < 0.3:  # a first token of zeros, others that grow
            hidden = [[0.0]] + [[0.1]] * self.whole(1, 3)
            return growing(hidden, 0.1, self.rng.uniform(2, 40), self.whole(20, 60))
        tokens, dim, depth = self.whole(2, 5), self.whole(1, 3), self.whole(1, 24)
        scale = self.rng.choice([0.1, 1.0]) / np.sqrt(dim)
        return {
            "hidden": self.rng.normal(size=(tokens, dim)) * scale,
            "queries": self.rng.normal(size=(depth, dim, dim)) * scale,
            "keys": self.rng.normal(size=(depth, dim, dim)) * scale,
            "values": self.values(depth, dim),
            "mixing": self.mixing(depth),
        }

    def masked_network(self) -> Instance:
        """A network without residual connections under any mask; at the edge one key opposite to all others."""
        network = {**Sampler(self.rng).network(), "kind": str(self.rng.choice(MASKS))}
        del network["mixing"]
        tokens = len(network["hidden"])
        if self.edge and self.coin():
            weight = np.full((1, 1, 1), self.rng.choice([0.0, 1.0, 3.0]))
            network |= {"queries": weight, "keys": weight, "values": np.ones((1, 1, 1))}
            network["hidden"] = np.where(np.arange(tokens)[:, None] == 0, -1.0, 1.0)
        return network | {"size": self.whole(1, tokens)}


def kernel_of(prefix: Matrix) -> Matrix:
    """The weights whose prefix masses along each row are given."""
    return np.diff(prefix, axis=-1, prepend=0.0)


def log_weights(kernel: Matrix) -> Matrix:
    """Logits whose softmax over the kernel's support is the kernel; finite everywhere, for JSON's sake."""
    return np.log(np.where(kernel > 0, kernel, 1.0))


def in_turn(kernels: Stack, depth: int) -> Stack:
    """As many layers as `depth`, the kernels used in turn."""
    return kernels[np.arange(depth) % len(kernels)]


def admitted(tokens: int, width: int) -> Bool[np.ndarray, "query key"]:
    """Who may attend to whom under a sliding window; causal where it is as wide as the text."""
    return SlidingWindow(int(width)).allowed(tokens)


def mask_of(kind: str, size: float) -> Mask:
    """The mask by its kind: causal, window (of width `size`), prefix (of length `size`) or full."""
    masks = {"causal": Causal, "window": SlidingWindow, "prefix": Prefix, "full": Full}
    return masks[kind](int(size)) if kind in ("window", "prefix") else masks[kind]()


def alternating(high: float, depth: int) -> list[list[list[float]]]:
    """1×1 value matrices whose products stay at `high` or 1."""
    return [[[high if layer % 2 == 0 else 1 / high]] for layer in range(depth)]


def growing(hidden: list[list[float]], weight: float, high: float, depth: int) -> Instance:
    """A network of width one with values high, 1/high, … and λ = ½: their products are at most `high`."""
    weights = [[[weight]]] * depth
    network = {"hidden": hidden, "queries": weights, "keys": weights, "values": alternating(high, depth)}
    return network | {"mixing": [0.5] * depth}
