"""Architectures from a Hugging Face `config.json`.

What a configuration determines is read: depth, heads, windows by layer, ALiBi's slopes, layers without encoding. A
rotary or learned encoding is not in it, and comes back as `NeedsMeasurement`. Every other key that concerns
positions, masks or residuals is named in a remark or refused, never passed over. Families are data: a row says
how one spells its positions, which of its layers slide where the file does not say so itself, and what it has that
no configuration shows. That the rows are right is tested on models that transformers builds (docs/families.md).
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from posbias.errors import InvalidValueError, nearest
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.encodings import ALiBi, NeedsMeasurement, NoPE, Positional, alibi_slopes
from posbias.theory.masks import Causal, Mask, SlidingWindow

Config = Mapping[str, Any]
FULL, SLIDING = "full_attention", "sliding_attention"
"""The words of `layer_types` that are understood."""


# --- positional encodings ----------------------------------------------------------------------------------


def _mpt(config: Config) -> Positional:
    attention = _inner(config, "attn_config")
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


def _falcon(config: Config) -> Positional:
    if not _flag(config, "alibi", False):
        return NeedsMeasurement("rotary")
    heads, width = _integer(config, "num_attention_heads", "n_head"), _integer(config, "hidden_size")
    if width % heads:
        raise InvalidValueError(f"hidden_size: {width} given, a multiple of the {heads} heads needed")
    return ALiBi(scale=1.0 / math.sqrt(width // heads))


def _tiny(config: Config) -> Positional:
    """The small models that come along: an encoding by its word; a window is rotary."""
    words: dict[str, Positional] = {"alibi": ALiBi(), "nope": NoPE(), "learned": NeedsMeasurement("learned")}
    words |= dict.fromkeys(("rope", "window"), NeedsMeasurement("rotary"))
    if config.get("encoding") not in words:
        raise InvalidValueError(
            f"encoding: {config.get('encoding')!r} given, one of {', '.join(words)} needed"
        )
    return words[str(config["encoding"])]


def _rotary(config: Config) -> Positional:
    return NeedsMeasurement("rotary")


def _learned(config: Config) -> Positional:
    return NeedsMeasurement("learned")


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
                f"sliding_window_pattern: {pattern!r} given, a number of layers or letters L and G needed"
            )
        return (t + 1) % pattern != 0

    return slides


def _from_layer(t: int, config: Config) -> bool:
    """Qwen 2 and 3: upper layers slide, from `max_window_layers` on."""
    return t >= (_integer(config, "max_window_layers") if config.get("max_window_layers") else 0)


def _even_below(t: int, config: Config) -> bool:
    """Qwen 2's experts: every other layer slides, below `max_window_layers`."""
    return t % 2 == 0 and t < _integer(config, "max_window_layers")


def _full_layers(slides: bool, t: int, config: Config) -> bool:
    """EXAONE 4: layers that see everything have no encoding, where others slide."""
    return not slides and bool(config.get("sliding_window"))


def _listed(slides: bool, t: int, config: Config) -> bool:
    """Llama 4, SmolLM 3: the layers that `no_rope_layers` lists with 0, else every `no_rope_layer_interval`-th."""
    given = config.get("no_rope_layers")
    if given:
        return not given[t]
    every = config.get("no_rope_layer_interval") or 4
    return (t + 1) % every == 0


@dataclass(frozen=True)
class Family:
    """How a family's configurations are read.

    `slides` says of layer t (from 0) whether it slides where the file has a window and no `layer_types` (None: no
    layer does), `bare` whether it has no encoding; `remarks` say what models of the family have that no
    configuration shows; `defaults` are what the file may leave out.
    """

    positional: Callable[[Config], Positional] = _rotary
    slides: Callable[[int, Config], bool] | None = None
    bare: Callable[[bool, int, Config], bool] | None = None
    remarks: tuple[str, ...] = ()
    defaults: Config = field(default_factory=dict)

    @property
    def reads_types(self) -> bool:
        """Whether its models look at `layer_types`: those whose layers are of two kinds."""
        return self.slides not in (None, _all_slide)


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

_ROTARY = (  # noqa: SIM905
    "apertus arcee aria_text bitnet codegen cohere deepseek_v2 deepseek_v3 ernie4_5 ernie4_5_moe "
    "flex_olmo gemma glm glm4 glm4_moe gpt_neox gpt_neox_japanese gptj granite granitemoe "
    "granitemoeshared helium hy_v3 hyperclovax internlm3 iquestcoder jais2 minimax_m2 nanochat olmo olmo2 "
    "olmoe persimmon phi seed_oss solar_open stablelm"
).split()
"""Families whose layers all see everything before them, and rotate."""

FAMILIES: dict[str, Family] = {
    "bloom": Family(lambda config: ALiBi()),
    "mpt": Family(_mpt),
    **dict.fromkeys(("falcon", "RefinedWeb", "RefinedWebModel"), Family(_falcon)),
    "posbias_tiny": Family(_tiny, slides=_all_slide),
    **dict.fromkeys(("gpt2", "gpt_bigcode", "openai-gpt", "opt", "biogpt"), Family(_learned)),
    **dict.fromkeys(_ROTARY, _PLAIN),
    "llama": Family(defaults=_SIZES_32),
    "mistral": Family(slides=_all_slide, defaults=_SIZES_32 | {"sliding_window": 4096}),
    **dict.fromkeys(("mixtral", "phi3", "phimoe", "starcoder2"), _ALL),
    "qwen3_moe": Family(slides=_all_slide, defaults={"use_sliding_window": False, "sliding_window": 4096}),
    "ministral3": Family(
        slides=_all_slide,
        remarks=("logits grow with the query's position (rope_parameters.llama_4_scaling_beta); left out",),
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
}
"""Hugging Face `model_type` → how its configuration is read."""

CONTAINERS = {
    "gemma3": "gemma3_text",
    "mistral3": "mistral",
    "llava": "llama",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
}
"""Models with more than text → the family of their text, in `text_config` or, in older files, beside it."""

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
    depth = _integer(config, "num_hidden_layers", "n_layer", "n_layers")
    heads = _integer(config, "num_attention_heads", "n_head", "n_heads")
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
    inner = config.get("text_config")
    if inner is not None and not isinstance(inner, dict):
        raise InvalidValueError(f"text_config: {inner!r} given, keys with values needed")
    remarks: list[str] = []
    if isinstance(inner, dict) or family in CONTAINERS:
        inner = inner or {}
        own = inner.get("model_type", CONTAINERS.get(str(family), family))
        config = {**{k: v for k, v in config.items() if k != "text_config"}, **inner}
        if own != family:
            remarks.append(f"{family}: text alone is meant, its part of family {own}")
        family = own
    if not isinstance(family, str) or family not in FAMILIES:
        known = {*FAMILIES, *CONTAINERS}
        raise InvalidValueError(
            f"model_type: {family!r} given, one of the known families needed{nearest(str(family), known)}; "
            f"known: {', '.join(sorted(known))}"
        )
    return family, config, remarks


def _window(config: Config) -> int | None:
    """The width of sliding layers; None without. MPT's stands in `attn_config`, where −1 is none."""
    if config.get("use_sliding_window") is False:
        return None
    attention = _inner(config, "attn_config")
    if attention.get("sliding_window_size") not in (None, -1):
        return _integer(attention, "sliding_window_size")
    return _integer(config, "sliding_window") if config.get("sliding_window") else None


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
                    f"layer_types: {kind!r} given, {FULL} or {SLIDING} needed; other layers are not predicted"
                )
    if width is None:
        return [False] * depth
    if _inner(config, "attn_config").get("sliding_window_size") not in (None, -1):
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
                f"{key}: {given!r} given, {json.dumps(right)} needed; such a mask is not predicted"
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
            if not row.reads_types and any((kind == SLIDING) != slides for kind in given):
                told.append(f"layer_types is in the configuration, and not read for family {family}")
        elif key == "alibi" and row.positional in (_falcon, _mpt):
            continue
        elif key not in _USED or (key in ("no_rope_layers", "no_rope_layer_interval") and row.bare is None):
            told.append(f"{key} = {_brief(given)} is in the configuration, and not read for family {family}")
    if config.get("sliding_window") and not slides and config.get("use_sliding_window") is not False:
        if row.slides is None:
            told.append(
                f"sliding_window = {config['sliding_window']} is not used by models of family {family}"
            )
    return told


def _brief(given: Any) -> str:
    words = repr(given)
    return words if len(words) <= 60 else f"{words[:57]}..."


def _inner(config: Config, key: str) -> Config:
    given = config.get(key) or {}
    if not isinstance(given, dict):
        raise InvalidValueError(f"{key}: {given!r} given, keys with values needed")
    return given


def _flag(config: Config, key: str, default: bool) -> bool:
    given = config.get(key, default)
    if not isinstance(given, bool):
        raise InvalidValueError(f"{key}: {given!r} given, true or false needed")
    return given


def _integer(config: Config, *keys: str) -> int:
    """The first of `keys` that the configuration holds, as an integer of at least one."""
    for key in keys:
        if config.get(key) is not None:
            if isinstance(config[key], bool) or not isinstance(config[key], int) or config[key] < 1:
                raise InvalidValueError(f"{key}: {config[key]!r} given, an integer ≥ 1 needed")
            return config[key]
    raise InvalidValueError(
        f"key {keys[0]!r} is missing (or its older spelling {', '.join(keys[1:]) or '–'})"
    )
