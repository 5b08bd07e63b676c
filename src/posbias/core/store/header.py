"""What every file of results says of itself: kind, schema, what it was computed from, with what, and a digest.

The fingerprint of a result is that of its specification alone (`fingerprint`): neither versions nor
cost change it, so that what was computed once is found again.
"""

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posbias import __version__
from posbias.core import spec
from posbias.core.errors import DamagedError, OtherKindError, SchemaError

VERSION = __version__


@dataclass(frozen=True)
class Header:
    """What a file says of its content.

    `specification` is all that decides the content, its seed included, in JSON's terms. `amount` is how much was
    drawn (samples, instances, sequences) where more of it serves a smaller wish; it is no part of the
    specification then. `versions` are those that computed it, `cost` what it took; `companion` is the digest of
    the arrays of a second file that belongs to it. `digest` covers all of this and the content; a codec sets it.
    """

    kind: str
    schema: int
    specification: Mapping[str, Any] = field(default_factory=dict)
    amount: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    companion: str = ""
    digest: str = ""

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of the specification."""
        return spec.fingerprint(self.specification)

    @property
    def version(self) -> str:
        """The version of posbias that this file's numbers are of."""
        return self.versions.get("posbias", "")

    def as_dict(self) -> dict[str, Any]:
        """The header as a file has it, what is empty left out."""
        told = {"posbias_kind": self.kind, "schema": self.schema, "digest": self.digest}
        told |= {"fingerprint": self.fingerprint, "specification": dict(self.specification)}
        rest = {name: getattr(self, name) for name in ("amount", "versions", "cost", "companion")}
        return told | {name: held for name, held in rest.items() if held not in (None, {}, "")}

    @classmethod
    def of(cls, told: Mapping[str, Any], path: Any) -> "Header":
        """The header of the file `path` from what `as_dict` made. Raises `DamagedError` for anything else."""
        keys = {"kind" if name == "posbias_kind" else name: held for name, held in told.items()}
        fingerprint = keys.pop("fingerprint", None)
        try:
            header = cls(**keys)
            if header.fingerprint != fingerprint:
                raise ValueError("of another specification")
        except (TypeError, ValueError):
            raise DamagedError(f"{path}: damaged, its header is not whole") from None
        return header


def check(header: Mapping[str, Any], path: Any, kind: str, schema: int) -> None:
    """Raise unless a header's `posbias_kind` and `schema` are these: `OtherKindError`, `SchemaError`."""
    held, version = header.get("posbias_kind"), header.get("schema")
    if held != kind:
        holds = f"a posbias {held}" if held else "no posbias result"
        error = OtherKindError(f"{path}: holds {holds}, not a posbias {kind}")
        error.held = held if isinstance(held, str) else None
        raise error
    if version != schema:
        held = "no schema version" if version is None else f"schema version {version}"
        raise SchemaError(f"{path}: {held}, this posbias reads and writes {schema}")


def versions_here(packages: tuple[str, ...] = ()) -> dict[str, str]:
    """The versions of Python, posbias, numpy and `packages`."""
    named = {name: importlib.metadata.version(name) for name in ("numpy", *packages)}
    return {"python": platform.python_version(), "posbias": VERSION, **named}


def canonical(data: Any) -> bytes:
    """JSON's terms as bytes that are equal for equal data, in any order of keys; half a character is one too."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="surrogatepass")


def raw_bytes(array: np.ndarray) -> memoryview:
    """The bytes of an array, row by row, without a copy where it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def digest_of(header: Header) -> "hashlib._Hash":
    """A running SHA-256 over a header without its digest, for a codec to add the content to."""
    told = {name: held for name, held in header.as_dict().items() if name != "digest"}
    return hashlib.sha256(canonical(told))
