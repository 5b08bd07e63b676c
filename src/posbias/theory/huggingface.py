"""Architectures from a Hugging Face `config.json`.

What a configuration determines is read: depth, heads, windows by layer, ALiBi's slopes. A rotary or learned
encoding is not in it, and comes back as `NeedsMeasurement`. Families are data: a row says how one spells its
positions, and which of its layers slide where the file does not say so itself.
"""

import math
from collections.abc import Callable
from typing import Any

from posbias.errors import InvalidValueError, nearest
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.encodings import ALiBi, NeedsMeasurement, NoPE, Positional, alibi_slopes
from posbias.theory.masks import Causal, Mask, SlidingWindow


def _mpt(config: dict[str, Any]) -> Positional:
    attention = config.get("attn_config") or {}
    if not isinstance(attention, dict):
        raise InvalidValueError(f"attn_config: {attention!r} given, keys with values needed")
    if attention.get("prefix_lm"):
        raise InvalidValueError("attn_config.prefix_lm: true given, a causal model needed")
    if not _flag(attention, "alibi", True):
        return NeedsMeasurement("rotary" if _flag(attention, "rope", False) else "learned")
    bias_max = attention.get("alibi_bias_max", 8)
    if isinstance(bias_max, bool) or not isinstance(bias_max, int | float) or not 0 < bias_max <= 1000:
        raise InvalidValueError(
            f"attn_config.alibi_bias_max: {bias_max!r} given, a number from 0 to 1000 needed"
        )
    if bias_max == 8:
        return ALiBi()
    heads = _integer(config, "n_heads", "num_attention_heads")
    return ALiBi(tuple(alibi_slopes(heads, float(bias_max)).tolist()))


def _falcon(config: dict[str, Any]) -> Positional:
    if not _flag(config, "alibi", False):
        return NeedsMeasurement("rotary")
    heads, width = _integer(config, "num_attention_heads", "n_head"), _integer(config, "hidden_size")
    if width % heads:
        raise InvalidValueError(f"hidden_size: {width} given, a multiple of the {heads} heads needed")
    return ALiBi(scale=1.0 / math.sqrt(width // heads))


def _tiny(config: dict[str, Any]) -> Positional:
    """The small models that come along: an encoding by its word; a window is rotary."""
    words = {"alibi": ALiBi(), "nope": NoPE(), "learned": NeedsMeasurement("learned")}
    words |= dict.fromkeys(("rope", "window"), NeedsMeasurement("rotary"))
    if config.get("encoding") not in words:
        raise InvalidValueError(
            f"encoding: {config.get('encoding')!r} given, one of {', '.join(words)} needed"
        )
    return words[config["encoding"]]


def _flag(config: dict[str, Any], key: str, default: bool) -> bool:
    given = config.get(key, default)
    if not isinstance(given, bool):
        raise InvalidValueError(f"{key}: {given!r} given, true or false needed")
    return given


_ROTARY = (  # noqa: SIM905
    "llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 gemma3 gemma3_text phi phi3 olmo olmo2 "
    "olmo3 cohere cohere2 gpt_neox gptj stablelm starcoder2 smollm3 granite gpt_oss persimmon deepseek_v2 "
    "deepseek_v3 glm glm4 exaone4 codegen"
).split()

FAMILIES: dict[str, Callable[[dict[str, Any]], Positional]] = {
    "bloom": lambda config: ALiBi(),
    "mpt": _mpt,
    "falcon": _falcon,
    "RefinedWeb": _falcon,
    "RefinedWebModel": _falcon,
    "posbias_tiny": _tiny,
    **dict.fromkeys(_ROTARY, lambda config: NeedsMeasurement("rotary")),
}
"""Hugging Face `model_type` → how its configuration spells the positional encoding."""


def from_huggingface(config: dict[str, Any], name: str = "") -> Architecture:
    """Read depth, heads and positional encoding from the contents of a `config.json`.

    BLOOM and MPT add ALiBi after scaling, Falcon before it, so its slopes shrink by √d_head. Raises
    `InvalidValueError` for a family that is not known or a key that is missing.
    """
    family = config.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise InvalidValueError(
            f"model_type: {family!r} given, one of the known families needed{nearest(str(family), FAMILIES)}; "
            f"known: {', '.join(sorted(FAMILIES))}"
        )
    inner = config.get("text_config")
    if isinstance(inner, dict):
        config = {**config, **inner}
    depth = _integer(config, "num_hidden_layers", "n_layer", "n_layers")
    heads = _integer(config, "num_attention_heads", "n_head", "n_heads")
    positional = FAMILIES[family](config)
    masks = _masks(config, str(family), depth)
    rotated = _rotated(config, str(family), depth)
    stack = [
        Layer(heads=heads, mask=mask, positional=positional if turned else NoPE())
        for mask, turned in zip(masks, rotated, strict=True)
    ]
    return Architecture(depth=depth, layers=shortest_pattern(stack), name=name or str(family))


_LOCAL = {  # model_type → which layers (from 0) a configuration without layer_types makes sliding
    "mistral": lambda t, config: True,
    "posbias_tiny": lambda t, config: True,
    "mixtral": lambda t, config: True,
    "phi3": lambda t, config: True,
    "starcoder2": lambda t, config: True,
    "gemma2": lambda t, config: t % 2 == 0,
    "gemma3": lambda t, config: (t + 1) % (config.get("sliding_window_pattern") or 6) != 0,
    "gemma3_text": lambda t, config: (t + 1) % (config.get("sliding_window_pattern") or 6) != 0,
    "cohere2": lambda t, config: (t + 1) % (config.get("sliding_window_pattern") or 4) != 0,
    "gpt_oss": lambda t, config: t % 2 == 0,
    "olmo3": lambda t, config: (t + 1) % 4 != 0,
    **dict.fromkeys(
        ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
        lambda t, config: bool(config.get("use_sliding_window")) and t >= config.get("max_window_layers", 0),
    ),
}


def _masks(config: dict[str, Any], family: str, depth: int) -> list[Mask]:
    """The mask of each layer: sliding where the configuration says so (`layer_types`, or its family's rule)."""
    window = config.get("sliding_window")
    types = config.get("layer_types")
    if types is not None and len(types) != depth:
        raise InvalidValueError(f"layer_types: {len(types)} given, {depth} (one per layer) needed")
    if not window or config.get("use_sliding_window") is False:
        return [Causal()] * depth
    local = SlidingWindow(_integer(config, "sliding_window"))
    if types is not None:
        return [local if kind == "sliding_attention" else Causal() for kind in types]
    rule = _LOCAL.get(family)
    return [local if rule is not None and rule(t, config) else Causal() for t in range(depth)]


def _rotated(config: dict[str, Any], family: str, depth: int) -> list[bool]:
    """Which layers use the positional encoding: all, but for families with NoPE layers between."""
    given = config.get("no_rope_layers")
    if given:
        if len(given) != depth:
            raise InvalidValueError(f"no_rope_layers: {len(given)} given, {depth} (one per layer) needed")
        return [bool(flag) for flag in given]
    every = config.get("no_rope_layer_interval") or (4 if family == "smollm3" else None)
    return [every is None or (t + 1) % every != 0 for t in range(depth)]


def _integer(config: dict[str, Any], *keys: str) -> int:
    """The first of `keys` that the configuration holds, as an integer of at least one."""
    for key in keys:
        if config.get(key) is not None:
            if isinstance(config[key], bool) or not isinstance(config[key], int) or config[key] < 1:
                raise InvalidValueError(f"{key}: {config[key]!r} given, an integer ≥ 1 needed")
            return config[key]
    raise InvalidValueError(
        f"key {keys[0]!r} is missing (or its older spelling {', '.join(keys[1:]) or '–'})"
    )
