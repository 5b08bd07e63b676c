"""Does an order that a profile calls best gain what is predicted, on trials that the profile has not seen?

Ten values are asked for by key (`posbias.retrieve`), in every trial from every place. Documents are those ten,
with scores that fall as rank^−s; their order as given is drawn once. `posbias.ordering.order` finds an order from
the trials of one seed and predicts its gains over the usual ones; they are measured on the trials of another:
Σ w·accuracy at the place of each document, trial by trial. The same is asked of orders by influence alone.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.core.machine import stream
from posbias.ordering import STRATEGIES, Ordering, order
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias_papers import SMALL
from posbias_papers.extensions.cells import Cell, Result, Results, own_study, rounded
from posbias_papers.pages import Table

MODELS = ("smollm2-135m", *SMALL)
PLACES = 10
STEEPNESS = {"flat": 0.5, "Zipf": 1.0, "steep": 2.0}
"""By name: s of scores that fall as rank^−s."""
SEEN, HELD_OUT = 0, 1
"""The seeds of the trials that a profile is made of, and of those it is judged on."""
TRIALS, PROMPTS = 200, 64
BASES = ("retrieval", "influence", "energy")
"""What an order is found by: retrieval by place, the measured gradient influence, the energy rollout."""


@dataclass(frozen=True)
class OrderCell(Cell):
    """Retrieval from ten places, and what influence there is at that length."""

    model: str
    seed: int

    kind = "order_cell"

    def compute(self, on_event: Any = None) -> Result:
        """Ask 200 trials: hits by trial and place; influence of running text as long as the prompts."""
        from posbias.comparison.predictors import predictions
        from posbias.measurement import load_model, measure
        from posbias.profiles.places import retrieval_curve
        from posbias.profiles.profile import measured_influence
        from posbias.retrieval import retrieval_job, retrieve

        loaded = load_model(self.model)
        job = retrieval_job("keys", pairs=PLACES, positions=PLACES, prompts=TRIALS, seed=self.seed)
        asked = retrieve(loaded, job)
        length = round(float(asked["tokens"].mean()))
        found = measure(loaded, tokens=length, prompts=PROMPTS, seed=self.seed)
        return {
            "hits": asked["accuracy"].values.astype(int).tolist(),
            "able": bool(retrieval_curve(asked).able),
            "starts": rounded(asked["token"].values.mean(axis=0)),
            "influence": rounded(measured_influence(found).mass),
            "energy": rounded(predictions(found)["energy"].mass),
        }


CELLS = tuple(OrderCell(model, seed) for model in MODELS for seed in (SEEN, HELD_OUT))


def scores(shape: str) -> Float[np.ndarray, "document"]:
    """Scores of the documents as given, which sum to one: rank^−s in an order drawn once."""
    weights = np.arange(1.0, PLACES + 1) ** -STEEPNESS[shape]
    return stream(0, "ours.ordering").permutation(weights / weights.sum())


def ordered(found: Result, shape: str, basis: str) -> Ordering:
    """The order that a cell calls best."""
    if basis == "retrieval":
        hits = np.array(found["hits"], dtype=np.float64)
        return order(PLACES, scores(shape), profile=Profile.from_rows(hits, kind="rate", measures="accuracy"))
    starts, mass = np.array(found["starts"]), np.array(found[basis])
    length = float(np.diff(starts).mean())
    lengths = np.full(PLACES, length)
    behind = max(0.0, mass.size - starts[0] - PLACES * length)
    profile = Profile.from_weights(mass, measures="gradient" if basis == "influence" else "rollout")
    return order(PLACES, scores(shape), lengths, profile=profile, prefix=float(starts[0]), suffix=behind)


def measured(found: Result, shape: str, best: Ordering, strategy: str) -> Estimate:
    """What an order gains over another on the trials of a cell, in accuracy."""
    weights = scores(shape)
    hits = np.array(found["hits"], dtype=np.float64)
    by_trial = hits @ (weights[list(best.permutation)] - weights[STRATEGIES[strategy](weights)])
    return Estimate.of_mean(by_trial)


def _models(results: Results) -> list[str]:
    return [*dict.fromkeys(cell.model for cell in results)]


def gains(results: Results) -> Iterator[dict[str, Any]]:
    """What each order gains over each strategy: predicted, measured, and measured of orders by influence."""
    for model, shape in itertools.product(_models(results), STEEPNESS):
        seen, held_out = (results[OrderCell(model, seed)] for seed in (SEEN, HELD_OUT))
        orders = {basis: ordered(seen, shape, basis) for basis in BASES}
        for strategy in STRATEGIES:
            row = {"model": model, "scores": shape, "over": strategy}
            row |= {"predicted": orders["retrieval"].gains[strategy]}
            yield row | {basis: measured(held_out, shape, one, strategy) for basis, one in orders.items()}


def tables(results: Results) -> Iterator[Table]:
    """What the page shows of results by cell."""
    caption = (
        "Gain in accuracy over the usual orders: predicted from retrieval, and of other trials measured of"
    )
    yield Table.of(f"{caption} orders found by {', '.join(BASES)}", gains(results))
    rows = []
    for model in _models(results):
        both = [results[OrderCell(model, seed)] for seed in (SEEN, HELD_OUT)]
        mean = np.concatenate([one["hits"] for one in both]).mean(axis=0)
        row = {"model": model, "can do the task": all(one["able"] for one in both)}
        rows.append(row | {f"place {place}": value for place, value in enumerate(mean, 1)})
    yield Table.of("Accuracy by place, over the trials of both seeds", rows)


STUDY = own_study("ordering", CELLS, 25.0, tables, document="docs/order.md")
