"""The numbers of the printed tables beside ours, and each row of a table as a claim.

A row is one model of the paper, by its name; a text is the paper's by what its name has in it, and a score on
another text is not compared. Ours may lie half of the last digit away, and as many standard errors as the furthest
of all numbers of the row is off by chance in 5 % (Bonferroni): over prompts, in Table 6 over heads.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Evidence, Printed
from posbias.theory.configs import PRESETS
from posbias_papers.herasimchyk2026.printed import HUB, TOKENS, Number, numbers
from posbias_papers.herasimchyk2026.standing import EFFORT, corpus_of, model_of
from posbias_papers.pages import Table
from posbias_papers.study import Expected

KNOWN = 0.05
"""A number whose standard error is larger does not confirm a printed one."""
LEVEL = 0.05
"""How often a row of true numbers may be found wrong."""
HEAD = ("model", "corpus", "of", "printed", "here", "difference", "tolerance", "within")
Ours = Iterable[tuple[str, str, str, Estimate]]
"""Numbers made here: model, text, what, value with its error (0 for an exact one)."""


def beside(table: str, ours: Ours) -> dict[str, list[Any]]:
    """Every number that the paper prints in this table and was made here, in its order, beside ours, for JSON.

    With them the models of the table of which nothing was compared.
    """
    made = {(model_of(name), corpus_of(text), what): estimate for name, text, what, estimate in ours}
    places = {(number.model, number.corpus, number.what): number for number in numbers(table)}
    compared = []
    for number, test, estimate in _tested((places[at], made[at]) for at in places if at in made):
        named = {"model": number.model, "corpus": number.corpus, "what": number.what}
        sizes = {"printed": number.value, "here": estimate.value, "se": estimate.se}
        tolerance = test.rounding + test.errors * estimate.se
        compared.append(named | sizes | {"tolerance": tolerance, "within": test.agrees(estimate)})
    had = {entry["model"] for entry in compared}
    lacking = dict.fromkeys(number.model for number in numbers(table) if number.model not in had)
    return {"printed_beside": compared, "not_measured": [*lacking]}


def beside_table(table: str, ours: Ours) -> Table:
    """The same in words; its caption names the models that were not measured on the paper's texts."""
    compared, lacking = beside(table, ours).values()
    caption = "Printed beside ours, with the tolerance used"
    if lacking:
        where = "" if table == "table1" else " on the paper's texts"
        caption += f" (not measured here{where}, so not compared: {', '.join(lacking)})"
    rows = []
    for entry in compared:
        off = entry["here"] - entry["printed"]
        sizes = f"{entry['printed']:g} {entry['here']:.3g} {off:+.2g} {entry['tolerance']:.2g}"
        within = "yes" if entry["within"] else "no"
        names = (entry["model"], entry["corpus"] or "–", entry["what"])
        rows.append([*names, *sizes.replace("-", "−").split(), within])
    return Table(caption, HEAD, rows)


def expected(table: str, words: Callable[[Number], str]) -> tuple[Expected, ...]:
    """The numbers of a table that its rows' claims are about, with the deviation that rounding explains."""
    place = f"Table {table.removeprefix('table')}"
    return tuple(
        Expected(words(number), number.value, 0.5 * 10.0**-number.digits if number.digits else 0.0, place)
        for number in numbers(table)
        if number.claimed
    )


def row_claim(table: str, model: str, words: str, again: str = "") -> Claim:
    """That a printed row is what was measured here, judged on the table's JSON (empty where there is none).

    It is a part of the row that table `again` has of the model.
    """

    def quantity(data: Mapping[str, Any]) -> Iterator[Evidence]:
        ours = {
            (entry["corpus"], entry["what"]): Estimate(entry["here"], entry["se"])
            for entry in data.get("printed_beside", ())
            if entry["model"] == model and entry.get("se") is not None
        }
        own = [one for one in numbers(table) if one.model == model and one.claimed]
        made = [(one, ours[one.corpus, one.what]) for one in own if (one.corpus, one.what) in ours]
        pieces = [
            Evidence(f"{one.what} on {one.corpus}" if one.corpus else one.what, estimate, test=test)
            for one, test, estimate in _tested(made)
        ]
        yield from sorted(pieces, key=lambda piece: piece.sureness)
        if not pieces:
            yield Evidence(model, flaw=_needed(table, model))

    place = f"Table {table.removeprefix('table')}"
    sentence = f"{place}, row {model}: {words}"
    name = f"herasimchyk2026/{table}/{model}"
    texts = dict.fromkeys(one.corpus for one in numbers(table) if one.corpus) or ["FineWeb-Edu"]
    scope = f"{model}, {', '.join(texts)}, {TOKENS} tokens{'' if table == 'table6' else ' (not printed)'}"
    alias = f"herasimchyk2026/{again}/{model}" if again else ""
    return Claim(
        name, place, sentence, quantity, strength="printed", scope=scope, effort=EFFORT, alias_of=alias
    )


def _tested(pairs: Iterable[tuple[Number, Estimate]]) -> Iterator[tuple[Number, Printed, Estimate]]:
    """Printed numbers with the test of each, and ours."""
    finite = [(number, ours) for number, ours in pairs if np.isfinite(ours.value)]
    counts = Counter(number.model for number, _ in finite if number.claimed)
    for number, ours in finite:
        errors = NormalDist().inv_cdf(1.0 - LEVEL / 2 / max(1, counts[number.model]))
        yield number, Printed(Estimate(float(number.value)), number.digits, errors=errors, known=KNOWN), ours


def _needed(table: str, model: str) -> str:
    source = PRESETS[HUB[model].preset].source
    what = "mean content logits" if table == "table6" else "measured influence"
    return (
        f"needs {model} itself ({source}), {EFFORT} of the paper's texts; `posbias paper "
        f"herasimchyk2026 {table} --models {source} --corpora TEXT --effort full` measures it, the authors' "
        f"rollout files hold no {what}"
    )
