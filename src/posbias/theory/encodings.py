"""`posbias.encodings`: every positional encoding, and the rotary positions that a model's own file states.

rotary_of(config)             # angles and gain, from the contents of a config.json
rope_of(config, amplitudes)   # the encoding that has them, with amplitudes that are measured or chosen
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError, shortened
from posbias.theory.distance import (
    T5,
    DenseLogits,
    DistanceFunction,
    KerpleLog,
    KerplePower,
    RoPE,
    Tabulated,
)
from posbias.theory.huggingface import read_keys
from posbias.theory.huggingface_families import (
    DEFAULTS,
    FULL,
    HEAD_SIZE,
    HEADS,
    LENGTH,
    OLDER_KINDS,
    PARTS,
    TRAINED,
    WIDTH,
    Config,
    in_todays_words,
    inner,
    integer,
    number,
    rope_settings,
)
from posbias.theory.positional import (
    POSITIONALS,
    ALiBi,
    DecayBias,
    NeedsMeasurement,
    NoPE,
    Positional,
    Sandwich,
    Selected,
    alibi_slopes,
)
from posbias.theory.rope_scaling import (
    DynamicNTK,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    ProportionalRoPE,
    RopeScaling,
    YaRN,
    plain_angles,
)

__all__ = [
    "POSITIONALS",
    "T5",
    "ALiBi",
    "DecayBias",
    "DenseLogits",
    "DistanceFunction",
    "KerpleLog",
    "KerplePower",
    "NeedsMeasurement",
    "NoPE",
    "Positional",
    "RoPE",
    "Rotary",
    "Sandwich",
    "Selected",
    "Tabulated",
    "alibi_slopes",
    "rope_of",
    "rotary_of",
]
_SHARE = "partial_rotary_factor"


class Rotary(NamedTuple):
    """Angles of rotary positions in radians per token, one per rotated pair, and the gain on queries and keys."""

    angles: Float[np.ndarray, "pair"]
    gain: float


def rotary_of(config: Mapping[str, Any], layer_type: str | None = None) -> Rotary:
    """Angles and gain of the rotary positions of a Hugging Face model, from the contents of its `config.json`.

    `layer_type` is a word of `layer_types` ("full_attention"), needed where types of layers differ. They are the
    `inv_freq` and `attention_scaling` of the model's rotary embedding in transformers, for a text within the
    trained length; what the file leaves out is the default of the family's class. Raises `InvalidValueError` for a
    family or a type of layers that does not rotate, keys that are wrong, and scalings that are not known.
    """
    read = read_keys(dict(config))
    kind = None if layer_type is None else OLDER_KINDS.get(layer_type, layer_type)
    if kind is not None and kind not in read.kinds:
        known = ", ".join(sorted(set(read.kinds)))
        raise InvalidValueError(f"layer_type: expected one of {known}, got {shortened(kind)}")
    encoded = {one for one, bare in zip(read.kinds, read.bare, strict=True) if not bare}
    encoded = {one for one in encoded if kind in (None, one) and (one not in PARTS or PARTS[one].encoded)}
    if not encoded or getattr(read.row.positional(read.config), "encoding", "") != "rotary":
        key, given = ("model_type", read.family) if kind is None else ("layer_type", kind)
        raise InvalidValueError(f"{key}: expected rotary positions, got {given} without")
    base, dimension, scaling = _rotation(read.config, kind)
    if scaling is None:
        return Rotary(plain_angles(base, dimension), 1.0)
    return Rotary(scaling.angles_of(base, dimension), math.sqrt(scaling.gain))


def rope_of(
    config: Config, amplitudes: Any, phases: Any = ((0.0,),), *, layer_type: str | None = None
) -> RoPE:
    """The `RoPE` of a configuration, with amplitudes and phases that are given: no configuration holds them.

    `config` and `layer_type` as in `rotary_of`, but no family fills in what is left out. DeepSeek's factor on all
    logits (`mscale_all_dim`) is a `Layer.temperature`, and not read. Raises `InvalidValueError` for keys that are
    missing or wrong and for a scaling that has no class here.
    """
    base, dimension, scaling = _rotation(in_todays_words(config), layer_type)
    return RoPE(amplitudes, phases, base, dimension, scaling=scaling)


def _rotation(config: Config, layer_type: str | None) -> tuple[float, int, RopeScaling | None]:
    """Base, rotated dimensions and scaling of a type of layers."""
    settings = rope_settings(config)
    first, *others = settings.values()
    alike = "" in settings or (layer_type is None and all(one == first for one in others))
    given = first if alike else settings.get(layer_type or "")
    if given is None:
        raise InvalidValueError(
            f"layer_type: expected one of {', '.join(sorted(settings))}, got {layer_type!r}"
        )
    size = given.get(HEAD_SIZE) or _head_size(config, layer_type)
    share = number(given, _SHARE, default=1.0)
    family, kind = DEFAULTS.get(str(config.get("model_type")), {_SHARE: 1.0}), given["rope_type"]
    base = number(given, "rope_theta", above=True)
    # a proportional scaling has angles for all dimensions, and turns a share of them; many models read a share
    # of scaled positions alone
    if kind != "proportional" and (kind != "default" or family.keys() & {_SHARE, "rotary_pct"}):
        size = int(size * share)
    return base, size, _scaling(given, config)


def _scaling(given: Config, config: Config) -> RopeScaling | None:
    kind = given["rope_type"]
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(number(given, "factor", above=True))
    if kind == "dynamic":
        return DynamicNTK(number(given, "factor", above=True), _length(config))
    if kind == "proportional":
        share = number(given, _SHARE, default=1.0)
        return ProportionalRoPE(share, number(given, "factor", above=True, default=1.0))
    if kind not in ("llama3", "yarn", "longrope", "su"):
        raise InvalidValueError(
            f"rope_type: expected default, linear, dynamic, yarn, llama3, longrope or proportional, got {kind!r}"
        )
    # transformers puts the configured length where the trained one is missing
    trained = _length(config) if given.get(TRAINED) is None else integer(given, TRAINED)
    if kind == "llama3":
        low, high = (number(given, f"{word}_freq_factor", above=True) for word in ("low", "high"))
        return Llama3Scaling(number(given, "factor", above=True), trained, low, high)
    # the factor, where it is not given, is how much longer the configured length is than the trained one
    long = None if given.get("factor") is None else number(given, "factor", above=True)
    factor = _length(config) / trained if long is None else long
    key = "attention_factor"
    gain = None if given.get(key) is None else number(given, key, above=True)
    if kind != "yarn":
        return LongRoPE(
            _numbers(given, "short_factor"), _numbers(given, "long_factor"), factor, trained, gain
        )
    if gain is None and given.get("mscale") and given.get("mscale_all_dim"):
        logs = (0.1 * number(given, key) * math.log(max(factor, 1.0)) for key in ("mscale", "mscale_all_dim"))
        above, below = (1.0 + log for log in logs)
        gain = above / below
    fast, slow = (float(given.get(key) or usual) for key, usual in (("beta_fast", 32.0), ("beta_slow", 1.0)))
    return YaRN(factor, trained, fast, slow, bool(given.get("truncate", True)), gain)


def _length(config: Config) -> int:
    """The length that is configured, or that of the family's class."""
    family = DEFAULTS.get(str(config.get("model_type")), {})
    given = config.get(LENGTH)
    return integer({LENGTH: family.get(LENGTH) if given is None else given}, LENGTH)


def _head_size(config: Config, layer_type: str | None) -> int:
    """Dimensions of a head that rotate where all do, in the first layer of a type.

    Latent attention has a part of its own for it.
    """
    types = config.get("layer_types") or []
    first = types.index(layer_type) if layer_type in types else 0
    own = {int(layer): one for layer, one in inner(config, "per_layer_config").items()}
    if config.get("model_type") == "gemma4_text" and layer_type == FULL and not own:
        own = {first: {HEAD_SIZE: config.get("global_head_dim", 512)}}
    config = {**config, **own.get(first, {})}
    for key in ("qk_rope_head_dim", HEAD_SIZE):
        if config.get(key) is not None:
            return integer(config, key)
    return integer(config, WIDTH) // integer(config, HEADS)


def _numbers(given: Config, key: str) -> tuple[float, ...]:
    listed = given.get(key)
    if not isinstance(listed, list) or not listed:
        raise InvalidValueError(f"{key}: expected a list of numbers > 0, got {shortened(listed)}")
    return tuple(number({key: one}, key, above=True) for one in listed)
