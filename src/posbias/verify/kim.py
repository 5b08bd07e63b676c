"""The statements of Kim et al. 2026, each as something that can be tried.

The theorem and the propositions are tried as predicates (Definition 1) on the closed forms in
`posbias.theory.closed_forms.layernorm`: below the diagonal through ln h(j), where no margin is lost to
rounding, on it through the scores. What the closed forms say about drawn inputs, and so the printed equations
themselves, is tried against small simulations in token space. Two kinds of noise are taken out of those
exactly: the score of the first layer, which has the same mean for all pairs (`_first`), and, where the effect is
of second order in e^−√d, the first order, of which the same holds at α = 0 (`_first_order`).

A simulation agrees if it deviates by at most 5 standard errors and 5/d of the predicted number.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias.seeds import stream
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings, layer_scores
from posbias.theory.closed_forms.layernorm import (
    ReadingName,
    cross_weight,
    isotropic_scores,
    limit_scores,
    log_key_factors,
    recency_margin,
    residual_coefficient,
    scores_without_layernorm,
    second_layer_scores,
)
from posbias.verify.statement import Instance, Reading, Statement

SOURCE = "kim2026"
SIGMAS = 5.0
"""Standard errors that a simulation may be off by."""
DEVIATION = 5.0
"""What a closed form may be off by, times 1/d of itself; what simulations at 6 tokens and d ≥ 16 stay within."""
NEAR_HALF = 0.05
"""How far a recency probability may be from one half to count as close to it."""

Scores = Float[np.ndarray, "layer sample query key"]


# --- simulation in token space -----------------------------------------------------------------------------


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


def _first_order(
    scores: Float[np.ndarray, "sample query key"], dimension: int
) -> Float[np.ndarray, "sample query key"]:
    """The part of S⁽²⁾ − S⁽¹⁾ of first order in the weights u_ik = e^(√d(r_ik − 1)), below the diagonal.

    √d·[Σ_k u_ik(r_kj − r_ij r_ik) + Σ_l u_jl(r_il − r_ij r_jl)], without residual; `scores` are S⁽¹⁾.
    """
    r = scores / math.sqrt(dimension)
    u = np.tril(np.exp(math.sqrt(dimension) * (r - 1.0)), -1)
    seen = (u * r).sum(axis=-1)
    return math.sqrt(dimension) * (u @ r + r @ u.swapaxes(1, 2) - r * (seen[:, :, None] + seen[:, None, :]))


def _agreement(drawn: Float[np.ndarray, "sample"], predicted: float, dimension: int) -> float:
    """What is left of the allowance after |mean − predicted|, in units of the predicted number.

    The allowance is never more than that number: a simulation too noisy to show its sign agrees with nothing.
    """
    error = float(drawn.std(ddof=1)) / math.sqrt(drawn.size)
    allowed = DEVIATION / dimension + SIGMAS * error / abs(predicted)
    return min(allowed, 1.0) - abs(float(drawn.mean()) / predicted - 1.0)


def _recency_indicators(scores: Float[np.ndarray, "sample query key"]) -> Float[np.ndarray, "sample"]:
    """Per sample the share of triples i > j > k with S_ij > S_ik."""
    pairs = []
    for query in range(2, scores.shape[-1]):
        j, k = np.tril_indices(query, -1)
        pairs.append(scores[:, query, j] > scores[:, query, k])
    return np.concatenate(pairs, axis=1).mean(axis=1)


# --- what is drawn -----------------------------------------------------------------------------------------


def _closed(rng: Generator, edge: bool, *, anisotropic: bool, residuals: bool, least: int = 4) -> Instance:
    """A model for the closed forms: at the edge few or many tokens, few or very many dimensions, α at its ends."""
    if edge:
        dimension = int(rng.choice([least, 5, 16, 1024, 2**18]))
        tokens = int(rng.choice([2, 3, 1000]))
        anisotropy = float(rng.choice([0.0, 1e-9, 1.0 - 1.0 / math.sqrt(dimension), 1.0 - 1e-6]))
    else:
        dimension = int(2.0 ** rng.uniform(math.log2(least), 13.0))
        tokens = int(rng.integers(2, 65))
        anisotropy = float(rng.random())
    return {
        "tokens": tokens,
        "dimension": dimension,
        "anisotropy": anisotropy if anisotropic else 0.0,
        "residual": bool(rng.random() < 0.5) if residuals else False,
    }


def _drawn(
    rng: Generator,
    edge: bool,
    *,
    anisotropic: bool = False,
    samples: int = 250,
    largest: int = 400,
    fewest: int = 4,
) -> Instance:
    """A model to be simulated, with its seed; at the edge as few or as many dimensions as are tried."""
    least = 64 if largest > 100 else 16
    return {
        "seed": int(rng.integers(2**31)),
        "samples": samples,
        "tokens": int(rng.integers(fewest, fewest + 3)),
        "dimension": int(rng.choice([least, largest]) if edge else rng.integers(least, largest + 1)),
        "anisotropy": float(rng.choice([0.2, 0.99]) if edge else rng.uniform(0.2, 0.99)) * anisotropic,
        "residual": bool(anisotropic and rng.random() < 0.5),
    }


def _model(instance: Instance) -> dict[str, Any]:
    return {name: instance[name] for name in ("tokens", "dimension", "anisotropy", "residual")}


def _simulate(instance: Instance, **options: Any) -> Scores:
    return simulated_scores(instance["seed"], instance["samples"], **_model(instance), **options)


# --- Definition 1 on the closed forms ----------------------------------------------------------------------


def _strict(margin: float) -> float:
    """A margin that has to be positive as a slack: none at all is a failure."""
    return margin if margin else -1.0


def _room(value: Any, bound: Any) -> float:
    """The least of bound − value, in units of the larger in size of the two."""
    return float(np.min((bound - value) / np.maximum(np.abs(bound), np.abs(value))))


def _definition(instance: Instance, reading: ReadingName, theorem: bool = False) -> float:
    """Definition 1 on S_ij = g(i)h(j): g > 0, h rises, and the diagonal lies above its neighbour.

    A rise of ln h is in units of (1 − α)ρ, what it is per position for large d and few tokens; the distance
    to the diagonal in units of the larger of the two scores.
    """
    model = _model(instance)
    tokens, dimension, anisotropy = model["tokens"], model["dimension"], model["anisotropy"]
    if theorem:
        scores = isotropic_scores(tokens, dimension, reading=reading)
    else:
        scores = second_layer_scores(**model, reading=reading)
    margins = [_room(np.diag(scores, -1), np.diag(scores)[1:]), float(np.diag(scores, -1).min() > 0.0)]
    if tokens > 2:
        rises = np.diff(log_key_factors(**model, reading=reading)[:-1])
        unit = (1.0 - anisotropy) * cross_weight(dimension, anisotropy, reading=reading)
        margins.append(float(rises.min()) / unit)
    return min(_strict(margin) for margin in margins)


def _both(published: str, corrected: str) -> tuple[tuple[ReadingName, str], tuple[ReadingName, str]]:
    return ("published", published), ("corrected", corrected)


def _definition_statement(
    key: str, name: str, claim: str, note: str, *, theorem: bool = False, witness: Instance | None = None,
    **drawn: Any,
) -> Statement:  # fmt: skip
    draw = partial(_closed, **drawn)
    readings = {
        reading: Reading(f"{claim} {of}", draw, partial(_definition, reading=reading, theorem=theorem), 0.0)
        for reading, of in _both("as printed", "with corrected constants")
    }
    corrected = None if theorem else readings["corrected"]
    return Statement(key, name, SOURCE, readings["published"], corrected, note=note, witness=witness)


# --- Theorem 1 on drawn inputs, and the mean scores --------------------------------------------------------


def _one_draw(instance: Instance) -> float:
    return recency_margin(_simulate(instance)[1, 0]) / math.sqrt(instance["dimension"])


def _row_rises(
    scores: Float[np.ndarray, "sample query key"],
) -> Float[np.ndarray, "sample row"]:
    """S_{i,i−1} − S_{i,0} of the queries i from 2, the first that has two keys before it."""
    nearest = np.diagonal(scores, -1, axis1=1, axis2=2)
    return nearest[:, 1:] - scores[:, 2:, 0]


def _mean_rise(instance: Instance) -> float:
    first, second = _simulate(instance)
    rest = second - first - _first_order(first, instance["dimension"])
    predicted = isotropic_scores(instance["tokens"], instance["dimension"])
    rise = float(_row_rises(predicted[None]).sum())
    return _agreement(_row_rises(rest).sum(axis=1), rise, instance["dimension"])


def _mean_score(instance: Instance, of: Callable[..., Any], reading: ReadingName, layernorm: bool) -> float:
    """Whether the mean of S⁽²⁾ below the diagonal is that of a closed form at α = 0."""
    first, second = _simulate(instance, layernorm=layernorm)
    below = np.tri(instance["tokens"], k=-1, dtype=bool)
    predicted = of(instance["tokens"], instance["dimension"], reading=reading)[below].mean()
    return _agreement((second - first)[:, below].mean(axis=1), float(predicted), instance["dimension"])


def _key_ratio(instance: Instance, reading: ReadingName) -> float:
    """Whether h(i − 1)/h(0) − 1, summed over the queries i, is what the mean scores of their rows give."""
    first, second = _simulate(instance)
    change = second - first
    level = change[:, 2:, 0].mean(axis=0) + instance["anisotropy"] * math.sqrt(instance["dimension"])
    rise = np.expm1(log_key_factors(**_model(instance), reading=reading)[1:-1]).sum()
    return _agreement((_row_rises(change) / level).sum(axis=1), float(rise), instance["dimension"])


# --- the text of Section 3 ---------------------------------------------------------------------------------


def _grows_with_anisotropy(instance: Instance) -> float:
    model = _model(instance)
    grown = log_key_factors(**model, reading="published")[-1]
    isotropic = log_key_factors(**{**model, "anisotropy": 0.0}, reading="published")[-1]
    return _room(isotropic, grown)


def _growth_bounded(instance: Instance) -> float:
    """ln h(j + 1)/h(j) ≤ (1 − α)ρ/(1 + g), (1 − α)e^(−(1−α)√d) ≤ 1/(e√d), and h(j)/h(0) within its limit."""
    tokens, dimension, anisotropy, residual = _model(instance).values()
    own = residual_coefficient(dimension, anisotropy, residual=residual)
    bound = (1.0 - anisotropy) * cross_weight(dimension, anisotropy) / (1.0 + own)
    peak = 1.0 / (math.e * math.sqrt(dimension))
    printed = (1.0 - anisotropy) * cross_weight(dimension, anisotropy, reading="published")
    grown = log_key_factors(tokens, dimension, anisotropy, residual=residual)
    margins = [_room(np.diff(grown), bound), _room(printed, peak)]
    if anisotropy or residual:  # else h grows without limit
        limit = -0.5 * math.log1p(-(1.0 - anisotropy) * (1.0 + 2.0 * own) / (1.0 + own) ** 2)
        margins.append(_room(grown[1:], limit))
    return min(margins)


def _without_layernorm(rng: Generator, edge: bool) -> Instance:
    return {
        "seed": int(rng.integers(2**31)),
        "samples": 100,
        "tokens": int(rng.choice([3, 16]) if edge else rng.integers(3, 13)),
        "dimension": int(rng.choice([4, 256]) if edge else rng.integers(4, 129)),
        "anisotropy": 0.0,
        "residual": False,
        "layer": int(rng.integers(1, 5)),
    }


def _probability(instance: Instance) -> tuple[float, float]:
    """The recency probability of a layer without LayerNorm, and its standard error."""
    drawn = _simulate(instance, layernorm=False, depth=instance["layer"])[-1]
    shares = _recency_indicators(drawn)
    return float(shares.mean()), float(shares.std(ddof=1)) / math.sqrt(shares.size)


def _close_to_half(instance: Instance) -> float:
    probability, error = _probability(instance)
    return (NEAR_HALF + SIGMAS * error - abs(probability - 0.5)) / (NEAR_HALF + SIGMAS * error)


def _primacy_from_layer_three(instance: Instance) -> float:
    """Layers 1 and 2: equal scores, a probability close to one half. From layer 3: falling, and below it."""
    scores = limit_scores(instance["layer"], **_model(instance), layernorm=False)[-1]
    rows = [scores[query, :query] / scores[query, query] for query in range(2, instance["tokens"])]
    if instance["layer"] <= 2:
        return min(_close_to_half(instance), -max(float(np.ptp(row)) for row in rows))
    probability, error = _probability(instance)
    rise = max(float(np.diff(row).max()) for row in rows)
    return min(_strict(-rise), (0.5 - probability + SIGMAS * error) / 0.5)


def _without_recency(instance: Instance) -> float:
    """Minus the margin of Definition 1 on S⁽²⁾ without LayerNorm, by Eq. 19 and by recursion."""
    model = _model(instance)
    forms = [limit_scores(2, **model, layernorm=False)[1]]
    if not (model["anisotropy"] or model["residual"]):
        forms.append(scores_without_layernorm(model["tokens"], model["dimension"], reading="published"))
    return min(-recency_margin(scores) / float(np.diag(scores).max()) for scores in forms)


def _three_or_more(rng: Generator, edge: bool) -> Instance:
    drawn = dict(_closed(rng, edge, anisotropic=True, residuals=True, least=1))
    return {**drawn, "tokens": min(max(int(drawn["tokens"]), 3), 64)}


# --- the statements ----------------------------------------------------------------------------------------

_ONE_INPUT = {
    "seed": 0, "samples": 1, "tokens": 8, "dimension": 1024, "anisotropy": 0.0, "residual": False
}  # fmt: skip
_MANY_INPUTS = {**_ONE_INPUT, "samples": 1000, "tokens": 6, "dimension": 256}
_AGREE = "within 5 standard errors and 5/d"

KIM: tuple[Statement, ...] = (
    _definition_statement(
        "kim-theorem-1",
        "Theorem 1",
        "the closed form of S⁽²⁾ at α = 0 satisfies Definition 1 at every d:",
        "A statement about the closed form, at every d ≥ 1 and not for d ≫ 1 alone; what it asserts is a rise of "
        "e^−√d per position relative to the score, which vanishes as d grows.",
        theorem=True,
        anisotropic=False,
        residuals=False,
        least=1,
    ),
    Statement(
        "kim-theorem-1-draws",
        "Theorem 1, of drawn inputs",
        SOURCE,
        Reading(
            "S⁽²⁾ of a drawn input satisfies Definition 1",
            partial(_drawn, samples=1, largest=1024),
            _one_draw,
        ),
        Reading(
            f"the mean of S⁽²⁾ rises along its rows as the corrected closed form does, {_AGREE}",
            partial(_drawn, samples=800, largest=81, fewest=7),
            _mean_rise,
            0.0,
        ),
        note="Scores of a draw differ by about 1, their means by √d·(κρ)²: the theorem is one about means.",
        witness=_ONE_INPUT,
    ),
    Statement(
        "kim-proposition-1",
        "Proposition 1",
        SOURCE,
        Reading("without LayerNorm S⁽²⁾ fails Definition 1", _three_or_more, _without_recency, 1e-12),
        note="Equality below the diagonal, so the slack is 0; at every α, with residual too, for 3 tokens or "
        "more (with 2, Definition 1 only compares the diagonal, and holds).",
    ),
    _definition_statement(
        "kim-proposition-2",
        "Proposition 2",
        "at α = 0, with residual or without, S⁽²⁾ satisfies Definition 1:",
        "The order below the diagonal stands with each of the three γ of Eqs. 26, 27 and 34 (a residual divides "
        "the rise by 1 + g, g = 1/√d); but Eq. 41 has d for √d, which with some e^√d tokens puts S_{i,i−1} "
        "above S_ii.",
        anisotropic=False,
        residuals=True,
        witness={"tokens": 64, "dimension": 4, "anisotropy": 0.0, "residual": False},
    ),
    _definition_statement(
        "kim-proposition-3",
        "Proposition 3",
        "at every α in [0, 1), with residual or without, S⁽²⁾ satisfies Definition 1:",
        "Below the diagonal it holds as printed; but Eq. 41 has d for √d, and Eq. 33 dγ for γ, which put "
        "S_{i,i−1} above S_ii = √d once α√d > 1.",
        anisotropic=True,
        residuals=True,
        witness={"tokens": 3, "dimension": 64, "anisotropy": 0.5, "residual": False},
    ),
    Statement(
        "kim-equation-5",
        "Equation 5",
        SOURCE,
        *(
            Reading(
                f"{what} is the mean of S⁽²⁾ at α = 0, {_AGREE}",
                _drawn,
                partial(_mean_score, of=isotropic_scores, reading=reading, layernorm=True),
                0.0,
            )
            for reading, what in _both("Eq. 5", "Eq. 5 with κe^−√d for e^−√d")
        ),
        note="Scores of variance one stand in an exponent, E e^z = √e: Eq. 5 is too small by κ → √e, its rise "
        "per position by κ² → e. (At every α: κ → exp((1 − α²)²/2).)",
        witness=_MANY_INPUTS,
    ),
    Statement(
        "kim-equation-19",
        "Equation 19",
        SOURCE,
        *(
            Reading(
                f"{what} is the mean of S⁽²⁾ without LayerNorm, {_AGREE}",
                _drawn,
                partial(_mean_score, of=scores_without_layernorm, reading=reading, layernorm=False),
                0.0,
            )
            for reading, what in _both("Eq. 19", "Eq. 19 divided by √d")
        ),
        note="Eqs. 17 to 19 lack the 1/√d of the score; nothing in Proposition 1 depends on it.",
        witness=_MANY_INPUTS,
    ),
    Statement(
        "kim-equation-42",
        "Equation 42",
        SOURCE,
        *(
            Reading(
                f"h(j)/h(0) {what} is the ratio of the mean scores of a row, {_AGREE}",
                partial(_drawn, anisotropic=True, samples=500),
                partial(_key_ratio, reading=reading),
                0.0,
            )
            for reading, what in _both("with γ = 1 for a residual", "with g, and κF for F")
        ),
        note="γ in Eq. 42 is the weight of the normalised y, g = 1/√(d(1−α)); Figure 7 (γ = 1) is not the "
        "simulated model. e^(α√d) needs the factor κ as in Eq. 5.",
        witness={**_MANY_INPUTS, "dimension": 64, "anisotropy": 0.5, "residual": True},
    ),
    Statement(
        "kim-figure-2",
        "Section 3, Figure 2",
        SOURCE,
        Reading(
            "h grows more at any α > 0 than at α = 0",
            partial(_closed, anisotropic=True, residuals=True),
            _grows_with_anisotropy,
        ),
        Reading(
            "h grows by a factor of at most exp((1−α)κe^(−(1−α)√d)/(1+g)) per position, the exponent peaking at "
            "1−α = 1/√d, and of at most (1+g)/√(α+2αg+g²) in all",
            partial(_closed, anisotropic=True, residuals=True),
            _growth_bounded,
        ),
        note="Per position h grows by about (1−α)e^(−(1−α)√d), at most 1/(e√d) at 1 − α = 1/√d; in all by at most "
        "1/√α, at α = 0 without limit. At d = 16 ten tokens give 1.163 at α = 0 and 1.132 at α = .75.",
        witness={"tokens": 10, "dimension": 16, "anisotropy": 0.75, "residual": False},
    ),
    Statement(
        "kim-section-3",
        "Section 3, without LayerNorm",
        SOURCE,
        Reading(
            "the recency probability is close to one half in layers 1 to 4 (within .05)",
            _without_layernorm,
            _close_to_half,
        ),
        Reading(
            "close to one half in layers 1 and 2; from layer 3 scores fall along every row, and it is below",
            _without_layernorm,
            _primacy_from_layer_three,
            1e-12,
        ),
        note="True of layers 1 and 2; layers 3 and 4 show primacy, .08 and .01 at d = 16 and 10 tokens.",
        witness={**_ONE_INPUT, "samples": 200, "tokens": 10, "dimension": 16, "layer": 3},
    ),
)
"""The statements of Kim et al. 2026, the numbered ones and the equations and figures they rest on."""
