"""Attributions as a profile: signed numbers by position of the prompt, with prompts as samples.

inseq (Sarti et al. 2023) saves a `FeatureAttributionOutput` of decoder-only models: arrays are safetensors in
base64 (inseq 0.7) or nested lists, a row for each token of the text, a column for each generated one, NaN where a
token was not yet written. captum (Kokhlikyan et al. 2020) has no format of files: `json.dump` of the fields of an
`LLMAttributionResult`, tensors as lists, one object or a list of them.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InputFileError, is_integer
from posbias.core.tables import Table, parsed, unexpected
from posbias.imports.columns import Choice, Curves, Format
from posbias.imports.trials import MEASURES, MOST, of_rows
from posbias.profiles.curves import at_shares
from posbias.profiles.profile import Profile

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
    shortest = min(lengths, default=0)
    if shortest < 3:
        raise unexpected(path, "prompts of three tokens or more", shortest)
    for number, row in enumerate(rows):
        if not (np.abs(row) <= MOST).all():
            what = f"numbers of at most {MOST:g} in size"
            raise unexpected(f"{path}: attributions of prompt {number}", what, float(np.abs(row).max()))
    samples = np.stack([at_shares(np.asarray(row, np.float64), shortest, total=False) for row in rows])
    size = f"{shortest} tokens"
    if max(lengths) > shortest:
        size = f"{shortest} to {max(lengths)} tokens, brought to {shortest} shares of the context"
    attrs = {"format": name, "read_as": f"{name}: {said}, {len(rows)} prompts of {size}"}
    attrs |= {"model": model} if model else {}
    return of_rows(samples, kind="signed", measures=MEASURES, attrs=attrs)


def read_captum(table: Table, path: Path, choice: Choice) -> Curves:
    """The attribution of the whole target to each token of the prompt (`seq_attr`). Raises `InputFileError`."""
    rows = []
    for where, held, tokens in zip(table.index, table["seq_attr"], table["input_tokens"], strict=True):
        row = _array(parsed(held), f"{where}: seq_attr")
        row = row[0] if row.ndim == 2 and len(row) == 1 else row  # of one prompt: [1, token] or [token]
        if row.ndim != 1 or (isinstance(tokens, list) and len(tokens) != len(row)):
            raise unexpected(f"{where}: seq_attr", "a number for each of input_tokens", row)
        rows.append(row)
    return {None: attributed(rows, path, CAPTUM.name, "seq_attr of the target", choice.model or "")}


def read_inseq(table: Table, path: Path, choice: Choice) -> Curves:
    """The attribution of the first generated token to each token of the prompt. Raises `InputFileError`."""
    rows, kinds = [], set()
    for where, row in zip(table.index, table.to_dict("records"), strict=True):
        held = _attributes(row, where)
        info, sequences = held.get("info"), held.get("sequence_attributions")
        if not isinstance(info, dict) or not isinstance(sequences, list):
            raise unexpected(where, "'sequence_attributions' with 'info', as inseq saves them", held)
        kinds.add((str(info.get("attribution_method")), PurePath(str(info.get("model_name") or "")).name))
        rows += [_row(_attributes(sequence, where), where) for sequence in sequences]
    if len(kinds) > 1:
        raise unexpected(path, "one attribution_method and model_name", kinds)
    ((method, model),) = kinds
    return {None: attributed(rows, path, INSEQ.name, f"{method} of the first generated token", model)}


def _attributes(held: Any, where: str) -> dict[str, Any]:
    """The attributes of an object that inseq wrote."""
    attributes = held.get("attributes") if isinstance(held, dict) else None
    if not isinstance(attributes, dict):
        raise unexpected(where, "an object of inseq with 'attributes'", held)
    return attributes


def _row(sequence: dict[str, Any], where: str) -> Float[np.ndarray, "position"]:
    if sequence.get("source_attributions") is not None:
        raise InputFileError(f"{where}: expected a decoder's attributions, got some to an encoder's source")
    held = _array(sequence.get("target_attributions"), f"{where}: target_attributions")
    prompt: Any = sequence.get("attr_pos_start")
    if held.ndim != 2 or not held.shape[1] or not is_integer(prompt) or not 0 < prompt <= len(held):
        what = "[token, generated] (attributions.aggregate makes it of more) and attr_pos_start within"
        raise unexpected(f"{where}: target_attributions", what, (held.shape, prompt))
    return held[:prompt, 0]


def _array(given: Any, where: str) -> np.ndarray:
    try:
        held = _of_safetensors(base64.b64decode(given, validate=True)) if isinstance(given, str) else given
        if isinstance(held, list | np.ndarray):
            return np.array(held, dtype=np.float64)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InputFileError(
            f"{where}: expected an array of numbers ({' '.join(str(error).split())[:80]})"
        ) from None
    raise unexpected(where, "an array of numbers", given)


def _of_safetensors(held: bytes) -> np.ndarray:
    """The one array of safetensors: 8 bytes of length, a header in JSON, the numbers. Raises `ValueError`."""
    size = int.from_bytes(held[:8], "little")
    header = json.loads(held[8 : 8 + size].decode())
    (about,) = (one for key, one in header.items() if key != "__metadata__")
    start, end = about["data_offsets"]
    return np.frombuffer(held[8 + size :][start:end], dtype=TYPES[about["dtype"]]).reshape(about["shape"])


INSEQ = Format("inseq attributions", (("__instance_type__",), ("attributes",)), read_inseq, "sarti2023")
CAPTUM = Format("captum attributions", (("seq_attr",), ("input_tokens",)), read_captum, "kokhlikyan2020")
