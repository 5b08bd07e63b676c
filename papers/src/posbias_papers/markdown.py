"""Markdown of one line as a part of an HTML page: no raw HTML, no links, no pictures, real minus signs."""

from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from posbias.reports.setting import set_maths, tied


def inline(text: str) -> Markup:
    """One cell or sentence: code, emphasis and text; everything else as it is written."""
    (token,) = _parser().parseInline(text)
    parser = _parser()
    return Markup(parser.renderer.render([token], parser.options, {}).strip())


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink"])
    parser.add_render_rule("text", _text)
    return parser


def _text(renderer: object, tokens: Sequence[Token], place: int, options: object, env: object) -> str:
    return set_maths(str(escape(tied(tokens[place].content))))
