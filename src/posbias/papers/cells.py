"""Cells: finished simulations on disk, one JSON file each, so that no figure draws a sample twice.

A cell is what `RecencyResult` is made of (model, seed, engine and the moments of its tally), every float in
full, with a checksum. Its name says model, seed and samples. A cell serves whoever wants no more samples than
it has; one that is damaged, or drawn by another version of posbias, is named and drawn anew.
"""

import hashlib
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from posbias.errors import InputFileError, InvalidValueError
from posbias.simulate import InterruptedSimulation, RecencyModel, RecencyResult, simulate_recency
from posbias.simulate.tally import Layout, Tally
from posbias.spec import decode, encode, fingerprint, read_mapping
from posbias.store import dump_json, save_json

KIND = "recency_cell"
MOMENTS = ("mean", "squares", "products")
VERSION = version("posbias")
"""The version that draws cells, and whose cells are used."""


def gather(
    models: Iterable[RecencyModel],
    folder: Path,
    *,
    samples: int,
    seed: int = 0,
    threads: int | None = None,
    again: bool = False,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[RecencyModel, RecencyResult]:
    """The simulation of every model with at least `samples` samples, from `folder` where it has them.

    What it has not (with `again`: everything) is drawn and kept there, cell by cell. `progress` is called with
    (samples drawn, samples to draw), over all cells. Raises as `simulate_recency`; `OutputFileError` when a
    cell cannot be written; KeyboardInterrupt on Ctrl-C, saying what is kept: the running cell is lost.
    """
    say = say or (lambda line: None)
    wanted = list(dict.fromkeys(models))
    found = {model: None if again else find_cell(folder, model, seed, samples, say) for model in wanted}
    missing = [model for model, result in found.items() if result is None]
    for number, model in enumerate(missing):
        before = number * samples

        def drawn(done: int, _: int | None, before: int = before) -> None:
            if progress:
                progress(before + done, len(missing) * samples)

        try:
            found[model] = simulate_recency(model, samples, seed=seed, threads=threads, progress=drawn)
        except InterruptedSimulation as stopped:
            lost = stopped.result.samples if stopped.result else 0
            raise KeyboardInterrupt(
                f"{len(wanted) - len(missing) + number} of {len(wanted)} cells are kept in {folder}, the same "
                f"command goes on from there; {lost:,} samples of the running cell are lost"
            ) from None
        save_cell(found[model], folder)  # type: ignore[arg-type]
    return {model: result for model, result in found.items() if result is not None}


def find_cell(
    folder: Path, model: RecencyModel, seed: int, samples: int, say: Callable[[str], None]
) -> RecencyResult | None:
    """The cell of this model and seed with the most samples, if these are at least `samples`, else None.

    Files that cannot be used are named through `say`.
    """
    stem = _stem(model, seed)
    sizes = [path.stem.removeprefix(stem) for path in folder.glob(f"{stem}*.json")]
    for size in sorted((int(size) for size in sizes if size.isdecimal()), reverse=True):
        if size < samples:
            break
        try:
            result = load_cell(folder / f"{stem}{size}.json")
            if (result.model, result.seed) != (model, seed) or result.samples != size:
                raise InputFileError(
                    f"{folder / f'{stem}{size}.json'}: holds another cell than its name says"
                )
            return result
        except InputFileError as error:
            say(f"{error}; not used")
    return None


def save_cell(result: RecencyResult, folder: Path) -> Path:
    """Write a simulation to its file in `folder`, whole or not at all. Raises `OutputFileError`."""
    body = {
        "posbias_kind": KIND,
        "version": VERSION,
        "model": encode(result.model),
        "seed": result.seed,
        "engine": result.engine,
        "samples": result.samples,
        **{name: getattr(result.tally, name).tolist() for name in MOMENTS},
    }
    return save_json(
        {"checksum": _checksum(body)} | body, cell_path(folder, result.model, result.seed, result.samples)
    )


def load_cell(path: Path) -> RecencyResult:
    """Read a simulation back, every float as it was.

    Raises `InputFileError` when the file is missing or damaged, holds no cell, or is of another version.
    """
    data = read_mapping(path)
    if data.get("posbias_kind") != KIND:
        raise InputFileError(f"{path}: not a cell; one is written by 'posbias paper'")
    if data.pop("checksum", None) != _checksum(data):
        raise InputFileError(f"{path}: damaged, its content does not match its checksum")
    if data.get("version") != VERSION:
        raise InputFileError(f"{path}: drawn by posbias {data.get('version')}, this is {VERSION}")
    try:
        model = decode(RecencyModel, data["model"])
        tally = Tally(Layout(model.tokens), model.depth, int(data["samples"]))
        for name in MOMENTS:
            moments = np.array(data[name], dtype=np.float64)
            if moments.shape != getattr(tally, name).shape or not np.isfinite(moments).all():
                raise ValueError(f"{name} are not as many numbers as the model has features")
            setattr(tally, name, moments)
        return RecencyResult(model, int(data["seed"]), str(data["engine"]), tally)
    except (KeyError, TypeError, ValueError, InvalidValueError) as error:
        raise InputFileError(f"{path}: not a whole cell ({error})") from None


def cell_path(folder: Path, model: RecencyModel, seed: int, samples: int) -> Path:
    """Where the cell of so many samples stands in `folder`."""
    return folder / f"{_stem(model, seed)}{samples}.json"


def _stem(model: RecencyModel, seed: int) -> str:
    residual = "-residual" if model.residual else ""
    words = f"{model.norm}{residual}-d{model.dimension}-alpha{model.anisotropy:g}"
    return f"{words}-{fingerprint(model)[:8]}-seed{seed}-"


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(dump_json(body).encode()).hexdigest()
