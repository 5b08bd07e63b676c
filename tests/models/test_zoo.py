"""What can be measured of each family of transformers: nothing is measured wrong. Encoders are measured like
decoders, but for what has meaning only where later tokens are hidden.
"""

import copy
from dataclasses import replace

import by_hand
import numpy as np
import pytest
import torch
import transformers
import zoo
from dense import last_row
from tiny import tiny_model, word_tokenizer

import posbias
from families import families
from posbias.comparison.extrapolation import extrapolate
from posbias.comparison.predictors import predictions
from posbias.core.errors import InvalidValueError, ModelError
from posbias.core.progress import muted
from posbias.measurement import LoadedModel, MeasurementJob, measure
from posbias.measurement.quantities.influence import predict
from posbias.measurement.result import QUANTITIES
from posbias.theory.masks import Full

FEW = {
    "llama": "measured",
    "deepseek_v3": "measured",
    "gpt_neox_japanese": "measured",
    "blenderbot-small": "measured",
    "falcon_h1": "measured",
    "lfm2": "measured",
    "qwen3_next": "measured",
    "bamba": "measured",
    "hy_v4": "measured",
    "deepseek_v4": "influence only",
    "mamba": "influence only",
}
FEW_ENCODERS = {
    "roberta": "measured",
    "convbert": "measured",
    "modernbert": "measured",
    "mobilebert": "all but λ",
    "fnet": "influence only",
    "perceiver": "refused",
}
COMPUTED = ["bert", "roberta-prelayernorm", "eurobert", "modernbert"]
"""Norms after and before, rotary positions, windows that look both ways."""
TOKENS = 12
JOB = {"tokens": TOKENS, "prompts": 2, "threads": 1}
IDS = torch.arange(3, 3 + TOKENS)


@pytest.fixture(autouse=True)
def silence():
    before = transformers.logging.get_verbosity()
    with muted():
        zoo.quiet()
        yield
    transformers.logging.set_verbosity(before)


@pytest.mark.parametrize("family", [*FEW, *FEW_ENCODERS])
def test_a_family_is_measured_as_far_as_the_page_says(family):
    found = zoo.causal(family) if family in FEW else zoo.encoder(family)
    assert found.verdict == (FEW | FEW_ENCODERS)[family], found


@pytest.mark.slow
def test_nothing_is_measured_wrong():
    decoders = [zoo.causal(family) for family in families()]
    encoders = [zoo.encoder(family) for family in zoo.encoders()]
    assert not [one for one in (*decoders, *encoders) if one.verdict == "wrong"]
    measured = sum(one.verdict == "measured" for one in decoders)
    assert measured > 80
    assert f"| measured | {measured} |" in zoo.page(decoders, encoders)


def test_what_deviates_is_wrong():
    model = zoo.tiny("llama")
    seen, _ = zoo.layers_seen(model, "llama", IDS)
    plain = by_hand.influence(model, IDS).numpy()
    assert zoo.of_layers(model, IDS, *zoo.parts_of(seen)) == zoo.of_influence(model, IDS, plain) == []
    larger = replace(seen[3], update=1.01 * seen[3].update)
    moved = replace(seen[2], scores=replace(seen[2].scores, attention=seen[2].scores.attention.roll(1, 0)))
    assert len(zoo.of_layers(model, IDS, *zoo.parts_of({**seen, 3: larger}))) == 1
    assert len(zoo.of_layers(model, IDS, *zoo.parts_of({**seen, 2: moved}))) == 1
    assert len(zoo.of_influence(model, IDS, 1.01 * plain)) == 1


# ── encoders ──


@pytest.mark.parametrize("family", COMPUTED)
def test_a_measured_encoder_is_what_it_computes(family, text):
    """Attention and λ by hand, influence by plain backward passes in float64, rollouts by dense products."""
    loaded = LoadedModel.of(zoo.tiny(family, transformers.AutoModelForMaskedLM), word_tokenizer(), family)
    rollouts = ("kernel", "value", "energy")
    found = measure(loaded, text=text, influences=("outputs",), rollouts=rollouts, head_kernels=True, **JOB)
    exact, kernels = copy.deepcopy(loaded.model).double(), []
    for number, ids in enumerate(MeasurementJob(text=text, tokens=TOKENS, prompts=2).draw(loaded).ids):
        ids = torch.from_numpy(ids)
        kernels.append(np.stack([one.numpy() for one in by_hand.own_attention(loaded.model, ids)]))
        mixing = np.array([one.mixing for one in by_hand.mixings(loaded.model, ids)])
        np.testing.assert_allclose(found["mixing"].values[number], mixing, rtol=1e-4)
        expected = last_row(kernels[-1].mean(axis=1), mixing)
        np.testing.assert_allclose(found["rollout_kernel"].values[number], expected, rtol=1e-4)
        plain = np.stack([by_hand.influence(exact, ids, query).numpy() for query in range(TOKENS)])
        for name, expected in (("influence", plain[-1]), ("influence_outputs", plain.mean(axis=0))):
            close = {"rtol": 1e-3, "atol": 1e-4 * expected.max()}
            np.testing.assert_allclose(found[name].values[number], expected, **close)
    np.testing.assert_allclose(found["kernel_head"], np.mean(kernels, axis=0), atol=1e-5)
    np.testing.assert_allclose(found["rollout_value"].sum("position"), 1, rtol=1e-9)
    later = np.triu(np.ones((TOKENS, TOKENS), dtype=bool), 1)
    assert (found["kernel"].values[:, later].max(axis=1) > 0).all()
    # the level of prediction that takes attention as it is, from means over prompts
    expected = last_row(np.mean(kernels, axis=0).mean(axis=1), found["mixing"].values.mean(axis=0))
    predicted = predictions(found)
    assert list(predicted) == ["measured_kernels", "energy"]
    np.testing.assert_allclose(predicted["measured_kernels"].mass, expected / expected.sum(), rtol=1e-4)


def test_what_needs_causality_is_left_out_or_refused(text, ids):
    encoder = tiny_model("bert")
    found = measure(encoder, text=text, dense_logits=True, **JOB)
    decoder = measure(tiny_model("gpt2"), text=text, dense_logits=True, **JOB)
    names = [{str(name).removesuffix("_even") for name in one.data_vars} for one in (decoder, found)]
    causal = {name for name, one in QUANTITIES.items() if one.causal}
    assert names[0] - names[1] == causal | {"feed_forward_share"}
    assert causal > {"loss", "content_mean", "positional_distance", "monotonicity_rate"}
    assert (found.attrs["encoder"], "encoder" in decoder.attrs) == (1, False)
    assert np.isfinite(found["logits"]).all()
    for refused in (lambda: posbias.write_report(found, "nowhere"), lambda: extrapolate(found, 64)):
        with pytest.raises(InvalidValueError):
            refused()
    config = copy.deepcopy(encoder.model.config)
    two_ways = LoadedModel.of(transformers.BertLMHeadModel(config).eval(), word_tokenizer(), "two ways")
    for refused in (
        lambda: predict(encoder.model.bert, ids),
        lambda: encoder.need_causal("λ of a prefix"),
        lambda: measure(two_ways, text=text, **JOB),
    ):
        with pytest.raises(ModelError):
            refused()


@pytest.mark.parametrize("encoder", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (6, 9)])
def test_buckets_of_t5_are_those_of_the_model(encoder, buckets, farthest):
    """An encoder's and a decoder's biases, each under its own mask."""
    from transformers.models.t5.modeling_t5 import T5Attention

    sizes = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": farthest}
    config = transformers.T5Config(d_model=8, num_heads=2, d_kv=4, is_decoder=not encoder, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        torch.nn.init.normal_(attention.relative_attention_bias.weight)
    table = attention.relative_attention_bias.weight.detach().numpy().T
    expected = attention.compute_bias(200, 200)[0].detach().numpy()
    for mask in (Full() if encoder else posbias.Causal(), posbias.Prefix(50)):
        layer = posbias.Layer(2, mask=mask, positional=posbias.T5(table, farthest, bidirectional=encoder))
        pairs = mask.allowed(200)
        np.testing.assert_array_equal(layer.logits(200)[:, pairs], expected[:, pairs])
    with pytest.raises(InvalidValueError, match="bidirectional: "):
        posbias.Layer(2, mask=Full(), positional=posbias.T5(table, farthest)).logits(200)
