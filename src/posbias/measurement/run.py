"""Measuring: prompts one by one, one forward pass and its backward passes each, memory that does not grow.

`measure` is the entry: it checks what was asked before anything heavy, proves the capture on the first prompt,
then streams, and can be interrupted and resumed at any prompt, by as many processes as there are. `per_prompt`
runs a function of one's own in its place.
"""

import logging
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Int

from posbias.core.errors import InvalidValueError, ModelError
from posbias.core.machine import leaving_a_core, torch_threads
from posbias.core.progress import OnEvent, muted
from posbias.measurement.job import Request, TextSource, fingerprint_of
from posbias.measurement.memory import check_memory, estimate_cost, recomputes
from posbias.measurement.models.families import MISREAD, decoder_config, decoder_layers
from posbias.measurement.models.loading import LoadedModel, ready
from posbias.measurement.prompt_meter import FUSED, PromptMeter
from posbias.measurement.result import QUANTITIES, Arrays, Quantities, attributes, dataset, variables
from posbias.measurement.selfchecks import selfcheck
from posbias.measurement.streaming import Group, group, over_prompts
from posbias.measurement.texts.prompts import Prompts

log = logging.getLogger(__name__)
_SELFCHECK_TOKENS = 64
ROPE = ("rope_parameters", "rope_theta", "rope_scaling")
"""Keys of a configuration that say how rotary positions turn."""
WINDOWS = ("sliding_window", "attention_chunk_size")
"""Keys of a configuration that say how many earlier tokens a layer sees."""


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
    `tokenizer` (or the folder of one); it is left as it was, and called what its configuration was loaded
    from, else its class. What is measured of it and on what: see the fields of
    `posbias.measurement.job.Request`. `checkpoint`: a file from which an interrupted measurement resumes with
    bit-identical results (of long prompts to rounding, if memory was ample before and is not now, or the other
    way round); it stays, so that nothing is lost before the result is stored, then call `discard_checkpoint`.
    `threads` are those of torch (default: the cores but one). `on_event` hears of finished prompts before the
    first and after each. Started by `torchrun`, each process measures a share of the prompts, and all return the
    same.

    Returns the dataset of `docs/measure.md`. Quantities: Herasimchyk et al. 2026 (arXiv 2602.16837),
    Eq. 1 and 5 (mixing), 4 (kernel), 6 (influence). Raises `InvalidValueError` for bad or too large numbers,
    `InputFileError` for a bad text or another job's checkpoint, `OutputFileError` when the checkpoint cannot
    be written, `ModelError` for a model that cannot be found, loaded, captured, sees later tokens without being an
    encoder (of which docs/measure.md says what is measured), or is not finite in any prompt, `WorkerError`
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
    running = torch_threads(leaving_a_core() if threads is None else threads)
    keeping = None if checkpoint is None else Path(checkpoint)
    preparing = _ready(model, tokenizer, request)
    with running, group() as processes, muted(not processes.first), preparing as loaded:
        return _measured(loaded, request, keeping, processes, on_event if processes.first else None)


def per_prompt(
    kind: str,
    quantities: Quantities,
    measure: Callable[[LoadedModel, Int[np.ndarray, "position"], str], Arrays],
    request: Request,
    *,
    model: Any,
    tokenizer: Any = None,
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> xr.Dataset:
    """Run `measure(loaded, ids, prompt)` on each prompt of `request` and return what it gives, by `quantities`.

    `measure` takes the tokens of one prompt and what an error is to call it, and returns arrays by name: the
    dimensions of their `quantities` begin with the prompt. `kind` says in the dataset what it holds; other
    arguments as of `measure`. Raises what loading, the self-check and `measure` raise, `ModelError` for an
    encoder.
    """
    with torch_threads(leaving_a_core() if threads is None else threads), ready(model, tokenizer) as loaded:
        loaded.need_causal("what is taken by query or head")
        ids = prepared(loaded, request).ids
        selfcheck(loaded, torch.from_numpy(ids[0][:_SELFCHECK_TOKENS]))

        def row(index: int) -> Arrays:
            return measure(loaded, ids[index], f"prompt {index}")

        state, _ = over_prompts(row, request.prompts, quantities, on_event=on_event)
        job = request.of(loaded) | {"kind": kind}
        about = request.described(loaded) | {"fingerprint": fingerprint_of(job), "versions": job["versions"]}
        found = {name: state.column(name) for name in quantities if name in next(iter(state.rows.values()))}
        return xr.Dataset(variables(found, quantities), {"prompt": [*state.rows]}, attributes(kind, about))


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
            f"model: expected attention heads, got none in {loaded.name} ({loaded.family.model_type})"
        )
    decoder_layers(loaded.model, loaded.family)
    context = getattr(config, "max_position_embeddings", None)
    if context is not None and 0 < context < request.tokens:
        raise InvalidValueError(
            f"tokens: expected at most {context}, the context of {loaded.name}, got {request.tokens}"
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
    on_event: OnEvent | None,
) -> xr.Dataset:
    drawn = prepared(loaded, request)
    if log.isEnabledFor(logging.INFO):
        for line in estimate_cost(loaded, request).lines():
            log.info(line)
    short = torch.from_numpy(drawn.ids[0][:_SELFCHECK_TOKENS])
    check = selfcheck(loaded, short)
    if not (check["causal"] or loaded.encoder):
        raise ModelError(
            "model: expected a causal one, or an encoder with its head for masked words, got "
            f"{loaded.name}, which attends to later tokens"
        )
    if remark := MISREAD.get(loaded.family.model_type):
        log.warning("%s: %s", loaded.family.model_type, remark)
    meter = PromptMeter(loaded, request, short, recomputes(loaded, request))
    log.info(
        "measuring %s on %d prompts of %d tokens from %s",
        *(loaded.name, request.prompts, request.tokens, request.source.name),
    )
    job = request.of(loaded)
    state, skipped = over_prompts(
        lambda index: meter.measure(drawn.ids[index], f"prompt {index} ({drawn.place(index)})"),
        request.prompts,
        QUANTITIES,
        checkpoint=checkpoint,
        fingerprint=fingerprint_of(job),
        processes=processes,
        on_event=on_event,
    )
    about = _of_model(loaded) | {
        **request.described(loaded),
        "fingerprint": fingerprint_of(job),
        "asked": job["asked"],
        "skipped": {str(index): why for index, why in skipped.items()},
        "left_out": drawn.left_out,
        "heads": state.sums["sink_share"].shape[1],
        "starts": drawn.starts.tolist(),
        "versions": job["versions"] | {"python": platform.python_version()},
        "seconds": {"load": loaded.seconds, "measure": state.seconds},
        "processes": processes.size,
        "selfcheck": check,
    }
    if drawn.documents is not None:
        about["documents"] = drawn.documents.tolist()
    return dataset(state, None if meter.gains is None else meter.gains.strength, about)


def _of_model(loaded: LoadedModel) -> dict[str, Any]:
    """What a measurement says of its model in addition to `Request.described`."""
    config = decoder_config(loaded.model.config)
    rope, windows = (
        {key: value for key in keys if (value := getattr(config, key, None)) is not None}
        for keys in (ROPE, WINDOWS)
    )
    # of the first layer where layers differ
    first = (getattr(config, "per_layer_config", None) or [config])[0]
    about = {
        "verified": int(loaded.verified),
        "depth": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "head_size": getattr(first, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        "windows": windows,
    }
    about |= {"encoder": 1} if loaded.encoder else {}
    about |= {"rope": rope} if rope else {}
    return about | ({} if loaded.revision is None else {"revision": loaded.revision})
