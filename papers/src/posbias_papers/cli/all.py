"""`posbias paper all`: every figure and table of the three papers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with, log, progress
from posbias.core.text_tables import table
from posbias_papers.cli.claims import by_paper, make_missing, refuse_failures

if TYPE_CHECKING:
    from posbias.profiles.claims import Judged
    from posbias_papers.everything import Ran

_RERUN = "Make even what is there, of the cells that are kept."


@shared.options
class Options:
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


def all_(*, options: Options = Options()) -> None:
    """Make every figure and table of the three papers, from fastest to slowest, and count the verdicts.

    What is there is skipped, and what comes along recorded at more effort is drawn instead of trained, unless
    --rerun; after Ctrl-C the same command goes on. A part that fails does not stop the others: it is named at the
    end, with exit code 2. What each study took is written to papers.json.
    """
    from posbias.profiles.claims import count
    from posbias_papers.collect import collect

    settings: dict[str, Any] = {"models": options.models, "configs": options.configs, "again": options.rerun}
    settings["engine"] = shared.engine(options.workers, options.ray)
    if options.report:
        from posbias.core.lazy import need

        need("jinja2", "markdown_it", work="the page", extra="report")
    ran = make_missing(options.out, (), options.effort, **settings)
    # the statements were tried on at least as many instances
    judged = collect(options.out)
    page = _page(options.out, judged, options.configs) if options.report else None
    from posbias_papers.cli.answers import PaperAll

    answer = PaperAll.of(ran, counts=count(judged), page=page)
    answer_with(answer, lambda: _lines(ran, judged, page), options.json)
    refuse_failures(ran)


def _page(out: Path, judged: "Sequence[Judged]", configs: Path | None) -> Path:
    """Everything as one page."""
    from posbias_papers.page import write_page
    from posbias_papers.readings import ERRATA, compare_readings
    from posbias_papers.registry import STUDIES

    log.info("computing both readings, and writing the page …")
    with progress() as on_event:
        compared = compare_readings(results=out, configs=configs, on_event=on_event)
    return write_page(
        out, out / "papers.html", claims=judged, readings=compared, errata=ERRATA, studies=STUDIES
    )


def _lines(ran: "Ran", judged: "Sequence[Judged]", page: Path | None) -> list[str]:
    from posbias.profiles.claims import tally
    from posbias_papers.study import minutes_text

    def numbers(claims: "Sequence[Judged]") -> list[str]:
        return [str(number) for counts in tally(claims).values() for number in counts.values()]

    lines = [
        f"{len(ran.made)} studies made in {minutes_text(ran.seconds / 60)}, {len(ran.found)} were there",
        *(f"{key}: {reason}" for key, reason in ran.left_out.items()),
        "",
    ]
    rows = [[key, *numbers(own)] for key, own in by_paper(judged).items()]
    rows.append(["all", *numbers(judged)])
    lines += table(["paper", "hold", "fail", "undecided", "ours hold", "fail", "undecided"], rows)
    return [*lines, "", f"costs: {ran.costs}", *([f"page: {page}"] if page else [])]
