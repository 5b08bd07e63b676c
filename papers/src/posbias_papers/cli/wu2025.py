"""`posbias paper wu2025`: the figures of Wu et al. 2025."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli import options as shared
from posbias.cli.output import progress
from posbias.cli.train import answer_untested
from posbias.core.arguments import whole
from posbias.core.text_tables import table
from posbias_papers.cli.claims import answer_reproduction, claim_lines, claims_alone

if TYPE_CHECKING:
    from posbias_papers.wu2025 import Effort as Spent


@shared.options
class Options:
    """How much is trained, on what, and where it goes.

    Parameters
    ----------
    effort
        quick (minutes of a laptop: 3 networks per cell, 1,000 to 2,500 iterations, 2,000 test sequences), full
        (the paper's: 5 networks, 100,000 iterations, 10,000 sequences), or any number of iterations, otherwise as
        full. Cells on record at this effort are not trained, unless --rerun.
    middle
        The item, from 0, that gaps call the middle: 3 is the text's fourth of eight. Default: 4, as the code.
    out
        The folder to write to.
    """

    effort: shared.Effort = "quick"
    networks: shared.Networks = None
    middle: shared.Whole | None = None
    out: shared.Out = Path("results/wu2025")
    device: shared.Device = "cpu"
    threads: shared.TrainingThreads = None
    ray: shared.Ray = None
    gpus_per_cell: shared.GpusPerCell = 0
    no_tests: shared.NoTests = False
    rerun: shared.Rerun = False
    json: shared.Json = False


def wu2025(*what: str, options: Options = Options()) -> None:
    """Train the retrieval experiments of Wu et al. 2025 and draw their figures, each with its claims judged.

    Figures are written as SVG and PNG, beside a page with the gap of every cell (.md) and the same as JSON.
    Trained cells are kept, and used by every figure that needs them; after Ctrl-C the same command goes on.

    Parameters
    ----------
    what
        The figures, fig1 to fig24, table1, curves for learning curves, windows and anisotropy for gaps by
        window and by what a vocabulary shares, or all; claims prints the claims with their
        verdicts. Default: fig2.
    """
    if claims_alone(what, "wu2025", options.out, options.json):
        return
    shared.check_threads(options.threads)
    settings: dict[str, Any] = {
        "effort": _spent(options.effort, options.networks, options.middle),
        "device": options.device,
        "workers": options.threads,
        "engine": shared.engine(None, options.ray, options.threads),
        "gpus_per_cell": options.gpus_per_cell,
    }
    if options.no_tests:
        _train(what or "fig2", options, settings)
        return
    answer_reproduction(
        "wu2025",
        what or "fig2",
        options,
        lambda made: [
            *table(*made.table()),
            *claim_lines(made, [f"file: {path}" for path in made.written]),
        ],
        **settings,
    )


def _train(what: Sequence[str] | str, options: Options, settings: dict[str, Any]) -> None:
    """Train the cells of some figures, and test none."""
    from posbias_papers.wu2025 import train

    with progress() as on_event:
        experiments = train(what, out=options.out, again=options.rerun, on_event=on_event, **settings)
    answer_untested(options.out / "cells", experiments, options.json)


def _spent(effort: str | int, networks: int | None, middle: int | None = None) -> "Spent":
    """The effort of this name or of so many iterations, with so many networks and this middle item.

    Raises `InvalidValueError`.
    """
    from posbias_papers.wu2025.settings import EFFORT, effort_of

    if isinstance(effort, int):
        spent = effort_of(effort, networks)
    elif networks is None:
        spent = EFFORT[effort]
    else:
        seeds = tuple(range(whole("networks", networks, 1)))
        spent = replace(EFFORT[effort], name=f"{effort}, {networks} networks", seeds=seeds)
    return spent if middle is None else spent.with_middle(middle)
