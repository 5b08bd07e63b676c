"""What stops a computation before its end: signals, put off until its state is whole, and what is then said."""

import math
import signal
import threading
import time
from types import TracebackType
from typing import Any

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
                    signal.signal(number, self._hear)
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

    def _hear(self, number: int, frame: Any) -> None:
        self._heard.append(number)


class Pace:
    """How fast work goes, from now on: what an interruption says of the rest."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def seconds(self, done: float, left: float) -> float:
        """How long what is left takes, in the same unit as what was done since; NaN if that is nothing."""
        return left * (time.monotonic() - self._begin) / done if done > 0 else math.nan

    def goes_on(self, kept: str, done: float, left: float) -> str:
        """'7 of 18 cells are kept in x; about 1 h 20 min left; the same command goes on from there'."""
        seconds = self.seconds(done, left)
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
