"""How influence falls with distance: what the study computes of gradients, on curves that are known."""

import itertools

import numpy as np
import pytest

from posbias.profiles.estimate import Estimate
from posbias_papers.extensions.jacobian import (
    DISTANCES,
    EDGES,
    PLACES,
    TOKENS,
    by_distance,
    exponent,
    held_out,
)


def test_bins_have_every_distance_up_to_half_of_the_prompt_once():
    assert EDGES[0] == 1
    assert EDGES[-1] == TOKENS // 2 == min(PLACES)
    assert (np.diff(EDGES) > 0).all()


def test_medians_by_distance_are_those_of_the_definition():
    draw = np.random.default_rng(0)
    rows = draw.uniform(0.1, 1.0, size=(len(PLACES), TOKENS))
    found = by_distance(rows)
    for place, (low, high) in enumerate(itertools.pairwise(EDGES)):
        all_of = [
            row[query - r] / row[query]
            for row, query in zip(rows, PLACES, strict=True)
            for r in range(low, high)
        ]
        assert found[place] == pytest.approx(np.median(all_of))


def test_a_power_of_the_distance_is_told_from_what_was_measured():
    """Twelve prompts with 20 % of noise: the interval holds the exponent, the exponential is surely farther."""
    draw, keys = np.random.default_rng(1), np.arange(TOKENS)
    medians = []
    for _ in range(12):
        rows = [0.02 + (np.abs(query - keys) + 1.0) ** -0.8 for query in PLACES]
        medians.append(by_distance(np.array(rows) * np.exp(0.2 * draw.normal(size=(len(PLACES), TOKENS)))))
    found = {"distances": DISTANCES.tolist(), "medians": medians}
    low, high = exponent(found).interval
    assert low < 0.8 < high < low + 0.4
    scores = held_out(found)
    assert Estimate.of_mean(scores["exponential"] - scores["power"]).interval[0] > 0.0
    assert scores["median"].mean() < scores["none"].mean()


def test_each_half_is_judged_by_the_other():
    """A prompt that differs from all others deviates itself, and spoils the fits of the other half alone."""
    curve = (DISTANCES + 1.0) ** -1.0
    medians = np.tile(curve, (2, 1))
    medians[0] *= 2.0
    scores = held_out({"distances": DISTANCES.tolist(), "medians": medians})
    assert scores["median"] == pytest.approx([np.log(2.0)] * 2)
    assert scores["power"] == pytest.approx([np.log(2.0)] * 2, abs=1e-3)
