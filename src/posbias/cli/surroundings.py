"""What a command finds around it: streams and environment variables, made fit or refused before any work."""

import codecs
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posbias.core.arguments import typed_integer
from posbias.core.errors import InvalidValueError, OutputFileError


@contextmanager
def prepared() -> Iterator[None]:
    """Streams that can be written to, whatever they can spell; pictures that need no screen.

    Raises `OutputFileError` where standard output is closed, `InvalidValueError` for a variable that libraries
    would stumble over.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
        raise OutputFileError("standard output: it is closed; a file, or /dev/null, needed")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # halves of characters, from names that are no text, are spelt out as JSON spells them
            whole = codecs.lookup(stream.encoding).name == "utf-8"
            stream.reconfigure(errors="backslashreplace" if whole else "replace")
    threads = os.environ.get("NUMBA_NUM_THREADS")
    if threads is not None and (typed_integer(threads) or 0) < 1:
        raise InvalidValueError(f"NUMBA_NUM_THREADS: {threads!r} given, an integer of at least 1 needed")
    # what `timeout` and schedulers send ends a command as Ctrl-C does, so that nothing finished is lost
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    # figures go to files: no backend with a screen, nor one that is not there
    os.environ["MPLBACKEND"] = "agg"
    yield


def silence_output() -> None:
    """Send what is left in the buffer of standard output nowhere: it could not be written."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):  # not a stream of the system
        pass
