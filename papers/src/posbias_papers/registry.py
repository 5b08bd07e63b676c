"""The three papers, and all their figures, tables and numbered statements as studies, by name.

    from posbias_papers.registry import STUDIES

    study = STUDIES["wu2025/fig2"]
    print(study.question, study.quick.minutes)

What a paper says and a study shows, asks, needs and costs stands in the paper's package. Nothing heavy is imported
here.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from posbias_papers import choose, herasimchyk2026, kim2026, wu2025
from posbias_papers.study import Paper, Study

PAPERS: dict[str, Paper] = {one.PAPER.key: one.PAPER for one in (wu2025, herasimchyk2026, kim2026)}
"""By citation key, in the order of all lists."""
STUDIES: Mapping[str, Study] = MappingProxyType(
    {study.key: study for paper in PAPERS.values() for study in (*paper.studies.values(), paper.statements)}
)
"""Every study, by "PAPER/NAME", paper by paper in the order of the text."""


def find_studies(names: str | Iterable[str] = ()) -> list[Study]:
    """The studies of these keys, or of whole papers, in the order of the registry; none given: all of the papers.

    Raises `InvalidValueError` naming the nearest.
    """
    expected = f"study: expected a paper ({', '.join(PAPERS)}) or one of its studies, such as wu2025/fig2"
    return choose(expected, STUDIES.values(), names, lambda study: (study.key, study.paper))
