"""Train the figures' networks at the paper's iterations, step by step, onto the record.

    python -m posbias_papers.wu2025.networks        # trains what is missing; the same command resumes
    python -m posbias_papers.wu2025.networks left   # how much is left

Three networks a cell, with embeddings as in the authors' code, tested on 10,000 sequences. A finished cell stands
in `records.jsonl` at once; what has begun has a checkpoint in the folder. As many cells train at a time as the
process may use cores (`taskset`, `CORES`).
"""

import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from posbias.core.progress import Event, OnEvent, on_stderr
from posbias_papers.wu2025 import STUDIES, Setting, effort_of, record_cells
from posbias_papers.wu2025.outcomes import records

EFFORT = effort_of(100_000, 3)
ORDER = (
    ("fig3", "fig6", "fig7", "fig8"),
    ("fig2",),
    ("fig11", "fig12"),
    ("fig15", "fig16", "fig17", "fig18", "fig22", "fig23"),
    ("fig5",),
    ("fig13", "fig14"),
)
"""What is trained first decides most claims that rest on nothing."""
FOLDER = Path("results/networks")


def missing() -> Iterator[tuple[str, list[Setting]]]:
    """The figures of each step, and those of their settings that are neither on record nor in a step before."""
    seen: set[Setting] = set()
    for names in ORDER:
        wanted = [cell for name in names for cell in STUDIES[name].cells if cell not in seen]
        seen.update(wanted)
        known = records(EFFORT, wanted)
        yield ", ".join(names), sorted({*wanted} - known.keys(), key=lambda cell: (cell.depth, str(cell)))


def left() -> list[str]:
    """A line for each step: its figures, how many cells are missing, hours of two idle cores."""
    return [f"{names}: {len(cells)} cells, {EFFORT.minutes(cells) / 60:.1f} h" for names, cells in missing()]


def train(cores: int, folder: Path = FOLDER) -> None:
    """Train all that is missing, `cores` cells at a time. Raises as `run_cells`."""
    from posbias.cli.output import progress
    from posbias.training.cells import run_cells

    with on_stderr():
        record_cells(folder)  # of a run that was killed before it could
        for names, cells in missing():
            print(f"{names}: {len(cells)} cells", flush=True)
            planned = [EFFORT.experiment(cell) for cell in cells]
            with progress() as on_event:
                heard = partial(_recording, on_event, folder, {*folder.glob("*.nc")})
                run_cells(planned, folder, sequences=EFFORT.sequences, workers=cores, on_event=heard)
            record_cells(folder)


def _recording(on_event: OnEvent, folder: Path, known: set[Path], event: Event) -> None:
    """Pass an event on, and put a cell on record as soon as it is finished."""
    on_event(event)
    if finished := {*folder.glob("*.nc")} - known:
        known |= finished
        record_cells(folder)


if __name__ == "__main__":
    if sys.argv[1:] == ["left"]:
        print(*left(), sep="\n")
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            train(int(os.environ.get("CORES", len(os.sched_getaffinity(0)))))
        except KeyboardInterrupt as interruption:
            sys.exit(f"interrupted: {interruption}")
