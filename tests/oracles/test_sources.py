"""The bibliography is valid BibTeX that any LaTeX reads, and says what the papers' own reference lists say."""

import importlib

import pytest
from bibtex import REQUIRED, read

from posbias.core.errors import InvalidValueError
from posbias.core.sources import BIBLIOGRAPHY, REPORTED, Source, cite, latex, software

PRINTED = {
    # key: (first family name, a word of the title, year), as Wu et al. 2025 or Herasimchyk et al. 2026 cite them
    "abnar2020": ("Abnar", "Flow", 2020),
    "beltagy2020": ("Beltagy", "Longformer", 2020),
    "chi2022": ("Chi", "length extrapolation", 2022),
    "gu2025": ("Gu", "empirical view", 2025),
    "kazemnejad2023": ("Kazemnejad", "length generalization", 2023),
    "kobayashi2020": ("Kobayashi", "vector norms", 2020),
    "liu2024": ("Liu", "lost in the middle", 2024),
    "loshchilov2019": ("Loshchilov", "decoupled", 2019),
    "press2022": ("Press", "linear biases", 2022),
    "raffel2020": ("Raffel", "transfer learning", 2020),
    "reddy2024": ("Reddy", "abrupt learning", 2024),
    "simonyan2014": ("Simonyan", "saliency maps", 2014),
    "su2024": ("Su", "roformer", 2024),
    "vaswani2017": ("Vaswani", "all you need", 2017),
    "xiao2024": ("Xiao", "attention sinks", 2024),
}


def test_every_entry_is_read_back_as_it_was_meant():
    entries = read("\n\n".join(source.bibtex for source in BIBLIOGRAPHY.values()))
    assert [one.key for one in entries] == list(BIBLIOGRAPHY)
    assert len({one.key for one in entries}) == len(entries)
    for one in entries:
        source = BIBLIOGRAPHY[one.key]
        assert REQUIRED[one.kind] <= set(one.fields)
        assert one.fields["year"] == str(source.year)
        assert one.fields["title"] == f"{{{latex(source.title)}}}"
        assert one.fields["author"].count(" and ") == source.authors.count(" and ")
        assert one.fields.get("eprint", "") == source.arxiv
        assert source.arxiv or source.url


@pytest.mark.parametrize("key", BIBLIOGRAPHY)
def test_entries_are_ascii_and_authors_are_family_and_given_names(key):
    source = BIBLIOGRAPHY[key]
    assert source.bibtex.isascii()
    for name in source.authors.split(" and "):
        assert name == "others" or (name.startswith("{") and name.endswith("}")) or name.count(", ") == 1, (
            name
        )
    if source.arxiv:
        year, _, number = source.arxiv.partition(".")
        assert (len(year), len(number)) in ((4, 4), (4, 5))


@pytest.mark.parametrize("key", PRINTED)
def test_entries_say_what_the_papers_reference_lists_say(key):
    source, (family, word, year) = cite(key), PRINTED[key]
    assert source.authors.startswith(f"{family}, ")
    assert word.lower() in source.title.lower()
    assert source.year == year


def test_the_software_is_an_entry_of_its_own():
    (own,) = read(software("1.2.3"))
    assert (own.kind, own.key, own.fields["version"]) == ("software", "posbias", "1.2.3")
    assert REQUIRED["software"] <= set(own.fields)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sören", r"S{\"o}ren"),
        ("Blázquez", r"Bl{\'a}zquez"),
        ("Martín", r"Mart{\'{\i}}n"),
        ("Kydlíček", r"Kydl{\'{\i}}{\v{c}}ek"),
        ("Łukasz Çelik", r"{\L}ukasz {\c{C}}elik"),
        ("a & b_c 5 %", r"a \& b\_c 5 \%"),
        ("{Gemma Team}", "{Gemma Team}"),
    ],
)
def test_letters_beyond_ascii_are_commands_in_latex(text, expected):
    assert latex(text) == expected


def test_captions_name_the_authors():
    assert cite("abnar2020").short == "Abnar and Zuidema 2020 (arXiv 2005.00928)"
    assert cite("wu2025").short == "Wu et al. 2025 (arXiv 2502.01951)"
    assert cite("reddy2024").short == "Reddy 2024 (arXiv 2312.03002)"
    assert cite("dubey2024").short == "Dubey et al. 2024 (arXiv 2407.21783)"
    assert cite("bigscience2022").short == "BigScience Workshop 2022 (arXiv 2211.05100)"
    assert Source("a", "Last, First", "T", 2000).short == "Last 2000"


def test_an_unknown_key_is_refused_with_the_nearest():
    with pytest.raises(InvalidValueError, match="no source 'kim2062'; did you mean 'kim2026'"):
        cite("kim2062")
    assert all(key in BIBLIOGRAPHY for key in REPORTED)


def test_every_source_that_a_method_names_is_in_the_bibliography():
    methods = importlib.import_module("posbias_papers.citations")
    named = {key for key, _ in (*methods.KINDS.values(), *methods.MODELS.values())}
    assert named <= set(BIBLIOGRAPHY)


@pytest.mark.parametrize(
    "text",
    ["@misc{a,\n  title = {{unclosed},\n}", "stray @misc{a, title = {b}}", "@misc{a, title = {b} = c}"],
)
def test_the_reader_refuses_what_is_no_bibtex(text):
    with pytest.raises((ValueError, IndexError)):
        read(text)
