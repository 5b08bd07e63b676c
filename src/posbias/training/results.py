"""A finished training and what was measured of it, and how both are kept: two files of a store.

    NAME.safetensors    what training made: weights (first axis member) and learning curves
    NAME.nc             gaps, accuracies, attention, sinks and the same curves as labelled arrays

The .nc is written last: where it is, the cell is whole. `docs/training.md` describes the variables.
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

from posbias.errors import DamagedError, InvalidValueError
from posbias.spec import decode, encode, fingerprint
from posbias.store import Header, NetCDFCodec, SafetensorsCodec, Store, Tensors, need_xarray, versions_here
from posbias.training.averages import Averages
from posbias.training.kernels import Rollout, agreement, trained_rollout
from posbias.training.loop import Trained
from posbias.training.probes import Evaluation, Gap, evaluate
from posbias.training.shorthand import words_of
from posbias.training.sinks import LATER, Sinks, over_starts, sinks
from posbias.training.specification import Experiment

if TYPE_CHECKING:
    import xarray as xr

KIND, WEIGHTS, SCHEMA = "cell", "weights", 3
MADE_BY = "posbias train"
_TRAINED, _UNTRAINED, _UNIFORM = "sink_queries", "sink_queries_untrained", "sink_queries_uniform"
_SHARES = {_TRAINED: "sink_share", _UNTRAINED: "sink_share_untrained", _UNIFORM: "sink_share_uniform"}
"""The same query by query, as cells had it before they were counted over queries."""
_CURVE, _ROLLOUT = "curve_", "rollout_"
_LARGE = ("attention", _TRAINED, _UNTRAINED)


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

    def as_dict(self) -> dict[str, Any]:
        """What the evaluation says, then sinks, experiment, file and cost; ready for JSON."""
        about = {
            "sinks": self.sinks.as_dict(),
            "rollout": self.rollout.as_dict(),
            "agreement": {
                name: one.as_dict() for name, one in agreement(self.rollout, self.evaluation).items()
            },
            "experiment": encode(self.experiment),
            "fingerprint": fingerprint(self.experiment),
            "cost": dict(self.trained.cost),
            "file": None if self.path is None else str(self.path),
        }
        return self.evaluation.as_dict() | about


def measure_cell(trained: Trained, sequences: int = 2000) -> Cell:
    """Everything that a cell holds of a trained ensemble, on `sequences` test sequences. Raises as `evaluate`."""
    return Cell(
        trained, evaluate(trained, sequences), sinks(trained, sequences), trained_rollout(trained, sequences)
    )


class CellCodec:
    """Labelled arrays as NetCDF, with the weights they were measured of in a safetensors file beside it."""

    suffix = ".nc"

    def write(self, path: Path, header: Header, content: "tuple[xr.Dataset, Tensors]") -> Header:
        """Write both files, the .nc last, each whole or not at all. Raises `OutputFileError`."""
        dataset, tensors = content
        weights = SafetensorsCodec().write(
            weights_path(path), replace(header, kind=WEIGHTS, amount=None), tensors
        )
        return NetCDFCodec().write(path, replace(header, companion=weights.digest), dataset)

    def read(
        self, path: Path, kind: str, schema: int, made_by: str = ""
    ) -> "tuple[Header, tuple[xr.Dataset, Tensors]]":
        """Read both files. Raises `InputFileError` as the codecs of both do, `DamagedError` for one without the
        other."""
        header, dataset = NetCDFCodec().read(path, kind, schema, made_by or MADE_BY)
        if not weights_path(path).is_file():
            raise DamagedError(f"{path}: damaged, {weights_path(path).name} with its weights is missing")
        weights, tensors = SafetensorsCodec().read(weights_path(path), WEIGHTS, schema)
        if weights.specification != header.specification:
            raise DamagedError(f"{path}: damaged, of another experiment than the weights beside it")
        if weights.digest != header.companion:
            raise DamagedError(f"{path}: damaged, measured of other weights than those beside it")
        return header, (dataset, tensors)


@dataclass(frozen=True)
class TrainingCell:
    """An experiment as a cell of the store; the amount is the number of test sequences."""

    experiment: Experiment

    kind = KIND
    schema = SCHEMA
    codec = CellCodec()

    @property
    def specification(self) -> Mapping[str, Any]:
        """The experiment, seeds included."""
        return encode(self.experiment)

    @property
    def name(self) -> str:
        """The experiment in words."""
        return words_of(self.experiment)

    def to_content(self, result: Cell) -> "tuple[xr.Dataset, Tensors]":
        """Labelled arrays, and weights with learning curves."""
        return as_dataset(result), tensors_of(result.trained)

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


def save_beside(cell: Cell, folder: Path, versions: Mapping[str, str] | None = None) -> Cell:
    """Save a cell beside those of `folder`; `versions` are by default those here. Raises `OutputFileError`."""
    saved = Store(folder).save(
        TrainingCell(cell.experiment),
        cell,
        cell.trained.cost,
        versions=versions or versions_here(("torch",)),
        amount=cell.evaluation.sequences,
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


def cell_of(header: Header, content: "tuple[xr.Dataset, Tensors]") -> Cell:
    """The cell of what its files hold."""
    dataset, tensors = content
    trained = trained_of(header, tensors)
    return Cell(trained, _evaluation(dataset, trained, header), _sinks(dataset), _rollout(dataset))


def save_trained(trained: Trained, path: Path) -> None:
    """Write weights, curves and what belongs to them to a .safetensors file. Raises `OutputFileError`."""
    header = Header(WEIGHTS, SCHEMA, encode(trained.experiment), versions=versions_here(("torch",)))
    SafetensorsCodec().write(path, header, tensors_of(trained))


def load_trained(path: Path) -> Trained:
    """Read what `save_trained` wrote, to the CPU. Raises `InputFileError`."""
    return trained_of(*SafetensorsCodec().read(path, WEIGHTS, SCHEMA, MADE_BY))


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


def weights_path(path: Path) -> Path:
    """Where the weights of the cell at `path` are."""
    return path.with_suffix(".safetensors")


def as_dataset(cell: Cell) -> "xr.Dataset":
    """A cell as labelled arrays; `docs/training.md` describes variables and dimensions."""
    xarray = need_xarray()
    experiment, evaluation, counted = cell.experiment, cell.evaluation, cell.sinks
    gaps = list(evaluation.gaps.values())
    variables = {
        **_averages("loss", ("member",), evaluation.loss),
        **_averages("in_context_accuracy", ("member",), evaluation.in_context_accuracy),
        **_averages("gap", ("pair", "member"), *(gap.over_all for gap in gaps)),
        **_averages("gap_informative", ("pair", "member"), *(gap.over_informative for gap in gaps)),
        "informative_share": (("pair", "member"), np.stack([gap.share for gap in gaps])),
        "pair_items": (("pair", "side"), np.array([(gap.first, gap.second) for gap in gaps])),
        "accuracy_by_position": (("member", "item"), evaluation.accuracy_by_position),
        "accuracy_alone": (("member", "item"), evaluation.accuracy_alone),
        "attention": (("member", "layer", "query", "key"), cell.attention),
        _TRAINED: (("member", "layer", "start", "key", "threshold"), counted.trained),
        _UNTRAINED: (("member", "layer", "start", "key", "threshold"), counted.untrained),
        _UNIFORM: (("start", "key", "threshold"), counted.uniform),
        "allowed": (("query", "key"), counted.allowed.astype(np.int8)),
        "mixing": (("member", "layer"), cell.rollout.mixing),
        **{
            _ROLLOUT + name: (("member", "position"), masses)
            for name, masses in cell.rollout.profiles.items()
        },
        **{
            _CURVE + name: (("member", "step"), np.asarray(curve))
            for name, curve in cell.trained.curves.items()
            if name != "iteration"
        },
    }
    task, depth = experiment.task, experiment.network.depth
    labels = {
        "member": list(experiment.seeds),
        "step": np.asarray(cell.trained.curves["iteration"]),
        "pair": list(evaluation.gaps),
        "item": np.arange(task.items),
        "layer": np.arange(depth),
        **{name: np.arange(task.tokens) for name in ("query", "key", "position")},
        "threshold": list(counted.thresholds),
        "start": list(counted.starts),
    }
    told = {
        "test_seed": evaluation.seed,
        "sink_sequences": counted.sequences,
        "rollout_sequences": cell.rollout.sequences,
        "assumptions": json.dumps(list(cell.rollout.assumptions)),
        "largest_gap": evaluation.largest_gap,
        "stopped": json.dumps({str(seed): at for seed, at in cell.trained.stopped.items()}),
        "machine": platform.machine(),
    }
    dataset = xarray.Dataset(variables, coords=labels, attrs=told)
    for name in _LARGE:
        dataset[name].encoding = {"zlib": True, "complevel": 4}
    return dataset


def _averages(name: str, dimensions: tuple[str, ...], *rows: Averages) -> dict[str, Any]:
    """Averages as three variables: the values, their errors over sequences, the sequences counted."""
    parts = {"": "values", "_error": "errors", "_count": "counts"}
    made = {name + ending: np.stack([getattr(row, part) for row in rows]) for ending, part in parts.items()}
    return {key: (dimensions, one if len(dimensions) > 1 else one[0]) for key, one in made.items()}


def _evaluation(dataset: "xr.Dataset", trained: Trained, header: Header) -> Evaluation:
    def averages(name: str, place: Mapping[str, int]) -> Averages:
        return Averages(*(dataset[name + ending].isel(place).values for ending in ("", "_error", "_count")))

    gaps = {}
    for number, name in enumerate(dataset["pair"].values):
        place = {"pair": number}
        first, second = (int(item) for item in dataset["pair_items"].isel(place).values)
        both = averages("gap", place), averages("gap_informative", place)
        gaps[str(name)] = Gap(first, second, *both, dataset["informative_share"].isel(place).values)
    return Evaluation(
        seeds=trained.experiment.seeds,
        sequences=int(header.amount or 0),
        seed=int(dataset.attrs["test_seed"]),
        gaps=gaps,
        loss=averages("loss", {}),
        in_context_accuracy=averages("in_context_accuracy", {}),
        accuracy_by_position=dataset["accuracy_by_position"].values,
        accuracy_alone=dataset["accuracy_alone"].values,
        largest_gap=float(dataset.attrs["largest_gap"]),
        stopped=trained.stopped,
    )


def _sinks(dataset: "xr.Dataset") -> Sinks:
    allowed = dataset["allowed"].values.astype(bool)
    if "start" in dataset.coords:
        starts = tuple(int(one) for one in dataset["start"].values)
        counts = {name: dataset[name].values for name in _SHARES}
    else:
        starts = (0, min(LATER, len(allowed) - 1))
        counts = {name: over_starts(dataset[shares].values, starts) for name, shares in _SHARES.items()}
    return Sinks(
        thresholds=tuple(float(one) for one in dataset["threshold"].values),
        starts=starts,
        allowed=allowed,
        trained=counts[_TRAINED],
        untrained=counts[_UNTRAINED],
        uniform=counts[_UNIFORM],
        sequences=int(dataset.attrs["sink_sequences"]),
    )


def _rollout(dataset: "xr.Dataset") -> Rollout:
    return Rollout(
        attention=dataset["attention"].values,
        mixing=dataset["mixing"].values,
        profiles={
            str(name).removeprefix(_ROLLOUT): masses.values
            for name, masses in dataset.data_vars.items()
            if str(name).startswith(_ROLLOUT)
        },
        assumptions=tuple(json.loads(dataset.attrs["assumptions"])),
        sequences=int(dataset.attrs["rollout_sequences"]),
    )
