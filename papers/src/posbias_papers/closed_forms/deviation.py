"""What a closed form is off by: relative deviations from found scores, against the dimension.

The closed forms of `layernorm` factor the second layer's scores below the diagonal into
g(i)·h(j). The two are asked apart, of the last query i: the rise of h, S_i,i−1/S_i0 − 1 = h(i−1)/h(0) − 1
(Eq. 42), and the level S_i0 = g(i)·h(0) (Eqs. 5, 33, 41; without LayerNorm Eq. 19). A form that is right for
large dimensions has deviations that go to zero, and the slope in double logarithmic axes says how fast.

What was found may be simulated (`posbias.simulation`) or integrated (`posbias_papers.closed_forms.recency`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from posbias.core.errors import InvalidValueError, one_of, whole
from posbias_papers.closed_forms.layernorm import (
    ReadingName,
    isotropic_scores,
    log_key_factors,
    scores_without_layernorm,
    second_layer_scores,
)

QuantityName = Literal["rise", "level"]
QUANTITIES: tuple[QuantityName, ...] = ("rise", "level")
NOISIEST = 0.2
"""A found value with a standard error of more than this share of it is left out."""


@dataclass(frozen=True)
class DeviationCurve:
    """predicted/found − 1 at each dimension, with its standard error (0 where found without sampling)."""

    dimension: Int[np.ndarray, "point"]
    deviation: Float[np.ndarray, "point"]
    se: Float[np.ndarray, "point"]

    @property
    def known(self) -> "np.ndarray":
        """Where the deviation is significant: beyond two standard errors."""
        return np.abs(self.deviation) > 2.0 * self.se


def closed_form(
    quantity: QuantityName,
    tokens: int,
    dimension: int,
    anisotropy: float = 0.0,
    *,
    residual: bool = False,
    layernorm: bool = True,
    reading: ReadingName = "corrected",
) -> float:
    """The rise S_i,i−1/S_i0 − 1 or the level S_i0 of the last query in the second layer, in closed form.

    At α = 0 without residual the level is that of Eq. 5. Without LayerNorm only that of Eq. 19 has a closed
    form: `InvalidValueError` for a rise, an anisotropy or a residual there; for an unknown quantity, fewer than
    3 tokens, and as `second_layer_scores`.
    """
    one_of("quantity", quantity, QUANTITIES)
    whole("tokens", tokens, 3)
    model = {"residual": residual, "reading": reading}
    if not layernorm:
        if quantity == "rise" or anisotropy or residual:
            raise InvalidValueError(
                "layernorm: False given, needed for all but the level at anisotropy 0 without residual"
            )
        scores = scores_without_layernorm(tokens, dimension, reading=reading)
    elif quantity == "rise":
        return math.expm1(log_key_factors(tokens, dimension, anisotropy, **model)[-2])
    elif anisotropy or residual:
        scores = second_layer_scores(tokens, dimension, anisotropy, **model)
    else:
        scores = isotropic_scores(tokens, dimension, reading=reading)
    return float(scores[-1, 0])


def deviation_curve(
    quantity: QuantityName,
    found: Mapping[int, tuple[float, float]],
    tokens: int,
    anisotropy: float = 0.0,
    *,
    residual: bool = False,
    layernorm: bool = True,
    reading: ReadingName = "corrected",
) -> DeviationCurve:
    """`closed_form` against what was `found`: dimension → (value, standard error).

    Values with an error of more than `NOISIEST` of them are left out: a deviation from them says nothing.
    Raises `InvalidValueError` as `closed_form`.
    """
    rows = []
    for dimension, (value, se) in sorted(found.items()):
        if se <= NOISIEST * abs(value):
            predicted = closed_form(
                quantity, tokens, dimension, anisotropy,
                residual=residual, layernorm=layernorm, reading=reading,
            )  # fmt: skip
            rows.append((dimension, predicted / value - 1.0, abs(predicted) * se / value**2))
    dimensions, deviation, error = zip(*rows, strict=True) if rows else ((), (), ())
    return DeviationCurve(np.array(dimensions, dtype=int), np.array(deviation), np.array(error))
