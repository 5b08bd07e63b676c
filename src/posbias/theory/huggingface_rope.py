"""Rotary positions of a Hugging Face `config.json`: base, scaling and dimension; in words, or as a `RoPE`.

`rope_parameters` holds them, or the older `rope_theta` and `rope_scaling`; a type of
layers may have its own.
"""

import math
from collections.abc import Iterator
from typing import Any

from posbias.arguments import shortened
from posbias.errors import InvalidValueError
from posbias.signatures import typed
from posbias.theory.distance import RoPE
from posbias.theory.huggingface_keys import Config, inner, integer, number
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


def check_types(config: Config) -> None:
    """Raises `InvalidValueError` for a scaling whose name is not known."""
    for given in _settings(config):
        kind = given.get("rope_type", given.get("type"))
        if kind is not None and kind not in ROPE_TYPES:
            raise InvalidValueError(f"rope_type: {kind!r} given, one of {', '.join(ROPE_TYPES)} needed")


def rope_words(config: Config) -> str:
    """Base and scaling of rotary positions in words, for instance "base 10,000, yarn × 4".

    "" where nothing is given, and where types of layers have bases of their own.
    """
    given = next(_settings(config))
    if "rope_local_base_freq" in config or any(isinstance(one, dict) for one in given.values()):
        return ""
    base, kind = given.get("rope_theta", config.get("rope_theta")), given.get("rope_type", given.get("type"))
    words = [] if base is None else [f"base {_spelt(base)}"]
    if kind not in (None, "default"):
        factor = given.get("factor")
        words.append(str(kind) if factor is None else f"{kind} × {_spelt(factor)}")
    return ", ".join(words)


@typed
def rope_of(config: dict, amplitudes: Any, phases: Any = ((0.0,),), *, layer_type: str | None = None) -> RoPE:
    """The `RoPE` of a configuration, with amplitudes and phases that are given: no configuration holds them.

    `config` is the contents of a `config.json`, `layer_type` a word of its `layer_types` where those have settings
    of their own. Base, dimension and scaling are read as transformers reads them, with its angles up to float32.
    DeepSeek's factor on all logits beside YaRN's (`mscale_all_dim`) is a `Layer.temperature`, and not read. Raises
    `InvalidValueError` for keys that are missing or wrong and for a scaling that has no class here.
    """
    given = next(_settings(config))
    if layer_type is not None:
        given = inner(given, layer_type)
    elif any(isinstance(one, dict) for one in given.values()):
        raise InvalidValueError(
            "layer_type: none given, one of "
            + ", ".join(sorted(key for key, one in given.items() if isinstance(one, dict)))
            + " needed"
        )
    found: dict[str, Any] = {key: config.get(key) for key in ("rope_theta", "partial_rotary_factor")}
    found |= {key: one for key, one in given.items() if one is not None}
    base = _positive(found, "rope_theta")
    share = number(found, "partial_rotary_factor") if found.get("partial_rotary_factor") is not None else 1.0
    size = _head_size(_of_type(config, layer_type))
    # a proportional scaling has angles for all dimensions, and turns a share of them
    turning = size if found.get("rope_type", found.get("type")) == "proportional" else int(size * share)
    return RoPE(amplitudes, phases, base, turning, scaling=_scaling(found, config))


def _scaling(given: Config, config: Config) -> RopeScaling | None:
    kind = given.get("rope_type", given.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(_positive(given, "factor"))
    if kind == "dynamic":
        return DynamicNTK(_positive(given, "factor"), integer(config, _LENGTH))
    if kind == "proportional":
        share = (
            number(given, "partial_rotary_factor") if given.get("partial_rotary_factor") is not None else 1.0
        )
        return ProportionalRoPE(share, _positive(given, "factor") if "factor" in given else 1.0)
    if kind not in ("llama3", "yarn", "longrope", "su"):
        raise InvalidValueError(
            f"rope_type: {kind!r} given, default, linear, dynamic, yarn, llama3, longrope or proportional needed"
        )
    # transformers puts the configured length where the trained one is missing
    trained = integer(
        {_TRAINED: config.get(_TRAINED), **given, _LENGTH: config.get(_LENGTH)}, _TRAINED, _LENGTH
    )
    if kind == "llama3":
        low, high = (_positive(given, f"{word}_freq_factor") for word in ("low", "high"))
        return Llama3Scaling(_positive(given, "factor"), trained, low, high)
    if kind == "yarn":
        return _yarn(given, trained, config)
    return _longrope(given, trained, config)


def _longrope(given: Config, trained: int, config: Config) -> LongRoPE:
    """The factor, where it is not given, is how much longer the configured length is than the trained one."""
    short, long = (_numbers(given, f"{word}_factor") for word in ("short", "long"))
    factor = _positive(given, "factor") if "factor" in given else integer(config, _LENGTH) / trained
    attention = _positive(given, "attention_factor") if "attention_factor" in given else None
    return LongRoPE(short, long, factor, trained, attention)


def _yarn(given: Config, trained: int, config: Config) -> YaRN:
    """`mscale` over `mscale_all_dim`, where both are there, makes the factor on queries and keys."""
    factor = _positive(given, "factor") if "factor" in given else integer(config, _LENGTH) / trained
    attention = _positive(given, "attention_factor") if "attention_factor" in given else None
    if attention is None and given.get("mscale") and given.get("mscale_all_dim"):
        above, below = (
            0.1 * number(given, key) * math.log(max(factor, 1.0)) + 1.0
            for key in ("mscale", "mscale_all_dim")
        )
        attention = above / below
    fast, slow = (float(given.get(key) or usual) for key, usual in (("beta_fast", 32.0), ("beta_slow", 1.0)))
    return YaRN(factor, trained, fast, slow, bool(given.get("truncate", True)), attention)


def _settings(config: Config) -> Iterator[Config]:
    """The settings of rotary positions: of all layers, then those of types of layers that have their own."""
    given = {**inner(config, "rope_parameters"), **inner(config, "rope_scaling")}
    yield given
    yield from (one for one in given.values() if isinstance(one, dict))


def _of_type(config: Config, layer_type: str | None) -> Config:
    """The configuration with what the first layer of a type has of its own."""
    types = config.get("layer_types") or []
    first = types.index(layer_type) if layer_type in types else 0
    own = {int(layer): one for layer, one in inner(config, "per_layer_config").items()}
    return {**config, **own.get(first, {})}


def _head_size(config: Config) -> int:
    """Dimensions of a head that rotate where all do; latent attention has a part of its own for it."""
    if any(config.get(key) is not None for key in ("qk_rope_head_dim", "head_dim")):
        return integer(config, "qk_rope_head_dim", "head_dim")
    return integer(config, "hidden_size") // integer(config, "num_attention_heads")


def _positive(given: Config, key: str) -> float:
    if not (found := number(given, key)):
        raise InvalidValueError(f"{key}: 0 given, a number above 0 needed")
    return found


def _numbers(given: Config, key: str) -> tuple[float, ...]:
    found = given.get(key)
    if not isinstance(found, list) or not found:
        raise InvalidValueError(f"{key}: {shortened(found)} given, a list of numbers above 0 needed")
    return tuple(_positive({key: one}, key) for one in found)


def _spelt(given: Any) -> str:
    return f"{given:,.10g}" if isinstance(given, int | float) else repr(given)
