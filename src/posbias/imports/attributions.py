"""Attributions as a profile: signed numbers by position of the prompt, with prompts as samples.

inseq (Sarti et al. 2023) saves a `FeatureAttributionOutput` of decoder-only models: arrays are safetensors in base64
(inseq 0.7) or nested lists, a row for each token of the text and a column for each generated one, NaN where a token
had not been written yet. captum (Kokhlikyan et al. 2020) has no format of files: `json.dump` of the fields of an
`LLMAttributionResult`, tensors as lists, one object or a list of them.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.arguments import is_integer, is_number, shortened
from posbias.core.tables import parsed
from posbias.curves import at_shares
from posbias.errors import InputFileError
from posbias.imports.columns import Choice
from posbias.imports.format import Curves, Format
from posbias.imports.trials import of_rows
from posbias.profile import Profile

if TYPE_CHECKING:
    import pandas as pd

MEASURES = "attribution"
MOST = 1e100
"""Size of a number, so that squares of all of them have a sum."""
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
"""Numbers of safetensors that NumPy has."""


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
            f"{path}: expected prompts of three tokens or more, got {min(lengths, default=0)}"
        )
    for number, row in enumerate(rows):
        if not (np.abs(row) <= MOST).all():
            raise InputFileError(
                f"{path}: attributions of prompt {number}: expected numbers of at most {MOST:g} in size, got "
                f"{np.abs(row).max():g}"
            )
    shortest = min(lengths)
    samples = np.stack([at_shares(np.asarray(row, np.float64), shortest, total=False) for row in rows])
    size = f"{shortest} tokens"
    if max(lengths) > shortest:
        size = f"{shortest} to {max(lengths)} tokens, brought to {shortest} shares of the context"
    about = f"{name}: {said}, {len(rows)} prompts of {size}"
    attrs = {"format": name, "read_as": about} | ({"model": model} if model else {})
    return of_rows(samples, kind="signed", measures=MEASURES, attrs=attrs)


def read_captum(table: "pd.DataFrame", path: Path, choice: Choice) -> Curves:
    """The attribution of the whole target to each token of the prompt (`seq_attr`). Raises `InputFileError`."""
    rows = []
    for where, held, tokens in zip(table.index, table["seq_attr"], table["input_tokens"], strict=True):
        row = parsed(held)
        # of one prompt: [1, token] or [token]
        row = row[0] if isinstance(row, list) and len(row) == 1 and isinstance(row[0], list) else row
        if not isinstance(row, list) or not all(is_number(number) for number in row):
            raise InputFileError(f"{where}: seq_attr: expected a list of numbers, got {shortened(held)}")
        if isinstance(tokens, list) and len(tokens) != len(row):
            raise InputFileError(
                f"{where}: seq_attr: expected {len(tokens)} numbers as input_tokens has, got {len(row)}"
            )
        rows.append(np.array(row, dtype=np.float64))
    return {None: attributed(rows, path, CAPTUM.name, "seq_attr of the target", choice.model or "")}


def read_inseq(table: "pd.DataFrame", path: Path, choice: Choice) -> Curves:
    """The attribution of the first generated token to each token of the prompt. Raises `InputFileError`."""
    rows, methods, models = [], {}, {}
    for where, row in zip(table.index, table.to_dict("records"), strict=True):
        held = _attributes(row, where)
        info, sequences = held.get("info"), held.get("sequence_attributions")
        if not isinstance(info, dict) or not isinstance(sequences, list):
            raise InputFileError(
                f"{where}: expected 'sequence_attributions' with 'info', as inseq saves them"
            )
        methods[str(info.get("attribution_method"))] = None
        models[PurePath(str(info.get("model_name") or "")).name] = None
        rows += [_row(_attributes(sequence, where), where) for sequence in sequences]
    for name, several in (("attribution_method", methods), ("model_name", models)):
        if len(several) > 1:
            raise InputFileError(f"{path}: {name}: expected one, got {shortened(', '.join(several))}")
    said = f"{next(iter(methods))} of the first generated token"
    return {None: attributed(rows, path, INSEQ.name, said, next(iter(models)))}


def _attributes(held: Any, where: str) -> dict[str, Any]:
    """The attributes of an object that inseq wrote."""
    attributes = held.get("attributes") if isinstance(held, dict) else None
    if not isinstance(attributes, dict):
        raise InputFileError(f"{where}: expected an object of inseq with 'attributes', got {shortened(held)}")
    return attributes


def _row(sequence: dict[str, Any], where: str) -> Float[np.ndarray, "position"]:
    if sequence.get("source_attributions") is not None:
        raise InputFileError(f"{where}: expected a decoder's attributions, got some to an encoder's source")
    held = _array(sequence.get("target_attributions"), where)
    if held.ndim == 3:
        raise InputFileError(
            f"{where}: target_attributions: expected [token, generated], got shape {held.shape}: save "
            "attributions.aggregate('sum') or another aggregate"
        )
    prompt: Any = sequence.get("attr_pos_start")
    inside = is_integer(prompt) and 0 < prompt <= len(held)
    if held.ndim != 2 or not held.shape[1] or not inside:
        raise InputFileError(
            f"{where}: target_attributions: expected [token, generated] with a prompt's length, got shape "
            f"{held.shape} with attr_pos_start {shortened(prompt)}"
        )
    return held[:prompt, 0]


def _array(given: Any, where: str) -> np.ndarray:
    try:
        if isinstance(given, str):
            return _of_safetensors(base64.b64decode(given, validate=True))
        if isinstance(given, list):
            return np.array(given, dtype=np.float64)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:80]
        raise InputFileError(
            f"{where}: target_attributions: expected an array of numbers ({reason})"
        ) from None
    raise InputFileError(f"{where}: target_attributions: expected an array, got {shortened(given)}")


def _of_safetensors(held: bytes) -> np.ndarray:
    """The one array of safetensors: 8 bytes of length, a header in JSON, the numbers. Raises `ValueError`."""
    size = int.from_bytes(held[:8], "little")
    header = json.loads(held[8 : 8 + size].decode())
    (about,) = (one for key, one in header.items() if key != "__metadata__")
    start, end = about["data_offsets"]
    numbers = np.frombuffer(held[8 + size :][start:end], dtype=TYPES[about["dtype"]])
    return numbers.reshape(about["shape"]).astype(np.float64)


INSEQ = Format("inseq attributions", (("__instance_type__",), ("attributes",)), read_inseq, "sarti2023")
CAPTUM = Format("captum attributions", (("seq_attr",), ("input_tokens",)), read_captum, "kokhlikyan2020")
