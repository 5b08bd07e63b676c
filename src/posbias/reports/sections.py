"""What the page of the papers is made of: a section for each study, with what its files hold, paper by paper."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from posbias.claims import ELSEWHERE, Provenance, count, tally
from posbias.errors import DamagedError, InvalidValueError
from posbias.evidence import Verdict
from posbias.reports.gallery import Picture, picture, within
from posbias.reports.pages import Page
from posbias.sources import Source, cite
from posbias.store import undamaged

KINDS = {"fig": "Figures", "table": "Tables", "section": "Section"}
"""What studies are called together, by the letters their names begin with."""
OURS, OTHERS = "Ours, beside the paper's", "Of other models than the paper's"
"""Headings of claims that are not the paper's."""
FILES = ("svg", "png", "md", "json")


@dataclass(frozen=True)
class Section:
    """One study as the page shows it, or the claims of a paper that belong to none (`study` is then None).

    `there` says whether it has been made, `cost` with what effort and time, `wrong` what cannot be read of it.
    """

    key: str
    label: str
    claims: Sequence[Any]
    study: Any = None
    there: bool = True
    picture: Picture = field(default_factory=Picture)
    page: Page = field(default_factory=Page)
    cost: tuple[str, ...] = ()
    wrong: str = ""

    @property
    def anchor(self) -> str:
        """Where links to it lead."""
        return anchor(self.key)

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many of its claims hold, fail and are undecided."""
        return count(self.claims)

    @property
    def listed(self) -> list[Any]:
        """Its claims without the one that stands for a study that was not made, which has the study's own id."""
        return [claim for claim in self.claims if claim.id != self.key]

    @property
    def kinds(self) -> dict[str, list[Any]]:
        """The same under headings: the paper's own, ours, and ours of other models than the paper's."""
        kinds: dict[str, list[Any]] = {"": [], OURS: [], OTHERS: []}
        for claim in self.listed:
            ours = OTHERS if claim.id.endswith(ELSEWHERE) else OURS
            kinds[ours if claim.claim.provenance == "ours" else ""].append(claim)
        return {heading: claims for heading, claims in kinds.items() if claims}

    @property
    def parts(self) -> list[str]:
        """Keys of the studies whose figures it is the caption of."""
        return [part.key for part in getattr(self.study, "parts", ())]

    @property
    def short(self) -> str:
        """Its label in a list of its kind: the number, or how many claims it has."""
        number = re.search(r"\d+$", self.key)
        return number[0] if number else str(len(self.claims))


@dataclass(frozen=True)
class Part:
    """One paper and its sections."""

    source: Source
    sections: Sequence[Section]

    @property
    def claims(self) -> list[Any]:
        """All claims, in the order of the page."""
        return [claim for section in self.sections for claim in section.claims]

    @property
    def counts(self) -> dict[Provenance, dict[Verdict, int]]:
        """How many of the paper's own claims, and of ours, hold, fail and are undecided."""
        return tally(self.claims)

    @property
    def shelves(self) -> dict[str, list[Section]]:
        """Its sections by kind, for the table of contents."""
        shelves: dict[str, list[Section]] = {}
        for section in self.sections:
            kind = re.search(r"/([a-z]+)\d", section.key)
            shelves.setdefault(KINDS.get(kind[1], section.label) if kind else section.label, []).append(
                section
            )
        return shelves


def anchor(name: str) -> str:
    """A name as the target of a link within the page."""
    return re.sub(r"[^\w./-]+", "-", name)


def label(name: str) -> str:
    """'fig12' as 'Figure 12', 'section4' as 'Section 4', 'statements' as 'Statements'."""
    parts = re.fullmatch(r"([a-z]+)(\d+)", name)
    if not parts:
        return name[:1].upper() + name[1:].replace("-", " ")
    return f"{KINDS.get(parts[1], parts[1].capitalize()).removesuffix('s')} {parts[2]}"


def gather(
    folder: Path,
    claims: Sequence[Any],
    studies: Mapping[str, Any],
    costs: Mapping[str, Any],
    limit: int,
) -> list[Part]:
    """The papers that claims or studies are of, each with its sections: statements, then in the registry's order.

    Claims of no known study come last. `costs` are the records of studies in papers.json; all pictures together
    have at most `limit` bytes. Raises `InvalidValueError` for a paper that is in no bibliography.
    """
    papers = [*dict.fromkeys(one.paper for one in (*studies.values(), *claims))]
    sections: list[Section] = []
    for key, study in sorted(studies.items(), key=lambda item: item[1].name != "statements"):
        mine = [claim for claim in claims if claim.study == key]
        sections.append(_section(folder, key, study, mine, costs.get(key, {})))
    for paper in papers:
        lost = [claim for claim in claims if claim.paper == paper and claim.study not in studies]
        sections += [Section(f"{paper}/others", "Other claims", lost)] if lost else []
    pictures = within({one.key: one.picture for one in sections}, limit)
    sections = [replace(one, picture=pictures[one.key]) for one in sections]
    of = {paper: [one for one in sections if one.key.startswith(f"{paper}/")] for paper in papers}
    return [Part(cite(paper), mine) for paper, mine in of.items()]


def read_json(path: Path) -> tuple[dict[str, Any], str]:
    """A JSON object and what is wrong with it: nothing where it is whole, or not there."""
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        return (
            (undamaged(about, path), "") if isinstance(about, dict) else ({}, f"{path.name} holds no result")
        )
    except FileNotFoundError:
        return {}, ""
    except DamagedError:
        return {}, f"{path.name} is damaged"
    except (OSError, ValueError, RecursionError):
        return {}, f"{path.name} cannot be read"


def _section(folder: Path, key: str, study: Any, claims: Sequence[Any], cost: Mapping[str, Any]) -> Section:
    place, name = folder / study.paper, label(study.name)
    alternative = f"{name} of {cite(study.paper).short} drawn again: {study.title}."
    if claims:
        told = ", ".join(f"{number} {verdict}" for verdict, number in count(claims).items())
        alternative += f" Its claims ({told}) follow as text."
    about, wrong = read_json(place / f"{study.name}.json")
    page = Page()
    try:
        page = Page.from_dict(about)
    except InvalidValueError:
        wrong = f"{study.name}.json holds no tables"
    files = any((place / f"{study.name}.{kind}").is_file() for kind in FILES)
    return Section(
        key,
        name,
        claims,
        study,
        files or (study.name == "statements" and bool(claims)),
        picture(place, study.name, f"{study.paper}-{study.name}", alternative),
        page,
        _cost(dict(cost) | ({"effort": about["effort"]} if about.get("effort") else {})),
        wrong,
    )


def _cost(record: Mapping[str, Any]) -> tuple[str, ...]:
    """'quick', '18 cells', '14 minutes', as far as they are on record."""
    told = [str(record["effort"])] if record.get("effort") else []
    for value, unit in ((record.get("cells_made"), "cell"), (record.get("seconds"), "second")):
        if isinstance(value, int | float) and value >= 1:
            value, unit = (value / 60, "minute") if unit == "second" and value >= 90 else (value, unit)
            told.append(f"{value:,.0f} {unit}{'s' * (round(value) != 1)}")
    return tuple(told)
