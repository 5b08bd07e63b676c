"""Results made elsewhere, read as profiles: what a file is, its columns say.

    profile = posbias.read("results/")     # a needle-in-a-haystack run, say
    print(profile.attrs["read_as"])        # what it was taken for

`FORMATS` is the one list of what has columns; `posbias.imports.arrays` reads arrays. Our own files are read too.
"""

import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np

from posbias.arguments import shortened
from posbias.errors import InputFileError, OtherKindError, nearest
from posbias.imports import (
    arrays,
    asked,
    captum,
    inseq,
    lm_eval,
    lost_in_the_middle,
    needle,
    positions,
    ruler,
)
from posbias.imports.format import Format
from posbias.imports.records import files_of, is_records, plain_name, read_records
from posbias.imports.trials import of_rows
from posbias.input_files import LARGEST, read_text
from posbias.predictors import influence_in, load_profile
from posbias.profile import Profile
from posbias.signatures import typed
from posbias.store import load_retrieval
from posbias.store.measurements import RETRIEVAL

__all__ = ["FORMATS", "Format", "format_of", "read", "recognised"]

log = logging.getLogger(__name__)
FORMATS: tuple[Format, ...] = (
    inseq.FORMAT,
    captum.FORMAT,
    lm_eval.FORMAT,
    lost_in_the_middle.FORMAT,
    ruler.FORMAT,
    needle.FORMAT,
    positions.FORMAT,
)
"""What files of records there are; the first that a file has all columns of is it."""
QUANTITY = "accuracy"
"""What of a retrieval becomes a profile."""


@typed
def read(path: str | os.PathLike[str], *, model: str | None = None) -> Profile:
    """Read a file, or a folder of files, of results as a profile, whoever made it.

    Our own: a measurement's .nc, a retrieval's .nc or JSON (or the folder of one), a prediction's JSON, a plain
    list of weights. Others': one of
    `FORMATS`, recognised by its columns, or arrays; what it was taken for is logged and is `attrs["read_as"]`.
    `model` chooses where a file has several. Raises `InputFileError` for columns of no known format, or of which
    some are missing, `MissingPackageError` for an .nc without xarray and for .safetensors without safetensors.
    """
    path = Path(path)
    path = (asked.file_in(path) or path) if path.is_dir() else path
    suffix = path.suffix.lower()
    if suffix == ".nc":
        return _of_netcdf(path)
    data = _json_of(path) if suffix == ".json" else None
    if suffix == ".json" and _is_ours(data) and not asked.is_asked(data):
        return load_profile(path)
    if asked.is_asked(data):
        profile = asked.read_asked(data, path)
    elif suffix in arrays.KINDS:
        profile = arrays.read_arrays(path)
    elif suffix in (".pt", ".pth", ".pkl", ".pickle") and path.is_file():
        raise InputFileError(
            f"{path}: {suffix} given, which may run code when it is read; .safetensors or .npz needed, with an "
            "array called attentions or attributions"
        )
    elif path.exists() and is_records(path):
        records = read_records(path)
        profile = format_of(list(records[0].columns), path).read(records, path, model)
    else:
        return load_profile(path)
    log.info("%s: read as %s", path, profile.attrs["read_as"])
    return profile


def format_of(columns: list[str], path: Path) -> Format:
    """The format with these columns. Raises `InputFileError` naming them and what the nearest format lacks."""
    if asked.KEPT in columns:
        raise InputFileError(
            f"{path}: answers that `posbias retrieve` kept given; the retrieval.json beside them needed, or the "
            f"folder that `posbias retrieve --answers {path}` makes with the same options"
        )
    columns = [*columns, *map(plain_name, columns)]
    for form in FORMATS:
        if not form.missing(columns):
            return form
    found = min(FORMATS, key=lambda form: len(form.missing(columns)) / len(form.needs))
    lacks = found.missing(columns)
    seen = shortened(", ".join(dict.fromkeys(columns[: len(columns) // 2])))
    if len(lacks) == len(found.needs):
        known = ", ".join(form.name for form in FORMATS)
        raise InputFileError(f"{path}: of no known kind (columns {seen}), one of {known} needed")
    close = nearest(lacks[0], columns)
    raise InputFileError(f"{path}: columns {seen} given; {found.name} needs {' and '.join(lacks)} too{close}")


@typed
def recognised(path: str | os.PathLike[str]) -> Format | None:
    """The format that a file, or the first file of a folder, has the columns of; None for anything else."""
    path = Path(path)
    if not path.exists() or not is_records(path):
        return None
    try:
        file = files_of(path)[0]
        return format_of(list(read_records(file)[0].columns), file)
    except InputFileError:
        return None


def _json_of(path: Path) -> Any:
    """What a JSON file holds; None where it cannot be read or is too large."""
    try:
        return None if path.stat().st_size > LARGEST else json.loads(read_text(path))
    except (OSError, ValueError, RecursionError, InputFileError):
        return None


def _is_ours(data: Any) -> bool:
    """Whether what a file holds is for `load_profile`: a list but of objects, a prediction, or no JSON at all."""
    if isinstance(data, list):
        return not (data and isinstance(data[0], dict))
    return not isinstance(data, dict) or "profile" in data or "schema" in data


def _of_netcdf(path: Path) -> Profile:
    """A measurement's influence, or a retrieval's accuracy by place with its trials."""
    try:
        return influence_in(path, sure=False)
    except OtherKindError as error:
        if error.held != RETRIEVAL:
            raise
    retrieval = load_retrieval(path)
    attrs = {key: retrieval.attrs[key] for key in ("model", "checksum")}
    attrs |= {"job": json.loads(retrieval.attrs["job"]), "tokens": float(retrieval["tokens"].mean())}
    attrs["depth"] = retrieval["depth"].values.mean(axis=0).tolist()
    if "text_sha256" in retrieval.attrs:
        attrs["text_sha256"] = str(retrieval.attrs["text_sha256"])
    samples = np.asarray(retrieval[QUANTITY].values, dtype=np.float64)
    return of_rows(samples, kind="rate", measures=QUANTITY, attrs=attrs)
