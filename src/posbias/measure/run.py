"""Measuring: prompts one by one, one forward and one backward pass each, memory that does not grow.

`measure` is the only entry: it checks what was asked before anything heavy, proves the capture on the first
prompt, then streams, and can be interrupted and resumed at any prompt.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import xarray as xr

from posbias.errors import InvalidValueError, ModelError, PosbiasError
from posbias.measure.accumulate import State
from posbias.measure.checkpoint import Checkpoint
from posbias.measure.fetching import silent
from posbias.measure.loading import LoadedModel, load_model
from posbias.measure.memory import check_memory
from posbias.measure.prompt import PromptMeter
from posbias.measure.proof import selfcheck
from posbias.measure.result import dataset
from posbias.measure.text import Prompts, Text, check_counts, prompts_from, read_text

_SELFCHECK_TOKENS = 64


@dataclass(frozen=True)
class _Job:
    """All that decides the numbers of a measurement."""

    model: str
    text: str
    tokens: int
    prompts: int
    seed: int
    dense_logits: bool
    versions: tuple[tuple[str, str], ...]

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def job_fingerprint(
    model: LoadedModel | str | Path = "smollm2-135m",
    *,
    text: str | Path | None = None,
    tokens: int = 256,
    prompts: int = 32,
    seed: int = 0,
    dense_logits: bool = False,
) -> str:
    """Return the SHA-256 of everything that decides a measurement's numbers: name its checkpoint after it.

    Pass the `LoadedModel` that goes to `measure`; a name is loaded only for its checksum. Raises what
    `measure` raises for the same arguments.
    """
    check_counts(tokens, prompts, seed)
    source = read_text(text)
    loaded = model if isinstance(model, LoadedModel) else load_model(model)
    return _job(loaded, source, tokens, prompts, seed, dense_logits).fingerprint


def measure(
    model: LoadedModel | str | Path = "smollm2-135m",
    *,
    text: str | Path | None = None,
    tokens: int = 256,
    prompts: int = 32,
    seed: int = 0,
    dense_logits: bool = False,
    checkpoint: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> xr.Dataset:
    """Measure attention, mixing, logits and influence of a language model on prompts cut from a text.

    `model`: a registered name, a folder, a `.gguf` file, or a `LoadedModel`. `text`: a UTF-8 file, None for
    the bundled one. `checkpoint`: a file that lets an interrupted measurement go on with bit-identical
    results; it stays, so that nothing is lost before the result is stored, then call `discard_checkpoint`.
    `progress` hears (finished, total) before the first prompt and after each; `say` hears stages.

    Returns the dataset of `docs/measurement.md`. Quantities: Herasimchyk et al. 2026 (arXiv 2602.16837),
    Eq. 1 and 5 (mixing), 4 (kernel), 6 (influence). Raises `InvalidValueError` for bad or too large numbers,
    `InputFileError` for a bad text or another job's checkpoint, `OutputFileError` when the checkpoint cannot
    be written, `ModelError` for a model that cannot be found, loaded, recognised, captured, or is not finite.
    """
    say = say or silent
    check_counts(tokens, prompts, seed)
    source = read_text(text)
    loaded = model if isinstance(model, LoadedModel) else load_model(model, say)
    config = loaded.model.config
    if tokens > config.max_position_embeddings:
        raise InvalidValueError(
            f"tokens: {tokens} given, at most {config.max_position_embeddings} fit the context of {loaded.name}"
        )
    check_memory(config, tokens, dense_logits)
    drawn = _prompts(loaded, source, tokens, prompts, seed)
    job = _job(loaded, source, tokens, prompts, seed, dense_logits)
    keeper = Checkpoint(None if checkpoint is None else Path(checkpoint), job.fingerprint, say)
    state = keeper.load()
    with _leaving_a_core():
        check = selfcheck(loaded, torch.from_numpy(drawn.ids[0][:_SELFCHECK_TOKENS]))
        meter = PromptMeter(loaded, tokens, dense_logits)
        say(f"measuring {loaded.name} on {prompts} prompts of {tokens} tokens from {source.name}")
        state = _stream(meter, drawn, state, keeper, progress or _unwatched)
    sizes = {"tokens": tokens, "prompts": prompts, "depth": config.num_hidden_layers}
    sizes |= {"heads": config.num_attention_heads}
    return dataset(state, meter.gains, sizes, _attributes(loaded, source, drawn, job, state, check))


@contextmanager
def _leaving_a_core() -> Iterator[None]:
    """torch on all cores but one: with a thread on every core, anything else that runs stalls them all.

    (On two cores the second thread gains a quarter when nothing else runs, and costs a factor of ten when
    something does.) Fewer threads than that, as `OMP_NUM_THREADS` may ask, are left as they are.
    """
    before = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(min(before, max(1, cores - 1)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _stream(
    meter: PromptMeter, drawn: Prompts, state: State, keeper: Checkpoint, progress: Callable[[int, int], None]
) -> State:
    """Measure the prompts that `state` lacks; whatever stops it, finished prompts reach the checkpoint."""
    total = len(drawn.starts)
    try:
        progress(state.finished, total)
        while state.finished < total:
            begin = time.perf_counter()
            index = state.finished
            prompt = f"prompt {index} (tokens from {drawn.starts[index]})"
            sample, row = meter.measure(drawn.ids[index], prompt)
            # one assignment: an interruption sees the state before this prompt or after it
            state = state.extended(sample, row, time.perf_counter() - begin)
            progress(state.finished, total)
            keeper.keep_up(state)
        keeper.write(state)
    except BaseException as error:
        try:
            keeper.write(state)
        except PosbiasError as failure:
            if failure is not error:
                error.add_note(str(failure))
        raise
    return state


def _prompts(loaded: LoadedModel, source: Text, tokens: int, prompts: int, seed: int) -> Prompts:
    drawn = prompts_from(loaded.tokenizer, source, tokens=tokens, prompts=prompts, seed=seed)
    vocabulary = loaded.model.get_input_embeddings().num_embeddings
    if drawn.ids.max() >= vocabulary:
        raise ModelError(
            f"model: its tokenizer gives token {drawn.ids.max()}, its embeddings end at {vocabulary - 1}: "
            "the two do not belong together"
        )
    return drawn


def _job(loaded: LoadedModel, source: Text, tokens: int, prompts: int, seed: int, dense_logits: bool) -> _Job:
    versions = tuple(
        (name, importlib.metadata.version(name)) for name in ("posbias", "torch", "transformers", "numpy")
    )
    return _Job(loaded.checksum, source.sha256, tokens, prompts, seed, bool(dense_logits), versions)


def _attributes(
    loaded: LoadedModel, source: Text, drawn: Prompts, job: _Job, state: State, check: dict[str, Any]
) -> dict[str, Any]:
    config = loaded.model.config
    return {
        "model": loaded.name,
        "family": loaded.family.model_type,
        "checksum": loaded.checksum,
        "fingerprint": job.fingerprint,
        "text": source.name,
        "text_sha256": source.sha256,
        "tokens": job.tokens,
        "prompts": job.prompts,
        "seed": job.seed,
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "attention": "eager",
        "depth": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "hidden_size": config.hidden_size,
        "starts": drawn.starts.tolist(),
        "versions": dict(job.versions) | {"python": platform.python_version()},
        "seconds": {"load": loaded.seconds, "measure": state.seconds},
        "selfcheck": check,
    }


def _unwatched(finished: int, total: int) -> None:
    pass
