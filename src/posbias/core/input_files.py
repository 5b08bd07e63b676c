"""Files that people write: TOML, YAML and JSON as plain mappings, and text, each fault in one line.

`posbias.core.spec` makes values of what stands in them.
"""

import functools
import json
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.core.arguments import shortened
from posbias.core.errors import InputFileError, nearest

SUFFIXES = (".toml", ".yaml", ".yml", ".json")
"""Files of keys and values, which their suffix distinguishes."""
_PICTURES = (".svg", ".png", ".pdf")


def read_mapping(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML, YAML or JSON file (by its suffix) that holds keys and values.

    Raises `InputFileError` when it is missing, unreadable, not of its format, or holds something else.
    """
    path = Path(path)
    if path.is_file() and path.suffix.lower() not in SUFFIXES:
        raise InputFileError(
            f"{path}: suffix {shortened(path.suffix)} given, .toml, .yaml, .yml or .json needed"
        )
    text = read_text(path)
    try:
        match path.suffix.lower():
            case ".toml":
                data = tomllib.loads(text)
            case ".json":
                data = json.loads(text, object_pairs_hook=_once)
            case _:
                data = _read_yaml(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise InputFileError(f"{path}: not valid {path.suffix[1:].upper()}: {error}") from None
    except _yaml_error() as error:
        raise InputFileError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InputFileError(f"{path}: nested too deeply to be read") from None
    except (ValueError, TypeError) as error:
        # a number of thousands of digits, a date that is none, a key that cannot be one, a key given twice
        raise InputFileError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        held = "nothing" if data is None else type(data).__name__
        raise InputFileError(f"{path}: holds {held}, keys with values needed")
    return data


@dataclass(frozen=True)
class JsonLine:
    """A line of a file of JSON lines: its text, the object in it, and where it stands ("FILE: line 3")."""

    text: str
    columns: dict[str, Any]
    where: str


def json_lines(text: str, path: str | os.PathLike[str]) -> Iterator[JsonLine]:
    """Lines of a text that hold a JSON object each, one after another; blank ones are left out.

    A line ends at "\\n": the other ends that Unicode knows may stand within a text. `path` is for errors. Raises
    `InputFileError` naming the line that is not valid JSON, is nested too deeply, or holds something else.
    """
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            row = json.loads(line)
        except RecursionError:
            raise InputFileError(f"{where}: nested too deeply to be read") from None
        except ValueError as error:
            raise InputFileError(f"{where}: not valid JSON ({error})") from None
        yield JsonLine(line.rstrip("\r"), json_object(row, where), where)


def json_object(row: Any, where: str) -> dict[str, Any]:
    """What was read from JSON, if that is an object. Raises `InputFileError` that begins with `where`."""
    if not isinstance(row, dict):
        each = isinstance(row, list) and row and isinstance(row[0], dict)
        needed = "a JSON object on each line, not a list of them," if each else "a JSON object"
        raise InputFileError(f"{where}: {shortened(row)} given, {needed} needed")
    return row


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a dictionary. Raises `ValueError` for a key given twice."""
    made: dict[str, Any] = {}
    for key, given in pairs:
        if key in made:
            raise ValueError(f"key {key!r} is given twice")
        made[key] = given
    return made


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 file.

    Raises `InputFileError` when it is missing (and names the nearest there that is no picture), a folder,
    unreadable or not UTF-8.
    """
    path = Path(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        siblings = [name for name in siblings if Path(name).suffix.lower() not in _PICTURES]
        raise InputFileError(f"{path}: no such file{nearest(path.name, siblings)}") from None
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError) as error:
        raise InputFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


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
