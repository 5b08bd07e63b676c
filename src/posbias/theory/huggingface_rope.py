"""Rotary positions of a Hugging Face `config.json`: angles and gain, in words, or as a `RoPE`.

`rope_parameters` holds base, scaling and share of the dimensions, or the older `rope_theta`, `rope_scaling`,
`partial_rotary_factor`; a few families have words of their own, and types of layers may differ (`settings`).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError
from posbias.theory.distance import RoPE
from posbias.theory.huggingface_keys import DEFAULTS, HEADS, WIDTH, Config, inner, integer, number
from posbias.theory.huggingface_layers import COMPRESSED, FULL, SLIDING, SPARSE
from posbias.theory.rope_scaling import (
    DynamicNTK,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    ProportionalRoPE,
    RopeScaling,
    YaRN,
)

ROPE_TYPES = (
    "default", "linear", "dynamic", "yarn", "longrope", "su", "llama3", "proportional", "axial", "xdrope", "mrope"
)  # fmt: skip
"""Scalings of rotary positions by the name that transformers has for them, or that files of its models have."""

_LENGTH, _TRAINED = "max_position_embeddings", "original_max_position_embeddings"
_BASE, _SHARE, _SIZE = "rope_theta", "partial_rotary_factor", "head_dim"
_ALL = ""
"""The name under which settings stand that all layers have."""

Settings = Mapping[str, Config]


def settings(config: Config) -> Settings:
    """Settings of rotary positions, completed as the family's models do: by type of layer, or under "" for all.

    Raises `InvalidValueError` for a scaling whose name is not known, and for keys that models do not use.
    """
    given = inner(config, "rope_scaling") or inner(config, "rope_parameters")
    made = _OWN.get(str(config.get("model_type")), _usual)(config, given)
    for one in (given, *made.values()):
        if _kind(one) not in ROPE_TYPES:
            raise InvalidValueError(f"rope_type: expected one of {', '.join(ROPE_TYPES)}, got {_kind(one)!r}")
    return {
        layers: {
            "rope_type": _kind(one),
            **{key: one[key] for key in one if key not in ("rope_type", "type")},
        }
        for layers, one in made.items()
    }


def _kind(given: Config) -> str:
    """The name of a scaling; positions of text alone turn all parts of a multimodal rotation alike."""
    kind = given.get("rope_type") or given.get("type") or "default"
    return "default" if kind == "mrope" else kind


def _usual(config: Config, given: Config) -> Settings:
    """One for all layers or one for each type; what they leave out is in older keys of the file, or by default."""
    older = {key: config[key] for key in (_BASE, _SHARE) if config.get(key) is not None}
    if nested := {kind: {**older, **one} for kind, one in given.items() if isinstance(one, dict)}:
        return nested
    trained = {} if config.get(_TRAINED) is None else {_TRAINED: config[_TRAINED]}
    return {_ALL: {**older, **given, **trained}}


def _single(config: Config, given: Config) -> Config:
    """Of a family whose types of layers have none of their own."""
    if _ALL not in (made := _usual(config, given)):
        raise InvalidValueError(f"rope_parameters: expected one for all layers, got {', '.join(made)}")
    return made[_ALL]


def _two_bases(config: Config, given: Config) -> Settings:
    """Gemma 3, OLMo 3: the older keys scale full layers alone."""
    held, scaled = inner(config, "rope_parameters"), inner(config, "rope_scaling")
    if _kind(scaled) != (scaled.get("rope_type") or "default"):
        raise InvalidValueError(f"type: expected rope_type, got {shortened(scaled['type'])}")
    local = DEFAULTS["olmo3"] if config["model_type"] == "olmo3" else config
    return {
        FULL: {_BASE: config.get(_BASE), **inner(held, FULL), **scaled},
        SLIDING: {_BASE: local.get("rope_local_base_freq"), **inner(held, SLIDING)},
    }


def _by_type(config: Config, given: Config) -> Settings:
    """Gemma 4, MiMo: `rope_parameters` of each type alone; older keys have to agree."""
    share = DEFAULTS[str(config["model_type"])].get(_SHARE, 1.0)
    held = inner(config, "rope_parameters")
    made = {kind: {_SHARE: share, **inner(held, kind)} for kind in (FULL, SLIDING)}
    made = {kind: one if _kind(one) == "default" else inner(held, kind) for kind, one in made.items()}
    if _kind(scaled := inner(config, "rope_scaling")) != "default":
        raise InvalidValueError(f"rope_scaling: expected it within rope_parameters, got {shortened(scaled)}")
    older = {_BASE: made[FULL].get(_BASE), "swa_rope_theta": made[SLIDING].get(_BASE)}
    for key, right in (older | {_SHARE: made[FULL].get(_SHARE)}).items():
        if right is not None and (config.get(key) or right) != right:
            raise InvalidValueError(f"{key}: expected {right}, as in rope_parameters, got {config[key]!r}")
    return made


def _compressing(config: Config, given: Config) -> Settings:
    """DeepSeek V4: compressed layers have a base and a scaling of their own, without YaRN's gain."""
    size = integer(config, _SIZE)
    rotating = config.get("qk_rope_head_dim")
    share = 0.125 if rotating is None else integer(config, "qk_rope_head_dim") / size
    share = _or(config, _SHARE, share)
    main, packed = inner(given, "main"), inner(given, "compress")
    if not (main and packed):
        main, packed = {_BASE: config.get(_BASE)}, {**given, _BASE: config.get("compress_rope_theta")}
        packed |= {"attention_factor": 1.0} if _kind(packed) == "yarn" else {}
    main, packed = (
        {**one, _SIZE: int(size * _or(one, _SHARE, share)), _SHARE: None} for one in (main, packed)
    )
    return {SPARSE: packed, COMPRESSED: packed, SLIDING: main}


def _neox(config: Config, given: Config) -> Settings:
    return _usual({**config, _BASE: config.get("rotary_emb_base"), _SHARE: config.get("rotary_pct")}, given)


def _fixed(config: Config, given: Config) -> Settings:
    """GPT-J, CodeGen: base 10,000, and so many dimensions."""
    return {_ALL: {_BASE: 10_000.0, _SIZE: integer(config, "rotary_dim")}}


def _dimensions(config: Config, given: Config) -> Settings:
    """MiniMax M2: how many dimensions rotate, where the file has no share."""
    if config.get("rotary_dim") is None or _SHARE in given:
        return _usual(config, given)
    return _usual({**config, _SHARE: integer(config, "rotary_dim") / integer(config, _SIZE)}, given)


def _long(config: Config, given: Config) -> Settings:
    """Phi 3: older names of LongRoPE."""
    long = {"rope_type": "longrope"} if _kind(given) in ("su", "yarn") else {}
    return _usual(config, {**given, **long})


def _amplified(config: Config, given: Config) -> Settings:
    """Phi 3.5's experts: a gain for short texts and one for long ones, with the angles of short texts for all."""
    made = _single(config, given)
    if _kind(made) == "default":
        return {_ALL: made}
    if made.get("short_mscale") != made.get("long_mscale"):
        raise InvalidValueError(
            f"short_mscale: expected long_mscale = {shortened(made.get('long_mscale'))}, "
            f"got {shortened(made.get('short_mscale'))}"
        )
    return {
        _ALL: {**made, "attention_factor": made.get("short_mscale"), "long_factor": made.get("short_factor")}
    }


def _latent(config: Config, given: Config) -> Settings:
    """Mistral 4: a share of both parts of a head."""
    if inner(config, "rope_scaling"):
        raise InvalidValueError("rope_scaling: expected it within rope_parameters, got it by itself")
    both = integer(config, "qk_nope_head_dim") + integer(config, "qk_rope_head_dim")
    share = given.get(_SHARE, integer(config, "qk_rope_head_dim") / both)
    return _usual(config, {**given, _SIZE: config.get(_SIZE) or both, _SHARE: share})


def _by_layer(config: Config, given: Config) -> Settings:
    """Granite with windows: a base for each layer, 0 for none of the encoding."""
    made = _single(config, given)
    bases, types = config.get("layer_rope_theta"), config.get("layer_types") or ()
    if not isinstance(bases, list) or len(set(bases)) == 1:
        return {_ALL: {**made, _BASE: bases[0]} if isinstance(bases, list) else made}
    by_type = {kind: {base for base, of in zip(bases, types, strict=True) if of == kind} for kind in types}
    if any(len(found - {0}) > 1 for found in by_type.values()):
        raise InvalidValueError(f"layer_rope_theta: expected one base for each type of layers, got {bases}")
    return {kind: {**made, _BASE: base} for kind, found in by_type.items() for base in found - {0}}


_OWN: Mapping[str, Callable[[Config, Config], Settings]] = {
    **dict.fromkeys(("gemma3_text", "olmo3"), _two_bases),
    **dict.fromkeys(("gemma4_text", "mimo_v2_flash"), _by_type),
    **dict.fromkeys(("gpt_neox", "gpt_neox_japanese"), _neox),
    **dict.fromkeys(("gptj", "codegen"), _fixed),
    **dict.fromkeys(("granite_swa", "granitemoe_swa"), _by_layer),
    "deepseek_v4": _compressing,
    "minimax_m2": _dimensions,
    "phi3": _long,
    "phimoe": _amplified,
    "mistral4": _latent,
}


def rope_words(config: Config) -> str:
    """Base and scaling of rotary positions in words, for instance "base 10,000, yarn × 4".

    "" where nothing is given, and where types of layers differ.
    """
    given, *others = settings(config).values()
    if any(other != given for other in others):
        return ""
    base, kind = given.get(_BASE), _kind(given)
    words = [] if base is None else [f"base {_spelt(base)}"]
    if kind != "default":
        factor = given.get("factor")
        words.append(kind if factor is None else f"{kind} × {_spelt(factor)}")
    return ", ".join(words)


def rope_of(config: dict, amplitudes: Any, phases: Any = ((0.0,),), *, layer_type: str | None = None) -> RoPE:
    """The `RoPE` of a configuration, with amplitudes and phases that are given: no configuration holds them.

    `config` is the contents of a `config.json`, `layer_type` a word of its `layer_types` where those have settings
    of their own. Base, dimension and scaling are read as transformers reads them, with its angles up to float32.
    DeepSeek's factor on all logits beside YaRN's (`mscale_all_dim`) is a `Layer.temperature`, and not read. Raises
    `InvalidValueError` for keys that are missing or wrong and for a scaling that has no class here.
    """
    base, dimension, scaling = turning(config, layer_type)
    return RoPE(amplitudes, phases, base, dimension, scaling=scaling)


def turning(config: Config, layer_type: str | None) -> tuple[float, int, RopeScaling | None]:
    """Base, rotated dimensions and scaling of a type of layer. Raises `InvalidValueError` as `rope_of`."""
    made = settings(config)
    first, *others = made.values()
    alike = _ALL in made or (layer_type is None and all(one == first for one in others))
    given = first if alike else made.get(layer_type or "")
    if given is None:
        raise InvalidValueError(f"layer_type: expected one of {', '.join(sorted(made))}, got {layer_type!r}")
    size = given.get(_SIZE) or _head_size(_of_type(config, layer_type))
    share = 1.0 if given.get(_SHARE) is None else number(given, _SHARE)
    held = DEFAULTS.get(str(config.get("model_type")), {_SHARE: 1.0})
    kind = _kind(given)
    # a proportional scaling has angles for all dimensions, and turns a share of them; many models read a share
    # of scaled positions alone
    if kind == "proportional" or (kind == "default" and not held.keys() & {_SHARE, "rotary_pct"}):
        return _positive(given, _BASE), size, _scaling(given, config)
    return _positive(given, _BASE), int(size * share), _scaling(given, config)


def _scaling(given: Config, config: Config) -> RopeScaling | None:
    kind = _kind(given)
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(_positive(given, "factor"))
    if kind == "dynamic":
        return DynamicNTK(_positive(given, "factor"), _length(config))
    if kind == "proportional":
        share = 1.0 if given.get(_SHARE) is None else number(given, _SHARE)
        return ProportionalRoPE(share, _or(given, "factor", 1.0))
    if kind not in ("llama3", "yarn", "longrope", "su"):
        raise InvalidValueError(
            f"rope_type: {kind!r} given, default, linear, dynamic, yarn, llama3, longrope or proportional needed"
        )
    # transformers puts the configured length where the trained one is missing
    trained = _length(config) if given.get(_TRAINED) is None else integer(given, _TRAINED)
    if kind == "llama3":
        low, high = (_positive(given, f"{word}_freq_factor") for word in ("low", "high"))
        return Llama3Scaling(_positive(given, "factor"), trained, low, high)
    if kind == "yarn":
        return _yarn(given, trained, config)
    return _longrope(given, trained, config)


def _longrope(given: Config, trained: int, config: Config) -> LongRoPE:
    """The factor, where it is not given, is how much longer the configured length is than the trained one."""
    short, long = (_numbers(given, f"{word}_factor") for word in ("short", "long"))
    factor = _or(given, "factor", None) or _length(config) / trained
    attention = _or(given, "attention_factor", None)
    return LongRoPE(short, long, factor, trained, attention)


def _yarn(given: Config, trained: int, config: Config) -> YaRN:
    """`mscale` over `mscale_all_dim`, where both are there, makes the factor on queries and keys."""
    factor = _or(given, "factor", None) or _length(config) / trained
    attention = _or(given, "attention_factor", None)
    if attention is None and given.get("mscale") and given.get("mscale_all_dim"):
        above, below = (
            0.1 * number(given, key) * math.log(max(factor, 1.0)) + 1.0
            for key in ("mscale", "mscale_all_dim")
        )
        attention = above / below
    fast, slow = (float(given.get(key) or usual) for key, usual in (("beta_fast", 32.0), ("beta_slow", 1.0)))
    return YaRN(factor, trained, fast, slow, bool(given.get("truncate", True)), attention)


def _length(config: Config) -> int:
    """The length that is configured, or that of the family's class."""
    keys = (_LENGTH, "n_positions", "max_seq_len")
    return integer({_LENGTH: DEFAULTS.get(str(config.get("model_type")), {}).get(_LENGTH), **config}, *keys)


def _of_type(config: Config, layer_type: str | None) -> Config:
    """The configuration with what the first layer of a type has of its own."""
    types = config.get("layer_types") or []
    first = types.index(layer_type) if layer_type in types else 0
    own = {int(layer): one for layer, one in inner(config, "per_layer_config").items()}
    if config.get("model_type") == "gemma4_text" and layer_type == FULL and not own:
        own = {first: {_SIZE: config.get("global_head_dim", 512)}}
    return {**config, **own.get(first, {})}


def _head_size(config: Config) -> int:
    """Dimensions of a head that rotate where all do; latent attention has a part of its own for it."""
    if any(config.get(key) is not None for key in ("qk_rope_head_dim", "head_dim")):
        return integer(config, "qk_rope_head_dim", "head_dim")
    return integer(config, *WIDTH) // integer(config, *HEADS)


def _positive(given: Config, key: str) -> float:
    if not (found := number(given, key)):
        raise InvalidValueError(f"{key}: 0 given, a number above 0 needed")
    return found


def _or(given: Config, key: str, default: Any) -> Any:
    return default if given.get(key) is None else _positive(given, key)


def _numbers(given: Config, key: str) -> tuple[float, ...]:
    found = given.get(key)
    if not isinstance(found, list) or not found:
        raise InvalidValueError(f"{key}: {shortened(found)} given, a list of numbers above 0 needed")
    return tuple(_positive({key: one}, key) for one in found)


def _spelt(given: Any) -> str:
    return f"{given:,.10g}" if isinstance(given, int | float) else repr(given)
