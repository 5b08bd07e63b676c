"""What commands say of trained cells: one, many, and those that are not tested yet."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.cli.output import answer_with
from posbias.core.text_tables import table

if TYPE_CHECKING:
    from posbias.profiles.estimate import Estimate
    from posbias.training import Cell, Experiment


def tell_untested(folder: Path, experiments: "Sequence[Experiment]", json: bool) -> None:
    """Answer with what of some experiments is trained and not tested."""
    from posbias.reports.answers.experiments import TrainUntested
    from posbias.training.jobs import untested

    paths = [path for path in (untested(folder, one) for one in experiments) if path.exists()]
    tested = len(experiments) - len(paths)
    answer = TrainUntested.of(folder=folder, untested=paths, tested=tested)
    lines = [
        f"{len(paths)} cells trained, {tested} tested already; without --no-tests the same command tests them"
    ]
    lines += [f"weights: {path}" for path in paths]
    answer_with(answer, lambda: lines, json)


def cell_lines(cell: "Cell") -> list[str]:
    """One cell: its gaps beside what kernels and theory predict, how well it does, and what that means."""
    from posbias.training import agreement
    from posbias.training.averages import estimate_members

    evaluation, agreed = cell.evaluation, agreement(cell.rollout, cell.evaluation)
    own, theory = agreed["residual" if "residual" in agreed else "attention"], agreed["theory"]
    rows = [
        [
            pair,
            str(gap.over_all.estimate),
            str(gap.over_informative.estimate),
            _predicted(own.predicted[pair]),
            _predicted(theory.predicted[pair]),
        ]
        for pair, gap in evaluation.gaps.items()
    ]
    head = ["gap", "all sequences", "informative", "own kernels say", "theory says"]
    places = [estimate_members(column).value for column in evaluation.accuracy_by_position.T]
    shown = " ".join(f"{value:.2f}" for value in places if math.isfinite(value))
    return [
        *table(head, rows),
        "",
        f"in-context accuracy {evaluation.in_context_accuracy.over_members}, "
        f"loss {evaluation.loss.over_members}; by position of the answer {shown}",
        words(cell),
        *(f"theory: {assumption}" for assumption in cell.rollout.assumptions),
        *_stopped(cell),
        f"cell: {cell.path}",
    ]


def _predicted(gap: "Estimate") -> str:
    """A predicted gap; 0 where equal masses differ by rounding."""
    from posbias.training.averages import ZERO

    return "0" if abs(gap.value) <= ZERO and not gap.se else str(gap)


def sweep_lines(cells: "Sequence[Cell]") -> list[str]:
    """Many cells: a line for each, on all sequences and on informative ones."""
    from posbias.training.shorthand import common_words

    names, pairs = common_words([cell.experiment for cell in cells]), list(cells[0].evaluation.gaps)
    lines: list[str] = []
    for kind, title in (("all", "gaps on all sequences"), ("informative", "gaps on informative sequences")):
        rows = [
            [
                name,
                *(str(getattr(evaluation.gaps[pair], kind)) for pair in pairs),
                str(evaluation.in_context_accuracy.over_members),
                str(evaluation.loss.over_members),
            ]
            for name, evaluation in zip(names, (cell.evaluation for cell in cells), strict=True)
        ]
        lines += [*table([title, *pairs, "in-context accuracy", "loss"], rows), ""]
    for name, cell in zip(names, cells, strict=True):
        lines += [f"{name}: {line}" for line in (words(cell), *_stopped(cell))]
    return [*lines, *(f"cell: {cell.path}" for cell in cells)]


def words(cell: "Cell") -> str:
    """What the gaps on informative sequences say, for a person; told at 95 % (Student's t over networks)."""
    from posbias.training.averages import sign

    evaluation, task = cell.evaluation, cell.experiment.task
    copying, guessing = task.burstiness / task.items, 1.0 / task.labels
    accuracy = evaluation.in_context_accuracy.over_members.value
    if accuracy != accuracy:
        return "every network was stopped: there is nothing to say"
    if not accuracy >= (copying + guessing) / 2:
        return (
            f"the networks do not read labels off their context yet ({accuracy:.2f}; guessing is {guessing:.2f}, "
            f"copying any label {copying:.2f}): their gaps say nothing"
        )
    signs = {pair: sign(gap.over_informative.estimate) for pair, gap in evaluation.gaps.items()}
    parts = [pair.split("-")[::direction] for pair, direction in signs.items() if direction]
    told = [f"{winner} over {loser}" for winner, loser in parts]
    untold = [" and ".join(pair.split("-")) for pair, direction in signs.items() if not direction]
    said = [f"favours {', '.join(told)}"] if told else []
    said += [f"no preference told between {', nor '.join(untold)}"] if untold else []
    return "; ".join(said)


def _stopped(cell: "Cell") -> list[str]:
    return [
        f"stopped: seed {seed} at iteration {at}, its loss was not finite; left out"
        for seed, at in cell.trained.stopped.items()
    ]
