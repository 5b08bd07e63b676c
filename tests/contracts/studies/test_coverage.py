"""The inventory of the papers: whole entries, commands and claims that are there, and a page made of it."""

import importlib
import json
import shlex
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from project import ROOT

from posbias.cli import app, main
from posbias.cli.old_options import renewed
from posbias.errors import InvalidValueError
from posbias.files import between_marks
from posbias.papers import PAPERS
from posbias.papers.coverage import BEGIN, END, PYTHON, Item, Kind, ids_text, items, page_text, tally
from posbias.papers.registry import STUDIES
from posbias.papers.theorems import claims_of_statement
from posbias.verify import STATEMENTS

PAGE = ROOT / "docs" / "coverage.md"
REGENERATE = """from posbias.papers.coverage import update_page; update_page("docs/coverage.md")"""
IDS = {claim.id for study in STUDIES.values() for claim in (*study.claims, *study.row_claims)} | {
    claim.id for statement in STATEMENTS for claim in claims_of_statement(statement)
}
COMMANDS = sorted({item.command for item in items()} - {""})


def test_there_are_more_than_a_hundred_items_of_all_papers():
    listed = items()
    assert len(listed) >= 130
    assert tuple(dict.fromkeys(item.paper for item in listed)) == PAPERS
    counts = tally(listed)
    assert sum(sum(count.values()) for count in counts.values()) == len(listed)


def test_no_item_stands_twice():
    places = [(item.paper, item.place, item.what) for item in items()]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("item", items(), ids=lambda item: f"{item.paper} {item.place}: {item.what}")
def test_an_item_is_whole_and_its_claims_are_there(item):
    assert item.place
    assert item.what
    assert item.parameters or not item.command
    assert (item.covered == "missing") == (not item.command)
    assert (item.covered == "whole") == (not item.left)
    assert len(set(item.claims)) == len(item.claims)
    assert set(item.claims) <= IDS, sorted(set(item.claims) - IDS)
    assert not item.claims or all(claim.startswith(f"{item.paper}/") for claim in item.claims)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one_that_is_understood(command):
    if command.startswith(PYTHON):
        name = command.removeprefix(PYTHON)
        module, _, attribute = name.rpartition(".")
        try:
            assert hasattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError:  # an attribute of a class
            owner, _, kind = module.rpartition(".")
            assert hasattr(getattr(importlib.import_module(owner), kind), attribute)
        return
    program, *words = shlex.split(command)
    assert program == "posbias"
    assert renewed(words) == words
    app.parse_args(words, exit_on_error=False, print_error=False)


def test_the_page_is_what_the_data_say():
    page = PAGE.read_text(encoding="utf-8")
    assert REGENERATE in page
    assert between_marks(page, BEGIN, END)[1] == page_text()


def test_the_page_counts_every_item_by_kind_and_names_each_that_is_not_whole():
    lines = page_text().splitlines()
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")
    ]
    for row, paper in zip(rows, PAPERS, strict=True):
        numbers = {name: int(number) for name, number in zip(head[1:], row[1:], strict=True)}
        own = items([paper])
        kinds = {kind: sum(item.kind == kind for item in own) for kind in get_args(Kind)}
        assert numbers == {
            **{f"{kind}s": count for kind, count in kinds.items()},
            "all": len(own),
            **tally(own)[paper],
        }
        assert sum(kinds.values()) == len(own)
    lacking = [item for item in items() if item.covered != "whole"]
    assert [line for line in lines if line.startswith("- ")] == [
        f"- {item.paper}, {item.place}, {item.what} ({item.covered}): {item.left}" for item in lacking
    ]


def test_the_command_prints_every_item_with_its_parameters_and_claims(capsys):
    main(["paper", "coverage"])
    told = capsys.readouterr().out
    for item in items():
        lines = told.partition(f"{item.paper}, {item.place} ({item.kind}, {item.covered}): {item.what}\n")[
            2
        ].split("\n")
        assert lines[0] == f"    {item.command.removeprefix(PYTHON)} (parameters: {item.parameters})"
        assert not item.claims or lines[1] == f"    claims: {ids_text(item.paper, item.claims)}"


@given(st.lists(st.integers(1, 30), unique=True))
def test_runs_of_claims_tell_each_number_once(numbers):
    text = ids_text("wu2025", [f"wu2025/fig2/{number}" for number in numbers]).removeprefix("fig2/")
    parts = [[int(end) for end in part.split("-")] for part in text.split(", ") if part]
    assert [number for ends in parts for number in range(ends[0], ends[-1] + 1)] == numbers
    assert all(len(ends) == 1 or ends[1] - ends[0] > 1 for ends in parts)


def test_the_command_answers_with_what_is_left(capsys):
    main(["paper", "coverage", "kim2026", "--left", "--json"])
    told = json.loads(capsys.readouterr().out)
    left = [item for item in items(["kim2026"]) if item.covered != "whole"]
    assert told["items"] == [item.as_dict() for item in left]
    assert told["counts"] == tally(items(["kim2026"]))


def test_wrong_words_are_refused():
    with pytest.raises(InvalidValueError, match="kim2062"):
        items(["kim2062"])
    with pytest.raises(InvalidValueError, match="covered"):
        Item("kim2026", "Section 3", "figure", "x", "", "", (), "half", "")  # pyright: ignore[reportArgumentType]
