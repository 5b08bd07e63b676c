"""The page: everything found, set into the template."""

import re
from collections.abc import Sequence

from posbias.predictors import PREDICTORS
from posbias.reliability import SPLITS
from posbias.reports import tables
from posbias.reports.evidence import Findings
from posbias.reports.figures import Illustration
from posbias.reports.scores import MEASURES
from posbias.sources import REPORTED, cite


def render(found: Findings, sentences: Sequence[str], plates: Sequence[tuple[Illustration, bytes]]) -> str:
    """The whole page as HTML that needs no other file, no script and no network; `plates` are figures as SVG."""
    from markupsafe import Markup, escape

    from posbias.reports.gallery import inline_svg
    from posbias.reports.setting import resource, template

    def subscripts(text: str) -> Markup:
        """λ_t with a real subscript."""
        return Markup(re.sub(r"_([A-Za-z0-9]+(?:,[a-z]+)*)", r"<sub>\1</sub>", str(escape(text))))

    measurement = found.measurement
    return template("report.html", subscripts=subscripts).render(
        style=Markup(resource("report.css")),
        model=found.model,
        tokens=measurement.sizes["position"],
        prompts=measurement.sizes["prompt"],
        depth=measurement.sizes["layer"],
        text=measurement.attrs.get("text", "an unnamed text"),
        answer=sentences,
        plates=[(one, inline_svg(vector, one.name, one.title)) for one, vector in plates],
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
