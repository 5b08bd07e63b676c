"""Arrays in NumPy's files and safetensors: attention `[layer, head, query, key]`; attributions, scores by name.

Nothing is unpickled.
"""

import re
import tokenize
import warnings
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from posbias.core.errors import InputFileError, InvalidValueError
from posbias.core.packages import need
from posbias.core.tables import unexpected
from posbias.imports.attributions import attributed
from posbias.imports.columns import ANY, RATES, scores_of
from posbias.imports.trials import of_rows
from posbias.profiles.profile import Profile

KINDS = (".npy", ".npz", ".safetensors")
ATTENTION, ATTRIBUTIONS = "attention arrays", "attributions"
SCORES = ("scores", *RATES)
"""What an array [trial, place] of right and wrong answers, or of scores, may be called."""
READ_ERRORS = (OSError, ValueError, EOFError, TypeError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile)
READ_ERRORS += (zlib.error, NotImplementedError, RuntimeError, OverflowError, MemoryError, AttributeError)
"""What NumPy raises for files that are none of its own."""
MIXING = 0.5
"""λ of the rollout, as files hold none: attention and residual in equal parts (Abnar and Zuidema 2020)."""


def read_arrays(path: Path) -> Profile:
    """The rollout of attention arrays with λ = ½; attributions [prompt, position] or `SCORES` by their names.

    Attention: the only array, of three to five axes; one called attention or attentions; or one for each layer, by
    the numbers in their names. `posbias.Attention.from_arrays` takes other λ and masks. Padding, which an array
    called attention_mask may show, is refused. Raises `InputFileError`.
    """
    from posbias.theory.attention import Attention

    arrays = _read(path)
    padding = arrays.pop("attention_mask", None)
    if padding is not None and not padding.all():
        raise InputFileError(
            f"{path}: attention_mask: expected ones (no padding), got zeros; save each text alone"
        )
    shapes = ", ".join(
        f"{name or 'array'} {array.dtype} {array.shape}" for name, array in list(arrays.items())[:4]
    )
    scores = next((name for name in SCORES if name in arrays), None)
    if not arrays or not all(array.size and array.dtype.kind in "fiub" for array in arrays.values()):
        raise unexpected(path, "arrays of numbers that are not empty", shapes)
    if scores is not None:
        return _rates(arrays[scores], path, scores)
    if ATTRIBUTIONS in arrays:
        held = np.atleast_2d(arrays[ATTRIBUTIONS].astype(np.float64))
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite then is refused
            held = held.sum(axis=-1) if held.ndim == 3 else held  # over the embedding
        if held.ndim != 2:
            raise unexpected(path, "attributions [prompt, position]", shapes)
        return attributed(list(held), path, ATTRIBUTIONS, "attributions by position")
    given = _attention(arrays)
    if given is None:
        what = (
            "attention [layer, head, query, key], or attributions [prompt, position] or scores [trial, place]"
        )
        raise unexpected(path, what, shapes)
    try:
        attention = Attention.from_arrays(given)
        profile = attention.rollout(MIXING)
    except InvalidValueError as error:
        raise InputFileError(f"{path}: {error}") from None
    said = f"{ATTENTION}: {attention.depth} layers, {attention.heads} heads, {attention.tokens} tokens"
    said += f"; rollout with λ = {MIXING:g}, which the file does not hold"
    return replace(profile, attrs=dict(profile.attrs) | {"read_as": said, "format": ATTENTION})


def _rates(array: np.ndarray, path: Path, name: str) -> Profile:
    """Scores by trial and place as rates, the trials as samples."""
    import pandas as pd

    if array.ndim != 2 or array.shape[1] < 2:
        raise unexpected(f"{path}: {name}", "[trial, place] of two places or more", array)
    column = pd.Series(array.astype(np.float64).ravel(), [str(path)] * array.size, name=name)
    values, scale = scores_of(column, ANY)
    said = f"scores by place: {name} of {array.shape[0]} trials at {array.shape[1]} places, {scale}"
    attrs = {"read_as": said, "format": "scores by place", "rows": "trials"}
    measures = "score" if name == "scores" else name
    return of_rows(np.reshape(values, array.shape), kind="rate", measures=measures, attrs=attrs)


def _attention(arrays: dict[str, np.ndarray]) -> Any:
    """What stands for attention: one array, or a list of the layers' in the order of their numbers."""
    for name in ("attention", "attentions"):
        if name in arrays:
            return arrays[name]
    if len(arrays) == 1:
        only = next(iter(arrays.values()))
        return only if 3 <= only.ndim <= 5 else None
    numbers = {name: re.findall(r"\d+", name) for name in arrays}
    layers = {int(found[0]): name for name, found in numbers.items() if len(found) == 1}
    if sorted(layers) != list(range(len(arrays))) or any(one.ndim < 2 for one in arrays.values()):
        return None
    return [arrays[layers[layer]] for layer in range(len(arrays))]


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a .safetensors file. Raises `MissingPackageError`, `ValueError`, and OSError."""
    need("safetensors", work="a .safetensors file", extra="train")
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name. Raises `InputFileError`."""
    try:
        if path.suffix.lower() == ".safetensors":
            return _safetensors(path)
        with path.open("rb") as file, warnings.catch_warnings(action="ignore"):  # Python 2 wrote it
            held: Any = np.load(file, allow_pickle=False)
            held = {"": held} if isinstance(held, np.ndarray) else held
            return {name: np.asarray(array) for name, array in held.items()}
    except FileNotFoundError:
        raise InputFileError(f"{path}: no such file") from None
    except InvalidValueError as error:
        raise InputFileError(str(error)) from None
    except READ_ERRORS as error:
        reason = " ".join(str(error).split())[:100]
        raise InputFileError(
            f"{path}: expected arrays of numbers, got what cannot be read: {reason}"
        ) from None
