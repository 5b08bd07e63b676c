"""Words on stderr: what the command line does with the log records of posbias.

Modules say words with `logging.getLogger(__name__)`: `info` for what happens, `warning` for what went wrong and
was got over, such as a damaged file. Importing posbias installs nothing; used as a library it logs as any other.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LABEL: ContextVar[str] = ContextVar("label", default="")


MOST = 500
"""Characters of a message."""


def one_line(text: str, most: int | None = MOST) -> str:
    """A text as one line of at most `most` characters."""
    text = " ".join(text.splitlines())
    return text if most is None or len(text) <= most else f"{text[: most - 2]} …"


class StderrHandler(logging.Handler):
    """Writes each record as a line on stderr, above the progress bar if one is there."""

    def emit(self, record: logging.LogRecord) -> None:
        line, label = one_line(self.format(record), 4 * MOST), _LABEL.get()
        if label not in line:
            line = f"{label}: {line}"
        if "tqdm" in sys.modules:
            sys.modules["tqdm"].tqdm.write(line, file=sys.stderr)
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()


@contextmanager
def on_stderr(verbosity: int = 0) -> Iterator[None]:
    """Write posbias' records on stderr inside the block, from `info` on; -1: from `warning`, 1: from `debug`."""
    logger, handler = logging.getLogger("posbias"), StderrHandler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO - 10 * verbosity)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextmanager
def muted(quiet: bool = True) -> Iterator[None]:
    """Log nothing inside the block, where `quiet`."""
    logger = logging.getLogger("posbias")
    before = logger.level
    logger.setLevel(logging.CRITICAL if quiet else before)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def labelled(label: str) -> Iterator[None]:
    """Begin the lines on stderr with "label: " inside the block, unless they name it themselves."""
    token = _LABEL.set(label)
    try:
        yield
    finally:
        _LABEL.reset(token)
