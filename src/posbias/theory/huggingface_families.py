"""Families of Hugging Face models: how each spells its positions, which layers slide, which have no encoding.

Families are data: a row says what a configuration leaves to the family. That the rows are right is tested on
models that transformers builds (`tools/families.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from posbias.theory import huggingface_layers as layers
from posbias.theory import huggingface_readers as readers
from posbias.theory.huggingface_keys import Config
from posbias.theory.masks import Mask
from posbias.theory.positional import ALiBi, Positional
from posbias.theory.query_scale import QueryScale


@dataclass(frozen=True)
class Family:
    """How a family's configurations are read.

    `slides` says of layer t (from 0) whether it slides where the file has a window and no `layer_types` (None: no
    layer does), `mask` what a layer sees that does not slide, `bare` whether it has no encoding; `remarks` say
    what models of the family have that no configuration shows; `defaults` are what the file may leave out, where
    transformers has no such family (else `huggingface_keys.DEFAULTS`). `parts` are its kinds of layers that are no
    softmax over earlier tokens, `spelt` brings a family's list of layers to `layer_types`, `beside` says what else
    decides a profile and only a measurement tells, `scale` what multiplies the logits of queries in a layer with
    or without an encoding, `unused` names keys of its files that its models do not read, or that `spelt` has read.
    """

    positional: Callable[[Config], Positional] = readers.rotary
    slides: Callable[[int, Config], bool] | None = None
    mask: Callable[[Config], Mask] = readers.earlier
    bare: Callable[[bool, int, Config], bool] | None = None
    remarks: tuple[str, ...] = ()
    defaults: Config = field(default_factory=dict)
    parts: Mapping[str, layers.Part] = field(default_factory=dict)
    spelt: layers.Spelling | None = None
    beside: Callable[[Config], tuple[str, ...]] = lambda config: ()
    unused: tuple[str, ...] = ()
    scale: Callable[[Config, bool], QueryScale | None] = readers.no_scale

    @property
    def reads_types(self) -> bool:
        """Whether its models look at `layer_types`: those whose layers are of several kinds."""
        return self.spelt is not None or self.slides not in (None, readers.all_slide)

    def reads(self, key: str) -> bool:
        """Whether its encoding of positions is read from this key."""
        by = {"alibi": (readers.falcon, readers.mpt), "position_embedding_type": (readers.absolute,)}
        return self.positional in by.get(key, ())


_SINKS = (
    "learned sinks: every head{} has a trained logit beside the keys that draws attention off; it is not in the "
    "configuration and left out (give it as Layer.sinks)"
)
_PLAIN = Family()
_ALL = Family(slides=readers.all_slide)
_QWEN = Family(slides=readers.from_layer)
_GATED = "attention's update passes a gate, which changes λ alone"
_LATER_LOGITS = (
    "logits grow with the query's position ({}): Layer.query_scale, which multiplies nothing while positional "
    "and content logits are left out"
)
_BEYOND = (_LATER_LOGITS.format("rope_parameters.llama_4_scaling_beta"),)
_NEXT = Family(parts=layers.STATES, spelt=layers.qwen3_next, remarks=(_GATED,))
_INDEXED = Family(parts=layers.SELECTION, spelt=layers.indexed)

_ROTARY = (  # noqa: SIM905
    "apertus arcee aria_text axk1 bitnet codegen cohere deepseek_v2 deepseek_v3 ernie4_5 ernie4_5_moe "
    "flex_olmo gemma glm glm4 glm4_moe glm4_moe_lite gpt_neox gpt_neox_japanese gptj granite granitemoe "
    "granitemoeshared helium hy_v3 hyperclovax internlm3 iquestcoder jais2 llama minicpm3 minimax_m2 nanochat "
    "olmo olmo2 olmoe persimmon phi seed_oss solar_open stablelm youtu"
).split()
"""Families whose layers all see everything before them, and rotate."""
_ENCODERS = (  # noqa: SIM905
    "bert camembert data2vec-text electra ernie megatron-bert rembert roberta roberta-prelayernorm roc_bert "
    "xlm-roberta xlm-roberta-xl xmod"
).split()
"""Families whose layers all see everything, before and after."""

FAMILIES: dict[str, Family] = {
    "bloom": Family(lambda config: ALiBi()),
    "mpt": Family(readers.mpt),
    "falcon": Family(readers.falcon),
    **dict.fromkeys(
        ("RefinedWeb", "RefinedWebModel"), Family(readers.falcon, defaults={"rope_theta": 10_000.0})
    ),
    **dict.fromkeys(_ENCODERS, Family(readers.absolute, mask=readers.both_ways)),
    "posbias_tiny": Family(readers.tiny, slides=readers.all_slide),
    **dict.fromkeys(("gpt2", "gpt_bigcode", "openai-gpt", "opt", "biogpt"), Family(readers.learned)),
    **dict.fromkeys(_ROTARY, _PLAIN),
    **dict.fromkeys(("mistral", "mixtral", "phi3", "phimoe", "qwen3_moe", "starcoder2"), _ALL),
    "ministral3": Family(slides=readers.all_slide, scale=readers.beyond_training, remarks=_BEYOND),
    "llama4_text": Family(
        bare=readers.listed,
        parts=layers.CHUNKS,
        spelt=layers.llama4,
        scale=readers.tuned,
        remarks=(_LATER_LOGITS.format("attn_temperature_tuning, in layers without an encoding"),),
    ),
    **dict.fromkeys(("qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text"), _QWEN),
    "qwen2_moe": Family(slides=readers.even_below),
    **dict.fromkeys(("gemma2", "vaultgemma"), Family(slides=lambda t, config: t % 2 == 0)),
    "gemma3_text": Family(slides=readers.but_every(6)),
    "cohere2": Family(slides=readers.but_every(4), bare=lambda slides, t, config: not slides),
    **dict.fromkeys(("exaone4", "exaone_moe"), Family(slides=readers.but_every(4), bare=readers.full_layers)),
    "olmo3": Family(slides=lambda t, config: t % 4 != 3),
    "smollm3": Family(slides=lambda t, config: readers.listed(False, t, config), bare=readers.listed),
    "cwm": Family(spelt=layers.granite),
    "gpt_oss": Family(slides=lambda t, config: t % 2 == 0, remarks=(_SINKS.format(""),)),
    **dict.fromkeys(
        ("granite_swa", "granitemoe_swa"),
        Family(bare=readers.no_base, spelt=layers.granite, remarks=(_SINKS.format(""),)),
    ),
    "mimo_v2_flash": Family(
        spelt=layers.mimo,
        unused=("attention_chunk_size", "add_swa_attention_sink_bias", "sliding_window_size"),
        remarks=(_SINKS.format(" of a sliding layer"),),
    ),
    "gemma4_text": Family(spelt=layers.gemma4, beside=layers.shared),
    "mistral4": Family(scale=readers.beyond_training, remarks=_BEYOND),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), _INDEXED),
    "deepseek_v4": Family(
        parts=layers.COMPRESSION,
        spelt=layers.deepseek_v4,
        beside=layers.streams,
        remarks=(_SINKS.format(""),),
    ),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _NEXT),
    "lfm2": Family(parts=layers.CONVOLUTIONS, spelt=layers.lfm2),
    "jamba": Family(readers.unencoded, parts=layers.STATES, spelt=layers.jamba),
    "falcon_h1": Family(parts=layers.BRANCHES, spelt=layers.falcon_h1),
    "nemotron_h": Family(
        readers.unencoded,
        parts=layers.STATES | layers.ALONE,
        spelt=layers.nemotron_h,
    ),
    "olmo_hybrid": Family(bare=readers.no_base, parts=layers.STATES, spelt=layers.olmo_hybrid),
    "afmoe": Family(slides=readers.global_every, bare=lambda slides, t, config: not slides),
    "kimi_linear": Family(readers.unencoded, parts=layers.STATES, spelt=layers.kimi_linear),
}
"""Hugging Face `model_type` → how its configuration is read."""

CONTAINERS = {
    "llama4": "llama4_text",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "mistral3": "mistral",
    "llava": "llama",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "paligemma": "gemma",
}
"""Models with more than text → the family of their text, in `text_config` or, in older files, beside it."""
