"""Results made elsewhere, read as profiles: what a file is, its columns say.

    profile = posbias.read("results/")     # a needle-in-a-haystack run, say
    print(profile.attrs["read_as"])        # what it was taken for

`FORMATS` is the one list of what has columns; `posbias.imports.arrays` reads arrays. Our own files are read too.
"""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from posbias.core.errors import InputFileError, LackingError, OtherKindError, wrong
from posbias.core.files import read_text
from posbias.core.progress import one_line
from posbias.core.tables import Names, Table, bare_name, is_table, read_table, unexpected
from posbias.imports import arrays, positions, prompts
from posbias.imports.columns import (
    ANY,
    INSTEAD,
    NAMES,
    PLACES,
    RATES,
    REFUSED,
    Choice,
    Curves,
    Format,
    having,
    listed,
    undecided,
)
from posbias.imports.shapes import long
from posbias.profiles.measurements import RETRIEVAL, influence_in, load_profile, load_retrieval
from posbias.profiles.places import KIND, Places, places_in, retrieval_curve
from posbias.profiles.profile import Profile, measured_influence

if TYPE_CHECKING:
    import xarray as xr

    AnyProfile = Profile | xr.Dataset | str | os.PathLike[str]

__all__ = ["FORMATS", "file_in", "is_asked", "read", "read_curves", "read_one", "read_several", "recognised"]

log = logging.getLogger(__name__)
FORMATS: tuple[Format, ...] = (
    arrays.INSEQ,
    prompts.LM_EVAL,
    prompts.LIU,
    prompts.RULER,
    positions.NEEDLE,
    positions.PLAIN,
)
"""What files with columns there are; the first that a file has all columns of is it."""
QUANTITY = "accuracy"
"""What of a retrieval becomes a profile."""
SCHEMA, OPENED, WAYS = "retrieve-answers/1", "retrieve/1", "retrieve-ways/1"
FILES = ("retrieval.nc", "retrieval.json")
"""What `posbias retrieve --out` keeps in a folder: of a model that it opened, and of one that it asked."""
FORMAT = "retrieval by answers"
CURVE = {"model", "job", "rule", "words", "able", "found"}
"""Keys of the answer on a curve, for who writes that to a file."""
KEPT = "posbias_kind"
"""A key of the first line of a file of answers."""
_NAMES = Names(
    known={bare_name(name) for form in FORMATS[-2:] for names in form.needs for name in names},
    cells={name for form in FORMATS[:-2] for names in form.needs for name in names if name != "input"},
    around={bare_name(name) for name in NAMES["model"] + NAMES["length"]},
)


def read(
    path: "AnyProfile",
    *,
    model: str | None = None,
    tokens: int | Literal["all"] | None = None,
    columns: Mapping[str, str] | None = None,
) -> Profile:
    """Read a file, or a folder of files, of results as a profile, whoever made it.

    A profile in memory is returned as it is, a measurement is its influence. Our own files: a measurement's .nc, a
    retrieval's .nc or JSON (or the folder of one), a prediction's JSON, a plain list of weights. Others': one of
    `FORMATS`, recognised by its columns, or arrays; what it was taken for is logged and is `attrs["read_as"]`.
    Where a file has several, `model` chooses one, `tokens` a context length ("all": the mean over them); `columns`
    says which column is what ({"place": "answer_position", "score": "em"}; also total, trial, length, model and,
    for the scale, one of `posbias.imports.columns.SCALES`). Raises `InputFileError` for what cannot be decided,
    `InvalidValueError` for what is none of these, `MissingPackageError` for an .nc without xarray and for
    .safetensors without safetensors.
    """
    if isinstance(path, Profile):
        return path
    if isinstance(path, str | os.PathLike):
        return read_one(path, Choice(model, tokens, columns or {}))
    if not hasattr(path, "data_vars"):
        raise wrong("profile", "a Profile (Profile.from_weights makes one), a measurement or a file", path)
    return measured_influence(path)


def read_one(path: str | os.PathLike[str], choice: Choice) -> Profile:
    """What `read` reads. Raises `InputFileError`, also for several context lengths of which none is chosen."""
    curves = read_curves(path, choice)
    if len(curves) > 1:
        lengths = sorted(length for length in curves if length is not None)
        how = f"choose one: --tokens {lengths[0]:.0f} (tokens={lengths[0]:.0f}), or all for their mean"
        raise InputFileError(f"{path}: expected one context length, got {listed(lengths)}; {how}")
    (profile,) = curves.values()
    if "read_as" in profile.attrs:
        log.info("%s: read as %s", path, profile.attrs["read_as"])
    return profile


def read_several(paths: Sequence[str | os.PathLike[str]], choice: Choice) -> list[Profile]:
    """What `read` reads of several files, one of which at least has what is chosen; others go by their own names.

    Raises as `read_one`.
    """
    found, lacking = list[Profile](), list[LackingError]()
    for path in paths:
        try:
            found.append(read_one(path, choice))
        except LackingError as error:
            found.append(read_one(path, Choice(choice.model)))
            lacking.append(error)
    if len(lacking) == len(paths):
        raise lacking[0]
    for error in lacking:
        log.info("read by its own names: %s", error)
    return found


def read_curves(path: str | os.PathLike[str], choice: Choice = ANY) -> Curves:
    """What `read` reads, a profile for each context length; under None where there is one length alone."""
    path = Path(path)
    path = (file_in(path) or _no_folder_of_ours(path)) if path.is_dir() else path
    table = path.exists() and _tables(path)
    if (own := _own(path, bool(table))) is None:
        form, rows = _read(path, choice)
        return form.read(rows, path, choice)
    if choice.columns or isinstance(choice.tokens, int):
        what = "a table for which tokens or columns are chosen"
        raise wrong(path, what, got="another file", kind=LackingError)
    return {None: own}


def _own(path: Path, table: bool) -> Profile | None:
    """What is no table of others: our own files, arrays and what cannot be read; None for a table."""
    suffix = path.suffix.lower()
    if suffix == ".nc":
        return _of_netcdf(path)
    data = _json_of(path) if suffix == ".json" else None
    if is_asked(data):
        return read_asked(data, path)
    if suffix in arrays.KINDS:
        return arrays.read_arrays(path)
    wanted = next((what for what, suffixes in INSTEAD.items() if suffix in suffixes), None)
    if wanted and path.is_file():
        raise unexpected(path, wanted, suffix)
    return None if table and not _is_ours(data) else load_profile(path)


def format_of(table: Table, path: Path, choice: Choice = ANY) -> Format:
    """The format with these columns. Raises `InputFileError` that names them, or says what the file is."""
    if KEPT in table.columns:
        raise InputFileError(
            f"{path}: expected retrieval.json, got the answers that `posbias retrieve` kept with it (or the "
            f"folder that `posbias retrieve --answers {path}` makes with the same options)"
        )
    named = {"place", "score"} <= choice.columns.keys()
    for form in FORMATS:
        if not form.missing(table) and not (named and form in (prompts.LIU, prompts.RULER)):
            return form
    if named:
        return positions.PLAIN
    outer = {str(column).partition(".")[0] for column in table.columns}
    for known in REFUSED:
        if set(known["needs"]) <= outer:
            raise InputFileError(f"{path}: {known['said']}")
    have = {"places": having(table, PLACES), "scores": having(table, RATES)}
    lacks = " and ".join(name for name, columns in have.items() if not columns) or "places and scores"
    raise undecided(table, f"columns of {lacks}, or of a known format", "place=COLUMN score=COLUMN")


def recognised(path: str | os.PathLike[str]) -> Format | None:
    """The format that a file, or the first file of a folder, has the columns of; None for anything else."""
    path = Path(path)
    if not path.exists() or not _tables(path):
        return None
    try:
        return _read(path, ANY)[0]
    except InputFileError:
        return None


def _tables(path: Path) -> list[Path]:
    """The file itself, or the tables in a folder or the folders in it; of a lm-eval folder its samples alone."""
    if not path.is_dir():
        return [path] if is_table(path) else []
    files = sorted(filter(is_table, path.iterdir())) or sorted(filter(is_table, path.glob("*/*")))
    samples = [file for file in files if file.name.startswith("samples_")]
    return samples or files


def _read(path: Path, choice: Choice) -> tuple[Format, Table]:
    """The rows of a file, or of those of a folder that are of one format. Raises `InputFileError`."""
    import pandas as pd

    found: dict[Format, list[Table]] = {}
    errors: list[InputFileError] = []
    for file in (files := _tables(path)):
        table = read_table(file, _NAMES)
        if all(form.missing(table) for form in FORMATS[:-2]) and KEPT not in table.columns:
            table = long(table)
        try:
            found.setdefault(format_of(table, file, choice), []).append(table)
        except InputFileError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    for error in errors:
        log.warning("left out: %s", error)
    if len(found) > 1:
        raise unexpected(path, "files of one kind", " and ".join(form.name for form in found))
    ((form, tables),) = found.items()
    if form.apart and len(tables) > 1:
        names = ", ".join(str(file.relative_to(path)) for file in files[:6])
        got = f"{len(tables)} files, each of its own: {names}; give one"
        raise wrong(path, "one task", got=got, kind=InputFileError)
    return form, pd.concat(tables)


def _json_of(path: Path) -> Any:
    """What a JSON file holds; None where it cannot be read."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError, InputFileError):
        return None


def _is_ours(data: Any) -> bool:
    """Whether what a JSON file holds is for `load_profile`: a list but of objects, or a prediction."""
    if isinstance(data, dict):
        return "profile" in data or isinstance(data.get("schema"), str)
    return data is not None and not (isinstance(data, list) and data and isinstance(data[0], dict))


def _of_netcdf(path: Path) -> Profile:
    """A measurement's influence, or a retrieval's accuracy by place with its trials."""
    try:
        return influence_in(path)
    except OtherKindError as error:
        if error.held != RETRIEVAL:
            raise
    return retrieval_curve(load_retrieval(path)).profile(QUANTITY)


# --- retrievals of posbias itself ------------------------------------------------------------------------------


def is_asked(data: Any) -> TypeGuard[dict[str, Any]]:
    """Whether what a JSON file holds is `Places`, or what `posbias retrieve` or `ask` gave up to 0.3."""
    if not isinstance(data, dict):
        return False
    return data.get(KEPT) == KIND or data.get("schema") in (SCHEMA, OPENED, WAYS) or data.keys() >= CURVE


def file_in(folder: Path) -> Path | None:
    """The file of a retrieval in a folder, None where there is none. Raises `InputFileError` for two."""
    held = [folder / name for name in FILES if (folder / name).is_file()]
    if len(held) > 1:
        raise unexpected(folder, "one retrieval, by the path of its file", " and ".join(FILES))
    return held[0] if held else None


def _no_folder_of_ours(folder: Path) -> Path:
    """The folder. Raises `InputFileError` for one of our results of several lengths, ways or models."""
    held = sorted({file.parent.name for name in FILES for file in folder.glob(f"*/{name}")})
    files = sorted(file.name for file in folder.glob("*.nc"))
    if held or files:
        one = "folder" if held else "file"
        what = f"the path of one {one}: retrievals and measurements are read one by one"
        raise unexpected(folder, what, ", ".join(held or files))
    return folder


def read_asked(data: Mapping[str, Any], path: Path) -> Profile:
    """The curve of a file as a profile of rates with its trials.

    Raises `InputFileError` for several curves and for one without its trials, `DamagedError` where the file is.
    """
    if data.get("schema") in (OPENED, WAYS):
        opened = data["schema"] == OPENED
        what = "the retrieval.nc in the same folder" if opened else "the folder of one way to ask"
        raise unexpected(path, what, "a curve without its trials" if opened else "several ways")
    curves = places_in(data, path)
    if len(curves) > 1:
        what = "one curve (the folder of one way to ask; one size or --kind again asks nothing anew)"
        named = [f"{curve.asked.get('way', '')} {_size(curve)}".strip() for curve in curves]
        raise unexpected(path, what, ", ".join(named))
    (curve,) = curves
    said = f"{FORMAT}: {_size(curve)}, {curve.prompts} trials of {curve.model}"
    return curve.profile(QUANTITY, attrs={"read_as": one_line(said, None), "format": FORMAT})


def _size(curve: Places) -> str:
    job = curve.job
    size = next((f" {job[key]} {key}" for key in ("pairs", "length") if job.get(key) is not None), "")
    return f"{job.get('task')}{f' {curve.kind}' if curve.kind else ''}{size}"
