"""Keys of a Hugging Face `config.json`, checked as they are read, and what a family's class fills in."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError

Config = Mapping[str, Any]

DEFAULTS: Mapping[str, Config] = json.loads(
    (Path(__file__).parent / "huggingface_defaults.json").read_text(encoding="utf-8")
)
"""Family → what its configuration class of transformers fills in, of the keys that are read here.

`python tools/families.py defaults` writes the file."""
DEPTH, HEADS, WIDTH = (
    ("num_hidden_layers", "n_layer", "n_layers"),
    ("num_attention_heads", "n_head", "n_heads"),
    ("hidden_size", "n_embd", "d_model", "n_embed"),
)
"""How depth, heads and width are written, today's word first."""
_SIZES = {keys[0]: keys for keys in (DEPTH, HEADS, WIDTH)}
_ELSEWHERE = ("num_key_value_heads", "max_position_embeddings")
"""Defaults that hold by other rules: `key_heads`, `huggingface_rope`."""


def completed(config: Config, defaults: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """A configuration with what its family fills in, and that alone.

    A key that is null says something of a window or a head, and nothing of a size or of `rope_parameters`.
    """
    filled = {}
    for key, default in defaults.items():
        if key in _SIZES:
            absent = not any(config.get(word) for word in _SIZES[key])
        else:
            absent = config.get(key) is None if key == "rope_parameters" else key not in config
        if absent and key not in _ELSEWHERE:
            filled[key] = default
    return {**config, **filled}, filled


def inner(config: Config, key: str) -> Config:
    """The keys below a key; none where it is not there."""
    given = config.get(key) or {}
    if not isinstance(given, dict):
        raise InvalidValueError(f"{key}: {shortened(given)} given, keys with values needed")
    return given


def flag(config: Config, key: str, default: bool) -> bool:
    """What a key says, true or false."""
    given = config.get(key, default)
    if not isinstance(given, bool):
        raise InvalidValueError(f"{key}: {shortened(given)} given, true or false needed")
    return given


def integer(config: Config, *keys: str, least: int = 1, most: float = math.inf) -> int:
    """The first of `keys` that the configuration holds, as an integer from `least` to `most`."""
    for key in keys:
        if config.get(key) is not None:
            given = config[key]
            if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
                wanted = f"≥ {least}" if most == math.inf else f"from {least} to {most:,}"
                raise InvalidValueError(f"{key}: {shortened(given)} given, an integer {wanted} needed")
            return given
    raise InvalidValueError(
        f"key {keys[0]!r} is missing (or its older spelling {', '.join(keys[1:]) or '–'})"
    )


def number(config: Config, key: str) -> float:
    """What a key holds, as a finite number of at least zero."""
    given = config.get(key)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < math.inf:
        raise InvalidValueError(f"{key}: {given!r} given, a number ≥ 0 needed")
    return float(given)
