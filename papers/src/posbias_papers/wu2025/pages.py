"""The numbers behind the figures: every cell's gaps with loss and in-context accuracy, as rows and as a page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.profiles.claims import signed_text
from posbias.profiles.estimate import Estimate
from posbias.reports.answers.experiments import GapAgreement
from posbias_papers.pages import Page, Table
from posbias_papers.study import Basis
from posbias_papers.wu2025.outcomes import LEARNT, PAIRS, Outcome
from posbias_papers.wu2025.settings import Setting
from posbias_papers.wu2025.table import Outcomes, outcomes_of

if TYPE_CHECKING:
    import pandas as pd

HEAD = ("setting", *(pair.replace("-", "–") for pair in PAIRS))
_GAPS = (
    "Means over the networks that have learnt to retrieve from their context (in-context accuracy of at least "
    f"{LEARNT}) with their standard error; accuracy and loss, on new classes, are means over all"
)
_PREDICTED = (
    "Do the gaps follow a rollout? Predicted gap of the labels' masses on informative sequences, over the "
    "networks that have learnt, and whether the measured sign agrees where both differ from zero; the size is "
    "not predicted. "
)


def page(frame: "pd.DataFrame") -> Page:
    """What was trained, the gaps of every cell, and what rollouts predict of them, each with its verdict."""
    results = outcomes_of(frame)
    gaps = Table(
        _GAPS, (*HEAD, "accuracy", "loss", "learnt"), [_row(cell, one) for cell, one in results.items()]
    )
    basis = Basis(
        min(outcome.iterations for outcome in results.values()),
        min(len(outcome.loss) for outcome in results.values()),
        min(outcome.sequences for outcome in results.values()),
        len(results),
        sum(outcome.recorded for outcome in results.values()),
    )
    predicted = {
        str(setting): {one.profile: one.model_dump(mode="json") for one in outcome.agreements}
        for setting, outcome in results.items()
    }
    data = {"cells": cells(results), "predicted": predicted, "rests_on": vars(basis)}
    return Page(note=_note(results, basis), tables=(gaps, *_predicted_tables(results)), data=data)


def cells(results: Outcomes) -> list[dict[str, Any]]:
    """The gaps of some cells as rows for JSON: of the networks that have learnt, and of every one."""
    rows = []
    for setting, outcome in results.items():
        for pair in PAIRS:
            learnt = outcome.of(pair)
            estimate = Estimate.of_mean(learnt) if learnt.size else None
            row = {
                "setting": str(setting),
                "pair": pair,
                "learnt": int(learnt.size),
                "members": len(outcome.loss),
            }
            row |= {"gap": estimate and {"value": estimate.value, "se": estimate.se}}
            row |= {"every_gap": outcome.gaps[pair], "every_informative_gap": outcome.informative[pair]}
            rows.append(row | {"in_context_accuracy": outcome.accuracy, "loss": outcome.loss})
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
    recorded = f"; {basis.recorded} of {basis.cells} cells are recorded results" if basis.recorded else ""
    return words + recorded


def _row(setting: Setting, outcome: Outcome) -> list[str]:
    shown = [_signed(outcome.of(pair)) for pair in PAIRS]
    kept = outcome.finite
    means = [f"{one[kept].mean():.2f}" if kept.any() else "–" for one in (outcome.accuracy, outcome.loss)]
    return [str(setting), *shown, *means, f"{outcome.learnt.sum()} of {outcome.learnt.size}"]


def _signed(values: np.ndarray) -> str:
    if not values.size:
        return "–"
    estimate = Estimate.of_mean(values)
    return signed_text(estimate.value) + (f" ± {estimate.se:.3f}" if values.size > 1 else "")


def _predicted_tables(results: Outcomes) -> Iterator[Table]:
    by_profile: dict[str, list[tuple[Setting, GapAgreement]]] = {}
    for setting, outcome in results.items():
        for agreement in outcome.agreements:
            by_profile.setdefault(agreement.label, []).append((setting, agreement))
    for place, (profile, some) in enumerate(by_profile.items()):
        signs = [sign for _, agreement in some for sign in agreement.signs.values()]
        right, wrong = signs.count("holds"), signs.count("fails")
        decided = f"{right} of {right + wrong} decided signs right, {signs.count('undecided')} undecided"
        rows = [
            [str(setting), *(_predicted(agreement, pair) for pair in PAIRS), agreement.order]
            for setting, agreement in some
        ]
        opening = "" if place else _PREDICTED
        yield Table(f"{opening}**{profile}**: {decided}", [*HEAD, "order"], rows)


def _predicted(agreement: GapAgreement, pair: str) -> str:
    """'+0.120 holds', or a dash where no network has learnt."""
    value = agreement.predicted[pair].value
    return "–" if value is None or value != value else f"{signed_text(value)} {agreement.signs[pair]}"
