"""`posbias check`: a gate that fails where position matters by more than a limit."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from posbias.cli import choose as choosing
from posbias.cli import options as shared
from posbias.cli.output import answer_with, resumable
from posbias.core.files import file_name, need_writable
from posbias.core.terminal import table


@shared.options
class Options:
    """What must hold, what is asked, and where the answer goes.

    Parameters
    ----------
    max_gap
        The largest gap in accuracy between places that passes, 0.1 for instance.
    max_flip
        With --items: the largest share of pairs of decisions that may change with the order.
    baseline
        Earlier results, retrieval.json or decisions.json: gaps may be larger than there by the limit.
    undecided
        pass: exit 0, not 4, where the questions do not decide.
    looks
        Looks at the answers, evenly: what is sure earlier ends earlier.
    trials
        Questions and documents of your own, as for `posbias retrieve`.
    items
        What is chosen from, as for `posbias choose`.
    columns
        What columns of --trials or --items hold: question=COLUMN documents=COLUMN.
    asking
        How to ask a server.
    loading
        How the model is loaded.
    out
        The folder to write to. Default: results/MODEL-check.
    """

    max_gap: float | None = None
    max_flip: float | None = None
    baseline: Path | None = None
    undecided: Literal["fail", "pass"] = "fail"
    looks: shared.Whole = 4
    trials: Path | None = None
    items: Path | None = None
    columns: shared.ColumnNames = None
    asking: shared.Server = shared.Server()
    loading: shared.Loading = shared.Loading()
    seed: shared.Seed = 0
    out: shared.Folder | None = None
    json: shared.Json = False


def check(model: str | None = None, *, options: Options = Options()) -> int:
    """Fail where position matters by more than a limit: exit 0 surely not, 1 surely, 4 not enough questions.

    Asks in parts and ends when it is sure. Writes check.md for a pull request, check.xml for JUnit's readers, and
    the answers; the same command goes on after an interruption.

    Parameters
    ----------
    model
        A model (as for `posbias measure`), or with --endpoint one of that server. Default: smollm2-135m.
    """
    from posbias.checking import check as decide
    from posbias.choice import read_items
    from posbias.choice.items import kind_of
    from posbias.retrieval import Session, read_document_sets

    chooser = choosing.Options(asking=options.asking, loading=options.loading, out=options.out)
    chooser.check()
    options.asking.check_single()
    names = (model,) if model else ()
    if options.items is not None:
        shared.refuse(options, "none with --items", ("trials", "max_gap"))
        trials, limit = read_items(options.items, options.columns), options.max_flip
        if limit is not None and not 0 < limit < 1:
            raise shared.wrong("max_flip", "a number above 0 and below 1", limit)
        found = chooser.who(names, kind_of(trials))
    elif options.trials is not None:
        shared.refuse(options, "--items with it", ("max_flip",))
        server = options.asking.endpoint is not None
        trials = Session(documents=read_document_sets(options.trials, options.columns))
        if server and "chat" in options.asking.api:
            trials = replace(trials, jobs=(replace(trials.jobs[0], wording="chat"),))
        found = options.asking.servers(model) if server else chooser.who(names, "")
        limit = options.max_gap
    else:
        raise shared.wrong("trials", "a file, or --items", None)
    (who,) = found.values()
    place = options.out or shared.RESULTS / f"{file_name(Path(model or shared.DEFAULT_MODEL).name)}-check"
    need_writable(place)
    about: Any = {"looks": options.looks, "seed": options.seed, "baseline": options.baseline, "folder": place}
    about |= {"loading": vars(options.loading), "concurrency": options.asking.concurrency}
    with resumable("answers") as on_event:
        answer = decide(who, trials, limit, on_event=on_event, **about)
    lines = [*table(*answer.table()), "", *answer.answer, f"answers, check.md, check.xml: {place}"]
    answer_with(answer, lambda: lines, options.json)
    return 0 if answer.status == 4 and options.undecided == "pass" else answer.status
