"""Herasimchyk et al. 2026, Tables 1 to 6 and Figures 1 to 5, for any models: measured, predicted, judged.

    from posbias_papers.reproduction import reproduce

    made = reproduce("herasimchyk2026", ["table2", "fig2"], out="results/herasimchyk2026", models=["tiny-alibi"])
    print(*made.claims["table2"], sep="\n")

Measurements are kept in OUT/cells (`measure`) and read as levels (`levels`) and other statistics (`quantities`);
`table` makes tidy tables of them, which `claims.csv` is put to and `figures` draws. `configs` has the paper's own
numbers.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from posbias.core.errors import MissingPackageError, ModelError, one_of, whole
from posbias.core.progress import OnEvent
from posbias.measurement.job import MeasurementJob
from posbias_papers.herasimchyk2026.configs import LENGTHS, PROMPTS, TOKENS, Reading
from posbias_papers.herasimchyk2026.figures import STUDIES, missing
from posbias_papers.herasimchyk2026.levels import config_curves
from posbias_papers.herasimchyk2026.measure import check, gather
from posbias_papers.herasimchyk2026.table import Measured
from posbias_papers.study import Paper, Tables

log = logging.getLogger("posbias.papers")
__all__ = ["MODELS", "PAPER", "STUDIES", "tables"]

MODELS = ("tiny-alibi", "smollm2-135m")
"""The models that are at hand without a hub: an ALiBi model, which comes along, and one with rotary encoding."""
EFFORTS = {"quick": 32, "full": PROMPTS}
"""The most prompts of each cell."""
LONGEST = 512
"""Tokens at which λ is measured below the effort full, at most."""


def tables(
    wanted: Sequence[str],
    folder: Path,
    *,
    effort: str | int = "quick",
    again: bool = False,
    on_event: OnEvent | None = None,
    models: Sequence[str] | None = None,
    corpora: Sequence[str | None] = (None,),
    scramble: bool | None = None,
    documents: bool = False,
    loading: Mapping[str, Any] | None = None,
    tokens: int = TOKENS,
    lengths: Sequence[int] | None = None,
    reading: Reading = "corrected",
    configs: str | os.PathLike[str] | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Tables:
    """The tables of some studies; what they need and FOLDER/cells has not is measured first.

    `models`: names, folders, hub ids or `.nc` of finished measurements (default: `MODELS`, or the first where the
    other cannot be had); none where `configs`, a folder of the
    authors' rollout files, is enough. `corpora`: texts as `measure` reads them (`None`: the bundled one);
    `scramble` adds the first text with the tokens of each prompt shuffled (default: where fig4 is one of some
    studies, with one text); `documents` are prompts of the beginnings of documents, not windows of the text.
    `loading`: arguments of `posbias.measurement.load_model`. `effort`: quick (32 prompts of each cell), full
    (1,000) or their number; fewer where a text has no more. `tokens`: of all but Figures 1 and 4, whose `lengths`
    default to 64, 256, 1,024 and 2,048 (quick: up to 512).

    Raises `InvalidValueError` for an unknown effort or reading and counts that cannot be right, `InputFileError`
    for `configs` that hold nothing, and as `posbias.measure`.
    """
    prompts = effort if isinstance(effort, int) else EFFORTS[one_of("effort", effort, EFFORTS)]
    for name, value, least in (("tokens", tokens, 3), ("seed", seed, 0)):
        whole(name, value, least)
    one_of("reading", reading, ("corrected", "published"))
    if lengths is None:
        longest = LENGTHS[-1] if effort == "full" else LONGEST
        lengths = [*(length for length in LENGTHS if length < longest), longest]
    named = "fig4" in wanted and len(wanted) < len(STUDIES)
    shuffled = named and len(corpora) == 1 if scramble is None else scramble
    asked = MODELS if models is None else models
    if asked or configs is None:
        check(asked, corpora, [*dict.fromkeys((tokens, *lengths))], prompts)
    files = () if configs is None else config_curves(configs, reading, tokens)
    texts = [MeasurementJob(text, prompts=prompts, seed=seed, packed=not documents) for text in corpora]
    texts += [replace(text, scramble=True) for text in texts[:1] if shuffled]
    jobs = [
        replace(text, tokens=length, dense_logits=dense)
        for text in texts
        for length, dense in _lengths(wanted, text is texts[0], tokens, lengths).items()
    ]
    options = {"again": again, "threads": threads, "on_event": on_event, "loading": loading}
    try:
        cells = gather(asked, jobs, folder / "cells", **options)
    except (ModelError, MissingPackageError) as error:
        if models is not None:
            raise
        log.warning("%s; going on with %s alone", error, MODELS[0])
        cells = gather(MODELS[:1], jobs, folder / "cells", **options)
    measured = Measured(cells, files, tokens, reading, seed)
    return _shown(wanted, measured, effort if isinstance(effort, str) else f"{effort} prompts")


def _shown(wanted: Sequence[str], measured: Measured, effort: str) -> Tables:
    """The tables of studies that have something to show, and why others have nothing."""
    frames = {name: STUDIES[name].table(measured) for name in wanted}
    left_out = {name: reason for name, frame in frames.items() if (reason := missing(frame, name))}
    shown = {name: frame for name, frame in frames.items() if name not in left_out}
    return Tables(shown, effort, left_out)


def _lengths(wanted: Sequence[str], first: bool, tokens: int, lengths: Sequence[int]) -> dict[int, bool]:
    """The lengths at which a corpus, the first or another, has to be measured, and where content is kept whole."""
    found = {tokens} if first or {"table4", "table5", "section4"} & {*wanted} else set()
    if "fig4" in wanted or (first and "fig1" in wanted):
        found |= {*lengths}
    dense = first and bool({"table6", "fig5"} & {*wanted})
    return {length: dense and length == tokens for length in sorted(found)}


def _settings(
    names: Sequence[str], *, models: Sequence[str] = (), configs: Any = None, **options: Any
) -> dict[str, Any]:
    """Arguments of `tables` in a run over all papers; Figure 4 wants a second text, of the small model alone."""
    alone = all(STUDIES[name].apart for name in names)
    asked = () if [*models] == ["none"] else models or (MODELS[:1] if alone else None)
    return {"models": asked, "configs": configs, "scramble": alone}


PAPER = Paper(
    "herasimchyk2026",
    STUDIES,
    tables,
    stated=(25, (0.1, 0.5)),
    measured="the paper's models",
    settings=_settings,
)
