"""Every number of the dataset against a naive computation that shares no code with the package."""

import cmath
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from posbias.measurement import measure
from posbias.measurement.quantities.attention import energy_kernel
from posbias.profiles.stochastic_order import TOLERANCES, noise_floor, violations

TOKENS, PROMPTS = 12, 3


def plain_pass(model, ids):
    """Streams entering each layer, attention updates, attention weights: plain hooks (right for Llama)."""
    streams, updates, hooks = [], [], []
    for layer in model.model.layers:
        hooks.append(layer.register_forward_pre_hook(lambda module, given: streams.append(given[0][0])))
        hooks.append(
            layer.self_attn.register_forward_hook(lambda module, given, made: updates.append(made[0][0]))
        )
    with torch.no_grad():
        made = model(ids[None], output_attentions=True)
    for hook in hooks:
        hook.remove()
    return streams, updates, [weights[0].double().numpy() for weights in made.attentions], made.logits[0]


def naive_logits(model, layer, stream, rotate):
    """[head, query, key] from the weights, pair of channels by pair of channels, position by position."""
    config, block = model.config, model.model.layers[layer]
    x = stream.double().numpy()
    normed = x / np.sqrt((x**2).mean(1, keepdims=True) + config.rms_norm_eps)
    normed = normed * block.input_layernorm.weight.double().numpy()
    channels = config.head_dim
    query = normed @ block.self_attn.q_proj.weight.double().numpy().T
    key = normed @ block.self_attn.k_proj.weight.double().numpy().T
    base = config.rope_parameters["rope_theta"]

    def turned(vector, position):
        half = channels // 2
        pairs = [complex(vector[c], vector[c + half]) for c in range(half)]
        if rotate:
            pairs = [
                pair * cmath.exp(1j * position * base ** (-2 * c / channels)) for c, pair in enumerate(pairs)
            ]
        return np.array(pairs)

    logits = np.full((config.num_attention_heads, len(x), len(x)), np.nan)
    for head in range(config.num_attention_heads):
        shared = head * config.num_key_value_heads // config.num_attention_heads
        for i in range(len(x)):
            q = turned(query[i, head * channels : (head + 1) * channels], i)
            for j in range(i + 1):
                k = turned(key[j, shared * channels : (shared + 1) * channels], j)
                logits[head, i, j] = (q * k.conj()).real.sum() / math.sqrt(channels)
    return logits


def naive_distance_means(logits):
    """[head, distance] by loops."""
    heads, tokens, _ = logits.shape
    means = np.full((heads, tokens), np.nan)
    for head in range(heads):
        for distance in range(tokens - 1):
            pairs = [logits[head, j + distance, j] for j in range(1, tokens - distance)]
            means[head, distance] = sum(pairs) / len(pairs)
    return means


@pytest.fixture
def measured(tiny, text):
    return measure(tiny, text=text, tokens=TOKENS, prompts=PROMPTS, seed=1, dense_logits=True)


@pytest.fixture
def passes(tiny, text, measured):
    """The plain passes of the very prompts that were measured."""
    words = tiny.tokenizer(text.read_text(), add_special_tokens=False)["input_ids"]
    starts = json.loads(measured.attrs["starts"])
    return [
        (torch.tensor(words[at : at + TOKENS]), plain_pass(tiny.model, torch.tensor(words[at : at + TOKENS])))
        for at in starts
    ]


def test_mixing_is_equation_1(measured, passes):
    for prompt, (_, (streams, updates, _, _)) in enumerate(passes):
        for layer, (x, a) in enumerate(zip(streams, updates, strict=True)):
            x, a = x.double(), a.double()
            mixing = torch.linalg.matrix_norm(a) / (torch.linalg.matrix_norm(x) + torch.linalg.matrix_norm(a))
            by_token = (a.norm(dim=1) / (x.norm(dim=1) + a.norm(dim=1))).mean()
            assert measured.mixing.values[prompt, layer] == pytest.approx(float(mixing), rel=1e-6)
            assert measured.mixing_token.values[prompt, layer] == pytest.approx(float(by_token), rel=1e-6)


def test_norms_are_means_over_prompts(measured, passes):
    for name, which in (("residual_norm", 0), ("update_norm", 1)):
        naive = np.mean([[s.double().norm(dim=1).numpy() for s in made[which]] for _, made in passes], axis=0)
        np.testing.assert_allclose(measured[name].values, naive, rtol=1e-6)


def test_logits_and_their_reductions(tiny, measured, passes):
    for layer in range(3):
        whole = np.mean([naive_logits(tiny.model, layer, made[0][layer], True) for _, made in passes], axis=0)
        content = np.mean(
            [naive_logits(tiny.model, layer, made[0][layer], False) for _, made in passes], axis=0
        )
        close = {"rtol": 1e-4, "atol": 1e-4}
        np.testing.assert_allclose(measured.logits.values[layer], whole, **close)
        np.testing.assert_allclose(
            measured.logits_distance.values[layer], naive_distance_means(whole), **close
        )
        positional = naive_distance_means(whole - content)
        np.testing.assert_allclose(measured.positional_distance.values[layer], positional, **close)
        assert np.nanmax(abs(positional)) > 0.1
        for head in range(4):
            np.testing.assert_allclose(
                measured.logits_diagonal.values[layer, head], np.diag(whole[head]), **close
            )
            np.testing.assert_allclose(
                measured.logits_first_column.values[layer, head], whole[head, :, 0], **close
            )


def test_content_is_what_is_left_without_rotation(tiny, measured, passes):
    close = {"rtol": 1e-4, "atol": 1e-4}
    for layer in range(3):
        each = np.array([naive_logits(tiny.model, layer, made[0][layer], False) for _, made in passes])
        content = each.mean(axis=0)
        np.testing.assert_allclose(measured.content.values[layer], content, **close)
        np.testing.assert_allclose(
            measured.content_distance.values[layer], naive_distance_means(content), **close
        )
        for head in range(4):
            pairs = [(i, j) for i in range(TOKENS) for j in range(1, i)]
            values = [each[prompt, head, i, j] for prompt in range(PROMPTS) for i, j in pairs]
            assert measured.content_mean.values[layer, head] == pytest.approx(np.mean(values), rel=1e-4)
            assert measured.content_variance.values[layer, head] == pytest.approx(np.var(values), rel=1e-4)
            column = measured.content_first_column.values[layer, head]
            np.testing.assert_allclose(column, content[head, :, 0], **close)
            diagonal = measured.content_diagonal.values[layer, head]
            np.testing.assert_allclose(diagonal, np.diag(content[head]), **close)
            assert measured.constant_diagonal_r2.values[layer, head] == pytest.approx(
                np.mean([r_squared(one[head]) for one in each]), rel=1e-3
            )


def r_squared(matrix):
    """Of least squares on a constant and an indicator of the diagonal, keys from 1, by a general solver."""
    pairs = [(i, j) for i in range(TOKENS) for j in range(1, i + 1)]
    values = np.array([matrix[pair] for pair in pairs])
    design = np.array([[1.0, float(i == j)] for i, j in pairs])
    fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return 1 - ((values - fitted) ** 2).sum() / ((values - values.mean()) ** 2).sum()


def test_each_heads_part_of_the_mixing(tiny, measured, passes):
    for prompt, (_, (streams, updates, attention, _)) in enumerate(passes):
        for layer, block in enumerate(tiny.model.model.layers):
            normed = block.input_layernorm(streams[layer])
            values = (normed @ block.self_attn.v_proj.weight.T).double().detach().numpy()
            out = block.self_attn.o_proj.weight.double().numpy()
            size = np.linalg.norm(streams[layer].double()) + np.linalg.norm(updates[layer].double())
            whole = 0
            for head in range(4):
                shared = slice(8 * (head // 2), 8 * (head // 2) + 8)
                part = attention[layer][head] @ values[:, shared] @ out[:, 8 * head : 8 * head + 8].T
                whole = whole + part
                expected = np.linalg.norm(part) / size
                assert measured.mixing_head.values[prompt, layer, head] == pytest.approx(expected, rel=1e-5)
            np.testing.assert_allclose(whole, updates[layer].double(), rtol=1e-3, atol=1e-4)


def test_massive_activations(measured, passes):
    for prompt, (_, (streams, _, _, _)) in enumerate(passes):
        for layer, stream in enumerate(streams):
            norms = stream.double().norm(dim=1).numpy()
            ratio = measured.massive_ratio.values[prompt, layer]
            assert ratio == pytest.approx(norms.max() / np.median(norms), rel=1e-6)
            assert measured.massive_token.values[prompt, layer] == norms.argmax()


def test_monotonicity_is_that_of_the_mean_kernel_and_its_halves(measured, passes):
    attention = np.array([made[2] for _, made in passes]).mean(axis=2)
    even, odd = attention[::2].mean(axis=0), attention[1::2].mean(axis=0)
    np.testing.assert_array_equal(measured.tolerance, TOLERANCES)
    for layer in range(3):
        found = violations(attention[:, layer].mean(axis=0))
        # one triple of those whose surplus is within rounding of a tolerance may count here and not there
        np.testing.assert_allclose(measured.monotonicity_rate.values[layer], found.rate, atol=2e-3)
        assert measured.monotonicity_gap.values[layer] == pytest.approx(found.gap, rel=1e-3)
        floor = noise_floor(even[layer], odd[layer], 2 / 3)
        assert measured.monotonicity_floor.values[layer] == pytest.approx(floor, abs=4e-3)


def test_kernels_and_sinks(measured, passes):
    attention = np.array([made[2] for _, made in passes])
    np.testing.assert_allclose(measured.kernel.values, attention.mean(axis=(0, 2)), rtol=1e-6)
    np.testing.assert_allclose(measured.kernel.values.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(
        measured.sink_share.values, attention[:, :, :, 1:, 0].mean(axis=(0, 3)), rtol=1e-6
    )
    queries = np.arange(TOKENS, 0, -1)
    received = attention.sum(axis=3).mean(axis=0) / queries
    np.testing.assert_allclose(measured.attention_received.values, received, rtol=1e-6)
    above = (attention > 0.2).sum(axis=3).mean(axis=0) / queries
    np.testing.assert_allclose(measured.sink_metric.values, above, rtol=1e-12)
    assert abs(measured.missing_mass.values).max() < 1e-6


def test_energy_kernel_is_the_einsum(tiny, measured, passes):
    epsilon = tiny.model.config.rms_norm_eps
    naive = 0
    for _, (streams, _, attention, _) in passes:
        square = np.array([(x.double().numpy() ** 2).mean(1) + epsilon for x in streams])
        naive = naive + np.einsum(
            "th,thij,tj->tij", measured.head_gain.values, np.array(attention) ** 2, 1 / square
        )
    np.testing.assert_allclose(measured.energy_kernel.values, naive / PROMPTS, rtol=1e-6)


def test_head_gain_is_the_norm_of_the_explicit_product(tiny, measured):
    for layer, block in enumerate(tiny.model.model.layers):
        value = block.self_attn.v_proj.weight.double() * block.input_layernorm.weight.double()
        out = block.self_attn.o_proj.weight.double()
        for head in range(4):
            shared = head // 2
            product = out[:, 8 * head : 8 * (head + 1)] @ value[8 * shared : 8 * (shared + 1)]
            expected = float(torch.linalg.matrix_norm(product) ** 2 / 32)
            assert measured.head_gain.values[layer, head] == pytest.approx(expected, rel=1e-12)


def test_loss_and_prediction(measured, passes):
    for prompt, (ids, (_, _, _, outputs)) in enumerate(passes):
        loss = nn.functional.cross_entropy(outputs[:-1].double(), ids[1:])
        assert measured.loss.values[prompt] == pytest.approx(float(loss), rel=1e-6)
        assert measured.next_token.values[prompt] == int(outputs[-1].argmax())
        probability = outputs[-1].double().softmax(-1).max()
        assert measured.probability.values[prompt] == pytest.approx(float(probability), rel=1e-9)


def test_without_rotation_there_is_no_positional_part(tiny, text):
    tiny.model.model.rotary_emb.inv_freq.zero_()
    flat = measure(tiny, text=text, tokens=TOKENS, prompts=2)
    values = flat.positional_distance.values
    assert np.isnan(values[..., -1]).all()
    assert abs(values[..., :-1]).max() < 1e-5
    assert abs(flat.logits_distance.values[..., :-1]).max() > 0.1


def test_energy_kernel_on_a_case_done_by_hand():
    attention = torch.tensor([[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [1.0, 0.0]]])
    weights = torch.tensor([[2.0, 3.0]]).T / torch.tensor([1.0, 4.0])
    np.testing.assert_allclose(energy_kernel(attention, weights), [[5.0, 0.0], [3.5, 0.125]])


def test_the_dataset_keeps_its_contract(measured):
    assert dict(measured.sizes) == {
        "prompt": 3, "layer": 3, "head": 4, "position": 12, "query": 12, "key": 12, "distance": 12,
        "tolerance": 6,
    }  # fmt: skip
    whole = {name: values.dims for name, values in measured.data_vars.items()}
    halves = {name.removesuffix("_even"): whole.pop(name) for name in [*whole] if name.endswith("_even")}
    # the means over every other prompt, of what predictions are made from
    assert len(halves) == 9
    assert halves.items() <= whole.items()
    assert whole == {
        "influence": ("prompt", "position"),
        "probability": ("prompt",),
        "next_token": ("prompt",),
        "loss": ("prompt",),
        "mixing": ("prompt", "layer"),
        "mixing_token": ("prompt", "layer"),
        "mixing_head": ("prompt", "layer", "head"),
        "feed_forward_share": ("prompt", "layer"),
        "massive_ratio": ("prompt", "layer"),
        "massive_token": ("prompt", "layer"),
        "residual_norm": ("layer", "position"),
        "update_norm": ("layer", "position"),
        "logits_distance": ("layer", "head", "distance"),
        "logits_diagonal": ("layer", "head", "position"),
        "logits_first_column": ("layer", "head", "position"),
        "positional_distance": ("layer", "head", "distance"),
        "content_mean": ("layer", "head"),
        "content_variance": ("layer", "head"),
        "content_distance": ("layer", "head", "distance"),
        "content_distance_variance": ("layer", "head", "distance"),
        "content_diagonal": ("layer", "head", "position"),
        "content_first_column": ("layer", "head", "position"),
        "constant_diagonal_r2": ("layer", "head"),
        "kernel": ("layer", "query", "key"),
        "sink_share": ("layer", "head"),
        "attention_received": ("layer", "head", "position"),
        "sink_metric": ("layer", "head", "position"),
        "missing_mass": ("layer", "head"),
        "monotonicity_rate": ("layer", "tolerance"),
        "monotonicity_gap": ("layer",),
        "monotonicity_floor": ("layer",),
        "energy_kernel": ("layer", "query", "key"),
        "head_gain": ("layer", "head"),
        "logits": ("layer", "head", "query", "key"),
        "content": ("layer", "head", "query", "key"),
    }
    for name, values in measured.data_vars.items():
        assert values.dtype == (np.int64 if name in ("next_token", "massive_token") else np.float64)
    for name in set(measured.dims) - {"tolerance"}:
        assert (measured[name].values == np.arange(measured.sizes[name])).all()
    assert measured.attrs["posbias_kind"] == "measurement"
    assert all(isinstance(value, (str, int, float)) for value in measured.attrs.values())


def test_dense_logits_only_when_asked_and_the_rest_is_the_same(tiny, text, measured):
    sparse = measure(tiny, text=text, tokens=TOKENS, prompts=PROMPTS, seed=1)
    assert not {"logits", "content"} & set(sparse)
    assert measured.drop_vars(["logits", "content"]).equals(sparse)
