"""What survives an interruption: the state of one unfinished computation, in a safetensors file.

Writing takes a stated share of the run at most, the first writing included: a state is written when what writing
has taken so far, with what this one is expected to take, is less than that share. Whoever asked for a checkpoint
discards it once the result is safely stored.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from posbias.core.errors import DamagedError, InputFileError, PosbiasError, SchemaError
from posbias.core.store.formats import Header, SafetensorsCodec, Tensors

log = logging.getLogger(__name__)
KIND, SCHEMA = "checkpoint", 2
LEAST = 2.0
"""Seconds between two writings at least, unless another number is given."""
RATE = 100e6
"""Bytes a second that a disk is taken to write of what no writing has timed yet."""


class Checkpoint:
    """The checkpoint file of the computation with this fingerprint; with path `None` nothing is read or written.

    Writing takes at most one `patience`-th of the time since this was made; `least` seconds pass
    between two writings.
    """

    def __init__(self, path: Path | None, fingerprint: str, patience: float, least: float | None = None):
        self._path, self._fingerprint, self._patience = path, fingerprint, patience
        self._least = LEAST if least is None else least
        self._begin = time.monotonic()
        self._next = self._begin + self._least
        self._spent, self._cost, self._bytes = 0.0, 0.0, 0
        self._note: object = None

    def load(self) -> Tensors | None:
        """The stored state, or None when there is no file or it is damaged, which is logged.

        Raises `InputFileError` when the file belongs to another computation or cannot be read.
        """
        if self._path is None or not self._path.exists():
            return None
        try:
            header, state = SafetensorsCodec().read(self._path, KIND, SCHEMA)
        except (DamagedError, SchemaError):
            log.warning("checkpoint %s is damaged: starting over", self._path)
            return None
        except InputFileError as error:
            if not self._path.exists():
                return None  # an equal run that has finished removed it
            raise InputFileError(f"checkpoint: {error}") from None
        fingerprint = header.specification.get("fingerprint", "")
        if fingerprint != self._fingerprint:
            raise InputFileError(
                f"checkpoint: {self._path} belongs to another job ({fingerprint[:12]}, this one is "
                f"{self._fingerprint[:12]}); give another file or remove it"
            )
        self._note = state.note
        return state

    def forget(self) -> None:
        """Take what was loaded for nothing; the next writing replaces the file."""
        self._note = None

    def keep_up(self, state: Callable[[], Tensors]) -> None:
        """Write what `state` returns if the share of the run allows it. Raises `OutputFileError`."""
        now = time.monotonic()
        if self._path is None or now < self._next:
            return
        tensors = state()
        expected = self._cost + max(0, tensors.nbytes - self._bytes) / RATE
        due = self._begin + self._patience * (self._spent + expected)
        if now >= due:
            self.write(lambda: tensors)
        else:
            self._next = due

    def write(self, state: Callable[[], Tensors]) -> None:
        """Write what `state` returns, if it is something and not in the file already. Raises `OutputFileError`."""
        if self._path is None:
            return
        begin, tensors = time.monotonic(), state()
        if not tensors.arrays or (tensors.note and tensors.note == self._note):
            return
        header = Header(KIND, SCHEMA, {"fingerprint": self._fingerprint})
        SafetensorsCodec().write(self._path, header, tensors)
        end = time.monotonic()
        self._cost, self._bytes, self._note = end - begin, tensors.nbytes, tensors.note
        self._spent += self._cost
        self._next = end + self._least

    def write_after(self, state: Callable[[], Tensors], error: BaseException) -> None:
        """Write because of `error`, which is to be raised on; a failure to write becomes its note."""
        try:
            self.write(state)
        except PosbiasError as failure:
            if failure is not error:
                error.add_note(str(failure))

    def discard(self) -> None:
        """Remove the file; a missing one is fine."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
