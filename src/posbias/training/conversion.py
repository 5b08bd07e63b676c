"""The finished cells that posbias 0.1.0 left in a folder, read into files of today beside them; all stay.

    WORDS-DIGITS.nc, WORDS-DIGITS.safetensors    eight digits of the experiment's fingerprint (-2, -3: again)

Their data came from generators that are no more (`draws`): they are found and read, and cannot be made again nor
gone on with.
"""

import hashlib
import itertools
import json
import logging
from dataclasses import replace
from pathlib import Path

from posbias.errors import DamagedError, InputFileError
from posbias.spec import decode, encode, fingerprint
from posbias.store import Header, Store, Tensors, open_netcdf, open_tensors, versions_here
from posbias.store.netcdf_files import checksum_of_0_1
from posbias.training.results import SCHEMA, TrainingCell, weights_path
from posbias.training.shorthand import words_of
from posbias.training.specification import Experiment

log = logging.getLogger(__name__)
RELEASE, KIND = "0.1.0", "cell"


def of_0_1(experiment: Experiment) -> list[Experiment]:
    """What 0.1.0 may have trained for an experiment: with draws of its own, and evenly spaced points."""
    if experiment.draws != "philox":
        return []
    spaced = (experiment.evaluate_every, max(1, experiment.iterations // 10), 250)
    return [
        replace(experiment, draws="generators", evaluate_every=every)
        for every in dict.fromkeys(spaced)
        if every
    ]


def convert_cell(experiment: Experiment, folder: Path) -> bool:
    """Save the last good cell of 0.1.0 among those of one of its experiments anew; whether there was one."""
    names = (
        _name(experiment) + ending for ending in itertools.chain([""], map("-{}".format, itertools.count(2)))
    )
    cells = itertools.takewhile(Path.exists, (folder / f"{name}.nc" for name in names))
    for path in reversed(list(cells)):
        try:
            saved = _convert(path, experiment, folder)
        except InputFileError as error:
            log.warning("%s; not used", error)
            continue
        except (KeyError, TypeError, ValueError) as error:
            log.warning("%s: not a whole cell (%s); not used", path, " ".join(str(error).split())[:120])
            continue
        log.info("converted %s, of posbias %s, to %s", path, RELEASE, saved)
        return True
    return False


def _convert(path: Path, experiment: Experiment, folder: Path) -> Path:
    dataset = open_netcdf(path)
    told = dataset.attrs
    if told.pop("content_checksum", "") != checksum_of_0_1(dataset):
        raise DamagedError(f"{path}: damaged, its content does not match its checksum")
    if told["version"] != RELEASE:
        raise DamagedError(f"{path}: of posbias {told['version']}, not of {RELEASE}")
    if replace(decode(Experiment, json.loads(told["experiment"])), draws="generators") != experiment:
        raise DamagedError(f"{path}: holds another experiment than its name says")
    metadata, arrays = open_tensors(weights_path(path))
    if hashlib.sha256(weights_path(path).read_bytes()).hexdigest() != told["weights_checksum"]:
        raise DamagedError(f"{path}: measured of other weights than those beside it")
    about = json.loads(metadata["posbias"])
    cell, amount = TrainingCell(experiment), int(told["test_sequences"])
    header = Header(KIND, SCHEMA, cell.specification, amount=amount)
    tensors = Tensors(arrays, {"stopped": about["stopped"], "cost": about["cost"]})
    saved = Store(folder).save(
        cell,
        cell.from_content(header, (dataset, tensors)),
        about["cost"] | {"finished": told["created"]},
        versions=json.loads(told["versions"]) | {"posbias": RELEASE, "converted": versions_here()["posbias"]},
        amount=amount,
    )
    return saved.path


def _name(experiment: Experiment) -> str:
    told = {name: held for name, held in encode(experiment).items() if name not in ("precision", "draws")}
    return f"{words_of(experiment)}-{fingerprint(told)[:8]}"
