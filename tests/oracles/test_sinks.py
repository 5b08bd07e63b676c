"""The sink metric and its two nulls: exact values, plain counts, and a sink that is there by construction."""

import math

import numpy as np
import pytest
import torch
from answers import as_json
from ensembles import SMALL, Ensemble, copier, plain_forward, scrambled, shown, untrained

from posbias.core.errors import InvalidValueError
from posbias.reports.answers.experiments import Sinks
from posbias.theory.encodings import DecayBias
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias.training.network import Network, Rotary, Sinusoidal, initial_weights
from posbias.training.sinks import LATER, sinks, uniform_exceeds, untrained_weights
from posbias.training.task import RetrievalTask

PAPER = RetrievalTask(classes=64)


def uniform_attention(network: Network, task: RetrievalTask = PAPER) -> Ensemble:
    made = untrained(network, task)
    return Ensemble(made.experiment, made.weights | {"query": torch.zeros_like(made.weights["query"])})


def test_uniform_causal_attention_scores_the_known_values():
    found = sinks(uniform_attention(Network(depth=2)), 50)
    metric = found.metric_uniform()
    np.testing.assert_allclose(metric[:4], [4 / 17, 3 / 16, 2 / 15, 1 / 14], rtol=1e-15)
    np.testing.assert_allclose(metric[:4], [0.235, 0.188, 0.133, 0.071], atol=6e-4)
    assert not metric[4:].any()
    assert not found.metric_uniform(start=LATER).any()


@pytest.mark.parametrize(("width", "expected"), [(5, 4 / 5), (9, 4 / 9), (13, 4 / 13)])
def test_uniform_window_attention_scores_the_known_values(width, expected):
    metric = sinks(untrained(Network(depth=1, mask=SlidingWindow(width)), PAPER), 5).metric_uniform()
    assert metric[0] == pytest.approx(expected, rel=1e-15)


def test_uniform_attention_is_counted_by_fractions():
    for mask in (Causal(), SlidingWindow(5), SlidingWindow(3, 1), Prefix(2), Prefix(6), Full()):
        allowed, counted = mask.allowed(17), uniform_exceeds(mask.allowed(17), (0.1, 0.2, 0.25, 0.5))
        for i, j in np.ndindex(17, 17):
            seen = int(allowed[i].sum())
            # 1/k > τ in whole numbers: k < 10, 5, 4, 2
            expected = [allowed[i, j] and seen < most for most in (10, 5, 4, 2)]
            np.testing.assert_array_equal(counted[i, j], expected)


@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(5), Prefix(4), Prefix(5), Full()], ids=str)
def test_networks_without_preference_score_the_uniform_null_exactly(mask):
    found = sinks(uniform_attention(Network(depth=2, mask=mask)), 30)
    np.testing.assert_array_equal(found.trained, np.broadcast_to(found.uniform, found.trained.shape))
    for start in (0, LATER):
        np.testing.assert_array_equal(
            found.metric(start=start), np.tile(found.metric_uniform(start=start), (2, 1))
        )


def test_untrained_networks_score_the_known_value():
    made = untrained(Network(depth=2), RetrievalTask(), seeds=(0, 1, 2, 3, 4))
    found = sinks(made, 500)
    assert found.metric_untrained()[:, 0].mean() == pytest.approx(0.265, abs=0.002)
    # these are the trained ones here: nothing beyond the untrained null, exactly
    assert found.beyond()["untrained"].value == 0.0
    assert found.beyond()["uniform"].value == pytest.approx(0.265 - 4 / 17, abs=0.002)


@pytest.mark.parametrize(
    "network",
    [
        Network(depth=2, residual=True, positional=Sinusoidal()),
        Network(depth=3, mask=SlidingWindow(4), positional=Rotary()),
        Network(depth=1, mask=Prefix(3), positional=DecayBias(0.22)),
        Network(depth=2, mask=Full()),
    ],
    ids=str,
)
def test_counts_are_those_of_a_plain_loop(network):
    sequences, levels = 20, (0.1, 0.2, 0.4)
    made = scrambled(network)
    found = sinks(made, sequences, thresholds=levels, seed=1)
    allowed, n, depth = network.mask.allowed(9), 9, network.depth
    before = Ensemble(made.experiment, untrained(network).weights)
    for ensemble, metric in ((made, found.metric), (before, found.metric_untrained)):
        for member, seed in enumerate(made.experiment.seeds):
            attentions = [
                plain_forward(ensemble, member, tokens)[1] for tokens, _ in shown(SMALL, seed, sequences, 2)
            ]
            for place, level in enumerate(levels):
                for start in (0, 5):
                    expected = np.full((depth, n), np.nan)
                    for t, j in np.ndindex(depth, n):
                        rows = [i for i in range(start, n) if allowed[i, j]]
                        over = [one[t][i, j] > level for one in attentions for i in rows]
                        if rows:
                            expected[t, j] = np.sum(over) / sequences / len(rows)
                    both = metric(levels[place], start=start)[member]
                    # float32 may put one weight in a thousand on the other side of the level
                    np.testing.assert_allclose(both, expected.mean(axis=0), atol=0.006)
                    for t in range(depth):
                        single = metric(level, layer=t, start=start)[member]
                        np.testing.assert_allclose(single, expected[t], atol=0.006)


def test_a_network_that_looks_at_one_token_has_a_sink_there_and_both_nulls_say_so():
    found = sinks(copier(RetrievalTask(dimension=128, classes=64), 0), 100, starts=(0, 16))
    last = found.trained[:, 0, 1, 1, found.thresholds.index(0.2)]
    assert (last == 1).all()
    assert found.metric(start=16)[:, 1].min() == 1.0
    assert found.metric_uniform(start=16)[1] == 0.0
    for null in found.beyond(1, start=16).values():
        assert null.value - 4 * null.se > 0.5


def test_the_curve_falls_and_holds_the_metric():
    found = sinks(scrambled(Network(depth=2)), 40)
    for start in (0, LATER):
        curves = found.curve(2, start)
        at = found.thresholds.index(0.2)
        np.testing.assert_array_equal(curves["trained"][:, at], found.metric(start=start)[:, 2])
        np.testing.assert_array_equal(curves["untrained"][:, at], found.metric_untrained(start=start)[:, 2])
        assert curves["uniform"][0, at] == found.metric_uniform(start=start)[2]
        for values in curves.values():
            assert (np.diff(values, axis=1) <= 0).all()


def test_keys_that_no_later_query_sees_have_no_metric():
    found = sinks(untrained(Network(depth=1, mask=SlidingWindow(3))), 5)
    metric = found.metric(start=5)
    assert np.isnan(metric[:, :3]).all()
    assert np.isfinite(metric[:, 3:]).all()
    written = as_json(Sinks.of_sinks(found))
    assert written["later_queries"]["uniform"][0] is None


def test_the_untrained_null_is_where_the_members_began():
    made = scrambled(Network(depth=2), seeds=(3, 8))
    fresh = untrained_weights(made)
    for member, seed in enumerate((3, 8)):
        for name, weights in initial_weights(2, SMALL, [seed]).items():
            assert torch.equal(fresh[name][member], weights[0])


def test_stopped_members_have_no_metric_but_a_null():
    made = untrained(Network(depth=1))
    found = sinks(Ensemble(made.experiment, made.weights, stopped={1: 5}), 5)
    assert np.isnan(found.metric()[1]).all()
    assert np.isfinite(found.metric()[0]).all()
    assert np.isfinite(found.metric_untrained()).all()
    assert found.beyond()["uniform"].n == 1
    assert math.isnan(found.beyond()["uniform"].se)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda made: sinks(made, 0), "sequences: 0 given"),
        (lambda made: sinks(made, 5, thresholds=(0.2, 1.0)), "thresholds: .* from 0 up to below 1 needed"),
        (lambda made: sinks(made, 5, thresholds=()), "thresholds: "),
        (
            lambda made: sinks(made, 5).metric(0.21),
            "threshold: 0.21 given, one that was counted needed: 0.05",
        ),
        (lambda made: sinks(made, 5).metric(layer=1), "layer: 1 given, a layer from 0 to 0 needed"),
        (lambda made: sinks(made, 5).metric(start=4), "start: 4 given, one that was counted needed: 0, 5"),
        (lambda made: sinks(made, 5, starts=(-1,)), "start: -1 given"),
        (lambda made: sinks(made, 5, starts=(0, 9)), "start: 9 given, a query from 0 to 8 needed"),
        (lambda made: sinks(made, 5).curve(9), "key: 9 given, a token from 0 to 8 needed"),
        (lambda made: sinks(made, 5).beyond(-1), "key: -1 given"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(InvalidValueError, match=said):
        call(untrained(Network(depth=1)))
