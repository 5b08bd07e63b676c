"""Training the controlled retrieval experiments of Wu et al. 2025: task, network, ensembles, measures, sweeps.

    from posbias.train import Experiment, Network, evaluate, train

    trained = train(Experiment(network=Network(depth=2), iterations=2500))
    print(evaluate(trained).gaps["first-last"].all)

Nothing heavy happens at import: torch and xarray are loaded when a name below is first used, and
`MissingPackageError` says what to install when they are absent. `docs/training.md` explains the numbers.
"""

import importlib
from typing import TYPE_CHECKING

from posbias.errors import MissingPackageError

if TYPE_CHECKING:
    from posbias.train.cells import find_cell, run_cells
    from posbias.train.kernels import Rollout, agreement, trained_rollout
    from posbias.train.loop import Trained, train
    from posbias.train.matching import at_equal_accuracy, at_equal_iterations
    from posbias.train.network import ENCODINGS, Network
    from posbias.train.probes import Evaluation, attention_maps, evaluate
    from posbias.train.results import Cell, load_cell, measure_cell, save_cell
    from posbias.train.sinks import Sinks
    from posbias.train.specification import Experiment
    from posbias.train.sweep import expand, read_experiments
    from posbias.train.task import RetrievalTask

_HOME = {
    "Cell": "results",
    "ENCODINGS": "network",
    "Evaluation": "probes",
    "Experiment": "specification",
    "Network": "network",
    "RetrievalTask": "task",
    "Rollout": "kernels",
    "Sinks": "sinks",
    "Trained": "loop",
    "agreement": "kernels",
    "at_equal_accuracy": "matching",
    "at_equal_iterations": "matching",
    "attention_maps": "probes",
    "evaluate": "probes",
    "expand": "sweep",
    "find_cell": "cells",
    "load_cell": "results",
    "measure_cell": "results",
    "read_experiments": "sweep",
    "run_cells": "cells",
    "save_cell": "results",
    "train": "loop",
    "trained_rollout": "kernels",
}
_OPTIONAL = {"torch", "safetensors", "xarray", "h5netcdf", "h5py"}

__all__ = [
    "ENCODINGS",
    "Cell",
    "Evaluation",
    "Experiment",
    "Network",
    "RetrievalTask",
    "Rollout",
    "Sinks",
    "Trained",
    "agreement",
    "at_equal_accuracy",
    "at_equal_iterations",
    "attention_maps",
    "evaluate",
    "expand",
    "find_cell",
    "load_cell",
    "measure_cell",
    "read_experiments",
    "run_cells",
    "save_cell",
    "train",
    "trained_rollout",
]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _OPTIONAL:
            raise
        raise MissingPackageError(
            f"{package}: not installed, training needs it; run: pip install 'posbias[train]'"
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)
