"""How commands speak: the answer on stdout, everything else on stderr."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from cyclopts import Parameter


def _whole(type_: Any, tokens: Any) -> int:
    """An integer as it was typed: 2.5 is not rounded, 1e6 is refused."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} given, an integer needed") from None


Whole = Annotated[int, Parameter(converter=_whole, n_tokens=1)]
Json = Annotated[bool, Parameter(name="--json", negative="")]
Again = Annotated[bool, Parameter(name="--again", negative="")]
COMPILING = "loading compiled code (compiled on first use, which takes some seconds)"


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def answer_with(data: Any, lines: Callable[[], list[str]]) -> None:
    from posbias.store import dump_json

    sys.stdout.write((dump_json(data) if data is not None else "\n".join(lines())) + "\n")
    sys.stdout.flush()


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
