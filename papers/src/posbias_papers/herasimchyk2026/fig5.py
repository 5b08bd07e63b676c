"""Figure 5: mean content logits, head by head, and the constant and diagonal fitted to them.

Drawn are the paper's four models, from top to bottom, and models that are none of the paper's; its fifth, which
the paper leaves out, where there are no others. Claims are about all of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Evidence, Near, mean
from posbias_papers.herasimchyk2026.measurements import Measurements, once, study_of
from posbias_papers.herasimchyk2026.printed import FIG5
from posbias_papers.herasimchyk2026.standing import EFFORT, OURS, SCOPE, model_of
from posbias_papers.plots.captions import captioned_figure, settle
from posbias_papers.plots.content import ContentMap, ContentRow, content_size, draw_content_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = 4
"""Heads of a model: those at even steps of R², from the worst to the best."""


@dataclass(frozen=True)
class Fit:
    """Constant and diagonal fitted to each head's mean content: the `offset` δ, and the share `r2` explained.

    The mean over some prompts has noise, which no fit explains; `most` is the share without as much variance as
    noise may have, so that the share of the true means lies between the two.
    """

    offset: Float[np.ndarray, "layer head"]
    r2: Float[np.ndarray, "layer head"]
    most: Float[np.ndarray, "layer head"]


def fit(
    content: Float[np.ndarray, "layer head query key"], noise: Float[np.ndarray, "layer head"] | None = None
) -> Fit:
    """The least-squares fit of Proposition 4.5's u + δ·1[i = j] to mean content matrices, keys from 1 on.

    `noise` is the variance of an entry's mean over prompts, at most that of single logits over their number.
    """
    from posbias_papers.measurement.similarity import constant_diagonal

    fits = [constant_diagonal(layer) for layer in content]
    offset, r2 = np.stack([one.offset for one in fits]), np.stack([one.r2 for one in fits])
    total = np.nanvar(content[..., 1:, 1:], axis=(2, 3))
    left = np.maximum((1.0 - r2) * total - (0.0 if noise is None else noise), 0.0)
    with np.errstate(invalid="ignore"):
        return Fit(offset, r2, r2 * total / (r2 * total + left))


@once
def fits(results: Measurements) -> dict[str, Fit]:
    """Constant and diagonal fitted to the mean content logits of each model."""
    cells, found = {key.model: results.cells[key] for key in results.leading}, {}
    for model, content in results.contents.items():
        variance, prompts = cells[model].get("content_variance"), cells[model].sizes["prompt"]
        found[model] = fit(content, None if variance is None else variance.values / prompts)
    return found


def _explained(results: Measurements) -> Iterable[Evidence]:
    return [_above_half(model, fit) for model, fit in fits(results).items()]


def _above_half(model: str, fit: Fit) -> Evidence:
    """That R² is above one half; undecided where noise may be what is not explained."""
    r2, most = (values[np.isfinite(values)] for values in (fit.r2, fit.most))
    evidence = mean(model, r2 - 0.5)
    if evidence.tested(CLAIMS[0].test).verdict() == "fails" and most.mean() > 0.5:
        return Evidence(model, flaw=f"R² {r2.mean():.2f} as it is, up to {most.mean():.2f} without noise")
    return evidence


def _rarer_sign(results: Measurements) -> Iterable[Evidence]:
    for model, fit in fits(results).items():
        positive = float((fit.offset > 0).mean())
        yield Evidence(model, Estimate(min(positive, 1.0 - positive)))


CLAIMS = (
    Claim(
        "herasimchyk2026/fig5/1",
        "Section 6.1, Appendix D",
        "On average, mean content is well approximated by a constant with an offset on the diagonal (R² − ½)",
        _explained,
        scope=f"{SCOPE}, FineWeb-Edu; R², and one half of it, are our measure of it",
        effort=EFFORT,
    ),
    Claim(
        "herasimchyk2026/fig5/2",
        "Proposition 4.5",
        "The diagonal shifts all heads the same way (share of heads with the rarer sign of δ)",
        _rarer_sign,
        Near(),
        **OURS,
    ),
)


def _data(results: Measurements) -> dict[str, Any]:
    return {
        "models": [
            {"model": model, "offset": one.offset, "r2": one.r2, "most": one.most}
            for model, one in fits(results).items()
        ]
    }


def draw(results: Measurements, caption: str) -> "Figure":
    """A row per model, heads from the worst to the best described by constant and diagonal, or those chosen."""
    drawn = rows(results)
    figure, part = captioned_figure(*content_size(drawn), caption)
    draw_content_rows(part, drawn)
    return settle(figure)


def rows(results: Measurements) -> list[ContentRow]:
    """The models that are drawn, with their heads; without those that have none of the layers and heads chosen."""
    named = [(model_of(model), model) for model in results.contents]
    order = [model for paper in FIG5 for called, model in named if called == paper]
    order += [model for called, model in named if called is None]
    chosen = {
        model: chosen_heads(results.contents[model], fits(results)[model].r2, results.layers, results.heads)
        for model in order or results.contents
    }
    return [(model, maps) for model, maps in chosen.items() if maps]


def chosen_heads(
    content: Float[np.ndarray, "layer head query key"],
    r2: Float[np.ndarray, "layer head"],
    layers: Sequence[int] = (),
    heads: Sequence[int] = (),
) -> list[ContentMap]:
    """`PANELS` heads at even steps of R² (fewer where there are fewer heads), each with a title that says it.

    Among `layers` and `heads` (none: all) that the model has; where both are given, each of them in their order.
    """
    among = [
        (layer, head)
        for layer in (layers or range(r2.shape[0]))
        for head in (heads or range(r2.shape[1]))
        if layer < r2.shape[0] and head < r2.shape[1]
    ]
    if not (layers and heads):
        order = np.argsort([np.nan_to_num(r2[place], nan=-1.0) for place in among], kind="stable")
        steps = dict.fromkeys(np.linspace(0, len(among) - 1, PANELS).round().astype(int).tolist())
        among = [among[order[step]] for step in steps] if among else []
    return [
        ContentMap(f"layer {layer}, head {head}, R² = {r2[layer, head]:.2f}", content[layer, head])
        for layer, head in among
    ]


def _missing(results: Measurements) -> str:
    if not results.contents:
        return "no measurement with mean content matrices"
    return "" if rows(results) else "no model has the layers and heads that were chosen"


def _note(results: Measurements) -> str:
    note = f"{results.note} Mean content logits in softmax units; colours end at the 1 and 99 % percentiles."
    undrawn = [model for model in results.contents if model not in dict(rows(results))]
    return note + (f" Not drawn: {', '.join(undrawn)}." if undrawn else "")


STUDY = study_of(
    "fig5",
    "Mean content logits, head by head",
    "Do heads shift the diagonal all the same way, and is the rest constant?",
    CLAIMS,
    lambda results: (),
    _data,
    _note,
    draw=draw,
    missing=_missing,
)
