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
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from posbias.core.errors import InputFileError, InvalidValueError, PosbiasError, nearest, shortened, whole
from posbias.core.files import read_mapping
from posbias.core.spec import decode
from posbias.theory.architecture import Architecture
from posbias.theory.custom import code_of
from posbias.theory.huggingface import from_huggingface
from posbias.theory.mixing import MeasuredMixing, known_mixing
from posbias.theory.positional import NeedsMeasurement, NoPE
from posbias.theory.rollout_files import ArchitectureFile, from_published


def load_architecture(path: str | os.PathLike[str]) -> Architecture:
    """Read an architecture from our TOML, YAML or JSON, a `config.json` (or its folder), or a rollout YAML.

    Rotary and learned encodings of a `config.json` come back as `NeedsMeasurement`; a file without λ gets
    the documented default and says so in `.assumptions`. Raises `InputFileError` for a file that cannot be
    read and `InvalidValueError` for one whose keys or values are wrong.
    """
    return read_architecture(path).architecture


def read_architecture(path: str | os.PathLike[str]) -> ArchitectureFile:
    """Like `load_architecture`, with the number of tokens that the file names, if it names one.

    In a file of ours that is its key `tokens`, which belongs to no architecture.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "config.json"
    if not path.exists() and path.name in PRESETS:
        raise InputFileError(
            f"{path}: no such file; a preset of that name is `posbias.preset({path.name!r})`"
        )
    data = read_mapping(path)
    try:
        if "model_type" in data:
            name = path.parent.name if path.name == "config.json" else path.stem
            return ArchitectureFile(from_huggingface(data, name), None)
        if "lambda_schedule_config" in data or "attention_config" in data:
            return from_published(data, path.stem)
        tokens = data.get("tokens")
        architecture = decode(Architecture, {key: data[key] for key in data if key != "tokens"})
        parts = [part for layer in architecture.layers for part in (layer.mask, layer.positional)]
        code = [name for part in parts for name in code_of(part)]
        if code and path.name == "config.json":
            raise InvalidValueError(
                f"expected no code in a config.json, which may come with a model, got {code[0]!r}"
            )
        return ArchitectureFile(architecture, None if tokens is None else whole("tokens", tokens, 1))
    except InputFileError:
        raise
    except PosbiasError as error:
        raise InvalidValueError(f"{path}: {error}") from None


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
        # a base that its family's class would fill in is not a fact of the model
        layers = tuple(
            replace(layer, positional=replace(layer.positional, rope=""))
            if isinstance(layer.positional, NeedsMeasurement)
            else layer
            for layer in read.layers
        )
        return replace(read, layers=layers, mixing=self.mixing or read.mixing)

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


def _presets() -> dict[str, Preset]:
    rows = tomllib.loads((Path(__file__).parent / "presets.toml").read_text(encoding="utf-8"))
    return {name: Preset(name, row.pop("source"), row.pop("context"), row) for name, row in rows.items()}


PRESETS = _presets()
"""Name → preset, for `preset`, menus and tables."""


def preset(name: str) -> Architecture:
    """The architecture of a model of `PRESETS`, by name. Raises `InvalidValueError` naming the nearest one."""
    if name not in PRESETS:
        hint = nearest(str(name), PRESETS)
        raise InvalidValueError(f"preset: expected a name of `posbias presets`, got {shortened(name)}{hint}")
    return PRESETS[name].architecture
