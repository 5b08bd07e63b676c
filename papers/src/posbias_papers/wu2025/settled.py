"""When trained networks decide what is said of them: at the paper's own effort, or once they have settled.

What networks favour drifts by factors while they learn, so that a gap after a fortieth of the paper's training is
about that stage and no other. Settled means: all that is compared had equally many iterations, a quarter of the
paper's at least, three networks at least, and the 95 % intervals of the changes of every gap and of in-context
accuracy over the last third of training lie within ± `LEAST`.
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

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


def changes(trained: "Trained", curve: str) -> "Float[np.ndarray, 'network']":
    """By how much each network's curve changes over the last third of training; NaN where it begins later, and of
    a network that was stopped."""
    from posbias.training.trials import running

    steps = np.asarray(trained.curves["iteration"], dtype=np.float64)
    lines = np.asarray(trained.curves[curve], dtype=np.float64)
    if steps.size < 2 or steps[0] > THIRDS * steps[-1]:
        return np.full(len(lines), np.nan)
    changed = np.array([line[-1] - np.interp(THIRDS * steps[-1], steps, line) for line in lines])
    return np.where(running(trained), changed, np.nan)


def has_settled(trained: "Trained") -> bool:
    """Whether the 95 % intervals of all changes lie within ± `LEAST`."""
    for curve in CURVES:
        changed = changes(trained, curve)
        changed = changed[~np.isnan(changed)]
        estimate = Estimate.of_mean(changed) if changed.size else None
        if estimate is None or not estimate.known or max(map(abs, estimate.interval)) > LEAST:
            return False
    return True


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
