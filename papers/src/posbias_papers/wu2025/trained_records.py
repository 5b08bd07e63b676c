"""Finished cells on record: all that figures and claims need of them, a line each (`posbias_papers.records`).

A record says what was trained, with what versions, on what device and how long, on how many test sequences, and
the digest of the weights, so that a cell that is made again can be held against it. What verdicts hang on is kept
in full: gaps, loss, accuracies, their curves, profiles, mixing. Sinks are kept as counts at τ = 0.2. Attention,
and the loss and accuracy of training, are rounded to 1e-4, far below their errors (about .2/√2000 = 4e-3 for a
weight averaged over 2,000 sequences).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.errors import InputFileError, InvalidValueError
from posbias.core.formats import Header, JsonCodec, digest_of_arrays
from posbias.core.store import Stored
from posbias.training.experiments import Experiment
from posbias.training.kernels import Rollout
from posbias.training.loop import Trained
from posbias.training.probes import Averages, Evaluation, Gap
from posbias.training.results import KIND, SCHEMA, Cell, OfExperiment, TrainingCell, cell_of
from posbias.training.sinks import THRESHOLD, Sinks, uniform_queries
from posbias_papers.records import Records

log = logging.getLogger("posbias.papers")
RECORD, RECORD_SCHEMA = "record", 1
DECIMALS = 4
"""Of attention, and of the loss and accuracy of training."""
_ROUNDED = ("loss", "accuracy")
"""Curves that no verdict hangs on."""


@dataclass(frozen=True, eq=False)
class Record:
    """A cell that is on record: its numbers, rounded as the record has them and without weights, whose digest is
    `weights`."""

    cell: Cell
    weights: str


@dataclass(frozen=True)
class RecordedCell(OfExperiment):
    """The record of an experiment as a cell of a store; the amount is the number of test sequences."""

    kind = RECORD
    schema = RECORD_SCHEMA
    codec = JsonCodec()

    def to_content(self, result: Record) -> dict[str, Any]:
        """The record's numbers, an array in each line."""
        return _content(result)

    def from_content(self, header: Header, content: Mapping[str, Any]) -> Record:
        """The record again."""
        return _record(self.experiment, header, content)


def record_cells(folder: Path, records: Records) -> list[Experiment]:
    """Put the last good cell of every experiment in `folder` (and folders in it) on record.

    A record of the same experiment is replaced, unless it is of more test sequences. Files that are no cells, or
    damaged, are named to the log. Raises `InputFileError` where there is no cell, `OutputFileError`.
    """
    finished = _finished(Path(folder))
    if not finished:
        raise InputFileError(f"{folder}: no finished cell in it, a folder that 'posbias train' wrote needed")
    written = []
    for stored in finished:
        recorded = RecordedCell(stored.result.experiment)
        earlier = records.find(recorded)
        if earlier is not None and (earlier.header.amount or 0) > (stored.header.amount or 0):
            kept, fewer = earlier.header.amount, stored.path
            log.warning("%s: kept, of %s test sequences; %s is of fewer", records.path, kept, fewer)
            continue
        header = replace(stored.header, kind=RECORD, schema=RECORD_SCHEMA, companion="", digest="")
        records.put(header, recorded.to_content(Record(stored.result, weights_digest(stored.result.trained))))
        written.append(recorded.experiment)
    return written


def find_record(records: Records, experiment: Experiment, at_least: int | None = None) -> Record | None:
    """The record of an experiment, on `at_least` test sequences or more; None if there is none."""
    stored = records.find(RecordedCell(experiment), at_least)
    return None if stored is None else stored.result


def weights_digest(trained: Trained) -> str:
    """SHA-256 over names, shapes and bytes of the weights."""
    return digest_of_arrays({name: tensor.cpu().numpy() for name, tensor in trained.weights.items()})


def _finished(folder: Path) -> list[Stored]:
    """The good cell of every experiment under a folder: that on most test sequences, of these the last."""
    best: dict[str, Stored] = {}

    def rank(stored: Stored) -> tuple[int, str]:
        return stored.header.amount or 0, str(stored.header.cost.get("finished", ""))

    for path in sorted(folder.rglob("*.nc")):
        try:
            header, content = TrainingCell.codec.read(path, KIND, SCHEMA)
            stored = Stored(cell_of(header, content), header, path)
        except (InputFileError, InvalidValueError) as error:
            log.warning("%s; not put on record", error)
            continue
        best[header.fingerprint] = max(stored, best.get(header.fingerprint, stored), key=rank)
    return list(best.values())


# --- numbers as a record has them ---------------------------------------------------------------------------


def _content(record: Record) -> dict[str, Any]:
    """What a record holds after its header."""
    cell, evaluation, sinks = record.cell, record.cell.evaluation, record.cell.sinks
    at = sinks.thresholds.index(THRESHOLD)
    curves = {
        name: np.round(curve, DECIMALS) if name in _ROUNDED else np.asarray(curve, dtype=np.float64)
        for name, curve in cell.trained.curves.items()
        if name != "iteration"
    }
    return {
        "weights": record.weights,
        "stopped": {str(seed): iteration for seed, iteration in cell.trained.stopped.items()},
        "test_seed": evaluation.seed,
        "largest_gap": evaluation.largest_gap,
        "loss": vars(evaluation.loss),
        "in_context_accuracy": vars(evaluation.in_context_accuracy),
        "gaps": {
            pair: {
                "items": [gap.first, gap.second],
                "all": vars(gap.over_all),
                "informative": vars(gap.over_informative),
                "informative_share": gap.share,
            }
            for pair, gap in evaluation.gaps.items()
        },
        "accuracy_by_position": evaluation.accuracy_by_position.tolist(),
        "accuracy_alone": evaluation.accuracy_alone.tolist(),
        "iterations": cell.trained.curves["iteration"],
        "curves": {name: curve.tolist() for name, curve in curves.items()},
        "sinks": {
            "threshold": THRESHOLD,
            "starts": list(sinks.starts),
            "sequences": sinks.sequences,
            "trained": _counts(sinks.trained[..., at] * sinks.sequences),
            "untrained": _counts(sinks.untrained[..., at] * sinks.sequences),
        },
        "rollout": {
            "sequences": cell.rollout.sequences,
            "assumptions": list(cell.rollout.assumptions),
            "mixing": cell.rollout.mixing.tolist(),
            "profiles": {name: masses.tolist() for name, masses in cell.rollout.profiles.items()},
        },
        "attention_in_ten_thousandths": _counts(cell.attention[:, :, sinks.allowed] * 10**DECIMALS),
    }


def _record(experiment: Experiment, header: Header, content: Mapping[str, Any]) -> Record:
    """What `_content` was made from, without weights and as rounded there."""
    stopped = {int(seed): int(iteration) for seed, iteration in content["stopped"].items()}
    curves = {"iteration": np.asarray(content["iterations"])} | {
        name: _numbers(curve) for name, curve in content["curves"].items()
    }
    cost = {name: held for name, held in header.cost.items() if name != "finished"}
    evaluation = Evaluation(
        seeds=experiment.seeds,
        sequences=int(header.amount or 0),
        seed=int(content["test_seed"]),
        gaps={str(pair): _gap(gap) for pair, gap in content["gaps"].items()},
        loss=_averages(content["loss"]),
        in_context_accuracy=_averages(content["in_context_accuracy"]),
        accuracy_by_position=_numbers(content["accuracy_by_position"]),
        accuracy_alone=_numbers(content["accuracy_alone"]),
        largest_gap=float(content["largest_gap"]),
        stopped=stopped,
    )
    allowed, rolled = experiment.network.mask.allowed(experiment.task.tokens), content["rollout"]
    rollout = Rollout(
        attention=_attention(content["attention_in_ten_thousandths"], allowed),
        mixing=_numbers(rolled["mixing"]),
        profiles={str(name): _numbers(masses) for name, masses in rolled["profiles"].items()},
        assumptions=tuple(rolled["assumptions"]),
        sequences=int(rolled["sequences"]),
    )
    counted, sequences = content["sinks"], int(content["sinks"]["sequences"])
    thresholds, starts = (float(counted["threshold"]),), tuple(map(int, counted["starts"]))
    trained, untrained = (_numbers(counted[name])[..., None] / sequences for name in ("trained", "untrained"))
    uniform = uniform_queries(allowed, thresholds, starts)
    sinks = Sinks(thresholds, starts, allowed, trained, untrained, uniform, sequences)
    run = Trained(experiment, {}, curves, stopped, cost)
    return Record(Cell(run, evaluation, sinks, rollout), str(content["weights"]))


def _attention(
    counts: Any, allowed: Bool[np.ndarray, "query key"]
) -> Float[np.ndarray, "member layer query key"]:
    places = _numbers(counts) / 10**DECIMALS
    stopped = np.isnan(places[..., :1, None])
    attention = np.where(stopped, np.nan, np.zeros((*places.shape[:2], *allowed.shape)))
    attention[:, :, allowed] = places
    return attention


def _averages(content: Mapping[str, Any]) -> Averages:
    return Averages(_numbers(content["values"]), _numbers(content["errors"]), np.asarray(content["counts"]))


def _gap(content: Mapping[str, Any]) -> Gap:
    first, second = map(int, content["items"])
    over_all, informative = _averages(content["all"]), _averages(content["informative"])
    return Gap(first, second, over_all, informative, _numbers(content["informative_share"]))


def _numbers(content: Any) -> Float[np.ndarray, "..."]:
    """An array of floats; null is NaN."""
    return np.asarray(content, dtype=np.float64)


def _counts(values: Any) -> Any:
    """Whole numbers in lists, the nearest; null for NaN."""
    if isinstance(values, np.ndarray | list):
        return [_counts(inner) for inner in values]
    return None if values != values else round(float(values))
