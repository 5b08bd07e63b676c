"""A spec file becomes experiments, and experiments become cells.

    iterations = 4000
    [network]
    residual = true
    [sweep]
    network.depth = [2, 4]
    network.positional = ["none", "rope", "decay"]

Every key under `[sweep]` is the path of a key of `Experiment` and a list of what to put there; the experiments
are all combinations, the last key running fastest (`posbias.core.spec`). Words may stand for masks and encodings
(`shorthand`).
"""

import os
from collections.abc import Mapping
from typing import Any

from posbias.core import spec
from posbias.core.errors import InvalidValueError, PosbiasError
from posbias.core.files import read_mapping
from posbias.training.shorthand import experiment_of, without_words
from posbias.training.specification import Experiment


def read_experiments(path: str | os.PathLike[str]) -> tuple[list[Experiment], bool]:
    """The experiments of a TOML, YAML or JSON file, and whether it is a sweep.

    Raises `InputFileError` for a file that cannot be read, `InvalidValueError` naming file and key for the rest.
    """
    data = read_mapping(path)
    try:
        return expand(data), "sweep" in data
    except PosbiasError as error:
        raise InvalidValueError(f"{path}: {error}") from None


def expand(data: Mapping[str, Any]) -> list[Experiment]:
    """All combinations of a spec's `sweep`, or the one experiment of a spec without.

    Raises `InvalidValueError` as `expand`, for two equal experiments, or values that are wrong.
    """
    base = without_words({key: held for key, held in data.items() if key != "sweep"})
    combinations = spec.expand(base, data.get("sweep", {}), spec.paths(Experiment))
    experiments = spec.build(combinations, experiment_of, "experiment", lambda experiment: experiment)
    return [experiment for _, experiment in experiments]
