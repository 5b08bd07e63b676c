"""What a task is, what it tells of itself, and how both are spelt as lines of JSON."""

import base64
import importlib
import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from posbias import errors
from posbias.errors import PosbiasError

_BYTES = "posbias:bytes"

News = dict[str, Any]
"""{"done", "total"}, {"say": line}, and as the last {"result"} or {"failed": message, "kind": type of error}."""
Hear = Callable[[int, News], None]


@dataclass(frozen=True)
class Task:
    """A piece of work, in JSON's terms.

    `call` is "module:function", called as function(**arguments, progress=, say=); what it returns is JSON too, but
    that values may be `bytes`. `cores` and `gpus` are what a cluster sets aside for it; `label` is for people.
    """

    call: str
    arguments: dict[str, Any]
    label: str = ""
    cores: float = 1
    gpus: float = 0


def is_last(news: News) -> bool:
    """Whether a task's news are its last."""
    return "result" in news or "failed" in news


def error_of(news: News) -> Exception:
    """What failed news say, as an error to raise: a `PosbiasError` as itself, anything else as `RuntimeError`."""
    kind = MemoryError if news["kind"] == "MemoryError" else getattr(errors, news["kind"], RuntimeError)
    if not (isinstance(kind, type) and issubclass(kind, PosbiasError | MemoryError)):
        kind = RuntimeError
    error = kind(news["failed"])
    if "traceback" in news:
        error.add_note(f"in the worker:\n{news['traceback']}")
    return error


def spell(task: Task) -> str:
    """A task as a line of JSON. Raises `TypeError` for arguments that JSON has no word for."""
    return json.dumps({"call": task.call, "arguments": task.arguments}, default=_spell_bytes)


def perform(line: str, tell: Callable[[News], None]) -> str:
    """Do a task that `spell` wrote: its last news as a line of JSON. Lets only KeyboardInterrupt through."""

    def progress(done: int, total: int | None) -> None:
        tell({"done": int(done), "total": None if total is None else int(total)})

    try:
        given = json.loads(line, object_hook=_bytes_again)
        module, _, name = given["call"].partition(":")
        function = getattr(importlib.import_module(module), name)
        result = function(**given["arguments"], progress=progress, say=lambda line: tell({"say": line}))
        return json.dumps({"result": result}, default=_spell_bytes)
    except Exception as error:
        kind, said = type(error).__name__, " ".join(str(error).split())
        told: News = {"failed": said if isinstance(error, PosbiasError) else f"{kind}: {said}"}
        return json.dumps(told | {"kind": kind, "traceback": traceback.format_exc()})


def read_news(line: str) -> News:
    """News that `perform` wrote."""
    return json.loads(line, object_hook=_bytes_again)


def _spell_bytes(given: Any) -> Any:
    if isinstance(given, bytes):
        return {_BYTES: base64.b64encode(given).decode()}
    raise TypeError(f"{type(given).__name__} given where JSON's terms or bytes are needed")


def _bytes_again(given: dict[str, Any]) -> Any:
    return base64.b64decode(given[_BYTES]) if given.keys() == {_BYTES} else given
