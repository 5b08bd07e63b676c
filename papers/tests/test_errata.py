"""Errata are data: the page is what they say, and the numbers they quote are those that readings compute."""

import re

import pytest
import quotes
from command import called
from project import ROOT

from posbias.core.errors import InvalidValueError
from posbias.core.files import between_marks
from posbias.core.sources import BIBLIOGRAPHY
from posbias_papers.errata import ERRATA, find_erratum
from posbias_papers.readings import READINGS
from posbias_papers.statements import STATEMENTS
from posbias_papers.statements.pages import ERRATA_MARKS, errata_text


def cells(row):
    return [part.strip() for part in re.split(r"(?<!\\)\|", row)[1:-1]]


def test_the_page_is_what_the_data_say():
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    assert between_marks(page, *ERRATA_MARKS)[1] == errata_text()


def test_entries_are_whole_and_of_known_papers():
    assert len({one.key for one in ERRATA}) == len(ERRATA) > 50
    for one in ERRATA:
        assert all((one.where, one.printed, one.holds, one.posbias)), one.key
        assert one.paper in BIBLIOGRAPHY
        assert one.key.startswith(f"{one.paper}/")


def test_every_entry_has_a_reading_or_a_reason_why_there_is_no_number():
    about = {one.about for one in READINGS}
    assert about <= {one.key for one in ERRATA}
    assert len(READINGS) == len({one.key for one in READINGS}) == 59
    for one in ERRATA:
        assert (one.key in about) != bool(one.no_number), one.key


def test_an_entry_names_the_statements_that_it_is_about():
    for statement in STATEMENTS:
        assert not statement.erratum or statement.key in find_erratum(statement.erratum).posbias


def test_quotes_stand_in_the_text_and_come_from_readings_of_their_entry():
    about = {one.key: one.about for one in READINGS}
    for one in ERRATA:
        for quote in one.quotes:
            alone = rf"(?<![\d.,]){re.escape(quote.text)}(?!\d|[.,]\d| %)"
            assert re.search(alone, f"{one.printed} {one.holds}"), (one.key, quote.text)
            assert about[quote.reading] == one.key, quote


def test_an_unknown_key_names_the_nearest():
    with pytest.raises(InvalidValueError, match="did you mean 'kim2026/eq-42'"):
        find_erratum("kim2026/eq-43")


@pytest.mark.slow
def test_what_is_quoted_of_the_bundled_model_is_what_its_pages_say(tmp_path):
    """Of 32 prompts of 256 tokens, as the entries say."""
    words = ("paper", "herasimchyk2026", "section4", "table6", "--models", "tiny-alibi", "--out", tmp_path)
    done = called(*words)
    assert done.returncode == 0, done.stderr
    made = tmp_path / "tiny-alibi" if (tmp_path / "tiny-alibi").is_dir() else tmp_path
    section, table = (
        next(cells(line) for line in (made / file).read_text().splitlines() if line.startswith(start))
        for file, start in (
            ("section4.md", "| tiny-alibi | sotu |"),
            ("table6.md", "| tiny-alibi | diagonal, mean |"),
        )
    )
    found = {
        "herasimchyk2026/section-4: corrected": section[2],
        "herasimchyk2026/section-4: noise floor": section[3],
        "herasimchyk2026/table-6: corrected": table[2].split(" ")[0],
        "herasimchyk2026/table-6: corrected of normal numbers": table[3].split(" ")[0],
    }
    quoted = {f"{one.reading}: {one.of}": one for entry in ERRATA for one in entry.quotes}
    for name, text in found.items():
        expected = pytest.approx(quotes.value(quoted[name]), abs=quotes.rounding(quoted[name]))
        assert float(text) == expected, name
