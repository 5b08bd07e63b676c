"""How often intervals of retrieval asked in words hold the truth."""

import numpy as np
import pytest

from posbias.retrieval.resampling import resampled

DRAWS = 400


@pytest.mark.parametrize(
    ("sets", "first", "middle"), [(20, 0.9, 0.6), (64, 0.9, 0.6), (64, 0.5, 0.5), (200, 0.97, 0.9)]
)
def test_intervals_of_places_and_of_gaps_hold_the_truth(sets, first, middle):
    """At least 92 % of 95 % intervals, less four standard errors of the trial (.01 each at 400 draws)."""
    random = np.random.default_rng(7)
    held = np.zeros(2)
    for draw in range(DRAWS):
        hard = random.random((sets, 1)) * 0.5 + random.random((sets, 2)) * 0.5
        # hard sets are hard at both places; a sum of two halves is below its own quantile with the wanted rate
        cut = [_quantile(first), _quantile(middle)]
        hits = (hard < cut).astype(float)
        samples = np.stack([hits[:, 0], hits[:, 0] - hits[:, 1]], axis=1)
        place, gap = resampled(samples, [(0, 1), (-1, 1)], draw)
        held += [
            place.interval[0] <= first <= place.interval[1],
            gap.interval[0] <= first - middle <= gap.interval[1],
        ]
    assert (held / DRAWS >= 0.92 - 0.04).all(), held / DRAWS


def _quantile(rate):
    """Of the mean of two even numbers, the point below which it lies with this rate."""
    return np.sqrt(rate / 2) if rate <= 0.5 else 1 - np.sqrt((1 - rate) / 2)
