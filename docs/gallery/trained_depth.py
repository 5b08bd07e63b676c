"""Does depth add to the bias? Gaps and accuracy along 25,000 iterations, of the cells of Figure 2 on record."""

from posbias.papers.wu2025.drawing import draw_curves
from posbias.papers.wu2025.outcomes import outcome_of
from posbias.papers.wu2025.recorded import records
from posbias.papers.wu2025.settings import RELATIVE, Setting, effort_of
from posbias.plots import save_figure

cells = [
    Setting(depth, residual, positional=word)
    for residual in (False, True)
    for word in RELATIVE
    for depth in (2, 4, 6)
]
kept = records(effort_of(25_000, 3, 0), cells)
save_figure(
    draw_curves({cell: outcome_of(record.cell) for cell, record in kept.items()}), "trained_depth.png"
)
