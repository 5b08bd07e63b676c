"""What Kim et al. 2026 say of their figures and simulations, as claims.

How claims are judged: `posbias.claims`. A probability is above one half if it surely is, and is not if it surely
exceeds it by less than half of the last digit that the paper prints (`effects.DIGIT`). Definition 1 is tried step
by step on mean scores. Those on closed forms are made in `forms`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from posbias.claims import Claim, Effect
from posbias.papers.kim2026.effects import (
    DIGIT,
    above_half,
    below_half,
    beyond_distance,
    close_to_half,
    even_rows,
    higher_scores,
    more_recent,
    printed_effect,
    rising,
    where_of,
)
from posbias.papers.kim2026.figures import FIGURES, HeatMaps, KeyFactors
from posbias.papers.kim2026.forms import key_factor_claims, score_claims
from posbias.papers.kim2026.table import PUBLISHED, Results, check_published, describe
from posbias.simulate import RecencyModel, RecencyResult

DIMENSIONS = (16, 64)
SECTION3 = tuple(
    dict.fromkeys(
        [RecencyModel(norm="none", anisotropy=0.0, dimension=d) for d in DIMENSIONS]
        + [model for _, model in PUBLISHED]
    )
)
"""The models that Section 3 speaks of."""
EVEN = 0.05
"""Up to this share of their level, the scores of a row may be apart and be said to be uniform."""
FIRST_LAYER = 1e-3
"""How far the probability of a first layer, ½ exactly, may be found from it."""

Pick = Callable[..., list[RecencyResult]]


def claims_of(name: str, results: Results) -> list[Claim]:
    """The claims of a figure or of `section3`, from the simulations of its models."""
    if name == "section3":
        return [*_printed(results), *_probabilities(_pick(SECTION3, results))]
    shown = FIGURES[name]
    if isinstance(shown, KeyFactors):
        return list(key_factor_claims(shown, results))
    chosen = _pick(shown.models, results)
    special = {"fig1": _scores, "fig3": _deep, "fig4": _wide}.get(name)
    return list(special(chosen) if special else _anisotropies(shown, results))


def _pick(models: tuple[RecencyModel, ...], results: Results) -> Pick:
    """A function that gives the simulations of some models, by their fields."""

    def pick(**fields: object) -> list[RecencyResult]:
        return [results[m] for m in models if all(getattr(m, key) == value for key, value in fields.items())]

    return pick


def _rows(pick: Pick) -> tuple[list[RecencyResult], ...]:
    """The four models of Figures 1, 3 and 4, each at both dimensions."""
    layernorm = {"norm": "layernorm"}
    return (
        pick(norm="none"),
        pick(anisotropy=0.0, **layernorm),
        pick(anisotropy=0.5, residual=False, **layernorm),
        pick(anisotropy=0.5, residual=True, **layernorm),
    )


# --- Section 3 ---------------------------------------------------------------------------------------------


def _printed(results: Results) -> Iterator[Claim]:
    for check in check_published({model: results[model] for _, model in PUBLISHED}):
        where = check.where.removeprefix("Section 3: ")
        yield Claim(f"The recency probability of {where}, is {check.printed}", (printed_effect(check),))


def _probabilities(pick: Pick) -> Iterator[Claim]:
    without, isotropic, anisotropic, residual = _rows(pick)
    yield Claim(
        "Without LayerNorm the recency probability of layers 1 and 2 is close to one half (within .01)",
        tuple(close_to_half(one, layer) for one in without for layer in (1, 2)),
    )
    yield Claim(
        "With LayerNorm and isotropic embeddings, 16 dimensions show a mild recency in layer 2",
        tuple(above_half(one, 2) for one in isotropic if one.model.dimension == 16),
    )
    yield Claim(
        "With LayerNorm and isotropic embeddings, 64 dimensions show no recency in layer 2, to four digits",
        tuple(close_to_half(one, 2, DIGIT) for one in isotropic if one.model.dimension == 64),
    )
    yield Claim(
        "Anisotropic embeddings prefer recent keys in layer 2, with a residual connection or without",
        tuple(above_half(one, 2) for one in (*anisotropic, *residual)),
    )
    yield Claim(
        "Anisotropy strengthens recency: the probability of layer 2 is higher at α = 0.5 than at α = 0",
        tuple(_against(one, other) for one, other in zip(anisotropic, isotropic, strict=True)),
    )
    yield Claim(
        "A residual connection weakens it: the probability of layer 2 is lower with than without",
        tuple(_against(one, other) for one, other in zip(anisotropic, residual, strict=True)),
    )
    yield Claim(
        "Fewer dimensions show more: the probability of layer 2 is higher at d = 16 than at d = 64",
        tuple(
            more_recent(describe(row[0].model), (row[0], 2), (row[1], 2))
            for row in (isotropic, anisotropic, residual)
        ),
    )


def _against(more: RecencyResult, less: RecencyResult, layer: int = 2) -> Effect:
    where = f"{where_of(more.model, layer)}, less {describe(less.model)}"
    return more_recent(where, (more, layer), (less, layer))


# --- Figure 1 ----------------------------------------------------------------------------------------------


def _scores(pick: Pick) -> Iterator[Claim]:
    without, isotropic, anisotropic, residual = _rows(pick)
    everything = (*without, *isotropic, *anisotropic, *residual)
    yield Claim(
        "The first layer prefers neither end, in any model (recency probability one half, within .001)",
        tuple(close_to_half(one, 1, FIRST_LAYER) for one in everything),
    )
    yield Claim(
        "Without LayerNorm the scores of layer 2 are uniform along a row but for the diagonal (within 5 %)",
        tuple(even_rows(one, 2, EVEN) for one in without),
    )
    yield Claim(
        "LayerNorm makes mean scores of layer 2 rise along every row at α = 0, in 16 dimensions",
        tuple(rising(one, 2) for one in isotropic if one.model.dimension == 16),
    )
    yield Claim(
        "LayerNorm makes mean scores of layer 2 rise along every row at α = 0, in 64 dimensions (Theorem 1)",
        tuple(rising(one, 2) for one in isotropic if one.model.dimension == 64),
    )
    yield Claim(
        "With anisotropic embeddings mean scores of layer 2 rise along every row",
        tuple(rising(one, 2) for one in anisotropic),
    )
    yield Claim(
        "With a residual connection mean scores of layer 2 still rise along every row (Proposition 2)",
        tuple(rising(one, 2) for one in residual),
    )
    yield Claim(
        "A residual connection lowers every score of layer 2 below the diagonal",
        tuple(
            higher_scores(f"α = 0.5, d = {one.model.dimension}, without less with", one, other, 2)
            for one, other in zip(anisotropic, residual, strict=True)
        ),
    )
    yield Claim(
        "Scores do not depend on distance alone: at every distance the last query gives more than the first",
        tuple(beyond_distance(one, 2) for one in (*anisotropic, *residual)),
    )
    yield from score_claims(everything)


# --- Figures 3 and 4 ---------------------------------------------------------------------------------------


def _deep(pick: Pick) -> Iterator[Claim]:
    without, isotropic, anisotropic, residual = _rows(pick)
    yield Claim(
        "Without LayerNorm the recency probability of layers 3 and 4 is close to one half (within .01)",
        tuple(close_to_half(one, layer) for one in without for layer in (3, 4)),
    )
    yield Claim(
        "Without LayerNorm layers 3 and 4 prefer earlier keys",
        tuple(below_half(one, layer) for one in without for layer in (3, 4)),
    )
    yield Claim(
        "With LayerNorm and anisotropic embeddings mean scores of layers 3 and 4 rise along every row",
        tuple(rising(one, layer) for one in (*anisotropic, *residual) for layer in (3, 4)),
    )
    yield Claim(
        "With LayerNorm and isotropic embeddings layers 3 and 4 prefer recent keys, in 16 dimensions",
        tuple(above_half(one, layer) for one in isotropic[:1] for layer in (3, 4)),
    )
    yield Claim(
        "With LayerNorm and isotropic embeddings layers 3 and 4 show no recency in 64 dimensions, to four digits",
        tuple(close_to_half(one, layer, DIGIT) for one in isotropic[1:] for layer in (3, 4)),
    )
    yield Claim(
        "Recency grows with depth: its probability rises from layer 2 to 3 and from 3 to 4",
        tuple(
            more_recent(
                f"{where_of(one.model)}, layer {layer + 1} less {layer}", (one, layer + 1), (one, layer)
            )
            for one in (*isotropic[:1], *anisotropic, *residual)
            for layer in (2, 3)
        ),
    )
    yield Claim(
        "A residual connection weakens recency in layers 3 and 4 too",
        tuple(
            _against(one, other, layer)
            for one, other in zip(anisotropic, residual, strict=True)
            for layer in (3, 4)
        ),
    )


def _wide(pick: Pick) -> Iterator[Claim]:
    without, isotropic, anisotropic, residual = _rows(pick)
    yield Claim(
        "Without LayerNorm the recency probability of layer 2 is close to one half in 256 and 1,024 dimensions",
        tuple(close_to_half(one, 2) for one in without),
    )
    yield Claim(
        "With LayerNorm isotropic embeddings prefer recent keys in 256 and 1,024 dimensions (Theorem 1, d ≫ 1)",
        tuple(above_half(one, 2) for one in isotropic),
    )
    yield Claim(
        "With anisotropic embeddings mean scores of layer 2 rise along every row, at d = 256 and 1,024",
        tuple(rising(one, 2) for one in (*anisotropic, *residual)),
    )
    yield Claim(
        "With anisotropic embeddings 256 dimensions show recency in layer 2, to four digits",
        tuple(_visible(one) for one in (*anisotropic[:1], *residual[:1])),
    )
    yield Claim(
        "With anisotropic embeddings 1,024 dimensions show recency in layer 2, to four digits",
        tuple(_visible(one) for one in (*anisotropic[1:], *residual[1:])),
    )
    yield Claim(
        "Recency weakens with the dimension: its probability in layer 2 is higher at d = 256 than at 1,024",
        tuple(
            more_recent(describe(row[0].model), (row[0], 2), (row[1], 2)) for row in (anisotropic, residual)
        ),
    )


def _visible(result: RecencyResult) -> Effect:
    """That the recency probability of layer 2 is above one half by more than half a printed digit."""
    effect = above_half(result, 2)
    return replace(effect, value=effect.value - DIGIT, least=0.0, origin=effect.origin + DIGIT)


# --- Figures 5 and 6 ---------------------------------------------------------------------------------------


def _anisotropies(shown: HeatMaps, results: Results) -> Iterator[Claim]:
    by_dimension = [[results[m] for m in shown.models if m.dimension == d] for d in shown.dimensions]
    chosen = [one for row in by_dimension for one in row]
    yield Claim(
        "At every anisotropy above 0 mean scores of layer 2 rise along every row (Proposition 3)",
        tuple(rising(one, 2) for one in chosen if one.model.anisotropy),
    )
    yield Claim(
        "At α = 0 too mean scores of layer 2 rise along every row",
        tuple(rising(one, 2) for one in chosen if not one.model.anisotropy),
    )
    yield Claim(
        "The more anisotropic the embeddings, the higher the recency probability of layer 2",
        tuple(_against(more, less) for row in by_dimension for less, more in pairwise(row)),
    )
    yield Claim(
        "The first layer prefers neither end, at any anisotropy (recency probability one half, within .001)",
        tuple(close_to_half(one, 1, FIRST_LAYER) for one in chosen),
    )
    if shown.beside:
        bare = [results[RecencyModel(dimension=m.dimension, anisotropy=m.anisotropy)] for m in shown.models]
        pairs = list(zip(bare, (results[m] for m in shown.models), strict=True))
        yield Claim(
            "A residual connection weakens recency in layer 2, at every anisotropy above 0",
            tuple(_against(one, other) for one, other in pairs if one.model.anisotropy),
        )
