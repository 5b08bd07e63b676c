"""Both engines of the recency simulation, each with its own draws, against closed values.

Every mean is one comparison: a difference in units of its standard error. The bound on the largest of them is
such that right engines would exceed it once in a million runs of all tests of this file together (Bonferroni);
that it is not too wide, wrong values show. On the same draw they are compared in `test_gram`.
"""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import beta, hyp2f1
from scipy.stats import norm as normal

from posbias.simulation import RecencyModel, simulate_recency
from posbias.simulation.tally import Tally

OVERALL, CHECKS = 1e-6, 300
"""The chance that right engines fail in any test of this file, and how many checks there are at most."""


def fast(model: RecencyModel, samples: int, seed: int = 0) -> Tally:
    return simulate_recency(model, samples, seed=seed, threads=1).tally


def plain(model: RecencyModel, samples: int, seed: int = 0) -> Tally:
    return simulate_recency(model, samples, seed=seed, threads=1, engine="token_space").tally


def bound(comparisons: int) -> float:
    """What the largest of so many deviations exceeds with a chance of `OVERALL` / `CHECKS`."""
    return float(normal.isf(OVERALL / CHECKS / comparisons / 2))


def name(model: RecencyModel) -> str:
    parts = (model.norm, model.order, "residual" if model.residual else "alone")
    return "-".join((*parts, f"n{model.tokens}", f"d{model.dimension}", f"a{model.anisotropy}"))


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
