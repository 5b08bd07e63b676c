"""Wu et al. 2025, Table 1, Figures 1 to 24: retrieval experiments are trained, drawn and judged.

    from posbias_papers.wu2025 import QUICK, reproduce

    made = reproduce(["fig2", "fig3"], out="results/wu2025", effort=QUICK)
    print(*made.claims["fig2"], sep="\n")

Every figure is one of `figures`; 19 and 24 are captions of others. Each is written as SVG and PNG, as a page
(the gap of every cell with loss and in-context accuracy, what rollouts predict of the gaps, the claims), as JSON
and as its tidy table (`table`), which `claims.csv` is put to. Trained cells are kept in OUT/cells, where every
figure finds those it shares with others; an interrupted run goes on from there. `settings` says what is trained,
`recorded` what comes along trained.
"""

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.core.files import need_writable
from posbias.core.progress import OnEvent
from posbias.core.running import Engine
from posbias_papers import reproduction
from posbias_papers.reproduction import write
from posbias_papers.wu2025 import pages
from posbias_papers.wu2025.figures import STUDIES
from posbias_papers.wu2025.outcomes import outcome_of
from posbias_papers.wu2025.recorded import compared_with, records
from posbias_papers.wu2025.settings import FULL, QUICK, Effort, Setting, effort_of

if TYPE_CHECKING:
    from posbias.training.experiments import Experiment
    from posbias_papers.wu2025.outcomes import Outcome

log = logging.getLogger("posbias.papers")
__all__ = [
    "FULL",
    "QUICK",
    "STUDIES",
    "Effort",
    "Reproduction",
    "Setting",
    "effort_of",
    "outcome_of",
    "reproduce",
    "train",
]


@dataclass(frozen=True, eq=False)
class Reproduction(reproduction.Reproduction):
    """What was made: studies by name, and what the trained cells say, by setting."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows of the gaps of all cells, in words; where nothing is trained, of the first table."""
        own = (table for page in self.pages.values() for table in page.tables)
        first = pages.gaps_table(self.results) if self.results else next(own, None)
        return ([*first.head], [[*row] for row in first.rows]) if first else ([], [])

    def as_dict(self) -> dict[str, Any]:
        """Everything but the pictures themselves, for JSON."""
        return super().as_dict() | {"cells": pages.cells(self.results)}


def reproduce(
    what: str | Iterable[str] = "all",
    *,
    out: str | os.PathLike[str],
    effort: Effort = QUICK,
    again: bool = False,
    recorded: bool = True,
    device: str = "cpu",
    workers: int | None = None,
    engine: Engine | None = None,
    gpus_per_cell: float = 0,
    on_event: OnEvent | None = None,
) -> Reproduction:
    """Train what some of `STUDIES`, or all, need and the folder `out` has not, and draw them there.

    What is on record at this effort is not trained, unless `recorded` is False or `again` True. `again`,
    `device`, `workers`, `engine`, `gpus_per_cell` and `on_event`, which hears of iterations, as in `run_cells`.
    Raises `InvalidValueError` for an unknown figure, `OutputFileError`, before any work if `out` cannot be
    written, `MissingPackageError` without matplotlib, and as `run_cells` does.
    """
    from posbias.reports.plots.style import new_figure

    began, folder, names = time.monotonic(), Path(out), STUDIES.find(what)
    need_writable(folder / "cells" / "cell.nc")
    new_figure()  # is matplotlib there?
    experiments = _experiments(names, effort)
    results: dict[Setting, Outcome] = {}
    missing: list[Setting] = []
    others: dict[Setting, Outcome] = {}
    if experiments:  # nothing is trained for Figure 1, and torch need not be there
        from posbias.training.cells import run_cells

        missing = _missing(experiments, folder / "cells", again)
        known = _known(effort, missing) if recorded and not again else {}
        missing = [setting for setting in missing if setting not in known]
        trained = [setting for setting in experiments if setting not in known]
        cells = run_cells(
            [experiments[setting] for setting in trained],
            folder / "cells",
            again=again,
            sequences=effort.sequences,
            device=device,
            workers=workers,
            engine=engine,
            gpus_per_cell=gpus_per_cell,
            on_event=on_event,
        )
        made = {setting: outcome_of(cell) for setting, cell in zip(trained, cells, strict=True)} | known
        results = {setting: made[setting] for setting in experiments}
        others = compared_with(effort, results) if known else {}
    written = {}
    for name in names:
        frame = STUDIES[name].table(others | results)
        written[name] = write(STUDIES[name], frame, effort.name, folder)
    return Reproduction(written, results, missing, time.monotonic() - began)


def train(
    what: str | Iterable[str] = "all",
    *,
    out: str | os.PathLike[str],
    effort: Effort = QUICK,
    **settings: Any,
) -> "list[Experiment]":
    """Train what some of `STUDIES` need and OUT/cells has not, and keep the weights untested; what they need.

    `settings`, and what is raised, as of `run_cells`; `reproduce` with the same tests and draws.
    """
    from posbias.training.cells import run_cells

    experiments = [*_experiments(STUDIES.find(what), effort).values()]
    run_cells(experiments, Path(out) / "cells", sequences=effort.sequences, tests=False, **settings)
    return experiments


def _experiments(names: Iterable[str], effort: Effort) -> "dict[Setting, Experiment]":
    settings = dict.fromkeys(setting for name in names for setting in STUDIES[name].cells)
    return {setting: effort.experiment(setting) for setting in settings}


def _missing(experiments: "Mapping[Setting, Experiment]", folder: Path, again: bool) -> list[Setting]:
    """The settings that a folder has no cell of; with `again` all."""
    from posbias.training.cells import find_cell

    return [setting for setting, one in experiments.items() if again or find_cell(folder, one) is None]


def _known(effort: Effort, missing: Sequence[Setting]) -> "dict[Setting, Outcome]":
    """Those of the missing settings that are on record at an effort, said to the log."""
    known = records(effort, missing)
    if known:
        words = "%d of %d cells are taken from recorded results (%s), not trained; --rerun trains them"
        log.info(words, len(known), len(missing), effort.name)
    return known
