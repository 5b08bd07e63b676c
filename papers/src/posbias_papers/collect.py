"""Every claim of the three papers, judged: statements, figures and tables, and what was not made.

    from posbias_papers.collect import collect

    for claim in collect("results"):
        print(claim.verdict, claim.paper, claim.sentence, claim.why)

A numbered statement holds when no random or adversarial instance is a counterexample to it as printed; the
number is its slack (`theorems`). A claim of a figure or table is taken from its JSON, made here or from recorded
results. What has not been made is undecided, as is what cannot be read; either says what to do. `why` is the
reason computed and, after it, the explanation that somebody wrote for that claim.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from posbias.core.errors import InputFileError
from posbias.core.progress import OnEvent
from posbias.core.running import Engine
from posbias.profiles.claims import ELSEWHERE, Claim, Judged, judge, undecided
from posbias_papers.contrasts import AtHand
from posbias_papers.registry import find_studies
from posbias_papers.study import Basis, Study
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
    data: Mapping[str, Any] = {}
    trouble = ""
    try:
        data = study.result(folder, at)
    except InputFileError as error:
        record = study.recorded(study)
        made = study.file(folder, at).exists()
        trouble = str(error) if made else f"not made here{f'; {record}' if record else ''}"
        trouble += f"; {study.made_by}"
        if made:
            log.warning("%s; not used", error)
        yield from (_unmade(claim, trouble, study) for claim in study.claims)
    known, ids = {claim.id: claim for claim in study.claims}, {one["id"] for one in data.get("claims", ())}
    for row in data.get("claims", ()):
        claim = known.get(row["id"]) or known.get(row["id"].removesuffix(ELSEWHERE))
        # of a claim that is extended to other models, what is explained is what these show
        written = claim.explanation if claim and f"{row['id']}{ELSEWHERE}" not in ids else ""
        yield _explained(Judged.read(row, row["id"], study.key), study, data, claim, written)


def _unmade(claim: Claim, trouble: str, study: Study) -> Judged:
    """A claim of a study that is not made: decided by what is at hand, or open."""
    if isinstance(claim.quantity, AtHand):
        return replace(judge(claim, None), study=study.key, more={"effort": claim.quantity.basis})
    by = f"; {study.decided_by}" if study.decided_by else ""
    return undecided(claim, f"{trouble}{by}", study.key, {"effort": NOTHING})


def _explained(
    judged: Judged, study: Study, data: Mapping[str, Any], claim: Claim | None, written: str
) -> Judged:
    """A claim with what its effort, its model and whoever looked into it have to say."""
    at_hand = claim.quantity.basis if claim and isinstance(claim.quantity, AtHand) else ""
    effort, basis, why = str(data.get("effort", "")), Basis.of(data), judged.why
    spent = f"{effort}: {basis}" if str(basis) else at_hand or effort
    more = {"explanation": "", **judged.more, "effort": spent or NOTHING}
    if str(basis):
        why = f"{why}; {basis.source}: {basis}"
    others = judged.claim.provenance == "paper" and data.get("stand_in")
    if judged.verdict == "undecided" and effort == "quick" and not (str(basis) or at_hand or others):
        why = f"{why}; quick effort; `{study.command} --effort full` gives it more"
    if judged.verdict != "holds" and written:
        why, more["explanation"] = f"{why}. {written}", written
    return replace(judged, why=why, more=more)
