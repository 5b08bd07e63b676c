"""`posbias retrieve`: a fact at one place after another, and where a model finds it.

The model is opened here; or it is a black box: a server answers the prompts, or somebody else did.
"""

import functools
import logging
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with, need_folder, resumable
from posbias.core.errors import positive
from posbias.core.files import need_writable
from posbias.core.packages import need

if TYPE_CHECKING:
    import xarray as xr

    from posbias.asking.requests import Writer
    from posbias.core.answers import Answer
    from posbias.retrieval import RetrievalJob, Session

log = logging.getLogger(__name__)
_SHORT = 256
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
    columns
        What columns of --trials hold: question=COLUMN documents=COLUMN gold=COLUMN answers=COLUMN.
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
    columns: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None
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

    def writers(self, model: str | None) -> "dict[str, Writer]":
        """Who answers, by the name of the way. Raises `InvalidValueError` for options that do not go together."""
        from posbias.asking import AnswersRead, Endpoint

        ways = self.ways
        if self.answers is not None:
            if len(ways) > 1:
                raise shared.wrong("system", "--endpoint with several ways to ask", [*ways])
            return {"answers": AnswersRead(self.answers, model or "")}
        if model is None:
            raise shared.wrong("model", "the name of a model of the server", None)
        messages = [system for _, system in ways if system is not None]
        assert self.endpoint is not None
        how: dict[str, Any] = {"most_out": self.answer_tokens, "timeout": self.timeout}
        return {
            api if system is None else f"{api}, system message {messages.index(system) + 1}": Endpoint(
                self.endpoint, model, api=api, system=system, **how
            )
            for api, system in ways
        }

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
        answer, lines = _answers(model, options)
    else:
        answer, lines = _margins(model, options)
    answer_with(answer, lambda: lines, options.json)


def _margins(model: str | None, options: Options) -> "tuple[Answer, list[str]]":
    """The answer on a model that is opened, or on a finished retrieval."""
    model = shared.DEFAULT_MODEL if model is None else model
    finished = model.endswith(".nc")
    if not finished:
        need("torch", "xarray", work="asking a model", extra="measure")
    need("matplotlib", work="the curve", extra="report")
    from posbias.profiles.measurements import load_measurement
    from posbias.reports.retrieval import of_opened

    measured = None if options.measurement is None else load_measurement(options.measurement)
    found = _finished(model, options, measured) if finished else _asked(model, options, measured)
    return of_opened(*found, options.equivalence, measured)


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
    from posbias.measurement import find_or_compute, load_model, read_text
    from posbias.profiles.measurements import load_retrieval, save_retrieval
    from posbias.retrieval.jobs import check_text, retrieval_job
    from posbias.retrieval.local import retrieval_fingerprint
    from posbias.retrieval.local import retrieve as ask

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
    loaded = load_model(model, tokens=job.length or _SHORT, **vars(options.loading))
    _check_same_model(measured, options.measurement, loaded.checksum, loaded.name)
    kept = ("retrieval", retrieval_fingerprint(loaded, job, options.text), load_retrieval, save_retrieval)
    how = {"text": options.text, "threads": options.threads}
    with resumable(job.prompts) as on_event:
        compute = functools.partial(ask, loaded, job, on_event=on_event, **how)
        asked = find_or_compute(place, *kept, compute, rerun=options.rerun)
    assert asked is not None  # this process is the only one
    return *asked, asked[1].parent


def _check_same_model(measurement: "xr.Dataset | None", file: Path | None, checksum: str, model: str) -> None:
    """Raise `InvalidValueError` for a measurement of another model than the one that was asked."""
    if measurement is not None and measurement.attrs.get("checksum") != checksum:
        other = measurement.attrs.get("model")
        raise shared.wrong("measurement", f"one of {model!r}", f"{file} of {other!r}, or of other weights")


def _results(model: str, job: "RetrievalJob", text: str | None) -> Path:
    """results/NAME, where NAME says model, task and size, and what is not the default."""
    size = f"{job.pairs}pairs" if job.pairs is not None else f"{job.length}tokens"
    name = f"{Path(model).name}-{job.task}-{size}-{job.wording}-{job.positions}x{job.prompts}"
    name += f"-{Path(text).stem}" if text is not None else ""
    return shared.RESULTS / (name + (f"-seed{job.seed}" if job.seed else ""))


# ── a black box ──


def _answers(model: str | None, options: Options) -> "tuple[Answer, list[str]]":
    """Write the prompts, or ask: the answer. Raises as `posbias.retrieval.Session.ask_each`."""
    opened = ("threads", "measurement", "rerun", "loading")
    shared.refuse(options, "none with a model that is not opened (another --out asks anew)", opened)
    asking, session = options.asking, _session(options)
    if asking.write_prompts is not None:
        return _write_prompts(asking.write_prompts, session, options)
    need("matplotlib", work="the curve", extra="report")
    from posbias.reports.retrieval import of_asked
    from posbias.retrieval.session import ANSWERS, folder_of

    writers = asking.writers(model)
    named = model or f"answers of {asking.answers}"
    place = options.out or shared.RESULTS / _folder(named, session.jobs[0].task, asking)
    need_writable(place)
    with resumable(len(session.requests()) * len(writers)) as on_event:
        curves = session.ask_each(writers, place, on_event)
    kept = {name: asking.answers or (folder_of(place, name, writers) or place) / ANSWERS for name in writers}
    return of_asked(curves, kept, place)


def _write_prompts(path: Path, session: "Session", options: Options) -> "tuple[Answer, list[str]]":
    """Write the prompts for somebody to answer."""
    from posbias.asking.kept import write_requests
    from posbias.asking.requests import cost
    from posbias.reports.answers.retrievals import RetrievePrompts

    shared.check_targets(path, None, options.asking.trials, options.text)
    total = cost(asked := session.requests(), {})
    write_requests(asked, path)
    answer = RetrievePrompts.of(file=path, prompts=total.requests, words=total.words_in)
    said = f"{total.requests:,} prompts with {total.words_in:,} words: {path}"
    return answer, [said, "answer each line under its id"]


def _session(options: Options) -> "Session":
    """What is asked: a job for each size, worded as a message for a chat where nothing is said."""
    from posbias.measurement import read_text
    from posbias.retrieval import Session, read_document_sets, retrieval_job
    from posbias.retrieval.documents import job_of
    from posbias.retrieval.jobs import check_text

    asking, sizes = options.asking, options.asking.sizes
    wording = options.wording or ("chat" if "chat" in asking.api else None)
    about: dict[str, Any] = {"positions": options.positions, "wording": wording, "seed": options.seed}
    text, documents = None, None
    if asking.columns and asking.trials is None:
        raise shared.wrong("columns", "--trials, whose columns they name", " ".join(asking.columns))
    if asking.trials is not None:
        for name, usual in (("task", "keys"), ("text", None)):
            if (given := getattr(options, name)) != usual:
                raise shared.wrong(name, "none with --trials, which decide it", given)
        documents = read_document_sets(asking.trials, shared.column_names(asking.columns))
        if (prompts := min(options.prompts, len(documents))) < (n := len(documents)):
            log.info("%d of the %d questions are asked: --prompts %d asks all", prompts, n, n)
        job = job_of(documents, pairs=options.pairs, length=options.length, prompts=prompts, **about)
    else:
        check_text(options.task, options.text)
        text = read_text(options.text).content if options.task == "needle" else None
        size = {"pairs": options.pairs, "length": options.length}
        job = retrieval_job(options.task, **size, prompts=options.prompts, **about)
    if sizes and (options.pairs is not None or options.length is not None or documents is not None):
        raise shared.wrong("sizes", "none of --pairs, --length and --trials with it", sizes)
    key = "pairs" if options.task == "keys" else "length"
    jobs = tuple(replace(job, **{key: size}) for size in sizes) or (job,)
    equivalence: dict[str, Any] = {} if options.equivalence is None else {"equivalence": options.equivalence}
    concurrency = asking.concurrency if asking.endpoint is not None else 1
    return Session(jobs, text, documents, asking.rule, asking.until, concurrency=concurrency, **equivalence)


def _folder(name: str, task: str, asking: BlackBox) -> str:
    """NAME of results/NAME: who is asked, and how; answers of any task go into the same folder."""
    plain = "".join(one if one.isalnum() or one in "-._" else "-" for one in Path(name).name) or "answers"
    api, system = asking.ways[0]
    how = "ways" if len(asking.ways) > 1 else f"{api}{'-system' if system is not None else ''}"
    # answers of another length are other answers
    most = f"-{asking.answer_tokens}tokens" if asking.answer_tokens != BlackBox.answer_tokens else ""
    return f"{plain[:80]}-{how}-{task}{most}"
