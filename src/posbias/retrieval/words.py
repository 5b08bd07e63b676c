"""Words in the place of tokens, where what answers does not say how it cuts its text."""

import re
from collections.abc import Sequence
from typing import Any

TOKENS_A_WORD = 1.3
"""About so many, in English text and most models' tokenizers."""
_PIECE = re.compile(r"\w+|[^\w\s]")


class Words:
    """What stands in for a tokenizer in `Trials`: words and marks of punctuation, each counted as one.

    Its chat template is the message itself and an empty line: whoever is asked applies their own, and what begins
    the reply stands at the message's end. Lengths and costs in these words are rough (`TOKENS_A_WORD`).
    """

    chat_template = "the message as it is"

    def __init__(self):
        self._ids: dict[str, int] = {}

    def __call__(self, texts: Sequence[str], **_: Any) -> dict[str, list[list[int]]]:
        """A number for each piece of each text; equal pieces have equal numbers."""
        ids = [
            [self._ids.setdefault(piece, len(self._ids)) for piece in _PIECE.findall(text)] for text in texts
        ]
        return {"input_ids": ids}

    def apply_chat_template(self, turns: Sequence[dict[str, str]], **_: Any) -> str:
        """The last message and an empty line."""
        return turns[-1]["content"] + "\n\n"


def words_in(text: str) -> int:
    """How many words and marks of punctuation a text has."""
    return len(_PIECE.findall(text))
