"""Kim et al. 2026, figure by figure: mean attention scores with their recency probability, and h(j); each judged.

    from posbias.papers.kim2026 import reproduce

    made = reproduce(["fig1", "section3"], out="results/kim2026")
    print(*made.claims["fig1"], sep="\n")

Every figure is written as SVG and PNG with a page of text (NAME.md: numbers and claims) and the same as JSON;
`section3`, the recency probabilities that the text prints, has no picture. Simulations are kept in `cells`, where
all figures find those they share. `figures` says what is shown, `statements` what is claimed (`forms`: of closed
forms; `effects`: from what numbers), `pages` how it is written, `table` what is printed in the paper.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.claims import Claim
from posbias.errors import InvalidValueError
from posbias.files import need_writable
from posbias.papers import find_figures
from posbias.papers.cells import find_cell, gather
from posbias.papers.kim2026.figures import (
    ALPHAS,
    FIGURES,
    SURE,
    HeatMaps,
    KeyFactors,
    draw,
    key_factor_ratios,
)
from posbias.papers.kim2026.pages import Page, page_of
from posbias.papers.kim2026.statements import SECTION3
from posbias.papers.kim2026.table import (
    SAMPLES,
    Check,
    Results,
    cell_as_dict,
    check_published,
    describe,
    write_tables,
)
from posbias.plots.style import new_figure, save_figure
from posbias.seeds import sequence
from posbias.simulate import RecencyModel
from posbias.theory.layernorm import ReadingName, log_key_factors
from posbias.theory.rollout import cores

__all__ = [
    "ALPHAS",
    "FIGURES",
    "FULL",
    "QUICK",
    "SURE",
    "TARGETS",
    "HeatMaps",
    "KeyFactors",
    "Reproduction",
    "describe",
    "draw",
    "key_factor_ratios",
    "reproduce",
]

TARGETS = (*FIGURES, "section3")
"""What can be made, by name."""
QUICK = 1_000_000
"""Samples of every model at the quick effort: under a minute for all figures."""
FULL = SAMPLES
"""The paper's samples."""
LEAST_SAMPLES = 3
"""Fewer have no standard error once a slope is fitted."""
KINDS = ("svg", "png")


@dataclass(frozen=True)
class Reproduction:
    """What was made: pictures, pages by name, the simulations behind them, and the printed numbers checked."""

    figures: tuple[Path, ...]
    files: tuple[Path, ...]
    table: Path
    pages: Mapping[str, Page]
    results: Results
    checks: tuple[Check, ...]

    @property
    def claims(self) -> dict[str, Sequence[Claim]]:
        """Claims by figure."""
        return {name: page.claims for name, page in self.pages.items()}

    def as_dict(self) -> dict[str, Any]:
        """Everything but the pictures themselves, for JSON."""
        return {
            "figures": [str(path) for path in self.figures],
            "files": [str(path) for path in self.files],
            "claims": {name: [claim.as_dict() for claim in claims] for name, claims in self.claims.items()},
            "cells": [cell_as_dict(result) for result in self.results.values()],
            "published": [check.as_dict() for check in self.checks],
        }


def reproduce(
    what: str | Iterable[str] = "all",
    *,
    out: str | os.PathLike[str],
    samples: int = QUICK,
    seed: int = 0,
    threads: int | None = None,
    reading: ReadingName | None = None,
    again: bool = False,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Reproduction:
    """Make some of `TARGETS`, or all, in the folder `out`: pictures, pages, JSON, and table.csv and table.json.

    `samples` are drawn of every model (`QUICK`, `FULL`, or any number). The tables hold every cell of `out` with
    this seed, those of other figures too. `reading` is the closed form drawn as a line in Figures 2 and 7
    (default: corrected); `again` draws all samples anew. `progress` and `say` as in `gather`. Raises
    `InvalidValueError` for an unknown name, fewer than 3 samples, a seed that is no integer ≥ 0, threads < 1, or a
    reading that is none or where no closed form is drawn; `OutputFileError`, before any work if `out` cannot be
    written; `MissingPackageError` without matplotlib; and as `gather` does.
    """
    folder, names = Path(out), _names(what)
    if samples < LEAST_SAMPLES:
        raise InvalidValueError(f"samples: {samples} given, an integer ≥ {LEAST_SAMPLES} needed")
    shown = {name: FIGURES[name] for name in names if name in FIGURES}
    if reading is not None and not any(isinstance(figure, KeyFactors) for figure in shown.values()):
        raise InvalidValueError(
            f"reading: given with {', '.join(names)}, which shows no closed form; fig2, fig7 or all needed"
        )
    # whatever can be wrong is so before any sample is drawn
    sequence(seed, "check")
    cores(threads)
    log_key_factors(1, 16, reading=reading or "corrected")
    cells = folder / "cells"
    need_writable(cells / "cell.json")
    new_figure()
    models = dict.fromkeys(model for name in names for model in _models(name))
    common = {"samples": samples, "seed": seed, "threads": threads, "again": again}
    results = gather(models, cells, progress=progress, say=say, **common)
    if say:
        say(f"drawing {', '.join(names)} …")
    figures: list[Path] = []
    files: list[Path] = []
    pages = {name: page_of(name, results, QUICK, FULL) for name in names}
    for name, page in pages.items():
        if name in shown:
            figure = draw(shown[name], results, reading or "corrected")
            figures += [save_figure(figure, folder / f"{name}.{kind}") for kind in KINDS]
        files += page.write(folder, name)
    known = dict.fromkeys(model for name in TARGETS for model in _models(name))
    found = {model: results.get(model) or find_cell(cells, model, seed, 1, lambda _: None) for model in known}
    table = write_tables([result for result in found.values() if result], folder)
    return Reproduction(tuple(figures), tuple(files), table, pages, results, check_published(results))


def _models(name: str) -> tuple[RecencyModel, ...]:
    return FIGURES[name].needed if name in FIGURES else SECTION3


def _names(what: str | Iterable[str]) -> list[str]:
    """What is meant, in the order of `TARGETS`."""
    asked = [what] if isinstance(what, str) else list(what)
    if not asked:
        raise InvalidValueError(f"what: nothing given, some of {', '.join(TARGETS)} or all needed")
    found = {name for one in asked for name in find_figures(one, TARGETS)}
    return [name for name in TARGETS if name in found]
