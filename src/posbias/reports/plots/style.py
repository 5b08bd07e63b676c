"""The one style of all figures, and figures as files whose bytes depend on the data alone."""

import base64
import html
import importlib.util
import io
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.core.errors import wrong
from posbias.core.files import write_bytes
from posbias.core.packages import need

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from posbias.profiles.estimate import Estimate

INK, MUTED, RULE, PAPER = "#1b1f24", "#656d76", "#d5d9de", "#ffffff"
THEMED = {INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper"}
"""Colours of text, secondary text, thin lines and background: a page may give them new values in the dark."""
COLOURS = {
    "attention_only": "#e69f00",
    "positional": "#56b4e9",
    "fitted": "#009e73",
    "measured_kernels": "#d55e00",
    "energy": "#0072b2",
}
"""A colour for each predictor (Okabe and Ito's palette, which any colour vision distinguishes)."""
ACCENT, SECOND = COLOURS["energy"], COLOURS["measured_kernels"]
SMALL, TEXT = 7.0, 8.0
THIN, LINE = 0.6, 1.3
SERIES = (*COLOURS.values(), "#cc79a7", INK)
"""Colours of lines that differ in nothing but their place in a legend (Okabe and Ito)."""
MARKERS = "osv^Dx*"
DASHES = (0, (2, 2))
LEGEND = {"fontsize": SMALL, "frameon": False, "labelcolor": INK}

LARGEST = 150_000
"""Bytes of an SVG in a notebook; a larger picture is a PNG there, so that a notebook stays small."""
DPI = 200
"""Pixels of an inch, where a file has pixels."""
FILE_KINDS = ("svg", "png", "pdf")
"""What a figure can be saved as, by the suffix of its name."""
_SETTINGS: Any = {"svg.hashsalt": "posbias", "svg.fonttype": "path", "svg.id": None, "pdf.fonttype": 42}
_UNDATED: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def new_figure(width: float = 6.4, height: float = 3.2) -> "Figure":
    """An empty figure of `width` × `height` inches, belonging to no window.

    Raises `MissingPackageError` when matplotlib is not installed.
    """
    need("matplotlib", work="drawing", extra="report")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)


def new_panels(count: int, columns: int, width: float, height: float) -> "tuple[Figure, list[Axes]]":
    """A figure of `count` panels, each `width` × `height` inches, up to `columns` of them in a row."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = new_figure(columns * width, rows * height)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.set_axis_off()
    return figure, axes[:count]


def new_axes(width: float = 6.4, height: float = 3.2) -> "Axes":
    """The axes of a new figure of `width` × `height` inches, as pyplot makes one: a notebook shows it.

    Raises `MissingPackageError` when matplotlib is not installed.
    """
    need("matplotlib", work="drawing", extra="report")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def check_kind(path: str | os.PathLike[str]) -> str:
    """The kind of picture that the suffix of `path` names. Raises `InvalidValueError` for none of `FILE_KINDS`."""
    if (kind := Path(path).suffix.lower().removeprefix(".")) not in FILE_KINDS:
        raise wrong("picture", f"a name that ends in .{', .'.join(FILE_KINDS)}", str(path))
    return kind


def picture_bytes(figure: "Figure", kind: str) -> bytes:
    """The figure as a file of one of `FILE_KINDS`: `DPI` where it has pixels, text as outlines in SVG.

    Outlines look the same wherever the file is opened, whatever fonts are there. Raises `InvalidValueError`
    for another kind.
    """
    import matplotlib

    check_kind(f"picture.{kind}")
    buffer = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(buffer, format=kind, dpi=DPI, metadata=_UNDATED[kind])
    return buffer.getvalue()


def save_figure(figure: "Figure", path: str | os.PathLike[str]) -> Path:
    """Write a figure to `path`, whole or not at all, as the kind its suffix names.

    Raises `InvalidValueError` for a suffix not in `FILE_KINDS`, `OutputFileError` when it cannot be written.
    """
    return write_bytes(path, picture_bytes(figure, check_kind(path)))


def drawing(draw: "Callable[..., Axes]", *data: Any, size: tuple[float, float] = (6.4, 3.2)) -> "Figure":
    """A figure of what `draw(ax, *data)` draws, `size` inches large."""
    figure = new_figure(*size)
    draw(figure.subplots(), *data)
    return figure


def notebook_html(words: str, draw: "Callable[[Axes], Axes]") -> str:
    """What a notebook shows of a value: the first line of `words` over the picture that `draw` makes.

    Words are escaped, and the picture is an image of its own (a data address), in which nothing can run. Without
    matplotlib all words alone.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return f"<pre>{html.escape(words)}</pre>"
    figure = drawing(draw)
    picture, kind = picture_bytes(figure, "svg"), "svg+xml"
    if len(picture) > LARGEST:
        picture, kind = picture_bytes(figure, "png"), "png"
    data, first = base64.b64encode(picture).decode(), html.escape(words.partition("\n")[0])
    look = f"width:6.4in;max-width:100%;background:{PAPER}"
    shown = f'<img style="{look}" alt="{html.escape(words)}" src="data:image/{kind};base64,{data}">'
    return f"<div><p>{first}</p>{shown}</div>"


def dress(ax: "Axes", horizontal: str, vertical: str) -> None:
    """Give an axes the house's look and its two labels."""
    ax.set_facecolor("none")
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(MUTED)
        spine.set_linewidth(THIN)
    ax.tick_params(which="both", labelsize=SMALL, color=MUTED, labelcolor=INK, width=THIN, length=2.5)
    ax.tick_params(which="minor", length=1.5)
    ax.set_xlabel(horizontal, fontsize=TEXT, color=INK)
    ax.set_ylabel(vertical, fontsize=TEXT, color=INK)
    ax.grid(True, axis="y", color=RULE, linewidth=THIN)
    ax.set_axisbelow(True)


def key(ax: "Axes", columns: int = 3) -> None:
    """Add a legend above an axes, where it hides nothing: in up to `columns` columns, as many as fit.

    Names wider than the axes are broken. A figure of this axes alone grows by what is more than two lines.
    """
    from matplotlib.figure import Figure
    from matplotlib.textpath import TextPath

    handles, labels = ax.get_legend_handles_labels()
    sign, gap, room = 3.0 * SMALL, 1.4 * SMALL, ax.get_window_extent().width * 72 / ax.figure.dpi
    widths = [TextPath((0, 0), label.replace("$", "S"), size=SMALL).get_extents().width for label in labels]
    for k, width in enumerate(widths):
        if width + sign > room:
            labels[k] = textwrap.fill(labels[k], max(1, int(len(labels[k]) * (room - sign) / width)))
    columns = max(1, min(columns, int(room / (sign + gap + max(widths, default=1.0))), len(labels)))
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "ncols": columns}
    legend = ax.legend(handles, labels, handlelength=1.8, columnspacing=1.4, **place, **LEGEND)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar in a name is no formula
    lines = sum(label.count("\n") + 1 for label in labels) / columns - 2
    if lines > 0 and isinstance(ax.figure, Figure) and len(ax.figure.axes) == 1:
        ax.figure.set_figheight(ax.figure.get_figheight() + lines * 1.6 * SMALL / 72)


def entitled(figure: "Figure", lines: Sequence[str]) -> "Figure":
    """The figure with lines above all its panels."""
    figure.suptitle("\n".join(lines), fontsize=SMALL, color=INK, parse_math=False)
    return figure


def direct_label(ax: "Axes", text: str, colour: str) -> None:
    """Name the one thing an axes shows, above it, in its colour."""
    ax.set_title(text, fontsize=SMALL, color=colour, loc="left", pad=4)


def series(place: int) -> dict[str, Any]:
    """Colour and marker of a line that is known by nothing but its place in a legend."""
    # a marker further with each round of colours, so that lines of one colour differ in it
    marker = MARKERS[(place + place // len(SERIES)) % len(MARKERS)]
    return {"color": SERIES[place % len(SERIES)], "marker": marker}


def apart(place: int) -> dict[str, Any]:
    """Colour, marker, dashes and width of a line that may hide others, in part or wholly."""
    colours = [*dict.fromkeys((ACCENT, *SERIES))]
    look = {"color": colours[place % len(colours)], "marker": MARKERS[place % len(MARKERS)]}
    return look | {"linestyle": ("-", "--", "-.", ":")[place % 4], "linewidth": LINE}


def draw_lines(ax: "Axes", lines: Mapping[str, tuple[Any, Any]], **look: Any) -> "Axes":
    """Draw lines by name, each as its x and y, in a colour and marker of its own, after those that are named."""
    for place, (name, (x, y)) in enumerate(lines.items(), len(ax.get_legend_handles_labels()[1])):
        ax.plot(x, y, label=name, **{"linewidth": LINE, "markersize": 3} | look, **series(place))
    return ax


def draw_estimates(
    ax: "Axes", x: "Float[np.ndarray, 'place']", estimates: "Sequence[Estimate]", **look: Any
) -> "Axes":
    """Draw estimates over `x` as a line of points with their 95 % intervals; `look` are options of `errorbar`."""
    value = np.array([one.value for one in estimates])
    low, high = np.array([one.interval for one in estimates]).T
    # a share of exactly 0 or 1 may differ from the end of its interval in the last bit
    reach = np.maximum(0.0, [value - low, high - value])
    usual = {"fmt": "o-", "markersize": 3.5, "linewidth": LINE, "elinewidth": THIN * 1.5, "capsize": 1.5}
    ax.errorbar(x, value, reach, **usual | look)
    return ax


def level_line(ax: "Axes", level: float) -> None:
    """Draw the dashed line that curves are read against: a uniform profile, chance, zero."""
    ax.axhline(level, color=MUTED, linewidth=THIN, linestyle=DASHES, zorder=1)


def whole_numbers(axis: "Axis", most: int = 10) -> None:
    """Put ticks at up to `most` whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=most, integer=True))


def plain_numbers(axis: "Axis") -> None:
    """Write the ticks of a logarithmic axis as numbers, 1,024 and not 4⁵, and none of the minor ones."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    axis.set_minor_formatter(NullFormatter())


def draw_matrix(ax: "Axes", matrix: "Float[np.ndarray, 'query key']", **colours: Any) -> "AxesImage":
    """Draw a matrix as colours (NaN: blank), queries down and keys across; `colours` are options of `imshow`."""
    ax.grid(False)
    ax.spines[:].set_visible(False)
    places = sorted({0, len(matrix) // 2, len(matrix) - 1})
    image = ax.imshow(matrix, cmap="viridis", interpolation="nearest", **colours)
    ax.set_xticks(places)
    ax.set_yticks(places)
    return image


def colour_bar(ax: "Axes", image: "ScalarMappable", **options: Any) -> Any:
    """Add a narrow bar of the image's colours at the right of its axes, and return it."""
    bar = ax.figure.colorbar(image, cax=ax.inset_axes((1.03, 0.0, 0.055, 1.0)), **options)
    look: dict[str, Any] = {"labelsize": SMALL - 1, "labelcolor": INK, "width": THIN, "pad": 1.5}
    bar.ax.tick_params(which="both", color=MUTED, length=1.5, **look)
    bar.outline.set_visible(False)
    return bar
