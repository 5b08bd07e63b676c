"""Kim et al. 2026, figure by figure: mean attention scores with their recency probability, and h(j); each judged.

    from posbias_papers.kim2026 import reproduce

    made = reproduce(["fig1", "section3"], out="results/kim2026")
    print(*made.claims["fig1"], sep="\n")

Every figure is one of `figures`, drawn from its tidy table (`table`), which `claims.csv` is put to; `section3`,
the recency probabilities that the text prints, has no picture. Simulations are kept in OUT/cells, where all
figures find those they share.
"""

import logging
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.core.errors import InvalidValueError, whole
from posbias.core.files import clear_leftovers, need_writable
from posbias.core.machine import sequence
from posbias.core.progress import Event, OnEvent
from posbias.core.store import Store, compute
from posbias.simulation import RecencyModel, RecencyResult
from posbias_papers import reproduction
from posbias_papers.closed_forms.layernorm import ReadingName, log_key_factors
from posbias_papers.kim2026.figures import EFFORT, STUDIES, data, effort_of, with_alphas
from posbias_papers.kim2026.table import recorded
from posbias_papers.reproduction import Made, write
from posbias_papers.study import Study

log = logging.getLogger("posbias.papers")
TARGETS = tuple(STUDIES)
"""What can be made, by name."""
CLOSED_FORMS = ("fig2", "fig7")
"""The figures that draw a closed form."""
LEAST_SAMPLES = 3
"""Fewer have no standard error once a slope is fitted."""


@dataclass(frozen=True, eq=False)
class Reproduction(reproduction.Reproduction):
    """What was made: studies by name, and the simulations behind them."""

    def as_dict(self) -> dict[str, Any]:
        """Everything but the pictures themselves, for JSON."""
        import pandas as pd

        frame = pd.concat([made.table for made in self.made.values()])
        numbers = data(frame.loc[~frame.index.duplicated()])
        figures, files = ([str(path) for path in paths] for paths in (self.figures, self.files))
        numbers = {name: numbers[name] for name in ("cells", "published")}
        return {"figures": figures, "files": files, "claims": super().as_dict()["claims"]} | numbers


def reproduce(
    what: str | Iterable[str] = "all",
    *,
    out: str | os.PathLike[str],
    samples: int = 1_000_000,
    seed: int = 0,
    threads: int | None = None,
    reading: ReadingName | None = None,
    alphas: Sequence[float] | None = None,
    again: bool = False,
    on_event: OnEvent | None = None,
) -> Reproduction:
    """Make some of `TARGETS`, or all, in the folder `out`: pictures, pages, tables (CSV) and JSON.

    `samples` are drawn of every model, but for the paper's ten million by seed 0, which are on record. `reading`
    is the closed form drawn as a line in Figures 2 and 7 (default: corrected); `alphas` are the anisotropies of
    Figures 2, 5, 6 and 7, 0 first and rising; `again` draws all samples anew. Raises `InvalidValueError` for an
    unknown name, fewer than 3 samples, a seed that is no integer ≥ 0, threads < 1, alphas that cannot be shown, or
    a reading that is none or where no closed form is drawn; `OutputFileError`, before any work if `out` cannot be
    written; `MissingPackageError` without matplotlib; KeyboardInterrupt on Ctrl-C, saying what is kept; and as
    `simulate_recency`.
    """
    from posbias.core.machine import cores
    from posbias.reports.plots.style import new_figure

    began, folder, asked = time.monotonic(), Path(out), with_alphas(alphas)
    wanted = [what] if isinstance(what, str) else [*what]
    names = asked.find(wanted)
    whole("samples", samples, LEAST_SAMPLES)
    if reading is not None and not set(names) & set(CLOSED_FORMS):
        raise InvalidValueError(
            f"reading: given with {', '.join(names)}, which shows no closed form; fig2, fig7 or all needed"
        )
    # whatever can be wrong is so before any sample is drawn
    sequence(seed, "check")
    cores(threads)
    log_key_factors(1, 16, reading=reading or "corrected")
    need_writable(folder / "cells" / "cell.json")
    new_figure()
    store = Store(folder / "cells")
    store.clear_leftovers()
    clear_leftovers(folder)
    if (samples, seed, alphas, again) == (EFFORT["full"], 0, None, False):
        log.info("drawn from the simulations on record, %s samples; --rerun draws them anew", f"{samples:,}")
        frames = {name: recorded(asked[name].cells) for name in names}
        made = {name: _drawn(asked[name], frame, samples, reading, folder) for name, frame in frames.items()}
        return Reproduction(made, {}, (), time.monotonic() - began)
    models = dict.fromkeys(model for name in names for model in asked[name].cells)
    results, new = _simulated(models, store, samples, seed, threads, again, on_event)
    made: dict[str, Made] = {}
    for name in names:
        own = {model: results[model] for model in asked[name].cells}
        least = min(result.samples for result in own.values())
        made[name] = _drawn(asked[name], asked[name].table(own), least, reading, folder)
    return Reproduction(made, results, new, time.monotonic() - began)


def _drawn(study: Study, table: Any, samples: int, reading: ReadingName | None, folder: Path) -> Made:
    """A study written from its tidy table; `samples` are those of the least sampled model."""
    options = {"reading": reading or "corrected"} if study.name in CLOSED_FORMS else {}
    return write(study, table, effort_of(samples), folder, **options)


def _simulated(
    models: Iterable[RecencyModel],
    store: Store,
    samples: int,
    seed: int,
    threads: int | None,
    again: bool,
    on_event: OnEvent | None,
) -> tuple[dict[RecencyModel, RecencyResult], list[RecencyModel]]:
    """The simulation of every model with at least `samples` samples, and which were drawn: the store had none."""
    from posbias_papers.simulation.cell import RecencyCell

    cells = [RecencyCell(model, seed, samples, threads) for model in models]
    done = compute(cells, store, again=again, on_event=on_event)
    if on_event and not done.new:
        on_event(Event(0, 0, "sample"))
    return {cell.model: result for cell, result in done.results().items()}, [cell.model for cell in done.new]
