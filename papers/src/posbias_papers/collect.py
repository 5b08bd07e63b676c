"""Every claim of the three papers, judged: statements, figures and tables, and what was not computed.

    from posbias_papers.collect import collect

    for claim in collect("results"):
        print(claim.verdict, claim.paper, claim.sentence, claim.why)

A numbered statement holds when no random or adversarial instance is a counterexample to it as printed; the
number is its slack (`theorems`). A claim of a figure or table is taken from its JSON (`result`), computed here
or from recorded results. What has not been computed is undecided, as is what cannot be read; either says what
to do. `why` is the reason computed and, after it, the explanation that somebody wrote for that claim.
"""

import datetime
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from posbias.core.errors import InputFileError
from posbias.core.formats import VERSION, parse_json, undamaged
from posbias.core.progress import OnEvent
from posbias.core.running import Engine
from posbias.profiles.claims import (
    ALWAYS,
    ELSEWHERE,
    VERDICTS,
    Claim,
    Judged,
    Verdict,
    count,
    undecided,
)
from posbias_papers.registry import find_studies
from posbias_papers.reproduction import content_of, page_of
from posbias_papers.study import STATEMENTS, Basis, Study
from posbias_papers.theorems import INSTANCES, judge_statements, tried_already, try_statements

log = logging.getLogger("posbias.papers")
NOTHING = "nothing made"
"""The effort of claims that nothing was computed for."""
INSTANCED = "instances"
EVIDENCE = (
    INSTANCED,
    "simulated at the paper's effort",
    "the paper's models",
    "trained at the paper's effort",
    "trained below it",
    "other models or fewer samples",
    "nothing",
)
"""Kinds of evidence. "instances" are random, adversarial or all of them; of the paper's models, configurations and
the authors' files count too."""
SAMPLES, ITERATIONS = 10_000_000, 100_000
"""Efforts of Kim et al. 2026 and of Wu et al. 2025."""


# --- results of studies ------------------------------------------------------------------------------------


def result(study: Study, folder: str | Path) -> Mapping[str, Any]:
    """A study's JSON: what was computed in a folder of results, or, of more effort, what is on record.

    A file that cannot be used is named to the log where there is a record. Raises `InputFileError` when neither is
    there, or the file is damaged or of another version.
    """
    path, record = study.file(folder), study.recorded(study)
    whole = record if record is not None and record.whole else None
    try:
        made = read_result(path, study.name)
    except InputFileError as error:
        if whole is None:
            raise
        if path.exists():
            log.warning("%s; not used", error)
        made = None
    if whole is None or (made is not None and basis_of(made) >= whole.basis):
        return made or {}
    return content_of(study, page_of(study, whole.table()), whole.effort)


def read_result(path: Path, name: str) -> dict[str, Any]:
    """The JSON of the study `name`.

    Raises `InputFileError` when it is missing, damaged, of another study or another version of posbias.
    """
    data = undamaged(parse_json(path), path)
    for key, wanted in (("name", name), ("version", VERSION)):
        if data.get(key) != wanted:
            raise InputFileError(f"{path}: {key}: expected {wanted}, got {data.get(key)!r}")
    claims = data.get("claims")
    if not isinstance(claims, list) or not all({"id", *ALWAYS} <= {*one} for one in claims):
        raise InputFileError(f"{path}: claims: expected a list of judged claims, got {str(claims)[:60]!r}")
    return data


def basis_of(data: Mapping[str, Any]) -> Basis:
    """What a study's JSON says that it rests on; nothing where it says nothing."""
    return Basis(**data.get("rests_on", {}))


@dataclass(frozen=True)
class State:
    """Whether a study is made: its effort and time (ISO 8601) if so, its claims by verdict, or what is wrong.

    `recorded` says what is on record where that is of more effort than what was made.
    """

    made: bool = False
    effort: str = ""
    when: str = ""
    claims: Mapping[str, int] = field(default_factory=dict)
    damaged: str = ""
    recorded: str = ""

    def __str__(self) -> str:
        if self.damaged:
            return "cannot be used"
        counts = [f"{count} {kind}" for kind, count in self.claims.items() if count]
        words = [f"made {self.when[:16]}", self.effort, *counts] if self.made else []
        words += [] if self.made or self.recorded else ["not made"]
        return ", ".join(word for word in (*words, self.recorded) if word)


def state(study: Study, folder: str | Path) -> State:
    """Whether a study is made in a folder of results, with which effort, when, and its claims by verdict.

    Never raises for a file that cannot be used: that is what `State.damaged` is for.
    """
    file, record = study.file(folder), study.recorded(study)
    try:
        if study.name == STATEMENTS:
            return _state_of_statements(study, Path(folder))
        made = read_result(file, study.name) if file.exists() else None
    except InputFileError as error:
        return State(damaged=str(error))
    whole = record is not None and record.whole
    more = record is not None and (made is None or (whole and record.basis > basis_of(made)))
    recorded = str(record) if more else ""
    if made is None:
        known = record if record is not None and whole else None
        return State(
            effort=known.effort if known else "", when=known.when if known else "", recorded=recorded
        )
    return _made(str(made["effort"]), file, [one["verdict"] for one in made["claims"]], recorded)


def _state_of_statements(study: Study, folder: Path) -> State:
    tried = tried_already(folder, study.paper)
    if tried is None:
        return State()
    amount = min(stored.header.amount or 0 for stored in tried)
    newest = max((stored.path for stored in tried), key=lambda path: path.stat().st_mtime)
    return _made(f"{amount:,} {study.unit}", newest, [stored.result.verdict for stored in tried])


def _made(effort: str, path: Path, verdicts: Sequence[str], recorded: str = "") -> State:
    """The state of what `path` was written last for."""
    when = datetime.datetime.fromtimestamp(path.stat().st_mtime).isoformat(timespec="seconds")
    counts = {kind: verdicts.count(kind) for kind in VERDICTS}
    return State(True, effort, when, counts, recorded=recorded)


# --- claims ------------------------------------------------------------------------------------------------


def collect(
    folder: str | Path,
    *,
    papers: Sequence[str] = (),
    instances: int = INSTANCES["quick"],
    engine: Engine | None = None,
    on_event: OnEvent | None = None,
) -> list[Judged]:
    """All claims of some papers or studies (none: all), in the order of the registry.

    Statements are tried on at least `instances` instances unless OUT/statements has that (`try_statements`, which
    `engine` and `on_event` are for); figures and tables are read from `folder`. Raises `InvalidValueError` for an
    unknown paper or instances < 1, `OutputFileError` when the statements cannot be kept.
    """
    folder, studies = Path(folder), find_studies(papers)
    stated = [study.paper for study in studies if study.name == STATEMENTS]
    options: dict[str, Any] = {"instances": instances, "engine": engine, "on_event": on_event}
    tried = try_statements(folder, stated, **options) if stated else {}
    claims: list[Judged] = []
    for study in studies:
        own = study.name != STATEMENTS
        found = _claims_of(study, folder) if own else judge_statements([study.paper], tried)
        claims += [one if own else _with(one, tested_on=INSTANCED) for one in found]
    return claims


def by_evidence(claims: Iterable[Judged]) -> dict[str, dict[Verdict, int]]:
    """The papers' own claims by kind of evidence and verdict, what is said twice counted once."""
    own = [one for one in claims if one.claim.provenance == "paper" and not one.claim.alias_of]
    kinds = {kind: [one for one in own if one.more["tested_on"] == kind] for kind in EVIDENCE}
    return {kind: count(some) for kind, some in kinds.items() if some}


def _tested_on(claim: Judged, basis: Basis) -> str:
    """The kind of evidence that a claim of a figure or table was judged on, one of `EVIDENCE`."""
    simulated, trained, papers, others, nothing = EVIDENCE[1], EVIDENCE[3:5], EVIDENCE[2], *EVIDENCE[5:]
    if basis.samples:
        return simulated if basis.samples >= SAMPLES else others
    if basis.iterations:
        return trained[basis.iterations < ITERATIONS]
    if claim.study == "wu2025/fig1":
        return INSTANCED
    if claim.seen is None and math.isnan(claim.estimate.value):
        return nothing
    return papers if claim.paper == "herasimchyk2026" and claim.claim.provenance == "paper" else others


def _with(claim: Judged, **more: Any) -> Judged:
    return replace(claim, more={**claim.more, **more})


def _claims_of(study: Study, folder: Path) -> Iterator[Judged]:
    """The claims of a figure or table, from its JSON or from what is on record of it."""
    try:
        data = result(study, folder)
    except InputFileError as error:
        record = study.recorded(study)
        there = study.file(folder).exists()
        trouble = str(error) if there else f"not made here{f'; {record}' if record else ''}"
        if there:
            log.warning("%s; not used", error)
        yield from (_not_computed(claim, f"{trouble}; {study.made_by}", study) for claim in study.claims)
        return
    known, ids = {claim.id: claim for claim in study.claims}, {one["id"] for one in data["claims"]}
    for row in data["claims"]:
        claim = known.get(row["id"]) or known.get(row["id"].removesuffix(ELSEWHERE))
        # of a claim that is extended to other models, what is explained is what these show, unless it fails itself
        extended = f"{row['id']}{ELSEWHERE}" in ids and row["verdict"] != "fails"
        written = claim.explanation if claim and not extended else ""
        one = _explained(Judged.read(row, row["id"], study.key), study, data, claim, written)
        yield _with(one, tested_on=_tested_on(one, basis_of(data)))


def _not_computed(claim: Claim, trouble: str, study: Study) -> Judged:
    """A claim of a study without results."""
    by = f"; {study.decided_by}" if study.decided_by else ""
    return undecided(claim, f"{trouble}{by}", study.key, {"effort": NOTHING, "tested_on": EVIDENCE[-1]})


def _explained(
    judged: Judged, study: Study, data: Mapping[str, Any], claim: Claim | None, written: str
) -> Judged:
    """A claim with its effort, what that leaves open, and the explanation that was written of it."""
    at_hand = getattr(claim.quantity, "basis", "") if claim else ""
    effort, basis, why = str(data.get("effort", "")), basis_of(data), judged.why
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
