"""The bibliography: which paper a method, an equation, a model or a number comes from.

    cite("press2022").bibtex                     # an entry, in ASCII

The entries are data (`sources.toml`). Which of them a result rests on is said by `posbias_papers.citations`.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from posbias.core.errors import InvalidValueError, nearest
from posbias.core.files import data_table


@dataclass(frozen=True)
class Source:
    """A paper: citation key, authors ("Family, Given and …"; a group in braces), title, year, arXiv number.

    `journal` or `venue` (a conference) say where it appeared, `url` where it is to be had if not on arXiv,
    `version_of` of which source it is another version; each is empty where there is none.
    """

    key: str
    authors: str
    title: str
    year: int
    arxiv: str = ""
    journal: str = ""
    venue: str = ""
    url: str = ""
    version_of: str = ""

    @property
    def bibtex(self) -> str:
        """The entry for a LaTeX bibliography; braces keep the title's capitals."""
        fields = {
            "author": latex(self.authors),
            "title": f"{{{latex(self.title)}}}",
            "journal": latex(self.journal),
            "booktitle": latex(self.venue),
            "year": str(self.year),
            "eprint": self.arxiv,
            "archivePrefix": "arXiv" if self.arxiv else "",
            "url": self.url,
        }
        kind = "article" if self.journal else "inproceedings" if self.venue else "misc"
        return entry(kind, self.key, fields)

    @property
    def short(self) -> str:
        """Name and year with the arXiv number, for a caption or a table."""
        first, *others = self.authors.split(" and ")
        name = first.split(",")[0].strip("{}") + (
            " et al." if len(others) > 1 or others == ["others"] else ""
        )
        if len(others) == 1 and others != ["others"]:
            name += " and " + others[0].split(",")[0]
        return f"{name} {self.year}" + (f" (arXiv {self.arxiv})" if self.arxiv else "")

    def as_dict(self) -> dict[str, str | int]:
        """For JSON: what is not empty, and the entry."""
        return {name: held for name, held in vars(self).items() if held != ""} | {"bibtex": self.bibtex}


def entry(kind: str, key: str, fields: dict[str, str]) -> str:
    """A BibTeX entry of this kind with the fields that are not empty."""
    lines = [f"  {name} = {{{held}}}," for name, held in fields.items() if held]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0307": ".", "\u0308": '"',
    "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c", "\u0328": "k", "\u0306": "u",
}  # fmt: skip
"""Combining marks and the letter or sign of LaTeX's accent."""
_SIGNS = {
    "ł": r"{\l}", "Ł": r"{\L}", "ø": r"{\o}", "Ø": r"{\O}", "ß": r"{\ss}", "æ": r"{\ae}", "ı": r"{\i}",
    "–": "--", "—": "---", "’": "'", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "$": r"\$",
}  # fmt: skip


def latex(text: str) -> str:
    """Text with accents and special signs as LaTeX spells them: ö is {\\"o}, é is {\\'e}, č is {\\v{c}}.

    What LaTeX has no spelling for here stays as it is. Braces are left alone: they may group a name.
    """
    parts = []
    for sign in unicodedata.normalize("NFC", text):
        letter, *marks = unicodedata.normalize("NFD", sign)
        if len(marks) == 1 and marks[0] in _ACCENTS:
            accent, base = _ACCENTS[marks[0]], {"i": r"\i", "j": r"\j"}.get(letter, letter)
            parts.append(
                f"{{\\{accent}{{{base}}}}}" if accent.isalpha() or base != letter else f"{{\\{accent}{base}}}"
            )
        else:
            parts.append(_SIGNS.get(sign, sign))
    return "".join(parts)


def _read() -> dict[str, Source]:
    data = data_table(__file__)
    return {key: Source(key, **held) for key, held in data.items()}


BIBLIOGRAPHY: Mapping[str, Source] = MappingProxyType(_read())
"""Every source by its key: the three papers, methods, encodings, models, in the order of `sources.toml`."""
REPORTED = ("wu2025", "herasimchyk2026", "kim2026", "abnar2020", "press2022", "simonyan2014")
"""The sources that the report on a model rests on."""


def cite(key: str) -> Source:
    """Return the source with this citation key. Raises `InvalidValueError` naming the nearest key."""
    if key not in BIBLIOGRAPHY:
        raise InvalidValueError(f"key: no source {key!r}{nearest(key, BIBLIOGRAPHY)}")
    return BIBLIOGRAPHY[key]


def versions(key: str) -> list[Source]:
    """The other versions of a source, such as that of a workshop."""
    return [source for source in BIBLIOGRAPHY.values() if source.version_of == key]


def software(version: str) -> str:
    """The entry of posbias itself, at this version."""
    title = "{posbias: Predict, measure and compare position bias in transformers}"
    return entry(
        "software", "posbias", {"author": "{The posbias authors}", "title": title, "version": version}
    )
