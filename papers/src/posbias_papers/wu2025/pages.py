"""The numbers behind the figures: every cell's gaps with loss and in-context accuracy, as rows and as a page."""

from typing import TYPE_CHECKING, Any

from posbias.profiles.estimate import Estimate
from posbias_papers.pages import Page, Table
from posbias_papers.study import Basis
from posbias_papers.wu2025.outcomes import LEARNT, PAIRS
from posbias_papers.wu2025.table import Outcomes, outcomes_of

if TYPE_CHECKING:
    import pandas as pd

CAPTION = (
    "Means over the networks that have learnt to retrieve from their context (in-context accuracy of at least "
    f"{LEARNT}) with their standard error; accuracy and loss, on new classes, are means over all"
)


def page(frame: "pd.DataFrame") -> Page:
    """What was trained, and the gaps of every cell."""
    results = outcomes_of(frame)
    rows = []
    for setting, one in results.items():
        gaps = {
            pair.replace("-", "–"): Estimate.of_mean(one.of(pair)) if one.learnt.any() else None
            for pair in PAIRS
        }
        means = {name: float(getattr(one, name)[one.finite].mean()) for name in ("accuracy", "loss")}
        learnt = f"{one.learnt.sum()} of {one.learnt.size}"
        rows.append({"setting": str(setting), **gaps, **means, "learnt": learnt})
    basis = Basis(
        min(outcome.iterations for outcome in results.values()),
        min(len(outcome.loss) for outcome in results.values()),
        min(outcome.sequences for outcome in results.values()),
        len(results),
        sum(outcome.recorded for outcome in results.values()),
    )
    data = {"cells": cells(results), "rests_on": vars(basis)}
    return Page(note=_note(results, basis), tables=(Table.of(CAPTION, rows),), data=data)


def cells(results: Outcomes) -> list[dict[str, Any]]:
    """The gaps of some cells as rows for JSON: of the networks that have learnt, and of every one."""
    rows = []
    for setting, outcome in results.items():
        for pair in PAIRS:
            learnt = outcome.of(pair)
            estimate = Estimate.of_mean(learnt) if learnt.size else None
            row = {"setting": str(setting), "pair": pair, "learnt": learnt.size, "members": len(outcome.loss)}
            row |= {"gap": estimate and {"value": estimate.value, "se": estimate.se}}
            row |= {"every_gap": outcome.gaps[pair], "in_context_accuracy": outcome.accuracy}
            rows.append(row | {"loss": outcome.loss})
    return rows


def _note(results: Outcomes, basis: Basis) -> str:
    """In a line, what was trained and how it was tested, and how many cells are recorded results if any is."""
    spent = sorted({(setting.depth, outcome.iterations) for setting, outcome in results.items()})
    steps = sorted({f"{count:,}" for _, count in spent})
    if len(steps) > 1:
        steps = [f"{count:,} (depth {depth})" for depth, count in spent]
    words = f"{basis.networks} networks per cell, {', '.join(steps)} iterations"
    words += f", {basis.sequences:,} test sequences"
    middle = next(iter(results.values())).middle
    words += f", middle item {middle} (from 0)" if middle is not None else ""
    deviation = next(iter(results.values())).embedding == "deviation"
    words += ", embeddings of the authors' code" if deviation else ""
    recorded = f"; {basis.recorded} of {basis.cells} cells are recorded results" if basis.recorded else ""
    return words + recorded
