"""Gaps at equal accuracy: learning curves whose answer is known."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from ensembles import SMALL, untrained

from posbias.core.errors import InvalidValueError
from posbias.core.store import dump_json
from posbias.theory.masks import Full
from posbias.training.loop import train
from posbias.training.network import Network
from posbias.training.probes import evaluate
from posbias.training.specification import Experiment
from posbias_papers.wu2025.matching import at_equal_accuracy, at_equal_iterations, at_equal_loss

STEPS = np.arange(0, 2001, 50)


def learner(speed: float, gap, ceiling: float = 1.0, seeds: tuple[int, ...] = (0, 1, 2), steps=STEPS):
    """Members whose accuracy rises at their own pace and whose gap is a function of it."""
    pace = speed * (1 + 0.1 * np.arange(len(seeds)))[:, None]
    accuracy = ceiling * (1 - np.exp(-pace * steps / 1000))
    made = untrained(Network(depth=1), seeds=seeds)
    curves = {"iteration": steps, "in_context_accuracy": accuracy, "first-last": gap(accuracy)}
    return replace(made, curves=curves)


def linear(accuracy):
    return 0.3 * accuracy


def test_equal_stages_show_no_difference_though_equal_iterations_do():
    slow, fast = learner(0.5, linear), learner(2.0, linear)
    matched = at_equal_accuracy(fast, slow)
    assert matched.points.size == 11
    assert matched.remark == ""
    np.testing.assert_allclose(matched.one, np.tile(0.3 * matched.points, (3, 1)), atol=1e-12)
    assert abs(matched.difference().value) < 1e-12
    timed = at_equal_iterations(fast, slow)
    np.testing.assert_array_equal(timed.points, STEPS)
    assert timed.difference().value > 0.1
    assert timed.difference().value > 4 * timed.difference().se


def test_a_difference_at_equal_stages_is_found_with_its_error():
    rng = np.random.default_rng(0)
    one = learner(2.0, lambda a: 0.3 * a + 0.1 + 0.02 * rng.standard_normal((len(a), 1)))
    other = learner(0.5, lambda a: 0.3 * a + 0.02 * rng.standard_normal((len(a), 1)), seeds=(0, 1, 2, 3))
    matched = at_equal_accuracy(one, other, levels=[0.2, 0.4])
    spread = np.hypot(
        *(side.std(axis=0, ddof=1) / math.sqrt(len(side)) for side in (matched.one, matched.other))
    )
    for found, error in zip(matched.differences, spread, strict=True):
        assert found.se == pytest.approx(error, abs=1e-12)
        assert abs(found.value - 0.1) <= 4 * found.se
    assert abs(matched.difference().value - 0.1) <= 4 * matched.difference().se


def test_the_first_time_counts_when_accuracy_falls_again():
    made = learner(1.0, linear, seeds=(0,), steps=np.arange(5))
    made.curves["in_context_accuracy"] = np.array([[0.0, 0.4, 0.2, 0.8, 0.5]])
    made.curves["first-last"] = np.array([[0.0, 1.0, 9.0, 4.0, 9.0]])
    matched = at_equal_accuracy(made, made, levels=[0.2, 0.4, 0.5, 0.8])
    np.testing.assert_allclose(matched.one[0], [0.5, 1.0, 6.5, 4.0])


def test_equal_losses_are_met_from_above():
    slow, fast = learner(0.5, linear), learner(2.0, linear)
    for one in (slow, fast):
        one.curves["loss"] = 3.0 - 2.0 * one.curves["in_context_accuracy"]
    matched = at_equal_loss(fast, slow, levels=[2.8, 2.4, 0.5])
    np.testing.assert_allclose(matched.points, [2.8, 2.4])
    np.testing.assert_allclose(matched.one, np.tile([0.03, 0.09], (3, 1)), atol=1e-12)
    np.testing.assert_allclose(matched.other, matched.one, atol=1e-12)
    assert all(0.9 < low < high == 3.0 for low, high in matched.ranges)
    assert "1 of 3 points are outside" in matched.remark
    assert at_equal_loss(fast, slow).points.size == 11


def test_without_a_common_range_there_is_nothing_to_compare():
    low = learner(1.0, linear, ceiling=0.3)
    high = learner(1.0, linear)
    high.curves["in_context_accuracy"] = 0.5 + high.curves["in_context_accuracy"] / 2
    matched = at_equal_accuracy(low, high)
    assert matched.points.size == 0
    assert math.isnan(matched.difference().value)
    assert "nothing to compare: the ensembles cover 0 … 0.25" in matched.remark
    told = json.loads(dump_json(matched.as_dict()))
    assert told["mean_difference"]["value"] is None


def test_points_outside_the_common_range_are_dropped_and_said():
    one, other = learner(1.0, linear, ceiling=0.5), learner(1.0, linear)
    matched = at_equal_accuracy(one, other, levels=[0.1, 0.3, 0.9])
    np.testing.assert_array_equal(matched.points, [0.1, 0.3])
    assert "1 of 3 points are outside" in matched.remark
    short = learner(1.0, linear, steps=np.arange(0, 1001, 40))
    timed = at_equal_iterations(one, short)
    assert timed.points.max() == 1000
    assert "20 of 41 points are outside" in timed.remark


def test_stopped_members_are_left_out():
    one = replace(learner(1.0, linear), stopped={2: 300})
    one.curves["first-last"][2] = np.nan
    matched = at_equal_accuracy(one, learner(2.0, linear))
    assert matched.one.shape[0] == 2
    assert math.isfinite(matched.difference().value)
    none = replace(one, stopped={0: 1, 1: 1, 2: 1})
    assert "nothing to compare" in at_equal_accuracy(none, one).remark


def test_the_curves_of_real_training_are_read_and_agree_with_the_final_evaluation():
    experiment = Experiment(SMALL, Network(depth=1), (0, 1, 2), 200, evaluate_every=20, learning_rate=1e-2)
    one = train(experiment)
    other = train(replace(experiment, network=Network(depth=1, mask=Full())))
    evaluation = evaluate(one, 1000)
    learnt = one.curves["in_context_accuracy"]
    assert learnt[:, -1].mean() > learnt[:, 0].mean()
    for pair, gap in evaluation.gaps.items():
        matched, timed = at_equal_accuracy(one, other, pair), at_equal_iterations(one, other, pair)
        assert matched.points.size == 11
        assert np.isfinite(matched.one).all()
        np.testing.assert_array_equal(timed.one, one.curves[pair])
        # the curves' own tests are 256 sequences, differences of at most 1
        error = math.hypot(gap.over_all.over_sequences.se, 1 / math.sqrt(3 * 256))
        assert abs(timed.one[:, -1].mean() - gap.all.value) <= 4 * error


def test_bad_input_is_named():
    one = learner(1.0, linear)
    with pytest.raises(InvalidValueError, match=r"pair: 'last-first' given, a curve of .*first-last needed"):
        at_equal_accuracy(one, one, "last-first")
    with pytest.raises(InvalidValueError, match=r"levels: \[0.2, 1.2\] given, accuracies from 0 to 1"):
        at_equal_accuracy(one, one, levels=[0.2, 1.2])
