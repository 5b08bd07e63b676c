"""Choose: what the order of options adds to a choice."""

import itertools
import json
import math
import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from command import called
from http_servers import prompt_of, serving

import posbias
from posbias.asking import LocalModel
from posbias.choice import ChoiceAnswer, ChoiceJob, Item, read_items
from posbias.choice.asking import _chosen, presentations
from posbias.choice.items import kind_of
from posbias.core.errors import InputFileError
from posbias.measurement import load_model
from posbias.measurement.quantities.influence import gradients, predict
from posbias.profiles.decisions import REFUSED, TIE, load_decisions
from posbias.reports.choices import headline

ITEMS = [
    ("What is the capital of France?", ["Paris", "Rome", "Berlin"], "Paris"),
    ("Which animal barks?", ["A cat", "A dog", "A cow"], "A dog"),
    ("What colour is grass?", ["Red", "Blue", "Green"], "Green"),
    ("How many legs has a spider?", ["Eight", "Six", "Four"], "Eight"),
    ("Which is a fruit?", ["Carrot", "Apple", "Potato"], "Apple"),
    ("What do bees make?", ["Milk", "Silk", "Honey"], "Honey"),
]


@pytest.fixture
def items(folder):
    rows = [dict(zip(("question", "options", "right"), item, strict=True)) for item in ITEMS]
    Path("items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "items.jsonl"


@pytest.fixture
def answers_of_two(folder):
    """Two answers to each question, by two systems that are compared."""
    rows = [
        {"question": f"q{n}?", "responses": [f"good {n}", f"poor {n}"], "models": ["new", "old"]}
        for n in range(12)
    ]
    Path("judged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "judged.jsonl"


def first_of_most(number, body):
    """A judge that prefers what is good in every third question, else the first."""
    prompt = prompt_of(body)
    if "Question: q" not in prompt:
        return "what the server is tried with"
    question = int(prompt.split("Question: q")[1].split("?")[0])
    labels = {"A": prompt.find("Answer A:"), "B": prompt.find("Answer B:")}
    if question % 3 == 0:
        good = prompt.find("good")
        return f"[[{max((at, label) for label, at in labels.items() if at < good)[1]}]]"
    return f"[[{min(labels, key=labels.__getitem__)}]]"


def test_a_judge_behind_an_endpoint(answered, answers_of_two):
    """The first of most: a bound on its effect, flips far above their floor, balanced and slot-free win rates."""
    with serving(first_of_most) as server:
        words = (
            "choose",
            "toy",
            "--endpoint",
            server.url,
            "--items",
            answers_of_two,
            "--again",
            6,
            "--out",
            "j",
        )
        found = answered(*words)
        assert answered(*words) == found
        asked = [prompt_of(body) for _, _, body in server.asked]
        assert len([prompt for prompt in asked if "Question: q" in prompt]) == 12 * 2 + 6
    (judge,) = found["judges"]
    assert [share["value"] for share in judge["flips"]] == pytest.approx([8 / 12, 0])
    assert judge["changed"] == [8, 12]
    assert judge["gaps"]["first - last"]["value"] is None
    assert judge["gaps"]["first - last"]["interval"][0] > 0
    wins = judge["wins"]["new"]
    assert [wins[name]["value"] for name in ("balanced", "first", "last")] == pytest.approx([2 / 3, 1, 1 / 3])
    kept = ChoiceAnswer(load_decisions("j/decisions.json"))
    assert kept.as_dict() == {name: held for name, held in judge.items() if name != "who"}


def test_several_judges_in_one_table(answered, answers_of_two):
    with serving(first_of_most) as server:
        words = ("choose", "one", "two", "--endpoint", server.url, "--items", answers_of_two, "--out", "s")
        found = answered(*words)
        assert called(*words).stdout.splitlines()[0].split()[:3] == ["who", "items", "sets"]
    assert [judge["who"] for judge in found["judges"]] == ["one", "two"]


def test_a_model_that_is_opened_is_asked_for_scores(answered, items):
    cost = answered("choose", "tiny-alibi", "--items", items, "--dry-run")
    assert (cost["requests"], cost["orders"]) == (36, 6)
    assert not Path("results").exists()
    (found,) = answered("choose", "tiny-alibi", "--items", items, "--out", "t")["judges"]
    assert (found["source"], found["count"], found["sets"], found["together"]) == ("scores", 36, 6, False)
    assert sum(slot["value"] for slot in found["slots"]) == pytest.approx(0, abs=1e-9)
    assert len(found["accuracy"]) == 3


def test_a_server_that_gives_log_probabilities_is_asked_for_them(answered, items):
    """It is twice as likely to choose what stands first; labels are its only alternatives."""

    def answer(number, body):
        prompt = prompt_of(body)
        labels = sorted("ABC", key=lambda label: prompt.find(f"{label}. "))
        top = [
            {"token": label, "logprob": math.log(p)}
            for label, p in zip(labels, (0.5, 0.25, 0.2), strict=True)
        ]
        content = [{"token": labels[0], "logprob": math.log(0.5), "top_logprobs": top}]
        choice = {"message": {"content": labels[0]}, "logprobs": {"content": content}, "index": 0}
        return "bytes", json.dumps({"choices": [choice]}).encode()

    with serving(answer) as server:
        words = ("choose", "toy", "--endpoint", server.url, "--items", items, "--out", "l")
        (found,) = answered(*words)["judges"]
    assert found["source"] == "scores"
    assert found["gaps"]["first - last"]["value"] == pytest.approx(math.log(0.5 / 0.2))
    assert found["gaps"]["first - middle"]["value"] == pytest.approx(math.log(2))


def test_options_of_a_chooser_in_python(folder, items):
    """Whoever always says A: labels have all effect, slots none; who names the first label, goes by slots."""
    answer = posbias.choose(lambda prompt: "A", items)
    assert [slot.value for slot in answer.effects.points] == pytest.approx([0, 0, 0], abs=1e-12)
    assert answer.effects.flips[1].value == 0
    assert headline({"it": answer}) == "Label A is chosen in all decisions, whatever option is there"
    assert headline({"it": answer}) in answer.sentences()
    assert not [line for line in answer.sentences() if "not determined" in line]
    first = posbias.choose(lambda prompt: re.findall(r"(?m)^[A-C](?=\.)", prompt)[0], items)
    assert first.always == "Slot 0 is chosen in all decisions, whatever option is there"


def test_what_no_answer_tells_is_not_guessed(items):
    """A choice among bounds is none, a verb is no tie, and "all" leaves out who made no choice."""
    said = ["I cannot draw a conclusion", "Draw.", "A draw", "B"]
    assert [_chosen(answer, ["A", "B"], ["x", "y"]) for answer in said] == [REFUSED, TIE, TIE, 1]
    two = [Item(f"q{n}", ("x", "y")) for n in range(6)]
    only_once = posbias.choose(lambda prompt: "A" if "q0" in prompt else "none of them", two)
    assert only_once.always.startswith("Slot 0 is chosen in all decisions but 15 without a choice")

    class Bounded:
        asked_of: ClassVar = {"model": "m"}

        def score(self, prompt, endings):
            return self.bounded(prompt, endings)[:2]

        def bounded(self, prompt, endings):
            return np.array([-2.0, -1.0]), np.array([False, False]), np.array([False, True])

    assert (posbias.choose(Bounded(), two).decisions.chosen == TIE).all()


def test_a_column_that_no_item_has_is_an_error_and_keys_within_others_are_found(tmp_path):
    file = tmp_path / "items.jsonl"
    file.write_text(
        '{"q": {"text": "Which?"}, "options": ["a", "b"], "right": "b"}\n{"options": ["c", "d"]}\n'
    )
    first, second = read_items(file, {"question": "q.text", "right": "right"})
    assert (first.question, first.right, second.right) == ("Which?", 1, -1)
    file.write_text('{"options": ["Yes", "No"], "right": "yes"}\n{"options": ["3", "4", "5"], "right": 4}\n')
    assert [one.right for one in read_items(file)] == [0, 1]
    with pytest.raises(InputFileError, match="right: expected a column best"):
        read_items(file, {"right": "best"})
    table = tmp_path / "items.json"
    table.write_text(
        '[{"question": "Which?", "A": "x", "B": "y", "C": "", "D": NaN, "answer": "", "right": "B"}]'
    )
    assert [(one.options, one.right) for one in read_items(table)] == [(("x", "y"), 1)]
    table.with_suffix(".txt").write_text(' {"options": ["a", "b"]}\n {"options": ["c", "d"]}\n')
    assert len(read_items(table.with_suffix(".txt"))) == 2


@pytest.mark.parametrize(("kind", "slots"), [("question", 3), ("judge", 2), ("tools", 3), ("rating", 5)])
def test_our_own_sets_are_of_their_kind_and_know_what_is_right(answered, kind, slots):
    held = read_items(kind)
    assert kind_of(held) == kind
    assert {len(item.options) for item in held} == {slots}
    assert all(item.right >= 0 for item in held)
    asked = answered("choose", "tiny-alibi", "--items", kind, "--out", kind)["judges"][0]
    assert asked["sets"] == asked["items"] == len(held)
    assert len(asked["accuracy"]) == slots


@pytest.mark.parametrize(
    ("kind", "said"), [("judge", "better? Go by: brevity."), ("rating", "Rate it (go by: brevity) with")]
)
def test_what_a_judge_or_rater_goes_by_stands_in_the_prompt(kind, said):
    item = Item("Why?", ("1", "2"))
    asked = [next(presentations([item], ChoiceJob(kind, criteria=one))).parts.text for one in ("brevity", "")]
    assert said in asked[0]
    assert "go by" not in asked[1].lower()


def test_influence_by_slot_beside_the_choice(answered, items):
    """Shares that add up to one, kept with decisions; in a prompt the sums of a measurement's by token."""
    words = ("choose", "tiny-alibi", "--items", items, "--influence", "--out", "i")
    (found,) = answered(*words)["judges"]
    assert answered(*words)["judges"] == [found]
    assert sum(slot["value"] for slot in found["influence"]) == pytest.approx(1)
    kept = load_decisions("i/decisions.json")
    model = LocalModel(load_model("tiny-alibi", tokens=256))
    one = next(presentations(read_items(items), ChoiceJob("question")))
    ending = one.endings[int(kept.scores[0].argmax())]
    ids, ((target, *_),) = model.split(one.request.prompt, [ending])
    given = torch.tensor(ids)
    by_token = gradients(predict(model.loaded.model, given), given, ("target",), target)["influence_target"]
    ends = np.cumsum([len(one.parts.opening), *map(len, one.parts.pieces)])
    bounds = np.searchsorted(ends_of(model, ids), ends, "right")
    sums = [by_token[begin:end].sum() for begin, end in itertools.pairwise(bounds)]
    np.testing.assert_allclose(kept.influence[0], sums, rtol=1e-9)


def ends_of(model, ids):
    """By token of an ASCII prompt the character behind it, without its special tokens."""
    return np.cumsum([len(model.loaded.tokenizer.decode([one], skip_special_tokens=True)) for one in ids])


@pytest.mark.slow
@pytest.mark.real_model
def test_smollm2_goes_by_the_label(answered, items):
    (found,) = answered("choose", "smollm2-135m", "--items", items, "--out", "real")["judges"]
    assert found["labels"]["A"]["interval"][0] > 0
    assert found["changed"] == [6, 6]
