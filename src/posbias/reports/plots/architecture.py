"""An architecture as a picture: the weight of attention by layer, and what each layer's attention is."""

from typing import TYPE_CHECKING

import numpy as np

from posbias.reports.plots import style
from posbias.reports.plots.layers import LAYER
from posbias.theory.architecture import Architecture

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_architecture(ax: "Axes", architecture: Architecture) -> "Axes":
    """Draw λ by layer; layers of unlike mask or encoding differ in colour and marker.

    The legend names heads, mask and encoding. Without a mixing of its own λ is the assumed schedule's.
    """
    style.dress(ax, LAYER, "weight of attention λ")
    kinds: dict[str, list[int]] = {}
    for depth, layer in enumerate(architecture.stack):
        parts = ", ".join(_words(part) for part in (layer.mask, layer.positional))
        kinds.setdefault(f"{parts}, {layer.heads} heads", []).append(depth)
    mixing = architecture.coefficients
    ax.plot(mixing, color=style.RULE, linewidth=style.THIN, zorder=1)
    for place, (label, layers) in enumerate(kinds.items()):
        at = np.array(layers)
        ax.plot(at, mixing[at], linestyle="", markersize=3.5, label=label, **style.series(place))
    ax.set_ylim(0, 1.05 * float(max(mixing.max(), 0.01)))
    style.whole_numbers(ax.xaxis)
    style.key(ax, 1 if len(kinds) < 4 else 2)
    return ax


def _words(part: object) -> str:
    """A mask or an encoding by its kind, with its width where it has one."""
    width = getattr(part, "width", None)
    return type(part).__name__ + (f" of {width:,}" if isinstance(width, int) else "")
