"""Configurations are read as the models are that transformers builds from them."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from transformers.models.auto import modeling_auto

from families import (
    ALONE,
    DEPTH,
    PROMPT,
    SPECIAL,
    UNKNOWN,
    UNSEEN,
    build,
    captured,
    class_defaults,
    families,
    plain,
    read,
    row,
    small,
)
from posbias import encodings
from posbias.core.errors import InvalidValueError, ModelError
from posbias.measurement import load_model, measure
from posbias.measurement.quantities.influence import gradients, predict
from posbias.theory.huggingface import PREFIXED, check_classes, from_huggingface
from posbias.theory.huggingface_families import CONTAINERS, DEFAULTS, FAMILIES

FEW = (
    "bert",
    "cohere2",
    "exaone4",
    "falcon",
    "gemma2",
    "gemma4_text",
    "gpt2",
    "gpt_oss",
    "llama",
    "llama4_text",
    "mpt",
    "qwen2",
    "qwen3_moe",
    "smollm3",
)
HYBRIDS = ("falcon_h1", "jamba", "kimi_linear", "lfm2", "nemotron_h", "qwen3_next")
CACHED = (
    *("deepseek_v3", "deepseek_v4", "falcon", "gemma2", "gpt2", "gpt_bigcode", "jamba", "llama"),
    *("mimo_v2_flash", "mistral4", "mpt"),
)
"""Families that say in their own words how many key-value heads they have, and some that say it as most do."""
UNBUILT = {"deepseek_v4"}
"""Families whose layers the capture cannot see: one reads several streams."""
BUILT = [name for name in families() if name in FAMILIES]


@pytest.fixture(scope="module")
def rows():
    return [row(name) for name in families()]


@pytest.mark.parametrize("family", FEW)
def test_mask_and_encoding_of_each_layer_are_the_models_own(family):
    found = row(family)
    assert found.verdict == "equal", (found.read, found.captured, found.reason)
    assert len(found.read) == DEPTH


@pytest.mark.parametrize("family", HYBRIDS)
def test_attention_of_hybrids_is_the_models_own_and_the_rest_is_read_as_none(family):
    found = row(family)
    assert found.verdict == ("equal" if family == "falcon_h1" else "attention equal"), found
    seen = [layer != UNSEEN for layer in found.captured]
    assert any(seen)
    assert [encoding not in (UNKNOWN, ALONE) for _, encoding in found.read] == seen


@pytest.mark.parametrize("family", ["lfm2", "qwen3_5_text"])
def test_influence_needs_no_attention(family):
    """Of models that are refused a measurement: against the gradient of the probability, taken plainly."""
    tokenizer = load_model("tiny-nope").tokenizer
    _, model = build(family, vocab_size=len(tokenizer))
    with pytest.raises(ModelError, match="attention was seen in 2 of 8 layers"):
        measure(model, tokenizer=tokenizer, tokens=16, prompts=1)
    found = gradients(predict(model, PROMPT), PROMPT, ("probability",))["influence"]
    embedded = model.get_input_embeddings()(PROMPT[None]).detach().requires_grad_()
    outputs = model(inputs_embeds=embedded, use_cache=False).logits[0, -1]
    (gradient,) = torch.autograd.grad(outputs.softmax(-1).max(), embedded)
    np.testing.assert_allclose(found, gradient[0].norm(dim=-1).numpy(), rtol=1e-3, atol=1e-7)


def test_compressed_entries_stand_next_to_the_keys_of_a_window():
    """DeepSeek V4: what its own attention shows, since no capture sees several streams."""
    config, model = build("deepseek_v4")
    seen = model(PROMPT[None], output_attentions=True, use_cache=False).attentions
    entries = {"heavily_compressed_attention": 128, "compressed_sparse_attention": 4}
    for kind, attention in zip(config.layer_types, seen, strict=True):
        position = torch.arange(len(PROMPT))
        distance = position[:, None] - position
        window = (distance >= 0) & (distance < config.sliding_window)
        assert torch.equal((attention[0, :, :, : len(PROMPT)] > 0).any(0), window)
        assert attention.shape[-1] == len(PROMPT) + len(PROMPT) // entries[kind]
    assert row("deepseek_v4").verdict == "read alone"


@pytest.mark.slow
def test_no_family_is_read_wrong(rows):
    """All causal families of transformers: what is read is what is seen, or the family is refused."""
    verdicts = {one.family: one.verdict for one in rows}
    assert not [name for name, verdict in verdicts.items() if verdict == "wrong"]
    assert {verdicts[name] for name in BUILT if name not in UNBUILT} == {"equal", "attention equal", "named"}
    assert len(BUILT) >= 87
    # a name of another family's models may be read as that family
    others = {name: verdicts[name] for name in families() if name not in FAMILIES}
    assert {name for name, verdict in others.items() if verdict == "read alone"} <= {*CONTAINERS}
    assert {*others.values()} == {"refused", "equal", "read alone"}


def cached(model) -> list[int] | None:
    """The key-value heads that each layer keeps of a prompt, 0 where it keeps no keys; None without a cache."""
    kept = getattr(model(PROMPT[None], use_cache=True), "past_key_values", None)
    return kept and [
        keys.shape[1] if (keys := getattr(layer, "keys", None)) is not None else 0 for layer in kept.layers
    ]


@pytest.mark.parametrize(
    "family", [*CACHED, *(pytest.param(one, marks=pytest.mark.slow) for one in BUILT if one not in CACHED)]
)
def test_key_value_heads_are_those_of_the_models_own_cache(family):
    """From a whole file, and from one that leaves out what is the default."""
    config, model = build(family)
    kept = cached(model)
    assert kept or family not in CACHED
    for given in (plain(config), config.to_diff_dict()):
        stack = from_huggingface(given).stack
        for layer, seen in zip(stack, kept or [], strict=bool(kept)):
            assert not seen or (layer.groups or layer.heads) == seen


@pytest.mark.parametrize(
    ("changes", "heads"),
    [({"multi_query": False}, 4), ({"new_decoder_architecture": True}, 4), ({"num_kv_heads": 4}, 1)],
)
def test_falcons_flags_say_how_many_key_value_heads_there_are(changes, heads):
    config, model = build("falcon", **{"num_kv_heads": 4} | changes)
    assert {layer.groups or layer.heads for layer in from_huggingface(plain(config)).stack} == {heads}
    assert set(cached(model)) == {heads}


@pytest.mark.parametrize(
    "family", [name for name in FAMILIES if name not in ("RefinedWeb", "RefinedWebModel", "posbias_tiny")]
)
def test_a_file_without_key_value_heads_has_its_familys(family):
    """As the configuration class of transformers fills them in, at two numbers of heads."""
    kind = transformers.AutoConfig.for_model(family).__class__
    for factor in (1, 2):
        given = kind() if factor == 1 else kind(num_attention_heads=2 * kind().num_attention_heads)
        theirs = getattr(given, "num_key_value_heads", None)
        if theirs is None or family == "gpt_bigcode" or getattr(given, "kv_lora_rank", None):
            continue
        heads = given.num_attention_heads
        layer = from_huggingface({"model_type": family, "num_attention_heads": heads}).layers[0]
        assert (layer.groups or heads) == theirs, (factor, heads)


@pytest.mark.parametrize("family", ["llama", "gpt_neox", pytest.param("olmo2", marks=pytest.mark.slow)])
def test_a_window_that_a_family_does_not_use_is_named(family):
    config, model = build(family, sliding_window=5)
    found, remarks = read(plain(config))
    assert found == captured(model, family)
    assert any(line.startswith("keys not used: ") and "sliding_window = 5" in line for line in remarks)


@pytest.mark.parametrize("container", [name for name in CONTAINERS if name != PREFIXED])
def test_models_with_more_than_text_are_read_by_their_text(container, tmp_path: Path):
    """As they are saved, where the text's defaults are left out, and with the text's keys next to the others."""
    config = transformers.AutoConfig.for_model(container)
    inner = plain(config.get_text_config())
    expected, _ = read(inner)
    for given in (plain(config), config.to_diff_dict(), {**inner, "model_type": container}):
        found, remarks = read(given)
        assert found == expected
        assert any(line.startswith(f"{container}: text alone is meant") for line in remarks)


def test_defaults_are_those_of_transformers():
    """Every family's, of the keys that are read: windows, sizes, rotary base and share."""
    assert {family: class_defaults(family) for family in DEFAULTS} == DEFAULTS
    assert set(FAMILIES) - {"RefinedWeb", "RefinedWebModel", "posbias_tiny"} == set(DEFAULTS)
    for family in DEFAULTS:
        theirs, stack = (
            transformers.AutoConfig.for_model(family),
            from_huggingface({"model_type": family}).stack,
        )
        assert [len(stack), stack[0].heads] == [theirs.num_hidden_layers, theirs.num_attention_heads], family


WINDOWS = dict.fromkeys(
    ("cohere2", "exaone4", "gemma2", "gemma3_text", "mistral", "olmo3", "vaultgemma"), 4096
)
WINDOWS |= {"cwm": 8192, "gpt_oss": 128, "granite_swa": 128, "granitemoe_swa": 128, "mimo_v2_flash": 129}


@pytest.mark.parametrize("family", [name for name, keys in DEFAULTS.items() if "sliding_window" in keys])
def test_windows_that_a_file_leaves_out_are_those_of_the_class(family):
    """Widths and layers, from a file that says nothing but its family; null and false mean none."""
    theirs = transformers.AutoConfig.for_model(family)
    width = getattr(theirs, "sliding_window", None) or None
    types = getattr(theirs, "layer_types", None) or ["sliding_attention"] * theirs.num_hidden_layers
    expected = [f"window {width}" if kind == "sliding_attention" and width else "causal" for kind in types]
    found, remarks = read({"model_type": family})
    assert [mask for mask, _ in found] == expected
    said = f"sliding_window: {width}, the default of {family}"
    assert (said in remarks) == ("sliding_attention" in types and width is not None)
    assert width == WINDOWS.get(family, width)
    if "use_sliding_window" not in DEFAULTS[family] and family != "deepseek_v4":
        assert {mask for mask, _ in read({"model_type": family, "sliding_window": None})[0]} == {"causal"}


def seen_in(config):
    """Masks, encodings and heads by layer, and rotary angles by type of layer, or the words of a refusal."""
    lengths = dict.fromkeys(
        ("max_position_embeddings", "n_positions"), 64
    )  # a length is read where a file says it
    try:
        stack = from_huggingface(config | lengths).stack
        found = [
            (layer.mask, layer.positional, layer.heads, layer.groups, layer.query_scale) for layer in stack
        ]
    except InvalidValueError as error:
        return str(error)
    for kind in (None, "full_attention", "sliding_attention"):
        try:
            angles, gain = encodings.rotary_of(config, kind)
            found.append((tuple(angles.round(12)), round(gain, 12)))
        except InvalidValueError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize(
    "family", [one if one in FEW else pytest.param(one, marks=pytest.mark.slow) for one in DEFAULTS]
)
def test_a_key_that_is_left_out_or_null_is_read_as_the_class_fills_it_in(family):
    """Each key in turn, of a whole file; but a number of key-value heads that does not divide the heads."""
    kind = transformers.AutoConfig.for_model(family).__class__
    config = kind(**small(kind().to_dict()) | SPECIAL.get(family, {}))
    whole = plain(config)
    assert seen_in(config.to_diff_dict()) == seen_in(whole), "as transformers saves it, without defaults"
    for key in whole.keys() - {"model_type", "num_key_value_heads", "num_kv_heads"}:
        others = {name: given for name, given in whole.items() if name != key}
        for cut in (others, others | {key: None}):
            try:
                filled = kind(**copy.deepcopy({name: cut[name] for name in cut if name != "model_type"}))
            except Exception:  # no model of the family is without it
                continue
            assert seen_in(cut) == seen_in(plain(filled)), (key, key in cut)


def test_classes_of_transformers_are_their_familys_own():
    """Whatever transformers may build of a family is no reason to refuse it, but for decisions and pictures."""
    tables = [names for key, names in vars(modeling_auto).items() if re.match(r"MODEL_.*_MAPPING_NAMES", key)]
    classes = [(family, name) for names in tables for family, name in names.items() if isinstance(name, str)]
    seen = 0
    for family, name in classes:
        text = CONTAINERS.get(family, family)
        if text not in FAMILIES or re.search("ForDecision|VisionModel", name):
            continue
        check_classes({"architectures": [name]}, (family, text), FAMILIES[text])
        seen += 1
    assert seen > 250


@pytest.mark.parametrize("family", ["bloom", "cohere", "gemma", "glm", "gpt2", "gpt_neox", "llama", "opt"])
def test_a_decoder_that_is_not_causal_looks_both_ways(family):
    config, model = build(family, is_causal=False)
    found, _ = read(plain(config))
    assert {mask for mask, _ in captured(model, family)} == {mask for mask, _ in found} == {"full"}


def test_an_encoder_that_is_a_decoder_is_causal():
    config, model = build("bert", is_decoder=True)
    found, _ = read(plain(config))
    assert found == captured(model, "bert") == [("causal", "none")] * DEPTH
    _, remarks = read(plain(config) | {"position_embedding_type": "absolute"})
    assert not any("position_embedding_type" in line for line in remarks)
    relative = from_huggingface(plain(config) | {"position_embedding_type": "relative_key"})
    assert "relative_key positions" in relative.left_out(4)
