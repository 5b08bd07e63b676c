"""Gaps at equal accuracy or loss, and after as many iterations: learning curves whose answer is known."""

from dataclasses import replace

import numpy as np
from trained_networks import gaps_of, outcome, pairs

from posbias_papers.wu2025 import Setting
from posbias_papers.wu2025.figures import at_equal

STEPS = np.arange(0, 2001, 50)
LEVELS = np.linspace(0.1, 0.6, 11).tolist()
ACCURACY = "in_context_accuracy"


def learner(speed, ceiling=1.0, seeds=(0, 1, 2), steps=STEPS):
    """Networks whose accuracy rises at their own pace and whose gap is a third of it."""
    pace = speed * (1 + 0.1 * np.arange(len(seeds)))[:, None]
    accuracy = ceiling * (1 - np.exp(-pace * steps / 1000))
    curves = {"iteration": steps, ACCURACY: accuracy, "first-last": 0.3 * accuracy, "loss": 3 - 2 * accuracy}
    gaps = gaps_of(pairs(0.1, 0.1, 0.0), networks=len(seeds))
    return outcome(Setting(), gaps, curves={name: np.asarray(one, float) for name, one in curves.items()})


def test_equal_stages_show_no_difference_though_equal_iterations_do():
    slow, fast = learner(0.5), learner(2.0)
    matched = at_equal(ACCURACY, fast, slow, LEVELS)
    np.testing.assert_array_equal(matched.points, LEVELS)
    for side in (matched.one, matched.other):
        np.testing.assert_allclose(side, np.tile(0.3 * matched.points, (3, 1)), atol=1e-12)
    timed = at_equal("iteration", fast, slow, STEPS.tolist())
    np.testing.assert_array_equal(timed.points, STEPS)
    assert timed.one.mean() - timed.other.mean() > 0.1


def test_the_first_time_counts_when_accuracy_falls_again():
    made = learner(1.0, seeds=(0,), steps=np.arange(5))
    made.curves[ACCURACY] = np.array([[0.0, 0.4, 0.2, 0.8, 0.5]])
    made.curves["first-last"] = np.array([[0.0, 1.0, 9.0, 4.0, 9.0]])
    np.testing.assert_allclose(
        at_equal(ACCURACY, made, made, [0.2, 0.4, 0.5, 0.8]).one[0], [0.5, 1.0, 6.5, 4.0]
    )


def test_equal_losses_are_met_from_above():
    matched = at_equal("loss", learner(2.0), learner(0.5), [2.8, 2.4, 0.5])
    np.testing.assert_allclose(matched.points, [2.8, 2.4])
    np.testing.assert_allclose(matched.one, np.tile([0.03, 0.09], (3, 1)), atol=1e-12)
    np.testing.assert_allclose(matched.other, matched.one, atol=1e-12)


def test_what_only_one_covers_is_left_out():
    low, high = learner(1.0, ceiling=0.3), learner(1.0)
    assert at_equal(ACCURACY, low, high, [0.1, 0.9]).points.tolist() == [0.1]
    high.curves[ACCURACY] = 0.5 + high.curves[ACCURACY] / 2
    assert at_equal(ACCURACY, low, high, LEVELS).points.size == 0
    short = learner(1.0, steps=np.arange(0, 1001, 40))
    assert at_equal("iteration", learner(1.0), short, STEPS.tolist()).points.max() == 1000


def test_stopped_networks_are_left_out():
    one = replace(learner(1.0), loss=np.array([1.0, 1.0, np.nan]))
    one.curves["first-last"][2] = np.nan
    matched = at_equal(ACCURACY, one, learner(2.0), LEVELS)
    assert matched.one.shape[0] == 2
    assert np.isfinite(matched.one).all()
    none = replace(one, loss=np.full(3, np.nan))
    assert at_equal(ACCURACY, none, one, LEVELS).points.size == 0
