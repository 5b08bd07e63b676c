"""Every number of a measurement against naive computations that share no code with the package.

`naive` computes all means of one layer by loops over pairs of plain floats. It is tried on synthetic layers, where
heads, lengths, windows, learned sinks and blocks of queries vary freely, and on a measured Llama, whose logits are
computed from its weights channel by channel.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tiny import tiny_model
from torch import nn

from posbias.comparison.predictors import PREDICTORS, folds, half, predictions
from posbias.core.errors import ModelError
from posbias.measurement import load_model, measure
from posbias.measurement.capture.forward import SeenLayer
from posbias.measurement.capture.scores import Factored, Given
from posbias.measurement.job import MeasurementJob
from posbias.measurement.memory import MARGIN, memory_parts
from posbias.measurement.models.families import decoder_layers, generic
from posbias.measurement.prompt_meter import PromptMeter
from posbias.measurement.quantities import attention as of_attention
from posbias.measurement.quantities.attention import PLACES, ByDistance, layer_means
from posbias.measurement.result import EVEN, State, dataset
from posbias.profiles.stochastic_order import TOLERANCES, noise_floor, violations

ALL = {"dense_logits": True, "head_kernels": True}
TOKENS, PROMPTS = 12, 3


def r_squared(matrix, pairs):
    """R² of least squares on a constant and an indicator of the diagonal, by a general solver."""
    values = np.array([matrix[pair] for pair in pairs])
    design = np.array([[1.0, float(i == j)] for i, j in pairs])
    fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
    spread = ((values - values.mean()) ** 2).sum()
    return 1 - ((values - fitted) ** 2).sum() / spread if spread > 1e-20 else np.nan


def naive(logits, content, attention, weights):
    """Every mean of one layer and prompt by loops; [head, query, key], −∞ where hidden; weights [head, key]."""
    tokens = logits.shape[1]
    visible = np.isfinite(logits[0])
    pairs = [[(j + d, j) for j in range(1, tokens - d) if visible[j + d, j]] for d in range(tokens)]

    def by_distance(values, what):
        return np.array([[what([v[p] for p in at]) if at else np.nan for at in pairs] for v in values])

    earlier, seers = [pair for at in pairs[1:] for pair in at], visible.sum(axis=0)
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
    both = [*earlier, *pairs[0]]
    of_pairs = {
        "content_mean": lambda v: np.mean([v[p] for p in earlier]),
        "content_variance": lambda v: np.var([v[p] for p in earlier]),
        "constant_diagonal_r2": lambda v: r_squared(v, both) if len(both) > 1 else np.nan,
    }
    return found | {
        name: np.array([of(v) if earlier else np.nan for v in content]) for name, of in of_pairs.items()
    }


# ── synthetic layers ──


def layer(heads, tokens, seed, window=None, sinks=False, dtype=torch.float64):
    """A layer that attends to itself and up to `window` − 1 keys before, content and positions drawn apart."""
    rng = np.random.default_rng(seed)
    query, key = torch.from_numpy(rng.normal(1.0, 2.0, size=(2, heads, tokens, 3)))
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)
    seen = (distance >= 0) & (distance < (window or tokens))
    content = Factored(query, key, 0.4, mask=seen[None])
    positions = torch.from_numpy(rng.normal(size=tokens))[distance.abs()]
    logits = ((content.query @ key.transpose(1, 2)) * 0.4 + positions).to(dtype)
    logits = logits.masked_fill(~seen, torch.finfo(dtype).min)
    joined = torch.cat([logits, torch.zeros(heads, tokens, 1, dtype=dtype)], dim=2)
    attention = joined.softmax(-1)[..., :-1] if sinks else logits.softmax(-1)
    stream = torch.from_numpy(rng.normal(size=(tokens, 5)))
    return SeenLayer(0, stream, stream * 0.3, Given(logits, attention), content)


@given(
    heads=st.integers(1, 3),
    tokens=st.integers(2, 11),
    window=st.one_of(st.none(), st.integers(1, 12)),
    sinks=st.booleans(),
    block=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    compiled=st.booleans(),
)
@example(1, PLACES + 8, None, False, 99, 0, torch.float32, True)  # more keys than are summed at a time
def test_blocks_of_queries_give_what_whole_matrices_give(
    heads, tokens, window, sinks, block, seed, dtype, compiled
):
    """In compiled code and in tensor operations, all sums in float64."""
    seen = layer(heads, tokens, seed, window, sinks, dtype)
    weights = torch.rand(heads, tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    logits, attention = (values.double().numpy() for values in seen.scores.dense())
    expected = naive(logits, seen.content.dense()[0].double().numpy(), attention, weights.numpy())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_attention, "_compiled", lambda block: compiled)
        found = layer_means(seen, weights, block=block, **ALL)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == np.float64
        known = np.isfinite(values) if name == "constant_diagonal_r2" else ...
        close = (
            {"rtol": 1e-8, "atol": 1e-9} if name == "constant_diagonal_r2" else {"rtol": 1e-10, "atol": 1e-12}
        )
        np.testing.assert_allclose(found[name][known], values[known], **close, err_msg=name)


def test_variances_do_not_cancel():
    """Deviations of 1e-3 about 1e4: E[x²] − E[x]² would keep four digits of them."""
    logits = torch.from_numpy(1e4 + 1e-3 * np.random.default_rng(0).normal(size=(1, 60, 60)))
    moments, unseen = ByDistance(1, 60), torch.ones(60, 60, dtype=torch.bool).triu(1)
    for start in range(0, 60, 7):
        moments.add(start, logits[:, start : start + 7], unseen[start : start + 7])
    direct = [np.var(np.diagonal(logits[0].numpy(), -d)[1:]) for d in range(59)]
    np.testing.assert_allclose(moments.variance()[0, :59], direct, rtol=1e-8, atol=1e-20)


# ── over prompts ──


def sample(number):
    """One prompt's sample as a measurement makes it, of one layer."""
    found = layer_means(layer(2, 6, number), **ALL)
    return {name: values[None] for name, values in found.items()} | {"loss": np.array(float(number))}


def state_of(numbers, begun=None):
    state = begun or State()
    for number in numbers:
        state.add(number, sample(number), 1.0)
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
def test_shares_of_several_processes_and_tensors_read_back_make_the_same_state(cut):
    whole, parts = state_of(range(5)), state_of(range(5)[cut:])
    parts.merge(state_of(range(cut)))
    np.testing.assert_array_equal(parts.column("loss"), np.arange(5.0))
    first = state_of(range(cut))
    again = state_of(range(cut, 5), State.of(first.tensors(), first.quantities) if cut else None)
    assert again.seconds == whole.seconds
    merged, read = parts.means(), again.means()
    for name, mean in whole.means().items():
        np.testing.assert_allclose(merged[name], mean, rtol=1e-12, atol=1e-14, err_msg=name)
        np.testing.assert_array_equal(read[name], mean, err_msg=name)


def test_means_over_even_prompts_are_kept_next_to_those_over_all():
    numbers = [0, 2, 3, 7, 8]
    means = state_of(numbers).means()
    halved = {name.removesuffix(EVEN) for name in means if name.endswith(EVEN)}
    assert {"kernel", "logits_distance", "content_mean"} <= halved
    for name in halved:
        for kept, of in (("", numbers), (EVEN, (0, 2, 8))):
            direct = np.mean([sample(number)[name] for number in of], axis=0)
            np.testing.assert_allclose(means[name + kept], direct, rtol=1e-12, atol=1e-14, err_msg=name)
    assert not [name for name in state_of([0, 2]).means() if name.endswith(EVEN)]


# ── a measured Llama ──


def plain_pass(model, ids):
    """From hooks: streams that enter each layer, updates of attention and feed-forward block, attention."""
    kept, hooks = {"stream": [], "update": [], "block": []}, []
    for one in model.model.layers:
        hooks.append(one.register_forward_pre_hook(lambda m, given: kept["stream"].append(given[0][0])))
        hooks.append(
            one.self_attn.register_forward_hook(lambda m, g, made: kept["update"].append(made[0][0]))
        )
        hooks.append(one.mlp.register_forward_hook(lambda m, given, made: kept["block"].append(made[0])))
    with torch.no_grad():
        made = model(ids[None], output_attentions=True)
    for hook in hooks:
        hook.remove()
    found = {name: [one.double().numpy() for one in parts] for name, parts in kept.items()}
    attention = [weights[0].double().numpy() for weights in made.attentions]
    return found | {"ids": ids, "attention": attention, "outputs": made.logits[0].double()}


def naive_logits(model, number, stream, rotate):
    """[head, query, key] from the weights; channels i and i + size/2 of a head are turned together."""
    config, block, tokens = model.config, model.model.layers[number], len(stream)
    normed = stream / np.sqrt((stream**2).mean(1, keepdims=True) + config.rms_norm_eps)
    normed = normed * block.input_layernorm.weight.double().numpy()
    size, base = config.head_dim, config.rope_parameters["rope_theta"]
    angles = rotate * np.outer(np.arange(tokens), base ** (-2 * np.arange(size // 2) / size))

    def turned(projection):
        vectors = (normed @ projection.weight.double().numpy().T).reshape(tokens, -1, size).swapaxes(0, 1)
        return (vectors[..., : size // 2] + 1j * vectors[..., size // 2 :]) * np.exp(1j * angles)

    query, key = turned(block.self_attn.q_proj), turned(block.self_attn.k_proj)
    key = key.repeat(len(query) // len(key), axis=0)
    logits = (query @ key.conj().swapaxes(1, 2)).real / math.sqrt(size)
    return np.where(np.tri(tokens, dtype=bool), logits, -np.inf)


@pytest.fixture
def measured(tiny, text):
    return measure(tiny, text=text, tokens=TOKENS, prompts=PROMPTS, seed=1, **ALL)


@pytest.fixture
def passes(tiny, text, measured):
    """The plain passes of the very prompts that were measured."""
    words = tiny.tokenizer(text.read_text(), add_special_tokens=False)["input_ids"]
    starts = json.loads(measured.attrs["starts"])
    return [plain_pass(tiny.model, torch.tensor(words[at : at + TOKENS])) for at in starts]


NORMS = (("residual", "stream"), ("update", "update"))


def test_means_over_prompts_are_those_of_the_naive_computation(tiny, measured, passes):
    epsilon = tiny.model.config.rms_norm_eps
    for t in range(3):
        rows = []
        for one in passes:
            stream = one["stream"][t]
            logits, content = (naive_logits(tiny.model, t, stream, rotate) for rotate in (True, False))
            weights = measured.head_gain.values[t][:, None] / ((stream**2).mean(1) + epsilon)
            row = naive(logits, content, one["attention"][t], weights)
            rows.append(row | {f"{name}_norm": np.linalg.norm(one[part][t], axis=1) for name, part in NORMS})
        assert np.nanmax(abs(rows[0]["positional_distance"])) > 0.1
        for name in rows[0].keys() - {"content_variance", "content_distance_variance"}:  # pooled, see above
            expected = np.mean([row[name] for row in rows], axis=0)
            rotated = name.startswith(("logits", "content", "positional", "constant"))
            close = {"rtol": 1e-3, "atol": 1e-4} if rotated else {"rtol": 1e-6, "atol": 1e-6}
            np.testing.assert_allclose(measured[name].values[t], expected, **close, err_msg=name)


def test_numbers_of_each_prompt_and_layer(tiny, measured, passes):
    """λ by Eq. 1 of the paper and by token and head, the feed-forward block's share, massive activations."""
    for prompt, one in enumerate(passes):
        for t, block in enumerate(tiny.model.model.layers):
            x, a, m = (one[name][t] for name in ("stream", "update", "block"))
            norms, parts = np.linalg.norm(x, axis=1), np.linalg.norm(a, axis=1)
            whole, expected = np.linalg.norm(x) + np.linalg.norm(a), {}
            normed = block.input_layernorm(torch.from_numpy(x).float())
            values = (normed @ block.self_attn.v_proj.weight.T).double().detach().numpy()
            out = block.self_attn.o_proj.weight.double().numpy()
            by_head = [
                one["attention"][t][h]
                @ values[:, 8 * (h // 2) : 8 * (h // 2) + 8]
                @ out[:, 8 * h : 8 * h + 8].T
                for h in range(4)
            ]
            np.testing.assert_allclose(sum(by_head), a, rtol=1e-3, atol=1e-4)
            expected = {
                "mixing": np.linalg.norm(a) / whole,
                "mixing_token": (parts / (norms + parts)).mean(),
                "mixing_head": [np.linalg.norm(part) / whole for part in by_head],
                "feed_forward_share": np.linalg.norm(m) / (np.linalg.norm(a) + np.linalg.norm(m)),
                "massive_ratio": norms.max() / np.median(norms),
                "massive_token": norms.argmax(),
            }
            for name, value in expected.items():
                np.testing.assert_allclose(measured[name].values[prompt, t], value, rtol=1e-5, err_msg=name)
        loss = nn.functional.cross_entropy(one["outputs"][:-1], one["ids"][1:])
        assert measured.loss.values[prompt] == pytest.approx(float(loss), rel=1e-6)
        assert measured.next_token.values[prompt] == int(one["outputs"][-1].argmax())
        probability = float(one["outputs"][-1].softmax(-1).max())
        assert measured.probability.values[prompt] == pytest.approx(probability, rel=1e-9)


def test_monotonicity_is_that_of_the_mean_kernel_and_its_halves(measured, passes):
    attention = np.array([one["attention"] for one in passes]).mean(axis=2)
    even, odd = attention[::2].mean(axis=0), attention[1::2].mean(axis=0)
    np.testing.assert_array_equal(measured.tolerance, TOLERANCES)
    for t in range(3):
        found = violations(attention[:, t].mean(axis=0))
        # one triple of those whose surplus is within rounding of a tolerance may count here and not there
        np.testing.assert_allclose(measured.monotonicity_rate.values[t], found.rate, atol=2e-3)
        assert measured.monotonicity_gap.values[t] == pytest.approx(found.gap, rel=1e-3)
        floor = noise_floor(even[t], odd[t], 2 / 3)
        assert measured.monotonicity_floor.values[t] == pytest.approx(floor, abs=4e-3)


def test_head_gain_is_the_norm_of_the_explicit_product(tiny, measured):
    for t, block in enumerate(tiny.model.model.layers):
        value = block.self_attn.v_proj.weight.double() * block.input_layernorm.weight.double()
        out = block.self_attn.o_proj.weight.double()
        for head in range(4):
            product = out[:, 8 * head : 8 * head + 8] @ value[8 * (head // 2) : 8 * (head // 2) + 8]
            expected = float(torch.linalg.matrix_norm(product) ** 2 / 32)
            assert measured.head_gain.values[t, head] == pytest.approx(expected, rel=1e-12)


# ── other models ──


def measurement(loaded, prompts=3, **asked):
    """What a meter makes of drawn prompts."""
    rng = np.random.default_rng(7)
    meter, state = PromptMeter(loaded, MeasurementJob(tokens=TOKENS, **asked), torch.arange(1, 12)), State()
    for number in range(prompts):
        state.add(number, meter.measure(rng.integers(1, 50, TOKENS), f"prompt {number}"), 0.0)
    config = loaded.model.config.get_text_config()
    return dataset(
        state,
        None,
        {"tokens": TOKENS, "depth": config.num_hidden_layers, "heads": config.num_attention_heads},
    )


def test_what_cannot_be_said_is_left_out(monkeypatch, tiny, text):
    """No floor without an odd prompt, no kernels of long prompts, no positional part without rotation."""
    found = measurement(tiny_model("llama"), prompts=1)
    assert np.isfinite(found.monotonicity_rate.values).all()
    assert np.isnan(found.monotonicity_floor.values).all()
    for module in ("quantities.attention", "prompt_meter"):
        monkeypatch.setattr(f"posbias.measurement.{module}.KERNEL_TOKENS", 11)
    found = measurement(tiny_model("llama"))
    assert not {"kernel", "energy_kernel", "monotonicity_rate"} & set(found.data_vars)
    assert "attention_received" in found
    tiny.model.model.rotary_emb.inv_freq.zero_()
    values = measure(tiny, text=text, tokens=TOKENS, prompts=2).positional_distance.values
    assert np.isnan(values[..., -1]).all()
    assert abs(values[..., :-1]).max() < 1e-5


BLOCKS = dict.fromkeys(("gpt2", "gpt_neox", "qwen3", "posbias_tiny"), "mlp")
BLOCKS |= dict.fromkeys(("olmo2", "gemma2"), "post_feedforward_layernorm")
"""What of a layer gives the feed-forward block's update as it is added."""


@pytest.mark.parametrize("family", BLOCKS)
def test_the_feed_forward_share_is_that_of_the_blocks_own_output(family):
    """From hooks: attention is what else the layer changed."""
    loaded, kept, ids = tiny_model(family), [], np.random.default_rng(7).integers(1, 50, TOKENS)
    found = measurement(loaded, prompts=1)["feed_forward_share"].values[0]
    for one in decoder_layers(loaded.model):
        one.get_submodule(BLOCKS[family]).register_forward_hook(lambda m, given, made: kept.append([made[0]]))
        one.register_forward_hook(
            lambda m, given, named, made: kept[-1].extend(
                (
                    (given[0] if given else named["hidden_states"])[0],
                    (made if torch.is_tensor(made) else made[0])[0],
                )
            ),
            with_kwargs=True,
        )
    with torch.no_grad():
        loaded.model(torch.from_numpy(ids)[None])
    expected = []
    for block, stream, left in kept:
        attention, written = ((left - stream - block).double().norm(), block.double().norm())
        expected.append(float(written / (attention + written)))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_layer_that_norms_what_it_added_has_no_share():
    assert "feed_forward_share" in measurement(tiny_model("opt", 0), prompts=1)
    assert "feed_forward_share" not in measurement(tiny_model("opt", 1), prompts=1)


def test_the_kept_means_are_as_large_as_estimated():
    loaded, tokens = tiny_model("llama"), 48
    request = replace(MeasurementJob(tokens=512, **ALL), tokens=tokens)
    meter, state = PromptMeter(loaded, request, torch.arange(1, 20)), State()
    for number in range(3):
        found = meter.measure(np.arange(tokens) % 49 + 1, "a prompt")
        state.add(number, found, 0.0)
    held = sum(array.nbytes for array in (*found.values(), *state.sums.values()))
    assert held == pytest.approx(memory_parts(loaded.model.config, request)["means"] / MARGIN, rel=0.1)


# ── halves ──


def test_halves_of_a_measurement_have_nothing_of_each_other():
    """Of five prompts three are even; what both have, weighted, is the whole; each fold is judged on the other."""
    measured = measure(load_model("tiny-rope"), tokens=16, prompts=5, threads=1)
    even, odd = half(measured, even=True), half(measured, even=False)
    assert (even.sizes["prompt"], odd.sizes["prompt"]) == (3, 2)
    for name in ("kernel", "energy_kernel", "logits_distance", "content_mean"):
        np.testing.assert_allclose(
            (3 * even[name] + 2 * odd[name]) / 5, measured[name], rtol=1e-12, atol=1e-14
        )
    assert (odd["energy_kernel"] >= 0).all()
    assert {name for predictor in PREDICTORS for name in predictor.needs} <= {*even.data_vars}
    assert "sink_share" not in even
    whole = predictions(measured)
    for name, profile in predictions(even).items():
        assert np.abs(profile.mass - whole[name].mass).max() > 0 or name == "attention_only"
    found = folds(measured)
    assert [fold.judged.tolist() for fold in found] == [[1, 3], [0, 2, 4]]
    assert [*found[0].predictions] == [predictor.key for predictor in PREDICTORS]
    assert folds(measured.isel(prompt=slice(0, 3))) == ()
    assert folds(measured.drop_vars("energy_kernel_even")) == ()


BRANCHES = [
    ("llama", 0, 3e-3, {"attention": "self_attn.o_proj", "feed_forward": "mlp"}),
    ("gpt_neox", 0, 1e-5, {"layers": "", "attention": "attention.dense", "feed_forward": "mlp"}),
    ("falcon", 1, 1e-5, {"attention": "self_attention.dense", "feed_forward": "mlp"}),
    (
        "olmo2",
        0,
        3e-3,
        {"attention": "post_attention_layernorm", "feed_forward": "post_feedforward_layernorm"},
    ),
    ("opt", 1, 1e-5, {"attention": "self_attn.out_proj", "feed_forward": "fc2"}),
]


@pytest.mark.parametrize(("family", "number", "step", "modules"), BRANCHES)
def test_influence_by_states_and_branches_is_that_of_finite_differences(text, family, number, step, modules):
    """Of P(y|x), in parallel layers too, and with norms behind a branch or its sum (RMS norms are in float32)."""
    loaded = tiny_model(family, number, "sdpa")
    loaded.model.double()
    job = MeasurementJob(text, tokens=9, prompts=2, influences=tuple(modules))
    measurement, ids = measure(loaded, job), torch.from_numpy(job.draw(loaded).ids[:1])
    for kind, path in modules.items():
        found = measurement[f"influence_{kind}"].sel(prompt=0)
        assert (found.values[-1, :-1] == 0).all()
        for layer, position in ((0, 0), (0, 5), (1, 3), (loaded.model.config.num_hidden_layers - 1, 8)):
            module, ends = decoder_layers(loaded.model)[layer].get_submodule(path), []
            for moved in step * torch.eye(loaded.model.config.hidden_size).double():
                for sign in (1, -1):
                    change = (torch.arange(9)[:, None] == position) * moved * sign
                    hook = lambda *given: given[-1] + change  # noqa: B023, E731
                    with module.register_forward_hook(hook), torch.no_grad():
                        said = loaded.model(ids).logits[0, -1].softmax(dim=-1)
                    ends.append(float(said[int(measurement["next_token"][0])]))
            slopes = -np.diff(np.reshape(ends, (-1, 2))) / (2 * step)
            assert float(found[layer, position]) == pytest.approx(np.linalg.norm(slopes), rel=step)
    with pytest.raises(ModelError, match=rf"whose layers show attention, got tiny-{family}"):
        measure(replace(loaded, family=generic(family)), job)
