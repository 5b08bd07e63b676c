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
class Erratum:
    """One disagreement: where it stands, what is `printed` or coded, what `holds`, and what `posbias` does.

    The four are Markdown. `no_number` says why no reading computes a number; empty where one does. `quotes` are
    the numbers in the text as they stand there (".738", "7e-66", "−.31", "22 %"), each with "READING: NUMBER",
    NUMBER being published, corrected, difference, or one of the others by its name. `measured` says on what those
    of measured readings were measured.
    """

    key: str
    where: str
    printed: str
    holds: str
    posbias: str
    no_number: str = ""
    measured: str = ""
    quotes: Mapping[str, str] = field(default_factory=dict)

    @property
    def paper(self) -> str:
        """The citation key of its paper."""
        return self.key.partition("/")[0]


_DATA = tomllib.loads((files("posbias_papers") / "errata.toml").read_text(encoding="utf-8"))
ERRATA: tuple[Erratum, ...] = tuple(Erratum(**given) for given in _DATA["erratum"])
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
