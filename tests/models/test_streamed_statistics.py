"""Statistics gathered from blocks of queries against whole matrices, pair by pair, in float64.

Layers are synthetic, so that heads, lengths, windows, learned sinks and the blocks vary freely; prompts are put
together by the same `State` that a measurement uses.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_model

from posbias.measurement.capture.forward import SeenLayer
from posbias.measurement.capture.scores import Factored, Given
from posbias.measurement.job import Request
from posbias.measurement.memory import MARGIN, memory_parts
from posbias.measurement.prompt_meter import PromptMeter
from posbias.measurement.quantities import attention as of_attention
from posbias.measurement.quantities.attention import ByDistance, Received, layer_means
from posbias.measurement.quantities.mixing import head_norms
from posbias.measurement.result import EVEN, State, dataset
from posbias.profiles import curves

ALL = {"dense_logits": True, "head_kernels": True}
EVERYTHING = Request(tokens=512, **ALL)
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
    found = layer_means(seen, weights, block=block, **ALL)
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


@given(
    heads=st.integers(1, 3),
    start=st.integers(0, 40),
    queries=st.integers(1, 40),
    hidden=st.floats(0, 1),
    seed=st.integers(0, 10**6),
)
def test_compiled_sums_are_those_of_tensor_operations(heads, start, queries, hidden, seed):
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
        (of_attention.by_distance, (start, block.masked_fill(unseen, -torch.inf), unseen)),
        (of_attention.received, (attention, float(np.float32(0.2)))),
        (of_attention.head_mean, (attention,)),
        (of_attention.energy_kernel, (attention, weights)),
    ]
    for summed, asked in pairs:
        # float64 goes through tensor operations
        wide = [
            each.double() if isinstance(each, torch.Tensor) and each.dtype == torch.float32 else each
            for each in asked
        ]
        for one, other in zip(summed(*asked), summed(*wide), strict=True):
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


# --- over prompts ---------------------------------------------------------------------------------------------


def sample(seed, heads=2, tokens=6):
    """One prompt's sample as a measurement makes it, of one layer."""
    found = layer_means(layer(heads, tokens, seed), **ALL)
    return {name: values[None] for name, values in found.items()}


def state_of(numbers):
    state = State()
    for number in numbers:
        state.add(number, sample(number) | {"loss": np.array(float(number))}, 1.0)
    return state


def test_variances_are_pooled_over_pairs_and_prompts():
    numbers = [3, 4, 5, 6, 7]
    means = state_of(numbers).means()
    content = np.array([layer(2, 6, number).content.dense()[0].numpy() for number in numbers])
    for head in range(2):
        earlier = [content[p, head, i, j] for p in range(5) for i in range(6) for j in range(1, i)]
        assert means["content_mean"][0, head] == pytest.approx(np.mean(earlier), rel=1e-12)
        assert means["content_variance"][0, head] == pytest.approx(np.var(earlier), rel=1e-12)
        for distance in range(5):
            at = [content[p, head, j + distance, j] for p in range(5) for j in range(1, 6 - distance)]
            found = means["content_distance_variance"][0, head, distance]
            assert found == pytest.approx(np.var(at), rel=1e-12)


@pytest.mark.parametrize("cut", [0, 1, 2, 5])
def test_shares_of_several_processes_make_the_same_state(cut):
    whole, parts = state_of(range(5)), state_of(range(5)[cut:])
    parts.merge(state_of(range(cut)))
    assert [*parts.rows] == list(range(5))
    np.testing.assert_array_equal(parts.column("loss"), np.arange(5.0))
    found = parts.means()
    for name, mean in whole.means().items():
        np.testing.assert_allclose(found[name], mean, rtol=1e-12, atol=1e-14, err_msg=name)


def test_a_state_comes_back_from_its_tensors():
    whole, first = state_of(range(5)), state_of(range(3))
    again = State.of(first.tensors(), first.quantities)
    for number in (3, 4):
        again.add(number, sample(number) | {"loss": np.array(float(number))}, 1.0)
    assert again.seconds == whole.seconds
    for name, values in whole.sums.items():
        np.testing.assert_array_equal(again.sums[name], values)
    assert not State().tensors().arrays


def test_means_over_even_prompts_are_kept_next_to_those_over_all():
    numbers = [0, 2, 3, 7, 8]
    means = state_of(numbers).means()
    halved = {name.removesuffix(EVEN) for name in means if name.endswith(EVEN)}
    assert {"kernel", "logits_distance", "content_mean"} <= halved
    for name in halved:
        for kept, of in (("", numbers), ("_even", (0, 2, 8))):
            direct = np.mean([sample(number)[name] for number in of], axis=0)
            np.testing.assert_allclose(means[name + kept], direct, rtol=1e-12, atol=1e-14, err_msg=name)
    assert not [name for name in state_of([0, 2]).means() if name.endswith(EVEN)]


# --- on models ------------------------------------------------------------------------------------------------


def measurement(loaded, prompts=3, tokens=12, **asked):
    rng = np.random.default_rng(7)
    meter, state = PromptMeter(loaded, Request(tokens=tokens, **asked), torch.arange(1, 12)), State()
    for number in range(prompts):
        state.add(number, meter.measure(rng.integers(1, 50, tokens), f"prompt {number}"), 0.0)
    config = loaded.model.config.get_text_config()
    sizes = {"depth": config.num_hidden_layers, "heads": config.num_attention_heads}
    return dataset(state, None, {"tokens": tokens} | sizes)


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
    missing = found.missing_mass.values
    assert (missing > 1e-3).any() if family == "gpt_oss" else abs(missing).max() < 1e-6


def test_alibi_is_the_positional_part():
    found = measurement(tiny_model("bloom"))
    steps = np.diff(found.positional_distance.values[..., :-1], axis=-1)
    np.testing.assert_allclose(steps, steps[..., :1] * np.ones_like(steps), rtol=1e-4, atol=1e-5)
    assert (steps < 0).all()


def test_without_an_odd_prompt_there_is_no_floor():
    found = measurement(tiny_model("llama"), prompts=1)
    assert np.isfinite(found.monotonicity_rate.values).all()
    assert np.isnan(found.monotonicity_floor.values).all()


def test_long_prompts_have_no_kernels(monkeypatch):
    monkeypatch.setattr("posbias.measurement.quantities.attention.KERNEL_TOKENS", 11)
    monkeypatch.setattr("posbias.measurement.prompt_meter.KERNEL_TOKENS", 11)
    found = measurement(tiny_model("llama"))
    assert not {"kernel", "energy_kernel", "monotonicity_rate"} & set(found.data_vars)
    assert "attention_received" in found


# --- what it will take ----------------------------------------------------------------------------------------


def test_the_kept_means_are_as_large_as_estimated():
    loaded, tokens = tiny_model("llama"), 48
    request = replace(EVERYTHING, tokens=tokens)
    meter, state = PromptMeter(loaded, request, torch.arange(1, 20)), State()
    for number in range(3):
        found = meter.measure(np.arange(tokens) % 49 + 1, "a prompt")
        held = sum(array.nbytes for array in found.values())
        state.add(number, found, 0.0)
    held += sum(array.nbytes for array in state.sums.values())
    estimated = memory_parts(loaded.model.config, request)["means"]
    assert held == pytest.approx(estimated / MARGIN, rel=0.1)


def test_received_block_by_block_is_what_the_arrays_give():
    """`posbias.profiles.curves` defines both; blocks of queries in any order sum to it."""
    allowed = np.tri(9, dtype=bool) & ~np.tri(9, k=-4, dtype=bool)
    weights = torch.rand(2, 9, 9, dtype=torch.float64) * torch.from_numpy(allowed)
    received = Received(2, 9, 0.3)
    for block in (slice(5, 9), slice(0, 2), slice(2, 5)):
        received.add(block.start, weights[:, block], torch.from_numpy(~allowed[block]))
    np.testing.assert_allclose(
        received.found()["attention_received"], curves.received(weights.numpy(), allowed), rtol=1e-14
    )
    np.testing.assert_array_equal(received.metric(), curves.sink_metric(weights.numpy(), allowed, 0.3))
