"""The one style of all figures, and figures as files whose bytes depend on the data alone."""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.errors import InvalidValueError, MissingPackageError, nearest
from posbias.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
"""A colour for each predictor (Okabe and Ito's palette, told apart with any colour vision)."""
ACCENT, SECOND = COLOURS["energy"], COLOURS["measured_kernels"]
SMALL, TEXT = 7.0, 8.0
THIN, LINE = 0.6, 1.3

FILE_KINDS = ("svg", "png", "pdf")
"""What a figure can be saved as, by the suffix of its name."""
_UNDATED: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def new_figure(width: float = 6.4, height: float = 3.2) -> "Figure":
    """An empty figure of so many inches, belonging to no window.

    Raises `MissingPackageError` when matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"{error.name}: not installed, needed to draw; run: pip install 'posbias[report]'"
        ) from None
    return Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)


def check_kind(path: str | os.PathLike[str]) -> str:
    """The kind of picture that the suffix of `path` names. Raises `InvalidValueError` for none of `FILE_KINDS`."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in FILE_KINDS:
        raise InvalidValueError(
            f"picture: {kind!r} given, one of {', '.join(FILE_KINDS)} needed{nearest(kind, FILE_KINDS)}"
        )
    return kind


def picture_bytes(figure: "Figure", kind: str) -> bytes:
    """The figure as a file of one of `FILE_KINDS`: 200 dpi where it has pixels, text as outlines in SVG.

    Outlines look the same wherever the file is opened, whatever fonts are there. Raises `InvalidValueError`
    for another kind.
    """
    import matplotlib

    check_kind(f"picture.{kind}")
    settings: dict[Any, Any] = {
        "svg.hashsalt": "posbias",
        "svg.fonttype": "path",
        "svg.id": None,
        "pdf.fonttype": 42,
    }
    buffer = io.BytesIO()
    with matplotlib.rc_context(settings):
        figure.savefig(buffer, format=kind, dpi=200, metadata=_UNDATED[kind])
    return buffer.getvalue()


def save_figure(figure: "Figure", path: str | os.PathLike[str]) -> Path:
    """Write a figure to `path`, whole or not at all, as the kind its suffix names.

    Raises `InvalidValueError` for a suffix not in `FILE_KINDS`, `OutputFileError` when it cannot be written.
    """
    return write_bytes(path, picture_bytes(figure, check_kind(path)))


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
    """Add a legend above an axes, where it hides nothing."""
    ax.legend(
        fontsize=SMALL,
        frameon=False,
        labelcolor=INK,
        handlelength=1.8,
        columnspacing=1.4,
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=columns,
    )


def direct_label(ax: "Axes", text: str, colour: str) -> None:
    """Name the one thing an axes shows, above it, in its colour."""
    ax.set_title(text, fontsize=SMALL, color=colour, loc="left", pad=4)
