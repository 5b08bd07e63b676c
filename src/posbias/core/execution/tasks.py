"""What a task is, what it tells while it is performed, and how both are spelt as lines of JSON."""

import base64
import importlib
import json
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from posbias.core import errors
from posbias.core.errors import PosbiasError
from posbias.core.events import Event, OnEvent
from posbias.core.interruption import KEPT
from posbias.core.logs import labelled

_BYTES = "posbias:bytes"
_LOG = logging.getLogger("posbias")


@dataclass(frozen=True)
class Task:
    """A piece of work, in JSON's terms.

    `call` is "module:function", called as function(**arguments, on_event=); what it returns is JSON too, but that
    values may be `bytes`. `cores` and `gpus` are what a cluster sets aside for it; `label` is for people.
    """

    call: str
    arguments: dict[str, Any]
    label: str = ""
    cores: float = 1
    gpus: float = 0


@dataclass(frozen=True)
class Words:
    """A log record of another process."""

    logger: str
    level: int
    text: str


@dataclass(frozen=True)
class Result:
    """What a task returned, at which attempt."""

    value: Any
    attempts: int = 1


@dataclass(frozen=True)
class Failed:
    """Why a task has no result: the message for people, the type of the error, and where it was raised."""

    message: str
    kind: str
    traceback: str = ""

    def error(self) -> Exception:
        """As an error to raise: a `PosbiasError` or `MemoryError` as itself, anything else as `RuntimeError`."""
        kind = MemoryError if self.kind == "MemoryError" else getattr(errors, self.kind, RuntimeError)
        if not (isinstance(kind, type) and issubclass(kind, PosbiasError | MemoryError)):
            kind = RuntimeError
        error = kind(self.message)
        if self.traceback:
            error.add_note(f"in the worker:\n{self.traceback}")
        return error


Last = Result | Failed
"""What comes last of a task, and once."""
News = Event | Words | Last
Hear = Callable[[int, Event | Last], None]
"""Called with a task's number and what it tells; a task's words are logged instead."""
_KINDS: dict[str, Callable[..., News]] = {kind.__name__: kind for kind in (Event, Words, Result, Failed)}


def perform(line: str, on_event: OnEvent) -> str:
    """Do a task that `spell_task` wrote: its `Last` as a line of JSON. Lets only KeyboardInterrupt through."""
    try:
        task = _read(line)
        module, _, name = task["call"].partition(":")
        function = getattr(importlib.import_module(module), name)
        return spell_news(Result(function(**task["arguments"], on_event=on_event)))
    except Exception as error:
        kind, told = type(error).__name__, " ".join(str(error).split())
        message = told if isinstance(error, PosbiasError) else f"{kind}: {told}"
        return spell_news(Failed(message, kind, traceback.format_exc()))


def perform_remotely(line: str, tell: Callable[[Event | Words], None], pause: float) -> str:
    """`perform` in another process than the caller's: tells what is logged too, events every `pause` seconds."""
    told = -pause

    def on_event(event: Event) -> None:
        nonlocal told
        if (now := time.monotonic()) - told >= pause or event.done == event.total:
            told = now
            tell(event)

    handler = logging.Handler()
    handler.emit = lambda record: tell(Words(record.name, record.levelno, record.getMessage()))
    _LOG.setLevel(_read(line)["level"])
    _LOG.addHandler(handler)
    try:
        return perform(line, on_event)
    finally:
        _LOG.removeHandler(handler)


def deliver(tasks: Sequence[Task], hear: Hear, number: int, news: News, attempt: int = 1) -> None:
    """Log a task's words as if they were said here; anything else is for `hear`."""
    if isinstance(news, Words):
        with labelled(tasks[number].label):
            logging.getLogger(news.logger).log(news.level, "%s", news.text)
    else:
        hear(number, replace(news, attempts=attempt) if isinstance(news, Result) else news)


def lost(how: str, attempt: int, retries: int) -> Words | Failed:
    """What is told when a worker is gone in the middle of a task: it is tried again, or has failed."""
    if attempt <= retries:
        text = f"its worker {how}; tried again ({attempt} of {retries})"
        return Words(__name__, logging.WARNING, text)
    times = f", {attempt} times" if attempt > 1 else ""
    return Failed(f"its worker {how}{times}; {KEPT}", "WorkerError")


def spell_task(task: Task) -> str:
    """A task as a line of JSON, and from which level on its words are wanted.

    Raises `TypeError` for arguments that JSON has no word for.
    """
    return _spell({"call": task.call, "arguments": task.arguments, "level": _LOG.getEffectiveLevel()})


def spell_news(news: News) -> str:
    """News as a line of JSON."""
    return _spell([type(news).__name__, vars(news)])


def read_news(line: str) -> News:
    """News that `spell_news` wrote."""
    kind, fields = _read(line)
    return _KINDS[kind](**fields)


def _spell(value: Any) -> str:
    return json.dumps(value, default=_spell_bytes)


def _read(line: str) -> Any:
    return json.loads(line, object_hook=_bytes_again)


def _spell_bytes(value: Any) -> Any:
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} given where JSON's terms or bytes are needed")


def _bytes_again(value: dict[str, Any]) -> Any:
    return base64.b64decode(value[_BYTES]) if value.keys() == {_BYTES} else value
