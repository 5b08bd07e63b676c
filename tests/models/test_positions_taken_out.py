"""Positions taken out of logits, per family, against computations done by hand here; windows, sinks, soft caps."""

import pytest
import torch
from tiny import CASES, seen_layers, specimen, tiny_model
from transformers.models.bloom.modeling_bloom import build_alibi_tensor as bloom_alibi
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor as mpt_alibi

from posbias.measurement.models.families import FAMILIES, decoder_layers

KINDS = {case: FAMILIES[case[0]].positional_kind(specimen(*case).config) for case in CASES}


@pytest.fixture
def ids():
    """One prompt of 20 tokens, longer than every window."""
    return torch.tensor([17, 4, 33, 8, 60, 21, 5, 5, 48, 12, 39, 7, 26, 3, 55, 30, 41, 9, 14, 62])


def unturned(given):
    """The rotation argument of a layer, turned by no angle: written out here, family by family."""
    if isinstance(given, torch.Tensor):
        return torch.polar(given.abs(), torch.zeros_like(given.abs()))
    cos, sin = given
    return (cos**2 + sin**2).sqrt(), sin * 0


@pytest.mark.parametrize(
    "case", [c for c in CASES if KINDS[c] in ("rotary", "mixed") and c[0] not in ("falcon", "gptj")]
)
def test_content_is_the_attention_run_again_without_rotation(case, ids):
    """Layers called again with cosine √(cos² + sin²) and sine 0: their weights are the softmax of content."""
    loaded = tiny_model(*case, "eager")
    path = {"gpt_neox": "attention"}.get(case[0], "self_attn")
    layers = decoder_layers(loaded.model)
    arguments, weights = [], []
    handles = [
        layer.register_forward_pre_hook(
            lambda m, given, named: arguments.append((given, named)), with_kwargs=True
        )
        for layer in layers
    ]
    with torch.no_grad():
        loaded.model(ids[None], use_cache=False, output_attentions=True)
    for handle in handles:
        handle.remove()
    for layer, (given, named) in zip(layers, arguments, strict=True):
        hook = layer.get_submodule(path).register_forward_hook(lambda m, g, made: weights.append(made[1][0]))
        with torch.no_grad():
            layer(*given, **(named | {"position_embeddings": unturned(named["position_embeddings"])}))
        hook.remove()
    seen = seen_layers(loaded, ids)
    for each, own in zip(seen, weights, strict=True):
        attention = each.content.dense()[1]
        if FAMILIES[case[0]].sinks:
            attention = attention * own.sum(-1, keepdim=True)
        assert torch.allclose(attention, own[..., : len(ids)], atol=1e-5)
    rotated = [float((each.logits - each.content.dense()[0])[:, 11, 9].abs().max()) for each in seen]
    expected = {"rotary": [True] * 3, "mixed": [True, False, True]}[KINDS[case]]
    assert [each.turned for each in seen] == expected
    assert [difference > 1e-3 for difference in rotated] == expected


def test_content_of_gptj_is_that_of_its_own_table_turned_by_no_angle(ids):
    loaded = tiny_model("gptj")
    kept = seen_layers(loaded, ids)
    attention = loaded.model.transformer.h[0].attn
    sin, cos = attention.embed_positions.chunk(2, dim=-1)
    attention.embed_positions = torch.cat([sin * 0, (sin**2 + cos**2).sqrt()], dim=-1)
    with torch.no_grad():
        own = loaded.model(ids[None], output_attentions=True).attentions[0][0]
    assert torch.allclose(kept[0].content.dense()[1], own, atol=1e-6)
    assert not torch.allclose(kept[0].attention, own, atol=1e-2)


@pytest.mark.parametrize("case", [c for c in CASES if KINDS[c] in ("learned", "none")])
def test_without_rotation_or_bias_content_is_all(case, ids):
    for seen in seen_layers(tiny_model(*case), ids):
        visible = torch.isfinite(seen.logits)
        assert torch.allclose(seen.logits[visible], seen.content.dense()[0][visible], atol=1e-5)


def own_bias(loaded, tokens):
    """ALiBi as the family's own function builds it, [head, key], up to a constant per query."""
    config, heads = loaded.model.config, loaded.model.config.num_attention_heads
    everywhere = torch.ones(1, tokens)
    if config.model_type == "mpt":
        return mpt_alibi(heads, tokens)[:, 0]
    if config.model_type == "posbias_tiny":
        slopes = torch.tensor([2.0 ** (-8 * (head + 1) / heads) for head in range(heads)])
        return slopes[:, None] * torch.arange(tokens)
    bias = bloom_alibi(everywhere, heads, torch.float32)[:, 0]
    if config.model_type == "falcon":
        # Falcon makes its slopes in bfloat16 and divides scores and bias by √channels
        return bias.bfloat16().float() / (config.hidden_size // heads) ** 0.5
    return bias


@pytest.mark.parametrize("case", [c for c in CASES if KINDS[c] == "alibi"])
def test_the_alibi_remainder_is_the_familys_own_bias_whatever_the_prompt(case, ids):
    loaded = tiny_model(*case)
    bias = own_bias(loaded, len(ids))
    for prompt in (ids, ids.flip(0), ids.roll(7)):
        for seen in seen_layers(loaded, prompt):
            visible = ~seen.logits[0].isneginf()
            assert torch.equal(visible, torch.ones(20, 20, dtype=torch.bool).tril())
            remainder = (seen.logits - seen.content.dense()[0])[:, visible]
            expected = (bias[:, None, :] - bias[:, :, None])[:, visible]
            size = float(seen.logits[:, visible].abs().max())
            assert torch.allclose(
                remainder, expected, rtol=0.01 if case[0] == "falcon" else 1e-5, atol=1e-6 * size
            )
            assert expected.min() < -1


@pytest.mark.parametrize(
    "family", ["mistral", "qwen2", "gemma3_text", "phi3", "cohere2", "gpt_oss", "gpt_neo"]
)
def test_windows_hide_keys(family, ids):
    for layer, seen in enumerate(seen_layers(tiny_model(family), ids)):
        everywhere = family in ("mistral", "phi3")
        wide = layer == 1 and not everywhere
        distance = torch.arange(20)[:, None] - torch.arange(20)
        visible = (distance >= 0) & ((distance < 5) | wide)
        assert torch.equal(~seen.logits.isneginf(), visible.expand(4, -1, -1))
        assert not seen.attention[:, ~visible].any()
        assert torch.equal(seen.content.dense()[0].isneginf(), seen.logits.isneginf())


def test_learned_sinks_take_their_share(ids):
    loaded = tiny_model("gpt_oss")
    for seen, layer in zip(seen_layers(loaded, ids), decoder_layers(loaded.model), strict=True):
        weight = seen.logits.double().exp().sum(-1)
        share = layer.self_attn.sinks.double().exp()[:, None]
        assert torch.allclose(1 - seen.attention.double().sum(-1), share / (share + weight), atol=1e-5)
        assert (1 - seen.attention.sum(-1)).max() > 0.1


def test_soft_caps_hold_for_content_too(ids):
    for seen in seen_layers(tiny_model("gemma2"), ids):
        assert seen.content.cap == pytest.approx(3.0)
        assert seen.logits.max() <= 3
        content = seen.content.dense()[0]
        assert 2.0 < content[torch.isfinite(content)].abs().max() <= 3
