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
        assert source.bibtex.isascii()
        for name in source.authors.split(" and "):
            assert name == "others" or (name.startswith("{") and name.endswith("}")) or name.count(", ") == 1
    (own,) = read(software("1.2.3"))
    assert (own.kind, own.key, own.fields["version"]) == ("software", "posbias", "1.2.3")
    assert REQUIRED["software"] <= set(own.fields)


def test_entries_say_what_the_papers_reference_lists_say():
    for key, (family, word, year) in PRINTED.items():
        source = cite(key)
        assert source.authors.startswith(f"{family}, ")
        assert word.lower() in source.title.lower()
        assert source.year == year
    assert cite("abnar2020").short == "Abnar and Zuidema 2020 (arXiv 2005.00928)"
    assert Source("a", "Last, First", "T", 2000).short == "Last 2000"
    letters = {
        "Blázquez": r"Bl{\'a}zquez",
        "Martín": r"Mart{\'{\i}}n",
        "Łukasz": r"{\L}ukasz",
        "a & b_c": r"a \& b\_c",
    }
    assert {text: latex(text) for text in letters} == letters
    methods = importlib.import_module("posbias_papers.citations")
    named = {key for key, _ in (*methods.KINDS.values(), *methods.MODELS.values())}
    assert named | {*REPORTED} <= set(BIBLIOGRAPHY)
    with pytest.raises(InvalidValueError):
        cite("kim2062")
