"""Pages that need no other file, no script and no network: everything found, set into a template."""

import base64
import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from posbias.comparison.agreement import SPLITS
from posbias.comparison.predictors import PREDICTORS
from posbias.core.sources import REPORTED, cite
from posbias.profiles.claims import Judged
from posbias.reports import tables
from posbias.reports.findings import MEASURES, Findings
from posbias.reports.plots import THEMED, picture_bytes

if TYPE_CHECKING:
    from jinja2 import Template

    from posbias.reports.figures import Illustration

LARGEST_CSV = 100_000
"""Characters of a figure's numbers up to which the page holds them; longer ones are in their own file alone."""
MOST_COLUMNS = 16
"""Columns of numbers up to which the page shows them as a table."""


@dataclass(frozen=True)
class Plate:
    """A figure as it goes into a page and into files next to it: its pictures and numbers as files, its words."""

    about: "Illustration"
    files: dict[str, bytes]

    @classmethod
    def of(cls, one: "Illustration") -> "Plate":
        """A figure, drawn as SVG and PNG, with its numbers as CSV."""
        pictures = {f"{one.name}.{kind}": picture_bytes(one.figure, kind) for kind in ("svg", "png")}
        return cls(one, pictures | {f"{one.name}.csv": one.csv.encode()})

    @property
    def picture(self) -> Markup:
        """The figure as an element of the page."""
        return inline_svg(self.files[f"{self.about.name}.svg"], self.about.name, self.about.title)

    @property
    def link(self) -> str:
        """The numbers as CSV within an address; empty where they are too many for the page."""
        return f"data:text/csv;base64,{base64.b64encode(self._csv).decode()}" if self._fits else ""

    @property
    def rows(self) -> list[list[str]]:
        """Head and rows of the numbers, to be shown as a table; none where they are too many."""
        shown = self._fits and len(self.about.numbers.columns) <= MOST_COLUMNS
        return [*csv.reader(io.StringIO(self._csv.decode()))] if shown else []

    @property
    def _csv(self) -> bytes:
        return self.files[f"{self.about.name}.csv"]

    @property
    def _fits(self) -> bool:
        return len(self._csv) <= LARGEST_CSV


def inline_svg(picture: bytes, name: str, title: str) -> Markup:
    """An SVG of matplotlib as an element: own ids, two digits after the point, colours that follow the page.

    It is as wide as its place (`--natural` is its own width, in CSS pixels); text, lines and background take the
    CSS variables that `plots.THEMED` names, so a page may go dark. `title` is read to those who cannot see it.
    """
    text = picture.decode()
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", text)
    text = re.sub(r'( id="|href="#|url\(#)', rf"\1{name}-", text)
    text = re.sub(
        r"scale\([^)]*\)|-?\d+\.\d{3,}",
        lambda found: found[0] if found[0][0] == "s" else f"{float(found[0]):.2f}".rstrip("0").rstrip("."),
        text,
    )
    for colour, variable in THEMED.items():
        text = text.replace(colour, f"var(--{variable})")
    opening, inside = text[text.index("<svg") :].split(">", 1)
    box = re.search(r'viewBox="([^"]+)"', opening)
    assert box is not None  # matplotlib's
    width = float(box[1].split()[2]) * 4 / 3
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    look = f'viewBox="{box[1]}" style="--natural:{width:g}" role="img" aria-label="{escape(title)}"'
    return Markup(f"<svg {names} {look}>{inside}")


def render(
    found: Findings,
    answers: Mapping[str, str],
    verdicts: Sequence[str],
    plates: Sequence[Plate],
    links: Mapping[str, str],
) -> str:
    """The page of a measurement as HTML; `links` say what is in the same folder, by file."""
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
        plates=plates,
        links=links,
        measures=MEASURES,
        scores=tables.scores(found.comparison),
        held_out=tables.held_out(found.comparison),
        splits=SPLITS,
        cross_fitted=found.measured.cross_fitted,
        differences=tables.differences(found),
        shape_columns=tables.SHAPE_COLUMNS,
        shapes=tables.shapes(found),
        layer_columns=tables.LAYER_COLUMNS,
        layers=tables.layers(measurement),
        predictors=PREDICTORS,
        sources=[cite(key) for key in REPORTED],
        provenance=tables.provenance(measurement.attrs, found.seed),
    )


def render_profile(
    title: str, read_as: str, answers: Mapping[str, str], plate: Plate, claims: Sequence[Judged]
) -> str:
    """The page of a profile that was read from a file."""
    style = Markup(resource("report.css"))
    about = {"title": title, "read_as": read_as, "answers": answers, "plate": plate, "claims": claims}
    return template("profile.html").render(style=style, **about)


def template(name: str, package: str = "posbias.reports", **filters: Callable[[str], str]) -> "Template":
    """A template of a package that escapes everything and refuses what is not defined, with the filters given."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(partial(resource, package=package)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"tied": tied, "subscripts": subscripts, **filters}
    return environment.get_template(name)


def resource(name: str, package: str = "posbias.reports") -> str:
    """A text file of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def tied(text: str) -> str:
    """Keep a number and its percent sign or error on one line."""
    space = "\N{NO-BREAK SPACE}"
    return text.replace(" %", f"{space}%").replace(" ± ", f"{space}±{space}")


def subscripts(text: str) -> Markup:
    """λ_t with a real subscript."""
    return Markup(re.sub(r"_([A-Za-z0-9]+(?:,[a-z]+)*)", r"<sub>\1</sub>", str(escape(text))))
