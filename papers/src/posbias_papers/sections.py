"""What the page of the papers is made of: a section for each study, with what its files hold, paper by paper."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posbias.core.errors import DamagedError, InvalidValueError
from posbias.core.formats import undamaged
from posbias.core.sources import Source, cite
from posbias.profiles.claims import ELSEWHERE, STRENGTHS, VERDICTS, Provenance, Verdict, count, tally
from posbias_papers.pages import Page, Picture, picture

KINDS = {"fig": "Figures", "table": "Tables", "section": "Section"}
"""What studies are called together, by the letters their names begin with."""
OURS, OTHERS = "Ours, in addition to the paper's", "Of other models than the paper's"
"""Headings of claims that are not the paper's."""
FILES = ("svg", "png", "md", "json")


@dataclass(frozen=True)
class Section:
    """One study as the page shows it, or the claims of a paper that belong to none (`study` is then None).

    `there` says whether it has been made, `cost` with what effort and time, `wrong` what cannot be read of it.
    `numbers` is the file with all numbers of what has a picture.
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
    numbers: str = ""

    @property
    def anchor(self) -> str:
        """Where links to it lead."""
        return anchor(self.key)

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many of its claims hold, fail and are undecided."""
        return count(self.claims)

    @property
    def kinds(self) -> list[tuple[str, list[Any], dict[str, str], dict[str, str]]]:
        """Its claims under headings: the paper's own, ours, and ours of other models than the paper's.

        With each: what most of them share (`shared_by`, else what most before them do), and what is new of that.
        """
        kinds: dict[str, list[Any]] = {"": [], OURS: [], OTHERS: []}
        for claim in self.claims:
            ours = OTHERS if claim.id.endswith(ELSEWHERE) else OURS
            kinds[ours if claim.claim.provenance == "ours" else ""].append(claim)
        parts, before = [], {}
        for heading, claims in kinds.items():
            shared = before | shared_by(claims)
            new = {name: text for name, text in shared.items() if before.get(name) != text}
            parts += [(heading, claims, shared, new)] if claims else []
            before = shared
        return parts

    @property
    def said_of_all(self) -> dict[Verdict, list[str]]:
        """What the reasons of all claims of a verdict say in the same words, where it has two at least."""
        said: dict[Verdict, list[str]] = {}
        for verdict in VERDICTS:
            reasons = [one.why.split("; ") for one in self.claims if one.verdict == verdict and one.why]
            first, *others = reasons or [[]]
            common = [part for part in first if others and all(part in reason for reason in others)]
            said |= {verdict: common} if common else {}
        return said

    def why(self, claim: Any) -> str:
        """The reason of a claim's verdict without what is said of all."""
        common = self.said_of_all.get(claim.verdict, [])
        return "; ".join(part for part in claim.why.split("; ") if part not in common)

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


def about(claim: Any) -> dict[str, str]:
    """Where a claim stands, how strong it is, of what it is, and what it was judged on."""
    of = claim.claim
    judged_on = str(claim.more.get("effort") or "what is printed")
    if of.provenance == "paper" and of.effort and of.effort != judged_on:
        judged_on += f" (in the paper {of.effort})"
    return {"place": of.place, "strength": STRENGTHS[of.strength], "of": of.scope, "judged on": judged_on}


def shared_by(claims: Sequence[Any]) -> dict[str, str]:
    """What most of some claims, and two at least, tell of themselves in the same words (`about`)."""
    described = [about(claim) for claim in claims if not claim.claim.alias_of]
    shared: dict[str, str] = {}
    for name in ("place", "strength", "of", "judged on"):
        for text, times in Counter(one[name] for one in described).most_common(1):
            shared |= {name: text} if text and times > max(1, len(described) / 2) else {}
    return shared


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
) -> list[Part]:
    """The papers that claims or studies are of, each with its sections: statements, then in the registry's order.

    Claims of no known study come last. `costs` are the records of studies in papers.json. Raises
    `InvalidValueError` for a paper that is in no bibliography.
    """
    papers = [*dict.fromkeys(one.paper for one in (*studies.values(), *claims))]
    sections: list[Section] = []
    for key, study in sorted(studies.items(), key=lambda item: item[1].name != "statements"):
        mine = [claim for claim in claims if claim.study == key]
        sections.append(_section(folder, key, study, mine, costs.get(key, {})))
    for paper in papers:
        lost = [claim for claim in claims if claim.paper == paper and claim.study not in studies]
        sections += [Section(f"{paper}/others", "Other claims", lost)] if lost else []
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
    place = folder / study.paper
    about, wrong = read_json(place / f"{study.name}.json")
    page = Page()
    try:
        page = Page.from_dict(about)
    except InvalidValueError:
        wrong = f"{study.name}.json holds no tables"
    drawn, numbers = picture(place, study.name), place / f"{study.name}.md"
    files = any((place / f"{study.name}.{kind}").is_file() for kind in FILES)
    return Section(
        key,
        label(study.name),
        claims,
        study,
        files or (study.name == "statements" and bool(claims)),
        drawn,
        page,
        _cost(dict(cost) | ({"effort": about["effort"]} if about.get("effort") else {})),
        wrong,
        str(numbers) if drawn.file and numbers.is_file() else "",
    )


def _cost(record: Mapping[str, Any]) -> tuple[str, ...]:
    """'quick', '18 cells', '14 minutes', as far as they are on record."""
    cost = [str(record["effort"])] if record.get("effort") else []
    for value, unit in ((record.get("cells_made"), "cell"), (record.get("seconds"), "second")):
        if isinstance(value, int | float) and value >= 1:
            value, unit = (value / 60, "minute") if unit == "second" and value >= 90 else (value, unit)
            cost.append(f"{value:,.0f} {unit}{'s' * (round(value) != 1)}")
    return tuple(cost)
