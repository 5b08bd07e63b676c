"""What a server's reply, or a kept line of one, says, and why it ended: cut off, refused, a tool called, an error.

Replies come whole or as a stream of server-sent events (or of JSON lines); their text is a string, or parts of
which some are thoughts.
"""

import json
from typing import Any

from posbias.core.matching import DECLINED, ENDINGS, REASONS, CutOff, final_answer

_TEXTS = ("text", "output_text")


def text_of(content: Any) -> str:
    """The text of a content, without parts that are thoughts or anything else. Raises `TypeError`."""
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return "".join(map(text_of, content))
        case dict():
            return text_of(content.get("text")) if content.get("type", "text") in _TEXTS else ""
    raise TypeError(content)


def answer_of(text: str, reason: object = None) -> str:
    """The answer in a reply, without thoughts, as a type of `ENDINGS` by the reason for which it ended.

    Of thoughts alone it is a `CutOff`.
    """
    said, reason = final_answer(text), str(reason or "").lower()
    kinds = (kind for name, kind in ENDINGS.items() if REASONS[name].search(reason))
    usual = CutOff if text.strip() and not said.strip() else str
    return next(kinds, usual)(said)


def ending_of_error(said: str) -> str | None:
    """The empty answer that an error stands for: a filter declined, or no token was left; None for all else."""
    return next((ENDINGS[name]() for name, signs in DECLINED.items() if signs.search(said.lower())), None)


def events(content: bytes) -> list[Any]:
    """The objects of a reply: one, or those of a stream. Raises `ValueError` for anything else."""
    try:
        return [json.loads(content)]
    except ValueError:
        lines = (line.removeprefix("data:").strip() for line in content.decode(errors="replace").split("\n"))
        return [json.loads(line) for line in lines if line.startswith("{")]
