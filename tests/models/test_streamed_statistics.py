"""Statistics gathered from blocks of queries against whole matrices, pair by pair, in float64.

Layers are synthetic, so that heads, lengths, windows, learned sinks and the blocks vary freely; prompts are put
together by the same `State` that a measurement uses.
"""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_model

from posbias.core.errors import InvalidValueError
from posbias.measurement.accumulate import State, merged
from posbias.measurement.capture.forward import SeenLayer
from posbias.measurement.capture.scores import Factored, Given
from posbias.measurement.job import Request
from posbias.measurement.memory import MARGIN, estimate_cost, memory_parts
from posbias.measurement.prompt_meter import PromptMeter, layer_means
from posbias.measurement.quantities import block_sums
from posbias.measurement.quantities.content import ByDistance, constant_diagonal
from posbias.measurement.quantities.jacobian import gains_of
from posbias.measurement.quantities.mixing import head_norms, mixing_by_head
from posbias.measurement.quantities.sinks import Received, massive
from posbias.measurement.result import dataset
from posbias.measurement.sharing import Group
from posbias.measurement.streaming import PATIENCE, Stream
from posbias.profiles import sinks

EVERYTHING = Request(tokens=512, dense_logits=True, head_kernels=True)
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def layer(heads, tokens, seed, window=None, sinks=False, dtype=torch.float64):
    """A layer that attends to itself and up to `window` − 1 keys before, content and positions drawn apart."""
    rng = np.random.default_rng(seed)
    query, key = torch.from_numpy(rng.normal(1.0, 2.0, size=(2, heads, tokens, 3))).to(dtype)
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)
    seen = (distance >= 0) & (distance < (window or tokens))
    content = Factored(query, key, 0.4, mask=seen[None])
    positions = torch.from_numpy(rng.normal(size=tokens)).to(dtype)[distance.abs()]
    logits = (content.query @ key.transpose(1, 2)) * 0.4 + positions
    logits = logits.masked_fill(~seen, torch.finfo(dtype).min)
    joined = torch.cat([logits, torch.zeros(heads, tokens, 1, dtype=dtype)], dim=2)
    attention = joined.softmax(-1)[..., :-1] if sinks else logits.softmax(-1)
    stream = torch.from_numpy(rng.normal(size=(tokens, 5))).to(dtype)
    return SeenLayer(0, stream, stream * 0.3, Given(logits, attention), content)


def naive(seen, weights):
    """Every mean of one layer and prompt by loops over pairs of plain floats."""
    logits, attention = (values.double().numpy() for values in seen.scores.dense())
    content = seen.content.dense()[0].double().numpy()
    heads, tokens, _ = logits.shape
    visible = np.isfinite(logits[0])
    pairs = [[(j + d, j) for j in range(1, tokens - d) if visible[j + d, j]] for d in range(tokens)]

    def by_distance(values, what):
        return np.array(
            [[what([v[p] for p in found]) if found else np.nan for found in pairs] for v in values]
        )

    earlier = [pair for found in pairs[1:] for pair in found]
    seers = visible.sum(axis=0)
    found = {
        "logits_distance": by_distance(logits, np.mean),
        "content_distance": by_distance(content, np.mean),
        "content_distance_variance": by_distance(content, np.var),
        "positional_distance": by_distance(logits - np.where(visible, content, 0), np.mean),
        "attention_received": attention.sum(axis=1) / seers,
        "sink_metric": (attention > 0.2).sum(axis=1) / seers,
        "sink_share": attention[:, 1:, 0].sum(axis=1) / (tokens - 1),
        "missing_mass": 1 - attention.sum(axis=(1, 2)) / tokens,
        "kernel": attention.mean(axis=0),
        "kernel_head": attention,
        "energy_kernel": np.einsum("hij,hj->ij", attention**2, weights),
        "logits": np.where(visible, logits, np.nan),
        "content": np.where(visible, content, np.nan),
    }
    for name, values in (("logits", logits), ("content", content)):
        found[f"{name}_diagonal"] = np.array([np.diag(v) for v in values])
        found[f"{name}_first_column"] = np.where(visible[:, 0], values[:, :, 0], np.nan)
    empty = np.full(heads, np.nan)
    found["content_mean"] = (
        np.array([np.mean([v[p] for p in earlier]) for v in content]) if earlier else empty
    )
    found["content_variance"] = (
        np.array([np.var([v[p] for p in earlier]) for v in content]) if earlier else empty
    )
    both = [*earlier, *pairs[0]]
    found["constant_diagonal_r2"] = (
        np.array([r_squared(v, both) for v in content]) if earlier and len(both) > 1 else empty
    )
    return found


def r_squared(matrix, pairs):
    """R² of least squares on a constant and an indicator of the diagonal, by a general solver."""
    values = np.array([matrix[pair] for pair in pairs])
    design = np.array([[1.0, float(i == j)] for i, j in pairs])
    fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
    spread = ((values - values.mean()) ** 2).sum()
    return 1 - ((values - fitted) ** 2).sum() / spread if spread > 1e-20 else np.nan


@given(
    heads=st.integers(1, 3),
    tokens=st.integers(2, 11),
    window=st.one_of(st.none(), st.integers(1, 12)),
    sinks=st.booleans(),
    block=st.integers(1, 12),
    seed=st.integers(0, 10**6),
)
def test_blocks_of_queries_give_what_whole_matrices_give(heads, tokens, window, sinks, block, seed):
    seen = layer(heads, tokens, seed, window, sinks)
    weights = torch.rand(heads, tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    found = layer_means(seen, EVERYTHING, (weights, None), block)
    expected = naive(seen, weights.numpy())
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == np.float64
        if name != "constant_diagonal_r2":
            np.testing.assert_allclose(found[name], values, **CLOSE, err_msg=name)
    known = np.isfinite(expected["constant_diagonal_r2"])
    np.testing.assert_allclose(
        found["constant_diagonal_r2"][known], expected["constant_diagonal_r2"][known], rtol=1e-8, atol=1e-9
    )


def test_blocks_of_a_longer_prompt_in_single_precision():
    seen = layer(2, 150, 3, window=90, dtype=torch.float32)
    expected = naive(seen, np.ones((2, 150)))
    weights = torch.ones(2, 150, dtype=torch.float64)
    for block in (None, 64, 7):
        found = layer_means(seen, EVERYTHING, (weights, None), block)
        for name, values in expected.items():
            # inputs are the same float32 numbers: only the recomputed content rows may round differently
            tolerance = 1e-5 if "content" in name or name.startswith(("positional", "constant")) else 1e-12
            np.testing.assert_allclose(found[name], values, rtol=tolerance, atol=tolerance, err_msg=name)


@given(
    heads=st.integers(1, 3),
    start=st.integers(0, 40),
    queries=st.integers(1, 40),
    hidden=st.floats(0, 1),
    spread=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_compiled_sums_are_those_of_tensor_operations(heads, start, queries, hidden, spread, seed):
    """Sums are in float64 either way: at most a few roundings apart, whatever is hidden, and −∞ where it is."""
    rng = np.random.default_rng(seed)
    keys = start + queries
    unseen = torch.from_numpy(rng.random((queries, keys)) < hidden).logical_or(
        torch.ones(queries, keys, dtype=torch.bool).triu(start + 1)
    )
    block = torch.from_numpy(rng.normal(3.0, 10.0, (heads, queries, keys)).astype(np.float32))
    attention = block.masked_fill(unseen, -torch.inf).softmax(2).nan_to_num()
    weights = torch.from_numpy(rng.random((heads, keys)) * 10.0 ** rng.integers(-9, 9, (heads, keys)))
    pairs = [
        (block_sums.by_distance, (start, block.masked_fill(unseen, -torch.inf), unseen, spread)),
        (block_sums.received, (attention, 0.2)),
        (block_sums.head_mean, (attention,)),
        (block_sums.energy_kernel, (attention, weights)),
    ]
    for compiled, given_ in pairs:
        plain = getattr(block_sums, f"{compiled.__name__}_plain")(*given_)
        found = compiled(*given_)
        for one, other in zip(found, plain, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * np.abs(other).max())


def test_means_by_distance_are_summed_in_float64():
    logits = torch.full((1, 1500, 1500), 0.1, dtype=torch.float32)
    moments, unseen = ByDistance(1, 1500), torch.ones(1500, 1500, dtype=torch.bool).triu(1)
    for start in range(0, 1500, 400):
        moments.add(start, logits[:, start : start + 400], unseen[start : start + 400])
    np.testing.assert_allclose(moments.mean()[0, :-1], float(np.float32(0.1)), rtol=1e-14)
    assert np.nanmax(moments.variance()) < 1e-28


def test_variances_do_not_cancel():
    """Deviations of 1e-3 about 1e4: E[x²] − E[x]² would keep four digits of them."""
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(1e4 + 1e-3 * rng.normal(size=(1, 60, 60)))
    moments, unseen = ByDistance(1, 60), torch.ones(60, 60, dtype=torch.bool).triu(1)
    for start in range(0, 60, 7):
        moments.add(start, logits[:, start : start + 7], unseen[start : start + 7])
    direct = [np.var(np.diagonal(logits[0].numpy(), -d)[1:]) for d in range(59)]
    np.testing.assert_allclose(moments.variance()[0, :59], direct, rtol=1e-8, atol=1e-20)


def test_without_spread_there_is_no_variance():
    with pytest.raises(InvalidValueError, match="spread"):
        ByDistance(1, 4, spread=False).variance()


def test_the_fit_of_whole_matrices_finds_constant_and_offset():
    rng = np.random.default_rng(2)
    matrix = np.tril(np.full((2, 9, 9), -1.5)) + 4.0 * np.eye(9)
    matrix[:, np.triu_indices(9, 1)[0], np.triu_indices(9, 1)[1]] = np.nan
    exact = constant_diagonal(matrix)
    np.testing.assert_allclose((exact.constant, exact.offset, exact.r2), [[-1.5] * 2, [4.0] * 2, [1.0] * 2])
    noisy = matrix + rng.normal(size=matrix.shape)
    pairs = [(i, j) for i in range(9) for j in range(1, i + 1)]
    np.testing.assert_allclose(constant_diagonal(noisy).r2, [r_squared(head, pairs) for head in noisy])


# --- over prompts ---------------------------------------------------------------------------------------------


def sample(seed, heads=2, tokens=6):
    """One prompt's sample as a measurement makes it, of one layer."""
    found = layer_means(layer(heads, tokens, seed), EVERYTHING)
    return {name: values[None] for name, values in found.items()}


def state_of(numbers, start=None):
    state = start or State()
    for number in numbers:
        state = state.extended(sample(number), {"loss": np.array(float(number))}, 1.0, number)
    return state


def test_variances_are_pooled_over_pairs_and_prompts():
    numbers = [3, 4, 5, 6, 7]
    state = state_of(numbers)
    content = np.array([layer(2, 6, number).content.dense()[0].numpy() for number in numbers])
    for head in range(2):
        earlier = [content[p, head, i, j] for p in range(5) for i in range(6) for j in range(1, i)]
        assert state.means["content_mean"][0, head] == pytest.approx(np.mean(earlier), rel=1e-12)
        assert state.means["content_variance"][0, head] == pytest.approx(np.var(earlier), rel=1e-12)
        for distance in range(5):
            at = [content[p, head, j + distance, j] for p in range(5) for j in range(1, 6 - distance)]
            found = state.means["content_distance_variance"][0, head, distance]
            assert found == pytest.approx(np.var(at), rel=1e-12)


@pytest.mark.parametrize("cut", [0, 1, 2, 5])
def test_shares_of_several_processes_make_the_same_state(cut):
    whole = state_of(range(5))
    parts = merged([state_of(range(5)[cut:]), state_of(range(cut))])
    assert parts.finished == 5
    assert parts.column("index").tolist() == whole.column("index").tolist() == list(range(5))
    np.testing.assert_array_equal(parts.column("loss"), np.arange(5.0))
    assert parts.means.keys() == whole.means.keys()
    for name, mean in whole.means.items():
        np.testing.assert_allclose(parts.means[name], mean, rtol=1e-12, atol=1e-14, err_msg=name)


def test_halves_are_those_of_even_and_odd_prompts_even_with_gaps():
    state = state_of([0, 2, 3, 7, 8])
    kernels = {number: sample(number)["kernel"] for number in (0, 2, 3, 7, 8)}
    even, odd = state.halves()
    np.testing.assert_allclose(even, np.mean([kernels[n] for n in (0, 2, 8)], axis=0), rtol=1e-14)
    np.testing.assert_allclose(odd, np.mean([kernels[n] for n in (3, 7)], axis=0), rtol=1e-14)
    np.testing.assert_allclose(state.kernel(), np.mean(list(kernels.values()), axis=0), rtol=1e-13)
    assert state.share_of_even() == 3 / 5
    assert state_of([4]).halves() is None
    np.testing.assert_allclose(state_of([4]).kernel(), sample(4)["kernel"])


def test_means_over_even_prompts_are_kept_beside_those_over_all():
    numbers = [0, 2, 3, 7, 8]
    state, parts = state_of(numbers), merged([state_of([0, 7]), state_of([2, 3, 8])])
    assert {"kernel", "logits_distance", "content_mean"} <= state.even().keys()
    for name, mean in state.even().items():
        direct = np.mean([sample(number)[name] for number in (0, 2, 8)], axis=0)
        np.testing.assert_allclose(mean, direct, rtol=1e-12, atol=1e-14, err_msg=name)
        np.testing.assert_allclose(parts.even()[name], direct, rtol=1e-12, atol=1e-14, err_msg=name)
    assert state_of([0, 2]).even() == state_of([3]).even() == {}


def test_an_earlier_state_stays_as_it_was():
    first = state_of(range(2))
    before = {name: mean.copy() for name, mean in first.means.items()}
    state_of([2, 3], first)
    for name, mean in first.means.items():
        np.testing.assert_array_equal(mean, before[name])


# --- on models ------------------------------------------------------------------------------------------------


def measurement(loaded, prompts=3, tokens=12, **asked):
    rng = np.random.default_rng(7)
    meter, state = PromptMeter(loaded, Request(tokens=tokens, **asked)), State()
    for number in range(prompts):
        drawn, row = meter.measure(rng.integers(1, 50, tokens), f"prompt {number}")
        state = state.extended(drawn, row, 0.0)
    config = loaded.model.config.get_text_config()
    sizes = {"depth": config.num_hidden_layers, "heads": config.num_attention_heads}
    return dataset(state, None, {"tokens": tokens} | sizes)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_heads_parts_are_at_least_their_sum(attention):
    """λ ≤ Σ_h λ_h, the triangle inequality."""
    loaded = tiny_model("llama", attention=attention)
    meter, ids = PromptMeter(loaded, Request(tokens=10)), np.arange(1, 11)
    _, row = meter.measure(ids, "a prompt")
    assert (row["mixing"] <= row["mixing_head"].sum(axis=1) + 1e-12).all()
    assert (row["mixing"] > 0.05).all()


@given(st.integers(1, 4), st.integers(0, 10**6))
def test_norms_of_heads_parts_equal_the_explicit_products(heads, seed):
    rng = np.random.default_rng(seed)
    mixed, output = rng.normal(size=(6, heads * 2)), rng.normal(size=(5, heads * 2))
    scale = rng.uniform(0.5, 2, size=6)
    parts = [
        (mixed[:, 2 * h : 2 * h + 2] @ output[:, 2 * h : 2 * h + 2].T) * scale[:, None] for h in range(heads)
    ]
    found = head_norms(*(torch.from_numpy(each) for each in (mixed, output)), heads, torch.from_numpy(scale))
    np.testing.assert_allclose(found, [np.linalg.norm(part) for part in parts], rtol=1e-10)
    stream, update = np.ones(6), np.full(6, 2.0)
    np.testing.assert_allclose(mixing_by_head(stream, update, found), found / (3 * np.sqrt(6)))


def test_massive_activations():
    assert massive(np.array([1.0, 30.0, 2.0, 2.0, 1.0])) == (15.0, 1)
    assert massive(np.zeros(3))[1] == 0


@pytest.mark.parametrize("family", ["bloom", "gemma2", "gpt_oss", "gpt2", "falcon", "mistral"])
def test_other_families_have_every_statistic(family):
    """ALiBi, soft caps and norms after attention, learned sinks, learned positions, parallel blocks, windows."""
    found = measurement(tiny_model(family), dense_logits=True)
    for name in ("content_mean", "content_variance", "constant_diagonal_r2", "sink_share", "mixing_head"):
        assert np.isfinite(found[name].values).all(), name
    assert (found.content_variance > 0).all()
    assert ((found.constant_diagonal_r2 >= 0) & (found.constant_diagonal_r2 <= 1)).all()
    assert np.isfinite(found.monotonicity_rate.values).all()
    assert (np.diff(found.monotonicity_rate.values, axis=1) <= 0).all()
    whole = constant_diagonal(found.content.values[0])
    np.testing.assert_allclose(whole.constant, found.content_mean.values[0], rtol=1e-4, atol=1e-6)
    missing = found.missing_mass.values
    assert (missing > 1e-3).any() if family == "gpt_oss" else abs(missing).max() < 1e-6


def test_alibi_is_the_positional_part():
    found = measurement(tiny_model("bloom"))
    steps = np.diff(found.positional_distance.values[..., :-1], axis=-1)
    np.testing.assert_allclose(steps, steps[..., :1] * np.ones_like(steps), rtol=1e-4, atol=1e-5)
    assert (steps < 0).all()


def test_influences_and_rollouts_are_kept_when_asked_for():
    loaded = tiny_model("bloom")
    kinds = ("logit", "log_probability", "target", "input")
    found = measurement(loaded, prompts=2, influences=kinds, rollouts=("kernel", "value"), target=3)
    for kind in kinds:
        assert found[f"influence_{kind}"].dims == ("prompt", "position")
    np.testing.assert_allclose(
        found.influence, found.influence_log_probability * found.probability, rtol=1e-9
    )
    assert (found.target_token == 3).all()
    assert "rollout_energy" not in found
    np.testing.assert_allclose(found.rollout_kernel.sum("position"), 1, atol=1e-6)
    plain = measurement(loaded, prompts=2)
    assert "influence_logit" not in plain
    assert found[list(plain.data_vars)].equals(plain)


def test_without_an_odd_prompt_there_is_no_floor():
    found = measurement(tiny_model("llama"), prompts=1)
    assert np.isfinite(found.monotonicity_rate.values).all()
    assert np.isnan(found.monotonicity_floor.values).all()


def test_long_prompts_have_no_kernels(monkeypatch):
    monkeypatch.setattr("posbias.measurement.prompt_meter.KERNEL_TOKENS", 11)
    found = measurement(tiny_model("llama"))
    assert not {"kernel", "energy_kernel", "monotonicity_rate"} & set(found.data_vars)
    assert "attention_received" in found


# --- what it will take ----------------------------------------------------------------------------------------


def test_the_cost_is_told_before_measuring(text):
    loaded = tiny_model("llama")
    few, many = (estimate_cost(loaded, Request(text=text, tokens=24, prompts=count)) for count in (1, 50))
    assert few.bytes == many.bytes == sum(few.parts.values()) > 0
    assert 0 < few.seconds < 5
    assert many.seconds > 5 * few.seconds
    assert [line.partition(":")[0] for line in many.lines()] == ["memory", "time"]


def test_memory_grows_as_what_is_kept():
    config = tiny_model("llama").model.config
    parts = {
        tokens: memory_parts(config, Request(tokens=tokens), recompute=False) for tokens in (512, 1024, 2048)
    }
    assert parts[1024]["graph"] > 3 * parts[512]["graph"], "attention of every layer"
    assert parts[1024]["means"] > parts[2048]["means"], "no kernels above 1,024 tokens"
    assert memory_parts(config, Request(tokens=1024), recompute=True)["graph"] < parts[1024]["graph"]
    config._attn_implementation = "sdpa"
    assert memory_parts(config, Request(tokens=1024), recompute=False)["graph"] < parts[1024]["graph"] / 3
    whole, least = (memory_parts(config, asked)["means"] for asked in (EVERYTHING, Request(tokens=512)))
    # a state and a sample of logits, content and kernels of every head
    by_head = 2 * 3 * 8 * config.num_hidden_layers * config.num_attention_heads * 512**2
    assert whole - least == pytest.approx(MARGIN * by_head)


def test_the_kept_means_are_as_large_as_estimated():
    loaded, tokens = tiny_model("llama"), 48
    request = replace(EVERYTHING, tokens=tokens)
    rows = PromptMeter(loaded, request, gains_of(loaded.model, loaded.family, torch.arange(1, 20)))
    kept, _ = rows.measure(np.arange(tokens) % 49 + 1, "a prompt")
    # beside this sample the state holds as much, and one kernel more
    held = 2 * sum(array.nbytes for array in kept.values()) + kept["kernel"].nbytes
    estimated = memory_parts(loaded.model.config, request)["means"]
    assert held == pytest.approx(estimated / MARGIN, rel=0.1)


def test_received_block_by_block_is_what_the_arrays_give():
    """`posbias.profiles.sinks` defines both; blocks of queries in any order sum to it."""
    allowed = np.tri(9, dtype=bool) & ~np.tri(9, k=-4, dtype=bool)
    weights = torch.rand(2, 9, 9, dtype=torch.float64) * torch.from_numpy(allowed)
    received = Received(2, 9, 0.3)
    for block in (slice(5, 9), slice(0, 2), slice(2, 5)):
        received.add(block.start, weights[:, block], torch.from_numpy(~allowed[block]))
    np.testing.assert_allclose(received.mean(), sinks.received(weights.numpy(), allowed), rtol=1e-14)
    np.testing.assert_array_equal(received.metric(), sinks.sink_metric(weights.numpy(), allowed, 0.3))


def test_a_prompt_that_takes_ten_times_as_long_as_expected_is_told_once(caplog):
    def slow(index):
        time.sleep(0.02)
        return {"x": np.zeros(1)}, {"loss": np.array(1.0)}

    for expected, told in ((1e-3, 1), (1.0, 0), (None, 0)):
        caplog.clear()
        Stream(slow, 3, Group(), lambda event: None, expected).run(None, "a job")
        lines = [record.message for record in caplog.records if "were expected" in record.message]
        assert len(lines) == told, expected
    assert PATIENCE == 10
