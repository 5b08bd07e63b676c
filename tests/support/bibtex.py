"""Entries of BibTeX as posbias lays them out: what an entry must be to be one."""

import re
from typing import NamedTuple

REQUIRED = {
    "misc": {"author", "title", "year"},
    "article": {"author", "title", "journal", "year"},
    "inproceedings": {"author", "title", "booktitle", "year"},
    "software": {"author", "title", "version"},
}


class Entry(NamedTuple):
    """An entry: its kind, key and fields, without the braces around them."""

    kind: str
    key: str
    fields: dict[str, str]


def read(text: str) -> list[Entry]:
    """All entries, a field a line. Asserts that nothing else begins one and that braces are balanced."""
    found = re.findall(r"^@([a-z]+)\{([^,\s{}]+),\n((?:  \w+ *= \{.*\},?\n)+)\}$", text, re.M)
    entries = [Entry(kind, key, dict(re.findall(r"(\w+) *= \{(.*)\}", body))) for kind, key, body in found]
    assert len(entries) == text.count("@") - text.count(r"\@")
    for value in (value for one in entries for value in one.fields.values()):
        depths = [value[:n].count("{") - value[:n].count("}") for n in range(len(value) + 1)]
        assert min(depths) == depths[-1] == 0, value
    return entries
