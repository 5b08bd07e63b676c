"""What survives an interruption: one safetensors file, so that weights and bookkeeping are of one generation.

The tensors (weights, moments, curves) are the file's body; what is not a tensor is JSON in its header, with the
fingerprint of the training and a digest of the body. The file is written whole or not at all, whenever a
hundred times the last writing time, and at least two seconds, have passed: a hundredth of the run at most.
"""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from posbias import files
from posbias.errors import InputFileError

_PATIENCE, _LEAST = 100, 2.0
State = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and what goes into JSON."""


class Checkpoint:
    """The checkpoint file of one training; with path `None` nothing is read or written.

    `say` hears when a file is resumed from, or damaged and ignored.
    """

    def __init__(self, path: Path | None, fingerprint: str, say: Callable[[str], None]):
        self._path = path
        self._fingerprint = fingerprint
        self._say = say
        self._wait = _LEAST
        self._last = time.monotonic()

    def load(self) -> State | None:
        """The stored state, or None when there is no file or it is damaged.

        Raises `InputFileError` when the file belongs to another training or cannot be read.
        """
        if self._path is None or not self._path.exists():
            return None
        try:
            with safe_open(self._path, framework="pt") as file:
                header = file.metadata() or {}
                # cloned: the file's memory is neither aligned nor ours
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            note, fingerprint = json.loads(header["state"]), header["fingerprint"]
            whole = header["digest"] == _digest(tensors, header["state"])
        except (SafetensorError, KeyError, ValueError):
            whole, note, tensors, fingerprint = False, {}, {}, ""
        except OSError as error:
            raise InputFileError(
                f"checkpoint: {self._path} cannot be read: {error.strerror or error}"
            ) from error
        if not whole:
            self._say(f"checkpoint {self._path} is damaged: starting over")
            return None
        if fingerprint != self._fingerprint:
            raise InputFileError(
                f"checkpoint: {self._path} belongs to another training ({fingerprint}, this one is "
                f"{self._fingerprint}); give another file or remove it"
            )
        return tensors, note

    def keep_up(self, state: Callable[[], State]) -> None:
        """Write if writing has become cheap against the time since the last writing."""
        if self._path is not None and time.monotonic() - self._last >= self._wait:
            self.write(state)

    def write(self, state: Callable[[], State]) -> None:
        """Write what `state` makes. Raises `OutputFileError`."""
        if self._path is None:
            return
        begin = time.monotonic()
        tensors, note = state()
        tensors = {name: one.cpu().contiguous() for name, one in tensors.items()}
        text = json.dumps(note, sort_keys=True)
        header = {"fingerprint": self._fingerprint, "state": text, "digest": _digest(tensors, text)}
        files.write_bytes(self._path, safetensors.torch.save(tensors, metadata=header))
        self._last = time.monotonic()
        self._wait = max(_LEAST, _PATIENCE * (self._last - begin))


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    return hashlib.sha256(safetensors.torch.save(tensors) + text.encode()).hexdigest()
