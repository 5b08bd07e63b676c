"""Networks of Wu et al. 2025 trained at the paper's effort: sinks on the first item and the first label, and which
items a decay mask with residual connections favours."""

import numpy as np

from posbias.reports.plots import new_figure, save_figure
from posbias.reports.plots.style import ACCENT, MUTED, SMALL, dress, level_line
from posbias_papers.wu2025 import Setting, effort_of
from posbias_papers.wu2025.outcomes import PAIRS, records
from posbias_papers.wu2025.settings import EMBEDDINGS

figure = new_figure(7.6, 3.0)
left, right = figure.subplots(1, 2)
settings = [Setting(residual=r, positional=p) for r in (False, True) for p in ("none", "decay", "rope")]
for (embedding, words), colour in zip(EMBEDDINGS.items(), (MUTED, ACCENT), strict=True):
    known = records(effort_of(100_000, 3, embedding=embedding), settings)
    first, second = np.concatenate([one.sinks[:, :2] for one in known.values()]).T
    left.plot(first, second, "o", color=colour, markersize=4, label=words)
    gaps = [known[Setting(positional="decay")].of(pair) for pair in PAIRS]
    for place, gap in enumerate(gaps):
        right.plot([place] * len(gap), gap, "o", color=colour, markersize=4)
left.plot([0.1, 0.33], [0.1, 0.33], color=MUTED, linewidth=0.8)
dress(left, "sink metric of the first item", "sink metric of the first label")
left.legend(loc="lower right", fontsize=SMALL, frameon=False)
dress(right, "", "accuracy gap, decay mask, residual")
level_line(right, 0)
right.set_xticks(range(len(PAIRS)), [pair.replace("-", " − ") for pair in PAIRS])
right.set_xlim(-0.5, 2.5)
save_figure(figure, "first_label.png")
