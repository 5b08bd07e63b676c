"""Kim et al. 2026, the theorem, the propositions and the printed equations: recency that LayerNorm induces.

The theorem and the propositions, which are about means in many dimensions, are tried as predicates (Definition 1)
on the closed forms of `posbias_papers.closed_forms.layernorm`: below the diagonal through ln h(j), where no
margin is lost to rounding, on it through the scores. What they say about drawn inputs, and so the printed
equations, is tried against small simulations in token space. Two kinds of noise are taken out exactly: the score
of the first layer, which has the same mean for all pairs, and, where the effect is of second order in e^−√d, the
first order, of which the same holds at α = 0. A misprint in a proof is a claim of its own: what is proven may
stand.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias.core.machine import stream
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings, layer_scores
from posbias_papers.closed_forms.layernorm import (
    ReadingName,
    SecondLayer,
    cross_weight,
    isotropic_scores,
    limit_scores,
    recency_margin,
    residual_coefficient,
    scores_without_layernorm,
)
from posbias_papers.statements import draws
from posbias_papers.statements.margins import least, room
from posbias_papers.statements.record import OURS, ROUNDING, STEP, Draw, Instance, statement

strictly = partial(statement, tolerance=0.0)
"""Of a margin that has errors of simulations in it already, or has to be positive."""
SIGMAS = 5.0
"""Standard errors that a simulation may be off by."""
DEVIATION = 5.0
"""What a closed form may be off by, times 1/d of itself; what simulations at 6 tokens and d ≥ 16 stay within."""
NEAR_HALF = 0.05
"""How far a recency probability may be from one half to count as close to it."""
PROOF: Mapping[str, Any] = {"evidence": "a proof, by the law of large numbers"}
NO_STATEMENT: Mapping[str, Any] = {**OURS, "evidence": "none: not a statement of the paper"}
ONE_INPUT = {"seed": 0, "samples": 1, "tokens": 8, "dimension": 1024, "anisotropy": 0.0, "residual": False}
MANY_INPUTS = {**ONE_INPUT, "samples": 1000, "tokens": 6, "dimension": 256}

Scores = Float[np.ndarray, "layer sample query key"]
LayerScores = Float[np.ndarray, "sample query key"]
Sample = Float[np.ndarray, "sample"]


# --- instances and margins -------------------------------------------------------------------------------------


def _draw_model(
    rng: Generator, edge: bool, *, anisotropic: bool = True, residuals: bool = True, fewest: int = 4
) -> Instance:
    """Models for the closed forms: at the edge few or many tokens, few or very many dimensions, α at its ends."""
    if edge:
        dimension = int(rng.choice([fewest, 5, 16, 1024, 2**18]))
        tokens = int(rng.choice([2, 3, 1000]))
        anisotropy = float(rng.choice([0.0, 1e-9, 1.0 - 1.0 / math.sqrt(dimension), 1.0 - 1e-6]))
    else:
        dimension = int(2.0 ** rng.uniform(math.log2(fewest), 13.0))
        tokens = int(rng.integers(2, 65))
        anisotropy = float(rng.random())
    model = {"tokens": tokens, "dimension": dimension, "anisotropy": anisotropy if anisotropic else 0.0}
    return model | {"residual": bool(rng.random() < 0.5) if residuals else False}


def _three_or_more(rng: Generator, edge: bool) -> Instance:
    """The same, for 3 to 64 tokens and from 1 dimension on."""
    drawn = dict(_draw_model(rng, edge, fewest=1))
    return {**drawn, "tokens": min(max(int(drawn["tokens"]), 3), 64)}


def _inputs(*, anisotropic: bool = False, samples: int = 250, largest: int = 400, fewest: int = 4) -> Draw:
    """Models to be simulated, with a seed; at the edge as few or as many dimensions as are tried."""
    smallest, anisotropy = 64 if largest > 100 else 16, draws.real(0.2, 0.99, (0.2, 0.99))
    return draws.instance(
        seed=draws.SEED,
        samples=samples,
        tokens=draws.whole(fewest, fewest + 2),
        dimension=draws.whole(smallest, largest, (smallest, largest)),
        anisotropy=lambda rng, edge: anisotropy(rng, edge) * anisotropic,
        residual=draws.coin if anisotropic else False,
    )


def strict(margin: float) -> float:
    """A margin that has to be positive as a slack: none at all is a failure."""
    return margin if margin else -1.0


def standard_error(sample: Any) -> float:
    """Of the mean of independent numbers."""
    return float(sample.std(ddof=1)) / math.sqrt(sample.size)


def near(sample: Any, expected: float, allowed: float = 0.0) -> float:
    """How much is left of what the mean of a sample may be off: `allowed`, and 5 standard errors."""
    return 1.0 - abs(float(sample.mean()) - expected) / (allowed + SIGMAS * standard_error(sample))


def _definition(scores: Any, form: SecondLayer) -> float:
    """Definition 1 on S_ij = g(i)h(j): g > 0, h rises, and the diagonal lies above its neighbour.

    A rise of ln h is in units of (1 − α)ρ, what it is per position for large d and few tokens; the distance
    to the diagonal in units of the larger of the two scores.
    """
    margins = [room(np.diag(scores, -1), np.diag(scores)[1:], scores), float(np.diag(scores, -1).min() > 0.0)]
    if form.tokens > 2:
        unit = (1.0 - form.anisotropy) * cross_weight(form.dimension, form.anisotropy, reading=form.reading)
        margins.append(float(np.diff(form.log_rise[:-1]).min()) / unit)
    return min(strict(margin) for margin in margins)


def simulated_scores(
    seed: int,
    samples: int,
    tokens: int,
    dimension: int,
    anisotropy: float = 0.0,
    *,
    residual: bool = False,
    layernorm: bool = True,
    depth: int = 2,
) -> Scores:
    """YYᵀ/√d of layers 1 to `depth` for `samples` drawn inputs (Eqs. 2, 6, 20), the mask not yet applied.

    From `posbias.simulation.token_space`; all samples at once, so for small numbers of them.
    """
    norm = "layernorm" if layernorm else "none"
    model = RecencyModel(tokens, dimension, anisotropy, norm, residual, depth)
    return layer_scores(model, embeddings(stream(seed, "verify/kim/embeddings"), model, samples))[0]


def first_order(scores: LayerScores, dimension: int) -> LayerScores:
    """The part of S⁽²⁾ − S⁽¹⁾ of first order in the weights u_ik = e^(√d(r_ik − 1)), below the diagonal.

    √d·[Σ_k u_ik(r_kj − r_ij r_ik) + Σ_l u_jl(r_il − r_ij r_jl)], without residual; `scores` are S⁽¹⁾.
    """
    r = scores / math.sqrt(dimension)
    u = np.tril(np.exp(math.sqrt(dimension) * (r - 1.0)), -1)
    seen = (u * r).sum(axis=-1)
    return math.sqrt(dimension) * (u @ r + r @ u.swapaxes(1, 2) - r * (seen[:, :, None] + seen[:, None, :]))


def _agreement(drawn: Sample, predicted: float, dimension: int) -> float:
    """What is left of the allowance after |mean − predicted|, in units of the predicted number.

    The allowance is never more than that number: a simulation too noisy to show its sign agrees with nothing.
    """
    allowed = DEVIATION / dimension + SIGMAS * standard_error(drawn) / abs(predicted)
    off = abs(float(drawn.mean()) / predicted - 1.0)
    return least(min(allowed, 1.0) - off, drawn.mean(), predicted)


def recency_shares(scores: LayerScores) -> Sample:
    """Per sample the share of triples i > j > k with S_ij > S_ik."""
    pairs = []
    for query in range(2, scores.shape[-1]):
        j, k = np.tril_indices(query, -1)
        pairs.append(scores[:, query, j] > scores[:, query, k])
    return np.concatenate(pairs, axis=1).mean(axis=1)


# --- the theorem and the propositions ------------------------------------------------------------------------


@strictly(
    "kim-theorem-1", "Theorem 1", partial(_draw_model, anisotropic=False, residuals=False, fewest=1), **PROOF
)
def theorem_1(tokens: int, dimension: int, **model: Any) -> float:
    """for d ≫ 1 S⁽²⁾ exhibits recency bias (Definition 1): its closed form, Eq. 5, does at every d

    A statement about means, which the law of large numbers gives for d ≫ 1, and so about the closed form; what it
    asserts is a rise of e^−√d per position relative to the score, which vanishes as d grows.

    Scope: α = 0, no residual connection, no learnable parameters, d ≫ 1, layer 2
    """
    scores = isotropic_scores(tokens, dimension, reading="published")
    return _definition(scores, SecondLayer(tokens, dimension, **model, reading="published"))


def _row_rises(scores: LayerScores) -> Float[np.ndarray, "sample row"]:
    """S_{i,i−1} − S_{i,0} of the queries i from 2, the first that has two keys before it."""
    nearest = np.diagonal(scores, -1, axis1=1, axis2=2)
    return nearest[:, 1:] - scores[:, 2:, 0]


@strictly(
    "kim-theorem-1-draws",
    "Theorem 1, of drawn inputs",
    (_inputs(samples=1, largest=1024), _inputs(samples=800, largest=81, fewest=7)),
    tolerance=(1e-9, 0.0),
    erratum="theorem-1",
    witness=ONE_INPUT,
    **NO_STATEMENT,
)
def one_draw(dimension: int, corrected: bool, **drawn: Any) -> float:
    """S⁽²⁾ of a single drawn input satisfies Definition 1

    Corrected: the mean of S⁽²⁾ rises along its rows as the corrected closed form does, within 5 standard errors
    and 5/d

    Scope: single inputs; α = 0, no residual connection, no learnable parameters, d ≫ 1, layer 2
    """
    first, second = simulated_scores(dimension=dimension, **drawn)
    if not corrected:
        margin = recency_margin(second[0])
        return least(margin / math.sqrt(dimension), margin, 0.0, second[0])
    rest = second - first - first_order(first, dimension)
    rise = float(_row_rises(isotropic_scores(drawn["tokens"], dimension)[None]).sum())
    return _agreement(_row_rises(rest).sum(axis=1), rise, dimension)


@strictly("kim-proposition-1", "Proposition 1", _three_or_more, tolerance=ROUNDING, **PROOF)
def proposition_1(**model: Any) -> float:
    """without LayerNorm S⁽²⁾ does not exhibit recency bias (fails Definition 1)

    Equality below the diagonal, so the slack is 0; at every α, with residual too, for 3 tokens or more (with 2,
    Definition 1 only compares the diagonal, and holds).

    Scope: without LayerNorm; α = 0, no residual connection, no learnable parameters, d ≫ 1, layer 2
    """
    forms = [limit_scores(2, **model, layernorm=False)[1]]
    if not (model["anisotropy"] or model["residual"]):
        forms.append(scores_without_layernorm(model["tokens"], model["dimension"], reading="published"))
    return min(-recency_margin(scores) / float(np.diag(scores).max()) for scores in forms)


@strictly("kim-proposition-2", "Proposition 2", partial(_draw_model, anisotropic=False), **PROOF)
def proposition_2(**model: Any) -> float:
    """with a residual connection or without, S⁽²⁾ exhibits recency bias (Definition 1), at α = 0

    In closed form with one γ throughout. The order below the diagonal stands with each of the three γ of Eqs. 26,
    27 and 34 (a residual divides the rise by 1 + g, g = 1/√d); the scale of Eq. 41 is a misprint, see Proposition
    3.

    Scope: α = 0, no learnable parameters, d ≫ 1, layer 2
    """
    form = SecondLayer(**model)
    return _definition(form.scores, form)


@strictly(
    "kim-proposition-3",
    "Proposition 3",
    _draw_model,
    erratum="eq-41",
    witness={"tokens": 3, "dimension": 64, "anisotropy": 0.5, "residual": False},
    **PROOF,
)
def proposition_3(corrected: bool, **model: Any) -> float:
    """with Eqs. 33 and 41 as printed S⁽²⁾ satisfies Definition 1, S_ii = √d by Eqs. 20 and 21

    Corrected: at every α in [0, 1), with residual or without, S⁽²⁾ satisfies Definition 1: with corrected
    constants

    Asserts: at every anisotropy α in [0, 1), with a residual connection or without, S⁽²⁾ exhibits recency bias
    (Definition 1)

    Scope: every α in [0, 1), with a residual connection or without, no learnable parameters, d ≫ 1, layer 2
    """
    form = SecondLayer(**model, reading=_reading(corrected))
    return _definition(form.scores, form)


# --- printed equations, of drawn inputs ----------------------------------------------------------------------


def _reading(corrected: bool) -> ReadingName:
    return "corrected" if corrected else "published"


def _mean_score(
    closed_form: Callable[..., Any],
    corrected: bool,
    layernorm: bool,
    tokens: int,
    dimension: int,
    **drawn: Any,
) -> float:
    """Whether the mean of S⁽²⁾ below the diagonal is that of a closed form at α = 0."""
    first, second = simulated_scores(tokens=tokens, dimension=dimension, layernorm=layernorm, **drawn)
    lower = np.tri(tokens, k=-1, dtype=bool)
    predicted = float(closed_form(tokens, dimension, reading=_reading(corrected))[lower].mean())
    return _agreement((second - first)[:, lower].mean(axis=1), predicted, dimension)


@strictly(
    "kim-equation-5",
    "Equation 5",
    _inputs(),
    erratum="cross-terms",
    witness=MANY_INPUTS,
    provenance="ours",
    **PROOF,
    **STEP,
)
def equation_5(corrected: bool, **drawn: Any) -> float:
    """for d ≫ 1 Eq. 5, cross terms taken as zero, is the mean of S⁽²⁾ at α = 0, within 5 standard errors and
    5/d

    Corrected: Eq. 5 with κe^−√d for e^−√d is the mean of S⁽²⁾ at α = 0, within 5 standard errors and 5/d

    Scope: α = 0, no residual connection, no learnable parameters, d ≫ 1, layer 2
    """
    return _mean_score(isotropic_scores, corrected, True, **drawn)


@strictly(
    "kim-equation-19", "Equation 19", _inputs(), erratum="eqs-17-19", witness=MANY_INPUTS, **PROOF, **STEP
)
def equation_19(corrected: bool, **drawn: Any) -> float:
    """Eq. 19 is the mean of S⁽²⁾ without LayerNorm, within 5 standard errors and 5/d

    Corrected: Eq. 19 divided by √d is the mean of S⁽²⁾ without LayerNorm, within 5 standard errors and 5/d

    Scope: without LayerNorm; α = 0, no residual connection, no learnable parameters, d ≫ 1, layer 2
    """
    return _mean_score(scores_without_layernorm, corrected, False, **drawn)


@strictly(
    "kim-equation-42",
    "Equation 42",
    _inputs(anisotropic=True, samples=500),
    erratum="eq-42",
    witness={**MANY_INPUTS, "dimension": 64, "anisotropy": 0.5, "residual": True},
    provenance="ours",
    **PROOF,
    **STEP,
)
def equation_42(seed: int, samples: int, corrected: bool, **model: Any) -> float:
    """for d ≫ 1 h(j)/h(0), γ = 1 with a residual, is the ratio of the mean scores of a row, within 5 standard
    errors and 5/d

    Corrected: h(j)/h(0) with g, and κF for F is the ratio of the mean scores of a row, within 5 standard errors
    and 5/d

    Scope: every α in [0, 1), with a residual connection or without, no learnable parameters, d ≫ 1, layer 2
    """
    first, second = simulated_scores(seed, samples, **model)
    change, dimension = second - first, model["dimension"]
    level = change[:, 2:, 0].mean(axis=0) + model["anisotropy"] * math.sqrt(dimension)
    rise = np.expm1(SecondLayer(**model, reading=_reading(corrected)).log_rise[1:-1]).sum()
    return _agreement((_row_rises(change) / level).sum(axis=1), float(rise), dimension)


@statement(
    "kim-figure-2",
    "Section 3, Figure 2",
    _draw_model,
    erratum="figure-2",
    witness={"tokens": 10, "dimension": 16, "anisotropy": 0.75, "residual": False},
    **NO_STATEMENT,
)
def grows_with_anisotropy(corrected: bool, **model: Any) -> float:
    """h grows more at any α > 0 than at α = 0, at every d and number of tokens too

    Corrected: h grows by a factor of at most exp((1−α)κe^(−(1−α)√d)/(1+g)) per position, the exponent peaking at
    1−α = 1/√d, and of at most (1+g)/√(α+2αg+g²) in all

    Scope: Eq. 42 at every d, α and number of tokens
    """
    dimension, alpha = model["dimension"], model["anisotropy"]
    if not corrected:
        forms = (
            SecondLayer(**{**model, "anisotropy": 0.0}, reading="published"),
            SecondLayer(**model, reading="published"),
        )
        return room(*(form.log_rise[-1] for form in forms), lower=True)
    own = residual_coefficient(dimension, alpha, residual=model["residual"])
    grown, bound = SecondLayer(**model).log_rise, (1.0 - alpha) * cross_weight(dimension, alpha) / (1.0 + own)
    printed = (1.0 - alpha) * cross_weight(dimension, alpha, reading="published")
    margins = [room(np.diff(grown), bound), room(printed, 1.0 / (math.e * math.sqrt(dimension)))]
    if alpha or model["residual"]:  # else h grows without limit
        limit = -0.5 * math.log1p(-(1.0 - alpha) * (1.0 + 2.0 * own) / (1.0 + own) ** 2)
        margins.append(room(grown[1:], limit))
    return min(margins)


# --- Section 3, without LayerNorm --------------------------------------------------------------------------


@strictly(
    "kim-section-3",
    "Section 3, without LayerNorm",
    draws.instance(
        seed=draws.SEED,
        samples=100,
        tokens=draws.whole(3, 12, (3, 16)),
        dimension=draws.whole(4, 128, (4, 256)),
        anisotropy=0.0,
        residual=False,
        layer=draws.whole(1, 4),
    ),
    tolerance=(1e-9, ROUNDING),
    erratum="without-layernorm",
    witness={**ONE_INPUT, "samples": 200, "tokens": 10, "dimension": 16, "layer": 3},
    **NO_STATEMENT,
)
def close_to_half(layer: int, seed: int, samples: int, corrected: bool, **model: Any) -> float:
    """the recency probability is close to one half in layers 3 and 4 as in 1 and 2 (within .05)

    Corrected: close to one half in layers 1 and 2; from layer 3 scores fall along every row, and it is below

    Scope: layers 1 to 4 without LayerNorm, α = 0, no residual connection
    """
    shares = recency_shares(simulated_scores(seed, samples, **model, layernorm=False, depth=layer)[-1])
    close = near(shares, 0.5, NEAR_HALF)
    if not corrected:
        return least(close, shares.mean(), 0.5)
    scores = limit_scores(layer, **model, layernorm=False)[-1]
    rows = [scores[query, :query] / scores[query, query] for query in range(2, model["tokens"])]
    if layer <= 2:
        return min(close, -max(float(np.ptp(row)) for row in rows))
    rise = max(float(np.diff(row).max()) for row in rows)
    return min(strict(-rise), (0.5 - float(shares.mean()) + SIGMAS * standard_error(shares)) / 0.5)
