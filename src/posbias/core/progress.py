"""What long work says while it runs: how far it is, words on stderr, and what an interruption leaves.

A function that takes long has a parameter `on_event: OnEvent | None = None` and calls it with how far it has come,
in the thread that it was called in. Words go through `logging.getLogger(__name__)`: `info` for what happens,
`warning` for what went wrong and was got over, such as a damaged file. Importing posbias installs no handler.
"""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Event:
    """How far work has come: `done` of `total` (None: nobody knows how much there is), both in `unit`.

    `share` is what is done of all, in [0, 1]; 0 for an unknown total, 1 where there is nothing to do.
    """

    done: float
    total: float | None = None
    unit: str = ""

    @property
    def share(self) -> float:
        if self.total is None:
            return 0.0
        return min(1.0, self.done / self.total) if self.total > 0 else 1.0


OnEvent = Callable[[Event], None]


KEPT = "what is finished is kept; the same command goes on from there"
"""What is said where nobody knows more."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C; what `timeout`, a scheduler or a parent process sends."""


class Deferred:
    """A block in which signals wait until `check` is called, or until it ends.

        with Deferred() as interruption:
            while not finished:
                step()                  # is never left in the middle
                interruption.check()    # raises KeyboardInterrupt after Ctrl-C

    Only signals that a function handles are put off: one that is ignored stays so, and one that ends the process
    does. Outside of the main thread, which alone hears signals, it does nothing.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._heard: list[int] = []

    def __enter__(self) -> "Deferred":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if callable(before := signal.getsignal(number)):
                    self._before[number] = before
                    signal.signal(number, lambda heard, frame: self._heard.append(heard))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if error is None:
            self.check()

    def check(self) -> None:
        """Do now what the first signal that came meant to do. Raises what its handler does."""
        if self._heard:
            number = self._heard[0]
            self._heard.clear()
            self._before[number](number, None)


class Pace:
    """How fast work goes, from now on: what an interruption says of the rest."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def goes_on(self, kept: str, done: float, left: float) -> str:
        """'7 of 18 cells are kept in x; about 1 h 20 min left; the same command goes on from there'.

        `left` is in the same unit as what was `done` since; how long it takes is not known if that is nothing.
        """
        seconds = left * (time.monotonic() - self._begin) / done if done > 0 else 0.0
        rest = f"; about {time_text(seconds)} left" if seconds > 0 else ""
        return f"{kept}{rest}; the same command goes on from there"


def time_text(seconds: float) -> str:
    """'40 s', '12 min', '1 h 20 min', '3 d 4 h'."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 1440:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(minutes / 60)
    return f"{hours // 24} d {hours % 24} h"


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
