"""Measured curves by parts (`parts`): those of the runs of `posbias_papers.extensions.predictors`."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from posbias.comparison.parts import ENDS, LABELS, STRETCHES, shares
from posbias.profiles.curves import wasserstein
from posbias.reports.pages import Table
from posbias_papers.extensions.predictors import cells
from posbias_papers.study import Study


def chains() -> dict[str, Mapping[str, np.ndarray]]:
    """The profiles of each model, from an even spread to the measured one."""
    found = {one["model"]: one["parts"] for one in cells() if "parts" in one}
    return {model: {name: np.array(row) for name, row in parts.items()} for model, parts in found.items()}


def _tables(results: Any) -> Iterator[Table]:
    for stretch in STRETCHES:
        rows = []
        for model, chain in chains().items():
            row = shares(chain)[stretch]
            steps = [*np.diff(row), row[-1] - row[0]]
            told = [f"{step:+.3f}".replace("-", "−") for step in steps]
            rows.append([model, f"{row[0]:.3f}", *told, f"{row[-1]:.3f}"])
        yield Table(
            f"What each adds to the share of influence of: {stretch}",
            ("model", "even spread", *LABELS.values(), "sum of the steps", "measured"),
            rows,
        )
    far = []
    for model, chain in chains().items():
        known = [*chain.values()][:-1]
        far.append([model, *(f"{wasserstein(one, chain['measured']):.3f}" for one in known)])
    yield Table(
        "How far from the measured profile with so much known (Wasserstein)",
        ("model", "even spread", *[*LABELS.values()][:-1]),
        far,
    )


def _draw(results: Any) -> Any:
    from posbias.reports.plots.parts import draw_parts
    from posbias.reports.plots.style import LEGEND, direct_label, new_figure

    known = chains()
    columns = min(3, len(known))
    rows = -(-len(known) // columns)
    figure = new_figure(3.0 * columns, 2.3 * rows + 0.5)
    axes = np.ravel(figure.subplots(rows, columns, sharey=True, squeeze=False))
    for ax, (model, chain) in zip(axes, known.items(), strict=False):
        draw_parts(ax, shares(chain), [*LABELS.values()], (ENDS, 1.0 - 2.0 * ENDS, ENDS))
        direct_label(ax, model, "black")
    for ax in axes[len(known) :]:
        ax.set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, **LEGEND)
    return figure


STUDY = Study(
    "ours/parts",
    "measured curves by parts",
    "How much of a measured curve do mask, residual connections, encoding, content and norms make?",
    (),
    (),
    {"quick": 2, "full": 2},
    "runs",
    {"quick": 0.05, "full": 0.05},
    _tables,
    lambda results: {
        "models": {
            model: {name: row.tolist() for name, row in one.items()} for model, one in chains().items()
        }
    },
    lambda results: (
        "64 prompts of 256 tokens of the bundled text; the order of the parts is a choice, and what one adds "
        "depends on what was there before it"
    ),
    _draw,
)
"""The chart as a study without cells of its own."""
