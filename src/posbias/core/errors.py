"""What can go wrong, as types; and what is asked of an argument: each check returns it, or raises.

Every message is one line, "name: expected WHAT, got VALUE", of an argument, a file or a key. `PosbiasError` is
what the command line catches: one line, exit code 2, no traceback.
"""

import difflib
import math
import reprlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from numbers import Integral, Real
from typing import Any, TypeVar


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


class LackingError(InputFileError):
    """A file is whole, but has none of what was chosen of it: columns, or a context length."""


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

    Never `word` itself, nor one of `there`, the names that were given already, nor one that differs in more than
    half as many letters as `word` has.
    """
    if len(word) > 80:
        return ""
    taken = {word, *there}
    folded = {one.lower(): one for one in choices if one not in taken}
    close = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.5)
    shared = difflib.SequenceMatcher(None, word.lower(), close[0]).get_matching_blocks() if close else []
    differ = max(len(word), *map(len, close), 0) - sum(block.size for block in shared)
    return f"; did you mean {folded[close[0]]!r}?" if close and differ <= len(word) / 2 else ""


Name = TypeVar("Name", bound=str)
LIMIT = 2**63
"""Integers stay below this: arrays and files hold 64 bits."""
MOST_THREADS = 4096
"""Threads, or processes, that a command starts at most."""
LONGEST = 60
"""Characters of a value that an error repeats."""


def shortened(given: Any) -> str:
    """A value as an error repeats it: on one line, with at most `LONGEST` characters; an array by its shape."""
    if hasattr(given, "shape") and hasattr(given, "dtype") and given.shape:
        return f"an array of shape {tuple(given.shape)} and type {given.dtype}"
    if isinstance(given, int) and not isinstance(given, bool) and given.bit_length() > 1000:
        return f"{'-' if given < 0 else ''}2**{given.bit_length() - 1} or more"
    try:
        text = " ".join((repr(given) if isinstance(given, Real) else _SHORT.repr(given)).split())
    except Exception:
        # a class may fail at showing itself
        text = f"a {type(given).__name__}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = LONGEST


def wrong(
    name: object,
    expected: str,
    value: Any = None,
    *,
    got: str | None = None,
    kind: type[PosbiasError] = InvalidValueError,
) -> PosbiasError:
    """The error to raise of an argument, a file or a key: its name, what was expected, what it got.

    That is a `value`, which is repeated as `shortened` does, or in words (`got`).
    """
    return kind(f"{name}: expected {expected}, got {shortened(value) if got is None else got}")


@contextmanager
def errors_of(where: object, kind: type[PosbiasError] = InputFileError) -> Iterator[None]:
    """Say of values in the block that cannot be right that they are in `where`, a file or a part of one."""
    try:
        yield
    except InvalidValueError as error:
        raise kind(f"{where}: {error}") from None


def whole(name: str, given: Any, least: int) -> int:
    """`given`, if it is a whole number ≥ `least` of 64 bits. Raises `InvalidValueError` naming the argument."""
    if not is_integer(given) or given < least:
        most = " and below 2**63" if isinstance(given, Integral) and int(given) >= LIMIT else ""
        raise wrong(name, f"an integer ≥ {least}{most}", given)
    return int(given)


def counted(name: str, given: Any) -> int:
    """A number of threads or processes. Raises `InvalidValueError` below 1 and above `MOST_THREADS`."""
    if whole(name, given, 1) > MOST_THREADS:
        raise wrong(name, f"at most {MOST_THREADS:,}", given)
    return int(given)


def position(name: str, given: Any, tokens: int) -> int:
    """A position of a text, negative ones from its end, counted from 0. Raises `InvalidValueError`."""
    if not is_integer(given) or not -tokens <= int(given) < tokens:
        raise wrong(name, f"a position from {-tokens} to {tokens - 1}", given)
    return int(given) % tokens


def is_integer(given: Any) -> bool:
    """Whether something is an integer of 64 bits, and no truth value."""
    return isinstance(given, Integral) and not isinstance(given, bool) and -LIMIT <= int(given) < LIMIT


def is_number(given: Any) -> bool:
    """Whether something is one real number that float64 reaches, and no truth value."""
    if not isinstance(given, Real) or isinstance(given, bool):
        return False
    try:
        float(given)
    except OverflowError:
        return False
    return True


def non_negative(name: str, given: float) -> float:
    """`given`, if it is finite and ≥ 0. Raises `InvalidValueError` naming the argument."""
    if not is_number(given) or not 0 <= given < math.inf:
        raise wrong(name, "a finite number ≥ 0", given)
    return given


def positive(name: str, given: float) -> float:
    """`given`, if it is finite and above 0. Raises `InvalidValueError` naming the argument."""
    if not is_number(given) or not 0 < given < math.inf:
        raise wrong(name, "a finite number above 0", given)
    return given


def one_of(name: str, given: Name, choices: Iterable[str]) -> Name:
    """`given`, if it is one of the choices. Raises `InvalidValueError` listing them, and naming the nearest."""
    choices = tuple(choices)
    if not isinstance(given, str) or given not in choices:
        got = f"{shortened(given)}{nearest(str(given), choices)}"
        raise wrong(name, f"one of {', '.join(choices)}", got=got)
    return given


def typed_integer(word: str) -> int | None:
    """An integer of 64 bits as people type it: 250000, 1e7, 2.5e6, 8k or 8K (8,000), 1M (1,000,000); else None."""
    factor = {"k": 1_000, "K": 1_000, "M": 1_000_000}.get(word[-1:], 1)
    try:
        number = Decimal(word if factor == 1 else word[:-1]) * factor
    except InvalidOperation:
        return None
    if not number.is_finite() or number.adjusted() >= 30 or number != int(number):
        return None
    return int(number) if is_integer(int(number)) else None
