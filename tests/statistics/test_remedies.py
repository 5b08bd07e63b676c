"""Remedies: what is planted is found with its size, what is not there is rarely said, parts stay what they are."""

import hashlib
import math
import re

import numpy as np
import pytest

import posbias
from posbias.asking.requests import id_of
from posbias.choice import Item
from posbias.core.errors import InvalidValueError
from posbias.core.spec import fingerprint
from posbias.profiles.decisions import Decisions
from posbias.profiles.places import Places
from posbias.remedies import REMEDIES, Divide, OrdersAveraged, PriorRemoved, TextRemedy, Treated, Vote
from posbias.remedies.run import RemedyResult, by_slot, changes, task_of
from posbias.retrieval import Session, retrieval_job

CURVE = {"plain": (0.9, 0.5, 0.9), "twice": (0.9, 0.7, 0.9)}
"""Accuracy at the first, an inner and the last place: two copies halve the disadvantage of the middle."""
EFFECTS = ("less bias", "more bias", "bias moved")


def planted(prompt):
    """A server that finds who is asked for as often as the place of the last copy says."""
    key = re.search(r"What does (.+) own\?", prompt)[1]
    rows = re.findall(r"(.+) owns the (.+)\.\n", prompt)
    copies = max(1, prompt.count("Each of these people"))
    rows = rows[: len(rows) // copies]
    at = [k for k, (name, _) in enumerate(rows) if name == key]
    if not at:
        return "nobody knows"
    place = 0 if at[0] == 0 else 2 if at[0] == len(rows) - 1 else 1
    drawn = int(hashlib.sha256(prompt.encode()).hexdigest()[:8], 16) / 2**32
    right = drawn < CURVE["twice" if copies > 1 else "plain"][place]
    return rows[at[0] if right else at[0] - 1][1]


def session(prompts, **how):
    return Session(
        (retrieval_job("keys", **{"pairs": 5, "positions": 3, "wording": "chat"} | how, prompts=prompts),)
    )


def test_a_bias_that_two_copies_halve_is_found_with_its_size(tmp_path):
    found = posbias.remedy(planted, session(300, seed=1), ["twice"], folder=tmp_path)
    assert found["plain"].effect == "U"
    twice = found["twice"]
    assert twice.effect == "less bias"
    for gap, size in {
        "first - middle": -0.2,
        "last - middle": -0.2,
        "first - last": 0.0,
        "mean": 0.2 / 3,
    }.items():
        low, high = twice.change[gap].interval
        assert low < size < high, gap
    assert (twice.requests, twice.change["mean"].together) == (1, 4)
    assert 1.9 < twice.words / found["plain"].words < 2.1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "twice"]
    again = posbias.remedy(
        lambda prompt: pytest.fail("asked again"), session(300, seed=1), ["twice"], folder=tmp_path
    )
    assert again["twice"].change == twice.change


def test_where_nothing_helps_help_is_rarely_said_over_all_remedies_together():
    """1,000 runs of eight remedies on an unbiased server of accuracy .8; 7.4 % are 5 % and 3.5 standard errors."""
    random, said = np.random.default_rng(0), 0
    for _ in range(1000):
        hard = random.beta(4, 1, (60, 1, 1))
        results = [
            Places({"accuracy": rows}, np.arange(3))
            for rows in (random.random((60, 9, 3)) < hard).swapaxes(0, 1)
        ]
        treated = [
            RemedyResult("twice", one, 1, 1, change=changes(results[0], one, 8)) for one in results[1:]
        ]
        said += any(one.sign for result in treated for name, one in result.change.items() if name != "mean")
    assert 5 <= said <= 74


def test_at_ceiling_nothing_is_said_to_help_and_the_bound_is_that_of_the_number_of_trials():
    found = posbias.remedy(right, session(60))
    assert found["plain"].effect == "at ceiling"
    for name in [*found][1:]:
        assert found[name].effect not in EFFECTS
        assert found[name].at_most == pytest.approx(2 * (1 - (0.05 / 28) ** (1 / 60)))


def right(prompt):
    key = re.search(r"What does (.+) own\?", prompt)[1]
    return next(
        (thing for name, thing in re.findall(r"(.+) owns the (.+)\.\n", prompt) if name == key), "none"
    )


@pytest.mark.parametrize("name", [name for name, one in REMEDIES.items() if isinstance(one, TextRemedy)])
def test_a_remedy_of_text_keeps_facts_and_question(name):
    task, one = task_of(session(2), False), REMEDIES[name]
    for prompt, parts in task.parts.items():
        assert parts.text == prompt
        asked = one.prompts(parts)
        assert all(
            each.question.startswith(parts.question[:10]) and each.reply == parts.reply for each in asked
        )
        pieces = [piece for each in asked for piece in each.pieces]
        assert sorted(pieces) == sorted(parts.pieces * (len(pieces) // len(parts.pieces)))
    who = Treated(right, one, task.parts)
    assert [who.write(prompt) for prompt in task.parts] == [right(prompt) for prompt in task.parts]


def test_parameters_are_part_of_what_answers_are_kept_by():
    plain, *others = (
        Treated(right, one, {}).asked_of for one in (REMEDIES["plain"], Vote(), Vote(shuffles=9))
    )
    assert plain == {}
    assert len({*map(fingerprint, others)}) == 2


def test_votes_and_divided_answers_become_one():
    (prompt, parts), *_ = task_of(session(2), False).parts.items()
    assert Vote().merged(parts, ["lamp", "The axe. And", "axe"]) == "The axe. And"
    said = ["none"] * 4 + ["axe"]
    assert Divide().merged(parts, said) == "axe"
    assert Divide().merged(parts, ["axe", *said[1:]]).pieces == (parts.pieces[0], parts.pieces[4])
    assert id_of(Divide().merged(parts, ["none"] * 5).text) == id_of(prompt)


def test_scores_of_several_prompts_are_mean_probabilities():
    class Scorer:
        def score(self, prompt, endings):
            share = 0.9 if prompt.index("owns") < 60 else 0.1
            return np.log([share, 1 - share]), np.array([share > 0.5, share < 0.5])

    task = task_of(session(2), True)
    prompt, parts = next(iter(task.parts.items()))
    own, greedy = Treated(Scorer(), Vote(shuffles=3), {prompt: parts}).score(prompt, ["a", "b"])
    assert np.exp(own).sum() == pytest.approx(1)
    assert greedy.sum() == 1
    with pytest.raises(InvalidValueError, match="remedy: expected those for margins"):
        posbias.remedy(Scorer(), session(2), ["divide"])


def chosen(items=40, slots=3):
    """Decisions by scores: the right option is worth 1, the first slot 2, noise by item and option."""
    random = np.random.default_rng(1)
    order = np.array([np.roll(np.arange(slots), k) for _ in range(items) for k in range(slots)])
    item = np.repeat(np.arange(items), slots)
    worth = (random.normal(0, 0.3, (items, slots)) + np.eye(slots)[0])[item[:, None], order]
    scores = worth + np.array([2.0, 0, 0])
    options = [[f"{n}-{k}" for k in range(slots)] for n in range(items)]
    return Decisions(item, order, scores.argmax(axis=1), options, scores=scores, right=[0] * items)


@pytest.mark.parametrize("one", [OrdersAveraged(), PriorRemoved()])
def test_remedies_of_choices_take_the_effect_of_a_slot_away(one):
    held = chosen()
    plain, treated = by_slot(held), by_slot(one.decided(held))
    change = changes(plain, treated, 2)
    assert RemedyResult(one.kind, treated, 1, 1, change=change).effect == "less bias"
    assert treated.results["accuracy"].mean() > 0.95 > plain.results["accuracy"].mean()
    unknown = by_slot(
        one.decided(Decisions(held.item, held.order, held.chosen, held.options, scores=held.scores))
    )
    assert unknown.results["chosen"].sum(axis=1) == pytest.approx(1)


def test_items_are_treated_in_words_too():
    items = [Item(f"q{n}?", (f"good {n}", f"poor {n}"), 0) for n in range(12)]
    found = posbias.remedy(lambda prompt: "A", items, ["orders-averaged", "twice"])
    assert [*found] == ["plain", "orders-averaged", "twice"]
    assert found["orders-averaged"].requests == 2 * found["plain"].requests
    assert math.isnan(found["plain"].at_most)
