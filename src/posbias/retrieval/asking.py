"""Retrieval by position of whatever answers a prompt: a function, a server, or a file of answers.

    curve = ask(lambda prompt: my_model(prompt), retrieval_job("keys", pairs=20))
    print(*curve.sentences(), sep="\n")

Trials are those of `trials`: only the place of the asked fact changes within one. Each is asked at every position
and in three control arms. Answers are kept as they come, and a prompt is never asked twice.
"""

import os
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.core.arguments import counted, shortened
from posbias.core.errors import InputFileError, InvalidValueError, ModelError
from posbias.core.events import Event, OnEvent
from posbias.core.spec import encode
from posbias.retrieval.answer_files import AnswerFile, Request, requests_of
from posbias.retrieval.curve import RetrievalCurve
from posbias.retrieval.documents import Documents, DocumentSet, places_of
from posbias.retrieval.estimation import answer_curve
from posbias.retrieval.job import POSITIONS, RetrievalJob, retrieval_job
from posbias.retrieval.scoring import Rule, is_right, was_cut_off
from posbias.retrieval.statistics import EQUIVALENCE
from posbias.retrieval.trials import ALONE, ARMS, Keys, Needle, Trial, Trials
from posbias.retrieval.words import TOKENS_A_WORD, Words, words_in

Generator = Callable[[str], str]
"""What answers a prompt."""
FIRST_ROUND = 32
"""Trials that are asked before a wanted half-width is looked at."""


@dataclass(frozen=True)
class Cost:
    """What is to be asked: requests, words and marks of punctuation in them, tokens that come back at most."""

    requests: int
    words_in: int
    most_out: int | None

    def __str__(self) -> str:
        out = "" if self.most_out is None else f", at most {self.most_out:,} tokens out"
        tokens = f"{self.words_in * TOKENS_A_WORD:,.0f} tokens in ({TOKENS_A_WORD} a word)"
        return f"{self.requests:,} requests, about {tokens}{out}"


def trials_of(
    job: RetrievalJob, *, text: str | None = None, documents: tuple[DocumentSet, ...] | None = None
) -> Trials:
    """The trials of a job in words (`Words`), not in the tokens of some model.

    `text`: what a needle lies in; `documents`: of the task documents. Raises `InvalidValueError` where one is
    missing or not needed, or the job does not fit.
    """
    for name, given, task in (("text", text, "needle"), ("documents", documents, "documents")):
        if (given is None) == (job.task == task):
            said = "missing, needed" if given is None else "given, not needed"
            raise InvalidValueError(f"{name}: {said} for the task {job.task}")
    if documents is not None:
        if job.prompts > len(documents):
            raise InvalidValueError(f"prompts: {job.prompts} given, at most the {len(documents)} sets needed")
        return Documents(documents, Words(), job.wording, job.positions, job.seed)
    if text is not None:
        return Needle(
            Words(), job.wording, job.positions, job.seed, text=text, name="text", length=job.length or 0
        )
    return Keys(Words(), job.wording, job.positions, job.seed, pairs=job.pairs, length=job.length)


def ask(
    generator: Callable[..., Any],
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
) -> RetrievalCurve:
    """Ask a generator (prompt → text) for a fact at every position, in `job.prompts` trials.

    `text`, `documents`: as of `trials_of`; without a job they decide its task, and all documents are asked about.
    `rule`: how answers are scored (`scoring`), by default `contains` for documents and `first` for else.
    `answers`: a file that keeps them and is asked first, whatever the job; `asked_of`: what decides an answer
    beside the prompt (a model's name, a system prompt), held against that file's. `concurrency` threads call the
    generator. With `until`, trials are asked until every gap's 95 % interval is at most ± `until`, and
    `job.prompts` at most (`reached`). `equivalence`: the difference in accuracy that counts as none.
    A generator returns a `scoring.CutOff` where its tokens ran out. `on_event` hears of answered requests.

    Raises `InvalidValueError` for what cannot be right, `ModelError` where the generator returns no text, what the
    generator raises, and as `AnswerFile`.
    """
    job = job or _job_of(text, documents)
    check_effort(until, concurrency, equivalence)
    chosen: Rule = default_rule(job) if rule is None else rule
    trials = trials_of(job, text=text, documents=documents)
    round_ = job.prompts if until is None else min(FIRST_ROUND, job.prompts)
    of = asked_of or {}
    about = {"model": str(of.get("model", "the generator")), "most_out": of.get("most_out")}
    asked = _Asked(trials, job, chosen, about | {"until": until, "equivalence": equivalence})
    with AnswerFile(answers, asked_of or {}) as file:
        while True:
            asked.add_until(round_, generator, file, concurrency, on_event or (lambda event: None))
            curve = asked.curve()
            if until is None or round_ == job.prompts or curve.half_width <= until:
                return curve
            # what is estimated from few trials is not trusted beyond twice as many
            wanted = min(2 * round_, max(round_ + 1, curve.trials_for(until)))
            round_ = min(job.prompts, wanted)


def _job_of(text: str | None, documents: tuple[DocumentSet, ...] | None) -> RetrievalJob:
    """The job where none is given."""
    if documents is None:
        return retrieval_job("keys" if text is None else "needle")
    return retrieval_job("documents", positions=places_of(documents, POSITIONS), prompts=len(documents))


def check_effort(until: float | None, concurrency: int, equivalence: float = EQUIVALENCE) -> None:
    """Raise `InvalidValueError` for a half-width, a number of threads or an equivalence that cannot be."""
    for name, share in (("until", until), ("equivalence", equivalence)):
        if share is not None and not 0 < share < 1:
            raise InvalidValueError(f"{name}: expected a number above 0 and below 1, got {shortened(share)}")
    counted("concurrency", concurrency)


def default_rule(job: RetrievalJob) -> Rule:
    """How answers are scored unless told: against the list's other things where they are known."""
    return "contains" if job.task == "documents" else "first"


def requests(trials: Trials, prompts: int) -> list[Request]:
    """All prompts of the first `prompts` trials."""
    return [one for index in range(prompts) for one in requests_of(trials.trial(index), index)]


def cost(asked: Iterable[Request], known: Mapping[str, str], most_out: int | None = None) -> Cost:
    """What asking takes, less what is `known`; `most_out`: tokens of an answer at most."""
    left = {one.id: one.prompt for one in asked if one.id not in known}
    words = sum(words_in(prompt) for prompt in left.values())
    return Cost(len(left), words, None if most_out is None else most_out * len(left))


def answers_made_elsewhere(known: Mapping[str, str], name: str) -> Generator:
    """A generator that looks answers up; raises `InputFileError` for a prompt that has none in the file `name`."""

    def look_up(prompt: str) -> str:
        request = Request(0, "", None, prompt)
        if request.id not in known:
            raise InputFileError(
                f"{name}: no answer to the prompt {request.id} ({shortened(prompt)}); all prompts of the same "
                "options needed"
            )
        return known[request.id]

    return look_up


class _Asked:
    """The trials answered so far, scored."""

    def __init__(self, trials: Trials, job: RetrievalJob, rule: Rule, about: dict[str, Any]):
        self._trials, self._job, self._about = trials, job, about
        self._rule: Rule = rule
        self._cut_off: list[list[bool]] = []
        self._made: list[Trial] = []
        self._right: list[dict[str, list[tuple[bool, ...]]]] = []
        self._missed: tuple[str, str] | None = None

    def add_until(
        self, count: int, generator: Generator, file: AnswerFile, concurrency: int, on_event: OnEvent
    ) -> None:
        """Answer and score trials until there are `count`."""
        begin = len(self._made)
        self._made += [self._trials.trial(index) for index in range(begin, count)]
        asked = [one for k in range(begin, count) for one in requests_of(self._made[k], k)]
        done = len(self._right) * (self._job.positions + len(ARMS))
        open_ = list({one.id: one for one in asked if one.id not in file.known}.values())
        total = done + len(asked)
        answered = total - len(open_)
        on_event(Event(answered, total, "request"))
        for request, text in each_answer(generator, open_, concurrency):
            file.add(request, text)
            answered += 1
            on_event(Event(answered, total, "request"))
        for trial in self._made[begin:]:
            answers = {"placed": trial.asked} | {arm: (text,) for arm, text in trial.arms.items()}
            self._right.append(
                {
                    arm: [is_right(file.known[_id(text)], trial, self._rule) for text in prompts]
                    for arm, prompts in answers.items()
                }
            )
            known = [file.known[_id(text)] for text in trial.asked]
            self._cut_off.append([was_cut_off(one, trial, self._rule) for one in known])
            if self._missed is None and not self._right[-1][ALONE][0][0]:
                right = trial.accepted[0][0] if trial.accepted else trial.answers[0]
                self._missed = (file.known[_id(trial.arms[ALONE])], right)

    def curve(self) -> RetrievalCurve:
        placed = [trial["placed"] for trial in self._right]
        words = [words_in(text) for trial in self._made for text in trial.asked]
        held = self._trials.documents(len(self._right)) if isinstance(self._trials, Documents) else {}
        return answer_curve(
            job=encode(self._job) | {"prompts": len(self._right)} | held,
            rule=self._rule,
            found=np.array([[right[0] for right in row] for row in placed]),
            every=np.array([[all(right) for right in row] for row in placed]),
            arms={arm: np.array([trial[arm][0][0] for trial in self._right]) for arm in ARMS},
            depth=np.mean([trial.depths for trial in self._made], axis=0),
            words=float(np.mean(words)),
            chance=1 / len(self._made[0].answers) if self._job.task == "keys" else 0.0,
            missed=self._missed,
            cut_off=tuple(np.mean(self._cut_off, axis=0).tolist()),
            **self._about,
        )


def _id(prompt: str) -> str:
    return Request(0, "", None, prompt).id


def each_answer(
    generator: Generator, asked: Sequence[Request], concurrency: int
) -> Iterable[tuple[Request, str]]:
    """Requests with their answers, as they come; the generator is called by so many threads (1: by this one).

    After an error no further request begins; those under way are waited for and told, then it is raised. After
    an interruption nothing is waited for.
    """
    if concurrency == 1 or len(asked) < 2:
        for request in asked:
            yield request, _text_of(generator, request)
        return
    left, told, lock, stop = iter(asked), queue.SimpleQueue(), threading.Lock(), threading.Event()

    def work() -> None:
        while not stop.is_set():
            with lock:
                request = next(left, None)
            if request is None:
                break
            try:
                told.put((request, _text_of(generator, request), None))
            except BaseException as error:
                stop.set()
                told.put((request, "", error))
        told.put(None)

    workers = min(concurrency, len(asked))
    for _ in range(workers):
        # a daemon: what waits for a server does not keep an interrupted process
        threading.Thread(target=work, daemon=True).start()
    failed: BaseException | None = None
    try:
        while workers:
            if (news := told.get()) is None:
                workers -= 1
            elif news[2] is None:
                yield news[0], news[1]
            else:
                failed = failed or news[2]
    finally:
        stop.set()
    if failed is not None:
        raise failed


def _text_of(generator: Generator, request: Request) -> str:
    answer = generator(request.prompt)
    if not isinstance(answer, str):
        raise ModelError(f"generator: returned {shortened(answer)}, a text needed")
    return answer
