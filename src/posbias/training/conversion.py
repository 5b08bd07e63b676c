"""What posbias 0.1.0 left in a folder of trainings, read into files of today beside it. Nothing is removed.

WORDS-DIGITS.nc, WORDS-DIGITS.safetensors    a finished cell, eight digits of its fingerprint (-2, -3: again)
.WORDS-DIGITS.checkpoint                     an unfinished training, of several cells .N-cells-DIGITS.checkpoint
"""

import hashlib
import itertools
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from posbias.errors import DamagedError, InputFileError
from posbias.spec import decode, fingerprint
from posbias.store import Header, SafetensorsCodec, Store, Tensors, open_netcdf, open_tensors, versions_here
from posbias.store import checkpoint as checkpoints
from posbias.store.netcdf_files import checksum_of_0_1
from posbias.training.results import SCHEMA, TrainingCell, weights_path
from posbias.training.shorthand import words_of
from posbias.training.specification import Experiment

log = logging.getLogger(__name__)
RELEASE, KIND = "0.1.0", "cell"


def convert_cell(experiment: Experiment, folder: Path) -> bool:
    """Save the last good cell of 0.1.0 among those of an experiment anew; whether there was one."""
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
    if decode(Experiment, json.loads(told["experiment"])) != experiment:
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


def convert_checkpoint(experiments: Sequence[Experiment], path: Path) -> None:
    """Write the checkpoint of 0.1.0 of these experiments to `path`, if there is one and nothing is there yet."""
    names = [_name(experiment) for experiment in experiments]
    digits = hashlib.sha256(" ".join([*map(fingerprint, experiments), *names]).encode()).hexdigest()[:12]
    name = names[0] if len(names) == 1 else f"{len(names)}-cells-{digits}"
    old = path.with_name(f".{name}.checkpoint")
    if path.exists() or not old.exists():
        return
    try:
        metadata, arrays = open_tensors(old)
        if metadata["digest"] != _digest(arrays, metadata["state"]):
            raise DamagedError(f"{old}: damaged, its content does not match its digest")
        state = Tensors(arrays, json.loads(metadata["state"]))
        header = Header(checkpoints.KIND, checkpoints.SCHEMA, {"fingerprint": metadata["fingerprint"]})
    except (InputFileError, KeyError, ValueError) as error:
        log.warning("%s; not used", error)
        return
    SafetensorsCodec().write(path, header, state)
    log.info("converted %s, of posbias %s, to %s", old, RELEASE, path)


def _name(experiment: Experiment) -> str:
    return f"{words_of(experiment)}-{fingerprint(experiment)[:8]}"


def _digest(arrays, text: str) -> str:
    import safetensors.numpy

    return hashlib.sha256(safetensors.numpy.save(dict(arrays)) + text.encode()).hexdigest()
