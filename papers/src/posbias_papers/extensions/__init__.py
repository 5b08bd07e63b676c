"""Our own studies, which belong to no paper: a module each, and a page of the documents that says what was found.

    from posbias_papers.extensions import EXTENSIONS, influence, make

    files = make(EXTENSIONS["designed"], "results/extensions")

`posbias paper extensions NAME` does the same. They are studies without claims: none of them judges a paper.
"""

import os
from pathlib import Path

from posbias.core.files import need_writable
from posbias.core.progress import OnEvent
from posbias.core.running import Engine
from posbias.core.store import Store, compute
from posbias_papers.extensions import designed, influence, ordering, predictors, second_model
from posbias_papers.extensions.cells import on_record
from posbias_papers.study import Studies, Study

__all__ = ["EXTENSIONS", "make", "on_record"]

EXTENSIONS = Studies(module.STUDY for module in (designed, ordering, predictors, influence, second_model))
"""By name."""


def make(
    study: Study,
    out: str | os.PathLike[str],
    *,
    rerun: bool = False,
    engine: Engine | None = None,
    on_event: OnEvent | None = None,
) -> tuple[Path, ...]:
    """Write a study of ours to the folder `out`, as `posbias_papers.reproduction.write`; return the files.

    Cells on record or in OUT/cells are used unless `rerun`. Raises `OutputFileError` before any work if `out`
    cannot be written, `MissingPackageError` without matplotlib or torch where it needs them, KeyboardInterrupt on
    Ctrl-C (finished cells are kept).
    """
    from posbias_papers.reproduction import write

    folder = Path(out)
    need_writable(folder / f"{study.name}.md")
    known = {} if rerun else on_record(study.cells)
    missing = [cell for cell in study.cells if cell not in known]
    done = compute(missing, Store(folder / "cells"), engine=engine, again=rerun, on_event=on_event)
    known |= done.results()
    made = write(study, {cell: known[cell] for cell in study.cells}, "", folder)
    return *made.files, *made.figures
