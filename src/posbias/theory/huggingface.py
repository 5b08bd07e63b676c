"""Architectures from a Hugging Face `config.json`.

What a configuration determines is read: depth, heads, key-value heads, windows by layer, ALiBi's slopes, layers
without encoding. A rotary or learned encoding is not in it, and comes back as `NeedsMeasurement`. Every other key
that concerns positions, masks or residuals is named in a remark or refused, never passed over. What a family is,
is data (`huggingface_families`); what a file leaves out is the default of its family's class in transformers.
"""

import math
import re
from collections import Counter
from dataclasses import replace
from typing import Any

from posbias.core import plugins
from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, nearest
from posbias.core.spec import MOST_LAYERS
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.huggingface_direction import PREFIXED, check_classes, not_causal
from posbias.theory.huggingface_families import CONTAINERS, FAMILIES, Family
from posbias.theory.huggingface_key_heads import key_heads
from posbias.theory.huggingface_keys import DEFAULTS, DEPTH, HEADS, Config, completed, inner, integer
from posbias.theory.huggingface_layers import CHUNKED, FULL, OLDER, SLIDING, rotating
from posbias.theory.huggingface_plugins import plugged
from posbias.theory.huggingface_readers import both_ways
from posbias.theory.huggingface_rope import turning
from posbias.theory.masks import Full, Mask, SlidingWindow
from posbias.theory.positional import NeedsMeasurement, NoPE, Positional, Rotary
from posbias.theory.rope_scaling import plain_angles

_CONCERNS = re.compile(
    r"alibi|window|prefix_lm|bidirectional|attention_chunk|layer_types|block_type|sink|no_?rope|nope|"
    r"local_attention|global_attn|attention_types?$|position_embedding_type|relative_attention|^residual|"
    r"parallel_(attn|residual)|softcap|is_causal|kv_lora_rank|per_layer_input$"
)
"""Keys that concern positions, masks or residuals."""
_USED = {
    *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "no_rope_layers"),
    *(
        "no_rope_layer_interval",
        "attention_chunk_size",
        "sliding_window_pattern",
        "_sliding_window_pattern",
        "global_attn_every_n_layers",
    ),
}
_INERT = {
    "mlp_layer_types",
    "mtp_layers_block_type",
    "hybrid_override_pattern",
    "vocab_size_per_layer_input",
    "hc_sinkhorn_iters",
    "qk_nope_head_dim",
    "residual_dropout",
    "final_logit_softcapping",
}
"""Keys that match and say nothing of attention."""
_EFFECTS = {
    "residual_multiplier": "scales every update, which changes λ alone",
    "use_parallel_residual": "attention and feed-forward read the same stream, which changes λ alone",
    "parallel_attn": "attention and feed-forward read the same stream, which changes λ alone",
    "hidden_size_per_layer_input": "every layer adds a vector of the token itself, which changes λ alone",
    "kv_lora_rank": "latent attention, which acts through queries and keys",
    "attn_logit_softcapping": "caps attention logits by a tanh, which acts on content; left out",
}
_OWN_MASKS = ("mpt", "openai-gpt")
"""Families whose models do not read `is_causal`."""


def from_huggingface(config: dict[str, Any], name: str = "") -> Architecture:
    """Read depth, heads, masks and positional encoding from the contents of a `config.json`.

    BLOOM and MPT add ALiBi after scaling, Falcon before it, so its slopes shrink by √d_head. `remarks` name what
    the file or the family has beside this, and what layers are taken as that are no softmax over earlier tokens
    (`huggingface_layers`). Raises `InvalidValueError` for a family that is not known, a key that
    is missing, and a mask or a kind of layer that is not predicted.
    """
    container = config.get("model_type")
    family, config, remarks = _text(config)
    row = FAMILIES.get(family) or plugged(family)
    if not isinstance(row, Family):
        return row(config, name or family)
    config, filled = _whole(config, row)
    kinds, bare = _stack(config, row)
    heads = integer(config, *HEADS, most=MOST_LAYERS)
    said = (DEPTH[0], HEADS[0], *(["sliding_window"] if SLIDING in kinds else []))
    remarks += [
        f"{key}: {filled[key]}, the default of {family}; the configuration does not say"
        for key in said
        if key in filled
    ]
    made = {each: _layer(config, row, family, heads, *each) for each in set(zip(kinds, bare, strict=True))}
    stack = [made[each] for each in zip(kinds, bare, strict=True)]
    if row.mask is not both_ways and (key := not_causal(config, container)):
        if {*kinds} != {FULL} or family in _OWN_MASKS:
            given = shortened(container if key == "model_type" else config[key])
            raise InvalidValueError(
                f"{key}: expected a causal model, got {given}; {family}'s layers are not predicted both ways"
            )
        stack = [replace(layer, mask=Full()) for layer in stack]
    remarks += [*_taken(config, row, kinds), *row.remarks]
    remarks += _unread(config, family, row, SLIDING in kinds)
    return Architecture(
        depth=len(stack),
        layers=shortest_pattern(stack),
        name=name or family,
        remarks=tuple(dict.fromkeys(remarks)),
    )


def rotary(config: dict[str, Any], layer_type: str | None) -> Rotary:
    """See `posbias.encodings.rotary_of`."""
    family, config, _ = _text(config)
    row = FAMILIES.get(family)
    if row is None:
        raise InvalidValueError(f"model_type: expected a family of posbias's own, got {family!r}")
    config, _ = _whole(config, row)
    kinds, bare = _stack(config, row)
    layer_type = OLDER.get(layer_type, layer_type) if layer_type is not None else None
    if layer_type is not None and layer_type not in kinds:
        raise InvalidValueError(
            f"layer_type: expected one of {', '.join(sorted(set(kinds)))}, got {shortened(layer_type)}"
        )
    encodings = [
        row.positional(config)
        for kind, without in zip(kinds, bare, strict=True)
        if layer_type in (None, kind) and not without and (kind not in row.parts or row.parts[kind].encoded)
    ]
    if not any(isinstance(one, NeedsMeasurement) and one.encoding == "rotary" for one in encodings):
        raise InvalidValueError(
            f"{'model_type' if layer_type is None else 'layer_type'}: expected rotary positions, "
            f"got {family if layer_type is None else layer_type} without"
        )
    base, dimension, scaling = turning(config, layer_type)
    if scaling is None:
        return Rotary(plain_angles(base, dimension), 1.0)
    return Rotary(scaling.angles_of(base, dimension), math.sqrt(scaling.gain))


def _whole(config: dict[str, Any], row: Family) -> tuple[dict[str, Any], Config]:
    """A configuration in today's words, with what its family fills in, and what that is."""
    config, filled = completed(config, {**DEFAULTS.get(config["model_type"], {}), **row.defaults})
    return (config if row.spelt is None else dict(row.spelt(config))), filled


def _stack(config: Config, row: Family) -> tuple[list[str], list[bool]]:
    """What each layer is, and whether it has no positional encoding."""
    depth = integer(config, *DEPTH, most=MOST_LAYERS)
    kinds = _kinds(config, row, depth, _window(config))
    rotating(config, depth)
    rule = row.bare
    return kinds, [rule is not None and rule(kind == SLIDING, t, config) for t, kind in enumerate(kinds)]


def _text(config: dict[str, Any]) -> tuple[str, dict[str, Any], list[str]]:
    """The family of a configuration's text, the keys that are about it, and what is to be said of that."""
    family = config.get("model_type")
    if not isinstance(family, str):
        raise InvalidValueError(f"model_type: {family!r} given, the name of a family needed")
    text = inner(config, "text_config")
    remarks: list[str] = []
    whole = config
    if text or family in CONTAINERS:
        own = text.get("model_type", CONTAINERS.get(str(family), family))
        config = {**{k: v for k, v in config.items() if k != "text_config"}, **text, "model_type": own}
        if own != family:
            remarks.append(f"{family}: text alone is meant, its part of family {own}")
        if family == PREFIXED:
            remarks.append(f"{family}: the whole prompt is a prefix, in which every token sees every other")
        family = own
    if not isinstance(family, str) or (family not in FAMILIES and family not in plugins.names()):
        raise InvalidValueError(_unknown(str(family), config))
    if family in FAMILIES:
        encoder = FAMILIES[family].mask is both_ways
        for keys in (whole, text):
            check_classes(keys, (str(whole["model_type"]), family), encoder)
    return family, config, remarks


def _unknown(family: str, config: Config) -> str:
    """That a family is not known, and the file of one's own that would say what its models are."""
    known = {*FAMILIES, *CONTAINERS, *plugins.names()}
    counts = [
        next((config[key] for key in keys if isinstance(config.get(key), int)), f"<{keys[0]}>")
        for keys in (DEPTH, HEADS)
    ]
    lines = (
        f"depth = {counts[0]}",
        "[[layers]]",
        f"heads = {counts[1]}",
        'positional = {kind = "needs_measurement", encoding = "rotary"}',
    )
    return (
        f"model_type: {family!r} given, none of the {len(known)} known families{nearest(family, known)}; say what "
        f"its models are in a file own.toml and predict that: {' | '.join(lines)} (a line each; mask = {{kind = "
        '"sliding_window", width = …} where it is not causal, a [[layers]] for each layer of the pattern)'
    )


def _window(config: Config) -> int | None:
    """The width of sliding layers; None without. MPT's stands in `attn_config`, where −1 is none."""
    flag = "use_sliding_window"
    if flag in DEFAULTS.get(config["model_type"], config) and not config.get(flag):
        return None
    attention = inner(config, "attn_config")
    if attention.get("sliding_window_size") not in (None, -1):
        return integer(attention, "sliding_window_size")
    return integer(config, "sliding_window") if config.get("sliding_window") else None


def _kinds(config: Config, row: Family, depth: int, width: int | None) -> list[str]:
    """What each layer is: what the configuration lists (`layer_types`), else its family's rule."""
    types = config.get("layer_types")
    if types is not None:
        if not isinstance(types, list) or len(types) != depth:
            given = len(types) if isinstance(types, list) else repr(types)
            raise InvalidValueError(f"layer_types: {given} given, a list of {depth} (one per layer) needed")
        types = [OLDER.get(kind, kind) if isinstance(kind, str) else kind for kind in types]
        known = (FULL, SLIDING, *row.parts)
        for kind in types:
            if kind not in known:
                raise InvalidValueError(
                    f"layer_types: {shortened(kind)} given, {' or '.join(known)} needed; other layers are not "
                    "predicted"
                )
    if types is not None and row.reads_types:
        key = "use_sliding_window"
        if SLIDING in types and key in DEFAULTS.get(config["model_type"], {}) and not config.get(key):
            raise InvalidValueError(
                f"layer_types: expected no {SLIDING} where {key} is off, got {types.count(SLIDING)}"
            )
        return [FULL if kind == SLIDING and width is None else kind for kind in types]
    if width is None:
        return [FULL] * depth
    if inner(config, "attn_config").get("sliding_window_size") not in (None, -1):
        return [SLIDING] * depth
    return [SLIDING if row.slides is not None and row.slides(t, config) else FULL for t in range(depth)]


def _layer(config: Config, row: Family, family: str, heads: int, kind: str, bare: bool) -> Layer:
    """A layer of one kind, without an encoding where it is `bare`."""
    part, also = row.parts.get(kind), row.beside(config)
    width = _window(config)
    mask: Mask = SlidingWindow(width) if kind == SLIDING and width is not None else row.mask(config)
    positional = NoPE() if bare or not (part is None or part.encoded) else row.positional(config)
    if part is not None:
        unknown = part.words(config)[1]
        mask, also = part.mask(config), (*([unknown] if unknown else []), *also)
    return Layer(
        heads=heads,
        mask=mask,
        positional=_with_unknown(positional, tuple(also)),
        groups=key_heads(config, family, kind, heads),
        query_scale=row.scale(config, bare),
    )


def _with_unknown(positional: Positional, also: tuple[str, ...]) -> Positional:
    """An encoding, and what else is not known of a layer that has it."""
    if not also:
        return positional
    if isinstance(positional, NeedsMeasurement):
        return replace(positional, also=also)
    return NeedsMeasurement("", also=also)


def _taken(config: Config, row: Family, kinds: list[str]) -> list[str]:
    """A line for each kind of layer that is no softmax over earlier tokens: how many, and what it is taken as."""
    counts = Counter(kind for kind in kinds if kind in row.parts)
    return [
        f"{kind} ({count} of {len(kinds)} layers): {row.parts[kind].words(config)[0]}"
        for kind, count in counts.items()
    ]


def _unread(config: Config, family: str, row: Family, slides: bool) -> list[str]:
    """A remark for every key on positions, masks or residuals that is not used; unknown masks are refused."""
    key = "attention_chunk_size"
    if config.get(key) is not None and CHUNKED not in row.parts and key not in row.unused:
        raise InvalidValueError(
            f"{key}: expected null, got {shortened(config[key])}; such a mask is not predicted"
        )
    told = []
    for key, given in config.items():
        if not given or not _CONCERNS.search(key) or key in _INERT or key in row.unused:
            continue
        if isinstance(given, float) and given == 1.0:  # a factor that does nothing
            continue
        if key in _EFFECTS:
            told.append(f"{key} = {given}: {_EFFECTS[key]}")
        elif key == "layer_types":
            if not row.reads_types and any((kind == SLIDING) != slides for kind in config["layer_types"]):
                told.append(f"layer_types is in the configuration, and not read for family {family}")
        elif row.reads(key):
            continue
        elif key not in _USED or (key in ("no_rope_layers", "no_rope_layer_interval") and row.bare is None):
            told.append(f"{key} = {_brief(given)} is in the configuration, and not read for family {family}")
    if slides and config.get("use_sliding_window") is False:
        told.append(f"use_sliding_window = False is in the configuration, and not read for family {family}")
    if (
        not row.reads_types
        and row.slides is None
        and config.get("sliding_window")
        and config.get("use_sliding_window") is not False
    ):
        told.append(f"sliding_window = {config['sliding_window']} is not used by models of family {family}")
    return told


def _brief(given: Any) -> str:
    words = repr(given)
    return words if len(words) <= 60 else f"{words[:57]}..."
