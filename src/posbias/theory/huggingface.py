"""Architectures from a Hugging Face `config.json`.

What a configuration determines is read: depth, heads, key-value heads, windows by layer, ALiBi's slopes, layers
without encoding. A rotary or learned encoding is not in it, and comes back as `NeedsMeasurement`. Every other key
that concerns positions, masks or residuals is named in a remark or refused, never passed over. What a family is,
is data (`huggingface_families`); what a file leaves out is the default of its family's class in transformers.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from posbias.core import packages
from posbias.core.errors import InvalidValueError, PosbiasError, shortened, wrong
from posbias.core.spec import MOST_LAYERS
from posbias.theory import huggingface_families as families
from posbias.theory import rope_scaling
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
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
from posbias.theory.huggingface_families import FAMILIES, FULL, PARTS, SLIDING, Family
from posbias.theory.masks import Causal, Full, Mask, SlidingWindow
from posbias.theory.normalisers import Unnormalised
from posbias.theory.positional import NeedsMeasurement, NoPE

Rotation = tuple[float, int, rope_scaling.RopeScaling | None]
"""Base, rotated dimensions and scaling of rotary positions."""

_CONCERNS = re.compile(
    r"alibi|window|prefix_lm|bidirectional|attention_chunk|chunk_attention|layer_types|block_type|sink|no_?rope|"
    r"nope|local_attention|sparse_(attn|attention|config)|global_attn|attention_types?$|position_embedding_type|relative_attention|^residual|"
    r"parallel_(attn|residual)|softcap|per_layer_(input|config)$|block_configs|attn_(type|layers)|mask_type|"
    r"(use_rope|rope_layers)$|pruned_heads|skip_layers"
)
"""Keys that concern positions, masks, heads or residuals; any list with a value of each layer may do so too."""
PREFIXED = "paligemma"
"""The family whose whole prompt, pictures and text, is a prefix in which every token sees every other."""
_SWITCH = "use_sliding_window"


@dataclass(frozen=True)
class Reading:
    """A configuration in today's keys with its family, and by layer its kind and whether it has no encoding."""

    family: str
    row: Family
    config: Config
    kinds: list[str]
    bare: list[bool]
    causal: bool
    remarks: tuple[str, ...]


def from_huggingface(config: dict[str, Any], name: str = "") -> Architecture:
    """Read depth, heads, masks and positional encoding from the contents of a `config.json`.

    BLOOM and MPT add ALiBi after scaling, Falcon before it, so its slopes shrink by √d_head. `remarks` name the
    keys that are not used, and what layers are taken as that are no softmax over earlier tokens. Raises
    `InvalidValueError` for a family that is not known, a key that is missing, and a mask or a kind of layer that
    is not predicted; `PluginError` where the package fails that brings the family.
    """
    family, keys, remarks = _text(config)
    brought = None if family in FAMILIES else packages.family(family)
    if brought is not None:
        remark = f"{family}: read by the package {brought.package}, not by posbias"
        if not isinstance(brought.read, Family):
            made = _brought(brought, family, keys)
            return replace(made, name=made.name or name or family, remarks=(*made.remarks, remark))
        row = replace(brought.read, remarks=(*brought.read.remarks, remark))
    else:
        row = FAMILIES[family]
    read = _reading(keys, family, row, remarks, config["model_type"])
    made = {pair: _layer(read, *pair) for pair in set(zip(read.kinds, read.bare, strict=True))}
    stack = [made[pair] for pair in zip(read.kinds, read.bare, strict=True)]
    counts = Counter(kind for kind in read.kinds if kind in PARTS)
    taken = [
        f"{kind} ({count} of {len(stack)} layers): {read.config.filled(PARTS[kind].taken)}"
        for kind, count in counts.items()
    ]
    remarks = tuple(dict.fromkeys((*read.remarks, *taken, *row.remarks, *_not_used(read))))
    return Architecture(len(stack), shortest_pattern(stack), name=name or family, remarks=remarks)


def rotation_of_family(config: Mapping[str, Any], layer_type: str | None) -> Rotation:
    """`rotation` of a type of layers of a family of posbias's own, with what its class fills in.

    Raises `InvalidValueError` as `from_huggingface`, and for a type of layers that does not rotate.
    """
    family, keys, remarks = _text(config)
    if family not in FAMILIES:
        raise wrong("model_type", "a family of posbias's own", family)
    read = _reading(keys, family, FAMILIES[family], remarks, config["model_type"])
    kind = None if layer_type is None else families.OLDER_KINDS.get(layer_type, layer_type)
    if kind is not None and kind not in read.kinds:
        known = ", ".join(sorted(set(read.kinds)))
        raise wrong("layer_type", f"one of {known}", kind)
    encoded = {one for one, bare in zip(read.kinds, read.bare, strict=True) if not bare}
    encoded = {one for one in encoded if kind in (None, one) and (one not in PARTS or PARTS[one].encoded)}
    if not encoded or getattr(read.row.positional(read.config), "encoding", "") != "rotary":
        key, given = ("model_type", read.family) if kind is None else ("layer_type", kind)
        raise wrong(key, "rotary positions", got=f"{given} without")
    return _rotation(read.config, kind)


def is_attention(layer: Layer) -> bool:
    """Whether a layer's mask says what it attends to: it is no state, convolution, compression or token alone."""
    encoding = layer.positional
    unmeasured = isinstance(encoding, NeedsMeasurement) and not families.UNMEASURED.isdisjoint(encoding.also)
    return not (unmeasured or isinstance(layer.normaliser, Unnormalised) or layer.mask == SlidingWindow(1))


# --- which family, and which keys -----------------------------------------------------------------------------


def _text(given: Mapping[str, Any]) -> tuple[str, Config, list[str]]:
    """The family of a configuration's text, the keys that are about it, and what is to be said of that."""
    config = Config(given)
    container = config.get("model_type")
    if not isinstance(container, str):
        raise wrong("model_type", "the name of a family", container)
    text, family, remarks, whole = config.inner("text_config"), container, [], config
    if text or container in families.CONTAINERS:
        family = text.get("model_type", families.CONTAINERS.get(container, container))
        outer = Config({key: config[key] for key in config if key != "text_config"})
        config = outer | text | {"model_type": family}
        if family != container:
            remarks.append(f"{container}: text alone is meant, its part of family {family}")
    if container == PREFIXED:
        remarks.append(f"{container}: the whole prompt is a prefix, in which every token sees every other")
    if family not in FAMILIES and family not in packages.names():
        known = {*FAMILIES, *families.CONTAINERS, *packages.names()}
        got = f"{shortened(family)}; its layers can be given in a file of your own (docs/own.md)"
        raise wrong("model_type", f"one of the {len(known)} known families", got=got)
    if family in FAMILIES:
        for keys in (whole, text):
            check_classes(keys, (container, family), FAMILIES[family])
    return family, config, remarks


def _brought(brought: packages.ModelFamily, family: str, config: dict[str, Any]) -> Architecture:
    """What a package's function makes of a configuration. Raises `PluginError`, naming the package."""
    if not callable(brought.read):
        said = f"expected a row Family(…) or a function for {family}, got {type(brought.read).__name__}"
        raise packages.failed(brought.package, said)
    try:
        made = brought.read(config)
    except PosbiasError:
        raise
    except Exception as error:  # whatever a package raises
        said = f"a configuration of {family} cannot be read"
        raise packages.failed(brought.package, said, error) from error
    if not isinstance(made, Architecture):
        given = type(made).__name__
        raise packages.failed(brought.package, f"expected an Architecture made of {family}, got {given}")
    return made


def _reading(config: Config, family: str, row: Family, remarks: list[str], container: str | None) -> Reading:
    """What each layer is, from keys in today's spelling with what the family's class fills in."""
    keys = config.in_todays_words()
    # null says something of a window or of heads, and nothing of a size or of `rope_parameters`
    needed = (DEPTH, HEADS, "hidden_size", "rope_parameters")
    defaults = {
        key: default
        for key, default in {**DEFAULTS.get(family, {}), **row.defaults}.items()
        if key not in (KEY_HEADS, LENGTH) and (key not in keys or (key in needed and keys[key] is None))
    }
    keys |= defaults
    keys = Config(row.rewrite(keys), keys.used)
    kinds = _kinds(keys, row)
    if not isinstance(row.layers, str):
        keys["layer_types"] = kinds
    bare = [row.bare is not None and row.bare(kind, t, keys) for t, kind in enumerate(kinds)]
    causal = not row.encoder or keys.flag("is_decoder", False)
    if not row.encoder and (container == PREFIXED or not_causal(keys)):
        if {*kinds} != {FULL} or not row.switchable:
            key, given = ("model_type", container) if container == PREFIXED else ("is_causal", "false")
            raise wrong(key, "a causal model", got=f"{given}; layers of {family} are not predicted both ways")
        causal = False
    said = (DEPTH, HEADS, *(["sliding_window"] if SLIDING in kinds else []))
    words = [f"{key}: {defaults[key]}, the default of {family}" for key in said if key in defaults]
    return Reading(family, row, keys, kinds, bare, causal, (*remarks, *words))


def _window(config: Config) -> int | None:
    """The width of sliding layers; None without, or where a switch that the family's models read is off."""
    switched = _SWITCH in DEFAULTS.get(config["model_type"], config) and not config.get(_SWITCH)
    return config.integer("sliding_window") if config.get("sliding_window") and not switched else None


def _kinds(config: Config, row: Family) -> list[str]:
    """What each layer is: what the configuration lists (`layer_types`), else its family's rule."""
    depth, rule = config.integer(DEPTH, most=MOST_LAYERS), row.layers
    listed, given = config.get("layer_types") is not None, config.by_layer("layer_types", str)
    kinds: list[str] = [families.OLDER_KINDS.get(kind) or kind for kind in given]
    if listed and len(kinds) != depth:
        raise wrong("layer_types", f"{depth} (one per layer)", len(kinds))
    known = (FULL, SLIDING, *row.kinds)
    if unknown := set(kinds) - {*known}:
        raise wrong("layer_types", " or ".join(known), min(unknown))
    if not listed or isinstance(rule, str):
        pattern = (rule,) if isinstance(rule, str) else rule
        kinds = [pattern(t, config) if callable(pattern) else pattern[t % len(pattern)] for t in range(depth)]
    elif SLIDING in kinds and _SWITCH in DEFAULTS.get(config["model_type"], {}) and not config.get(_SWITCH):
        raise InvalidValueError(f"layer_types: expected no {SLIDING} where {_SWITCH} is off")
    width = None if rule == FULL else _window(config)
    return [FULL if kind == SLIDING and width is None else kind for kind in kinds]


def _layer(read: Reading, kind: str, bare: bool) -> Layer:
    """A layer of one kind, without an encoding where it is `bare`."""
    config, row, part = read.config, read.row, PARTS.get(kind)
    heads = config.integer(HEADS, most=MOST_LAYERS)
    groups = 1 if config.get("kv_lora_rank") is not None else row.key_heads(config, kind)
    if groups is not None and heads % groups:
        raise wrong(KEY_HEADS, f"a number that divides the {heads} heads", groups)
    width = _window(config) if kind == SLIDING else None
    mask: Mask = Causal() if read.causal else Full()
    also = [config.filled(words) for key, words in row.unknown.items() if config.get(key)]
    if part is not None:
        mask = part.mask(config)
        also = [*([config.filled(part.unknown)] if part.unknown else []), *also]
    positional = NoPE() if bare or (part and not part.encoded) else row.positional(config)
    if also and isinstance(positional, NeedsMeasurement):
        positional = replace(positional, also=tuple(also))
    elif also:
        positional = NeedsMeasurement("", also=tuple(also))
    return Layer(
        heads=heads,
        mask=mask if width is None else SlidingWindow(width),
        positional=positional,
        groups=None if groups == heads else groups,
        query_scale=row.scale(config, bare),
        cached=_cached(config, kind),
    )


def _cached(config: Config, kind: str) -> int | None:
    """How many numbers are kept of a token for each key-value head; None where layers share or compress them."""
    config = Config(config)  # what is looked up here still counts as not used
    if kind in families.KEYLESS:
        return 0
    if config.get("kv_lora_rank") is not None:
        return config.integer("kv_lora_rank") + config.integer("qk_rope_head_dim")
    own = config.get("num_kv_shared_layers") or config.get("per_layer_config")
    if own or kind in (families.SPARSE, families.COMPRESSED) or isinstance(config.get(HEAD_SIZE), list):
        return None
    size = _head_size(config, kind)
    return size + config.integer("v_head_dim", default=size)


def _not_used(read: Reading) -> list[str]:
    """One remark for all keys on positions, masks or residuals that were not used; unknown masks are refused."""
    config, row = read.config, read.row
    if config.get("attention_chunk_size") is not None and families.CHUNKED not in row.kinds:
        given = shortened(config["attention_chunk_size"])
        raise wrong("attention_chunk_size", "null", got=f"{given}; the mask is not predicted")
    keys = [
        key
        for key, given in config.items()
        if given and not (isinstance(given, float) and given == 1.0)  # a factor that does nothing
        if _CONCERNS.search(key) or (isinstance(given, list) and len(given) == len(read.kinds))
        if key not in config.used | families.INERT
    ]
    types = [families.OLDER_KINDS.get(kind, kind) for kind in config.get("layer_types") or []]
    keys += ["layer_types"] if isinstance(row.layers, str) and types and types != read.kinds else []
    ignored = SLIDING in read.kinds and config.get(_SWITCH) is False
    keys += [_SWITCH] if ignored else []
    words = ", ".join(f"{key} = {shortened(config[key])}" for key in keys)
    return [f"keys not used: {words}"] if keys else []


# --- whether a decoder's attention looks back alone -----------------------------------------------------------

_HEAD = (
    r"(text)?(pretrained)?(model|lmheadmodel|doubleheadsmodel|for(causallm|"
    r"(sequence|token|image)classification|questionanswering|multiplechoice|conditionalgeneration))"
)
_ENCODER_HEAD = r"(text|generation)?(model|encoder|decoder|lmheadmodel|lmmodel|for\w+)"
"""What may stand behind a family's name in the name of one of its classes, of decoders and of encoders."""
_BOTH = re.compile(r"bi_?dir|non_?causal|prefix_?lm", re.IGNORECASE)
_CODE = re.compile(r"bi_?dir|_bi$|bi_?model|encoder|embed|mntp|non_?causal|prefix_?lm", re.IGNORECASE)
"""Words of keys, and of files with a model's code, whose attention is not causal."""


def check_classes(config: Config, names: tuple[str, ...], row: Family) -> None:
    """Raises `InvalidValueError` for a class that is not a family's; `names` are its container's and its own."""
    known = [re.sub("[_-]", "", name).lower().removesuffix("text") for name in names] + [*row.classes]
    own = re.compile(f"(tf|flax)?({'|'.join(known)})+{_ENCODER_HEAD if row.encoder else _HEAD}")
    code = [given for key, given in config.inner("auto_map").items() if key.startswith("AutoModel")]
    named = [("architectures", name) for name in config.by_layer("architectures", str)]
    for key, given in [*named, *(("auto_map", name) for name in code)]:
        module, _, name = str(given).rpartition(".")
        file = re.sub(r".*\.|.*--|modell?ing_|_", "", module).lower()
        of_family = any(family in file or file in family for family in known)
        both_ways = not row.encoder and _CODE.search(module)
        if both_ways or not of_family or not own.fullmatch(re.sub("_", "", name).lower()):
            own_file = "its layers can be given in a file of your own (docs/own.md)"
            got = f"{shortened(given)}, whose attention may look both ways; {own_file}"
            raise wrong(key, f"a class of family {names[-1]}", got=got)


def not_causal(config: Config) -> bool:
    """Whether a decoder's keys say that it looks both ways (`is_causal: false`).

    Raises `InvalidValueError` for flags that say so of a part of the tokens, or in words that are not known.
    """
    for key, given in config.items():
        if given is None or isinstance(given, dict) or key == "is_causal":
            continue
        pictures = given == "vision" and key == "use_bidirectional_attention"
        both = _BOTH.search(key) and given and not pictures
        one_way = re.search(r"(^|_)causal(_|$)", key) and given is False
        words = isinstance(given, str) and re.search("attention|attn|mask", key) and _BOTH.search(given)
        if both or one_way or words:
            raise wrong(key, "a causal model", given)
    given = config.get("is_causal")
    return given is not None and not config.flag("is_causal", True)


# --- rotary positions: base, rotated dimensions, scaling --------------------------------------------------------


def rotation(config: Mapping[str, Any], layer_type: str | None) -> Rotation:
    """What a configuration says of the rotary positions of a type of layers; no family fills in what is left out.

    Raises `InvalidValueError` for keys that are missing or wrong and for a scaling that has no class here.
    """
    return _rotation(Config(config).in_todays_words(), layer_type)


def _rotation(config: Config, layer_type: str | None) -> Rotation:
    """Base, rotated dimensions and scaling of a type of layers."""
    settings = families.rope_settings(config)
    first, *others = settings.values()
    alike = "" in settings or (layer_type is None and all(one == first for one in others))
    given = first if alike else settings.get(layer_type or "")
    if given is None:
        raise wrong("layer_type", f"one of {', '.join(sorted(settings))}", layer_type)
    size = given.get(HEAD_SIZE) or _head_size(config, layer_type)
    share = given.number(families.SHARE, default=1.0)
    family, kind = DEFAULTS.get(str(config.get("model_type")), {families.SHARE: 1.0}), given["rope_type"]
    base = given.number("rope_theta", above=True)
    # a proportional scaling has angles for all dimensions, and turns a share of them; many models read a share
    # of scaled positions alone
    if kind != "proportional" and (kind != "default" or family.keys() & {families.SHARE, "rotary_pct"}):
        size = int(size * share)
    return base, size, _scaling(given, config)


def _scaling(given: Config, config: Config) -> rope_scaling.RopeScaling | None:
    kind = given["rope_type"]
    if kind == "default":
        return None
    if kind == "linear":
        return rope_scaling.LinearScaling(given.number("factor", above=True))
    if kind == "dynamic":
        return rope_scaling.DynamicNTK(given.number("factor", above=True), _length(config))
    if kind == "proportional":
        share = given.number(families.SHARE, default=1.0)
        return rope_scaling.ProportionalRoPE(share, given.number("factor", above=True, default=1.0))
    if kind not in ("llama3", "yarn", "longrope", "su"):
        raise wrong("rope_type", "default, linear, dynamic, yarn, llama3, longrope or proportional", kind)
    # transformers puts the configured length where the trained one is missing
    trained = _length(config) if given.get(TRAINED) is None else given.integer(TRAINED)
    if kind == "llama3":
        low, high = (given.number(f"{word}_freq_factor", above=True) for word in ("low", "high"))
        return rope_scaling.Llama3Scaling(given.number("factor", above=True), trained, low, high)
    # the factor, where it is not given, is how much longer the configured length is than the trained one
    long = None if given.get("factor") is None else given.number("factor", above=True)
    factor = _length(config) / trained if long is None else long
    key = "attention_factor"
    gain = None if given.get(key) is None else given.number(key, above=True)
    if kind != "yarn":
        short, longer = (_numbers(given, f"{word}_factor") for word in ("short", "long"))
        return rope_scaling.LongRoPE(short, longer, factor, trained, gain)
    if gain is None and given.get("mscale") and given.get("mscale_all_dim"):
        logs = (0.1 * given.number(key) * math.log(max(factor, 1.0)) for key in ("mscale", "mscale_all_dim"))
        above, below = (1.0 + log for log in logs)
        gain = above / below
    fast, slow = (float(given.get(key) or usual) for key, usual in (("beta_fast", 32.0), ("beta_slow", 1.0)))
    return rope_scaling.YaRN(factor, trained, fast, slow, bool(given.get("truncate", True)), gain)


def _length(config: Config) -> int:
    """The length that is configured, or that of the family's class."""
    family = DEFAULTS.get(str(config.get("model_type")), {})
    given = config.get(LENGTH)
    return Config({LENGTH: family.get(LENGTH) if given is None else given}).integer(LENGTH)


def _head_size(config: Config, layer_type: str | None) -> int:
    """Dimensions of a head that rotate where all do, in the first layer of a type.

    Latent attention has a part of its own for it.
    """
    types = config.get("layer_types") or []
    first = types.index(layer_type) if layer_type in types else 0
    own = {int(layer): one for layer, one in config.inner("per_layer_config").items()}
    if config.get("model_type") == "gemma4_text" and layer_type == FULL and not own:
        own = {first: {HEAD_SIZE: config.get("global_head_dim", 512)}}
    config = config | own.get(first, {})
    for key in ("qk_rope_head_dim", HEAD_SIZE):
        if config.get(key) is not None:
            return config.integer(key)
    return config.integer(WIDTH) // config.integer(HEADS)


def _numbers(given: Config, key: str) -> tuple[float, ...]:
    listed = given.get(key)
    if not isinstance(listed, list) or not listed:
        raise wrong(key, "a list of numbers > 0", listed)
    return tuple(Config({key: value}).number(key, above=True) for value in listed)
