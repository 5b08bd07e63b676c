"""What a server's reply, or a kept line of one, says, and why it ended: cut off, refused, a tool called, an error.

Replies come whole or as a stream of server-sent events (or of JSON lines); their text is a string, or parts of
which some are thoughts.
"""

import json
import re
from typing import Any

from posbias.core.matching import CutOff, Refused, ToolCall, final_answer

_REASONS: dict[type[str], str] = {
    CutOff: r"cut_off|length|max\w*tok|token_?limit|window|incomplete",
    Refused: r"filter|safety|refus|recitation|blocklist|blocked|prohibited|spii|sensitive|moderation|guardrail",
    ToolCall: r"tool|function",
}
"""By what became of an answer, what a `finish_reason` says then, in small letters."""
FAILED = re.compile(r"error|abort|insufficient", re.IGNORECASE)
"""A `finish_reason` of a server that failed."""
_DECLINED: dict[type[str], str] = {
    Refused: r"content_?(filter|policy)|content (management|exists risk)|inappropriate content|"
    r"(input|prompt) was flagged",
    CutOff: r"could not finish the message",
}
"""By what became of an answer, what an error says that is about this prompt alone, in small letters."""
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
    kinds = (kind for kind, pattern in _REASONS.items() if re.search(pattern, reason))
    usual = CutOff if text.strip() and not said.strip() else str
    return next(kinds, usual)(said)


def ending_of_error(said: str) -> str | None:
    """The empty answer that an error stands for: a filter declined, or no token was left; None for all else."""
    kinds = (kind for kind, pattern in _DECLINED.items() if re.search(pattern, said.lower()))
    return next((kind() for kind in kinds), None)


def events(content: bytes) -> list[Any]:
    """The objects of a reply: one, or those of a stream. Raises `ValueError` for anything else."""
    try:
        return [json.loads(content)]
    except ValueError:
        lines = (line.removeprefix("data:").strip() for line in content.decode(errors="replace").split("\n"))
        return [json.loads(line) for line in lines if line.startswith("{")]
