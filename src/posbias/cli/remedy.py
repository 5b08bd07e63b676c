"""`posbias remedy`: the same trials plain and under remedies, and what each changes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from posbias.cli import options as shared
from posbias.cli import retrieve
from posbias.cli.output import answer_with, resumable
from posbias.core.files import file_name, need_writable
from posbias.core.packages import need

UNWANTED = ("rerun", "measurement", "answers", "write_prompts", "sizes", "until")
"""Options of retrieve that remedies have not."""
OF_CHOICES = ("columns", "logprobs", "equivalence", "threads", "out", "json")
"""Options of retrieve that choices have, with how a server is asked and a model loaded."""


@shared.options
class Options:
    """What is treated, and how; other options as of `posbias retrieve`.

    Parameters
    ----------
    remedy
        A remedy by name, several by repeating it. Default: all that can treat what is asked.
    items
        What is chosen from, as for `posbias choose`, in place of trials.
    dry_run
        Print what each remedy takes, and ask nothing.
    """

    remedy: shared.Words = ()
    items: Path | None = None
    dry_run: shared.Flag = False
    asked: retrieve.Options = retrieve.Options()

    def treated(self) -> Any:
        """Items, or a session of one job. Raises `InvalidValueError` for what cannot be right."""
        from posbias.choice import read_items

        if self.items is None:
            return self.asked.session()
        kept = (*OF_CHOICES, *vars(shared.Server()), *vars(self.asked.loading))
        shared.refuse(self.asked, "none with --items", kept=kept)
        return read_items(self.items, self.asked.asking.columns)


def remedy(model: str | None = None, *, options: Options = Options()) -> None:
    """Measure what remedies against position bias change: the same trials, plain and treated.

    Writes answers.jsonl in a folder for each remedy. The same command goes on after an interruption.

    Parameters
    ----------
    model
        A model (as for `posbias measure`), or with --endpoint one of that server. Default: smollm2-135m.
    """
    from posbias.asking import scorer_of
    from posbias.profiles.gaps import EQUIVALENCE
    from posbias.remedies import remedy as treat
    from posbias.remedies.run import cost_of, fitting, task_of
    from posbias.reports.answers import RemedyCost
    from posbias.reports.remedies import of_remedies

    asked, asking = options.asked, options.asked.asking
    # columns of items are no option of retrieve
    (asked if options.items is None else replace(asked, asking=replace(asking, columns=None))).check(model)
    shared.refuse(asked, "none with remedies", UNWANTED)
    asking.check_single()
    treated, name, equal = options.treated(), model or shared.DEFAULT_MODEL, asked.equivalence or EQUIVALENCE
    task = task_of(treated, not asking.wanted or asking.logprobs)
    chosen = fitting(options.remedy, task)
    if options.dry_run:
        costs = {one.kind: cost_of(one, task.parts) for one in chosen}
        requests, words = ({name: cost[k] for name, cost in costs.items()} for k in (0, 1))
        answer = RemedyCost.of(answers=len(task.parts), requests=requests, words=words)
        lines = [f"{name}: {a:.3g} requests, {b:,.0f} words an answer" for name, (a, b) in costs.items()]
        answer_with(answer, lambda: [*lines, f"{len(task.parts):,} answers under each"], asked.json)
        return
    if not asking.wanted:
        need("torch", work="asking a model", extra="measure")
    place = asked.out or shared.RESULTS / f"{file_name(Path(name).name)}-remedy"
    need_writable(place)
    who: Any = next(iter(asking.servers(model).values())) if asking.wanted else name
    who = (scorer_of(who) if asking.logprobs else None) or who
    how: Any = {"concurrency": asking.concurrency, "loading": vars(asked.loading), "threads": asked.threads}
    with resumable("answers") as on_event:
        found = treat(who, treated, options.remedy, folder=place, equivalence=equal, on_event=on_event, **how)
    answer, lines = of_remedies(found, place)
    answer_with(answer, lambda: lines, asked.json)
