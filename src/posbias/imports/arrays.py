"""Arrays in NumPy's files and safetensors: attention `[layer, head, query, key]`; attributions, scores by name.

Nothing is unpickled. What a file says that it holds is held against its bytes before an array is made of it.
"""

import math
import re
import tokenize
import warnings
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from posbias import memory
from posbias.errors import InputFileError, InvalidValueError
from posbias.imports.attributions import attributed
from posbias.imports.needle import scaled
from posbias.imports.positions import RATES
from posbias.imports.trials import FEWEST_PLACES, of_rows
from posbias.input_files import need_ordinary
from posbias.profile import Profile
from posbias.store import open_tensors

KINDS = (".npy", ".npz", ".safetensors")
ATTENTION, ATTRIBUTIONS = "attention arrays", "attributions"
SCORES = ("scores", *RATES)
"""What an array [trial, place] of right and wrong answers, or of scores, may be called."""
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
    shapes = ", ".join(f"{name or 'array'} {array.shape}" for name, array in list(arrays.items())[:4])
    rates = next((name for name in SCORES if name in arrays and arrays[name].size), None)
    if rates is not None:
        return _rates(arrays[rates], path, rates)
    bad = next((name for name, array in arrays.items() if array.dtype.kind not in "fiu"), None)
    if bad is not None:
        raise InputFileError(f"{path}: {bad or 'array'}: type {arrays[bad].dtype} given, numbers needed")
    if not arrays or not all(array.size for array in arrays.values()):
        # an array of no number may have any shape
        raise InputFileError(f"{path}: {shapes or 'nothing'} given, arrays that are not empty needed")
    if ATTRIBUTIONS in arrays:
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite then is refused
            found = np.atleast_2d(arrays[ATTRIBUTIONS].astype(np.float64))
            found = found.sum(axis=-1) if found.ndim == 3 else found  # over the embedding
        if found.ndim != 2:
            raise InputFileError(f"{path}: {shapes} given, attributions [prompt, position] needed")
        return attributed(list(found), path, ATTRIBUTIONS, "attributions by position")
    given = _attention(arrays)
    if given is None:
        raise InputFileError(
            f"{path}: {shapes} given; attention [layer, head, query, key], or in .npz or .safetensors an array "
            "called attributions [prompt, position] or scores [trial, place], needed"
        )
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
    if array.ndim != 2 or array.shape[1] < FEWEST_PLACES or array.dtype.kind not in "fiub":
        raise InputFileError(
            f"{path}: {name} {array.shape} of type {array.dtype} given, numbers [trial, place] of {FEWEST_PLACES} "
            "places or more needed"
        )
    if not np.isfinite(array).all():
        raise InputFileError(
            f"{path}: {name}: not finite somewhere, a score of every trial at every place needed"
        )
    numbers, scale = scaled(array.astype(np.float64).ravel().tolist(), path, name)
    said = f"scores by place: {name} of {array.shape[0]} trials at {array.shape[1]} places, {scale}"
    measures = "score" if name == "scores" else name
    attrs = {"read_as": said, "format": "scores by place", "rows": "trials"}
    return of_rows(np.reshape(numbers, array.shape), kind="rate", measures=measures, attrs=attrs)


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


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name. Raises `InputFileError`."""
    try:
        size = need_ordinary(path).st_size
        memory.require(4 * size, f"{path}: bytes", size)
        match path.suffix.lower():
            case ".safetensors":
                return open_tensors(path)[1]
            case ".npy":
                with path.open("rb") as file:
                    return {"": _of_numpy(file, size)}
        with zipfile.ZipFile(path) as packed:
            whole = sum(one.file_size for one in packed.infolist())
            memory.require(4 * whole, f"{path}: bytes unpacked", whole)
            arrays = {}
            for one in packed.infolist():
                with packed.open(one) as file:
                    arrays[one.filename.removesuffix(".npy")] = _of_numpy(file, one.file_size)
            return arrays
    except FileNotFoundError:
        raise InputFileError(f"{path}: no such file") from None
    except InvalidValueError as error:
        raise InputFileError(str(error)) from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, SyntaxError, TypeError) as error:
        reason = " ".join(str(error).split())[:100]
        raise InputFileError(f"{path}: cannot be read as arrays: {reason}") from None
    except (NotImplementedError, RuntimeError, OverflowError, MemoryError, RecursionError):
        raise InputFileError(f"{path}: cannot be read as arrays") from None


def _of_numpy(file: IO[bytes], size: int) -> np.ndarray:
    """An array of NumPy's format, of a file of so many bytes. Raises `ValueError` for more than are there."""
    form = np.lib.format
    version = form.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"NumPy's format {version} given, 1.0 or 2.0 needed")
    read_header = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
    try:
        with warnings.catch_warnings(action="ignore"):  # Python 2 wrote it
            shape, in_columns, dtype = read_header(file)
    except tokenize.TokenError as error:
        raise ValueError(f"header: {error.args[0]}") from None
    if dtype.hasobject or dtype.kind not in "fiub":
        raise ValueError(f"type {dtype} given, numbers needed")
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize > size:
        raise ValueError(f"an array of shape {shape} announced, {size:,} bytes there")
    held = file.read(count * dtype.itemsize)
    if len(held) < count * dtype.itemsize:
        raise ValueError("cut short")
    return np.frombuffer(held, dtype).reshape(shape, order="F" if in_columns else "C")
