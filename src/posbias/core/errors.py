"""What can go wrong, as types.

Every message says three things in one line: which argument (or file, or key), what was given, and what
would be right. `PosbiasError` is what the command line catches: one line, exit code 2, no traceback.
"""

import difflib
from collections.abc import Iterable


class PosbiasError(Exception):
    """Anything posbias refuses to do; the message is one line for a person."""


class InvalidValueError(PosbiasError, ValueError):
    """An argument or a key holds a value that cannot be right."""


class InputFileError(PosbiasError):
    """A file that was to be read is missing, unreadable, damaged or not of the expected form."""


class DamagedError(InputFileError):
    """A file is not what was written: cut short, altered, or of another kind than asked for."""


class OtherKindError(DamagedError):
    """A file is a result of another kind than asked for; `held` is its own, or None."""

    held: str | None = None


class SchemaError(InputFileError):
    """A file is whole, but written by a posbias whose files have another schema version."""


class OutputFileError(PosbiasError):
    """A file could not be written; nothing half-written was left behind."""


class ModelError(PosbiasError):
    """A language model could not be found, loaded, recognised or measured."""


class NonFiniteError(ModelError):
    """Activations, outputs or a gradient of a model are not finite in a prompt; others may be fine."""


class MissingPackageError(PosbiasError):
    """An optional package is needed for this part and is not installed."""


class PluginError(PosbiasError):
    """Another package brings something that cannot be loaded or is not what it should be."""


class WorkerError(PosbiasError):
    """A process that was doing a part of the work ended before its time."""


class ClusterError(PosbiasError):
    """A cluster cannot be reached, or cannot do what it is asked to."""


def nearest(word: str, choices: Iterable[str], there: Iterable[str] = ()) -> str:
    """Return `"; did you mean 'x'?"` for the choice nearest in any case, or "".

    Never `word` itself, nor one of `there`, the names that were given already.
    """
    if len(word) > 80:
        return ""
    taken = {word, *there}
    folded = {one.lower(): one for one in choices if one not in taken}
    close = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.5)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""
