"""A profile taken apart: what each thing that is known adds to its beginning, its middle and its end."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posbias.reports.plots.style import INK, LINE, MUTED, SERIES, THIN, dress

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_parts(
    ax: "Axes", shares: Mapping[str, Sequence[float]], steps: Sequence[str], lengths: Sequence[float]
) -> "Axes":
    """Draw how the share of each stretch goes from an even spread to the measured one, a bar for each step.

    `shares`: by stretch its share of influence under one profile after the other, the even spread first; `steps`
    names what each next one knows. Each bar begins where the one before it ended, so that they sum. `lengths` are
    the stretches' shares of the context, drawn as a dashed line: the even spread.
    """
    dress(ax, "", "share of influence")
    width = 0.8 / len(steps)
    for group, (row, even) in enumerate(zip(shares.values(), lengths, strict=True)):
        left = group - 0.4
        for place, step in enumerate(steps):
            label = step if group == 0 else None
            look = {"color": SERIES[place % len(SERIES)], "label": label, "linewidth": 0}
            at = left + (place + 0.5) * width
            ax.bar(at, row[place + 1] - row[place], 0.9 * width, bottom=row[place], **look)
        ax.plot([left, left + 0.8], [even, even], color=MUTED, linewidth=THIN, linestyle="--")
        ax.plot([left + 0.8 - width, left + 0.8], [row[-1], row[-1]], color=INK, linewidth=LINE)
    ax.set_xticks(np.arange(len(shares)), [*shares])
    ax.set_ylim(0.0, 1.0)
    return ax
