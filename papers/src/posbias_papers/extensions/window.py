"""Is there a U only while the text is short beside the context window? After Veseli et al. 2025.

Their abstract: the middle is lost most while inputs fill up to half of the window; beyond that the first end's
advantage weakens, the last end's stays. They asked models for facts. Here it is the gradient influence on the last
token, as the mean of an end (5 % of the positions) relative to that of the middle fifth. The window is the number
of positions in the configuration; of the large model's a small part was in reach.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Above, Below, Evidence, difference, mean
from posbias.reports.pages import Table
from posbias_papers.claims import quantity
from posbias_papers.extensions.cells import Found, OwnCell, claims_after, own_study, rounded
from posbias_papers.study import Results
from posbias_papers.wu2025.observed import MODELS

LARGE = MODELS[0]
WINDOWS = {model: 8192 if model == LARGE else 256 for model in MODELS}
LENGTHS = {model: (128, 256, 512) if model == LARGE else (32, 64, 128, 192, 256) for model in MODELS}
ENDS, MIDDLE = 0.05, (0.4, 0.6)


@dataclass(frozen=True)
class InfluenceCell(OwnCell):
    """The influence on the last of so many tokens."""

    model: str
    tokens: int

    kind = "window_influence_cell"

    def run(self, effort: int) -> Found:
        """Measure so many prompts: each end relative to the middle."""
        from posbias_papers.measurement.query_influence import query_influence

        rows = query_influence(self.model, tokens=self.tokens, prompts=effort)["influence"].values[:, 0]
        return {name: rounded(ratios) for name, ratios in ends(rows).items()}


def ends(rows: Float[np.ndarray, "prompt position"]) -> dict[str, np.ndarray]:
    """ln of the mean influence of the first, and of the last 5 %, less that of the middle fifth, by prompt."""
    tokens = rows.shape[1]
    count = max(1, round(ENDS * tokens))
    middle = rows[:, round(MIDDLE[0] * tokens) : round(MIDDLE[1] * tokens)].mean(axis=1)
    parts = {"first": rows[:, :count], "last": rows[:, -count:]}
    return {name: np.log(part.mean(axis=1) / middle) for name, part in parts.items()}


CELLS = tuple(InfluenceCell(model, tokens) for model in MODELS for tokens in LENGTHS[model])


def share(cell: InfluenceCell) -> float:
    """How much of the window it fills."""
    return cell.tokens / WINDOWS[cell.model]


@quantity
def _end(results: Results, name: str, low: float, high: float) -> Iterator[Evidence]:
    """An end above the middle, in nats, of models whose text fills more than `low` and up to `high`."""
    for cell in CELLS:
        if low < share(cell) <= high and cell in results:
            yield mean(cell.where, np.array(results[cell][name]), draws="prompts")


@quantity
def _weaker(results: Results) -> Iterator[Evidence]:
    """By how much the first end is above the middle at the whole window, less the same at half of it."""
    for model in MODELS[1:]:
        half, whole = (InfluenceCell(model, WINDOWS[model] // parts) for parts in (2, 1))
        if half in results and whole in results:
            found = (np.array(results[cell]["first"]) for cell in (whole, half))
            yield difference(f"{model}, {whole.tokens} less {half.tokens}", *found, draws="prompts")


CLAIMS = claims_after(
    "window",
    "2508.07479",
    "SmolLM2-135M-Instruct on 128 to 512 tokens of its 8,192, five small decoders of ours on 32 to all of 256",
    "16 prompts of each length, 8 with SmolLM2",
    {
        1: (
            "Up to half of the window the first end has more influence than the middle",
            _end("first", 0.0, 0.5),
            Above(),
        ),
        2: ("Beyond half of it, it has not", _end("first", 0.5, 1.0), Below(0.0, 0.0)),
        3: ("At the whole window its advantage is smaller than at half of it", _weaker(), Below()),
        4: ("The last end has more than the middle at every length", _end("last", 0.0, 1.0), Above()),
    },
)


def _told(found: Found, name: str) -> str:
    return str(Estimate.of_mean(np.array(found[name])))


def _tables(results: Results) -> Iterator[Table]:
    head = ("model", "tokens", "of the window", "prompts", "first − middle", "last − middle")
    rows = [
        [
            cell.model,
            f"{cell.tokens:,}",
            f"{share(cell):.1%}",
            str(len(results[cell]["first"])),
            *(_told(results[cell], name) for name in ("first", "last")),
        ]
        for cell in CELLS
    ]
    yield Table("Influence: ln of each end's mean (5 %) less that of the middle fifth", head, rows)


def _draw(results: Results) -> Any:
    from posbias.reports.plots.studies import draw_study
    from posbias.reports.plots.style import level_line, new_figure

    figure = new_figure(8.0, 3.2)
    groups = {model: [cell for cell in CELLS if cell.model == model] for model in MODELS}
    for ax, name in zip(figure.subplots(1, 2), ("first", "last"), strict=True):
        lines = []
        for label, cells in groups.items():
            found = [Estimate.of_mean(np.array(results[cell][name])) for cell in cells]
            values = [one.value for one in found]
            reach = [one.interval[1] - one.value for one in found]
            lines.append(SimpleNamespace(label=label, x=[*map(share, cells)], value=values, reach=reach))
        draw_study(ax, lines, "share of the window", f"{name} − middle (nats)")
        marks = [2**power for power in range(6, -1, -1)]
        ax.set_xticks([1 / mark for mark in marks], [f"1/{mark}" if mark > 1 else "1" for mark in marks])
        level_line(ax, 0.0)
    return figure


STUDY = own_study(
    "window",
    "a U only below half of the window?",
    "Are both ends favoured while a text fills less than half of the context window, and not beyond?",
    CELLS,
    "2508.07479",
    claims=CLAIMS,
    effort={"quick": 8, "full": 32},
    unit="prompts",
    minutes={"quick": 3.0, "full": 12.0},
    tables=_tables,
    draw=_draw,
    needs="torch",
    uses=(("veseli2025", "the question, as the abstract tells it"),),
)
