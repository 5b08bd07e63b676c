"""Attributions that inseq wrote (`FeatureAttributionOutput.save`, Sarti et al. 2023), of decoder-only models.

Arrays are safetensors in base64, as inseq 0.7 writes them, or nested lists. They have a row for each token of the
text and a column for each generated one, NaN where a token had not been written yet.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.arguments import is_integer, shortened
from posbias.errors import InputFileError
from posbias.imports.attributions import attributed
from posbias.imports.format import Format
from posbias.imports.records import Record
from posbias.profile import Profile

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
"""Numbers of safetensors that NumPy has."""


def read_inseq(records: Sequence[Record], path: Path, model: str | None) -> Profile:
    """What the first generated token owes to each token of the prompt. Raises `InputFileError`."""
    rows, methods, models = [], {}, {}
    for record in records:
        held = _inside(record.columns, record.where)
        info, sequences = held.get("info"), held.get("sequence_attributions")
        if not isinstance(info, dict) or not isinstance(sequences, list):
            raise InputFileError(
                f"{record.where}: no 'sequence_attributions' with 'info', those of inseq needed"
            )
        methods[str(info.get("attribution_method"))] = None
        models[PurePath(str(info.get("model_name") or "")).name] = None
        rows += [_row(_inside(one, record.where), record.where) for one in sequences]
    for name, several in (("attribution_method", methods), ("model_name", models)):
        if len(several) > 1:
            raise InputFileError(f"{path}: {name}: {shortened(', '.join(several))} given, one needed")
    said = f"{next(iter(methods))} of the first generated token"
    return attributed(rows, path, FORMAT.name, said, next(iter(models)))


def _inside(held: Any, where: str) -> dict[str, Any]:
    """The attributes of an object that inseq wrote."""
    told = held.get("attributes") if isinstance(held, dict) else None
    if not isinstance(told, dict):
        raise InputFileError(f"{where}: {shortened(held)} given, an object of inseq with 'attributes' needed")
    return told


def _row(sequence: dict[str, Any], where: str) -> Float[np.ndarray, "position"]:
    if sequence.get("source_attributions") is not None:
        raise InputFileError(
            f"{where}: attributions to a source of its own (an encoder) given, a decoder's needed"
        )
    found = _array(sequence.get("target_attributions"), where)
    if found.ndim == 3:
        raise InputFileError(
            f"{where}: target_attributions: shape {found.shape} given, [token, generated] needed: save "
            "attributions.aggregate('sum') or another aggregate"
        )
    prompt: Any = sequence.get("attr_pos_start")
    inside = is_integer(prompt) and 0 < prompt <= len(found)
    if found.ndim != 2 or not found.shape[1] or not inside:
        raise InputFileError(
            f"{where}: target_attributions: shape {found.shape} with attr_pos_start {shortened(prompt)} given, "
            "[token, generated] with a prompt's length needed"
        )
    return found[:prompt, 0]


def _array(given: Any, where: str) -> np.ndarray:
    try:
        if isinstance(given, str):
            return _of_safetensors(base64.b64decode(given, validate=True))
        if isinstance(given, list):
            return np.array(given, dtype=np.float64)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:80]
        raise InputFileError(f"{where}: target_attributions: no array of numbers ({reason})") from None
    raise InputFileError(f"{where}: target_attributions: {shortened(given)} given, an array needed")


def _of_safetensors(held: bytes) -> np.ndarray:
    """The one array of safetensors: 8 bytes of length, a header in JSON, the numbers. Raises `ValueError`."""
    size = int.from_bytes(held[:8], "little")
    header = json.loads(held[8 : 8 + size].decode())
    (about,) = (one for key, one in header.items() if key != "__metadata__")
    start, end = about["data_offsets"]
    numbers = np.frombuffer(held[8 + size :][start:end], dtype=TYPES[about["dtype"]])
    return numbers.reshape(about["shape"]).astype(np.float64)


FORMAT = Format("inseq attributions", (("__instance_type__",), ("attributes",)), read_inseq, "sarti2023")
