"""An architecture as the text of a TOML file that `posbias predict` reads to the same architecture."""

import json
from collections.abc import Mapping
from typing import Any

from posbias.core.spec import encode
from posbias.theory.architecture import Architecture


def toml_of(architecture: Architecture, remarks: tuple[str, ...] = (), *, tokens: int | None = None) -> str:
    """The architecture in TOML, `remarks` as comments above it; layers stand on a line each.

    `tokens` is the length of text that it is meant for, which commands then take where none is asked for.
    Numbers are spelt in full, and what is None is left out, as it is the default. Raises `InvalidValueError` as
    `encode`.
    """
    lines = [f"# {line}" for remark in remarks for line in remark.splitlines()]
    lines += [] if tokens is None else [f"tokens = {tokens}"]
    for key, held in encode(architecture).items():
        if key == "layers":
            lines += [f"{key} = [", *(f"  {_spelt(layer)}," for layer in held), "]"]
        elif held is not None:
            lines.append(f"{key} = {_spelt(held)}")
    return "\n".join(lines) + "\n"


def _spelt(held: Any) -> str:
    if isinstance(held, Mapping):
        inner = (f"{_key(key)} = {_spelt(one)}" for key, one in held.items() if one is not None)
        return f"{{ {', '.join(inner)} }}"
    if isinstance(held, list):
        return f"[{', '.join(map(_spelt, held))}]"
    if isinstance(held, str):
        # JSON leaves DEL as it is, which TOML does not have
        return json.dumps(held, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(held)


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)
