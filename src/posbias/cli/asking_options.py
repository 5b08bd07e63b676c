"""Options of `posbias retrieve` that make a model one that is only asked."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError

SOURCES = ("endpoint", "answers", "write_prompts")
"""Options of which one makes a model a black box."""
Way = tuple[Literal["chat", "completion"], str | None]
"""Api and system message."""


@shared.options
class Asking:
    """How to ask a model that is not opened here.

    Parameters
    ----------
    endpoint
        Ask MODEL of this OpenAI-compatible server, http://localhost:8000/v1 for instance; key in OPENAI_API_KEY.
    api
        chat: prompts are a user's messages, in the server's template. completion: as they are. Given twice: both,
        held against each other. Default: chat.
    system
        A system message before each prompt (chat). Given several times: each, held against the first; '' is none.
    answers
        Answers made elsewhere: JSON lines with answer, and with id or prompt.
    write_prompts
        Write the prompts to this file as JSON lines, for somebody to answer, and ask nothing.
    trials
        Questions and documents of your own, as JSON lines, JSON or CSV: question, documents, gold, answers.
    rule
        How answers are scored. Default: first of the list's things; documents: contains a right spelling.
    sizes
        Several --pairs (keys) or --length (needle), with commas: a curve each, and a map.
    until
        Ask more trials until every gap is known to ± this much accuracy, --prompts at most.
    concurrency
        Requests at a time.
    answer_tokens
        Tokens of an answer at most.
    timeout
        Seconds that a server may be silent.
    """

    endpoint: str | None = None
    api: Annotated[tuple[Literal["chat", "completion"], ...], Parameter(negative="", show_default=False)] = (
        "chat",
    )
    system: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    answers: Path | None = None
    write_prompts: Path | None = None
    trials: Path | None = None
    rule: Literal["contains", "first"] | None = None
    sizes: shared.Lengths = ()
    until: float | None = None
    concurrency: shared.Whole = 4
    answer_tokens: shared.Whole = 32
    timeout: float = 120.0

    @property
    def ways(self) -> list[Way]:
        """Api and system message of each way to ask. Raises `InvalidValueError` for one that is given twice."""
        chats: list[Way] = [("chat", text or None) for text in self.system or ("",)]
        plain: list[Way] = [("completion", None)]
        ways = [way for api in self.api for way in (chats if api == "chat" else plain)]
        if self.system and "chat" not in self.api:
            raise InvalidValueError("system: given with the api completion, which has no system message")
        if len(set(ways)) < len(ways):
            name = "api" if len(set(self.api)) < len(self.api) else "system"
            raise InvalidValueError(f"{name}: one value given twice, each once needed")
        return ways

    @property
    def wanted(self) -> bool:
        """Whether a model is asked as a black box. Raises `InvalidValueError` for options that need it to be."""
        named = [name for name in SOURCES if getattr(self, name) is not None]
        if len(named) > 1:
            raise InvalidValueError(f"{spelt(named[1])}: given with {spelt(named[0])}, one of the two needed")
        given = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
        if given and not named:
            raise InvalidValueError(
                f"{spelt(given[0])}: given with a model that is opened here; --endpoint, --answers or "
                "--write-prompts needed with it"
            )
        return bool(named)


def spelt(name: str) -> str:
    """An option as it is typed where it says what a model is, else as its argument."""
    return f"--{name.replace('_', '-')}" if name in SOURCES else shortened(name).strip("'")
