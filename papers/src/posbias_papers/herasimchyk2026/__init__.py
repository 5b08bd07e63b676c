"""Herasimchyk et al. 2026, Tables 1 to 6 and Figures 1 to 5, for any models: measured, predicted, judged.

    from posbias_papers.herasimchyk2026 import reproduce

    made = reproduce(["table2", "fig2"], out="results/herasimchyk2026", models=["tiny-alibi"])
    print(*made.claims["table2"], sep="\n")

Measurements are kept in OUT/cells (`measure`) and read as levels (`levels`) and other statistics (`quantities`);
`table` makes tidy tables of them, which `claims.csv` is put to and `figures` draws. `configs` has the paper's own
numbers.
"""

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.core.errors import InvalidValueError, shortened, whole
from posbias.core.files import need_writable
from posbias.core.formats import VERSION
from posbias.core.progress import OnEvent
from posbias.reports.plots.style import new_figure
from posbias_papers import reproduction
from posbias_papers.herasimchyk2026.configs import BINS, LENGTHS, TOKENS, Reading, stand_in
from posbias_papers.herasimchyk2026.figures import STUDIES
from posbias_papers.herasimchyk2026.levels import config_curves, config_mixing
from posbias_papers.herasimchyk2026.measure import EFFORTS, Corpus, Effort, Key, Lengths, check, gather, names
from posbias_papers.herasimchyk2026.table import Measured
from posbias_papers.reproduction import write

__all__ = ["MODELS", "STUDIES", "TARGETS", "Corpus", "Reproduction", "reproduce"]

log = logging.getLogger("posbias.papers")
TARGETS = tuple(STUDIES)
"""What can be made, by name."""
MODELS = ("tiny-alibi", "smollm2-135m")
"""The models that are at hand without a hub: an ALiBi model and one with rotary encoding."""


@dataclass(frozen=True, eq=False)
class Reproduction(reproduction.Reproduction):
    """What was made: studies by name, and the measurements behind them."""

    effort: str

    def cells_of(self, name: str) -> list[Key]:
        """The measurements behind a study: of the length of the tables, or, in Figures 1 and 4, of all lengths."""
        return [*(self.results.cells if name in ("fig1", "fig4") else self.results.keys)]

    @property
    def stand_in(self) -> str:
        """Which models stand in for the paper's, in a sentence; "" if none does."""
        return stand_in(names(self.results.cells, "model"), (curves.model for curves in self.results.files))

    def as_dict(self) -> dict[str, Any]:
        """Everything but the pictures themselves, for JSON."""
        about = {"effort": self.effort, "version": VERSION}
        tables = {name: {**about, **made.study.data(made.table)} for name, made in self.made.items()}
        cells = [vars(key) for key in self.results.cells]
        return super().as_dict() | {"tables": tables, "cells": cells, "stand_in": self.stand_in}


def reproduce(
    what: str | Iterable[str] = "all",
    *,
    out: str | os.PathLike[str],
    models: Sequence[str] = MODELS,
    corpora: Sequence[str | None] = (None,),
    scramble: bool | None = None,
    documents: bool = False,
    loading: Mapping[str, Any] | None = None,
    prompts: int | None = None,
    tokens: int = TOKENS,
    lengths: Sequence[int] | None = None,
    reading: Reading = "corrected",
    configs: str | os.PathLike[str] | None = None,
    bins: int = BINS,
    layers: Sequence[int] = (),
    heads: Sequence[int] = (),
    quick: bool = True,
    seed: int = 0,
    again: bool = False,
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> Reproduction:
    """Measure what the tables and figures `what` need and the folder `out` has not, and write them there.

    `what` are names of `TARGETS`, or "all". `models`: names, folders, hub ids or `.nc` of finished measurements;
    none where `configs`, a folder of the authors' rollout files, is enough. `corpora`: texts as `measure` reads
    them (`None`: the bundled one); `scramble` adds a control, the first text with the tokens of each prompt
    shuffled (default: where fig4, which wants a second text, is asked for by name with one); prompts are windows
    of the running text, with `documents` the beginnings of documents. `loading`: arguments of
    `posbias.measurement.load_model`, such as dtype and device_map. `prompts`: of each cell (default: 32 if
    `quick`, else 1,000, or as many as a text has). `tokens`: of all but Figures 1 and 4, whose `lengths` default
    to 64, 256, 1,024 and 2,048 (`quick`: up to 512). `bins` are those of Table 6, `layers` and `heads` those of
    Figure 5 (default: four at even steps of R²). `threads` as in `measure`; `on_event` hears of all
    measurements together. What there is nothing to show of is in `Reproduction.left_out`, with the reason.

    Raises `InvalidValueError` for an unknown name or reading and counts that cannot be right, `OutputFileError`
    before any work if `out` cannot be written, `InputFileError` for `configs` that hold nothing, and as
    `posbias.measure`.
    """
    began, folder, asked = time.monotonic(), Path(out), [what] if isinstance(what, str) else [*what]
    wanted = STUDIES.find(asked)
    effort = _effort(EFFORTS["quick" if quick else "full"], prompts)
    _check_chosen(reading, tokens, bins, seed, layers=layers, heads=heads)
    lengths = _up_to(effort.longest or LENGTHS[-1]) if lengths is None else lengths
    shuffled = "fig4" in asked and len(corpora) == 1 if scramble is None else scramble
    texts = _texts(corpora, documents, shuffled)
    if models or configs is None:
        check(models, corpora, (tokens, *(one for one in lengths if one != tokens)), effort)
    need_writable(folder / "cells" / "cell.nc")
    new_figure()  # is matplotlib there?
    given: dict[str, Any] = {}
    if configs is not None:
        given = {"files": config_curves(configs, reading, tokens), "mixings": config_mixing(configs)}
    sizes = ((text, _wanted(wanted, text == texts[0], tokens, lengths)) for text in texts)
    plan = {text: some for text, some in sizes if some}
    new: list[Key] = []
    how = {"seed": seed, "again": again, "threads": threads, "on_event": on_event, "loading": loading}
    cells = gather(models, plan, folder / "cells", effort, new=new, **how)
    chosen = {"bins": bins, "seed": seed, "layers": layers, "heads": heads}
    measured = Measured(cells, tokens=tokens, reading=reading, **given, **chosen)
    made, left_out = {}, {}
    for name in wanted:
        study, frame = STUDIES[name], STUDIES[name].table(measured)
        if reason := study.missing(frame):
            log.info("%s: left out, %s", name, reason)
            left_out[name] = reason
        else:
            made[name] = write(study, frame, effort.name, folder)
    took = time.monotonic() - began
    return Reproduction(made, measured, new, took, effort.name, left_out=left_out)


def _effort(base: Effort, prompts: int | None) -> Effort:
    return base if prompts is None else Effort(base.name, prompts, prompts, base.longest)


def _up_to(longest: int) -> list[int]:
    """The lengths of Figure 1 up to the longest that is measured."""
    return [*(one for one in LENGTHS if one < longest), longest]


def _texts(corpora: Sequence[str | None], documents: bool, shuffled: bool) -> list[Corpus]:
    """What is measured: every corpus, and the first one shuffled where that is asked for."""
    texts = [Corpus(text, documents=documents) for text in corpora]
    return texts + [Corpus(text, scramble=True, documents=documents) for text in corpora[:1] if shuffled]


def _check_chosen(reading: str, tokens: int, bins: int, seed: int, **numbers: Sequence[int]) -> None:
    """Raise `InvalidValueError` for an unknown reading, and no size, layer or head."""
    for name, given, least in (("tokens", tokens, 3), ("bins", bins, 2), ("seed", seed, 0)):
        whole(name, given, least)
    if reading not in ("corrected", "published"):
        raise InvalidValueError(f"reading: {shortened(reading)} given, 'corrected' or 'published' needed")
    for name, chosen in numbers.items():
        for one in chosen:
            whole(name, one, 0)


def _wanted(names: Sequence[str], first: bool, tokens: int, lengths: Sequence[int]) -> Lengths:
    """The lengths at which a corpus, the first or another, has to be measured."""
    found = {tokens} if first or {"table4", "table5", "section4"} & {*names} else set()
    if "fig4" in names or (first and "fig1" in names):
        found |= {*lengths}
    dense = first and bool({"table6", "fig5"} & {*names})
    return {length: dense and length == tokens for length in sorted(found)}
