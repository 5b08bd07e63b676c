"""Architectures from a Hugging Face `config.json`.

What a configuration determines is read: depth, heads, windows by layer, ALiBi's slopes, layers without encoding. A
rotary or learned encoding is not in it, and comes back as `NeedsMeasurement`. Every other key that concerns
positions, masks or residuals is named in a remark or refused, never passed over. What a family is, is data
(`huggingface_families`).
"""

import json
import re
from typing import Any

from posbias.arguments import shortened
from posbias.errors import InvalidValueError, nearest
from posbias.spec import MOST_LAYERS
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.encodings import NoPE
from posbias.theory.huggingface_families import CONTAINERS, FAMILIES, Config, Family, inner, integer
from posbias.theory.masks import Causal, Mask, SlidingWindow

FULL, SLIDING = "full_attention", "sliding_attention"
"""The words of `layer_types` that are understood."""


_CONCERNS = re.compile(
    r"alibi|window|prefix_lm|bidirectional|attention_chunk|layer_types|block_type|sink|no_?rope|nope|"
    r"local_attention|global_attn|attention_types?$|position_embedding_type|relative_attention|^residual|"
    r"parallel_(attn|residual)|softcap|is_causal"
)
"""Keys that concern positions, masks or residuals."""
_USED = {
    *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "no_rope_layers"),
    *(
        "no_rope_layer_interval",
        "sliding_window_pattern",
        "_sliding_window_pattern",
        "global_attn_every_n_layers",
    ),
}
_INERT = {
    "mlp_layer_types",
    "qk_nope_head_dim",
    "residual_dropout",
    "final_logit_softcapping",
}
"""Keys that match and say nothing of attention."""
_EFFECTS = {
    "residual_multiplier": "scales every update, which changes λ alone",
    "use_parallel_residual": "attention and feed-forward read the same stream, which changes λ alone",
    "parallel_attn": "attention and feed-forward read the same stream, which changes λ alone",
    "attn_logit_softcapping": "caps attention logits by a tanh, which acts on content; left out",
}
_REFUSED = {"attention_chunk_size": None, "use_bidirectional_attention": False, "is_causal": True}
"""Keys of masks that are not predicted → what would be right."""


def from_huggingface(config: dict[str, Any], name: str = "") -> Architecture:
    """Read depth, heads, masks and positional encoding from the contents of a `config.json`.

    BLOOM and MPT add ALiBi after scaling, Falcon before it, so its slopes shrink by √d_head. `remarks` name what
    the file or the family has beside this. Raises `InvalidValueError` for a family that is not known, a key that
    is missing, and a mask or a kind of layer that is not predicted.
    """
    family, config, remarks = _text(config)
    row = FAMILIES[family]
    missing = {key: default for key, default in row.defaults.items() if config.get(key) is None}
    spelt = {"num_hidden_layers": ("n_layer", "n_layers"), "num_attention_heads": ("n_head", "n_heads")}
    for key, default in missing.items():
        if key in spelt and not any(config.get(other) for other in spelt[key]):
            remarks.append(f"{key}: {default}, the default of {family}; the configuration does not say")
            config = {**config, key: default}
        elif key not in spelt and key not in config:
            config = {**config, key: default}
    depth = integer(config, "num_hidden_layers", "n_layer", "n_layers", most=MOST_LAYERS)
    heads = integer(config, "num_attention_heads", "n_head", "n_heads", most=MOST_LAYERS)
    positional = row.positional(config)
    width = _window(config)
    sliding = _sliding(config, row, depth, width)
    bare = _bare(config, row, depth, sliding)
    stack = [
        Layer(heads=heads, mask=_mask(width, slides), positional=NoPE() if without else positional)
        for slides, without in zip(sliding, bare, strict=True)
    ]
    remarks += [*row.remarks, *_unread(config, family, row, any(sliding))]
    return Architecture(
        depth=depth,
        layers=shortest_pattern(stack),
        name=name or family,
        remarks=tuple(dict.fromkeys(remarks)),
    )


def _text(config: dict[str, Any]) -> tuple[str, dict[str, Any], list[str]]:
    """The family of a configuration's text, the keys that are about it, and what is to be said of that."""
    family = config.get("model_type")
    if not isinstance(family, str):
        raise InvalidValueError(f"model_type: {family!r} given, the name of a family needed")
    text = inner(config, "text_config")
    remarks: list[str] = []
    if text or family in CONTAINERS:
        own = text.get("model_type", CONTAINERS.get(str(family), family))
        config = {**{k: v for k, v in config.items() if k != "text_config"}, **text}
        if own != family:
            remarks.append(f"{family}: text alone is meant, its part of family {own}")
        family = own
    if not isinstance(family, str) or family not in FAMILIES:
        known = {*FAMILIES, *CONTAINERS}
        raise InvalidValueError(
            f"model_type: {shortened(family)} given, "
            f"one of the known families needed{nearest(str(family), known)}; "
            f"known: {', '.join(sorted(known))}"
        )
    return family, config, remarks


def _window(config: Config) -> int | None:
    """The width of sliding layers; None without. MPT's stands in `attn_config`, where −1 is none."""
    if config.get("use_sliding_window") is False:
        return None
    attention = inner(config, "attn_config")
    if attention.get("sliding_window_size") not in (None, -1):
        return integer(attention, "sliding_window_size")
    return integer(config, "sliding_window") if config.get("sliding_window") else None


def _sliding(config: Config, row: Family, depth: int, width: int | None) -> list[bool]:
    """Which layers slide: what the configuration lists (`layer_types`), else its family's rule."""
    types = config.get("layer_types")
    if types is not None:
        if not isinstance(types, list) or len(types) != depth:
            given = len(types) if isinstance(types, list) else repr(types)
            raise InvalidValueError(f"layer_types: {given} given, a list of {depth} (one per layer) needed")
        for kind in types:
            if kind not in (FULL, SLIDING):
                raise InvalidValueError(
                    f"layer_types: {shortened(kind)} given, "
                    f"{FULL} or {SLIDING} needed; other layers are not predicted"
                )
    if width is None:
        return [False] * depth
    if inner(config, "attn_config").get("sliding_window_size") not in (None, -1):
        return [True] * depth
    if types is not None and row.reads_types:
        return [kind == SLIDING for kind in types]
    return [row.slides is not None and row.slides(t, config) for t in range(depth)]


def _bare(config: Config, row: Family, depth: int, sliding: list[bool]) -> list[bool]:
    """Which layers have no positional encoding."""
    given = config.get("no_rope_layers")
    if given and (not isinstance(given, list) or len(given) != depth):
        length = len(given) if isinstance(given, list) else repr(given)
        raise InvalidValueError(f"no_rope_layers: {length} given, {depth} (one per layer) needed")
    rule = row.bare
    return [rule is not None and rule(slides, t, config) for t, slides in enumerate(sliding)]


def _mask(width: int | None, slides: bool) -> Mask:
    return SlidingWindow(width) if width is not None and slides else Causal()


def _unread(config: Config, family: str, row: Family, slides: bool) -> list[str]:
    """A remark for every key on positions, masks or residuals that is not used; unknown masks are refused."""
    for key, right in _REFUSED.items():
        given = config.get(key)
        if given not in (None, right):
            raise InvalidValueError(
                f"{key}: {shortened(given)} given, {json.dumps(right)} needed; such a mask is not predicted"
            )
    told = []
    for key, given in config.items():
        if not given or not _CONCERNS.search(key) or key in _INERT:
            continue
        if isinstance(given, float) and given == 1.0:  # a factor that does nothing
            continue
        if key in _EFFECTS:
            told.append(f"{key} = {given}: {_EFFECTS[key]}")
        elif key == "layer_types":
            if not row.reads_types and any((kind == SLIDING) != slides for kind in config["layer_types"]):
                told.append(f"layer_types is in the configuration, and not read for family {family}")
        elif key == "alibi" and row.reads_alibi:
            continue
        elif key not in _USED or (key in ("no_rope_layers", "no_rope_layer_interval") and row.bare is None):
            told.append(f"{key} = {_brief(given)} is in the configuration, and not read for family {family}")
    if row.slides is None and config.get("sliding_window") and config.get("use_sliding_window") is not False:
        told.append(f"sliding_window = {config['sliding_window']} is not used by models of family {family}")
    return told


def _brief(given: Any) -> str:
    words = repr(given)
    return words if len(words) <= 60 else f"{words[:57]}..."
