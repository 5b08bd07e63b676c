"""The token-space engine: the model as it is written down, the reference for the Gram-space engine.

Embeddings are drawn, every layer computes Y, S = YYᵀ/√d and X ← softmax(S)·Y on whole vectors, and features
are taken from S and A sample by sample (`Tally.of_scores`). It is there to be read: nothing is rearranged,
fused or skipped. Time and memory per sample grow with tokens × d, so a block is the smaller the larger d is.

Each block has a generator of its own and is always drawn as a whole: fewer samples are the first of it.
"""

import math

import numpy as np
from jaxtyping import Float
from numpy.random import Generator, default_rng

from posbias.core.errors import wrong
from posbias.core.machine import sequence
from posbias.simulation.model import RecencyModel
from posbias.simulation.tally import Layout, PerLayer, Tally
from posbias.theory.rollout.kernel import masked_softmax

STREAM = "simulate/recency/token_space"
NUMBERS = 2**21
"""Numbers that the samples of a block take, about (16 MiB)."""
LARGEST = 4096
"""Samples per block at most."""
HIGHEST = 1e150
"""Scores from here on are refused: their squares would not be finite."""

Embeddings = Float[np.ndarray, "sample token dimension"]
Vectors = Float[np.ndarray, "*vectors dimension"]


def block_size(model: RecencyModel) -> int:
    """Samples per block: as many as fit into `NUMBERS`, at least one and at most `LARGEST`."""
    return min(max(NUMBERS // _numbers(model), 1), LARGEST)


def memory(model: RecencyModel) -> int:
    """Bytes that a block takes while it is computed, its tally aside: its samples, and the list of triples."""
    return 8 * block_size(model) * _numbers(model) + model.triples * (100 + 3 * model.tokens)


def _numbers(model: RecencyModel) -> int:
    """Numbers that one sample takes: vectors, scores and attention, features, triples of scores."""
    vectors = (5 * model.tokens + 2) * model.dimension
    pairs = 4 * model.depth * model.tokens**2
    return vectors + pairs + (3 * model.depth + 2) * Layout(model.tokens).size + 3 * model.triples


def embeddings(rng: Generator, model: RecencyModel, samples: int) -> Embeddings:
    """x_i = ε_i + √(α/(1−α))·v with ε_i and v from N(0, I/d), `samples` times (Kim et al. 2026, Eq. 6).

    The shared directions v of all samples are drawn first, then the tokens.
    """
    shared = model.shared * rng.standard_normal((samples, 1, model.dimension))
    tokens = rng.standard_normal((samples, model.tokens, model.dimension))
    return (tokens + shared) / math.sqrt(model.dimension)


def normalised(model: RecencyModel, x: Vectors) -> Vectors:
    """The norm of `model` along the dimension, without ε (Ba et al. 2016; Zhang and Sennrich 2019).

    A vector without length (LayerNorm: of equal entries) has no direction and becomes NaN; almost surely none
    is drawn.
    """
    if model.norm == "none":
        return x
    if model.norm == "layernorm":
        x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True))
    gain, bias = np.full(model.dimension, model.gain), np.full(model.dimension, model.bias)
    return gain * x + bias


def layer_scores(
    model: RecencyModel, x: Embeddings, states: list[Embeddings] | None = None
) -> tuple[PerLayer, PerLayer]:
    """Scores and attention of all layers for embeddings x (Kim et al. 2026, Eqs. 1, 2 and 20 with γ = 1).

    Scores are those before the mask, so symmetric; attention is zero where the mask is. What every layer is given
    is appended to `states`, if there is such a list. Raises `InvalidValueError` for scores that are not finite, or
    of 1e150 and more.
    """
    allowed = model.mask.allowed(model.tokens)
    scores, attention = [], []
    for layer in range(model.depth):
        if states is not None:
            states.append(x)
        y = normalised(model, x) if model.order == "pre" else x
        with np.errstate(over="ignore", invalid="ignore"):
            s = y @ y.swapaxes(1, 2) / (math.sqrt(model.dimension) * model.temperature)
        if not np.abs(s).max() < HIGHEST:
            advice = "raise the temperature, or lower gain, bias or depth"
            got = f"others in layer {layer + 1} of {model}; {advice}"
            raise wrong("model", f"finite scores below {HIGHEST:.0e}", got=got)
        a = masked_softmax(s, allowed)
        scores.append(s)
        attention.append(a)
        if layer < model.depth - 1:
            x = a @ y + x if model.residual else a @ y
            if model.order == "post":
                x = normalised(model, x)
    return np.stack(scores), np.stack(attention)


def hidden_states(model: RecencyModel, x: Embeddings) -> Float[np.ndarray, "layer sample token dimension"]:
    """The residual stream before every layer, beginning with the embeddings x. Raises as `layer_scores`."""
    states: list[Embeddings] = []
    layer_scores(model, x, states)
    return np.stack(states)


def run_block(model: RecencyModel, seed: int, block: int, samples: int) -> Tally:
    """The tally of the first `samples` samples of block number `block`.

    Raises `InvalidValueError` for samples < 1 or above `block_size`, or a seed that is no integer ≥ 0.
    """
    size = block_size(model)
    if not 1 <= samples <= size:
        raise wrong("samples", f"an integer from 1 to {size}", samples)
    rng = default_rng(sequence(seed, STREAM, block))
    return Tally.of_scores(*layer_scores(model, embeddings(rng, model, size)[:samples]), model.mask)
