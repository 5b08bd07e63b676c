"""Attributions of captum's `LLMAttribution` (Kokhlikyan et al. 2020).

captum has no format of files: `json.dump` of the fields of an `LLMAttributionResult`, tensors as lists, one object
or a list of them. Arrays in safetensors or NumPy's files are `posbias.imports.arrays`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from posbias.arguments import is_number, shortened
from posbias.errors import InputFileError
from posbias.imports.attributions import attributed
from posbias.imports.format import Format
from posbias.imports.records import Record
from posbias.profile import Profile


def read_captum(records: Sequence[Record], path: Path, model: str | None) -> Profile:
    """What the whole target owes to each token of the prompt (`seq_attr`). Raises `InputFileError`."""
    rows = []
    for record in records:
        given = record.columns.get("seq_attr")
        # of one prompt: [1, token] or [token]
        given = (
            given[0] if isinstance(given, list) and len(given) == 1 and isinstance(given[0], list) else given
        )
        if not isinstance(given, list) or not all(is_number(one) for one in given):
            raise InputFileError(
                f"{record.where}: seq_attr: {shortened(given)} given, a list of numbers needed"
            )
        tokens = record.columns.get("input_tokens")
        if isinstance(tokens, list) and len(tokens) != len(given):
            raise InputFileError(
                f"{record.where}: seq_attr: {len(given)} numbers given, {len(tokens)} needed as input_tokens has"
            )
        rows.append(np.array(given, dtype=np.float64))
    return attributed(rows, path, FORMAT.name, "seq_attr of the target", model or "")


FORMAT = Format("captum attributions", (("seq_attr",), ("input_tokens",)), read_captum, "kokhlikyan2020")
