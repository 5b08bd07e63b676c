"""The bibliography is BibTeX that any LaTeX reads, and has all that methods cite."""

import importlib
import re

import pytest

from posbias.core.errors import InvalidValueError
from posbias.core.sources import BIBLIOGRAPHY, REPORTED, Source, cite
from posbias.theory import content, masks, mixing, normalisers, positional, rope_scaling
from posbias_papers.citations import bibtex, latex, software

REQUIRED = {
    "misc": {"year"},
    "article": {"journal", "year"},
    "inproceedings": {"booktitle", "year"},
    "software": {"version"},
}


@pytest.mark.parametrize("entry", [*map(bibtex, BIBLIOGRAPHY.values()), software("1.2.3")])
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


def test_names_letters_and_what_methods_cite():
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
    parts = (*masks.MASKS, *positional.POSITIONALS, *rope_scaling.ROPE_SCALINGS, *mixing.MIXINGS)
    parts += (*content.CONTENTS, *content.QUERY_SCALES, *normalisers.NORMALISERS)
    words = {"rotary", "sinusoidal", "sink_softmax", "layernorm", "rmsnorm"}
    assert methods.KINDS.keys() - {cls.kind for cls in parts} == words
    named = {key for key, _ in (*methods.KINDS.values(), *methods.MODELS.values())}
    assert named | {*REPORTED} <= set(BIBLIOGRAPHY)
    with pytest.raises(InvalidValueError):
        cite("kim2062")
