"""What the claims are about: recency probabilities, and mean scores entry by entry, with their errors.

Each function gives a quantity of the simulations, by model. Errors are over samples.
Models drawn with one seed share part of their draws, and so do the layers of one model: the error of a difference
is taken as if they did not, which is too large. Queries and keys count from 0, layers from 1.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Above, Evidence, Near, Printed, every
from posbias.simulation import Averages, RecencyModel, RecencyResult
from posbias_papers.claims import quantity
from posbias_papers.kim2026.models import FULL, PRINTED, describe, where_of
from posbias_papers.study import Results

Models = Sequence[RecencyModel]
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


@quantity
def probability(results: Results, models: Models, *layers: int) -> Iterator[Evidence]:
    """The recency probability of each model in each layer."""
    for model in models:
        for layer in layers:
            yield Evidence(where_of(model, layer), results[model].recency_probability[layer - 1])


@quantity
def excess(results: Results, more: Models, less: Models, *layers: int) -> Iterator[Evidence]:
    """By how much the probability of each of the first models exceeds that of its partner among the others."""
    for upper, lower in zip(more, less, strict=True):
        for layer in layers:
            where = f"{where_of(upper, layer)}, less {describe(lower)}"
            yield _difference(where, (results[upper], layer), (results[lower], layer))


@quantity
def narrow_excess(results: Results, narrow: Models, wide: Models) -> Iterator[Evidence]:
    """By how much layer 2's probability of the first models exceeds that of the same in more dimensions."""
    for upper, lower in zip(narrow, wide, strict=True):
        yield _difference(describe(upper), (results[upper], 2), (results[lower], 2))


@quantity
def growth(results: Results, models: Models, *layers: int) -> Iterator[Evidence]:
    """By how much the probability grows from each of the layers to the next."""
    for model in models:
        for layer, deeper in pairwise((*layers, layers[-1] + 1)):
            where = f"{where_of(model)}, layer {deeper} less {layer}"
            yield _difference(where, (results[model], deeper), (results[model], layer))


@quantity
def printed(results: Results, number: str, model: RecencyModel) -> Iterator[Evidence]:
    """The probability of layer 2, held against a printed one of ten million plain samples."""
    result = results[model]
    theirs = result.plain_recency_probability[1].se * math.sqrt(result.samples / FULL)
    test = Printed(Estimate(float(number), theirs), digits=4, known=KNOWN)
    yield Evidence(where_of(model, 2), result.recency_probability[1], test=test)


def printed_numbers(results: Results) -> list[Evidence]:
    """All printed probabilities whose models were simulated, beside ours."""
    known = [(number, model) for number, model in PRINTED if model in results]
    return [piece for number, model in known for piece in printed(number, model)(results)]


def _difference(where: str, more: tuple[RecencyResult, int], less: tuple[RecencyResult, int]) -> Evidence:
    upper, lower = (result.recency_probability[layer - 1] for result, layer in (more, less))
    return Evidence(where, upper - lower)


# --- mean scores -------------------------------------------------------------------------------------------


@quantity
def rising(results: Results, models: Models, *layers: int) -> Iterator[Evidence]:
    """That mean scores rise from key to key along every row up to the diagonal: Definition 1."""
    for model in models:
        steps, place = results[model].steps, np.tril_indices(model.tokens, -1)
        names = [f"query {i}, keys {j} to {j + 1}" for i, j in zip(*place, strict=True)]
        for layer in layers:
            value, se = steps.value[layer - 1][place], steps.se[layer - 1][place]
            where, test = where_of(model, layer), Above(least=0.0)
            yield every(where, names, value, se, results[model].samples, test)


@quantity
def even_rows(results: Results, models: Models, layer: int, tolerance: float = EVEN) -> Iterator[Evidence]:
    """That a row's mean scores below the diagonal are apart by at most `tolerance` of the row's mean."""
    for model in models:
        result = results[model]
        query, key = (index + 1 for index in np.tril_indices(model.tokens - 1, -1))
        scores, rises = result.mean_scores.value[layer - 1], result.rises
        level = np.array([scores[i, :i].mean() for i in range(1, len(scores))])[query - 1]
        value = rises.value[layer - 1][query, key] / level
        se = rises.se[layer - 1][query, key] / np.abs(level)
        names = [f"query {i}, keys 0 to {j}" for i, j in zip(query, key, strict=True)]
        yield every(where_of(model, layer), names, value, se, result.samples, Near(0.0, tolerance))


@quantity
def higher_scores(results: Results, models: Models, others: Models, layer: int) -> Iterator[Evidence]:
    """That every mean score below the diagonal is higher in each of the models than in its partner."""
    for model, other in zip(models, others, strict=True):
        place, both = np.tril_indices(model.tokens, -1), (results[model], results[other])
        more, less = (result.mean_scores.value[layer - 1][place] for result in both)
        error = np.hypot(*(result.mean_scores.se[layer - 1][place] for result in both))
        names = [f"query {i}, key {j}" for i, j in zip(*place, strict=True)]
        where = f"α = {model.anisotropy:g}, d = {model.dimension}, without less with"
        n = min(result.samples for result in both)
        yield every(where, names, more - less, error, n, Above(least=0.0))


@quantity
def beyond_distance(results: Results, models: Models, layer: int) -> Iterator[Evidence]:
    """That at every distance below the greatest the last query scores higher than the first that has it."""
    for model in models:
        tokens, scores = model.tokens, results[model].mean_scores
        away = np.arange(1, tokens - 1)
        last, first = (np.full_like(away, tokens - 1), tokens - 1 - away), (away, np.zeros_like(away))
        value = scores.value[layer - 1][last] - scores.value[layer - 1][first]
        se = np.hypot(scores.se[layer - 1][last], scores.se[layer - 1][first])
        names = [f"distance {distance}" for distance in away]
        where, test = where_of(model, layer), Above(least=0.0)
        yield every(where, names, value, se, results[model].samples, test)


@quantity
def factored(
    results: Results, models: Models, ratios: Callable[..., Averages], tolerance: float = 0.02
) -> Iterator[Evidence]:
    """That S_ij/S_i0 is the same for all queries i > j as for the last, within `tolerance`: S_ij = g(i)·h(j)."""
    for model in models:
        places = [(query, key) for query in range(2, model.tokens - 1) for key in range(1, query)]
        names = [f"query {query}, key {key}" for query, key in places]
        rows, last = [ratios(results[model], query) for query in range(model.tokens)], ratios(results[model])
        values = [rows[query].value[key] - last.value[key] for query, key in places]
        errors = [math.hypot(rows[query].se[key], last.se[key]) for query, key in places]
        yield every(where_of(model), names, values, errors, results[model].samples, Near(0.0, tolerance))
