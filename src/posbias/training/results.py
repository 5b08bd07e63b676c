"""A finished training and what was measured of it, and how both are kept: two files of a store.

    NAME.safetensors    what training made: weights (first axis member) and learning curves
    NAME.nc             gaps, accuracies, attention, sinks and the same curves as labelled arrays

The .nc is written last: where it is, the cell is whole. `docs/train.md` describes the variables.
"""

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from posbias.core.errors import DamagedError, InvalidValueError
from posbias.core.formats import (
    Header,
    NetCDFCodec,
    SafetensorsCodec,
    Tensors,
    digest_of_arrays,
    need_xarray,
    versions_here,
)
from posbias.core.spec import decode, encode
from posbias.core.store import Cell as StoredCell
from posbias.core.store import Store
from posbias.training.experiments import Experiment, words_of
from posbias.training.kernels import Rollout, trained_rollout
from posbias.training.loop import Trained
from posbias.training.probes import Averages, Evaluation, Gap, evaluate
from posbias.training.sinks import Sinks, default_starts, over_starts, sinks

if TYPE_CHECKING:
    import xarray as xr

KIND, WEIGHTS, SCHEMA = "cell", "weights", 3
_CURVE, _ROLLOUT = "curve_", "rollout_"
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
_LARGE = ("attention", "sink_queries", "sink_queries_untrained")


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

    @property
    def attention(self) -> Float[np.ndarray, "member layer query key"]:
        """Attention averaged over sequences that favour no position; NaN for stopped members."""
        return self.rollout.attention


def measure_cell(trained: Trained, sequences: int = 2000) -> Cell:
    """Everything that a cell holds of a trained ensemble, on `sequences` test sequences. Raises as `evaluate`."""
    return Cell(
        trained, evaluate(trained, sequences), sinks(trained, sequences), trained_rollout(trained, sequences)
    )


def tensors_of(trained: Trained) -> Tensors:
    """Weights and learning curves by name; who was stopped, and what training cost."""
    curves = {_CURVE + name: np.asarray(curve) for name, curve in trained.curves.items()}
    weights = {name: tensor.cpu().numpy() for name, tensor in trained.weights.items()}
    stopped = {str(seed): iteration for seed, iteration in trained.stopped.items()}
    return Tensors(weights | curves, {"stopped": stopped, "cost": dict(trained.cost)})


def trained_of(header: Header, tensors: Tensors) -> Trained:
    """What `tensors_of` was made from."""
    curves, weights = {}, {}
    for name, array in tensors.arrays.items():
        if name.startswith(_CURVE):
            curves[name.removeprefix(_CURVE)] = array
        else:
            weights[name] = torch.tensor(array)
    stopped = {int(seed): iteration for seed, iteration in tensors.note["stopped"].items()}
    experiment = decode(Experiment, header.specification)
    return Trained(experiment, weights, curves, stopped, dict(tensors.note["cost"]))


def dataset_of(cell: Cell) -> "xr.Dataset":
    """A cell as labelled arrays; `docs/train.md` describes variables and dimensions."""
    xarray, experiment, evaluation, rollout = need_xarray(), cell.experiment, cell.evaluation, cell.rollout
    gaps, curves = list(evaluation.gaps.values()), dict(cell.trained.curves)
    steps, tokens = np.asarray(curves.pop("iteration")), np.arange(experiment.task.tokens)
    plain = {
        name: (dimensions, getattr(getattr(cell, part), field))
        for name, (part, field, dimensions) in _ARRAYS.items()
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
        "largest_gap": evaluation.largest_gap,
        "stopped": json.dumps({str(seed): at for seed, at in cell.trained.stopped.items()}),
        "machine": platform.machine(),
    }
    dataset = xarray.Dataset(variables, coords=labels, attrs=attributes)
    for name in _LARGE:
        dataset[name].encoding = {"zlib": True, "complevel": 4}
    return dataset


def cell_of(header: Header, content: "tuple[xr.Dataset, Tensors]") -> Cell:
    """The cell of what its files hold."""
    dataset, tensors = content
    trained, attributes = trained_of(header, tensors), dataset.attrs
    held: dict[str, dict[str, Any]] = {"evaluation": {}, "sinks": {}, "rollout": {}}
    for name, (part, field, _) in _ARRAYS.items():
        held[part][field] = _array(dataset, name)
    held["sinks"]["allowed"] = held["sinks"]["allowed"].astype(bool)
    evaluation = Evaluation(
        **held["evaluation"],
        seeds=trained.experiment.seeds,
        sequences=int(header.amount or 0),
        seed=int(attributes["test_seed"]),
        gaps={
            str(name): _gap(dataset.isel(pair=number)) for number, name in enumerate(dataset["pair"].values)
        },
        loss=_averages_of(dataset, "loss"),
        in_context_accuracy=_averages_of(dataset, "in_context_accuracy"),
        largest_gap=float(attributes["largest_gap"]),
        stopped=trained.stopped,
    )
    starts = dataset["start"].values if "start" in dataset.coords else default_starts(dataset.sizes["key"])
    counted = Sinks(
        **held["sinks"],
        thresholds=tuple(float(one) for one in dataset["threshold"].values),
        starts=tuple(int(one) for one in starts),
        sequences=int(attributes["sink_sequences"]),
    )
    profiles = {
        str(name).removeprefix(_ROLLOUT): masses.values
        for name, masses in dataset.data_vars.items()
        if str(name).startswith(_ROLLOUT)
    }
    rollout = Rollout(
        **held["rollout"],
        profiles=profiles,
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


def _array(dataset: "xr.Dataset", name: str) -> np.ndarray:
    """A variable; sums over queries also of cells that had sinks query by query."""
    if name in dataset:
        return dataset[name].values
    shares = dataset[name.replace("queries", "share")].values
    return over_starts(shares, default_starts(dataset.sizes["key"]))


class CellCodec:
    """Labelled arrays as NetCDF, with the weights they were measured of in a safetensors file next to it."""

    suffix = ".nc"

    def write(self, path: Path, header: Header, content: "tuple[xr.Dataset, Tensors]") -> Header:
        """Write both files, the .nc last, each whole or not at all. Raises `OutputFileError`."""
        dataset, tensors = content
        SafetensorsCodec().write(weights_path(path), replace(header, kind=WEIGHTS, amount=None), tensors)
        # equal trainings that write at once differ in cost alone: either's .nc fits either's weights
        return NetCDFCodec().write(path, replace(header, companion=digest_of_arrays(tensors.arrays)), dataset)

    def read(self, path: Path, kind: str, schema: int) -> "tuple[Header, tuple[xr.Dataset, Tensors]]":
        """Read both files. Raises `InputFileError` as the codecs of both do, `DamagedError` for one without the
        other."""
        header, dataset = NetCDFCodec().read(path, kind, schema)
        if not weights_path(path).is_file():
            raise DamagedError(f"{path}: damaged, {weights_path(path).name} with its weights is missing")
        weights, tensors = SafetensorsCodec().read(weights_path(path), WEIGHTS, schema)
        if weights.specification != header.specification:
            raise DamagedError(f"{path}: damaged, of another experiment than its weights")
        # that of the whole file: as cells had it that were written before
        if header.companion not in (digest_of_arrays(tensors.arrays), weights.digest):
            raise DamagedError(f"{path}: damaged, measured of other weights than its own")
        return header, (dataset, tensors)


@dataclass(frozen=True)
class OfExperiment(StoredCell):
    """What the files of an experiment are found by, with weights or without."""

    experiment: Experiment

    @property
    def specification(self) -> Mapping[str, Any]:
        """The experiment, seeds included."""
        return encode(self.experiment)

    @property
    def name(self) -> str:
        """The experiment in words."""
        return words_of(self.experiment)


@dataclass(frozen=True)
class TrainingCell(OfExperiment):
    """An experiment as a cell of the store; the amount is the number of test sequences."""

    kind = KIND
    schema = SCHEMA
    codec = CellCodec()

    def to_content(self, result: Cell) -> "tuple[xr.Dataset, Tensors]":
        """Labelled arrays, and weights with learning curves."""
        return dataset_of(result), tensors_of(result.trained)

    def from_content(self, header: Header, content: "tuple[xr.Dataset, Tensors]") -> Cell:
        """The result; weights come to the CPU."""
        return cell_of(header, content)


def save_cell(cell: Cell, path: Path) -> Cell:
    """Write a cell's two files. Raises `OutputFileError`."""
    stored, versions, amount = (
        TrainingCell(cell.experiment),
        versions_here(("torch",)),
        cell.evaluation.sequences,
    )
    header = Header(KIND, SCHEMA, stored.specification, amount, versions, cell.trained.cost)
    stored.codec.write(Path(path), header, stored.to_content(cell))
    return replace(cell, path=Path(path))


def save_numbered(
    cell: Cell, folder: Path, versions: Mapping[str, str] | None = None, number: int | None = None
) -> Cell:
    """Save a cell next to those of `folder`; `versions` are by default those here. Raises `OutputFileError`.

    `number` is that of its file (`Store.save`).
    """
    saved = Store(folder).save(
        TrainingCell(cell.experiment),
        cell,
        cell.trained.cost,
        versions=versions or versions_here(("torch",)),
        amount=cell.evaluation.sequences,
        number=number,
    )
    return replace(cell, path=saved.path)


def load_cell(path: Path) -> Cell:
    """Read a cell back; weights come to the CPU.

    Raises `InputFileError` when one of its files is missing or damaged, is no cell's, or is of another version.
    """
    header, content = TrainingCell.codec.read(Path(path), KIND, SCHEMA)
    try:
        return replace(cell_of(header, content), path=Path(path))
    except (InvalidValueError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(
            f"{path}: damaged, not a whole cell ({' '.join(str(error).split())[:120]})"
        ) from None


def save_trained(trained: Trained, path: Path) -> None:
    """Write weights, curves and what belongs to them to a .safetensors file. Raises `OutputFileError`."""
    header = Header(WEIGHTS, SCHEMA, encode(trained.experiment), versions=versions_here(("torch",)))
    SafetensorsCodec().write(path, header, tensors_of(trained))


def load_trained(path: Path) -> Trained:
    """Read what `save_trained` wrote, to the CPU. Raises `InputFileError`."""
    return trained_of(*SafetensorsCodec().read(path, WEIGHTS, SCHEMA))


def weights_path(path: Path) -> Path:
    """Where the weights of the cell at `path` are."""
    return path.with_suffix(".safetensors")
