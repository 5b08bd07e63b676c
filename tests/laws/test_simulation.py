"""Laws of the simulation of LayerNorm-induced recency: what seeds, samples, threads and masks may change."""

import json
import math

import numpy as np
import pytest
from examples import examples
from heard import Heard
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import refused

from posbias.core.errors import InvalidValueError
from posbias.core.spec import decode, encode
from posbias.simulation import InterruptedSimulation, RecencyModel, simulate_recency
from posbias.simulation.gram import BLOCK, run_block, transform
from posbias.simulation.tally import Tally
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias_papers.simulation import Variant


def same_bytes(one: Tally, two: Tally) -> bool:
    return one.count == two.count and all(
        getattr(one, part).tobytes() == getattr(two, part).tobytes()
        for part in ("mean", "squares", "products")
    )


@given(samples=st.integers(1, 3 * BLOCK), threads=st.integers(1, 5), seed=st.integers(0, 2**64))
@settings(max_examples=20)
def test_threads_change_no_byte(samples, threads, seed):
    model = RecencyModel(tokens=4, depth=2)
    one = simulate_recency(model, samples, seed=seed, threads=1)
    assert same_bytes(one.tally, simulate_recency(model, samples, seed=seed, threads=threads).tally)
    assert one.samples == samples
    assert not same_bytes(one.tally, simulate_recency(model, samples, seed=seed + 1, threads=1).tally)


def test_a_bias_however_large_changes_no_order():
    plain, far = (simulate_recency(RecencyModel(bias=bias), 2000) for bias in (0.0, 1e8))
    assert far.recency_probability == plain.recency_probability


@given(first=st.integers(0, 5), blocks=st.integers(1, 4))
@settings(max_examples=10)
def test_a_longer_run_goes_on_from_a_shorter_one(first, blocks):
    model = RecencyModel(tokens=3, depth=2)
    tally = simulate_recency(model, max(first, 1) * BLOCK).tally
    for block in range(max(first, 1), max(first, 1) + blocks):
        tally.merge(run_block(model, 0, block))
    assert same_bytes(tally, simulate_recency(model, (max(first, 1) + blocks) * BLOCK).tally)


@given(tokens=st.integers(3, 12), seed=st.integers(0, 99), residual=st.booleans())
@examples(60)
def test_all_numbers_of_a_result_lie_at_their_places(tokens, seed, residual):
    """Rows of attention, own scores; in the first layer, which is not controlled, sums of steps and of triples."""
    model = RecencyModel(tokens, residual=residual, depth=2)
    result = simulate_recency(model, 500, seed=seed, threads=1)
    np.testing.assert_allclose(np.nansum(result.mean_attention.value, axis=2), 1.0, rtol=1e-12)
    own = np.diagonal(result.mean_scores.value, axis1=1, axis2=2)
    np.testing.assert_allclose(own, math.sqrt(model.dimension), rtol=1e-12)
    steps, rises = result.steps.value[0], result.rises.value[0]
    for i in range(2, tokens):
        np.testing.assert_allclose(np.cumsum(steps[i, : i - 1]), rises[i, 1:i], rtol=1e-9, atol=1e-12)
    by_size = [0, *(math.comb(tokens - size, 2) for size in range(1, tokens - 1)), 0]
    by_query = [math.comb(query, 2) for query in range(tokens)]
    for shares, count in (
        (result.by_query, by_query),
        (result.by_gap, by_size),
        (result.by_distance, by_size),
    ):
        whole = np.nansum(shares.value[0] * count) / model.triples
        assert whole == pytest.approx(result.plain_recency_probability[0].value, rel=1e-12)


def test_definition_1_is_undecided_where_samples_are_too_few():
    few = simulate_recency(RecencyModel(dimension=256, depth=2), 50).exhibits_recency()
    many = simulate_recency(RecencyModel(dimension=64, depth=2), 50_000).exhibits_recency()
    primacy = simulate_recency(RecencyModel(norm="none", anisotropy=0.0, depth=3), 50_000).exhibits_recency()
    assert few[1].verdict in ("undecided", "yes")
    assert many[1].verdict == "yes"
    assert [one.verdict for one in primacy][2] == "no"
    two = simulate_recency(RecencyModel(tokens=2, depth=1), 100).exhibits_recency()
    assert two[0].verdict == "yes"  # a token scores highest with itself


def test_no_share_is_known_more_surely_than_one_triple_of_one_sample():
    first, second = simulate_recency(
        RecencyModel(dimension=4096, anisotropy=0.0, depth=2), 5000
    ).recency_probability
    assert abs(first.value - 0.5) < 4 * first.se
    # no triple changed sides
    assert (second.value, second.se) == (pytest.approx(0.5, abs=1e-12), pytest.approx(1 / (120 * 5000)))


def test_a_simulation_until_an_error_looks_at_every_layer_and_ctrl_c_hands_over_what_is_counted():
    result = simulate_recency(RecencyModel(tokens=4, depth=3), until_se=1e-3)
    assert max(p.se for p in result.recency_probability) <= 1e-3
    with pytest.raises(InterruptedSimulation) as caught:
        simulate_recency(RecencyModel(tokens=3, depth=2), 10**9, on_event=Heard(stop=3 * BLOCK))
    assert caught.value.result is not None
    kept = simulate_recency(RecencyModel(tokens=3, depth=2), 3 * BLOCK)
    assert same_bytes(caught.value.result.tally, kept.tally)


# --- normal variates ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True)), min_size=1))
def test_box_muller_is_the_formula(pairs):
    u, w = np.array(pairs).T.copy()
    radius, angle = np.sqrt(-2 * np.log(1 - u)), 2 * np.pi * (w - 0.5)
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)])
    transform(u, w)
    np.testing.assert_allclose(np.stack([u, w]), expected, rtol=0, atol=1e-14)


# --- masks -----------------------------------------------------------------------------------------------


def test_what_no_triple_is_of_is_not_a_number():
    result = simulate_recency(RecencyModel(8, mask=SlidingWindow(3), depth=2), 3000)
    assert np.isfinite(result.by_distance.value[1][1])
    assert np.isnan(result.by_distance.value[1][2:]).all()
    assert np.isnan(result.by_gap.se[1][2:]).all()
    scores = result.mean_scores.value[1]
    np.testing.assert_array_equal(np.isfinite(scores), SlidingWindow(3).allowed(8))
    assert result.recency_probability[1].value == pytest.approx(result.adjacency_probability[1].value)
    # steps from a key that is seen to one that is not decide nothing
    verdict = result.exhibits_recency()[1]
    assert verdict.query - verdict.key <= 2
    assert "NaN" not in json.dumps(encode(result.model))
    assert decode(RecencyModel, encode(result.model)) == result.model
    assert "mask" not in encode(RecencyModel())


def test_a_window_as_wide_as_the_text_is_the_causal_mask_and_a_full_mask_prefers_no_key():
    for norm in ("layernorm", "none"):
        causal, wide = (
            simulate_recency(RecencyModel(6, norm=norm, depth=3, mask=mask), 3000).tally
            for mask in (Causal(), SlidingWindow(6))
        )
        assert causal.mean.tobytes() == wide.mean.tobytes()
        assert causal.squares.tobytes() == wide.squares.tobytes()
    result = simulate_recency(RecencyModel(8, depth=3, mask=Full()), 8000, engine="token_space")
    for probability in result.recency_probability:
        assert abs(probability.value - 0.5) < 4 * probability.se


def test_what_cannot_be_simulated_is_refused():
    wrong = {"samples": 0, "threads": 0, "seed": -1, "until_se": math.nan, "engine": "grma"}
    for name, given_ in wrong.items():
        refused(name, lambda name=name, given_=given_: simulate_recency(RecencyModel(), **{name: given_}))
    refused("mask", lambda: simulate_recency(RecencyModel(mask=Prefix(3)), 100))
    refused("mask", lambda: Variant(RecencyModel(mask=SlidingWindow(3))))
    models = ({"anisotropy": 1.0}, {"tokens": 1}, {"dimension": 2}, {"dimension": 1, "norm": "rmsnorm"})
    models += ({"gain": 2.0, "norm": "none"}, {"bias": 1.0, "norm": "rmsnorm"}, {"bias": 1e200})
    for keys in models:
        refused(next(iter(keys)), lambda keys=keys: RecencyModel(**keys))
    refused("bias", lambda: RecencyModel(bias=1e70, temperature=1e-20))
    with pytest.raises(InvalidValueError):
        RecencyModel(mask=Prefix(11))
    # two tokens have no recency probability
    result = simulate_recency(RecencyModel(tokens=2), 100)
    assert result.mean_scores.value.shape == (4, 2, 2)
    refused("tokens", lambda: result.recency_probability)
