"""From jobs to curves: whoever writes answers is asked in every way about every job, and each answer is kept.

    curve = ask(lambda prompt: my_model(prompt), retrieval_job("keys", pairs=20))
    print(*curve.sentences(), sep="\n")

    ways = {"plain": Endpoint(URL, "m"), "brief": Endpoint(URL, "m", system="Answer in one word.")}
    curves = ask_each(ways, [retrieval_job("keys", pairs=pairs) for pairs in (5, 20)], folder="results/m")

Trials are those of `trials`: only the place of the asked fact changes within one. Each is asked at every position
and in three control arms. A prompt is never asked twice.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from posbias.asking.endpoint import Endpoint
from posbias.asking.kept import AnswerFile, AnswersRead
from posbias.asking.requests import Generator, Place, Request, cost, each_answer, id_of
from posbias.core import spec
from posbias.core.errors import InvalidValueError, ModelError, counted, shortened
from posbias.core.matching import Rule, words_in
from posbias.core.progress import Event, OnEvent
from posbias.profiles.gaps import EQUIVALENCE
from posbias.profiles.place_differences import curve_differences, ways_differences
from posbias.profiles.places import ARMS, Key, Places, retrieval_curve, save_places
from posbias.retrieval.documents import Documents, DocumentSet, places_of
from posbias.retrieval.jobs import POSITIONS, RetrievalJob, retrieval_job
from posbias.retrieval.trials import Keys, Needle, Trial, Trials
from posbias.retrieval.wordings import Words

__all__ = [  # what a session begins and ends with stands at posbias.retrieval too
    "Endpoint",
    "Places",
    "ask",
    "ask_each",
    "curve_differences",
    "retrieval_curve",
    "trials_of",
    "ways_differences",
]
log = logging.getLogger(__name__)
FIRST_ROUND = 32
"""Trials that are asked before a wanted half-width is looked at."""
ANSWERS, RESULT = "answers.jsonl", "retrieval.json"
"""What a folder of a way to ask keeps: its answers, and its curves (`save_places`)."""


def trials_of(
    job: RetrievalJob,
    tokenizer: Any = None,
    *,
    text: str | None = None,
    name: str = "text",
    documents: tuple[DocumentSet, ...] | None = None,
) -> Trials:
    """The trials of a job in the tokens of a model, or without a tokenizer in words (`Words`).

    `text`: what a needle lies in, called `name`; `documents`: of the task documents. Raises `InvalidValueError`
    where one is missing or not needed, or the job does not fit, and as the classes of trials.
    """
    for option, given, task in (("text", text, "needle"), ("documents", documents, "documents")):
        if (given is None) == (job.task == task):
            expected, got = ("some", "none") if given is None else ("none", "some")
            raise InvalidValueError(f"{option}: expected {expected} with the task {job.task}, got {got}")
    common = (Words() if tokenizer is None else tokenizer, job.wording, job.positions, job.seed)
    if documents is not None:
        if job.prompts > len(documents):
            raise InvalidValueError(f"prompts: expected at most the {len(documents)} sets, got {job.prompts}")
        return Documents(documents, *common)
    if text is not None:
        return Needle(*common, text=text, name=name, length=job.length or 0)
    return Keys(*common, pairs=job.pairs, length=job.length)


def requests_of(trial: Trial, index: int) -> list[Request]:
    """All prompts of a trial: at each position, then each control arm."""
    placed = [Request(index, Place("position", k), text) for k, text in enumerate(trial.asked)]
    return placed + [Request(index, Place("arm", arm), text) for arm, text in trial.arms.items()]


def requests(trials: Trials, prompts: int) -> list[Request]:
    """All prompts of the first `prompts` trials."""
    return [one for index in range(prompts) for one in requests_of(trials.trial(index), index)]


def ask(
    generator: Generator,
    job: RetrievalJob | None = None,
    *,
    text: str | None = None,
    documents: tuple[DocumentSet, ...] | None = None,
    rule: Rule | None = None,
    answers: str | os.PathLike[str] | None = None,
    asked_of: Mapping[str, Any] | None = None,
    concurrency: int = 1,
    until: float | None = None,
    equivalence: float = EQUIVALENCE,
    on_event: OnEvent | None = None,
) -> Places:
    """Ask for a fact at every position, in `job.prompts` trials, and score the answers.

    generator: who answers: a function from prompt to text, or what has `write` (`Endpoint`, `LocalModel`); it
        returns a `CutOff` where its tokens ran out.
    job: what is asked; without one, text and documents decide its task, and all documents are asked about.
    text, documents: as of `trials_of`.
    rule: how answers are scored (`core.matching`), by default `contains` for documents and `first` for else.
    answers: a file that keeps them and is asked first, whatever the job.
    asked_of: what decides an answer apart from the prompt (a model's name, a system prompt), held against that
        file's.
    concurrency: threads that call the generator.
    until: ask until every gap's 95 % interval is at most ± this, `job.prompts` trials at most (`Places.reached`).
    equivalence: the difference in accuracy that counts as none.
    on_event: hears of answered requests.

    Raises `InvalidValueError` for what cannot be right, `ModelError` where the generator returns no text, what the
    generator raises, and as `AnswerFile`.
    """
    if job is None and documents is not None:
        job = retrieval_job("documents", positions=places_of(documents, POSITIONS), prompts=len(documents))
    job = job or retrieval_job("keys" if text is None else "needle")
    check_effort(until, concurrency, equivalence)
    trials, of = trials_of(job, text=text, documents=documents), dict(asked_of or {})
    rule = rule or ("contains" if job.task == "documents" else "first")
    file, made, heard = AnswerFile(answers, of), list[Trial](), on_event or (lambda event: None)
    count = job.prompts if until is None else min(FIRST_ROUND, job.prompts)
    while True:
        made += [trials.trial(index) for index in range(len(made), count)]
        asked = [request for index, trial in enumerate(made) for request in requests_of(trial, index)]
        left = list({one.id: one for one in asked if one.id not in file.known}.values())
        heard(Event(len(asked) - len(left), len(asked), "request"))
        answered = each_answer(generator, left, concurrency)
        for done, (request, answer) in enumerate(answered, start=len(asked) - len(left) + 1):
            file.add(request, answer)
            heard(Event(done, len(asked), "request"))
        held = trials.documents(count) if isinstance(trials, Documents) else {}
        places = _places(made, rule, file.known)
        curve = replace(
            places,
            job=spec.encode(job) | {"prompts": count} | held,
            asked={"model": "the generator"} | of,
            chance=1 / len(made[0].answers) if job.task == "keys" else 0.0,
            rows="questions" if job.task == "documents" else "trials",
            equivalence=equivalence,
            until=until,
        )
        if until is None or count == job.prompts or curve.half_width <= until:
            return curve
        # what is estimated from few trials is not trusted beyond twice as many
        count = min(job.prompts, 2 * count, max(count + 1, curve.trials_for(until)))


def check_effort(until: float | None, concurrency: int, equivalence: float = EQUIVALENCE) -> None:
    """Raise `InvalidValueError` for a half-width, a number of threads or an equivalence that cannot be."""
    for name, share in (("until", until), ("equivalence", equivalence)):
        if share is not None and not 0 < share < 1:
            raise InvalidValueError(f"{name}: expected a number above 0 and below 1, got {shortened(share)}")
    counted("concurrency", concurrency)


def _places(made: Sequence[Trial], rule: Rule, known: Mapping[str, str]) -> Places:
    """The results of trials whose prompts are all answered."""
    answers = [(trial, [known[id_of(prompt)] for prompt in trial.asked]) for trial in made]
    right = [[trial.right(answer, rule) for answer in row] for trial, row in answers]
    arms = {arm: [trial.right(known[id_of(trial.arms[arm])], rule)[0] for trial in made] for arm in ARMS}
    return Places(
        {
            "accuracy": np.array([[each[0] for each in row] for row in right]),
            "all_found": np.array([[all(each) for each in row] for row in right]),
            "cut_off": np.array([[trial.cut_off(answer, rule) for answer in row] for trial, row in answers]),
        },
        np.mean([trial.depths for trial in made], axis=0),
        arms={arm: np.array(held) for arm, held in arms.items()},
        rule=rule,
        length=float(np.mean([words_in(text) for trial in made for text in trial.asked])),
        unit="words",
    )


# --- ways × jobs ----------------------------------------------------------------------------------------------


def ask_each(
    ways: Mapping[str, Generator],
    jobs: Sequence[RetrievalJob],
    *,
    folder: str | os.PathLike[str] | None = None,
    text: str | None = None,
    documents: tuple[DocumentSet, ...] | None = None,
    rule: Rule | None = None,
    concurrency: int = 1,
    until: float | None = None,
    equivalence: float = EQUIVALENCE,
    on_event: OnEvent | None = None,
) -> dict[Key, Places]:
    """Ask in each way about each job, and return the curves by model, way and length.

    ways: who answers, by the name of the way.
    jobs: what is asked, one for each size.
    folder: where answers and curves are kept (`folder_of`); given again, what is there is not asked again.
    text, documents, rule, concurrency, until, equivalence: as of `ask`.
    on_event: hears of answered requests, over all ways and jobs.

    Several ways are asked the same trials, so `until` is for one alone. Before the first request of a way, what it
    takes is logged. Raises as `ask`.
    """
    if len(ways) > 1 and until is not None:
        raise InvalidValueError(f"until: expected none with several ways to ask, got {until}")
    check_effort(until, concurrency, equivalence)
    curves: dict[Key, Places] = {}
    every = [trials_of(job, text=text, documents=documents) for job in jobs]
    asked = [one for job, trials in zip(jobs, every, strict=True) for one in requests(trials, job.prompts)]
    heard, done, total = on_event or (lambda event: None), 0.0, len(ways) * len(asked)
    for name, generator in ways.items():
        of = dict(getattr(generator, "asked_of", {"model": name}))
        place = None if folder is None else folder_of(Path(folder), name, ways)
        kept = None if place is None or isinstance(generator, AnswersRead) else place / ANSWERS
        if kept is not None:
            left = cost(asked, AnswerFile(kept, of).known, of.get("most_out"))
            nothing = f"nothing, all answers are in {kept}; another --out asks anew"
            most = " at most" * (until is not None)
            log.info("%s: to ask%s: %s", name, most, left if left.requests else nothing)
        own = []
        for job in jobs:
            before = done

            def add(event: Event, before: float = before) -> None:
                nonlocal done
                done = before + event.done
                heard(Event(done, total, event.unit))

            about: dict[str, Any] = {"rule": rule, "until": until, "equivalence": equivalence}
            with _kept_at_errors(kept):
                curve = ask(
                    generator, job, text=text, documents=documents, answers=kept, asked_of=of,
                    concurrency=concurrency, on_event=add, **about,
                )  # fmt: skip
            own.append(replace(curve, asked={**of, "way": name}))
        if place is not None:
            save_places(own, place / RESULT)
        curves |= {curve.key: curve for curve in own}
    if folder is not None and len(ways) > 1:
        save_places(curves.values(), Path(folder) / RESULT)
    return curves


def folder_of(folder: Path, name: str, ways: Mapping[str, Generator]) -> Path:
    """Where a way's answers are kept: the folder itself where there is one way, else one of its own in it."""
    if len(ways) == 1:
        return folder
    plain = "".join(sign if sign.isalnum() or sign in "-._" else "-" for sign in name)
    return folder / str(getattr(ways[name], "way", plain))


@contextmanager
def _kept_at_errors(kept: Path | None) -> Iterator[None]:
    """A server's refusal says what was kept before it."""
    try:
        yield
    except ModelError as error:
        if kept is None or not kept.exists():
            raise
        raise ModelError(f"{error}; answers so far are kept in {kept}: the same command goes on") from None
