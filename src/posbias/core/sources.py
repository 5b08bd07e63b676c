"""The bibliography: which paper a method, an equation, a model or a number comes from.

    cite("press2022").short                      # name and year, for a caption

The entries are data (`sources.toml`). Which of them a result rests on is said by `posbias_papers.citations`, which
makes BibTeX of them.
"""

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
    def short(self) -> str:
        """Name and year with the arXiv number, for a caption or a table."""
        first, *others = self.authors.split(" and ")
        name = first.split(",")[0].strip("{}") + (
            " et al." if len(others) > 1 or others == ["others"] else ""
        )
        if len(others) == 1 and others != ["others"]:
            name += " and " + others[0].split(",")[0]
        return f"{name} {self.year}" + (f" (arXiv {self.arxiv})" if self.arxiv else "")


BIBLIOGRAPHY: Mapping[str, Source] = MappingProxyType(
    {key: Source(key, **held) for key, held in data_table(__file__).items()}
)
"""Every source by its key: the three papers, methods, encodings, models, in the order of `sources.toml`."""
REPORTED = ("wu2025", "herasimchyk2026", "kim2026", "abnar2020", "press2022", "simonyan2014")
"""The sources that the report on a model rests on."""


def cite(key: str) -> Source:
    """Return the source with this citation key. Raises `InvalidValueError` naming the nearest key."""
    if key not in BIBLIOGRAPHY:
        raise InvalidValueError(f"key: no source {key!r}{nearest(key, BIBLIOGRAPHY)}")
    return BIBLIOGRAPHY[key]
