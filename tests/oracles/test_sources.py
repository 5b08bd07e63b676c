"""The bibliography is valid BibTeX that any LaTeX reads, and says what the papers' own reference lists say."""

import importlib
import re

import pytest

from posbias.core.errors import InvalidValueError
from posbias.core.sources import BIBLIOGRAPHY, REPORTED, Source, cite, latex, software

REQUIRED = {
    "misc": {"year"},
    "article": {"journal", "year"},
    "inproceedings": {"booktitle", "year"},
    "software": {"version"},
}
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


@pytest.mark.parametrize("entry", [*(one.bibtex for one in BIBLIOGRAPHY.values()), software("1.2.3")])
def test_every_entry_is_one_that_latex_reads(entry):
    """ASCII, a field a line, braces that are balanced, what its kind needs."""
    kind, key, body = re.fullmatch(r"@([a-z]+)\{([a-z0-9]+),\n(.*)\n\}", entry, re.DOTALL).groups()
    fields = dict(re.fullmatch(r"  (\w+) *= \{(.+)\},?", line).groups() for line in body.splitlines())
    assert {"author", "title"} | REQUIRED[kind] <= fields.keys()
    assert entry.isascii()
    for value in fields.values():
        depths = [value[:n].count("{") - value[:n].count("}") for n in range(len(value) + 1)]
        assert min(depths) == depths[-1] == 0
    assert key == "posbias" or fields.get("eprint") or fields["url"]


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
