"""Answers of a model that was asked, as `posbias retrieve` keeps them."""

import numpy as np

from posbias.core.formats import save_json
from posbias.reports.answers.retrievals import AnswerCurve as AnswerPart
from posbias.retrieval import answer_curve


def copies(random, places):
    """A curve of answers in words: the first and the last place are found, of ten pairs at five places."""
    found = random.uniform(size=(300, 5)) < np.array(places)
    arms = {name: random.uniform(size=300) < share for name, share in (("no gold", 0.0), ("gold alone", 0.9))}
    arms["shuffled"] = random.uniform(size=300) < 0.5
    job = {
        "task": "keys",
        "pairs": 5,
        "length": None,
        "wording": "json",
        "positions": 5,
        "prompts": 300,
        "seed": 0,
    }
    depth = np.linspace(0, 1, 5)
    return answer_curve("asked", job, "first", found, found, arms, depth, words=100.0, chance=0.2)


def kept(folder, *curves):
    """What `posbias retrieve --answers` keeps in a folder, next to its answers."""
    answer = {
        "schema": "retrieve-answers/1",
        "file": "answers.jsonl",
        "pictures": [],
        "asked": {"model": "asked"},
    }
    folder.mkdir(exist_ok=True)
    (folder / "answers.jsonl").write_text('{"id": "a", "answer": "b"}\n')
    return save_json(
        answer | {"curves": [AnswerPart.of(curve).model_dump(mode="json") for curve in curves]},
        folder / "retrieval.json",
    )
