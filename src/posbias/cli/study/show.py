"""`posbias study show`: what a study found."""

from pathlib import Path
from typing import TYPE_CHECKING

from posbias.cli import options as shared
from posbias.cli.study.outcome import found, tell

if TYPE_CHECKING:
    from posbias.study import Outcome


@shared.options
class Options:
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

    out: shared.StudyOut = None
    quantities: shared.Names = ()
    cells: shared.Flag = False
    plot: Path | None = None
    json: shared.Json = False


def show(file: shared.StudyName, *, options: Options = Options()) -> None:
    """Show what a study found: its cells with their main quantities, its claims with their verdicts, its cost."""
    shared.check_targets(None, options.plot)
    outcome = found(file, options.out)
    picture = None if options.plot is None else _draw(outcome, options.quantities, options.plot)
    tell(outcome, options.json, options.quantities, options.cells, picture)


def _draw(outcome: "Outcome", quantities: tuple[str, ...], path: Path) -> Path:
    """Draw the quantity asked for, or that of the first claim, or the first that is shown."""
    from posbias.reports.plots import new_figure, save_figure
    from posbias.reports.plots.studies import draw_study
    from posbias.study.tables import columns, lines

    named = [*quantities, *(claim.quantity for claim in outcome.study.claims)]
    quantity = columns(outcome, named[:1])[0]
    axis, drawn = lines(outcome, quantity)
    figure = new_figure(5.2, 3.2)
    draw_study(figure.subplots(), drawn, axis, quantity)
    return save_figure(figure, path)
