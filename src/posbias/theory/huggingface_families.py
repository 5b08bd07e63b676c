"""Families of Hugging Face models: how each spells its positions, which layers slide, which have no encoding.

Families are data: a row says what a configuration leaves to the family. That the rows are right is tested on
models that transformers builds (docs/families.md).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from posbias.arguments import shortened
from posbias.errors import InvalidValueError
from posbias.theory import huggingface_layers as layers
from posbias.theory.encodings import ALiBi, NeedsMeasurement, NoPE, Positional, alibi_slopes
from posbias.theory.huggingface_keys import Config, flag, inner, integer, number
from posbias.theory.huggingface_rope import check_types, rope_words
from posbias.theory.masks import Causal, Full, Mask
from posbias.theory.query_scale import QueryScale, StepScale

# --- positional encodings ----------------------------------------------------------------------------------


def _mpt(config: Config) -> Positional:
    attention = inner(config, "attn_config")
    if attention.get("prefix_lm"):
        raise InvalidValueError("attn_config.prefix_lm: true given, a causal model needed")
    if not flag(attention, "alibi", True):
        return _rotary(config) if flag(attention, "rope", False) else _learned(config)
    bias_max = attention.get("alibi_bias_max", 8)
    if isinstance(bias_max, bool) or not isinstance(bias_max, int | float) or not 0 < bias_max <= 1000:
        raise InvalidValueError(
            f"attn_config.alibi_bias_max: {shortened(bias_max)} given, a number from 0 to 1000 needed"
        )
    if bias_max == 8:
        return ALiBi()
    heads = integer(config, "n_heads", "num_attention_heads")
    return ALiBi(tuple(alibi_slopes(heads, float(bias_max)).tolist()))


def _falcon(config: Config) -> Positional:
    if not flag(config, "alibi", False):
        return _rotary(config)
    heads, width = integer(config, "num_attention_heads", "n_head"), integer(config, "hidden_size")
    if width % heads:
        raise InvalidValueError(f"hidden_size: {width} given, a multiple of the {heads} heads needed")
    return ALiBi(scale=1.0 / math.sqrt(width // heads))


def _tiny(config: Config) -> Positional:
    """The small models that come along: an encoding by its word; a window is rotary."""
    words: dict[str, Positional] = {"alibi": ALiBi(), "nope": NoPE(), "learned": _learned(config)}
    words |= dict.fromkeys(("rope", "window"), _rotary(config))
    if config.get("encoding") not in words:
        raise InvalidValueError(
            f"encoding: {config.get('encoding')!r} given, one of {', '.join(words)} needed"
        )
    return words[str(config["encoding"])]


def _rotary(config: Config) -> Positional:
    check_types(config)
    return NeedsMeasurement("rotary", _positions(config), rope_words(config))


def _learned(config: Config) -> Positional:
    return NeedsMeasurement("learned", _positions(config))


def _positions(config: Config) -> int | None:
    """How many positions a model has or is configured for; None where its configuration does not say."""
    keys = ("n_positions", "max_position_embeddings", "max_seq_len")
    return integer(config, *keys) if any(config.get(key) is not None for key in keys) else None


# --- which way it looks --------------------------------------------------------------------------------------


def _earlier(config: Config) -> Mask:
    return Causal()


def _both_ways(config: Config) -> Mask:
    """BERT and its kin: encoders, unless `is_decoder` says otherwise."""
    return Causal() if flag(config, "is_decoder", False) else Full()


def _absolute(config: Config) -> Positional:
    """BERT and its kin: a vector for each position, or another kind by its name."""
    kind = config.get("position_embedding_type") or "absolute"
    return _learned(config) if kind == "absolute" else NeedsMeasurement(str(kind), _positions(config))


# --- which layers slide, and which have no encoding ---------------------------------------------------------


def _all_slide(t: int, config: Config) -> bool:
    return True


def _but_every(period: int) -> Callable[[int, Config], bool]:
    """All layers slide but every so-many-th; `sliding_window_pattern` is the period, or letters L and G."""

    def slides(t: int, config: Config) -> bool:
        pattern = config.get("sliding_window_pattern") or config.get("_sliding_window_pattern") or period
        if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
            return pattern[t % len(pattern)] == "L"
        if isinstance(pattern, bool) or not isinstance(pattern, int) or pattern < 1:
            raise InvalidValueError(
                f"sliding_window_pattern: {shortened(pattern)} given, a number of layers or letters L and G needed"
            )
        return (t + 1) % pattern != 0

    return slides


def _global_every(t: int, config: Config) -> bool:
    """AFMoE: all layers slide but every so-many-th, as another key says."""
    return (t + 1) % integer({"global_attn_every_n_layers": 4, **config}, "global_attn_every_n_layers") != 0


def _from_layer(t: int, config: Config) -> bool:
    """Qwen 2 and 3: upper layers slide, from `max_window_layers` on."""
    return t >= (integer(config, "max_window_layers") if config.get("max_window_layers") else 0)


def _even_below(t: int, config: Config) -> bool:
    """Qwen 2's experts: every other layer slides, below `max_window_layers`."""
    return t % 2 == 0 and t < integer(config, "max_window_layers")


def _full_layers(slides: bool, t: int, config: Config) -> bool:
    """EXAONE 4: layers that see everything have no encoding, where others slide."""
    return not slides and bool(config.get("sliding_window"))


def _listed(slides: bool, t: int, config: Config) -> bool:
    """Llama 4, SmolLM 3: see `huggingface_layers.bare`."""
    return layers.bare(t, integer(config, "num_hidden_layers"), config)


# --- what logits are multiplied by, query by query ----------------------------------------------------------


def _no_scale(config: Config, bare: bool) -> QueryScale | None:
    return None


def _tuned(config: Config, bare: bool) -> QueryScale | None:
    """Llama 4: in layers without an encoding, unless `attn_temperature_tuning` says no."""
    if not bare or not config.get("attn_temperature_tuning"):
        return None
    return StepScale(number(config, "attn_scale"), integer(config, "floor_scale"))


def _beyond_training(config: Config, bare: bool) -> QueryScale | None:
    """Ministral 3, Mistral 4: beyond the length of their first training; positions count from 0 there."""
    given = inner(config, "rope_parameters") or _TRAINED
    if given.get("llama_4_scaling_beta") is None:
        return None
    return StepScale(number(given, "llama_4_scaling_beta"), integer(given, _FIRST_LENGTH), first=0)


_STEPS = {"attn_scale": 0.1, "floor_scale": 8192}
_FIRST_LENGTH = "original_max_position_embeddings"
_TRAINED = {"llama_4_scaling_beta": 0.1, _FIRST_LENGTH: 16384}


@dataclass(frozen=True)
class Family:
    """How a family's configurations are read.

    `slides` says of layer t (from 0) whether it slides where the file has a window and no `layer_types` (None: no
    layer does), `mask` what a layer sees that does not slide, `bare` whether it has no encoding; `remarks` say
    what models of the family have that no configuration shows; `defaults` are what the file may leave out. `parts`
    are its kinds of layers that are no softmax over earlier tokens, `spelt` brings a family's list of layers to
    `layer_types`, `beside` says what else decides a profile and only a measurement tells, `scale` what multiplies
    the logits of queries in a layer with or without an encoding.
    """

    positional: Callable[[Config], Positional] = _rotary
    slides: Callable[[int, Config], bool] | None = None
    mask: Callable[[Config], Mask] = _earlier
    bare: Callable[[bool, int, Config], bool] | None = None
    remarks: tuple[str, ...] = ()
    defaults: Config = field(default_factory=dict)
    parts: Mapping[str, layers.Part] = field(default_factory=dict)
    spelt: layers.Spelling | None = None
    beside: Callable[[Config], tuple[str, ...]] = lambda config: ()
    scale: Callable[[Config, bool], QueryScale | None] = _no_scale

    @property
    def reads_types(self) -> bool:
        """Whether its models look at `layer_types`: those whose layers are of several kinds."""
        return self.spelt is not None or self.slides not in (None, _all_slide)

    def reads(self, key: str) -> bool:
        """Whether its encoding of positions is read from this key."""
        readers = {"alibi": (_falcon, _mpt), "position_embedding_type": (_absolute,)}
        return self.positional in readers.get(key, ())


_SINKS = (
    "learned sinks: every head{} has a trained logit beside the keys that draws attention off; it is not in the "
    "configuration and left out (give it as Layer.sinks)"
)
_SIZES_32 = {"num_hidden_layers": 32, "num_attention_heads": 32}
_PLAIN = Family()
_ALL = Family(slides=_all_slide)
_QWEN_WINDOWS = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_QWEN = Family(slides=_from_layer, defaults=_SIZES_32 | _QWEN_WINDOWS)
_VISION = replace(
    _QWEN,
    defaults=_QWEN_WINDOWS | {"num_hidden_layers": 80, "num_attention_heads": 64, "max_window_layers": 80},
)

_GATED = "attention's update passes a gate, which changes λ alone"
_LATER_LOGITS = (
    "logits grow with the query's position ({}): Layer.query_scale, which multiplies nothing while positional "
    "and content logits are left out"
)
_BEYOND = (_LATER_LOGITS.format("rope_parameters.llama_4_scaling_beta"),)


def _sizes(depth: int, heads: int) -> dict[str, int]:
    return {"num_hidden_layers": depth, "num_attention_heads": heads}


def _bare(config: Config) -> Positional:
    return NoPE()


_NEXT = Family(defaults=_sizes(48, 16), parts=layers.STATES, spelt=layers.qwen3_next, remarks=(_GATED,))
_INDEXED = Family(parts=layers.SELECTION, spelt=layers.indexed)

_ROTARY = (  # noqa: SIM905
    "apertus arcee aria_text axk1 bitnet codegen cohere deepseek_v2 deepseek_v3 ernie4_5 ernie4_5_moe "
    "flex_olmo gemma glm glm4 glm4_moe gpt_neox gpt_neox_japanese gptj granite granitemoe "
    "granitemoeshared helium hy_v3 hyperclovax internlm3 iquestcoder jais2 minicpm3 minimax_m2 nanochat "
    "olmo olmo2 olmoe persimmon phi seed_oss solar_open stablelm youtu"
).split()
"""Families whose layers all see everything before them, and rotate."""
_ENCODERS = (  # noqa: SIM905
    "bert camembert data2vec-text electra ernie megatron-bert rembert roberta roberta-prelayernorm roc_bert "
    "xlm-roberta xlm-roberta-xl xmod"
).split()
"""Families whose layers all see everything, before and after."""

FAMILIES: dict[str, Family] = {
    "bloom": Family(lambda config: ALiBi()),
    "mpt": Family(_mpt),
    **dict.fromkeys(("falcon", "RefinedWeb", "RefinedWebModel"), Family(_falcon)),
    **dict.fromkeys(_ENCODERS, Family(_absolute, mask=_both_ways)),
    "posbias_tiny": Family(_tiny, slides=_all_slide),
    **dict.fromkeys(("gpt2", "gpt_bigcode", "openai-gpt", "opt", "biogpt"), Family(_learned)),
    **dict.fromkeys(_ROTARY, _PLAIN),
    "llama": Family(defaults=_SIZES_32),
    "mistral": Family(slides=_all_slide, defaults=_SIZES_32 | {"sliding_window": 4096}),
    **dict.fromkeys(("mixtral", "phi3", "phimoe", "starcoder2"), _ALL),
    "qwen3_moe": Family(slides=_all_slide, defaults={"use_sliding_window": False, "sliding_window": 4096}),
    "ministral3": Family(slides=_all_slide, scale=_beyond_training, remarks=_BEYOND),
    "llama4_text": Family(
        bare=_listed,
        defaults=_sizes(48, 40) | {"attention_chunk_size": 8192, "attn_temperature_tuning": True} | _STEPS,
        parts=layers.CHUNKS,
        spelt=layers.llama4,
        scale=_tuned,
        remarks=(_LATER_LOGITS.format("attn_temperature_tuning, in layers without an encoding"),),
    ),
    **dict.fromkeys(("qwen2", "qwen3"), _QWEN),
    "qwen2_moe": Family(slides=_even_below, defaults=_QWEN_WINDOWS),
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text"), _VISION),
    "gemma2": Family(slides=_but_every(2), defaults={"num_hidden_layers": 26, "num_attention_heads": 8}),
    "gemma3_text": Family(
        slides=_but_every(6),
        defaults={"num_hidden_layers": 26, "num_attention_heads": 8, "sliding_window": 4096},
    ),
    "vaultgemma": Family(slides=_but_every(2)),
    "cohere2": Family(slides=_but_every(4), bare=lambda slides, t, config: not slides),
    **dict.fromkeys(("exaone4", "exaone_moe"), Family(slides=_but_every(4), bare=_full_layers)),
    "olmo3": Family(slides=_but_every(4)),
    "smollm3": Family(slides=lambda t, config: _listed(False, t, config), bare=_listed),
    "cwm": Family(slides=lambda t, config: t % 4 != 0),
    "gpt_oss": Family(slides=lambda t, config: t % 2 == 0, remarks=(_SINKS.format(""),)),
    **dict.fromkeys(
        ("granite_swa", "granitemoe_swa"),
        Family(slides=lambda t, config: t % 4 != 0, remarks=(_SINKS.format(""),)),
    ),
    "mimo_v2_flash": Family(
        slides=lambda t, config: t > 0 and (t + 1) % 6 != 0,
        remarks=(_SINKS.format(" of a sliding layer"),),
    ),
    "gemma4_text": Family(
        defaults=_sizes(30, 8) | {"sliding_window": 512}, spelt=layers.gemma4, beside=layers.shared
    ),
    "mistral4": Family(defaults=_sizes(36, 32), scale=_beyond_training, remarks=_BEYOND),
    "glm4_moe_lite": Family(defaults=_sizes(47, 20)),
    "deepseek_v32": replace(_INDEXED, defaults=_sizes(61, 128) | {"index_topk": 2048}),
    "glm_moe_dsa": replace(_INDEXED, defaults=_sizes(78, 64) | {"index_topk": 2048}),
    "deepseek_v4": Family(
        defaults=_sizes(43, 64) | {"sliding_window": 128, "index_topk": 512},
        parts=layers.COMPRESSION,
        spelt=layers.deepseek_v4,
        beside=layers.streams,
        remarks=(_SINKS.format(""),),
    ),
    "qwen3_next": _NEXT,
    "qwen3_5_text": replace(_NEXT, defaults=_sizes(32, 16)),
    "qwen3_5_moe_text": replace(_NEXT, defaults=_sizes(40, 16)),
    "lfm2": Family(
        defaults=_sizes(32, 32) | {"conv_L_cache": 3}, parts=layers.CONVOLUTIONS, spelt=layers.lfm2
    ),
    "jamba": Family(
        _bare,
        defaults=_sizes(32, 32) | {"attn_layer_period": 8, "attn_layer_offset": 4},
        parts=layers.STATES,
        spelt=layers.jamba,
    ),
    "falcon_h1": Family(defaults=_sizes(32, 32), parts=layers.BRANCHES, spelt=layers.falcon_h1),
    "nemotron_h": Family(
        _bare,
        defaults={"num_attention_heads": 32},
        parts=layers.STATES | layers.ALONE,
        spelt=layers.nemotron_h,
    ),
    "olmo_hybrid": Family(defaults=_sizes(32, 30), parts=layers.STATES, spelt=layers.olmo_hybrid),
    "afmoe": Family(
        slides=_global_every,
        bare=lambda slides, t, config: not slides,
        defaults=_sizes(32, 16) | {"sliding_window": 1024},
    ),
    "kimi_linear": Family(_bare, defaults=_sizes(27, 32), parts=layers.STATES, spelt=layers.kimi_linear),
}
"""Hugging Face `model_type` → how its configuration is read."""

CONTAINERS = {
    "llama4": "llama4_text",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "mistral3": "mistral",
    "llava": "llama",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
}
"""Models with more than text → the family of their text, in `text_config` or, in older files, beside it."""
