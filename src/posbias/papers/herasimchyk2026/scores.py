"""Tables 2 to 5: how well each level agrees with the measured influence, in the paper's layout and beside it.

Tables 2 and 3 show each model's first corpus (and two of the paper's models), Tables 4 and 5 all of them. Scores
carry their 95 % interval over prompts; the level that agrees best is set in bold.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from posbias.agreement import Score
from posbias.claims import Claim, Provenance
from posbias.estimate import Estimate
from posbias.evidence import Above, Below, Evidence, share
from posbias.papers.claims import AtHand, claims_of
from posbias.papers.herasimchyk2026 import printed
from posbias.papers.herasimchyk2026.curves import Curves
from posbias.papers.herasimchyk2026.measurements import LEVELS, Measurements, study_of
from posbias.papers.herasimchyk2026.rows import Ours, beside, beside_table, expected, row_claim
from posbias.papers.herasimchyk2026.standing import EFFORT, OURS, SCOPE
from posbias.papers.study import Study
from posbias.profile import spearman, uniform, wasserstein
from posbias.reports.pages import Table

DIGITS = {"spearman": 2, "wasserstein": 3}
FEATURED = {"table2": "table4", "table3": "table5"}
"""Tables of two models on one text, and those that have their rows again."""
ROUNDING = 0.01 / math.sqrt(6)
"""The standard error of a difference of two numbers that are printed to two digits."""
PRINTED_ERROR = 0.01 / math.sqrt(12)
"""That of one of them."""
LARGE = ("mpt-30b", "bloom-176b")
"""The larger models, as Appendix B.2 calls them."""
HIGH, SMALL = 0.5, 0.1
"""From here on a rank correlation counts as high here, and up to here a distance (share of the text) as small."""
THEORY = "bc"
"""The levels that the paper's theory is; the first is its baseline."""
NOISE = {"split_half": "split-half", "second_measurement": "second measurement", "noiseless": "noise ceiling"}
"""Columns on what noise in the measured influence allows: fields of `Reliability`."""
NOISE_NOTE = (
    "Split-half: one half of the prompts against the other; second measurement: these against as many others, and "
    "noise ceiling: a noiseless predictor against these, both inferred (posbias.reliability)."
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
        _claims(name, score, shown),
        lambda results: _tables(name, score, shown(results), results.from_files),
        lambda results: _data(name, score, shown(results)),
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

    def about(number: int, *words: Any, **options: Any) -> Claim:
        alias = f"herasimchyk2026/{FEATURED[name]}/{number}" if name in FEATURED else ""
        return claim(number, *words, alias_of=alias, **options)

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
        yield about(1, "(b) has a higher Spearman correlation than (a)", each(apart("b", "a")))
        often_highest = "(b) often has the highest: above (c) in more than half of the cells"
        yield about(2, often_highest, often("b", "c"), strength="hedged")
        negative = "(a) orders positions the wrong way round: its Spearman correlation is negative"
        yield about(3, negative, each(_correlation), test=Below())
    else:
        yield about(1, "(b) is nearer than (a), by Wasserstein distance", each(apart("a", "b")))
        nearer = "(c) is typically nearer than (b): in more than half of the cells"
        yield about(2, nearer, often("b", "c"), strength="hedged")
        yield about(3, "(a) is further off than an even spread", each(_beyond_even))
    if name not in FEATURED:
        yield from _printed_claims(name, score)


def _correlation(curves: Curves) -> Evidence:
    return curves.evidence(curves.name, lambda mass: spearman(curves.levels["a"].mass, mass))


def _beyond_even(curves: Curves) -> Evidence:
    predicted, even = curves.levels["a"].mass, uniform(curves.levels["a"].tokens).mass
    return curves.evidence(curves.name, lambda mass: wasserstein(predicted, mass) - wasserstein(even, mass))


def _printed_claims(name: str, score: str) -> Iterator[Claim]:
    """Of the numbers that the paper prints, which are known up to rounding."""
    place = f"Section 6.3, Table {name.removeprefix('table')}"
    about = {
        "scope": f"{SCOPE}, {', '.join(printed.CORPORA)}, {printed.TOKENS} tokens (not printed)",
        "effort": EFFORT,
    }
    claim = claims_of(f"herasimchyk2026/{name}", place, **about)
    poorly = "(the paper's own numbers) As expected, (a) performs poorly: (b)"
    if score == "spearman":
        ahead = AtHand(lambda: _in_print(name, lambda a, b, c: b - a))
        yield claim(4, f"{poorly} has the higher Spearman correlation", ahead, strength="printed")
        words = "Across models, (b) often achieves the highest Spearman correlation"
        often = AtHand(lambda: [_share_in_print(name, lambda a, b, c: b - max(a, c))])
    else:
        ahead = AtHand(lambda: _in_print(name, lambda a, b, c: a - b))
        yield claim(4, f"{poorly} has the lower Wasserstein distance", ahead, strength="printed")
        words = "(c) typically attains comparable or lower Wasserstein distance, especially in larger models"
        often = AtHand(partial(_nearer_in_larger, name))
    yield claim(5, f"(the paper's own numbers) {words}", often, strength="hedged")
    yield from _agreement_claims(name, score, about)


def _agreement_claims(name: str, score: str, about: Mapping[str, str]) -> Iterator[Claim]:
    """What Appendix B.2 says of all printed scores, of larger and of deeper models.

    Where its words have no number it is ours, and of larger and deeper models the paper's theory is the level with
    content, as in its introduction; the same of the level without is ours.
    """
    claim = claims_of(f"herasimchyk2026/{name}", "Appendix B.2", **about)
    own, place, number = "(the paper's own numbers)", "Appendix B.2", 7
    if score == "spearman":
        test, words = Above(HIGH, least=0.0), f"Spearman correlations are consistently high: above {HIGH:g}"
        every_case = AtHand(partial(_every_case, name, test))
        yield claim(6, f"{own} {words} in every case of (b) and (c)", every_case, provenance="ours")
        on_each = AtHand(partial(_on_each_corpus, name, test))
        yield claim(7, f"{own} {words} on every corpus, as means over models", on_each, provenance="ours")
        number, better = 8, "a higher mean Spearman correlation"
    else:
        test, words = Below(SMALL, least=0.0), f"Wasserstein distances are uniformly small: below {SMALL:g}"
        every_case = AtHand(partial(_every_case, name, test))
        yield claim(6, f"{own} {words} in every case of (b) and (c)", every_case, provenance="ours")
        place, better = "Section 6.3, Appendix B.2", "a lower mean Wasserstein distance"
    of_whom: tuple[tuple[str, Provenance], ...] = (("c", "paper"), ("b", "ours"))
    for level, whose in of_whom:
        words = f"({level}) agrees particularly well in larger models: {' and '.join(LARGE)} have {better}"
        quantity = AtHand(partial(_larger, name, level))
        yield claim(number, f"{own} {words}", quantity, place=place, provenance=whose)
        number += 1
    for level, whose in of_whom:
        words = (
            f"({level}) is more accurate with depth: deeper models have {better} (rank correlation of five)"
        )
        quantity = AtHand(partial(_deeper, name, level))
        yield claim(number, f"{own} {words}", quantity, provenance=whose, strength="hedged")
        number += 1
    if score == "wasserstein":
        words = (
            f"(c) lies very close to the measured influence in larger models: within {SMALL:g} of the text"
        )
        close = AtHand(partial(_every_case, name, test, "c", LARGE))
        yield claim(number, f"{own} {words}", close, place="Section 6.3", provenance="ours")


def _every_case(
    name: str, test: Above | Below, levels: str = THEORY, models: Sequence[str] = ()
) -> list[Evidence]:
    """Every printed score of some levels and models (none: all), the one that is least sure to pass first."""
    rows = printed.scores(name)
    pieces = [
        Evidence(
            f"({level}) of {model}, {corpus}",
            Estimate(values[printed.LEVELS.index(level)], PRINTED_ERROR),
            test=test,
        )
        for model in models or rows
        for corpus, values in rows[model].items()
        for level in levels
    ]
    return sorted(pieces, key=lambda piece: piece.sureness)


def _on_each_corpus(name: str, test: Above | Below) -> list[Evidence]:
    """The mean over models of each of the theory's levels, by corpus."""
    rows = printed.scores(name)
    pieces = [
        Evidence(f"({level}) on {corpus}", _mean(name, level, [*rows], [corpus]), test=test)
        for corpus in printed.CORPORA
        for level in THEORY
    ]
    return sorted(pieces, key=lambda piece: piece.sureness)


def _larger(name: str, level: str) -> Iterator[Evidence]:
    """By how much larger models agree better than the others, in the mean of their printed scores."""
    others = [model for model in printed.TABLE1 if model not in LARGE]
    gain = _mean(name, level, LARGE) - _mean(name, level, others)
    better = gain if name == "table4" else -gain
    yield Evidence(f"({level}), larger models against others", better, test=Above(least=0.0))


def _deeper(name: str, level: str) -> Iterator[Evidence]:
    """The rank correlation of depth with agreement, the mean of a model's printed scores.

    Its error is that of so many unrelated ranks, 1/√(models − 1): five models tell little.
    """
    depths = np.array([depth for _, depth in printed.TABLE1.values()], dtype=np.float64)
    means = np.array([_mean(name, level, [model]).value for model in printed.TABLE1])
    correlation = float(spearman(depths, means if name == "table4" else -means))
    estimate = Estimate(correlation, 1.0 / math.sqrt(len(depths) - 1))
    yield Evidence(f"({level}), depth against agreement", estimate, test=Above(least=0.0))


def _mean(name: str, level: str, models: Sequence[str], corpora: Sequence[str] = printed.CORPORA) -> Estimate:
    """The mean of a level's printed scores, its error that of rounding."""
    rows, place = printed.scores(name), printed.LEVELS.index(level)
    values = [rows[model][corpus][place] for model in models for corpus in corpora]
    return Estimate(float(np.mean(values)), PRINTED_ERROR / math.sqrt(len(values)))


def _in_print(name: str, of: Callable[..., float], models: Sequence[str] = ()) -> list[Evidence]:
    """A difference of the printed numbers of (a) to (c), by model (none: all) and text."""
    rows: Mapping[str, Mapping[str, printed.Row]] = printed.scores(name)
    pieces = [
        Evidence(f"{model}, {corpus}", Estimate(of(*values), ROUNDING), test=Above(least=0.0))
        for model in models or rows
        for corpus, values in rows[model].items()
    ]
    return sorted(pieces, key=lambda piece: piece.estimate.value)


def _share_in_print(name: str, of: Callable[..., float], models: Sequence[str] = ()) -> Evidence:
    """In what share of the printed cells a difference is above zero."""
    return share("printed cells", _in_print(name, of, models))


def _nearer_in_larger(name: str) -> Iterator[Evidence]:
    """That (c) is lower than (b) in most printed cells, and in more of the larger models' than of the others'."""

    def lower(a: float, b: float, c: float) -> float:
        return b - c

    yield _share_in_print(name, lower)
    smaller = [model for model in printed.TABLE1 if model not in LARGE]
    large, small = (_share_in_print(name, lower, models).estimate for models in (LARGE, smaller))
    yield Evidence("share in larger models less that in others", large - small, test=Above())


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


def score_text(score: Score | None, digits: int) -> str:
    """'0.60 [0.49, 0.72]', a dash for none."""
    if score is None or math.isnan(score.value):
        return "–"
    around = f" [{score.interval[0]:.{digits}f}, {score.interval[1]:.{digits}f}]" if score.interval else ""
    return f"{score.value:.{digits}f}{around}".replace("-", "−")


def _data(name: str, score: str, shown: list[Curves]) -> dict[str, Any]:
    """Every score with its interval, baselines, held-out scores, what noise allows, and the printed ones."""
    rows = []
    for curves in shown:
        told = curves.comparison.as_dict()
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
            found: Score = getattr(by, score)
            if found.estimate is not None:
                yield curves.model, curves.corpus, f"({letter})", found.estimate


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
