"""Architectures from files: ours, a Hugging Face `config.json`, or the rollout files of Herasimchyk et al.

Which of the three a file is shows in its keys: `model_type` is Hugging Face's, `lambda_schedule_config` the
authors', anything else is ours. What a configuration does not say is assumed in the open, as a remark.
"""

import os
from pathlib import Path

from posbias.core.arguments import whole
from posbias.core.errors import InputFileError, InvalidValueError, PosbiasError
from posbias.core.input_files import read_mapping
from posbias.core.spec import decode
from posbias.theory.architecture import Architecture
from posbias.theory.custom import code_of
from posbias.theory.huggingface import from_huggingface
from posbias.theory.presets import PRESETS
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
        architecture = decode(Architecture, {key: held for key, held in data.items() if key != "tokens"})
        parts = [part for layer in architecture.layers for part in (layer.mask, layer.positional)]
        code = [name for part in parts for name in code_of(part)]
        if code and path.name == "config.json":
            raise InvalidValueError(
                f"{code[0]!r} given; a config.json may come with a model and names no code, another file needed"
            )
        return ArchitectureFile(architecture, None if tokens is None else whole("tokens", tokens, 1))
    except InputFileError:
        raise
    except PosbiasError as error:
        raise InvalidValueError(f"{path}: {error}") from None
