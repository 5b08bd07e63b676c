"""Document sets in the shapes that people have, what is doubtful of them, and what is said at the start."""

import json
import logging

import pytest
from command import called

from posbias.core.errors import InputFileError, InvalidValueError
from posbias.retrieval import Session, ask, read_document_sets
from posbias.retrieval.documents import DocumentSet

TEXTS = ["none here", "the code is amber", "nor here", "nothing"]
PLAIN = {"question": "q?", "documents": TEXTS, "gold": 1, "answers": ["amber"]}


def titled(**marks):
    """Objects with a title, the gold one marked."""
    return [{"title": f"T{k}", "text": text} | dict.fromkeys(marks, k == 1) for k, text in enumerate(TEXTS)]


SHAPES = {
    "plain": PLAIN,
    "answer as a text": PLAIN | {"answers": "amber"},
    "a list as a text": PLAIN | {"answers": "['amber']"},
    "SQuAD": PLAIN | {"answers": {"text": ["amber"], "answer_start": [12]}},
    "TriviaQA": PLAIN | {"answers": {"value": "amber", "aliases": ["Amber"]}},
    "DPR": {"question": "q?", "answers": ["amber"], "ctxs": titled(hasanswer=1)},
    "Liu et al.": {"question": "q?", "answers": ["amber"], "ctxs": titled(isgold=1)},
    "objects": PLAIN | {"documents": titled()},
    "HotpotQA": {
        "question": "q?", "answer": "amber", "supporting_facts": [["T0", 0], ["T1", 0]],
        "context": [[f"T{k}", [text]] for k, text in enumerate(TEXTS)],
    },
    "HotpotQA in columns": {
        "question": "q?", "answer": "amber", "supporting_facts": {"title": ["T1"], "sent_id": [0]},
        "context": {"title": ["T0", "T1", "T2", "T3"], "sentences": [[text] for text in TEXTS]},
    },
    "MuSiQue": {
        "question": "q?", "answer": "amber",
        "paragraphs": [{"paragraph_text": text, "is_supporting": k < 2} for k, text in enumerate(TEXTS)],
    },
    "MS MARCO": {
        "query": "q?", "answers": ["amber"], "passages": {"is_selected": [0, 1, 0, 0], "passage_text": TEXTS},
    },
    "ragas": {"user_input": "q?", "retrieved_contexts": TEXTS, "reference": "amber", "response": "none here"},
    "ragas before": {"question": "q?", "contexts": TEXTS, "ground_truth": "amber", "answer": "nothing"},
    "ragas with gold": {
        "user_input": "q?", "retrieved_contexts": TEXTS, "reference": "amber", "reference_contexts": TEXTS[1:2],
    },
    "LangChain": PLAIN | {"documents": [{"page_content": text} for text in TEXTS]},
    "columns": {
        "question": "q?", "gold": 1, "answer": "amber", **{f"doc{k}": text for k, text in enumerate(TEXTS, 1)},
    },
    "a column by name": {
        "question": "q?", "gold": "context_1", "answer": "amber",
        **{f"context_{k}": text for k, text in enumerate(TEXTS)},
    },
}  # fmt: skip


def written(path, *rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize("row", SHAPES.values(), ids=SHAPES)
def test_a_set_is_read_in_any_shape(tmp_path, row):
    (one,) = read_document_sets(written(tmp_path / "sets.jsonl", row))
    assert one.question == "q?"
    assert [text.rpartition(") ")[2] for text in (*one.gold, *one.others)] == [
        TEXTS[1],
        *TEXTS[:1],
        *TEXTS[2:],
    ]
    assert one.answers[0][0] == "amber"
    assert all(("(Title: T" in text) == ("T1" in json.dumps(row)) for text in one.gold)


def test_columns_are_named_also_within_others_and_as_options(tmp_path):
    row = {"frage": "q?", "retrieval": {"texts": TEXTS}, "nr": 1, "recht": "amber"}
    columns = {"question": "frage", "documents": "retrieval.texts", "gold": "nr", "answers": "recht"}
    path = written(tmp_path / "sets.jsonl", row, row)
    assert read_document_sets(path, columns)[0] == DocumentSet(
        "q?", (TEXTS[0], *TEXTS[2:]), (TEXTS[1],), (("amber",),)
    )
    words = [f"{role}={column}" for role, column in columns.items()]
    done = called(
        "retrieve", "--trials", path, "--columns", *words, "--write-prompts", tmp_path / "p.jsonl", "--json"
    )
    assert json.loads(done.stdout)["prompts"] > 0
    for wrong in ({"documents": "retrieval.text"}, {"docs": "x"}):
        with pytest.raises((InputFileError, InvalidValueError), match="documents"):
            read_document_sets(path, columns | wrong)
    done = called("retrieve", "--columns", "gold=nr", "--write-prompts", tmp_path / "p.jsonl")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--trials" in done.stderr


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (PLAIN | {"gold": "T9"}, "gold"), (PLAIN | {"gold": None, "answers": ["here"]}, "--columns gold="),
        (PLAIN | {"gold": None, "answers": ["blue"]}, "--columns gold="),
        ({"query": "q?"}, "--columns documents="),
        ({"fragment": "q?"}, "--columns question="), (PLAIN | {"answers": None}, "--columns answers="),
    ],
)  # fmt: skip
def test_what_is_not_known_is_said_with_what_to_type(tmp_path, row, words):
    with pytest.raises(InputFileError, match=words):
        read_document_sets(written(tmp_path / "sets.jsonl", row))


GOOD = DocumentSet("q?", ("a", "b", "c"), ("it is x",), (("x",),))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (DocumentSet("q?", ("a", "b", "c"), ("it is y",), (("x",),)), "in 1 of 3 sets no accepted answer"),
        (DocumentSet("q?", ("a", "b", "It is: X."), ("it is x",), (("x",),)), "in 1 of 3 sets the gold"),
        (DocumentSet("q?", tuple("abcdefg"), ("it is x",), (("x",),)), "4 to 8 documents"),
        (GOOD, None),
    ],
)
def test_doubts_are_counted_before_anything_is_asked(caplog, bad, words):
    session = Session(documents=(GOOD, GOOD, bad))
    assert not caplog.records  # a value says, and does nothing
    session.announce()
    doubts = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert [words in doubt for doubt in doubts] == [True] * (words is not None)
    caplog.clear()
    session.ask_each({"no": lambda prompt: "no"})
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == doubts


def test_fewer_places_and_what_can_be_reached_are_said_at_the_start(caplog):
    caplog.set_level(logging.INFO, "posbias")
    with pytest.raises(ZeroDivisionError):
        ask(
            lambda prompt: 1 / 0,
            documents=(DocumentSet("q?", tuple("abcdefg"), ("x",), (("x",),)),) * 60,
            until=0.05,
        )
    places, until = (record.getMessage() for record in caplog.records)
    assert places.startswith("positions: 5 of up to 8 places")
    assert until.startswith("until: 60 trials reach about ± 0.15")
    assert until.endswith("takes about 500")
