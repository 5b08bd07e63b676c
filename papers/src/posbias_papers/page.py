"""Three papers on one page: all claims with their verdicts, all figures and tables, both readings, errata.

    from posbias_papers.page import write_page

    write_page("results", "papers.html", claims=claims, readings=comparisons, errata=ERRATA, studies=STUDIES)

The page has no script and needs no network. Its pictures are the figures' files, which stay where they are; where
something is said again, a link leads to where it stands. Equal inputs give equal bytes.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from posbias import __version__
from posbias.core.files import write_text
from posbias.core.packages import need
from posbias.core.sources import BIBLIOGRAPHY, REPORTED, Source, cite, versions
from posbias.profiles.claims import LEAST, LEVEL, NEAR, VERDICTS, tally
from posbias_papers.theorems import margin_text

__all__ = ["TITLE", "write_page"]

TITLE = "Three papers on position bias, tried again"
INTRODUCTIONS: dict[str, tuple[str, ...]] = {
    "wu2025": (
        "Reads a stack of attention layers as a graph: what one token contributes to a later one is the "
        "sum over all walks between them, a product of one kernel per layer.",
        "Without residual connections the product under a causal mask moves onto the first token as depth "
        "grows; windows slow this down, prefixes share it out, and decay masks and rotary encodings pull "
        "the other way.",
        "Small attention-only networks, trained to find an item in their context, are to show the same "
        "preferences, and attention sinks with them.",
    ),
    "herasimchyk2026": (
        "Takes the residual connection into the product: layer t mixes its attention, by a weight λ_t, "
        "with what the stream already holds.",
        "The collapse onto the first token then happens only if the weights λ_t have an infinite sum; "
        "over finitely many layers recent tokens keep a share, and the influence of positions can be a U "
        "with a trough between.",
        "Three levels of this prediction, from attention alone to measured λ_t and constant content, are "
        "held against the gradients of pretrained models.",
    ),
    "kim2026": (
        "Asks where a preference for recent tokens comes from when nothing encodes position.",
        "In random layers without normalisation, the scores of a second layer do not tell earlier keys "
        "apart; LayerNorm, by rescaling averages of more and of fewer tokens alike, makes scores grow "
        "towards the query.",
        "The probability that the more recent of two keys scores higher is simulated over widths, depths "
        "and angles between embeddings, with and without residual connections, next to closed forms of its "
        "mean scores.",
    ),
}
"""What each of the three papers says, in three sentences, by citation key."""


def write_page(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    claims: Sequence[Any],
    readings: Sequence[Any],
    errata: Sequence[Any],
    studies: Mapping[str, Any],
    title: str = TITLE,
) -> Path:
    """Write the page of three papers to `out`, whole or not at all, and return its path.

    `folder` holds the results, FOLDER/PAPER/NAME.svg, .png, .md and .json, and papers.json on the run; what is
    not there becomes a note. `claims` are judged (`posbias_papers.collect`), `readings` comparisons of published
    with corrected readings, `errata` with cells in Markdown, `studies` the registry by key, PAPER/NAME. Raises
    `MissingPackageError` without jinja2 or markdown-it-py, `InvalidValueError` for an unknown paper,
    `OutputFileError` if the page cannot be written.
    """
    need("jinja2", "markdown_it", work="the page", extra="report")
    from markupsafe import Markup

    from posbias.reports.page import resource, template
    from posbias_papers.sections import about, anchor, gather, label, read_json
    from posbias_papers.setting import maths, quantity

    nothing: dict[str, Any] = {"runs": [], "machine": "", "studies": {}}
    run = nothing | {"versions": {"posbias": __version__}}
    run |= read_json(Path(folder) / "papers.json")[0]
    parts = gather(Path(folder), claims, studies, run["studies"])
    page = template("papers.html", "posbias_papers", maths=maths, quantity=quantity).render(
        title=title,
        style=Markup(resource("papers.css", "posbias_papers")),
        parts=parts,
        says=INTRODUCTIONS,
        counts=tally(claims),
        claims=claims,
        verdicts=VERDICTS,
        readings=readings,
        errata=_grouped(errata, lambda entry: entry.paper),
        run=run,
        linked={one.key for one in errata},
        level=LEVEL,
        least=LEAST,
        near=NEAR,
        sources=_sources(part.source.key for part in parts),
        readings_of=_grouped(readings, lambda pair: getattr(pair, "erratum", "") or pair.key),
        about=about,
        anchor=anchor,
        link=partial(_link, Path(out).parent),
        ids={claim.id for claim in claims},
        label=label,
        named=_named,
        inline=_inline,
        number=_number,
        evidence=_evidence,
    )
    return write_text(out, page)


def _link(folder: Path, file: str) -> str:
    """A file as a page in `folder` names it."""
    return quote(Path(os.path.relpath(file, folder)).as_posix())


def _sources(papers: Iterable[str]) -> list[Source]:
    """The papers, each with its other versions, and what else all pages rest on."""
    keys = [key for paper in papers for key in (paper, *(other.key for other in versions(paper)))]
    return [cite(key) for key in dict.fromkeys([*keys, *REPORTED])]


def _named(paper: str) -> str:
    """'Wu et al. 2025' for 'wu2025'."""
    return BIBLIOGRAPHY[paper].short.partition(" (")[0] if paper in BIBLIOGRAPHY else paper


def _number(claim: Any) -> str:
    """What the verdict hangs on; of a statement its margin."""
    from posbias_papers.setting import plus_minus

    if claim.study.endswith("/statements") and claim.estimate.value == claim.estimate.value:
        return margin_text(claim.estimate.value)
    return plus_minus(claim.estimate.value, claim.estimate.se)


def _evidence(claim: Any) -> list[tuple[str, str, str]]:
    """The differences that a claim of several is about: verdict, of what, the number or what is wrong with it."""
    from posbias_papers.setting import plus_minus

    effects = getattr(claim, "more", {}).get("effects") or []
    if len(effects) < 2:
        return []
    return [
        (one["verdict"], one["where"], one.get("flaw") or plus_minus(one.get("value"), one.get("se")))
        for one in effects
    ]


def _grouped(entries: Iterable[Any], group: Callable[[Any], str]) -> dict[str, list[Any]]:
    """Entries by their group, groups in the order in which they come."""
    groups: dict[str, list[Any]] = {}
    for entry in entries:
        groups.setdefault(group(entry), []).append(entry)
    return groups


def _inline(text: str) -> Any:
    """Markdown of one line as HTML, with real minus signs: code, emphasis and text; all else as it is written."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup, escape

    from posbias.reports.page import tied
    from posbias_papers.setting import set_maths

    def words(renderer: object, tokens: Sequence[Any], place: int, options: object, env: object) -> str:
        return set_maths(str(escape(tied(tokens[place].content))))

    parser = MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink"])
    parser.add_render_rule("text", words)
    return Markup(parser.renderInline(text).strip())
