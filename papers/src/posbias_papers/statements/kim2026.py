"""Kim et al. 2026: recency that LayerNorm induces, in the printed statements and beyond them.

The theorem and the propositions, which are about means in many dimensions, are tried as predicates (Definition 1)
on the closed forms of `posbias_papers.closed_forms.layernorm`: below the diagonal through ln h(j), where no margin
is lost to rounding, on it through the scores. What they say about drawn inputs, and so the printed equations, is
tried against small simulations in token space. Two kinds of noise are taken out exactly: the score of the first
layer, which has the same mean for all pairs, and, where the effect is of second order in e^−√d, the first order,
of which the same holds at α = 0. A misprint in a proof is a claim of its own: what is proven may stand.

Beyond the statements: norms, heads, encodings, masks, other parts of a layer and lengths, all at initialisation.
LayerNorm(x) is √d·x/‖x‖ turned by the angle between x and the vectors whose entries have mean 0. Its sine s is the
share of x along (1, …, 1)/√d: for normal x, s² is Beta(½, (d − 1)/2), and the squared distance in units of d is 2
− 2√(1 − s²). Heads without projections are the parts of a vector; where heads share a key head, its keys and
values are the mean of theirs. Rules that the text gives only a direction for are tried as the direction (at α from
.45 to .8, where the recency probability is well above ½ in so few draws). Under the causal mask what layer 2 makes
of a distance depends on where it stands; under a sliding window of width w tokens from the w-th on attend to w
tokens each, so from query 2(w − 1) on layer 2 has one law at every place; under the full mask no key is nearer.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from posbias.core.machine import stream
from posbias.profiles.estimate import Estimate
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings, hidden_states, layer_scores, normalised
from posbias.theory.masks import Causal, Full, Mask, SlidingWindow
from posbias_papers.closed_forms.layernorm import (
    SecondLayer,
    closed_scores,
    cross_weight,
    limit_scores,
    recency_margin,
    residual_coefficient,
)
from posbias_papers.simulation import Variant, draw_inputs, draw_weights, recency_share, run_layers
from posbias_papers.statements.draws import Instance, Sampler
from posbias_papers.statements.margins import least, room
from posbias_papers.statements.record import OURS, REMARK, ROUNDING, STEP, statement

strictly = partial(statement, tolerance=0.0)
"""Of a margin that has errors of simulations in it already, or has to be positive."""
to_rounding = partial(statement, tolerance=ROUNDING)
"""Of scores that are equal in exact arithmetic."""
SIGMAS = 5.0
"""Standard errors that a simulation may be off by."""
DEVIATION = 5.0
"""What a closed form may be off by, times 1/d of itself; what simulations at 6 tokens and d ≥ 16 stay within."""
NEAR_HALF = 0.05
"""How far a recency probability may be from one half to count as close to it."""
COSINES = 1.5
"""The root mean square by which two cosines differ is at most this times (1 − α²)/d, from 16 dimensions on."""
OFF = 0.2
"""By which share of itself a rise may be off that of a single head."""
APART = 0.01
"""How far two recency probabilities may be apart and be called the same."""
LONGER = 3
"""How many times longer the longer of two texts is."""
WINDOWS = 4
"""Texts under masks are this many windows long."""

Scores = Float[np.ndarray, "input *head query key"]
Sample = Float[np.ndarray, "input"]


# --- instances and margins -------------------------------------------------------------------------------------


def form(s: Sampler, anisotropic: bool = True, residuals: bool = True, fewest: int = 4) -> Instance:
    """Models for the closed forms: at the edge few or many tokens, few or very many dimensions, α at its ends."""
    if s.edge:
        dimension = int(s.rng.choice([fewest, 5, 16, 1024, 2**18]))
        tokens = int(s.rng.choice([2, 3, 1000]))
        anisotropy = float(s.rng.choice([0.0, 1e-9, 1.0 - 1.0 / math.sqrt(dimension), 1.0 - 1e-6]))
    else:
        dimension = int(2.0 ** s.rng.uniform(math.log2(fewest), 13.0))
        tokens, anisotropy = s.whole(2, 64), float(s.rng.random())
    model = {"tokens": tokens, "dimension": dimension, "anisotropy": anisotropy if anisotropic else 0.0}
    return model | {"residual": residuals and s.coin()}


def three_or_more(s: Sampler) -> Instance:
    """The same, for 3 to 64 tokens and from 1 dimension on."""
    drawn = form(s, fewest=1)
    return {**drawn, "tokens": min(max(drawn["tokens"], 3), 64)}


def inputs(
    s: Sampler,
    samples: int = 250,
    tokens: tuple[Any, ...] = (4, 6),
    dimension: tuple[int, int] = (64, 400),
    anisotropy: tuple[float, float] = (0.0, 0.0),
    residuals: bool = False,
) -> dict[str, Any]:
    """A model to be simulated, with a seed: dimension and α within these, at the edge at their ends."""
    return {
        "seed": s.seed(),
        "samples": samples,
        "tokens": s.whole(*tokens),
        "dimension": s.whole(*dimension, dimension),
        "anisotropy": s.real(*anisotropy, anisotropy),
        "residual": residuals and s.coin(),
    }


def drawn_embeddings(model: RecencyModel, seed: int, samples: int, topic: str) -> Any:
    """The embeddings of `samples` inputs; other statements, of another `topic`, have others."""
    return embeddings(stream(seed, f"verify/kim/{topic}"), model, samples)


def simulated_scores(
    seed: int, samples: int, *, topic: str = "embeddings", depth: int = 2, **model: Any
) -> Float[np.ndarray, "layer input query key"]:
    """YYᵀ/√d of layers 1 to `depth` for `samples` drawn inputs (Eqs. 2, 6, 20), the mask not yet applied.

    From `posbias.simulation.token_space`; all samples at once, so for small numbers of them.
    """
    drawn = RecencyModel(**model, depth=depth)
    return layer_scores(drawn, drawn_embeddings(drawn, seed, samples, topic))[0]


def strict(margin: float) -> float:
    """A margin that has to be positive as a slack: none at all is a failure."""
    return margin if margin else -1.0


def standard_error(sample: Sample) -> float:
    """Of the mean of independent numbers."""
    return Estimate.of_mean(sample).se


def near(sample: Any, expected: float, allowed: float = 0.0) -> float:
    """How much is left of what the mean of a sample may be off: `allowed`, and 5 standard errors."""
    return 1.0 - abs(float(sample.mean()) - expected) / (allowed + SIGMAS * standard_error(sample))


def _definition(form: SecondLayer) -> float:
    """Definition 1 on S_ij = g(i)h(j): g > 0, h rises, and the diagonal lies above its neighbour.

    A rise of ln h is in units of (1 − α)ρ, what it is per position for large d and few tokens; the distance
    to the diagonal in units of the larger of the two scores.
    """
    scores = form.scores
    margins = [room(np.diag(scores, -1), np.diag(scores)[1:], scores), float(np.diag(scores, -1).min() > 0.0)]
    if form.tokens > 2:
        unit = (1.0 - form.anisotropy) * cross_weight(form.dimension, form.anisotropy, reading=form.reading)
        margins.append(float(np.diff(form.log_rise[:-1]).min()) / unit)
    return min(strict(margin) for margin in margins)


def first_order(scores: Scores, dimension: int) -> Scores:
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


def _row_rises(scores: Scores) -> Float[np.ndarray, "input row"]:
    """S_{i,i−1} − S_{i,0} of the queries i from 2, the first that has two keys before it."""
    return np.diagonal(scores, -1, axis1=1, axis2=2)[:, 1:] - scores[:, 2:, 0]


def _reading(corrected: bool) -> Any:
    return "corrected" if corrected else "published"


# --- the theorem and the propositions ------------------------------------------------------------------------


@strictly("kim-theorem-1", "Theorem 1", partial(form, anisotropic=False, residuals=False, fewest=1))
def theorem_1(**model: Any) -> float:
    """for d ≫ 1 S⁽²⁾ exhibits recency bias (Definition 1): its closed form, Eq. 5, does at every d

    A statement about means, which the law of large numbers gives for d ≫ 1, and so about the closed form; what it
    asserts is a rise of e^−√d per position relative to the score, which vanishes as d grows.

    Scope: α = 0, no residual connection, no learnable parameters, d ≫ 1, layer 2

    Evidence: a proof, by the law of large numbers
    """
    return _definition(SecondLayer(**model, reading="means"))


FEW_INPUTS = partial(inputs, samples=800, tokens=(7, 9), dimension=(16, 81))


@strictly("kim-theorem-1-draws", "Theorem 1, of drawn inputs", FEW_INPUTS, **OURS)
def one_draw(dimension: int, corrected: bool, **drawn: Any) -> float:
    """S⁽²⁾ of a single drawn input satisfies Definition 1

    Corrected: the mean of S⁽²⁾ rises along its rows as the corrected closed form does, within 5 standard errors
    and 5/d

    Scope: single inputs; α = 0, no residual connection, no learnable parameters, d ≫ 1, layer 2

    Evidence: none: not a statement of the paper

    Erratum: theorem-1
    """
    first, second = simulated_scores(dimension=dimension, **drawn)
    if not corrected:
        margin = recency_margin(second[0])
        return least(margin / math.sqrt(dimension), margin, 0.0, second[0])
    rest = second - first - first_order(first, dimension)
    rise = float(_row_rises(SecondLayer(drawn["tokens"], dimension).scores[None]).sum())
    return _agreement(_row_rises(rest).sum(axis=1), rise, dimension)


@to_rounding("kim-proposition-1", "Proposition 1", three_or_more)
def proposition_1(**model: Any) -> float:
    """without LayerNorm S⁽²⁾ does not exhibit recency bias (fails Definition 1)

    Equality below the diagonal, so the slack is 0; at every α, with residual too, for 3 tokens or more (with 2,
    Definition 1 only compares the diagonal, and holds).

    Scope: without LayerNorm; α = 0, no residual connection, no learnable parameters, d ≫ 1, layer 2

    Evidence: a proof, by the law of large numbers
    """
    bare = RecencyModel(**model, norm="none", depth=2)
    forms = [limit_scores(bare)[1]]
    if not (bare.anisotropy or bare.residual):
        forms.append(closed_scores(bare, "published"))
    return min(-recency_margin(scores) / float(np.diag(scores).max()) for scores in forms)


@strictly("kim-proposition-2", "Proposition 2", partial(form, anisotropic=False))
def proposition_2(**model: Any) -> float:
    """with a residual connection or without, S⁽²⁾ exhibits recency bias (Definition 1), at α = 0

    In closed form with one γ throughout. The order below the diagonal stands with each of the three γ of Eqs. 26,
    27 and 34 (a residual divides the rise by 1 + g, g = 1/√d); the scale of Eq. 41 is a misprint, see Proposition
    3.

    Scope: α = 0, no learnable parameters, d ≫ 1, layer 2

    Evidence: a proof, by the law of large numbers
    """
    return _definition(SecondLayer(**model))


@strictly("kim-proposition-3", "Proposition 3", form, proof=OURS)
def proposition_3(corrected: bool, **model: Any) -> float:
    """with Eqs. 33 and 41 as printed below the diagonal and S_ii = √d on it, by Eqs. 20 and 21, S⁽²⁾ satisfies
    Definition 1

    Corrected: at every α in [0, 1), with residual or without, S⁽²⁾ satisfies Definition 1: with corrected
    constants

    Asserts: at every anisotropy α in [0, 1), with a residual connection or without, S⁽²⁾ exhibits recency bias
    (Definition 1)

    Scope: every α in [0, 1), with a residual connection or without, no learnable parameters, d ≫ 1, layer 2

    Evidence: a proof, by the law of large numbers

    Erratum: eq-41
    """
    return _definition(SecondLayer(**model, reading=_reading(corrected)))


# --- printed equations, of drawn inputs ----------------------------------------------------------------------


def _mean_score(corrected: bool, seed: int, samples: int, **model: Any) -> float:
    """Whether the mean of S⁽²⁾ below the diagonal is that of the closed form at α = 0."""
    first, second = simulated_scores(seed, samples, **model)
    drawn = RecencyModel(**model)
    lower = np.tri(drawn.tokens, k=-1, dtype=bool)
    predicted = float(closed_scores(drawn, _reading(corrected))[lower].mean())
    return _agreement((second - first)[:, lower].mean(axis=1), predicted, drawn.dimension)


@strictly("kim-equation-5", "Equation 5", inputs, provenance="ours", **STEP)
def equation_5(corrected: bool, **drawn: Any) -> float:
    """for d ≫ 1 Eq. 5, cross terms taken as zero, is the mean of S⁽²⁾ at α = 0, within 5 standard errors and
    5/d

    Corrected: Eq. 5 with κe^−√d for e^−√d is the mean of S⁽²⁾ at α = 0, within 5 standard errors and 5/d

    Scope: α = 0, no residual connection, no learnable parameters, d from 64 to 400, layer 2

    Evidence: a proof, by the law of large numbers

    Erratum: cross-terms
    """
    return _mean_score(corrected, **drawn)


@strictly("kim-equation-19", "Equation 19", inputs, provenance="ours", **STEP)
def equation_19(corrected: bool, **drawn: Any) -> float:
    """Eq. 19 is the mean of S⁽²⁾ without LayerNorm, within 5 standard errors and 5/d

    Corrected: Eq. 19 divided by √d is the mean of S⁽²⁾ without LayerNorm, within 5 standard errors and 5/d

    Scope: without LayerNorm; α = 0, no residual connection, no learnable parameters, d from 64 to 400, layer 2

    Evidence: a proof, by the law of large numbers

    Erratum: eqs-17-19
    """
    return _mean_score(corrected, norm="none", **drawn)


ANISOTROPIC = partial(inputs, samples=500, anisotropy=(0.2, 0.99), residuals=True)


@strictly("kim-equation-42", "Equation 42", ANISOTROPIC, provenance="ours", **STEP)
def equation_42(seed: int, samples: int, corrected: bool, **model: Any) -> float:
    """for d ≫ 1 h(j)/h(0), γ = 1 with a residual, is the ratio of the mean scores of a row, within 5 standard
    errors and 5/d

    Corrected: h(j)/h(0) with g, and κF for F is the ratio of the mean scores of a row, within 5 standard errors
    and 5/d

    Scope: α from .2 to .99, with a residual connection or without, no learnable parameters, d from 64 to 400,
    layer 2

    Evidence: a proof, by the law of large numbers

    Erratum: eq-42
    """
    first, second = simulated_scores(seed, samples, **model)
    change, dimension = second - first, model["dimension"]
    level = change[:, 2:, 0].mean(axis=0) + model["anisotropy"] * math.sqrt(dimension)
    rise = np.expm1(SecondLayer(**model, reading=_reading(corrected)).log_rise[1:-1]).sum()
    return _agreement((_row_rises(change) / level).sum(axis=1), float(rise), dimension)


@statement("kim-figure-2", "Section 3, Figure 2", form, **OURS)
def grows_with_anisotropy(corrected: bool, **model: Any) -> float:
    """h grows more at any α > 0 than at α = 0, at every d and number of tokens too

    Corrected: h grows by a factor of at most exp((1−α)κe^(−(1−α)√d)/(1+g)) per position, the exponent peaking at
    1−α = 1/√d, and of at most (1+g)/√(α+2αg+g²) in all

    Scope: Eq. 42 at every d, α and number of tokens

    Evidence: none: not a statement of the paper

    Erratum: figure-2
    """
    dimension, alpha = model["dimension"], model["anisotropy"]
    if not corrected:
        models = {**model, "anisotropy": 0.0}, model
        return room(*(SecondLayer(**one, reading="published").log_rise[-1] for one in models), lower=True)
    own = residual_coefficient(dimension, alpha, residual=model["residual"])
    grown, bound = SecondLayer(**model).log_rise, (1.0 - alpha) * cross_weight(dimension, alpha) / (1.0 + own)
    printed = (1.0 - alpha) * cross_weight(dimension, alpha, reading="published")
    margins = [room(np.diff(grown), bound), room(printed, 1.0 / (math.e * math.sqrt(dimension)))]
    if alpha or model["residual"]:  # else h grows without limit
        limit = -0.5 * math.log1p(-(1.0 - alpha) * (1.0 + 2.0 * own) / (1.0 + own) ** 2)
        margins.append(room(grown[1:], limit))
    return min(margins)


# --- Section 3, without LayerNorm --------------------------------------------------------------------------


def one_of_four_layers(s: Sampler) -> Instance:
    """Models to be simulated, and which layer is looked at."""
    return {**inputs(s, samples=100, tokens=(3, 12), dimension=(4, 128)), "layer": s.whole(1, 4)}


@to_rounding("kim-section-3", "Section 3, without LayerNorm", one_of_four_layers, **OURS)
def close_to_half(layer: int, seed: int, samples: int, corrected: bool, **model: Any) -> float:
    """the recency probability is close to one half in layers 3 and 4 as in 1 and 2 (within .05)

    Corrected: close to one half in layers 1 and 2; from layer 3 scores fall along every row, and it is below

    Scope: layers 1 to 4 without LayerNorm, α = 0, no residual connection

    Evidence: none: not a statement of the paper

    Erratum: without-layernorm
    """
    shares = recency_share(simulated_scores(seed, samples, **model, norm="none", depth=layer)[-1][:, None])
    close = near(shares, 0.5, NEAR_HALF)
    if not corrected:
        return least(close, shares.mean(), 0.5)
    scores = limit_scores(RecencyModel(**model, norm="none", depth=layer))[-1]
    rows = [scores[query, :query] / scores[query, query] for query in range(2, model["tokens"])]
    if layer <= 2:
        return min(close, -max(float(np.ptp(row)) for row in rows))
    rise = max(float(np.diff(row).max()) for row in rows)
    return min(strict(-rise), (0.5 - float(shares.mean()) + SIGMAS * standard_error(shares)) / 0.5)


# --- LayerNorm and the ℓ2 norm, and what two hidden states share -----------------------------------------------


def cosines(x: Float[np.ndarray, "*batch token dimension"]) -> Float[np.ndarray, "*batch pair"]:
    """The cosines of all pairs i > j of the vectors of an input."""
    unit = x / np.linalg.norm(x, axis=-1, keepdims=True)
    query, key = np.tril_indices(x.shape[-2], -1)
    return (unit @ unit.swapaxes(-1, -2))[..., query, key]


def mean_squared_distance(dimension: int) -> float:
    """E‖LayerNorm(x) − √d·x/‖x‖‖²/d of normal x: 2 − 2·Γ(d/2)²/(Γ((d+1)/2)·Γ((d−1)/2))."""
    log_cosine = 2 * gammaln(dimension / 2) - gammaln((dimension + 1) / 2) - gammaln((dimension - 1) / 2)
    return float(-2.0 * np.expm1(log_cosine))


def any_dimension(s: Sampler) -> Instance:
    """A dimension from 4 to 1,024."""
    seed = s.seed()
    return {"seed": seed, "dimension": int(s.rng.choice([4, 1024]) if s.edge else 2.0 ** s.real(2.0, 10.0))}


@strictly("kim-2.2-layernorm", "Section 2.2, large d", any_dimension, **OURS)
def near_the_unit_vector(seed: int, dimension: int) -> float:
    """for normal x the mean of ‖LayerNorm(x) − √d·x/‖x‖‖²/d is 2 − 2Γ(d/2)²/(Γ((d+1)/2)Γ((d−1)/2)), between 1/d
    and 1.21/d from d = 4 on: the two are about 1/√d apart, relative to their length

    Holds; the text says that they are approximately equal for large d, the number is ours: root mean squares of
    .256 at d = 16, .126 at 64, .063 at 256 and .031 at 1,024. A mean of the entries is what LayerNorm takes away,
    so x whose entries share an offset are farther apart at every d.

    Scope: normal embeddings, d from 4 to 1,024

    Evidence: none: no number is printed
    """
    model = RecencyModel(2, dimension, 0.0)
    x = drawn_embeddings(model, seed, 300, "extensions")[:, 0]
    apart = normalised(model, x) / math.sqrt(dimension) - x / np.linalg.norm(x, axis=-1, keepdims=True)
    exact = mean_squared_distance(dimension)
    return min(near((apart**2).sum(axis=-1), exact), exact * dimension - 1.0, 1.21 - exact * dimension)


COSINE = partial(inputs, samples=400, tokens=(3, 12), dimension=(16, 512), anisotropy=(0.0, 0.95))


@strictly("kim-3-cosine", "Section 3, cosine similarity", COSINE, **OURS)
def cosine_similarity(seed: int, samples: int, **model: Any) -> float:
    """⟨LayerNorm(x), LayerNorm(y)⟩/d is the cosine of two embeddings up to a root mean square of 1.5·(1 − α²)/d,
    from d = 16 on

    Holds; the text says approximated under mild assumptions, the bound is ours: (1 − α²)/d to leading order, 1.44
    times that at d = 16 and α = .99. Without a residual connection outputs of a layer have entries of mean 0
    already, and there is no difference.

    Scope: normal embeddings, any α, d from 16 to 512

    Evidence: none: no number is printed
    """
    drawn = RecencyModel(**model)
    x = drawn_embeddings(drawn, seed, samples, "extensions")
    squared = ((cosines(normalised(drawn, x)) - cosines(x)) ** 2).mean(axis=-1)
    return near(squared, 0.0, (COSINES * (1.0 - drawn.anisotropy**2) / drawn.dimension) ** 2)


SHARED = partial(inputs, samples=200, tokens=(3, 12), dimension=(16, 64), anisotropy=(0.0, 0.95))


@strictly("kim-3-shared", "Section 3, shared components", SHARED, **REMARK)
def shared_components(seed: int, samples: int, **model: Any) -> float:
    """a residual connection lowers the mean cosine of the states of two tokens after the first layer

    Holds, for the same embeddings with and without. At 10 tokens and α = .5 the mean cosine falls from .683 to
    .634 at d = 16 and from .549 to .541 at d = 64.

    Scope: no learnable parameters, after layer 1; the text: α = 0.5, d = 16 and 64, 10 tokens

    Evidence: 10,000,000 simulations
    """
    models = [RecencyModel(**{**model, "residual": residual}, depth=2) for residual in (False, True)]
    x = drawn_embeddings(models[0], seed, samples, "extensions")
    without, having = (float(cosines(hidden_states(one, x)[1]).mean()) for one in models)
    return strict((without - having) / abs(without))


# --- heads, encodings, and other parts of a layer ------------------------------------------------------------


def second_layer(variant: Variant, seed: int, inputs: int) -> tuple[list[Scores], list[Scores]]:
    """Scores of layers 1 and 2 of a network given `inputs` inputs, and their content without an encoding."""
    weights = draw_weights(variant, seed, 0)
    drawn = [[*run_layers(x, variant, weights)] for x in draw_inputs(variant, seed, 0, inputs)]
    layers = [
        [np.concatenate([block[layer][part] for block in drawn]) for layer in (0, 1)] for part in (0, 1)
    ]
    return layers[0], layers[1]


def network(s: Sampler, inputs: int, **choices: tuple[Any, ...]) -> Instance:
    """Dimensions of a head, how many there are, α and tokens, and one of each of the `choices`."""
    return {
        "seed": s.seed(),
        "inputs": inputs,
        "head_dimension": int(s.rng.choice([16, 32])) if s.edge else 2 * s.whole(8, 16),
        "heads": int(s.rng.choice([2, 4])),
        "anisotropy": s.real(0.45, 0.8, (0.45, 0.8)),
        "tokens": s.whole(8, 10),
        **{name: s.one_of(*given) for name, given in choices.items()},
    }


def _scores(
    seed: int, inputs: int, head_dimension: int, heads: int, anisotropy: float, tokens: int, **fields: Any
) -> tuple[list[Scores], list[Scores]]:
    """The same of `heads` heads of `head_dimension` dimensions."""
    model = RecencyModel(tokens, heads * head_dimension, anisotropy, depth=2)
    return second_layer(Variant(model, direction="input", heads=heads, **fields), seed, inputs)


def _above_half(scores: Scores) -> float:
    return float(recency_share(scores).mean()) - 0.5


KEY_HEADS = partial(network, inputs=150, kind=("each", "grouped", "one"), projections=("none", "tied"))


@strictly("kim-4-heads", "Section 4, heads", KEY_HEADS, **REMARK)
def several_heads(kind: str, **drawn: Any) -> float:
    """the framework extends to MHA, GQA and MQA with the same qualitative conclusions (read as: the recency
    probability of layer 2 is above one half, with a key head for each head, for every two or for all)

    Holds, at initialisation, without projections and with W_Q = W_K; a shared key is the mean of the parts. At d
    = 64, α = .5, 10 tokens and four heads without projections .599 with a key head each, .704 with two and .879
    with one (a single head: .554 at d = 64, .638 at 16); with W_Q = W_K .62, .64 and .62. With W_Q and W_K
    drawn apart it is one half over networks, as with a single head.

    Scope: multi-head, grouped and multi-query attention; tried at d_h from 16 to 32, 2 or 4 heads, α from .45
    to .8, 8 to 10 tokens, layer 2, at initialisation

    Evidence: none: the paper simulates none
    """
    groups = {"each": None, "grouped": max(1, drawn["heads"] // 2), "one": 1}[kind]
    return _above_half(_scores(groups=groups, **drawn)[0][1])


HEADS = partial(network, inputs=300)


@strictly("kim-4-head-dimension", "Section 4, dimension of a head", HEADS, **OURS)
def same_probability(corrected: bool, **drawn: Any) -> float:
    """with a key head each the recency probability of layer 2 is that of a single head of d_h dimensions, within
    .01 and 5 standard errors

    Corrected: with a key head each the mean scores of the last query rise as those of a single head of d_h
    dimensions, within a fifth and 5 standard errors

    Wider than the paper, which puts √d_h for √d in its derivation, one on mean scores: of these it is so (at d_h
    = 16 and α = .5 .24 with four heads, .22 with one). LayerNorm makes whole vectors alike in length, not a
    head's part of them, so single scores scatter more and the probability is lower: .599 against .638. With shared
    key heads mean scores rise more (.31 with two key heads, .35 with one): a direction, no rule.

    Scope: heads without projections; d_h from 16 to 32, 2 or 4 heads, α from .45 to .8, 8 to 10 tokens, layer
    2, at initialisation

    Evidence: none: the paper simulates none
    """
    both = [_scores(**drawn | {"heads": count})[0][1] for count in (1, drawn["heads"])]
    if not corrected:
        one, several = map(recency_share, both)
        allowed = APART + SIGMAS * math.hypot(standard_error(one), standard_error(several))
        apart = abs(float(one.mean()) - float(several.mean()))
        return least(1.0 - apart / allowed, several.mean(), one.mean())
    # S(last, last but one)/S(last, 0) − 1 of mean scores over inputs and heads
    rises = [
        (scores[..., -1, -2] - scores[..., -1, 0]).mean(axis=1) / scores[..., -1, 0].mean() for scores in both
    ]
    one, other = (float(rise.mean()) for rise in rises)
    return 1.0 - abs(one - other) / (OFF * one + SIGMAS * math.hypot(*map(standard_error, rises)))


def beyond_distance(scores: Scores) -> Sample:
    """The last query's scores less those of the first query that has the distance, over distances and heads."""
    last = scores.shape[-1] - 1
    away = np.arange(1, last)
    return (scores[..., last, last - away] - scores[..., away, 0]).mean(axis=(1, 2))


ENCODED = partial(network, inputs=200, positional=("rope", "alibi"))


@strictly("kim-4-relative", "Section 4, relative encodings", ENCODED, strength="hedged")
def relative_encodings(**drawn: Any) -> float:
    """LayerNorm's bias may differ from those of RoPE and ALiBi (tried as: mean scores of layer 1 under either are
    the same at every place of a distance, those of layer 2 under LayerNorm alone higher for later queries)

    Holds, at initialisation.

    Scope: LayerNorm, RoPE with base 10,000, ALiBi with its standard slopes; tried at d_h from 16 to 32, 2 or 4
    heads, α from .45 to .8, 8 to 10 tokens, layer 2, at initialisation

    Evidence: none: the paper simulates none
    """
    encoded, plain = (_scores(**{**drawn, "positional": one})[0] for one in (drawn["positional"], "none"))
    return min(near(beyond_distance(encoded[0]), 0.0), float(beyond_distance(plain[1]).mean()))


@strictly("kim-limitations-encodings", "Limitations, RoPE", ENCODED, **OURS)
def content_under_encodings(**drawn: Any) -> float:
    """under RoPE or ALiBi too LayerNorm gives the content of layer 2 a recency probability above one half

    Holds, at initialisation; the paper leaves the interaction open. At d = 64, four heads and α = .5 the content
    has .599 without an encoding, .585 under RoPE and .591 under ALiBi, and scores with the encoding .657 and
    .674: the two biases add, and the encoding weakens LayerNorm's own a little.

    Scope: heads without projections; d_h from 16 to 32, 2 or 4 heads, α from .45 to .8, 8 to 10 tokens, layer
    2, at initialisation

    Evidence: none: the paper simulates none
    """
    return _above_half(_scores(**drawn)[1][1])


PARTS: dict[str, dict[str, Any]] = {
    "feed-forward": {"feed_forward": True},
    "values": {"values": True},
    "tied": {"projections": "tied"},
}


PART = partial(network, inputs=400, part=(*PARTS,))


@strictly("kim-limitations-parts", "Limitations, parts of a layer", PART, **OURS)
def parts_of_a_layer(head_dimension: int, part: str, **drawn: Any) -> float:
    """a feed-forward block, value projections, or W_Q = W_K, all drawn, leave the recency probability of layer 2
    above one half

    Holds, at initialisation; the paper analyses none of them. At d = 64 and α = .5 .54, .53 and .55, against .55
    without. W_Q and W_K drawn apart leave one half over networks (−W_Q is as likely as W_Q).

    Scope: one head, d from 32 to 64, α from .45 to .8, 8 to 10 tokens, layer 2, at initialisation

    Evidence: none: the paper simulates none
    """
    one_head = drawn | {"heads": 1, "head_dimension": 2 * head_dimension} | PARTS[part]
    return _above_half(_scores(**one_head)[0][1])


# --- lengths and masks -----------------------------------------------------------------------------------------


LENGTHS = partial(
    inputs, samples=300, tokens=(8, 12), dimension=(16, 64), anisotropy=(0.4, 0.6), residuals=True
)


@strictly("kim-4-length", "Section 4, length", LENGTHS, **OURS)
def longer_texts(tokens: int, **model: Any) -> float:
    """the recency probability of layer 2 is higher in a text three times as long

    Holds, at initialisation: at d = 64 and α = .5 .531, .554, .596, .654 and .717 with 5, 10, 20, 40 and 80
    tokens. The text conjectures that an uneven bias harms length generalisation; that the bias a model sees
    changes with length is what a simulation can say of it.

    Scope: d from 16 to 64, α from .4 to .6, 8 to 12 tokens and 24 to 36, at initialisation

    Evidence: none: the paper simulates none
    """
    short, long = (
        recency_share(simulated_scores(tokens=length, topic="length", **model)[1][:, None]).mean()
        for length in (tokens, LONGER * tokens)
    )
    return float(long - short)


def shares_by_query(model: RecencyModel, seed: int, samples: int) -> Float[np.ndarray, "input query"]:
    """Of every query the share of pairs of earlier keys it sees of which the nearer scores higher, layer 2."""
    drawn = drawn_embeddings(model, seed, samples, "masks")
    scores, allowed = layer_scores(model, drawn)[0][1], model.mask.allowed(model.tokens)
    shares = np.full((samples, model.tokens), math.nan)
    for query in range(2, model.tokens):
        keys = scores[:, query, :query][:, allowed[query, :query]]
        nearer, farther = np.tril_indices(keys.shape[1], -1)
        if nearer.size:
            shares[:, query] = (keys[:, nearer] > keys[:, farther]).mean(axis=1)
    return shares


def windows(s: Sampler) -> Instance:
    """Models of texts that are some windows long."""
    drawn = inputs(s, 400, (3, 6, (3, 6)), (16, 32), (0.4, 0.6), True)
    return {**drawn, "tokens": WINDOWS * drawn["tokens"]}


@strictly("kim-4-masks", "Section 4, the mask", windows, **OURS)
def even_bias(seed: int, samples: int, **fields: Any) -> float:
    """layer 2: under the causal mask the recency probability of later queries is higher; under a sliding window
    of width w that of all queries from 2(w − 1) on is the same; under the full mask it is one half

    Holds, at initialisation; the text calls exploring a modified mask promising, these masks are ours. At d = 16,
    α = .5 and 24 tokens queries 2, 10 and 23 have .573, .661 and .710 under the causal mask, under a window of 6
    tokens .573, .534 and .533, with its first token as a sink .573, .611 and .606, under a prefix of 8 .501, .519
    and .638. A window evens the bias and lessens it; the full mask leaves none.

    Scope: d from 16 to 32, α from .4 to .6, windows of 3 to 6, texts four times as long, layer 2, at
    initialisation

    Evidence: none: the paper simulates the causal mask alone
    """
    model, width = RecencyModel(**fields, depth=2), fields["tokens"] // WINDOWS

    def excess(mask: Mask) -> Any:
        """The mean share of the later half of some queries less that of the earlier."""
        shares = shares_by_query(replace(model, mask=mask), seed, samples)[:, 2 * (width - 1) :]
        half = shares.shape[1] // 2
        return shares[:, half:].mean(axis=1) - shares[:, :half].mean(axis=1)

    full = shares_by_query(replace(model, mask=Full()), seed, samples)[:, 2:].mean(axis=1)
    return min(float(excess(Causal()).mean()), near(excess(SlidingWindow(width)), 0.0), near(full, 0.5))
