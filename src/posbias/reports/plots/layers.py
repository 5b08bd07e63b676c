"""Layer by layer: an architecture, and what was measured: λ, kernels, the first token's attention and norm."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posbias.profiles.estimate import Estimate
from posbias.reports.plots import style
from posbias.reports.plots.variation import draw_map
from posbias.theory.architecture import Architecture

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYER = "layer (0 = bottom)"


def draw_mixing(ax: "Axes", measurement: "xr.Dataset") -> "Axes":
    """Draw the weight of attention λ by layer, by both definitions: mean over prompts, 95 % interval.

    Frobenius norms over the sequence (Herasimchyk et al. 2026, Eq. 1), and the mean over tokens of each
    one's own ratio.
    """
    _dress(ax, "weight of attention λ", measurement)
    variants = (
        ("mixing", "λ of the layer: norms over the whole sequence", style.ACCENT, "o"),
        ("mixing_token", "mean over tokens of each one's own ratio", style.SECOND, "s"),
    )
    for name, label, colour, marker in variants:
        by_layer = [Estimate.of_mean(column) for column in measurement[name].values.T]
        look = {"label": label, "color": colour, "fmt": f"{marker}-"}
        style.draw_estimates(ax, np.arange(len(by_layer)), by_layer, **look)
    ax.set_ylim(bottom=0)
    style.key(ax)
    return ax


def draw_sinks(ax: "Axes", measurement: "xr.Dataset") -> "Axes":
    """Draw the attention that token 0 receives by layer: every head, their mean, and what even attention gives.

    Even attention gives token 0 the mean of 1/(i + 1) over queries i ≥ 1.
    """
    _dress(ax, "attention on token 0", measurement)
    shares = measurement["sink_share"].values
    layer = np.arange(len(shares))
    look = {"color": style.MUTED, "alpha": 0.6, "markersize": 4, "label": "one head"}
    ax.plot(np.repeat(layer, shares.shape[1]), shares.reshape(-1), ".", **look)
    ax.plot(layer, shares.mean(axis=1), color=style.ACCENT, linewidth=style.LINE, label="mean")
    even = float(np.mean(1.0 / np.arange(2, measurement.sizes["position"] + 1)))
    look = {"color": style.INK, "linewidth": style.THIN * 1.5, "linestyle": (0, (4, 2))}
    ax.axhline(even, label=f"even attention ({even:.2g})", **look)
    ax.set_ylim(-0.02, 1.0)
    style.key(ax)
    return ax


def draw_norms(ax: "Axes", measurement: "xr.Dataset") -> "Axes":
    """Draw the norm of the residual stream entering each layer: token 0, and median and range of the others."""
    _dress(ax, "norm of the residual stream", measurement)
    norms = measurement["residual_norm"].values
    layer, others = np.arange(len(norms)), norms[:, 1:]
    look = {"color": style.MUTED, "alpha": 0.3, "linewidth": 0, "label": "others: range"}
    ax.fill_between(layer, others.min(axis=1), others.max(axis=1), **look)
    ax.plot(layer, np.median(others, axis=1), color=style.INK, linewidth=style.LINE, label="median")
    ax.plot(layer, norms[:, 0], "o-", color=style.SECOND, markersize=3, linewidth=style.LINE, label="token 0")
    ax.set_yscale("log")
    style.key(ax)
    return ax


def draw_kernels(
    axes: Sequence["Axes"], measurement: "xr.Dataset", layers: Sequence[int] | None = None
) -> Sequence["Axes"]:
    """Draw attention averaged over prompts and heads as heat maps, one layer on each axes, one colour scale.

    `layers` are as many as axes; without them they are spread evenly from bottom to top. The scale is
    logarithmic from 10⁻⁴; the future, which a causal model never sees, is left blank. A strip at the left
    repeats the first column, which is often the brightest and too thin to see.
    """
    from matplotlib.colors import LogNorm

    depth, tokens = measurement.sizes["layer"], measurement.sizes["query"]
    chosen = np.linspace(0, depth - 1, len(axes)).round().astype(int) if layers is None else layers
    image = None
    for ax, layer in zip(axes, chosen, strict=True):
        style.dress(ax, "key (attended)", "query (attending)")
        past, scale, bottom = np.tri(tokens, dtype=bool), LogNorm(1e-4, 1.0, clip=True), tokens - 0.5
        kernel = np.where(past, measurement["kernel"].values[layer], np.nan)
        image = style.draw_matrix(ax, kernel, norm=scale)
        first = {"extent": (-0.08 * tokens, -0.04 * tokens, bottom, -0.5), "aspect": "equal"}
        ax.imshow(kernel[:, :1], cmap="viridis", interpolation="nearest", norm=scale, **first)
        ax.set(xlim=(-0.09 * tokens, bottom), ylim=(bottom, -0.5))
        look = {"ha": "right", "va": "top", "fontsize": style.TEXT, "color": style.INK}
        ax.text(0.96, 0.95, f"layer {layer}", transform=ax.transAxes, **look)
        ax.label_outer()
    if image is not None:
        style.colour_bar(axes[-1], image).set_label("attention", fontsize=style.SMALL, color=style.INK)
    return axes


def heads_figure(maps: "Mapping[str, np.ndarray]") -> "Figure":
    """Maps of numbers by layer, upwards, and head, each under its name and on a scale of its own."""
    figure, panels = style.new_panels(len(maps), 3, 3.0, 3.0)
    for ax, (name, held) in zip(panels, maps.items(), strict=True):
        layers, heads = map(range, held.shape)
        draw_map(ax, held, (("layer", layers), ("head", heads)), name)
    return figure


def _dress(ax: "Axes", vertical: str, measurement: "xr.Dataset") -> None:
    """Axes over the layers of a measurement, with whole numbers."""
    style.dress(ax, LAYER, vertical)
    ax.set_xlim(-0.5, measurement.sizes["layer"] - 0.5)
    style.whole_numbers(ax.xaxis)


def draw_architecture(ax: "Axes", architecture: Architecture) -> "Axes":
    """Draw λ by layer; layers of unlike mask or encoding differ in colour and marker.

    The legend names architecture, mask, encoding and heads; another on the same axes has other colours. Without a
    mixing of its own λ is the assumed schedule's.
    """
    style.dress(ax, LAYER, "weight of attention λ")
    kinds: dict[str, list[int]] = {}
    for depth, layer in enumerate(architecture.stack):
        parts = ", ".join(map(_kind, (layer.mask, layer.positional)))
        kinds.setdefault(f"{architecture.name}: {parts}, {layer.heads} heads", []).append(depth)
    mixing = architecture.coefficients
    ax.plot(mixing, color=style.RULE, linewidth=style.THIN, zorder=1)
    lines = {name: (at, mixing[at]) for name, at in kinds.items()}
    style.draw_lines(ax, lines, linestyle="", markersize=3.5)
    ax.set_ylim(0, 1.05 * max(ax.dataLim.y1, 0.01))
    style.whole_numbers(ax.xaxis)
    style.key(ax, 1 if len(kinds) < 4 else 2)
    return ax


def _kind(part: object) -> str:
    """A mask or an encoding by its kind, with its width where it has one."""
    width = getattr(part, "width", None)
    return type(part).__name__ + (f" of {width:,}" if isinstance(width, int) else "")
