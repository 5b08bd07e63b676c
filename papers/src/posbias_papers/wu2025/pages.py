"""The numbers behind the figures: every cell's gaps with loss and in-context accuracy, as rows and as a page."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.profiles.claims import signed_text
from posbias.profiles.estimate import Estimate
from posbias.reports.answers.experiments import GapAgreement
from posbias_papers.pages import Table
from posbias_papers.study import Basis
from posbias_papers.wu2025.outcomes import LEARNT, PAIRS, Gaps
from posbias_papers.wu2025.settings import Setting
from posbias_papers.wu2025.table import Outcomes, outcomes_of

if TYPE_CHECKING:
    import pandas as pd

    from posbias.training.kernels import Agreement

HEAD = ("setting", *(pair.replace("-", "–") for pair in PAIRS), "accuracy", "loss", "learnt")
"""What the columns of a table of gaps are."""
_GAPS = (
    "Means over the networks that have learnt to retrieve from their context (in-context accuracy of at least "
    f"{LEARNT}) with their standard error; accuracy and loss, on new classes, are means over all"
)
_PREDICTED = (
    "Do the gaps follow a rollout? Predicted gap of the labels' masses on informative sequences, over the "
    "networks that have learnt, and whether the measured sign agrees where both differ from zero; the size is "
    "not predicted. "
)


def note(frame: "pd.DataFrame") -> str:
    """In a line, what was trained and how it was tested, and how many cells are recorded results if any is."""
    results = outcomes_of(frame)
    trained = [(setting.depth, outcome.trained.experiment) for setting, outcome in results.items()]
    spent = sorted({(depth, experiment.iterations) for depth, experiment in trained})
    steps = sorted({f"{count:,}" for _, count in spent})
    if len(steps) > 1:
        steps = [f"{count:,} (depth {depth})" for depth, count in spent]
    words = f"{len(trained[0][1].seeds)} networks per cell, {', '.join(steps)} iterations"
    words += f", {min(outcome.sequences for outcome in results.values()):,} test sequences"
    middle = trained[0][1].task.middle
    words += f", middle item {middle} (from 0)" if middle is not None else ""
    recorded = sum(outcome.recorded for outcome in results.values())
    return f"{words}; {recorded} of {len(results)} cells are recorded results" if recorded else words


def data(frame: "pd.DataFrame") -> dict[str, Any]:
    """The gaps of every cell, what is predicted of them, and what went into it, for JSON."""
    results = outcomes_of(frame)
    predicted = {
        str(setting): {
            profile: GapAgreement.of(agreement).model_dump(mode="json")
            for profile, agreement in outcome.agreements.items()
        }
        for setting, outcome in results.items()
    }
    # what every cell has at least
    basis = Basis(
        min(outcome.trained.experiment.iterations for outcome in results.values()),
        min(len(outcome.trained.experiment.seeds) for outcome in results.values()),
        min(outcome.sequences for outcome in results.values()),
        len(results),
        sum(outcome.recorded for outcome in results.values()),
    )
    return {"cells": cells(results), "predicted": predicted, "rests_on": vars(basis)}


def cells(results: Outcomes) -> list[dict[str, Any]]:
    """The gaps of some cells as rows for JSON: of the networks that have learnt, and of every one."""
    return [row for setting, outcome in results.items() for row in _records(setting, outcome.gaps)]


def gaps_table(results: Outcomes) -> Table:
    """The gaps of some cells in words."""
    return Table(_GAPS, HEAD, [_row(setting, outcome.gaps) for setting, outcome in results.items()])


def tables(frame: "pd.DataFrame") -> Iterator[Table]:
    """The gaps, and what rollouts predict of them, each with its verdict."""
    results = outcomes_of(frame)
    yield gaps_table(results)
    by_profile: dict[str, list[tuple[Setting, Agreement]]] = {}
    for setting, outcome in results.items():
        for agreement in outcome.agreements.values():
            by_profile.setdefault(agreement.label, []).append((setting, agreement))
    opening = _PREDICTED
    for profile, some in by_profile.items():
        signs = [sign for _, agreement in some for sign in agreement.signs.values()]
        right, wrong = signs.count("holds"), signs.count("fails")
        decided = f"{right} of {right + wrong} decided signs right, {signs.count('undecided')} undecided"
        rows = [
            [str(setting), *(_predicted(agreement, pair) for pair in PAIRS), agreement.order]
            for setting, agreement in some
        ]
        yield Table(f"{opening}**{profile}**: {decided}", [*HEAD[: len(PAIRS) + 1], "order"], rows)
        opening = ""


def _records(setting: Setting, gaps: Gaps) -> Iterator[dict[str, Any]]:
    """A cell's gaps, one row for each pair."""
    for pair in PAIRS:
        learnt = gaps.of(pair)
        estimate = Estimate.of_mean(learnt) if learnt.size else None
        yield {
            "setting": str(setting),
            "pair": pair,
            "learnt": int(learnt.size),
            "members": int(gaps.loss.size),
            "gap": estimate and {"value": estimate.value, "se": estimate.se},
            "every_gap": gaps.gaps[pair],
            "every_informative_gap": gaps.informative[pair],
            "in_context_accuracy": gaps.accuracy,
            "loss": gaps.loss,
        }


def _row(setting: Setting, gaps: Gaps) -> list[str]:
    """A cell in words, under `HEAD`."""
    shown = [_signed(gaps.of(pair)) for pair in PAIRS]
    means = [f"{mean:.2f}" for mean in gaps.means]
    return [str(setting), *shown, *means, f"{gaps.learnt.sum()} of {gaps.learnt.size}"]


def _predicted(agreement: "Agreement", pair: str) -> str:
    """'+0.120 holds', or a dash where no network has learnt."""
    value = agreement.predicted[pair].value
    return "–" if math.isnan(value) else f"{signed_text(value)} {agreement.signs[pair]}"


def _signed(values: np.ndarray) -> str:
    if not values.size:
        return "–"
    estimate = Estimate.of_mean(values)
    return signed_text(estimate.value) + (f" ± {estimate.se:.3f}" if values.size > 1 else "")
