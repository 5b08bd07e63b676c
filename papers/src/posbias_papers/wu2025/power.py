"""What depth costs and brings (Section 4.1, trade-off; Appendix K.1): loss, accuracy, rank, beside the bias."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.profiles.claims import Claim
from posbias.profiles.evidence import Evidence, difference
from posbias_papers.claims import Maker, Quantity
from posbias_papers.wu2025 import quantities as q
from posbias_papers.wu2025.outcomes import Gaps
from posbias_papers.wu2025.settings import RELATIVE, Setting
from posbias_papers.wu2025.settled import AS_TRAINED

if TYPE_CHECKING:
    from posbias.training.loop import Trained

EVERY = "networks"
"""All that trained to the end, whether they have learnt or not."""


def what_depth_does(claim: Maker, first: int, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Five claims from number `first` on, on the networks of Figure 2."""
    alone, residual = ([cell for cell in cells if cell.residual is kind] for kind in (False, True))
    about = {"place": "Appendix K.1", "effort": AS_TRAINED}
    steps = [
        (f"{RELATIVE[deep.positional]}, depth {shallow.depth} to {deep.depth},", deep, shallow)
        for word in RELATIVE
        for shallow, deep in pairwise([cell for cell in alone if cell.positional == word])
    ]
    ends = _ends(alone)
    _, deepest, shallowest = ends[0]
    sentence = (
        f"No residual: depth {deepest.depth} is harder to train than depth {shallowest.depth}: after equally"
    )
    sentence += " many iterations the loss of training is higher and in-context accuracy lower"
    parts = q.of_training(harder, ends), q.of_training(less_accurate, ends)
    yield claim(first, sentence, together(*parts), provenance="paper", **about)
    sentence = "No residual: each step of depth raises the loss of training after equally many iterations"
    yield claim(first + 1, sentence, q.of_training(harder, steps), **about)
    about = {"place": "Section 4.1, trade-off", "provenance": "paper"}
    for number, named in enumerate((alone, residual), start=first + 2):
        kind = "Residual" if named[0].residual else "No residual"
        deep, shallow = max(cell.depth for cell in named), min(cell.depth for cell in named)
        both = (
            f"depth {deep} has more representation power than depth {shallow}, and more bias to early tokens"
        )
        sentence = f"{kind}: {both} (in-context accuracy and first–last)"
        parts = q.of_gaps(more_accurate, _ends(named)), q.of_gaps(q.rises, _ends(named))
        yield claim(number, sentence, together(*parts), **about)
    sentence = (
        "No residual: the rollout of mean attention loses rank from the shallowest networks to the deepest"
    )
    lost = q.of_attention(loses_rank, ends)
    yield claim(first + 4, sentence, lost, place="Section 4.1, trade-off")


def harder(where: str, deep: "Trained", shallow: "Trained") -> Evidence:
    """By how much the loss of training, in nats, is higher in `deep` after equally many iterations."""
    return _after_as_many(where, deep, shallow, "loss", 1)


def less_accurate(where: str, deep: "Trained", shallow: "Trained") -> Evidence:
    """By how much in-context accuracy is lower in `deep` after equally many iterations."""
    return _after_as_many(where, deep, shallow, "in_context_accuracy", -1)


def more_accurate(where: str, deep: Gaps, shallow: Gaps) -> Evidence:
    """By how much in-context accuracy is higher in `deep`, on average over every network."""
    sides = [cell.accuracy[np.isfinite(cell.loss)] for cell in (deep, shallow)]
    return difference(f"{where} in-context accuracy", *sides, draws=EVERY)


def effective_rank(matrix: Float[np.ndarray, "query key"]) -> float:
    """exp of the entropy of the singular values, as shares of their sum: 1 for rank one, n for the identity."""
    values = np.linalg.svd(matrix, compute_uv=False)
    shares = values[values > 0] / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def loses_rank(
    where: str,
    deep: Float[np.ndarray, "network layer query key"],
    shallow: Float[np.ndarray, "other fewer query key"],
) -> Evidence:
    """By how much the effective rank of the product of mean attention over layers is lower in `deep`."""
    ranks = [[effective_rank(_product(one)) for one in side] for side in (shallow, deep)]
    return difference(f"{where} effective rank", *map(np.asarray, ranks), draws=q.NETWORKS)


def _product(layers: Float[np.ndarray, "layer query key"]) -> Float[np.ndarray, "query key"]:
    """The rollout of attention alone, bottom layer first."""
    product = np.eye(layers.shape[-1])
    for layer in layers:
        product = layer @ product
    return product


def _ends(cells: Sequence[Setting]) -> list[tuple[str, Setting, Setting]]:
    """By encoding the deepest setting and the shallowest."""
    by_word = {word: [cell for cell in cells if cell.positional == word] for word in RELATIVE}
    return [(RELATIVE[word], named[-1], named[0]) for word, named in by_word.items()]


def together(*parts: Quantity) -> Quantity:
    """The evidence of several quantities."""
    return lambda results: [piece for part in parts for piece in part(results)]


def _after_as_many(where: str, deep: "Trained", shallow: "Trained", curve: str, sign: int) -> Evidence:
    from posbias_papers.wu2025.matching import at_equal_iterations

    both = at_equal_iterations(deep, shallow, curve)
    if not both.points.size:
        return Evidence(where, flaw=both.remark)
    where = where if curve == "loss" else f"{where} accuracy"
    at = f"{where} after {both.points[-1]:,.0f} iterations"
    return difference(at, sign * both.one[:, -1], sign * both.other[:, -1], draws=EVERY)
