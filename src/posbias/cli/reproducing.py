"""The commands about all papers at once: what there is, both readings of it, and everything made."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli.asking import Flag, Names
from posbias.cli.claiming import OUT, bars, counts, engine, refuse_failures, wrapped
from posbias.cli.papers import paper
from posbias.cli.speaking import Json, Whole, answer_with, bar_of, say
from posbias.errors import InvalidValueError
from posbias.terminal import table

if TYPE_CHECKING:
    from posbias.claims import Judged
    from posbias.papers.everything import Ran
    from posbias.papers.readings import Comparison


@paper.command(name="list")
def list_(*papers: str, out: Path = OUT, json: Json = False) -> None:
    """List every figure, table and set of statements of the three papers: what it shows, costs, and its state.

    Parameters
    ----------
    papers
        wu2025, herasimchyk2026 or kim2026, or single studies such as wu2025/fig2. Default: all.
    out
        The folder of results whose state is shown.
    json
        Print JSON on stdout.
    """
    from posbias.papers.registry import find_studies

    studies = [(one, one.state(out)) for one in find_studies(papers)]
    records = [one.as_dict() | {"state": state.as_dict()} for one, state in studies] if json else []
    head = ["study", "what it shows", "printed", "quick", "full", f"in {out}"]
    rows = [
        [
            one.key,
            one.title,
            f"{len(one.expected)} numbers" if one.expected else "–",
            str(one.quick),
            str(one.full),
            "cannot be used" if state.damaged else str(state),
        ]
        for one, state in studies
    ]
    damaged = [f"{state.damaged}; {one.made_by}" for one, state in studies if state.damaged and not one.parts]
    lines = [
        *table(head, rows),
        "",
        f"costs on {studies[0][0].quick.machine}, nothing being there yet",
        *damaged,
    ]
    answer_with({"studies": records} if json else None, lambda: lines)


@paper.command
def readings(
    *names: str,
    out: Path = OUT,
    configs: Path | None = None,
    threads: Whole | None = None,
    json: Json = False,
) -> None:
    """Compare what the papers publish with what holds, wherever the two differ: both numbers and the difference.

    All of them take about a minute on two cores.

    Parameters
    ----------
    names
        Papers, or readings such as kim2026/eq-42. Default: all.
    out
        A folder of results, whose measurements are used where it has them.
    configs
        A folder of the rollout files of the authors of herasimchyk2026, for readings of the paper's own models.
    threads
        Cores for simulations. Default: all.
    json
        Print JSON on stdout.
    """
    compared = _compared(names, out, configs, threads)
    records = [one.as_dict() for one in compared] if json else []
    answer_with({"readings": records} if json else None, lambda: _reading_lines(compared))


def _compared(
    names: Sequence[str], out: Path, configs: Path | None, threads: int | None = None
) -> "list[Comparison]":
    from posbias.papers.readings import compare_readings

    with bar_of("reading") as bar:
        return compare_readings(names, results=out, configs=configs, threads=threads, progress=bar, say=say)


def _reading_lines(compared: "Sequence[Comparison]") -> list[str]:
    """A table for each paper, then where each stands and what is to be said."""
    from posbias.sources import cite

    lines: list[str] = []
    for key in dict.fromkeys(one.paper for one in compared):
        own = [one for one in compared if one.paper == key]
        lines += [cite(key).short, ""]
        for one in own:
            numbers = f"published {one.published}, corrected {one.corrected}, difference {one.difference}"
            lines += [f"  {one.key}  {numbers}"]
            lines += [*wrapped([f"{one.where}: {one.quantity}", one.note], 4), ""]
    return [*lines, f"{len(compared)} reading{'s' * (len(compared) != 1)}"]


@paper.command(name="all")
def all_(
    *,
    quick: Flag = False,
    full: Flag = False,
    report: Flag = False,
    configs: Path | None = None,
    models: Names = (),
    workers: Whole | None = None,
    ray: str | None = None,
    again: Flag = False,
    out: Path = OUT,
    json: Json = False,
) -> None:
    """Make every figure and table of the three papers, from cheap to dear, and count the verdicts.

    What is there is skipped; after Ctrl-C the same command goes on. A part that fails does not stop the others: it
    is named at the end, with exit code 2. What each study took is written to papers.json.

    Parameters
    ----------
    quick
        The effort of minutes (the default): all three papers take about an hour on two cores.
    full
        The papers' effort: days on two cores, most of them for the networks of wu2025.
    report
        Write all of it as one page, papers.html.
    configs
        A folder of the rollout files of the authors of herasimchyk2026, for levels of the paper's models.
    models
        Models for herasimchyk2026, with commas; none: no model, where --configs is enough. Default: tiny-alibi and
        smollm2-135m, or the first alone where the second cannot be had.
    workers
        Processes that train and try, one thread each. Default: the cores.
    ray
        Train and try on a Ray cluster instead: auto, or its address.
    again
        Make even what is there, of the cells that are kept.
    out
        The folder to write to.
    json
        Print JSON on stdout.
    """
    from posbias.papers.collect import collect
    from posbias.papers.everything import make_all

    if quick and full:
        raise InvalidValueError("full: given together with --quick, one of the two needed")
    performer = engine(workers, ray)
    if report:
        from posbias.reports import require

        require("jinja2", "markdown_it")
    settings: dict[str, Any] = {"models": models, "configs": configs, "engine": performer, "again": again}
    with bars() as progress:
        ran = make_all(out, quick=not full, progress=progress, say=say, **settings)
    # the statements were tried on at least as many instances
    rulings = collect(out)
    page = _page(out, rulings, configs) if report else None
    answer = {
        "made": list(ran.made),
        "found": list(ran.found),
        "left_out": dict(ran.left_out),
        "failed": dict(ran.failed),
        "seconds": ran.seconds,
        "costs": str(ran.costs),
        "counts": counts(rulings),
        "page": None if page is None else str(page),
    }
    answer_with(answer if json else None, lambda: _ran_lines(ran, rulings, page))
    refuse_failures(ran)


def _page(out: Path, rulings: "Sequence[Judged]", configs: Path | None) -> Path:
    """Everything as one page."""
    from posbias.papers.readings import ERRATA
    from posbias.papers.registry import STUDIES
    from posbias.reports.papers import write_page

    say("computing both readings, and writing the page …")
    compared = _compared((), out, configs)
    return write_page(
        out, out / "papers.html", claims=rulings, readings=compared, errata=ERRATA, studies=STUDIES
    )


def _ran_lines(ran: "Ran", rulings: "Sequence[Judged]", page: Path | None) -> list[str]:
    from posbias.papers.registry import minutes_text

    lines = [
        f"{len(ran.made)} studies made in {minutes_text(ran.seconds / 60)}, {len(ran.found)} were there",
        *(f"{key}: {reason}" for key, reason in ran.left_out.items()),
        "",
    ]
    papers = dict.fromkeys(one.paper for one in rulings)
    rows = [[key, *map(str, counts([one for one in rulings if one.paper == key]).values())] for key in papers]
    lines += table(
        ["paper", "hold", "fail", "undecided"], [*rows, ["all", *map(str, counts(rulings).values())]]
    )
    return [*lines, "", f"costs: {ran.costs}", *([f"page: {page}"] if page else [])]
