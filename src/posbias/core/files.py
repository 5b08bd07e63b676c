"""Files that are written whole or not at all, and files that people write, read with each fault in one line.

A result is written to a temporary name next to its place and renamed when complete, so a full disk, a crash
or Ctrl-C leaves the old file or none, never half of one. The temporary name is hidden and says whose it is
(`.HOST~PROCESS~NAME…`), so that what a killed writer began can be cleared.

TOML, YAML and JSON are read as plain mappings; `posbias.core.spec` makes values of what stands in them.
"""

import contextlib
import errno
import functools
import gzip
import json
import os
import platform
import shutil
import tempfile
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posbias.core.errors import InputFileError, OutputFileError, nearest, wrong

_OURS = f".{platform.node()}~"
"""What the names of temporary files of this machine begin with; the process follows."""


def data_table(module: str, name: str = "") -> dict[str, Any]:
    """Return a table of the library, next to a module (its `__file__`), of the same name or of `name`."""
    path = Path(module)
    path = path.with_name(name) if name else path.with_suffix(".toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path next to `path` to write to; on success it becomes `path`, else it is removed.

    Raises `OutputFileError` when the folder or the file cannot be written.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "no ordinary file"
        raise OutputFileError(f"cannot write {target}: it is {kind}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f"{_OURS}{os.getpid()}~{target.name}."
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=target.suffix, dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise _cannot_write(target, error) from error
    temporary = Path(name)
    try:
        yield temporary
        _as_a_plain_file(temporary)
        temporary.replace(target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def clear_leftovers(folder: str | os.PathLike[str]) -> None:
    """Remove what writers to `folder` that were killed on this machine had begun; living ones keep theirs."""
    for path in Path(folder).glob(f"{_OURS}*~*"):
        process = path.name.removeprefix(_OURS).partition("~")[0]
        if process.isdigit() and not _lives(int(process)):
            path.unlink(missing_ok=True)


def need_writable(path: str | os.PathLike[str]) -> None:
    """Raise `OutputFileError` if nothing could be written at `path`; makes nothing, so long work can ask first."""
    target = Path(path)
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise OutputFileError(f"cannot write {target}: it is no ordinary file")
    existing = next(folder for folder in (target, *target.absolute().parents) if folder.exists())
    folder = existing if existing.is_dir() else existing.parent
    if existing != target and not existing.is_dir():
        raise OutputFileError(f"cannot write {target}: {existing} is no folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputFileError(f"cannot write {target}: no permission in {folder}")


def file_name(text: str) -> str:
    """A text as the name of a file: letters, digits, - . and _, all others as -."""
    return "".join(sign if sign.isalnum() or sign in "-._" else "-" for sign in text)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write `content` to `path`, whole or not at all. Raises `OutputFileError`."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def write_text(path: str | os.PathLike[str], content: str) -> Path:
    r"""Write `content` as UTF-8 to `path`, whole or not at all; bytes of names that are none as `\udce9`.

    Raises `OutputFileError`.
    """
    return write_bytes(path, content.encode(errors="backslashreplace"))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def move_folder(folder: Path, target: Path, old: Path) -> None:
    """Give a finished folder the name `target`, and what has that name now the name `old`.

    Equal writers may do so at once: whatever each finds there is set aside, and the last one stays.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with contextlib.suppress(FileNotFoundError):
            target.rename(old)
        try:
            folder.rename(target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(old, ignore_errors=True)


def _as_a_plain_file(path: Path) -> None:
    """Flush to the disk (which is where a full one shows) and give the permissions an ordinary file gets."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    mask = os.umask(0)  # it can be read only by setting it
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def _cannot_write(path: Path, error: OSError) -> OutputFileError:
    return OutputFileError(f"cannot write {path}: {error.strerror or error}; nothing was left there")


SUFFIXES = (".toml", ".yaml", ".yml", ".json")
"""Files of keys and values, which their suffix distinguishes."""
_PICTURES = (".svg", ".png", ".pdf")


def read_mapping(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML, YAML or JSON file (by its suffix) that holds keys and values.

    Raises `InputFileError` when it is missing, unreadable, not of its format, or holds something else.
    """
    path = Path(path)
    if path.is_file() and path.suffix.lower() not in SUFFIXES:
        raise wrong(path, "a name that ends in .toml, .yaml, .yml or .json", path.suffix, kind=InputFileError)
    text = read_text(path)
    try:
        match path.suffix.lower():
            case ".toml":
                data = tomllib.loads(text)
            case ".json":
                data = json.loads(text, object_pairs_hook=once)
            case _:
                data = _read_yaml(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise InputFileError(f"{path}: not valid {path.suffix[1:].upper()}: {error}") from None
    except RecursionError:
        raise InputFileError(f"{path}: nested too deeply to be read") from None
    except (ValueError, TypeError) as error:
        # a number of thousands of digits, a date that is none, a key that cannot be one, a key given twice
        raise InputFileError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        held = "nothing" if data is None else type(data).__name__
        raise InputFileError(f"{path}: expected keys with values, got {held}")
    return data


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a dictionary. Raises `ValueError` for a key given twice."""
    made: dict[str, Any] = {}
    for key, given in pairs:
        if key in made:
            raise ValueError(f"key {key!r} is given twice")
        made[key] = given
    return made


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 file, also a gzipped one (.gz).

    Raises `InputFileError` when it is missing (and names the nearest there that is no picture), a folder,
    unreadable or not UTF-8.
    """
    path = Path(path)
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            return file.read()
    except FileNotFoundError:
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        siblings = [name for name in siblings if Path(name).suffix.lower() not in _PICTURES]
        raise InputFileError(f"{path}: no such file{nearest(path.name, siblings)}") from None
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise InputFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


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
        return once([(self.construct_object(k, True), self.construct_object(v, True)) for k, v in node.value])

    loader.add_constructor("tag:yaml.org,2002:map", mapping)
    return loader


def _read_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.load(text, Loader=_yaml_loader())  # noqa: S506
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from None
