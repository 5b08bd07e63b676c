"""From a name to a model that is ready to be measured.

A name is a registered model, a folder in Hugging Face's layout, or a `.gguf` file. Only local files are
read: no hub is asked, whatever `HF_HUB_OFFLINE` says. Weights are float32, gradients to parameters are off,
and attention is the eager one, which the capture can see through.
"""

import hashlib
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from posbias.errors import MissingPackageError, ModelError, nearest
from posbias.measure.cache import (
    MANIFEST,
    REGISTERED,
    checksum_of_files,
    model_folder,
    sha256_of,
    verify,
)
from posbias.measure.families import Family, decoder_layers, family_of
from posbias.measure.fetching import fetch, need_converters, silent

_READ = (".json", ".safetensors", ".model", ".txt", ".jinja")


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to be measured, its tokenizer, its family's row, and the checksum of its weights.

    `seconds` is how long loading took. Make one with `load_model`, or from a model in memory with `of`.
    """

    model: Any
    tokenizer: Any
    family: Family
    name: str
    checksum: str
    seconds: float = 0.0

    @classmethod
    def of(cls, model: Any, tokenizer: Any, name: str) -> "LoadedModel":
        """Prepare a model that is already in memory (it is switched to eager attention and evaluation).

        Raises `ModelError` for an unknown family or a model without decoder layers.
        """
        digest = hashlib.sha256(model.config.to_json_string().encode())
        for key, tensor in sorted(model.state_dict().items()):
            digest.update(key.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        vocabulary = getattr(tokenizer, "get_vocab", dict)()
        digest.update(json.dumps(sorted(vocabulary.items())).encode())
        return _prepared(model, tokenizer, name, digest.hexdigest(), 0.0)


def load_model(name: str | Path, say: Callable[[str], None] | None = None) -> LoadedModel:
    """Load a registered model (fetched first if need be), a local folder or a `.gguf` file, in float32.

    Raises `ModelError` when it is unknown, missing, damaged, of an unknown family or without decoder layers.
    """
    say = say or silent
    begin = time.perf_counter()
    if isinstance(name, str) and name in REGISTERED:
        folder = model_folder(name)
        if (folder / MANIFEST).exists():
            checksum = verify(folder, name)
        else:
            checksum = verify(fetch(name, say=say), name)
            begin = time.perf_counter()
        say(f"{name}: loading")
        model, tokenizer = from_folder(folder)
        return _prepared(model, tokenizer, name, checksum, time.perf_counter() - begin)
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError(f"model: {path} does not exist, a .gguf file needed")
        say(f"{path.name}: unpacking weights, this takes half a minute")
        model, tokenizer = from_gguf(path)
        checksum = sha256_of(path)
    else:
        check_folder(name)
        say(f"{path.name}: loading")
        model, tokenizer = from_folder(path)
        checksum = checksum_of_files(
            (file.name, sha256_of(file)) for file in path.iterdir() if file.suffix in _READ and file.is_file()
        )
    return _prepared(model, tokenizer, path.name, checksum, time.perf_counter() - begin)


def check_folder(name: str | Path) -> None:
    """Raise `ModelError` unless `name` is a folder with a `config.json`."""
    path = Path(name).expanduser()
    if not path.exists():
        raise ModelError(
            f"model: {str(name)!r} given, needed {', '.join(map(repr, REGISTERED))}, or a folder or .gguf file "
            f"that exists{nearest(str(name), REGISTERED)}"
        )
    if not path.is_dir():
        raise ModelError(f"model: {path} is neither a folder nor a .gguf file")
    if not (path / "config.json").is_file():
        raise ModelError(f"model: {path} has no config.json, a folder written by save_pretrained needed")


def from_folder(folder: Path) -> tuple[Any, Any]:
    """Return model and tokenizer of a folder that `save_pretrained` wrote. Raises `ModelError`."""
    with quiet_transformers(), _as_model_error(folder):
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        _check_config(config)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = _whole(
            transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                attn_implementation="eager",
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
            )
        )
    return model, tokenizer


def from_gguf(file: Path) -> tuple[Any, Any]:
    """Return model (float32, unpacked) and tokenizer of a GGUF file.

    Raises `ModelError`, or `MissingPackageError` when a package for GGUF files is not installed.
    """
    need_converters()
    # transformers shows a bar here that its own switch does not reach
    bar = nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())
    with bar, quiet_transformers(), _as_model_error(file):
        where = {"gguf_file": file.name, "local_files_only": True}
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **where)
        model = _whole(
            transformers.AutoModelForCausalLM.from_pretrained(
                file.parent,
                quantization_config=transformers.GgufConfig(dequantize=True),
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
                **where,
            )
        )
    return model, tokenizer


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


def _prepared(model: Any, tokenizer: Any, name: str, checksum: str, seconds: float) -> LoadedModel:
    _check_config(model.config)
    family = family_of(model.config.model_type)
    decoder_layers(model, family)
    model.eval().requires_grad_(False)
    model.set_attn_implementation("eager")
    return LoadedModel(model, tokenizer, family, name, checksum, seconds)


def _check_config(config: Any) -> None:
    family_of(config.model_type)
    if config.num_hidden_layers < 1:
        raise ModelError(
            f"model: {config.num_hidden_layers} decoder layers, a model with at least one needed"
        )


def _whole(loaded: Any) -> Any:
    """Refuse a model some of whose weights were not in its files: transformers would make them up."""
    model, report = loaded
    absent = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if absent:
        raise ModelError(
            f"model: {len(absent)} weights are missing or misshapen in its files, first {absent[0]}"
        )
    return model


@contextmanager
def _as_model_error(path: Path) -> Iterator[None]:
    """Turn what a third party raises on bad files, which is nearly anything, into one line."""
    try:
        yield
    except (ModelError, MissingPackageError):
        raise
    except ImportError as error:
        raise MissingPackageError(
            f"{error.name or 'a package'}: not installed, loading {path.name} needs it; "
            "run: pip install 'posbias[measure]'"
        ) from error
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"model: {path} could not be loaded: {first}") from error
