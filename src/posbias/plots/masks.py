"""Masks as pictures: which pairs are admitted, and the directed graph that they are (Wu et al. 2025, Figure 1)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posbias.errors import InvalidValueError
from posbias.plots.style import ACCENT, INK, MUTED, PAPER, SMALL, THIN, dress, new_figure
from posbias.theory.architecture import Architecture
from posbias.theory.graph import Pattern, centre_nodes, graph, masks_of
from posbias.theory.masks import Full, Prefix, SlidingWindow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NODES = 32
"""More nodes than this cannot be told apart."""
NAMED = 12
"""Up to this many nodes carry their position; beyond, every fourth is written below."""
ARCH = 0.32
"""Height of an arc, as a share of its span."""


def mask_figure(masks: Mapping[str, Pattern] | Sequence[Pattern], tokens: int) -> "Figure":
    """Masks side by side, each as a matrix with its graph below, the centre nodes in the accent colour.

    `masks` with their titles, or without (then named after their kind); each a mask, a pattern of masks or an
    architecture. Raises `InvalidValueError` for no mask, more than `MOST_NODES` tokens, or as
    `posbias.theory.graph.graph` does. After Wu et al. 2025, Figure 1.
    """
    titled = list(masks.items()) if isinstance(masks, Mapping) else [(_title(one), one) for one in masks]
    if not titled:
        raise InvalidValueError("masks: none given, one or more needed")
    highest, lowest = zip(*(_extent(_edges(one, tokens)) for _, one in titled), strict=True)
    width = max(2.3, 0.15 * tokens)
    tall = width * (max(highest) - min(lowest)) / (tokens + 0.2)
    figure = new_figure(width * len(titled), width + 0.35 + tall)
    axes = figure.subplots(2, len(titled), squeeze=False, height_ratios=(width - 0.4, tall))
    for column, (title, mask) in enumerate(titled):
        above, below = axes[:, column]
        draw_mask(above, mask, tokens)
        draw_graph(below, mask, tokens).set_ylim(min(lowest), max(highest))
        above.set_title(title, fontsize=SMALL + 1, color=INK, pad=5)
        if column:
            above.set_ylabel("")
    return figure


def draw_mask(ax: "Axes", mask: Pattern, tokens: int) -> "Axes":
    """Draw which key (column) each query (row) may attend to; columns of centre nodes in the accent colour.

    Under a pattern of masks the graver a pair, the more layers admit it. Errors as in
    `posbias.theory.graph.graph`.
    """
    from matplotlib.colors import to_rgb
    from matplotlib.ticker import MaxNLocator

    centres = centre_nodes(mask, tokens)
    colours = np.tile(np.array(to_rgb(MUTED)), (tokens, 1))
    colours[centres] = to_rgb(ACCENT)
    share = np.mean([layer.allowed(tokens) for layer in masks_of(mask, tokens)], axis=0)
    paper = np.array(to_rgb(PAPER))
    image = paper + (0.75 * share)[..., None] * (colours - paper)
    dress(ax, "key (attended)", "query (attending)")
    ax.grid(False)
    ax.imshow(image, interpolation="nearest", extent=(-0.5, tokens - 0.5, tokens - 0.5, -0.5))
    if tokens <= MOST_NODES:
        edges = np.arange(tokens + 1) - 0.5
        for lines in (ax.vlines, ax.hlines):
            lines(edges, -0.5, tokens - 0.5, color=PAPER, linewidth=THIN)
    ax.spines[:].set_visible(True)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    return ax


def draw_graph(ax: "Axes", mask: Pattern, tokens: int) -> "Axes":
    """Draw the graph: an arc from each key to every query that may attend to it, self-loops left out.

    Arcs to later tokens pass above, to earlier ones below; centre nodes and what leaves them are in the
    accent colour. Raises `InvalidValueError` for more than `MOST_NODES` tokens, else as
    `posbias.theory.graph.graph` does. Source: Wu et al. 2025, Definition 3.1.
    """
    from matplotlib.patches import Circle, FancyArrowPatch

    shape = {"arrowstyle": "-|>,head_length=0.35,head_width=0.15", "mutation_scale": 7}
    shape |= {"connectionstyle": f"arc3,rad={-2 * ARCH}"}
    edges = _edges(mask, tokens)
    centres = set(centre_nodes(mask, tokens).tolist())
    nodes = [Circle((p, 0), 0.31, zorder=3, linewidth=THIN * 1.5) for p in range(tokens)]
    for position, node in enumerate(nodes):
        inside, edge = (ACCENT, ACCENT) if position in centres else (PAPER, INK)
        node.set(facecolor=inside, edgecolor=edge)
        ax.add_patch(node)
    for key, query in sorted(edges, key=lambda edge: edge[0] in centres):
        look = {"color": MUTED, "linewidth": THIN, "zorder": 1}
        if key in centres:
            look = {"color": ACCENT, "linewidth": THIN * 1.2, "zorder": 2}
        ends = {"patchA": nodes[key], "patchB": nodes[query], "shrinkA": 0, "shrinkB": 0.5}
        ax.add_patch(FancyArrowPatch((key, 0), (query, 0), **shape, **ends, **look))
    high, low = _extent(edges)
    # the position of each node inside it; of every fourth below the graph where there are many
    inside = tokens <= NAMED
    for position in range(0, tokens, 1 if inside else 4):
        colour = PAPER if inside and position in centres else INK
        look = {"ha": "center", "fontsize": SMALL - 0.5, "color": colour, "zorder": 4}
        y, side = (0, "center_baseline") if inside else (low, "top")
        ax.text(position, y, str(position), va=side, **look)
    ax.set(xlim=(-0.6, tokens - 0.4), ylim=(low, high), aspect="equal")
    ax.set_anchor("N")
    ax.axis("off")
    ax.set_title(
        _centres_in_words(sorted(centres)), fontsize=SMALL, color=ACCENT if centres else MUTED, pad=3
    )
    return ax


def _edges(mask: Pattern, tokens: int) -> list[tuple[int, int]]:
    """The edges (key, query) without self-loops, if they can be drawn."""
    if isinstance(tokens, int) and tokens > MOST_NODES:
        raise InvalidValueError(f"tokens: {tokens} given, at most {MOST_NODES} can be told apart in a graph")
    keys, queries = graph(mask, tokens).nonzero()
    return [(key, query) for key, query in zip(keys.tolist(), queries.tolist(), strict=True) if key != query]


def _extent(edges: list[tuple[int, int]]) -> tuple[float, float]:
    """The top and bottom of a graph with these edges."""
    spans = [query - key for key, query in edges] + [0]
    return ARCH * max(spans) + 0.5, ARCH * min(spans) - 0.5


def _title(pattern: Pattern) -> str:
    """What a mask is called above its picture."""
    match pattern:
        case SlidingWindow(width=width, sinks=sinks):
            return f"sliding window, w = {width}" + (f", {sinks} sink{'s' * (sinks > 1)}" if sinks else "")
        case Prefix(length=length):
            return f"prefix, K = {length}"
        case Architecture(name=name):
            return name or "architecture"
        case Sequence():
            return "pattern of layers"
        case Full():
            return "full"
        case _:
            return type(pattern).__name__.lower()


def _centres_in_words(centres: list[int]) -> str:
    """'centre node 0', 'centre nodes 0 to 3', or that there is none."""
    if not centres:
        return "no centre node"
    if len(centres) == 1:
        return f"centre node {centres[0]}"
    if centres[-1] - centres[0] == len(centres) - 1:
        return f"centre nodes {centres[0]} to {centres[-1]}"
    return "centre nodes " + ", ".join(map(str, centres))
