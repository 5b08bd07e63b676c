"""Instances of the theorems on masks: kernels with weight on every admitted pair, and small sizes.

The theorems bound a rollout by ε, the smallest admitted weight, so at the edge kernels put exactly ε
everywhere and the rest of each row on one key; otherwise they come from random logits or from the encodings
of this package.
"""

import numpy as np
from jaxtyping import Bool
from numpy.random import Generator

from posbias.theory.architecture import Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.distance import RoPE
from posbias.theory.masks import Causal, Full, Mask, Prefix, SlidingWindow
from posbias.theory.positional import ALiBi, DecayBias, NoPE
from posbias.theory.rollout.kernel import layer_kernel, masked_softmax
from posbias_papers.statements.margins import Matrix
from posbias_papers.statements.statement import Instance


def depth(rng: Generator, edge: bool, most: int = 40) -> int:
    """Layers: 1 … `most`, often one or two at the edge."""
    return int(rng.integers(1, 3) if edge and rng.random() < 0.5 else rng.integers(1, most + 1))


def length(rng: Generator, edge: bool) -> int:
    """Tokens: 2 … 8, often two at the edge."""
    return 2 if edge and rng.random() < 0.4 else int(rng.integers(2, 9))


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


def _kernel(rng: Generator, mask: Mask, tokens: int, edge: bool) -> Matrix:
    """A kernel with weight on every admitted pair: from random logits, or of an architecture of ours."""
    if edge and rng.random() < 0.6:
        return _spiked(rng, mask.allowed(tokens))
    if rng.random() < 0.3:
        heads = int(rng.integers(1, 5))
        positional = [
            NoPE(),
            ALiBi(),
            DecayBias(float(rng.exponential())),
            RoPE(((2.0,),), frequencies=(0.3,)),
        ]
        content = ConstantDiagonal((float(rng.normal()),), first_column=(float(rng.normal()),))
        return layer_kernel(Layer(heads, mask, positional[rng.integers(4)], content), tokens)
    logits = rng.normal(0, rng.choice([0.0, 0.5, 3.0]), (tokens, tokens))
    return masked_softmax(logits, mask.allowed(tokens))


def stack(rng: Generator, edge: bool, kind: str) -> Instance:
    """Up to three kernels, used in turn; `size` is the width of the window or the length of the prefix."""
    tokens = length(rng, edge)
    least = 2 if kind == "window" else 1
    most = tokens + 2 if kind == "window" else tokens
    size = int(rng.choice([least, max(least, tokens)]) if edge else rng.integers(least, most + 1))
    kernels = [_kernel(rng, mask_of(kind, size), tokens, edge) for _ in range(rng.integers(1, 4))]
    return {"kernels": np.stack(kernels), "size": size, "depth": depth(rng, edge)}


def mask_of(kind: str, size: int) -> Mask:
    """The mask by its kind: causal, window (of width `size`), prefix (of length `size`) or full."""
    masks: dict[str, Mask] = {
        "causal": Causal(),
        "window": SlidingWindow(int(size)),
        "prefix": Prefix(int(size)),
        "full": Full(),
    }
    return masks[kind]
