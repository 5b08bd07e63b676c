"""Files that people write: TOML, YAML and JSON as plain mappings, and text, each fault in one line.

`posbias.spec` makes values of what stands in them. Only ordinary files are opened (a pipe or a device may never
end), and depth, size and aliases are counted before anything is built of them: what a file asks for is bounded.
"""

import functools
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.arguments import shortened
from posbias.errors import InputFileError, nearest

SUFFIXES = (".toml", ".yaml", ".yml", ".json")
"""Files of keys and values, by which they are told apart."""
LARGEST = 64 * 2**20
"""Bytes that a file of values may have."""
DEEPEST = 100
"""Levels that lists and keys may be nested."""
MOST = 2**22
"""Values that a JSON file may hold."""
MOST_WRITTEN = 2**18
"""Values that a YAML file may hold once its aliases are written out."""
_PICTURES = (".svg", ".png", ".pdf")
_QUOTED = re.compile(r"""\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'""")
_DOTTED = re.compile(rf"""(?<![\w.-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEEPEST}}}""")


def read_mapping(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML, YAML or JSON file (told apart by its suffix) that holds keys and values.

    Raises `InputFileError` when it is missing, unreadable, not of its format, or holds something else.
    """
    path = Path(path)
    if path.is_file() and path.suffix.lower() not in SUFFIXES:
        raise InputFileError(
            f"{path}: suffix {shortened(path.suffix)} given, .toml, .yaml, .yml or .json needed"
        )
    text = read_text(path, LARGEST)
    try:
        match path.suffix.lower():
            case ".toml":
                if _DOTTED.search(_QUOTED.sub('""', text)):
                    raise RecursionError
                data = tomllib.loads(text)
            case ".json":
                data = loads_json(text, object_pairs_hook=_once)
            case _:
                data = _read_yaml(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise InputFileError(f"{path}: not valid {path.suffix[1:].upper()}: {error}") from None
    except _yaml_error() as error:
        reason = " ".join(str(error).split())
        if "nesting depth" in reason:  # where libyaml has a bound of its own
            raise InputFileError(f"{path}: nested too deeply to be read") from None
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


def loads_json(text: str, **options: Any) -> Any:
    """What a JSON text holds. Raises `ValueError`, also for more than `MOST` values, and RecursionError."""
    if text.count(",") + text.count("[") + text.count("{") > MOST:
        raise ValueError(f"more than {MOST:,} values")
    return json.loads(text, **options)


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
            row = loads_json(line)
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


def read_text(path: str | os.PathLike[str], most: int | None = None) -> str:
    """Read a UTF-8 file, of at most so many bytes.

    Raises `InputFileError` when it is missing (and names the nearest there that is no picture), a folder, no
    ordinary file, unreadable, larger or not UTF-8.
    """
    path = Path(path)
    try:
        found = need_ordinary(path)
        if most is not None and found.st_size > most:
            raise InputFileError(f"{path}: {found.st_size:,} bytes given, at most {most:,} needed")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        siblings = [name for name in siblings if Path(name).suffix.lower() not in _PICTURES]
        raise InputFileError(f"{path}: no such file{nearest(path.name, siblings)}") from None
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError) as error:
        raise InputFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def need_ordinary(path: Path) -> os.stat_result:
    """What the system says of a file or folder. Raises `InputFileError` for a pipe, a device or a socket.

    Raises OSError when it cannot be asked, and ValueError for a name that no file has.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        kind = "a pipe" if stat.S_ISFIFO(found.st_mode) else "a device or a socket"
        raise InputFileError(f"{path}: {kind} given, an ordinary file needed")
    return found


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

    _bound_yaml(text)
    return yaml.load(text, Loader=_yaml_loader())


def _bound_yaml(text: str) -> None:
    """Go through the events of a YAML text, building nothing.

    Raises RecursionError for one nested too deeply, `ValueError` for one that is too long with aliases written out
    or whose alias stands inside what it names.
    """
    import yaml

    values, lengths = 0, {}
    open_: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            if any(event.anchor == anchor for anchor, _ in open_):
                raise ValueError(f"alias *{event.anchor} stands inside what it names")
            values += lengths.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            values += 1
            lengths[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, values))
            values += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            lengths[anchor] = values - before
        if len(open_) > DEEPEST:
            raise RecursionError
        if values > MOST_WRITTEN:
            raise ValueError(f"more than {MOST_WRITTEN:,} values, aliases written out")
