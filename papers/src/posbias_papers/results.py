"""Results read again: the state of every study, every claim of the three papers judged, and one page of them all.

    from posbias_papers.results import collect

    for claim in collect("results"):
        print(claim.verdict, claim.paper, claim.sentence, claim.why)

A numbered statement holds when no random or adversarial instance is a counterexample to it as printed; the
number is its slack (`theorems`). A claim of a figure or table is taken from its JSON (`State.data`), computed here
or from recorded results. What has not been computed is undecided, as is what cannot be read; either says what
to do. `why` is the reason computed and, after it, the explanation that somebody wrote for that claim.
"""

import datetime
import functools
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from posbias.core.errors import InputFileError
from posbias.core.files import write_text
from posbias.core.formats import VERSION, parse_json, undamaged
from posbias.core.packages import need
from posbias.core.progress import OnEvent
from posbias.core.running import Engine
from posbias.core.sources import cite
from posbias.profiles.claims import VERDICTS, ClaimVerdict
from posbias_papers import read_rows
from posbias_papers.claims import ALWAYS, ELSEWHERE, Judged, count, undecided
from posbias_papers.registry import PAPERS, STUDIES, find_studies
from posbias_papers.reproduction import content_of, page_of
from posbias_papers.study import COMPUTED, EVIDENCE, OTHERS, STATEMENTS, UNTESTED, Basis, Recorded, Study
from posbias_papers.theorems import INSTANCES, judge_statements, tried_already, try_statements

log = logging.getLogger("posbias.papers")
NOTHING = "nothing made"
"""The effort of claims that nothing was computed for."""

# --- results of studies ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class State:
    """Whether a study is made: its effort and time (ISO 8601) if so, its claims by verdict, or what is wrong.

    `written` is the JSON of what was made, `better` what is on record of all of it where that is of more effort;
    `recorded` says in words what is on record then, and of a study that is not made.
    """

    study: Study
    written: Mapping[str, Any] | None
    better: Recorded | None
    effort: str
    when: str
    claims: Mapping[str, int]
    damaged: str
    recorded: str

    @property
    def made(self) -> bool:
        """Whether there is a result in the folder that can be used."""
        return self.written is not None

    @property
    def data(self) -> Mapping[str, Any] | None:
        """The JSON of what was made or, of more effort, of what is on record; None where there is neither."""
        return self.written if self.better is None else on_record(self.study, self.better)

    def __str__(self) -> str:
        if self.damaged:
            return "cannot be used"
        counts = [f"{count} {kind}" for kind, count in self.claims.items() if count]
        words = [f"made {self.when[:16]}", self.effort, *counts] if self.made else []
        words += [] if self.made or self.recorded else ["not made"]
        return ", ".join(word for word in (*words, self.recorded) if word)


def on_record(study: Study, record: Recorded) -> Mapping[str, Any]:
    """What the study's JSON would hold of what is on record, made once."""
    known = study, str(record), record.when
    if known not in _contents:
        _contents[known] = content_of(study, page_of(study, record.table()), record.effort)
    return _contents[known]


_contents: dict[tuple[Study, str, str], Mapping[str, Any]] = {}


def state(study: Study, folder: str | Path) -> State:
    """What is known of a study in a folder of results and on record; raises for no file that cannot be used."""
    file, record, written, damaged = study.file(folder), study.recorded(study), None, ""
    try:
        if study.name != STATEMENTS:
            written = read_result(file, study.name) if file.exists() else None
        elif tried := tried_already(Path(folder), study.paper):
            amount = min(stored.header.amount or 0 for stored in tried)
            found = [{"verdict": stored.result.verdict} for stored in tried]
            written = {"effort": f"{amount:,} {study.unit}", "claims": found}
            file = max((stored.path for stored in tried), key=lambda path: path.stat().st_mtime)
    except InputFileError as error:
        damaged = str(error)
    more = record and record.whole and (written is None or record.basis > basis_of(written))
    better = record if more else None
    effort, when, claims = (better.effort, better.when, {}) if better else ("", "", {})
    if written is not None:
        effort, verdicts = str(written.get("effort", "")), [one["verdict"] for one in written["claims"]]
        when = datetime.datetime.fromtimestamp(file.stat().st_mtime).isoformat(timespec="seconds")
        claims = {kind: verdicts.count(kind) for kind in VERDICTS}
    recorded = str((record if written is None else better) or "")
    return State(study, written, better, effort, when, claims, damaged, recorded)


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


# --- claims ------------------------------------------------------------------------------------------------


def collect(
    folder: str | Path,
    *,
    papers: Sequence[str] = (),
    instances: int | None = None,
    engine: Engine | None = None,
    on_event: OnEvent | None = None,
) -> list[Judged]:
    """All claims of some papers or studies (none: all), in the order of the registry.

    Statements are those on record or, with `instances`, tried on as many at least unless OUT/statements has that
    (`try_statements`, for which `engine` and `on_event` are); figures and tables are read from `folder`. Raises
    `InvalidValueError` for an unknown paper or instances < 1, `OutputFileError` when statements cannot be kept.
    """
    folder, studies = Path(folder), find_studies(papers)
    stated = [study.paper for study in studies if study.name == STATEMENTS]
    options: dict[str, Any] = {"engine": engine, "on_event": on_event, "recorded": instances is None}
    options["instances"] = INSTANCES["quick"] if instances is None else instances
    tried = try_statements(folder, stated, **options) if stated else {}
    claims: list[Judged] = []
    for study in studies:
        if study.name == STATEMENTS:
            claims += judge_statements([study.paper], tried)
        else:
            claims += _claims_of(state(study, folder))
    return claims


def by_evidence(claims: Iterable[Judged]) -> dict[str, dict[ClaimVerdict, int]]:
    """The papers' own claims by kind of evidence and verdict, what is said twice counted once."""
    own = [one for one in claims if one.claim.provenance == "paper" and not one.claim.alias_of]
    kinds = {kind: [one for one in own if one.tested_on == kind] for kind in EVIDENCE}
    return {kind: count(some) for kind, some in kinds.items() if some}


def by_paper(claims: Iterable[Judged]) -> dict[str, list[Judged]]:
    """Claims by the key of their paper."""
    papers: dict[str, list[Judged]] = {}
    for claim in claims:
        papers.setdefault(claim.paper, []).append(claim)
    return papers


def sentences(claims: Iterable[Judged]) -> list[tuple[str, Judged]]:
    """What to remember of some papers (`sentences.csv`), each sentence with the claim that it rests on."""
    known = {claim.id: claim for claim in claims}
    rows = read_rows(Path(__file__).with_name("sentences.csv"))
    return [(row["sentence"], known[row["claim"]]) for row in rows if row["claim"] in known]


def rests_on(claim: Judged) -> str:
    """'simulated at the paper's effort: 10,000,000 samples', what a claim was judged on, with how much of it."""
    effort, kind = claim.effort.rpartition(": ")[2], claim.tested_on
    if kind == UNTESTED or effort in ("", NOTHING):
        return kind
    return f"tried on {effort}" if claim.statement else effort if kind in effort else f"{kind}: {effort}"


def by_section(claims: Iterable[Judged]) -> dict[str, list[Judged]]:
    """Claims by the section, statement, figure or table that their place begins with."""
    sections: dict[str, list[Judged]] = {}
    for claim in claims:
        sections.setdefault(re.split(r"[,;]| \(", claim.claim.place)[0], []).append(claim)
    return sections


def _claims_of(known: State) -> Iterator[Judged]:
    """The claims of a figure or table; those that what was made says nothing of, as what is on record decides.

    Of a figure that is neither made nor whole on record, those whose cells are there are judged.
    """
    study, data = known.study, known.data
    record = None if known.better else study.recorded(study)
    if known.damaged:
        log.warning("%s; not used", known.damaged)
    if data is None:
        trouble = known.damaged or f"not made here{f'; {known.recorded}' if known.recorded else ''}"
        why = "; ".join(part for part in (trouble, study.made_by, study.decided_by) if part)
        partly = {one.claim.id: one for one in _read(study, on_record(study, record))} if record else {}
        for claim in study.claims:
            open_ = replace(undecided(claim, why, study.key), effort=NOTHING, tested_on=UNTESTED)
            yield partly.get(claim.id, open_)
        return
    claims, earlier = [*_read(study, data)], {}
    if record and record.whole and any(one.tested_on == UNTESTED for one in claims):
        earlier = {one.claim.id: one for one in _read(study, on_record(study, record))}
    for one in claims:
        yield earlier.get(one.claim.id, one) if one.tested_on == UNTESTED else one


def _read(study: Study, data: Mapping[str, Any]) -> Iterator[Judged]:
    """The claims in a study's JSON, each with what was spent, what that leaves open, and its explanation."""
    claims = {claim.id: claim for claim in study.claims}
    effort, basis, ids = str(data.get("effort", "")), basis_of(data), {row["id"] for row in data["claims"]}
    for row in data["claims"]:
        claim = claims.get(row["id"]) or claims.get(row["id"].removesuffix(ELSEWHERE))
        one = Judged.read(row, row["id"], study.key)
        if basis.samples and not one.estimate.se:  # whatever was drawn for others
            one = replace(one, effort=COMPUTED, tested_on=COMPUTED)
        own, why = one.effort, one.why
        spent = own or (f"{effort}: {basis}" if str(basis) else effort) or NOTHING
        if str(basis) and not own:
            why = f"{why}; {basis.source}: {basis}"
        others = one.claim.provenance == "paper" and data.get("stand_in")
        if one.verdict == "undecided" and effort == "quick" and not (str(basis) or own or others):
            why = f"{why}; quick effort; `{study.command} --effort full` gives it more"
        # of a claim that is extended to other models, what is explained is what these show, unless it has evidence
        extended = f"{row['id']}{ELSEWHERE}" in ids and math.isnan(one.estimate.value)
        explained = claim.explanation if claim and not extended and one.verdict != "holds" else ""
        why = f"{why}. {explained}" if explained else why
        yield replace(
            one,
            why=why,
            explanation=explained or one.explanation,
            effort=spent,
            tested_on=one.tested_on or _tested_on(one, study, basis),
        )


def _tested_on(claim: Judged, study: Study, basis: Basis) -> str:
    """The kind of evidence that a claim of a figure or table was judged on, one of `EVIDENCE`."""
    paper = PAPERS[study.paper]
    if study.tested_on:
        return study.tested_on
    if basis.samples or basis.iterations:
        return paper.kinds[basis < paper.effort]
    if claim.seen is None and math.isnan(claim.estimate.value):
        return UNTESTED
    own = claim.claim.provenance == "paper" or claim.claim.scope.startswith("the paper's models")
    return paper.measured if own else OTHERS


# --- the page of three papers ------------------------------------------------------------------------------

RAISED = re.compile(r"\^(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\)|([−+-]?√?[A-Za-zα-ω0-9½¼]+))")
LOWERED = re.compile(r"(?<![A-Za-z_])([A-Za-zα-ωΑ-Ω][\u0300-\u036f′]*|[)\]‖])_(\([^()]*\)|[A-Za-z0-9]+)")


def write_page(
    folder: str | Path,
    out: str | Path,
    *,
    claims: Sequence[Judged],
    readings: Sequence[Any],
    errata: Sequence[Any],
) -> Path:
    """Write the page of three papers to `out`, whole or not at all, and return its path.

    `folder` holds the results, FOLDER/PAPER/NAME.svg and .json; `claims` are those of `collect`, `readings`
    comparisons of published with corrected readings, `errata` with cells in Markdown. The page has no script and
    needs no network; pictures are the figures' files, which stay where they are. Equal inputs give equal bytes.
    Raises `MissingPackageError` without jinja2 or markdown-it-py, `OutputFileError` if it cannot be written.
    """
    need("jinja2", "markdown_it", work="the page", extra="report")
    from markupsafe import Markup

    from posbias.reports.page import resource, template
    from posbias_papers.citations import bibtex

    shown = []
    for study in (study for study in STUDIES.values() if study.name != STATEMENTS):
        picture = study.file(folder).with_suffix(".svg")
        shown.append((study, picture if picture.is_file() else None, state(study, folder).data or {}))
    parts = [
        {
            "source": cite(paper),
            "says": PAPERS[paper].says,
            "sentences": sentences(own := [claim for claim in claims if claim.paper == paper]),
            "claims": by_section(own),
            "evidence": by_evidence(own),
            "figures": [one for one in shown if one[0].paper == paper],
            "readings": [one for one in readings if one.paper == paper],
            "errata": [one for one in errata if one.paper == paper],
        }
        for paper in PAPERS
    ]
    filters = {
        "bibtex": bibtex,
        "inline": _inline,
        "rests_on": rests_on,
        "number": lambda estimate: str(estimate).replace("-", "−"),
        "link": functools.partial(_link, Path(out).parent),
    }
    style = Markup(resource("report.css"))
    text = template("papers.html", "posbias_papers", **filters).render(style=style, parts=parts)
    return write_text(out, text)


def _link(folder: Path, file: Path) -> str:
    """A file as a page in `folder` names it."""
    return quote(Path(os.path.relpath(file, folder)).as_posix())


@functools.cache
def _inline(text: str) -> Any:
    """Markdown of one line as HTML: code, emphasis, and λ_t and e^(−2M) as they are set; all else as it is
    written."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup, escape

    from posbias.reports.page import tied

    def words(renderer: object, tokens: Sequence[Any], place: int, options: object, env: object) -> str:
        raised = RAISED.sub(
            lambda found: f"<sup>{found[1] or found[2]}</sup>", str(escape(tied(tokens[place].content)))
        )
        return LOWERED.sub(r"\1<sub>\2</sub>", raised)

    parser = MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink"])
    parser.add_render_rule("text", words)
    return Markup(parser.renderInline(text).strip())
