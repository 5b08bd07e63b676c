"""`posbias choose`: what the order of options does to a choice."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.cli import options as shared
from posbias.cli.output import answer_with, resumable
from posbias.core.files import file_name, need_writable
from posbias.core.packages import need

if TYPE_CHECKING:
    from posbias.choice import ChoiceAnswer, ChoiceJob, Item


@shared.options
class Options:
    """How options are shown, and where the answer goes.

    Parameters
    ----------
    kind
        question: lettered options. judge: answers that are compared. tools: names with descriptions. rating: a
        scale whose scores are the options. Default: what items look like.
    orders
        Orders of each item at most. Default: all of up to 4 options, else a Williams square.
    again
        Items whose first order is asked twice: the floor of flips. Default: 20 of a server, 0 of a model that is
        opened, whose scores are the same again.
    criteria
        What a judge or rater goes by.
    columns
        What columns of --items hold: question=COLUMN options=COLUMN right=COLUMN sides=COLUMN name=COLUMN.
    asking
        How to ask a server.
    loading
        How the model is loaded.
    out
        The folder to write to. Default: results/MODEL-choose.
    dry_run
        Print how many requests it takes, and ask nothing.
    """

    kind: Literal["question", "judge", "tools", "rating"] | None = None
    orders: shared.Whole | None = None
    again: shared.Whole | None = None
    criteria: str = ""
    columns: shared.ColumnNames = None
    asking: shared.Server = shared.Server()
    loading: shared.Loading = shared.Loading()
    threads: shared.TorchThreads = None
    out: shared.Out | None = None
    dry_run: shared.Flag = False
    json: shared.Json = False


def choose(*models: str, items: Path, options: Options = Options()) -> None:
    """Measure what the order of options adds to a choice: of judges, multiple choice, tools, scales.

    Writes answers.jsonl and decisions.json. The same command goes on after an interruption.

    Parameters
    ----------
    models
        A model (as for `posbias measure`), or with --endpoint one of that server; several are compared. Default:
        smollm2-135m.
    items
        What is chosen from, as JSON lines, JSON or CSV: question, options and, where known, right and sides.
    """
    from posbias.asking.requests import cost
    from posbias.choice import ChoiceJob, read_items
    from posbias.choice.asking import AGAIN, presentations
    from posbias.choice.items import kind_of
    from posbias.reports.answers.choices import ChooseCost
    from posbias.reports.choices import of_choices

    shared.need_folder(options.out)
    opened = options.asking.endpoint is None
    if opened:
        shared.refuse(options.asking, "--endpoint with it")
    else:
        shared.refuse(options, "none with --endpoint", ("threads", "loading"))
    read = read_items(items, shared.column_names(options.columns))
    again = (0 if opened else AGAIN) if options.again is None else options.again
    job = ChoiceJob(options.kind or kind_of(read), options.orders, again, options.criteria)
    requests = [one.request for one in presentations(read, job)]
    if options.dry_run:
        total = cost(requests, {}, None if opened else options.asking.answer_tokens)
        orders = len({one.place.at for one in requests})
        answer = ChooseCost.of(requests=total.requests, words=total.words_in, orders=orders)
        answer_with(answer, lambda: [f"{total}; {orders} orders of {len(read)} items"], options.json)
        return
    who = _opened(models, options) if opened else _servers(models, options.asking)
    place = options.out or shared.RESULTS / f"{file_name(Path(next(iter(who))).name)}-choose"
    need_writable(place)
    found = {}
    for name, one in who.items():
        folder = place / file_name(name) if len(who) > 1 else place
        with resumable(len(requests), "answers") as on_event:
            found[name] = _asked(one, read, job, folder, options, on_event)
    answer, lines = of_choices(found, place)
    answer_with(answer, lambda: lines, options.json)


def _servers(models: tuple[str, ...], asking: shared.Server) -> dict[str, Any]:
    """Each model in each way to ask it, by name."""
    several, who = len(asking.ways) > 1, {}
    for model in models or (None,):
        who |= {f"{model}, {way}" if several else model: one for way, one in asking.servers(model).items()}
    return who


def _opened(models: tuple[str, ...], options: Options) -> dict[str, Any]:
    need("torch", work="asking a model", extra="measure")
    shared.check_threads(options.threads)
    return {model: model for model in models or (shared.DEFAULT_MODEL,)}


def _asked(
    one: Any, items: "tuple[Item, ...]", job: "ChoiceJob", folder: Path, options: Options, on_event: Any
) -> "ChoiceAnswer":
    """Ask one, and keep answers and decisions."""
    from posbias.choice import choose as ask
    from posbias.profiles.decisions import save_decisions

    if isinstance(one, str):
        from posbias.measurement import load_model

        one = load_model(one, **vars(options.loading))
    how: dict[str, Any] = {"answers": folder / "answers.jsonl", "concurrency": options.asking.concurrency}
    found = ask(one, items, job, threads=options.threads, on_event=on_event, **how)
    save_decisions(found.decisions, folder / "decisions.json")
    return found
