"""What `posbias retrieve` writes of a model that it only asked: accuracy by place, with its trials.

A file holds a curve for each size that was asked; a profile is of one.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from posbias.core.errors import InputFileError
from posbias.core.formats import undamaged
from posbias.core.progress import one_line
from posbias.core.tables import unexpected
from posbias.profiles.profile import Profile
from posbias.retrieval.curve import profile_of_trials

SCHEMA, OPENED, WAYS = "retrieve-answers/1", "retrieve/1", "retrieve-ways/1"
FILES = ("retrieval.nc", "retrieval.json")
"""What `posbias retrieve --out` keeps in a folder: of a model that it opened, and of one that it asked."""
FORMAT = "retrieval by answers"
CURVE = {"model", "job", "rule", "words", "able", "found"}
"""Keys of the answer on a curve, for who writes that to a file."""
KEPT = "posbias_kind"
"""A key of the first line of a file of answers."""


def is_asked(data: Any) -> TypeGuard[dict[str, Any]]:
    """Whether what a JSON file holds is an answer of `posbias retrieve`, or a curve of `ask` as a dictionary."""
    return isinstance(data, dict) and (data.get("schema") in (SCHEMA, OPENED, WAYS) or data.keys() >= CURVE)


def file_in(folder: Path) -> Path | None:
    """The file of a retrieval in a folder, None where there is none. Raises `InputFileError` for two."""
    held = [folder / name for name in FILES if (folder / name).is_file()]
    if len(held) > 1:
        raise unexpected(folder, "one retrieval, by the path of its file", " and ".join(FILES))
    return held[0] if held else None


def read_asked(data: Mapping[str, Any], path: Path) -> Profile:
    """The curve of a file as a profile of rates with its trials.

    Raises `InputFileError` for several curves and for one without its trials, `DamagedError` where the digest is
    another's.
    """
    data = data if "schema" in data else {"schema": SCHEMA, "curves": [data]}
    if data["schema"] != SCHEMA:
        opened = data["schema"] == OPENED
        what = "the retrieval.nc in the same folder" if opened else "the folder of one way to ask"
        raise unexpected(path, what, "a curve without its trials" if opened else "several ways")
    curves: Any = undamaged(data, path).get("curves")
    try:
        if len(curves) > 1:
            what = "one curve (ask again with one size, which asks nothing anew)"
            raise unexpected(path, what, ", ".join(map(_size, curves)))
        curve = curves[0]
        about = {key: curve[key] for key in ("model", "job", "rule", "able", "words")}
        if "positions" in curve:
            about["depth"] = [place["depth"] for place in curve["positions"]]
        found = np.array(curve["found"], dtype=np.float64)
        if len(found) < 2 or found.shape[1] < 3 or not np.isin(found, (0, 1)).all():
            raise unexpected(f"{path}: found", "0 or 1 of two trials or more at three places or more", found)
        profile = profile_of_trials(found, about)
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        raise InputFileError(f"{path}: expected a curve of posbias retrieve, got {error!r:.80}") from None
    said = f"{FORMAT}: {_size(curve)}, {len(found)} trials of {curve['model']}"
    return replace(profile, attrs=dict(profile.attrs) | {"read_as": one_line(said, None), "format": FORMAT})


def _size(curve: Mapping[str, Any]) -> str:
    job = curve["job"]
    size = next((f" {job[key]} {key}" for key in ("pairs", "length") if job.get(key) is not None), "")
    return f"{job.get('task')}{size}"
