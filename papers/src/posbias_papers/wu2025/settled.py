"""When trained networks decide what is said of them: at the paper's own effort, or once they have settled.

What networks favour drifts by factors while they learn, so that a gap after a fortieth of the paper's training is
about that stage and no other. Settled means: all that is compared had equally many iterations, a quarter of the
paper's at least, three networks at least, and the 95 % intervals of the changes of every gap and of in-context
accuracy over the last third of training lie within ± `LEAST`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import LEAST
from posbias_papers.wu2025.outcomes import PAIRS
from posbias_papers.wu2025.settings import FULL

if TYPE_CHECKING:
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


def has_settled(trained: "Trained") -> bool:
    """Whether the 95 % intervals of all changes lie within ± `LEAST`."""
    changes = [change(trained, curve) for curve in CURVES]
    return all(one is not None and one.known and max(map(abs, one.interval)) <= LEAST for one in changes)


def withholds(claim: Claim, looked_at: Mapping[Any, Any], curved: bool = True) -> str:
    """Why the cells that a claim is about decide nothing of it; "" if they do.

    `curved` says whether what it is about has learning curves: the sink metric has none.
    """
    trained = {setting: outcome.trained for setting, outcome in looked_at.items()}
    if claim.effort == AS_TRAINED or not trained:
        return ""
    return _lacks(trained, curved)


def decided_by(study: str, minutes: str, curved: bool) -> str:
    """What decides claims on networks that were not trained so long; `minutes` is what that takes, in words."""
    less = f", or {LEAST_ITERATIONS:,} × {LEAST_NETWORKS} where curves settle" if curved else ""
    return (
        f"decided by {WHOLE:,} iterations × {LEAST_NETWORKS} networks or more (`posbias paper wu2025 {study} "
        f"--effort full`, {minutes} on two cores){less}"
    )


def _lacks(trained: "Mapping[Any, Trained]", curved: bool) -> str:
    networks = min(len(one.experiment.seeds) for one in trained.values())
    iterations = sorted({one.experiment.iterations for one in trained.values()})
    least, most = iterations[0], iterations[-1]
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
    moving = [str(setting) for setting, one in trained.items() if not has_settled(one)]
    if not moving:
        return ""
    return f"{least:,} iterations, after which {len(moving)} of {len(trained)} cells had not settled ({moving[0]})"
