"""`posbias models`: which models can be named, and what is known of their families."""

from cyclopts import App

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.core.terminal import table
from posbias.reports import answers

models = App(
    name="models",
    help="List the models that can be named, and whether they are on this machine; `models families` lists "
    "the families that are known.",
    help_format="plaintext",
)


@models.default
def available(
    *,
    fetch: str | None = None,
    accept_terms: shared.Flag = False,
    rerun: shared.Rerun = False,
    json: shared.Json = False,
) -> None:
    """List the models that can be named, and whether they are on this machine.

    Parameters
    ----------
    fetch
        Download and convert this model now.
    accept_terms
        You accept the terms of use that it comes under; gemma-3-270m's: https://ai.google.dev/gemma/terms.
    """
    from posbias import measurement as measuring

    if rerun and fetch is None:
        raise shared.wrong("rerun", "--fetch MODEL with it", None)
    if fetch is not None:
        folder = measuring.fetch(fetch, again=rerun, accept_terms=accept_terms)
        answer_with(answers.ModelsFetch.of(model=fetch, folder=folder), lambda: [f"{fetch}: {folder}"], json)
        return
    records = measuring.available_models()
    rows = [[one.name, one.state, one.licence, one.description] for one in records]
    head = ["model", "on disk", "licence", "what"]
    answer_with(answers.Models.of(models=records), lambda: table(head, rows), json)


@models.command
def families(*, json: shared.Json = False) -> None:
    """List the model families whose measurement is proven by tests; any other has to pass a check each time."""
    from posbias.core import packages
    from posbias.measurement.models.families import FAMILIES

    rows = [
        answers.Family.of(one, attention=one.attention[0], attentions=one.attention)
        for one in FAMILIES.values()
    ]
    # families of other packages have to pass the check each time, whatever their rows say
    brought = {name: package for name, package in packages.names().items() if name not in FAMILIES}
    answer = answers.ModelsFamilies.of(families=rows, brought=brought)
    lines = [[row.model_type, row.positional, " ".join(row.attentions), _also(row)] for row in rows]
    others = [f"{name}: brought by {package}" for name, package in sorted(brought.items())]
    answer_with(answer, lambda: table(["family", "positions", "attention", "also"], lines) + others, json)


def _also(row: "answers.Family") -> str:
    words = {
        "parallel": "parallel blocks",
        "window": "windows",
        "sinks": "learned sinks",
        "soft_cap": "soft cap",
    }
    said = [word for key, word in words.items() if getattr(row, key)] + ([] if row.causal else ["not causal"])
    return ", ".join([*said, *row.defects])
