"""Variants against what is known of them: the Gram engine, symmetries, signs; and estimators that are unbiased."""

import math

import numpy as np
import pytest

from posbias.profiles.estimate import Estimate
from posbias.simulation import RecencyModel, simulate_recency
from posbias_papers.simulation.variants import VARIANTS, OverNetworks, Variant, simulate_variant

HALF = Estimate(0.5, 0.0, 1)


def apart(a: Estimate, b: Estimate) -> float:
    """a − b in units of their standard error."""
    return (a.value - b.value) / math.hypot(a.se, b.se)


@pytest.mark.parametrize("norm", ["layernorm", "none"])
def test_without_additions_it_is_the_gram_engine(norm):
    model = RecencyModel(dimension=64, norm=norm)
    theirs = simulate_recency(model, 100_000, seed=1, threads=1).recency_probability
    mine = simulate_variant(Variant(model), 400, 25, seed=2).score.recency_probability
    for layer in range(4):
        assert abs(apart(mine[layer], theirs[layer])) <= 4
    if norm == "layernorm":
        assert abs(mine[1].value - 0.5544) <= 4 * mine[1].se  # Kim et al. 2026, Section 3


def test_a_direction_per_input_has_the_mean_of_one_per_network():
    per_network = simulate_variant(Variant(), 300, 20, seed=3).score
    per_input = simulate_variant(Variant(direction="input"), 300, 20, seed=4).score
    for a, b in zip(per_network.recency_probability, per_input.recency_probability, strict=True):
        assert abs(apart(a, b)) <= 4
    # a direction's length differs from network to network; with one per input, networks are all alike
    assert per_network.variance[3].value >= 4 * per_network.variance[3].se
    for variance in per_input.variance:
        assert abs(variance.value) <= 4 * variance.se


@pytest.mark.slow
def test_the_first_layer_prefers_nothing_but_what_its_encoding_does():
    for name in ("plain-d16", "tied-grouped", "independent", "block", "rope", "alibi"):
        result = simulate_variant(VARIANTS[name], 60, 30, seed=5)
        assert abs(apart(result.content.recency_probability[0], HALF)) <= 4
        if VARIANTS[name].positional != "none":
            assert apart(result.score.recency_probability[0], HALF) >= 4


def test_apart_projections_keep_strength_and_lose_the_sign():
    found = simulate_variant(VARIANTS["independent"], 150, 40, seed=6).score
    for probability, share in zip(found.recency_probability, found.recent, strict=True):
        assert abs(apart(probability, HALF)) <= 4
        assert abs(apart(share, HALF)) <= 4
    for layer in (1, 2, 3):
        assert found.variance[layer].value >= 4 * found.variance[layer].se
        assert found.strength[layer].value >= 4 * found.strength[layer].se
        assert (
            found.strength[layer].value
            <= math.sqrt(found.variance[layer].value) + 4 * found.strength[layer].se
        )
    other = simulate_variant(VARIANTS["independent-per-input"], 150, 40, seed=6).score
    assert apart(found.strength[3], other.strength[3]) >= 4
    # and it is the norm's: without one, little of it is left
    bare = simulate_variant(VARIANTS["independent-no-norm"], 150, 40, seed=6).score
    for layer in (1, 2, 3):
        assert apart(found.strength[layer], bare.strength[layer]) >= 4
        assert apart(found.variance[layer], bare.variance[layer]) >= 4


@pytest.mark.parametrize("name", ["tied", "tied-grouped", "values", "feed-forward", "block-tied"])
def test_the_sign_survives_otherwise(name):
    found = simulate_variant(VARIANTS[name], 40, 30, seed=7).score
    for layer in (1, 2, 3):
        assert apart(found.recency_probability[layer], HALF) >= 4


@pytest.mark.slow
def test_heads_do_not_make_d_into_the_head_dimension():
    """The paper's conclusion: √d becomes √d_h. In layer 2 heads of 16 lie between d = 64 and d = 16."""
    whole, heads, narrow = (
        simulate_variant(VARIANTS[name], 100, 50, seed=8).score.recency_probability
        for name in ("plain", "heads", "plain-d16")
    )
    assert apart(heads[1], whole[1]) >= 4
    assert apart(narrow[1], heads[1]) >= 4
    assert apart(narrow[3], heads[3]) >= 4


@pytest.mark.parametrize("encoding", ["rope", "alibi"])
def test_content_is_recent_with_the_norm_and_early_without(encoding):
    with_norm = simulate_variant(VARIANTS[encoding], 30, 30, seed=9)
    without = simulate_variant(VARIANTS[f"{encoding}-no-norm"], 30, 30, seed=9)
    for layer in (2, 3):
        assert apart(with_norm.content.recency_probability[layer], HALF) >= 4
        assert apart(HALF, without.content.recency_probability[layer]) >= 4
        assert apart(without.score.recency_probability[layer], HALF) >= 4


def synthetic(rng, spread: float, networks: int = 40, inputs: int = 10) -> OverNetworks:
    truth = 0.5 + spread * rng.normal(size=(networks, 1))
    drawn = truth + 0.1 * rng.normal(size=(networks, inputs))
    halves = np.stack([drawn[:, ::2].mean(axis=1), drawn[:, 1::2].mean(axis=1)])[:, :, None]
    noise = drawn.var(axis=1, ddof=1) / inputs
    return OverNetworks(drawn.mean(axis=1)[:, None], noise[:, None], halves)


@pytest.mark.parametrize(
    "spread", [pytest.param(0.0, marks=pytest.mark.slow), 0.02, pytest.param(0.2, marks=pytest.mark.slow)]
)
def test_spread_and_strength_are_free_of_the_inputs_noise(spread):
    rng = np.random.default_rng(12)
    found = [synthetic(rng, spread) for _ in range(400)]
    variance = Estimate.of_mean(np.array([one.variance[0].value for one in found]))
    strength = Estimate.of_mean(np.array([one.strength[0].value for one in found]))
    assert abs(variance.value - spread**2) <= 4 * variance.se
    # E[x·sign(x + e)] for normal x and e
    expected = math.sqrt(2 / math.pi) * spread**2 / math.hypot(spread, 0.1 / math.sqrt(5))
    assert abs(strength.value - expected) <= 4 * strength.se
    assert strength.value <= math.sqrt(2 / math.pi) * spread + 4 * strength.se
    # errors are those that repetition shows
    for kind, repeated in (("variance", variance), ("strength", strength)):
        stated = np.mean([getattr(one, kind)[0].se for one in found])
        assert stated == pytest.approx(repeated.se * math.sqrt(400), rel=0.2)
