"""What the claims are about: recency probabilities, and mean scores entry by entry, with their errors.

Each function gives a quantity: a function from the simulations, by model, to evidence. Errors are over samples.
Models drawn with one seed share part of their draws, and so do the layers of one model: the error of a difference
is taken as if they did not, which is too large. Queries and keys count from 0, layers from 1.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from posbias.claims import Above, Evidence, Near, Printed, every
from posbias.papers.kim2026.models import FULL, PRINTED, describe, where_of
from posbias.papers.study import Results
from posbias.simulation import Averages, RecencyModel, RecencyResult

Quantity = Callable[[Results], Iterator[Evidence]]
KNOWN = 5e-4
"""A probability whose standard error is larger does not confirm a printed one."""
DIGIT = 5e-5
"""Half of the last digit of the probabilities that the paper prints: a smaller difference is taken for none."""
CLOSE = 0.01
"""How far a probability said to be close to one half may be from it."""
FIRST_LAYER = 1e-3
"""How far the probability of a first layer, ½ exactly, may be found from it."""
EVEN = 0.05
"""Up to this share of their level, the scores of a row may be apart and be said to be uniform."""
RECENT, MORE = Above(0.5, DIGIT), Above(0.0, DIGIT)
"""That a recency probability is above ½, or above another, as the paper's digits can tell."""
VISIBLE = Above(0.5 + DIGIT, 0.0)
"""That a recency probability is above ½ by more than half of the last digit."""


# --- recency probabilities ---------------------------------------------------------------------------------


def probability(models: Iterable[RecencyModel], *layers: int) -> Quantity:
    """The recency probability of each model in each layer."""

    def quantity(results: Results) -> Iterator[Evidence]:
        for model in models:
            for layer in layers:
                yield Evidence(where_of(model, layer), results[model].recency_probability[layer - 1])

    return quantity


def excess(pairs: Iterable[tuple[RecencyModel, RecencyModel]], *layers: int) -> Quantity:
    """By how much the probability of the first model of each pair exceeds that of the second."""

    def quantity(results: Results) -> Iterator[Evidence]:
        for more, less in pairs:
            for layer in layers:
                where = f"{where_of(more, layer)}, less {describe(less)}"
                yield _difference(where, (results[more], layer), (results[less], layer))

    return quantity


def narrow_excess(pairs: Iterable[tuple[RecencyModel, RecencyModel]]) -> Quantity:
    """By how much layer 2's probability of the first model exceeds that of the same model in more dimensions."""

    def quantity(results: Results) -> Iterator[Evidence]:
        for narrow, wide in pairs:
            yield _difference(describe(narrow), (results[narrow], 2), (results[wide], 2))

    return quantity


def growth(models: Iterable[RecencyModel], *layers: int) -> Quantity:
    """By how much the probability grows from each of the layers to the next."""

    def quantity(results: Results) -> Iterator[Evidence]:
        for model in models:
            for layer, deeper in pairwise((*layers, layers[-1] + 1)):
                where = f"{where_of(model)}, layer {deeper} less {layer}"
                yield _difference(where, (results[model], deeper), (results[model], layer))

    return quantity


def printed(number: str, model: RecencyModel) -> Quantity:
    """The probability of layer 2, held against a printed one of ten million plain samples."""

    def quantity(results: Results) -> Iterator[Evidence]:
        result = results[model]
        theirs = result.plain_recency_probability[1].se * math.sqrt(result.samples / FULL)
        test = Printed(float(number), digits=4, se=theirs, known=KNOWN)
        yield Evidence(where_of(model, 2), result.recency_probability[1], test=test)

    return quantity


def printed_numbers(results: Results) -> list[Evidence]:
    """All printed probabilities whose models were simulated, beside ours."""
    known = [(number, model) for number, model in PRINTED if model in results]
    return [piece for number, model in known for piece in printed(number, model)(results)]


def _difference(where: str, more: tuple[RecencyResult, int], less: tuple[RecencyResult, int]) -> Evidence:
    upper, lower = (result.recency_probability[layer - 1] for result, layer in (more, less))
    return Evidence(where, upper - lower)


# --- mean scores -------------------------------------------------------------------------------------------


def rising(models: Iterable[RecencyModel], *layers: int) -> Quantity:
    """That mean scores rise from key to key along every row up to the diagonal: Definition 1."""

    def quantity(results: Results) -> Iterator[Evidence]:
        for model in models:
            steps, place = results[model].steps, np.tril_indices(model.tokens, -1)
            names = [f"query {i}, keys {j} to {j + 1}" for i, j in zip(*place, strict=True)]
            for layer in layers:
                value, se = steps.value[layer - 1][place], steps.se[layer - 1][place]
                where, test = where_of(model, layer), Above(least=0.0)
                yield every(where, names, value, se, results[model].samples, test)

    return quantity


def even_rows(models: Iterable[RecencyModel], layer: int, tolerance: float = EVEN) -> Quantity:
    """That a row's mean scores below the diagonal are apart by at most `tolerance` of the row's mean."""

    def quantity(results: Results) -> Iterator[Evidence]:
        for model in models:
            result = results[model]
            query, key = (index + 1 for index in np.tril_indices(model.tokens - 1, -1))
            scores, rises = result.mean_scores.value[layer - 1], result.rises
            level = np.array([scores[i, :i].mean() for i in range(1, len(scores))])[query - 1]
            value = rises.value[layer - 1][query, key] / level
            se = rises.se[layer - 1][query, key] / np.abs(level)
            names = [f"query {i}, keys 0 to {j}" for i, j in zip(query, key, strict=True)]
            yield every(where_of(model, layer), names, value, se, result.samples, Near(0.0, tolerance))

    return quantity


def higher_scores(pairs: Iterable[tuple[RecencyModel, RecencyModel]], layer: int) -> Quantity:
    """That every mean score below the diagonal is higher in the first model of each pair than in the second."""

    def quantity(results: Results) -> Iterator[Evidence]:
        for pair in pairs:
            more, less = (results[model] for model in pair)
            place = np.tril_indices(pair[0].tokens, -1)
            value, error = (
                [getattr(result.mean_scores, part)[layer - 1][place] for result in (more, less)]
                for part in ("value", "se")
            )
            names = [f"query {i}, key {j}" for i, j in zip(*place, strict=True)]
            where = f"α = {pair[0].anisotropy:g}, d = {pair[0].dimension}, without less with"
            n = min(more.samples, less.samples)
            yield every(where, names, value[0] - value[1], np.hypot(*error), n, Above(least=0.0))

    return quantity


def beyond_distance(models: Iterable[RecencyModel], layer: int) -> Quantity:
    """That at every distance below the greatest the last query scores higher than the first that has it."""

    def quantity(results: Results) -> Iterator[Evidence]:
        for model in models:
            tokens, scores = model.tokens, results[model].mean_scores
            away = np.arange(1, tokens - 1)
            last, first = (np.full_like(away, tokens - 1), tokens - 1 - away), (away, np.zeros_like(away))
            value = scores.value[layer - 1][last] - scores.value[layer - 1][first]
            se = np.hypot(scores.se[layer - 1][last], scores.se[layer - 1][first])
            names = [f"distance {distance}" for distance in away]
            where, test = where_of(model, layer), Above(least=0.0)
            yield every(where, names, value, se, results[model].samples, test)

    return quantity


def factored(
    models: Iterable[RecencyModel], ratios: Callable[..., Averages], tolerance: float = 0.02
) -> Quantity:
    """That S_ij/S_i0 is the same for all queries i > j as for the last, within `tolerance`: S_ij = g(i)·h(j)."""

    def quantity(results: Results) -> Iterator[Evidence]:
        for model in models:
            last = ratios(results[model])
            names: list[str] = []
            values: list[float] = []
            errors: list[float] = []
            for query in range(2, model.tokens - 1):
                here = ratios(results[model], query)
                for key in range(1, query):
                    names.append(f"query {query}, key {key}")
                    values.append(here.value[key] - last.value[key])
                    errors.append(math.hypot(here.se[key], last.se[key]))
            yield every(where_of(model), names, values, errors, results[model].samples, Near(0.0, tolerance))

    return quantity


def pairs(
    first: Sequence[RecencyModel], second: Sequence[RecencyModel]
) -> tuple[tuple[RecencyModel, RecencyModel], ...]:
    """Models two by two."""
    return tuple(zip(first, second, strict=True))
