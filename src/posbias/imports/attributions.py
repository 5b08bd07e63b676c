"""Attributions as a profile: signed numbers by position of the prompt, with prompts as samples."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from posbias.curves import at_shares
from posbias.errors import InputFileError
from posbias.imports.records import MOST
from posbias.imports.trials import of_rows
from posbias.profile import Profile

MEASURES = "attribution"


def attributed(
    rows: Sequence[Float[np.ndarray, "position"]], path: Path, name: str, said: str, model: str = ""
) -> Profile:
    """The mean over prompts; prompts of unlike length by share of the context, at the shares of the shortest.

    `name` is that of the format, `said` what is attributed, both for "read_as". Raises `InputFileError` for a
    prompt of fewer than three tokens and for numbers that are not finite or above `MOST`.
    """
    lengths = [len(row) for row in rows]
    if not lengths or min(lengths) < 3:
        raise InputFileError(
            f"{path}: a prompt of {min(lengths, default=0)} tokens given, three or more needed"
        )
    for number, row in enumerate(rows):
        if not np.isfinite(row).all():
            raise InputFileError(f"{path}: attributions of prompt {number} are not finite somewhere")
        if (np.abs(row) > MOST).any():
            given = f"{np.abs(row).max():g} given, at most {MOST:g} in size needed"
            raise InputFileError(f"{path}: attributions of prompt {number}: {given}")
    shortest = min(lengths)
    samples = np.stack([at_shares(np.asarray(row, np.float64), shortest, total=False) for row in rows])
    size = f"{shortest} tokens"
    if max(lengths) > shortest:
        size = f"{shortest} to {max(lengths)} tokens, brought to {shortest} shares of the context"
    told = f"{name}: {said}, {len(rows)} prompts of {size}"
    attrs = {"format": name, "read_as": told} | ({"model": model} if model else {})
    return of_rows(samples, kind="signed", measures=MEASURES, attrs=attrs)
