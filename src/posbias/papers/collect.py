"""Every claim of the three papers, judged: statements, figures and tables, and what was not made.

    from posbias.papers.collect import collect

    for claim in collect("results"):
        print(claim.verdict, claim.paper, claim.sentence, claim.why)

A numbered statement holds when no random or adversarial instance is a counterexample to it as printed; the number
is its slack (`theorems`). A claim of a figure or table is taken from its JSON. A row of a printed table is held
against the same row here, where the model was measured. What has not been made is undecided, as is what can not be
read; either says what to do. `why` is the reason computed and, after it, the explanation that somebody wrote for
that claim (`explanations`).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from posbias.claims import Claim, Judged, judge, undecided
from posbias.errors import InputFileError
from posbias.events import OnEvent
from posbias.execution import Engine
from posbias.papers.explaining import explanation_of
from posbias.papers.registry import find_studies
from posbias.papers.results import Basis
from posbias.papers.study import Study
from posbias.papers.theorems import INSTANCES, Statements, judge_statements, try_statements

log = logging.getLogger(__name__)
OWN_NUMBERS = "(the paper's own numbers)"
"""How claims begin that are about no model of ours."""


def collect(
    folder: str | Path,
    *,
    papers: Sequence[str] = (),
    instances: int = INSTANCES,
    engine: Engine | None = None,
    at: Mapping[str, Path] | None = None,
    on_event: OnEvent | None = None,
) -> list[Judged]:
    """All claims of some papers or studies (none: all), in the order of the registry.

    Statements are tried on at least `instances` instances unless OUT/statements has that (`try_statements`, which
    `engine` and `on_event` are for); figures and tables are read from `folder`, or a paper's from `at`.
    Raises `InvalidValueError` for an unknown paper or instances < 1, `OutputFileError` when the statements cannot
    be kept.
    """
    folder, studies = Path(folder), [study for study in find_studies(papers) if not study.parts]
    stated = [study.paper for study in studies if isinstance(study, Statements)]
    options: dict[str, Any] = {"instances": instances, "engine": engine, "on_event": on_event}
    tried = try_statements(folder, stated, **options) if stated else {}
    claims: list[Judged] = []
    for study in studies:
        if isinstance(study, Statements):
            claims += judge_statements([study.paper], tried)
        else:
            claims += _claims_of(study, folder, at)
    return claims


def _claims_of(study: Study, folder: Path, at: Mapping[str, Path] | None) -> Iterator[Judged]:
    """The claims of a figure or table, from its JSON or from what is on record of it."""
    data: Mapping[str, Any] | None = None
    trouble = ""
    try:
        data = study.told(folder, at)
    except InputFileError as error:
        if study.file(folder, at).exists():
            trouble = f"{error}; {study.made_by}"
            log.warning("%s; not used", error)
        else:
            some = study.recorded(study)
            trouble = f"not made here; {f'{some}; ' if some else ''}{study.made_by}"
    rows = list(_rows_of(study, data, trouble))
    if data is not None:
        for place, told in enumerate(data["claims"], start=1):
            # those of 0.1 are numbered by their place
            id = str(told.get("id") or f"{study.key}/{place}")
            yield _explained(Judged.read(told, id, study.key), study, data)
    elif not rows or any(row.verdict == "undecided" for row in rows):
        yield undecided(Claim(study.key, "", f"{study.title}: {study.question}"), trouble, study.key)
    yield from rows


def _rows_of(study: Study, data: Mapping[str, Any] | None, trouble: str) -> Iterator[Judged]:
    """The claims about rows that the paper prints; `data` is the study's JSON, None where `trouble` says why."""
    for claim in study.row_claims:
        row = judge(claim, data or {})
        why = row.deciding.flaw or row.why
        if row.deciding.flaw and data is None:
            why = f"{why}; {trouble}"
        yield replace(row, why=why, study=study.key, more={"model": claim.scope})


def _explained(claim: Judged, study: Study, data: Mapping[str, Any]) -> Judged:
    """A claim with what its effort, its model and whoever looked into it have to say."""
    effort, own = str(data.get("effort", "")), claim.sentence.startswith(OWN_NUMBERS)
    stand_in = "" if own else str(data.get("stand_in", ""))
    more = {"effort": effort, "explanation": "", **claim.more}
    why, basis = claim.why, Basis.of(data)
    if basis.cells:
        why = f"{why}; {basis.source}: {basis}"
    if stand_in:
        why, more["stand_in"] = f"{why}; {stand_in}", stand_in
    elif claim.verdict == "undecided" and effort == "quick":
        why = f"{why}; quick effort; `{study.command} --effort full` gives it more"
    # what was found out of networks at the quick effort says nothing of others
    known = not basis.cells or effort.startswith("quick")
    if (
        known
        and claim.verdict != "holds"
        and (written := explanation_of(claim.id, study.key, claim.sentence))
    ):
        why, more["explanation"] = f"{why}. {written}", written
    return replace(claim, why=why, more=more)
