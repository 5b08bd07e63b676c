"""The page: everything found, set into the template."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posbias.comparison.predictors import PREDICTORS
from posbias.comparison.reliability import SPLITS
from posbias.core.sources import REPORTED, cite
from posbias.profiles.claims import Judged
from posbias.reports import tables
from posbias.reports.answer import Answer
from posbias.reports.evidence import Findings
from posbias.reports.figures import Illustration
from posbias.reports.pages import Table
from posbias.reports.scores import MEASURES

if TYPE_CHECKING:
    from markupsafe import Markup

LARGEST_CSV = 100_000
"""Characters of a figure's numbers up to which the page holds them; longer ones lie beside it alone."""
MOST_COLUMNS = 16
"""Columns of numbers up to which the page shows them as a table."""


@dataclass(frozen=True)
class Plate:
    """A figure as it goes into a page: its words, its picture, and the numbers that it draws."""

    name: str
    title: str
    caption: str
    picture: "Markup"
    numbers: Table

    @classmethod
    def of(cls, one: Illustration, vector: bytes) -> "Plate":
        """A figure with its SVG."""
        from posbias.reports.gallery import inline_svg

        return cls(one.name, one.title, one.caption, inline_svg(vector, one.name, one.title), one.numbers)

    @property
    def link(self) -> str:
        """The numbers as CSV within an address; empty where they are too many for the page."""
        text = self.numbers.csv()
        return (
            f"data:text/csv;base64,{base64.b64encode(text.encode()).decode()}"
            if len(text) <= LARGEST_CSV
            else ""
        )

    @property
    def table(self) -> Table | None:
        """The numbers to be shown as a table; None where they are too many."""
        return self.numbers if self.link and len(self.numbers.head) <= MOST_COLUMNS else None


def render(
    found: Findings,
    answers: Sequence[Answer],
    verdicts: Sequence[str],
    plates: Sequence[tuple[Illustration, bytes]],
    links: Mapping[str, str],
) -> str:
    """The whole page as HTML that needs no other file, no script and no network.

    `plates` are figures as SVG, `links` what lies beside it, by file.
    """
    from markupsafe import Markup

    from posbias.reports.setting import resource, template

    measurement = found.measurement
    return template("report.html").render(
        style=Markup(resource("report.css")),
        model=found.model,
        tokens=measurement.sizes["position"],
        prompts=measurement.sizes["prompt"],
        depth=measurement.sizes["layer"],
        text=measurement.attrs.get("text", "an unnamed text"),
        answers=answers,
        verdicts=verdicts,
        plates=[Plate.of(one, vector) for one, vector in plates],
        links=links,
        measures=MEASURES,
        scores=tables.scores(found.comparison),
        held_out=tables.held_out(found.comparison),
        splits=SPLITS,
        cross_fitted=found.measured.cross_fitted,
        differences=tables.differences(found.judged),
        shape_columns=tables.SHAPE_COLUMNS,
        shapes=tables.shapes(found),
        layer_columns=tables.LAYER_COLUMNS,
        layers=tables.layers(measurement),
        predictors=PREDICTORS,
        sources=[cite(key) for key in REPORTED],
        provenance=tables.provenance(measurement.attrs, found.seed),
        seed=found.seed,
    )


def render_profile(
    title: str,
    read_as: str,
    answers: Sequence[Answer],
    one: Illustration,
    vector: bytes,
    claims: Sequence[Judged],
) -> str:
    """The page of a profile that was read from a file; as self-contained as `render`'s."""
    from markupsafe import Markup

    from posbias.reports.setting import resource, template

    return template("profile.html").render(
        style=Markup(resource("report.css")),
        title=title,
        read_as=read_as,
        answers=answers,
        plate=Plate.of(one, vector),
        claims=claims,
    )
