"""A number that differs from network to network: its mean, its spread and its sign, with errors over networks."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.profiles.estimate import Estimate


@dataclass(frozen=True)
class OverNetworks:
    """Recency probabilities, network by network and layer by layer, and what they say about all networks.

    `share` is a network's mean over its inputs, `noise` the variance of that mean, `halves` the means over the
    even and the odd inputs. All properties are one `Estimate` per layer, with errors over networks.
    """

    share: Float[np.ndarray, "network layer"]
    noise: Float[np.ndarray, "network layer"]
    halves: Float[np.ndarray, "2 network layer"]

    @property
    def recency_probability(self) -> tuple[Estimate, ...]:
        """The mean over networks; ½ is no preference, or none that networks agree on."""
        return _per_layer(self.share)

    @property
    def variance(self) -> tuple[Estimate, ...]:
        """The variance over networks without that of the inputs; it estimates without bias, so below 0 too."""
        networks = len(self.share)
        if networks < 2:
            return tuple(Estimate(math.nan, math.nan, 1) for _ in self.share[0])
        apart = (self.share - self.share.mean(axis=0)) ** 2 * (networks / (networks - 1))
        return _per_layer(apart - self.noise)

    @property
    def strength(self) -> tuple[Estimate, ...]:
        """The mean over networks of |RP − ½| as far as other inputs tell its sign, times the sign they tell.

        One half of the inputs gives the sign, the other the size, and the other way round. Noise alone gives 0
        in the mean, and never more than the mean of |RP − ½|, which it tends to with the number of inputs.
        """
        first, second = self.halves - 0.5
        return _per_layer((first * np.sign(second) + second * np.sign(first)) / 2.0)

    @property
    def recent(self) -> tuple[Estimate, ...]:
        """The share of networks measured above ½; its error is no finer than one network."""
        shares = _per_layer((np.sign(self.share - 0.5) + 1.0) / 2.0)
        return tuple(replace(share, se=max(share.se, 1.0 / len(self.share))) for share in shares)

    def as_dict(self) -> list[dict[str, Any]]:
        """One dictionary per layer, for JSON; an error that one network does not have is None."""
        kinds = ("recency_probability", "variance", "strength", "recent")
        layers = zip(*(getattr(self, kind) for kind in kinds), strict=True)
        return [
            {"layer": layer + 1}
            | {kind: _plain(estimate) for kind, estimate in zip(kinds, estimates, strict=True)}
            for layer, estimates in enumerate(layers)
        ]


def _per_layer(samples: Float[np.ndarray, "network layer"]) -> tuple[Estimate, ...]:
    return tuple(Estimate.of_mean(column) for column in samples.T)


def _plain(estimate: Estimate) -> dict[str, float | None]:
    pair = {"value": estimate.value, "se": estimate.se}
    return {name: number if math.isfinite(number) else None for name, number in pair.items()}
