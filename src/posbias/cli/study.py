"""`posbias study`: studies of files: run, status, show, export."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with, progress
from posbias.core.terminal import table
from posbias.reports import answers, plots

if TYPE_CHECKING:
    from posbias.study import Outcome, Study

File = Annotated[str, Parameter(help="The study's file (TOML, YAML or JSON).")]
Out = Annotated[
    shared.Out | None, Parameter(help="The folder of results. Default: results/studies/NAME, after the file.")
]
_WORKERS = "Processes of one thread that share the cells. Default: one cell after another, in this process."
_CSV = "The file to write; - is stdout, and the default."
MOST_NAMED = 6
"""Cells that are to be done and named."""

study = App(
    name="study",
    help="Run studies: one question, many cells, every result kept in a file of its own.",
    help_format="plaintext",
)


@shared.options
class RunOptions:
    """How it is computed.

    Parameters
    ----------
    dry_run
        Say how many cells there are and how many are finished, and compute nothing.
    """

    out: Out = None
    workers: Annotated[shared.Workers, Parameter(help=_WORKERS)] = None
    ray: shared.Ray = None
    dry_run: shared.Flag = False
    rerun: shared.Rerun = False
    json: shared.Json = False


@study.command
def run(file: File, *, options: RunOptions = RunOptions()) -> None:
    """Compute the cells of a study that are not finished, and judge its claims.

    Finished cells are kept whatever stops a run; the same command goes on from there. A file is TOML, YAML or JSON
    (docs/study.md).
    """
    one, folder = _read(file, options.out)
    if options.dry_run:
        _answer_status(one, folder, options.json, todo=options.rerun)
        return
    from posbias.study import run_study

    engine = shared.engine(options.workers, options.ray)
    with progress() as on_event:
        outcome = run_study(one, folder, engine=engine, again=options.rerun, on_event=on_event)
    _answer(outcome, options.json)


@study.command(name="status")
def status_(file: File, *, out: Out = None, json: shared.Json = False) -> None:
    """List which cells of a study are finished and which are not."""
    _answer_status(*_read(file, out), json)


@shared.options
class ShowOptions:
    """What is shown.

    Parameters
    ----------
    quantities
        The quantities to show instead, with commas, such as gap_first_last or recency_probability.1.
    cells
        List every cell with its file and cost.
    plot
        Draw the first of the quantities over the first axis that has numbers, one line for each combination of
        the others, to this file (.png, .svg or .pdf).
    """

    out: Out = None
    quantities: shared.Names = ()
    cells: shared.Flag = False
    plot: shared.Plot = None
    json: shared.Json = False


@study.command
def show(file: File, *, options: ShowOptions = ShowOptions()) -> None:
    """Show what a study found: its cells with their main quantities, its claims with their verdicts, its cost."""
    from posbias.study import status

    shared.check_targets(None, options.plot)
    outcome = status(*_read(file, options.out))
    picture = None if options.plot is None else _draw(outcome, options.quantities, options.plot)
    _answer(outcome, options.json, options.quantities, options.cells, picture)


@study.command
def export(
    file: File,
    *,
    out: Out = None,
    csv: Annotated[str | None, Parameter(allow_leading_hyphen=True, help=_CSV)] = None,
    json: shared.Json = False,
) -> None:
    """Write every number of a study as a table: one row per cell, quantity and index."""
    from posbias.core.files import write_text
    from posbias.study import status
    from posbias.study.tables import csv_text, rows

    if json and csv is not None:
        raise shared.wrong("csv", "none together with --json", csv)
    outcome = status(*_read(file, out))
    answer, lines = answers.StudyExport.of(rows=rows(outcome)), csv_text(outcome).splitlines()
    if csv is not None and csv != "-":
        lines = [f"table: {write_text(csv, csv_text(outcome))}"]
    answer_with(answer, lambda: lines, json)


def _read(file: str, out: Path | None) -> "tuple[Study, Path]":
    """The study of a file and its folder. Raises as `read_study`."""
    from posbias.study import read_study

    return read_study(file), out or shared.RESULTS / "studies" / Path(file).stem


def _answer_status(one: "Study", folder: Path, json: bool, todo: bool = False) -> None:
    """How many cells are finished, and the labels of those that are not; with `todo`, all are to be done."""
    from posbias.study import status

    outcome = status(one, folder)
    missing, count = one.all_cells if todo else outcome.missing, len(one.all_cells)
    answer = answers.StudyStatus.of(
        outcome, cells=count, combinations=len(one.combinations), missing=list(missing)
    )
    seeds = f", {len(one.combinations):,} combinations × {len(one.seeds)} seeds" if count > 1 else ""
    lines = [
        f"{one.name}: {one.question}",
        f"{count:,} cells{seeds}; {outcome.finished:,} finished, {len(missing):,} to do in {folder}",
        *(f"  to do: {cell.label}" for cell in missing[:MOST_NAMED]),
        *([f"  … and {len(missing) - MOST_NAMED:,} more"] if len(missing) > MOST_NAMED else []),
        *([_cost_line(outcome)] if outcome.finished else []),
    ]
    answer_with(answer, lambda: lines, json)


def _answer(
    outcome: "Outcome",
    json: bool,
    quantities: tuple[str, ...] = (),
    cells: bool = False,
    picture: Path | None = None,
) -> None:
    from posbias.study import judge
    from posbias.study.tables import summary

    claims, pairs = judge(outcome), list(zip(outcome.study.all_cells, outcome.records, strict=True))
    lacking = dict.fromkeys(("file", "cost", "quantities", "about"))
    answer = answers.Study.of(
        outcome,
        cells=[
            answers.StudyCell.of(cell, **lacking)
            if one is None
            else answers.StudyCell.of(cell, file=one.path, cost=one.header.cost, **one.result)
            for cell, one in pairs
        ],
        claims=[answers.StudyClaim.of(**claim.as_dict()) for claim in claims],
        plot=picture,
    )

    def lines() -> list[str]:
        shown = [
            f"{outcome.study.name}: {outcome.study.question}",
            "",
            *table(*summary(outcome, quantities)),
            "",
        ]
        if cells:
            rows = [
                [
                    cell.label,
                    *(["–", "–"] if one is None else [f"{one.header.cost['seconds']:.1f} s", one.path.name]),
                ]
                for cell, one in pairs
            ]
            shown += [*table(["cell", "cost", "file"], rows), ""]
        shown += [*map(str, claims), *([""] if claims else [])]
        shown += [_cost_line(outcome), f"results: {outcome.folder}"]
        return shown if picture is None else [*shown, f"plot: {picture}"]

    answer_with(answer, lines, json)


def _cost_line(outcome: "Outcome") -> str:
    cost = outcome.cost
    words = f"{outcome.finished:,} of {len(outcome.records):,} cells finished"
    return (
        f"{words}; {cost['seconds']:.1f} s of cells, at most {cost['peak_memory'] / 1e6:,.0f} MB in a process"
    )


def _draw(outcome: "Outcome", quantities: tuple[str, ...], path: Path) -> Path:
    """Draw the quantity asked for, or that of the first claim, or the first that is shown."""
    from posbias.study.tables import columns, lines

    named = [*quantities, *(claim.quantity for claim in outcome.study.claims)]
    quantity = columns(outcome, named[:1])[0]
    axis, drawn = lines(outcome, quantity)
    return plots.save_figure(plots.drawing(plots.draw_study, drawn, axis, quantity, size=(5.2, 3.2)), path)
