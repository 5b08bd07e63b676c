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
from posbias_papers.statements import STATEMENTS, Reading, Statement, save_counterexamples, select, verify
from posbias_papers.statements.margins import compared_in
from posbias_papers.statements.pages import ERRATA_MARKS, MARKS, errata_text, theorems_table, update_pages
from posbias_papers.statements.run import plain
from posbias_papers.theorems import judge_statements

DOCS = ROOT / "docs"


def page():
    return (DOCS / "theorems.md").read_text(encoding="utf-8")


def rows_of(table):
    """The cells of the table's rows below its head, their text as it is read."""
    parts = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines() if line.startswith("| `")]
    return [[re.sub(r"\\(.)", r"\1", part).strip() for part in row] for row in parts]


def at_least(bound):
    return Reading(
        f"x |≥| {bound}", lambda rng, edge: {"x": float(rng.random())}, lambda one: one["x"] - bound
    )


@pytest.fixture(scope="module")
def findings():
    """Few instances do: a printed reading that fails brings its witness."""
    return verify(STATEMENTS, instances=8)


def test_the_table_is_that_of_the_statements(findings):
    assert between_marks(page(), *MARKS)[1] == theorems_table(findings)


def test_a_statement_has_one_verdict_wherever_it_is_printed(findings):
    """On the page, in `posbias verify` and in `posbias paper claims`: what it asserts, and what is printed."""
    on_page = {row[0]: row[2] for row in rows_of(theorems_table(findings))}
    expected, lines = {}, findings_table(findings)
    for one in STATEMENTS:
        name = f"{one.name}, proof" if one.asserts else one.name
        expected |= {f"`{one.key}` {one.name}": "holds"} if one.asserts else {}
        expected[f"`{one.key}` {name}"] = AMENDED if one.corrected else "holds"
    assert on_page == expected
    tried = {finding.statement.key: finding for finding in findings}
    for claim in judge_statements(["wu2025", "herasimchyk2026", "kim2026"], tried):
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
    assert [line.split() for line in findings_table([decay])[-2:]] == [["1", "0"], ["0.269", "0.731"]]


def test_links_lead_to_the_entry_that_names_the_statement():
    entries = re.split(r"^### ", (DOCS / "errata.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    headings = [re.sub(r"[^\w -]", "", entry.splitlines()[0]).lower().replace(" ", "-") for entry in entries]
    found = re.findall(r"`(\S+)` .*\[errata\]\(errata\.md#([^)]+)\)", page())
    assert len(found) > 15
    for key, anchor in found:
        (entry,) = [one for one, heading in zip(entries, headings, strict=True) if heading == anchor]
        assert key in entry


def test_every_verdict_is_reached():
    holds, below, above = (at_least(bound) for bound in (0.0, -1.0, 2.0))
    tried = [
        Statement("a", "One", "s", holds),
        Statement("b", "Two*", "s", holds, corrected=below, witness={"x": -0.5}, note="a < b"),
        Statement("c", "Three", "s", above, corrected=above),
    ]
    table = theorems_table(verify(tried, instances=5))
    assert rows_of(table) == [
        ["`a` One", "x |≥| 0.0", "holds", ""],
        ["`b` Two*", "x |≥| -1.0", AMENDED, "a < b"],
        ["`c` Three", "x |≥| 2.0", "fails", ""],
    ]


def test_the_pages_are_written_between_their_marks(tmp_path, monkeypatch):
    monkeypatch.setattr("posbias_papers.statements.pages.STATEMENTS", select(STATEMENTS, ["wu-4.5"]))
    for name, marks in (("theorems.md", MARKS), ("errata.md", ERRATA_MARKS)):
        (tmp_path / name).write_text(f"before\n{marks[0]}\nold\n{marks[1]}\nafter\n", encoding="utf-8")
    update_pages(tmp_path, 5)
    table, errata = ((tmp_path / name).read_text(encoding="utf-8") for name in ("theorems.md", "errata.md"))
    assert all(text.startswith("before") and text.endswith("after\n") for text in (table, errata))
    assert "`wu-4.5` Theorem 4.5" in table
    assert errata_text() in errata
    (tmp_path / "theorems.md").write_text("no marks", encoding="utf-8")
    with pytest.raises(InputFileError):
        update_pages(tmp_path, 5)


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
