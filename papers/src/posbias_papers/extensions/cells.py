"""What a study of ours computes: a frozen value that says how, kept in the store with the effort it was given.

A study of such cells is made by `own_study`, its claims by `claims_after`; `each` takes evidence from the cells.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from posbias.core.store import Header, JsonCodec
from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Evidence, Test
from posbias_papers.claims import Quantity, claims_of, quantity
from posbias_papers.study import Results, Study

Found = Mapping[str, Any]
"""What a cell found, in JSON's terms: numbers and lists of them, by name."""


@dataclasses.dataclass(frozen=True)
class OwnCell:
    """A cell of a study of ours: a frozen dataclass of plain fields with a `run`.

    `kind` is the word in its files, one for each class. What it finds is a function of its fields and the effort
    (in the study's unit) alone; what was made with more serves whoever wants less.
    """

    kind = ""
    schema = 1
    codec = JsonCodec()

    @property
    def specification(self) -> dict[str, Any]:
        """Its fields."""
        return dataclasses.asdict(self)

    @property
    def name(self) -> str:
        """Its kind and its fields, such as birth_cell-depth12."""
        return "-".join([self.kind, *(f"{key}{value}" for key, value in self.specification.items())])

    @property
    def where(self) -> str:
        """The same in words, for evidence."""
        return ", ".join(f"{key} {value}" for key, value in self.specification.items())

    def run(self, effort: int) -> Found:
        """Compute it."""
        raise NotImplementedError

    def to_content(self, result: Found) -> Found:
        """What was found."""
        return result

    def from_content(self, header: Header, content: Found) -> Found:
        """The same."""
        return content


def rounded(values: Iterable[float], digits: int = 4) -> list[float]:
    """The same to so many significant digits, which is what records keep."""
    return [float(f"{one:.{digits}g}") for one in values]


def claims_after(
    study: str, arxiv: str, scope: str, effort: str, claims: Mapping[int, tuple[str, Quantity, Test]]
) -> tuple[Claim, ...]:
    """The claims of a study of ours, by number: sentence, quantity, test. It was asked after a paper not read."""
    about = {"provenance": "ours", "scope": scope, "effort": effort}
    claim = claims_of(f"ours/{study}", f"beyond arXiv {arxiv}", **about)
    return tuple(claim(number, *each) for number, each in claims.items())


def own_study(
    name: str, title: str, question: str, cells: Sequence[OwnCell], arxiv: str, **more: Any
) -> Study:
    """A study of ours, asked after a paper whose text was not at hand; `more` are further fields of `Study`."""
    told = f"After arXiv {arxiv}, whose text was not at hand: nothing here is a verdict on it."
    return Study(
        f"ours/{name}",
        title,
        question,
        tuple(cells),
        note=lambda results: told,
        data=of_cells,
        **more,
    )


def of_cells(results: Results) -> dict[str, Any]:
    """What cells found, beside what they are: the numbers of a study's JSON."""
    return {"cells": [cell.specification | dict(found) for cell, found in results.items()]}


@quantity
def each(
    results: Results,
    cells: Sequence[OwnCell],
    of: Callable[[Found], float | Sequence[float]],
    among: Callable[[Any, Found], bool] = lambda cell, found: True,
) -> Iterator[Evidence]:
    """A number of each cell, or of some, as evidence: exact, or, of a list of draws, their mean with its error."""
    for cell in cells:
        if cell in results and among(cell, results[cell]):
            value = of(results[cell])
            drawn = isinstance(value, Sequence)
            yield Evidence(cell.where, Estimate.of_mean(np.array(value)) if drawn else Estimate(float(value)))
