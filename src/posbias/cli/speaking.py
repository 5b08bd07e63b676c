"""How commands speak: the answer on stdout, everything else on stderr."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from cyclopts import Parameter

from posbias.events import Event, OnEvent


def _whole(type_: Any, tokens: Any) -> int:
    """An integer as it was typed: 2.5 is not rounded, 1e6 is refused."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} given, an integer needed") from None


def _many(type_: Any, tokens: Any) -> int:
    """A large integer, as it was typed or in powers of ten: 1e7, 2.5e6; 2.5 is not rounded."""
    word = tokens[0].value
    try:
        return int(word)
    except ValueError:
        pass
    try:
        number = Decimal(word)
        if number.is_finite() and number.adjusted() < 30 and number == int(number):
            return int(number)
    except InvalidOperation:
        pass
    raise ValueError(f"{word!r} given, an integer such as 250000 or 1e7 needed")


Many = Annotated[int, Parameter(converter=_many, n_tokens=1)]
Whole = Annotated[int, Parameter(converter=_whole, n_tokens=1)]
Json = Annotated[bool, Parameter(name="--json", negative="")]
Again = Annotated[bool, Parameter(name="--again", negative="")]
COMPILING = "loading compiled code (compiled on first use, which takes some seconds)"


def say(line: str) -> None:
    if "tqdm" in sys.modules:
        # above a bar, if one is there
        sys.modules["tqdm"].tqdm.write(line, file=sys.stderr)
    else:
        sys.stderr.write(line + "\n")
    sys.stderr.flush()


def answer_with(data: Any, lines: Callable[[], list[str]]) -> None:
    from posbias.store import dump_json

    sys.stdout.write((dump_json(data) if data is not None else "\n".join(lines())) + "\n")
    sys.stdout.flush()


@contextmanager
def bar(waiting: str | None = None) -> Iterator[OnEvent]:
    """A bar on stderr with rate and remaining time; events of another unit get a bar of their own below it.

    The line `waiting` is said if the first event takes more than two seconds to come.
    """
    from tqdm import tqdm

    bars: dict[str, Any] = {}
    with ExitStack() as patience:
        if waiting is not None:
            patience.enter_context(notice(waiting))

        def on_event(event: Event) -> None:
            patience.close()
            if event.unit not in bars:
                bars[event.unit] = tqdm(
                    total=event.total, unit=event.unit, unit_scale=True, file=sys.stderr, dynamic_ncols=True
                )
            shown = bars[event.unit]
            if shown.total != event.total:
                shown.total = event.total
                shown.refresh()
            shown.update(event.done - shown.n)

        try:
            yield on_event
        finally:
            for shown in bars.values():
                shown.close()


@contextmanager
def bar_of(unit: str, waiting: str | None = None) -> Iterator[Callable[[float, float | None], None]]:
    """A bar for who counts in (done, wanted or None)."""
    with bar(waiting) as on_event:
        yield lambda done, wanted: on_event(Event(done, wanted, unit))


@contextmanager
def notice(line: str, after: float = 2.0) -> Iterator[None]:
    """Say `line` if what follows takes longer than `after` seconds."""
    timer = threading.Timer(after, say, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
