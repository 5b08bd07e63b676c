"""`posbias choose`: what the order of options does to a choice."""

from pathlib import Path
from typing import Any, Literal

from posbias.cli import options as shared
from posbias.cli.output import answer_with, resumable
from posbias.core.files import clear_leftovers, file_name, need_writable
from posbias.core.packages import need


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
    influence
        Also how much each option's tokens move the choice, by gradient: of a model that is opened.
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
    influence: shared.Flag = False
    columns: shared.ColumnNames = None
    asking: shared.Server = shared.Server()
    loading: shared.Loading = shared.Loading()
    threads: shared.TorchThreads = None
    out: shared.Folder | None = None
    dry_run: shared.Flag = False
    json: shared.Json = False

    def check(self) -> None:
        """Raise `InvalidValueError` for options that do not go together."""
        if self.asking.endpoint is None:
            shared.refuse(self.asking, "--endpoint with it")
        else:
            shared.refuse(self, "none with --endpoint", ("threads", "influence", *vars(self.loading)))

    def who(self, models: tuple[str, ...], kind: str) -> dict[str, Any]:
        """Who is asked, by name: models that are opened; or of a server each model in each way, for its
        log-probabilities where it gives those of all options."""
        if self.asking.endpoint is None:
            need("torch", work="asking a model", extra="measure")
            return {model: model for model in models or (shared.DEFAULT_MODEL,)}
        from posbias.asking import scorer_of
        from posbias.choice.asking import LABELLED

        several, who = len(self.asking.ways) > 1, {}
        for model in models or (None,):
            for way, server in self.asking.servers(model).items():
                scorer = scorer_of(server)
                whole = scorer is not None and (scorer.echoes or kind in LABELLED)
                who[f"{model}, {way}" if several else model] = scorer if whole else server
        return who


def choose(*models: str, items: Path, options: Options = Options()) -> None:
    """Measure what the order of options adds to a choice: of judges, multiple choice, tools, scales.

    Writes answers.jsonl and decisions.json. The same command goes on after an interruption.

    Parameters
    ----------
    models
        A model (as for `posbias measure`), or with --endpoint one of that server; several are compared. Default:
        smollm2-135m.
    items
        What is chosen from, as JSON lines, JSON or CSV: question, options and, where known, right and sides; or a
        small set of ours: question, judge, tools or rating.
    """
    from posbias.asking.requests import cost
    from posbias.choice import ChoiceJob, read_items
    from posbias.choice import choose as ask
    from posbias.choice.asking import AGAIN, presentations
    from posbias.choice.items import kind_of
    from posbias.profiles.decisions import save_decisions
    from posbias.reports.answers.choices import ChooseCost
    from posbias.reports.choices import of_choices

    options.check()
    opened = options.asking.endpoint is None
    read = read_items(items, options.columns)
    again = (0 if opened else AGAIN) if options.again is None else options.again
    job = ChoiceJob(options.kind or kind_of(read), options.orders, again, options.criteria)
    requests = [one.request for one in presentations(read, job)]
    if options.dry_run:
        total = cost(requests, {}, None if opened else options.asking.answer_tokens)
        orders = len({one.place.at for one in requests})
        answer = ChooseCost.of(requests=total.requests, words=total.words_in, orders=orders)
        answer_with(
            answer,
            lambda: [
                f"{total}; {orders} orders of {len(read)} items, the first again of {min(again, len(read))}"
            ],
            options.json,
        )
        return
    who = options.who(models, job.kind)
    place = options.out or shared.RESULTS / f"{file_name(Path(next(iter(who))).name)}-choose"
    need_writable(place)
    how: dict[str, Any] = {"loading": vars(options.loading), "influence": options.influence}
    found = {}
    for name, one in who.items():
        folder = place / file_name(name) if len(who) > 1 else place
        clear_leftovers(folder)
        with resumable("answers") as on_event:
            how |= {"answers": folder / "answers.jsonl", "threads": options.threads, "on_event": on_event}
            found[name] = ask(one, read, job, concurrency=options.asking.concurrency, **how)
        save_decisions(found[name].decisions, folder / "decisions.json")
    answer, lines = of_choices(found, place)
    answer_with(answer, lambda: lines, options.json)
