"""What was measured layer by layer: mixing, attention kernels, the first token's attention and norm."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.estimate import Estimate
from posbias.plots.style import ACCENT, INK, LINE, MUTED, SECOND, SMALL, TEXT, THIN, dress, key

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

LAYER = "layer (0 = bottom)"


def draw_mixing(ax: "Axes", measurement: "xr.Dataset") -> "Axes":
    """Draw the weight of attention λ by layer, by both definitions: mean over prompts, 95 % interval.

    Frobenius norms over the sequence (Herasimchyk et al. 2026, Eq. 1), and the mean over tokens of each
    one's own ratio.
    """
    dress(ax, LAYER, "weight of attention λ")
    variants = (
        ("mixing", "λ of the layer: norms over the whole sequence", ACCENT, "o"),
        ("mixing_token", "mean over tokens of each one's own ratio", SECOND, "s"),
    )
    for name, label, colour, marker in variants:
        values = measurement[name].values
        layer = np.arange(values.shape[1])
        low, high = zip(*(Estimate.of(column).interval for column in values.T), strict=True)
        ax.fill_between(layer, low, high, color=colour, alpha=0.25, linewidth=0)
        ax.plot(
            layer,
            values.mean(axis=0),
            marker,
            linestyle="-",
            color=colour,
            markersize=3,
            linewidth=LINE,
            label=label,
        )
    ax.set_ylim(bottom=0)
    _layers(ax, measurement.sizes["layer"])
    key(ax)
    return ax


def draw_sinks(ax: "Axes", measurement: "xr.Dataset") -> "Axes":
    """Draw the attention that token 0 receives by layer: every head, their mean, and what even attention gives.

    Even attention gives token 0 the mean of 1/(i + 1) over queries i ≥ 1.
    """
    dress(ax, LAYER, "attention on token 0")
    shares = measurement["sink_share"].values
    layer = np.arange(len(shares))
    ax.plot(
        np.repeat(layer, shares.shape[1]),
        shares.reshape(-1),
        ".",
        color=MUTED,
        alpha=0.6,
        markersize=4,
        label="one head",
    )
    ax.plot(layer, shares.mean(axis=1), color=ACCENT, linewidth=LINE, label="mean")
    even = float(np.mean(1.0 / np.arange(2, measurement.sizes["position"] + 1)))
    ax.axhline(
        even, color=INK, linewidth=THIN * 1.5, linestyle=(0, (4, 2)), label=f"even attention ({even:.2g})"
    )
    ax.set_ylim(-0.02, 1.0)
    _layers(ax, len(shares))
    key(ax)
    return ax


def draw_norms(ax: "Axes", measurement: "xr.Dataset") -> "Axes":
    """Draw the norm of the residual stream entering each layer: token 0, and median and range of the others."""
    dress(ax, LAYER, "norm of the residual stream")
    norms = measurement["residual_norm"].values
    layer, others = np.arange(len(norms)), norms[:, 1:]
    ax.fill_between(
        layer,
        others.min(axis=1),
        others.max(axis=1),
        color=MUTED,
        alpha=0.3,
        linewidth=0,
        label="others: range",
    )
    ax.plot(layer, np.median(others, axis=1), color=INK, linewidth=LINE, label="median")
    ax.plot(layer, norms[:, 0], "o-", color=SECOND, markersize=3, linewidth=LINE, label="token 0")
    ax.set_yscale("log")
    _layers(ax, len(norms))
    key(ax)
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
        dress(ax, "key (attended)", "query (attending)")
        ax.grid(False)
        ax.spines[:].set_visible(False)
        kernel = _past(measurement["kernel"].values[layer])
        look = {"norm": LogNorm(1e-4, 1.0, clip=True), "cmap": "viridis", "interpolation": "nearest"}
        image = ax.imshow(kernel, **look)
        bottom = tokens - 0.5
        ax.imshow(
            kernel[:, :1], extent=(-0.08 * tokens, -0.04 * tokens, bottom, -0.5), aspect="equal", **look
        )
        ax.set(xlim=(-0.09 * tokens, bottom), ylim=(bottom, -0.5))
        ax.text(
            0.96,
            0.95,
            f"layer {layer}",
            transform=ax.transAxes,
            ha="right",
            va="top",
            fontsize=TEXT,
            color=INK,
        )
        ticks = [0, tokens // 2, tokens - 1]
        ax.set_xticks(ticks)
        ax.set_yticks(ticks)
        ax.label_outer()
    if image is not None:
        bar = axes[0].figure.colorbar(image, ax=list(axes), shrink=0.85, pad=0.02, aspect=30)
        bar.set_label("attention", fontsize=TEXT, color=INK)
        bar.ax.tick_params(which="both", labelsize=SMALL, color=MUTED, labelcolor=INK, width=THIN, length=2.5)
        bar.outline.set_visible(False)
    return axes


def _past(kernel: Float[np.ndarray, "query key"]) -> Float[np.ndarray, "query key"]:
    """The kernel with NaN in the future."""
    return np.where(np.tri(len(kernel), dtype=bool), kernel, np.nan)


def _layers(ax: "Axes", depth: int) -> None:
    """Whole numbers on the axis of layers."""
    from matplotlib.ticker import MaxNLocator

    ax.set_xlim(-0.5, depth - 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
