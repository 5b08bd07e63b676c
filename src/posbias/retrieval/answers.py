"""Retrieval by position of whatever answers a prompt: a function, a server, or a file of answers.

    curve = ask(lambda prompt: my_model(prompt), retrieval_job("keys", pairs=20))
    print(*curve.sentences(), sep="\n")

Trials are those of `trials`: only the place of the asked fact changes within one. Each is asked at every position
and in three control arms. Answers are kept as they come in a file of JSON lines; a prompt is never asked twice.

A line has the prompt, its `id` (the beginning of the SHA-256 of the prompt) and, once there is one, the `answer`.
An answer that was cut off (`trials.CutOff`) has `cut_off` too, or the `finish_reason` length of a server. The
first line of a file that posbias writes says who was asked, and how; nobody else's answers go there. A last line
that a kill has cut short is dropped.
"""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np

from posbias.core import spec
from posbias.core.errors import (
    DamagedError,
    InputFileError,
    InvalidValueError,
    ModelError,
    OutputFileError,
    counted,
    shortened,
)
from posbias.core.files import json_lines, need_writable, write_text
from posbias.core.progress import Event, OnEvent
from posbias.core.tables import table_lines
from posbias.retrieval.curve import EQUIVALENCE, RetrievalCurve, answer_curve
from posbias.retrieval.trials import (
    ARMS,
    POSITIONS,
    CutOff,
    Documents,
    DocumentSet,
    RetrievalJob,
    Rule,
    Trial,
    Trials,
    is_right,
    places_of,
    retrieval_job,
    trials_of,
    was_cut_off,
)
from posbias.retrieval.wordings import TOKENS_A_WORD, words_in

Generator = Callable[[str], str]
"""What answers a prompt."""
FIRST_ROUND = 32
"""Trials that are asked before a wanted half-width is looked at."""
KIND, SCHEMA = "retrieval-answers", 1
PLACED = "placed"
"""The arm in which the fact stands at a position."""


@dataclass(frozen=True)
class Request:
    """A prompt to be answered: of which trial, in which arm, and for `PLACED` at which position."""

    trial: int
    arm: str
    position: int | None
    prompt: str

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits of the prompt: equal prompts are asked once."""
        return id_of(self.prompt)

    def line(self, **answer: Any) -> str:
        """The line of a file, without an answer or with one."""
        return _line({"id": self.id, **asdict(self), **answer})


def id_of(prompt: str) -> str:
    """The id of a prompt."""
    return hashlib.sha256(prompt.encode(errors="surrogatepass")).hexdigest()[:16]


def requests_of(trial: Trial, index: int) -> list[Request]:
    """All prompts of a trial: at each position, then each control arm."""
    placed = [Request(index, PLACED, k, text) for k, text in enumerate(trial.asked)]
    return placed + [Request(index, arm, None, text) for arm, text in trial.arms.items()]


def requests(trials: Trials, prompts: int) -> list[Request]:
    """All prompts of the first `prompts` trials."""
    return [one for index in range(prompts) for one in requests_of(trials.trial(index), index)]


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


def cost(asked: Iterable[Request], known: Mapping[str, str], most_out: int | None = None) -> Cost:
    """What asking takes, less what is `known`; `most_out`: tokens of an answer at most."""
    left = {one.id: one.prompt for one in asked if one.id not in known}
    words = sum(words_in(prompt) for prompt in left.values())
    return Cost(len(left), words, None if most_out is None else most_out * len(left))


# --- asking ---------------------------------------------------------------------------------------------------


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
    `rule`: how answers are scored (`trials.is_right`), by default `contains` for documents and `first` for else.
    `answers`: a file that keeps them and is asked first, whatever the job; `asked_of`: what decides an answer
    apart from the prompt (a model's name, a system prompt), held against that file's. `concurrency` threads call
    the generator. With `until`, trials are asked until every gap's 95 % interval is at most ± `until`, and
    `job.prompts` at most (`reached`). `equivalence`: the difference in accuracy that counts as none.
    A generator returns a `trials.CutOff` where its tokens ran out. `on_event` hears of answered requests.

    Raises `InvalidValueError` for what cannot be right, `ModelError` where the generator returns no text, what the
    generator raises, and as `AnswerFile`.
    """
    if job is None and documents is not None:
        job = retrieval_job("documents", positions=places_of(documents, POSITIONS), prompts=len(documents))
    job = job or retrieval_job("keys" if text is None else "needle")
    check_effort(until, concurrency, equivalence)
    trials, of = trials_of(job, text=text, documents=documents), dict(asked_of or {})
    about = {"model": str(of.get("model", "the generator")), "most_out": of.get("most_out")}
    about |= {"rule": rule or ("contains" if job.task == "documents" else "first")}
    about |= {"until": until, "equivalence": equivalence}
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
        curve = _curve(made, spec.encode(job) | {"prompts": count} | held, file.known, **about)
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


def _curve(
    made: Sequence[Trial], job: Mapping[str, Any], known: Mapping[str, str], rule: Rule, **about: Any
) -> RetrievalCurve:
    """The curve of trials whose prompts are all answered."""

    def right(trial: Trial, prompt: str) -> tuple[bool, ...]:
        return is_right(known[id_of(prompt)], trial, rule)

    placed = [[right(trial, prompt) for prompt in trial.asked] for trial in made]
    cut_off = [[was_cut_off(known[id_of(prompt)], trial, rule) for prompt in trial.asked] for trial in made]
    return answer_curve(
        job=job,
        rule=rule,
        found=np.array([[each[0] for each in row] for row in placed]),
        every=np.array([[all(each) for each in row] for row in placed]),
        arms={arm: np.array([right(trial, trial.arms[arm])[0] for trial in made]) for arm in ARMS},
        depth=np.mean([trial.depths for trial in made], axis=0),
        words=float(np.mean([words_in(text) for trial in made for text in trial.asked])),
        chance=1 / len(made[0].answers) if job["task"] == "keys" else 0.0,
        cut_off=tuple(np.mean(cut_off, axis=0).tolist()),
        **about,
    )


def each_answer(
    generator: Generator, asked: Sequence[Request], concurrency: int
) -> Iterator[tuple[Request, str]]:
    """Requests with their answers, as they come; `concurrency` threads call the generator (1: this one does).

    After an error no further request begins; those under way are waited for and yielded, then it is raised. After
    an interruption nothing is waited for. Raises `ModelError` where the generator returns no text.
    """
    stopped, errors = threading.Event(), list[BaseException]()

    def answer(request: Request) -> str | None:
        if stopped.is_set():
            return None
        try:
            text = generator(request.prompt)
            if not isinstance(text, str):
                raise ModelError(f"generator: expected a text, got {shortened(text)}")
            return text
        except BaseException as error:
            stopped.set()
            errors.append(error)
            return None

    if concurrency == 1 or len(asked) < 2:
        for request in asked:
            if (text := answer(request)) is not None:
                yield request, text
    else:
        # its threads are daemons: what waits for a server does not keep an interrupted process
        with ThreadPool(min(concurrency, len(asked))) as pool:
            try:
                pairs = pool.imap_unordered(lambda request: (request, answer(request)), asked)
                yield from ((request, text) for request, text in pairs if text is not None)
            finally:
                stopped.set()
    if errors:
        raise errors[0]


# --- files ----------------------------------------------------------------------------------------------------


def write_requests(requests: Sequence[Request], path: str | os.PathLike[str]) -> Path:
    """Write prompts for somebody to answer, one a line. Raises `OutputFileError`."""
    return write_text(path, "".join(request.line() for request in requests))


def read_answers(path: str | os.PathLike[str]) -> dict[str, str]:
    """Answers by the id of their prompt, from a file of JSON lines (or CSV) with `answer` and `id` or `prompt`.

    Raises `InputFileError` naming line and key, also where one prompt has two answers that differ.
    """
    answers: dict[str, str] = {}
    for line in table_lines(Path(path)):
        row = line.columns
        if row.get("posbias_kind") == KIND:
            continue
        prompt = row.get("prompt")
        identity = row.get("id", id_of(prompt) if isinstance(prompt, str) else None)
        for key, held in (("id", identity), ("answer", row.get("answer"))):
            if not isinstance(held, str):
                raise InputFileError(f"{line.where}: {key}: expected a text, got {shortened(held)}")
        if answers.setdefault(identity, _answer_of(row)) != row["answer"]:
            raise InputFileError(
                f"{line.where}: id: expected one answer to {identity}, got another one before"
            )
    if not answers:
        raise InputFileError(f"{path}: expected lines with id and answer, got none")
    return answers


def answers_made_elsewhere(known: Mapping[str, str], name: str) -> Generator:
    """A generator that looks answers up; raises `InputFileError` for a prompt that has none in the file `name`."""

    def look_up(prompt: str) -> str:
        if id_of(prompt) not in known:
            raise InputFileError(
                f"{name}: expected answers to all prompts of the same options, got none to {id_of(prompt)} "
                f"({shortened(prompt)})"
            )
        return known[id_of(prompt)]

    return look_up


class AnswerFile:
    """Answers in a file of JSON lines, each written as it comes; `known` has all of them by id.

    Without a path they are kept in memory; without an answer there is no file. Raises `InputFileError` for a file
    of another specification or of something else, `DamagedError` for a line that is none of ours, and
    `OutputFileError` where it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str] | None, specification: Mapping[str, Any]):
        self.path, self.known = None if path is None else Path(path), dict[str, str]()
        about = {"posbias_kind": KIND, "schema": SCHEMA, "fingerprint": spec.fingerprint(dict(specification))}
        self._header = about | {"specification": dict(specification)}
        if self.path is not None:
            need_writable(self.path)
            if self.path.exists():
                self._read(self.path)

    def add(self, request: Request, answer: str) -> None:
        """Keep an answer: it is on its way to the disk when this returns. Raises `OutputFileError`."""
        self.known[request.id] = answer
        if self.path is None:
            return
        cut = {"cut_off": True} if isinstance(answer, CutOff) else {}
        line = request.line(answer=answer, **cut)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write((line if file.tell() else _line(self._header) + line).encode())
        except OSError as error:
            raise OutputFileError(f"cannot write {self.path}: {error.strerror or error}") from None

    def _read(self, path: Path) -> None:
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        lines = json_lines(content[:whole].decode(errors="replace"), path)
        first = next(lines, None)
        if first is not None:
            held = {"posbias_kind": "kind", "schema": "schema", "fingerprint": "model and options"}
            for key, what in held.items():
                if first.columns.get(key) != self._header[key]:
                    raise InputFileError(
                        f"{path}: expected answers of this {what}, got others; give another name"
                    )
        elif not content.startswith(b'{"posbias_kind"'[: len(content)]):
            raise DamagedError(f"{path}: damaged, not a file of answers")
        for line in lines:
            row = line.columns
            prompt, answer = row.get("prompt"), row.get("answer")
            if not (isinstance(prompt, str) and isinstance(answer, str) and row.get("id") == id_of(prompt)):
                raise DamagedError(f"{line.where}: damaged, not an answer of posbias")
            self.known[row["id"]] = _answer_of(row)
        if whole < len(content):
            os.truncate(path, whole)


def _answer_of(row: Mapping[str, Any]) -> str:
    cut = row.get("cut_off") is True or row.get("finish_reason") == "length"
    return CutOff(row["answer"]) if cut else row["answer"]


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=True) + "\n"
