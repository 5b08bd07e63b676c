"""Are networks whose architecture was designed to be flat less biased after training? Two designs, two controls.

`posbias design` finds windows and decay rates under which a prediction, of mask and residual alone, is flat. Here
networks of two layers learn the retrieval task of Wu et al. 2025 under two of these designs and two controls: a
causal mask without an encoding, and with the decay that those authors use. What is compared is the gap between
the first item and the last, on the same classes, labels and initial weights. Three decay rates between the first
control and a design were added when the others were known: they show where trained networks turn.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from posbias.profiles.estimate import Estimate
from posbias_papers.extensions.cells import Cell, Result, Results, own_study, rounded
from posbias_papers.pages import Table

DEPTH, ITERATIONS, SEQUENCES, TOKENS, NETWORKS = 2, 2500, 2000, 17, 10


@dataclass(frozen=True)
class DesignedCell(Cell):
    """Networks under a window of `window` tokens (all 17: a causal mask) with a decay mask of this rate."""

    window: int
    decay: float

    kind = "designed_cell"

    def compute(self, on_event: Any = None, networks: int = NETWORKS) -> Result:
        """Train `networks` networks, test them, and predict the gap between the first item and the last."""
        from posbias.theory.masks import SlidingWindow
        from posbias.theory.positional import DecayBias
        from posbias.training import Experiment, Network, evaluate, train, trained_rollout

        network = Network(DEPTH, mask=SlidingWindow(self.window), positional=DecayBias(self.decay))
        experiment = Experiment(network=network, seeds=tuple(range(networks)), iterations=ITERATIONS)
        trained = train(experiment, threads=1)
        tested, rollout = evaluate(trained, SEQUENCES), trained_rollout(trained, SEQUENCES)
        gap = tested.gaps["first-last"]
        return {
            "predicted": float(rollout.gap("theory", gap.first, gap.second)[0]),
            "gaps": rounded(gap.over_informative.values, 5),
            "in_context": rounded(tested.in_context_accuracy.values, 5),
            "loss": rounded(tested.loss.values, 5),
            "own_kernels": rounded(rollout.gap("attention", gap.first, gap.second), 5),
        }


CAUSAL, DECAY = DesignedCell(TOKENS, 0.0), DesignedCell(TOKENS, 0.22314355131420976)
FLAT, NARROW = DesignedCell(TOKENS, 0.16), DesignedCell(13, 0.13)
BETWEEN = tuple(DesignedCell(TOKENS, decay) for decay in (0.04, 0.08, 0.12))
NAMES = {CAUSAL: "control", FLAT: "design", NARROW: "design", DECAY: "control"} | dict.fromkeys(BETWEEN, "")


def _tables(results: Results) -> Iterator[Table]:
    means = {"measured gap": "gaps", "gap of own kernels": "own_kernels", "in-context accuracy": "in_context"}
    rows = []
    for cell, result in sorted(results.items(), key=lambda pair: -pair[1]["predicted"]):
        row = {"window": cell.window, "decay": cell.decay, "kind": NAMES[cell]}
        row |= {"predicted gap": result["predicted"]}
        rows.append(row | {head: Estimate.of_mean(np.array(result[name])) for head, name in means.items()})
    yield Table.of("Gap between the first and the last item, largest prediction first", rows)


def _draw(results: Results) -> Any:
    from posbias.reports.plots import draw_study
    from posbias.reports.plots.style import level_line, new_figure

    lines = []
    groups = {"causal, decay 0 to .22": [CAUSAL, *BETWEEN, FLAT, DECAY], "window 13, decay .13": [NARROW]}
    for name, cells in groups.items():
        cells = sorted(cells, key=lambda cell: results[cell]["predicted"])
        gaps = [Estimate.of_mean(np.array(results[cell]["gaps"])) for cell in cells]
        reach = [gap.interval[1] - gap.value for gap in gaps]
        x, values = [results[cell]["predicted"] for cell in cells], [gap.value for gap in gaps]
        lines.append(SimpleNamespace(label=name, x=x, value=values, reach=reach))
    figure = new_figure(5.2, 3.2)
    ax = figure.subplots()
    draw_study(ax, lines, "predicted gap, first − last", "measured gap")
    level_line(ax, 0.0)
    return figure


STUDY = own_study("designed", NAMES, 9.0, _tables, _draw, "docs/design.md")
