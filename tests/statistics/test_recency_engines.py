"""The two engines of the recency simulation, each with its own stream, and both against closed values.

Every mean of every layer (scores, attention, their differences, recency probabilities of all kinds) is one
comparison: a difference in units of its standard error. The bound on the largest of them is such that right
engines would exceed it once in a million runs of all tests of this file together (Bonferroni); that it is not
too wide, wrong models show.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.random import default_rng
from scipy.integrate import quad
from scipy.special import beta, hyp2f1
from scipy.stats import norm as normal

from posbias.core.machine import sequence
from posbias.simulation import RecencyModel, simulate_recency, token_space
from posbias.simulation.tally import Tally
from posbias.theory.rollout.kernel import masked_softmax

OVERALL, CHECKS = 1e-6, 300
"""The chance that right engines fail in any test of this file, and how many checks there are at most."""
PLAIN = {2: 20_000, 3: 20_000, 10: 3_000, 32: 250}
"""Samples of the token-space engine by tokens; the fast one takes FAST times as many."""
FAST = 10
DEPTH = {2: 4, 3: 4, 10: 4, 32: 2}


# --- comparison --------------------------------------------------------------------------------------------


def fast(model: RecencyModel, samples: int, seed: int = 0) -> Tally:
    return simulate_recency(model, samples, seed=seed, threads=1).tally


def plain(model: RecencyModel, samples: int, seed: int = 0) -> Tally:
    return simulate_recency(model, samples, seed=seed, threads=1, engine="token_space").tally


def largest(one: Tally, other: Tally, *, varying: bool = False) -> float:
    """The largest difference of means in units of its standard error, the spread being that of all samples.

    What varies by rounding only (a normalised token's score with itself) may differ by rounding; `varying`
    leaves it out.
    """
    pooled = (one.squares + other.squares) / (one.count + other.count - 2)
    rounding = 1e-12 * np.maximum(np.abs(one.mean), np.abs(other.mean)) + 1e-300
    error = np.sqrt(pooled * (1.0 / one.count + 1.0 / other.count)) + rounding
    ratios = np.abs(one.mean - other.mean) / error
    return float(ratios[(pooled > rounding**2) | (not varying)].max())


def bound(comparisons: int) -> float:
    """What the largest of so many deviations exceeds with a chance of `OVERALL` / `CHECKS`."""
    return float(normal.isf(OVERALL / CHECKS / comparisons / 2))


def noticed(one: Tally, other: Tally) -> bool:
    """Whether two tallies are not of one model, by what chance has a part in."""
    return largest(one, other, varying=True) > bound(one.mean.size)


def cases() -> list[RecencyModel]:
    """Every norm, order and residual with every number of tokens; dimensions and α go round independently."""
    dimensions = {2: (3, 16, 64), 3: (3, 5, 24), 10: (3, 7, 16, 64), 32: (8, 16, 33)}
    anisotropies = (0.0, 0.5, 0.6, 0.9)
    kinds = product(enumerate(("layernorm", "rmsnorm", "none")), ("pre", "post"), (False, True))
    grid = [
        RecencyModel(
            tokens=tokens,
            dimension=dimensions[tokens][(kind + turn) % len(dimensions[tokens])],
            anisotropy=anisotropies[(kind + place) % 4],
            norm=norm,
            order=order,
            residual=residual,
            depth=DEPTH[tokens],
        )
        for kind, ((turn, norm), order, residual) in enumerate(kinds)
        for place, tokens in enumerate(PLAIN)
    ]
    return [
        *grid,
        RecencyModel(gain=0.7, bias=-0.5, temperature=1.5, order="post", residual=True),
        RecencyModel(gain=1.3, bias=0.4, temperature=0.8, anisotropy=0.6, residual=True),
        RecencyModel(norm="rmsnorm", dimension=2, gain=0.9, temperature=0.6, anisotropy=0.0),
    ]


CASES = cases()


def name(model: RecencyModel) -> str:
    parts = (model.norm, model.order, "residual" if model.residual else "alone")
    return "-".join((*parts, f"n{model.tokens}", f"d{model.dimension}", f"a{model.anisotropy}"))


@pytest.mark.parametrize("model", CASES, ids=name)
def test_both_engines_have_the_same_means(model):
    ours, reference = fast(model, FAST * PLAIN[model.tokens]), plain(model, PLAIN[model.tokens])
    assert largest(ours, reference) <= bound(ours.mean.size)


# --- wrong models are noticed ------------------------------------------------------------------------------

Follow = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
MODEL = RecencyModel(residual=True)


def by_hand(follow: Follow, *, causal: bool = True, samples: int = PLAIN[10]) -> Tally:
    """The model of `MODEL` with x ← follow(A, y, x), and a mask or none."""
    mask = np.tri(MODEL.tokens, dtype=bool) | (not causal)
    x = token_space.embeddings(default_rng(sequence(0, "test/by-hand")), MODEL, samples)
    scores, attention = [], []
    for _ in range(MODEL.depth):
        y = token_space.normalised(MODEL, x)
        scores.append(y @ y.swapaxes(1, 2) / math.sqrt(MODEL.dimension))
        attention.append(masked_softmax(scores[-1], mask))
        x = follow(attention[-1], y, x)
    return Tally.of_scores(np.stack(scores), np.stack(attention))


def right(attention: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    return attention @ y + x


WRONG: dict[str, Callable[[], Tally]] = {
    "the residual adds y": lambda: by_hand(lambda attention, y, x: attention @ y + y),
    "values are not normalised": lambda: by_hand(lambda attention, y, x: attention @ x + x),
    "no residual": lambda: by_hand(lambda attention, y, x: attention @ y),
    "no mask": lambda: by_hand(right, causal=False),
    **{
        what: lambda change=change: plain(replace(MODEL, **change), PLAIN[10])
        for what, change in {
            "no norm": {"norm": "none"},
            "unbiased variance": {"gain": math.sqrt(15 / 16)},
            "scores divided by d": {"temperature": 4.0},
            "temperature off by a twentieth": {"temperature": 1.05},
            "the norm comes after": {"order": "post"},
            "α off by a fiftieth": {"anisotropy": 0.52},
            "one dimension more": {"dimension": 17},
        }.items()
    },
}


@pytest.fixture(scope="module")
def ours() -> Tally:
    return fast(MODEL, FAST * PLAIN[10])


def test_the_right_model_by_hand_is_not_noticed(ours):
    assert not noticed(ours, by_hand(right))


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_model_is_noticed(ours, wrong):
    assert noticed(ours, WRONG[wrong]())


def test_rmsnorm_for_layernorm_and_a_wrong_weight_of_the_shared_direction_are_noticed():
    """At few dimensions; α/(1 − α) for its root is the same at α = ½."""
    model = RecencyModel(dimension=7)
    assert noticed(fast(model, FAST * PLAIN[10]), plain(replace(model, norm="rmsnorm"), PLAIN[10]))
    for anisotropy, other in ((0.5, False), (0.6, True)):
        odds = anisotropy / (1 - anisotropy)
        right_one = fast(replace(MODEL, anisotropy=anisotropy), FAST * PLAIN[10])
        wrong = plain(replace(MODEL, anisotropy=odds**2 / (1 + odds**2)), PLAIN[10])
        assert noticed(right_one, wrong) == other


# --- closed values -----------------------------------------------------------------------------------------

ENGINES = [(fast, 200_000), (plain, 12_000)]
KINDS = [
    RecencyModel(tokens=5, dimension=d, norm=norm, anisotropy=anisotropy, order=order, residual=True, depth=2)
    for norm, d, anisotropy in (
        ("layernorm", 3, 0.9),
        ("layernorm", 16, 0.5),
        ("rmsnorm", 7, 0.0),
        ("none", 4, 0.6),
    )
    for order in ("pre", "post")
]


def deviations(tally: Tally, layer: int, start: int, known: np.ndarray) -> np.ndarray:
    """How far the means from place `start` on are from known values, in standard errors (or rounding)."""
    place = slice(start, start + known.size)
    mean = tally.mean[layer, place]
    error = np.sqrt(tally.squares[layer, place] / (tally.count - 1) / tally.count)
    return np.abs(mean - known) / (error + 1e-12 * np.abs(mean) + 1e-300)


def agrees(deviation: np.ndarray) -> bool:
    """Whether no deviation is beyond chance."""
    return float(deviation.max()) <= bound(deviation.size)


@pytest.mark.parametrize(("engine", "samples"), ENGINES, ids=["gram", "token_space"])
@pytest.mark.parametrize("model", KINDS, ids=name)
def test_the_first_layer_prefers_no_key(engine, samples, model):
    """All tokens are alike to it: ½ for every kind of triple, no rises, no steps but to the diagonal."""
    tally = engine(model, samples)
    layout = tally.layout
    assert agrees(deviations(tally, 0, layout.shares, np.full(layout.size - layout.shares, 0.5)))
    assert agrees(deviations(tally, 0, layout.rises, np.zeros(layout.shares - layout.rises)))
    query, key = np.tril_indices(model.tokens, -1)
    steps = deviations(tally, 0, layout.steps, np.zeros(layout.rises - layout.steps))
    assert agrees(steps[key + 1 < query])
    assert not agrees(steps[key + 1 == query])


def mean_correlation(freedom: int, anisotropy: float) -> float:
    """E r of a sample correlation of ν degrees of freedom (Hotelling 1953): samples less one, if centred.

    From Fisher's series of its density, ∝ (1 − r²)^((ν−3)/2) Σ_k (2αr)^k Γ((ν+k)/2)²/k!, term by term; the odd
    ones are a hypergeometric series, which Euler's transformation takes to this one.
    """
    gammas = math.exp(2 * (math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)))
    return anisotropy * 2 / freedom * gammas * float(hyp2f1(0.5, 0.5, freedom / 2 + 1, anisotropy**2))


@pytest.mark.parametrize(("engine", "samples"), ENGINES, ids=["gram", "token_space"])
@pytest.mark.parametrize("anisotropy", [0.0, 0.6, 0.9])
@pytest.mark.parametrize(
    ("norm", "dimension"), [("layernorm", 3), ("layernorm", 16), ("rmsnorm", 2), ("rmsnorm", 40)]
)
def test_the_mean_score_of_the_first_layer_is_that_of_a_sample_correlation(
    engine, samples, norm, dimension, anisotropy
):
    centred = norm == "layernorm"
    gain, bias, temperature, unit = 1.2, 0.3 * centred, 1.4, math.sqrt(dimension)
    model = RecencyModel(
        tokens=4, dimension=dimension, norm=norm, anisotropy=anisotropy, depth=1,
        temperature=temperature, gain=gain, bias=bias,
    )  # fmt: skip
    tally = engine(model, samples)

    def means(correlation: float) -> np.ndarray:
        r = np.where(np.eye(4, dtype=bool), 1.0, correlation)[np.tril_indices(4)]
        return unit / temperature * (gain**2 * r + bias**2)

    assert agrees(deviations(tally, 0, 0, means(mean_correlation(dimension - centred, anisotropy))))
    if anisotropy and engine is fast:  # neither α itself nor one degree of freedom more
        assert not agrees(deviations(tally, 0, 0, means(anisotropy)))
        if dimension < 16:
            other = mean_correlation(dimension - centred + 1, anisotropy)
            assert not agrees(deviations(tally, 0, 0, means(other)))


@pytest.mark.parametrize(("engine", "samples"), ENGINES, ids=["gram", "token_space"])
@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("dimension", [1, 5, 30])
def test_scores_of_embeddings_as_they_are_have_the_moments_of_wishart(engine, samples, order, dimension):
    model = RecencyModel(tokens=3, dimension=dimension, norm="none", anisotropy=0.6, order=order, depth=1)
    tally = engine(model, samples)
    covariance = (np.eye(3) + 1.5)[np.tril_indices(3)]
    assert agrees(deviations(tally, 0, 0, covariance / math.sqrt(dimension)))
    # cumulants of a product of two normals: 2^(s−1) (s−1)! (λ₊^s + λ₋^s), and of d of them, d times that
    lowest, highest = (covariance - 2.5) / 2, (covariance + 2.5) / 2
    second = dimension * 2 * (highest**2 + lowest**2) / dimension**3
    fourth = dimension * 48 * (highest**4 + lowest**4) / dimension**6
    error = np.sqrt((fourth + 2 * second**2) / samples)
    assert agrees(np.abs(tally.squares[0, :6] / (samples - 1) - second) / error)


def of_two_tokens(d: int, depth: int, r: float) -> tuple[list[float], list[float]]:
    """Score and attention of query 1, key 0 in all layers, two normalised tokens having correlation r at first."""
    unit, scores, weights = math.sqrt(d), [], []
    for _ in range(depth):
        scores.append(unit * r)
        weights.append(1 / (1 + math.exp(unit * (1 - r))))
        a = weights[-1]
        r = (a + (1 - a) * r) / math.sqrt(a * a + (1 - a) ** 2 + 2 * a * (1 - a) * r)
    return scores, weights


@pytest.mark.parametrize(("engine", "samples"), ENGINES, ids=["gram", "token_space"])
@pytest.mark.parametrize(
    ("norm", "dimension"), [("layernorm", 3), ("layernorm", 16), ("rmsnorm", 4), ("rmsnorm", 64)]
)
def test_two_tokens_are_functions_of_one_correlation(engine, samples, norm, dimension):
    """At α = 0, r has density (1 − r²)^((ν−3)/2)/B(½, (ν−1)/2): all means of all layers are single integrals."""
    depth, freedom = 4, dimension - (norm == "layernorm")
    model = RecencyModel(tokens=2, dimension=dimension, norm=norm, anisotropy=0.0, depth=depth)
    tally = engine(model, samples)

    def mean(kind: int, layer: int) -> float:
        def weighted(angle: float) -> float:
            drawn = of_two_tokens(dimension, depth, math.sin(angle))[kind][layer]
            return drawn * math.cos(angle) ** (freedom - 2)

        return quad(weighted, -math.pi / 2, math.pi / 2, epsabs=1e-13)[0] / beta(0.5, (freedom - 1) / 2)

    below = 1  # where (1, 0) stands
    for layer in range(depth):
        for kind, start in enumerate((below, tally.layout.attention + below)):
            assert agrees(deviations(tally, layer, start, np.array([mean(kind, layer)])))
    if dimension <= 16:  # the layers differ noticeably
        assert not agrees(deviations(tally, 1, below, np.array([mean(0, 0)])))
