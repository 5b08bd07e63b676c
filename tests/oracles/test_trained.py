"""What is measured of trained networks: gaps, accuracies, attention, rollouts and sinks by plain loops."""

import math

import numpy as np
import pytest
import torch
from answers import as_json
from dense import dense_influence, last_row
from ensembles import SMALL, Ensemble, copier, last_label, plainly, scrambled, shown, untrained
from refused import refused

from posbias.core.errors import InvalidValueError
from posbias.reports.answers.experiments import Average
from posbias.theory.architecture import Architecture
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias.theory.mixing import PerLayer
from posbias.theory.positional import DecayBias
from posbias.training.kernels import LABELS, Rollout, agreement, trained_rollout
from posbias.training.network import Network, Rotary, Sinusoidal
from posbias.training.probes import (
    Averages,
    Evaluation,
    Gap,
    alone,
    compared,
    evaluate,
    largest_gap,
    paired_gap,
)
from posbias.training.sinks import LATER, sinks
from posbias.training.task import RetrievalTask, make_world, novel_sequences

SEQUENCES = 30
PAPER = RetrievalTask(dimension=128, classes=64)
"""The paper's task in more dimensions, so that networks made by hand never err."""
NETWORKS = [
    Network(depth=2),
    Network(depth=2, residual=True, positional=Sinusoidal()),
    Network(depth=3, residual=True, mask=SlidingWindow(4), positional=Rotary()),
    Network(depth=1, mask=Prefix(3), positional=DecayBias(0.22)),
    Network(depth=2, mask=Full()),
]
PREFIX = Network(depth=2, residual=True, mask=Prefix(3), positional=DecayBias(0.22))


@pytest.fixture
def short_blocks(monkeypatch):
    """Blocks of 20, so that 30 sequences take two."""
    monkeypatch.setattr("posbias.training.task.BLOCK", 20)


def plain_gap(made: Ensemble, member: int, first: int, second: int) -> tuple[np.ndarray, np.ndarray]:
    """Paired differences and informativeness of each sequence."""
    task, seed = made.experiment.task, made.experiment.seeds[member]
    drawn = novel_sequences(task, make_world(task, [seed]), 1, SEQUENCES, place=(first, second))
    tests = drawn.paired(first, second)
    both = [(side.tokens[0], side.target[0].numpy()) for side in (tests.first, tests.second)]
    right = [1 * (plainly(made, member, tokens)[0].argmax(axis=1) == target) for tokens, target in both]
    return right[0] - right[1], both[0][1] != both[1][1]


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_gaps_are_those_of_a_plain_loop(network, short_blocks):
    made = scrambled(network)
    gap = paired_gap(made, 0, 3, SEQUENCES)
    for member in range(2):
        differences, informative = plain_gap(made, member, 0, 3)
        decided = differences[informative]
        assert gap.over_all.values[member] == pytest.approx(differences.mean(), abs=1e-15)
        assert gap.over_all.errors[member] == pytest.approx(differences.std(ddof=1) / math.sqrt(SEQUENCES))
        assert gap.over_informative.values[member] == pytest.approx(decided.mean(), abs=1e-15)
        assert gap.over_informative.errors[member] == pytest.approx(
            decided.std(ddof=1) / math.sqrt(decided.size)
        )
        assert gap.share[member] == informative.mean()


@pytest.mark.parametrize("sharp", [False, True])
def test_loss_and_accuracies_are_those_of_a_plain_loop(sharp, short_blocks):
    made = scrambled(NETWORKS[1])
    task = alone(SMALL) if sharp else SMALL
    evaluation = evaluate(made, SEQUENCES)
    right, entropy = np.zeros((2, 4, SEQUENCES)), np.zeros((2, 4, SEQUENCES))
    for member, item in np.ndindex(2, 4):
        seed = made.experiment.seeds[member]
        tokens, target = shown(task, seed, SEQUENCES, 1, item)
        logits = plainly(made, member, tokens)[0]
        own = logits[np.arange(SEQUENCES), target.numpy()]
        right[member, item] = logits.argmax(axis=1) == target.numpy()
        entropy[member, item] = np.log(np.exp(logits - own[:, None]).sum(axis=1))
    curve = evaluation.accuracy_alone if sharp else evaluation.accuracy_by_position
    np.testing.assert_allclose(curve, right.mean(axis=2), atol=1e-15)
    if not sharp:
        accuracy, loss = evaluation.in_context_accuracy, evaluation.loss
        np.testing.assert_allclose(accuracy.values, right.mean(axis=(1, 2)), atol=1e-15)
        np.testing.assert_allclose(loss.values, entropy.mean(axis=(1, 2)), rtol=1e-5)
        error = entropy.mean(axis=1).std(axis=1, ddof=1) / math.sqrt(SEQUENCES)
        np.testing.assert_allclose(loss.errors, error, rtol=1e-4)


@pytest.mark.parametrize(("item", "sign"), [(0, (1, 1, 0)), (4, (-1, 0, 1)), (7, (0, -1, -1))])
def test_a_network_that_copies_one_label_shows_the_largest_gaps(item, sign):
    evaluation = evaluate(copier(PAPER, item), 500)
    assert largest_gap(PAPER) == pytest.approx(0.5536, abs=1e-4)
    for gap, expected in zip(evaluation.gaps.values(), sign, strict=True):
        if expected:
            assert (gap.over_informative.values == expected).all()
            # a copied label is right on both sides of an uninformative sequence
            np.testing.assert_allclose(gap.over_all.values, expected * gap.share, atol=1e-12)
            found = gap.over_all.over_sequences
            assert abs(found.value - expected * largest_gap(PAPER)) <= 4 * found.se
        else:
            found = gap.over_informative.over_sequences
            assert abs(found.value) <= 4 * found.se
    others = np.arange(8) != item
    assert (evaluation.accuracy_by_position[:, item] == 1).all()
    assert (evaluation.accuracy_alone[:, item] == 1).all()
    # elsewhere the copied label is right by chance: same class 3/7, or same label 1/32
    for values, chance in (
        (evaluation.accuracy_by_position, 3 / 7 + 4 / 7 / 32),
        (evaluation.accuracy_alone, 1 / 32),
    ):
        spread = math.sqrt(chance * (1 - chance) / (3 * 500))
        assert (np.abs(values[:, others].mean(axis=0) - chance) <= 4 * spread).all()


@pytest.mark.parametrize(
    "task",
    [PAPER, SMALL, RetrievalTask(items=12, burstiness=3, dimension=2, classes=9, labels=5)],
    ids=["paper", "small", "three of a class"],
)
def test_the_largest_gap_is_the_share_of_informative_sequences(task):
    drawn = novel_sequences(task, make_world(task, [0]), 1, 5_000)
    share = drawn.paired(0, task.items - 1).informative.double().mean()
    expected = largest_gap(task)
    assert abs(float(share) - expected) <= 4 * math.sqrt(expected * (1 - expected) / 5_000)


def test_alone_shows_the_asked_class_once():
    task = alone(
        RetrievalTask(items=8, burstiness=4, classes=4, labels=2, within_class_noise=0.0, dimension=8)
    )
    tokens = novel_sequences(task, make_world(task, [0]), 1, 50).asking(5).tokens[0]
    same = (tokens[:, 0:16:2] - tokens[:, -1:]).abs().amax(dim=2) < 1e-6
    assert same[:, 5].all()
    assert (same.sum(dim=1) == 1).all()


def test_stopped_members_are_left_out_of_every_measure_and_the_rest_stay():
    made = scrambled(Network(depth=2, residual=True), seeds=(0, 1, 2))
    broken = made.weights | {"value": made.weights["value"].clone()}
    broken["value"][2] = math.nan
    lame, none = (
        Ensemble(made.experiment, broken, stopped=dict.fromkeys(gone, 1)) for gone in ((0,), (0, 1))
    )
    found, whole = evaluate(lame, 40), evaluate(made, 40)
    gap = found.gaps["first-last"]
    np.testing.assert_array_equal(np.isnan(gap.over_all.values), [True, False, True])
    assert (gap.all.n, gap.all.value) == (1, whole.gaps["first-last"].over_all.values[1])
    assert found.loss.over_sequences.n == 40
    assert as_json(Average.of(gap.over_all))["members"][0] is None
    assert math.isnan(evaluate(none, 10).gaps["first-last"].all.value)
    rollout, whole = trained_rollout(lame, 10), trained_rollout(made, 10)
    for name, masses in rollout.profiles.items():
        assert np.isnan(masses[[0, 2]]).all()
        np.testing.assert_allclose(masses[1], whole.profiles[name][1], rtol=1e-6)
    assert {one.predicted["first-last"].n for one in agreement(rollout, found).values()} == {1}
    with pytest.raises(InvalidValueError):
        trained_rollout(none, 5).profile("theory")
    beyond = sinks(Ensemble(made.experiment, made.weights, stopped={0: 5, 1: 5}), 5)
    assert np.isnan(beyond.metric()[:2]).all()
    assert np.isfinite(beyond.metric()[2]).all()
    assert np.isfinite(beyond.metric(of="untrained")).all()


def test_errors_over_sequences_are_what_repeated_tests_show():
    made = last_label(PAPER, seeds=(0,))
    gaps = [paired_gap(made, 0, 7, 60, seed=seed).over_all for seed in range(100)]
    values = np.array([gap.values[0] for gap in gaps])
    said = math.sqrt(np.mean([gap.errors[0] ** 2 for gap in gaps]))
    # the standard deviation of 100 values is known to 7 %; four of these
    assert values.std(ddof=1) == pytest.approx(said, rel=0.29)
    assert abs(values.mean() + largest_gap(PAPER)) <= 4 * said / 10


# --- rollouts of trained kernels against theory and gaps -------------------------------------------------


@pytest.mark.parametrize("network", [*NETWORKS, PREFIX], ids=str)
def test_kernels_mixing_and_rollouts_are_those_of_a_plain_loop(network, short_blocks):
    n = SMALL.tokens
    made = scrambled(network)
    rollout = trained_rollout(made, SEQUENCES, seed=3)
    for member, seed in enumerate(made.experiment.seeds):
        _, attention, mixing = plainly(made, member, shown(SMALL, seed, SEQUENCES, 4)[0])
        kernels = attention.mean(axis=0)
        lam = mixing.mean(axis=0) if network.residual else np.ones(network.depth)
        np.testing.assert_allclose(rollout.attention[member], kernels, rtol=2e-4, atol=1e-6)
        np.testing.assert_allclose(rollout.mixing[member], lam, rtol=1e-5)
        for name, share in (("attention", np.ones(network.depth)), ("residual", lam)):
            if name in rollout.profiles:
                row = last_row(kernels, share)
                np.testing.assert_allclose(rollout.profiles[name][member], row, rtol=1e-4, atol=1e-7)
        # the theory is that of the architecture, with the mixing given or as measured
        architecture = network.architecture()
        expected = {"theory": dense_influence(architecture, n)}
        if network.residual:
            measured = PerLayer(tuple(rollout.mixing[member].tolist()))
            layers = Architecture(network.depth, architecture.layers, measured)
            expected["theory_measured"] = dense_influence(layers, n)
        for name, mass in expected.items():
            np.testing.assert_allclose(rollout.profiles[name][member], mass, rtol=1e-12, atol=1e-300)
    for name, masses in rollout.profiles.items():
        np.testing.assert_allclose(masses.sum(axis=1), 1.0, rtol=1e-6)
        np.testing.assert_allclose(rollout.profile(name).mass, masses.mean(axis=0), rtol=1e-6)
    assert list(rollout.profiles) == (list(LABELS) if network.residual else ["attention", "theory"])
    assert not rollout.attention[:, :, ~network.mask.allowed(n)].any()


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("mask", [SlidingWindow(9), SlidingWindow(3), Prefix(4), Full()], ids=str)
@pytest.mark.parametrize("positional", [Network().positional, DecayBias(0.22)], ids=["none", "decay"])
def test_networks_that_ignore_content_follow_the_theory_exactly(mask, positional, residual):
    network = Network(depth=3, residual=residual, mask=mask, positional=positional)
    made = untrained(network)
    blind = Ensemble(made.experiment, made.weights | {"query": 0 * made.weights["query"]})
    rollout = trained_rollout(blind, 10)
    pairs = [("residual", "theory_measured")] if residual else [("attention", "theory")]
    for own, theory in pairs:
        np.testing.assert_allclose(rollout.profiles[own], rollout.profiles[theory], rtol=1e-5, atol=1e-9)


def test_predicted_gaps_by_hand():
    mass = np.array([[0.10, 0.05, 0.20, 0.15, 0.0, 0.0, 0.12, 0.30, 0.08]])
    rollout = Rollout(np.zeros((1, 1, 9, 9)), np.ones((1, 1)), {"attention": mass}, (), 1)
    assert rollout.gap("attention", 0, 3)[0] == pytest.approx(-0.25 / 0.35)
    assert rollout.gap("attention", 3, 0)[0] == pytest.approx(0.25 / 0.35)
    assert rollout.gap("attention", 0, 2)[0] == 1.0
    assert rollout.gap("attention", 2, 2)[0] == 0.0


def rollout_of(labels: list[list[float]]) -> Rollout:
    mass = np.zeros((len(labels), 9))
    mass[:, 1:8:2] = labels
    mass[:, 8] = 1.0 - mass.sum(axis=1)
    return Rollout(np.zeros((len(labels), 1, 9, 9)), np.ones((len(labels), 1)), {"attention": mass}, (), 1)


def test_a_network_that_copies_a_label_agrees_with_its_own_rollout_and_contradicts_the_other():
    copies = {
        "last": last_label(PAPER),
        "last, residual": last_label(PAPER, residual=True),
        "first": copier(PAPER, 0),
    }
    rollouts = {name: trained_rollout(made, 50) for name, made in copies.items()}
    evaluations = {name: evaluate(made, 200) for name, made in copies.items()}
    for name in ("last", "last, residual"):
        for found in agreement(rollouts[name], evaluations[name]).values():
            assert found.predicted["first-last"].value == pytest.approx(-1.0)
            assert found.signs["first-last"] == found.signs["middle-last"] == "holds"
            assert found.orders["first-middle > first-last"] == found.order == "holds"
    own = agreement(rollouts["first"], evaluations["first"])["attention"]
    assert (own.signs["first-last"], own.predicted["first-last"].value) == ("holds", pytest.approx(1.0))
    recency = agreement(rollouts["last"], evaluations["first"])["theory"]
    assert (recency.signs["first-last"], recency.order) == ("fails", "fails")


PRIMACY = [[0.4, 0.2, 0.2, 0.1]] * 3
NOISY = [[0.2, 0.1, 0.1, 0.3], [0.3, 0.1, 0.1, 0.2], [0.21, 0.1, 0.1, 0.2]]


def evaluation_of(first_middle, first_last, middle_last) -> Evaluation:
    """The gaps of members, each with an error over sequences of 0.01."""
    places = {"first-middle": (0, 2), "first-last": (0, 3), "middle-last": (2, 3)}
    members, gaps = len(first_last), {}
    for name, values in zip(places, (first_middle, first_last, middle_last), strict=True):
        over = Averages(np.array(values), np.full(members, 0.01), np.full(members, 100))
        gaps[name] = Gap(*places[name], over, over, np.ones(members))
    none = Averages(*np.full((2, members), 0.5), np.ones(members, dtype=int))
    empty = np.zeros((members, 4))
    return Evaluation(100, 0, gaps, none, none, empty, empty)


@pytest.mark.parametrize(
    ("labels", "gaps", "sign"),
    [
        (PRIMACY, [0.30, 0.31, 0.32], "holds"),
        (PRIMACY, [-0.30, -0.31, -0.32], "fails"),
        (PRIMACY, [-0.1, 0.1, 0.02], "undecided"),
        # three members need 4.3 standard errors: this mean is 4 of its own from zero
        (PRIMACY, [0.10, 0.04, 0.10], "undecided"),
        # no preference predicted
        ([[0.2] * 4] * 3, [0.30, 0.31, 0.32], "fails"),
        # a prediction that is noise itself
        (NOISY, [0.30, 0.31, 0.32], "undecided"),
        # one member: its error over sequences decides
        (PRIMACY[:1], [0.3], "holds"),
        (PRIMACY[:1], [0.01], "undecided"),
    ],
)
def test_signs_hold_fail_or_stay_undecided(labels, gaps, sign):
    found = agreement(rollout_of(labels), evaluation_of(gaps, gaps, gaps))["attention"]
    assert (found.signs["first-last"], found.order) == (sign, "undecided")


@pytest.mark.parametrize(("near", "far", "order"), [(0.1, 0.3, "holds"), (0.3, 0.1, "fails")])
def test_orders_hold_or_fail_where_gaps_surely_differ(near, far, order):
    """Predicted: first-middle .33, first-last .6, middle-last .33."""
    noise = np.array([-0.001, 0.0, 0.001])
    evaluation = evaluation_of(near + noise, far - noise, near + noise[::-1] / 2)
    found = agreement(rollout_of(PRIMACY), evaluation)["attention"]
    assert found.orders["first-middle > first-last"] == found.order == order


# --- sinks and their two nulls ---------------------------------------------------------------------------


SINKS = RetrievalTask(classes=64)


def uniform_attention(network: Network, task: RetrievalTask = SINKS) -> Ensemble:
    made = untrained(network, task)
    return Ensemble(made.experiment, made.weights | {"query": torch.zeros_like(made.weights["query"])})


def test_known_networks_score_the_known_values():
    found = sinks(uniform_attention(Network(depth=2)), 50)
    np.testing.assert_allclose(
        found.metric(of="uniform")[0][:4], [4 / 17, 3 / 16, 2 / 15, 1 / 14], rtol=1e-15
    )
    assert not found.metric(of="uniform")[0][4:].any()
    assert not found.metric(start=LATER, of="uniform")[0].any()
    for width in (5, 9, 13):
        metric = sinks(untrained(Network(depth=1, mask=SlidingWindow(width)), SINKS), 5).metric(of="uniform")[
            0
        ]
        assert metric[0] == pytest.approx(4 / width, rel=1e-15)
    found = sinks(untrained(Network(depth=2), RetrievalTask(), seeds=(0, 1, 2, 3, 4)), 500)
    assert found.metric(of="untrained")[:, 0].mean() == pytest.approx(0.265, abs=0.002)
    # these are the trained ones here: nothing beyond the untrained null, exactly
    np.testing.assert_array_equal(found.metric(), found.metric(of="untrained"))
    for layer in (2, -1, True, 0.5):
        with pytest.raises(InvalidValueError, match=r"^layer:"):
            found.metric(layer=layer)
    # keys that no later query sees have no metric
    metric = sinks(untrained(Network(depth=1, mask=SlidingWindow(3))), 5).metric(start=5)
    np.testing.assert_array_equal(np.isfinite(metric[0]), np.arange(9) >= 3)


@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(5), Prefix(4), Prefix(5), Full()], ids=str)
def test_networks_without_preference_score_the_uniform_null_exactly(mask):
    found = sinks(uniform_attention(Network(depth=2, mask=mask)), 30)
    np.testing.assert_array_equal(found.trained, np.broadcast_to(found.uniform, found.trained.shape))
    for start in (0, LATER):
        np.testing.assert_array_equal(
            found.metric(start=start), np.tile(found.metric(start=start, of="uniform")[0], (2, 1))
        )


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
    found = sinks(made, sequences, seed=1)
    allowed, n, depth = network.mask.allowed(9), 9, network.depth
    before = Ensemble(made.experiment, untrained(network).weights)
    for ensemble, of in ((made, "trained"), (before, "untrained")):
        for member, seed in enumerate(made.experiment.seeds):
            attentions = plainly(ensemble, member, shown(SMALL, seed, sequences, 2)[0])[1]
            for place, level in enumerate(levels):
                for start in (0, 5):
                    expected = np.full((depth, n), np.nan)
                    for t, j in np.ndindex(depth, n):
                        rows = [i for i in range(start, n) if allowed[i, j]]
                        over = [one[t][i, j] > level for one in attentions for i in rows]
                        if rows:
                            expected[t, j] = np.sum(over) / sequences / len(rows)
                    both = found.metric(levels[place], start=start, of=of)[member]
                    # float32 may put one weight in a thousand on the other side of the level
                    np.testing.assert_allclose(both, expected.mean(axis=0), atol=0.006)
                    for t in range(depth):
                        single = found.metric(level, layer=t, start=start, of=of)[member]
                        np.testing.assert_allclose(single, expected[t], atol=0.006)


def test_the_curve_falls_and_holds_the_metric():
    found = sinks(scrambled(Network(depth=2)), 40)
    curves, at = found.curve(), found.thresholds.index(0.2)
    np.testing.assert_array_equal(curves["trained"][:, at], found.metric()[:, 0])
    np.testing.assert_array_equal(curves["untrained"][:, at], found.metric(of="untrained")[:, 0])
    assert curves["uniform"][0, at] == found.metric(of="uniform")[0][0]
    assert all((np.diff(values, axis=1) <= 0).all() for values in curves.values())


def test_what_cannot_be_measured_is_refused():
    made = untrained(Network(depth=1))
    calls = lambda: evaluate(made, 2.5), lambda: trained_rollout(made, 0), lambda: sinks(made, 0)
    refused("sequences", *calls)
    refused("seed", lambda: evaluate(made, 10, seed=-1))
    refused("second", lambda: paired_gap(made, 0, 4), lambda: paired_gap(made, 2, 2))
    refused("middle", lambda: compared(RetrievalTask(items=2, burstiness=1, classes=8, labels=2)))
    refused("name", lambda: rollout_of(PRIMACY).profile("theory"))
    refused("threshold", lambda: sinks(made, 5).metric(0.21))
    refused("start", lambda: sinks(made, 5).metric(start=4))
