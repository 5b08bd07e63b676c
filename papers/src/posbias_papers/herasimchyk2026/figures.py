"""Tables 1 to 6, Figures 1 to 5 and Section 4 of Herasimchyk et al. 2026, each a function of a tidy table.

The paper's models are in the figure that the paper has them in, from top to bottom; of all others, Figure 2 has
those that add a line by distance to their logits (ALiBi), Figure 3 the rest. Figure 1 is of each model's first
corpus, Figure 4 of all others; Tables 2 and 3 show the first corpus, Tables 4 and 5 all of them. What contrasts in
`claims.csv` cannot say are the functions of `FUNCTIONS`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from posbias.core.files import data_table
from posbias.profiles.estimate import Estimate
from posbias_papers.claims import ELSEWHERE, Evidence, Judged, Printed, undecided
from posbias_papers.contrasts import Quantity, contrasted, read_claims
from posbias_papers.herasimchyk2026.configs import BINS, HUB, PROMPTS, PUBLISHED, stand_in
from posbias_papers.herasimchyk2026.drawing import draw_content, draw_curves, draw_schedules, of_figure
from posbias_papers.herasimchyk2026.table import NOISE, OBJECTS, recorded, table
from posbias_papers.pages import Page, Table
from posbias_papers.study import Basis, Recorded, Studies, Study, judge_each, titled

if TYPE_CHECKING:
    import pandas as pd

KNOWN = 0.05
"""A number whose standard error is larger does not confirm a printed one."""
LEVEL = 0.05
"""How often a row of true numbers may be found wrong."""
FILES, FIGURES = "the authors' rollout files", "the authors' figures"
"""What is known of the paper's models where none was measured."""
AT_HAND = {
    "source == 'configuration'": "the configurations on the hub",
    "own == 1": FILES,
    "source == 'files'": FILES,
    f"called == '{PUBLISHED[0]}'": FIGURES,
}
"""What claims rest on for which nothing has to be measured, by words of their `where`."""
WHEN, ON_RECORD = "2026-11-27", "32 prompts"
"""When what is on record was measured, and on how much."""
ABOUT = data_table(__file__)
"""What is shown of every `kind` of table and of every `study`, and the sources that they use."""


# --- what contrasts cannot say -----------------------------------------------------------------------------


def printed_row(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """Every number of a printed row that is known, against the printed one; of the others, what would decide.

    Known are numbers of models measured here, and of curves in the authors' figures, which are exact. Ours may lie
    half of the last digit away, and as many standard errors as the furthest of all numbers of its model is off by
    chance in 5 % (Bonferroni): over prompts, in Table 6 over heads.
    """
    known = (
        "source in ['measured', 'figures'] and printed == printed and value == value and value_se == value_se"
    )
    ours = _rows(rows.query(known))
    claimed = _rows(rows.query("source == 'printed'"))
    counts = Counter(row["model"] for row in ours if row["claimed"])
    for row in ours:
        errors = NormalDist().inv_cdf(1.0 - LEVEL / 2 / max(1, counts[row["model"]]))
        test = Printed(Estimate(row["printed"]), int(row["digits"]), errors=errors, known=KNOWN)
        where = f"{row['what']} on {row['text']}" if row["text"] else row["what"]
        yield Evidence(where, Estimate(row["value"], row["value_se"]), test=test)
    compared = {(row["text"], row["what"]) for row in ours}
    if missing := [row for row in claimed if (row["text"], row["what"]) not in compared]:
        model, texts = missing[0]["model"], ", ".join(dict.fromkeys(row["text"] for row in missing))
        what = f"{model} was not measured here{f' on {texts}' if ours else ''}"
        yield Evidence(model, flaw=f"{what}, {decided_by(missing[0]['table'], [model])}")


def in_all(
    rows: "pd.DataFrame", of: str = "first_rise ; last_rise", contrast: str = "each", test: str = "> 0"
) -> Iterator[Evidence]:
    """A contrast, by default that both ends rise over the sparsest stretch in every model; one model alone is
    neither all cases nor most."""
    yield from contrasted(rows, of, contrast, test)
    models = rows.dropna(subset=[of.partition(" ")[0]]).index.unique("model")
    if len(models) == 1:
        yield Evidence(f"{models[0]} alone", flaw="one model, two needed")


OFTEN = {"in_most": {}, "minimum_often": {"of": "minimum_off", "test": "= 0 within 0.05"}}
"""Contrasts of most models by their names in claims.csv."""
FUNCTIONS = {one.__name__: one for one in (printed_row, in_all)}
FUNCTIONS |= {name: partial(in_all, contrast="share each", **about) for name, about in OFTEN.items()}
CLAIMS = read_claims(Path(__file__).with_name("claims.csv"), FUNCTIONS)


def decided_by(study: str, models: "list[str] | None" = None) -> str:
    """What would decide a claim about the paper's models: a command."""
    sources = ",".join(HUB[model].source for model in models or HUB)
    return (
        f"decided by {PROMPTS:,} prompts of the paper's texts: `posbias paper herasimchyk2026 {study} --models "
        f"{sources} --corpora TEXT --effort full`"
    )


def _rows(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    return frame.reset_index().to_dict("records")


# --- tables of a page --------------------------------------------------------------------------------------

NAMES = {letter: f"({letter})" for letter in "abcd"} | NOISE


def _tables(frame: "pd.DataFrame", name: str, kind: str) -> Iterator[Table]:
    about = ABOUT["kind"][kind]
    if "columns" in about:
        rows = _rows(of_figure(frame.query(about["where"]), name))
        columns = {name: name for name in ("source", "model", "corpus")} | about["columns"]
        listed = [{head: _value(row, column) for head, column in columns.items()} for row in rows]
        yield from [Table.of(about["caption"], listed)] if rows else []
        return
    for caption, source, column in ABOUT["crossed"]:
        models: dict[str, dict[str, Any]] = {}
        rows = frame.query(f"source == '{source}'") if column in frame else frame.iloc[:0]
        for row in _rows(of_figure(rows, name)):
            head = f"{row['corpus']} {NAMES.get(row['what'], row['what'])}".strip()
            models.setdefault(row["model"], {"model": row["model"]})[head] = _value(row, column)
        yield from [Table.of(caption, models.values())] if models else []


def _value(row: Mapping[str, Any], name: str) -> Any:
    """A number of a row, with its standard error, or its interval, where it has one; a printed one as it is."""
    value, se, n, low = row[name], *(row.get(key, math.nan) for key in (f"{name}_se", "n", "low"))
    if name == "value" and math.isnan(se) and low == low:
        return f"{value:.3f} [{low:.3f}, {row['high']:.3f}]".replace("-", "−")
    if isinstance(value, str) or name == "printed" or not se or math.isnan(se):
        return value
    return Estimate(value, se, int(n) if n == n else None)


# --- the studies -------------------------------------------------------------------------------------------


def _measured(frame: "pd.DataFrame") -> list[str]:
    """The models that were measured."""
    return [*frame.query("source == 'measured'").index.unique("model")]


def judge_extended(study: Study, frame: "pd.DataFrame") -> Iterator[Judged]:
    """The claims of a study judged on what is of the paper's models; on other models, as claims of ours.

    The scope of these names the models. A claim of the paper of which only the second is known is left open, with
    the reason; the effort of a decided one says where it rests on the authors' files alone.
    """
    own, others = frame.query("own == 1"), frame.query("own == 0")
    sources = {*own.index.unique("source")}
    by_files = "measured" not in sources and "files" in sources
    for claim in study.claims:
        assert isinstance(claim.quantity, Quantity)
        at_hand = [
            effort
            for words, effort in AT_HAND.items()
            if words in claim.quantity.where and (effort != FIGURES or "figures" in sources)
        ]
        models = ", ".join(_measured(claim.quantity.rows(frame if claim.provenance == "ours" else others)))
        here = replace(claim, provenance="ours", scope=f"{models}: {frame.attrs['note']}")
        if claim.provenance == "ours" or claim.strength == "printed" or at_hand:
            one = here if claim.provenance == "ours" and not at_hand else claim
            for verdict in judge_each([one], frame):
                yield replace(verdict, effort=at_hand[0]) if at_hand else verdict
            continue
        ours = replace(here, id=f"{claim.id}{ELSEWHERE}", alias_of="")
        extended, decided = [*judge_each([ours], others)], [*judge_each([claim], own)]
        seen = [f"measured on other models, see {ours.id}"] if extended else []
        reason = "; ".join([*seen, study.decided_by])
        if extended and not decided:
            decided = [undecided(claim, reason, "")]
        for verdict in decided:
            if verdict.verdict == "undecided":
                yield replace(verdict, why=f"{verdict.why}; {reason}") if verdict.evidence else verdict
            else:
                yield replace(verdict, effort=FILES) if by_files else verdict
        yield from extended


def _json(frame: "pd.DataFrame") -> dict[str, Any]:
    """The rows for JSON, but for single positions and objects; with the models that were measured."""
    plain = _rows(frame.drop(columns=[*OBJECTS], errors="ignore"))
    whole = [row for row in plain if math.isnan(row.get("position", math.nan))]
    rows = [{name: value for name, value in row.items() if value == value} for row in whole]
    models = _measured(frame)
    seen = dict.fromkeys((row["model"], row["corpus"]) for row in plain if row["source"] == "measured")
    cells = [{"model": model, "corpus": corpus} for model, corpus in seen if corpus]
    return {"measured": models, "stand_in": stand_in(models), "cells": cells, "rows": rows}


def missing(frame: "pd.DataFrame", name: str) -> str:
    """Why there is nothing to show; "" if there is. Of tables with printed numbers there always is."""
    about, rows = ABOUT["study"][name], of_figure(frame, name)
    shown = rows if about["kind"] == "curves" else rows.query("source == 'measured'")
    always = ABOUT["kind"][about["kind"]].get("printed")
    return "" if always or len(shown) else about.get("lacking", "nothing measured of it")


def _page(frame: "pd.DataFrame", *, name: str, kind: str) -> Page:
    """Its note says what the numbers rest on, and whether other models stand in for the paper's."""
    note = ABOUT["kind"][kind]["note"].format(noise=ABOUT["noise"], bins=BINS)
    others = "Not the paper's models." if stand_in(_measured(frame)) else ""
    words = " ".join(part for part in (f"{frame.attrs['note']}.", note, others) if part)
    return Page(note=words, tables=tuple(_tables(frame, name, kind)), data=_json(frame))


DRAWN = {"schedules": draw_schedules, "curves": draw_curves, "content": draw_content}
"""The drawing of each kind that has one."""


def _study(name: str, about: Mapping[str, Any]) -> Study:
    """A study of this paper: what is measured is asked for at each run, and judged on the table of its kind."""
    kind, apart, draw = about["kind"], about.get("apart", False), DRAWN.get(about["kind"])
    # profiles and matrices, which figures are drawn of, are not on record
    serves = () if kind in ("curves", "content") else ("quick",)
    basis = Basis(cells=3, recorded=3)
    on_record = Recorded(f"quick: {ON_RECORD}", basis, serves, partial(recorded, kind), WHEN)
    uses = ABOUT["uses"] + (ABOUT["influence"] if ABOUT["kind"][kind].get("influence") else [])
    return Study(
        *titled(f"herasimchyk2026/{name}"),
        tuple(CLAIMS.get(name, ())),
        (),
        minutes=tuple(about.get("minutes", (3, 35))),
        unit="prompts",
        table=partial(table, kind),
        page=partial(_page, name=name, kind=kind),
        draw=draw and partial(draw, name=name),
        judge=judge_extended,
        recorded=lambda study: None if apart else on_record,
        needs="models",
        uses=tuple(map(tuple, uses)),
        decided_by="" if apart else decided_by(name),
        count=about.get("cells", 2),
        apart=apart,
    )


STUDIES = Studies(_study(name, about) for name, about in ABOUT["study"].items())
"""Tables, figures and the check of Section 4, in the order of the text."""
