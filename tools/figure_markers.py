"""Read the markers of a curve out of a figure that matplotlib's Cairo backend saved as PDF.

    python tools/figure_markers.py FIGURE.pdf

Prints the height of each marker as a share of their sum. Markers are drawn by `/M0 Do` after shifts with ten
decimals; the zero of the axis is that of the line through its labelled ticks. `herasimchyk2026/bloom-176b.csv` was
made so from figures of the authors' repository.
"""

import re
import sys
import zlib
from pathlib import Path

import numpy as np


def page_of(path: Path) -> str:
    """The drawing operators of the page: the longest stream."""
    parts = re.findall(rb"stream\r?\n(.*?)endstream", path.read_bytes(), re.DOTALL)
    return max((zlib.decompress(part).decode("latin1") for part in parts if part[:1] == b"x"), key=len)


def heights(page: str) -> np.ndarray:
    """Marker by marker, the height above the zero of the vertical axis, as shares of their sum."""
    shifts = re.findall(r"1 0 0 1 \S+ (\S+) cm /M0 Do", page)
    places, labels = [], []
    for line in re.finditer(r"([\d.]+) ([\d.]+) m\n[\d.]+ \2 l\n\nS\n", page):
        label = re.search(r"\[ \(([\d.]+)\) \] TJ", page[line.end() : line.end() + 500])
        if label:
            places.append(float(line[2]))
            labels.append(float(label[1]))
    above = np.cumsum(np.array(shifts, dtype=float)) - np.polyfit(labels, places, 1)[1]
    return above / above.sum()


if __name__ == "__main__":
    print(*(f"{height:.10f}" for height in heights(page_of(Path(sys.argv[1])))), sep="\n")
