"""`posbias models`: which models can be named, and what is known of their families."""

import logging
from typing import Any

from cyclopts import App

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.core.errors import ModelError
from posbias.core.text_tables import table

log = logging.getLogger(__name__)

models = App(
    name="models",
    help="List the models that can be named, and whether they are on this machine; `models families` lists "
    "the families that are known.",
    help_format="plaintext",
)


@models.default
def available(*, fetch: str | None = None, rerun: shared.Rerun = False, json: shared.Json = False) -> None:
    """List the models that can be named, and whether they are on this machine.

    Parameters
    ----------
    fetch
        Download and convert this model now.
    """
    from posbias import measurement as measuring
    from posbias.reports.answers.measurements import Models, ModelsFetch

    if rerun and fetch is None:
        raise shared.wrong("rerun", "--fetch MODEL with it", None)
    if fetch is not None:
        folder = measuring.fetch(fetch, again=rerun)
        answer_with(ModelsFetch.of(model=fetch, folder=folder), lambda: [f"{fetch}: {folder}"], json)
        return
    records = measuring.available_models()
    rows = [[one.name, one.state, one.licence, one.description] for one in records]
    answer_with(Models.of(models=records), lambda: table(["model", "on disk", "licence", "what"], rows), json)


@models.command
def families(*, check: shared.Flag = False, json: shared.Json = False) -> None:
    """List the model families whose measurement is proven by tests; any other has to pass a check each time.

    Parameters
    ----------
    check
        Prove every row now, on tiny random models, and show how far the capture was off.
    """
    from posbias.core import plugins
    from posbias.measurement.models.families import FAMILIES
    from posbias.reports.answers.measurements import ModelsFamilies

    rows = [family.as_dict() for family in FAMILIES.values()]
    if check:
        from posbias.measurement import prove_family

        for row in rows:
            log.info("checking %s", row["model_type"])
            row["checks"] = list(prove_family(row["model_type"]))
            row["checked"] = all(found["passed"] for found in row["checks"])  # now, whatever its row says
    # families of other packages have to pass the check each time, whatever their rows say
    brought = {name: package for name, package in plugins.names().items() if name not in FAMILIES}
    head = ["family", "positions", "attention", "also", *["largest deviation"] * check]
    lines = table(head, [_row(row) for row in rows])
    lines += [f"{name}: brought by {package}" for name, package in sorted(brought.items())]
    answer_with(ModelsFamilies.of(families=rows, brought=brought), lambda: lines, json)
    if failed := [row["model_type"] for row in rows if not row["checked"]]:
        raise ModelError(f"model: the check failed for {', '.join(failed)}; the table is wrong there")


def _row(row: dict[str, Any]) -> list[str]:
    """A family as a line of the table, with how far the capture was off where that was checked."""
    words = {
        "parallel": "parallel blocks",
        "window": "windows",
        "sinks": "learned sinks",
        "soft_cap": "soft cap",
    }
    also = [word for key, word in words.items() if row[key]] + ["not causal"] * (not row["causal"])
    cells = [
        row["model_type"],
        row["positional"],
        " ".join(row["attentions"]),
        ", ".join(also + row["defects"]),
    ]
    checks = row.get("checks", [])
    wrong = [f"FAILED: {found['error']}" for found in checks if not found["passed"]]
    keys = ("max_deviation", "mixed_deviation", "rotation_deviation")
    off = [found[key] for found in checks for key in keys if found["passed"]]
    return cells + (wrong[:1] or ([f"{max(off):.1e}"] if off else []))
