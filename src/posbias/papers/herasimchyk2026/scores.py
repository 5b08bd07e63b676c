"""Tables 2 to 5: how well each level agrees with the measured influence, in the paper's layout and beside it.

Tables 2 and 3 show each model's first corpus (and two of the paper's models), Tables 4 and 5 all of them. Scores
carry their 95 % interval over prompts; the level that agrees best is set in bold.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.claims import Above, Below, Claim, Evidence, Test
from posbias.comparison import Score
from posbias.estimate import Estimate
from posbias.papers.herasimchyk2026 import printed
from posbias.papers.herasimchyk2026.measurements import Measurements, study_of
from posbias.papers.herasimchyk2026.rows import Ours, beside_data, beside_table, expected, row_claim
from posbias.papers.study import Study
from posbias.profile import spearman, uniform, wasserstein
from posbias.reports.pages import Table

if TYPE_CHECKING:
    from posbias.papers.herasimchyk2026.agreement import Agreement

DIGITS = {"spearman": 2, "wasserstein": 3}
FEATURED = ("table2", "table3")
ABOVE = Above()


def score_study(name: str, score: str, title: str, question: str) -> Study:
    """The study of one of Tables 2 to 5."""
    better = "higher is better" if score == "spearman" else "on positions over n − 1, lower is better"
    about = f"{score.capitalize()} against the measured influence, {better}; ceiling: half the prompts"
    rows = printed.scores(name)
    return study_of(
        name,
        title,
        question,
        _claims(name, score),
        lambda results: _tables(results, name, score),
        lambda results: _data(results, name, score),
        lambda results: f"{results.note} {about} against the other half.",
        expected=expected(name, lambda one: f"{one.model}, {one.corpus}, {one.what}, {score.capitalize()}"),
        row_claims=tuple(row_claim(name, model, _row_words(score, row)) for model, row in rows.items()),
    )


# --- claims ------------------------------------------------------------------------------------------------


def _claims(name: str, score: str) -> Iterator[Claim]:
    """That (b) agrees better than (a), which hardly does; where (c) is; the same of the numbers in print."""

    def claim(
        number: int, sentence: str, judge: "Callable[[Agreement], Evidence]", test: Test = ABOVE
    ) -> Claim:
        def quantity(results: Measurements) -> list[Evidence]:
            return [judge(one) for one in _agreements(results, name)]

        return Claim(f"herasimchyk2026/{name}/{number}", "Section 6.3", sentence, quantity, test)

    def apart(more: str, less: str) -> "Callable[[Agreement], Evidence]":
        return lambda one: one.difference(one.curves.name, score, more, less)

    if score == "spearman":
        yield claim(1, "(b) has a higher Spearman correlation than (a)", apart("b", "a"))
        yield claim(2, "(b) has the highest: above (c) too", apart("b", "c"))
        yield claim(3, "(a) performs poorly: its Spearman correlation is negative", _correlation, Below())
    else:
        yield claim(1, "(b) is nearer than (a), by Wasserstein distance", apart("a", "b"))
        yield claim(2, "(c) is nearer than (b)", apart("b", "c"))
        yield claim(3, "(a) performs poorly: an even spread is nearer", _beyond_even)
    if name not in FEATURED:
        yield from _printed_claims(name, score)


def _correlation(agreement: "Agreement") -> Evidence:
    predicted = agreement.mass("a")
    return agreement.evidence(agreement.curves.name, lambda mass: spearman(predicted, mass))


def _beyond_even(agreement: "Agreement") -> Evidence:
    predicted = agreement.mass("a")
    even = np.asarray(uniform(predicted.size).mass)
    return agreement.evidence(
        agreement.curves.name, lambda mass: wasserstein(predicted, mass) - wasserstein(even, mass)
    )


def _printed_claims(name: str, score: str) -> Iterator[Claim]:
    """Of the numbers that the paper prints, which carry no error."""
    rows = {
        f"{model}, {corpus}": values
        for model, by_corpus in printed.scores(name).items()
        for corpus, values in by_corpus.items()
    }
    up, better = (1.0, "higher") if score == "spearman" else (-1.0, "nearer")
    pair = "(b) is higher than (c)" if score == "spearman" else "(c) is nearer than (b)"
    yield Claim(
        f"herasimchyk2026/{name}/4",
        _title(name),
        f"(the paper's own numbers) (b) is {better} than (a)",
        lambda results: [Evidence(where, Estimate(up * (b - a))) for where, (a, b, _) in rows.items()],
    )
    yield Claim(
        f"herasimchyk2026/{name}/5",
        _title(name),
        f"(the paper's own numbers) {pair}",
        lambda results: [Evidence(where, Estimate(b - c)) for where, (_, b, c) in rows.items()],
    )


def _agreements(results: Measurements, name: str) -> "list[Agreement]":
    keys = results.leading if name in FEATURED else results.keys
    return [results.agreements[key] for key in keys]


# --- tables ------------------------------------------------------------------------------------------------


def _tables(results: Measurements, name: str, score: str) -> Iterator[Table]:
    agreements = _agreements(results, name)
    corpora = list(dict.fromkeys(one.curves.corpus for one in agreements))
    letters = sorted({letter for one in agreements for letter in one.curves.levels})
    parts = [*(f"({letter})" for letter in letters), "ceiling"]
    found = {(one.curves.model, one.curves.corpus): one for one in agreements}
    rows = [
        [model, *(cell for corpus in corpora for cell in _cells(score, found.get((model, corpus)), letters))]
        for model in dict.fromkeys(one.curves.model for one in agreements)
    ]
    if rows:
        head = ["model"] + [f"{corpus} {part}".strip() for corpus in corpora for part in parts]
        yield Table("Measured here, with 95 % intervals over prompts", head, rows)
    if results.from_files:
        says = "undecided: levels are known (fig2), measured influence is not"
        models = dict.fromkeys(curves.model for curves in results.from_files)
        yield Table("From the authors' files", ["model", "agreement"], [[model, says] for model in models])
    theirs = printed.scores(name)
    columns = next(iter(theirs.values()))
    head = ["model"] + [f"{corpus} ({letter})" for corpus in columns for letter in printed.LEVELS]
    rows = [
        [model, *(f"{value:.2f}" for values in row.values() for value in values)]
        for model, row in theirs.items()
    ]
    yield Table("Printed in the paper", head, rows)
    yield beside_table(name, _ours(agreements, score))


def _cells(score: str, agreement: "Agreement | None", letters: list[str]) -> list[str]:
    if agreement is None:
        return ["–"] * (len(letters) + 1)
    best, cells = agreement.best(score), []
    for letter in letters:
        by = agreement.comparison.agreements.get(letter)
        text = score_text(getattr(by, score, None), DIGITS[score])
        cells.append(f"**{text}**" if letter == best else text)
    return [*cells, score_text(getattr(agreement.comparison.ceiling, score, None), DIGITS[score])]


def score_text(score: Score | None, digits: int) -> str:
    """'0.60 [0.49, 0.72]', a dash for none."""
    if score is None or math.isnan(score.value):
        return "–"
    around = f" [{score.interval[0]:.{digits}f}, {score.interval[1]:.{digits}f}]" if score.interval else ""
    return f"{score.value:.{digits}f}{around}".replace("-", "−")


def _data(results: Measurements, name: str, score: str) -> dict[str, Any]:
    """Every score with its interval, baselines and ceiling, and the printed ones."""
    rows, without = [], f"{score}_without_first"
    agreements = _agreements(results, name)
    for one in agreements:
        comparison = one.comparison
        levels, ceiling = comparison.agreements, comparison.ceiling
        rows.append(
            {
                "model": one.curves.model,
                "corpus": one.curves.corpus,
                "prompts": one.prompts,
                "levels": {letter: getattr(by, score).as_dict() for letter, by in levels.items()},
                "levels_without_first": {
                    letter: getattr(by, without).as_dict() for letter, by in levels.items()
                },
                "baselines": {key: getattr(by, score).as_dict() for key, by in comparison.baselines.items()},
                "ceiling": None if ceiling is None else getattr(ceiling, score).as_dict(),
                "best": one.best(score),
            }
        )
    table = printed.TABLE4 if score == "spearman" else printed.TABLE5
    return {"score": score, "rows": rows, "printed": table, **beside_data(name, _ours(agreements, score))}


def _ours(agreements: "Iterable[Agreement]", score: str) -> Ours:
    """The scores, half of the 95 % interval being 1.96 standard errors."""
    for one in agreements:
        for letter, by in one.comparison.agreements.items():
            found: Score = getattr(by, score)
            if found.interval is not None:
                low, high = found.interval
                estimate = Estimate(found.value, (high - low) / 2 / 1.96, one.prompts)
                yield one.curves.model, one.curves.corpus, f"({letter})", estimate


def _title(name: str) -> str:
    return f"Table {name.removeprefix('table')}"


def _row_words(score: str, row: dict[str, tuple[float, float, float]]) -> str:
    cells = (
        f"{' / '.join(f'{value:.2f}'.replace('-', '−') for value in values)} on {corpus}"
        for corpus, values in row.items()
    )
    return f"{score.capitalize()} of (a) / (b) / (c) {', '.join(cells)}"
