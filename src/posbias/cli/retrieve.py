"""`posbias retrieve`: a fact at one place after another, and where a model finds it.

The model is opened here; or it is a black box: a server answers the prompts, or somebody else did.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from posbias.cli import options as shared
from posbias.cli.output import answer_with, resumable
from posbias.core.files import file_name, need_writable
from posbias.core.packages import need

if TYPE_CHECKING:
    from posbias.asking.requests import Writer
    from posbias.core.answers import Answer
    from posbias.retrieval import RetrievalJob, Session

_SHORT = 256
UNASKED = {"threads", "measurement", "rerun"}
"""Options of a model that is opened."""
SENT = {"system", "concurrency", "answer_tokens", "timeout", "logprobs"}
"""Options of requests to a server."""
UNSCORED = {"trials", "sizes", "until", "rule", "answers", "write_prompts"}
"""Options of answers in words."""


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
        Several --pairs (keys, rules) or --length (needle), with commas: a curve each.
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

    @property
    def wanted(self) -> bool:
        """Whether a model is asked as a black box."""
        return (self.endpoint, self.answers, self.write_prompts) != (None, None, None)

    def writers(self, model: str | None) -> "dict[str, Writer]":
        """Who answers, by the name of the way. Raises `InvalidValueError` for options that do not go together."""
        if self.answers is None:
            return {**self.servers(model)}
        from posbias.asking import AnswersRead

        return {"answers": AnswersRead(self.answers, model or "")}


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
    out: shared.Folder | None = None
    rerun: shared.Rerun = False
    json: shared.Json = False

    def check(self, model: str | None) -> None:
        """Raise `InvalidValueError` for options that do not go together, before anything is read or opened."""
        asking, loading, equal = self.asking, {*vars(self.loading)}, self.equivalence
        rules, several, logprobs = self.task == "rules", len(asking.ways) > 1, asking.logprobs
        documents, opened = asking.trials is not None and not rules, not asking.wanted
        finished = opened and (model or "").endswith(".nc")
        unshown = {*vars(self), *loading} - {"measurement", "out", "json", "equivalence"}
        for expected, names, applies in (
            ("a finite number above 0", {"equivalence"}, equal is not None and not 0 < equal < math.inf),
            ("--endpoint, --answers or --write-prompts with it", {*vars(asking)}, opened),
            ("--endpoint or --answers with rules", {"task"}, opened and rules),
            ("none with a finished retrieval", unshown, finished),
            ("none with a model that is not opened (another --out asks anew)", UNASKED | loading, not opened),
            ("none with --endpoint", {"answers", "write_prompts"}, asking.endpoint is not None),
            ("none with --write-prompts", {"answers"}, asking.write_prompts is not None),
            ("--endpoint with it", SENT, asking.endpoint is None),
            ("--endpoint with several ways to ask", {"api"}, several and asking.endpoint is None),
            ("none with --trials, which decide it", {"task", "text"}, documents),
            ("documents of --trials, which have them", {"columns"}, not documents),
            ("--task needle with it", {"text"}, self.task != "needle"),
            ("none with --sizes", {"pairs", "length", "trials"}, asking.sizes != ()),
            ("none with --logprobs", UNSCORED, logprobs),
            ("one way to ask with --logprobs", {"api", "system"}, logprobs and several),
            ("keys or needle with --logprobs", {"task"}, logprobs and rules),
        ):
            if applies:
                shared.refuse(self, expected, names)
        shared.check_targets(asking.write_prompts, None, asking.trials, self.text)

    def session(self) -> "Session":
        """What is asked, with trials and text read; of a model that is opened, margins.

        A message for a chat is worded as one where nothing is said. Raises `InvalidValueError`, and as what reads.
        """
        from posbias.measurement import read_text
        from posbias.profiles.gaps import EQUIVALENCE
        from posbias.retrieval import Session, read_document_sets, read_instructions, retrieval_job
        from posbias.retrieval.documents import places_of
        from posbias.retrieval.rules import INSTRUCTIONS

        asking, documents, instructions, margins = self.asking, None, None, not self.asking.wanted
        task, positions, prompts = self.task, self.positions, self.prompts
        chat = self.wording is None and not margins and "chat" in asking.api and task != "rules"
        if asking.trials is not None and task == "rules":
            instructions = read_instructions(asking.trials)
        elif asking.trials is not None:
            documents = read_document_sets(asking.trials, asking.columns)
            task, prompts = "documents", min(prompts, len(documents))
            positions = places_of(documents) if positions is None else positions
        job = retrieval_job(
            task,
            pairs=self.pairs,
            length=self.length,
            wording="chat" if chat else self.wording,
            positions=positions,
            prompts=prompts,
            seed=self.seed,
            kind=self.kind,
        )
        size = "pairs" if job.length is None else "length"
        jobs = [replace(job, **{size: count}) for count in asking.sizes] or [job]
        if task == "rules" and self.kind is None:
            kinds = sorted({one.kind for one in instructions or INSTRUCTIONS})
            jobs = [replace(one, kind=kind) for kind in kinds for one in jobs]
        return Session(
            tuple(jobs),
            read_text(self.text) if task == "needle" else None,
            documents,
            asking.rule,
            asking.until,
            EQUIVALENCE if self.equivalence is None and not margins else self.equivalence,
            asking.concurrency if asking.endpoint is not None else 1,
            instructions,
            margins,
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
    if options.asking.write_prompts is not None:
        answer, lines = _written(options.asking.write_prompts, options)
    elif options.asking.wanted:
        answer, lines = _asked(model, options)
    else:
        answer, lines = _opened(shared.DEFAULT_MODEL if model is None else model, options)
    answer_with(answer, lambda: lines, options.json)


def _written(path: Path, options: Options) -> "tuple[Answer, list[str]]":
    """Write the prompts for somebody to answer."""
    from posbias.reports.answers.retrievals import RetrievePrompts

    cost = options.session().write_prompts(path)
    answer = RetrievePrompts.of(file=path, prompts=cost.requests, words=cost.words_in)
    said = f"{cost.requests:,} prompts with {cost.words_in:,} words: {path}"
    return answer, [said, "answer each line under its id"]


def _asked(model: str | None, options: Options) -> "tuple[Answer, list[str]]":
    """Ask in every way, or take answers made elsewhere. Raises as `posbias.retrieval.Session.ask_each`."""
    from posbias.asking import scorer_of
    from posbias.reports.retrieval import of_asked, of_opened
    from posbias.retrieval.session import ANSWERS, RESULT, folder_of

    need("matplotlib", work="the curve", extra="report")
    asking, session = options.asking, options.session()
    ways = asking.writers(model)
    if asking.logprobs:
        (way, server), *_ = asking.servers(model).items()
        if (scorer := scorer_of(server)) is not None:
            ways, session = {way: scorer}, replace(session, margins=True, equivalence=options.equivalence)
    place = options.out or shared.RESULTS / _name(model or f"answers of {asking.answers}", asking, session)
    need_writable(place)
    with resumable() as on_event:
        curves = session.ask_each(ways, place, on_event)
    if session.margins:
        (curve,) = curves.values()
        return of_opened(curve, place / RESULT, place)
    kept = {way: asking.answers or folder_of(place, way, ways) / ANSWERS for way in ways}
    return of_asked(curves, kept, place)


def _name(who: str, asking: BlackBox, session: "Session") -> str:
    """NAME of results/NAME: who is asked, and how; answers of any task go into the same folder."""
    api, system = asking.ways[0]
    how = "ways" if len(asking.ways) > 1 else f"{api}{'-system' if system is not None else ''}"
    # answers of another length are other answers
    most = f"-{asking.answer_tokens}tokens" if asking.answer_tokens != BlackBox.answer_tokens else ""
    name = f"{(file_name(Path(who).name) or 'answers')[:80]}-{how}-{session.jobs[0].task}{most}"
    return name + "-logprobs" * session.margins


def _opened(model: str, options: Options) -> "tuple[Answer, list[str]]":
    """Ask a model that is opened here, unless its retrieval is finished, and show that."""
    from posbias.profiles.measurements import load_measurement, load_retrieval
    from posbias.profiles.places import retrieval_curve
    from posbias.reports.retrieval import of_opened

    finished = model.endswith(".nc")
    if not finished:
        need("torch", "xarray", work="asking a model", extra="measure")
    need("matplotlib", work="the curve", extra="report")
    file = Path(model) if finished else _retrieved(model, options)
    curve = retrieval_curve(load_retrieval(file), options.equivalence)
    named = options.measurement
    measured = None if named is None else load_measurement(named, of=curve.asked)
    # of a file that is given the pictures may go elsewhere
    place = options.out if finished else None
    return of_opened(curve, file, place or file.parent, measured)


def _retrieved(model: str, options: Options) -> Path:
    """The file of a model's retrieval, which is asked as far as an earlier run did not."""
    from posbias.profiles.measurements import load_measurement
    from posbias.retrieval.local import find_or_retrieve

    session = options.session()
    place = options.out or _results(model, session.jobs[0], options.text)
    need_writable(place)
    loaded = options.loading.load(model, session.jobs[0].length or _SHORT)
    if options.measurement is not None:
        load_measurement(options.measurement, of=loaded.described)  # another model's is refused now
    threads, rerun = options.threads, options.rerun
    with resumable() as on_event:
        return find_or_retrieve(loaded, place, session, threads=threads, rerun=rerun, on_event=on_event)[1]


def _results(model: str, job: "RetrievalJob", text: str | None) -> Path:
    """results/NAME, where NAME says model, task and size, and what is not the default."""
    size = f"{job.pairs}pairs" if job.pairs is not None else f"{job.length}tokens"
    name = f"{Path(model).name}-{job.task}-{size}-{job.wording}-{job.positions}x{job.prompts}"
    name += f"-{Path(text).stem}" if text is not None else ""
    return shared.RESULTS / (name + (f"-seed{job.seed}" if job.seed else ""))
