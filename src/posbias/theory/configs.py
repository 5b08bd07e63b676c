"""Architectures from files and by name.

    load_architecture("config.json")      # ours, a Hugging Face config.json, or a file of Herasimchyk et al.
    preset("gemma-2-9b")                  # what the public configuration of a well-known model says
    PRESETS["gemma-2-9b"].context         # 8192 tokens

Which of the three a file is shows in its keys: `model_type` is Hugging Face's, `lambda_schedule_config` the
authors', anything else is ours. A preset (`presets.toml`) is the keys of a public configuration that say what its
layers are. What neither says is assumed openly, as a remark: rotary and learned encodings act through weights
that no configuration holds (`NeedsMeasurement`); λ is published or measured (`known_mixing`) or assumed.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from posbias.core.errors import (
    InputFileError,
    InvalidValueError,
    PosbiasError,
    nearest,
    one_of,
    shortened,
    whole,
    wrong,
)
from posbias.core.files import data_table, read_mapping
from posbias.core.packages import bundled
from posbias.core.spec import decode
from posbias.theory.architecture import Architecture, shortest_pattern
from posbias.theory.custom import code_of
from posbias.theory.huggingface import from_huggingface
from posbias.theory.mixing import MeasuredMixing, known_mixing
from posbias.theory.positional import NeedsMeasurement, NoPE


class ArchitectureFile(NamedTuple):
    """An architecture and the number of tokens its file was written for (None where it does not say)."""

    architecture: Architecture
    tokens: int | None


AnyArchitecture = Architecture | str | os.PathLike[str]
"""An architecture, or what `load_architecture` reads one from."""


def load_architecture(name: AnyArchitecture) -> Architecture:
    """Read an architecture by a model's name, or from our TOML, YAML or JSON, a `config.json`, a rollout YAML.

    One that is read already is returned as it is.
    Rotary and learned encodings of a `config.json` come back as `NeedsMeasurement`; a file without λ gets
    the documented default and says so in `.assumptions`. Raises `InputFileError` for a file that cannot be
    read and for a name that is not known, `InvalidValueError` for a file whose keys or values are wrong, and
    for what is none of these.
    """
    if isinstance(name, Architecture):
        return name
    if not isinstance(name, str | os.PathLike):
        raise wrong("architecture", "an Architecture, a model's name or a file", name)
    return read_architecture(name).architecture


def read_architecture(name: str | os.PathLike[str]) -> ArchitectureFile:
    """Like `load_architecture`, with the number of tokens that the file names, if it names one.

    In a file of ours that is its key `tokens`, which belongs to no architecture; a file may also be the answer of
    `posbias predict` in JSON. What is no file is a name: of `PRESETS`, in any case, theirs on the Hugging Face
    Hub, or that of a small model that comes along (`tiny-alibi`).
    """
    path = Path(name)
    word = str(path)
    if path.is_dir():
        return _of_file(path / "config.json")
    if path.exists():
        return _of_file(path)
    by_hub = {row.source.lower(): key for key, row in PRESETS.items()}
    known = by_hub.get(word.lower(), word.lower())
    if known in PRESETS:
        return ArchitectureFile(PRESETS[known].architecture, None)
    if word in bundled():
        read = _of_file(bundled()[word] / "config.json").architecture
        return ArchitectureFile(replace(read, mixing=known_mixing().get(read.name, read.mixing)), None)
    if path.suffix[1:].isalpha():  # a file that is not there, not a name
        return _of_file(path)
    close = nearest(known.rpartition("/")[2], [*PRESETS, *bundled()])
    wanted = "a file, a folder with config.json or a preset"
    raise wrong(word, wanted, got=f"none of them{close}", kind=InputFileError)


def _of_file(path: Path) -> ArchitectureFile:
    """What a file holds. Raises as `read_architecture`, naming the file."""
    if path.suffix == ".nc":
        what = "a file or a name (--calibrate and --mixing take a measurement)"
        raise wrong("architecture", what, str(path))
    data = read_mapping(path)
    if path.suffix == ".json" and "schema" in data:
        if "architecture" not in data:
            raise wrong(path, "an architecture", got=f"an answer {data['schema']!r}", kind=InputFileError)
        return ArchitectureFile(decode(Architecture, data["architecture"]), data.get("tokens"))
    try:
        if "model_type" in data:
            name = path.parent.name if path.name == "config.json" else path.stem
            return ArchitectureFile(from_huggingface(data, name), None)
        if "lambda_schedule_config" in data or "attention_config" in data:
            return _published(data, path.stem)
        tokens = data.get("tokens")
        architecture = decode(Architecture, {key: data[key] for key in data if key != "tokens"})
        parts = [part for layer in architecture.layers for part in (layer.mask, layer.positional)]
        code = [name for part in parts for name in code_of(part)]
        if code and path.name == "config.json":
            said = f"expected no code in a config.json, which may come with a model, got {code[0]!r}"
            raise InvalidValueError(said)
        return ArchitectureFile(architecture, None if tokens is None else whole("tokens", tokens, 1))
    except InputFileError:
        raise
    except PosbiasError as error:
        raise InvalidValueError(f"{path}: {error}") from None


# --- rollout files of Herasimchyk et al. ----------------------------------------------------------------------

_PUBLISHED = {
    "": {"sequence_length", "num_layers", "save_dir", "attention_config", "mask_config", "content_config"}
    | {"lambda_schedule_config"},
    "attention_config": {"num_heads", "alibi_slopes", "head_weights", "softmax_temperature"},
    "mask_config": {"mask_type", "window_size"},
    "content_config": {"diagonal_scores", "base_scores"},
    "lambda_schedule_config": {"schedule_type", "lambda_const", "lambda_0", "beta", "lambdas_custom"},
}
"""The keys of a rollout file as its authors publish them, and of each table in it; `save_dir` is not used."""
_SCHEDULES = {
    "constant": {"value": "lambda_const"},
    "power_decay": {"initial": "lambda_0", "exponent": "beta"},
    "custom": {"coefficients": "lambdas_custom"},
}
"""A schedule of theirs → keys of the mixing that is ours, and theirs."""


def _published(data: Mapping[str, Any], name: str) -> ArchitectureFile:
    """A rollout file as the authors publish it; outer lists are layers, inner ones heads, and one stands for all.

    Scores and slopes are taken as they stand, in softmax units, although the published scores lack the factor
    1/√d_head. Head weights are relative. Raises `InvalidValueError` for unknown keys and counts that do not fit.
    """
    tables = {key: (data if not key else data.get(key)) or {} for key in _PUBLISHED}
    for key, known in _PUBLISHED.items():
        if not isinstance(tables[key], Mapping):
            raise wrong(key, "keys with values", tables[key])
        for unknown in tables[key].keys() - known:
            raise wrong(unknown, f"one of {', '.join(sorted(known))}", got="another key")
    _, attention, mask, content, schedule = tables.values()
    depth = whole("num_layers", data.get("num_layers"), 1)
    kind, heads = mask.get("mask_type", "causal"), attention.get("num_heads")
    layers = []
    for slopes, weights, diagonal, constant in zip(
        *(_by_layer(key, attention, depth) for key in ("alibi_slopes", "head_weights")),
        *(_by_layer(key, content, depth) for key in ("diagonal_scores", "base_scores")),
        strict=True,
    ):
        layer: dict[str, Any] = {"heads": heads, "mask": {"kind": kind}}
        if kind == "sliding_window":
            layer["mask"]["width"] = mask.get("window_size")
        if slopes is not None:
            layer["positional"] = {"kind": "alibi", "slopes": slopes}
        if any(map(any, (diagonal or (), constant or ()))):
            scores = {"diagonal": diagonal or [0.0], "constant": constant or [0.0]}
            layer["content"] = {"kind": "constant_diagonal"} | scores
        if weights is not None:
            layer["head_weights"] = _shares(weights, heads)
        layers.append(layer | {"temperature": attention.get("softmax_temperature", 1.0)})
    made: dict[str, Any] = {"depth": depth, "layers": layers, "name": name}
    if schedule:
        of = str(schedule.get("schedule_type"))
        keys = _SCHEDULES[one_of("schedule_type", of, _SCHEDULES)]
        made["mixing"] = {ours: schedule.get(theirs) for ours, theirs in keys.items()}
        made["mixing"]["kind"] = "per_layer" if of == "custom" else of
    architecture = decode(Architecture, made)
    tokens = whole("sequence_length", data.get("sequence_length"), 1)
    return ArchitectureFile(replace(architecture, layers=shortest_pattern(architecture.layers)), tokens)


def _by_layer(key: str, table: Mapping[str, Any], depth: int) -> list[Any]:
    """A list for each layer, from one for all or one each; of nothing, nothing for each."""
    rows = [None] if table.get(key) is None else table[key]
    listed = isinstance(rows, list) and all(row is None or isinstance(row, list) for row in rows)
    if not listed or len(rows) not in (1, depth):
        raise wrong(key, f"one or {depth} lists (one per layer)", rows)
    return rows if len(rows) == depth else rows * depth


def _shares(weights: Any, heads: Any) -> list[float]:
    """Published head weights are relative: a head's share is its weight over their sum."""
    try:
        weights = weights * heads if len(weights) == 1 else weights
        return [weight / sum(weights) for weight in weights]
    except (TypeError, ZeroDivisionError):
        raise wrong("head_weights", "numbers ≥ 0, at least one above 0", weights) from None


# --- presets --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preset:
    """A model as far as its public configuration goes.

    `source` is its name on the Hugging Face Hub, `context` the longest text it was made for, in tokens, `config`
    the keys of its `config.json` that say what its layers are.
    """

    name: str
    source: str
    context: int
    config: Mapping[str, Any]

    @cached_property
    def architecture(self) -> Architecture:
        """The value that predictions are made from."""
        read = from_huggingface({"max_position_embeddings": self.context, **self.config}, self.name)
        # a base or a head size that its family's class would fill in is not a fact of the model
        sized = not {"head_dim", "hidden_size"}.isdisjoint(self.config)
        layers = []
        for layer in read.layers:
            encoding = layer.positional
            encoding = replace(encoding, rope="") if isinstance(encoding, NeedsMeasurement) else encoding
            layers.append(replace(layer, positional=encoding, cached=layer.cached if sized else None))
        return replace(read, layers=tuple(layers), mixing=self.mixing or read.mixing)

    @property
    def depth(self) -> int:
        """The number of layers."""
        return self.config["num_hidden_layers"]

    @property
    def heads(self) -> int:
        """The number of query heads of a layer."""
        return self.config["num_attention_heads"]

    @property
    def window(self) -> int | None:
        """The width of the sliding window, where some layers have one."""
        return self.config.get("sliding_window") or None

    @property
    def mixing(self) -> MeasuredMixing | None:
        """λ as it was published or measured of this model; None where it was not."""
        return known_mixing().get(self.name)

    @property
    def exact(self) -> str:
        """What the configuration determines, in words."""
        encodings = [layer.positional for layer in self.architecture.layers]
        if all(encoding.exact for encoding in encodings):
            return "depth, heads, masks and positional logits"
        bare = any(encoding == NoPE() for encoding in encodings)
        return "depth, heads and masks" + (", and which layers have no encoding" if bare else "")

    @property
    def assumed(self) -> tuple[str, ...]:
        """What it does not determine, and a prediction takes for granted or leaves out."""
        content = "content: what tokens say is left out; every admitted key has the same content logit"
        return (*self.architecture.assumptions, content)


PRESETS = {
    name: Preset(name, row.pop("source"), row.pop("context"), row)
    for name, row in data_table(__file__, "presets.toml").items()
}
"""Name → preset, for `preset`, menus and tables."""


def preset(name: str) -> Architecture:
    """The architecture of a model of `PRESETS`, by name. Raises `InvalidValueError` naming the nearest one."""
    if name not in PRESETS:
        hint = nearest(str(name), PRESETS)
        raise wrong("preset", "a name of `posbias presets`", got=f"{shortened(name)}{hint}")
    return PRESETS[name].architecture
