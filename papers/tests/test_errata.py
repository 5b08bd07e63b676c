"""Errata are data: the page is what they say, and the numbers they quote are those that readings compute."""

import re

import pytest
import quotes
from command import called
from project import ROOT

from posbias.core.errors import InputFileError, InvalidValueError
from posbias.core.files import between_marks
from posbias.core.sources import BIBLIOGRAPHY
from posbias_papers import errata
from posbias_papers.errata import BEGIN, END, ERRATA, Quote, find_erratum, update_page
from posbias_papers.readings import READINGS

PAGE = ROOT / "docs" / "errata.md"
REGENERATE = (
    """.venv/bin/python -c 'from posbias_papers.errata import update_page; update_page("docs/errata.md")'"""
)


def cells(row):
    return [part.strip() for part in re.split(r"(?<!\\)\|", row)[1:-1]]


def test_the_page_is_what_the_data_say():
    page = PAGE.read_text(encoding="utf-8")
    assert REGENERATE in page
    assert between_marks(page, BEGIN, END)[1] == errata.page_text()


def test_every_entry_has_its_heading_and_its_parts():
    entries = errata.page_text().split("\n### ")[1:]
    assert len(entries) == len(ERRATA)
    for entry, erratum in zip(entries, ERRATA, strict=True):
        heading, *lines = entry.splitlines()
        assert heading == erratum.where
        said = {
            "printed": erratum.printed,
            "holds": erratum.holds,
            f"posbias, `{erratum.key}`": erratum.posbias,
        }
        assert [line for line in lines if line.startswith("- ")] == [
            f"- *{name}*: {text}" for name, text in said.items()
        ]


def test_entries_are_whole_and_of_known_papers():
    assert len({one.key for one in ERRATA}) == len(ERRATA) > 50
    for one in ERRATA:
        assert all((one.where, one.printed, one.holds, one.posbias)), one.key
        assert one.paper in BIBLIOGRAPHY
        assert one.key.startswith(f"{one.paper}/")
    assert {one.paper for one in ERRATA} == {"wu2025", "herasimchyk2026", "kim2026"}


def test_every_entry_has_a_reading_or_a_reason_why_there_is_no_number():
    about = {one.about for one in READINGS}
    assert about <= {one.key for one in ERRATA}
    for one in ERRATA:
        assert (one.key in about) != bool(one.no_number), one.key


def test_quotes_stand_in_the_text_and_come_from_readings_of_their_entry():
    about = {one.key: one.about for one in READINGS}
    for one in ERRATA:
        for quote in one.quotes:
            alone = rf"(?<![\d.,]){re.escape(quote.text)}(?!\d|[.,]\d| %)"
            assert re.search(alone, f"{one.printed} {one.holds}"), (one.key, quote.text)
            assert about[quote.reading] == one.key, quote


@pytest.mark.parametrize(
    ("text", "value", "rounding"),
    [
        (".738", 0.738, 5e-4),
        ("−.31", -0.31, 5e-3),
        ("1,869", 1869, 0.5),
        ("7e-66", 7e-66, 5e-67),
        ("1.9e11", 1.9e11, 5e9),
        ("22 %", 0.22, 5e-3),
        (".76 %", 0.0076, 5e-5),
        ("½", 0.5, 1e-9),
        ("4", 4, 0.5),
    ],
)
def test_a_quote_says_its_value_and_how_far_it_is_rounded(text, value, rounding):
    quote = Quote(text, "kim2026/eq-42", "published")
    assert quotes.value(quote) == pytest.approx(value, rel=1e-12)
    assert quotes.rounding(quote) == pytest.approx(rounding, rel=1e-9)


def test_the_page_is_written_between_its_marks(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"# Mine\n\n{BEGIN}\nold\n{END}\n\nafter\n", encoding="utf-8")
    text = update_page(path)
    page = path.read_text(encoding="utf-8")
    assert page == f"# Mine\n\n{BEGIN}\n{text}\n{END}\n\nafter\n"
    update_page(path)
    assert path.read_text(encoding="utf-8") == page


@pytest.mark.parametrize("page", ["nothing", f"{END}\n{BEGIN}", f"{BEGIN}\n{BEGIN}\n{END}"])
def test_a_page_without_the_marks_is_refused_and_left_alone(tmp_path, page):
    path = tmp_path / "page.md"
    path.write_text(page, encoding="utf-8")
    with pytest.raises(InputFileError, match="one each in this order needed"):
        update_page(path)
    assert path.read_text(encoding="utf-8") == page


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
    section = next(
        cells(line)
        for line in (made / "section4.md").read_text().splitlines()
        if line.startswith("| tiny-alibi | sotu |")
    )
    table = next(
        cells(line)
        for line in (made / "table6.md").read_text().splitlines()
        if line.startswith("| tiny-alibi |")
    )
    found = {
        "herasimchyk2026/section-4: corrected": section[2],
        "herasimchyk2026/section-4: noise floor": section[3],
        "herasimchyk2026/table-6: corrected": table[1].split(" ")[0],
        "herasimchyk2026/table-6: corrected of normal numbers": table[2].split(" ")[0],
    }
    quoted = {f"{one.reading}: {one.of}": one for entry in ERRATA for one in entry.quotes}
    for name, text in found.items():
        assert float(text) == pytest.approx(quotes.value(quoted[name]), abs=quotes.rounding(quoted[name])), (
            name
        )
