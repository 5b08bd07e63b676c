"""Errata, statements and their pages: verdicts, numbers and quotes are the same wherever they are printed."""

import math
import re

import numpy as np
import pytest
import quotes

from posbias.core.errors import InvalidValueError
from posbias.core.sources import BIBLIOGRAPHY
from posbias.profiles.claims import AMENDED
from posbias_papers.cli.verify import findings_table
from posbias_papers.errata import ERRATA, errata_page, find_erratum
from posbias_papers.readings import READINGS
from posbias_papers.reproduction import reproduce
from posbias_papers.statements import STATEMENTS, Statement, verify
from posbias_papers.theorems import judge_statements, theorems_page


@pytest.fixture(scope="module")
def findings():
    """Few instances do: a printed reading that fails brings its witness."""
    return verify(STATEMENTS, instances=8)


# --- errata ------------------------------------------------------------------------------------------------


def test_entries_are_whole_and_quote_numbers_of_their_readings_or_say_why_there_is_none():
    about = {one.key: one.erratum.key for one in READINGS}
    assert len(READINGS) == len(about) == 59
    assert len({one.key for one in ERRATA}) == len(ERRATA)
    for one in ERRATA:
        assert all((one.where, one.printed, one.holds, one.posbias)), one.key
        assert one.paper in BIBLIOGRAPHY
        assert (one.key in about.values()) != bool(one.no_number), one.key
        for quote in quotes.quotes_of(one):
            alone = rf"(?<![\d.,]){re.escape(quote.text)}(?!\d|[.,]\d| %)"
            assert re.search(alone, f"{one.printed} {one.holds}"), (one.key, quote.text)
            assert about[quote.reading] == one.key, quote
    for statement in STATEMENTS:
        assert not statement.erratum or statement.key in find_erratum(statement.erratum).posbias


def test_an_unknown_key_names_the_nearest():
    with pytest.raises(InvalidValueError, match="did you mean 'kim2026/eq-42'"):
        find_erratum("kim2026/eq-43")


@pytest.mark.slow
def test_what_is_quoted_of_the_bundled_model_is_what_its_tables_say(tmp_path):
    """Of 32 prompts of 256 tokens, as the entries say."""
    made = reproduce("herasimchyk2026", ["section4", "table6"], out=tmp_path, models=["tiny-alibi"]).made
    order, diagonal = (
        made[name].table.query(f"source == 'measured'{which}").iloc[0]
        for name, which in (("section4", ""), ("table6", " and what == 'diagonal, mean'"))
    )
    found = {
        "herasimchyk2026/section-4: corrected": order["rate"],
        "herasimchyk2026/section-4: noise floor": order["floor"],
        "herasimchyk2026/table-6: corrected": diagonal["value"],
        "herasimchyk2026/table-6: corrected of normal numbers": diagonal["null"],
    }
    quoted = {f"{one.reading}: {one.of}": one for entry in ERRATA for one in quotes.quotes_of(entry)}
    for name, number in found.items():
        expected = pytest.approx(quotes.value(quoted[name]), abs=quotes.rounding(quoted[name]))
        assert number == expected, name


# --- statements in print -----------------------------------------------------------------------------------


def test_a_statement_has_one_verdict_wherever_it_is_printed(findings):
    """On the page, in `posbias verify` and in `posbias paper claims`: what it asserts, and what is printed."""
    page, lines = theorems_page(findings), findings_table(findings)
    tried = {finding.statement.key: finding for finding in findings}
    judged = list(judge_statements(["wu2025", "herasimchyk2026", "kim2026"], tried))
    assert len({claim.more["statement"] for claim in judged}) == len({*tried}) == 74
    for claim in judged:
        key, name = claim.more["statement"], claim.claim.place
        statement = tried[key].statement
        expected = (
            AMENDED[claim.claim.provenance]
            if statement.corrected and claim.claim.sentence.find(statement.asserts or "\0") < 0
            else "holds"
        )
        assert claim.mark == expected
        assert re.search(rf"^\| `{re.escape(key)}` {re.escape(name)} \| .* \| {expected} \|", page, re.M)
        assert any(
            re.match(rf"{re.escape(f'{statement.source} {name}')} +{expected} ", line) for line in lines
        )


def test_the_pages_hold_every_statement_and_erratum(findings):
    page, errata = theorems_page(findings), errata_page()
    assert all(f"`{one.key}`" in page for one in STATEMENTS)
    assert all(f"### {one.key}\n" in errata for one in ERRATA)
    # headings as the site names them: links lead to one
    headings = {re.sub(r"[^\w -]", "", line[4:]) for line in errata.splitlines() if line.startswith("### ")}
    links = re.findall(r"\]\(errata\.md#([^)]+)\)", page)
    assert len(links) > 15
    assert {*links} <= headings


def test_what_fails_shows_the_numbers_that_refute_it(findings):
    for finding in findings:
        compared, row = finding.compared, finding.as_dict()
        assert (compared is None) == (finding.verdict == "holds") == (row["counterexample"] is None)
        if compared is not None:
            assert finding.as_printed.slack == compared < -finding.statement.tolerance
    (decay,) = (one for one in findings if one.statement.key == "wu-4.5")
    kept = math.exp(-1) / (1 + math.exp(-1))  # two tokens without content, m = 1
    assert decay.compared.value == pytest.approx(1)
    assert decay.compared.bound == pytest.approx(1 - kept)
    np.testing.assert_allclose(decay.compared.matrix, [[1, 0], [kept, 1 - kept]])
    assert [line.split() for line in findings_table([decay])[-2:]] == [["1", "0"], ["0.269", "0.731"]]


def test_every_verdict_is_reached():
    def trial(key, bound, fails_at=None):
        def margin(x, corrected=True):
            return x - (bound if corrected else 0.0)

        claim = {"corrected": "x is large"} if fails_at is not None else {}
        witness = {"x": fails_at} if fails_at is not None else None
        one = Statement(
            key, key, "s", "x", lambda s: {"x": s.real(0.0, 1.0)}, margin, witness=witness, **claim
        )
        return verify([one], instances=5)[0].mark

    marks = [trial("holds", 0.0), trial("amended", -1.0, -0.5), trial("neither", 2.0, -0.5), trial("no", 2.0)]
    assert marks == ["holds", AMENDED["paper"], "fails", "fails"]
