"""Profiles to order by: of models that were measured for it, and of files.

The bundled ones are retrieval by place, trial by trial (`tools/order_profiles.py` makes them).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InputFileError, nearest
from posbias.imports import QUANTITY, read
from posbias.imports.trials import of_rows
from posbias.profiles.profile import Profile

FOLDER = Path(__file__).with_name("profiles")


def known_profiles() -> dict[str, Path]:
    """The bundled profiles, by the name of their model."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.json"))}


def profile_of(source: str, **chosen: Any) -> Profile:
    """The profile of a model that comes along, or of whatever `posbias.read` reads, `chosen` as it takes it.

    Raises `InputFileError` for what is none of these, `MissingPackageError` for an .nc without xarray.
    """
    known = known_profiles()
    if source in known:
        if any(chosen.values()):
            raise InputFileError(
                f"{source}: expected a file of results for tokens or columns, got a known model"
            )
        held = json.loads(known[source].read_text(encoding="utf-8"))
        attrs = {key: held[key] for key in ("model", "checksum", "job", "tokens")}
        return of_places(np.array(held["samples"], dtype=np.float64), attrs)
    path = Path(source)
    if not path.suffix and not path.exists():
        close = nearest(source, known) or (
            f"; {', '.join(known)} comes along, and `posbias retrieve MODEL --endpoint URL --pairs N "
            "--positions N` measures another, into a folder to give here"
        )
        raise InputFileError(f"{source}: no such file and no profile of a known model{close}")
    return read(path, **chosen)


def of_places(samples: Float[np.ndarray, "trial place"], attrs: dict[str, Any]) -> Profile:
    """Retrieval by place as a profile, whose samples are its trials."""
    return of_rows(samples, kind="rate", measures=QUANTITY, attrs=attrs)
