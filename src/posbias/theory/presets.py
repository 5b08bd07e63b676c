"""Architectures of well-known models by name, from what their public configurations say.

    preset("gemma-2-9b")                        # an Architecture
    PRESETS["gemma-2-9b"].context               # 8192 tokens

A preset is depth, heads, masks by layer and positional encoding. Under ALiBi and without an encoding that gives
the positional logits; rotary and learned encodings act through weights that no configuration holds, and are
left out with a word (`NeedsMeasurement`). λ is what was published or measured (`known_mixing`), else assumed, and
what tokens say plays no part.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, nearest
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.huggingface import from_huggingface
from posbias.theory.masks import Causal, SlidingWindow
from posbias.theory.mixing import MeasuredMixing, TrainedMedian, known_mixing
from posbias.theory.positional import ALiBi, NeedsMeasurement, NoPE, Positional

ROTARY = NeedsMeasurement("rotary")


@dataclass(frozen=True)
class Preset:
    """A model as far as its public configuration goes; layers count from 0.

    `context` is the longest text it was made for, in tokens. `groups` are key-value heads, where fewer than
    heads. With a `window` every layer slides but every `full_every`-th (1: all full; None: none). Every
    `bare_every`-th layer is without the positional encoding. `remarks` say what the model has beside this. Where
    `config` holds the keys of its `config.json` that say so, layers are read from these.
    """

    name: str
    source: str
    """Where the configuration stands: the model's name on the Hugging Face Hub."""
    context: int
    depth: int
    heads: int
    positional: Positional
    groups: int | None = None
    window: int | None = None
    full_every: int | None = None
    bare_every: int | None = None
    remarks: tuple[str, ...] = ()
    config: Mapping[str, Any] | None = field(default=None, compare=False)

    @property
    def architecture(self) -> Architecture:
        """The value that predictions are made from."""
        if self.config is not None:
            read = from_huggingface(dict(self.config), self.name)
            layers = tuple(
                replace(layer, groups=self.groups, positional=_unnamed(layer.positional))
                for layer in read.layers
            )
            mixing, remarks = self.mixing or read.mixing, (*read.remarks, *self.remarks)
            return replace(read, layers=layers, mixing=mixing, remarks=remarks)
        layers = shortest_pattern([self._layer(t) for t in range(self.depth)])
        return Architecture(self.depth, layers, self.mixing or TrainedMedian(), self.name, self.remarks)

    @property
    def mixing(self) -> MeasuredMixing | None:
        """λ as it was published or measured of this model; None where it was not."""
        return known_mixing().get(self.name)

    @property
    def exact(self) -> str:
        """What the configuration determines, in words."""
        if self.positional.exact:
            return "depth, heads, masks and positional logits"
        bare = any(layer.positional == NoPE() for layer in self.architecture.layers)
        return "depth, heads and masks" + (", and which layers have no encoding" if bare else "")

    @property
    def assumed(self) -> tuple[str, ...]:
        """What it does not, and a prediction takes for granted or leaves out."""
        return (
            *self.architecture.assumptions,
            "content: what tokens say is left out; every admitted key has the same content logit",
        )

    def _layer(self, t: int) -> Layer:
        full = self.window is None or (self.full_every is not None and (t + 1) % self.full_every == 0)
        bare = self.bare_every is not None and (t + 1) % self.bare_every == 0
        positional = self.positional
        if isinstance(positional, NeedsMeasurement):
            positional = replace(positional, positions=self.context)
        return Layer(
            heads=self.heads,
            mask=Causal() if full else SlidingWindow(self.window),  # type: ignore[arg-type]
            positional=NoPE() if bare else positional,
            groups=self.groups,
        )


def _unnamed(positional: Positional) -> Positional:
    """An encoding without the rotary base that its family's class would fill in: the facts here have none."""
    return replace(positional, rope="") if isinstance(positional, NeedsMeasurement) else positional


def _read(name: str, source: str, counts: tuple[int, int, int, int], remark: str = "", **keys: Any) -> Preset:
    """A preset of layers, heads, key-value heads and context, with the other keys of its `config.json`."""
    depth, heads, groups, context = counts
    config = {
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "max_position_embeddings": context,
        **keys,
    }
    remarks = (remark,) if remark else ()
    return Preset(
        name,
        source,
        context,
        depth,
        heads,
        ROTARY,
        groups,
        keys.get("sliding_window"),
        None,
        None,
        remarks,
        config,
    )


def _bloom() -> Iterator[Preset]:
    sizes = (("560m", 24, 16), ("1b1", 24, 16), ("1b7", 24, 16), ("3b", 30, 32), ("7b1", 30, 32))
    for size, depth, heads in sizes:
        yield Preset(f"bloom-{size}", f"bigscience/bloom-{size}", 2048, depth, heads, ALiBi())
    yield Preset("bloom-176b", "bigscience/bloom", 2048, 70, 112, ALiBi())


def _mpt() -> Iterator[Preset]:
    yield Preset("mpt-7b", "mosaicml/mpt-7b", 2048, 32, 32, ALiBi())
    yield Preset("mpt-30b", "mosaicml/mpt-30b", 8192, 48, 64, ALiBi())


def _falcon() -> Iterator[Preset]:
    # the bias is added before the division by √d_head, and d_head is 64 in both
    positional = ALiBi(scale=1.0 / math.sqrt(64))
    yield Preset("falcon-rw-1b", "tiiuae/falcon-rw-1b", 2048, 24, 32, positional)
    yield Preset("falcon-rw-7b", "tiiuae/falcon-rw-7b", 2048, 36, 64, positional)


def _gpt2() -> Iterator[Preset]:
    sizes = (("", 12, 12), ("-medium", 24, 16), ("-large", 36, 20), ("-xl", 48, 25))
    learned = NeedsMeasurement("learned absolute")
    for size, depth, heads in sizes:
        yield Preset(f"gpt2{size}", f"openai-community/gpt2{size}", 1024, depth, heads, learned)


def _pythia() -> Iterator[Preset]:
    sizes = (
        ("70m", 6, 8), ("160m", 12, 12), ("410m", 24, 16), ("1b", 16, 8),
        ("1.4b", 24, 16), ("2.8b", 32, 32), ("6.9b", 32, 32), ("12b", 36, 40),
    )  # fmt: skip
    for size, depth, heads in sizes:
        yield Preset(f"pythia-{size}", f"EleutherAI/pythia-{size}", 2048, depth, heads, ROTARY)


def _llama() -> Iterator[Preset]:
    yield Preset("llama-3-8b", "meta-llama/Meta-Llama-3-8B", 8192, 32, 32, ROTARY, groups=8)
    yield Preset("llama-3-70b", "meta-llama/Meta-Llama-3-70B", 8192, 80, 64, ROTARY, groups=8)


def _mistral() -> Iterator[Preset]:
    yield Preset("mistral-7b-v0.1", "mistralai/Mistral-7B-v0.1", 32768, 32, 32, ROTARY, groups=8, window=4096)


_IMAGES = "text alone is meant: tokens of one image attend to each other both ways in the model"


def _gemma() -> Iterator[Preset]:
    capped = "attention logits are capped at 50 by a tanh, which acts on content and is left out"
    for size, depth, heads, groups in (("2b", 26, 8, 4), ("9b", 42, 16, 8), ("27b", 46, 32, 16)):
        yield Preset(
            f"gemma-2-{size}", f"google/gemma-2-{size}", 8192, depth, heads, ROTARY,
            groups=groups, window=4096, full_every=2, remarks=(capped,),
        )  # fmt: skip
    yield Preset(
        "gemma-3-1b", "google/gemma-3-1b-pt", 32768, 26, 4, ROTARY, groups=1, window=512, full_every=6
    )
    for size, depth, heads, groups in (("4b", 34, 8, 4), ("12b", 48, 16, 8), ("27b", 62, 32, 16)):
        yield Preset(
            f"gemma-3-{size}", f"google/gemma-3-{size}-pt", 131072, depth, heads, ROTARY,
            groups=groups, window=1024, full_every=6, remarks=(_IMAGES,),
        )  # fmt: skip


def _smollm() -> Iterator[Preset]:
    for size, depth, heads, groups in (("135m", 30, 9, 3), ("360m", 32, 15, 5), ("1.7b", 24, 32, None)):
        source = f"HuggingFaceTB/SmolLM2-{size.upper()}"
        yield Preset(f"smollm2-{size}", source, 8192, depth, heads, ROTARY, groups=groups)
    yield Preset("smollm3-3b", "HuggingFaceTB/SmolLM3-3B", 65536, 36, 16, ROTARY, groups=4, bare_every=4)


def _gpt_oss() -> Iterator[Preset]:
    sinks = (
        "learned sinks: every head has a trained logit beside the keys that draws attention off; it is not in "
        "the configuration and left out (give it as Layer.sinks)"
    )
    for size, depth in (("20b", 24), ("120b", 36)):
        yield Preset(
            f"gpt-oss-{size}", f"openai/gpt-oss-{size}", 131072, depth, 64, ROTARY,
            groups=8, window=128, full_every=2, remarks=(sinks,),
        )  # fmt: skip


def _gemma_4() -> Iterator[Preset]:
    # every fifth layer is full, where in larger ones every sixth is
    small = {"layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7, "num_kv_shared_layers": 20}
    yield _read(
        "gemma-4-e2b", "google/gemma-4-E2B", (35, 8, 1, 131072), _IMAGES,
        model_type="gemma4_text", sliding_window=512, hidden_size_per_layer_input=256, **small,
    )  # fmt: skip
    for size, counts in (("26B-A4B", (30, 16, 8, 262144)), ("31B", (60, 32, 16, 262144))):
        name = f"gemma-4-{size}"
        yield _read(
            name.lower(), f"google/{name}", counts, _IMAGES, model_type="gemma4_text", sliding_window=1024
        )


def _qwen() -> Iterator[Preset]:
    sizes = (("0.6B", 28, 16), ("4B", 36, 32), ("8B", 36, 32), ("14B", 40, 40), ("32B", 64, 64))
    for size, depth, heads in sizes:
        yield _read(
            f"qwen3-{size.lower()}", f"Qwen/Qwen3-{size}", (depth, heads, 8, 32768), model_type="qwen3"
        )
    yield _read(
        "qwen3-next-80b-a3b", "Qwen/Qwen3-Next-80B-A3B-Instruct", (48, 16, 2, 262144),
        model_type="qwen3_next", full_attention_interval=4,
    )  # fmt: skip


def _llama_4() -> Iterator[Preset]:
    for name, context in (("Scout-17B-16E", 10_485_760), ("Maverick-17B-128E", 1_048_576)):
        yield _read(
            f"llama-4-{name.split('-')[0].lower()}", f"meta-llama/Llama-4-{name}", (48, 40, 8, context),
            model_type="llama4_text", attention_chunk_size=8192, no_rope_layer_interval=4,
        )  # fmt: skip


def _others() -> Iterator[Preset]:
    window: dict[str, Any] = {"sliding_window": 4096, "sliding_window_pattern": 4}
    for source, counts in (("Olmo-3-1025-7B", (32, 32, 32, 65536)), ("Olmo-3-1125-32B", (64, 40, 8, 65536))):
        name = f"olmo-3-{source.rpartition('-')[2].lower()}"
        yield _read(name, f"allenai/{source}", counts, model_type="olmo3", **window)
    yield _read(
        "exaone-4.0-1.2b", "LGAI-EXAONE/EXAONE-4.0-1.2B", (30, 32, 8, 65536),
        model_type="exaone4", sliding_window=None,
    )  # fmt: skip
    yield _read(
        "exaone-4.0-32b", "LGAI-EXAONE/EXAONE-4.0-32B", (64, 40, 8, 131072), model_type="exaone4", **window
    )
    yield _read(
        "lfm2-1.2b", "LiquidAI/LFM2-1.2B", (16, 32, 8, 128000),
        model_type="lfm2", full_attn_idxs=[2, 5, 8, 10, 12, 14], conv_L_cache=3,
    )  # fmt: skip


PRESETS: dict[str, Preset] = {
    one.name: one
    for family in (
        _bloom,
        _mpt,
        _falcon,
        _llama,
        _mistral,
        _gemma,
        _gpt2,
        _pythia,
        _smollm,
        _gpt_oss,
        _gemma_4,
        _qwen,
        _llama_4,
        _others,
    )
    for one in family()
}
"""Name → preset, for `preset`, menus and tables."""


def preset(name: str) -> Architecture:
    """The architecture of a model of `PRESETS`, by name. Raises `InvalidValueError` naming the nearest one."""
    if name not in PRESETS:
        hint = nearest(str(name), PRESETS)
        raise InvalidValueError(f"preset: {shortened(name)} given, a name of `posbias presets` needed{hint}")
    return PRESETS[name].architecture
