"""How configurations are read, against the models that transformers builds from them.

python tools/families.py            write docs/made/families.md
python tools/families.py defaults   write what configuration classes of transformers fill in

Every causal family of transformers is built tiny, with random weights, from its own configuration; one prompt runs
through it; and mask and encoding of each layer, as its attention shows them, are held against what
`posbias.theory.huggingface` reads from the same configuration.
"""

import dataclasses
import inspect
import json
import re
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from posbias.core.errors import ModelError, PosbiasError
from posbias.measurement.capture.forward import Capture
from posbias.measurement.capture.recurrences import Effective
from posbias.measurement.models.families import FAMILIES as MEASURED
from posbias.measurement.models.families import decoder_layers, generic
from posbias.measurement.quantities.influence import predict
from posbias.theory.architecture import Architecture
from posbias.theory.config_keys import DEFAULTS_FILE
from posbias.theory.huggingface import from_huggingface
from posbias.theory.huggingface_families import CONTAINERS, FAMILIES
from posbias.theory.masks import Chunked, Full, SlidingWindow
from posbias.theory.positional import ALiBi, NoPE

PAGE = Path(__file__).parents[1] / "docs" / "made" / "families.md"
PROMPT = torch.tensor([17, 4, 33, 8, 60, 21, 5, 5, 48, 12, 39, 7, 26, 3, 55, 30, 41, 9, 14, 62])
DEPTH, WINDOW, VOCABULARY, LARGEST = 8, 5, 64, 3_000_000
ABOUT: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""What some families need to be built, and what is said of them."""
SPECIAL, NAMED, RECENT = (ABOUT[name] for name in ("special", "named", "recent"))
FILLED: list[str] = ABOUT["filled"]
OUTSIDE = {"mistral4": "Mistral4ForCausalLM"}
"""Causal families that `AutoModelForCausalLM` does not list → their model."""

Layers = list[tuple[str, str]]
"""Mask and encoding of each layer, in words."""
UNSEEN = ("no attention", "seen")
UNKNOWN, ALONE = "not known", "alone"
"""Encodings of layers that are no attention: of those that move something between tokens, and of the others."""


@dataclass(frozen=True)
class Row:
    """What was read of a family and what was captured; empty with a reason where either could not be."""

    family: str
    read: Layers
    captured: Layers
    remarks: tuple[str, ...] = ()
    reason: str = ""

    @property
    def verdict(self) -> str:
        """equal, attention equal, named, wrong, refused (by the reader), or read alone (no model was seen)."""
        if not self.read:
            return "refused"
        if not self.captured:
            return "read alone"
        if self.read == self.captured:
            return "equal"
        if len(self.read) == len(self.captured) and all(map(_agree, self.read, self.captured)):
            return "attention equal"
        masks = [mask for mask, _ in self.read] == [mask for mask, _ in self.captured]
        return "named" if masks and self.family in NAMED else "wrong"


def _agree(read: tuple[str, str], captured: tuple[str, str]) -> bool:
    """Whether a layer is equal, or no attention was seen in one that is read as none."""
    return read == captured or (captured == UNSEEN and read[1] in (UNKNOWN, ALONE))


def small(config: dict[str, Any]) -> dict[str, Any]:
    """The keys of a default configuration that make it tiny."""
    made: dict[str, Any] = {}
    for key, given in config.items():
        if isinstance(given, bool) or not isinstance(given, int):
            continue
        sizes = [size for size, keys in ABOUT["sizes"] if re.search(keys, key)]
        if sizes and not ("experts" in key and given <= 1):
            made[key] = sizes[-1]
        elif key.endswith("token_id"):
            made[key] = min(given, 3)
        elif given > 64:
            made[key] = 32
    if "sliding_window" in config:
        made["sliding_window"] = WINDOW
    if "use_sliding_window" in config:
        made |= {"use_sliding_window": True, "max_window_layers": 1}
    return made


def build(
    family: str, head: Any = transformers.AutoModelForCausalLM, attention: str = "eager", **changes: Any
) -> tuple[Any, Any]:
    """A tiny configuration of a family and its model, with drawn weights. Raises whatever transformers raises."""
    kind = transformers.AutoConfig.for_model(family).__class__
    config = kind(**small(kind().to_dict()) | SPECIAL.get(family, {}) | changes)
    make: Any = getattr(transformers, OUTSIDE[family])._from_config if family in OUTSIDE else head.from_config
    with torch.device("meta"):
        sketch = make(config, attn_implementation=attention)
    size = sum(parameter.numel() for parameter in sketch.parameters())
    if size > LARGEST:
        raise ValueError(f"{size:,} parameters: not tiny")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = make(config, attn_implementation=attention)
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, 0.5 if parameter.shape[0] == VOCABULARY else 0.25)
    return config, model.eval().requires_grad_(False)


def captured(model: Any, family: str) -> Layers:
    """Mask and encoding of every layer as its attention shows them. Raises `ModelError` where none is seen.

    Layers without a softmax show none.
    """
    seen: dict[int, Any] = {}
    try:
        with Capture(
            model, MEASURED.get(family) or generic(family), lambda one: seen.update({one.layer: one})
        ):
            predict(model, PROMPT)
    except ModelError as error:
        if "softmax attention in each" not in str(error) or not seen:
            raise
    depth = len(decoder_layers(model))
    attends = [t in seen and not isinstance(seen[t].scores, Effective) for t in range(depth)]
    return [(_seen(seen[t].attention), _turned(seen[t])) if attends[t] else UNSEEN for t in range(depth)]


def _seen(attention: torch.Tensor) -> str:
    seen = (attention > 0).any(0)
    position = torch.arange(len(seen))
    distance = position[:, None] - position
    if torch.equal(seen, distance >= 0):
        return "causal"
    if bool(seen.all()):
        return "full"
    for width in range(1, len(seen)):
        if torch.equal(seen, (distance >= 0) & (distance < width)):
            return f"window {width}"
        if torch.equal(seen, (distance >= 0) & (position[:, None] // width == position // width)):
            return f"chunks {width}"
    return "other"


def _turned(layer: Any) -> str:
    if layer.turned:
        return "rotary"
    if layer.content is None:
        return "none"
    bias = layer.logits - layer.content.dense()[0]
    bias = bias - bias.diagonal(dim1=1, dim2=2)[:, :, None]
    return "bias" if bias[torch.isfinite(bias)].abs().max() > 1e-3 else "none"


def read(config: dict[str, Any]) -> tuple[Layers, tuple[str, ...]]:
    """The same as the configuration is read, and the remarks. Raises `InvalidValueError` where it is refused."""
    architecture = from_huggingface(config)
    return words(architecture), architecture.remarks


def words(architecture: Architecture) -> Layers:
    """Mask and encoding of each layer; a learned encoding is no part of attention."""
    read_as = []
    for layer in architecture.stack:
        mask = "full" if isinstance(layer.mask, Full) else "causal"
        if isinstance(layer.mask, SlidingWindow | Chunked):
            mask = f"{'window' if isinstance(layer.mask, SlidingWindow) else 'chunks'} {layer.mask.width}"
        read_as.append((mask, ALONE if mask == "window 1" else _encoding(layer.positional)))
    return read_as


def _encoding(positional: Any) -> str:
    if isinstance(positional, ALiBi):
        return "bias"
    named = getattr(positional, "encoding", None)
    if named == "":
        return UNKNOWN
    return "none" if named == "learned" or isinstance(positional, NoPE) else "rotary"


def plain(config: Any) -> dict[str, Any]:
    """A configuration as its file has it."""
    return json.loads(json.dumps(config.to_dict(), default=str))


def row(family: str, **changes: Any) -> Row:
    """Build, read and capture one family."""
    seen: Layers = []
    reason, given = "", {"model_type": family}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config, model = build(family, **changes)
            given = plain(config)
            seen = captured(model, family)
        except Exception as error:  # whatever keeps a family from being built or seen is its reason
            reason = _line(error)
    if family in CONTAINERS and not seen:
        given = plain(transformers.AutoConfig.for_model(family))
    try:
        found, remarks = read(given)
    except PosbiasError as error:
        return Row(family, [], seen, reason=_line(error))
    return Row(family, found, seen, remarks, reason or NAMED.get(family, ""))


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:77]}{'…' * (len(text) > 77)}"


def class_defaults(family: str) -> dict[str, Any]:
    """What the family's configuration class fills in where a file says nothing, of the keys that are read."""
    kind: Any = transformers.AutoConfig.for_model(family).__class__
    held = {field.name: field.default for field in dataclasses.fields(kind)}
    names = {key: kind.attribute_map.get(key, key) for key in FILLED}
    made = {key: held[name] for key, name in names.items() if name in held}
    made = {key: given for key, given in made.items() if given not in (None, dataclasses.MISSING)}
    rope = getattr(kind(), "rope_parameters", None)
    if rope is None:
        return made
    if {"sliding_attention", "full_attention"} <= set(rope) and "rope_parameters" not in inspect.getsource(
        kind.__post_init__
    ):
        bases = [rope[layers]["rope_theta"] for layers in ("full_attention", "sliding_attention")]
        return made | dict(zip(("rope_theta", "rope_local_base_freq"), bases, strict=True))
    made["rope_theta"] = getattr(kind(), "rope_theta", kind.default_theta)
    own = set(rope) - {"rope_theta", "rope_type", "partial_rotary_factor", "main", "compress"}
    if own:
        raw = kind(rope_theta=-1.0).rope_parameters
        made["rope_parameters"] = {key: value for key, value in raw.items() if value != -1.0}
    if "qk_nope_head_dim" in held and own:  # Mistral 4's share goes by the parts of a head
        del made["rope_parameters"]["partial_rotary_factor"]
    elif "main" not in rope and "partial_rotary_factor" in inspect.getsource(rotary_class(kind)):
        made["partial_rotary_factor"] = rope.get("full_attention", rope).get("partial_rotary_factor", 1.0)
    if "sliding_attention" in rope:
        del made["rope_theta"]
    if "rotary_pct" in inspect.getsource(kind):
        made["rotary_emb_base"], made["rotary_pct"] = (
            made.pop("rope_theta"),
            made.pop("partial_rotary_factor"),
        )
    return made


def rotary_class(kind: Any) -> Any:
    """The class of rotary embeddings of a text model, by the class of its configuration."""
    module = inspect.getmodule(transformers.MODEL_MAPPING[kind])
    names = [name for name in vars(module) if name.endswith("RotaryEmbedding") and "Vision" not in name]
    return getattr(module, names[0])


def families() -> list[str]:
    """Every model type with a causal head in the installed transformers."""
    return sorted({*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *OUTSIDE})


def became(family: str) -> tuple[str, str, str, str]:
    """Of a default configuration: its size, its layers, what each part is taken as, and what is not known."""
    architecture = from_huggingface(plain(transformers.AutoConfig.for_model(family)))
    heads = "/".join(dict.fromkeys(str(layer.heads) for layer in architecture.layers))
    unknown = "; ".join(part for part in architecture.left_out(1) if part != "λ")
    size = f"{architecture.depth} × {heads}"
    return size, _counted(words(architecture)), "; ".join(architecture.remarks), unknown


def page(rows: Sequence[Row]) -> str:
    """The tables as Markdown."""
    kinds: dict[tuple[str, str, str], list[str]] = {}
    for one in rows:
        if one.verdict != "refused":
            read_as = _counted(one.read) if one.verdict == "read alone" else _brief(one.read)
            kinds.setdefault((read_as, one.verdict, "; ".join(_remarks(one))), []).append(one.family)
    return "\n".join(
        [
            *_head(rows),
            "## By what is read\n",
            "| families | read as | | remarks |",
            "|---|---|---|---|",
            *(f"| {', '.join(names)} | {' | '.join(kind)} |" for kind, names in kinds.items()),
            "\nEvery other causal family is refused.\n",
            "## What each part became\n",
            "Defaults of transformers; a released model's file has numbers of its own. *Not known*: what only a "
            "measurement tells; it withholds the verdict even where λ is given. Layers that are no attention read "
            "*not known* ([a layer of one's own](../own.md#a-layer-that-is-no-attention), once measured), those "
            "that move nothing between tokens *alone*.\n",
            "| family | layers × heads | read as | parts | not known |",
            "|---|---|---|---|---|",
            *(f"| {family} | {' | '.join(became(family))} |" for family in RECENT),
            "",
        ]
    )


def _remarks(one: Row) -> tuple[str, ...]:
    """What a row has to say: the reader's remarks unless the parts are listed below, and the reason."""
    captured = f"captured as {_brief(one.captured)}: " if one.verdict == "named" else ""
    listed = () if one.family in RECENT else one.remarks
    return (*listed, captured + one.reason) if one.reason else listed


def _head(rows: Sequence[Row]) -> list[str]:
    counts = Counter(one.verdict for one in rows)
    known = sorted({*FAMILIES} - {one.family for one in rows})
    return [
        "# Families: how configurations are read\n",
        f"What `posbias predict config.json` reads of every causal family of transformers "
        f"{transformers.__version__} ({len(rows)}), against what the attention of a tiny model ({DEPTH} layers) "
        "shows: mask by layer, rotation, bias by distance. Made by `python tools/families.py`, held by "
        "`make test-all`. [What can be measured](zoo.md) is another page.\n",
        f"{counts['equal']} equal, {counts['attention equal']} attention equal (other layers are read as none), "
        f"{counts['named']} named (the difference has a known reason), {counts['read alone']} read alone (no "
        f"tiny model could be built or seen here), {counts['refused']} refused (nothing is guessed), "
        f"{counts['wrong']} wrong. Read by their text's family: {', '.join(sorted(CONTAINERS))}. Further names: "
        f"{', '.join(known)}.\n",
    ]


def _counted(layers: Layers) -> str:
    """'24 × window 4096 rotary; 8 × causal none'."""
    kinds = Counter(map(" ".join, layers))
    return "; ".join(f"{count} × {kind}" for kind, count in kinds.items())


def _brief(layers: Iterable[tuple[str, str]]) -> str:
    """'0-2, 4-6: window 5 rotary; 3, 7: causal none'."""
    places: dict[tuple[str, str], list[list[int]]] = {}
    for number, layer in enumerate(layers):
        runs = places.setdefault(layer, [])
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    if len(places) == 1:
        return " ".join(next(iter(places)))
    return "; ".join(
        f"{', '.join('-'.join(map(str, run)) for run in at)}: {mask} {kind}"
        for (mask, kind), at in places.items()
    )


def main(names: Sequence[str]) -> None:
    """Write the page, or the defaults."""
    transformers.logging.set_verbosity_error()
    if names == ["defaults"]:
        known = (family for family in sorted(FAMILIES) if family in transformers.CONFIG_MAPPING)
        rows = (f"{json.dumps(family)}: {json.dumps(class_defaults(family))}" for family in known)
        DEFAULTS_FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
        return
    rows = [row(name) for name in families()]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(rows), encoding="utf-8")
    print(Counter(one.verdict for one in rows))


if __name__ == "__main__":
    main(sys.argv[1:])
