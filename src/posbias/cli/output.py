"""What commands print: the answer on stdout, progress on stderr."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.core.progress import Event, OnEvent, Pace, one_line
from posbias.core.terminal import fitted

if TYPE_CHECKING:
    from posbias.core.answers import Answer
    from posbias.profiles.profile import Profile

log = logging.getLogger(__name__)
COMPILING = "loading compiled code (compiled on first use, which takes some seconds)"
DELAY = 0.5
"""Seconds before a bar is drawn: what is done at once needs none."""
PIPED = 30.0
"""Seconds between the bars in a file or pipe, where each is one more line."""
_BARS: ContextVar[bool] = ContextVar("bars", default=True)


def answer_with(
    answer: "Answer", lines: Callable[[], list[str]], json: bool, out: Path | None = None
) -> None:
    """Print an answer as JSON, or without `json` the lines, wrapped on a terminal; write it to `out` too.

    Raises `OutputFileError`.
    """
    from posbias.core.formats import dump_json, save_json

    data = answer.as_json() if json or out is not None else {}
    if out is not None:
        save_json(data, out)
    text = dump_json(data) if json else "\n".join(fitted([_printable(line) for line in lines()]))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _printable(text: str) -> str:
    """A line, or several, with nothing in it that a terminal would obey but the ends of lines."""
    return "\n".join(one_line(part, None) for part in text.split("\n"))


def read_as(profiles: "Mapping[str, Profile]") -> dict[str, str]:
    """The key `read_as` of an answer: what files made elsewhere were taken for, by argument."""
    return {name: str(one.attrs["read_as"]) for name, one in profiles.items() if "read_as" in one.attrs}


@contextmanager
def without_bars(quiet: bool = True) -> Iterator[None]:
    """Show no progress inside the block, where `quiet`."""
    token = _BARS.set(not quiet)
    try:
        yield
    finally:
        _BARS.reset(token)


@contextmanager
def progress(waiting: str | None = None) -> Iterator[OnEvent]:
    """A bar on stderr for each unit, with rate and remaining time; one that is full goes, and may come again.

    A bar begins where its first event is: what was done before counts for no rate. A full one is shown once. The
    line `waiting` is said if the first event takes more than two seconds to come.
    """
    from tqdm import tqdm

    bars: dict[str, Any] = {}
    full: dict[str, Event] = {}
    with ExitStack() as stack:
        if waiting is not None:
            stack.enter_context(notice(waiting))

        def on_event(event: Event) -> None:
            stack.close()
            if not _BARS.get() or full.get(event.unit) == event:
                return
            if event.unit not in bars:
                full.pop(event.unit, None)
                look = {"unit": event.unit, "unit_scale": True, "dynamic_ncols": True, "delay": DELAY}
                look |= {} if sys.stderr.isatty() else {"mininterval": PIPED, "maxinterval": PIPED}
                bars[event.unit] = tqdm(total=event.total, initial=event.done, file=sys.stderr, **look)
            bar = bars[event.unit]
            if bar.total != event.total:
                bar.total = event.total
                bar.refresh()
            bar.update(event.done - bar.n)
            if event.total is not None and event.done >= event.total:
                bars.pop(event.unit).close()
                full[event.unit] = event

        try:
            yield on_event
        finally:
            for bar in bars.values():
                bar.close()


@contextmanager
def notice(line: str, after: float = 2.0) -> Iterator[None]:
    """Log `line` if what follows takes longer than `after` seconds."""
    timer = threading.Timer(after, log.info, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def resumable(what: str = "prompts", waiting: str | None = None) -> Iterator[OnEvent]:
    """Progress on pieces of work; KeyboardInterrupt says how many of them are kept, once that is known."""
    heard, pace = list[Event](), Pace()
    with progress(waiting) as show:

        def on_event(event: Event) -> None:
            heard[1:] = [event]
            show(event)

        try:
            yield on_event
        except KeyboardInterrupt:
            if not heard:
                raise
            done, total = heard[-1].done, heard[-1].total or 0
            kept = f"{done:,.0f} of {total:,.0f} {what} are kept"
            raise KeyboardInterrupt(pace.goes_on(kept, done - heard[0].done, total - done)) from None
