"""Families of Hugging Face models, as one table: what a configuration leaves to its family.

A row (`Family`) says how the family's files state layers, windows, rotary positions, encodings, key-value heads
and causality; what it does not say is as in most families. `PARTS` are the kinds of layers that are no softmax
over all earlier tokens. The tables are in huggingface_families.toml, the functions that they name here. That the
rows are right is tested on models that transformers builds (`tools/families.py`) and on configurations as their
makers published them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from posbias.core.errors import shortened, wrong
from posbias.core.files import data_table
from posbias.core.spec import MOST_LAYERS
from posbias.theory.config_keys import (
    DEFAULTS,
    DEPTH,
    HEAD_SIZE,
    HEADS,
    KEY_HEADS,
    LENGTH,
    TRAINED,
    WIDTH,
    Config,
)
from posbias.theory.content import QueryScale, StepScale
from posbias.theory.masks import Causal, Chunked, Mask, SlidingWindow
from posbias.theory.positional import ALiBi, NeedsMeasurement, NoPE, Positional, alibi_slopes

# kinds of layers, as `layer_types` has them
FULL, SLIDING = "full_attention", "sliding_attention"
CHUNKED, LINEAR = "chunked_attention", "linear_attention"
SPARSE, COMPRESSED = "compressed_sparse_attention", "heavily_compressed_attention"
_HELD = data_table(__file__)
OLDER_KINDS: dict[str, str] = _HELD["older_kinds"]
"""Older words of `layer_types` → those of today."""
INERT = frozenset[str](_HELD["inert"])
"""Keys that say nothing of attention, or the same as `layer_types`, which is looked at by itself."""
CONTAINERS: dict[str, str] = _HELD["containers"]
"""Models with more than text → the family of their text, in `text_config` or, in older files, at the top level."""


# --- kinds of layers ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """What a kind of layer is taken as: in words, what of it needs measurement ("": nothing), and its mask.

    Both texts may name keys of the configuration in braces. `window`, `chunk`: the width, or the key that has it.
    `encoded`: whether the family's encoding of positions acts in it; `measured`: whether `posbias measure` sees
    an attention in it.
    """

    taken: str
    unknown: str = ""
    window: str | int = 0
    chunk: str = ""
    encoded: bool = True
    measured: bool = True

    def mask(self, config: Config) -> Mask:
        """The mask of such a layer; all earlier tokens where the kind has none of its own."""
        if self.chunk:
            return Chunked(config.integer(self.chunk))
        width = config.integer(self.window) if isinstance(self.window, str) else self.window
        return SlidingWindow(width) if width else Causal()


PARTS = {kind: Part(**row) for kind, row in _HELD["parts"].items()}
"""Kinds of layers that are no softmax over all earlier tokens, by their words in `layer_types`."""
UNMEASURED = frozenset(part.unknown for part in PARTS.values() if not part.measured)
"""What is not known of layers in which `posbias measure` sees no attention."""
KEYLESS = (LINEAR, "conv", "mlp", "moe")
"""Kinds of layers that keep a state, a few tokens or nothing, and no keys."""


# --- which layer is of which kind, and which has no encoding --------------------------------------------------


def every(period: int, key: str = "", rest: str = SLIDING) -> Callable[[int, Config], str]:
    """Full is layer t where t + 1 is a multiple of the period, which `key` may change; the others are of `rest`.

    Without a key `sliding_window_pattern` is read: a period, or letters L and G.
    """

    def kind(t: int, config: Config) -> str:
        if key:
            return rest if (t + 1) % config.integer(key, default=period) else FULL
        given = (config.get(key) for key in ("sliding_window_pattern", "_sliding_window_pattern"))
        pattern = next((one for one in given if one is not None), period)
        if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
            return SLIDING if pattern[t % len(pattern)] == "L" else FULL
        own = Config({"sliding_window_pattern": pattern})
        return rest if (t + 1) % own.integer("sliding_window_pattern") else FULL

    return kind


def _full_layers(config: Config) -> int:
    """Qwen 2: how many layers at the bottom have no window (of its experts' models, those that may have one)."""
    return config.integer("max_window_layers", least=0) if config.get("max_window_layers") else 0


def qwen2_layers(t: int, config: Config) -> str:
    """Layers above the lowest have windows."""
    return SLIDING if t >= _full_layers(config) else FULL


def qwen2_moe_layers(t: int, config: Config) -> str:
    """Every second of the lowest layers has a window."""
    return SLIDING if t % 2 == 0 and t < _full_layers(config) else FULL


def jamba_layers(t: int, config: Config) -> str:
    """Of each period one layer is full, at an offset."""
    period = config.integer("attn_layer_period")
    return FULL if t % period == config.integer("attn_layer_offset", least=0) else LINEAR


def kimi_layers(t: int, config: Config) -> str:
    """`linear_attn_config` counts layers from 1."""
    given = config.inner("linear_attn_config").by_layer("full_attn_layers")
    linear = t + 1 not in given if given else not t or t % 4
    return LINEAR if linear else FULL


def olmo_hybrid_layers(t: int, config: Config) -> str:
    """Every fourth layer is full, and the last of a model with fewer."""
    depth = config.integer(DEPTH)
    return FULL if t % 4 == 3 or (depth < 4 and t == depth - 1) else LINEAR


def lfm2_layers(t: int, config: Config) -> str:
    """Convolutions, but for layers that `full_attn_idxs` lists; without it none."""
    listed = config.get("full_attn_idxs") is None or t in config.by_layer("full_attn_idxs")
    return FULL if listed else "conv"


def smollm3_layers(t: int, config: Config) -> str:
    """Layers without rotary positions have windows."""
    return SLIDING if without_rope("", t, config) else FULL


def llama4_layers(t: int, config: Config) -> str:
    """Layers with rotary positions see chunks."""
    return FULL if without_rope("", t, config) else CHUNKED


def deepseek_v4_layers(t: int, config: Config) -> str:
    """Every second layer from the fourth is sparse."""
    return SPARSE if t > 2 and t % 2 else COMPRESSED


def without_rope(kind: str, t: int, config: Config) -> bool:
    """Llama 4, SmolLM 3: layers that `no_rope_layers` lists with 0, else every `no_rope_layer_interval`-th."""
    given, depth = config.by_layer("no_rope_layers"), config.integer(DEPTH)
    if given and len(given) != depth:
        raise wrong("no_rope_layers", f"{depth} (one per layer)", len(given))
    if given:
        return not given[t]
    every = config.integer("no_rope_layer_interval") if config.get("no_rope_layer_interval") else 4
    return (t + 1) % every == 0


def without_base(kind: str, t: int, config: Config) -> bool:
    """Granite with windows: layers whose rotary base is 0; OLMo's hybrid: all where there is no base."""
    bases = config.get("layer_rope_theta")
    if bases is None:
        return rope_settings(config).get("", config).get("rope_theta") is None
    depth = config.integer(DEPTH)
    if not isinstance(bases, list) or len(bases) != depth:
        raise wrong("layer_rope_theta", f"{depth} numbers", bases)
    return not bases[t]


def not_sliding(kind: str, t: int, config: Config) -> bool:
    """Cohere 2, AFMoE: layers that see everything have no encoding."""
    return kind != SLIDING


def not_sliding_among_windows(kind: str, t: int, config: Config) -> bool:
    """EXAONE 4: the same in models with windows."""
    return kind != SLIDING and bool(config.get("sliding_window"))


# --- families whose files are brought to today's keys ---------------------------------------------------------


def mpt_keys(config: Config) -> Config:
    """The window stands in `attn_config`, where −1 is none."""
    size = config.inner("attn_config").get("sliding_window_size")
    return config | {"sliding_window": None if size == -1 else size}


def minimax_keys(config: Config) -> Config:
    """Every second layer is linear; a window is for all others, whatever `layer_types` calls them."""
    every_second = [FULL, LINEAR] * config.integer(DEPTH, most=MOST_LAYERS)
    kinds = config.get("layer_types") or every_second[: config.integer(DEPTH)]
    if config.get("sliding_window") is None or not isinstance(kinds, list):
        return config
    return config | {"layer_types": [SLIDING if kind == FULL else kind for kind in kinds]}


def gemma4_keys(config: Config) -> Config:
    """The last layer is full, whatever `layer_types` says of it."""
    kinds = config.get("layer_types")
    if kinds is None:
        kinds = [FULL if t % 6 == 5 else SLIDING for t in range(config.integer(DEPTH, most=MOST_LAYERS))]
    return config | {"layer_types": [*kinds[:-1], FULL] if isinstance(kinds, list) else kinds}


def mimo_layers(t: int, config: Config) -> str:
    """Full layers are the first and every sixth."""
    return SLIDING if t and (t + 1) % 6 else FULL


def mimo_keys(config: Config) -> Config:
    """MiMo V2 Flash: `sliding_window_size` does not count the query; chunks are not used.

    Raises `InvalidValueError` for released keys that say otherwise: models of transformers do not read them.
    """
    depth = config.integer(DEPTH, most=MOST_LAYERS)
    kinds = config.get("layer_types") or [mimo_layers(t, config) for t in range(depth)]
    own = Config({**DEFAULTS["mimo_v2_flash"], **config})
    right = {
        "hybrid_layer_pattern": [int(kind == SLIDING) for kind in kinds],
        "swa_head_dim": own[HEAD_SIZE],
        "swa_num_attention_heads": config.integer(HEADS),
        "swa_num_key_value_heads": 2 * own.integer(KEY_HEADS),
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
    }
    for key, value in right.items():
        if config.get(key) not in (None, value):
            raise wrong(key, value, config[key])
    made = config | {"layer_types": kinds, "attention_chunk_size": None}
    if config.get("sliding_window_size") is not None:
        made["sliding_window"] = config.integer("sliding_window_size") + 1
    return made


def nemotron_h_keys(config: Config) -> Config:
    """`layers_block_type`, or letters in `hybrid_override_pattern`; their number is the depth."""
    letters = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}
    kinds, pattern = config.get("layers_block_type"), config.get("hybrid_override_pattern")
    if kinds is None and pattern is None:
        kinds = config.get("layer_types") or [LINEAR, "moe", FULL, "mlp"]
    elif kinds is None:
        if not isinstance(pattern, str) or not set(pattern) <= set(letters):
            raise wrong("hybrid_override_pattern", f"letters {' '.join(letters)}", pattern)
        kinds = [letters[letter] for letter in pattern]
    if not isinstance(kinds, list):
        raise wrong("layers_block_type", "a list", kinds)
    return config | {"layer_types": kinds, DEPTH: len(kinds)}


def deepseek_v4_keys(config: Config) -> Config:
    """`layer_types`, or `compress_ratios` of each layer; what is beyond the depth predicts further tokens."""
    kinds, ratios = config.get("layer_types"), config.by_layer("compress_ratios")
    if kinds is None and ratios:
        known = {0: SLIDING, 4: SPARSE, 128: COMPRESSED}
        if not set(ratios) <= set(known):
            raise wrong("compress_ratios", "0, 4 and 128", ratios)
        kinds = [known[ratio] for ratio in ratios]
    rates = {SPARSE: 4, COMPRESSED: 128, **config.inner("compress_rates")}
    older = {"compress_rate_csa": rates[SPARSE], "compress_rate_hca": rates[COMPRESSED]}
    kinds = kinds[: config.integer(DEPTH, most=MOST_LAYERS)] if isinstance(kinds, list) else kinds
    return Config(older) | config | {"layer_types": kinds}


# --- positional encodings -------------------------------------------------------------------------------------


def rotary(config: Config) -> Positional:
    """Rotary positions: what they do needs measurement."""
    return NeedsMeasurement("rotary", positions(config), rope_words(config))


def learned(config: Config) -> Positional:
    """A vector for each position, added to the token's: what it does needs measurement."""
    return NeedsMeasurement("learned", positions(config))


def positions(config: Config) -> int | None:
    """How many positions a model has or is configured for; None where its configuration does not say."""
    return None if config.get(LENGTH) is None else config.integer(LENGTH)


def alibi(config: Config) -> Positional:
    """ALiBi with the published slopes."""
    return ALiBi()


def unencoded(config: Config) -> Positional:
    """No encoding in any layer."""
    return NoPE()


def absolute(config: Config) -> Positional:
    """BERT and its kin: a vector for each position, or another kind by its name."""
    kind = config.get("position_embedding_type") or "absolute"
    return learned(config) if kind == "absolute" else NeedsMeasurement(str(kind), positions(config))


def mpt_positions(config: Config) -> Positional:
    """MPT: ALiBi unless a flag takes it away, then rotary or learned positions."""
    attention = config.inner("attn_config")
    if attention.get("prefix_lm"):
        raise wrong("attn_config.prefix_lm", "a causal model", got="true")
    if not attention.flag("alibi", True):
        return rotary(config) if attention.flag("rope", False) else learned(config)
    bias_max = attention.number("alibi_bias_max", above=True, default=8)
    if bias_max == 8:
        return ALiBi()
    if bias_max > 1000:
        raise wrong("attn_config.alibi_bias_max", "at most 1000", got=f"{bias_max:g}")
    return ALiBi(tuple(alibi_slopes(config.integer(HEADS), bias_max).tolist()))


def falcon_positions(config: Config) -> Positional:
    """Falcon: rotary, or by a flag ALiBi, added before logits are scaled."""
    if not config.flag("alibi", False):
        return rotary(config)
    heads, width = config.integer(HEADS), config.integer(WIDTH)
    if width % heads:
        raise wrong(WIDTH, f"a multiple of the {heads} heads", width)
    return ALiBi(scale=1.0 / math.sqrt(width // heads))


def tiny_positions(config: Config) -> Positional:
    """The small models of the papers: an encoding by its word; a window is rotary."""
    words: dict[str, Positional] = {"alibi": ALiBi(), "nope": NoPE(), "learned": learned(config)}
    words |= dict.fromkeys(("rope", "window"), rotary(config))
    if config.get("encoding") not in words:
        raise wrong("encoding", f"one of {', '.join(words)}", config.get("encoding"))
    return words[str(config["encoding"])]


# --- key-value heads of a layer of a kind; None for as many as heads ------------------------------------------


def key_heads(config: Config, kind: str) -> int | None:
    """As most say it. A default that does not divide the heads is not this model's."""
    if KEY_HEADS in config:
        return None if config[KEY_HEADS] is None else config.integer(KEY_HEADS)
    default = DEFAULTS.get(config["model_type"], {}).get(KEY_HEADS)
    return default if default and config.integer(HEADS) % default == 0 else None


def one_key_head(config: Config, kind: str) -> int | None:
    """Latent attention keeps one vector of each token, which all heads read."""
    return 1


def falcon_key_heads(config: Config, kind: str) -> int | None:
    """One for all heads, unless `new_decoder_architecture` or `multi_query` says otherwise."""
    newer = config.flag("new_decoder_architecture", False) or config["model_type"] == "RefinedWeb"
    return 1 if not newer and config.flag("multi_query", True) else key_heads(config, kind)


def big_code_key_heads(config: Config, kind: str) -> int | None:
    return 1 if config.flag("multi_query", True) else None


def gemma4_key_heads(config: Config, kind: str) -> int | None:
    """Full layers may have a number of their own."""
    key = "num_global_key_value_heads"
    own = kind == FULL and config.flag("attention_k_eq_v", False) and config.get(key) is not None
    return config.integer(key) if own else key_heads(config, kind)


def mimo_key_heads(config: Config, kind: str) -> int | None:
    """Sliding layers have twice as many."""
    given = key_heads(config, kind) or DEFAULTS["mimo_v2_flash"][KEY_HEADS]
    return 2 * given if kind == SLIDING else given


# --- what logits are multiplied by, query by query ------------------------------------------------------------


def tuned(config: Config, bare: bool) -> QueryScale | None:
    """Llama 4: in layers without an encoding, unless `attn_temperature_tuning` says no."""
    if not bare or not config.get("attn_temperature_tuning"):
        return None
    return StepScale(config.number("attn_scale"), config.integer("floor_scale"))


def beyond_training(config: Config, bare: bool) -> QueryScale | None:
    """Ministral 3, Mistral 4: beyond the length of their first training; positions count from 0 there."""
    given = _single(rope_settings(config))
    if given.get("llama_4_scaling_beta") is None:
        return None
    return StepScale(given.number("llama_4_scaling_beta"), given.integer(TRAINED), first=0)


# --- rotary positions: base, scaling and share of a head, by type of layer or under "" for all ----------------

_BASE, SHARE, _ALL = "rope_theta", "partial_rotary_factor", ""
ROPE_TYPES = (
    *("default", "linear", "dynamic", "yarn", "longrope", "su", "llama3", "proportional"),
    *("axial", "xdrope", "mrope"),
)
"""Scalings of rotary positions by the name that transformers has for them, or that files of its models have."""
Settings = Mapping[str, Mapping[str, Any]]


def rope_settings(config: Config) -> dict[str, Config]:
    """Settings of rotary positions, completed as the family's models do: by type of layer, or under "" for all.

    Raises `InvalidValueError` for a scaling whose name is not known, and for keys that models do not use.
    """
    given = config.inner("rope_scaling") or config.inner("rope_parameters")
    row = FAMILIES.get(str(config.get("model_type")), _PLAIN)
    made = row.rope(config, given)
    for one in (given, *made.values()):
        if rope_type(one) not in ROPE_TYPES:
            raise wrong("rope_type", f"one of {', '.join(ROPE_TYPES)}", rope_type(one))
    named = {layers: {**one, "rope_type": rope_type(one)} for layers, one in made.items()}
    return {layers: Config({key: one[key] for key in one if key != "type"}) for layers, one in named.items()}


def rope_type(given: Mapping[str, Any]) -> str:
    """The name of a scaling; positions of text alone turn all parts of a multimodal rotation alike."""
    kind = given.get("rope_type") or given.get("type") or "default"
    return "default" if kind == "mrope" else kind


def rope_words(config: Mapping[str, Any]) -> str:
    """Base and scaling of rotary positions in words, for instance "base 10,000, yarn × 4".

    "" where nothing is given, and where types of layers differ.
    """
    given, *others = rope_settings(Config(config)).values()
    if any(other != given for other in others):
        return ""
    base, kind, factor = given.get(_BASE), given["rope_type"], given.get("factor")
    words = [] if base is None else [f"base {_grouped(base)}"]
    if kind != "default":
        words.append(kind if factor is None else f"{kind} × {_grouped(factor)}")
    return ", ".join(words)


def _grouped(given: Any) -> str:
    return f"{given:,.10g}" if isinstance(given, int | float) else repr(given)


def usual_rope(config: Config, given: Config) -> Settings:
    """One for all layers or one for each type; what they leave out is in older keys of the file, or by default."""
    older = {key: config[key] for key in (_BASE, SHARE) if config.get(key) is not None}
    if nested := {kind: {**older, **one} for kind, one in given.items() if isinstance(one, dict)}:
        return nested
    trained = {} if config.get(TRAINED) is None else {TRAINED: config[TRAINED]}
    return {_ALL: {**older, **given, **trained}}


def _single(made: Settings) -> Config:
    """Of a family whose types of layers have none of their own."""
    if _ALL not in made:
        raise wrong("rope_parameters", "one for all layers", got=", ".join(made))
    return Config(made[_ALL])


def two_bases(config: Config, given: Config) -> Settings:
    """Gemma 3, OLMo 3: the older keys scale full layers alone."""
    held, scaled = config.inner("rope_parameters"), config.inner("rope_scaling")
    if rope_type(scaled) != (scaled.get("rope_type") or "default"):
        raise wrong("type", "rope_type", scaled["type"])
    local = DEFAULTS["olmo3"] if config["model_type"] == "olmo3" else config
    return {
        FULL: {_BASE: config.get(_BASE), **held.inner(FULL), **scaled},
        SLIDING: {_BASE: local.get("rope_local_base_freq"), **held.inner(SLIDING)},
    }


def by_type(config: Config, given: Config) -> Settings:
    """Gemma 4, MiMo: `rope_parameters` of each type alone; older keys have to agree."""
    share = DEFAULTS[str(config["model_type"])].get(SHARE, 1.0)
    held = config.inner("rope_parameters")
    made = {kind: {SHARE: share, **held.inner(kind)} for kind in (FULL, SLIDING)}
    made = {kind: one if rope_type(one) == "default" else held.inner(kind) for kind, one in made.items()}
    if rope_type(config.inner("rope_scaling")) != "default":
        scaling = shortened(config["rope_scaling"])
        raise wrong("rope_scaling", "it within rope_parameters", got=scaling)
    older = {_BASE: made[FULL].get(_BASE), "swa_rope_theta": made[SLIDING].get(_BASE)}
    for key, right in (older | {SHARE: made[FULL].get(SHARE)}).items():
        if right is not None and (config.get(key) or right) != right:
            raise wrong(key, f"{right}, as in rope_parameters", config[key])
    return made


def deepseek_v4_rope(config: Config, given: Config) -> Settings:
    """DeepSeek V4: compressed layers have a base and a scaling of their own, without YaRN's gain."""
    size = config.integer(HEAD_SIZE)
    rotating = config.get("qk_rope_head_dim")
    share = 0.125 if rotating is None else config.integer("qk_rope_head_dim") / size
    share = config.number(SHARE, above=True, default=share)
    main, packed = given.inner("main"), given.inner("compress")
    if not (main and packed):
        main = Config({_BASE: config.get(_BASE)})
        packed = given | {_BASE: config.get("compress_rope_theta")}
        packed |= {"attention_factor": 1.0} if rope_type(packed) == "yarn" else {}
    main, packed = (
        {**one, HEAD_SIZE: int(size * one.number(SHARE, above=True, default=share)), SHARE: None}
        for one in (main, packed)
    )
    return {SPARSE: packed, COMPRESSED: packed, SLIDING: main}


def neox_rope(config: Config, given: Config) -> Settings:
    return usual_rope(config | {_BASE: config.get("rotary_emb_base"), SHARE: config.get("rotary_pct")}, given)


def gptj_rope(config: Config, given: Config) -> Settings:
    """GPT-J, CodeGen: base 10,000, and a fixed number of dimensions."""
    return {_ALL: {_BASE: 10_000.0, HEAD_SIZE: config.integer("rotary_dim")}}


def minimax_m2_rope(config: Config, given: Config) -> Settings:
    """MiniMax M2: how many dimensions rotate, where the file has no share."""
    if config.get("rotary_dim") is None or SHARE in given:
        return usual_rope(config, given)
    return usual_rope(config | {SHARE: config.integer("rotary_dim") / config.integer(HEAD_SIZE)}, given)


def phi3_rope(config: Config, given: Config) -> Settings:
    """Phi 3: older names of LongRoPE."""
    long = {"rope_type": "longrope"} if rope_type(given) in ("su", "yarn") else {}
    return usual_rope(config, given | long)


def phimoe_rope(config: Config, given: Config) -> Settings:
    """Phi 3.5's experts: a gain for short texts and one for long ones, with the angles of short texts for all."""
    made = _single(usual_rope(config, given))
    if rope_type(made) == "default":
        return {_ALL: made}
    short, long = made.get("short_mscale"), made.get("long_mscale")
    if short != long:
        raise wrong("short_mscale", f"long_mscale = {shortened(long)}", short)
    return {_ALL: {**made, "attention_factor": short, "long_factor": made.get("short_factor")}}


def mistral4_rope(config: Config, given: Config) -> Settings:
    """Mistral 4: a share of both parts of a head."""
    if config.inner("rope_scaling"):
        raise wrong("rope_scaling", "it within rope_parameters", got="it by itself")
    both = config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim")
    share = given.get(SHARE, config.integer("qk_rope_head_dim") / both)
    return usual_rope(config, given | {HEAD_SIZE: config.get(HEAD_SIZE) or both, SHARE: share})


def granite_rope(config: Config, given: Config) -> Settings:
    """Granite with windows: a base for each layer, 0 for none of the encoding."""
    made = _single(usual_rope(config, given))
    bases, types = config.get("layer_rope_theta"), config.get("layer_types") or ()
    if not isinstance(bases, list) or len(set(bases)) == 1:
        return {_ALL: {**made, _BASE: bases[0]} if isinstance(bases, list) else made}
    by_type = {kind: {base for base, of in zip(bases, types, strict=True) if of == kind} for kind in types}
    if any(len(found - {0}) > 1 for found in by_type.values()):
        raise wrong("layer_rope_theta", "one base for each type of layers", got=str(bases))
    return {kind: {**made, _BASE: base} for kind, found in by_type.items() for base in found - {0}}


# --- the table ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """How a family's configurations are read.

    - `positional`: the encoding of its layers, but those for which `bare` (kind, t, configuration) holds.
    - `layers`: the kind of all layers, whatever `layer_types` says, or of layer t (from 0) where a file has no
      `layer_types`: a pattern that is repeated, or a rule. Sliding ones are full where there is no window.
      `kinds`: which of `PARTS` its layers may be.
    - `encoder`: layers see both ways unless `is_decoder` says otherwise; `switchable`: whether `is_causal: false`
      makes its models look both ways. `classes`: names of its classes that do not begin with the family's.
    - `rope`: settings of rotary positions (`rope_settings`); `key_heads`: key-value heads of a layer of a kind;
      `scale`: what multiplies the logits of queries in a layer with or without an encoding.
    - `rewrite` brings its own keys to those that are read here; `defaults` are what a file may leave out, where
      transformers has no such family (else `DEFAULTS`).
    - `unknown`: key → what else decides a profile and only a measurement tells, where the key is given.
      `remarks`: what its models have that no configuration shows.
    """

    positional: Callable[[Config], Positional] = rotary
    layers: str | tuple[str, ...] | Callable[[int, Config], str] = FULL
    kinds: tuple[str, ...] = ()
    bare: Callable[[str, int, Config], bool] | None = None
    encoder: bool = False
    switchable: bool = True
    classes: tuple[str, ...] = ()
    rope: Callable[[Config, Config], Settings] = usual_rope
    key_heads: Callable[[Config, str], int | None] = key_heads
    scale: Callable[[Config, bool], QueryScale | None] = lambda config, bare: None
    rewrite: Callable[[Config], Mapping[str, Any]] = lambda config: config
    defaults: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


_PLAIN = Family()


def _row(row: dict[str, Any]) -> Family:
    """Return a row of the table: what stands in it by name is put in its place."""
    if "every" in row:
        row["layers"] = every(**row.pop("every"))
    if isinstance(row.get("defaults"), str):
        row["defaults"] = DEFAULTS[row["defaults"]]
    row["remarks"] = [_HELD["remarks"][name] for name in row.get("remarks", ())]
    for key, value in row.items():
        if isinstance(value, list):
            row[key] = tuple(value)
        elif isinstance(value, str):
            row[key] = globals().get(value, value)
    return Family(**row)


FAMILIES = {name: _row(dict(row)) for names, row in _HELD["rows"].items() for name in names.split()}
"""Hugging Face `model_type` → how its configuration is read."""
