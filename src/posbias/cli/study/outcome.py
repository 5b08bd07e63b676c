"""What commands tell of a study of a file: how far it is, and what it found."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.core.text_tables import table

if TYPE_CHECKING:
    from posbias.study import Outcome, Study

_MOST = 6


def read(file: str) -> "Study":
    """The study of a file. Raises as `read_study`."""
    from posbias.study import read_study

    return read_study(file)


def found(file: str, out: Path | None) -> "Outcome":
    """What there is of a file's study. Raises as `status`."""
    from posbias.study import status

    return status(read(file), out or folder_of(file))


def folder_of(file: str) -> Path:
    """results/studies/NAME."""
    return shared.RESULTS / "studies" / Path(file).stem


def tell_status(study: "Study", folder: Path, json: bool, todo: bool = False) -> None:
    """How many cells are finished, and the labels of those that are not; with `todo`, all are to be done."""
    from posbias.reports.answers.experiments import MissingCell, StudyStatus
    from posbias.study import status

    outcome = status(study, folder)
    missing = study.cells() if todo else outcome.missing
    count = len(study.cells())
    answer = StudyStatus.of(
        study=study.name,
        question=study.question,
        folder=folder,
        cells=count,
        combinations=len(study.combinations),
        finished=outcome.finished,
        missing=[MissingCell.of(cell) for cell in missing],
        cost=outcome.cost,
    )

    def lines() -> list[str]:
        head = f"{study.name}: {study.question}"
        seeds = f", {len(study.combinations):,} combinations × {len(study.seeds)} seeds" if count > 1 else ""
        told = [
            head,
            f"{count:,} cells{seeds}; {outcome.finished:,} finished, {len(missing):,} to do in {folder}",
        ]
        told += [f"  to do: {cell.label}" for cell in missing[:_MOST]]
        if len(missing) > _MOST:
            told.append(f"  … and {len(missing) - _MOST:,} more")
        return [*told, *([_cost_line(outcome)] if outcome.finished else [])]

    answer_with(answer, lines, json)


def tell(
    outcome: "Outcome",
    json: bool,
    quantities: tuple[str, ...] = (),
    cells: bool = False,
    picture: Path | None = None,
) -> None:
    from posbias.reports.answers.experiments import Study, StudyClaim
    from posbias.study import judge
    from posbias.study.tables import summary

    claims = judge(outcome)
    head, found = summary(outcome, quantities)
    answer = Study.of(
        study=outcome.study.name,
        question=outcome.study.question,
        folder=outcome.folder,
        cells=list(map(_cell, outcome.study.cells(), outcome.records)),
        finished=outcome.finished,
        computed=outcome.computed,
        claims=[StudyClaim.of(**claim.as_dict()) for claim in claims],
        cost=outcome.cost,
        plot=picture,
    )

    def lines() -> list[str]:
        told = [f"{outcome.study.name}: {outcome.study.question}", "", *table(head, found), ""]
        if cells:
            told += [*_cell_lines(outcome), ""]
        told += [*map(str, claims), *([""] if claims else [])]
        told += [_cost_line(outcome), f"results: {outcome.folder}"]
        return told if picture is None else [*told, f"plot: {picture}"]

    answer_with(answer, lines, json)


def _cell(cell: Any, record: Any) -> Any:
    """A cell with its quantities, cost and file; null for what is not finished."""
    from posbias.reports.answers.experiments import StudyCell

    result, cost = (record.result, record.header.cost) if record else ({}, None)
    held = {name: result.get(name) for name in ("quantities", "about")}
    return StudyCell.of(cell, file=record and record.path, cost=cost, **held)


def _cell_lines(outcome: "Outcome") -> list[str]:
    found = []
    for cell, record in zip(outcome.study.cells(), outcome.records, strict=True):
        name, cost = (
            ("–", "–") if record is None else (record.path.name, f"{record.header.cost['seconds']:.1f} s")
        )
        found.append([cell.label, cost, name])
    return table(["cell", "cost", "file"], found)


def _cost_line(outcome: "Outcome") -> str:
    cost = outcome.cost
    words = f"{outcome.finished:,} of {len(outcome.records):,} cells finished"
    return (
        f"{words}; {cost['seconds']:.1f} s of cells, at most {cost['peak_memory'] / 1e6:,.0f} MB in a process"
    )
