"""`posbias paper list|claims|all`: what can be made, every claim with its verdict, and all of it at once."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with, log, progress
from posbias.core.errors import PosbiasError
from posbias.core.packages import need
from posbias.core.tables import table

if TYPE_CHECKING:
    from posbias.profiles.claims import Judged
    from posbias_papers.everything import Ran

INDENT = " " * 13
_RERUN = "Make again what was made before, from the cells that are kept."


def list_(*papers: str, out: shared.Results = shared.RESULTS, json: shared.Json = False) -> None:
    """List every figure, table and set of statements of the three papers: cost and state of each.

    The state is of what was made in --out, with what is on record at more effort.

    Parameters
    ----------
    papers
        wu2025, herasimchyk2026, kim2026, or single studies such as wu2025/fig2. Default: all.
    """
    from posbias_papers.cli.answers import PaperList, StudyPart
    from posbias_papers.registry import find_studies

    studies = [(study, study.state(out)) for study in find_studies(papers)]
    head = ["study", "what it shows", "printed", "quick", "full", "effort", f"in {out}"]
    rows = [
        [
            study.key,
            study.title,
            f"{len(study.expected)} numbers" if study.expected else "–",
            str(study.quick),
            str(study.full),
            study.unit,
            "cannot be used" if state.damaged else str(state),
        ]
        for study, state in studies
    ]
    lines = [*table(head, rows), "", f"costs on {studies[0][0].quick.machine}, nothing being there yet"]
    damaged = [(study, state) for study, state in studies if state.damaged and not study.parts]
    lines += [f"{state.damaged}; {study.made_by}" for study, state in damaged]
    parts = [StudyPart.of(study, state=state) for study, state in studies]
    answer_with(PaperList.of(studies=parts), lambda: lines, json)


# --- claims ------------------------------------------------------------------------------------------------


@shared.options
class Options:
    """Which claims, and what is made for them.

    Parameters
    ----------
    paper
        wu2025, herasimchyk2026, kim2026, or studies such as wu2025/fig2; several with commas. Default: all.
    verdict
        Only the claims that hold, fail or are undecided.
    instances
        Random instances of a statement. Default: 200, or what statements/ has if that is more.
    effort
        Make first what is missing: quick (minutes) or full (the papers' effort). Default: make nothing.
    """

    paper: shared.Names = ()
    verdict: Literal["holds", "fails", "undecided"] | None = None
    out: shared.Results = shared.RESULTS
    instances: shared.Whole | None = None
    effort: Annotated[shared.Effort | None, Parameter(show_default=False)] = None
    workers: shared.Workers = None
    json: shared.Json = False


def claims(*, options: Options = Options()) -> None:
    """Print every claim of the three papers with its number, its verdict, and why.

    Numbered statements are tried on random and adversarial instances (kept in statements/); claims of figures
    and tables are those of the results in --out, or of recorded results, which come along, where these are of more
    effort. What has not been made is undecided and says what makes it.
    """
    ran = None
    if options.effort is not None:
        settings = {"effort": options.effort, "engine": shared.engine(options.workers)}
        ran = _make(options.out, options.paper, settings)
    print_claims(options)
    _refuse_failures(ran)


def print_claims(options: Options, at: dict[str, Path] | None = None) -> None:
    """Answer with the claims of some papers; `at` are folders of papers that lie outside `options.out`."""
    from posbias.profiles.claims import count, tally
    from posbias_papers.cli.answers import PaperClaims
    from posbias_papers.collect import INSTANCES, collect

    with progress() as on_event:
        judged = collect(
            options.out,
            papers=options.paper,
            instances=INSTANCES if options.instances is None else options.instances,
            engine=shared.engine(options.workers),
            at=at,
            on_event=on_event,
        )
    shown = [claim for claim in judged if options.verdict in (None, claim.verdict)]
    answer = PaperClaims.of(
        claims=[claim.as_dict() for claim in shown],
        counts=count(judged),
        tallies={paper: tally(own) for paper, own in by_paper(judged).items()},
    )
    answer_with(answer, lambda: _claim_lines(judged, shown), options.json)


def by_paper(judged: "Iterable[Judged]") -> "dict[str, list[Judged]]":
    """Claims by the key of their paper."""
    papers: dict[str, list[Judged]] = {}
    for claim in judged:
        papers.setdefault(claim.paper, []).append(claim)
    return papers


def _count_words(judged: "Iterable[Judged]") -> str:
    """'12 hold, 3 fail, 4 undecided; of ours 2 hold, 0 fail, 1 undecided'."""
    from posbias.profiles.claims import tally

    words = {"holds": "hold", "fails": "fail", "undecided": "undecided"}
    paper, ours = (
        ", ".join(f"{number} {words[kind]}" for kind, number in counts.items())
        for counts in tally(judged).values()
    )
    return f"{paper}; of ours {ours}"


def _claim_lines(judged: "Sequence[Judged]", shown: "Sequence[Judged]") -> list[str]:
    """Claims under their papers, each with its number and why; counts are of all, shown or not."""
    from posbias.core.sources import cite

    lines: list[str] = []
    for key, own in by_paper(judged).items():
        lines += [f"{cite(key).short}: {_count_words(own)}", ""]
        for claim in (claim for claim in shown if claim.paper == key):
            about = claim.claim
            whose = about.place if about.provenance == "paper" else f"ours, on {about.place}"
            whose += f"; counted as {about.alias_of}" if about.alias_of else ""
            lines += [f"  {claim.mark:10s} {claim.id}  {_number(claim)}".rstrip()]
            lines += [f"{INDENT}{claim.sentence} ({whose})", f"{INDENT}{claim.why}", ""]
    return [*lines, f"{len(judged)} claims: {_count_words(judged)}"]


def _number(claim: "Judged") -> str:
    number, se = claim.estimate.value, claim.estimate.se
    if number != number or claim.study.endswith("/statements"):
        return ""
    error = f" ± {se:.2g}" if se == se else ""
    # a number that is zero has no sign
    return f"{number + 0.0:.4g}{error}".replace("-", "−")


# --- all ---------------------------------------------------------------------------------------------------


@shared.options
class AllOptions:
    """How much is made, of what, and where it goes.

    Parameters
    ----------
    effort
        quick (minutes: all three papers take about an hour on two cores) or full (the papers': days on two cores,
        most of them for the networks of wu2025).
    report
        Write all of it as one page, papers.html.
    models
        Models for herasimchyk2026, with commas; none: no model, where --configs is enough. Default: tiny-alibi and
        smollm2-135m, or the first alone where the second cannot be had.
    out
        The folder to write to.
    """

    effort: shared.Effort = "quick"
    report: shared.Flag = False
    configs: shared.Configs = None
    models: shared.Names = ()
    workers: shared.Workers = None
    ray: shared.Ray = None
    rerun: Annotated[shared.Rerun, Parameter(help=_RERUN)] = False
    out: shared.Out = shared.RESULTS
    json: shared.Json = False


def all_(*, options: AllOptions = AllOptions()) -> None:
    """Make every figure and table of the three papers, from fastest to slowest, and count the verdicts.

    What is there is skipped, and what comes along recorded at more effort is drawn instead of trained, unless
    --rerun; after Ctrl-C the same command goes on. A part that fails does not stop the others: it is named at the
    end, with exit code 2. What each study took is written to papers.json.
    """
    from posbias.profiles.claims import count
    from posbias_papers.cli.answers import PaperAll
    from posbias_papers.collect import collect

    settings: dict[str, Any] = {name: getattr(options, name) for name in ("effort", "models", "configs")}
    settings |= {"again": options.rerun, "engine": shared.engine(options.workers, options.ray)}
    if options.report:
        need("jinja2", "markdown_it", work="the page", extra="report")
    ran = _make(options.out, (), settings)
    # the statements were tried on at least as many instances
    judged = collect(options.out)
    page = _page(options.out, judged, options.configs) if options.report else None
    answer = PaperAll.of(ran, counts=count(judged), page=page)
    answer_with(answer, lambda: _all_lines(ran, judged, page), options.json)
    _refuse_failures(ran)


def _make(out: Path, studies: Sequence[str], settings: dict[str, Any]) -> "Ran":
    """Make with a bar what is missing; settings and errors as of `make_all`."""
    from posbias_papers.everything import make_all

    with progress() as on_event:
        return make_all(out, studies, on_event=on_event, **settings)


def _refuse_failures(ran: "Ran | None") -> None:
    """Raise `PosbiasError` for parts that failed."""
    if ran is not None and ran.failed:
        failed = "; ".join(f"{key}: {message}" for key, message in ran.failed.items())
        raise PosbiasError(f"{len(ran.failed)} of the studies could not be made: {failed}")


def _page(out: Path, judged: "Sequence[Judged]", configs: Path | None) -> Path:
    """Everything as one page."""
    from posbias_papers.page import write_page
    from posbias_papers.readings import ERRATA, compare_readings
    from posbias_papers.registry import STUDIES

    log.info("computing both readings, and writing the page …")
    with progress() as on_event:
        compared = compare_readings(results=out, configs=configs, on_event=on_event)
    page = out / "papers.html"
    return write_page(out, page, claims=judged, readings=compared, errata=ERRATA, studies=STUDIES)


def _all_lines(ran: "Ran", judged: "Sequence[Judged]", page: Path | None) -> list[str]:
    from posbias.profiles.claims import tally
    from posbias_papers.study import minutes_text

    rows = [
        [key, *(str(number) for counts in tally(own).values() for number in counts.values())]
        for key, own in (by_paper(judged) | {"all": [*judged]}).items()
    ]
    return [
        f"{len(ran.made)} studies made in {minutes_text(ran.seconds / 60)}, {len(ran.found)} were there",
        *(f"{key}: {reason}" for key, reason in ran.left_out.items()),
        "",
        *table(["paper", "hold", "fail", "undecided", "ours hold", "fail", "undecided"], rows),
        "",
        f"costs: {ran.costs}",
        *([f"page: {page}"] if page else []),
    ]
