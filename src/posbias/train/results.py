"""A finished cell on disk: what an ensemble became and what was measured of it.

    NAME.safetensors    what training made: weights (first axis member) and learning curves
    NAME.nc             gaps, accuracies, attention, sinks and the same curves as labelled arrays; in the
                        attributes the whole spec, its fingerprint, versions, cost, checksums of both files

The .nc is written last: where it is, the cell is whole. A file that does not match its checksum, or that another
version of posbias wrote, is refused. `docs/training.md` describes the variables.
"""

import datetime
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open

from posbias import files, netcdf
from posbias.errors import InputFileError
from posbias.spec import decode, encode, fingerprint
from posbias.train.averages import Averages
from posbias.train.kernels import Rollout, agreement, trained_rollout
from posbias.train.loop import Trained
from posbias.train.probes import Evaluation, Gap, evaluate
from posbias.train.sinks import Sinks, sinks
from posbias.train.specification import Experiment

if TYPE_CHECKING:
    import xarray as xr

KIND = "cell"
_VERSION = importlib.metadata.version("posbias")
_TRAINED, _UNTRAINED = "sink_share", "sink_share_untrained"
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


def save_trained(trained: Trained, path: Path) -> None:
    """Write weights, curves and what belongs to them to a .safetensors file. Raises `OutputFileError`."""
    curves = {_CURVE + name: torch.as_tensor(np.asarray(one)) for name, one in trained.curves.items()}
    tensors = {name: one.cpu().contiguous() for name, one in trained.weights.items()} | curves
    about = {
        "version": _VERSION,
        "experiment": encode(trained.experiment),
        "stopped": {str(seed): at for seed, at in trained.stopped.items()},
        "cost": dict(trained.cost),
    }
    told = json.dumps(about, sort_keys=True)
    header = {"posbias": told, "digest": _digest(tensors, told)}
    files.write_bytes(path, safetensors.torch.save(tensors, header))


def load_trained(path: Path) -> Trained:
    """Read what `save_trained` wrote, to the CPU. Raises `InputFileError` as `load_cell` does."""
    path = Path(path)
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            # cloned: the file's memory is not ours
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if header["digest"] != _digest(tensors, header["posbias"]):
            raise InputFileError(f"{path}: damaged, its content does not match its checksum")
        about = json.loads(header["posbias"])
        _need_version(path, about["version"])
        return Trained(
            experiment=decode(Experiment, about["experiment"]),
            weights={name: one for name, one in tensors.items() if not name.startswith(_CURVE)},
            curves={
                name.removeprefix(_CURVE): one.numpy()
                for name, one in tensors.items()
                if name.startswith(_CURVE)
            },
            stopped={int(seed): at for seed, at in about["stopped"].items()},
            cost=about["cost"],
        )
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise InputFileError(
            f"{path}: not a readable training ({' '.join(str(error).split())[:120]})"
        ) from None


def save_cell(cell: Cell, path: Path) -> Cell:
    """Write a cell's two files, the .nc last, each whole or not at all. Raises `OutputFileError`."""
    save_trained(cell.trained, weights_path(path))
    checksum = hashlib.sha256(weights_path(path).read_bytes()).hexdigest()
    netcdf.save(
        as_dataset(cell).assign_attrs(weights_checksum=checksum), path, compressed=_LARGE, checksum=True
    )
    return replace(cell, path=path)


def load_cell(path: Path) -> Cell:
    """Read a cell back; weights come to the CPU.

    Raises `InputFileError` when one of its files is missing or damaged, is no cell's, or is of another version.
    """
    path = Path(path)
    dataset = netcdf.load(path, KIND, written_by="posbias train")
    _need_version(path, dataset.attrs.get("version"))
    trained = load_trained(weights_path(path))
    try:
        if decode(Experiment, json.loads(dataset.attrs["experiment"])) != trained.experiment:
            raise InputFileError(f"{path}: of another experiment than the weights beside it")
        checksum = hashlib.sha256(weights_path(path).read_bytes()).hexdigest()
        if dataset.attrs["weights_checksum"] != checksum:
            raise InputFileError(f"{path}: measured of other weights than those beside it")
        return Cell(trained, _evaluation(dataset, trained), _sinks(dataset), _rollout(dataset), path)
    except (KeyError, ValueError, TypeError) as error:
        raise InputFileError(f"{path}: not a whole cell ({' '.join(str(error).split())[:120]})") from None


def weights_path(path: Path) -> Path:
    """Where the weights of the cell at `path` are."""
    return path.with_suffix(".safetensors")


def as_dataset(cell: Cell) -> "xr.Dataset":
    """A cell as labelled arrays: dimensions member, step, pair, item, layer, query, key, position, threshold."""
    xarray = netcdf.need_xarray()
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
        _TRAINED: (("member", "layer", "query", "key", "threshold"), counted.trained),
        _UNTRAINED: (("member", "layer", "query", "key", "threshold"), counted.untrained),
        "sink_share_uniform": (("query", "key", "threshold"), counted.uniform),
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
    }
    return xarray.Dataset(variables, coords=labels, attrs=_attributes(cell))


def _attributes(cell: Cell) -> dict[str, str | int | float]:
    evaluation = cell.evaluation
    return {
        "posbias_kind": KIND,
        "schema": 1,
        "version": _VERSION,
        "experiment": json.dumps(encode(cell.experiment)),
        "fingerprint": fingerprint(cell.experiment),
        "test_sequences": evaluation.sequences,
        "test_seed": evaluation.seed,
        "sink_sequences": cell.sinks.sequences,
        "rollout_sequences": cell.rollout.sequences,
        "assumptions": json.dumps(list(cell.rollout.assumptions)),
        "largest_gap": evaluation.largest_gap,
        "stopped": json.dumps({str(seed): at for seed, at in cell.trained.stopped.items()}),
        "cost": json.dumps(dict(cell.trained.cost)),
        "versions": json.dumps(
            {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
        ),
        "machine": platform.machine(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _averages(name: str, dimensions: tuple[str, ...], *rows: Averages) -> dict[str, Any]:
    """Averages as three variables: the values, their errors over sequences, the sequences counted."""
    parts = {"": "values", "_error": "errors", "_count": "counts"}
    made = {name + ending: np.stack([getattr(row, part) for row in rows]) for ending, part in parts.items()}
    return {key: (dimensions, one if len(dimensions) > 1 else one[0]) for key, one in made.items()}


def _evaluation(dataset: "xr.Dataset", trained: Trained) -> Evaluation:
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
        sequences=int(dataset.attrs["test_sequences"]),
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
    return Sinks(
        thresholds=tuple(float(one) for one in dataset["threshold"].values),
        allowed=dataset["allowed"].values.astype(bool),
        trained=dataset[_TRAINED].values,
        untrained=dataset[_UNTRAINED].values,
        uniform=dataset["sink_share_uniform"].values,
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


def _digest(tensors: dict[str, torch.Tensor], told: str) -> str:
    return hashlib.sha256(safetensors.torch.save(tensors) + told.encode()).hexdigest()


def _need_version(path: Path, version: str | None) -> None:
    if version != _VERSION:
        raise InputFileError(f"{path}: trained by posbias {version}, this is {_VERSION}")
