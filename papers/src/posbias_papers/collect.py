"""Every claim of the three papers, judged: statements, figures and tables, and what was not made.

    from posbias_papers.collect import collect

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

from posbias.core.errors import InputFileError
from posbias.core.events import OnEvent
from posbias.core.running import Engine
from posbias.profiles.claims import Claim, Judged, judge, undecided
from posbias_papers.claims import AtHand
from posbias_papers.explaining import explanation_of
from posbias_papers.registry import find_studies
from posbias_papers.results import Basis
from posbias_papers.study import Study
from posbias_papers.theorems import INSTANCES, Statements, judge_statements, try_statements

log = logging.getLogger("posbias.papers")
NOTHING = "nothing made"
"""The effort of claims that nothing was made for."""


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
    if data is None:
        yield from (_unmade(claim, trouble, study) for claim in study.claims)
    else:
        known = {claim.id: claim for claim in study.claims}
        for place, told in enumerate(data["claims"], start=1):
            # those of 0.1 are numbered by their place
            id = str(told.get("id") or f"{study.key}/{place}")
            quantity = getattr(known.get(id), "quantity", None)
            yield _explained(_read(told, id, study, known.get(id)), study, data, quantity)
    yield from _rows_of(study, data, trouble)


def _unmade(claim: Claim, trouble: str, study: Study) -> Judged:
    """A claim of a study that is not made: decided by what is at hand, or open."""
    if isinstance(claim.quantity, AtHand):
        return replace(judge(claim, None), study=study.key, more={"effort": claim.quantity.basis})
    by = f"; {study.decided_by}" if study.decided_by else ""
    return undecided(claim, f"{trouble}{by}", study.key, {"effort": NOTHING})


def _read(told: Mapping[str, Any], id: str, study: Study, known: Claim | None) -> Judged:
    """A claim from a study's JSON; of one that an older version judged, what is said of it today."""
    claim = Judged.read(told, id, study.key)
    if "provenance" in told or known is None:
        return claim
    if isinstance(known.quantity, AtHand):
        return replace(judge(known, None), study=study.key)
    today = replace(claim, claim=replace(known, sentence=claim.sentence, quantity=None))
    return today.withheld(f"judged by an older version; `{study.command}` judges it again")


def _rows_of(study: Study, data: Mapping[str, Any] | None, trouble: str) -> Iterator[Judged]:
    """The claims about rows that the paper prints; `data` is the study's JSON, None where `trouble` says why."""
    for claim in study.row_claims:
        row = judge(claim, data or {})
        why = row.deciding.flaw or row.why
        if row.deciding.flaw and data is None:
            why = f"{why}; {trouble}"
        at_hand = claim.quantity.basis if isinstance(claim.quantity, AtHand) else ""
        effort = at_hand or str((data or {}).get("effort", NOTHING))
        more = {"model": claim.id.rpartition("/")[2], "effort": effort}
        yield replace(row, why=why, study=study.key, more=more)


def _explained(claim: Judged, study: Study, data: Mapping[str, Any], quantity: object) -> Judged:
    """A claim with what its effort, its model and whoever looked into it have to say."""
    at_hand = quantity.basis if isinstance(quantity, AtHand) else ""
    effort, basis, why = str(data.get("effort", "")), Basis.of(data), claim.why
    spent = f"{effort}: {basis}" if basis.cells else at_hand or effort
    more = {"explanation": "", **claim.more, "effort": spent or NOTHING}
    if basis.cells:
        why = f"{why}; {basis.source}: {basis}"
    others = claim.claim.provenance == "paper" and data.get("stand_in")
    if claim.verdict == "undecided" and effort == "quick" and not (basis.cells or at_hand or others):
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
