"""Table 1: what others observed of position bias, the paper's results on it, and the claims that judge these.

Rows name places of the text; the claims are those that the paper's inventory (`items.csv`) has at them.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

from posbias.reports.pages import Table
from posbias_papers.study import Study
from posbias_papers.wu2025.settings import EFFORT

CAPTION = "Observations on position bias, and the claims that judge the paper's results on each"
HEAD = ("observation", "observed by", "results", "claims")


@dataclass(frozen=True)
class Row:
    """A row: the observation, who made it, and the places of the results, as parts of a place in the inventory."""

    observation: str
    observed_by: str
    results: tuple[str, ...]

    @property
    def claims(self) -> list[str]:
        """The ids of the claims there, each once."""
        held = [claims for place, claims in _items() if {*place.split(", ")} & {*self.results}]
        return [*dict.fromkeys(claim for claims in held for claim in claims)]


@cache
def _items() -> list[tuple[str, list[str]]]:
    """The places of the paper's inventory, each with the claims that judge what stands there."""
    text = (files("posbias_papers.wu2025") / "items.csv").read_text(encoding="utf-8")
    return [(row["place"], row["claims"].split()) for row in csv.DictReader(text.splitlines())]


def ids_text(paper: str, claims: Iterable[str]) -> str:
    """The ids of a paper's claims, figures' by study, statements' as they are: `lemma-4.4; fig2/1-3, 5`."""
    by_study: dict[str, list[str]] = {}
    for claim in claims:
        study, _, number = claim.removeprefix(f"{paper}/").rpartition("/")
        by_study.setdefault(study, []).append(number)
    return "; ".join(
        f"{study}/{', '.join(_runs(ids))}" if study else ", ".join(ids) for study, ids in by_study.items()
    )


def _runs(ids: Iterable[str]) -> Iterator[str]:
    """Ids with three or more numbers in a row as one: 1, 2, 3, 5 are `1-3`, `5`."""
    by_offset = groupby(enumerate(ids), lambda at: int(at[1]) - at[0] if at[1].isdigit() else at[1])
    for _, group in by_offset:
        run = [one for _, one in group]
        yield from (f"{run[0]}-{run[-1]}",) if len(run) > 2 else run


ROWS = (
    Row(
        "positional information that the causal mask brings",
        "Barbero et al. 2024, Kazemnejad et al. 2023, Wang et al. 2024",
        ("Theorem 4.1", "Section 5.2"),
    ),
    Row("decay by relative encodings", "Su et al. 2023", ("Lemma 4.4", "Lemma 4.6", "Section 5.1")),
    Row(
        "causal mask and relative encodings against each other",
        "Wang et al. 2024",
        ("Theorem 4.5", "Theorem 4.7", "Section 5.1"),
    ),
    Row(
        "attention sinks",
        "Gu et al. 2025, Xiao et al. 2024",
        ("Theorem 4.1", "Theorem 4.2", "Theorem 4.3", "Appendix K.4"),
    ),
    Row("the middle that gets lost", "Guo & Vosoughi 2024, Liu et al. 2024", ("Section 5.2",)),
)
"""The five rows; ranges as printed run over lemmas or theorems alone."""


def _tables(results: Any) -> Iterator[Table]:
    rows = [
        [row.observation, row.observed_by, ", ".join(row.results), ids_text("wu2025", row.claims)]
        for row in ROWS
    ]
    yield Table(CAPTION, HEAD, rows)


def _data(results: Any) -> dict[str, Any]:
    return {"rows": [vars(row) | {"claims": row.claims} for row in ROWS]}


TABLE = Study(
    "wu2025/table1",
    "Observations on position bias, and the results that bear on them",
    "Which claims judge the paper's results on each observation?",
    (),
    (),
    EFFORT,
    "iterations",
    {"quick": 0.02, "full": 0.02},
    _tables,
    _data,
    lambda results: "`posbias paper wu2025 claims` has the verdicts",
    uses=(
        ("kazemnejad2023", "the causal mask without encoding"),
        ("su2024", "decay by rotation"),
        ("gu2025", "attention sinks"),
        ("xiao2024", "attention sinks"),
        ("liu2024", "the middle that gets lost"),
    ),
)
"""Table 1 as a study without cells."""
