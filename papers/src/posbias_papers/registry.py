"""All figures, tables and numbered statements of the three papers as studies, by name.

    from posbias_papers.registry import STUDIES

    study = STUDIES["wu2025/fig2"]
    print(study.question, study.quick.minutes)

What a study shows, asks, needs and costs stands in its paper's package (statements: in `theorems`). Nothing
heavy is imported here.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from posbias_papers import PAPERS, choose, herasimchyk2026, kim2026, wu2025
from posbias_papers.study import Study
from posbias_papers.theorems import STATED

PACKAGES: Mapping[str, Any] = dict(zip(PAPERS, (wu2025, herasimchyk2026, kim2026), strict=True))
"""By paper the package with its `STUDIES` and `tables`."""
STUDIES: Mapping[str, Study] = MappingProxyType(
    {study.key: study for paper, one in PACKAGES.items() for study in (*one.STUDIES.values(), STATED[paper])}
)
"""Every study, by "PAPER/NAME", paper by paper in the order of the text."""


def find_studies(names: str | Iterable[str] = ()) -> list[Study]:
    """The studies of these keys, or of whole papers, in the order of the registry; none given: all of the papers.

    Raises `InvalidValueError` naming the nearest.
    """
    expected = f"study: expected a paper ({', '.join(PAPERS)}) or one of its studies, such as wu2025/fig2"
    return choose(expected, STUDIES.values(), names, lambda study: (study.key, study.paper))
