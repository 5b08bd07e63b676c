"""Retrieval by position: what a model makes of one fact, standing at one place after another.

`retrieve` asks a model that is opened for the fact of each trial (`retrieval.trials`) at every position, and keeps
how likely the right thing and each wrong one are to follow. Trials are the samples: what is compared between
positions is compared within a trial, where nothing but the place has changed.
"""

import functools
import logging
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from posbias.asking.local import LocalModel
from posbias.core.errors import ModelError, wrong
from posbias.core.formats import versions_here
from posbias.core.machine import leaving_a_core, torch_threads
from posbias.core.progress import OnEvent
from posbias.core.spec import encode
from posbias.measurement.job import fingerprint_of, job_of
from posbias.measurement.models.loading import LoadedModel, Treatment, ready
from posbias.measurement.result import attributes, variables
from posbias.measurement.streaming import find_or_compute, over_prompts
from posbias.measurement.texts.corpora import Text, read_text
from posbias.profiles.measurements import RETRIEVED, load_retrieval, save_retrieval
from posbias.retrieval.jobs import RetrievalJob, retrieval_job
from posbias.retrieval.session import Session, margins_of
from posbias.retrieval.trials import Trials

log = logging.getLogger(__name__)


def retrieval_fingerprint(
    model: LoadedModel, job: RetrievalJob, text: Text | str | Path | None = None
) -> str:
    """SHA-256 of all that decides the numbers of a job: name its checkpoint after it. Raises as `retrieve`.

    Of a treated model: `dataclasses.replace(model, treatment={"name": …})`.
    """
    lies_in = {"text": read_text(text).sha256} if job.task == "needle" else {}
    return fingerprint_of(job_of(model, job=encode(job), **lies_in))


def retrieve(
    model: Any = "smollm2-135m",
    job: RetrievalJob | None = None,
    *,
    tokenizer: Any = None,
    treatment: Treatment | None = None,
    text: Text | str | Path | None = None,
    checkpoint: str | Path | None = None,
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> xr.Dataset:
    """Ask a causal language model for a fact at every position, in `job.prompts` trials.

    `model`, `tokenizer`, `treatment`: as of `posbias.measure`, a model in memory among them. `text`: what a needle
    lies in, None for the bundled addresses. `checkpoint`: a file that lets an interrupted run go on with the same
    bits; it stays until `discard_checkpoint`. `threads` are those of torch (default: the cores but one).
    `on_event` hears of finished prompts.

    Returns the dataset of `docs/retrieve.md` (dims prompt, position, candidate; log-probabilities in nats).
    Raises `InvalidValueError` for a job that the tokenizer or the model's context cannot hold, `InputFileError`
    for a bad text or another job's checkpoint, `OutputFileError` when the checkpoint cannot be written,
    `ModelError` for a model that cannot be loaded, has hooks without a treatment, or whose outputs are not finite.
    """
    job = job or retrieval_job()
    source = None if text is None and job.task != "needle" else read_text(text)
    session = Session((job,), source, margins=True)
    with ready(model, tokenizer, treatment) as loaded:
        fingerprint = retrieval_fingerprint(loaded, job, source)
        if job.length is not None and loaded.context is not None and job.length > loaded.context:
            most = f"at most the {loaded.context} tokens of context of {loaded.name}"
            raise wrong("length", most, job.length)
        trials = session.trials(job, loaded.tokenizer)
        asked, first = LocalModel(loaded, special=trials.special), trials.trial(0)
        tried = (first.asked[0], first.control[0], first.asked[-1])
        asked.try_reuse([asked.split(prompt, first.answers) for prompt in tried])
        log.info("asking %s in %d prompts at %d positions", loaded.name, job.prompts, job.positions)
        with torch_threads(leaving_a_core() if threads is None else threads):
            state, _ = over_prompts(
                *(functools.partial(_asked, asked, trials), job.prompts, RETRIEVED),
                checkpoint=None if checkpoint is None else Path(checkpoint),
                fingerprint=fingerprint,
                on_event=on_event,
            )
        columns = {name: state.column(name) for name in RETRIEVED}
        about = {
            **loaded.described,
            "job": encode(job),
            **({} if source is None else {"text": source.name, "text_sha256": source.sha256}),
            "fingerprint": fingerprint,
            "reuse": str(asked.reader.reuse),
            "versions": versions_here(("torch", "transformers")),
            "seconds": {"load": loaded.seconds, "ask": state.seconds},
        }
        sizes = zip(RETRIEVED["log_probability"].dimensions, columns["log_probability"].shape, strict=True)
        coordinates = {name: np.arange(size) for name, size in sizes}
        return xr.Dataset(variables(columns, RETRIEVED), coordinates, attributes("retrieval", about))


def find_or_retrieve(
    model: LoadedModel,
    place: str | Path,
    session: Session,
    *,
    threads: int | None = None,
    rerun: bool = False,
    on_event: OnEvent | None = None,
) -> tuple[xr.Dataset, Path]:
    """Read a retrieval from its file where it is finished; else ask, and write the file. Both are returned.

    `session`: one of margins and of one job; that of a needle has the `Text` that it lies in. `place`: the .nc
    file, or the folder of its retrieval.nc, as of `find_or_compute`; an interrupted run is resumed. Other
    arguments as of `retrieve`. Raises what that, `load_retrieval` and `save_retrieval` raise.
    """
    (job,), text = session.jobs, session.text
    compute = functools.partial(retrieve, model, job, text=text, threads=threads, on_event=on_event)
    kept = ("retrieval", retrieval_fingerprint(model, job, text), load_retrieval, save_retrieval)
    result = find_or_compute(Path(place), *kept, compute, rerun=rerun)
    assert result is not None  # this process is the only one
    return result


def _asked(model: LocalModel, trials: Trials, index: int) -> dict[str, np.ndarray]:
    """The numbers of trial `index` by position, in float64."""
    trial, rows = trials.trial(index), list[tuple[Any, ...]]()
    # whether a run is resumed here or came this far must not show in any bit
    model.reader.forget()
    for position, text in enumerate(trial.asked):
        try:
            prompt, endings = model.split(text, trial.answers)
            asked, greedy = model.reader.endings(prompt, endings)
            control, _ = model.score(trial.control[position], trial.answers)
        except ModelError as error:
            raise ModelError(f"{error}; prompt {index}, position {position}") from error
        token = trials.tokens(text[: trial.places[position]].rstrip())
        rows.append((asked, control, greedy[0], token, len(prompt)))
    asked, control, accuracy, token, tokens = (np.array(one, np.float64) for one in zip(*rows, strict=True))
    own, other = margins_of(asked), margins_of(control)
    found = {
        "log_probability": asked,
        "control_log_probability": control,
        "accuracy": accuracy,
        "token": token,
    }
    found |= {"choice": own["margin"] > 0, "tokens": tokens, "depth": trial.depths, **own}
    found |= {f"control_{name}": nats for name, nats in other.items()}
    return {name: np.array(found[name], dtype=np.float64) for name in RETRIEVED}
