"""Pictures for a page that stands alone: a saved figure as an element of it, small, safe, with ids of its own.

A figure that ends in words (`plots.captions`) comes without them: the page says the same as text, beside its
verdicts. SVG goes into the page itself, where it takes the page's colours; one that is too heavy for that comes
as its PNG.
"""

import base64
import os
import re
import struct
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.plots import THEMED

if TYPE_CHECKING:
    from markupsafe import Markup

LARGEST_SVG = 700_000
"""Bytes of an SVG, made compact, up to which it goes into the page; above, its PNG does."""
LARGEST_PNG = 1_500_000
"""Bytes of a PNG up to which it goes into the page."""
_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_DRAWN = (  # noqa: SIM905
    "svg g path use defs clipPath rect image circle ellipse line polyline polygon text tspan linearGradient "
    "radialGradient stop marker pattern mask"
).split()
"""Elements that draw; all others (scripts, foreign objects, metadata, style sheets) are left out."""
_PLACES = frozenset(("d", "transform", "points", "x", "y", "width", "height"))
ElementTree.register_namespace("", _SVG)
ElementTree.register_namespace("xlink", _LINK)


@dataclass(frozen=True)
class Picture:
    """A figure as it goes into a page: its element, whether it is SVG, and the bytes it costs there.

    `element` is empty where there is none; `why` then says so, in words for a person.
    """

    element: "Markup | str" = ""
    vector: bool = True
    why: str = ""

    @property
    def size(self) -> int:
        """Bytes in the page."""
        return len(self.element.encode())


def picture(folder: str | os.PathLike[str], name: str, identity: str, alternative: str) -> Picture:
    """The figure NAME.svg or NAME.png of `folder` as an element; `identity` tells its ids from other figures'.

    `alternative` is read to those who cannot see it. A file that is damaged or too large is passed over, and
    `why` of the picture says what was wrong where nothing is left.
    """
    wrong = []
    vector, pixels = Path(folder) / f"{name}.svg", Path(folder) / f"{name}.png"
    if vector.is_file():
        try:
            element = inline_svg(vector.read_bytes(), identity, alternative)
            if len(element.encode()) <= LARGEST_SVG:
                return Picture(element)
            wrong.append(f"{vector.name} is too heavy for this page")
        except (ElementTree.ParseError, ValueError, OSError):
            wrong.append(f"{vector.name} cannot be read")
    if pixels.is_file():
        try:
            return Picture(_embedded(pixels.read_bytes(), alternative), vector=False)
        except (ValueError, OSError) as error:
            wrong.append(f"{pixels.name} {error}")
    return Picture(why=" and ".join(wrong))


def within(pictures: dict[str, Picture], limit: int) -> dict[str, Picture]:
    """The same pictures, the heaviest left out until all together have at most `limit` bytes."""
    kept = dict(pictures)
    while sum(one.size for one in kept.values()) > limit:
        heaviest = max(kept, key=lambda key: kept[key].size)
        kept[heaviest] = Picture(why="too heavy for this page")
    return kept


def inline_svg(picture: bytes, identity: str, alternative: str) -> "Markup":
    """An SVG of matplotlib as an element: what draws and nothing else, two digits after the point, ids of its own.

    It is as wide as its place (`--natural` is its own width, in CSS pixels); text, lines and background take the
    CSS variables that `plots.THEMED` names, so a page may go dark. The words beneath a captioned figure are cut
    off. `alternative` is read to those who cannot see it. Raises `ParseError` or `ValueError` for what is no such
    SVG.
    """
    from markupsafe import Markup

    if b"<!ENTITY" in picture:
        raise ValueError("entities are not read")
    root = ElementTree.fromstring(picture)
    if root.tag != f"{{{_SVG}}}svg" or "viewBox" not in root.attrib:
        raise ValueError("no SVG with a viewBox")
    _without_words(root)
    _only_what_draws(root)
    _short_ids(root, identity)
    for element in root.iter():
        element.text = (element.text or "").strip() if element.tag.endswith("text") else None
        element.tail = None
        for name in _PLACES & element.attrib.keys():
            element.set(name, _rounded(element.attrib[name]))
    box, width = root.attrib["viewBox"], float(root.attrib["viewBox"].split()[2]) * 4 / 3
    root.attrib.clear()
    root.attrib |= {"viewBox": box, "style": f"--natural:{width:g}", "role": "img", "aria-label": alternative}
    text = ElementTree.tostring(root, encoding="unicode")
    for colour, variable in THEMED.items():
        text = text.replace(colour, f"var(--{variable})")
    return Markup(text)


def _without_words(root: ElementTree.Element) -> None:
    """Cut off the last part of a figure of two, if it holds text alone, and the height it takes."""
    figure = root.find(f"{{{_SVG}}}g")
    parts = [] if figure is None else [one for one in figure if one.get("id", "").startswith("subfigure")]
    if (
        figure is None
        or len(parts) != 2
        or any(not one.get("id", "").startswith(("patch", "text")) for one in parts[1])
    ):
        return
    outline = parts[0].find(f"{{{_SVG}}}g/{{{_SVG}}}path")
    if outline is None:
        return
    low = max(float(number) for number in re.findall(r"[ML] \S+ (\S+)", outline.get("d", "")))
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    if 0 < low <= height:
        figure.remove(parts[1])
        root.set("viewBox", f"{left:g} {top:g} {width:g} {low:g}")


def _only_what_draws(element: ElementTree.Element) -> None:
    for name in list(element.attrib):
        plain = name.rpartition("}")[2]
        link = plain == "href" and not element.attrib[name].startswith(("#", "data:image/png;"))
        address = re.search(r"url\((?!#)", element.attrib[name])
        if plain.startswith("on") or link or address or plain == "type":
            del element.attrib[name]
    for child in list(element):
        if not isinstance(child.tag, str) or child.tag.rpartition("}")[2] not in _DRAWN:
            element.remove(child)
        else:
            _only_what_draws(child)


def _short_ids(root: ElementTree.Element, identity: str) -> None:
    """Keep the ids that something refers to, as `identity` and a number in the order they come."""
    pattern = re.compile(r"(?<=^#)\S+$|(?<=url\(#)[^)]+")
    used = {
        name
        for element in root.iter()
        for value in element.attrib.values()
        for name in pattern.findall(value)
    }
    named = (element.get("id", "") for element in root.iter())
    short = {
        name: f"{identity}-{number:x}" for number, name in enumerate(name for name in named if name in used)
    }
    for element in root.iter():
        name = element.attrib.pop("id", "")
        if name in short:
            element.set("id", short[name])
        for key, value in element.attrib.items():
            element.set(key, pattern.sub(lambda name: short.get(name[0], name[0]), value))


def _rounded(text: str) -> str:
    """Places with two digits after the point; factors of a scale as they are."""

    def shorter(number: re.Match[str]) -> str:
        return number[0] if number[0][0] == "s" else f"{float(number[0]):.2f}".rstrip("0").rstrip(".")

    return " ".join(re.sub(r"scale\([^)]*\)|-?\d+\.\d{3,}(?![\de])", shorter, text).split())


def _embedded(content: bytes, alternative: str) -> "Markup":
    from markupsafe import Markup

    width, height = _sides(content)
    if len(content) > LARGEST_PNG:
        raise ValueError("is too heavy for this page")
    data = base64.b64encode(content).decode()
    return Markup(
        '<img class="paper" loading="lazy" decoding="async" width="{}" height="{}" alt="{}" '
        'src="data:image/png;base64,{}">'
    ).format(width, height, alternative, data)


def _sides(content: bytes) -> tuple[int, int]:
    """Width and height of a PNG, pixels."""
    if content[:8] != b"\x89PNG\r\n\x1a\n" or len(content) < 24:
        raise ValueError("is no PNG")
    return struct.unpack(">II", content[16:24])
