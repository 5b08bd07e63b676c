"""Configurations are read as the models are that transformers builds from them: masks, encodings, key-value heads,
rotary angles and gains, temperatures by position, and what a class fills in where a file says nothing.

`published_configurations.json` has a row for each that makers publish: the keys that matter with the values of the
released file (layers cut to the first few, and lists by layer with them), and where they are to be seen. What is
read of a row is held against a model of the same keys, made narrow: the keys that the queries of each layer see,
around and beyond every window, from the mask that it is given; angles and gain from the cosines and sines that it
is given; which layers rotate, from the queries of one token at several positions.
"""

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import zoo
from transformers import AutoConfig
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

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
    rotary_class,
    row,
    small,
    words,
)
from posbias import encodings
from posbias.core.errors import InvalidValueError
from posbias.measurement.capture.forward import Capture
from posbias.measurement.models.families import FAMILIES as MEASURED
from posbias.measurement.models.families import generic
from posbias.measurement.quantities.influence import predict
from posbias.theory.cache import cache_of
from posbias.theory.config_keys import DEFAULTS, Config
from posbias.theory.content import StepScale
from posbias.theory.huggingface import PREFIXED, check_classes, from_huggingface, is_attention
from posbias.theory.huggingface_families import CONTAINERS, FAMILIES
from posbias.theory.masks import bounds

FEW = (
    *("bert", "cohere2", "exaone4", "falcon", "gemma2", "gemma4_text", "gpt2", "gpt_oss", "llama"),
    *("llama4_text", "mpt", "qwen2", "qwen3_moe", "smollm3"),
)
HYBRIDS = ("falcon_h1", "jamba", "kimi_linear", "lfm2", "minimax", "nemotron_h", "qwen3_next")
CACHED = (
    *("deepseek_v3", "deepseek_v4", "falcon", "gemma2", "gpt2", "gpt_bigcode", "jamba", "llama"),
    *("mimo_v2_flash", "mistral4", "mpt"),
)
"""Families that say in their own words how many key-value heads they have, and some that say it as most do."""
UNBUILT = {"deepseek_v4"}
"""Families whose layers the capture cannot see: one reads several streams."""
BUILT = [name for name in families() if name in FAMILIES]
OLD = {"RefinedWeb", "RefinedWebModel", "kimi_k2", "posbias_tiny"}
"""Families without a configuration class in transformers."""


def slow_but(few, names):
    return [one if one in few else pytest.param(one, marks=pytest.mark.slow) for one in names]


# ── masks and encodings ──


@pytest.mark.parametrize("family", [*FEW, *HYBRIDS])
def test_mask_and_encoding_of_each_layer_are_the_models_own(family):
    """Of hybrids those of attention, and the rest is read as none."""
    found = row(family)
    expected = "equal" if family in (*FEW, "falcon_h1") else "attention equal"
    assert found.verdict == expected, (found.read, found.captured, found.reason)
    assert len(found.read) == (4 if family == "nemotron_h" else DEPTH)
    if family in HYBRIDS:
        seen = [layer != UNSEEN for layer in found.captured]
        assert any(seen)
        assert [encoding not in (UNKNOWN, ALONE) for _, encoding in found.read] == seen


@pytest.mark.slow
def test_no_family_is_read_wrong():
    """All causal families of transformers: what is read is what is seen, or the family is refused."""
    verdicts = {name: row(name).verdict for name in families()}
    assert not [name for name, verdict in verdicts.items() if verdict == "wrong"]
    assert {verdicts[name] for name in BUILT if name not in UNBUILT} == {"equal", "attention equal", "named"}
    assert len(BUILT) >= 87
    # a name of another family's models may be read as that family
    others = {name: verdicts[name] for name in families() if name not in FAMILIES}
    assert {name for name, verdict in others.items() if verdict == "read alone"} <= {*CONTAINERS}
    assert {*others.values()} == {"refused", "equal", "read alone"}


def test_compressed_entries_stand_next_to_the_keys_of_a_window():
    """DeepSeek V4: what its own attention shows, since no capture sees entries of several tokens."""
    config, model = build("deepseek_v4")
    seen = model(PROMPT[None], output_attentions=True, use_cache=False).attentions
    entries = {"heavily_compressed_attention": 128, "compressed_sparse_attention": 4}
    distance = torch.arange(len(PROMPT))[:, None] - torch.arange(len(PROMPT))
    for kind, attention in zip(config.layer_types, seen, strict=True):
        window = (distance >= 0) & (distance < config.sliding_window)
        assert torch.equal((attention[0, :, :, : len(PROMPT)] > 0).any(0), window)
        assert attention.shape[-1] == len(PROMPT) + len(PROMPT) // entries[kind]
    assert row("deepseek_v4").verdict == "read alone"


@pytest.mark.parametrize("family", ["llama", "gpt_neox", pytest.param("olmo2", marks=pytest.mark.slow)])
def test_a_window_that_a_family_does_not_use_is_named(family):
    config, model = build(family, sliding_window=5)
    found, remarks = read(plain(config))
    assert found == captured(model, family)
    assert any("sliding_window = 5" in line for line in remarks)


@pytest.mark.parametrize("container", [name for name in CONTAINERS if name != PREFIXED])
def test_models_with_more_than_text_are_read_by_their_text(container):
    """As they are saved, where the text's defaults are left out, and with the text's keys next to the others."""
    config = AutoConfig.for_model(container)
    inner = plain(config.get_text_config())
    expected, _ = read(inner)
    for given in (plain(config), config.to_diff_dict(), {**inner, "model_type": container}):
        found, remarks = read(given)
        assert found == expected
        assert any(line.startswith(f"{container}: ") for line in remarks)


@pytest.mark.parametrize("family", ["bloom", "cohere", "gemma", "glm", "gpt2", "gpt_neox", "llama", "opt"])
def test_a_decoder_that_is_not_causal_looks_both_ways(family):
    config, model = build(family, is_causal=False)
    found, _ = read(plain(config))
    assert {mask for mask, _ in captured(model, family)} == {mask for mask, _ in found} == {"full"}


def test_an_encoder_that_is_a_decoder_is_causal():
    config, model = build("bert", is_decoder=True)
    assert read(plain(config))[0] == captured(model, "bert") == [("causal", "none")] * DEPTH
    relative = from_huggingface(plain(config) | {"position_embedding_type": "relative_key"})
    assert "relative_key positions" in relative.left_out(4)


def test_classes_of_transformers_are_their_familys_own():
    """Whatever transformers may build of a family is no reason to refuse it, but for decisions and pictures."""
    tables = [names for key, names in vars(modeling_auto).items() if re.match(r"MODEL_.*_MAPPING_NAMES", key)]
    classes = [(family, name) for names in tables for family, name in names.items() if isinstance(name, str)]
    known = [
        (family, CONTAINERS.get(family, family), name)
        for family, name in classes
        if CONTAINERS.get(family, family) in FAMILIES and not re.search("ForDecision|VisionModel", name)
    ]
    for family, text, name in known:
        check_classes(Config({"architectures": [name]}), (family, text), FAMILIES[text])
    assert len(known) > 250


# ── key-value heads ──


def cached(model):
    """The key-value heads that each layer keeps of a prompt, 0 where it keeps no keys; None without a cache."""
    kept = getattr(model(PROMPT[None], use_cache=True), "past_key_values", None)
    if not kept:
        return None
    keys = [getattr(layer, "keys", None) for layer in kept.layers]
    keys += [None] * (model.config.num_hidden_layers - len(keys))  # a last layer without a cache has no entry
    return [one.shape[1] if one is not None else 0 for one in keys]


FALCONS = [
    {"num_kv_heads": 4, **flag} for flag in ({}, {"multi_query": False}, {"new_decoder_architecture": True})
]
"""Its flags say how many key-value heads there are."""


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        *((family, {}) for family in CACHED),
        *(("falcon", changes) for changes in FALCONS),
        *(pytest.param(one, {}, marks=pytest.mark.slow) for one in BUILT if one not in CACHED),
    ],
)
def test_key_value_heads_are_those_of_the_models_own_cache(family, changes):
    """From a whole file, and from one that leaves out what is the default."""
    config, model = build(family, **changes)
    kept = cached(model)
    assert kept or family not in CACHED
    for given in (plain(config), config.to_diff_dict()):
        for layer, seen in zip(from_huggingface(given).stack, kept or [], strict=bool(kept)):
            assert not seen or (layer.groups or layer.heads) == seen


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - OLD))
def test_a_file_without_key_value_heads_has_its_familys(family):
    """As the configuration class of transformers fills them in, at two numbers of heads."""
    kind = AutoConfig.for_model(family).__class__
    for given in (kind(), kind(num_attention_heads=2 * kind().num_attention_heads)):
        theirs, heads = getattr(given, "num_key_value_heads", None), given.num_attention_heads
        if rank := getattr(given, "kv_lora_rank", None):
            kept = [layer.cached for layer in from_huggingface({"model_type": family}).layers]
            assert rank + given.qk_rope_head_dim in kept
        if theirs is None or family == "gpt_bigcode" or rank:
            continue
        layer = from_huggingface({"model_type": family, "num_attention_heads": heads}).layers[0]
        assert (layer.groups or heads) == theirs, heads


# ── what a file leaves out ──


def test_defaults_are_those_of_transformers():
    """Every family's, of the keys that are read: windows, sizes, rotary base and share."""
    assert {family: class_defaults(family) for family in DEFAULTS} == DEFAULTS
    assert set(FAMILIES) - OLD == set(DEFAULTS)
    for family in DEFAULTS:
        theirs, stack = AutoConfig.for_model(family), from_huggingface({"model_type": family}).stack
        assert [len(stack), stack[0].heads] == [theirs.num_hidden_layers, theirs.num_attention_heads], family


def seen_in(config):
    """Masks, encodings and heads by layer, and rotary angles by type of layer, or the words of a refusal."""
    lengths = dict.fromkeys(("max_position_embeddings", "n_positions"), 64)  # read where a file says them
    try:
        stack = from_huggingface(config | lengths).stack
    except InvalidValueError as error:
        return str(error)
    found = [(one.mask, one.positional, one.heads, one.groups, one.query_scale) for one in stack]
    for kind in (None, "full_attention", "sliding_attention"):
        try:
            angles, gain = encodings.rotary_of(config, kind)
            found.append((tuple(angles.round(12)), round(gain, 12)))
        except InvalidValueError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("family", slow_but(FEW, DEFAULTS))
def test_a_key_that_is_left_out_or_null_is_read_as_the_class_fills_it_in(family):
    """Each key in turn, of a whole file; but a number of key-value heads that does not divide the heads."""
    kind = AutoConfig.for_model(family).__class__
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


# ── temperature by position ──


def lowest_logits(family, **changes):
    """The lowest layer's logits [head, query, key] of a tiny model, and that layer as it is read."""
    config, model = build(family, **changes)
    seen, known = {}, MEASURED.get(family) or generic(family)
    with Capture(model, known, lambda one: seen.update({one.layer: one})):
        predict(model, torch.arange(1, 31))
    return seen[0].logits.numpy().astype(np.float64), from_huggingface(plain(config)).stack[0]


def ministral(beta):
    return {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "llama_4_scaling_beta": beta,
            "original_max_position_embeddings": 8,
        }
    }


BARE = {"num_hidden_layers": 1, "no_rope_layers": [0], "floor_scale": 4, "attn_scale": 0.5, "moe_layers": []}
BARE |= {"layer_types": ["full_attention"]}
GROWING = {
    "llama4_text": (BARE, BARE | {"attn_temperature_tuning": False}, StepScale(0.5, 4), None),
    "ministral3": (ministral(0.5), ministral(0.0), StepScale(0.5, 8, first=0), StepScale(0.0, 8, first=0)),
}
"""Family → keys with and without the growth, and what is read of both: Ministral 3 grows one token later."""


@pytest.mark.parametrize("family", GROWING)
def test_logits_grow_as_they_are_read(family):
    """Row i of one is that of the other times the factor, in float32."""
    growing, flat, scale, none = GROWING[family]
    (scaled, layer), (plain_logits, still) = lowest_logits(family, **growing), lowest_logits(family, **flat)
    assert (layer.query_scale, still.query_scale) == (scale, none)
    factors = scale.factors_at(np.arange(30), layer.heads)
    assert factors.max() > 1.3
    seen = np.isfinite(plain_logits) & np.isfinite(scaled)
    assert seen.sum() > 100
    expected = (plain_logits * factors[:, :, None])[seen]
    np.testing.assert_allclose(scaled[seen], expected, rtol=1e-4, atol=1e-5)


# ── rotary angles and gains ──

LENGTH = {"original_max_position_embeddings": 4096}
YARN = {"rope_type": "yarn", "factor": 8.0, **LENGTH}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN_OLDER = {"type": "yarn", "factor": 4.0, **LENGTH}
LONG = {"short_factor": [1.0 + k for k in range(16)], "long_factor": [2.0 + k for k in range(16)]}
LONG_FILE = {"hidden_size": 256, "num_attention_heads": 8, "max_position_embeddings": 32_768, **LENGTH}
PUBLISHED = {
    "nothing": {},
    "base": {"rope_theta": 25_000.0},
    "bases": {"rope_theta": 1_000_000, "rope_local_base_freq": 20_000},
    "GPT-NeoX": {"rotary_pct": 0.5, "rotary_emb_base": 50_000},
    "share": {"partial_rotary_factor": 0.5},
    "dimensions": {"rotary_dim": 32},
    "head": {"head_dim": 64},
    "width": {"hidden_size": 1024, "num_attention_heads": 16},
    "newer": {"rope_parameters": {"rope_type": "linear", "factor": 8.0, "rope_theta": 77_000.0}},
    "linear": {"partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "linear, newer name": {"rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "dynamic": {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "yarn": {"rope_theta": 1e6, "rope_scaling": YARN_OLDER},
    "yarn, null": {"max_position_embeddings": 32_768, "rope_scaling": {**YARN_OLDER, "factor": None}},
    "yarn, length outside": {"original_max_position_embeddings": 2048, "rope_scaling": YARN_OLDER},
    "yarn, DeepSeek": {"rope_scaling": {**YARN_OLDER, "mscale": 0.707, "mscale_all_dim": 1.0}},
    "llama3": {"rope_scaling": {**LLAMA3, "factor": 8.0, **LENGTH}},
    "longrope": {**LONG_FILE, "rope_scaling": {"type": "longrope", **LONG}},
    "su": {**LONG_FILE, "rope_scaling": {"type": "su", **LONG}},
    "mrope": {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
    "by type": {
        "rope_parameters": {
            "full_attention": {"rope_theta": 3e5, **YARN, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
        }
    },
}
"""Keys as files of several ages have them."""
NEWER = {
    "yarn, given ends": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.3},
    "yarn, in fractions of pairs": {**YARN, "truncate": False},
    "yarn, the length configured": {"rope_type": "yarn", "factor": 2.0},
    "longrope, lengths configured": {"rope_type": "longrope", **LENGTH, **LONG},
    "longrope, given factor": {"rope_type": "longrope", "attention_factor": 1.2, **LENGTH, **LONG},
    "llama3, nearby": {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 128},
}
"""Scalings as newer files of Llamas have them, in one key."""
ROTATING = [
    family
    for family, keys in DEFAULTS.items()
    if keys.keys() & {"rope_theta", "rope_parameters", "rotary_emb_base"}
]
LABELS = {"main": "sliding_attention", "compress": "compressed_sparse_attention"}
REFUSED = (
    r"^(type|rope_theta|rope_type|partial_rotary_factor|rope_scaling|rope_parameters|layer_type): expected "
)


def embedding(family, keys):
    """Angles and gain of the rotary embedding that transformers builds, by type of layer ("" for all)."""
    kind = AutoConfig.for_model(family).__class__
    module = rotary_class(kind)(kind(**copy.deepcopy(keys)))
    held = dict(module.named_buffers()) | vars(module)
    kinds = [name.removesuffix("inv_freq") for name in held if name.endswith("inv_freq")]
    return {
        kind.rstrip("_"): (held[f"{kind}inv_freq"].double().numpy(), held[f"{kind}attention_scaling"])
        for kind in kinds
        if "original" not in kind
    }


@pytest.mark.parametrize("family", ROTATING)
def test_angles_and_gain_are_those_of_the_familys_rotary_embedding(family):
    """Where a model can be built; or the key is refused that its class passes over."""
    equal, files = 0, dict(PUBLISHED)
    if family == "llama":
        files |= {f"newer {name}": {**LONG_FILE, "rope_parameters": given} for name, given in NEWER.items()}
    for name, keys in files.items():
        config = {"model_type": family, **keys}
        try:
            theirs = embedding(family, keys)
        except Exception:  # keys that no model of the family has
            continue
        if family == "deepseek_v4":
            config["layer_types"] = ["sliding_attention", "compressed_sparse_attention"] * 22
        for kind, (angles, gain) in theirs.items():
            try:
                found = encodings.rotary_of(config, LABELS.get(kind, kind) or None)
            except InvalidValueError as error:
                if re.match(REFUSED, str(error)):
                    continue
                raise
            np.testing.assert_allclose(found.angles, angles, rtol=1e-5, err_msg=name)
            assert found.gain == pytest.approx(gain, rel=1e-6), name
            equal += 1
    assert equal >= (20 if family == "llama" else 8)


LONGROPE = {"type": "longrope", "short_mscale": 1.0, "long_mscale": 2}


@pytest.mark.parametrize(
    ("family", "changes", "layer_type", "argument"),
    [
        ("gpt2", {}, None, "model_type"),
        ("falcon", {"alibi": True}, None, "model_type"),
        ("cohere2", {}, "full_attention", "layer_type"),
        ("gemma3_text", {}, None, "layer_type"),
        ("llama", {}, "sliding_attention", "layer_type"),
        ("llama", {"rope_theta": 0}, None, "rope_theta"),
        ("gptj", {"rotary_dim": None}, None, "rotary_dim"),
        ("phimoe", {"rope_scaling": LONGROPE}, None, "short_mscale"),
        ("granite_swa", {"num_hidden_layers": 4, "layer_rope_theta": [1, 2, 3, 4]}, None, "layer_rope_theta"),
    ],
)
def test_what_does_not_rotate_or_cannot_be_read_is_refused(family, changes, layer_type, argument):
    with pytest.raises(InvalidValueError, match=rf"^{argument}: "):
        encodings.rotary_of({"model_type": family, **changes}, layer_type)


# ── as their makers publish them ──

DATA = json.loads(Path(__file__).with_name("published_configurations.json").read_text(encoding="utf-8"))
ROWS = DATA["rows"]
LEFT_OUT = [
    {"name": f"{family}, all left out", "config": {"model_type": family, "num_hidden_layers": 6}}
    for family in FAMILIES
    if family in CONFIG_MAPPING and family != "posbias_tiny"
]
"""Files that leave out all that they can, also of families whose published spelling was not found."""
READ = [row for row in (*ROWS, *LEFT_OUT) if "refused" not in row]
QUERIES, TOKENS = (0, 1, 127, 128, 129, 511, 4095, 4096, 8191, 8192, 16390), 16400
"""Positions around every window, and the length of the text."""
ALIKE = torch.full((1, 5), 5)
"""One token again and again: what its queries differ by is their position."""
EAGER = (  # noqa: SIM905
    "bloom codegen deepseek_v32 falcon glm_moe_dsa gpt_neox_japanese gptj hy_v4 megatron-bert mpt "
    "openai-gpt paligemma rembert"
).split()
"""Families that add masks to their logits themselves: seen from their attention, as far as a short text tells."""
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "block_dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "swa_num_attention_heads")
GROUPS = ("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads", "num_global_key_value_heads")
KEPT = (
    r"head_dim|window|chunk|position|n_ctx|layers?$|layer_types|attn_idxs|rotary|rope|theta|compress|max_seq|conv_L|"
    r"num_(attention|key)"
)
"""Keys that say where a layer looks, how far and by which angles: never made small."""


def narrow(config: dict[str, Any]) -> dict[str, Any]:
    """The same with few heads of the published width, and small where nothing depends on it."""
    default = CONFIG_MAPPING[config["model_type"]]().get_text_config()
    few = 4 if config["model_type"] in ("codegen", "gpt_oss") else 2
    whole = {**default.to_dict(), **config}
    hidden, heads = (next(whole[key] for key in keys if whole.get(key)) for keys in (HIDDEN, HEADS))
    fitting = small(whole) | SPECIAL.get(default.model_type, {})
    made = config | {key: size for key, size in fitting.items() if not re.search(KEPT, key)}
    made |= {key: few * (config.get("head_dim") or hidden // heads) for key in HIDDEN if key in whole}
    made |= {key: few for key in HEADS if key in whole}
    return made | {key: 1 if config.get(key, heads) < heads else few for key in GROUPS if whole.get(key)}


def narrowed(config: dict[str, Any], attention: str) -> Any:
    """The text's model that transformers builds, narrow; the whole model where that gives the text its mask."""
    config = copy.deepcopy(config)  # configuration classes write into what they are given
    named = {key: part for key, part in config.items() if isinstance(part, dict) and "model_type" in part}
    parts = {key: narrow(part) for key, part in named.items()}
    made = config | parts if "text_config" in parts else narrow(config)
    whole = CONFIG_MAPPING[config["model_type"]].from_dict(made)
    part = whole if config["model_type"] == "paligemma" else whole.get_text_config()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return transformers.AutoModel.from_config(part, attn_implementation=attention).eval()


class Seen:
    """What each layer of a model is given: its mask, its tables of sines, and its queries."""

    def __init__(self, config: dict[str, Any]) -> None:
        eager = config["model_type"] in EAGER
        self.masks: dict[int, Any] = {}
        self.tables: dict[int, Any] = {}
        self.queries: dict[int, torch.Tensor] = {}
        transformers.AttentionInterface.register("posbias_probe", self._attend)
        transformers.AttentionMaskInterface.register(
            "posbias_probe", lambda mask_function, **_: mask_function
        )
        self.model = narrowed(config, "eager" if eager else "posbias_probe")
        self.text = self.model.config.get_text_config()
        for module in self.model.modules():
            if hasattr(module, "layer_idx"):
                module.register_forward_pre_hook(self._tabled, with_kwargs=True)
        with torch.no_grad():
            given = (
                {"token_type_ids": 0 * ALIKE} if config["model_type"] == "paligemma" else {}
            )  # all a prefix
            outputs = self.model(ALIKE, use_cache=False, output_attentions=eager, **given)
        self.attention = dict(enumerate(layer[0, 0] for layer in outputs.attentions)) if eager else {}
        self.masks |= {layer: attention > 0 for layer, attention in self.attention.items()}

    def _attend(self, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **_: Any) -> Any:
        self.masks[module.layer_idx], self.queries[module.layer_idx] = attention_mask, query
        return value.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[-1]), None

    def _tabled(self, module: Any, args: Any, kwargs: Any) -> None:
        given = kwargs.get("position_embeddings")
        if isinstance(given, dict):
            given = given.get(getattr(module, "rope_layer_type", None))
        if given is None and hasattr(module, "embed_positions"):  # a table of its own
            given = torch.complex(*reversed(module.embed_positions[:5].chunk(2, -1)))
        if given is not None:
            self.tables[module.layer_idx] = given

    def keys(self, layer: int, query: int) -> torch.Tensor:
        """The keys that a query sees."""
        mask = self.masks[layer]
        if mask is None:  # no mask hides nothing
            return torch.arange(TOKENS)
        row = mask[query] if torch.is_tensor(mask) else mask(0, 0, torch.tensor(query), torch.arange(TOKENS))
        return torch.nonzero(row.expand(TOKENS if row.dim() == 0 else -1)).flatten()

    def turns(self, layer: int) -> bool:
        """Whether it rotates its queries. Where layers mix tokens by other means, being given tables says so."""
        if layer in self.attention:  # logits of like tokens lie on a line where nothing but a bias acts
            alike = self.attention[layer][4].log().diff().diff().abs().max() < 1e-5
        elif len(self.queries) == self.text.num_hidden_layers:
            query = self.queries[layer]
            alike = torch.allclose(query[:, :, 1], query[:, :, 4], rtol=1e-3, atol=1e-5)
        else:
            alike = False
        return layer in self.tables and not alike

    def angles(self, layer: int) -> tuple[np.ndarray, float]:
        """The angle between neighbouring positions of every rotated pair, and the gain on queries and keys."""
        table = self.tables[layer]
        turned = table if torch.is_tensor(table) else torch.complex(table[0].float(), table[1].float())
        turned = turned.reshape(-1, *turned.shape[-2:])[0]
        half = turned.shape[-1] // 2
        for pairs in (turned[:, :half], turned[:, ::2]):  # of the two layouts, and neither
            if not turned.is_complex() or torch.is_tensor(table):
                break
            if torch.equal(turned, torch.cat((pairs, pairs), -1)) or torch.equal(
                turned, pairs.repeat_interleave(2, -1)
            ):
                turned = pairs
                break
        return (turned[1] / turned[0]).angle().double().numpy(), float(turned[0].abs().max())


@pytest.mark.parametrize("row", READ, ids=lambda row: row["name"])
def test_what_is_read_of_a_published_configuration_is_what_its_model_does(row):
    config = row["config"]
    architecture, seen = from_huggingface(config), Seen(row.get("built", config))
    types = getattr(seen.text, "layer_types", None)
    assert architecture.depth == seen.text.num_hidden_layers
    for t, (layer, (_, encoding)) in enumerate(zip(architecture.stack, words(architecture), strict=True)):
        assert is_attention(layer) <= (t in seen.masks), t
        if not is_attention(layer):  # the mask of a state, a convolution, compressed entries is another
            continue
        keys = bounds(layer.mask, TOKENS)
        assert keys is not None
        for query in QUERIES if t not in seen.attention else range(len(ALIKE[0])):
            high = min(keys.high[query], len(ALIKE[0]) - 1) if t in seen.attention else keys.high[query]
            expected = torch.arange(int(keys.low[query]), int(high) + 1)
            assert torch.equal(seen.keys(t, query), expected), (t, query)
        assert (encoding == "rotary") == seen.turns(t), t
        if encoding == "rotary":
            theirs, amplitude = seen.angles(t)
            angles, gain = encodings.rotary_of(config, types[t] if types else None)
            np.testing.assert_allclose(angles, theirs, rtol=1e-4, err_msg=f"layer {t}")
            assert gain == pytest.approx(amplitude, rel=1e-5), t


CACHING = (
    "llama gemma3_text mistral falcon gpt_oss lfm2 qwen3_next deepseek_v3 gpt2 llama4_text jamba smollm3"
)


@pytest.mark.parametrize("family", CACHING.split())
def test_a_cache_is_as_large_as_the_models_own(family):
    """But that transformers drops a window's oldest key before the next token comes."""
    model = zoo.tiny(family)
    with torch.no_grad():
        kept = model(PROMPT[None], use_cache=True).past_key_values.layers
    parts = [part for one in kept for part in (getattr(one, "keys", None), getattr(one, "values", None))]
    read = from_huggingface(model.config.to_dict())
    widths = [getattr(layer.mask, "width", 0) for layer in read.layers]
    layers = tuple(
        replace(layer, mask=replace(layer.mask, width=width - 1)) if width else layer
        for layer, width in zip(read.layers, widths, strict=True)
    )
    cache = cache_of(replace(read, layers=layers), len(PROMPT), "float32")
    assert cache.size == sum(part.nbytes for part in parts if isinstance(part, torch.Tensor))


@pytest.mark.parametrize("row", [row for row in ROWS if "refused" in row], ids=lambda row: row["name"])
def test_what_is_not_predicted_is_refused_by_the_name_of_its_key(row):
    with pytest.raises(InvalidValueError, match=rf"^[\w.]*{row['refused']}: "):
        from_huggingface(row["config"])
