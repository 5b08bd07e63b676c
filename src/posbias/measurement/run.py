"""Measuring: prompts one by one, one forward pass and its backward passes each, memory that does not grow.

`measure` is the entry: it checks what was asked before anything heavy, proves the capture on the first prompt,
then streams, and can be interrupted and resumed at any prompt, by as many processes as there are. `per_prompt`
runs a function of one's own in its place.
"""

import logging
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Int

from posbias.core.errors import ModelError, wrong
from posbias.core.files import need_writable
from posbias.core.machine import leaving_a_core, torch_threads
from posbias.core.progress import OnEvent, muted
from posbias.measurement.interventions import Intervention, KnockOut, intervened
from posbias.measurement.job import MeasurementJob, fingerprint_of
from posbias.measurement.memory import check_memory, estimate_cost, recomputes
from posbias.measurement.models.families import MISREAD, decoder_config, decoder_layers
from posbias.measurement.models.loading import LoadedModel, Treatment, ready
from posbias.measurement.prompt_meter import PromptMeter
from posbias.measurement.result import QUANTITIES, Arrays, Quantities, attributes, dataset, variables
from posbias.measurement.selfchecks import selfcheck
from posbias.measurement.streaming import Group, find_or_compute, group, over_prompts
from posbias.measurement.texts.prompts import Prompts
from posbias.profiles.heads import Head
from posbias.profiles.measurements import load_measurement, save_measurement

log = logging.getLogger(__name__)
_SELFCHECK_TOKENS = 64
ROPE = ("rope_parameters", "rope_theta", "rope_scaling")
"""Keys of a configuration that say how rotary positions turn."""
WINDOWS = ("sliding_window", "attention_chunk_size")
"""Keys of a configuration that say how many earlier tokens a layer sees."""


def job_fingerprint(
    model: Any = "smollm2-135m",
    job: MeasurementJob | None = None,
    *,
    tokenizer: Any = None,
    treatment: Treatment | None = None,
    **asked: Any,
) -> str:
    """Return the SHA-256 of everything that decides a measurement's numbers: name its checkpoint after it.

    The arguments are those of `measure`. Pass the `LoadedModel` that goes to `measure`; a name is loaded only for
    its checksum. Raises what `measure` raises for the same arguments.
    """
    job = job if job and not asked else replace(job or MeasurementJob(), **asked)
    _ = job.source
    with ready(model, tokenizer, treatment, job.tokens) as loaded:
        return fingerprint_of(job.of(loaded))


def measure(
    model: Any = "smollm2-135m",
    job: MeasurementJob | None = None,
    *,
    tokenizer: Any = None,
    treatment: Treatment | None = None,
    knock_out: Sequence[Head] | Intervention = (),
    checkpoint: str | Path | None = None,
    threads: int | None = None,
    on_event: OnEvent | None = None,
    **asked: Any,
) -> xr.Dataset:
    """Measure attention, mixing, logits and influence of a language model on prompts cut from a text.

    What is measured of which model:

    - `model`: what `load_model` takes, a `LoadedModel`, or a model of transformers that is in memory; it is left
      as it was, and called what its configuration was loaded from, else its class
    - `tokenizer`: that of a model in memory, or the folder of one
    - `treatment`: what changes the model beyond its weights, `{"name": "no heads", "heads": [[3, 1]]}`; part of
      the fingerprint and of the attributes. A model with hooks, or with a module's `forward` replaced, is refused
      without one
    - `knock_out`: (layer, head) of heads to zero, or a `KnockOut` or `RegionRemoved`, which are treatments too
    - `job`: a `MeasurementJob`, all of the following in one value; keywords replace what it says

    On which prompts:

    - `text`: as of `read_text`; None: the bundled State of the Union addresses
    - `tokens`: length of every prompt
    - `prompts`, `seed`: their number, drawn without replacement, by this seed
    - `packed`: windows of the running text; False: the beginning of each document
    - `minimum_tokens`: shorter documents are left out; None: with `packed` none, else those shorter than a prompt
    - `scramble`: shuffle the tokens of every prompt
    - `bos`: whether prompts begin with the tokenizer's BOS; None: as it writes a text

    Which quantities, beyond those that are always measured:

    - `influences`: further gradients: logit, log_probability, target, input, outputs, layers (by what each
      gives), attention, feed_forward (by what that branch of each layer adds), softmax, others
    - `target`: the token of the influence "target": its number, or a text that is one token
    - `rollouts`: rollouts of each prompt's own attention: kernel, value, energy
    - `dense_logits`, `head_kernels`: matrices query × key of every layer and head: mean logits; attention

    How it runs:

    - `checkpoint`: a file from which an interrupted measurement resumes with bit-identical results (of long
      prompts to rounding, if memory was ample before and is not now, or the other way round); it stays, so that
      nothing is lost before the result is stored, then call `discard_checkpoint` (`find_or_measure` does it all)
    - `threads`: those of torch; None: the cores but one; `on_event` hears of finished prompts

    Started by `torchrun`, each process measures a share of the prompts, and all return the same.

    Returns the dataset of `docs/measure.md`, with its sources. Raises `InvalidValueError` for bad or too large
    numbers, `InputFileError` for a bad text or another job's checkpoint, `OutputFileError` when the checkpoint
    cannot be written, `ModelError` for a model that cannot be found, loaded, captured, has hooks without a
    treatment, sees later tokens without being an encoder, or is finite in no prompt, `WorkerError` when another
    process is gone.
    """
    job = job if job and not asked else replace(job or MeasurementJob(), **asked)
    with _running(model, job, tokenizer, treatment, threads, {}, knock_out) as (loaded, processes):
        return _measured(loaded, job, None if checkpoint is None else Path(checkpoint), processes, on_event)


def find_or_measure(
    model: Any,
    place: str | Path,
    job: MeasurementJob,
    *,
    tokenizer: Any = None,
    treatment: Treatment | None = None,
    loading: Mapping[str, Any] = {},
    threads: int | None = None,
    rerun: bool = False,
    on_event: OnEvent | None = None,
) -> tuple[xr.Dataset, Path] | None:
    """Read a measurement from its file where it is finished; else measure, and write the file.

    `place`: the .nc file, or the folder of its measurement.nc, as of `find_or_compute`; an interrupted measurement
    is resumed. `loading`: arguments of `load_model` for a model by name. Other arguments as of `measure`.

    Returns the measurement and its file; of several processes, the others get None. Raises what `measure`,
    `load_measurement` and `save_measurement` raise.
    """
    need_writable(place)
    with _running(model, job, tokenizer, treatment, threads, loading) as (loaded, processes):

        def compute(checkpoint: Path) -> xr.Dataset:
            return _measured(loaded, job, checkpoint, processes, on_event)

        kept = ("measurement", fingerprint_of(job.of(loaded)), load_measurement, save_measurement)
        return find_or_compute(Path(place), *kept, compute, rerun=rerun, processes=processes)


def per_prompt(
    kind: str,
    quantities: Quantities,
    measure: Callable[[LoadedModel, Int[np.ndarray, "position"], str], Arrays],
    job: MeasurementJob,
    *,
    model: Any,
    tokenizer: Any = None,
    treatment: Treatment | None = None,
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> xr.Dataset:
    """Run `measure(loaded, ids, prompt)` on each prompt of `job` and return what it gives, by `quantities`.

    `measure` takes the tokens of one prompt and what an error is to call it, and returns arrays by name: the
    dimensions of their `quantities` begin with the prompt. `kind` says in the dataset what it holds; other
    arguments as of `measure`. Raises what loading, the self-check and `measure` raise, `ModelError` for an
    encoder.
    """
    running = torch_threads(leaving_a_core() if threads is None else threads)
    with running, ready(model, tokenizer, treatment) as loaded:
        loaded.need_causal("what is taken by query or head")
        decided = job.of(loaded) | {"kind": kind}
        ids = prepared(loaded, job).ids
        selfcheck(loaded, torch.from_numpy(ids[0][:_SELFCHECK_TOKENS]))

        def row(index: int) -> Arrays:
            return measure(loaded, ids[index], f"prompt {index}")

        state, _ = over_prompts(row, job.prompts, quantities, on_event=on_event)
        about = {"fingerprint": fingerprint_of(decided), "versions": decided["versions"]}
        about = job.described(loaded) | about
        found = {name: state.column(name) for name in quantities if name in next(iter(state.rows.values()))}
        return xr.Dataset(variables(found, quantities), {"prompt": [*state.rows]}, attributes(kind, about))


@contextmanager
def _running(
    model: Any,
    job: MeasurementJob,
    tokenizer: Any,
    treatment: Treatment | None,
    threads: int | None,
    loading: Mapping[str, Any] = {},
    knock_out: Sequence[Head] | Intervention = (),
) -> Iterator[tuple[LoadedModel, Group]]:
    """The model, ready for a job, and the processes that share it."""
    _ = job.source  # what is wrong with the text is said before a model is loaded
    with torch_threads(leaving_a_core() if threads is None else threads), group() as processes:
        if processes.local_rank and loading.get("device") == "cuda":
            loading = {**loading, "device": f"cuda:{processes.local_rank}"}
        with muted(not processes.first), ready(model, tokenizer, treatment, job.tokens, loading) as loaded:
            how = KnockOut(tuple(knock_out)) if isinstance(knock_out, Sequence) else knock_out
            with intervened(loaded, how) if knock_out else nullcontext(loaded) as treated:
                yield treated, processes


def prepared(loaded: LoadedModel, job: MeasurementJob) -> Prompts:
    """Check what can be known before any prompt is run, and cut the prompts.

    Raises `ModelError` for a model without attention, `InvalidValueError` for more tokens than the context or the
    memory hold, `InputFileError` for too short a text.
    """
    config = decoder_config(loaded.model.config)
    if not getattr(config, "num_attention_heads", None):
        got = f"none in {loaded.name} ({loaded.family.model_type})"
        raise wrong("model", "attention heads", got=got, kind=ModelError)
    decoder_layers(loaded.model)
    context = getattr(config, "max_position_embeddings", None)
    if context is not None and 0 < context < job.tokens:
        raise wrong("tokens", f"at most {context}, the context of {loaded.name}", job.tokens)
    check_memory(loaded, job)
    drawn = job.draw(loaded)
    loaded.check_ids(int(drawn.ids.max()))
    return drawn


def _measured(
    loaded: LoadedModel,
    job: MeasurementJob,
    checkpoint: Path | None,
    processes: Group,
    on_event: OnEvent | None,
) -> xr.Dataset:
    decided = job.of(loaded)
    drawn = prepared(loaded, job)
    if log.isEnabledFor(logging.INFO):
        for line in estimate_cost(loaded, job).lines():
            log.info(line)
    short = torch.from_numpy(drawn.ids[0][:_SELFCHECK_TOKENS])
    check = selfcheck(loaded, short)
    if not (check["causal"] or loaded.encoder):
        what = "a causal one, or an encoder with its head for masked words"
        raise wrong("model", what, got=f"{loaded.name}, which attends to later tokens", kind=ModelError)
    if remark := MISREAD.get(loaded.family.model_type):
        log.warning("%s: %s", loaded.family.model_type, remark)
    meter = PromptMeter(loaded, job, short, recomputes(loaded, job))
    log.info(
        "measuring %s on %d prompts of %d tokens from %s",
        *(loaded.name, job.prompts, job.tokens, job.source.name),
    )
    state, skipped = over_prompts(
        lambda index: meter.measure(drawn.ids[index], f"prompt {index} ({drawn.place(index)})"),
        job.prompts,
        QUANTITIES,
        checkpoint=checkpoint,
        fingerprint=fingerprint_of(decided),
        processes=processes,
        on_event=on_event if processes.first else None,
    )
    about = _of_model(loaded) | {
        **job.described(loaded),
        "fingerprint": fingerprint_of(decided),
        "asked": decided["asked"],
        "skipped": {str(index): why for index, why in skipped.items()},
        "left_out": drawn.left_out,
        "heads": state.sums["sink_share"].shape[1],
        "starts": drawn.starts.tolist(),
        "versions": decided["versions"] | {"python": platform.python_version()},
        "seconds": {"load": loaded.seconds, "measure": state.seconds},
        "processes": processes.size,
        "selfcheck": check,
        **({"layer_kinds": check.pop("kinds")} if "kinds" in check else {}),
    }
    if drawn.documents is not None:
        about["documents"] = drawn.documents.tolist()
    return dataset(state, None if meter.gains is None else meter.gains.strength, about)


def _of_model(loaded: LoadedModel) -> dict[str, Any]:
    """What a measurement says of its model in addition to `MeasurementJob.described`."""
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
    return about | ({"rope": rope} if rope else {})
