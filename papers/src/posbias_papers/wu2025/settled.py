"""When trained networks decide what is said of them: at the paper's own effort, or once they have settled.

What networks favour drifts by factors while they learn, so that a gap after a fortieth of the paper's training is
about that stage and no other. Settled means: all that is compared had equally many iterations, a quarter of the
paper's at least, three networks at least, and the 95 % intervals of the changes of every gap and of in-context
accuracy over the last third of training lie within ± `LEAST`.
"""

from typing import TYPE_CHECKING

import numpy as np

from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import LEAST
from posbias_papers.wu2025.outcomes import PAIRS
from posbias_papers.wu2025.settings import FULL

if TYPE_CHECKING:
    import pandas as pd

    from posbias.training.loop import Trained

WHOLE = FULL.iterations[2]
"""The paper's iterations."""
LEAST_ITERATIONS, LEAST_NETWORKS = WHOLE // 4, 3
CURVES = (*PAIRS, "in_context_accuracy")
AS_TRAINED = "as trained"
"""The effort of claims that are about the training itself, at whatever effort."""
THIRDS = 2 / 3
"""From this part of training on curves are to change little."""


def change(trained: "Trained", curve: str) -> Estimate | None:
    """By how much a learning curve changes over the last third of training; None where it begins later."""
    from posbias.training.trials import running

    steps = np.asarray(trained.curves["iteration"], dtype=np.float64)
    curves = np.asarray(trained.curves[curve], dtype=np.float64)[running(trained)]
    if steps.size < 2 or steps[0] > THIRDS * steps[-1] or not len(curves):
        return None
    return Estimate.of_mean(
        np.array([line[-1] - np.interp(THIRDS * steps[-1], steps, line) for line in curves])
    )


def learning_curve_changes(trained: "Trained") -> dict[str, np.ndarray]:
    """By how much each network's gap first–last and in-context accuracy change over the last third of training.

    NaN of a stopped network, and where the curves begin later.
    """
    from posbias.training.trials import running

    steps, kept = np.asarray(trained.curves["iteration"], dtype=np.float64), running(trained)
    late = steps.size < 2 or steps[0] > THIRDS * steps[-1]
    found = {}
    for curve, name in (("first-last", "change_first_last"), ("in_context_accuracy", "change_accuracy")):
        lines = np.asarray(trained.curves[curve], dtype=np.float64)
        found[name] = np.full(len(lines), np.nan)
        for n in () if late else np.flatnonzero(kept):
            found[name][n] = lines[n, -1] - np.interp(THIRDS * steps[-1], steps, lines[n])
    return found


def has_settled(trained: "Trained") -> bool:
    """Whether the 95 % intervals of all changes lie within ± `LEAST`."""
    changes = [change(trained, curve) for curve in CURVES]
    return all(one is not None and one.known and max(map(abs, one.interval)) <= LEAST for one in changes)


def withholds(claim: Claim, rows: "pd.DataFrame", curved: bool = True) -> str:
    """Why the networks that a claim is about decide nothing of it; "" if they do.

    `rows` are theirs in the table of a figure; `curved` says whether what is claimed has learning curves: the sink
    metric has none.
    """
    return "" if claim.effort == AS_TRAINED or rows.empty else _lacks(rows, curved)


def decided_by(study: str, minutes: str, curved: bool) -> str:
    """What decides claims on networks that were not trained so long; `minutes` is what that takes, in words."""
    less = f", or {LEAST_ITERATIONS:,} × {LEAST_NETWORKS} where curves settle" if curved else ""
    return (
        f"decided by {WHOLE:,} iterations × {LEAST_NETWORKS} networks or more (`posbias paper wu2025 {study} "
        f"--effort full`, {minutes} on two cores){less}"
    )


def _lacks(rows: "pd.DataFrame", curved: bool) -> str:
    networks = int(rows["networks"].to_numpy().min())
    spent = rows["iterations"].to_numpy()
    least, most = int(spent.min()), int(spent.max())
    if networks < LEAST_NETWORKS:
        return f"{networks} networks, {LEAST_NETWORKS} needed"
    if least >= WHOLE:
        return ""
    if least != most:
        return f"{least:,} to {most:,} iterations, equally many needed for all that is compared"
    if least < LEAST_ITERATIONS:
        return f"{least:,} of the paper's {WHOLE:,} iterations: a stage of training"
    if not curved:
        return f"{least:,} of the paper's {WHOLE:,} iterations, and the sink metric has no learning curve"
    cells = rows["settled"].droplevel("network")
    settled = cells.to_numpy(dtype=bool)[~cells.index.duplicated()]
    moving = settled.size - int(settled.sum())
    return (
        f"{least:,} iterations, after which {moving} of {settled.size} cells had not settled"
        if moving
        else ""
    )
