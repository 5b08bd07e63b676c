"""Servers with a planted effect of position, and the questions that they are asked."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from http_servers import prompt_of


def questions(count: int, path: str = "mine.jsonl") -> str:
    """A file of questions with three documents each, of which one has the word that is asked for."""
    rows = [
        {"question": f"q{n}?", "documents": [f"The word is w{n}.", f"Other {n}.", f"Third {n}."], "gold": 0}
        | {"answers": [f"w{n}"]}
        for n in range(count)
    ]
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def finds(accuracies: Sequence[float]) -> Callable[[int, dict[str, Any]], str]:
    """A server that finds the word by the place of its document, by chance of question and place alone."""

    def answer(number: int, body: dict[str, Any]) -> str:
        prompt = prompt_of(body)
        if "word is w" not in prompt:
            return "no idea"
        word = "w" + prompt.split("word is w")[1].split(".")[0]
        place = sum(0 <= prompt.find(other) < prompt.find("word is w") for other in ("Other ", "Third "))
        return word if random.Random(f"{word}-{place}").random() < accuracies[place] else "no idea"

    return answer
