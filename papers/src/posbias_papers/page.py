"""Three papers on one page: of each its claims in one table, its figures, both readings of its errata.

    from posbias_papers.page import write_page

    write_page("results", "results/papers.html", claims=collect("results"), readings=comparisons, errata=ERRATA)

The page has no script and needs no network. Its pictures are the figures' files, which stay where they are. Equal
inputs give equal bytes.
"""

import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from posbias.core.errors import InputFileError
from posbias.core.files import write_text
from posbias.core.packages import need
from posbias.core.sources import cite
from posbias.profiles.claims import Judged, tally
from posbias.profiles.estimate import Estimate
from posbias_papers import PAPERS
from posbias_papers.collect import by_evidence, result
from posbias_papers.registry import STUDIES
from posbias_papers.study import STATEMENTS, Study

RAISED = re.compile(r"\^(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\)|([−+-]?√?[A-Za-zα-ω0-9½¼]+))")
LOWERED = re.compile(r"(?<![A-Za-z_])([A-Za-zα-ωΑ-Ω][\u0300-\u036f′]*|[)\]‖])_(\([^()]*\)|[A-Za-z0-9]+)")
SAYS = {
    "wu2025": "A stack of attention layers as a graph: the causal mask moves influence to the first token as "
    "depth grows, windows and decay act against it, and small trained networks show the same preferences.",
    "herasimchyk2026": "The residual connection in the product: with weights λ_t of attention, recent tokens "
    "keep a share, influence becomes a U, and three levels of prediction are compared with gradients of models.",
    "kim2026": "Why random layers prefer recent keys without any encoding of position: LayerNorm makes scores "
    "grow towards the query, simulated over widths, depths and angles between embeddings.",
}
"""What each paper is about."""


def write_page(
    folder: str | Path,
    out: str | Path,
    *,
    claims: Sequence[Judged],
    readings: Sequence[Any],
    errata: Sequence[Any],
) -> Path:
    """Write the page of three papers to `out`, whole or not at all, and return its path.

    `folder` holds the results, FOLDER/PAPER/NAME.svg and .json; `claims` are judged (`posbias_papers.collect`),
    `readings` comparisons of published with corrected readings, `errata` with cells in Markdown. Raises
    `MissingPackageError` without jinja2 or markdown-it-py, `OutputFileError` if the page cannot be written.
    """
    need("jinja2", "markdown_it", work="the page", extra="report")
    from markupsafe import Markup

    from posbias.reports.page import resource, template

    shown = [(study, *_shown(study, Path(folder))) for study in STUDIES.values() if study.name != STATEMENTS]
    parts = [
        {
            "source": cite(paper),
            "says": SAYS[paper],
            "claims": (own := [claim for claim in claims if claim.paper == paper]),
            "counts": tally(own),
            "evidence": by_evidence(own),
            "figures": [one for one in shown if one[0].paper == paper],
            "readings": [one for one in readings if one.paper == paper],
            "errata": [one for one in errata if one.paper == paper],
        }
        for paper in PAPERS
    ]
    filters = {"inline": _inline, "number": _number, "link": partial(_link, Path(out).parent)}
    style = Markup(resource("report.css"))
    text = template("papers.html", "posbias_papers", **filters).render(style=style, parts=parts)
    return write_text(out, text)


def _shown(study: Study, folder: Path) -> tuple[Path | None, dict[str, Any]]:
    """The picture of a study, if it has been drawn, and its JSON, empty where there is none that can be used."""
    picture = study.file(folder).with_suffix(".svg")
    try:
        return picture if picture.is_file() else None, dict(result(study, folder))
    except InputFileError:
        return None, {}


def _link(folder: Path, file: Path) -> str:
    """A file as a page in `folder` names it."""
    return quote(Path(os.path.relpath(file, folder)).as_posix())


def _number(estimate: Estimate) -> str:
    """A number with its error."""
    return str(estimate).replace("-", "−")


def _inline(text: str) -> Any:
    """Markdown of one line as HTML: code, emphasis, and λ_t and e^(−2M) as they are set; all else as it is
    written."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup, escape

    from posbias.reports.page import tied

    def words(renderer: object, tokens: Sequence[Any], place: int, options: object, env: object) -> str:
        raised = RAISED.sub(
            lambda found: f"<sup>{found[1] or found[2]}</sup>", str(escape(tied(tokens[place].content)))
        )
        return LOWERED.sub(r"\1<sub>\2</sub>", raised)

    parser = MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink"])
    parser.add_render_rule("text", words)
    return Markup(parser.renderInline(text).strip())
