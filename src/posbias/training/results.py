"""A finished training and what was measured of it, and how both are kept: two files of a store.

    NAME.safetensors    what training made: weights (first axis member) and learning curves
    NAME.nc             gaps, accuracies, attention, sinks and the same curves as labelled arrays

The .nc is written last: where it is, the cell is whole. `docs/training.md` describes the variables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.core.errors import DamagedError, InvalidValueError
from posbias.core.formats import (
    Header,
    NetCDFCodec,
    SafetensorsCodec,
    Tensors,
    digest_of_arrays,
    versions_here,
)
from posbias.core.spec import encode
from posbias.core.store import Cell as StoredCell
from posbias.core.store import Store
from posbias.training.arrays import as_dataset, evaluation_of, rollout_of, sinks_of, tensors_of, trained_of
from posbias.training.kernels import Rollout, trained_rollout
from posbias.training.loop import Trained
from posbias.training.probes import Evaluation, evaluate
from posbias.training.shorthand import words_of
from posbias.training.sinks import Sinks, sinks
from posbias.training.specification import Experiment

if TYPE_CHECKING:
    import xarray as xr

KIND, WEIGHTS, SCHEMA = "cell", "weights", 3


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


class CellCodec:
    """Labelled arrays as NetCDF, with the weights they were measured of in a safetensors file beside it."""

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
        parts = result.trained, result.evaluation, result.sinks, result.rollout
        return as_dataset(*parts), tensors_of(result.trained)

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


def save_beside(
    cell: Cell, folder: Path, versions: Mapping[str, str] | None = None, number: int | None = None
) -> Cell:
    """Save a cell beside those of `folder`; `versions` are by default those here. Raises `OutputFileError`.

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


def cell_of(header: Header, content: "tuple[xr.Dataset, Tensors]") -> Cell:
    """The cell of what its files hold."""
    dataset, tensors = content
    trained = trained_of(header, tensors)
    return Cell(trained, evaluation_of(dataset, trained, header), sinks_of(dataset), rollout_of(dataset))


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
