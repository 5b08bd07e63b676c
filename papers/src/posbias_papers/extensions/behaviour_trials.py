"""One cell of the second half of the fair test: does influence by place go with retrieval by place?

The protocol is `docs/predictors.md`. Influence and predictions are of running text of as many tokens as the
prompts of the retrieval have; a place has the mean over the tokens from where its thing begins to where the next
begins.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from posbias.comparison.predictors import predictions
from posbias.core.seeds import stream
from posbias.profiles.curves import spearman
from posbias.profiles.influence import measured_influence
from posbias.retrieval.estimation import retrieval_curve
from posbias_papers.extensions.cells import rounded

if TYPE_CHECKING:
    import xarray as xr

QUANTITIES = ("accuracy", "choice", "margin", "lift")
RESAMPLES = 1000
DIGITS = 5


def behaviour_trial(retrieval: "xr.Dataset", measurement: "xr.Dataset", seed: int = 0) -> dict[str, Any]:
    """Rank correlations over places of influence, and of every prediction, with each of `QUANTITIES`.

    Each is [Spearman, low, high, p]: the ends hold 95 % of resamples of the retrieval's trials (`RESAMPLES`), p is
    the share of as many permutations of the places that correlate as much or more (one-sided, the one seen
    counted). None where a side is constant. `able` says whether the model can do the task at all.
    """
    profiles = {"measured": measured_influence(measurement), **predictions(measurement)}
    starts = np.rint(retrieval["token"].values.mean(axis=0)).astype(int)
    places = {name: at_places(one.mass, starts) for name, one in profiles.items()}
    by_trial = {name: retrieval[name].values for name in QUANTITIES[:3]}
    by_trial["lift"] = retrieval["margin_mean"].values - retrieval["control_margin_mean"].values
    curve = retrieval_curve(retrieval)
    return {
        "able": bool(curve.able),
        "places": len(starts),
        "trials": retrieval.sizes["prompt"],
        "length": measurement.sizes["position"],
        "by_place": {name: rounded(one.mean(axis=0), DIGITS) for name, one in by_trial.items()},
        "influence": {name: rounded(one, DIGITS) for name, one in places.items()},
        "correlations": {
            name: {what: correlation(one, rows, seed) for what, rows in by_trial.items()}
            for name, one in places.items()
        },
    }


def at_places(
    mass: Float[np.ndarray, "position"], starts: Int[np.ndarray, "place"]
) -> Float[np.ndarray, "place"]:
    """The mean of a profile over the tokens of each place; the last is as long as those before it on average."""
    length = max(1, round(float(np.diff(starts).mean())))
    ends = [*starts[1:], min(starts[-1] + length, mass.size)]
    return np.array([mass[a:b].mean() for a, b in zip(starts, ends, strict=True)])


def correlation(
    influence: Float[np.ndarray, "place"], by_trial: Float[np.ndarray, "trial place"], seed: int
) -> list[float] | None:
    """[Spearman, low, high, p] of influence and the mean over trials; None where a side is constant."""
    value = float(spearman(influence, by_trial.mean(axis=0)))
    if not np.isfinite(value):
        return None
    random = stream(seed, "behaviour")
    trials = len(by_trial)
    drawn = by_trial[random.integers(trials, size=(RESAMPLES, trials))].mean(axis=1)
    low, high = np.nanpercentile(spearman(influence, drawn), [2.5, 97.5])
    mixed = random.permuted(np.tile(influence, (RESAMPLES, 1)), axis=1)
    beyond = (spearman(mixed, by_trial.mean(axis=0)) >= value - 1e-12).sum()
    return rounded([value, low, high, (1 + beyond) / (1 + RESAMPLES)], DIGITS)
