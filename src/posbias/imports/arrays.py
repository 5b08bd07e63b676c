"""Arrays and attributions: scores by trial, and signed numbers by position with prompts as samples.

NumPy's files and safetensors hold attributions or scores, by name; nothing is unpickled. inseq (Sarti et al. 2023)
saves a `FeatureAttributionOutput` of decoder-only models as JSON: arrays are safetensors in base64 (inseq 0.7) or
nested lists, a row for each token of the text, a column for each generated one, NaN where a token was not yet
written.
"""

import base64
import json
import warnings
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InputFileError, is_integer, wrong
from posbias.core.packages import need
from posbias.core.tables import Table, unexpected
from posbias.imports.columns import ANY, MEASURES, MOST, RATES, Choice, Curves, Format, attributes, scores_of
from posbias.profiles.curves import at_shares
from posbias.profiles.profile import Profile

KINDS = (".npz", ".safetensors")
ATTRIBUTIONS = "attributions"
SCORES = ("scores", *RATES)
"""What an array [trial, place] of right and wrong answers, or of scores, may be called."""
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
"""Numbers of safetensors that NumPy has."""


def read_arrays(path: Path) -> Profile:
    """Attributions [prompt, position], or `SCORES` [trial, place], by their names.

    Attention is no profile before λ is chosen: `posbias.Attention.from_arrays`. Raises `InputFileError`.
    """
    arrays = _read(path)
    if not np.all(arrays.get("attention_mask", True)):
        got = "zeros; save each text alone"
        raise wrong(f"{path}: attention_mask", "ones (no padding)", got=got, kind=InputFileError)
    if scores := next((name for name in SCORES if name in arrays), None):
        return _rates(arrays[scores], path, scores)
    held = arrays.get(ATTRIBUTIONS, np.empty(0))
    if held.dtype.kind not in "fiub" or not held.size or held.ndim > 3:
        shapes = ", ".join(f"{name} {one.dtype} {one.shape}" for name, one in list(arrays.items())[:4])
        what = "attributions [prompt, position] or scores [trial, place] (attention: Attention.from_arrays)"
        raise unexpected(path, what, shapes)
    held = np.atleast_2d(held.astype(np.float64))
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite then is refused
        held = held.sum(axis=-1) if held.ndim == 3 else held  # over the embedding
    return attributed(list(held), path, ATTRIBUTIONS, "attributions by position")


def _rates(array: np.ndarray, path: Path, name: str) -> Profile:
    """Scores by trial and place as rates, the trials as samples."""
    import pandas as pd

    if array.ndim != 2 or not array.size or array.shape[1] < 2 or array.dtype.kind not in "fiub":
        raise unexpected(f"{path}: {name}", "numbers [trial, place] of two places or more", array)
    column = pd.Series(array.astype(np.float64).ravel(), [str(path)] * array.size, name=name)
    values, scale = scores_of(column, ANY)
    said = f"scores by place: {name} of {array.shape[0]} trials at {array.shape[1]} places, {scale}"
    attrs = {"read_as": said, "format": "scores by place", "rows": "trials"}
    measures = "score" if name == "scores" else name
    return Profile.from_rows(np.reshape(values, array.shape), kind="rate", measures=measures, attrs=attrs)


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name. Raises `InputFileError`, and `MissingPackageError` without safetensors."""
    if not path.is_file():
        raise InputFileError(f"{path}: no such file")
    if packed := path.suffix.lower() == ".safetensors":
        need("safetensors", work="a .safetensors file", extra="train")
    try:
        if packed:
            from safetensors.numpy import load_file

            return load_file(path)
        quiet = warnings.catch_warnings(action="ignore")
        # opened here, since numpy leaves a broken file open
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held, quiet:
            return {name: np.asarray(array) for name, array in held.items()}
    except Exception as error:  # whatever a broken file makes them raise, of a dozen types
        got = f"what cannot be read: {' '.join(str(error).split())[:100]}"
        raise wrong(path, "arrays of numbers", got=got, kind=InputFileError) from None


# --- attributions ---------------------------------------------------------------------------------------------


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
    attrs = attributes(name, f"{said}, {len(rows)} prompts of {size}", model)
    return Profile.from_rows(samples, kind="signed", measures=MEASURES, attrs=attrs)


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
        reason = " ".join(str(error).split())[:80]
        raise InputFileError(f"{where}: expected an array of numbers ({reason})") from None
    raise unexpected(where, "an array of numbers", given)


def _of_safetensors(held: bytes) -> np.ndarray:
    """The one array of safetensors: 8 bytes of length, a header in JSON, the numbers. Raises `ValueError`."""
    size = int.from_bytes(held[:8], "little")
    header = json.loads(held[8 : 8 + size].decode())
    (about,) = (one for key, one in header.items() if key != "__metadata__")
    start, end = about["data_offsets"]
    return np.frombuffer(held[8 + size :][start:end], dtype=TYPES[about["dtype"]]).reshape(about["shape"])


INSEQ = Format("inseq attributions", (("__instance_type__",), ("attributes",)), read_inseq)
