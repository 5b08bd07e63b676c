"""Keys of a Hugging Face `config.json`, checked as they are read."""

import math
from collections.abc import Mapping
from typing import Any

from posbias.arguments import shortened
from posbias.errors import InvalidValueError

Config = Mapping[str, Any]


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
