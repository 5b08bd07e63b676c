"""What stands in the tables: ours in the paper's layout, and what the paper prints beside it.

Scores carry their 95 % interval over prompts; the level that agrees best is set in bold.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.comparison import Score
from posbias.estimate import Estimate
from posbias.papers.herasimchyk2026.agreement import Agreement
from posbias.papers.herasimchyk2026.homogeneity import Homogeneity
from posbias.papers.herasimchyk2026.levels import Curves
from posbias.papers.herasimchyk2026.order import Order
from posbias.papers.herasimchyk2026.pages import Block
from posbias.papers.herasimchyk2026.printed import (
    CORPORA,
    FEATURED,
    GAP,
    HUB,
    LEVELS,
    TABLE1,
    TABLE4,
    TABLE5,
    TABLE6,
    VIOLATIONS,
)
from posbias.theory.presets import PRESETS

DIGITS = {"spearman": 2, "wasserstein": 3}


@dataclass(frozen=True)
class Specification:
    """A measured model: parameters (None where the file does not say), layers, heads, how positions enter."""

    model: str
    parameters: int | None
    depth: int
    heads: int
    positions: str

    @property
    def row(self) -> list[str]:
        """Its line in Table 1."""
        size = "–" if self.parameters is None else f"{self.parameters / 1e9:.3g}"
        return [self.model, size, str(self.depth), str(self.heads), self.positions]


def specification_blocks(shown: Sequence[Specification]) -> tuple[Block, ...]:
    """Table 1: the models measured here, and those of the paper."""
    head = ["model", "parameters (B)", "depth", "heads", "positions"]
    printed = [
        [model, f"{size:g}", str(depth), str(PRESETS[HUB[model].preset].heads), "ALiBi"]
        for model, (size, depth) in TABLE1.items()
    ]
    return (
        Block("Models measured here", head, [one.row for one in shown]),
        Block("Printed in the paper (heads and positions are ours)", head, printed),
    )


def agreement_blocks(
    score: str, shown: Sequence[Agreement], unmeasured: Sequence[Curves], featured: bool
) -> tuple[Block, ...]:
    """Tables 2 to 5: models by corpus and level, and the printed numbers (`featured`: of Tables 2 and 3)."""
    corpora = list(dict.fromkeys(one.curves.corpus for one in shown))
    letters = sorted({letter for one in shown for letter in one.curves.levels})
    head = ["model"] + [f"{corpus} {part}".strip() for corpus in corpora for part in _parts(letters)]
    found = {(one.curves.model, one.curves.corpus): one for one in shown}
    rows = [
        [model, *(cell for corpus in corpora for cell in _cells(score, found.get((model, corpus)), letters))]
        for model in dict.fromkeys(one.curves.model for one in shown)
    ]
    blocks = [Block("Measured here, with 95 % intervals over prompts", head, rows)] if rows else []
    if unmeasured:
        names = dict.fromkeys(one.model for one in unmeasured)
        says = "undecided: levels are known (fig2), measured influence is not"
        blocks.append(
            Block("From the authors' files", ["model", "agreement"], [[name, says] for name in names])
        )
    table = TABLE4 if score == "spearman" else TABLE5
    columns = CORPORA[:1] if featured else CORPORA
    head = ["model"] + [f"{corpus} ({letter})" for corpus in columns for letter in LEVELS]
    models = FEATURED if featured else tuple(table)
    rows = [
        [model, *(f"{value:.2f}" for corpus in columns for value in table[model][corpus])] for model in models
    ]
    return (*blocks, Block("Printed in the paper", head, rows))


def agreement_data(score: str, shown: Sequence[Agreement]) -> dict[str, Any]:
    """The scores behind Tables 2 to 5, every one with its interval, baselines and ceiling."""
    rows = []
    for one in shown:
        comparison, name = one.comparison, f"{score}_without_first"
        ceiling = comparison.ceiling
        rows.append(
            {
                "model": one.curves.model,
                "corpus": one.curves.corpus,
                "prompts": one.prompts,
                "levels": {
                    letter: getattr(by, score).as_dict() for letter, by in comparison.agreements.items()
                },
                "levels_without_first": {
                    letter: getattr(by, name).as_dict() for letter, by in comparison.agreements.items()
                },
                "baselines": {key: getattr(by, score).as_dict() for key, by in comparison.baselines.items()},
                "ceiling": None if ceiling is None else getattr(ceiling, score).as_dict(),
                "best": one.best(score),
            }
        )
    return {"score": score, "rows": rows, "printed": TABLE4 if score == "spearman" else TABLE5}


def homogeneity_blocks(shown: Sequence[Homogeneity]) -> tuple[Block, ...]:
    """Table 6: mean ± standard deviation over layers and heads, with the null beside ours."""
    head = [
        "model",
        "within-diag similarity",
        "normal numbers",
        "within-off-diag similarity",
        "normal numbers",
    ]
    rows = [
        [one.model, *(_spread(part) for _, value, null in one.regions() for part in (value, null))]
        for one in shown
    ]
    printed = [
        [model, *(f"{mean:.2f} ± {sd:.2f}" for mean, sd in regions)] for model, regions in TABLE6.items()
    ]
    return (
        Block("Measured here, mean ± standard deviation over layers and heads", head, rows),
        Block("Printed in the paper", [head[0], head[1], head[3]], printed),
    )


def shape_blocks(shown: Sequence[Curves]) -> tuple[Block, ...]:
    """Figures 2 and 3 in numbers: every curve's ends and trough."""
    head = [
        "model",
        "corpus",
        "curve",
        "token 0",
        "first 5 %",
        "last 5 %",
        "last 10 %",
        "trough at",
        "verdict",
    ]
    rows = []
    for one in shown:
        curves = {f"({letter})": profile for letter, profile in one.levels.items()}
        curves |= {} if one.measured is None else {"measured": one.measured}
        for name, profile in curves.items():
            s, mass = profile.summary, np.asarray(profile.mass)
            tenth = mass[-round(0.1 * mass.size) :].sum()
            shares = (mass[0], s.first_mass, s.last_mass, tenth)
            shape = [str(s.trough), s.verdict]
            rows.append([one.model, one.corpus, name, *(f"{share:.3f}" for share in shares), *shape])
    return (Block("Shape of every curve (shares of all influence)", head, rows),)


def shape_data(shown: Sequence[Curves]) -> dict[str, Any]:
    """The curves of Figures 2 and 3, every number in full."""
    return {
        "curves": [
            {
                "model": one.model,
                "corpus": one.corpus,
                "additive": one.additive,
                "remarks": list(one.remarks),
                "levels": {letter: profile.mass for letter, profile in one.levels.items()},
                "measured": None if one.measured is None else one.measured.mass,
                "measured_se": None if one.measured is None else one.measured.se,
            }
            for one in shown
        ]
    }


def order_blocks(shown: Sequence[Order]) -> tuple[Block, ...]:
    """Section 4's numbers by model and corpus."""
    head = [
        "model",
        "corpus",
        "violating triples",
        "noise floor",
        "mean gap of those",
        "expected shortfall",
        "worst",
    ]
    rows = [
        [
            one.model,
            one.corpus,
            f"{one.rate:.2g}",
            _number(one.floor),
            f"{one.gap:.2g}",
            f"{one.rate * one.gap:.2g}",
            f"layer {one.worst}",
        ]
        for one in shown
    ]
    printed = [["all five", "all three", f"≤ {VIOLATIONS:.0e}", "–", f"{GAP:.0e}", "1e-12", "–"]]
    return (Block("Measured here", head, rows), Block("Printed in the paper", head, printed))


def mixing_data(mixings: Mapping[Any, np.ndarray]) -> dict[str, Any]:
    """λ by layer with its standard error, by model, corpus and length."""
    rows = []
    for key, mixing in mixings.items():
        estimates = [Estimate.of(column) for column in mixing.T]
        rows.append(
            {
                "model": key.model,
                "corpus": key.corpus,
                "tokens": key.tokens,
                "prompts": len(mixing),
                "mixing": [one.value for one in estimates],
                "se": [one.se for one in estimates],
            }
        )
    return {"mixing": rows}


def mixing_blocks(mixings: Mapping[Any, np.ndarray]) -> tuple[Block, ...]:
    """λ in words: bottom, lower half, upper half and top layer, by model, corpus and length."""
    head = ["model", "corpus", "tokens", "prompts", "layer 0", "lower half", "upper half", "last layer"]
    rows = []
    for key, mixing in mixings.items():
        half = max(1, mixing.shape[1] // 2)
        parts = (mixing[:, 0], mixing[:, :half].mean(axis=1), mixing[:, -half:].mean(axis=1), mixing[:, -1])
        sizes = [key.model, key.corpus, str(key.tokens), str(len(mixing))]
        rows.append([*sizes, *(str(Estimate.of(part)) for part in parts)])
    return (Block("λ, mean ± standard error over prompts", head, rows),)


# --- words -------------------------------------------------------------------------------------------------


def _parts(letters: Sequence[str]) -> list[str]:
    return [*(f"({letter})" for letter in letters), "ceiling"]


def _cells(score: str, one: Agreement | None, letters: Sequence[str]) -> list[str]:
    if one is None:
        return ["–"] * (len(letters) + 1)
    best, cells = one.best(score), []
    for letter in letters:
        by = one.comparison.agreements.get(letter)
        text = "–" if by is None else _score(getattr(by, score), DIGITS[score])
        cells.append(f"**{text}**" if letter == best else text)
    ceiling = one.comparison.ceiling
    return [*cells, "–" if ceiling is None else _score(getattr(ceiling, score), DIGITS[score])]


def _score(score: Score, digits: int) -> str:
    if math.isnan(score.value):
        return "–"
    around = f" [{score.interval[0]:.{digits}f}, {score.interval[1]:.{digits}f}]" if score.interval else ""
    return f"{score.value:.{digits}f}{around}".replace("-", "−")


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ± {values.std():.2f}" if values.size else "–"


def _number(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "–"
