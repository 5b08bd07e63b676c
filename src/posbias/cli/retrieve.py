"""`posbias retrieve`: a fact at one place after another, and where a model finds it.

The model is opened here; or it is a black box: a server answers the prompts, or somebody else did.
"""

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with, computed_once, need_folder, resumable
from posbias.cli.terminal import share_text
from posbias.core.errors import ModelError, positive, shortened
from posbias.core.files import need_writable
from posbias.core.packages import need
from posbias.core.progress import one_line
from posbias.core.terminal import table

if TYPE_CHECKING:
    import xarray as xr

    from posbias.profiles.profile import Profile
    from posbias.retrieval.curve import CurveDifference, RetrievalCurve
    from posbias.retrieval.trials import DocumentSet, RetrievalJob

log = logging.getLogger(__name__)
_SHORT = 256
RESULT = "retrieval.json"
PICTURES = ("retrieval.svg", "retrieval.png")
SOURCES = ("endpoint", "answers", "write_prompts")
"""Options of which one makes a model a black box."""
Way = tuple[Literal["chat", "completion"], str | None]
"""Api and system message."""


@shared.options
class BlackBox:
    """How to ask a model that is not opened here.

    Parameters
    ----------
    endpoint
        Ask MODEL of this OpenAI-compatible server, http://localhost:8000/v1 for instance; key in OPENAI_API_KEY.
    api
        chat: prompts are a user's messages, in the server's template. completion: as they are. Given twice: both,
        compared with each other. Default: chat.
    system
        A system message before each prompt (chat). Given several times: each, compared with the first; '' is none.
    answers
        Answers made elsewhere: JSON lines with answer, and with id or prompt.
    write_prompts
        Write the prompts to this file as JSON lines, for somebody to answer, and ask nothing.
    trials
        Questions and documents of your own, as JSON lines, JSON or CSV: question, documents, gold, answers.
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
    api: Annotated[tuple[Literal["chat", "completion"], ...], Parameter(negative="", show_default=False)] = (
        "chat",
    )
    system: shared.Words = ()
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
    def ways(self) -> list[Way]:
        """Api and system message of each way to ask. Raises `InvalidValueError` for one that is given twice."""
        chats: list[Way] = [("chat", text or None) for text in self.system or ("",)]
        plain: list[Way] = [("completion", None)]
        ways = [way for api in self.api for way in (chats if api == "chat" else plain)]
        if self.system and "chat" not in self.api:
            raise shared.wrong("system", "none with the api completion", self.system)
        if len(set(ways)) < len(ways):
            name = "api" if len(set(self.api)) < len(self.api) else "system"
            raise shared.wrong(name, "each value once", getattr(self, name))
        return ways

    @property
    def wanted(self) -> bool:
        """Whether a model is asked as a black box. Raises `InvalidValueError` for options that need it to be."""
        given = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
        named = [name for name in SOURCES if name in given]
        if len(named) > 1 or (given and not named):
            what = " and ".join(f"--{name.replace('_', '-')}" for name in named) or "none of them"
            raise shared.wrong((named or given)[-1], "--endpoint, --answers or --write-prompts", what)
        return bool(named)


@shared.options
class Options:
    """What is asked, and where the answer goes.

    Parameters
    ----------
    task
        keys: a list of who owns what, and a question for one owner. needle: one fact in running text.
    pairs
        Pairs in the list (keys). Default: 5, unless --length is given.
    length
        Tokens of a prompt: as many pairs as fit (keys), or text and question (needle). Default: 256 (needle).
    positions
        Places of the answer, evenly from first to last, at least 3. Default: 5, or all pairs or documents if
        they are fewer.
    prompts
        Trials: each has its own facts and order, and is asked at every place.
    wording
        keys: json, list, belongs or chat. needle: plain or chat. --trials: numbered, plain or chat. Default: the
        first; chat with --api chat.
    equivalence
        A difference up to this counts as none: in accuracy of a model behind a server (default 0.05), in nats
        of one that is opened (no default).
    text
        Text that the needle lies in, as for `posbias measure`. Default: the bundled State of the Union addresses.
    loading
        How the model is loaded.
    measurement
        A measurement's .nc of the same model: its influence by position is drawn next to the curve.
    out
        The folder to write to. Default: results/NAME.
    asking
        How to ask a model that is not opened here.
    """

    task: Literal["keys", "needle"] = "keys"
    pairs: shared.Whole | None = None
    length: shared.Whole | None = None
    positions: shared.Whole | None = None
    prompts: shared.Whole = 64
    wording: str | None = None
    text: str | None = None
    equivalence: float | None = None
    seed: shared.Seed = 0
    loading: shared.Loading = shared.Loading()
    threads: shared.TorchThreads = None
    measurement: Path | None = None
    asking: BlackBox = BlackBox()
    out: shared.Out | None = None
    rerun: shared.Rerun = False
    json: shared.Json = False


def retrieve(model: str | None = None, *, options: Options = Options()) -> None:
    """Measure retrieval accuracy by position of the fact: first, last or in between.

    Writes retrieval.nc and the curve as SVG and PNG. An interrupted run goes on from its finished prompts when
    the same command is given again. With --endpoint, --answers or --write-prompts the model is not opened: a
    server is asked, or answers are read; answers.jsonl and retrieval.json stand for retrieval.nc then.

    Parameters
    ----------
    model
        A model (as for `posbias measure`), the .nc of a finished retrieval, shown and drawn again, or with
        --endpoint a model of that server. Default: smollm2-135m.
    """
    need_folder(options.out)
    if options.equivalence is not None:
        positive("equivalence", options.equivalence)
    if options.asking.wanted:
        ask_black_box(model, options)
        return
    model = shared.DEFAULT_MODEL if model is None else model
    finished = model.endswith(".nc")
    if not finished:
        need("torch", "xarray", work="asking a model", extra="measure")
    need("matplotlib", work="the curve", extra="report")
    from posbias.profiles.measurements import load_measurement
    from posbias.reports.answers.retrievals import Retrieve
    from posbias.reports.plots.retrieval import retrieval_figure
    from posbias.retrieval.curve import retrieval_curve

    measured = None if options.measurement is None else load_measurement(options.measurement)
    retrieval, file, folder = (_finished if finished else _asked)(model, options, measured)
    curve = retrieval_curve(retrieval, options.equivalence)
    pictures = _draw(retrieval_figure(curve, _influence(measured)), folder)
    answer = Retrieve.of(curve, file=file, pictures=pictures)
    answer_with(answer, lambda: [*_lines(curve), "", f"retrieval: {file}"], options.json)


def _finished(
    source: str, options: Options, measured: "xr.Dataset | None"
) -> "tuple[xr.Dataset, Path, Path]":
    """A finished retrieval, its file and the folder for its pictures."""
    from posbias.profiles.measurements import load_retrieval

    shared.refuse(
        options, "none with a finished retrieval", kept=("measurement", "out", "json", "equivalence")
    )
    retrieval = load_retrieval(source)
    about = retrieval.attrs
    _check_same_model(measured, options.measurement, str(about.get("checksum")), str(about.get("model")))
    return retrieval, Path(source), options.out or Path(source).parent


def _asked(model: str, options: Options, measured: "xr.Dataset | None") -> "tuple[xr.Dataset, Path, Path]":
    """What a model answers, the file that it is written to or was by an earlier run, and its folder."""
    from posbias.measurement import read_text
    from posbias.measurement.streaming import Group
    from posbias.retrieval.local import retrieval_fingerprint
    from posbias.retrieval.local import retrieve as ask
    from posbias.retrieval.trials import check_text, retrieval_job

    names = ("pairs", "length", "wording", "positions", "prompts", "seed")
    job = retrieval_job(options.task, **{name: getattr(options, name) for name in names})
    if not model:
        raise shared.wrong("model", "a name, a model folder, a .gguf file or a hub id", "")
    shared.check_threads(options.threads)
    check_text(job.task, options.text)
    place = options.out or _results(model, job, options.text)
    need_writable(place)
    if job.task == "needle":
        read_text(options.text)
    loaded = options.loading.load(model, job.length or _SHORT)
    _check_same_model(measured, options.measurement, loaded.checksum, loaded.name)
    fingerprint = retrieval_fingerprint(loaded, job, options.text)
    compute = functools.partial(ask, loaded, job, text=options.text, threads=options.threads)
    asked = computed_once("retrieval", place, fingerprint, job.prompts, compute, options.rerun, Group())
    assert asked is not None  # this process is the only one
    return *asked, asked[1].parent


def _check_same_model(measurement: "xr.Dataset | None", file: Path | None, checksum: str, model: str) -> None:
    """Raise `InvalidValueError` for a measurement of another model than the one that was asked."""
    if measurement is not None and measurement.attrs.get("checksum") != checksum:
        other = measurement.attrs.get("model")
        raise shared.wrong("measurement", f"one of {model!r}", f"{file} of {other!r}, or of other weights")


def _influence(measurement: "xr.Dataset | None") -> "dict[str, Profile] | None":
    """The influence by position that is drawn next to the curve."""
    if measurement is None:
        return None
    from posbias.profiles.profile import Profile, measured_influence

    found = {"measured": measured_influence(measurement)}
    if "rollout_energy" in measurement:
        rollout = measurement["rollout_energy"].values
        found["energy rollout"] = Profile.from_samples(rollout, measures="rollout")
    return found


def _draw(figure: Any, folder: Path) -> list[Path]:
    from posbias.reports.plots import save_figure

    return [save_figure(figure, folder / name) for name in PICTURES]


def _lines(curve: "RetrievalCurve") -> list[str]:
    """The curve as a table and in words."""
    token = curve.depth if curve.token is None else curve.token
    names = {"accuracy": "written", "choice": "preferred", "margin": "margin"}
    names |= {"control_margin": "asked for another", "lift": "lift"}
    rows = []
    for k, depth in enumerate(curve.depth):
        numbers = [(name, curve.curves[name][k]) for name in names]
        shown = [share_text(one) if name in ("accuracy", "choice") else str(one) for name, one in numbers]
        rows.append([str(k), f"{depth:.2f}", f"{token[k]:.0f}", *shown])
    what = f"{curve.prompts} prompts of about {curve.tokens:.0f} tokens; chance {curve.chance:.2f}; others in nats"
    return [*table(["position", "place", "token", *names.values()], rows), "", what, *curve.sentences()]


def _results(model: str, job: "RetrievalJob", text: str | None) -> Path:
    """results/NAME, where NAME says model, task and size, and what is not the default."""
    size = f"{job.pairs}pairs" if job.pairs is not None else f"{job.length}tokens"
    name = f"{Path(model).name}-{job.task}-{size}-{job.wording}-{job.positions}x{job.prompts}"
    name += f"-{Path(text).stem}" if text is not None else ""
    return shared.RESULTS / (name + (f"-seed{job.seed}" if job.seed else ""))


# ── a black box ──


def ask_black_box(model: str | None, options: Options) -> None:
    """Write the prompts, or ask, draw and answer. Raises as `posbias.retrieval.answers.ask`."""
    opened = ("threads", "measurement", "rerun", "loading")
    shared.refuse(options, "none with a model that is not opened (another --out asks anew)", opened)
    asking = options.asking
    text, documents = _source(options)
    session = _Session(
        model or f"answers of {asking.answers}", _jobs(options, documents), text, documents, options
    )
    if asking.write_prompts is not None:
        session.write(asking.write_prompts)
        return
    if model is None and asking.endpoint is not None:
        raise shared.wrong("model", "the name of a model of the server", None)
    ways = asking.ways
    if len(ways) > 1 and (asking.until is not None or asking.endpoint is None):
        name = "until" if asking.until is not None else "system"
        raise shared.wrong(name, "--endpoint and no --until with several ways to ask", [*ways])
    need("matplotlib", work="the curve", extra="report")
    place = options.out or shared.RESULTS / _folder(session.name, session.jobs[0].task, asking)
    need_writable(place)
    if len(ways) > 1:
        answer, lines = session.compared(place, ways)
    else:
        from posbias.reports.answers.retrievals import RetrieveAnswers

        parts, curves = session.asked_in(place, ways[0])
        answer = RetrieveAnswers.of(**parts)
        lines = [line for curve in curves for line in (*_curve_lines(curve), "")]
        lines.append(f"answers: {answer.file}")
    answer_with(answer, lambda: lines, options.json, place / RESULT)


@dataclass(frozen=True)
class _Session:
    """Whom to ask what: a job for each size, the text that a needle lies in, documents of one's own."""

    name: str
    jobs: "list[RetrievalJob]"
    text: str | None
    documents: "tuple[DocumentSet, ...] | None"
    options: Options

    @property
    def requests(self) -> list[Any]:
        """Every prompt of every job."""
        from posbias.retrieval.answers import requests
        from posbias.retrieval.trials import trials_of

        trials = [trials_of(job, text=self.text, documents=self.documents) for job in self.jobs]
        return [one for job, of in zip(self.jobs, trials, strict=True) for one in requests(of, job.prompts)]

    def write(self, path: Path) -> None:
        """Write the prompts for somebody to answer."""
        from posbias.reports.answers.retrievals import RetrievePrompts
        from posbias.retrieval.answers import cost, write_requests

        shared.check_targets(path, None, self.options.asking.trials, self.options.text)
        requests = self.requests
        write_requests(requests, path)
        total = cost(requests, {})
        answer = RetrievePrompts.of(file=path, prompts=total.requests, words=total.words_in)
        lines = [
            f"{total.requests:,} prompts with {total.words_in:,} words: {path}",
            "answer each line under its id",
        ]
        answer_with(answer, lambda: lines, self.options.json)

    def compared(self, place: Path, ways: list[Way]) -> tuple[Any, list[str]]:
        """Ask the same in each way, in a folder each: the answer, and what they change against the first."""
        from posbias.core import spec
        from posbias.core.formats import save_json
        from posbias.reports.answers import retrievals
        from posbias.reports.plots.retrieval import ways_figure
        from posbias.retrieval.curve import curve_differences

        log.info("%d ways to ask, each with the same prompts", len(ways))
        messages = [system for _, system in ways if system is not None]
        asked, curves, lines = [], {}, []
        for api, system in ways:
            name, folder = api, place / api
            if system is not None:
                name = f"{api}, system message {messages.index(system) + 1}"
                folder = place / f"{api}-{spec.fingerprint(system)[:8]}"
                lines.append(f"{name}: {shortened(system)}")
            log.info("%s", name if system is None else lines[-1])
            parts, curves[name] = self.asked_in(folder, (api, system))
            save_json(retrievals.RetrieveAnswers.of(**parts).as_json(), folder / RESULT)
            asked.append(retrievals.Way.of(name=name, folder=folder, **parts))
        by_size = [dict(zip(curves, column, strict=True)) for column in zip(*curves.values(), strict=True)]
        found = [curve_differences(each, together=len(by_size)) for each in by_size]
        tables = [line for each, ones in zip(by_size, found, strict=True) for line in _ways_lines(each, ones)]
        of = retrievals.CurveDifference.of
        answer = retrievals.RetrieveWays.of(
            pictures=_draw(ways_figure(by_size), place),
            ways=asked,
            differences=[[of(one, answer=one.sentences()) for one in ones] for ones in found],
        )
        return answer, [*tables, *lines, f"answers: {place}"]

    def asked_in(self, place: Path, way: Way) -> "tuple[dict[str, Any], list[RetrievalCurve]]":
        """Ask in one way and draw, into the folder `place`: the parts of an answer, and its curves."""
        from posbias.reports.answers.retrievals import AnswerCurve
        from posbias.reports.plots.retrieval import answers_figure
        from posbias.retrieval.answers import answers_made_elsewhere, read_answers
        from posbias.retrieval.endpoint import Endpoint

        asking = self.options.asking
        if asking.endpoint is None:
            assert asking.answers is not None
            kept, asked_of = None, {"model": self.name}
            generator = answers_made_elsewhere(read_answers(asking.answers), str(asking.answers))
        else:
            how = {
                "api": way[0],
                "system": way[1],
                "most_out": asking.answer_tokens,
                "timeout": asking.timeout,
            }
            generator, kept = Endpoint(asking.endpoint, self.name, **how), place / "answers.jsonl"
            asked_of = generator.asked_of
        curves = self.curves(generator, asked_of, kept)
        parts = {"file": kept or asking.answers, "pictures": _draw(answers_figure(curves), place)}
        return parts | {"asked": asked_of, "curves": list(map(AnswerCurve.of, curves))}, curves

    def curves(
        self, generator: Callable[[str], str], asked_of: dict[str, Any], kept: Path | None
    ) -> "list[RetrievalCurve]":
        """A curve for each job; first says what it takes."""
        from posbias.retrieval.answers import AnswerFile, ask, check_effort, cost
        from posbias.retrieval.curve import EQUIVALENCE

        asking = self.options.asking
        equivalence = EQUIVALENCE if self.options.equivalence is None else self.options.equivalence
        check_effort(asking.until, asking.concurrency, equivalence)
        if kept is not None:
            known = AnswerFile(kept, asked_of).known
            left = cost(self.requests, known, asking.answer_tokens)
            most = " at most" if asking.until is not None else ""
            nothing = f"nothing, all answers are in {kept}; another --out asks anew"
            log.info("to ask%s: %s", most, left if left.requests else nothing)
        how = {
            "text": self.text,
            "documents": self.documents,
            "rule": asking.rule,
            "equivalence": equivalence,
        }
        how |= {"concurrency": asking.concurrency if kept is not None else 1, "until": asking.until}
        curves = []
        for job in self.jobs:
            with resumable(job.prompts * (job.positions + 3)) as on_event, _kept_at_errors(kept):
                curves.append(ask(generator, job, answers=kept, asked_of=asked_of, on_event=on_event, **how))
        return curves


@contextmanager
def _kept_at_errors(kept: Path | None) -> Iterator[None]:
    """A server's refusal says what was kept before it."""
    try:
        yield
    except ModelError as error:
        if kept is None or not kept.exists():
            raise
        raise ModelError(f"{error}; answers so far are kept in {kept}: the same command goes on") from None


def _source(options: Options) -> "tuple[str | None, tuple[DocumentSet, ...] | None]":
    """The text that a needle lies in, and the documents."""
    from posbias.retrieval.trials import check_text

    if options.asking.trials is not None:
        from posbias.retrieval.trials import read_document_sets

        for name, usual in (("task", "keys"), ("text", None)):
            if (given := getattr(options, name)) != usual:
                raise shared.wrong(name, "none with --trials, which decide it", given)
        return None, read_document_sets(options.asking.trials)
    if options.task == "needle":
        from posbias.measurement import read_text

        return read_text(options.text).content, None
    check_text(options.task, options.text)
    return None, None


def _jobs(options: Options, documents: "tuple[DocumentSet, ...] | None") -> "list[RetrievalJob]":
    """A job for each size. Where nothing is said, prompts are worded as a message for a chat."""
    from posbias.retrieval.trials import POSITIONS, places_of, retrieval_job

    task, positions, prompts = options.task, options.positions, options.prompts
    if documents is not None:
        task, prompts = "documents", min(options.prompts, len(documents))
        positions = places_of(documents, POSITIONS) if positions is None else positions
        if prompts < (n := len(documents)):
            log.info("%d of the %d questions are asked: --prompts %d asks all", prompts, n, n)
    wording = options.wording or ("chat" if "chat" in options.asking.api else None)
    how = {"pairs": options.pairs, "length": options.length, "wording": wording, "positions": positions}
    job = retrieval_job(task, **how, prompts=prompts, seed=options.seed)
    if not options.asking.sizes:
        return [job]
    if options.pairs is not None or options.length is not None or documents is not None:
        raise shared.wrong("sizes", "none of --pairs, --length and --trials with it", options.asking.sizes)
    key = "pairs" if task == "keys" else "length"
    return [replace(job, **{key: size}) for size in options.asking.sizes]


def _folder(name: str, task: str, asking: BlackBox) -> str:
    """NAME of results/NAME: who is asked, and how; answers of any task go into the same folder."""
    plain = "".join(one if one.isalnum() or one in "-._" else "-" for one in Path(name).name) or "answers"
    api, system = asking.ways[0]
    how = "ways" if len(asking.ways) > 1 else f"{api}{'-system' if system is not None else ''}"
    # answers of another length are other answers
    most = f"-{asking.answer_tokens}tokens" if asking.answer_tokens != BlackBox.answer_tokens else ""
    return f"{plain[:80]}-{how}-{task}{most}"


def _ways_lines(curves: "dict[str, RetrievalCurve]", found: "list[CurveDifference]") -> list[str]:
    """A table with a row for each way, and what they change in words."""
    from posbias.retrieval.trials import ABSENT, ALONE

    first = next(iter(curves.values()))
    head = ["asked as", *(f"{depth:.2f}" for depth in first.depth), "found without, alone", "verdict"]
    rows = []
    for way, curve in curves.items():
        arms = ", ".join(f"{curve.overall[arm].value:.2f}" for arm in (ABSENT, ALONE))
        open_ = [end for end, said in curve.ends.items() if said == "inconclusive"]
        doubt = f"; {open_[0]} inconclusive" if curve.verdict in ("primacy", "recency") and open_ else ""
        rows.append([way, *map(share_text, curve.curves["accuracy"]), arms, f"{curve.verdict}{doubt}"])
    said = [one_line(sentence, None) for one in found for sentence in one.sentences()]
    return [*table(head, rows), "", _size_of(first), *said, ""]


def _curve_lines(curve: "RetrievalCurve") -> list[str]:
    """A curve as a table and in words."""
    several = curve.answers is not None and curve.answers.several
    names = {"found": "accuracy"} | ({"all found": "all_found"} if several else {})
    rows = [
        [str(k), f"{depth:.2f}", *(share_text(curve.curves[name][k]) for name in names.values())]
        for k, depth in enumerate(curve.depth)
    ]
    said = [one_line(sentence, None) for sentence in curve.sentences()]
    return [*table(["position", "place", *names], rows), "", _size_of(curve), *said]


def _size_of(curve: "RetrievalCurve") -> str:
    size = curve.job["pairs"] or curve.job["length"]
    assert curve.answers is not None
    what = f"{curve.job['task']}{f' {size}' if size else ''}"
    return f"{what}: {curve.prompts} trials of about {curve.answers.words:.0f} words"
