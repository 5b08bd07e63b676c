"""Masks as pictures: admitted pairs, the directed graph, walks through layers (Wu et al. 2025, Figure 1)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool

from posbias.core.errors import InvalidValueError, whole
from posbias.reports.plots.style import ACCENT, INK, MUTED, PAPER, RULE, SMALL, THIN, dress, new_figure
from posbias.theory.architecture import Architecture
from posbias.theory.graph import Pattern, centre_nodes, graph, masks_of, walks
from posbias.theory.masks import LooksBack

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NODES = 32
"""More nodes than this cannot be distinguished."""
NAMED = 12
"""Up to this many nodes carry their position; beyond, every fourth is written below."""
ARCH = 0.32
"""Height of an arc, as a share of its span."""
RISE = 1.6
"""Distance of two layers, in distances of two tokens."""


def mask_figure(masks: Mapping[str, Pattern] | Sequence[Pattern], tokens: int, layers: int = 0) -> "Figure":
    """Masks side by side, each as a matrix with its graph below, the centre nodes in the accent colour.

    `masks` with their titles, or without (then named after their kind); each a mask, a pattern of masks or an
    architecture. With `layers` the walks through that many layers stand above. Raises `InvalidValueError` for no
    mask, layers < 0, more than `MOST_NODES` tokens, or as `posbias.theory.graph.graph` does. After Wu et al. 2025,
    Figure 1.
    """
    titled = list(masks.items()) if isinstance(masks, Mapping) else [(_title(one), one) for one in masks]
    if not titled:
        raise InvalidValueError("masks: none given, one or more needed")
    highest, lowest = zip(*(_extent(_edges(one, tokens)) for _, one in titled), strict=True)
    width = max(2.3, 0.15 * tokens)
    tall = width * (max(highest) - min(lowest)) / (tokens + 0.2)
    climb = width * (RISE * layers + 1.2) / (tokens + 0.2) if whole("layers", layers, 0) else 0.0
    heights = [*([climb] if layers else []), width - 0.4, tall]
    figure = new_figure(width * len(titled), sum(heights) + 0.75 + 0.25 * bool(layers))
    axes = figure.subplots(len(heights), len(titled), squeeze=False, height_ratios=heights)
    for column, (title, mask) in enumerate(titled):
        above, below = axes[-2:, column]
        if layers:
            draw_walks(axes[0, column], mask, tokens, layers)
            title = f"{title}\n{axes[0, column].get_title()}"
        draw_mask(above, mask, tokens)
        draw_graph(below, mask, tokens).set_ylim(min(lowest), max(highest))
        axes[0, column].set_title(title, fontsize=SMALL + 1, color=INK, pad=5)
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
    from matplotlib.patches import FancyArrowPatch

    edges = _edges(mask, tokens)
    centres, (high, low) = set(centre_nodes(mask, tokens).tolist()), _extent(edges)
    nodes = _draw_nodes(ax, 0, 0.31, tokens, centres, centres)
    shape = {"arrowstyle": "-|>,head_length=0.35,head_width=0.15", "mutation_scale": 7, "shrinkA": 0}
    shape |= {"connectionstyle": f"arc3,rad={-2 * ARCH}", "shrinkB": 0.5}
    for key, query in sorted(edges, key=lambda edge: edge[0] in centres):
        look = {"color": MUTED, "linewidth": THIN, "zorder": 1}
        if key in centres:
            look = {"color": ACCENT, "linewidth": THIN * 1.2, "zorder": 2}
        ends = {"patchA": nodes[key], "patchB": nodes[query]}
        ax.add_patch(FancyArrowPatch((key, 0), (query, 0), **shape, **ends, **look))
    for position in range(0, tokens, 4) if tokens > NAMED else ():
        ax.text(position, low, str(position), va="top", ha="center", fontsize=SMALL - 0.5, color=INK)
    ax.set(xlim=(-0.6, tokens - 0.4), ylim=(low, high), aspect="equal")
    ax.set_anchor("N")
    ax.axis("off")
    named = f"centre node{'s' * (len(centres) > 1)} {', '.join(map(str, sorted(centres)))}"
    title, colour = (named, ACCENT) if centres else ("no centre node", MUTED)
    ax.set_title(title, fontsize=SMALL, color=colour, pad=3)
    return ax


def draw_walks(ax: "Axes", mask: Pattern, tokens: int, layers: int) -> "Axes":
    """Draw `layers` copies of the graph above each other, bottom first, each token attending to itself too.

    In the accent colour is what lies on a walk from a centre node, below, to the last token, above; the title
    counts these walks. Raises `InvalidValueError` for layers < 1, more than `MOST_NODES` tokens, else as
    `posbias.theory.graph.walks` does. Source: Wu et al. 2025, §4.1.
    """
    whole("layers", layers, 1)
    _edges(mask, tokens)
    counted, centres = walks(mask, tokens, layers)[-1], centre_nodes(mask, tokens).tolist()
    masks = masks_of(mask, tokens)
    stack = [masks[layer % len(masks)].allowed(tokens) for layer in range(layers)]
    on_walk = _on_walks(stack, centres)
    touched = [set(np.flatnonzero(on_walk[0].any(axis=0)).tolist())]
    for layer, (allowed, taken) in enumerate(zip(stack, on_walk, strict=True)):
        for query, key in np.argwhere(allowed).tolist():
            look = {"color": RULE, "linewidth": THIN, "zorder": 1}
            if taken[query, key]:
                look = {"color": ACCENT, "linewidth": THIN * 1.6, "zorder": 2}
            ax.plot([key, query], [RISE * layer, RISE * (layer + 1)], **look)
        touched.append(set(np.flatnonzero(taken.any(axis=1)).tolist()))
    for layer, row in enumerate(touched):
        _draw_nodes(ax, RISE * layer, 0.24, tokens, set() if layer else set(centres), row, MUTED)
        said = "input" if layer == 0 else f"layer {layer - 1}"
        ax.text(-0.5, RISE * layer, said, ha="right", va="center", fontsize=SMALL - 1, color=MUTED)
    counts = ", ".join(f"{counted[centre]} from {centre}" for centre in centres)
    ax.set(xlim=(-1.6, tokens - 0.4), ylim=(-0.5, RISE * layers + 0.5), aspect="equal")
    ax.axis("off")
    ax.set_title(f"walks to {tokens - 1}: {counts or 'no centre node'}", fontsize=SMALL, color=INK, pad=3)
    return ax


def _draw_nodes(
    ax: "Axes", y: float, radius: float, tokens: int, filled: set[int], edged: set[int], edge: str = INK
) -> list[Any]:
    """A row of nodes, some filled or edged in the accent colour, each with its position where these are few."""
    from matplotlib.patches import Circle

    nodes = []
    for position in range(tokens):
        look = {"facecolor": ACCENT if position in filled else PAPER, "linewidth": THIN * 1.5, "zorder": 3}
        look["edgecolor"] = ACCENT if position in edged else edge
        nodes.append(ax.add_patch(Circle((position, y), radius, **look)))
        if tokens <= NAMED:
            words = {"ha": "center", "va": "center_baseline", "zorder": 4, "clip_on": True}
            colour, size = PAPER if position in filled else INK, SMALL + 4 * radius - 2
            ax.text(position, y, str(position), fontsize=size, color=colour, **words)
    return nodes


def _on_walks(
    stack: Sequence[Bool[np.ndarray, "query key"]], sources: Sequence[int]
) -> list[Bool[np.ndarray, "query key"]]:
    """Of each layer the pairs that lie on a walk from one of the sources to the last token."""
    from_below = [np.isin(np.arange(len(stack[0])), sources)]
    for allowed in stack:
        from_below.append(np.any(allowed & from_below[-1], axis=1, keepdims=True)[:, 0])
    to_above = [np.arange(len(stack[0])) == len(stack[0]) - 1]
    for allowed in reversed(stack):
        to_above.append(np.any(allowed & to_above[-1][:, None], axis=0, keepdims=True)[0])
    ends = reversed(to_above[:-1])
    return [
        allowed & below & above[:, None]
        for allowed, below, above in zip(stack, from_below[:-1], ends, strict=True)
    ]


def _edges(mask: Pattern, tokens: int) -> list[tuple[int, int]]:
    """The edges (key, query) without self-loops, if they can be drawn."""
    if isinstance(tokens, int) and tokens > MOST_NODES:
        raise InvalidValueError(
            f"tokens: {tokens} given, at most {MOST_NODES} can be distinguished in a graph"
        )
    keys, queries = graph(mask, tokens).nonzero()
    return [(key, query) for key, query in zip(keys.tolist(), queries.tolist(), strict=True) if key != query]


def _extent(edges: list[tuple[int, int]]) -> tuple[float, float]:
    """The top and bottom of a graph with these edges."""
    spans = [query - key for key, query in edges] + [0]
    return ARCH * max(spans) + 0.5, ARCH * min(spans) - 0.5


def _title(pattern: Pattern) -> str:
    """What a mask is called above its picture."""
    match pattern:
        case LooksBack():
            return pattern.title
        case Architecture(name=name):
            return name or "architecture"
        case Sequence():
            return "pattern of layers"
        case _:
            return type(pattern).__name__.lower()
