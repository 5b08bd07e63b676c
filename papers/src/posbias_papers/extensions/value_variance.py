"""Sinks and values: what is different about the first token in heads that attend to it? After Li et al. 2026.

Their abstract begins with the variance of aggregated values: the first token sees itself alone, later ones
average, so what attention writes varies most at the first token, and that is said to be where sinks start. Here
both are measured by head: the norm of the first value and the variance of what the head writes there, relative to
the median over later tokens (as logarithms), beside the attention that the first token draws.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.core.seeds import stream
from posbias.profiles.curves import spearman
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Above, Below, Evidence
from posbias.reports.pages import Table
from posbias_papers.claims import Quantity, quantity
from posbias_papers.extensions.cells import Found, OwnCell, claims_after, each, own_study
from posbias_papers.study import Results
from posbias_papers.wu2025.observed import MODELS

TOKENS, SHOWN, RESAMPLES = 128, 32, 1000
RATIOS = ("value_norm", "value_variance", "mixed_variance")


@dataclass(frozen=True)
class ValueCell(OwnCell):
    """A model, trained or with random weights (one network)."""

    model: str
    trained: bool

    kind = "value_cell"

    @property
    def where(self) -> str:
        """'tiny-rope, untrained'."""
        return self.model if self.trained else f"{self.model}, untrained"

    def run(self, effort: int) -> Found:
        """Measure so many prompts: means over them by layer and head, and the bottom layer by position."""
        from posbias_papers.measurement.untrained import folder_of, untrained_like
        from posbias_papers.measurement.values import values_by_head

        given: dict[str, Any] = {"tokens": TOKENS, "prompts": effort}
        if not self.trained:
            given["tokenizer"] = folder_of(self.model)
        data = values_by_head(self.model if self.trained else untrained_like(self.model, seed=0), **given)
        ratios = {
            name: np.log(data[name].values[..., 0] / np.median(data[name].values[..., 1:], axis=-1))
            for name in RATIOS
        }
        by_head = {name: data[name].values for name in ("sink_share", "sink_metric")} | ratios
        found: dict[str, Any] = {name: _short(held.mean(axis=0)) for name, held in by_head.items()}
        bottom = np.log(data["mixed_variance"].values[:, 0]).mean(axis=(0, 1))
        found["bottom"] = _short(bottom - bottom[1:].mean())[:SHOWN]
        found["bottom_gap"] = _short(ratios["mixed_variance"][:, 0].mean(axis=1))
        found["prompts"] = [
            spearman(share.ravel(), norm.ravel())
            for share, norm in zip(by_head["sink_share"], by_head["value_norm"], strict=True)
        ]
        return found


def _short(values: Any) -> list[Any]:
    return np.round(values, 4).tolist()


CELLS = tuple(ValueCell(model, trained) for model in MODELS for trained in (True, False))
TRAINED, UNTRAINED = CELLS[::2], CELLS[1::2]


def by_rank(found: Found, other: str) -> Estimate:
    """Spearman of the sink share and a ratio over heads, with the error of a bootstrap over layers.

    Heads of a layer share what enters it, and groups of them their values: layers are taken for independent.
    """
    share, ratio = np.array(found["sink_share"]), np.array(found[other])
    layers, draw = len(share), stream(0, "value_variance.bootstrap")
    drawn = [
        spearman(share[rows].ravel(), ratio[rows].ravel())
        for rows in draw.integers(layers, size=(RESAMPLES, layers))
    ]
    se = float(np.std(drawn, ddof=1) * np.sqrt(layers / (layers - 1)))
    return Estimate(float(spearman(share.ravel(), ratio.ravel())), se, layers)


@quantity
def _ranks(results: Results, cells: Sequence[ValueCell], other: str) -> Iterator[Evidence]:
    for cell in cells:
        if cell in results:
            yield Evidence(cell.where, by_rank(results[cell], other))


def _gap(trained: bool) -> Quantity:
    return each(CELLS, lambda found: found["bottom_gap"], lambda cell, found: cell.trained == trained)


CLAIMS = claims_after(
    "value_variance",
    "2605.06611",
    "SmolLM2-135M-Instruct (30 layers of 9 heads) and five small decoders of ours (6 of 8)",
    f"8 prompts of {TOKENS} tokens; intervals of rank correlations over layers, of gaps over prompts",
    {
        1: (
            "In SmolLM2, which has sinks, heads that attend more to the first token give it a shorter value",
            _ranks(TRAINED[:1], "value_norm"),
            Below(),
        ),
        2: ("So do heads of the small decoders, which have none", _ranks(TRAINED[1:], "value_norm"), Below()),
        3: (
            "In the bottom layer what attention writes varies more at the first token than later",
            _gap(True),
            Above(),
        ),
        4: ("So it does before training", _gap(False), Above()),
        5: (
            "In SmolLM2 heads that write a larger variance at the first token attend more to it",
            _ranks(TRAINED[:1], "mixed_variance"),
            Above(),
        ),
    },
)


def _tables(results: Results) -> Iterator[Table]:
    head = ("model", "sink share, mean over heads", "greatest", "bottom layer: ln variance, first / later")
    head += tuple(f"rank correlation of the share with {name.replace('_', ' ')}" for name in RATIOS)
    head += ("with value norm, over prompts",)
    rows = []
    for cell in CELLS:
        found = results[cell]
        share = np.array(found["sink_share"])
        numbers = [
            f"{share.mean():.3f}",
            f"{share.max():.3f}",
            str(Estimate.of_mean(np.array(found["bottom_gap"]))),
        ]
        ranks = [*(by_rank(found, name) for name in RATIOS), Estimate.of_mean(np.array(found["prompts"]))]
        rows.append([cell.where, *numbers, *map(str, ranks)])
    yield Table("Sinks and values", head, rows)
    found, layers = results[CELLS[0]], np.arange(len(results[CELLS[0]]["sink_share"]))
    columns = ("sink_share", *RATIOS)
    rows = [[str(layer), *(f"{np.mean(found[name][layer]):.2f}" for name in columns)] for layer in layers]
    yield Table(
        f"{MODELS[0]} by layer: sink share, and ln of the first token's relative to later ones (means over heads)",
        ("layer", *(name.replace("_", " ") for name in columns)),
        rows,
    )


def _draw(results: Results) -> Any:
    from posbias.reports.plots.style import LEGEND, LINE, dress, new_figure, series

    figure = new_figure(7.4, 2.9)
    left, right = figure.subplots(1, 2)
    dress(left, "position (from 1)", "ln variance of what heads write, bottom layer")
    dress(right, "attention on the first token", "ln norm of its value, relative")
    for place, cell in enumerate(TRAINED):
        found, look = results[cell], series(place)
        left.plot(
            np.arange(1, SHOWN + 1), found["bottom"], linewidth=LINE, markersize=2.5, label=cell.where, **look
        )
        heads = (np.ravel(found["sink_share"]), np.ravel(found["value_norm"]))
        right.plot(*heads, markersize=3, **look | {"linestyle": "none"})
    left.set_xscale("log", base=2)
    left.legend(**LEGEND)
    return figure


STUDY = own_study(
    "value_variance",
    "sinks and values",
    "Do heads with a sink have another value at the first token, and does its variance stand out from the start?",
    CELLS,
    "2605.06611",
    claims=CLAIMS,
    effort={"quick": 8, "full": 32},
    unit="prompts",
    minutes={"quick": 0.5, "full": 2.0},
    tables=_tables,
    draw=_draw,
    needs="torch",
    uses=(("li2026", "the question, as the abstract tells it"), ("gu2025", "the metric of attention sinks")),
)
