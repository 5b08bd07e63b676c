"""Claims about what a paper prints, row by row: judged on the study's JSON, and where that is not made too."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from posbias.claims import Judged, judge
from posbias.papers.registry import PaperStudy


def row_claims(study: PaperStudy, data: Mapping[str, Any] | None, trouble: str) -> Iterator[Judged]:
    """The claims about the rows that the paper prints in this study's table; none for what is no table.

    `data` is the study's JSON, or None where there is none for the reason `trouble`.
    """
    for claim in study.row_claims:
        row = judge(claim, data or {})
        why = row.deciding.flaw or row.why
        if row.deciding.flaw and data is None:
            why = f"{why}; {trouble}"
        yield replace(row, why=why, study=study.key, more={"model": claim.scope})
