"""The printed numbers beside ours, each with the tolerance used, for the paper's models that were measured here.

Ours may differ by half of the last digit printed and, where it has an error, by 1.96 of its standard error: over
prompts for scores, over layers and heads for similarities. A model is the paper's by its name, a text by what its
name has in it; a score on another text is not compared.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.papers.herasimchyk2026.agreement import Agreement
from posbias.papers.herasimchyk2026.homogeneity import Homogeneity
from posbias.papers.herasimchyk2026.pages import Block
from posbias.papers.herasimchyk2026.printed import TABLE1, Printed, numbers
from posbias.papers.herasimchyk2026.standing import names_of, plain

TEXTS = {"FineWeb-Edu": "fineweb", "DCLM-Baseline": "dclm", "Wikipedia": "wiki"}
"""What the name of a text has in it that stands for a corpus of the paper."""
ROUNDING = {"parameters (B)": 0.5, "depth": 0.0}
HALF_A_DIGIT = 0.005
HEAD = ["model", "corpus", "of", "printed", "here", "difference", "tolerance", "within"]
Ours = Iterable[tuple[str, str, str, float, float]]
"""Numbers made here: model, text, what, value, and 1.96 of its standard error (0 for an exact one)."""


@dataclass(frozen=True)
class Compared:
    """A printed number and ours."""

    printed: Printed
    value: float
    tolerance: float

    @property
    def within(self) -> bool:
        """Whether they differ by no more than the tolerance."""
        return abs(self.value - self.printed.value) <= self.tolerance + 1e-12

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        one = self.printed
        named = {"model": one.model, "corpus": one.corpus, "what": one.what, "printed": one.value}
        return named | {"here": self.value, "tolerance": self.tolerance, "within": self.within}

    @property
    def row(self) -> list[str]:
        """Under `HEAD`."""
        one, off = self.printed, self.value - self.printed.value
        shown = [f"{one.value:g}", f"{self.value:.3g}", f"{off:+.2g}", f"{self.tolerance:.2g}"]
        words = [text.replace("-", "−") for text in shown]
        return [one.model, one.corpus or "–", one.what, *words, "yes" if self.within else "no"]


def compare(study: str, ours: Ours) -> list[Compared]:
    """Every number that the paper prints in this table and was made here, in its order."""
    made: dict[tuple[str, str, str], tuple[float, float]] = {}
    for name, text, what, value, error in ours:
        for model in TABLE1:
            if plain(name) in map(plain, names_of(model)):
                made[model, _corpus(text), what] = value, error
    found = []
    for one in numbers():
        here = made.get((one.model, one.corpus, one.what)) if one.study == study else None
        if here is not None and np.isfinite(here[0]):
            tolerance = ROUNDING.get(one.what, HALF_A_DIGIT) + here[1]
            found.append(Compared(one, here[0], tolerance))
    return found


def beside_block(compared: list[Compared], study: str) -> Block:
    """The comparison as a table, and in its caption the models that were not measured on the paper's texts."""
    lacking = _lacking(compared, study)
    caption = "Printed beside ours, with the tolerance used"
    if lacking:
        where = "" if study == "table1" else " on the paper's texts"
        caption += f" (not measured here{where}, so not compared: {', '.join(lacking)})"
    return Block(caption, HEAD, [one.row for one in compared])


def beside_data(compared: list[Compared], study: str) -> Mapping[str, Any]:
    """The same for JSON."""
    return {
        "printed_beside": [one.as_dict() for one in compared],
        "not_measured": _lacking(compared, study),
    }


def scores(score: str, shown: Iterable[Agreement]) -> Iterator[tuple[str, str, str, float, float]]:
    """The scores of Tables 2 to 5, half of the 95 % interval being the error."""
    for one in shown:
        for letter, by in one.comparison.agreements.items():
            found = getattr(by, score)
            if found.interval is not None:
                low, high = found.interval
                yield one.curves.model, one.curves.corpus, f"({letter})", found.value, (high - low) / 2


def similarities(shown: Iterable[Homogeneity]) -> Iterator[tuple[str, str, str, float, float]]:
    """Means and deviations of Table 6, of which only the mean has an error."""
    for one in shown:
        for region, values, _ in one.regions():
            error = 1.96 * float(values.std()) / np.sqrt(values.size)
            yield one.model, "", f"{region}, mean", float(values.mean()), float(error)
            yield one.model, "", f"{region}, deviation", float(values.std()), float(error / np.sqrt(2))


def sizes(shown: Iterable[tuple[str, int | None, int]]) -> Iterator[tuple[str, str, str, float, float]]:
    """Parameters in billions (where known) and depth of Table 1, which are exact."""
    for model, parameters, depth in shown:
        if parameters is not None:
            yield model, "", "parameters (B)", parameters / 1e9, 0.0
        yield model, "", "depth", float(depth), 0.0


def _lacking(compared: list[Compared], study: str) -> list[str]:
    """The models of the printed table of which nothing was compared."""
    had = {one.printed.model for one in compared}
    return list(dict.fromkeys(one.model for one in numbers() if one.study == study and one.model not in had))


def _corpus(text: str) -> str:
    """The paper's corpus that a text is, by its name; "" for none and for no text."""
    return next((corpus for corpus, word in TEXTS.items() if word in text.lower()), "")
