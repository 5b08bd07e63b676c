"""Files that people write: TOML, YAML and JSON as plain mappings, and text, each fault in one line.

`posbias.spec` makes values of what stands in them.
"""

import functools
import json
import os
import tomllib
from pathlib import Path
from typing import Any

from posbias.errors import InputFileError, nearest


def read_mapping(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML, YAML or JSON file (told apart by its suffix) that holds keys and values.

    Raises `InputFileError` when it is missing, unreadable, not of its format, or holds something else.
    """
    path = Path(path)
    text = read_text(path)
    try:
        match path.suffix.lower():
            case ".toml":
                data = tomllib.loads(text)
            case ".json":
                data = json.loads(text, object_pairs_hook=_once)
            case ".yaml" | ".yml":
                data = _read_yaml(text)
            case other:
                raise InputFileError(f"{path}: suffix {other!r} given, .toml, .yaml, .yml or .json needed")
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise InputFileError(f"{path}: not valid {path.suffix[1:].upper()}: {error}") from None
    except _yaml_error() as error:
        reason = " ".join(str(error).split())
        raise InputFileError(f"{path}: not valid YAML: {reason}") from None
    except RecursionError:
        raise InputFileError(f"{path}: nested too deeply to be read") from None
    except (ValueError, TypeError) as error:
        # a number of thousands of digits, a date that is none, a key that cannot be one, a key given twice
        raise InputFileError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        held = "nothing" if data is None else type(data).__name__
        raise InputFileError(f"{path}: holds {held}, keys with values needed")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a dictionary. Raises `ValueError` for a key given twice."""
    made: dict[str, Any] = {}
    for key, given in pairs:
        if key in made:
            raise ValueError(f"key {key!r} is given twice")
        made[key] = given
    return made


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 file. Raises `InputFileError` when it is missing, a folder, unreadable or not UTF-8."""
    path = Path(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputFileError(f"{path}: no such file{nearest(path.name, siblings)}") from None
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read: {error.strerror}") from None


def _yaml_error() -> type[Exception]:
    import yaml

    return yaml.YAMLError


@functools.cache
def _yaml_loader() -> type:
    """The safe loader, taught that `1e-3` is a number (YAML 1.1 asks for a dot, people do not)."""
    import re

    import yaml

    parent = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader = type("Loader", (parent,), {})
    loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )

    def mapping(self: Any, node: Any) -> dict[str, Any]:
        self.flatten_mapping(node)
        return _once(
            [(self.construct_object(k, True), self.construct_object(v, True)) for k, v in node.value]
        )

    loader.add_constructor("tag:yaml.org,2002:map", mapping)
    return loader


def _read_yaml(text: str) -> Any:
    import yaml

    return yaml.load(text, Loader=_yaml_loader())
