"""The page of theorems says what trying the statements says."""

import contextlib
import io
import math
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from project import ROOT

from posbias.core.errors import InputFileError
from posbias.core.files import between_marks
from posbias.profiles.claims import AMENDED
from posbias_papers.cli.verify import findings_table
from posbias_papers.errata import links
from posbias_papers.statements import STATEMENTS, Reading, Statement, save_counterexamples, select, verify
from posbias_papers.statements.margins import compared_in
from posbias_papers.statements.page import BEGIN, END, first_sentence, theorems_table, update_page
from posbias_papers.statements.run import plain
from posbias_papers.theorems import judge_statements

PAGE = ROOT / "docs" / "theorems.md"
REGENERATE = (
    ".venv/bin/python -c 'from posbias_papers.errata import links; "
    "from posbias_papers.statements.page import update_page; "
    """update_page("docs/theorems.md", elsewhere=links())'"""
)


def page():
    return PAGE.read_text(encoding="utf-8")


def page_table():
    """What stands between the two marks of the page."""
    return between_marks(page(), BEGIN, END)[1]


def cells(row):
    """The cells of a row of the table, their text as it is read."""
    parts = re.split(r"(?<!\\)\|", row)[1:-1]
    return [re.sub(r"\\(.)", r"\1", part).strip() for part in parts]


def at_least(bound):
    return Reading(
        f"x |≥| {bound}", lambda rng, edge: {"x": float(rng.random())}, lambda one: one["x"] - bound
    )


@pytest.fixture(scope="module")
def findings():
    """Few instances do: a printed reading that fails brings its witness."""
    return verify(STATEMENTS, instances=8)


def test_the_table_is_that_of_the_statements(findings):
    assert REGENERATE in page()
    assert page_table() == theorems_table(findings, links())


def test_a_statement_has_one_verdict_wherever_it_is_printed(findings):
    """On the page, in `posbias verify` and in `posbias paper claims`: what it asserts, and what is printed."""
    rows = [cells(line) for line in page_table().splitlines() if line.startswith("| `")]
    on_page = {row[0]: row[2] for row in rows}
    expected, lines = {}, findings_table(findings)
    for one in STATEMENTS:
        name = f"{one.name}, proof" if one.asserts else one.name
        expected |= {f"`{one.key}` {one.name}": "holds"} if one.asserts else {}
        expected[f"`{one.key}` {name}"] = AMENDED if one.corrected else "holds"
    assert on_page == expected
    tried = {finding.statement.key: finding for finding in findings}
    judged = judge_statements(["wu2025", "herasimchyk2026", "kim2026"], tried)
    for claim in list(judged):
        key, name = claim.more["statement"], claim.claim.place
        source = tried[key].statement.source
        assert on_page[f"`{key}` {name}"] == claim.mark
        assert any(re.match(rf"{re.escape(f'{source} {name}')} +{claim.mark} ", line) for line in lines)


def test_what_fails_shows_the_numbers_that_refute_it(findings):
    for finding in findings:
        found, row = finding.compared, finding.as_dict()
        assert (found is None) == (finding.verdict == "holds") == (row["counterexample"] is None)
        if found is not None:
            assert finding.as_printed.slack <= found.slack < -finding.statement.as_printed.tolerance
            # as it is read again from a store
            again = compared_in(finding.statement.as_printed.slack, plain(finding.as_printed.counterexample))
            assert plain(asdict(again)) == row["counterexample"]
    (decay,) = (one for one in findings if one.statement.key == "wu-4.5")
    kept = math.exp(-1) / (1 + math.exp(-1))  # two tokens without content, m = 1
    assert decay.compared.value == pytest.approx(1)
    assert decay.compared.bound == pytest.approx(1 - kept)
    np.testing.assert_allclose(decay.compared.matrix, [[1, 0], [kept, 1 - kept]])
    text = findings_table([decay])
    assert text[-3:] == [
        "  counterexample: true value 1, printed bound 0.7311, in",
        "        1      0",
        "    0.269  0.731",
    ]


@pytest.mark.parametrize(
    ("note", "first"),
    [
        ("", ""),
        ("Holds.", ""),
        ("Holds; by Eq. (1) it is .25 at most. Not more.", "By Eq. (1) it is .25 at most"),
        ("Holds, κ at every depth.", "κ at every depth"),
        ("Says nothing of d = 2. (Nor of d = 3.)", "Says nothing of d = 2"),
    ],
)
def test_of_a_note_the_first_sentence_stands_on_the_page(note, first):
    assert first_sentence(note) == first


def test_links_lead_to_the_entry_that_names_the_statement():
    entries = re.split(r"^### ", (PAGE.parent / "errata.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    headings = [re.sub(r"[^\w -]", "", entry.splitlines()[0]).lower().replace(" ", "-") for entry in entries]
    found = re.findall(r"`(\S+)` .*\[errata\]\(errata\.md#([^)]+)\)", page_table())
    assert len(found) > 15
    for key, anchor in found:
        (entry,) = [one for one, heading in zip(entries, headings, strict=True) if heading == anchor]
        assert key in entry


def test_every_verdict_is_told_apart():
    holds, below, above = (at_least(bound) for bound in (0.0, -1.0, 2.0))
    tried = [
        Statement("a", "One", "s", holds),
        Statement("b", "Two*", "s", holds, corrected=below, witness={"x": -0.5}, note="a < b"),
        Statement("c", "Three", "s", above, corrected=above),
        Statement("d", "Four", "s", above),
    ]
    head, rule, *rows, blank, counts = theorems_table(verify(tried, instances=5)).splitlines()
    assert (len(cells(head)), cells(rule), blank) == (4, ["---"] * 4, "")
    assert [cells(row) for row in rows] == [
        ["`a` One", "x |≥| 0.0", "holds", ""],
        ["`b` Two*", "x |≥| -1.0", AMENDED, "a < b"],
        ["`c` Three", "x |≥| 2.0", "fails", ""],
        ["`d` Four", "x |≥| 2.0", "fails", ""],
    ]
    assert counts == f"4 statements: 1 holds, 1 {AMENDED}, 2 fails."
    told = theorems_table(verify(tried, instances=5), dict.fromkeys("abcd", "[there](x.md)")).splitlines()
    assert [cells(row)[3] for row in told[2:6]] == ["", "[there](x.md)", "", ""]


def test_an_update_leaves_the_words_alone(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    table = update_page(path, 5, [Statement("a", "One", "s", at_least(0.0))])
    assert path.read_text(encoding="utf-8") == f"before\n{BEGIN}\n{table}\n{END}\nafter\n"
    assert "`a` One" in table


@pytest.mark.parametrize("text", ["none", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}"])
def test_a_page_without_its_marks_is_refused(tmp_path, text):
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputFileError, match="one each in this order needed"):
        update_page(path, 5, [])
    assert path.read_text(encoding="utf-8") == text


def test_the_counterexample_can_be_tried_again_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", page(), flags=re.S | re.M)
    save_counterexamples(verify(select(STATEMENTS, ["wu-4.5"]), instances=1), Path("results/verify"))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    saved, again, amended = map(float, printed.getvalue().split())
    assert saved == again < -0.1 < 0 <= amended


def test_the_commands_name_statements():
    named = re.findall(r"^posbias verify (.*)$", page(), flags=re.M)
    assert named
    for keys in (re.findall(r"(?:wu|herasimchyk|kim)\S+", line) for line in named):
        assert not keys or select(STATEMENTS, keys)
