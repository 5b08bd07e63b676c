"""An encoder is measured like a decoder, but for what has meaning only where later tokens are hidden."""

import copy

import by_hand
import numpy as np
import pytest
import torch
import transformers
import zoo
from tiny import tiny_model, word_tokenizer

import posbias
from posbias.comparison.extrapolation import extrapolate
from posbias.comparison.predictors import predictions
from posbias.core.errors import InvalidValueError, ModelError
from posbias.core.progress import muted
from posbias.measurement import LoadedModel, Request, measure
from posbias.measurement.prompt_meter import OF_EARLIER_KEYS
from posbias.measurement.quantities.influence import Economy, gradients, predict
from posbias.theory.masks import Full

FEW = ["bert", "roberta-prelayernorm", "eurobert", "modernbert"]
"""Norms after and before, rotary positions, windows that look both ways."""
TOKENS = 20
JOB = {"tokens": TOKENS, "prompts": 2, "threads": 1}


@pytest.fixture(autouse=True)
def silence():
    before = transformers.logging.get_verbosity()
    with muted():
        zoo.quiet()
        yield
    transformers.logging.set_verbosity(before)


def loaded_encoder(family):
    return LoadedModel.of(zoo.tiny(family, transformers.AutoModelForMaskedLM), word_tokenizer(), family)


@pytest.mark.parametrize("family", FEW)
def test_a_measured_encoder_is_what_it_computes(family, text):
    """Attention and λ by hand, influence by plain backward passes in float64, rollouts by dense products."""
    loaded = loaded_encoder(family)
    rollouts = ("kernel", "value", "energy")
    found = measure(loaded, text=text, influences=("outputs",), rollouts=rollouts, head_kernels=True, **JOB)
    exact = copy.deepcopy(loaded.model).double()
    prompts = torch.from_numpy(Request(text=text, tokens=TOKENS, prompts=2).draw(loaded).ids)
    kernels = []
    for number, ids in enumerate(prompts):
        own = by_hand.own_attention(loaded.model, ids)
        kernels.append(np.stack([layer.numpy() for layer in own]))
        mixing = np.array([layer.mixing for layer in by_hand.mixings(loaded.model, ids)])
        np.testing.assert_allclose(found["mixing"].values[number], mixing, rtol=1e-4)
        rolled = np.eye(TOKENS)
        for kernel, weight in zip(kernels[-1].mean(axis=1), mixing, strict=True):
            rolled = ((1 - weight) * np.eye(TOKENS) + weight * kernel) @ rolled
        np.testing.assert_allclose(found["rollout_kernel"].values[number], rolled[-1], rtol=1e-4)
        plain = np.stack([by_hand.influence(exact, ids, query).numpy() for query in range(TOKENS)])
        for name, expected in (("influence", plain[-1]), ("influence_outputs", plain.mean(axis=0))):
            close = {"rtol": 1e-3, "atol": 1e-4 * expected.max()}
            np.testing.assert_allclose(found[name].values[number], expected, **close)
    np.testing.assert_allclose(found["kernel_head"], np.mean(kernels, axis=0), atol=1e-5)
    np.testing.assert_allclose(found["rollout_value"].sum("position"), 1, rtol=1e-9)
    later = np.triu(np.ones((TOKENS, TOKENS), dtype=bool), 1)
    assert (found["kernel"].values[:, later].max(axis=1) > 0).all()
    # the level of prediction that takes attention as it is, from means over prompts
    mixing = found["mixing"].values.mean(axis=0)
    rolled = np.eye(TOKENS)
    for kernel, weight in zip(np.mean(kernels, axis=0).mean(axis=1), mixing, strict=True):
        rolled = ((1 - weight) * np.eye(TOKENS) + weight * kernel) @ rolled
    predicted = predictions(found)
    assert list(predicted) == ["measured_kernels", "energy"]
    np.testing.assert_allclose(predicted["measured_kernels"].mass, rolled[-1] / rolled[-1].sum(), rtol=1e-4)


def test_what_needs_causality_is_left_out(text):
    found = measure(tiny_model("bert"), text=text, dense_logits=True, **JOB)
    assert found.attrs["encoder"] == 1
    held = {str(name).removesuffix("_even") for name in found.data_vars}
    assert not held & {*OF_EARLIER_KEYS, "loss", "monotonicity_rate", "feed_forward_share"}
    decoder = measure(tiny_model("gpt2"), text=text, dense_logits=True, **JOB)
    assert {str(name).removesuffix("_even") for name in decoder.data_vars} - held == {
        *(*OF_EARLIER_KEYS, "loss", "monotonicity_rate", "monotonicity_gap", "monotonicity_floor"),
        "feed_forward_share",
    }
    assert "encoder" not in decoder.attrs
    assert np.isfinite(found["logits"]).all()


def test_influence_on_all_outputs_of_a_decoder(tiny, ids):
    """Of a causal model too: outputs before a token do not depend on it."""
    found = gradients(predict(tiny.model, ids), ids, ("probability", "outputs"))
    exact = copy.deepcopy(tiny.model).double()
    plain = np.stack([by_hand.influence(exact, ids, query).numpy() for query in range(len(ids))])
    np.testing.assert_allclose(found["influence_outputs"], plain.mean(axis=0), rtol=1e-4)
    assert (plain[np.triu_indices(len(ids), 1)] == 0).all()
    lean = predict(tiny.model, ids, Economy(trunk=tiny.model.model))
    with pytest.raises(InvalidValueError, match=r"kinds: 'outputs' given with 1 of 12 outputs"):
        gradients(lean, ids, ("outputs",))


def test_refusals(text, ids):
    encoder = tiny_model("bert")
    measured = measure(encoder, text=text, **JOB)
    with pytest.raises(InvalidValueError):
        posbias.write_report(measured, "nowhere")
    with pytest.raises(InvalidValueError):
        extrapolate(measured, 64)
    bare = encoder.model.bert
    with pytest.raises(ModelError):
        predict(bare, ids)
    config = copy.deepcopy(encoder.model.config)
    next_one = LoadedModel.of(
        transformers.BertLMHeadModel(config).eval().requires_grad_(False), word_tokenizer(), "next"
    )
    with pytest.raises(ModelError):
        measure(next_one, text=text, **JOB)


@pytest.mark.parametrize("encoder", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (6, 9)])
def test_buckets_of_t5_are_those_of_the_model(encoder, buckets, farthest):
    """An encoder's and a decoder's biases, each under its own mask; what the table does not say is asked."""
    from transformers.models.t5.modeling_t5 import T5Attention

    config = transformers.T5Config(
        d_model=8,
        num_heads=2,
        d_kv=4,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=farthest,
        is_decoder=not encoder,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        torch.nn.init.normal_(attention.relative_attention_bias.weight)
    table = attention.relative_attention_bias.weight.detach().numpy().T
    expected = attention.compute_bias(200, 200)[0].detach().numpy()
    for mask in (Full(), posbias.Prefix(50)) if encoder else (posbias.Causal(), posbias.Prefix(50)):
        layer = posbias.Layer(2, mask=mask, positional=posbias.T5(table, farthest, bidirectional=encoder))
        pairs = mask.allowed(200)
        np.testing.assert_array_equal(layer.logits(200)[:, pairs], expected[:, pairs])
    with pytest.raises(InvalidValueError, match="bidirectional: expected True"):
        posbias.Layer(2, mask=Full(), positional=posbias.T5(table, farthest)).logits(200)
