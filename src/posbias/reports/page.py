"""The page: everything found, set into the template."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posbias.predictors import PREDICTORS
from posbias.reports import tables
from posbias.reports.answer import Findings
from posbias.reports.figures import inline_svg
from posbias.reports.scores import MEASURES
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
    from markupsafe import Markup, escape

    from posbias.reports.setting import resource, template

    def subscripts(text: str) -> Markup:
        """λ_t with a real subscript."""
        return Markup(re.sub(r"_([A-Za-z0-9]+(?:,[a-z]+)*)", r"<sub>\1</sub>", str(escape(text))))

    page = template("report.html", subscripts=subscripts)
    return page.render(
        style=Markup(resource("report.css")),
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
