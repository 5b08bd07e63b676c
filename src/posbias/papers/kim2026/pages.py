"""A figure as a page: recency probabilities, closed forms beside the simulation, claims; as text and as JSON."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from posbias.claims import Claim, count
from posbias.files import write_text
from posbias.papers.cells import VERSION
from posbias.papers.kim2026.figures import FIGURES, HeatMaps, KeyFactors
from posbias.papers.kim2026.forms import Compared, key_factor_rows, score_row
from posbias.papers.kim2026.statements import SECTION3, claims_of
from posbias.papers.kim2026.table import Check, Results, cell_as_dict, check_published, describe
from posbias.plots.recency import probability_text
from posbias.simulate import RecencyModel
from posbias.sources import cite
from posbias.store import save_json

TITLE = "Section 3: recency probabilities"
SHOWN_KEYS = (1, 4, 8)
"""Keys whose h(j)/h(0) the page shows; the JSON has all."""


@dataclass(frozen=True)
class Page:
    """What a figure says: models simulated, printed numbers checked, closed forms compared, claims judged."""

    title: str
    effort: str
    models: tuple[RecencyModel, ...]
    layers: tuple[int, ...]
    results: Results
    checks: tuple[Check, ...]
    compared: tuple[Compared, ...]
    claims: Sequence[Claim]

    @property
    def samples(self) -> int:
        """Samples of the model that has fewest."""
        return min(self.results[model].samples for model in self.models)

    @property
    def note(self) -> str:
        """How the numbers came about."""
        exact = all(self.results[model].samples == self.samples for model in self.models)
        return f"Ten tokens, {'' if exact else 'at least '}{self.samples:,} samples of every model."

    def write(self, folder: Path, name: str) -> list[Path]:
        """Write NAME.md and NAME.json. Raises `OutputFileError`."""
        about = {
            "name": name,
            "title": self.title,
            "note": self.note,
            "source": cite("kim2026").short,
            "version": VERSION,
            "effort": self.effort,
            "samples": self.samples,
            "claims": [claim.as_dict() for claim in self.claims],
            "cells": [cell_as_dict(self.results[model]) for model in self.models],
            "published": [check.as_dict() for check in self.checks],
            "closed_forms": [one.as_dict() for one in self.compared],
        }
        return [write_text(folder / f"{name}.md", self.text()), save_json(about, folder / f"{name}.json")]

    def text(self) -> str:
        """The page as Markdown."""
        lines = [f"# {cite('kim2026').short}, {self.title}", "", self.note, "", "Recency probability:", ""]
        lines += _table(["model", "d", *(f"layer {layer}" for layer in self.layers)], self._probabilities())
        if self.checks:
            head = ["printed in Section 3", "printed", "here", "standard errors of the difference", ""]
            lines += ["Beside the printed numbers:", "", *_table(head, map(_check_row, self.checks))]
        if self.compared:
            head = [
                "model",
                "d",
                "number",
                "simulated",
                "as printed",
                "less simulated",
                "corrected",
                "less simulated",
            ]
            rows = [_compared_row(one) for one in self.compared if one.base == 0.0 or one.key in SHOWN_KEYS]
            lines += ["Closed forms beside the simulation, layer 2:", "", *_table(head, rows)]
        lines += [", ".join(f"{number} {verdict}" for verdict, number in count(self.claims).items()), ""]
        for claim in self.claims:
            lines += [f"- **{claim.verdict}**: {claim.sentence}", *(f"  - {one}" for one in claim.effects)]
        return "\n".join(lines) + "\n"

    def _probabilities(self) -> Iterator[list[str]]:
        for model in self.models:
            shown = [probability_text(self.results[model].recency_probability[k - 1]) for k in self.layers]
            yield [describe(model), str(model.dimension), *shown]


def page_of(name: str, results: Results, quick: int, full: int) -> Page:
    """The page of a figure or of `section3`; its effort is quick or full if every model has so many samples."""
    if name == "section3":
        title, models, layers = TITLE, SECTION3, (1, 2)
        compared: list[Compared] = []
    else:
        shown = FIGURES[name]
        title, models = shown.title, shown.needed
        layers = shown.layers if isinstance(shown, HeatMaps) else (2,)
        compared = list(key_factor_rows(shown, results)) if isinstance(shown, KeyFactors) else []
        if name == "fig1":
            compared = [score_row(results[model]) for model in models]
    least = min(results[model].samples for model in models)
    effort = "full" if least >= full else "quick" if least >= quick else f"{least:,} samples"
    checks = (
        check_published({model: results[model] for model in models}) if name in ("fig1", "section3") else ()
    )
    return Page(title, effort, models, layers, results, checks, tuple(compared), claims_of(name, results))


def _check_row(check: Check) -> list[str]:
    where, verdict = check.where.removeprefix("Section 3: "), "holds" if check.holds else "fails"
    return [
        where,
        check.printed,
        probability_text(check.value),
        f"{check.deviation:+.2f}".replace("-", "−"),
        verdict,
    ]


def _compared_row(one: Compared) -> list[str]:
    known = math.isfinite(one.simulated)
    digits = max(2, min(6, -math.floor(math.log10(one.se)))) if known and one.se > 0.0 else 4
    simulated = f"{one.simulated:.{digits}f} ± {one.se:.{digits}f}" if known else "–"
    words = [describe(one.model), str(one.model.dimension), one.quantity, simulated]
    for form in (one.published, one.corrected):
        less = (
            f"{form - one.simulated:+,.{digits if form < 10.0 else 0}f}".replace("-", "−") if known else "–"
        )
        words += [f"{form:,.{5 if form < 10.0 else 1}f}", less]
    return words


def _table(head: list[str], rows: Iterator[list[str]] | Sequence[list[str]] | map) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]
