"""Does an order that a profile calls best gain what is predicted, on trials that the profile has not seen?

Ten values are asked for by key (`posbias.retrieve`), in every trial from every place. Documents are those ten,
with scores that fall as rank^−s; their order as given is drawn once. `posbias.ordering.order` finds an order from
the trials of one seed and predicts its gains over the usual ones; they are measured on the trials of another:
Σ w·accuracy at the place of each document, trial by trial. The same is asked of orders by influence alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.core.machine import stream
from posbias.ordering import STRATEGIES, Ordering, order
from posbias.ordering.basis import of_places
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias_papers.extensions.extension import Cell, Extension, Found, Results, rounded
from posbias_papers.pages import Table
from posbias_papers.wu2025.observed import MODELS

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

    def compute(self, on_event: Any = None) -> Found:
        """Ask 200 trials: hits by trial and place; influence of running text as long as the prompts."""
        from posbias.comparison.predictors import predictions
        from posbias.measurement import load_model, measure
        from posbias.profiles.profile import measured_influence
        from posbias.retrieval import retrieval_job, retrieve
        from posbias.retrieval.curve import retrieval_curve

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


def ordered(found: Found, shape: str, basis: str) -> Ordering:
    """The order that a cell calls best."""
    if basis == "retrieval":
        hits = np.array(found["hits"], dtype=np.float64)
        return order(PLACES, scores(shape), profile=of_places(hits, {}))
    starts, mass = np.array(found["starts"]), np.array(found[basis])
    length = float(np.diff(starts).mean())
    lengths = np.full(PLACES, length)
    behind = max(0.0, mass.size - starts[0] - PLACES * length)
    profile = Profile.from_weights(mass, measures="gradient" if basis == "influence" else "rollout")
    return order(PLACES, scores(shape), lengths, profile=profile, prefix=float(starts[0]), suffix=behind)


def measured(found: Found, shape: str, best: Ordering, strategy: str) -> Estimate:
    """What an order gains over another on the trials of a cell, in accuracy."""
    weights = scores(shape)
    hits = np.array(found["hits"], dtype=np.float64)
    by_trial = hits @ (weights[list(best.permutation)] - weights[STRATEGIES[strategy](weights)])
    return Estimate.of_mean(by_trial)


def gains(results: Results, basis: str = "retrieval") -> Iterator[tuple[str, str, str, Estimate, Estimate]]:
    """Model, shape of the scores, strategy; the gain over it that is predicted, and that is measured."""
    for model in MODELS:
        seen, held_out = (results.get(OrderCell(model, seed)) for seed in (SEEN, HELD_OUT))
        if seen and held_out:
            for shape in STEEPNESS:
                best = ordered(seen, shape, basis)
                for strategy in STRATEGIES:
                    yield (
                        model,
                        shape,
                        strategy,
                        best.gains[strategy],
                        measured(held_out, shape, best, strategy),
                    )


ABLE = MODELS[0]


def _tables(results: Results) -> Iterator[Table]:
    yield Table(
        "Gain in accuracy of the order found, over the usual ones",
        ("model", "scores", "over", "predicted", "measured, other trials"),
        [[*where, str(predicted), str(found)] for *where, predicted, found in gains(results)],
    )
    by_basis = {basis: list(gains(results, basis)) for basis in BASES}
    yield Table(
        f"{ABLE}: measured gain over the best first, of orders found by",
        ("scores", *BASES),
        [[shape, *(str(_over_best_first(rows, shape)) for rows in by_basis.values())] for shape in STEEPNESS],
    )
    yield Table(
        "Accuracy by place, over the trials of both seeds",
        ("model", "can do the task", *map(str, range(1, PLACES + 1))),
        [_accuracy(model, results) for model in MODELS],
    )


def _over_best_first(rows: list[tuple[str, str, str, Estimate, Estimate]], wanted: str) -> Estimate:
    (found,) = (
        found
        for model, shape, strategy, _, found in rows
        if (model, shape, strategy) == (ABLE, wanted, "best first")
    )
    return found


def _accuracy(model: str, results: Results) -> list[str]:
    both = [results[OrderCell(model, seed)] for seed in (SEEN, HELD_OUT)]
    mean = np.concatenate([one["hits"] for one in both]).mean(axis=0)
    return [model, "yes" if all(one["able"] for one in both) else "no", *(f"{one:.3f}" for one in mean)]


def _draw(results: Results) -> Any:
    from posbias.reports.plots.style import LEGEND, LINE, dress, new_figure, series

    figure = new_figure(4.6, 3.4)
    axes = figure.subplots()
    dress(axes, "predicted gain in accuracy", "measured on other trials")
    rows = [row for row in gains(results) if row[0] == ABLE]
    for place, strategy in enumerate(STRATEGIES):
        points = [(predicted, found) for _, _, name, predicted, found in rows if name == strategy]
        errors: Mapping[str, Any] = {
            "xerr": [1.96 * predicted.se for predicted, _ in points],
            "yerr": [1.96 * found.se for _, found in points],
        }
        look = series(place) | {"linestyle": "none", "linewidth": LINE, "markersize": 4}
        x, y = ([one.value for one in column] for column in zip(*points, strict=True))
        axes.errorbar(x, y, label=f"over {strategy}", elinewidth=0.7, **errors, **look)
    axes.axline((0.0, 0.0), slope=1.0, color="0.6", linewidth=0.7, zorder=0)
    axes.legend(**LEGEND)
    return figure


EXTENSION = Extension(
    "ordering",
    "Does the order that a profile calls best gain what is predicted, on trials it was not found on?",
    "docs/order.md",
    CELLS,
    _tables,
    _draw,
    minutes=25.0,
)
