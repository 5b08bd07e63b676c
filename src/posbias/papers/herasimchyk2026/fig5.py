"""Figure 5: mean content logits, head by head, and the constant and diagonal fitted to them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.claims import Claim, Evidence, Near, mean
from posbias.estimate import Estimate
from posbias.papers.herasimchyk2026.measurements import Measurements, study_of
from posbias.plots.captions import captioned_figure, settle
from posbias.plots.content import ContentMap, content_size, draw_content_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posbias.papers.herasimchyk2026.homogeneity import Fit

PANELS = 4
"""Heads of a model: those at even steps of R², from the worst to the best."""


def _explained(results: Measurements) -> Iterable[Evidence]:
    return [_above_half(model, fit) for model, fit in results.fits.items()]


def _above_half(model: str, fit: "Fit") -> Evidence:
    """That R² is above one half; undecided where noise may be what is not explained."""
    r2, most = (values[np.isfinite(values)] for values in (fit.r2, fit.most))
    evidence = mean(model, r2 - 0.5)
    if evidence.tested(CLAIMS[0].test).verdict() == "fails" and most.mean() > 0.5:
        return Evidence(model, flaw=f"R² {r2.mean():.2f} as it is, up to {most.mean():.2f} without noise")
    return evidence


def _rarer_sign(results: Measurements) -> Iterable[Evidence]:
    for model, fit in results.fits.items():
        positive = float((fit.offset > 0).mean())
        yield Evidence(model, Estimate(min(positive, 1.0 - positive)))


CLAIMS = (
    Claim(
        "herasimchyk2026/fig5/1",
        "Appendix D",
        "A constant with an offset on the diagonal explains most of the variance of mean content (R² − ½)",
        _explained,
    ),
    Claim(
        "herasimchyk2026/fig5/2",
        "Section 6.1",
        "The diagonal shifts all heads the same way (share of heads with the rarer sign of δ)",
        _rarer_sign,
        Near(),
    ),
)


def _data(results: Measurements) -> dict[str, Any]:
    fits = results.fits.items()
    return {
        "models": [
            {"model": model, "offset": fit.offset, "r2": fit.r2, "most": fit.most} for model, fit in fits
        ]
    }


def draw(results: Measurements, caption: list[tuple[str, str]]) -> "Figure":
    """A row per model, heads from the worst to the best described by constant and diagonal."""
    rows = [
        (model, chosen_heads(content, results.fits[model].r2)) for model, content in results.contents.items()
    ]
    figure, part = captioned_figure(*content_size(rows), caption)
    draw_content_rows(part, rows)
    return settle(figure)


def chosen_heads(
    content: Float[np.ndarray, "layer head query key"], r2: Float[np.ndarray, "layer head"]
) -> list[ContentMap]:
    """`PANELS` heads at even steps of R² (fewer where there are fewer heads), each with a title that says it."""
    order = np.argsort(np.nan_to_num(r2, nan=-1.0), axis=None, kind="stable")
    steps = dict.fromkeys(np.linspace(0, order.size - 1, PANELS).round().astype(int).tolist())
    places = [np.unravel_index(order[step], r2.shape) for step in steps]
    return [
        ContentMap(f"layer {layer}, head {head}, R² = {r2[layer, head]:.2f}", content[layer, head])
        for layer, head in places
    ]


STUDY = study_of(
    "fig5",
    "Mean content logits, head by head",
    "Do heads shift the diagonal all the same way, and is the rest constant?",
    CLAIMS,
    lambda results: (),
    _data,
    lambda results: (
        f"{results.note} Mean content logits in softmax units; colours end at the 1 and 99 % percentiles."
    ),
    draw=draw,
    missing=lambda results: "" if results.contents else "no measurement with mean content matrices",
)
