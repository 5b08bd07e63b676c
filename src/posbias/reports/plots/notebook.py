"""What a notebook shows of a value: its words, and the picture that its `plot` draws.

The picture is an image of its own (a data address), so that its ids meet no other picture's and nothing in it
can run. Words are escaped.
"""

import base64
import html
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING

from posbias.reports.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 6.4, 3.2
"""Inches of the picture."""
LARGEST = 150_000
"""Bytes of an SVG; above, the picture is a PNG, so that a notebook stays small whatever its profiles' length."""


def notebook_html(words: str, draw: Callable[["Axes"], object]) -> str:
    """The first line of `words` over the picture that `draw` makes; without matplotlib all words alone."""
    first, *_ = words.splitlines()
    if importlib.util.find_spec("matplotlib") is None:
        return f"<pre>{html.escape(words)}</pre>"
    figure = style.new_figure(WIDTH, HEIGHT)
    draw(figure.subplots())
    picture, kind = style.picture_bytes(figure, "svg"), "svg+xml"
    if len(picture) > LARGEST:
        picture, kind = style.picture_bytes(figure, "png"), "png"
    data = base64.b64encode(picture).decode()
    look = f"width:{WIDTH:g}in;max-width:100%;background:{style.PAPER}"
    return (
        f"<div><p>{html.escape(first)}</p>"
        f'<img style="{look}" alt="{html.escape(words)}" src="data:image/{kind};base64,{data}"></div>'
    )
