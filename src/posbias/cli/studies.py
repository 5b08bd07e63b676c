"""The commands that run studies and show what they found."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from posbias.cli import paper_studies
from posbias.cli.asking import Flag, Names
from posbias.cli.speaking import Again, Json, Whole, answer_with, bar
from posbias.errors import InvalidValueError
from posbias.terminal import table

if TYPE_CHECKING:
    from posbias.study import Outcome, Study

study = App(
    name="study",
    help="Run studies: one question, many cells, every result kept in a file of its own.",
    help_format="plaintext",
)
ROOT = Path("results/studies")


@study.command
def run(
    file: str,
    *,
    out: Path | None = None,
    workers: Whole | None = None,
    ray: str | None = None,
    dry_run: Flag = False,
    again: Again = False,
    json: Json = False,
) -> None:
    """Compute the cells of a study that are not there yet, and judge its claims.

    Finished cells are kept whatever stops a run; the same command goes on from there.

    Parameters
    ----------
    file
        A TOML, YAML or JSON file (docs/studies.md), or the name of a paper's study, such as kim2026/fig1.
    out
        The folder to write to. Default: results/studies/NAME, after the file; results for a paper's study.
    workers
        Processes of one thread to share the cells out to. Default: one cell after another, in this process.
    ray
        Share the cells out on a Ray cluster at this address; auto: the one that is running, else one here. Needs
        posbias[cluster].
    dry_run
        Say how many cells there are and how many are finished, and compute nothing.
    again
        Compute even what is there already; the new files are written beside it.
    json
        Print JSON on stdout.
    """
    if paper_studies.named(file):
        if dry_run:
            paper_studies.tell_status(file, out, json)
        else:
            paper_studies.run(file, out, workers, ray, again, json)
        return
    given = _read(file)
    folder = out or _folder(file)
    if dry_run:
        _tell_status(given, folder, json, todo=again)
        return
    from posbias.execution import engine_of
    from posbias.study import run_study

    engine = engine_of(workers, ray)

    with bar() as on_event:
        outcome = run_study(given, folder, engine=engine, again=again, on_event=on_event)
    _tell(outcome, json)


@study.command
def status(file: str, *, out: Path | None = None, json: Json = False) -> None:
    """Say which cells of a study are finished and which are not.

    Parameters
    ----------
    file
        The study's file, or the name of a paper's study.
    out
        The folder with its results. Default: results/studies/NAME, after the file.
    json
        Print JSON on stdout.
    """
    if paper_studies.named(file):
        paper_studies.tell_status(file, out, json)
        return
    _tell_status(_read(file), out or _folder(file), json)


@study.command
def show(
    file: str,
    *,
    out: Path | None = None,
    quantities: Names = (),
    cells: Flag = False,
    plot: Path | None = None,
    json: Json = False,
) -> None:
    """Show what a study found: its cells with their main quantities, its claims with their verdicts, its cost.

    Parameters
    ----------
    file
        The study's file, or the name of a paper's study.
    out
        The folder with its results. Default: results/studies/NAME, after the file.
    quantities
        The quantities to show instead, with commas, such as gap_first_last or recency_probability.1.
    cells
        List every cell with its file and cost.
    plot
        Draw the first of the quantities over the first axis that has numbers, one line for each combination of
        the others, to this file (.png, .svg or .pdf).
    json
        Print JSON on stdout.
    """
    if plot is not None:
        from posbias.plots import check_kind

        check_kind(plot)
    if paper_studies.named(file):
        if plot is not None or quantities or cells:
            raise InvalidValueError(
                f"file: {file!r} given, whose figures and tables are the paper's; a study's file needed"
            )
        paper_studies.tell(file, out, json)
        return
    outcome = _found(file, out)
    _tell(outcome, json, quantities, cells, None if plot is None else _draw(outcome, quantities, plot))


@study.command
def export(
    file: str,
    *,
    out: Path | None = None,
    csv: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    json: Json = False,
) -> None:
    """Write every number of a study as a table: one row per cell, quantity and index.

    Parameters
    ----------
    file
        The study's file, or the name of a paper's study.
    out
        The folder with its results. Default: results/studies/NAME, after the file.
    csv
        The file to write; - is stdout, and the default.
    json
        Print the rows as JSON on stdout.
    """
    from posbias.files import write_text
    from posbias.study import csv_text, rows

    if json and csv is not None:
        raise InvalidValueError("json: given with --csv, one of the two needed")
    if paper_studies.named(file):
        found, text = paper_studies.table_of(file, out)
    else:
        outcome = _found(file, out)
        found, text = rows(outcome), csv_text(outcome)
    if csv is not None and csv != "-":
        written = write_text(csv, text)
        answer_with(None, lambda: [f"table: {written}"])
        return
    answer_with({"rows": found} if json else None, lambda: text.splitlines())


@study.command
def convert(folder: Path, *, json: Json = False) -> None:
    """Convert results of posbias 0.1 to files of this version; nothing is deleted.

    Cells are written beside the old files; a file with a name of its own is kept as NAME.0.1. What cannot be
    converted is listed with the command that makes it again.

    Parameters
    ----------
    folder
        The folder with the results, such as results/studies/dimension; folders in it are converted too.
    json
        Print JSON on stdout.
    """
    from posbias.study.conversion import convert as convert_results

    conversions = convert_results(folder)
    count = sum(conversion.written is not None for conversion in conversions)
    last = f"{count:,} of {len(conversions):,} files of posbias 0.1 converted in {folder}"
    answer = {"files": [conversion.as_dict() for conversion in conversions], "converted": count}
    answer_with(answer if json else None, lambda: [*map(str, conversions), last])


def _read(file: str) -> "Study":
    from posbias.study import read_study

    return read_study(file)


def _found(file: str, out: Path | None) -> "Outcome":
    from posbias.study import status as look

    return look(_read(file), out or _folder(file))


def _folder(file: str) -> Path:
    return ROOT / Path(file).stem


def _tell_status(given: "Study", folder: Path, json: bool, todo: bool = False) -> None:
    """How many cells are finished, and the labels of those that are not; with `todo`, all are to be done."""
    from posbias.study import status as look

    outcome = look(given, folder)
    missing = given.cells() if todo else outcome.missing
    count = len(given.cells())
    answer = {
        "study": given.name,
        "question": given.question,
        "folder": str(folder),
        "cells": count,
        "combinations": len(given.combinations),
        "finished": outcome.finished,
        "missing": [{"label": cell.label, "fingerprint": cell.fingerprint} for cell in missing],
        "cost": outcome.cost,
    }
    most = 6

    def lines() -> list[str]:
        head = f"{given.name}: {given.question}"
        seeds = f", {len(given.combinations):,} combinations × {len(given.seeds)} seeds" if count > 1 else ""
        told = [
            head,
            f"{count:,} cells{seeds}; {outcome.finished:,} finished, {len(missing):,} to do in {folder}",
        ]
        told += [f"  to do: {cell.label}" for cell in missing[:most]]
        if len(missing) > most:
            told.append(f"  … and {len(missing) - most:,} more")
        return [*told, *([_cost_line(outcome)] if outcome.finished else [])]

    answer_with(answer if json else None, lines)


def _tell(
    outcome: "Outcome",
    json: bool,
    quantities: tuple[str, ...] = (),
    cells: bool = False,
    picture: Path | None = None,
) -> None:
    from posbias.study import judge
    from posbias.study.tables import summary

    claims = judge(outcome)
    head, found = summary(outcome, quantities)
    answer: dict[str, Any] = {
        "study": outcome.study.name,
        "question": outcome.study.question,
        "folder": str(outcome.folder),
        "cells": [_cell(outcome, number) for number in range(len(outcome.records))],
        "finished": outcome.finished,
        "computed": outcome.computed,
        "claims": [one.as_dict() for one in claims],
        "cost": outcome.cost,
        "plot": None if picture is None else str(picture),
    }

    def lines() -> list[str]:
        told = [f"{outcome.study.name}: {outcome.study.question}", "", *table(head, found), ""]
        if cells:
            told += [*_cell_lines(outcome), ""]
        told += [*(str(one) for one in claims), *([""] if claims else [])]
        told += [_cost_line(outcome), f"results: {outcome.folder}"]
        return told if picture is None else [*told, f"plot: {picture}"]

    answer_with(answer if json else None, lines)


def _cell(outcome: "Outcome", number: int) -> dict[str, Any]:
    """A cell for JSON: what it is, its quantities, cost and file; null for what is not finished."""
    cell, record = outcome.study.cells()[number], outcome.records[number]
    return {
        "fingerprint": cell.fingerprint,
        "chosen": dict(cell.chosen),
        "seed": cell.seed,
        "quantities": None if record is None else record.quantities,
        "about": None if record is None else record.about,
        "cost": None if record is None else record.cost,
        "file": None if record is None else str(record.path),
    }


def _cell_lines(outcome: "Outcome") -> list[str]:
    found = []
    for cell, record in zip(outcome.study.cells(), outcome.records, strict=True):
        name, cost = ("–", "–") if record is None else (record.path.name, f"{record.cost['seconds']:.1f} s")
        found.append([cell.label, cost, name])
    return table(["cell", "cost", "file"], found)


def _cost_line(outcome: "Outcome") -> str:
    cost = outcome.cost
    words = f"{outcome.finished:,} of {len(outcome.records):,} cells finished"
    return (
        f"{words}; {cost['seconds']:.1f} s of cells, at most {cost['peak_memory'] / 1e6:,.0f} MB in a process"
    )


def _draw(outcome: "Outcome", quantities: tuple[str, ...], path: Path) -> Path:
    """Draw the quantity asked for, or that of the first claim, or the first that is shown."""
    from posbias.plots import new_figure, save_figure
    from posbias.plots.studies import draw_study
    from posbias.study.tables import columns, lines

    named = [*quantities, *(claim.quantity for claim in outcome.study.claims)]
    quantity = columns(outcome, named[:1])[0]
    axis, found = lines(outcome, quantity)
    figure = new_figure(5.2, 3.2)
    draw_study(figure.subplots(), found, axis, quantity)
    return save_figure(figure, path)
