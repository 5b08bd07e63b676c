"""From a name to a model that is ready to be measured.

A name is a model that `available_models` lists, a folder in Hugging Face's layout, a `.gguf` file, or the id of
a model on a hub (`organisation/model`). Only for the last is a network asked, and not under `HF_HUB_OFFLINE=1`.
By default weights are float32 on the CPU. Gradients to parameters are off, and attention is one that the
family's row says transformers computes rightly.
"""

import hashlib
import json
import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, ModelError
from posbias.core.plugins import bundled
from posbias.measurement.models.cache import (
    REGISTERED,
    check_name,
    checksum_of_files,
    sha256_of,
)
from posbias.measurement.models.device_placement import DeviceMap, Placement
from posbias.measurement.models.families import Family, decoder_layers, embedding_table
from posbias.measurement.models.fetching import fetch
from posbias.measurement.models.formats import (
    attention_for,
    check_config,
    family_for,
    fills_gaps,
    from_folder,
    from_gguf,
    tokenizer_of_folder,
)
from posbias.measurement.models.hub import READ, has_safetensors, is_hub_id, snapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to be measured, its tokenizer, its family's row, and the checksum of its files.

    `seconds` is how long loading took, `revision` the commit of a model from a hub. Make one with `load_model`,
    or from a model in memory with `of`.
    """

    model: Any
    tokenizer: Any
    family: Family
    name: str
    checksum: str
    seconds: float = 0.0
    revision: str | None = None

    @property
    def verified(self) -> bool:
        """Whether the family is in the table; if not, only the self-check at hand speaks for the capture."""
        return self.family.checked

    @property
    def encoder(self) -> bool:
        """Whether it is an encoder: a model with a head for masked words."""
        return fills_gaps(self.model)

    def need_causal(self, what: str) -> None:
        """Raise `ModelError` when `what` has meaning for causal models only and this is an encoder."""
        if self.encoder:
            raise ModelError(f"model: {self.name} attends in both directions, {what} needs a causal model")

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
        """The devices beside the CPU that hold weights, in order of their numbers."""
        places = {weight.device for weight in self.model.parameters()}
        return sorted((place for place in places if place.type not in ("cpu", "meta")), key=str)

    @property
    def context(self) -> int | None:
        """The most tokens the model takes, None where its configuration does not say."""
        config = self.model.config.get_text_config()
        named = (
            getattr(config, name, None) for name in ("max_position_embeddings", "n_positions", "max_seq_len")
        )
        return next((int(most) for most in named if isinstance(most, int) and most > 0), None)

    def check_ids(self, largest: int) -> None:
        """Raise `ModelError` when the tokenizer gives a token that the model has no embedding for."""
        last = len(embedding_table(self.model)) - 1
        if largest > last:
            raise ModelError(
                f"model: its tokenizer gives token {largest}, its embeddings end at {last}: "
                "the two do not belong together"
            )

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
        digest.update(_spelling(tokenizer))
        return _prepared(model, tokenizer, name, digest.hexdigest(), attention)


@dataclass(frozen=True)
class _Found:
    """Where a model's files are, what it is called, and the SHA-256 over what is read of them."""

    path: Path
    name: str
    checksum: str
    revision: str | None = None


def load_model(
    name: str | Path,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    device_map: DeviceMap = None,
    attention: str | None = None,
    trust_remote_code: bool = False,
    tokenizer: str | Path | None = None,
) -> LoadedModel:
    """Load a model by name, folder, `.gguf` file or hub id; what is not here yet is fetched first.

    `revision`: branch, tag or commit of a hub id. `dtype`: "float32", "bfloat16", "float16", or "auto" for the
    one stored. `device`: "cpu", "cuda", "cuda:1", "mps". `device_map`: "auto" or another strategy of accelerate,
    a map from modules to devices ("disk" is one), or a JSON file of one. `attention`: "eager" or "sdpa", None
    for the family's default. `trust_remote_code`: run Python files that come with the model. `tokenizer`: a folder
    with another tokenizer than the model's files have.

    A family outside the table loads with `verified` False. Raises `ModelError` when the model is unknown,
    missing, damaged, cannot be downloaded, needs code that is not trusted, has no decoder layers or a tokenizer
    of another model; `InvalidValueError` for an argument that is wrong here; `MissingPackageError`.
    """
    placement = Placement.of(dtype, device, device_map)
    found = _find(name, revision, trust_remote_code)
    begin = time.perf_counter()
    # a folder that has none is told before the model is read
    other = None if tokenizer is None else tokenizer_of_folder(tokenizer)
    if found.path.suffix == ".gguf":
        log.info("%s: unpacking weights, this takes half a minute", found.name)
        model, own = from_gguf(found.path, placement, attention, other)
    else:
        log.info("%s: loading", found.name)
        model, own = from_folder(found.path, placement, attention, trust_remote_code, other)
    check_vocabulary(model, own)
    checksum = found.checksum
    if tokenizer is not None:
        checksum = hashlib.sha256(checksum.encode() + _spelling(own)).hexdigest()
    loaded = _prepared(model, own, found.name, checksum, attention)
    return replace(loaded, seconds=time.perf_counter() - begin, revision=found.revision)


def _find(name: str | Path, revision: str | None, trusted: bool) -> _Found:
    path = Path(name).expanduser()
    hub = isinstance(name, str) and not path.exists() and is_hub_id(name) and path.suffix != ".gguf"
    if hub:
        log.info("%s: looking in the hub's cache, then on the hub", name)
        folder = snapshot(str(name), revision, code=trusted)
        return _Found(folder, str(name), _checksum(folder, trusted), folder.name)
    if revision is not None:
        raise InvalidValueError(
            f"revision: {shortened(revision)} given with {str(name)!r}, only a hub id has revisions"
        )
    if isinstance(name, str) and name in REGISTERED:
        return _Found(folder := fetch(name), name, _checksum(folder, False))
    if isinstance(name, str) and name in (brought := bundled()):
        folder = brought[name]
        return _Found(folder, name, _checksum(folder, False))
    check_name(name)
    if path.suffix == ".gguf":
        return _Found(path, path.name, sha256_of(path))
    return _Found(path, path.name, _checksum(path, trusted))


def _checksum(folder: Path, trusted: bool) -> str:
    """Return the SHA-256 over the files that loading reads; version 0.2 left a manifest.json, which is none."""
    there = (file for file in folder.iterdir() if file.name != "manifest.json")
    read = {file for file in there if file.suffix in READ and file.is_file()}
    if trusted:
        read |= set(folder.glob("*.py"))
    if not has_safetensors(folder):
        read |= set(folder.glob("pytorch_model*.bin"))
    return checksum_of_files((file.name, sha256_of(file)) for file in read)


def _prepared(model: Any, tokenizer: Any, name: str, checksum: str, attention: str | None) -> LoadedModel:
    check_config(model.config)
    family = family_for(model.config)
    decoder_layers(model, family)
    model.eval().requires_grad_(False)
    chosen = attention_for(model.config, attention)
    if model.config._attn_implementation != chosen:
        model.set_attn_implementation(chosen)
        if model.config._attn_implementation != chosen:
            raise ModelError(
                f"model: {type(model).__name__} was made with {model.config._attn_implementation!r} attention "
                f"and cannot be switched to {chosen!r}; make it with attn_implementation={chosen!r}"
            )
    return LoadedModel(model, tokenizer, family, name, checksum)


def _spelling(tokenizer: Any) -> bytes:
    """All that decides how a tokenizer splits a text, as far as it says: its rules, or its vocabulary alone."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return json.dumps(sorted(getattr(tokenizer, "get_vocab", dict)().items())).encode()
    rules = json.loads(backend.to_str())
    # these are of the last call, not of the tokenizer
    return json.dumps({name: rules[name] for name in rules if name not in ("truncation", "padding")}).encode()


def check_vocabulary(model: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer of another model. (Tokens added to a vocabulary may well have no embedding.)"""
    rows = len(embedding_table(model))
    if getattr(tokenizer, "vocab_size", 0) > rows:
        raise ModelError(
            f"model: its tokenizer knows {tokenizer.vocab_size} tokens, its embeddings end at {rows - 1}: "
            "the two do not belong together"
        )
