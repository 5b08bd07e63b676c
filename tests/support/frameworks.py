"""What the adapters' tests share: profiles, texts with scores, an embedding without a model, the page's blocks."""

import os
import re
from pathlib import Path

# before any framework is imported: no test says anything to anybody
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
os.environ["LANGCHAIN_TRACING_V2"] = os.environ["LANGSMITH_TRACING"] = "false"
os.environ["DO_NOT_TRACK"] = "1"

import numpy as np
from readers import rates

PAGE = Path(__file__).parents[2] / "docs" / "order.md"
TEXTS = [
    "Nothing of note happened.",
    "Rain fell all day.",
    "The lamp belongs to Anna.",
    "Bread rises slowly.",
    "Ships left.",
]
SCORES = [0.1, 0.1, 0.6, 0.1, 0.1]
WORDS = ("lamp", "anna", "rain", "bread", "ships", "happened", "the", "all")


LAST = rates([0.8, 0.4, 0.3, 0.4, 0.9])
"""Of 300 prompts, the last place is best: enough to tell."""
UNDECIDED = rates([0.5, 0.5, 0.5, 0.5, 0.6], prompts=8)
"""Of too few prompts to tell anything."""


def bag(text: str) -> list[float]:
    """An embedding without a model: which of `WORDS` a text has, and a constant, in length 1."""
    found = np.array([text.lower().count(word) for word in WORDS] + [0.3])
    return (found / np.linalg.norm(found)).tolist()


def block_with(word: str) -> str:
    """The one block of Python on the page that has this word."""
    page = PAGE.read_text(encoding="utf-8")
    (code,) = (one for one in re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M) if word in one)
    return code
