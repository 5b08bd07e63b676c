"""`posbias retrieve` of a model that is not opened here: a server is asked, or answers were made elsewhere."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli import options as shared
from posbias.cli.asking_options import Asking, Way, spelt
from posbias.cli.asking_tables import curve_lines, ways_lines
from posbias.cli.jobs import resumable
from posbias.cli.output import answer_with
from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, ModelError
from posbias.core.files import need_writable
from posbias.core.lazy import need

if TYPE_CHECKING:
    from posbias.reports.answers.retrievals import RetrieveAnswers
    from posbias.retrieval.curve import RetrievalCurve
    from posbias.retrieval.documents import DocumentSet
    from posbias.retrieval.job import RetrievalJob

    Sources = tuple[str | None, tuple[DocumentSet, ...] | None]

log = logging.getLogger(__name__)
Options = Any
"""The options of `posbias retrieve`, whose module imports this one."""
RESULT = "retrieval.json"
PICTURES = ("retrieval.svg", "retrieval.png")


def ask_black_box(model: str | None, options: Options) -> None:
    """Write the prompts, or ask, tell and draw. Raises as `posbias.retrieval.asking.ask`."""
    _refuse_of_opened(options)
    asking = options.asking
    sources = _source(options)
    jobs = _jobs(options, sources[1])
    if asking.write_prompts is not None:
        _write(asking.write_prompts, jobs, *sources, options)
        return
    if model is None and asking.endpoint is not None:
        raise InvalidValueError("model: none given, the name of a model of the server needed")
    need("matplotlib", work="the curve", extra="report")
    name = model or f"answers of {asking.answers}"
    place = options.out or shared.RESULTS / _folder(name, jobs, options)
    need_writable(place)
    if len(asking.ways) > 1:
        _compare_ways(place, name, jobs, sources, options)
        return
    answer, curves = _asked_in(place, name, asking.ways[0], jobs, sources, options)
    lines = lambda: [*curve_lines(curves), "", f"answers: {answer.file}"]  # noqa: E731
    answer_with(answer, lines, options.json, place / RESULT)


def _asked_in(
    place: Path, name: str, way: Way, jobs: "list[RetrievalJob]", sources: "Sources", options: Options
) -> "tuple[RetrieveAnswers, list[RetrievalCurve]]":
    """Ask in one way and draw, into the folder `place`: the answer, and its curves."""
    from posbias.reports.answers.retrievals import AnswerCurve, RetrieveAnswers
    from posbias.reports.plots import save_figure
    from posbias.reports.plots.answers import answers_figure

    kept = place / "answers.jsonl" if options.asking.endpoint is not None else None
    generator, asked_of = _generator(name, way, options.asking)
    curves = _asked(generator, asked_of, jobs, sources, kept, options)
    figure = answers_figure(curves)
    answer = RetrieveAnswers.of(
        file=kept or options.asking.answers,
        pictures=[save_figure(figure, place / one) for one in PICTURES],
        asked=asked_of,
        curves=list(map(AnswerCurve.of, curves)),
    )
    return answer, curves


def _compare_ways(
    place: Path, name: str, jobs: "list[RetrievalJob]", sources: "Sources", options: Options
) -> None:
    """Ask the same in each way, in a folder each, and tell what they change against the first."""
    from posbias.core import spec
    from posbias.core.store import save_json
    from posbias.reports.answers.retrievals import CurveDifference, RetrieveWays, Way
    from posbias.retrieval.factor import curve_differences

    ways, asking = _named(options.asking.ways), options.asking
    if asking.until is not None or asking.endpoint is None:
        raise InvalidValueError(
            f"{'until' if asking.until is not None else 'system'}: given with {len(ways)} ways to ask, "
            f"{'--prompts alone' if asking.until is not None else '--endpoint'} needed with several"
        )
    log.info("%d ways to ask, each with the same prompts", len(ways))
    told, curves = [], {}
    for way, (api, system) in ways.items():
        log.info("%s", way if system is None else f"{way}: {shortened(system)}")
        folder = place / f"{api}{'' if system is None else '-' + spec.fingerprint(system)[:8]}"
        answer, curves[way] = _asked_in(folder, name, (api, system), jobs, sources, options)
        save_json(answer.as_json(), folder / RESULT)
        told.append(Way.of(answer, name=way, folder=folder))
    by_size = [dict(zip(curves, column, strict=True)) for column in zip(*curves.values(), strict=True)]
    found = [curve_differences(each, together=len(by_size)) for each in by_size]
    lines = [line for each, ones in zip(by_size, found, strict=True) for line in ways_lines(each, ones)]
    messages = [f"{way}: {shortened(system)}" for way, (_, system) in ways.items() if system is not None]
    pictures = _draw_ways(place, by_size)
    differences = [[CurveDifference.of(one, answer=one.sentences()) for one in ones] for ones in found]
    answer_with(
        RetrieveWays.of(pictures=pictures, ways=told, differences=differences),
        lambda: [*lines, *messages, f"answers: {place}"],
        options.json,
        place / RESULT,
    )


def _draw_ways(place: Path, by_size: "list[dict[str, RetrievalCurve]]") -> list[Path]:
    from posbias.reports.plots import save_figure
    from posbias.reports.plots.answers import ways_figure

    figure = ways_figure(by_size)
    return [save_figure(figure, place / one) for one in PICTURES]


def _named(ways: list[Way]) -> dict[str, Way]:
    """Ways by a name each; system messages are numbered."""
    messages = [system for _, system in ways if system is not None]
    return {
        api if system is None else f"{api}, system message {messages.index(system) + 1}": (api, system)
        for api, system in ways
    }


def _asked(
    generator: Callable[[str], str],
    asked_of: Mapping[str, Any],
    jobs: "list[RetrievalJob]",
    sources: "Sources",
    kept: Path | None,
    options: Options,
) -> "list[RetrievalCurve]":
    """A curve for each job; first says what it takes."""
    from posbias.retrieval.answer_files import AnswerFile
    from posbias.retrieval.asking import ask, check_effort, cost, requests, trials_of

    (text, documents), asking = sources, options.asking
    check_effort(asking.until, asking.concurrency, _equivalence(options))
    if kept is not None:
        with AnswerFile(kept, asked_of) as file:
            known = dict(file.known)
        wanted = [
            one
            for job in jobs
            for one in requests(trials_of(job, text=text, documents=documents), job.prompts)
        ]
        most = " at most" if asking.until is not None else ""
        told = cost(wanted, known, asking.answer_tokens)
        nothing = f"nothing, all answers are in {kept}; another --out asks anew"
        log.info("to ask%s: %s", most, told if told.requests else nothing)
    curves = []
    for job in jobs:
        with resumable(job.prompts * (job.positions + 3)) as on_event, _kept_at_errors(kept):
            curve = ask(
                generator, job, text=text, documents=documents, rule=asking.rule, answers=kept, asked_of=asked_of,
                concurrency=asking.concurrency if kept is not None else 1, until=asking.until, on_event=on_event,
                equivalence=_equivalence(options),
            )  # fmt: skip
        curves.append(curve)
    return curves


def _equivalence(options: Options) -> float:
    from posbias.retrieval.statistics import EQUIVALENCE

    return EQUIVALENCE if options.equivalence is None else options.equivalence


@contextmanager
def _kept_at_errors(kept: Path | None) -> Iterator[None]:
    """A server's refusal says what was kept before it."""
    try:
        yield
    except ModelError as error:
        if kept is None or not kept.exists():
            raise
        raise ModelError(f"{error}; answers so far are kept in {kept}: the same command goes on") from None


def _generator(name: str, way: Way, asking: Asking) -> tuple[Callable[[str], str], dict[str, Any]]:
    """What answers, and what decides its answers beside the prompt."""
    from posbias.retrieval.answer_files import read_answers
    from posbias.retrieval.asking import answers_made_elsewhere
    from posbias.retrieval.endpoint import Endpoint

    if asking.endpoint is None:
        assert asking.answers is not None
        return answers_made_elsewhere(read_answers(asking.answers), str(asking.answers)), {"model": name}
    made = Endpoint(
        asking.endpoint, name, api=way[0], system=way[1], most_out=asking.answer_tokens,
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
    from posbias.reports.answers.retrievals import RetrievePrompts
    from posbias.retrieval.answer_files import write_requests
    from posbias.retrieval.asking import cost, requests, trials_of

    shared.check_targets(path, None, options.asking.trials, options.text)
    made = [
        one for job in jobs for one in requests(trials_of(job, text=text, documents=documents), job.prompts)
    ]
    write_requests(made, path)
    told = cost(made, {})
    answer = RetrievePrompts.of(file=path, prompts=told.requests, words=told.words_in)
    lines = [
        f"{told.requests:,} prompts with {told.words_in:,} words: {path}",
        "answer each line under its id",
    ]
    answer_with(answer, lambda: lines, options.json)


def _source(options: Options) -> "Sources":
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
    from posbias.retrieval.documents import places_of
    from posbias.retrieval.job import POSITIONS, retrieval_job

    task = options.task if documents is None else "documents"
    positions = options.positions
    if positions is None and documents is not None:
        positions = places_of(documents, POSITIONS)
    prompts = options.prompts if documents is None else min(options.prompts, len(documents))
    if documents is not None and prompts < len(documents):
        log.info(
            "%d of the %d questions are asked: --prompts %d asks all", prompts, len(documents), len(documents)
        )
    wording = options.wording or ("chat" if "chat" in options.asking.api else None)
    job = retrieval_job(
        task, pairs=options.pairs, length=options.length, wording=wording, positions=positions,
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
            needed = "another --out asks anew" if said == "rerun" else "which has no such thing"
            raise InvalidValueError(f"{spelt(said)}: given with a model that is only asked, {needed}")


def _folder(name: str, jobs: "list[RetrievalJob]", options: Options) -> str:
    """NAME of results/NAME: who is asked, and how; answers of any task go into the same folder."""
    asking, job = options.asking, jobs[0]
    plain = "".join(one if one.isalnum() or one in "-._" else "-" for one in Path(name).name) or "answers"
    api, system = asking.ways[0]
    # answers of another length are other answers
    most = f"-{asking.answer_tokens}tokens" if asking.answer_tokens != Asking.answer_tokens else ""
    if len(asking.ways) > 1:
        return f"{plain[:80]}-ways-{job.task}{most}"
    return f"{plain[:80]}-{api}{'-system' if system is not None else ''}-{job.task}{most}"
