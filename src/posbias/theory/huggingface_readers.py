"""What one configuration says of its layers: positions, masks, which slide, what logits are multiplied by.

`huggingface_families` says which of these a family is read by.
"""

import math
from collections.abc import Callable

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError
from posbias.theory import huggingface_layers as layers
from posbias.theory.huggingface_keys import Config, flag, inner, integer, number
from posbias.theory.huggingface_rope import rope_words, settings
from posbias.theory.masks import Causal, Full, Mask
from posbias.theory.positional import ALiBi, NeedsMeasurement, NoPE, Positional, alibi_slopes
from posbias.theory.query_scale import QueryScale, StepScale

# --- positional encodings ----------------------------------------------------------------------------------


def mpt(config: Config) -> Positional:
    """MPT: ALiBi unless a flag takes it away, then rotary or learned positions."""
    attention = inner(config, "attn_config")
    if attention.get("prefix_lm"):
        raise InvalidValueError("attn_config.prefix_lm: true given, a causal model needed")
    if not flag(attention, "alibi", True):
        return rotary(config) if flag(attention, "rope", False) else learned(config)
    bias_max = attention.get("alibi_bias_max", 8)
    if isinstance(bias_max, bool) or not isinstance(bias_max, int | float) or not 0 < bias_max <= 1000:
        raise InvalidValueError(
            f"attn_config.alibi_bias_max: {shortened(bias_max)} given, a number from 0 to 1000 needed"
        )
    if bias_max == 8:
        return ALiBi()
    heads = integer(config, "n_heads", "num_attention_heads")
    return ALiBi(tuple(alibi_slopes(heads, float(bias_max)).tolist()))


def falcon(config: Config) -> Positional:
    """Falcon: rotary, or by a flag ALiBi, added before logits are scaled."""
    if not flag(config, "alibi", False):
        return rotary(config)
    heads, width = integer(config, "num_attention_heads", "n_head"), integer(config, "hidden_size")
    if width % heads:
        raise InvalidValueError(f"hidden_size: {width} given, a multiple of the {heads} heads needed")
    return ALiBi(scale=1.0 / math.sqrt(width // heads))


def tiny(config: Config) -> Positional:
    """The small models that come along: an encoding by its word; a window is rotary."""
    words: dict[str, Positional] = {"alibi": ALiBi(), "nope": NoPE(), "learned": learned(config)}
    words |= dict.fromkeys(("rope", "window"), rotary(config))
    if config.get("encoding") not in words:
        raise InvalidValueError(
            f"encoding: {config.get('encoding')!r} given, one of {', '.join(words)} needed"
        )
    return words[str(config["encoding"])]


def rotary(config: Config) -> Positional:
    """Rotary positions: what they do needs measurement."""
    return NeedsMeasurement("rotary", positions(config), rope_words(config))


def learned(config: Config) -> Positional:
    """A vector for each position, added to the token's: what it does needs measurement."""
    return NeedsMeasurement("learned", positions(config))


def positions(config: Config) -> int | None:
    """How many positions a model has or is configured for; None where its configuration does not say."""
    keys = ("n_positions", "max_position_embeddings", "max_seq_len")
    return integer(config, *keys) if any(config.get(key) is not None for key in keys) else None


def unencoded(config: Config) -> Positional:
    """No encoding in any layer."""
    return NoPE()


# --- which way it looks --------------------------------------------------------------------------------------


def earlier(config: Config) -> Mask:
    """Every token before, as most models see."""
    return Causal()


def both_ways(config: Config) -> Mask:
    """BERT and its kin: encoders, unless `is_decoder` says otherwise."""
    return Causal() if flag(config, "is_decoder", False) else Full()


def absolute(config: Config) -> Positional:
    """BERT and its kin: a vector for each position, or another kind by its name."""
    kind = config.get("position_embedding_type") or "absolute"
    return learned(config) if kind == "absolute" else NeedsMeasurement(str(kind), positions(config))


# --- which layers slide, and which have no encoding ---------------------------------------------------------


def all_slide(t: int, config: Config) -> bool:
    """Every layer slides."""
    return True


def but_every(period: int) -> Callable[[int, Config], bool]:
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


def global_every(t: int, config: Config) -> bool:
    """AFMoE: all layers slide but every so-many-th, as another key says."""
    return (t + 1) % integer({"global_attn_every_n_layers": 4, **config}, "global_attn_every_n_layers") != 0


def from_layer(t: int, config: Config) -> bool:
    """Qwen 2 and 3: upper layers slide, from `max_window_layers` on."""
    return t >= (integer(config, "max_window_layers") if config.get("max_window_layers") else 0)


def even_below(t: int, config: Config) -> bool:
    """Qwen 2's experts: every other layer slides, below `max_window_layers`."""
    return t % 2 == 0 and t < integer(config, "max_window_layers")


def no_base(slides: bool, t: int, config: Config) -> bool:
    """Granite with windows: layers whose rotary base is 0; OLMo's hybrid: all where there is no base."""
    bases, depth = config.get("layer_rope_theta"), integer(config, "num_hidden_layers")
    if bases is None:
        return settings(config).get("", config).get("rope_theta") is None
    if not isinstance(bases, list) or len(bases) != depth:
        raise InvalidValueError(f"layer_rope_theta: expected {depth} numbers, got {shortened(bases)}")
    return not bases[t]


def full_layers(slides: bool, t: int, config: Config) -> bool:
    """EXAONE 4: layers that see everything have no encoding, where others slide."""
    return not slides and bool(config.get("sliding_window"))


def listed(slides: bool, t: int, config: Config) -> bool:
    """Llama 4, SmolLM 3: see `huggingface_layers.bare`."""
    return layers.bare(t, integer(config, "num_hidden_layers"), config)


# --- what logits are multiplied by, query by query ----------------------------------------------------------


def no_scale(config: Config, bare: bool) -> QueryScale | None:
    """Nothing multiplies the logits."""
    return None


def tuned(config: Config, bare: bool) -> QueryScale | None:
    """Llama 4: in layers without an encoding, unless `attn_temperature_tuning` says no."""
    if not bare or not config.get("attn_temperature_tuning"):
        return None
    return StepScale(number(config, "attn_scale"), integer(config, "floor_scale"))


def beyond_training(config: Config, bare: bool) -> QueryScale | None:
    """Ministral 3, Mistral 4: beyond the length of their first training; positions count from 0 there."""
    by_kind = settings(config)
    if "" not in by_kind:
        raise InvalidValueError(f"rope_parameters: expected one for all layers, got {', '.join(by_kind)}")
    given = by_kind[""]
    if given.get("llama_4_scaling_beta") is None:
        return None
    return StepScale(
        number(given, "llama_4_scaling_beta"), integer(given, "original_max_position_embeddings"), first=0
    )
