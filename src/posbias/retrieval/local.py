"""Retrieval by position: what a model makes of one fact, standing at one place after another.

`retrieve` asks a model for the fact of each trial (`retrieval.trials`) at every position, and keeps how likely the
right thing and each wrong one are to follow. Trials are the samples: what is compared between positions is
compared within a trial, where nothing but the place has changed.

One forward pass reads a prompt and gives the first token of every ending; a second one, over all endings together,
gives the rest. Keys and values of the tokens that a prompt shares with the one before it are kept: under a causal
mask they cannot depend on what follows, so nothing is approximated. That this holds for the model at hand, cache
and all, is tried on the first prompts, and plain passes are used where it does not.
"""

import copy
import inspect
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from posbias.core.errors import InvalidValueError, ModelError
from posbias.core.formats import versions_here
from posbias.core.machine import leaving_a_core, torch_threads
from posbias.core.progress import OnEvent
from posbias.core.spec import encode
from posbias.measurement.job import fingerprint_of, job_of
from posbias.measurement.models.loading import LoadedModel, Treatment, ready
from posbias.measurement.result import Quantity, State, attributes, variables
from posbias.measurement.streaming import over_prompts
from posbias.measurement.texts.corpora import read_text
from posbias.retrieval.trials import RetrievalJob, Trial, Trials, check_text, retrieval_job, trials_of

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


def retrieval_fingerprint(model: LoadedModel, job: RetrievalJob, text: str | Path | None = None) -> str:
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
    text: str | Path | None = None,
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
    if job.task == "documents":
        raise InvalidValueError(
            "task: expected keys or needle, got documents, which are asked of a generator "
            "(`posbias.retrieval.answers.ask`)"
        )
    check_text(job.task, text)
    source = read_text(text) if job.task == "needle" else None
    with ready(model, tokenizer, treatment) as loaded:
        fingerprint = retrieval_fingerprint(loaded, job, text)
        if job.length is not None and loaded.context is not None and job.length > loaded.context:
            raise InvalidValueError(
                f"length: expected at most the {loaded.context} tokens of context of {loaded.name}, got "
                f"{job.length}"
            )
        lies_in: dict[str, Any] = {} if source is None else {"text": source.content, "name": source.name}
        asker = _Asker(loaded, trials_of(job, loaded.tokenizer, **lies_in))
        log.info("asking %s in %d prompts at %d positions", loaded.name, job.prompts, job.positions)
        with torch_threads(leaving_a_core() if threads is None else threads):
            kept = {
                "checkpoint": None if checkpoint is None else Path(checkpoint),
                "fingerprint": fingerprint,
            }
            state, _ = over_prompts(asker.ask, job.prompts, _ROWS, on_event=on_event, **kept)
        about = {} if source is None else {"text": source.name, "text_sha256": source.sha256}
        about |= {"fingerprint": fingerprint, "reuse": str(asker.reader.reuse)}
        return _dataset(state, loaded, job, about)


class _Asker:
    """A model and the trials it is asked; `ask(index)` is one row of numbers."""

    def __init__(self, loaded: LoadedModel, trials: Trials):
        self._trials, self._loaded = trials, loaded
        first = trials.trial(0)
        tried = [
            self._split(text, first.answers) for text in (first.asked[0], first.control[0], first.asked[-1])
        ]
        loaded.check_ids(max(max(*prompt, *map(max, endings)) for prompt, endings in tried))
        # two endings tell: a plain pass for each of many would take longer than a trial
        reuse = reuse_is_exact(loaded.model, [(prompt, endings[:2]) for prompt, endings in tried])
        self.reader = Reader(loaded.model, reuse=reuse)

    def ask(self, index: int) -> dict[str, np.ndarray]:
        """The numbers of trial `index` by position, in float64."""
        trial = self._trials.trial(index)
        # whether a run is resumed here or came this far must not show in any bit
        self.reader.forget()
        found: dict[str, list[Any]] = {name: [] for name in _ROWS}
        for position, depth in enumerate(trial.depths):
            try:
                self._ask_at(trial, position, found)
            except ModelError as error:
                raise ModelError(f"{error}; prompt {index}, position {position}") from error
            found["depth"].append(depth)
        return {name: np.array(values, dtype=np.float64) for name, values in found.items()}

    def _ask_at(self, trial: Trial, position: int, found: dict[str, list[Any]]) -> None:
        prompt, endings = self._split(trial.asked[position], trial.answers)
        asked, greedy = self.reader.endings(prompt, endings)
        control, _ = self.reader.endings(*self._split(trial.control[position], trial.answers))
        for name, scores in (("", asked), ("control_", control)):
            found[f"{name}log_probability"].append(scores)
            found[f"{name}margin"].append(scores[0] - scores[1:].max())
            found[f"{name}margin_mean"].append(scores[0] - scores[1:].mean())
        found["accuracy"].append(greedy[0])
        found["choice"].append(asked[0] > asked[1:].max())
        found["token"].append(self._trials.tokens(trial.asked[position][: trial.places[position]].rstrip()))
        found["tokens"].append(len(prompt))

    def _split(self, prompt: str, answers: tuple[str, ...]) -> tuple[list[int], list[list[int]]]:
        """Token ids of a prompt, and by answer the ids that follow it.

        Text and answer are tokenised together: where tokens straddle the joint, they belong to the answer.
        """
        alone, *whole = self._trials.encode([prompt, *(prompt + answer for answer in answers)])
        shared = min(common(alone, ids) for ids in whole)
        # one token at least is read, and one at least is scored
        shared = max(1, min(shared, *(len(ids) - 1 for ids in whole)))
        longest = max(map(len, whole))
        context = self._loaded.context
        if context is not None and longest > context:
            raise InvalidValueError(
                f"length: expected at most the {context} tokens of context of {self._loaded.name}, got prompts "
                f"of {longest} with their answers"
            )
        return whole[0][:shared], [ids[shared:] for ids in whole]


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


# --- endings of prompts that begin alike ---------------------------------------------------------------------

_COPIES = 256 << 20
"""Bytes of keys and values that the endings of one pass may take together."""
Scores = tuple[Float[np.ndarray, "ending"], Bool[np.ndarray, "ending"]]
"""Of each ending: the log-probability of all its tokens, in nats, and whether greedy decoding writes it."""


class Reader:
    """Reads prompts with a causal language model (`transformers`, evaluation mode) and scores their endings.

    With `reuse`, what consecutive prompts share is read once.
    """

    def __init__(self, model: Any, *, reuse: bool = True):
        self._model, self.reuse = model, reuse
        known = inspect.signature(model.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in known else {}
        self.forget()

    def forget(self) -> None:
        """Start anew: the next prompt is read whole."""
        self._read: list[int] = []
        self._cache: Any = None

    @torch.no_grad()
    def endings(self, prompt: Sequence[int], endings: Sequence[Sequence[int]]) -> Scores:
        """Score `endings` (token ids, one or more each) behind `prompt` (token ids, one or more).

        Raises `ModelError` when the model's outputs are not finite.
        """
        if not self.reuse:
            return _scored([[self._plain(prompt, ending)] for ending in endings])
        first = self._first(list(prompt))
        scores = [[_own(first, ending[:1])] for ending in endings]
        if max(map(len, endings)) > 1:
            for parts, rest in zip(scores, self._rest(endings), strict=True):
                parts.append(rest)
        return _scored(scores)

    def _plain(self, prompt: Sequence[int], ending: Sequence[int]) -> tuple[float, bool]:
        """The score of one ending by one pass over all tokens."""
        ids = self._tensor([[*prompt, *ending]])
        return _own(self._model(ids, use_cache=False).logits[0, -len(ending) - 1 : -1], ending)

    def _first(self, prompt: list[int]) -> Float[Tensor, "one word"]:
        """Logits of what follows `prompt`, whose keys and values are then in the cache."""
        # the last token is read in any case: its output is what is wanted
        shared = min(common(self._read, prompt), len(prompt) - 1)
        if shared == 0:
            from transformers import DynamicCache

            # without a configuration every layer keeps all keys: windows are then the mask's matter
            self._cache = DynamicCache()
        elif shared < len(self._read):
            self._cache.crop(shared - len(self._read))
        # an interruption inside the pass must not leave half a cache believed in
        self._read = []
        logits = self._model(
            self._tensor([prompt[shared:]]), past_key_values=self._cache, use_cache=True, **self._last_only
        ).logits
        self._read = prompt
        return logits[0, -1:]

    def _rest(self, endings: Sequence[Sequence[int]]) -> Iterator[tuple[float, bool]]:
        """By ending, the score of its second and later tokens."""
        longest = max(map(len, endings))
        # shorter endings are filled up behind their last token, which nothing before it can see
        filled = [[*ending, *[ending[-1]] * (longest - len(ending))][:-1] for ending in endings]
        size = sum(layer.keys.nbytes + layer.values.nbytes for layer in self._cache.layers)
        step = max(1, _COPIES // max(1, size))
        for start in range(0, len(filled), step):
            some = self._tensor(filled[start : start + step])
            cache = copy.deepcopy(self._cache)
            cache.batch_repeat_interleave(len(some))
            logits = self._model(some, past_key_values=cache, use_cache=True).logits
            for row, ending in zip(logits, endings[start : start + step], strict=True):
                yield _own(row[: len(ending) - 1], ending[1:])

    def _tensor(self, ids: list[list[int]]) -> Tensor:
        return torch.tensor(ids, device=self._model.get_input_embeddings().weight.device)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of what two sequences begin with in common."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def reuse_is_exact(model: Any, asked: Sequence[tuple[Sequence[int], Sequence[Sequence[int]]]]) -> bool:
    """Whether reading with a cache gives what plain passes give, tried on prompts with their endings.

    Equal to 1e-3 nats in float32, .1 in half precision. A model that has no cache of this kind is answered
    with False, not with an error.
    """
    tolerance = 1e-3 if model.dtype in (torch.float32, torch.float64) else 0.1
    plain, cached = Reader(model, reuse=False), Reader(model)
    for prompt, endings in asked:
        expected, _ = plain.endings(prompt, endings)
        try:
            found, _ = cached.endings(prompt, endings)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            return False
        if not np.allclose(found, expected, rtol=0, atol=tolerance):
            return False
    return True


def _own(logits: Float[Tensor, "token word"], ids: Sequence[int]) -> tuple[float, bool]:
    """Log-probability of `ids` at their places, summed in float64, and whether each is the most likely one."""
    own = torch.tensor(list(ids), device=logits.device)
    chosen = logits.double().log_softmax(dim=-1).gather(1, own[:, None])
    return float(chosen.sum()), bool((logits.argmax(dim=-1) == own).all())


def _scored(parts: Sequence[Sequence[tuple[float, bool]]]) -> Scores:
    """Endings from the scores of their parts."""
    total = np.array([sum(score for score, _ in ending) for ending in parts])
    if not np.isfinite(total).all():
        raise ModelError("model: its outputs are not finite")
    return total, np.array([all(hit for _, hit in ending) for ending in parts])
