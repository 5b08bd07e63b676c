"""Logits that depend only on the distance between query and key.

With distance d = i − j ≥ 0, each of these adds −m·d to the logits of a head: no encoding is m = 0, ALiBi gives
every head its slope, a decay mask gives all heads one rate. `exact` says whether that is the whole truth
about the encoding, or whether part of it acts through queries and keys and needs a measurement.
"""

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field

from posbias.errors import InvalidValueError
from posbias.spec import NonNegative, NonNegatives, Positive, tag, value


@value
class NoPE:
    """No positional encoding: every admissible key gets the same logit."""

    kind: Literal["nope"] = tag(default="nope")
    exact: ClassVar[bool] = True

    def slopes_of(self, heads: int) -> Float[np.ndarray, "head"]:
        """Decay of the logit per token of distance: zero."""
        return np.zeros(heads)


@value
class ALiBi:
    """Linear biases: head h adds −m_h·(i − j) to its logits (Press et al. 2022).

    `slopes` is one number ≥ 0 per head (or one for all) in the units of the softmax; left out, the standard
    ones of `alibi_slopes`. `scale` multiplies them, for models that divide by √d_head after adding the bias.
    """

    slopes: NonNegatives | None = None
    scale: Positive = 1.0
    kind: Literal["alibi"] = tag(default="alibi")
    exact: ClassVar[bool] = True

    def slopes_of(self, heads: int) -> Float[np.ndarray, "head"]:
        """Decay of the logit per token of distance. Raises `InvalidValueError` if the count is not `heads`."""
        if self.slopes is None:
            return self.scale * alibi_slopes(heads)
        if len(self.slopes) not in (1, heads):
            raise InvalidValueError(f"slopes: {len(self.slopes)} given, one or {heads} (one per head) needed")
        return self.scale * np.broadcast_to(np.array(self.slopes, dtype=np.float64), heads)


@value
class Decay:
    """The decay mask: every head adds −m·(i − j), one rate m ≥ 0 for all (Wu et al. 2025, §4.2)."""

    rate: NonNegative
    kind: Literal["decay"] = tag(default="decay")
    exact: ClassVar[bool] = True

    def slopes_of(self, heads: int) -> Float[np.ndarray, "head"]:
        """Decay of the logit per token of distance: the rate, for every head."""
        return np.full(heads, self.rate)


@value
class NeedsMeasurement:
    """An encoding that acts through queries and keys; without a measured model its part is left out.

    Rotary and learned encodings have no logit by distance that the configuration alone would give. What is
    computed with this is mask and residual mixing only, and every output says so.
    """

    encoding: str
    kind: Literal["needs_measurement"] = tag(default="needs_measurement")
    exact: ClassVar[bool] = False

    def slopes_of(self, heads: int) -> Float[np.ndarray, "head"]:
        """Decay of the logit per token of distance: zero, the part that is known."""
        return np.zeros(heads)


Positional = Annotated[NoPE | ALiBi | Decay | NeedsMeasurement, Field(discriminator="kind")]
"""The positional encodings."""

POSITIONALS = (NoPE, ALiBi, Decay, NeedsMeasurement)
"""Every class of the union, for tests, menus and tables."""


def alibi_slopes(heads: int, bias_max: float = 8.0) -> Float[np.ndarray, "head"]:
    """The slopes that BLOOM and MPT use for any number of heads.

    For H a power of two, 2^(−8h/H) with h = 1 … H (Press et al. 2022, §3). Otherwise the slopes of the next
    lower power of two, followed by every second one of the next higher. Raises `InvalidValueError` for heads < 1.
    """
    if heads < 1:
        raise InvalidValueError(f"heads: {heads} given, at least one needed")
    lower = 2 ** math.floor(math.log2(heads))
    slopes = 2.0 ** (-bias_max / lower * np.arange(1, lower + 1))
    between = 2.0 ** (-bias_max / (2 * lower) * np.arange(1, 2 * lower, 2))
    return np.concatenate([slopes, between])[:heads]
