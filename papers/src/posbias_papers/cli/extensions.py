"""`posbias paper extensions`: our own studies."""

from typing import Annotated

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with, progress
from posbias.core.errors import InvalidValueError, nearest
from posbias.core.lazy import need
from posbias.core.text_tables import table

_RERUN = "Compute cells again that are on record or kept."


def extensions(
    name: str | None = None,
    *,
    out: shared.Results = shared.RESULTS,
    workers: shared.Workers = None,
    rerun: Annotated[shared.Rerun, Parameter(help=_RERUN)] = False,
    json: shared.Json = False,
) -> None:
    """Write the tables and the figure of one of our own studies to OUT/extensions, or list them.

    Parameters
    ----------
    name
        averages, untrained, designed, ordering, predictors or behaviour. Default: list them.
    """
    from posbias_papers.cli.answers import OwnStudy, PaperExtension, PaperExtensions
    from posbias_papers.extensions import EXTENSIONS

    if name is None:
        studies = list(EXTENSIONS.values())
        rows = [
            [
                one.name,
                one.question,
                one.page,
                f"{one.minutes:g}",
                f"{len(one.recorded())} of {len(one.cells)}",
            ]
            for one in studies
        ]
        answer = PaperExtensions.of(extensions=[OwnStudy.of(one) for one in studies])
        head = ["name", "question", "page", "minutes", "cells on record"]
        answer_with(answer, lambda: table(head, rows), json)
        return
    if name not in EXTENSIONS:
        known = ", ".join(EXTENSIONS)
        raise InvalidValueError(f"name: expected one of {known}, got {name!r}{nearest(name, EXTENSIONS)}")
    need("matplotlib", work="drawing", extra="report")
    with progress() as on_event:
        engine = shared.engine(workers)
        files = EXTENSIONS[name].make(out / "extensions", rerun=rerun, engine=engine, on_event=on_event)
    answer = PaperExtension.of(name=name, files=files)
    answer_with(answer, lambda: [*files[0].read_text().splitlines(), *map(str, files)], json)
