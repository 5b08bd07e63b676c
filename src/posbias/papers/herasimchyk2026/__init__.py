"""Herasimchyk et al. 2026, Tables 1 to 6 and Figures 1 to 5, for any models: measured, predicted, judged.

    from posbias.papers.herasimchyk2026 import make

    made = make(["table2", "fig2"], "results/herasimchyk2026", models=["tiny-alibi"])
    print(*made.claims["table2"], sep="\n")

Every table and figure becomes a page of text (NAME.md) with its claims, the same as JSON, and figures SVG and PNG.
Measurements are kept in `cells` and shared. `levels` says what is predicted, `configs` reads the authors' files,
`printed` holds the paper's numbers, `statements` its claims, `standing` says which models stand in for its own.
`section4` is the check of Assumption 4.1.
"""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from posbias.claims import Judged
from posbias.errors import InvalidValueError, nearest
from posbias.files import need_writable
from posbias.papers import find_figures
from posbias.papers.herasimchyk2026.cells import (
    Cells,
    Corpus,
    Effort,
    Progress,
    Say,
    Wanted,
    check,
    gather,
    names,
)
from posbias.papers.herasimchyk2026.configs import config_curves
from posbias.papers.herasimchyk2026.making import MAKERS, NOTHING, Material
from posbias.papers.herasimchyk2026.pages import Page
from posbias.papers.herasimchyk2026.printed import BINS, LENGTHS, PROMPTS, TOKENS, Reading
from posbias.papers.herasimchyk2026.standing import stand_in
from posbias.papers.results import VERSION
from posbias.plots.style import new_figure, save_figure

__all__ = ["FULL", "MODELS", "QUICK", "TARGETS", "Corpus", "Made", "make"]

TARGETS = tuple(MAKERS)
"""What can be made, by name."""
MODELS = ("tiny-alibi", "smollm2-135m")
"""The models that are at hand without a hub: an ALiBi model and one with rotary encoding."""
QUICK = Effort("quick", None, 32, 512)
"""32 prompts (or what the text has), λ at no more than 512 tokens."""
FULL = Effort("full", None, PROMPTS)
"""The paper's 1,000 prompts, or what the text has."""
KINDS = ("svg", "png")


@dataclass(frozen=True)
class Made:
    """What was made: files, pages and claims by name, the cells behind them, and which models stand in."""

    files: tuple[Path, ...]
    pages: Mapping[str, Page]
    cells: Cells
    seconds: float
    stand_in: str = ""

    @property
    def claims(self) -> dict[str, Sequence[Judged]]:
        """Claims by table or figure."""
        return {name: page.claims for name, page in self.pages.items()}

    def as_dict(self) -> dict[str, Any]:
        """Everything but the pictures themselves, for JSON."""
        return {
            "files": [str(path) for path in self.files],
            "claims": {name: [one.as_dict() for one in claims] for name, claims in self.claims.items()},
            "tables": {name: dict(page.data) for name, page in self.pages.items()},
            "cells": [vars(key) for key in self.cells],
            "stand_in": self.stand_in,
            "seconds": self.seconds,
        }


def make(
    what: str | Iterable[str],
    folder: str | os.PathLike[str],
    *,
    models: Sequence[str] = MODELS,
    corpora: Sequence[str | None] = (None,),
    scramble: bool = False,
    prompts: int | None = None,
    tokens: int = TOKENS,
    lengths: Sequence[int] | None = None,
    reading: Reading = "corrected",
    configs: str | os.PathLike[str] | None = None,
    bins: int = BINS,
    quick: bool = True,
    seed: int = 0,
    again: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Made:
    """Measure what the tables and figures `what` need and `folder` has not, and write them there.

    `what` are names of `TARGETS`, or "all". `models`: names, folders, hub ids or `.nc` of finished measurements;
    none where `configs`, a folder of the authors' rollout files, is enough. `corpora`: texts as `measure` reads
    them (`None`: the bundled one); `scramble` adds a control, the first text with the tokens of each prompt
    shuffled. `prompts`: of each cell (default: 32 if `quick`, else 1,000, or as many as a text has). `tokens`: of
    all but Figures 1 and 4, whose `lengths` default to 64, 256, 1,024 and 2,048 (`quick`: up to 512). `bins` are
    those of Table 6. `progress` hears (finished, total) prompts of each cell, `say` hears stages.

    Raises `InvalidValueError` for an unknown name or reading and counts that cannot be right, `OutputFileError`
    before any work if `folder` cannot be written, `InputFileError` for `configs` that hold nothing, and as
    `posbias.measure`.
    """
    began, say = time.monotonic(), say or (lambda line: None)
    folder, wanted = Path(folder), _names(what)
    base = QUICK if quick else FULL
    effort = base if prompts is None else Effort(base.name, prompts, prompts, base.longest)
    if reading not in ("corrected", "published"):
        raise InvalidValueError(f"reading: {reading!r} given, 'corrected' or 'published' needed")
    if lengths is None:
        lengths = [one for one in LENGTHS if effort.longest is None or one <= effort.longest]
        lengths += [effort.longest] if effort.longest is not None else []
    texts = {Corpus(text): None for text in corpora}
    if scramble:
        texts[Corpus(corpora[0] if corpora else None, scramble=True)] = None
    if models or configs is None:
        check(models, corpora, (tokens, *(one for one in lengths if one != tokens)), effort)
    need_writable(folder / "cells" / "cell.nc")
    new_figure()  # is matplotlib there?
    unmeasured = [] if configs is None else config_curves(configs, reading, tokens)
    plan = {corpus: _wanted(wanted, place == 0, tokens, lengths) for place, corpus in enumerate(texts)}
    cells = gather(models, plan, folder / "cells", effort, seed=seed, again=again, progress=progress, say=say)
    given = Material(cells, unmeasured, tokens, reading, bins, seed)
    about = {"effort": effort.name, "version": VERSION, "measured": [*names(cells, "model")]}
    about["stand_in"] = stand_in(about["measured"], (one.model for one in unmeasured))
    files, pages = _write(wanted, given, folder, say, about)
    return Made(tuple(files), pages, cells, time.monotonic() - began, about["stand_in"])


def _write(
    wanted: Sequence[str], given: Material, folder: Path, say: Say, about: Mapping[str, Any]
) -> tuple[list[Path], dict[str, Page]]:
    """Make and write one after another; `about` goes into every JSON, what stands in into every page too."""
    standing = str(about["stand_in"])
    files: list[Path] = []
    pages: dict[str, Page] = {}
    for name in wanted:
        say(f"making {name} …")
        found = MAKERS[name](given)
        if found is None:
            say(f"{name}: left out, {NOTHING[name]}")
            continue
        page, figure = found
        note = f"{page.note} Here {standing}." if standing else page.note
        pages[name] = page = replace(page, note=note, data={**about, **page.data})
        if figure is not None:
            files += [save_figure(figure, folder / f"{name}.{kind}") for kind in KINDS]
        files += page.write(folder, name)
    return files, pages


def _wanted(names: Sequence[str], first: bool, tokens: int, lengths: Sequence[int]) -> Wanted:
    """The lengths at which a corpus, the first or another, has to be measured."""
    found = [tokens] if first or {"table4", "table5", "section4"} & {*names} else []
    if ("fig1" if first else "fig4") in names or (first and "fig4" in names):
        found += [one for one in lengths if one not in found]
    dense = (tokens,) if first and {"table6", "fig5"} & {*names} else ()
    return Wanted(tuple(sorted(found)), dense)


def _names(what: str | Iterable[str]) -> list[str]:
    """What is meant, in the order of `TARGETS`."""
    asked = [what] if isinstance(what, str) else list(what)
    if not asked:
        raise InvalidValueError(
            f"what: nothing given, some of {', '.join(TARGETS)} or all needed{nearest('', ())}"
        )
    found = {name for one in asked for name in find_figures(one, TARGETS)}
    return [name for name in TARGETS if name in found]
