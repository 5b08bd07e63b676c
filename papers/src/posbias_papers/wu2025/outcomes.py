"""What is known of trained networks: accuracy gaps, sinks, attention, learning curves; and what comes along
trained.

An `Outcome` is all that figures and claims need of a finished cell. Cells that take hours come along as lines
of `records.jsonl`: the setting, the outcome, and what made it (versions, device, time, the digest of the
weights). Loss while training and attention are rounded to 1e-4 there, far below their errors (about .2/√2000 =
4e-3 for a weight averaged over 2,000 sequences).
"""

import dataclasses
import functools
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.formats import dump_json
from posbias.core.spec import decode, encode
from posbias_papers.study import EFFORTS, Basis, Recorded, Study
from posbias_papers.wu2025.settings import (
    EFFORT,
    EMBEDDINGS,
    Effort,
    Embedding,
    Setting,
    TestDirection,
    effort_of,
)

if TYPE_CHECKING:
    from posbias.training.cells import Cell

PAIRS = ("first-middle", "first-last", "middle-last")
"""The pairs of items whose accuracies are compared."""
LEARNT = 0.3
"""In-context accuracy from which a network counts as having learnt to copy a label of its context (about ½;
guessing among all 32 labels: 0.03). Networks that have not say nothing about position; they are left out."""
CURVES = (*PAIRS, "in_context_accuracy", "loss")
TOKENS = 17
"""Of a prompt of the retrieval task."""
DECIMALS = 4
"""Of attention and of loss while training in records."""
RECORDS = Path(__file__).with_name("records.jsonl")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a trained cell shows; NaN for a network that was stopped.

    Accuracy gaps by pair; `accuracy` in context and `loss` on new classes; accuracy `by_position` of the item
    asked for; mean `attention`; the sink metric of the trained and `untrained` networks and of `even`
    attention; learning `curves` by name, [member, step], with the "iteration" of each step; what `made` it.
    """

    iterations: int
    sequences: int
    gaps: Mapping[str, Float[np.ndarray, "member"]]
    accuracy: Float[np.ndarray, "member"]
    loss: Float[np.ndarray, "member"]
    by_position: Float[np.ndarray, "member item"]
    attention: Float[np.ndarray, "member layer query key"]
    sinks: Float[np.ndarray, "member token"]
    untrained: Float[np.ndarray, "member token"]
    even: Float[np.ndarray, "token"]
    curves: Mapping[str, Float[np.ndarray, "..."]]
    middle: int | None = None
    embedding: Embedding = "variance"
    test_direction: TestDirection = "training"
    recorded: bool = False
    made: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finite(self) -> Bool[np.ndarray, "member"]:
        """Which networks were trained to the end."""
        return np.isfinite(self.loss)

    @property
    def learnt(self) -> Bool[np.ndarray, "member"]:
        """Which have learnt: trained to the end, and at least `LEARNT` accurate in context."""
        finite = np.isfinite([self.loss, *(self.gaps[pair] for pair in PAIRS)]).all(axis=0)
        return finite & (self.accuracy >= LEARNT)

    def of(self, pair: str) -> Float[np.ndarray, "network"]:
        """The gap of those that have learnt."""
        return np.asarray(self.gaps[pair], dtype=np.float64)[self.learnt]


Outcomes = Mapping[Setting, Outcome]


def outcome_of(cell: "Cell") -> Outcome:
    """What figures and claims need of a finished cell."""
    evaluation, trained, sinks = cell.evaluation, cell.trained, cell.sinks
    return Outcome(
        trained.experiment.iterations,
        evaluation.sequences,
        {pair: gap.over_all.values for pair, gap in evaluation.gaps.items()},
        evaluation.in_context_accuracy.values,
        evaluation.loss.values,
        evaluation.accuracy_by_position,
        cell.rollout.attention,
        sinks.metric(),
        sinks.metric(of="untrained"),
        sinks.metric(of="uniform")[0],
        {name: np.asarray(trained.curves[name], dtype=np.float64) for name in (*CURVES, "iteration")},
        middle=trained.experiment.task.middle,
        embedding=trained.experiment.task.embedding,
        test_direction=trained.experiment.task.test_direction,
        made=trained.cost,
    )


# --- what comes along trained ------------------------------------------------------------------------------


def record_line(setting: Setting, outcome: Outcome) -> str:
    """A line of `records.jsonl`."""
    allowed = setting.mask.allowed(outcome.attention.shape[-1])
    held = {one.name: getattr(outcome, one.name) for one in dataclasses.fields(Outcome)}
    held["setting"] = encode(setting)
    held["attention"] = np.round(outcome.attention[:, :, allowed], DECIMALS)
    held["curves"] = dict(outcome.curves) | {"loss": np.round(outcome.curves["loss"], DECIMALS)}
    return json.dumps(json.loads(dump_json(held | {"recorded": True})), ensure_ascii=False)


Amount = tuple[int, int, Embedding, TestDirection, int | None]
"""Iterations, number of networks, whose seeds are those from 0 on, how inputs are drawn, and the middle item."""


def amount(outcome: Outcome) -> Amount:
    """What a record is found by, in addition to its setting."""
    return outcome.iterations, len(outcome.loss), outcome.embedding, outcome.test_direction, outcome.middle


def read_records(path: Path) -> dict[Amount, dict[Setting, Outcome]]:
    """The outcomes of a file of records by amount and setting, read once; none of one that is not there."""
    return _records(path, path.stat().st_mtime_ns if path.is_file() else None)


@functools.cache
def _records(path: Path, written: int | None) -> dict[Amount, dict[Setting, Outcome]]:
    found: dict[Amount, dict[Setting, Outcome]] = defaultdict(dict)
    for line in path.read_text(encoding="utf-8").splitlines() if written else ():
        setting, outcome = _read(json.loads(line))
        found[amount(outcome)][setting] = outcome
    return found


def _read(held: dict[str, Any]) -> tuple[Setting, Outcome]:
    setting = decode(Setting, held.pop("setting"))
    for name in ("accuracy", "loss", "by_position", "sinks", "untrained", "even"):
        held[name] = np.asarray(held[name], dtype=np.float64)
    for name in ("gaps", "curves"):
        held[name] = {one: np.asarray(values, dtype=np.float64) for one, values in held[name].items()}
    allowed, places = setting.mask.allowed(TOKENS), np.asarray(held.pop("attention"), dtype=np.float64)
    attention = np.where(np.isnan(places[..., :1, None]), np.nan, np.zeros(allowed.shape))
    attention[:, :, allowed] = places
    return setting, Outcome(attention=attention, **held)


def records(effort: Effort, settings: Iterable[Setting]) -> dict[Setting, Outcome]:
    """The outcomes of those of some settings that are on record, on as many test sequences at least."""
    known = {}
    for setting in settings:
        tests = effort.test_direction if setting.inputs == "fixed_vocabulary" else "training"
        spent = effort.steps(setting), effort.networks, effort.embedding, tests, effort.middle
        one = read_records(RECORDS).get(spent, {}).get(setting)
        if one is not None and one.sequences >= effort.sequences:
            known[setting] = one
    return known


def compared_with(effort: Effort, settings: Iterable[Setting]) -> dict[Setting, Outcome]:
    """What is on record of the settings that claims on some compare with: the same with the Gaussian mixture."""
    own = set(settings)
    return records(effort, {replace(setting, inputs="gaussian_mixture") for setting in own} - own)


def recorded(study: Study) -> Recorded | None:
    """What is on record of a study's cells, at the greatest effort that all have, else at that which most have.

    All of them with the embeddings of the authors' code come before all with the text's.
    """
    kept: list[tuple[bool, Recorded]] = []
    for (iterations, networks, embedding, tests, middle), there in read_records(RECORDS).items():
        if middle is None and not there.keys().isdisjoint(study.cells):
            effort = effort_of(iterations, networks, None, embedding, tests)
            known = records(replace(effort, sequences=0), study.cells)
            kept.append((embedding == "deviation", _at(study, effort, known)))

    def better(one: tuple[bool, Recorded]) -> tuple[Any, ...]:
        code, record = one
        return record.whole, code if record.whole else record.basis.recorded, record.basis

    return max(kept, key=better)[1] if kept else None


def _at(study: Study, effort: Effort, known: Outcomes) -> Recorded:
    basis = basis_of(known, len(study.cells))
    effort = replace(effort, sequences=basis.sequences)
    serves = [name for name in EFFORTS if basis >= Basis(*EFFORT[name].amount(study.cells))]
    mixtures = compared_with(effort, study.cells)
    when = max(str(one.made.get("finished", "")) for one in known.values())
    return Recorded(effort.name, basis, tuple(serves), lambda: study.table({**mixtures, **known}), when)


def basis_of(results: Outcomes, cells: int) -> Basis:
    """What some outcomes of so many cells have at least."""
    some = results.values()
    networks, sequences = (min(len(one.loss) for one in some), min(one.sequences for one in some))
    inputs = EMBEDDINGS[next(iter(some)).embedding]
    inputs += ", test directions as in the code" * any(one.test_direction == "drawn" for one in some)
    return Basis(
        min(one.iterations for one in some),
        networks,
        sequences,
        cells,
        sum(one.recorded for one in some),
        inputs=inputs,
    )
