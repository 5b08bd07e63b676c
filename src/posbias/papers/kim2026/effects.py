"""What simulations show, as effects: recency probabilities, and mean scores entry by entry.

Errors are over samples. Models drawn with one seed share part of their draws, and so do the layers of one model:
the error of a difference is taken as if they did not, which is too large. Queries and keys count from 0.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from posbias.claims import Effect
from posbias.estimate import Estimate
from posbias.papers.kim2026.table import Check, describe
from posbias.simulate import Averages, RecencyModel, RecencyResult

KNOWN = 5e-4
"""A probability whose standard error is larger does not confirm a printed one."""
DIGIT = 5e-5
"""Half of the last digit of the probabilities that the paper prints: a smaller difference is taken for none."""
CLOSE = 0.01
"""How far a probability said to be close to one half may be from it."""
WITHIN = 4.0
"""Standard errors that a printed number and ours may be apart."""
_SLACK = 1.6448536269514722


def where_of(model: RecencyModel, layer: int | None = None) -> str:
    """'LayerNorm, α = 0.5, d = 16, layer 2'."""
    return f"{describe(model)}, d = {model.dimension}" + (f", layer {layer}" if layer else "")


# --- recency probabilities ---------------------------------------------------------------------------------


def above_half(result: RecencyResult, layer: int) -> Effect:
    """That the recency probability of a layer is above ½."""
    return _probability(result, layer, least=DIGIT)


def below_half(result: RecencyResult, layer: int) -> Effect:
    """That it is below ½: keys further back are preferred."""
    effect = above_half(result, layer)
    return replace(effect, value=-effect.value, sign=-1)


def close_to_half(result: RecencyResult, layer: int, tolerance: float = CLOSE) -> Effect:
    """That it is within `tolerance` of ½."""
    return _probability(result, layer, near=True, tolerance=tolerance)


def more_recent(where: str, more: tuple[RecencyResult, int], less: tuple[RecencyResult, int]) -> Effect:
    """That one recency probability is above another, each given as simulation and layer."""
    one, other = (result.recency_probability[layer - 1] for result, layer in (more, less))
    value, se = one.value - other.value, math.hypot(one.se, other.se)
    return Effect(where, value, se, _freedom(one, other), least=DIGIT)


def printed_effect(check: Check) -> Effect:
    """That a printed probability is ours, at most `WITHIN` standard errors of their difference away.

    What is shown is ours, with the error of the difference.
    """
    printed = float(check.printed)
    if check.value.se > KNOWN:
        told = f"known to ± {check.value.se:.1g} from these samples, {KNOWN:g} needed"
        return Effect(f"printed {check.printed}", near=True, flaw=told)
    return Effect(
        f"printed {check.printed}, here (with the error of the difference)",
        check.value.value - printed,
        check.se,
        math.inf,
        near=True,
        opposite=float(check.holds),
        tolerance=(WITHIN + _SLACK) * check.se,
        origin=printed,
    )


def _probability(result: RecencyResult, layer: int, **kind: float) -> Effect:
    p = result.recency_probability[layer - 1]
    return Effect(where_of(result.model, layer), p.value - 0.5, p.se, _freedom(p), origin=0.5, **kind)  # type: ignore[arg-type]


def _freedom(*estimates: Estimate) -> float:
    return max(1.0, min(one.n for one in estimates) - 2.0)


# --- mean scores -------------------------------------------------------------------------------------------


def rising(result: RecencyResult, layer: int) -> Effect:
    """That mean scores rise from key to key along every row up to the diagonal: Definition 1."""
    steps, place = result.steps, np.tril_indices(result.model.tokens, -1)
    value, se = steps.value[layer - 1][place], steps.se[layer - 1][place]
    names = [f"query {i}, keys {j} to {j + 1}" for i, j in zip(*place, strict=True)]
    return every(where_of(result.model, layer), names, value, se, result.samples, least=0.0)


def even_rows(result: RecencyResult, layer: int, tolerance: float) -> Effect:
    """That a row's mean scores below the diagonal are apart by at most `tolerance` of the row's mean."""
    query, key = np.tril_indices(result.model.tokens - 1, -1)
    query, key = query + 1, key + 1
    scores, rises = result.mean_scores.value[layer - 1], result.rises
    level = np.array([scores[i, :i].mean() for i in range(1, len(scores))])[query - 1]
    value, se = rises.value[layer - 1][query, key] / level, rises.se[layer - 1][query, key] / np.abs(level)
    names = [f"query {i}, keys 0 to {j}" for i, j in zip(query, key, strict=True)]
    size = {"near": True, "tolerance": tolerance}
    return every(where_of(result.model, layer), names, value, se, result.samples, **size)


def higher_scores(where: str, more: RecencyResult, less: RecencyResult, layer: int) -> Effect:
    """That every mean score below the diagonal is higher in one simulation than in another."""
    place = np.tril_indices(more.model.tokens, -1)
    value, error = (
        [getattr(one.mean_scores, part)[layer - 1][place] for one in (more, less)] for part in ("value", "se")
    )
    names = [f"query {i}, key {j}" for i, j in zip(*place, strict=True)]
    samples = min(more.samples, less.samples)
    return every(where, names, value[0] - value[1], np.hypot(*error), samples, least=0.0)


def beyond_distance(result: RecencyResult, layer: int) -> Effect:
    """That at every distance below the greatest the last query scores higher than the first that has it."""
    tokens, scores = result.model.tokens, result.mean_scores
    away = np.arange(1, tokens - 1)
    last, first = (np.full_like(away, tokens - 1), tokens - 1 - away), (away, np.zeros_like(away))
    value = scores.value[layer - 1][last] - scores.value[layer - 1][first]
    se = np.hypot(scores.se[layer - 1][last], scores.se[layer - 1][first])
    names = [f"distance {distance}" for distance in away]
    return every(where_of(result.model, layer), names, value, se, result.samples, least=0.0)


def factored(result: RecencyResult, ratios: Callable[..., Averages], tolerance: float) -> Effect:
    """That S_ij/S_i0 is the same for all queries i > j as for the last, within `tolerance`: S_ij = g(i)·h(j)."""
    last = ratios(result)
    names, values, errors = [], [], []
    for query in range(2, result.model.tokens - 1):
        here = ratios(result, query)
        for key in range(1, query):
            names.append(f"query {query}, key {key}")
            values.append(here.value[key] - last.value[key])
            errors.append(math.hypot(here.se[key], last.se[key]))
    where, size = where_of(result.model), {"near": True, "tolerance": tolerance}
    return every(where, names, np.array(values), np.array(errors), result.samples, **size)


def every(
    where: str,
    names: Sequence[str],
    values: Iterable[float],
    errors: Iterable[float],
    samples: int,
    **kind: float,
) -> Effect:
    """That all of several effects are there, as one: the least sure of them.

    It holds if each does on its own, and fails if one surely is not there, allowing for how many there are.
    `kind` are further fields of `Effect`.
    """
    freedom = max(1.0, samples - 2.0)
    parts = [
        Effect(f"{where}, {name}", float(value), float(se), freedom, **kind)  # type: ignore[arg-type]
        for name, value, se in zip(names, values, errors, strict=True)
    ]
    flawed = [one for one in parts if one.flaw]
    if flawed:
        return flawed[0]
    against = min(1.0, len(parts) * min(one.against for one in parts))
    return replace(max(parts, key=lambda one: (one.p, -_margin(one))), opposite=against)


def _margin(effect: Effect) -> float:
    """How sure an effect is, in standard errors: p-values of the surest are all 0."""
    room = effect.tolerance - abs(effect.value) if effect.near else effect.value
    return room / effect.se if effect.se > 0.0 else math.inf
