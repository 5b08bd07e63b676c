"""Where the papers, their code and the truth disagree, as data: `errata.toml`.

    from posbias_papers.errata import ERRATA

An entry says what is printed or coded, what holds, and what posbias does, in Markdown. It has readings in
`posbias_papers.readings`, which compute the difference it makes, or says why there is no number (`no_number`). The
numbers that it quotes are named with the reading they come from (`quotes`), so that a test can compare them. The
record of a numbered statement names its erratum (`posbias_papers.statements`).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from types import MappingProxyType

from posbias.core.errors import InvalidValueError, nearest, shortened


@dataclass(frozen=True)
class Quote:
    """A number in an entry's text, and where it comes from: a reading and which of its numbers.

    `text` as it stands there (".738", "7e-66", "−.31", "22 %"); `of` is published, corrected, difference, or the
    name of one of the others.
    """

    text: str
    reading: str
    of: str


@dataclass(frozen=True)
class Erratum:
    """One disagreement: where it stands, what is `printed` or coded, what `holds`, and what `posbias` does.

    The four are Markdown. `no_number` says why no reading computes a number; empty where one does. `measured` says
    on what the quoted numbers of measured readings were measured.
    """

    key: str
    paper: str
    where: str
    printed: str
    holds: str
    posbias: str
    no_number: str = ""
    measured: str = ""
    quotes: tuple[Quote, ...] = field(default=())


def _erratum(key: str, quotes: Mapping[str, str] = MappingProxyType({}), **parts: str) -> Erratum:
    """An entry as the file has it: each quote with "READING: which of its numbers"."""
    sources = tuple(Quote(text, *source.split(": ", 1)) for text, source in quotes.items())
    return Erratum(key, key.partition("/")[0], **parts, quotes=sources)


_DATA = tomllib.loads((files("posbias_papers") / "errata.toml").read_text(encoding="utf-8"))
ERRATA: tuple[Erratum, ...] = tuple(_erratum(**given) for given in _DATA["erratum"])
"""Every entry, paper by paper, in the order of the text."""
_BY_KEY = {one.key: one for one in ERRATA}
REMARKS: Mapping[str, str] = MappingProxyType(_DATA["remarks"])
"""What is to be said of all entries of a paper, by its citation key."""


def find_erratum(key: str) -> Erratum:
    """The entry of this key. Raises `InvalidValueError` naming the nearest."""
    if key not in _BY_KEY:
        raise InvalidValueError(
            f"erratum: expected a key of errata.toml, got {shortened(key)}{nearest(key, _BY_KEY)}"
        )
    return _BY_KEY[key]
