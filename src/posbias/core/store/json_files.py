"""JSON: text that any program reads, every float in full; and the codec of results that are a few numbers."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from posbias.core.errors import DamagedError, InputFileError
from posbias.core.files import write_text
from posbias.core.store.header import Header, canonical, check, digest_of

_DIGEST = "digest"


def dump_json(data: Any) -> str:
    """JSON with every float in full; NaN and infinity, which JSON cannot say, become null."""
    return json.dumps(_finite(data), ensure_ascii=False, allow_nan=False)


def save_json(data: Any, path: str | os.PathLike[str]) -> Path:
    """Write `data` as JSON, of a mapping with its SHA-256 as the last key. Raises `OutputFileError`."""
    text = dump_json(data)
    if isinstance(data, Mapping):
        told = json.loads(text)
        told.pop(_DIGEST, None)
        text = dump_json(told | {_DIGEST: hashlib.sha256(canonical(told)).hexdigest()})
    return write_text(path, text + "\n")


def undamaged(data: Mapping[str, Any], path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `save_json` was given, without its digest; a mapping that somebody wrote has none.

    Raises `DamagedError` where the digest is another's.
    """
    told = dict(data)
    digest = told.pop(_DIGEST, None)
    if digest is not None and digest != hashlib.sha256(canonical(told)).hexdigest():
        raise DamagedError(f"{path}: damaged, its content does not match its digest")
    return told


def parse_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping that a JSON file of results holds.

    Raises `InputFileError` when it is missing or cannot be read, `DamagedError` when it is no mapping in JSON.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_bytes(), parse_constant=_refuse)
    except FileNotFoundError:
        raise InputFileError(f"{path}: no such file") from None
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: damaged, not valid JSON ({error})") from None
    if not isinstance(data, dict):
        raise DamagedError(f"{path}: damaged, no mapping of keys")
    return data


@dataclass(frozen=True)
class JsonCodec:
    """A header and a mapping in JSON's terms (key `content`) as one JSON file of one line."""

    suffix = ".json"

    def text(self, header: Header, content: Mapping[str, Any]) -> tuple[Header, str]:
        """The header with its digest, and the line."""
        told, content = json.loads(dump_json([replace(header, digest="").as_dict(), content]))
        header = Header.of(told, "header")
        header = replace(header, digest=_digest(header, content))
        return header, dump_json(header.as_dict() | {"content": content})

    def write(self, path: Path, header: Header, content: Mapping[str, Any]) -> Header:
        """Write a file, whole or not at all; return its header. Raises `OutputFileError`."""
        header, text = self.text(header, content)
        write_text(path, text + "\n")
        return header

    def read(self, path: Path, kind: str, schema: int) -> tuple[Header, dict[str, Any]]:
        """The header and content of a file.

        Raises `DamagedError` for a file of another kind or one whose digest does not match, `SchemaError`,
        `InputFileError` when it is missing or cannot be read.
        """
        data = parse_json(path)
        check(data, path, kind, schema)
        return verified(data, path)


def verified(data: Mapping[str, Any], path: Path) -> tuple[Header, dict[str, Any]]:
    """Header and content of a file as `parse_json` gave it. Raises `DamagedError` unless the digest matches."""
    told = dict(data)
    content = told.pop("content", None)
    header = Header.of(told, path)
    if not isinstance(content, dict) or header.digest != _digest(header, content):
        raise DamagedError(f"{path}: damaged, its content does not match its digest")
    return header, content


def _digest(header: Header, content: Mapping[str, Any]) -> str:
    digest = digest_of(header)
    digest.update(canonical(content))
    return digest.hexdigest()


def _finite(data: Any) -> Any:
    match data:
        case dict():
            return {key: _finite(inner) for key, inner in data.items()}
        case np.ndarray():
            return _finite(data.tolist())
        case list() | tuple():
            return [_finite(inner) for inner in data]
        case np.generic():
            return _finite(data.item())
        case float() if not math.isfinite(data):
            return None
    return data


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")
