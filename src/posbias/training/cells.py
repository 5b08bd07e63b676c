"""Experiments as cells of a folder: those that are there are taken, the others trained, measured and kept.

    cells = run_cells([Experiment(network=Network(depth=2))], "results/train/mine")
    print(cells[0].evaluation.gaps["first-last"].all)

A cell is one experiment with all its seeds, and one NetCDF file: gaps, accuracies, attention, sinks, learning
curves and weights as labelled arrays (`docs/train.md` describes them). On a CPU every core trains one cell at a
time; on a GPU compatible cells train together as one ensemble; a cluster trains them on other machines. Whatever
stops it, finished cells stay, and running ones go on from their checkpoints when the same call is made again (on a
cluster they begin anew). No cell is deleted: next to one that is damaged or of another version, or with `again`,
the new one is written as NAME-2, NAME-3, …, and the last good one counts.
"""

import contextlib
import hashlib
import json
import logging
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from posbias.core.errors import counted, non_negative, whole, wrong
from posbias.core.files import need_writable
from posbias.core.formats import Header, NetCDFCodec, need_xarray
from posbias.core.machine import cores
from posbias.core.progress import OnEvent
from posbias.core.running import Engine, InProcess, Processes
from posbias.core.spec import decode, encode, fingerprint
from posbias.core.store import Cell as StoredCell
from posbias.core.store import Store, compute
from posbias.training.experiments import Experiment, compatible, name_of, words_of
from posbias.training.kernels import Rollout, trained_rollout
from posbias.training.loop import Trained, check_device, log_of, train
from posbias.training.network import Rotary
from posbias.training.probes import Averages, Evaluation, Gap, compared, evaluate, largest_gap
from posbias.training.sinks import Sinks, sinks

if TYPE_CHECKING:
    import xarray as xr

log = logging.getLogger(__name__)
KIND, SCHEMA = "cell", 4
TOGETHER = 512
"""The most members that train as one ensemble on a GPU."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One experiment, trained and measured, and its file if it has one."""

    trained: Trained
    evaluation: Evaluation
    sinks: Sinks
    rollout: Rollout
    path: Path | None = None

    @property
    def experiment(self) -> Experiment:
        """What was trained."""
        return self.trained.experiment


def measure_cell(trained: Trained, sequences: int = 2000) -> Cell:
    """Everything that a cell holds of a trained ensemble, on `sequences` test sequences. Raises as `evaluate`."""
    return Cell(
        trained, evaluate(trained, sequences), sinks(trained, sequences), trained_rollout(trained, sequences)
    )


# --- a cell as labelled arrays -----------------------------------------------------------------------------

_CURVE, _ROLLOUT, _WEIGHT = "curve_", "rollout_", "weight_"
_QUERIES = ("member", "layer", "start", "key", "threshold")
_ARRAYS = {
    "accuracy_by_position": ("evaluation", "accuracy_by_position", ("member", "item")),
    "accuracy_alone": ("evaluation", "accuracy_alone", ("member", "item")),
    "attention": ("rollout", "attention", ("member", "layer", "query", "key")),
    "sink_queries": ("sinks", "trained", _QUERIES),
    "sink_queries_untrained": ("sinks", "untrained", _QUERIES),
    "sink_queries_uniform": ("sinks", "uniform", ("start", "key", "threshold")),
    "allowed": ("sinks", "allowed", ("query", "key")),
    "mixing": ("rollout", "mixing", ("member", "layer")),
}
"""Arrays that are kept as they are: the variable, the part of a cell and its field, the dimensions."""
_WEIGHTS = {
    **dict.fromkeys(("query", "key", "value"), ("member", "layer", "input", "output")),
    "hidden": ("member", "hidden_layer", "input", "output"),
    "hidden_bias": ("member", "hidden_layer", "output"),
    "output": ("member", "input", "label"),
    "output_bias": ("member", "label"),
    "sink": ("member", "layer"),
}
"""The dimensions of weights."""
_LARGE = ("attention", "sink_queries", "sink_queries_untrained")


def dataset_of(cell: Cell) -> "xr.Dataset":
    """A cell as labelled arrays; `docs/train.md` describes variables and dimensions."""
    xarray, experiment, evaluation, rollout = need_xarray(), cell.experiment, cell.evaluation, cell.rollout
    gaps, curves = list(evaluation.gaps.values()), dict(cell.trained.curves)
    steps, tokens = np.asarray(curves.pop("iteration")), np.arange(experiment.task.tokens)
    plain = {
        name: (dimensions, getattr(getattr(cell, part), key))
        for name, (part, key, dimensions) in _ARRAYS.items()
    }
    variables = {
        **_averages("loss", ("member",), evaluation.loss),
        **_averages("in_context_accuracy", ("member",), evaluation.in_context_accuracy),
        **_averages("gap", ("pair", "member"), *(gap.over_all for gap in gaps)),
        **_averages("gap_informative", ("pair", "member"), *(gap.over_informative for gap in gaps)),
        "informative_share": (("pair", "member"), np.stack([gap.share for gap in gaps])),
        "pair_items": (("pair", "side"), np.array([(gap.first, gap.second) for gap in gaps])),
        **plain,
        "allowed": (("query", "key"), cell.sinks.allowed.astype(np.int8)),
        **{_ROLLOUT + name: (("member", "position"), masses) for name, masses in rollout.profiles.items()},
        **{_CURVE + name: (("member", "step"), np.asarray(curve)) for name, curve in curves.items()},
        **{
            _WEIGHT + name: (_WEIGHTS[name], held.cpu().numpy())
            for name, held in cell.trained.weights.items()
        },
    }
    labels = {
        "member": list(experiment.seeds),
        "step": steps,
        "pair": list(evaluation.gaps),
        "item": np.arange(experiment.task.items),
        "layer": np.arange(experiment.network.depth),
        **dict.fromkeys(("query", "key", "position"), tokens),
        "threshold": list(cell.sinks.thresholds),
        "start": list(cell.sinks.starts),
    }
    attributes = {
        "test_seed": evaluation.seed,
        "sink_sequences": cell.sinks.sequences,
        "rollout_sequences": rollout.sequences,
        "assumptions": json.dumps(list(rollout.assumptions)),
        "largest_gap": largest_gap(experiment.task),
        "stopped": json.dumps({str(seed): at for seed, at in cell.trained.stopped.items()}),
        "training_cost": json.dumps(cell.trained.cost),
        "machine": platform.machine(),
    }
    dataset = xarray.Dataset(variables, coords=labels, attrs=attributes)
    for name in _LARGE:
        dataset[name].encoding = {"zlib": True, "complevel": 4}
    return dataset


def cell_of(header: Header, dataset: "xr.Dataset") -> Cell:
    """The cell of what its file holds; weights on the CPU."""
    attributes, experiment = dataset.attrs, decode(Experiment, header.specification)

    def named(prefix: str) -> dict[str, np.ndarray]:
        """The arrays whose names begin so, by the rest of the name."""
        found = {str(name): held.values for name, held in dataset.data_vars.items()}
        return {name.removeprefix(prefix): held for name, held in found.items() if name.startswith(prefix)}

    trained = Trained(
        experiment,
        {name: torch.tensor(held) for name, held in named(_WEIGHT).items()},
        {"iteration": dataset["step"].values, **named(_CURVE)},
        {int(seed): iteration for seed, iteration in json.loads(attributes["stopped"]).items()},
        json.loads(attributes["training_cost"]),
    )
    held: dict[str, dict[str, Any]] = {"evaluation": {}, "sinks": {}, "rollout": {}}
    for name, (part, key, _) in _ARRAYS.items():
        held[part][key] = dataset[name].values
    held["sinks"]["allowed"] = held["sinks"]["allowed"].astype(bool)
    evaluation = Evaluation(
        **held["evaluation"],
        sequences=int(header.amount or 0),
        seed=int(attributes["test_seed"]),
        gaps={
            str(name): _gap(dataset.isel(pair=number)) for number, name in enumerate(dataset["pair"].values)
        },
        loss=_averages_of(dataset, "loss"),
        in_context_accuracy=_averages_of(dataset, "in_context_accuracy"),
    )
    counted = Sinks(
        **held["sinks"],
        thresholds=tuple(float(one) for one in dataset["threshold"].values),
        starts=tuple(int(one) for one in dataset["start"].values),
        sequences=int(attributes["sink_sequences"]),
    )
    rollout = Rollout(
        **held["rollout"],
        profiles=named(_ROLLOUT),
        assumptions=tuple(json.loads(attributes["assumptions"])),
        sequences=int(attributes["rollout_sequences"]),
    )
    return Cell(trained, evaluation, counted, rollout)


def _averages(name: str, dimensions: tuple[str, ...], *rows: Averages) -> dict[str, Any]:
    """Averages as three variables: the values, their errors over sequences, the sequences counted."""
    parts = {"": "values", "_error": "errors", "_count": "counts"}
    made = {name + ending: np.stack([getattr(row, part) for row in rows]) for ending, part in parts.items()}
    return {key: (dimensions, one if len(dimensions) > 1 else one[0]) for key, one in made.items()}


def _averages_of(dataset: "xr.Dataset", name: str) -> Averages:
    return Averages(*(dataset[name + ending].values for ending in ("", "_error", "_count")))


def _gap(dataset: "xr.Dataset") -> Gap:
    """The gap of one pair."""
    first, second = (int(item) for item in dataset["pair_items"].values)
    both = _averages_of(dataset, "gap"), _averages_of(dataset, "gap_informative")
    return Gap(first, second, *both, dataset["informative_share"].values)


# --- cells of a store --------------------------------------------------------------------------------------


@dataclass(eq=False)
class Together:
    """Experiments that train as one ensemble, and what of them is trained and not measured yet."""

    experiments: tuple[Experiment, ...]
    checkpoint: Path | None = None
    device: str = "cpu"
    threads: int = 1
    trained: dict[Experiment, Trained] = field(default_factory=dict)

    def of(self, experiment: Experiment, on_event: OnEvent) -> Trained:
        """One of them, trained with the others unless it is already. Raises as `train`."""
        if experiment not in self.trained:
            how = {"checkpoint": self.checkpoint, "device": self.device, "threads": self.threads}
            made = train(self.experiments, **how, on_event=on_event)
            self.trained = {one.experiment: one for one in made}
        return self.trained.pop(experiment)


@dataclass(frozen=True)
class TrainingCell(StoredCell):
    """An experiment as a cell of the store; the amount is the number of test sequences."""

    experiment: Experiment
    amount: int | None = field(default=None, compare=False)
    together: Together | None = field(default=None, compare=False)
    gpus: float = field(default=0.0, compare=False)

    kind = KIND
    schema = SCHEMA
    codec = NetCDFCodec()
    unit = "iteration"

    @property
    def specification(self) -> Mapping[str, Any]:
        """The experiment, seeds included."""
        return encode(self.experiment)

    @property
    def name(self) -> str:
        """The experiment in words."""
        return words_of(self.experiment)

    @property
    def packages(self) -> tuple[str, ...]:
        """What trains."""
        return ("torch",)

    @property
    def size(self) -> float:
        """Iterations, summed over members; those of an ensemble count for the first of its cells."""
        team = self.together
        if team is None or team.trained or team.experiments[0] != self.experiment:
            return 0.0
        return float(sum(len(one.seeds) * one.iterations for one in team.experiments))

    def compute(self, on_event: OnEvent) -> Cell:
        """Train, or go on from a checkpoint, and measure. Raises as `train` and `evaluate`."""
        assert self.together is not None
        return measure_cell(self.together.of(self.experiment, on_event), self.amount or 1)

    def to_content(self, result: Cell) -> "xr.Dataset":
        """Labelled arrays."""
        return dataset_of(result)

    def from_content(self, header: Header, content: "xr.Dataset") -> Cell:
        """The result; weights come to the CPU."""
        return cell_of(header, content)


def find_cell(folder: Path, experiment: Experiment) -> Cell | None:
    """The last good cell of an experiment in `folder`, if there is one; what is damaged is logged."""
    stored = Store(folder).find(TrainingCell(experiment))
    return None if stored is None else replace(stored.result, path=stored.path)


def load_cell(path: Path) -> Cell:
    """Read a cell back; weights come to the CPU.

    Raises `InputFileError` when its file is missing or damaged, is no cell's, or is of another version.
    """
    header, content = TrainingCell.codec.read(Path(path), KIND, SCHEMA)
    stored = TrainingCell(decode(Experiment, header.specification)).restored(header, content, Path(path))
    return replace(stored.result, path=stored.path)


# --- running -----------------------------------------------------------------------------------------------


def run_cells(
    experiments: Iterable[Experiment],
    folder: str | os.PathLike[str],
    *,
    sequences: int = 2000,
    again: bool = False,
    device: str = "cpu",
    workers: int | None = None,
    engine: Engine | None = None,
    gpus_per_cell: float = 0,
    on_event: OnEvent | None = None,
) -> list[Cell]:
    """The cell of every experiment, in order, from `folder` where it is there and whole.

    A cell that was tested on fewer than `sequences` sequences is tested anew, not trained; `again` trains
    everything. `workers` is the number of cores: so many cells at a time (default: all), or threads for a single
    cell (default: one). An `engine` takes its place; a cluster sets aside `gpus_per_cell` (a half: two cells side
    by side on one) when `device` is not the CPU. `on_event` counts iterations, over the members of all cells that
    are trained. What is worth a line, such as a damaged file, is logged.

    A cell that fails is logged and stops no other; afterwards the first one's error is raised. Raises
    `InvalidValueError` for wrong values before anything is trained, and as `train` does; `OutputFileError` when
    the folder cannot be written; `WorkerError` for a process that keeps being ended from without; as the engine
    does; KeyboardInterrupt on Ctrl-C, saying what is kept.
    """
    wanted, folder = list(experiments), Path(folder)
    _check(wanted, folder, sequences, workers, device)
    _check_engine(engine, workers, device, gpus_per_cell)
    store = Store(folder)
    stored = {one: None if again else store.find(TrainingCell(one)) for one in wanted}
    known = {one: kept for one, kept in stored.items() if kept is not None}
    side_by_side = device != "cpu" and engine is None
    groups = _grouped(stored, folder, known, side_by_side)
    count = sum(map(len, groups))
    if engine is None:
        parallel = device == "cpu" and count > 1 and (workers or cores()) > 1
        engine = Processes(workers or cores()) if parallel else InProcess()
    threads = workers or 1 if isinstance(engine, InProcess) else 1
    cells = []
    for group in groups:
        place = _checkpoint(group, folder) if engine.shares_disk else None
        team = Together(group, place, device, threads)
        cells += [TrainingCell(one, sequences, team, gpus_per_cell) for one in group if one not in known]
    for one, kept in known.items():
        if (kept.header.amount or 0) < sequences:
            log.info("testing again, on %s sequences: %s", f"{sequences:,}", kept.path)
            team = Together((one,), trained={one: kept.result.trained})
            cells.append(TrainingCell(one, sequences, team, gpus_per_cell))
    done = compute(cells, store, engine=engine, again=True, on_event=on_event)
    known |= {cell.experiment: kept for cell, kept in done.stored.items()}
    for group in groups:
        _discard(group, folder, known)
    done.results()
    return [replace(known[one].result, path=known[one].path) for one in wanted]


def _grouped(
    experiments: Iterable[Experiment], folder: Path, known: Mapping[Experiment, Any], side_by_side: bool
) -> list[tuple[Experiment, ...]]:
    """What trains together, longest first: those not known, and whole groups whose training is begun.

    With `side_by_side` these are compatible experiments, of which none pays for what only others need: rotations,
    residual connections.
    """
    groups: list[list[Experiment]] = []
    for one in experiments:
        for group in groups if side_by_side else []:
            other, members = group[0].network, sum(len(each.seeds) for each in [*group, one])
            rotary = isinstance(one.network.positional, Rotary) == isinstance(other.positional, Rotary)
            alike = compatible(group[0], one) and rotary and one.network.residual == other.residual
            if alike and members <= TOGETHER:
                group.append(one)
                break
        else:
            groups.append([one])
    missing = []
    for group in map(tuple, groups):
        _discard(group, folder, known)
        begun = _checkpoint(group, folder).exists()
        missing.append(group if begun else tuple(one for one in group if one not in known))
    missing = [group for group in missing if not all(one in known for one in group)]
    return sorted(missing, key=_work, reverse=True)


def _work(group: Sequence[Experiment]) -> int:
    """What a training takes, in any unit: every layer costs the same."""
    return sum(len(one.seeds) * one.iterations * one.network.depth for one in group)


def _checkpoint(group: Sequence[Experiment], folder: Path) -> Path:
    """Where the state of a training is kept, next to the cells."""
    digits = hashlib.sha256(" ".join(map(fingerprint, group)).encode()).hexdigest()[:12]
    name = name_of(group[0]) if len(group) == 1 else f"{len(group)}-cells-{digits}"
    return folder / f".{name}.checkpoint"


def _discard(group: Sequence[Experiment], folder: Path, known: Mapping[Experiment, Any]) -> None:
    """Remove what the training of finished cells has left: what is newer than they are is of another one."""
    checkpoint = _checkpoint(group, folder)
    with contextlib.suppress(FileNotFoundError):  # an equal run may remove it meanwhile
        when = checkpoint.stat().st_mtime
        if all(one in known and when <= known[one].path.stat().st_mtime for one in group):
            log_of(checkpoint).unlink(missing_ok=True)
            checkpoint.unlink()


def _check(
    experiments: Sequence[Experiment], folder: Path, sequences: int, workers: int | None, device: str
) -> None:
    """Refuse before hours of training what would fail after them."""
    whole("sequences", sequences, 1)
    counted("workers", 1 if workers is None else workers)
    for experiment in experiments if device == "cpu" else ():
        experiment.check_memory()
    for task in {experiment.task for experiment in experiments}:
        compared(task)
    need_xarray()
    need_writable(folder / "cell.nc")


def _check_engine(engine: Engine | None, workers: int | None, device: str, gpus: float) -> None:
    """Refuse what would be ignored, or leave cells without their GPU."""
    cluster = engine is not None and not engine.shares_disk
    if not cluster:
        check_device(device)
    if engine is not None and workers is not None:
        raise wrong("workers", "none together with an engine", workers)
    if bool(non_negative("gpus_per_cell", gpus)) != (cluster and device != "cpu"):
        expected = "a share of a GPU for device cuda on a cluster, else none"
        raise wrong("gpus_per_cell", expected, got=f"{gpus}")
