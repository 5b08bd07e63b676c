"""From a name, or a model in memory, to a model that is ready to be measured.

A name is a model that `available_models` lists, a folder in Hugging Face's layout, a `.gguf` file, or the id of a
model on a hub (`organisation/model`). Only for the last is a network asked, and not under `HF_HUB_OFFLINE=1`. By
default weights are float32 on the CPU. Gradients to parameters are off, and attention is one that the family's row
says transformers computes rightly. A user's model in memory may be in training: what is measured is a copy of its
modules that shares its weights.
"""

import copy
import functools
import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from posbias.core.errors import InvalidValueError, ModelError, wrong
from posbias.measurement.models import formats
from posbias.measurement.models.families import Family, decoder_layers, embedding_table, family_for
from posbias.measurement.models.fetching import find

log = logging.getLogger(__name__)
FUSED = 256
"""Above so many tokens fused attention is taken where the family has it, and outputs are made in blocks."""
Treatment = dict[str, Any]
"""What changes a model beyond its weights: its `name`, and parameters in JSON's terms."""
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OF_LIBRARIES = ("accelerate", "transformers", "transformers_modules")
"""Packages whose own hooks move weights or record outputs, or are the model's own code."""


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to be measured, its tokenizer, its family's row, and the checksum of its files.

    `seconds` is how long loading took, `revision` the commit of a model from a hub; `treatment` names what changes
    the model beyond its weights, such as hooks, and is part of every fingerprint. Make one with `load_model`, or
    from a model in memory with `of`. Raises `InvalidValueError` for a treatment without a name.
    """

    model: Any
    tokenizer: Any
    family: Family
    name: str
    checksum: str
    seconds: float = 0.0
    revision: str | None = None
    treatment: Treatment | None = None

    def __post_init__(self):
        if self.treatment is not None and not (
            isinstance(self.treatment, dict) and self.treatment.get("name")
        ):
            what = "a mapping with a name, and parameters in JSON's terms"
            raise wrong("treatment", what, self.treatment)

    @property
    def described(self) -> dict[str, Any]:
        """What a result says of its model, for its attributes."""
        return {
            "model": self.name,
            "family": self.family.model_type,
            "checksum": self.checksum,
            "dtype": self.dtype,
            "device": self.device.type,
            "attention": self.attention,
            **({} if self.revision is None else {"revision": self.revision}),
            **self.treated,
        }

    @property
    def treated(self) -> dict[str, Treatment]:
        """The treatment as an entry of fingerprints and attributes; none for a plain model.

        Raises `ModelError` for hooks on the model that no treatment names.
        """
        if self.treatment is not None:
            return {"treatment": self.treatment}
        if names := hooked(self.model):
            some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            what = "one without hooks, or a treatment that names them"
            raise wrong("model", what, got=f"hooks on {some}", kind=ModelError)
        return {}

    @property
    def verified(self) -> bool:
        """Whether the family is in the table; if not, only the self-check at hand speaks for the capture."""
        return self.family.checked

    @property
    def encoder(self) -> bool:
        """Whether it is an encoder: a model with a head for masked words."""
        return formats.fills_gaps(self.model)

    def need_causal(self, what: str) -> None:
        """Raise `ModelError` when `what` has meaning for causal models only and this is an encoder."""
        if self.encoder:
            raise wrong("model", f"a causal one for {what}", got=f"{self.name}, an encoder", kind=ModelError)

    @property
    def attention(self) -> str:
        """The attention implementation in use, "eager" or "sdpa"."""
        return self.model.config._attn_implementation

    @property
    def dtype(self) -> str:
        """What the weights are held as, such as "float32"."""
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def device(self) -> torch.device:
        """Where prompts are to be put: where the embeddings are (the CPU while those are on disk)."""
        embeddings = self.model.get_input_embeddings()
        place = getattr(embeddings, "weight", embeddings).device
        return torch.device("cpu") if place.type == "meta" else place

    @property
    def accelerators(self) -> list[torch.device]:
        """The devices other than the CPU that hold weights, in order of their numbers."""
        places = {weight.device for weight in self.model.parameters()}
        return sorted((place for place in places if place.type not in ("cpu", "meta")), key=str)

    @property
    def context(self) -> int | None:
        """The most tokens the model takes, None where its configuration does not say."""
        config = self.model.config.get_text_config()
        names = ("max_position_embeddings", "n_positions", "max_seq_len")
        named = (getattr(config, name, None) for name in names)
        return next((int(most) for most in named if isinstance(most, int) and most > 0), None)

    def check_ids(self, largest: int) -> None:
        """Raise `ModelError` when the tokenizer gives a token that the model has no embedding for."""
        last = len(embedding_table(self.model)) - 1
        if largest > last:
            what = f"a tokenizer whose tokens end at {last} as its embeddings do"
            raise wrong("model", what, got=f"token {largest}", kind=ModelError)

    @classmethod
    def of(cls, model: Any, tokenizer: Any, name: str, attention: str | None = None) -> "LoadedModel":
        """Prepare a model that is already in memory (it is switched to evaluation, and to `attention`).

        `attention` as of `load_model`. Raises `ModelError` for a model without decoder layers or one whose
        attention cannot be switched, `InvalidValueError` for an attention that is wrong for the family.
        """
        digest = hashlib.sha256(model.config.to_json_string().encode())
        for key, tensor in sorted(model.state_dict().items()):
            digest.update(key.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        digest.update(_rules(tokenizer))
        return _prepared(model, tokenizer, name, digest.hexdigest(), attention)


def load_model(
    name: str | Path,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    device_map: formats.DeviceMap = None,
    attention: str | None = None,
    trust_remote_code: bool = False,
    tokenizer: str | Path | None = None,
    tokens: int = 0,
    accept_terms: bool = False,
) -> LoadedModel:
    """Load a model by name, folder, `.gguf` file or hub id; what is not here yet is fetched first.

    `revision`: branch, tag or commit of a hub id. `dtype`: "float32", "bfloat16", "float16", or "auto" for the
    one stored. `device`: "cpu", "cuda", "cuda:1", "mps". `device_map`: "auto" or another strategy of accelerate,
    a map from modules to devices ("disk" is one), or a JSON file of one. `attention`: "eager" or "sdpa", None
    for that to take for prompts of `tokens` (`for_length`). `trust_remote_code`: run Python files that come with
    the model. `tokenizer`: a folder with another tokenizer than the model's files have. `accept_terms`: you accept
    the terms of use of a registered model that has such, and is fetched.

    A family outside the table loads with `verified` False. Raises `ModelError` when the model is unknown,
    missing, damaged, cannot be downloaded, needs code that is not trusted, has no decoder layers or a tokenizer
    of another model; `InvalidValueError` for an argument that is wrong here; `MissingPackageError`.
    """
    placement = formats.Placement.of(dtype, device, device_map)
    found = find(name, revision, trust_remote_code, accept_terms)
    checksum = found.checksum(trust_remote_code)
    begin = time.perf_counter()
    # a folder that has none is refused before the model is read
    other = None if tokenizer is None else formats.tokenizer_of_folder(tokenizer)
    log.info("%s: loading%s", found.name, ", half a minute" if found.path.suffix == ".gguf" else "")
    model, own = formats.load_files(found, placement, attention, trust_remote_code, other)
    check_vocabulary(model, own)
    if tokenizer is not None:
        checksum = hashlib.sha256(checksum.encode() + _rules(own)).hexdigest()
    loaded = _prepared(model, own, found.name, checksum, attention)
    loaded = replace(loaded, seconds=time.perf_counter() - begin, revision=found.revision)
    return loaded if attention else for_length(loaded, tokens)


def for_length(loaded: LoadedModel, tokens: int) -> LoadedModel:
    """Return the model with the attention to take at this length: fused above `FUSED`, where that is right."""
    if tokens > FUSED and "sdpa" in loaded.family.attention and loaded.attention != "sdpa":
        try:
            loaded.model.set_attn_implementation("sdpa")
        except ValueError as error:
            if loaded.verified:
                raise
            log.info("no fused attention: %s", error)
    return loaded


@contextmanager
def ready(
    model: Any,
    tokenizer: Any = None,
    treatment: Treatment | None = None,
    tokens: int = 0,
    loading: Mapping[str, Any] = {},
) -> Iterator[LoadedModel]:
    """A model ready to be measured on prompts of `tokens`, whatever stands for it.

    `model`: a `LoadedModel`, which brings its tokenizer and attention; a name or folder that `load_model` takes,
    with the folder of another tokenizer and further arguments in `loading` if wanted; or a model of transformers,
    with its tokenizer (or the folder of one), of which a copy is switched that shares its weights. Raises as
    `load_model` and `LoadedModel`, and `InvalidValueError` for anything else.
    """
    loaded, trained = model, []
    try:
        if isinstance(model, LoadedModel):
            if tokenizer is not None:
                raise InvalidValueError("tokenizer: expected None with a LoadedModel, which brings its own")
        elif isinstance(model, str | Path):
            if tokenizer is not None and not isinstance(tokenizer, str | Path):
                raise wrong("tokenizer", "a folder with a model by name", got=f"a {type(tokenizer).__name__}")
            loaded = load_model(model, **{"tokenizer": tokenizer, "tokens": tokens, **loading})
        else:
            _check(model, tokenizer)
            if isinstance(tokenizer, str | Path):
                tokenizer = formats.tokenizer_of_folder(tokenizer)
            check_vocabulary(model, tokenizer)
            trained = [weight for weight in model.parameters() if weight.requires_grad]
            loaded = for_length(LoadedModel.of(_twin(model), tokenizer, name_of(model)), tokens)
        yield loaded if treatment is None else replace(loaded, treatment=treatment)
    finally:
        for weight in trained:
            weight.requires_grad_(True)


def hooked(model: nn.Module) -> list[str]:
    """The names of the modules with hooks, or with a `forward` of their own, that neither library has put there.

    Replaced classes, submodules and attention functions are not seen.
    """
    names = ["all modules"] if nn.modules.module._has_any_global_hook() else []
    for name, module in model.named_modules():
        held = vars(module)
        added = [hook for kind in _HOOKS for hook in held[kind].values()]
        added += [held[key] for key in ("forward", "_hf_hook") if key in held]
        own = type(module).forward
        if any(
            getattr(one, "__func__", None) is not own and _origin(one) not in _OF_LIBRARIES for one in added
        ):
            names.append(name or "the model itself")
    return names


def _origin(hook: Any) -> str:
    """The package whose code a hook runs, whatever name it bears."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    return getattr(hook, "__globals__", {}).get("__name__", type(hook).__module__).partition(".")[0]


def _twin(model: nn.Module) -> nn.Module:
    """A copy of all modules and configurations of a model that shares every tensor with it."""
    held: list[Any] = [*model.parameters(), *model.buffers()]
    held += [one for module in model.modules() for one in vars(module).values()]
    return copy.deepcopy(model, {id(one): one for one in held if isinstance(one, torch.Tensor)})


def name_of(model: Any) -> str:
    """What a model in memory is called: where its configuration was loaded from, else its class.

    Of a folder it is the last part.
    """
    name = str(getattr(model.config, "_name_or_path", "") or "")
    return (Path(name).name if Path(name).is_dir() else name) or type(model).__name__


def _check(model: Any, tokenizer: Any) -> None:
    if not isinstance(model, nn.Module) or not hasattr(getattr(model, "config", None), "get_text_config"):
        what = "a model's name, a folder, a .gguf file or a model of transformers"
        raise wrong("model", what, got=f"a {type(model).__name__}")
    if tokenizer is None:
        raise wrong("tokenizer", "that of the model in memory", got="None")
    if any(weight.is_meta for weight in model.parameters()):
        got = f"some of {name_of(model)} on disk or another device; load it by name with device_map instead"
        raise wrong("model", "weights in memory", got=got, kind=ModelError)


def check_vocabulary(model: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer of another model. (Tokens added to a vocabulary may well have no embedding.)"""
    rows = len(embedding_table(model))
    if getattr(tokenizer, "vocab_size", 0) > rows:
        what = f"a tokenizer of at most {rows} tokens, one an embedding"
        raise wrong("model", what, got=f"{tokenizer.vocab_size}", kind=ModelError)


def _prepared(model: Any, tokenizer: Any, name: str, checksum: str, attention: str | None) -> LoadedModel:
    formats.check_config(model.config)
    family = family_for(model.config)
    decoder_layers(model)
    model.eval().requires_grad_(False)
    chosen = formats.attention_for(model.config, attention)
    if model.config._attn_implementation != chosen:
        model.set_attn_implementation(chosen)
        if (kept := model.config._attn_implementation) != chosen:
            what = f"one made with attn_implementation={chosen!r}"
            got = f"{type(model).__name__} with {kept!r}, which cannot be switched"
            raise wrong("model", what, got=got, kind=ModelError)
    return LoadedModel(model, tokenizer, family, name, checksum)


def _rules(tokenizer: Any) -> bytes:
    """All that decides how a tokenizer splits a text, as far as it says: its rules, or its vocabulary alone."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return json.dumps(sorted(getattr(tokenizer, "get_vocab", dict)().items())).encode()
    rules = json.loads(backend.to_str())
    # these are of the last call, not of the tokenizer
    return json.dumps({name: rules[name] for name in rules if name not in ("truncation", "padding")}).encode()
