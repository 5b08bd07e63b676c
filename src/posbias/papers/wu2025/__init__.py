"""Wu et al. 2025, Figures 2 to 24: the retrieval experiments trained, drawn and judged.

    from posbias.papers.wu2025 import make

    made = make(["fig2", "fig3"], "results/wu2025", quick=True)
    print(*made.claims["fig2"], sep="\n")

Each figure is written as SVG and PNG with its claims beneath, as a page of text (NAME.md: the gap of every cell
with loss and in-context accuracy, the claims, what rollouts predict of the gaps) and as JSON. Trained cells are
kept in `cells`, where every figure finds those it shares with others; an interrupted run goes on from there.
`figures` says what is trained; `statements`, `training_data` and `sinks` what is claimed.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.claims import Judged
from posbias.execution import Engine
from posbias.files import need_writable, write_text
from posbias.papers import find_figures
from posbias.papers.wu2025.drawing import Outcome, Outcomes, claims_of, draw
from posbias.papers.wu2025.figures import FIGURES, FULL, GROUPS, QUICK, Effort, Setting, settings_of
from posbias.papers.wu2025.gaps import Gaps
from posbias.papers.wu2025.sinks import Sinks
from posbias.papers.wu2025.tables import HEAD, page_of, row_of, rows_of
from posbias.plots.style import new_figure, save_figure
from posbias.store import save_json

if TYPE_CHECKING:
    from posbias.training.kernels import Rollout
    from posbias.training.probes import Evaluation
    from posbias.training.results import Cell

__all__ = ["FIGURES", "FULL", "GROUPS", "QUICK", "Effort", "Made", "Setting", "make", "outcome_of"]
KINDS = ("svg", "png")


@dataclass(frozen=True)
class Made:
    """What was drawn: files, claims by figure, and what the trained cells say, by setting."""

    files: tuple[Path, ...]
    claims: Mapping[str, Sequence[Judged]]
    outcomes: Outcomes
    seconds: float

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows of the gaps of all cells, in words."""
        return [*HEAD], [row_of(setting, one.gaps) for setting, one in self.outcomes.items()]

    def as_dict(self) -> dict[str, Any]:
        """Everything but the pictures themselves, for JSON."""
        return {
            "files": [str(path) for path in self.files],
            "claims": {name: [claim.as_dict() for claim in claims] for name, claims in self.claims.items()},
            "cells": [row for setting, one in self.outcomes.items() for row in rows_of(setting, one.gaps)],
            "seconds": self.seconds,
        }


def make(
    figures: str | Iterable[str],
    folder: str | os.PathLike[str],
    *,
    quick: bool = True,
    effort: Effort | None = None,
    again: bool = False,
    device: str = "cpu",
    workers: int | None = None,
    engine: Engine | None = None,
    gpus_per_cell: float = 0,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Made:
    """Train what the figures need and `folder` has not, and draw them there.

    `figures` are names of `FIGURES` or `GROUPS`, or "all". `quick` takes `QUICK`, else `FULL`; `effort` takes
    the place of both. `again`, `device`, `workers`, `engine` and `gpus_per_cell` as in `run_cells`; `progress` is
    called with (iterations done, to do), `say` with the name of each figure that is drawn. Raises
    `InvalidValueError` for an unknown figure, `OutputFileError`, before any work if `folder` cannot be written,
    and as `run_cells` does.
    """
    from posbias.training.cells import run_cells

    began = time.monotonic()
    folder, names = Path(folder), _names(figures)
    spent = effort or (QUICK if quick else FULL)
    need_writable(folder / "cells" / "cell.nc")
    new_figure()  # is matplotlib there?
    settings = list(dict.fromkeys(setting for name in names for setting in settings_of(FIGURES[name])))
    cells = run_cells(
        [spent.experiment(setting) for setting in settings],
        folder / "cells",
        again=again,
        sequences=spent.sequences,
        device=device,
        workers=workers,
        engine=engine,
        gpus_per_cell=gpus_per_cell,
        on_event=progress and (lambda event: progress(int(event.done), int(event.total or 0))),
    )
    outcomes = {setting: outcome_of(cell) for setting, cell in zip(settings, cells, strict=True)}
    files: list[Path] = []
    claims = {name: claims_of(FIGURES[name], outcomes) for name in names}
    for name in names:
        if say:
            say(f"drawing {name} …")
        files += _write(name, folder, outcomes, claims[name], spent)
    return Made(tuple(files), claims, outcomes, time.monotonic() - began)


def outcome_of(cell: "Cell") -> Outcome:
    """What figures and claims need of a finished cell."""
    from posbias.training.kernels import agreement

    evaluation = cell.evaluation
    gaps = Gaps(
        {name: gap.over_all.values for name, gap in evaluation.gaps.items()},
        evaluation.in_context_accuracy.values,
        evaluation.loss.values,
        {name: gap.over_informative.values for name, gap in evaluation.gaps.items()},
    )
    counted, whole = cell.sinks, np.isfinite(gaps.loss)
    metrics = (counted.metric()[whole], counted.metric_untrained()[whole], counted.metric_uniform())
    sinks = Sinks(*metrics, gaps.learnt[whole])
    agreements = agreement(*_learnt_only(cell.rollout, evaluation, gaps.learnt))
    return Outcome(gaps, sinks, cell.attention[0], cell.trained, agreements)


def _learnt_only(
    rollout: "Rollout", evaluation: "Evaluation", learnt: np.ndarray
) -> "tuple[Rollout, Evaluation]":
    """Profiles and gaps without the networks that have not learnt: their gaps say nothing of position."""
    profiles = {name: np.where(learnt[:, None], one, np.nan) for name, one in rollout.profiles.items()}
    gaps = {
        pair: replace(
            gap, over_all=gap.over_all.only(learnt), over_informative=gap.over_informative.only(learnt)
        )
        for pair, gap in evaluation.gaps.items()
    }
    return replace(rollout, profiles=profiles), replace(evaluation, gaps=gaps)


def _names(figures: str | Iterable[str]) -> list[str]:
    """The figures meant, groups taken apart, in their order."""
    asked = [figures] if isinstance(figures, str) else list(figures)
    found = [name for one in asked for name in find_figures(one, (*FIGURES, *GROUPS))]
    parts = {part for name in found for part in GROUPS.get(name, (name,))}
    return [name for name in FIGURES if name in parts]


def _write(
    name: str, folder: Path, outcomes: Outcomes, claims: Sequence[Judged], spent: Effort
) -> list[Path]:
    """A figure's pictures, page and JSON."""
    figure = FIGURES[name]
    shown = {setting: outcomes[setting] for setting in dict.fromkeys(settings_of(figure))}
    picture = draw(figure, shown, claims, spent.describe(shown))
    files = [save_figure(picture, folder / f"{name}.{kind}") for kind in KINDS]
    gaps = {setting: one.gaps for setting, one in shown.items()}
    predicted = {setting: one.agreements for setting, one in shown.items()}
    files.append(
        write_text(folder / f"{name}.md", page_of(name, gaps, claims, spent.describe(shown), predicted))
    )
    about = {
        "figure": name,
        "effort": spent.name,
        "claims": [claim.as_dict() for claim in claims],
        "cells": [row for setting, one in gaps.items() for row in rows_of(setting, one)],
        "predicted": {
            str(setting): {profile: one.as_dict() for profile, one in agreements.items()}
            for setting, agreements in predicted.items()
        },
    }
    return [*files, save_json(about, folder / f"{name}.json")]
