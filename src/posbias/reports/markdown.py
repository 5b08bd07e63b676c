"""Markdown of our own pages as parts of an HTML page: no raw HTML, no links, no pictures, real minus signs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from posbias.reports.setting import set_maths, tied

__all__ = ["PageText", "inline", "page_text"]

HIGHEST = 4
"""Headings of a page become headings of this level and below: it stands within a section of a larger one."""
_COUNTS = re.compile(r"\d+ holds, \d+ fails, \d+ undecided\.?")
_NOTHING = Markup()


@dataclass(frozen=True)
class PageText:
    """What a result's page says: how it came about (`caption`), and its `tables` with the words between them."""

    caption: Markup = _NOTHING
    tables: Markup = _NOTHING


def inline(text: str) -> Markup:
    """One cell or sentence: code, emphasis and text; everything else as it is written."""
    (token,) = _parser().parseInline(text)
    return _rendered([token])


def page_text(text: str) -> PageText:
    """A result's page without its title and its claims, which the larger page says in its own way."""
    blocks = _blocks(_parser().parse(text))
    kept: list[list[Token]] = []
    claims = False
    for block in blocks:
        words = block[1].content if len(block) > 1 else ""
        if block[0].type == "heading_open" and block[0].tag == "h1":
            continue
        if _COUNTS.fullmatch(words):
            claims = True
        elif not (claims and block[0].type == "bullet_list_open"):
            kept.append(block)
            claims = False
    caption = Markup()
    if kept and kept[0][0].type == "paragraph_open" and not kept[0][1].content.endswith(":"):
        caption = _rendered([kept[0][1]])
        kept = kept[1:]
    return PageText(caption, _rendered([token for block in kept for token in block]))


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink"])
    parser.add_render_rule("text", _text)
    return parser


def _text(renderer: object, tokens: Sequence[Token], place: int, options: object, env: object) -> str:
    return set_maths(str(escape(tied(tokens[place].content))))


def _blocks(tokens: list[Token]) -> list[list[Token]]:
    """Tokens by the block of the top level that they belong to."""
    blocks: list[list[Token]] = []
    for token in tokens:
        if token.level == 0 and token.nesting >= 0:
            blocks.append([])
        blocks[-1].append(token)
    return blocks


def _rendered(tokens: list[Token]) -> Markup:
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, HIGHEST - 2 + int(token.tag[1]))}"
    parser = _parser()
    html = parser.renderer.render(tokens, parser.options, {})
    around = '<div class="wide" tabindex="0" role="region" aria-label="Numbers"><table>'
    return Markup(html.replace("<table>", around).replace("</table>", "</table></div>").strip())
