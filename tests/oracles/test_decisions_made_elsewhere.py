"""Decisions of a planted chooser, written as others write theirs, are read as they were made, signs too."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from posbias.choice import ChoiceEffects
from posbias.core.errors import InputFileError
from posbias.imports.columns import Choice
from posbias.imports.decisions import read_decisions
from posbias.profiles.decisions import REFUSED, TIE, save_decisions

ITEMS, LETTERS = 24, "ABCDE"


def chooser(slots: int) -> list[tuple[int, list[int], int]]:
    """Item, options by slot (every rotation), the slot chosen: the first and option 1 more often."""
    random, rows = np.random.default_rng(20261129), []
    for item in range(ITEMS):
        for turn in range(slots):
            order = [(turn + slot) % slots for slot in range(slots)]
            worth = np.array([1.2 * (slot == 0) + 0.8 * (option == 1) for slot, option in enumerate(order)])
            share = np.exp(worth) / np.exp(worth).sum()
            rows.append((item, order, int(random.choice(slots, p=share))))
    return rows


def words(rows, word) -> list[dict]:
    """A row for each decision: item, options, and names for what was chosen."""
    held = []
    for item, order, slot in rows:
        options = [f"{word} {option}" for option in order]
        held.append({"item": item, "order": order, "slot": slot, "options": options, "winner": options[slot]})
    return held


def by_item(rows, kept) -> list[tuple[int, dict[bool, tuple[int, list[int]]]]]:
    """By item, for the two orders (swapped or not) of a pair, what `kept` makes of option and slot chosen."""
    return [
        (item, {order[0] == 1: kept(order[slot], slot) for which, order, slot in rows if which == item})
        for item in range(ITEMS)
    ]


def fastchat(rows):
    name = {0: "model_1", 1: "model_2"}
    return [
        {"question_id": item, "model_1": "m0", "model_2": "m1", "turn": 1, "judge": ["j", "pair-v2"]}
        | {"g1_winner": name[won[False]], "g2_winner": name[won[True]]}
        for item, won in by_item(rows, lambda option, slot: option)
    ]


def llmbar(rows):
    return [
        {"input": f"q{item}", "output_1": "o 0", "output_2": "o 1", "label": 2}
        | {
            "results": [
                ["a step", "stop"],
                {f"swap = {k}": {"winner": str(won[k] + 1)} for k in (False, True)},
            ]
        }
        for item, won in by_item(rows, lambda option, slot: option)
    ]


def analyzer(rows):
    about = {"question": "q", "answer1": "x", "answer2": "y"}
    return [
        {"cmp_index": f"q{item};m{order[0]};m{order[1]}", **about, "A": f"m{order[0]}", "B": f"m{order[1]}"}
        | {"evaluating_guidance": "", "task": "t", "judge-x": f"A is as good. Choice: {LETTERS[slot]}"}
        for item, order, slot in rows
    ]


def samples(rows):
    def of(order, slot):
        likelihoods = [[str(-1.0 if one == slot else -2.0), "False"] for one in range(len(order))]
        document = {"question": "q", "choices": [f"c {option}" for option in order]}
        return {
            "doc": document,
            "target": str(order.index(1)),
            "filtered_resps": likelihoods,
            "arguments": [],
        }

    held = [{"doc_id": item, **of(order, slot)} for item, order, slot in rows]
    for row in held:
        row["doc"]["question"] = f"q{row['doc_id']}"
    return held


def calls(rows):
    return [[1 + n, 1 + item // 4, order[slot] + 1, slot + 1] for n, (item, order, slot) in enumerate(rows)]


def listed(rows):
    return [
        {"item": f"q{row['item']}", "choices": row["options"], "prediction": LETTERS[row["slot"]]}
        for row in words(rows, "c")
    ]


def tools(rows):
    return [
        {"query": f"q{row['item']}", "tools": [{"function": {"name": one}} for one in row["options"]]}
        | {"tool_calls": [{"function": {"name": row["winner"], "arguments": "{}"}}]}
        for row in words(rows, "c")
    ]


def reranked(rows):
    return [
        {"query": f"q{row['item']}", "documents": row["options"]}
        | {"ranking": [row["winner"], *(one for one in row["options"] if one != row["winner"])]}
        for row in words(rows, "c")
    ]


def ordered(rows):
    return [
        {
            "question_id": f"q{item}",
            "model_a": "m0",
            "model_b": "m1",
            "order": "AB" if order[0] == 0 else "BA",
        }
        | {"chosen_slot": slot + 1}
        for item, order, slot in rows
    ]


def swapped(rows):
    return [
        {"question_id": f"q{item}", "response_a": "m0", "response_b": "m1", "swapped": order[0] == 1}
        | {"winner": ("response_a", "response_b")[order[slot]]}
        for item, order, slot in rows
    ]


def whose(rows):
    return [
        {"item": f"q{item}", "order": [f"m{one}" for one in order], "winner": f"m{order[slot]}"}
        for item, order, slot in rows
    ]


SHAPES = {
    2: [fastchat, llmbar, analyzer, ordered, swapped, whose],
    5: [samples, calls, listed, tools, reranked],
}
SHAPES[2] += SHAPES[5][:1] + SHAPES[5][2:]


def written(rows, folder: Path, name: str = "") -> Path:
    """Rows as a file with a name that its writer gives it."""
    if isinstance(rows[0], list):
        path, text = folder / "api_selection_stats_x.json", json.dumps(rows)
    elif "results" in rows[0]:
        path, text = folder / "evaluators" / "j" / "CoT" / "result.json", json.dumps(rows)
    else:
        path, text = folder / f"{name or 'x'}.jsonl", "\n".join(map(json.dumps, rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(("slots", "shape"), [(k, shape) for k, shapes in SHAPES.items() for shape in shapes])
def test_what_was_planted_is_read(slots, shape, tmp_path):
    rows = chooser(slots)
    (held,) = read_decisions(written(shape(rows), tmp_path)).values()
    seen = {
        (held.item[row], tuple(int(re.findall(r"\d", held.options[held.item[row]][one])[-1]) for one in order)):
        int(held.chosen[row])
        for row, order in enumerate(held.order)
    }  # fmt: skip
    shift = 1 if shape is calls else 0
    assert seen == {(item, tuple(one + shift for one in order)): slot for item, order, slot in rows}
    gap = ChoiceEffects(replace(held, scores=None)).gaps["first - last"]
    assert gap.value > 0.5, "the first slot is preferred"
    assert gap.interval[0] > 0 or shape is tools, "a list that all items share is one set"
    assert len({*held.sets}) == (6 if shape is calls else 1 if shape is tools else ITEMS)
    if shape in (llmbar, samples):
        assert {held.options[item][right][-1] for item, right in enumerate(held.right)} == {"1"}


def test_letters_that_name_option_or_slot_are_refused_until_it_is_said(tmp_path):
    """Read one way the first slot is preferred, the other way an option: no guess is made."""
    rows = [
        {"question_id": item, "order": "AB" if order[0] == 0 else "BA", "winner": LETTERS[order[slot]]}
        for item, order, slot in chooser(2)
    ]
    path = written(rows, tmp_path)
    with pytest.raises(InputFileError, match=r"winner=winner .* slot=winner"):
        read_decisions(path)
    gaps = {}
    for role in ("winner", "slot"):
        (held,) = read_decisions(path, Choice(columns={role: "winner"})).values()
        gaps[role] = ChoiceEffects(held).gaps["first - last"]
    rows = [row | {"chosen_slot": 1} for row in rows]
    with pytest.raises(InputFileError, match="0 or 2 among them"):
        read_decisions(written(rows, tmp_path))
    assert gaps["winner"].interval[0] > 0
    assert abs(gaps["slot"].value) < gaps["winner"].value


def test_places_from_another_column_are_refused(tmp_path):
    rows = calls(chooser(5))
    path = written([[call, cluster, place, api] for call, cluster, api, place in rows], tmp_path)
    with pytest.raises(InputFileError, match="places that rotations"):
        read_decisions(path)


def test_runs_of_one_order_are_its_floor_and_what_is_not_there_a_refusal(tmp_path):
    rows = calls(chooser(5))
    written(rows, tmp_path).rename(tmp_path / "api_selection_stats_x.json")
    (tmp_path / "api_selection_stats_x-2.json").write_text(json.dumps(rows[1:]))
    (name, held), *others = read_decisions(tmp_path).items()
    assert (name, others) == ("x", [])
    assert held.same_order.sum() == len(rows)
    assert (held.chosen == REFUSED).sum() == 1
    assert ChoiceEffects(held).flips[1].value == pytest.approx(1 / len(rows))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prediction": "Z"}, "one of the options"),
        ({"choices": ["one"]}, "two options or more"),
        ({"choices": ["one", "one"]}, "two options or more that differ"),
    ],
)
def test_bad_rows_are_one_line(change, said, tmp_path):
    rows = listed(chooser(2))
    with pytest.raises(InputFileError, match=said) as caught:
        read_decisions(written([rows[0], rows[1] | change], tmp_path))
    assert "\n" not in str(caught.value)


def test_scores_that_are_equal_are_a_tie_and_words_too(tmp_path):
    row = llmbar(chooser(2))[0]
    row["results"] = [{"score_1": ["7", "stop"], "score_2": ["7", "stop"]} | row["results"][-1]]
    (held,) = read_decisions(written([row], tmp_path)).values()
    assert held.chosen.tolist() == [TIE, TIE]
    pairs = [fastchat(chooser(2))[0] | {"g1_winner": "tie", "g2_winner": "error"}]
    (held,) = read_decisions(written(pairs, tmp_path / "other")).values()
    assert held.chosen.tolist() == [TIE, REFUSED]


def test_what_holds_no_decisions_has_none(tmp_path):
    elsewhere = Path(__file__).parents[1] / "elsewhere"
    for path in sorted(elsewhere.iterdir()):
        if path.suffix in (".json", ".jsonl", ".csv", ".tsv") or path.is_dir():
            assert read_decisions(path) == {}, path


def test_a_likelihood_that_is_not_finite_is_refused(tmp_path):
    rows = samples(chooser(2))
    rows[3]["filtered_resps"][0][0] = "-inf"
    with pytest.raises(InputFileError, match="filtered_resps: expected finite log-likelihoods"):
        read_decisions(written(rows, tmp_path))


def test_files_of_another_form_are_left_out_and_said(tmp_path, caplog):
    written(fastchat(chooser(2)), tmp_path, "a")
    written(samples(chooser(2)), tmp_path, "b")
    (held,) = read_decisions(tmp_path).values()
    assert len(held.item) == 2 * ITEMS
    assert f"b.jsonl: left out {2 * ITEMS} decisions, of another form (lm-evaluation" in caplog.text


def test_an_option_called_none_is_not_right_where_nothing_says_what_is(tmp_path):
    rows = [{"options": order, "choice": "apple"} for order in (["apple", "None"], ["None", "apple"])]
    (held,) = read_decisions(written(rows, tmp_path)).values()
    assert not any(one >= 0 for one in held.right)


def test_one_model_asked_in_two_ways_is_two_who_chose(tmp_path):
    (held,) = read_decisions(written(ordered(chooser(2)), tmp_path)).values()
    for way in ("chat", "plain"):
        save_decisions(replace(held, asked={"model": "m"}), tmp_path / "kept" / way / "decisions.json")
    assert [*read_decisions(tmp_path / "kept")] == ["m", "m, plain"]
