"""Saved figures on pages: as files beside the page, or as elements of it, small, safe, with ids of their own.

A figure that ends in words (`plots.captions`) is shown without them: the page says the same as text, beside its
verdicts.
"""

import os
import re
import struct
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.reports.plots import THEMED
from posbias.reports.plots.style import DPI

if TYPE_CHECKING:
    from markupsafe import Markup

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
    """A saved figure as a page shows it: its file, and the width and height of what is shown, in CSS pixels.

    `height` leaves out the words beneath a captioned figure. `file` is empty where there is none; `why` then says
    so, in words for a person.
    """

    file: str = ""
    width: float = 0
    height: float = 0
    why: str = ""


def picture(folder: str | os.PathLike[str], name: str) -> Picture:
    """The figure NAME.svg or NAME.png of `folder`.

    A file that is damaged is passed over, and `why` of the picture says what was wrong where nothing is left.
    """
    wrong = []
    for kind, shown in (("svg", _shown_of_svg), ("png", _shown_of_png)):
        file = Path(folder) / f"{name}.{kind}"
        try:
            return Picture(str(file), *shown(file.read_bytes()))
        except FileNotFoundError:
            continue
        except (ElementTree.ParseError, ValueError, OSError) as error:
            told = error if isinstance(error, ValueError) else "cannot be read"
            wrong.append(f"{file.name} {told}")
    return Picture(why=" and ".join(wrong))


def _shown_of_svg(content: bytes) -> tuple[float, float]:
    root = _root(content)
    _without_words(root)
    width, height = (float(number) * 4 / 3 for number in root.attrib["viewBox"].split()[2:])
    return width, height


def _root(content: bytes) -> ElementTree.Element:
    if b"<!ENTITY" in content:
        raise ValueError("has entities, which are not read")
    root = ElementTree.fromstring(content)
    if root.tag != f"{{{_SVG}}}svg" or "viewBox" not in root.attrib:
        raise ValueError("is no SVG with a viewBox")
    return root


def inline_svg(picture: bytes, identity: str, alternative: str) -> "Markup":
    """An SVG of matplotlib as an element: what draws and nothing else, two digits after the point, ids of its own.

    It is as wide as its place (`--natural` is its own width, in CSS pixels); text, lines and background take the
    CSS variables that `plots.THEMED` names, so a page may go dark. The words beneath a captioned figure are cut
    off. `alternative` is read to those who cannot see it. Raises `ParseError` or `ValueError` for what is no such
    SVG.
    """
    from markupsafe import Markup

    root = _root(picture)
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


def _shown_of_png(content: bytes) -> tuple[float, float]:
    if content[:8] != b"\x89PNG\r\n\x1a\n" or len(content) < 24:
        raise ValueError("is no PNG")
    width, height = (pixels * 96 / DPI for pixels in struct.unpack(">II", content[16:24]))
    return width, height
