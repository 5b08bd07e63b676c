"""What is said of the agreement that Tables 4 and 5 print, judged on the printed numbers.

These are known up to rounding. Section 6.3 compares levels, Appendix B.2 speaks of all scores, of larger and of
deeper models; where its words have no number, the number is ours.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from posbias.profiles.claims import Claim, Provenance
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Above, Below, Evidence, share
from posbias.profiles.profile import spearman
from posbias_papers.claims import AtHand, claims_of
from posbias_papers.herasimchyk2026 import printed
from posbias_papers.herasimchyk2026.standing import EFFORT, SCOPE

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


def printed_claims(name: str, score: str) -> Iterator[Claim]:
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
