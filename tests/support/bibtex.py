"""A small reader of BibTeX, written from the format's description: what an entry must be to be one."""

import re
from dataclasses import dataclass

REQUIRED = {
    "misc": {"author", "title", "year"},
    "article": {"author", "title", "journal", "year"},
    "inproceedings": {"author", "title", "booktitle", "year"},
    "software": {"author", "title", "version"},
}
BEFORE = re.compile(r"(?:%[^@\n]*\n|\s)*@(?P<kind>[a-z]+)\{(?P<key>[^,\s{}]+),\s*")
FIELD = re.compile(r"(?P<name>[A-Za-z]+)\s*=\s*\{")


@dataclass(frozen=True)
class Entry:
    """An entry: its kind, key and fields, without the braces around them."""

    kind: str
    key: str
    fields: dict[str, str]


def read(text: str) -> list[Entry]:
    """All entries. Raises `ValueError` for anything between them but comments, and for unbalanced braces."""
    entries, at = [], 0
    while text[at:].strip():
        head = BEFORE.match(text, at)
        if head is None:
            raise ValueError(f"no entry at {text[at : at + 40]!r}")
        at, fields = head.end(), {}
        while text[at] != "}":
            field = FIELD.match(text, at)
            if field is None or field["name"] in fields:
                raise ValueError(f"no field at {text[at : at + 40]!r}")
            at = end = _closing(text, field.end())
            fields[field["name"]] = text[field.end() : end]
            at = end + 1 + len(re.match(r"\s*,?\s*", text[end + 1 :])[0])  # type: ignore[index]
        entries.append(Entry(head["kind"], head["key"], fields))
        at += 1
    return entries


def _closing(text: str, at: int) -> int:
    """Where the brace that was opened before `at` closes."""
    depth = 1
    while depth:
        if at >= len(text):
            raise ValueError("a brace is not closed")
        depth += {"{": 1, "}": -1}.get(text[at], 0) if text[at - 1] != "\\" else 0
        at += 1
    return at - 1
