"""From files to a model in memory: folders in Hugging Face's layout, and GGUF files; in which numbers, and where.

Decoders are loaded as causal language models, encoders with their masked-word head (without one, bare), on one
device or on several through accelerate's device map. No file of Python is run unless it is trusted. Whatever a
third party raises on bad files, which is nearly anything, leaves as one line.
"""

import gc
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto

from posbias.core import machine, packages
from posbias.core.errors import InputFileError, MissingPackageError, ModelError, PosbiasError, one_of, wrong
from posbias.core.files import read_mapping
from posbias.core.packages import need
from posbias.measurement.models.families import family_for
from posbias.measurement.models.gguf_positions import check_angles, take_over
from posbias.measurement.models.sources import GGUF_READERS, Files, bars_on_a_terminal, has_safetensors
from posbias.measurement.models.tiny import register

# the small family of our own is an ordinary one to transformers from here on
register()

DTYPES = ("float32", "bfloat16", "float16", "auto")
STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")
DeviceMap = str | Path | Mapping[str, Any] | None
"""A strategy, a file, or the device of each module: its number, its name, or disk."""


@dataclass(frozen=True)
class Placement:
    """Where weights go and as what: `dtype` "auto" is the one they are stored in, `map` overrides `device`."""

    dtype: torch.dtype | str = torch.float32
    device: torch.device = torch.device("cpu")  # noqa: RUF009
    map: Any = None

    @classmethod
    def of(cls, dtype: str, device: str, device_map: DeviceMap) -> "Placement":
        """Check what was asked. Raises `InvalidValueError`, or `InputFileError` for a bad file of a map."""
        one_of("dtype", dtype, DTYPES)
        one_of("device", device, devices())
        if device_map is not None and device != "cpu":
            raise wrong("device", "none with device_map", device)
        places = _map(device_map)
        return cls(dtype if dtype == "auto" else getattr(torch, dtype), torch.device(device), places)

    @property
    def to_disk(self) -> bool:
        """Whether weights may stay on disk."""
        return isinstance(self.map, str) or (self.map is not None and "disk" in self.map.values())

    def need_memory(self, found: Files, stored: Any) -> None:
        """Raise `InvalidValueError` when the weights do not fit one device; of maps accelerate knows more.

        `stored` is the dtype that the configuration says they are stored in, or None.
        """
        if self.map is None:
            stored = stored if isinstance(stored, torch.dtype) else torch.float32
            held = self.dtype if isinstance(self.dtype, torch.dtype) else stored
            needed = found.bytes_of_weights() * held.itemsize // stored.itemsize
            require_on(self.device, needed, "model", f"{found.name} in {str(held).removeprefix('torch.')}")


AS_STORED = Placement()


def devices() -> list[str]:
    """Return the names of the devices that torch sees here, the CPU first."""
    if not torch.accelerator.is_available():
        return ["cpu"]
    kind = torch.accelerator.current_accelerator().type  # pyright: ignore[reportOptionalMemberAccess]
    return ["cpu", kind, *(f"{kind}:{number}" for number in range(torch.accelerator.device_count()))]


def require_on(device: torch.device, needed: int, argument: str, given: object) -> None:
    """Raise `InvalidValueError` naming `argument` if `needed` bytes are more than a device says are free.

    Memory that torch holds of a GPU and nobody uses counts as free. Devices that say nothing are not asked.
    """
    where = "" if device.type == "cpu" else str(device)
    machine.require(needed, argument, given, free_on(device), where)


def free_on(device: torch.device) -> int | None:
    """Bytes that a device, or this machine, says are free; None where it says nothing."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return machine.available() if device.type == "cpu" else None


def let_go() -> None:
    """Give back what models that nobody holds any more have on GPUs, so that the next one finds the room free."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _map(given: DeviceMap) -> str | dict[str, Any] | None:
    """A strategy or a map of modules to devices, also from a file. Raises as `Placement.of`."""
    if given is None or (isinstance(given, str) and given in STRATEGIES):
        return given  # pyright: ignore[reportReturnType]
    places = read_mapping(given) if isinstance(given, str | Path) and Path(given).is_file() else given
    if not isinstance(places, Mapping) or not places:
        what = f"one of {', '.join(STRATEGIES)}, or modules with devices (a JSON file)"
        raise wrong("device_map", what, given)
    known = [*devices(), "disk", *range(len(devices()) - 2)]
    for module, place in places.items():
        if isinstance(place, bool) or place not in known:
            listed = ", ".join(map(str, known))
            raise wrong("device_map", f"one of {listed} for {module!r}", place)
    return dict(places)


def load_files(
    found: Files,
    placement: Placement = AS_STORED,
    attention: str | None = None,
    trusted: bool = False,
    tokenizer: Any = None,
) -> tuple[Any, Any]:
    """Return model and tokenizer of a folder that `save_pretrained` wrote, or of a GGUF file, unpacked.

    `attention`: "eager" or "sdpa", None for the family's default; `trusted`: run Python files of the folder if
    it has any; `tokenizer`: another one (`tokenizer_of_folder`).

    Raises `ModelError`, `InvalidValueError` for an attention that is wrong for the family, `MissingPackageError`
    when a package for GGUF files is not installed.
    """
    gguf = found.path.is_file()
    folder = found.path.parent if gguf else found.path
    where: dict[str, Any] = {"local_files_only": True}
    if gguf:
        need(*GGUF_READERS, work="reading a GGUF file", extra="measure")
        where["gguf_file"] = found.path.name
    # of a GGUF file transformers shows a bar that its own switch does not reach
    with bars_on_a_terminal(), quiet_transformers(), _as_model_error(found.path):
        _let_register(folder)
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trusted, **where)
        check_config(config)
        chosen = attention_for(config, attention)
        tokenizer = _tokenizer(folder, "model", trusted, where) if tokenizer is None else tokenizer
        if gguf:
            angles = take_over(found.path, config)
            kind = transformers.AutoModelForCausalLM
            where["quantization_config"] = transformers.GgufConfig(dequantize=True)
        else:
            placement.need_memory(found, getattr(config, "dtype", None))
            kind, angles = _auto_class(config), None
            where["use_safetensors"] = has_safetensors(folder)
        model = _load(kind, folder, placement, trusted, config=config, attn_implementation=chosen, **where)
        if angles is not None:
            check_angles(model, angles, found.name)
        return model, tokenizer


def tokenizer_of_folder(folder: str | Path) -> Any:
    """Return the tokenizer of a folder that its `save_pretrained` wrote. Raises `ModelError`."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ModelError(f"tokenizer: expected a folder written by tokenizer.save_pretrained, got {path}")
    with quiet_transformers(), _as_model_error(path, "tokenizer"):
        return _tokenizer(path, "tokenizer", False, {"local_files_only": True})


def _tokenizer(folder: Path, what: str, trusted: bool, where: dict[str, Any]) -> Any:
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=trusted, **where)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(
            f"{what}: expected a tokenizer in {folder / where.get('gguf_file', '')} ({reason}); name the folder "
            "of one: tokenizer=FOLDER (--tokenizer FOLDER)"
        ) from error


def _load(kind: Any, folder: Path, placement: Placement, trusted: bool, **how: Any) -> Any:
    """The model, its weights where and as what `placement` says; those on disk go when the model does."""
    if placement.map is not None:
        how["device_map"] = placement.map
    elif placement.device.type != "cpu":
        # tensor by tensor from the files to the device: no copy of all weights in this machine's memory
        how["device_map"] = {"": placement.device}
    with ExitStack() as offloaded:
        if placement.to_disk:
            place = tempfile.TemporaryDirectory(prefix="posbias-offloaded-", ignore_cleanup_errors=True)
            how["offload_folder"] = offloaded.enter_context(place)
        # pickled weights may hold code: tensors alone are read
        model, report = kind.from_pretrained(
            folder,
            output_loading_info=True,
            trust_remote_code=trusted,
            weights_only=True,
            dtype=placement.dtype,
            **how,
        )
        # transformers would make up weights that are not in the files; a pooler comes after all that is measured
        absent = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
        if absent := [name for name in absent if "pooler" not in name]:
            what = f"{len(absent)} weights are missing or misshapen in its files, first {absent[0]}"
            raise ModelError(f"model: {what}")
        weakref.finalize(model, offloaded.pop_all().close)
    return model if placement.map is not None else model.to(placement.device)


def _let_register(folder: Path) -> None:
    """Import the package that brings a folder's family, where transformers has none of that name."""
    try:
        model_type = read_mapping(folder / "config.json").get("model_type")
    except InputFileError:  # transformers says what it needs
        return
    if isinstance(model_type, str) and model_type not in transformers.CONFIG_MAPPING:
        packages.family(model_type)


def attention_for(config: Any, asked: str | None) -> str:
    """Return the attention implementation to use: the one asked, or by default the family's first.

    Raises `InvalidValueError` when the one asked is not right for the family, with the reason where known.
    """
    family = family_for(config)
    if asked is not None and asked not in family.attention:
        known = f" ({'; '.join(family.defects)})" if family.defects else ""
        what = f"{' or '.join(map(repr, family.attention))} for {family.model_type!r}{known}"
        raise wrong("attention", what, asked)
    return asked or family.attention[0]


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
        got = f"{config.model_type!r} with an encoder and a decoder"
        raise wrong("model", "one stream of layers", got=got, kind=ModelError)
    depth = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if depth < 1:
        raise wrong("model", "at least one decoder layer", depth, kind=ModelError)


def fills_gaps(model: Any) -> bool:
    """Whether the model's head is one for masked words: an encoder, each of whose outputs may see all tokens."""
    names = {*modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values()}
    return any(kind.__name__ in names for kind in type(model).__mro__)


def _auto_class(config: Any) -> Any:
    """Return the class to load with: causal, or for encoders masked, or bare when the head was not saved."""
    architecture = (getattr(config, "architectures", None) or [""])[0]
    causal = architecture in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    if causal or type(config) not in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING:
        return transformers.AutoModelForCausalLM
    with_head = {
        "",
        *modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values(),
        *modeling_auto.MODEL_FOR_PRETRAINING_MAPPING_NAMES.values(),
    }
    return transformers.AutoModelForMaskedLM if architecture in with_head else transformers.AutoModel


@contextmanager
def _as_model_error(path: Path, what: str = "model") -> Iterator[None]:
    """Turn what a third party raises into one line; `what` the path is given as."""
    try:
        yield
    except PosbiasError:
        raise
    except BaseException as error:
        # what the tokenizers' Rust code raises on nonsense is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if (
            isinstance(error, ImportError) and error.name is not None
        ):  # else what the files themselves ask for
            raise MissingPackageError(
                f"{error.name}: not installed, loading {path.name} needs it; run: pip install 'posbias[measure]'"
            ) from error
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"model: {path.name} needs Python files of its own, which are not run unasked: read those in "
                f"{path}, then pass trust_remote_code=True (--trust-remote-code)"
            ) from error
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        # a line that ends at a colon says nothing without those behind it
        first = " ".join(lines) if lines[0].endswith(":") else lines[0]
        raise ModelError(f"{what}: {path} could not be loaded: {first}") from error
