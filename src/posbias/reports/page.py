"""Pages that need no other file, no script and no network: everything found, set into a template."""

import re
from collections.abc import Callable, Mapping, Sequence
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

if TYPE_CHECKING:
    from jinja2 import Template

    from posbias.reports.figures import Illustration


def render(
    found: Findings,
    answers: Mapping[str, str],
    verdicts: Sequence[str],
    figures: "Sequence[Illustration]",
    links: Mapping[str, str],
) -> str:
    """The page of a measurement as HTML; `links` say what is in the same folder, by file."""
    return template("report.html").render(
        style=Markup(resource("report.css")),
        found=found,
        sizes=found.measurement.sizes,
        text=found.measurement.attrs.get("text", "an unnamed text"),
        answers=answers,
        verdicts=verdicts,
        figures=figures,
        links=links,
        tables=tables,
        measures=[measure.name for measure in MEASURES],
        held_out=tables.held_out(found.comparison),
        splits=SPLITS,
        predictors=PREDICTORS,
        sources=[cite(key) for key in REPORTED],
    )


def render_profile(
    title: str, read_as: str, answers: Mapping[str, str], figure: "Illustration", claims: Sequence[Judged]
) -> str:
    """The page of a profile that was read from a file."""
    style = Markup(resource("report.css"))
    about = {"title": title, "read_as": read_as, "answers": answers, "figure": figure, "claims": claims}
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
    return text.replace(" %", f"{space}%").replace(" ± ", f"{space}±{space}").replace("± ", f"±{space}")


def subscripts(text: str) -> Markup:
    """λ_t with a real subscript."""
    return Markup(re.sub(r"_([A-Za-z0-9]+(?:,[a-z]+)*)", r"<sub>\1</sub>", str(escape(text))))
