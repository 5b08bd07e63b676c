"""Every row of the table of families is proven on tiny random models, against computations done by hand here."""

import json

import numpy as np
import pytest
import torch
import transformers
from tiny import CASES, RUNS, seen_layers, specimen, tiny_model

from posbias.core.errors import ModelError
from posbias.measurement import LoadedModel, measure, selfcheck
from posbias.measurement.capture.scores import Factored, Given
from posbias.measurement.models.families import FAMILIES, MISREAD, decoder_layers, generic

BOTH = [(name, number) for name, number in CASES if len(FAMILIES[name].attention) == 2]


@pytest.fixture
def ids():
    """One prompt of 20 tokens, longer than every window."""
    return torch.tensor([17, 4, 33, 8, 60, 21, 5, 5, 48, 12, 39, 7, 26, 3, 55, 30, 41, 9, 14, 62])


def watched(module, ids, hooks):
    """Run `module` with forward hooks {name: (modules, take)}; return what `take` gave, by name."""
    kept = {name: [] for name in hooks}
    handles = [
        each.register_forward_hook(
            lambda m, given, named, made, name=name, take=take: kept[name].append(take(given, named, made)),
            with_kwargs=True,
        )
        for name, (modules, take) in hooks.items()
        for each in modules
    ]
    with torch.no_grad():
        module(ids[None])
    for handle in handles:
        handle.remove()
    return kept


def first(made):
    return (made[0] if isinstance(made, tuple) else made)[0]


def stream_of(given, named, made):
    return (given[0] if given else named["hidden_states"])[0]


# where the update leaves a layer, by family, as a path from the layer; by default the attention itself
PLACES = {
    **dict.fromkeys(("gemma2", "gemma3_text", "olmo2"), "post_attention_layernorm"),
    **dict.fromkeys(("gpt2", "gpt_neo", "gptj", "mpt"), "attn"),
    **dict.fromkeys(("falcon", "bloom"), "self_attention"),
    "gpt_neox": "attention",
    "bert": "attention.output.dense",
}


def updates_by_hand(loaded, ids):
    """(streams, updates) of every layer, from plain hooks placed for the family."""
    name, model = loaded.family.model_type, loaded.model
    layers = decoder_layers(model)
    places = [layer.get_submodule(PLACES.get(name, "self_attn")) for layer in layers]
    kept = watched(model, ids, {"x": (layers, stream_of), "a": (places, lambda g, n, made: first(made))})
    updates = kept["a"]
    if name == "bloom":
        updates = [made - x for made, x in zip(kept["a"], kept["x"], strict=True)]
    if name == "granite":
        updates = [made * model.config.residual_multiplier for made in kept["a"]]
    return kept["x"], updates


def mixing(stream, update):
    whole, part = torch.linalg.matrix_norm(stream.double()), torch.linalg.matrix_norm(update.double())
    return float(part / (whole + part))


def test_the_table_holds_what_it_promises():
    promised = (
        "llama mistral qwen2 qwen3 gemma2 gemma3_text phi3 olmo2 cohere2 smollm3 llama4_text gpt_oss gpt2 opt "
        "gpt_neox falcon bloom mpt bert"
    )
    assert set(promised.split()) <= set(FAMILIES)
    assert all(json.loads(json.dumps(row.as_dict()))["checked"] is True for row in FAMILIES.values())
    assert "no_such_family" not in FAMILIES


@pytest.mark.parametrize(("family", "number", "attention"), RUNS)
def test_attention_outputs_and_content(family, number, attention, ids):
    """Rebuilt attention is the model's own to 1e-5; outputs are the same bits; positions can be taken out."""
    loaded = tiny_model(family, number, attention)
    report = selfcheck(loaded, ids)
    assert report["attention"] == attention
    assert (report["layers"], report["content"]) == (3, 3)
    assert report["outputs_identical"] is True
    assert report["causal"] is FAMILIES[family].causal
    for name in ("max_deviation", "mixed_deviation", "rotation_deviation"):
        assert report[name] < 1e-5
    layers = seen_layers(loaded, ids)
    assert all(isinstance(seen.scores, Given if attention == "eager" else Factored) for seen in layers)
    assert min(float(seen.attention.std()) for seen in layers) > 0.02, "uniform attention would prove little"


@pytest.mark.parametrize(("family", "number", "attention"), RUNS)
def test_mixing_equals_a_hand_computation(family, number, attention, ids):
    loaded = tiny_model(family, number, attention)
    streams, updates = updates_by_hand(loaded, ids)
    for seen, stream, update in zip(seen_layers(loaded, ids), streams, updates, strict=True):
        assert torch.equal(seen.stream, stream)
        # BLOOM's update is a difference of streams by hand, and rounds once more
        assert torch.allclose(seen.update, update, rtol=0, atol=2e-6 if family == "bloom" else 0)
        assert mixing(seen.stream, seen.update) == pytest.approx(mixing(stream, update), rel=1e-6)
        assert 0.02 < mixing(stream, update) < 0.98


@pytest.mark.parametrize(("family", "number"), CASES)
def test_values_and_output_weight_make_the_update(family, number, ids):
    """Σ_j A_ij v_j through W_O is the update up to a bias, where nothing follows W_O."""
    followed = {"gemma2", "gemma3_text", "olmo2", "granite"}
    loaded = tiny_model(family, number)
    for seen in seen_layers(loaded, ids):
        heads, _, channels = seen.values.shape
        assert heads == seen.scores.heads
        made = (seen.attention.double() @ seen.values.double()).transpose(0, 1).flatten(1)
        assert torch.allclose(made, seen.mixed.double(), atol=1e-5 * float(seen.values.abs().max()))
        assert seen.output_weight.shape == (seen.stream.shape[1], heads * channels)
        if family not in followed:
            bias = seen.update.double() - made @ seen.output_weight.double().T
            size = float(seen.update.abs().max())
            assert torch.allclose(bias, bias[:1].expand_as(bias), atol=1e-5 * size)


@pytest.mark.parametrize(("family", "number"), BOTH)
def test_eager_and_fused_attention_are_seen_alike(family, number, ids):
    eager, fused = (seen_layers(tiny_model(family, number, each), ids) for each in ("eager", "sdpa"))
    for one, other in zip(eager, fused, strict=True):
        assert torch.allclose(one.attention, other.attention, atol=2e-5)
        assert torch.equal(one.logits.isneginf(), other.logits.isneginf())
        visible = ~one.logits.isneginf()
        close = {"rtol": 0, "atol": 1e-5 * float(one.logits[visible].abs().max())}
        assert torch.allclose(one.logits[visible], other.logits[visible], **close)
        content = [each.content.dense()[0][visible] for each in (one, other)]
        assert torch.allclose(*content, **close)


def test_falcon_counts_alibi_twice_under_eager_attention(ids):
    """The defect that its row states: when this fails, transformers has mended it and the row may change."""
    eager, fused = (specimen("falcon", 0, each) for each in ("eager", "sdpa"))
    with torch.no_grad():
        assert (eager(ids[None]).logits - fused(ids[None]).logits).abs().max() > 0.5
    rotary = [specimen("falcon", 1, each) for each in ("eager", "sdpa")]
    with torch.no_grad():
        assert torch.allclose(rotary[0](ids[None]).logits, rotary[1](ids[None]).logits, atol=1e-4)


@pytest.mark.parametrize("family", [name for name in FAMILIES if FAMILIES[name].attention == ("eager",)])
def test_rows_with_eager_alone_have_no_fused_attention(family):
    with pytest.raises(ValueError, match="does not support an attention implementation"):
        specimen(family, 0, "sdpa")


def test_an_encoder_has_no_causal_measures():
    tiny_model("llama").need_causal("λ of a prefix")
    with pytest.raises(ModelError, match=r"model: .*got tiny-bert"):
        tiny_model("bert").need_causal("λ of a prefix")


@pytest.mark.parametrize("model_type", ["gpt_bigcode", "cohere", "glm", "nemotron", "olmoe", "exaone4"])
def test_a_family_outside_the_table_proves_itself(model_type, ids):
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 64, "head_dim": 8}
    sizes |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    loaded = LoadedModel(model, None, generic(model_type), model_type, "")
    report = selfcheck(loaded, ids)
    assert report["layers"] == 2
    assert loaded.verified is False


def test_a_family_outside_the_table_that_deviates_is_refused(ids):
    """Weights are changed behind the softmax: no attention that can be seen is the one used."""
    loaded = tiny_model("gpt_neox")
    loaded = LoadedModel(loaded.model, None, generic("stranger"), "a stranger", "")
    from transformers.models.gpt_neox import modeling_gpt_neox as module

    plain = module.eager_attention_forward

    def sharper(module, query, key, value, *rest, **named):
        out, weights = plain(module, query, key, value, *rest, **named)
        return out, weights**2

    module.eager_attention_forward = sharper
    try:
        with pytest.raises(
            ModelError, match=r"attention rebuilt .* deviates by [0-9.e-]+, .*'stranger' is not in"
        ):
            selfcheck(loaded, ids)
    finally:
        module.eager_attention_forward = plain


def test_a_model_outside_the_table_that_looks_both_ways_is_refused(tiny, text):
    config = transformers.RobertaConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=80,
        attn_implementation="eager",
    )
    both = LoadedModel.of(transformers.RobertaForCausalLM(config), tiny.tokenizer, "both")
    assert not both.verified
    with pytest.raises(ModelError, match=r"model: .*got both"):
        measure(both, text=text, tokens=8, prompts=2)


def test_what_may_be_misread_of_a_family_is_said_when_it_is_measured(tiny, text, caplog):
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 64, "head_dim": 8}
    sizes |= {"mamba_d_ssm": 16, "mamba_n_heads": 4, "mamba_d_head": 4, "mamba_d_state": 4}
    config = transformers.FalconH1Config(**sizes, pad_token_id=0, attn_implementation="eager")
    both = LoadedModel.of(transformers.FalconH1ForCausalLM(config).eval(), tiny.tokenizer, "both")
    measured = measure(both, text=text, tokens=8, prompts=1)
    assert np.isfinite(measured["mixing"].values).all()
    assert f"falcon_h1: {MISREAD['falcon_h1']}" in caplog.messages


def test_layers_without_softmax_attention_are_named(ids):
    config = transformers.MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=2, state_size=4)
    model = transformers.MambaForCausalLM(config).eval()
    with pytest.raises(ModelError, match=r"seen in 0 of 2 layers, not in layer 0, 1"):
        seen_layers(LoadedModel(model, None, generic("mamba"), "mamba", ""), ids)


def test_a_row_that_claims_too_much_fails(ids):
    model = specimen("gpt2")
    selfcheck(LoadedModel(model, None, FAMILIES["gpt2"], "gpt2", ""), ids)
    with pytest.raises(ModelError, match="in 0 of 3 layers"):
        selfcheck(LoadedModel(model, None, FAMILIES["gpt2"].__class__("gpt2", "rotary"), "gpt2", ""), ids)
