"""Do measured influence and its predictors go with where a model finds things? Asked like `predictors`.

Influence and predictions are of running text of as many tokens as the prompts of the retrieval have; a place has
the mean over the tokens from where its thing begins to where the next begins. A cell decides something if the
model can do the task and there are more than five places.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from posbias.comparison.predictors import PREDICTORS, predictions
from posbias.core.errors import InvalidValueError
from posbias.core.machine import stream
from posbias.profiles.claims import LEVEL
from posbias.profiles.curves import spearman
from posbias.profiles.profile import measured_influence
from posbias.retrieval.curve import retrieval_curve
from posbias_papers.extensions.extension import Cell, Extension, Found, Results, rounded
from posbias_papers.extensions.predictors import holm
from posbias_papers.pages import Table

if TYPE_CHECKING:
    import xarray as xr

QUANTITIES = ("accuracy", "choice", "margin", "lift")
RESAMPLES, TRIALS, PROMPTS, SEED, DIGITS = 1000, 200, 64, 1, 5
FEWEST = 6
"""With fewer places no rank correlation below 1 is significant."""
NAMES = {"measured": "measured influence", **{one.key: one.label for one in PREDICTORS}}


@dataclass(frozen=True)
class BehaviourCell(Cell):
    """A model, the wording of the list and the number of places."""

    model: str
    wording: str
    places: int

    kind = "behaviour_cell"

    def compute(self, on_event: Any = None) -> Found:
        """Ask 200 trials, and measure 64 prompts as long."""
        from posbias.measurement import load_model, measure
        from posbias.retrieval import retrieval_job, retrieve

        loaded = load_model(self.model)
        asked: dict[str, Any] = {"pairs": self.places, "positions": self.places, "wording": self.wording}
        try:
            found = retrieve(loaded, retrieval_job("keys", prompts=TRIALS, seed=SEED, **asked))
        except InvalidValueError as error:
            return {"refused": str(error)}
        length = round(float(found["tokens"].mean()))
        measurement = measure(loaded, tokens=length, prompts=PROMPTS, seed=SEED)
        return {"checksum": measurement.attrs["checksum"]} | behaviour_trial(found, measurement, SEED)


CELLS = tuple(
    BehaviourCell(model, wording, places)
    for model, counts in (("tiny-nope", (5,)), ("smollm2-135m", (5, 10, 20)))
    for places in counts
    for wording in ("json", "list")
)


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


def decides(found: Found, places: int) -> bool:
    """Whether the model can do the task, and there are places enough to tell."""
    return bool(found.get("able")) and places >= FEWEST


def adjusted(name: str, quantity: str, results: Results) -> dict[BehaviourCell, float]:
    """p of a correlation in each cell that decides, after Holm over these."""
    found = {
        cell: one["correlations"][name][quantity]
        for cell, one in results.items()
        if decides(one, cell.places) and one["correlations"][name][quantity] is not None
    }
    return dict(zip(found, holm([one[3] for one in found.values()]), strict=True))


def _tables(results: Results) -> Iterator[Table]:
    rows = []
    for name, label in NAMES.items():
        found = [adjusted(name, quantity, results) for quantity in QUANTITIES]
        rows.append([label, *(f"{sum(p < LEVEL for p in one.values())} of {len(one)}" for one in found)])
    yield Table(
        "Cells in which it goes with retrieval by place, after Holm's correction", ("", *QUANTITIES), rows
    )
    for quantity in QUANTITIES:
        corrected = {name: adjusted(name, quantity, results) for name in NAMES}
        rows = []
        for cell, one in results.items():
            if "correlations" in one:
                where = [cell.model, cell.wording, str(cell.places), str(one["length"])]
                each = [
                    _words(one["correlations"][name][quantity], corrected[name].get(cell)) for name in NAMES
                ]
                rows.append([*where, "yes" if one["able"] else "no", *each])
        yield Table(
            f"{quantity.capitalize()} by place: Spearman (95 %), p after Holm's correction",
            ("model", "wording", "places", "tokens", "can do the task", *NAMES.values()),
            rows,
        )


def _words(found: list[float] | None, p: float | None) -> str:
    if found is None:
        return "–"
    value, low, high, _ = found
    text = f"{value:.2f} ({low:.2f} to {high:.2f})".replace("-", "−")
    return text if p is None else f"{text}, p = {p:.3f}"


EXTENSION = Extension(
    "behaviour",
    "Do measured influence and its predictors go with where a model finds things?",
    "docs/predictors.md",
    CELLS,
    _tables,
    minutes=240.0,
)
