"""Sparse selection: each query attends to some earlier tokens alone, known by how often each distance is selected.

Which tokens an indexer selects depends on what they say, so that a prediction can hold its mean only. With s_j the
rate at which key j is selected and z_j its weight e^logit, a row's expectation is

    E[A_j] = s_j ∫_0^∞ z_j·e^(−t·z_j) · Π_(k≠j) (1 − s_k + s_k·e^(−t·z_k)) dt

where keys are selected independently of each other (`expected_row`), and s_j/k where always k are selected and
their logits are equal. Rollouts multiply, so their mean is the product of these where layers select independently.

`Selected` takes s_j·z_j/Σ_k s_k·z_k instead, the ratio of means: a softmax with ln s added to its logits, so that
every engine has it. It is exact in the second case and an approximation elsewhere: it says so (`caveat`), and what
it is off by is tested against draws.
"""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.arguments import whole
from posbias.core.errors import InvalidValueError
from posbias.core.spec import Citation, tag, value
from posbias.core.spec import Rows as Rates
from posbias.theory.any_length import AnyLength
from posbias.theory.distance import Distances, Logits, Tabulated

STEP, LEAST = 0.2, -40.0
"""The integral's step in ln t and where it begins: exact to rounding, as it is analytic for |Im ln t| < π/2."""


@value
class Selected(AnyLength):
    """ln s(d): logits of the rate at which a key at distance d is selected, measured or given.

    `rates` holds s for d = 0, 1, 2, …, above 0 and at most 1, one row for all heads or each (`selection_rates`). A
    text must not be longer. `after` holds those of keys after the query, d = −1, −2, …, as in `Tabulated`. For
    DeepSeek's sparse attention and others like it.
    """

    rates: Rates
    after: Rates | None = None
    kind: Literal["selected"] = tag(default="selected")
    cites: ClassVar[Citation] = ("deepseek2025", "sparse selection of keys")
    exact: ClassVar[bool] = False
    caveat: ClassVar[str] = (
        "selected tokens count by their rates; the mean of a softmax over what is selected is not the softmax of "
        "the means, unless always as many are selected and their logits are equal"
    )

    def __post_init__(self):
        numbers = [rate for row in (*self.rates, *(self.after or ())) for rate in row]
        if not 0 < min(numbers) <= max(numbers) <= 1:
            raise InvalidValueError(
                f"rates: from {min(numbers):g} to {max(numbers):g} given, numbers above 0 and at most 1 needed"
            )
        Tabulated(self.rates, self.after)

    def slopes_of(self, heads: int, groups: int | None = None) -> None:
        """None: the logit is not linear in the distance."""

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head. Raises `InvalidValueError` as `Tabulated`."""
        logits, after = (
            None if rows is None else tuple(tuple(np.log(row).tolist()) for row in rows)
            for rows in (self.rates, self.after)
        )
        assert logits is not None
        return Tabulated(logits, after).logits_at(distance, heads, groups)


def selection_rates(
    selected: Bool[np.ndarray, "text query key"], first: int = 0
) -> Float[np.ndarray, "distance"]:
    """How often a key at each distance is selected, over texts and queries: (times + ½)/(queries + 1).

    `first` is the first query that counts: earlier ones, which select all they see, say nothing. The half keeps a
    distance that was never selected above 0. Raises `InvalidValueError` for another shape.
    """
    selected = np.asarray(selected)
    if selected.dtype != bool or selected.ndim != 3 or selected.shape[1] != selected.shape[2]:
        raise InvalidValueError("selected: booleans [text, query, key] of one length needed")
    texts, tokens, _ = selected.shape
    start = min(whole("first", first, 0), tokens - 1)
    times = np.array([selected[:, range(max(d, start), tokens), range(max(d, start) - d, tokens - d)].sum()
                      for d in range(tokens)])  # fmt: skip
    seen = texts * (tokens - np.maximum(np.arange(tokens), start))
    return (times + 0.5) / (seen + 1.0)


def expected_row(
    rates: Float[np.ndarray, "key"], logits: Float[np.ndarray, "key"]
) -> Float[np.ndarray, "key"]:
    """The mean of a row of attention over keys that are selected independently at these rates, as the integral.

    A query that selects none has an empty row, so the sum is 1 − Π(1 − s). Within 1e-12; O(keys · 400) memory.
    """
    rates, weights = np.asarray(rates, float), np.exp(np.asarray(logits, float) - np.max(logits))
    grid = np.exp(np.arange(LEAST, 5.0 - np.log(weights.min()), STEP))
    decayed = grid[:, None] * weights
    with np.errstate(divide="ignore"):
        missed = np.where(rates == 1.0, -decayed, np.log1p(rates * np.expm1(-decayed)))
    others = missed.sum(axis=1, keepdims=True) - missed
    return rates * STEP * (decayed * np.exp(others - decayed)).sum(axis=0)
