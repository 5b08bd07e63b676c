"""Pages that need no other file, no script and no network: everything found, set into a template."""

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from posbias.core.files import write_bytes, write_text

if TYPE_CHECKING:
    from jinja2 import Template

    from posbias.reports.figures import Illustration


def write_page(
    folder: str | os.PathLike[str], name: str, figures: "Sequence[Illustration]", **about: Any
) -> tuple[Path, list[Path]]:
    """Write the page that a template makes (`report.html`) and the files of its figures; the page, and those.

    Each is written whole or not at all. Raises `OutputFileError`.
    """
    content = {file: one for figure in figures for file, one in figure.files.items()}
    written = [write_bytes(Path(folder) / file, one) for file, one in content.items()]
    html = template(name).render(style=Markup(resource("report.css")), figures=figures, **about)
    return write_text(Path(folder) / "report.html", html), written


def template(name: str, package: str = "posbias.reports", **filters: Callable[[str], str]) -> "Template":
    """A template of a package that escapes everything and refuses what is not defined, with the filters given."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    options: Any = dict.fromkeys(
        ("autoescape", "trim_blocks", "lstrip_blocks", "keep_trailing_newline"), True
    )
    loader = FunctionLoader(partial(resource, package=package))
    environment = Environment(loader=loader, undefined=StrictUndefined, **options)
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
