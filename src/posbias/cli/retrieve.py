"""`posbias retrieve`: a fact at one place after another, and where a model finds it.

The model is opened here; or it is a black box: a server answers the prompts, or somebody else did.
"""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.cli import options as shared
from posbias.cli.output import answer_with, resumable
from posbias.core.files import file_name, need_writable
from posbias.core.packages import need

if TYPE_CHECKING:
    import xarray as xr

    from posbias.asking import ServerScorer
    from posbias.asking.requests import Writer
    from posbias.core.answers import Answer
    from posbias.retrieval import DocumentSet, RetrievalJob, Session

_SHORT = 256
SOURCES = ("endpoint", "answers", "write_prompts")
"""Options of which one makes a model a black box."""


@shared.options
class BlackBox(shared.Server):
    """How to ask a model that is not opened here.

    Parameters
    ----------
    answers
        Answers made elsewhere: JSON lines with answer, and with id or prompt.
    write_prompts
        Write the prompts to this file as JSON lines, for somebody to answer, and ask nothing.
    trials
        Questions and documents of your own, as JSON lines, JSON or CSV: question, documents, gold, answers. With
        --task rules your rules: rule, check, value, kind, request.
    columns
        What columns of --trials hold: question=COLUMN documents=COLUMN gold=COLUMN answers=COLUMN.
    rule
        How answers are scored. Default: first of the list's things; documents: contains a right spelling.
    sizes
        Several --pairs (keys, rules) or --length (needle), with commas: a curve each, and a map.
    until
        Ask more trials until every gap is known to ± this much accuracy, --prompts at most.
    logprobs
        Ask the server for log-probabilities of the candidates: margins, as of a model that is opened (keys,
        needle). Where it gives none, answers in words.
    """

    answers: Path | None = None
    write_prompts: Path | None = None
    trials: Path | None = None
    columns: shared.ColumnNames = None
    rule: Literal["contains", "first"] | None = None
    sizes: shared.Lengths = ()
    until: float | None = None
    logprobs: shared.Flag = False

    def writers(self, model: str | None) -> "dict[str, Writer]":
        """Who answers, by the name of the way. Raises `InvalidValueError` for options that do not go together."""
        if self.answers is None:
            return {**self.servers(model)}
        from posbias.asking import AnswersRead

        if len(self.ways) > 1:
            raise shared.wrong("system", "--endpoint with several ways to ask", self.ways)
        return {"answers": AnswersRead(self.answers, model or "")}

    @property
    def wanted(self) -> bool:
        """Whether a model is asked as a black box. Raises `InvalidValueError` for options that need it to be."""
        given = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
        named = [name for name in SOURCES if name in given]
        if len(named) > 1 or (given and not named):
            what = " and ".join(f"--{name.replace('_', '-')}" for name in named) or "none of them"
            raise shared.wrong((named or given)[-1], "--endpoint, --answers or --write-prompts", what)
        return bool(named)

    def check(self, options: "Options") -> None:
        """Raise `InvalidValueError` for other options that do not go with these."""
        if self.trials is not None and options.task != "rules":
            shared.refuse(options, "none with --trials, which decide it", ("task", "text"))
        elif self.columns:
            raise shared.wrong("columns", "documents of --trials, which have them", " ".join(self.columns))
        if self.sizes and (options.pairs, options.length, self.trials) != (None, None, None):
            raise shared.wrong("sizes", "none of --pairs, --length and --trials with it", self.sizes)
        one_curve = self.endpoint is not None and len(self.ways) == 1 and options.task != "rules"
        if self.logprobs and not (one_curve and (self.trials, self.sizes, self.until) == (None, (), None)):
            others = "keys or needle, --endpoint, one way to ask, and none of --trials, --sizes and --until"
            raise shared.wrong("logprobs", others, True)
        shared.check_targets(self.write_prompts, None, self.trials, options.text)


@shared.options
class Options:
    """What is asked, and where the answer goes.

    Parameters
    ----------
    task
        keys: a list of who owns what, and a question for one owner. needle: one fact in running text.
        rules: one rule among others, kept or not; a curve each of what must be and what must not.
    kind
        Of rules: what must be, or what must not, alone. Default: a curve of each.
    pairs
        Pairs in the list (keys), or rules. Default: 5, of rules 20, unless --length is given.
    length
        Tokens of a prompt: as many pairs or rules as fit, or text and question (needle). Default: 256 (needle).
    positions
        Places of the answer, evenly from first to last, at least 3. Default: 5, or all pairs or documents if
        they are fewer.
    prompts
        Trials: each has its own facts and order, and is asked at every place.
    wording
        keys: json, list, belongs or chat. needle: plain or chat. rules: in the system message, or in earlier
        turns. --trials: numbered, plain or chat. Default: the first; chat with --api chat.
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

    task: Literal["keys", "needle", "rules"] = "keys"
    kind: Literal["must", "must not"] | None = None
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

    def check(self, model: str | None) -> None:
        """Raise `InvalidValueError` for options that do not go together, before anything is read or opened."""
        shared.need_folder(self.out)
        if self.equivalence is not None and not 0 < self.equivalence < math.inf:
            raise shared.wrong("equivalence", "a finite number above 0", self.equivalence)
        if self.asking.wanted:
            opened = ("threads", "measurement", "rerun", "loading")
            shared.refuse(self, "none with a model that is not opened (another --out asks anew)", opened)
            self.asking.check(self)
        elif (model or "").endswith(".nc"):
            shown = ("measurement", "out", "json", "equivalence")
            shared.refuse(self, "none with a finished retrieval", kept=shown)
        else:
            shared.check_threads(self.threads)
            if self.task == "rules":
                raise shared.wrong("task", "--endpoint or --answers with rules", "a model that is opened")
            if model == "":
                raise shared.wrong("model", "a name, a model folder, a .gguf file or a hub id", "")

    def job(self, documents: "Sequence[DocumentSet] | None" = None) -> "RetrievalJob":
        """What is asked, worded as a message for a chat where nothing is said. Raises `InvalidValueError`."""
        from posbias.retrieval.documents import places_of
        from posbias.retrieval.jobs import check_text, retrieval_job

        task, positions, prompts = self.task, self.positions, self.prompts
        chat = self.wording is None and self.asking.wanted and "chat" in self.asking.api and task != "rules"
        if documents is not None:
            task, prompts = "documents", min(prompts, len(documents))
            positions = places_of(documents) if positions is None else positions
        check_text(task, self.text)
        return retrieval_job(
            task,
            pairs=self.pairs,
            length=self.length,
            wording="chat" if chat else self.wording,
            positions=positions,
            prompts=prompts,
            seed=self.seed,
            kind=self.kind,
        )


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
    options.check(model)
    if options.asking.wanted:
        answer, lines = _answers(model, options)
    else:
        model = shared.DEFAULT_MODEL if model is None else model
        file = Path(model) if model.endswith(".nc") else _opened(model, options)
        answer, lines = _shown(file, options)
    answer_with(answer, lambda: lines, options.json)


# ── a model that is opened ──


def _opened(model: str, options: Options) -> Path:
    """Ask a model that is opened here, or find what an earlier run did: the retrieval's file."""
    need("torch", "xarray", work="asking a model", extra="measure")
    need("matplotlib", work="the curve", extra="report")
    from posbias.measurement import load_model, read_text
    from posbias.retrieval.local import find_or_retrieve

    job = options.job()
    place = options.out or _results(model, job, options.text)
    need_writable(place)
    if job.task == "needle":
        read_text(options.text)  # what is wrong with it is said before the model is loaded
    loaded = load_model(model, tokens=job.length or _SHORT, **vars(options.loading))
    _measured(options.measurement, loaded.checksum, loaded.name)  # another model's is refused now
    with resumable(job.prompts) as on_event:
        return find_or_retrieve(
            *(loaded, place, job),
            text=options.text,
            threads=options.threads,
            rerun=options.rerun,
            on_event=on_event,
        )[1]


def _shown(file: Path, options: Options) -> "tuple[Answer, list[str]]":
    """The answer on a finished retrieval."""
    need("matplotlib", work="the curve", extra="report")
    from posbias.profiles.measurements import load_retrieval
    from posbias.profiles.places import retrieval_curve
    from posbias.reports.retrieval import of_opened

    curve = retrieval_curve(load_retrieval(file), options.equivalence)
    measured = _measured(options.measurement, str(curve.asked.get("checksum")), curve.model)
    # of a file that is given the pictures may go elsewhere
    return of_opened(curve, file, options.out or file.parent, measured)


def _measured(file: Path | None, checksum: str, model: str) -> "xr.Dataset | None":
    """A measurement of the model that was asked. Raises `InvalidValueError` for one of another."""
    if file is None:
        return None
    from posbias.profiles.measurements import load_measurement

    measured = load_measurement(file)
    if measured.attrs.get("checksum") != checksum:
        other = measured.attrs.get("model")
        raise shared.wrong("measurement", f"one of {model!r}", f"{file} of {other!r}, or of other weights")
    return measured


def _results(model: str, job: "RetrievalJob", text: str | None) -> Path:
    """results/NAME, where NAME says model, task and size, and what is not the default."""
    size = f"{job.pairs}pairs" if job.pairs is not None else f"{job.length}tokens"
    name = f"{Path(model).name}-{job.task}-{size}-{job.wording}-{job.positions}x{job.prompts}"
    name += f"-{Path(text).stem}" if text is not None else ""
    return shared.RESULTS / (name + (f"-seed{job.seed}" if job.seed else ""))


# ── a black box ──


def _answers(model: str | None, options: Options) -> "tuple[Answer, list[str]]":
    """Write the prompts for somebody to answer; or ask in every way, or take answers made elsewhere.

    Raises as `posbias.retrieval.Session.ask_each`.
    """
    from posbias.asking import scorer_of
    from posbias.measurement import read_text
    from posbias.profiles.gaps import EQUIVALENCE
    from posbias.retrieval.documents import read_document_sets
    from posbias.retrieval.rules import INSTRUCTIONS, read_instructions
    from posbias.retrieval.session import ANSWERS, Session, folder_of

    asking, documents, text, instructions = options.asking, None, None, None
    columns = shared.column_names(asking.columns)
    if asking.trials is not None and options.task == "rules":
        instructions = read_instructions(asking.trials)
    elif asking.trials is not None:
        documents = read_document_sets(asking.trials, columns)
    elif options.task == "needle":
        text = read_text(options.text).content
    job = options.job(documents)
    if asking.logprobs:
        (server,) = asking.servers(model).values()
        if (scorer := scorer_of(server)) is not None:
            return _scored(scorer, job, text, options)
    key = "length" if options.task == "needle" else "pairs"
    jobs = [replace(job, **{key: size}) for size in asking.sizes] or [job]
    if job.kind is not None and options.kind is None:
        kinds = sorted({one.kind for one in instructions or INSTRUCTIONS})
        jobs = [replace(one, kind=kind) for kind in kinds for one in jobs]
    session = Session(
        tuple(jobs),
        text,
        documents,
        asking.rule,
        asking.until,
        EQUIVALENCE if options.equivalence is None else options.equivalence,
        asking.concurrency if asking.endpoint is not None else 1,
        instructions,
    )
    if asking.write_prompts is not None:
        return _written(asking.write_prompts, session)
    need("matplotlib", work="the curve", extra="report")
    from posbias.reports.retrieval import of_asked

    writers = asking.writers(model)
    place = options.out or shared.RESULTS / _folder(model or f"answers of {asking.answers}", job.task, asking)
    need_writable(place)
    with resumable(session.count * len(writers)) as on_event:
        curves = session.ask_each(writers, place, on_event)
    kept = {name: asking.answers or folder_of(place, name, writers) / ANSWERS for name in writers}
    return of_asked(curves, kept, place)


def _scored(
    scorer: "ServerScorer", job: "RetrievalJob", text: str | None, options: Options
) -> "tuple[Answer, list[str]]":
    """Ask a server for log-probabilities: margins, as of a model that is opened."""
    need("matplotlib", work="the curve", extra="report")
    from posbias.asking import AnswerFile
    from posbias.profiles.places import save_places
    from posbias.reports.retrieval import of_opened
    from posbias.retrieval.session import ANSWERS, RESULT, Session

    folder = f"{_folder(scorer.endpoint.model, job.task, options.asking)}-logprobs"
    place = options.out or shared.RESULTS / folder
    need_writable(place)
    how: Any = {"equivalence": options.equivalence, "concurrency": options.asking.concurrency}
    session = Session((job,), text, margins=True, **how)
    with resumable(session.count) as on_event:
        file = AnswerFile(place / ANSWERS, scorer.asked_of)
        file.announce(session.requests(), scorer, more=", each for every candidate" * scorer.echoes)
        curve = session.ask(scorer, job, file, on_event)
    return of_opened(curve, save_places([curve], place / RESULT), place)


def _written(path: Path, session: "Session") -> "tuple[Answer, list[str]]":
    """Write the prompts for somebody to answer."""
    from posbias.asking.kept import write_requests
    from posbias.asking.requests import cost
    from posbias.reports.answers.retrievals import RetrievePrompts

    session.announce()
    requests = session.requests()
    total = cost(requests, {})
    write_requests(requests, path)
    answer = RetrievePrompts.of(file=path, prompts=total.requests, words=total.words_in)
    said = f"{total.requests:,} prompts with {total.words_in:,} words: {path}"
    return answer, [said, "answer each line under its id"]


def _folder(name: str, task: str, asking: BlackBox) -> str:
    """NAME of results/NAME: who is asked, and how; answers of any task go into the same folder."""
    api, system = asking.ways[0]
    how = "ways" if len(asking.ways) > 1 else f"{api}{'-system' if system is not None else ''}"
    # answers of another length are other answers
    most = f"-{asking.answer_tokens}tokens" if asking.answer_tokens != BlackBox.answer_tokens else ""
    return f"{(file_name(Path(name).name) or 'answers')[:80]}-{how}-{task}{most}"
