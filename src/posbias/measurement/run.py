"""Measuring: prompts one by one, one forward pass and its backward passes each, memory that does not grow.

`measure` is the only entry: it checks what was asked before anything heavy, proves the capture on the first
prompt, then streams, and can be interrupted and resumed at any prompt, by as many processes as there are.
"""

import logging
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from posbias.core.errors import InvalidValueError, ModelError
from posbias.core.events import OnEvent
from posbias.core.logs import muted
from posbias.core.threads import leaving_a_core, torch_threads
from posbias.measurement.accumulate import State
from posbias.measurement.job import Request, TextSource, fingerprint_of
from posbias.measurement.memory import check_memory, estimate_cost
from posbias.measurement.models.families import MISREAD, decoder_config, decoder_layers
from posbias.measurement.models.in_memory import ready
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.prompt_meter import FUSED, KERNEL_TOKENS, PromptMeter
from posbias.measurement.quantities.influence import Economy, economy
from posbias.measurement.quantities.jacobian import HeadGains, gains_of
from posbias.measurement.result import dataset
from posbias.measurement.selfchecks import selfcheck
from posbias.measurement.sharing import Group, group
from posbias.measurement.streaming import Frugal, Skipped, Stream
from posbias.measurement.texts.prompts import Prompts

log = logging.getLogger(__name__)
_SELFCHECK_TOKENS = 64
ROPE = ("rope_parameters", "rope_theta", "rope_scaling")
"""Keys of a configuration that say how rotary positions turn."""
WINDOWS = ("sliding_window", "attention_chunk_size")
"""Keys of a configuration that say how many earlier tokens a layer sees."""
LONG = KERNEL_TOKENS
"""Above so many tokens layers are computed again."""


def job_fingerprint(model: Any = "smollm2-135m", *, tokenizer: Any = None, **asked: Any) -> str:
    """Return the SHA-256 of everything that decides a measurement's numbers: name its checkpoint after it.

    `model` and `tokenizer` as of `measure`; `asked` are those of its arguments that are fields of
    `posbias.measurement.job.Request`. Pass the `LoadedModel` that goes to `measure`; a name is loaded only for its
    checksum. Raises what `measure` raises for the same arguments.
    """
    request = Request(**asked)
    _ = request.source
    with _ready(model, tokenizer, request) as loaded:
        return fingerprint_of(request.of(loaded))


def measure(
    model: Any = "smollm2-135m",
    *,
    tokenizer: Any = None,
    text: TextSource = None,
    tokens: int = 256,
    prompts: int = 32,
    seed: int = 0,
    packed: bool = True,
    minimum_tokens: int | None = None,
    scramble: bool = False,
    dense_logits: bool = False,
    head_kernels: bool = False,
    influences: tuple[str, ...] = (),
    rollouts: tuple[str, ...] = (),
    target: int | None = None,
    bos: bool | None = None,
    checkpoint: str | Path | None = None,
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> xr.Dataset:
    """Measure attention, mixing, logits and influence of a language model on prompts cut from a text.

    `model`: what `load_model` takes, a `LoadedModel`, or a model of transformers that is in memory, with its
    `tokenizer` (or the folder of one); it is given back as it was, and called what its configuration was loaded
    from, else its class. What is measured of it and on what: see the fields of
    `posbias.measurement.job.Request`. `checkpoint`: a file that lets an interrupted measurement go on with
    bit-identical results; it stays, so that nothing is lost before the result is stored, then call
    `discard_checkpoint`. `threads` are those of torch (default: the cores but one). `on_event` hears of finished
    prompts before the first and after each. Started by `torchrun`, each process measures a share of the prompts,
    and all return the same.

    Returns the dataset of `docs/measurement.md`. Quantities: Herasimchyk et al. 2026 (arXiv 2602.16837),
    Eq. 1 and 5 (mixing), 4 (kernel), 6 (influence). Raises `InvalidValueError` for bad or too large numbers,
    `InputFileError` for a bad text or another job's checkpoint, `OutputFileError` when the checkpoint cannot
    be written, `ModelError` for a model that cannot be found, loaded, captured, sees later tokens without being an
    encoder (of which docs/measurement.md says what is measured), or is not finite in any prompt, `WorkerError`
    when another process is gone.
    """
    request = Request(
        text=text,
        tokens=tokens,
        prompts=prompts,
        seed=seed,
        packed=packed,
        minimum_tokens=minimum_tokens,
        scramble=scramble,
        dense_logits=dense_logits,
        head_kernels=head_kernels,
        influences=influences,
        rollouts=rollouts,
        target=target,
        bos=bos,
    )
    _ = request.source  # what is wrong with the text is said before a model is loaded
    with group() as processes, muted(not processes.first):
        heard = on_event if on_event is not None and processes.first else lambda event: None
        path = None if checkpoint is None else Path(checkpoint)
        running = torch_threads(leaving_a_core() if threads is None else threads)
        with running, _ready(model, tokenizer, request) as loaded:
            return _measured(loaded, request, path, processes, heard)


@contextmanager
def _ready(model: Any, tokenizer: Any, request: Request) -> Iterator[LoadedModel]:
    """The model for these prompts; the attention of a `LoadedModel` was chosen by who made it."""
    with ready(model, tokenizer) as loaded:
        yield loaded if isinstance(model, LoadedModel) else for_length(loaded, request.tokens)


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


def prepared(loaded: LoadedModel, request: Request) -> Prompts:
    """Check what can be known before any prompt is run, and cut the prompts.

    Raises `ModelError` for a model without attention, `InvalidValueError` for more tokens than the context or the
    memory hold, `InputFileError` for too short a text.
    """
    config = decoder_config(loaded.model.config)
    if not getattr(config, "num_attention_heads", None):
        raise ModelError(
            f"model: {loaded.name} ({loaded.family.model_type}) has no attention heads, one that attends needed"
        )
    decoder_layers(loaded.model, loaded.family)
    context = getattr(config, "max_position_embeddings", None)
    if context is not None and 0 < context < request.tokens:
        raise InvalidValueError(
            f"tokens: {request.tokens} given, at most {context} fit the context of {loaded.name}"
        )
    check_memory(loaded, request)
    drawn = request.draw(loaded)
    loaded.check_ids(int(drawn.ids.max()))
    return drawn


def _measured(
    loaded: LoadedModel,
    request: Request,
    checkpoint: Path | None,
    processes: Group,
    on_event: OnEvent,
) -> xr.Dataset:
    drawn = prepared(loaded, request)
    job = request.of(loaded)
    expected = None
    if log.isEnabledFor(logging.INFO):
        cost = estimate_cost(loaded, request)
        expected = cost.seconds / request.prompts
        for line in cost.lines():
            log.info(line)
    short = torch.from_numpy(drawn.ids[0][:_SELFCHECK_TOKENS])
    check = selfcheck(loaded, short)
    if not (check["causal"] or loaded.encoder):
        raise ModelError(
            f"model: {loaded.name} attends to later tokens; a causal model, or an encoder with its head for "
            "masked words, needed"
        )
    if remark := MISREAD.get(loaded.family.model_type):
        log.warning("%s: %s", loaded.family.model_type, remark)
    gains = _gains(loaded, request, short)
    layers = decoder_layers(loaded.model, loaded.family)

    def spare(again: bool = True) -> Economy:
        found = economy(loaded.model, layers, short, again)
        for note in found.notes:
            log.warning("more memory than announced: %s", note)
        return found

    saving = spare(request.tokens > LONG) if request.tokens > FUSED else None
    meter = PromptMeter(loaded, request, gains, saving)
    source = request.source.name
    log.info(
        "measuring %s on %d prompts of %d tokens from %s",
        loaded.name,
        request.prompts,
        request.tokens,
        source,
    )
    measured = Frugal(meter, drawn, spare).measure
    stream = Stream(measured, request.prompts, processes, on_event, expected)
    state, skipped = stream.run(checkpoint, fingerprint_of(job))
    attributes = _attributes(loaded, request, job, drawn, state, skipped, check, processes)
    return dataset(state, None if gains is None else gains.strength, attributes)


def _gains(loaded: LoadedModel, request: Request, ids: torch.Tensor) -> HeadGains | None:
    """Head gains for energy kernels and rollouts; None, with a word, where the model does not show them."""
    try:
        return gains_of(loaded.model, loaded.family, ids)
    except ModelError as error:
        if "energy" in request.rollouts:
            raise
        log.warning("no energy kernels: %s", error)
        return None


def _attributes(
    loaded: LoadedModel,
    request: Request,
    job: dict[str, Any],
    drawn: Prompts,
    state: State,
    skipped: Skipped,
    check: dict[str, Any],
    processes: Group,
) -> dict[str, Any]:
    config = decoder_config(loaded.model.config)
    attributes = {
        **request.described(loaded),
        "verified": int(loaded.verified),
        "fingerprint": fingerprint_of(job),
        "asked": job["asked"],
        "skipped": {str(index): why for index, why in skipped.items()},
        "left_out": drawn.left_out,
        "depth": config.num_hidden_layers,
        "heads": state.means["sink_share"].shape[1],
        "hidden_size": config.hidden_size,
        "head_size": _head_size(config),
        "starts": np.asarray(drawn.starts).tolist(),
        "versions": job["versions"] | {"python": platform.python_version()},
        "seconds": {"load": loaded.seconds, "measure": state.seconds},
        "processes": processes.size,
        "selfcheck": check,
    }
    if loaded.encoder:
        attributes["encoder"] = 1
    if drawn.documents is not None:
        attributes["documents"] = drawn.documents.tolist()
    if rope := {key: given for key in ROPE if (given := getattr(config, key, None)) is not None}:
        attributes["rope"] = rope
    attributes["windows"] = {
        key: given for key in WINDOWS if (given := getattr(config, key, None)) is not None
    }
    if loaded.revision is not None:
        attributes["revision"] = loaded.revision
    return attributes


def _head_size(config: Any) -> int:
    """Channels of a head; of the first layer where layers differ."""
    layers = getattr(config, "per_layer_config", None)
    first = config if layers is None else layers[0]
    return getattr(first, "head_dim", None) or config.hidden_size // config.num_attention_heads
