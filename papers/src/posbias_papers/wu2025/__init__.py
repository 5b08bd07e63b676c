"""Wu et al. 2025, Table 1, Figures 1 to 24: retrieval experiments are trained, drawn and judged.

    from posbias_papers.reproduction import reproduce

    made = reproduce("wu2025", ["fig2", "fig3"], out="results/wu2025")
    print(*made.claims["fig2"], sep="\\n")

Every figure is one of `figures`; 19 and 24 are captions of others. Trained cells are kept in OUT/cells, where
every figure finds those it shares with others. `settings` says what is trained, `outcomes` what is known of a
trained cell and what comes along trained, `table` is the tidy table that `claims.csv` is put to.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from posbias.core.files import write_text
from posbias.core.formats import canonical
from posbias.core.progress import OnEvent
from posbias_papers.study import Basis, Paper, Tables
from posbias_papers.wu2025 import outcomes
from posbias_papers.wu2025.figures import STUDIES
from posbias_papers.wu2025.outcomes import Outcome, basis_of, compared_with, outcome_of, records
from posbias_papers.wu2025.settings import FULL, QUICK, Effort, Embedding, Setting, TestDirection, effort_of

log = logging.getLogger("posbias.papers")
__all__ = ["FULL", "PAPER", "QUICK", "STUDIES", "Effort", "Setting", "effort_of", "record_cells", "tables"]


def tables(
    names: Sequence[str],
    folder: Path,
    *,
    effort: str | int | Effort = "quick",
    again: bool = False,
    on_event: OnEvent | None = None,
    networks: int | None = None,
    middle: int | None = None,
    embedding: Embedding = "deviation",
    test_direction: TestDirection = "training",
    **settings: Any,
) -> Tables:
    """The tables of some studies; what FOLDER/cells has not and is not on record at this effort is trained first.

    `effort` is quick, full or a number of iterations; with `networks`, `middle`, `embedding` and
    `test_direction` as of `effort_of`.
    `settings` (device, workers, engine, gpus_per_cell) and `on_event`, which counts iterations, are those of
    `posbias.training.cells.run_cells`. Raises as that does.
    """
    spent = effort_of(effort, networks, middle, embedding, test_direction)
    wanted = [*dict.fromkeys(setting for name in names for setting in STUDIES[name].cells)]
    results: dict[Setting, Outcome] = {}
    if wanted:  # nothing is trained for Figure 1, and torch need not be there
        from posbias.training.cells import find_cell, run_cells

        place, experiments = folder / "cells", {setting: spent.experiment(setting) for setting in wanted}
        missing = [setting for setting in wanted if find_cell(place, experiments[setting]) is None]
        known = {} if again else records(spent, missing)
        if known:
            words = "%d of %d cells are taken from recorded results (%s), not trained; --rerun trains them"
            log.info(words, len(known), len(missing), basis_of(known, len(known)))
        trained = [setting for setting in wanted if setting not in known]
        how = {"again": again, "sequences": spent.sequences, "on_event": on_event, **settings}
        cells = run_cells([experiments[setting] for setting in trained], place, **how)
        made = dict(zip(trained, map(outcome_of, cells), strict=True)) | known
        results = {setting: made[setting] for setting in wanted}
    others = compared_with(spent, results) if any(one.recorded for one in results.values()) else {}
    frames = {name: STUDIES[name].table(others | results) for name in names}
    return Tables(frames, spent.name)


def record_cells(folder: str | Path, path: Path = outcomes.RECORDS) -> int:
    """Add the finished cells of a folder that are of a figure's setting to the records, and say how many.

    Those of the same setting and `outcomes.Amount` are replaced. Raises as `load_cell`.
    """
    from posbias.training.cells import KIND, SCHEMA, TrainingCell, load_cell

    settings = {(s.network, s.task()): s for study in STUDIES.values() for s in study.cells}
    lines = {
        (s, amount): outcomes.record_line(s, one)
        for amount, known in outcomes.read_records(path).items()
        for s, one in known.items()
    }
    found = 0
    for file in sorted(Path(folder).rglob("*.nc")):
        cell = load_cell(file)
        task = replace(cell.experiment.task, embedding="variance", test_direction="training", middle=None)
        setting, one = settings.get((cell.experiment.network, task)), outcome_of(cell)
        if setting is not None:
            header, _ = TrainingCell.codec.read(file, KIND, SCHEMA)
            weights = {name: tensor.cpu().numpy() for name, tensor in cell.trained.weights.items()}
            made = {"weights": digest_of_arrays(weights), "versions": dict(header.versions)}
            made |= {**cell.trained.cost, "finished": header.cost["finished"]}
            lines[setting, outcomes.amount(one)] = outcomes.record_line(setting, replace(one, made=made))
            found += 1
    write_text(path, "".join(f"{lines[one]}\n" for one in sorted(lines, key=str)))
    return found


def digest_of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, types, shapes and bytes of arrays: the same whoever wrote them, and when."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(canonical([name, arrays[name].dtype.str, list(arrays[name].shape)]))
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


PAPER = Paper(
    "wu2025",
    STUDIES,
    tables,
    stated=(29, (0.1, 0.5)),
    effort=Basis(iterations=100_000),
    kinds=("trained at the paper's effort", "trained below it"),
    settings=lambda names, *, engine=None, **options: {"engine": engine},
    uses=(
        ("wu2025", "the retrieval experiments and their accuracy gaps"),
        ("reddy2024", "the in-context task and its network"),
        ("loshchilov2019", "AdamW"),
        ("abnar2020", "rollout of the trained kernels"),
        ("gu2025", "the metric of attention sinks"),
    ),
    specification=QUICK.experiment,
)
