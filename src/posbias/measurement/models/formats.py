"""From files to a model in memory: folders in Hugging Face's layout, and GGUF files.

Decoders are loaded as causal language models, encoders with their masked-word head (without one, bare). No file
of Python is run unless it is trusted. Whatever a third party raises on bad files, which is nearly anything,
leaves as one line.
"""

import io
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto import modeling_auto

from posbias.errors import InvalidValueError, MissingPackageError, ModelError, PosbiasError
from posbias.lazy import need
from posbias.measurement.models.cache import GGUF_READERS
from posbias.measurement.models.device_placement import Placement
from posbias.measurement.models.families import Family, family_of, generic
from posbias.measurement.models.hub import has_safetensors, missing_weights
from posbias.measurement.models.tiny.model import register

# the small family of our own is an ordinary one to transformers from here on
register()

_AS_THEY_COME = Placement()


def from_folder(
    folder: Path, placement: Placement = _AS_THEY_COME, attention: str | None = None, trusted: bool = False
) -> tuple[Any, Any]:
    """Return model and tokenizer of a folder that `save_pretrained` wrote.

    `attention`: "eager" or "sdpa", None for the family's default; `trusted`: run Python files of the folder if
    it has any. Raises `ModelError`, `InvalidValueError` for an attention that is wrong for the family.
    """
    with quiet_transformers(), _as_model_error(folder):
        where: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trusted}
        config = transformers.AutoConfig.from_pretrained(folder, **where)
        chosen = attention_for(_checked(config), attention)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **where)
        missing = missing_weights(folder)
        if missing is not None:
            raise ModelError(f"model: {folder} could not be loaded: it has no {missing}")
        placement.need_memory(folder, getattr(config, "dtype", None))
        with _placed(placement) as places:
            loaded = _auto_class(config).from_pretrained(
                folder,
                config=config,
                attn_implementation=chosen,
                use_safetensors=has_safetensors(folder),
                output_loading_info=True,
                **places,
                **where,
            )
            model = _whole(loaded)
            _keep_offloaded(model, places)
        return _at(model, placement), tokenizer


def from_gguf(
    file: Path, placement: Placement = _AS_THEY_COME, attention: str | None = None
) -> tuple[Any, Any]:
    """Return model (unpacked) and tokenizer of a GGUF file. Arguments and errors as of `from_folder`.

    Raises `MissingPackageError` when a package for GGUF files is not installed.
    """
    need(*GGUF_READERS, work="reading a GGUF file", extra="measure")
    # transformers shows a bar here that its own switch does not reach
    bar = nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())
    with bar, quiet_transformers(), _as_model_error(file), _placed(placement) as places:
        where = {"gguf_file": file.name, "local_files_only": True}
        config = transformers.AutoConfig.from_pretrained(file.parent, **where)
        chosen = attention_for(_checked(config), attention)
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **where)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent,
            quantization_config=transformers.GgufConfig(dequantize=True),
            attn_implementation=chosen,
            output_loading_info=True,
            **places,
            **where,
        )
        model = _whole(loaded)
        _keep_offloaded(model, places)
        return _at(model, placement), tokenizer


def family_for(config: Any) -> Family:
    """Return the family's row for a model's configuration, a generic one when it is not in the table."""
    model_type = config.get_text_config().model_type
    return family_of(model_type) or generic(model_type)


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
            f"attention: {asked!r} given, {' or '.join(map(repr, family.attention))} needed for family "
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


def _checked(config: Any) -> Any:
    check_config(config)
    return config


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
def _placed(placement: Placement) -> Iterator[dict[str, Any]]:
    """Yield the arguments that say where weights go and as what; a folder for those that stay on disk."""
    places: dict[str, Any] = {"dtype": placement.dtype}
    if placement.map is not None:
        places["device_map"] = placement.map
    if placement.to_disk:
        places["offload_folder"] = tempfile.mkdtemp(prefix="posbias-offloaded-")
    try:
        yield places
    except BaseException:
        shutil.rmtree(places.get("offload_folder", ""), ignore_errors=True)
        raise


def _keep_offloaded(model: Any, places: dict[str, Any]) -> None:
    """Remove the folder of weights on disk when the model goes, or the process ends."""
    if "offload_folder" in places:
        weakref.finalize(model, shutil.rmtree, places["offload_folder"], ignore_errors=True)


def _at(model: Any, placement: Placement) -> Any:
    return model if placement.map is not None else model.to(placement.device)


@contextmanager
def _as_model_error(path: Path) -> Iterator[None]:
    """Turn what a third party raises into one line."""
    try:
        yield
    except PosbiasError:
        raise
    except ImportError as error:
        if error.name is None:  # a sentence, not a package: what the files themselves ask for
            raise _could_not(path, error) from error
        raise MissingPackageError(
            f"{error.name}: not installed, loading {path.name} needs it; run: pip install 'posbias[measure]'"
        ) from error
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"model: {path.name} needs Python files of its own, which are not run unasked: read those in "
                f"{path}, then pass trust_remote_code=True (--trust-remote-code)"
            ) from error
        raise _could_not(path, error) from error
    except BaseException as error:
        # what the tokenizers' Rust code raises on nonsense is no Exception
        if type(error).__name__ != "PanicException":
            raise
        raise _could_not(path, error) from error


def _could_not(path: Path, error: BaseException) -> ModelError:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ModelError(f"model: {path} could not be loaded: {first}")
