"""What the paper says of λ by layer (Figures 1 and 4, Appendix C), as claims on measured models."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from posbias.claims import LEVEL, Evidence, Judged, Near, difference, judged_sentence, mean
from posbias.papers.herasimchyk2026.cells import Key, names

Mixings = Mapping[Key, Float[np.ndarray, "prompt layer"]]


def mixing_claims(mixings: Mixings) -> list[Judged]:
    """Figure 1: that λ_t falls with depth, for every model and length."""
    sentence = "λ falls with depth: its mean over the lower half of the layers exceeds that over the upper"
    return [
        judged_sentence(sentence, tuple(_fall(_at(key, mixings), mixing) for key, mixing in mixings.items()))
    ]


def corpora_claims(mixings: Mixings) -> list[Judged]:
    """Figure 4: the same on every corpus, and that λ_t is one for all (as a table that shares λ assumes)."""
    effects = []
    first = names(mixings, "corpus")[0]
    for key, mixing in mixings.items():
        reference = Key(key.model, first, key.tokens)
        if key.corpus != first and reference in mixings:
            where = f"{key.model}, {key.tokens} tokens, {key.corpus}"
            effects.append(_apart(where, mixing, mixings[reference]))
    claims = mixing_claims(mixings)
    if effects:
        claims.append(
            judged_sentence(f"λ is that of {first} on every other corpus, layer by layer", tuple(effects))
        )
    return claims


def _fall(where: str, mixing: Float[np.ndarray, "prompt layer"]) -> Evidence:
    half = mixing.shape[1] // 2
    if not half:
        return Evidence(where, flaw="one layer, two needed")
    return mean(where, mixing[:, :half].mean(axis=1) - mixing[:, -half:].mean(axis=1))


def _apart(
    where: str, one: Float[np.ndarray, "prompt layer"], other: Float[np.ndarray, "prompt layer"]
) -> Evidence:
    """That two schedules are near each other in every layer: the layer that decides it.

    Near in every layer is an "and", which the least sure layer decides; apart in some layer is an "or", for which
    the surest layer's p-value is taken times the number of layers.
    """
    layers = [
        difference(f"{where}, layer {t}", a, b, draws="prompts", test=Near())
        for t, (a, b) in enumerate(zip(one.T, other.T, strict=True))
    ]
    if layers[0].flaw:
        return replace(layers[0], where=where)
    apart = min(layers, key=lambda layer: layer.against)
    opposite = min(1.0, len(layers) * apart.against)
    deciding = apart if opposite < LEVEL else max(layers, key=lambda layer: layer.p)
    return replace(deciding, opposite=opposite)


def _at(key: Key, mixings: Mixings) -> str:
    several = len(names(mixings, "corpus")) > 1
    return f"{key.model}, {key.tokens} tokens" + (f", {key.corpus}" if several else "")
