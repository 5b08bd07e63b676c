"""From files to a model in memory: folders in Hugging Face's layout, and GGUF files.

Decoders are loaded as causal language models, encoders with their masked-word head (without one, bare). No file
of Python is run unless it is trusted. Whatever a third party raises on bad files, which is nearly anything,
leaves as one line.
"""

import io
import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto import modeling_auto

from posbias.core import plugins
from posbias.core.arguments import shortened
from posbias.core.errors import (
    InputFileError,
    InvalidValueError,
    MissingPackageError,
    ModelError,
    PosbiasError,
)
from posbias.core.input_files import read_mapping
from posbias.core.lazy import need
from posbias.measurement.models.cache import GGUF_READERS
from posbias.measurement.models.device_placement import Placement
from posbias.measurement.models.families import FAMILIES, Family, generic
from posbias.measurement.models.hub import has_safetensors, missing_weights
from posbias.measurement.models.tiny.model import register

# the small family of our own is an ordinary one to transformers from here on
register()

_AS_THEY_COME = Placement()
_TOKENIZER_FILE = re.compile(r"tokenizer|vocab|merges|spiece|sentencepiece|.*\.(model|tiktoken|spm)$")
"""Names of files that a tokenizer is kept in."""


def from_folder(
    folder: Path,
    placement: Placement = _AS_THEY_COME,
    attention: str | None = None,
    trusted: bool = False,
    tokenizer: Any = None,
) -> tuple[Any, Any]:
    """Return model and tokenizer of a folder that `save_pretrained` wrote.

    `attention`: "eager" or "sdpa", None for the family's default; `trusted`: run Python files of the folder if
    it has any; `tokenizer`: another one (`tokenizer_of_folder`).

    Raises `ModelError`, `InvalidValueError` for an attention that is wrong for the family.
    """
    where: dict[str, Any] = {"local_files_only": True}
    with quiet_transformers(), _as_model_error(folder):
        config, chosen, made = _described(folder, attention, trusted, where, tokenizer)
        missing = missing_weights(folder)
        if missing is not None:
            raise ModelError(f"model: {folder} could not be loaded: it has no {missing}")
        placement.need_memory(folder, getattr(config, "dtype", None))
        where |= {"config": config, "use_safetensors": has_safetensors(folder)}
        return _load(
            _auto_class(config), folder, placement, trusted, attn_implementation=chosen, **where
        ), made


def from_gguf(
    file: Path,
    placement: Placement = _AS_THEY_COME,
    attention: str | None = None,
    tokenizer: Any = None,
) -> tuple[Any, Any]:
    """Return model (unpacked) and tokenizer of a GGUF file. Arguments and errors as of `from_folder`.

    Raises `MissingPackageError` when a package for GGUF files is not installed.
    """
    need(*GGUF_READERS, work="reading a GGUF file", extra="measure")
    where: dict[str, Any] = {"local_files_only": True, "gguf_file": file.name}
    # transformers shows a bar here that its own switch does not reach
    bar = nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())
    with bar, quiet_transformers(), _as_model_error(file):
        _, chosen, made = _described(file.parent, attention, False, where, tokenizer)
        where |= {"quantization_config": transformers.GgufConfig(dequantize=True)}
        kind = transformers.AutoModelForCausalLM
        return _load(kind, file.parent, placement, False, attn_implementation=chosen, **where), made


def tokenizer_of_folder(folder: str | Path) -> Any:
    """Return the tokenizer of a folder that its `save_pretrained` wrote. Raises `ModelError`."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ModelError(f"tokenizer: {path} is no folder, one written by tokenizer.save_pretrained needed")
    with quiet_transformers(), _as_model_error(path, "tokenizer"):
        return _tokenizer(path, False, {"local_files_only": True}, "tokenizer", "")


def _tokenizer(folder: Path, trusted: bool, where: dict[str, Any], what: str, otherwise: str) -> Any:
    """The tokenizer in a folder, given as `what`; one line says that there is none, and what to do `otherwise`."""
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=trusted, **where)
    except Exception as error:
        if "gguf_file" in where or any(_TOKENIZER_FILE.match(file.name) for file in folder.iterdir()):
            raise
        remedy = f"write one there with tokenizer.save_pretrained{otherwise}"
        raise ModelError(f"{what}: {folder} has no tokenizer; {remedy}") from error


def _described(
    folder: Path, attention: str | None, trusted: bool, where: dict[str, Any], tokenizer: Any
) -> tuple[Any, str, Any]:
    """The configuration of a model, the attention to take, and the tokenizer: the one given, or its own."""
    _let_register(folder)
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trusted, **where)
    check_config(config)
    chosen = attention_for(config, attention)
    if tokenizer is not None:
        return config, chosen, tokenizer
    otherwise = ", or name the folder of one: tokenizer=FOLDER (--tokenizer FOLDER)"
    return config, chosen, _tokenizer(folder, trusted, where, "model", otherwise)


def _load(kind: Any, folder: Path, placement: Placement, trusted: bool, **how: Any) -> Any:
    """The model, its weights where and as what `placement` says; those on disk go when the model does."""
    places: dict[str, Any] = {"dtype": placement.dtype}
    if placement.map is not None:
        places["device_map"] = placement.map
    elif placement.device.type != "cpu":
        # tensor by tensor from the files to the device: no copy of all weights in this machine's memory
        places["device_map"] = {"": placement.device}
    offloaded = tempfile.mkdtemp(prefix="posbias-offloaded-") if placement.to_disk else None
    if offloaded is not None:
        places["offload_folder"] = offloaded
    try:
        # pickled weights may hold code: tensors alone are read
        loaded = kind.from_pretrained(
            folder, output_loading_info=True, weights_only=True, trust_remote_code=trusted, **places, **how
        )
        model = _whole(loaded)
    except BaseException:
        shutil.rmtree(offloaded or "", ignore_errors=True)
        raise
    if offloaded is not None:
        weakref.finalize(model, shutil.rmtree, offloaded, ignore_errors=True)
    return model if placement.map is not None else model.to(placement.device)


def family_for(config: Any) -> Family:
    """Return the family's row for a model's configuration, a generic one when it is not in the table."""
    model_type = config.get_text_config().model_type
    return FAMILIES.get(model_type) or _brought(model_type) or generic(model_type)


def _brought(model_type: str) -> Family | None:
    """The row of a family that another package brings, not yet proven. Raises `PluginError` for what is no row."""
    found = plugins.family(model_type)
    if found is None or found.capture is None:
        return None
    if not isinstance(found.capture, Family):
        given = type(found.capture).__name__
        raise plugins.failed(found.package, f"capture of {model_type}: {given} given, a row Family(…) needed")
    return replace(found.capture, model_type=model_type, checked=False)


def _let_register(folder: Path) -> None:
    """Import the package that brings a folder's family, where transformers has none of that name."""
    try:
        model_type = read_mapping(folder / "config.json").get("model_type")
    except InputFileError:  # transformers says what it needs
        return
    if isinstance(model_type, str) and model_type not in transformers.CONFIG_MAPPING:
        plugins.family(model_type)


def attention_for(config: Any, asked: str | None) -> str:
    """Return the attention implementation to use: the one asked, or by default the family's first.

    Raises `InvalidValueError` when the one asked is not right for the family, with the reason where known.
    """
    family = family_for(config)
    if asked is None:
        return family.attention[0]
    if asked not in family.attention:
        known = f" ({'; '.join(family.defects)})" if family.defects else ""
        raise InvalidValueError(
            f"attention: {shortened(asked)} given, {' or '.join(map(repr, family.attention))} needed for family "
            f"{family.model_type!r}{known}"
        )
    return asked


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bars and warnings inside the block."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def check_config(config: Any) -> None:
    """Raise `ModelError` for a model of no layers, or of an encoder and a decoder."""
    if config.is_encoder_decoder:
        raise ModelError(
            f"model: {config.model_type!r} has an encoder and a decoder, a model with one stream of layers needed"
        )
    depth = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if depth < 1:
        raise ModelError(f"model: {depth} decoder layers, a model with at least one needed")


def fills_gaps(model: Any) -> bool:
    """Whether the model's head is one for masked words: an encoder, each of whose outputs may see all tokens."""
    names = {*modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values()}
    return any(kind.__name__ in names for kind in type(model).__mro__)


def _auto_class(config: Any) -> Any:
    """Return the class to load with: causal, or for encoders masked, or bare when the head was not saved."""
    kind = type(config)
    architecture = (getattr(config, "architectures", None) or [""])[0]
    encoder = kind in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING
    if encoder and architecture not in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        with_head = {
            "",
            *modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values(),
            *modeling_auto.MODEL_FOR_PRETRAINING_MAPPING_NAMES.values(),
        }
        return transformers.AutoModelForMaskedLM if architecture in with_head else transformers.AutoModel
    return transformers.AutoModelForCausalLM


def _whole(loaded: Any) -> Any:
    """Refuse a model some of whose weights were not in its files: transformers would make them up."""
    model, report = loaded
    # a pooler comes after the last layer and is not measured
    absent = sorted(
        name
        for name in map(str, [*report["missing_keys"], *report["mismatched_keys"]])
        if "pooler" not in name
    )
    if absent:
        raise ModelError(
            f"model: {len(absent)} weights are missing or misshapen in its files, first {absent[0]}"
        )
    return model


@contextmanager
def _as_model_error(path: Path, what: str = "model") -> Iterator[None]:
    """Turn what a third party raises into one line; `what` the path is given as."""
    try:
        yield
    except PosbiasError:
        raise
    except ImportError as error:
        if error.name is None:  # a sentence, not a package: what the files themselves ask for
            raise _could_not(path, error, what) from error
        raise MissingPackageError(
            f"{error.name}: not installed, loading {path.name} needs it; run: pip install 'posbias[measure]'"
        ) from error
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"model: {path.name} needs Python files of its own, which are not run unasked: read those in "
                f"{path}, then pass trust_remote_code=True (--trust-remote-code)"
            ) from error
        raise _could_not(path, error, what) from error
    except BaseException as error:
        # what the tokenizers' Rust code raises on nonsense is no Exception
        if type(error).__name__ != "PanicException":
            raise
        raise _could_not(path, error, what) from error


def _could_not(path: Path, error: BaseException, what: str) -> ModelError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    # a line that ends at a colon says nothing without those behind it
    first = " ".join(lines) if lines[0].endswith(":") else lines[0]
    return ModelError(f"{what}: {path} could not be loaded: {first}")
