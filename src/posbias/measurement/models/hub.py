"""A model of a hub by its id, as a folder.

`huggingface_hub` downloads what loading reads, and nothing else, into its own cache; from there on the model is
a folder like any other. Files that arrived whole before an interruption are kept.
Under `HF_HUB_OFFLINE=1` only what the cache holds is taken.
"""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posbias.core.errors import ModelError

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
READ = (".json", ".safetensors", ".model", ".tiktoken", ".txt", ".jinja")
"""Endings of the files that loading reads."""
# copies of the weights for other programs
_NOT_READ = ["*/*", "consolidated*"]
_PICKLED = ["pytorch_model*.bin"]
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def is_hub_id(name: str) -> bool:
    """Tell whether `name` has the form of a hub id, `organisation/model`."""
    return _ID.fullmatch(name) is not None


def snapshot(name: str, revision: str | None = None, code: bool = False) -> Path:
    """Return the folder of the model `name` at `revision` (a branch, tag or commit; None: the main one).

    `code`: also its own Python files. The folder is named after the commit. Weights pickled by torch are
    taken where there are no safetensors. Raises `ModelError` when it cannot be had whole.
    """
    wanted = [f"*{ending}" for ending in READ] + (["*.py"] if code else [])
    folder = _download(name, revision, wanted)
    if not any(folder.glob("*.safetensors")):
        folder = _download(name, folder.name, _PICKLED)
    missing = missing_weights(folder)
    if missing is not None:
        raise ModelError(f"model: {name!r} has no {missing} at {folder.name}; {_advice()}")
    return folder


def missing_weights(folder: Path) -> str | None:
    """Return the first file of weights that a model's folder lacks, None when they are all there."""
    if has_safetensors(folder):
        index, single = _INDEXES[0], "*.safetensors"
    else:
        index, single = _INDEXES[1], _PICKLED[0]
    try:
        parts = sorted(set(json.loads((folder / index).read_text(encoding="utf-8"))["weight_map"].values()))
    except FileNotFoundError:
        return None if any(folder.glob(single)) else "model.safetensors, nor pytorch_model.bin"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"readable {index}"
    return next((part for part in parts if not (folder / part).is_file()), None)


def has_safetensors(folder: Path) -> bool:
    """Tell whether the weights in `folder` are safetensors."""
    return (folder / _INDEXES[0]).is_file() or any(folder.glob("*.safetensors"))


def _download(name: str, revision: str | None, wanted: list[str]) -> Path:
    # only here: importing it takes a second
    import huggingface_hub
    from huggingface_hub import errors

    begun = f"model: {name!r}"
    try:
        with _quiet():
            return Path(
                huggingface_hub.snapshot_download(
                    name, revision=revision, allow_patterns=wanted, ignore_patterns=_NOT_READ
                )
            )
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{begun} is gated: accept its terms on its page, then log in with: hf auth login"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"{begun} is no folder here, and not on the hub or private there: check the spelling, or log in "
            "with: hf auth login"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(f"{begun} has no revision {revision!r}, a branch, tag or commit needed") from error
    except errors.LocalEntryNotFoundError as error:
        where = "" if revision is None else f" at {revision!r}"
        raise ModelError(
            f"{begun}{where} is no folder here, and not or not whole in the hub's cache; {_advice()}"
        ) from error
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"{begun} could not be downloaded: {reason}; {_advice()}") from error


def _advice() -> str:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set: unset it, or give a folder or a .gguf file"
    return "check the network, then run the same again (files that arrived whole are kept)"


@contextmanager
def _quiet() -> Iterator[None]:
    """Show the hub's progress bars on a terminal only, and none of its warnings: errors come from here."""
    from huggingface_hub import utils

    hide = not sys.stderr.isatty() and not utils.are_progress_bars_disabled()
    level = utils.logging.get_verbosity()
    utils.logging.set_verbosity_error()
    if hide:
        utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.logging.set_verbosity(level)
        if hide:
            utils.enable_progress_bars()
