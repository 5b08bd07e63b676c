"""The Gram-space engine: the model exactly in distribution, at a cost that does not grow with d.

Scores and attention depend on the embeddings only through their inner products, and the outputs of a layer
are mixtures of its inputs. So n tokens may be replaced by any n vectors with the same Gram matrix. For normal
embeddings that matrix is Wishart, and Bartlett's decomposition draws a lower-triangular factor of it at once:
normals below the diagonal, chi variates of d, d − 1, … degrees of freedom on it (d − 1, d − 2, … under
LayerNorm, which takes one direction away; without any left, a row has zeros). Where LayerNorm comes only
after attention, the first layer still sees the direction it takes away: one more coordinate.

Samples come in blocks, each with a generator of its own: the same seed gives the same samples however many
are asked for and however many threads share them out.
"""

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError
from posbias.core.seeds import sequence
from posbias.simulation import compiled
from posbias.simulation.compiled import LANES
from posbias.simulation.model import RecencyModel
from posbias.simulation.normals import fill_with_normals
from posbias.simulation.tally import Layout, Tally

BLOCK = 2048
"""Samples per block; a multiple of the lanes."""
STREAM = "simulate/recency"


def block_size(model: RecencyModel) -> int:
    """Samples per block: the same for every model."""
    return BLOCK


def memory(model: RecencyModel) -> int:
    """Bytes that a block takes while it is computed, its tally aside."""
    entries = model.tokens * (model.tokens + 1) // 2
    return 8 * (entries * BLOCK + 2 * Layout(model.tokens).size * LANES)


def extra_coordinates(model: RecencyModel) -> int:
    """Coordinates beside the Bartlett factor: one where the first layer comes before any LayerNorm."""
    return int(model.order == "post" and model.norm == "layernorm")


def check_mask(model: RecencyModel) -> None:
    """Raise `InvalidValueError` for a mask by which a token sees one after it, or not itself.

    The factor stays triangular under all others. Normalised tokens score highest with themselves, so weights are
    taken relative to that.
    """
    allowed = model.mask.allowed(model.tokens)
    if np.triu(allowed, 1).any() or not allowed.diagonal().all():
        raise InvalidValueError(
            f"mask: {model.mask} given with engine 'gram', under which a token sees itself and none after it; "
            "'token_space' needed"
        )


def draw_block(
    model: RecencyModel, seed: int, block: int
) -> tuple[Float[np.ndarray, "entry sample"], Float[np.ndarray, "token sample"]]:
    """What block number `block` consists of: normals row by row, and the factor's diagonal."""
    rng = np.random.Generator(np.random.SFC64(sequence(seed, STREAM, block)))
    diagonal = min(model.tokens, model.freedom)
    entries = sum(min(i, model.freedom) for i in range(model.tokens))
    normals = np.empty((entries + model.tokens * extra_coordinates(model), BLOCK))
    fill_with_normals(rng, normals)
    chis = np.empty((diagonal, BLOCK))
    for i in range(diagonal):
        rng.standard_gamma((model.freedom - i) / 2.0, out=chis[i])
    return normals, np.sqrt(2.0 * chis, out=chis)


def run_block(model: RecencyModel, seed: int, block: int, samples: int = BLOCK) -> Tally:
    """The tally of the first `samples` samples of block number `block`.

    A bias is left out until the end: it adds the same to every score of a normalised layer, and beside a large
    one their differences would lose their digits. Raises `InvalidValueError` for samples < 1 or above `BLOCK`,
    and for scores whose squares are not finite.
    """
    if not 1 <= samples <= BLOCK:
        raise InvalidValueError(f"samples: {samples} given, an integer from 1 to {BLOCK} needed")
    tally = Tally(Layout(model.tokens, model.mask), model.depth, samples)
    normals, chis = draw_block(model, seed, block)
    length = 0.0 if model.norm == "none" else np.sqrt(model.dimension) * model.gain
    compiled.run_block(
        normals,
        chis,
        samples,
        model.depth,
        model.tokens,
        extra_coordinates(model),
        model.freedom,
        model.shared,
        1.0 / np.sqrt(model.dimension),
        length,
        model.scale,
        model.norm != "none" and model.order == "pre",
        model.norm != "none" and model.order == "post",
        model.residual,
        tally.layout.triples,
        tally.layout.seen,
        tally.mean,
        tally.squares,
        tally.products,
    )
    first = int(model.order == "post")
    with np.errstate(over="ignore"):
        tally.mean[first:, : tally.layout.pairs] += model.bias * model.bias * model.dimension * model.scale
    for layer in range(model.depth):
        if not (np.isfinite(tally.mean[layer]).all() and np.isfinite(tally.squares[layer]).all()):
            raise InvalidValueError(
                f"model: {model} given, its scores in layer {layer + 1} or their squares are not finite; "
                "a higher temperature, or a lower gain, bias or depth needed"
            )
    return tally
