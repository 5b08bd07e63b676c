"""Tables 2 to 5: how well each level agrees with the measured influence, in the paper's layout and beside it.

Tables 2 and 3 show each model's first corpus (and two of the paper's models), Tables 4 and 5 all of them. Scores
carry their 95 % interval over prompts; the level that agrees best is set in bold.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from posbias.claims import Claim
from posbias.comparison import Score
from posbias.estimate import Estimate
from posbias.evidence import Below, Evidence
from posbias.papers.herasimchyk2026 import printed
from posbias.papers.herasimchyk2026.curves import Curves
from posbias.papers.herasimchyk2026.measurements import LEVELS, Measurements, study_of
from posbias.papers.herasimchyk2026.rows import Ours, beside, beside_table, expected, row_claim
from posbias.papers.study import Study
from posbias.profile import spearman, uniform, wasserstein
from posbias.reports.pages import Table

DIGITS = {"spearman": 2, "wasserstein": 3}
FEATURED = ("table2", "table3")


def _study(name: str, score: str, title: str, question: str) -> Study:
    """The study of one of Tables 2 to 5."""
    better = "higher is better" if score == "spearman" else "on positions over n − 1, lower is better"
    about = f"{score.capitalize()} against the measured influence, {better}; ceiling: half the prompts"

    def shown(results: Measurements) -> list[Curves]:
        return [results.curves(key) for key in (results.leading if name in FEATURED else results.keys)]

    return study_of(
        name,
        title,
        question,
        _claims(name, score, shown),
        lambda results: _tables(name, score, shown(results), results.from_files),
        lambda results: _data(name, score, shown(results)),
        lambda results: f"{results.note} {about} against the other half.",
        LEVELS,
        expected=expected(name, lambda one: f"{one.model}, {one.corpus}, {one.what}, {score.capitalize()}"),
        row_claims=tuple(
            row_claim(name, model, _row_words(score, row)) for model, row in printed.scores(name).items()
        ),
    )


def _claims(name: str, score: str, shown: Callable[[Measurements], list[Curves]]) -> Iterator[Claim]:
    """That (b) agrees better than (a), which hardly does; where (c) is; the same of the numbers in print."""

    def claim(number: int, sentence: str, of: Callable[[Curves], Evidence], **options: Any) -> Claim:
        def quantity(results: Measurements) -> list[Evidence]:
            return [of(curves) for curves in shown(results)]

        return Claim(f"herasimchyk2026/{name}/{number}", "Section 6.3", sentence, quantity, **options)

    def apart(more: str, less: str) -> Callable[[Curves], Evidence]:
        return lambda curves: curves.difference(curves.name, score, more, less)

    if score == "spearman":
        yield claim(1, "(b) has a higher Spearman correlation than (a)", apart("b", "a"))
        yield claim(2, "(b) has the highest: above (c) too", apart("b", "c"))
        yield claim(
            3, "(a) performs poorly: its Spearman correlation is negative", _correlation, test=Below()
        )
    else:
        yield claim(1, "(b) is nearer than (a), by Wasserstein distance", apart("a", "b"))
        yield claim(2, "(c) is nearer than (b)", apart("b", "c"))
        yield claim(3, "(a) performs poorly: an even spread is nearer", _beyond_even)
    if name not in FEATURED:
        yield from _printed_claims(name, score)


def _correlation(curves: Curves) -> Evidence:
    return curves.evidence(curves.name, lambda mass: spearman(curves.levels["a"].mass, mass))


def _beyond_even(curves: Curves) -> Evidence:
    predicted, even = curves.levels["a"].mass, uniform(curves.levels["a"].tokens).mass
    return curves.evidence(curves.name, lambda mass: wasserstein(predicted, mass) - wasserstein(even, mass))


def _printed_claims(name: str, score: str) -> Iterator[Claim]:
    """Of the numbers that the paper prints, which carry no error."""
    rows = {
        f"{model}, {corpus}": values
        for model, by_corpus in printed.scores(name).items()
        for corpus, values in by_corpus.items()
    }
    up, better = (1.0, "higher") if score == "spearman" else (-1.0, "nearer")
    pair = "(b) is higher than (c)" if score == "spearman" else "(c) is nearer than (b)"
    sentences = {
        f"(the paper's own numbers) (b) is {better} than (a)": lambda a, b, c: up * (b - a),
        f"(the paper's own numbers) {pair}": lambda a, b, c: b - c,
    }
    for number, (sentence, of) in enumerate(sentences.items(), 4):
        evidence = [Evidence(where, Estimate(of(*values))) for where, values in rows.items()]
        place = f"Table {name.removeprefix('table')}"
        yield Claim(f"herasimchyk2026/{name}/{number}", place, sentence, lambda results, told=evidence: told)


def _tables(name: str, score: str, shown: list[Curves], from_files: Sequence[Curves]) -> Iterator[Table]:
    corpora = list(dict.fromkeys(curves.corpus for curves in shown))
    letters = sorted({letter for curves in shown for letter in curves.levels})
    parts = [*(f"({letter})" for letter in letters), "ceiling"]
    by_place = {(curves.model, curves.corpus): curves for curves in shown}
    rows = [
        [
            model,
            *(cell for corpus in corpora for cell in _cells(score, by_place.get((model, corpus)), letters)),
        ]
        for model in dict.fromkeys(curves.model for curves in shown)
    ]
    if rows:
        head = ["model"] + [f"{corpus} {part}".strip() for corpus in corpora for part in parts]
        yield Table("Measured here, with 95 % intervals over prompts", head, rows)
    if from_files:
        says = "undecided: levels are known (fig2), measured influence is not"
        models = dict.fromkeys(curves.model for curves in from_files)
        yield Table("From the authors' files", ["model", "agreement"], [[model, says] for model in models])
    theirs = printed.scores(name)
    columns = next(iter(theirs.values()))
    head = ["model"] + [f"{corpus} ({letter})" for corpus in columns for letter in printed.LEVELS]
    rows = [
        [model, *(f"{value:.2f}" for values in row.values() for value in values)]
        for model, row in theirs.items()
    ]
    yield Table("Printed in the paper", head, rows)
    yield beside_table(name, _ours(shown, score))


def _cells(score: str, curves: Curves | None, letters: list[str]) -> list[str]:
    if curves is None:
        return ["–"] * (len(letters) + 1)
    best, cells = curves.best(score), []
    for letter in letters:
        by = curves.comparison.agreements.get(letter)
        text = score_text(getattr(by, score, None), DIGITS[score])
        cells.append(f"**{text}**" if letter == best else text)
    return [*cells, score_text(getattr(curves.comparison.ceiling, score, None), DIGITS[score])]


def score_text(score: Score | None, digits: int) -> str:
    """'0.60 [0.49, 0.72]', a dash for none."""
    if score is None or math.isnan(score.value):
        return "–"
    around = f" [{score.interval[0]:.{digits}f}, {score.interval[1]:.{digits}f}]" if score.interval else ""
    return f"{score.value:.{digits}f}{around}".replace("-", "−")


def _data(name: str, score: str, shown: list[Curves]) -> dict[str, Any]:
    """Every score with its interval, baselines and ceiling, and the printed ones."""
    rows = []
    for curves in shown:
        told = curves.comparison.as_dict()
        levels, ceiling = told["agreements"], told["ceiling"]
        rows.append(
            {
                "model": curves.model,
                "corpus": curves.corpus,
                "prompts": len(curves.samples),
                "levels": {letter: by[score] for letter, by in levels.items()},
                "levels_without_first": {
                    letter: by[f"{score}_without_first"] for letter, by in levels.items()
                },
                "baselines": {key: by[score] for key, by in told["baselines"].items()},
                "ceiling": ceiling and ceiling[score],
                "best": curves.best(score),
            }
        )
    table = printed.TABLE4 if score == "spearman" else printed.TABLE5
    return {"score": score, "rows": rows, "printed": table, **beside(name, _ours(shown, score))}


def _ours(shown: Iterable[Curves], score: str) -> Ours:
    """The scores, half of the 95 % interval being 1.96 standard errors."""
    for curves in shown:
        for letter, by in curves.comparison.agreements.items():
            found: Score = getattr(by, score)
            if found.interval is not None:
                low, high = found.interval
                estimate = Estimate(found.value, (high - low) / 2 / 1.96, len(curves.samples))
                yield curves.model, curves.corpus, f"({letter})", estimate


def _row_words(score: str, row: dict[str, printed.Row]) -> str:
    cells = (
        f"{' / '.join(f'{value:.2f}'.replace('-', '−') for value in values)} on {corpus}"
        for corpus, values in row.items()
    )
    return f"{score.capitalize()} of (a) / (b) / (c) {', '.join(cells)}"


STUDIES = (
    _study(
        "table2",
        "spearman",
        "Spearman correlation of levels (a) to (c) with the measured influence, two models",
        "Does the residual connection make the rollout rank positions as the model does?",
    ),
    _study(
        "table3",
        "wasserstein",
        "Wasserstein distance of levels (a) to (c) from the measured influence, two models",
        "Does the residual connection bring the rollout near the measured influence?",
    ),
    _study(
        "table4",
        "spearman",
        "Spearman correlation for every model and text",
        "Is residual-aware better than attention-only on every text, and is constant content better still?",
    ),
    _study(
        "table5",
        "wasserstein",
        "Wasserstein distance for every model and text",
        "Is residual-aware nearer than attention-only on every text, and is constant content nearer still?",
    ),
)
