"""Layers of Hugging Face models that are no softmax over all earlier tokens, by their words in `layer_types`.

What such a layer is taken as, and what of it no configuration tells, is a `Part`. Families that spell their layers
otherwise (`hybrid_override_pattern`, `compress_ratios`, a period) have a function that spells them as
`layer_types`, as the family's configuration class of transformers does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError
from posbias.core.spec import MOST_LAYERS
from posbias.theory.architecture import Layer
from posbias.theory.huggingface_keys import DEFAULTS, HEADS, Config, inner, integer
from posbias.theory.masks import Causal, Chunked, Mask, SlidingWindow
from posbias.theory.normalisers import Unnormalised
from posbias.theory.positional import NeedsMeasurement

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
CHUNKED = "chunked_attention"
INDEXED, BESIDE = "indexed_attention", "hybrid"
SPARSE, COMPRESSED = "compressed_sparse_attention", "heavily_compressed_attention"
OLDER = {
    "attention": FULL,
    "mamba": LINEAR,
    "deepseek_sparse_attention": INDEXED,
    "qwen_sparse_attention": INDEXED,
}
"""Older words of `layer_types` → those of today."""

Spelling = Callable[[Config], Config]
"""A configuration → the same with `layer_types`."""


@dataclass(frozen=True)
class Part:
    """What a kind of layer is taken as.

    `taken` says so, `unknown` what of it needs measurement ("": nothing); both with `numbers`, keys of the
    configuration, in the places {0}, {1}, …. `encoded`: whether the family's encoding of positions acts in it.
    `window`: its width, or the key that holds it; `chunks`: the key of the width of chunks; None for all earlier
    tokens. `measured`: whether `posbias measure` sees an attention in it.
    """

    taken: str
    unknown: str = ""
    numbers: tuple[str, ...] = ()
    encoded: bool = False
    window: str | int | None = None
    chunks: str | None = None
    measured: bool = True

    def words(self, config: Config) -> tuple[str, str]:
        """`taken` and `unknown` with the configuration's numbers."""
        numbers = [f"{integer(config, key):,}" for key in self.numbers]
        return self.taken.format(*numbers), self.unknown.format(*numbers)

    def mask(self, config: Config) -> Mask:
        """Which tokens its layers are taken to see."""
        if self.chunks is not None:
            return Chunked(integer(config, self.chunks))
        width = integer(config, self.window) if isinstance(self.window, str) else self.window
        return Causal() if width is None else SlidingWindow(width)


STATES = {
    LINEAR: Part(
        "a state that forgets (linear attention, state space), taken as attention to all earlier tokens alike, as "
        "if it forgot nothing",
        "how fast linear attention forgets",
        measured=False,
    )
}
CONVOLUTIONS = {
    "conv": Part(
        "a short convolution, taken as a window of {0} tokens that weigh the same",
        "what short convolutions weigh",
        ("conv_L_cache",),
        window="conv_L_cache",
        measured=False,
    )
}
CHUNKS = {
    CHUNKED: Part(
        "chunks of {0} tokens that do not see each other",
        numbers=("attention_chunk_size",),
        encoded=True,
        chunks="attention_chunk_size",
    )
}
SELECTION = {
    INDEXED: Part(
        "sparse selection, {0} earlier tokens for each query (up to that length all), taken as all of them",
        "which {0} tokens each query selects",
        ("index_topk",),
        encoded=True,
    )
}
BRANCHES = {
    BESIDE: Part(
        "attention beside a state space, taken as the attention alone",
        "what the state space beside attention adds",
        encoded=True,
    )
}
ALONE = dict.fromkeys(("mlp", "moe"), Part("feed-forward alone, each token by itself", window=1))
_ENTRIES = "the last {0} tokens one by one and earlier ones in entries of {1}"
COMPRESSION = {
    SPARSE: Part(
        _ENTRIES + ", of which {2} are selected; taken as all earlier tokens one by one",
        "which compressed entries are selected, and what they hold",
        ("sliding_window", "compress_rate_csa", "index_topk"),
        encoded=True,
        measured=False,
    ),
    COMPRESSED: Part(
        _ENTRIES + "; taken as all earlier tokens one by one",
        "what compressed entries hold",
        ("sliding_window", "compress_rate_hca"),
        encoded=True,
        measured=False,
    ),
}
UNMEASURED = frozenset(
    part.unknown
    for kinds in (STATES, CONVOLUTIONS, COMPRESSION)
    for part in kinds.values()
    if not part.measured
)
"""What is not known of layers in which `posbias measure` sees no attention."""


def is_attention(layer: Layer) -> bool:
    """Whether a layer's mask says what it attends to: it is no state, convolution, compression or token alone."""
    encoding = layer.positional
    unmeasured = isinstance(encoding, NeedsMeasurement) and not UNMEASURED.isdisjoint(encoding.also)
    return not (unmeasured or isinstance(layer.normaliser, Unnormalised) or layer.mask == SlidingWindow(1))


def by_rule(kind_of: Callable[[int, int, Config], str]) -> Spelling:
    """Where the file lists no `layer_types`: that of layer t of so many, from the configuration."""

    def spelt(config: Config) -> Config:
        if config.get("layer_types") is not None:
            return config
        depth = integer(config, "num_hidden_layers", most=MOST_LAYERS)
        return {**config, "layer_types": [kind_of(t, depth, config) for t in range(depth)]}

    return spelt


def _qwen(t: int, depth: int, config: Config) -> str:
    every = integer({"full_attention_interval": 4, **config}, "full_attention_interval")
    return LINEAR if (t + 1) % every else FULL


def _jamba(t: int, depth: int, config: Config) -> str:
    period = integer(config, "attn_layer_period")
    return FULL if t % period == integer(config, "attn_layer_offset", least=0) else LINEAR


def _lfm(t: int, depth: int, config: Config) -> str:
    given = config.get("full_attn_idxs")
    return FULL if given is None or t in _places("full_attn_idxs", given) else "conv"


def _kimi(t: int, depth: int, config: Config) -> str:
    """`linear_attn_config` counts layers from 1."""
    given = inner(config, "linear_attn_config").get("full_attn_layers")
    if given is None:
        return FULL if t and t % 4 == 0 else LINEAR
    return FULL if t + 1 in _places("linear_attn_config.full_attn_layers", given) else LINEAR


def _places(name: str, given: Any) -> Sequence[int]:
    if not isinstance(given, list) or not all(isinstance(place, int) for place in given):
        raise InvalidValueError(f"{name}: {given!r} given, a list of layers' numbers needed")
    return given


def rotating(config: Config, depth: int) -> list[Any]:
    """What `no_rope_layers` says of each layer: 0 for none of the encoding; [] where it is not there."""
    given = config.get("no_rope_layers")
    if given and (not isinstance(given, list) or len(given) != depth):
        length = len(given) if isinstance(given, list) else repr(given)
        raise InvalidValueError(f"no_rope_layers: {length} given, {depth} (one per layer) needed")
    return given or []


def bare(t: int, depth: int, config: Config) -> bool:
    """Llama 4, SmolLM 3: layers that `no_rope_layers` lists with 0, else every `no_rope_layer_interval`-th."""
    given = rotating(config, depth)
    if given:
        return not given[t]
    every = integer(config, "no_rope_layer_interval") if config.get("no_rope_layer_interval") else 4
    return (t + 1) % every == 0


def _llama4(t: int, depth: int, config: Config) -> str:
    return FULL if bare(t, depth, config) else CHUNKED


qwen3_next, jamba, lfm2, kimi_linear, llama4 = (
    by_rule(rule) for rule in (_qwen, _jamba, _lfm, _kimi, _llama4)
)
falcon_h1 = by_rule(lambda t, depth, config: BESIDE)
olmo_hybrid = by_rule(
    lambda t, depth, config: FULL if t % 4 == 3 or (depth < 4 and t == depth - 1) else LINEAR
)
indexed = by_rule(lambda t, depth, config: INDEXED)
granite = by_rule(lambda t, depth, config: SLIDING if t % 4 else FULL)


def gemma4(config: Config) -> Config:
    """Every sixth layer is full, and the last, whatever `layer_types` says of it."""
    spelt = by_rule(lambda t, depth, config: SLIDING if (t + 1) % 6 else FULL)(config)
    kinds = spelt["layer_types"]
    return {**spelt, "layer_types": [*kinds[:-1], FULL]} if isinstance(kinds, list) and kinds else spelt


def mimo(config: Config) -> Config:
    """MiMo V2 Flash: full layers are the first and every sixth; `sliding_window_size` does not count the query.

    Raises `InvalidValueError` for released keys that say otherwise: models of transformers do not read them.
    """
    spelt = by_rule(lambda t, depth, config: SLIDING if t and (t + 1) % 6 else FULL)(config)
    own = {**DEFAULTS["mimo_v2_flash"], **config}
    right = {
        "hybrid_layer_pattern": [int(kind == SLIDING) for kind in spelt["layer_types"]],
        "swa_head_dim": own["head_dim"],
        "swa_num_attention_heads": integer(config, *HEADS),
        "swa_num_key_value_heads": 2 * integer(own, "num_key_value_heads"),
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
    }
    for key, value in right.items():
        if config.get(key) not in (None, value):
            raise InvalidValueError(f"{key}: expected {value}, got {shortened(config[key])}")
    if config.get("sliding_window_size") is None:
        return spelt
    return {**spelt, "sliding_window": integer(config, "sliding_window_size") + 1}


def nemotron_h(config: Config) -> Config:
    """`layers_block_type`, or letters in `hybrid_override_pattern`; their number is the depth."""
    letters = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}
    kinds, pattern = config.get("layers_block_type"), config.get("hybrid_override_pattern")
    if kinds is None and pattern is None:
        kinds = config.get("layer_types") or [LINEAR, "moe", FULL, "mlp"]
    elif kinds is None:
        if not isinstance(pattern, str) or not set(pattern) <= set(letters):
            raise InvalidValueError(
                f"hybrid_override_pattern: {pattern!r} given, a text of the letters {' '.join(letters)} needed"
            )
        kinds = [letters[letter] for letter in pattern]
    if not isinstance(kinds, list):
        raise InvalidValueError(f"layers_block_type: {kinds!r} given, a list needed")
    kept = {key: given for key, given in config.items() if key != "layers_block_type"}
    return {**kept, "layer_types": kinds, "num_hidden_layers": len(kinds)}


def deepseek_v4(config: Config) -> Config:
    """`layer_types`, or `compress_ratios` of each layer; what is beyond the depth predicts further tokens."""
    depth = integer(config, "num_hidden_layers", most=MOST_LAYERS)
    kinds, ratios = config.get("layer_types"), config.get("compress_ratios")
    if kinds is None and ratios is not None:
        known = {0: SLIDING, 4: SPARSE, 128: COMPRESSED}
        if not set(_places("compress_ratios", ratios)) <= set(known):
            raise InvalidValueError(f"compress_ratios: {ratios!r} given, a list of 0, 4 and 128 needed")
        kinds = [known[ratio] for ratio in ratios]
    if kinds is None:
        kinds = [SPARSE if t > 2 and t % 2 else COMPRESSED for t in range(depth)]
    rates = {SPARSE: 4, COMPRESSED: 128, **inner(config, "compress_rates")}
    older = {"compress_rate_csa": rates[SPARSE], "compress_rate_hca": rates[COMPRESSED]}
    return {**older, **config, "layer_types": kinds[:depth] if isinstance(kinds, list) else kinds}


def streams(config: Config) -> tuple[str, ...]:
    """Hyper-connections: several streams beside one residual, which no λ describes."""
    count = config.get("hc_mult")
    return (f"how hyper-connections mix {integer(config, 'hc_mult')} streams",) if count else ()


def shared(config: Config) -> tuple[str, ...]:
    """Upper layers that read keys and values of an earlier layer."""
    count = config.get("num_kv_shared_layers")
    return (
        (f"what {integer(config, 'num_kv_shared_layers')} layers read of an earlier layer",) if count else ()
    )
