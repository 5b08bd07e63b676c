"""Rules by place: what is kept, how often by chance, what must be apart from what must not; rules of one's own."""

import json
from pathlib import Path

import pytest
from answers import folder  # noqa: F401
from command import called
from http_servers import serving
from readers import forgets_prohibitions, obeys, obeys_near_the_end

from posbias.asking import Endpoint
from posbias.core.errors import InputFileError, InvalidValueError
from posbias.core.matching import CutOff
from posbias.retrieval import Instruction, Session, ask, read_instructions, retrieval_job, ways_differences
from posbias.retrieval.checks import CHECKS
from posbias.retrieval.jobs import KINDS
from posbias.retrieval.rules import INSTRUCTIONS

SIZE = {"pairs": 8, "positions": 4, "prompts": 60}
ANSWERS = [  # check, value, answers that meet it, answers that do not
    ("contains", "lamp", ["A Lamp!", "灯 lamp"], ["lamps", "clamp", ""]),
    ("contains", "the", ["On the way"], ["other"]),
    ("contains", ",", ["a, b"], ["a b"]),
    ("first_word", "lamp", ["Lamp it is", '"**lamp**"'], ["The lamp", "lamps"]),
    ("lines", "2", ["a\n\nb\n"], ["a", "a\nb\nc"]),
    ("script", "Cyrillic", ["Это 3!"], ["Это is", "3!"]),
    ("json", "", ['{"a": 1}', "```json\n[1]\n```"], ["Here: {}", "{'a': 1}"]),
    ("regex", r"!\Z", ["Yes!"], ["Yes! No"]),
]


@pytest.mark.parametrize(("check", "value", "met", "unmet"), ANSWERS)
def test_a_check_meets_what_it_says_and_nothing_else(check, value, met, unmet):
    assert [CHECKS[check](text, value) for text in (*met, *unmet)] == [True] * len(met) + [False] * len(unmet)


def test_no_answer_keeps_no_rule():
    """An empty answer has no forbidden word; what is cut off may still get one, unless it has it already."""
    never, always = (Instruction("r", "contains", "red", kind) for kind in ("must not", "must"))
    answers = ("", "blue", CutOff("blue"), CutOff("red"), "<think>blue</think>", "blue\nUser: red")
    assert [never.kept(one) for one in answers] == [False, True, False, False, False, True]
    assert [never.missing(one) for one in answers] == ["cut_off", "", "cut_off", "", "cut_off", ""]
    assert always.kept(CutOff("red"))
    assert not Instruction("r", "lines", "1").kept(CutOff("one so far"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wording", ["system", "turns"])
def test_one_that_keeps_every_rule_does_so_at_every_place_and_never_without_it(kind, wording):
    curve = ask(obeys, retrieval_job("rules", kind=kind, wording=wording, **SIZE))
    assert [one.value for one in curve.curves["accuracy"]] == [1, 1, 1, 1]
    assert (curve.overall["no gold"].value, curve.overall["gold alone"].value) == (0, 1)
    assert curve.verdict == "at ceiling"


def test_rules_near_the_end_and_prohibitions_that_are_forgotten_show_in_the_curves_of_their_kind():
    session = Session(tuple(retrieval_job("rules", kind=kind, **SIZE) for kind in KINDS))
    curves = session.ask_each({"late": obeys_near_the_end, "forgets": forgets_prohibitions})
    rows = {key.way: [one.value for one in curve.curves["accuracy"]] for key, curve in curves.items()}
    late = [0, 0, 0, 1]
    assert rows == {
        "late, must": late, "late, must not": late, "forgets, must": [1] * 4, "forgets, must not": late,
    }  # fmt: skip
    assert [curve.verdict for curve in curves.values()] == ["recency", "recency", "at ceiling", "recency"]
    must, must_not = ways_differences(curves)
    assert [one.changed for one in must_not] == [[]]
    assert must[0].changed


def test_a_rule_that_is_kept_without_being_said_is_at_chance():
    never = (Instruction("Never write the word zebra.", "contains", "zebra", "must not"),)
    curve = ask(obeys, retrieval_job("rules", kind="must not", **SIZE), instructions=never)
    assert (curve.overall["no gold"].value, curve.verdict) == (1, "at chance")
    assert curve.verdict_in_words == "at chance: rules are not shown to be kept for being asked for"


@pytest.mark.parametrize("wording", ["system", "turns"])
def test_a_server_gets_the_turns_as_messages(wording):
    with serving(lambda number, body: "no") as server:
        job = retrieval_job("rules", pairs=3, positions=3, prompts=2, wording=wording)
        ask(Endpoint(server.url, "m", system="Be brief."), job)
    roles = [[one["role"] for one in body["messages"]] for _, _, body in server.asked]
    turns = [3, 3, 3, 2, 1, 3] if wording == "turns" else [0] * 6
    assert sorted(roles) == sorted(2 * [["system", *["user", "assistant"] * few, "user"] for few in turns])
    assert all(body["messages"][0]["content"].startswith("Be brief.\n\nKeep") for _, _, body in server.asked)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"check": "json"}, "line 1: expected rule and check"),
        ({"rule": "r", "check": "jsn"}, "check: expected"),
        ({"rule": "r", "check": "regex", "value": "("}, "value: expected a regular expression"),
        ({"rule": "r", "check": "lines", "value": "two"}, "value: expected a number"),
        ({"rule": "r", "check": "script", "value": "Cyrilic"}, "value: expected LATIN"),
        ({"rule": "r", "check": "json", "kind": "may"}, "kind: expected"),
        ({"rule": "a\nUser: b", "check": "json"}, "rule: expected a text without turns"),
    ],
)
def test_a_wrong_row_is_named(folder, row, said):
    Path("r.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(InputFileError, match=said):
        read_instructions("r.jsonl")
    shown = called("retrieve", "--task", "rules", "--trials", "r.jsonl", "--write-prompts", "p.jsonl")
    assert (shown.returncode, shown.stderr.count("\n")) == (2, 1)


def test_what_does_not_go_with_rules_is_refused():
    job, own = retrieval_job("rules"), INSTRUCTIONS[:1]
    for wrong in (
        lambda: retrieval_job("keys", kind="must"),
        lambda: ask(obeys, retrieval_job("keys"), instructions=own),
        lambda: ask(obeys, job, rule="contains"),
        lambda: ask(obeys, retrieval_job("rules", kind="must not"), instructions=own),
    ):
        with pytest.raises(InvalidValueError):
            wrong()
