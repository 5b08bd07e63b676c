"""Tables 2 to 5: how well each level agrees with the measured influence, in the paper's layout and beside it.

Tables 2 and 3 show each model's first corpus (and two of the paper's models), Tables 4 and 5 all of them. Scores
carry their 95 % interval over prompts; the level that agrees best is set in bold. Tables 4 and 5 have the levels
with weighted heads too (`head_weights`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Above, Below, Evidence, share
from posbias.profiles.profile import spearman, uniform, wasserstein
from posbias.reports.answers.numbers import Comparison
from posbias_papers.claims import claims_of
from posbias_papers.herasimchyk2026 import head_weights, printed
from posbias_papers.herasimchyk2026.agreement_claims import printed_claims
from posbias_papers.herasimchyk2026.curves import Curves
from posbias_papers.herasimchyk2026.measurements import LEVELS, Measurements, study_of
from posbias_papers.herasimchyk2026.rows import Ours, beside, beside_table, expected, row_claim
from posbias_papers.herasimchyk2026.standing import OURS
from posbias_papers.pages import Table
from posbias_papers.study import Study

DIGITS = {"spearman": 2, "wasserstein": 3}
FEATURED = {"table2": "table4", "table3": "table5"}
"""Tables of two models on one text, and those that have their rows again."""
NOISE = {"split_half": "split-half", "second_measurement": "second measurement", "noiseless": "noise ceiling"}
"""Columns on what noise in the measured influence allows: fields of `Reliability`."""
NOISE_NOTE = (
    "Split-half: one half of the prompts against the other; second measurement: these against as many others, and "
    "noise ceiling: a noiseless predictor against these, both inferred (posbias.comparison.reliability)."
)


def _study(name: str, score: str, title: str, question: str) -> Study:
    """The study of one of Tables 2 to 5."""
    better = "higher is better" if score == "spearman" else "on positions over n − 1, lower is better"
    about = f"{score.capitalize()} against the measured influence, {better}"

    def shown(results: Measurements) -> list[Curves]:
        return [results.curves(key) for key in (results.leading if name in FEATURED else results.keys)]

    return study_of(
        name,
        title,
        question,
        () if name in FEATURED else _claims(name, score, shown),
        lambda results: [
            *_tables(name, score, shown(results), results.from_files),
            *([] if name in FEATURED else head_weights.tables(results, score)),
        ],
        lambda results: (
            _data(name, score, shown(results))
            | ({} if name in FEATURED else {"weighted_heads": head_weights.rows(results, score)})
        ),
        lambda results: f"{results.note} {about}. {NOISE_NOTE}",
        LEVELS,
        expected=expected(name, lambda one: f"{one.model}, {one.corpus}, {one.what}, {score.capitalize()}"),
        row_claims=tuple(
            row_claim(name, model, _row_words(score, row), FEATURED.get(name, ""))
            for model, row in printed.scores(name).items()
        ),
    )


def _claims(name: str, score: str, shown: Callable[[Measurements], list[Curves]]) -> Iterator[Claim]:
    """What is said of the scores: of those measured here, claims of ours, and of the printed ones."""
    claim = claims_of(f"herasimchyk2026/{name}", "Section 6.3", **OURS)

    def each(of: Callable[[Curves], Evidence]) -> Callable[[Measurements], list[Evidence]]:
        return lambda results: [of(curves) for curves in shown(results)]

    def often(more: str, less: str) -> Callable[[Measurements], list[Evidence]]:
        def quantity(results: Measurements) -> list[Evidence]:
            cells = [one.tested(Above()) for one in each(apart(more, less))(results)]
            return [share("models and texts", cells)] if cells else []

        return quantity

    def apart(more: str, less: str) -> Callable[[Curves], Evidence]:
        return lambda curves: curves.difference(curves.name, score, more, less)

    if score == "spearman":
        yield claim(1, "(b) has a higher Spearman correlation than (a)", each(apart("b", "a")))
        often_highest = "(b) often has the highest: above (c) in more than half of the cells"
        yield claim(2, often_highest, often("b", "c"), strength="hedged")
        negative = "(a) orders positions the wrong way round: its Spearman correlation is negative"
        yield claim(3, negative, each(_correlation), test=Below())
    else:
        yield claim(1, "(b) is nearer than (a), by Wasserstein distance", each(apart("a", "b")))
        nearer = "(c) is typically nearer than (b): in more than half of the cells"
        yield claim(2, nearer, often("b", "c"), strength="hedged")
        yield claim(3, "(a) is further off than an even spread", each(_beyond_even))
    yield from printed_claims(name, score)
    yield from head_weights.claims(name, score, 12)


def _correlation(curves: Curves) -> Evidence:
    return curves.evidence(curves.name, lambda mass: spearman(curves.levels["a"].mass, mass))


def _beyond_even(curves: Curves) -> Evidence:
    predicted, even = curves.levels["a"].mass, uniform(curves.levels["a"].tokens).mass
    return curves.evidence(curves.name, lambda mass: wasserstein(predicted, mass) - wasserstein(even, mass))


def _tables(name: str, score: str, shown: list[Curves], from_files: Sequence[Curves]) -> Iterator[Table]:
    corpora = list(dict.fromkeys(curves.corpus for curves in shown))
    letters = sorted({letter for curves in shown for letter in curves.levels})
    parts = [*(f"({letter})" for letter in letters), *NOISE.values()]
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
        return ["–"] * (len(letters) + len(NOISE))
    best, cells = curves.best(score), []
    for letter in letters:
        by = curves.comparison.agreements.get(letter)
        text = score_text(getattr(by, score, None), DIGITS[score])
        cells.append(f"**{text}**" if letter == best else text)
    return [*cells, *noise_cells(curves, score)]


def noise_cells(curves: Curves, score: str) -> list[str]:
    """What noise allows, in the columns of `NOISE`; dashes with fewer than four prompts."""
    rows = (getattr(curves.comparison.reliability, name, None) for name in NOISE)
    return [score_text(getattr(row, score, None), DIGITS[score]) for row in rows]


def score_text(score: Estimate | None, digits: int) -> str:
    """'0.60 [0.49, 0.72]', a dash for none."""
    if score is None or math.isnan(score.value):
        return "–"
    around = f" [{score.interval[0]:.{digits}f}, {score.interval[1]:.{digits}f}]" if score.bounds else ""
    return f"{score.value:.{digits}f}{around}".replace("-", "−")


def _data(name: str, score: str, shown: list[Curves]) -> dict[str, Any]:
    """Every score with its interval, baselines, held-out scores, what noise allows, and the printed ones."""
    rows = []
    for curves in shown:
        told = Comparison.of(curves.comparison).model_dump(mode="json")
        levels, noise, held_out = told["agreements"], told["reliability"], told["held_out"]
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
                "held_out": held_out and {letter: by[score] for letter, by in held_out["agreements"].items()},
                "reliability": noise and {name: by[score] for name, by in noise.items()},
                "best": curves.best(score),
            }
        )
    table = printed.TABLE4 if score == "spearman" else printed.TABLE5
    return {"score": score, "rows": rows, "printed": table, **beside(name, _ours(shown, score))}


def _ours(shown: Iterable[Curves], score: str) -> Ours:
    """The scores, as far as their errors are known."""
    for curves in shown:
        for letter, by in curves.comparison.agreements.items():
            found: Estimate = getattr(by, score)
            if found.known:
                yield curves.model, curves.corpus, f"({letter})", found


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
