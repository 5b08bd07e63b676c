"""Laws of the simulation of LayerNorm-induced recency: what seeds, samples, threads and layers may change."""

import math

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.simulation import InterruptedSimulation, RecencyModel, simulate_recency
from posbias.simulation.gram import BLOCK, fill_with_normals, run_block, transform
from posbias.simulation.tally import Layout, Tally


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


def test_another_seed_gives_other_samples():
    model = RecencyModel(tokens=4, depth=2)
    one, two = (simulate_recency(model, 100, seed=seed) for seed in (0, 1))
    assert not same_bytes(one.tally, two.tally)


@given(first=st.integers(0, 5), blocks=st.integers(1, 4))
@settings(max_examples=10)
def test_a_longer_run_goes_on_from_a_shorter_one(first, blocks):
    model = RecencyModel(tokens=3, depth=2)
    tally = simulate_recency(model, max(first, 1) * BLOCK).tally
    for block in range(max(first, 1), max(first, 1) + blocks):
        tally.merge(run_block(model, 0, block))
    assert same_bytes(tally, simulate_recency(model, (max(first, 1) + blocks) * BLOCK).tally)


@given(
    tokens=st.integers(2, 12),
    depth=st.integers(1, 4),
    dimension=st.integers(3, 40),
    anisotropy=st.floats(0, 0.99),
    norm=st.sampled_from(["layernorm", "rmsnorm", "none"]),
    residual=st.booleans(),
    order=st.sampled_from(["pre", "post"]),
)
@examples(60)
def test_laws_of_every_model(tokens, depth, dimension, anisotropy, norm, residual, order):
    model = RecencyModel(tokens, dimension, anisotropy, norm, residual, depth, order)
    result = simulate_recency(model, 500, threads=1)
    attention = result.mean_attention.value
    np.testing.assert_allclose(np.nansum(attention, axis=2), 1.0, rtol=1e-12)
    assert np.nanmin(attention) > 0
    if norm != "none":
        first = 1 if order == "post" else 0
        diagonal = np.diagonal(result.mean_scores.value, axis1=1, axis2=2)[first:]
        np.testing.assert_allclose(diagonal, math.sqrt(dimension), rtol=1e-12)
        below = result.mean_scores.value[first:]
        assert not (below > math.sqrt(dimension) * (1 + 1e-12)).any()
    if tokens > 2:
        assert all(0 <= p.value <= 1 for p in result.plain_recency_probability)
        for averages, count in (
            (result.by_query, [math.comb(i, 2) for i in range(tokens)]),
            (result.by_gap, [0, *(math.comb(tokens - g, 2) for g in range(1, tokens - 1)), 0]),
            (result.by_distance, [0, *(math.comb(tokens - g, 2) for g in range(1, tokens - 1)), 0]),
        ):
            # the first layer is not controlled: groups of triples add up to all of them
            whole = np.nansum(averages.value[0] * count) / model.triples
            assert whole == pytest.approx(result.plain_recency_probability[0].value, rel=1e-12)
    # steps of the first layer are plain: they add up to rises
    steps, rises = result.steps.value[0], result.rises.value[0]
    for i in range(2, tokens):
        np.testing.assert_allclose(np.cumsum(steps[i, : i - 1]), rises[i, 1:i], rtol=1e-9, atol=1e-12)


def test_temperature_and_gain_cancel_under_layernorm():
    plain = simulate_recency(RecencyModel(), 2000)
    scaled = simulate_recency(RecencyModel(gain=2.0, temperature=4.0), 2000)
    np.testing.assert_allclose(scaled.tally.mean, plain.tally.mean, rtol=1e-9, atol=1e-12)


def test_bias_shifts_scores_alone():
    plain, biased = (simulate_recency(RecencyModel(bias=bias), 2000) for bias in (0.0, 1.0))
    shift = biased.mean_scores.value - plain.mean_scores.value
    np.testing.assert_allclose(shift[:, np.tri(10, dtype=bool)], 4.0, rtol=1e-12)
    np.testing.assert_allclose(
        biased.mean_attention.value, plain.mean_attention.value, rtol=1e-9, equal_nan=True
    )


def test_a_large_bias_hides_no_difference():
    plain, biased = (simulate_recency(RecencyModel(bias=bias), 2000) for bias in (0.0, 1e8))
    assert biased.recency_probability == plain.recency_probability


def test_scores_beyond_float64_are_refused():
    for fields in ({"temperature": 1e-310}, {"gain": 1e200}, {"bias": 1e200}):
        with pytest.raises(InvalidValueError, match="expected finite scores"):
            simulate_recency(RecencyModel(**fields), 10)


def test_half_in_the_first_layer_and_no_finer_than_one_triple():
    result = simulate_recency(RecencyModel(dimension=4096, anisotropy=0.0, depth=2), 5000)
    first, second = result.recency_probability
    assert abs(first.value - 0.5) < 4 * first.se
    # no triple changed sides: half, but not more surely than one triple of one sample
    assert second.value == pytest.approx(0.5, abs=1e-12)
    assert second.se == pytest.approx(1 / (120 * 5000))


def test_definition_1_is_undecided_where_samples_are_too_few():
    few = simulate_recency(RecencyModel(dimension=256, depth=2), 50).exhibits_recency()
    many = simulate_recency(RecencyModel(dimension=64, depth=2), 50_000).exhibits_recency()
    primacy = simulate_recency(RecencyModel(norm="none", anisotropy=0.0, depth=3), 50_000).exhibits_recency()
    assert few[1].verdict in ("undecided", "yes")
    assert many[1].verdict == "yes"
    assert [one.verdict for one in primacy][2] == "no"
    two = simulate_recency(RecencyModel(tokens=2, depth=1), 100).exhibits_recency()
    assert two[0].verdict == "yes"  # a token scores highest with itself


def test_until_se_looks_at_every_layer():
    result = simulate_recency(RecencyModel(tokens=4, depth=3), until_se=1e-3)
    assert max(p.se for p in result.recency_probability) <= 1e-3


def test_ctrl_c_hands_over_what_is_counted():
    def stop(event):
        if event.done >= 3 * BLOCK:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedSimulation, match="6,144 samples") as caught:
        simulate_recency(RecencyModel(tokens=3, depth=2), 10**9, on_event=stop)
    assert caught.value.result is not None
    kept = simulate_recency(RecencyModel(tokens=3, depth=2), 3 * BLOCK)
    assert same_bytes(caught.value.result.tally, kept.tally)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples": 0}, "samples: 0 given"),
        ({"threads": 0}, "threads: 0 given"),
        ({"seed": -1}, "seed: -1 given"),
        ({"seed": 1.5}, r"seed: 1\.5 given"),
        ({"seed": True}, "seed: True given"),
        ({"until_se": 0.0}, r"until_se: 0\.0 given"),
        ({"until_se": math.nan}, "until_se: nan given"),
        ({"engine": "grma"}, "engine: 'grma' given, one of gram, token_space needed"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        simulate_recency(RecencyModel(), **({"samples": 10} | arguments))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"anisotropy": 1.0}, "anisotropy: 1.0 given, a number < 1 needed"),
        ({"tokens": 1}, "tokens: 1 given"),
        ({"dimension": 2}, "dimension: expected at least 3 with norm 'layernorm', got 2"),
        ({"dimension": 1, "norm": "rmsnorm"}, "dimension: expected at least 2"),
        ({"norm": "none", "gain": 2.0}, "gain: expected 1 with norm 'none', got 2.0"),
        ({"norm": "rmsnorm", "bias": 1.0}, "bias: expected 0 with norm 'rmsnorm', got 1.0"),
        ({"norm": "layer"}, "norm: 'layer' given"),
        ({"temperature": 0.0}, "temperature: 0.0 given"),
    ],
)
def test_wrong_models(fields, message):
    with pytest.raises(InvalidValueError, match=message):
        RecencyModel(**fields)


def test_two_tokens_have_no_recency_probability():
    result = simulate_recency(RecencyModel(tokens=2), 100)
    assert result.mean_scores.value.shape == (4, 2, 2)
    with pytest.raises(InvalidValueError, match="tokens: expected at least 3"):
        _ = result.recency_probability
    with pytest.raises(InvalidValueError, match="tokens: expected at least 3"):
        simulate_recency(RecencyModel(tokens=2), until_se=0.1)


# --- normal variates ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True)), min_size=1))
def test_box_muller_is_the_formula(pairs):
    u, w = np.array(pairs).T.copy()
    radius, angle = np.sqrt(-2 * np.log(1 - u)), 2 * np.pi * (w - 0.5)
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)])
    transform(u, w)
    np.testing.assert_allclose(np.stack([u, w]), expected, rtol=0, atol=1e-14)


def test_normals_have_normal_moments_and_odd_sizes_are_filled():
    from scipy import stats

    drawn = np.empty((3, 333_333))
    fill_with_normals(np.random.Generator(np.random.SFC64(7)), drawn)
    flat = drawn.ravel()
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((flat**power).mean() - moment) < 4 * math.sqrt(spread / flat.size)
    assert stats.kstest(flat, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(flat[:-1], flat[1:])[0, 1]) < 4 / math.sqrt(flat.size)
    half = flat.size // 2
    for one, two in ((flat[:half], flat[half : 2 * half]), (flat[:half] ** 2, flat[half : 2 * half] ** 2)):
        assert abs(np.corrcoef(one, two)[0, 1]) < 4 / math.sqrt(half)


def test_layout_is_complete():
    for tokens in range(2, 12):
        layout = Layout(tokens)
        assert len(layout.triples) == layout.size - layout.shares
        assert layout.triples[1:].sum() == 3 * math.comb(tokens, 3)
