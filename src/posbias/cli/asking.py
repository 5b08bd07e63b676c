"""`posbias retrieve` of a model that is not opened here: a server is asked, or answers were made elsewhere."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.arguments import shortened
from posbias.cli import options as shared
from posbias.cli.jobs import resumable
from posbias.cli.output import answer_with
from posbias.errors import InvalidValueError
from posbias.files import need_writable
from posbias.lazy import need
from posbias.logs import one_line
from posbias.tables import table

if TYPE_CHECKING:
    from posbias.retrieval.answer_curve import AnswerCurve
    from posbias.retrieval.documents import DocumentSet
    from posbias.retrieval.job import RetrievalJob
    from posbias.retrieval.resampling import Resampled

log = logging.getLogger(__name__)
Options = Any
"""The options of `posbias retrieve`, whose module imports this one."""
PICTURES = ("retrieval.svg", "retrieval.png")
SOURCES = ("endpoint", "answers", "write_prompts")
"""Options of which one makes a model a black box."""


@shared.options
class Asking:
    """How to ask a model that is not opened here.

    Parameters
    ----------
    endpoint
        Ask MODEL of this OpenAI-compatible server, http://localhost:8000/v1 for instance; key in OPENAI_API_KEY.
    api
        chat: prompts are a user's messages, in the server's template. completion: as they are.
    system
        A system message before each prompt (chat).
    answers
        Answers made elsewhere: JSON lines with answer, and with id or prompt.
    write_prompts
        Write the prompts to this file as JSON lines, for somebody to answer, and ask nothing.
    trials
        Questions and documents of your own, as JSON lines: question, documents, gold, answers.
    rule
        How answers are scored. Default: first of the list's things; documents: contains a right spelling.
    sizes
        Several --pairs (keys) or --length (needle), with commas: a curve each, and a map.
    until
        Ask more trials until every gap is known to ± this much accuracy, --prompts at most.
    concurrency
        Requests at a time.
    answer_tokens
        Tokens of an answer at most.
    timeout
        Seconds that a server may be silent.
    """

    endpoint: str | None = None
    api: Literal["chat", "completion"] = "chat"
    system: str | None = None
    answers: Path | None = None
    write_prompts: Path | None = None
    trials: Path | None = None
    rule: Literal["contains", "first"] | None = None
    sizes: shared.Lengths = ()
    until: float | None = None
    concurrency: shared.Whole = 4
    answer_tokens: shared.Whole = 32
    timeout: float = 120.0

    @property
    def wanted(self) -> bool:
        """Whether a model is asked as a black box. Raises `InvalidValueError` for options that need it to be."""
        named = [name for name in SOURCES if getattr(self, name) is not None]
        if len(named) > 1:
            raise InvalidValueError(
                f"{_spelt(named[1])}: given with {_spelt(named[0])}, one of the two needed"
            )
        given = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
        if given and not named:
            raise InvalidValueError(
                f"{_spelt(given[0])}: given with a model that is opened here; --endpoint, --answers or "
                "--write-prompts needed with it"
            )
        return bool(named)


def ask_black_box(model: str | None, options: Options) -> None:
    """Write the prompts, or ask, tell and draw. Raises as `posbias.retrieval.asking.ask`."""
    _refuse_of_opened(options)
    asking = options.asking
    text, documents = _source(options)
    jobs = _jobs(options, documents)
    if asking.write_prompts is not None:
        _write(asking.write_prompts, jobs, text, documents, options)
        return
    if model is None and asking.endpoint is not None:
        raise InvalidValueError("model: none given, the name of a model of the server needed")
    need("matplotlib", work="the curve", extra="report")
    name = model or f"answers of {asking.answers}"
    place = options.out or shared.RESULTS / _folder(name, jobs, options)
    need_writable(place)
    kept = place / "answers.jsonl" if asking.endpoint is not None else None
    generator, asked_of = _generator(name, asking)
    curves = _asked(generator, asked_of, jobs, (text, documents), kept, options)
    from posbias.plots import save_figure
    from posbias.plots.answers import answers_figure

    figure = answers_figure(curves)
    pictures = [str(save_figure(figure, place / one)) for one in PICTURES]
    answer = {"file": str(kept or asking.answers), "pictures": pictures, "asked": asked_of}
    answer["curves"] = [curve.as_dict() for curve in curves]
    answer_with(
        "retrieve-answers/1",
        answer,
        lambda: [*_lines(curves), "", f"answers: {kept or asking.answers}"],
        options.json,
        place / "retrieval.json",
    )


def _asked(
    generator: Callable[[str], str],
    asked_of: Mapping[str, Any],
    jobs: "list[RetrievalJob]",
    sources: "tuple[str | None, tuple[DocumentSet, ...] | None]",
    kept: Path | None,
    options: Options,
) -> "list[AnswerCurve]":
    """A curve for each job; first says what it takes."""
    from posbias.retrieval.answer_files import AnswerFile
    from posbias.retrieval.asking import ask, check_effort, cost, requests, trials_of

    (text, documents), asking = sources, options.asking
    check_effort(asking.until, asking.concurrency)
    if kept is not None:
        with AnswerFile(kept, asked_of) as file:
            known = dict(file.known)
        wanted = [
            one
            for job in jobs
            for one in requests(trials_of(job, text=text, documents=documents), job.prompts)
        ]
        most = " at most" if asking.until is not None else ""
        log.info("to ask%s: %s", most, cost(wanted, known, asking.answer_tokens))
    curves = []
    for job in jobs:
        with resumable(job.prompts * (job.positions + 3)) as on_event:
            curve = ask(
                generator, job, text=text, documents=documents, rule=asking.rule, answers=kept, asked_of=asked_of,
                concurrency=asking.concurrency if kept is not None else 1, until=asking.until, on_event=on_event,
            )  # fmt: skip
        curves.append(curve)
    return curves


def _generator(name: str, asking: Asking) -> tuple[Callable[[str], str], dict[str, Any]]:
    """What answers, and what decides its answers beside the prompt."""
    from posbias.retrieval.answer_files import read_answers
    from posbias.retrieval.asking import answers_made_elsewhere
    from posbias.retrieval.endpoint import Endpoint

    if asking.endpoint is None:
        assert asking.answers is not None
        return answers_made_elsewhere(read_answers(asking.answers), str(asking.answers)), {"model": name}
    made = Endpoint(
        asking.endpoint, name, api=asking.api, system=asking.system, most_out=asking.answer_tokens,
        timeout=asking.timeout,
    )  # fmt: skip
    return made, made.asked_of


def _write(
    path: Path,
    jobs: "list[RetrievalJob]",
    text: str | None,
    documents: "tuple[DocumentSet, ...] | None",
    options: Options,
) -> None:
    from posbias.retrieval.answer_files import write_requests
    from posbias.retrieval.asking import cost, requests, trials_of

    shared.check_targets(path, None, options.asking.trials, options.text)
    made = [
        one for job in jobs for one in requests(trials_of(job, text=text, documents=documents), job.prompts)
    ]
    write_requests(made, path)
    told = cost(made, {})
    answer = {"file": str(path), "prompts": told.requests, "words": told.words_in}
    lines = [
        f"{told.requests:,} prompts with {told.words_in:,} words: {path}",
        "answer each line under its id",
    ]
    answer_with("retrieve-prompts/1", answer, lambda: lines, options.json)


def _source(options: Options) -> "tuple[str | None, tuple[DocumentSet, ...] | None]":
    """The text that a needle lies in, and the documents."""
    from posbias.retrieval.job import check_text

    if options.asking.trials is not None:
        from posbias.retrieval.documents import read_document_sets

        if options.task != "keys" or options.text is not None:
            name = "text" if options.text is not None else "task"
            raise InvalidValueError(f"{name}: given with --trials, which decide it; one of the two needed")
        return None, read_document_sets(options.asking.trials)
    if options.task == "needle":
        from posbias.measurement import read_text

        return read_text(options.text).content, None
    check_text(options.task, options.text)
    return None, None


def _jobs(options: Options, documents: "tuple[DocumentSet, ...] | None") -> "list[RetrievalJob]":
    """A job for each size. Where nothing is said, prompts are worded as a message for a chat."""
    from posbias.retrieval.job import retrieval_job

    task = options.task if documents is None else "documents"
    prompts = options.prompts if documents is None else min(options.prompts, len(documents))
    wording = options.wording or ("chat" if options.asking.api == "chat" else None)
    job = retrieval_job(
        task, pairs=options.pairs, length=options.length, wording=wording, positions=options.positions,
        prompts=prompts, seed=options.seed,
    )  # fmt: skip
    if not options.asking.sizes:
        return [job]
    if options.pairs is not None or options.length is not None or documents is not None:
        name = "trials" if documents is not None else "length" if options.pairs is None else "pairs"
        raise InvalidValueError(f"{name}: given with --sizes, one of the two needed")
    key = "pairs" if task == "keys" else "length"
    return [replace(job, **{key: size}) for size in options.asking.sizes]


def _refuse_of_opened(options: Options) -> None:
    """Raise `InvalidValueError` for an option of a model that is opened here."""
    default = type(options)()
    for name in ("loading", "threads", "measurement", "rerun"):
        given, plain = getattr(options, name), getattr(default, name)
        if given != plain:
            inner = vars(plain) if name == "loading" else {}
            said = next((one for one in inner if getattr(given, one) != inner[one]), name)
            raise InvalidValueError(
                f"{_spelt(said)}: given with a model that is only asked, which has no such thing"
            )


def _lines(curves: "list[AnswerCurve]") -> list[str]:
    """Each curve as a table and in words."""
    lines = []
    for curve in curves:
        columns = {"found": curve.accuracy} | ({"all found": curve.all_found} if curve.several else {})
        rows = [
            [str(k), f"{depth:.2f}", *(_share(column[k]) for column in columns.values())]
            for k, depth in enumerate(curve.depth)
        ]
        size = curve.job["pairs"] or curve.job["length"]
        what = f"{curve.job['task']}{f' {size}' if size else ''}: {curve.prompts} trials of about "
        lines += [*table(["position", "place", *columns], rows), "", f"{what}{curve.words:.0f} words"]
        lines += [one_line(sentence, None) for sentence in curve.sentences()] + [""]
    return lines[:-1]


def _share(one: "Resampled") -> str:
    return f"{one.value:.2f} [{one.interval[0]:.2f}, {one.interval[1]:.2f}]"


def _folder(name: str, jobs: "list[RetrievalJob]", options: Options) -> str:
    """NAME of results/NAME: who is asked, and how; answers of any task go into the same folder."""
    asking, job = options.asking, jobs[0]
    plain = "".join(one if one.isalnum() or one in "-._" else "-" for one in Path(name).name) or "answers"
    system = "-system" if asking.system is not None else ""
    return f"{plain[:80]}-{asking.api}{system}-{job.task}"


def _spelt(name: str) -> str:
    return f"--{name.replace('_', '-')}" if name in SOURCES else shortened(name).strip("'")
