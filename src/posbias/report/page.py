"""The page: everything found, set into the template."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from posbias.predictors import PREDICTORS
from posbias.report import tables
from posbias.report.answer import Findings
from posbias.report.figures import inline_svg
from posbias.report.scores import MEASURES
from posbias.sources import REPORTED, cite

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Plate:
    """A figure as it goes into the page: its file name (no suffix), title, caption and the bytes of its SVG."""

    name: str
    title: str
    caption: str
    picture: bytes


def render(
    measurement: "xr.Dataset",
    found: Findings,
    sentences: Sequence[str],
    plates: Sequence[Plate],
    *,
    seed: int,
) -> str:
    """The whole page as HTML that needs no other file, no script and no network."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup, escape

    def tied(text: str) -> str:
        """Keep a number and its percent sign or error on one line."""
        return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(
            " ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"
        )

    def subscripts(text: str) -> Markup:
        """λ_t with a real subscript."""
        return Markup(re.sub(r"_([A-Za-z0-9]+(?:,[a-z]+)*)", r"<sub>\1</sub>", str(escape(text))))

    here = files("posbias.report")
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"tied": tied, "subscripts": subscripts}
    template = environment.from_string(here.joinpath("report.html").read_text(encoding="utf-8"))
    return template.render(
        style=Markup(here.joinpath("report.css").read_text(encoding="utf-8")),
        model=found.model,
        tokens=measurement.sizes["position"],
        prompts=measurement.sizes["prompt"],
        depth=measurement.sizes["layer"],
        text=measurement.attrs.get("text", "an unnamed text"),
        answer=sentences,
        plates=[(one, Markup(inline_svg(one.picture, one.name, one.title))) for one in plates],
        measures=MEASURES,
        scores=tables.scores(found.comparison),
        shape_columns=tables.SHAPE_COLUMNS,
        shapes=tables.shapes(found.measured, found.predictions, found.shape),
        layer_columns=tables.LAYER_COLUMNS,
        layers=tables.layers(measurement),
        predictors=PREDICTORS,
        sources=[cite(key) for key in REPORTED],
        provenance=tables.provenance(measurement.attrs, seed),
        seed=seed,
    )
