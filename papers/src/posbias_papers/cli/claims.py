"""`posbias paper list|claims|all`: what can be made, every claim with its verdict, and all of it at once."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with, log, progress
from posbias.core.errors import PosbiasError
from posbias.core.packages import need
from posbias.core.progress import time_text
from posbias.core.terminal import table

if TYPE_CHECKING:
    from posbias_papers.claims import Judged
    from posbias_papers.errata import Comparison
    from posbias_papers.reproduction import Ran

INDENT = " " * 13


def list_(*papers: str, out: shared.Results = shared.RESULTS, json: shared.Json = False) -> None:
    """List every figure, table and set of statements of the three papers: what computing it costs, and its state.

    The state is of what was made in --out, with what is on record at more effort.

    Parameters
    ----------
    papers
        wu2025, herasimchyk2026, kim2026, or single studies such as wu2025/fig2. Default: all.
    """
    from posbias_papers.cli.answers import PaperList, StudyPart
    from posbias_papers.registry import find_studies
    from posbias_papers.results import state

    states = {study: state(study, out) for study in find_studies(papers)}
    head = ["study", "what it shows", "quick", "full", "effort", f"in {out}"]
    rows = [
        [one.key, one.title, str(one.quick), str(one.full), one.unit, str(its)] for one, its in states.items()
    ]
    machine = next(iter(states)).quick.machine
    lines = [*table(head, rows), "", f"costs on {machine}, where nothing has been computed yet"]
    lines += [f"{its.damaged}; {study.made_by}" for study, its in states.items() if its.damaged]
    parts = [StudyPart.of(study, state=its) for study, its in states.items()]
    answer_with(PaperList.of(studies=parts), lambda: lines, json)


# --- claims ------------------------------------------------------------------------------------------------


@shared.options
class Options:
    """Which claims, and what is made for them.

    Parameters
    ----------
    verdict
        Only the claims that hold, fail or are undecided.
    instances
        Try statements on this many random instances. Default: those on record, 1,000.
    effort
        Make first what is missing: quick (minutes) or full (the papers' effort). Default: make nothing.
    report
        Write all claims as one page, OUT/papers.html.
    """

    verdict: Literal["holds", "fails", "undecided"] | None = None
    out: shared.Results = shared.RESULTS
    instances: shared.Whole | None = None
    effort: Annotated[shared.Effort | None, Parameter(show_default=False)] = None
    report: shared.Flag = False
    workers: shared.Workers = None
    json: shared.Json = False


def claims(*names: str, options: Options = Options()) -> None:
    """Print every claim of the three papers with its number, its verdict, and why.

    Numbered statements, tried on random and adversarial instances, are on record; claims of figures and tables are
    those of the results in --out, or of recorded results, which come along, where these are of more effort. What
    has not been made is undecided and says what makes it.

    Parameters
    ----------
    names
        wu2025, herasimchyk2026, kim2026, or single studies such as wu2025/fig2. Default: all.
    """
    from posbias_papers.claims import count, tally
    from posbias_papers.cli.answers import PaperClaims
    from posbias_papers.results import by_evidence, by_paper, collect

    if options.report:
        need("jinja2", "markdown_it", work="the page", extra="report")
    ran, engine = None, shared.engine(options.workers)
    if options.effort is not None:
        ran = _make(options.out, names, effort=options.effort, engine=engine)
    with progress() as on_event:
        how: dict[str, Any] = {"instances": options.instances, "engine": engine, "on_event": on_event}
        judged = collect(options.out, papers=names, **how)
    shown = [claim for claim in judged if options.verdict in (None, claim.verdict)]
    page = _page(options.out, judged) if options.report else None
    answer = PaperClaims.of(
        page=page,
        claims=[claim.as_dict() for claim in shown],
        counts=count(judged),
        tallies={paper: tally(own) for paper, own in by_paper(judged).items()},
        by_evidence={paper: by_evidence(own) for paper, own in by_paper(judged).items()},
    )
    lines = [*_evidence(judged), "", f"page: {page}"] if page else _claim_lines(judged, shown)
    answer_with(answer, lambda: lines, options.json)
    _refuse_failures(ran)


def _evidence(judged: "Iterable[Judged]") -> list[str]:
    """A table of the papers' own claims: verdicts by what they were tested on."""
    from posbias.core.sources import cite
    from posbias.profiles.claims import VERDICTS
    from posbias_papers.results import by_evidence, by_paper

    rows = [
        [cite(key).short, kind, *map(str, counts.values())]
        for key, own in by_paper(judged).items()
        for kind, counts in by_evidence(own).items()
    ]
    return table(["the papers' own claims", "tested on", *VERDICTS], rows)


def _claim_lines(judged: "Sequence[Judged]", shown: "Sequence[Judged]") -> list[str]:
    """Claims under their papers, each with its number and why; the table after them is of all, shown or not."""
    from posbias.core.sources import cite
    from posbias_papers.results import by_paper

    lines: list[str] = []
    for key in by_paper(judged):
        lines += [cite(key).short, ""]
        for claim in (claim for claim in shown if claim.paper == key):
            about, kind = claim.claim, claim.tested_on
            whose = about.place if about.provenance == "paper" else f"ours, on {about.place}"
            whose += f"; counted as {about.alias_of}" if about.alias_of else ""
            number = "" if claim.study.endswith("/statements") else str(claim.estimate).replace("-", "−")
            lines += [f"  {claim.mark:10s} {claim.id}  {number.removeprefix('–')}".rstrip()]
            lines += [f"{INDENT}{claim.sentence} ({whose})", f"{INDENT}{kind}: {claim.why}", ""]
    return [*lines, *_evidence(judged)]


# --- all ---------------------------------------------------------------------------------------------------


@shared.options
class AllOptions:
    """How much is made, of what, and where it goes.

    Parameters
    ----------
    effort
        quick (all three papers take about an hour and a half on two cores) or full (the papers': days on two
        cores, most of them for the networks of wu2025).
    report
        Write all of it as one page, papers.html.
    models
        Models for herasimchyk2026, with commas; none: no model, where --configs is enough. Default: the record,
        and for what it lacks tiny-alibi and, where it can be had, smollm2-135m.
    out
        The folder to write to.
    """

    effort: shared.Effort = "quick"
    report: shared.Flag = False
    configs: shared.Configs = None
    models: shared.Names = ()
    workers: shared.Workers = None
    ray: shared.Ray = None
    rerun: shared.Rerun = False
    out: shared.Out = shared.RESULTS
    json: shared.Json = False


def all_(*, options: AllOptions = AllOptions()) -> None:
    """Make every figure and table of the three papers, from fastest to slowest, and count the verdicts.

    Cells that are kept are not computed again, and what comes along recorded at more effort is drawn instead,
    unless --rerun; after Ctrl-C the same command goes on. A part that fails does not stop the others: it is
    named at the end, with exit code 2.
    """
    from posbias_papers.claims import count
    from posbias_papers.cli.answers import PaperAll
    from posbias_papers.herasimchyk2026.measure import check_models
    from posbias_papers.results import collect

    check_models(() if options.models == ("none",) else options.models, "--models")
    if options.report:
        need("jinja2", "markdown_it", work="the page", extra="report")
    engine = shared.engine(options.workers, options.ray)
    same = {name: getattr(options, name) for name in ("effort", "models", "configs")}
    ran = _make(options.out, (), again=options.rerun, engine=engine, **same)
    judged = collect(options.out)
    page = _page(options.out, judged, _readings(options.out, options.configs)) if options.report else None
    answer = PaperAll.of(ran, counts=count(judged), page=page)
    lines = [f"{len(ran.made)} studies made in {time_text(ran.seconds)}"]
    lines += [f"{key}: {reason}" for key, reason in ran.left_out.items()]
    lines += ["", *_evidence(judged), *([f"page: {page}"] if page else [])]
    answer_with(answer, lambda: lines, options.json)
    _refuse_failures(ran)


def _make(out: Path, studies: Sequence[str], **settings: Any) -> "Ran":
    """Make with a bar what is missing; settings and errors as of `make_all`."""
    from posbias_papers.reproduction import make_all

    with progress() as on_event:
        return make_all(out, studies, on_event=on_event, **settings)


def _refuse_failures(ran: "Ran | None") -> None:
    """Raise `PosbiasError` for parts that failed."""
    if ran is not None and ran.failed:
        failed = "; ".join(f"{key}: {message}" for key, message in ran.failed.items())
        raise PosbiasError(f"{len(ran.failed)} of the studies could not be made: {failed}")


def _readings(out: Path, configs: Path | None) -> "Sequence[Comparison]":
    """Both readings of every discrepancy."""
    from posbias_papers.readings import compare_readings

    log.info("computing both readings …")
    with progress() as on_event:
        return compare_readings(results=out, configs=configs, on_event=on_event)


def _page(out: Path, judged: "Sequence[Judged]", readings: "Sequence[Comparison]" = ()) -> Path:
    """Everything as one page."""
    from posbias_papers.errata import ERRATA
    from posbias_papers.results import write_page

    return write_page(out, out / "papers.html", claims=judged, readings=readings, errata=ERRATA)
