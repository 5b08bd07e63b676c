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
from posbias.measurement.result import Quantity, State, attributes, variables
from posbias.measurement.streaming import find_or_compute, over_prompts
from posbias.measurement.texts.corpora import Text, read_text
from posbias.profiles.measurements import load_retrieval, save_retrieval
from posbias.retrieval.jobs import RetrievalJob, retrieval_job
from posbias.retrieval.margins import margins_of
from posbias.retrieval.session import Session, trials_of
from posbias.retrieval.trials import Trial, Trials

log = logging.getLogger(__name__)
_BY_POSITION = ("prompt", "position")
_ROWS = {
    "log_probability": Quantity(
        (*_BY_POSITION, "candidate"),
        "log-probability of each candidate behind the question; candidate 0 is the right one",
        "nat",
    ),
    "control_log_probability": Quantity(
        (*_BY_POSITION, "candidate"), "the same behind a question for somebody who does not occur", "nat"
    ),
    "accuracy": Quantity(_BY_POSITION, "1 where greedy decoding writes the right thing"),
    "choice": Quantity(_BY_POSITION, "1 where the right thing is likelier than every other"),
    "margin": Quantity(_BY_POSITION, "log-probability of the right thing minus the best other's", "nat"),
    "margin_mean": Quantity(_BY_POSITION, "log-probability of the right thing minus the others' mean", "nat"),
    "control_margin": Quantity(_BY_POSITION, "margin behind the control's question", "nat"),
    "control_margin_mean": Quantity(_BY_POSITION, "margin_mean behind the control's question", "nat"),
    "depth": Quantity(_BY_POSITION, "share of the other facts or words that stand before the fact"),
    "token": Quantity(_BY_POSITION, "token at which the right thing begins"),
    "tokens": Quantity(_BY_POSITION, "tokens of the prompt"),
}


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
    if job.task in ("documents", "rules"):
        got = f"{job.task}, which are asked of a generator (`posbias.retrieval.ask`)"
        raise wrong("task", "keys or needle", got=got)
    source = None if text is None and job.task != "needle" else read_text(text)
    with ready(model, tokenizer, treatment) as loaded:
        fingerprint = retrieval_fingerprint(loaded, job, source)
        if job.length is not None and loaded.context is not None and job.length > loaded.context:
            most = f"at most the {loaded.context} tokens of context of {loaded.name}"
            raise wrong("length", most, job.length)
        asker = _Asker(loaded, trials_of(job, loaded.tokenizer, text=source))
        log.info("asking %s in %d prompts at %d positions", loaded.name, job.prompts, job.positions)
        with torch_threads(leaving_a_core() if threads is None else threads):
            state, _ = over_prompts(
                *(asker.ask, job.prompts, _ROWS),
                checkpoint=None if checkpoint is None else Path(checkpoint),
                fingerprint=fingerprint,
                on_event=on_event,
            )
        about = {} if source is None else {"text": source.name, "text_sha256": source.sha256}
        about |= {"fingerprint": fingerprint, "reuse": str(asker.model.reader.reuse)}
        return _dataset(state, loaded, job, about)


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


class _Asker:
    """A model and the trials it is asked; `ask(index)` is one row of numbers."""

    def __init__(self, loaded: LoadedModel, trials: Trials):
        self._trials = trials
        self.model = LocalModel(loaded, special=trials.special)
        first = trials.trial(0)
        tried = (first.asked[0], first.control[0], first.asked[-1])
        self.model.try_reuse([self.model.split(text, first.answers) for text in tried])

    def ask(self, index: int) -> dict[str, np.ndarray]:
        """The numbers of trial `index` by position, in float64."""
        trial = self._trials.trial(index)
        # whether a run is resumed here or came this far must not show in any bit
        self.model.reader.forget()
        found: dict[str, list[Any]] = {name: [] for name in _ROWS}
        for position, depth in enumerate(trial.depths):
            try:
                self._ask_at(trial, position, found)
            except ModelError as error:
                raise ModelError(f"{error}; prompt {index}, position {position}") from error
            found["depth"].append(depth)
        return {name: np.array(values, dtype=np.float64) for name, values in found.items()}

    def _ask_at(self, trial: Trial, position: int, found: dict[str, list[Any]]) -> None:
        prompt, endings = self.model.split(trial.asked[position], trial.answers)
        asked, greedy = self.model.reader.endings(prompt, endings)
        control, _ = self.model.score(trial.control[position], trial.answers)
        for name, scores in (("", asked), ("control_", control)):
            found[f"{name}log_probability"].append(scores)
            for margin, nats in margins_of(scores).items():
                found[f"{name}{margin}"].append(nats)
        found["accuracy"].append(greedy[0])
        found["choice"].append(asked[0] > asked[1:].max())
        found["token"].append(self._trials.tokens(trial.asked[position][: trial.places[position]].rstrip()))
        found["tokens"].append(len(prompt))


def _dataset(state: State, loaded: LoadedModel, job: RetrievalJob, about: dict[str, Any]) -> xr.Dataset:
    columns = {name: state.column(name) for name in _ROWS}
    sizes = zip(_ROWS["log_probability"].dimensions, columns["log_probability"].shape, strict=True)
    attrs = {
        **loaded.described,
        "job": encode(job),
        **about,
        "versions": versions_here(("torch", "transformers")),
        "seconds": {"load": loaded.seconds, "ask": state.seconds},
    }
    coordinates = {name: np.arange(size) for name, size in sizes}
    return xr.Dataset(variables(columns, _ROWS), coordinates, attributes("retrieval", attrs))
