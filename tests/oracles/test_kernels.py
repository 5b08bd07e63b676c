"""Rollouts of trained kernels against theory and gaps: plain loops, networks without content, and verdicts."""

import math

import numpy as np
import pytest
from answers import as_json
from ensembles import SMALL, Ensemble, copier, last_label, plain_forward, scrambled, shown, untrained

from posbias.core.errors import InvalidValueError
from posbias.reports.answers.experiments import GapAgreement
from posbias.reports.answers.experiments import Rollout as RolloutPart
from posbias.theory.architecture import Architecture
from posbias.theory.encodings import DecayBias
from posbias.theory.masks import Full, Prefix, SlidingWindow
from posbias.theory.mixing import PerLayer
from posbias.theory.rollout.kernel import dense_influence
from posbias.training.experiments import Experiment
from posbias.training.kernels import CARRIERS, LABELS, Rollout, agreement, trained_rollout
from posbias.training.loop import train
from posbias.training.network import Network, Rotary, Sinusoidal
from posbias.training.probes import Averages, Evaluation, Gap, evaluate
from posbias.training.task import RetrievalTask

PAPER = RetrievalTask(dimension=128, classes=64)
NETWORKS = [
    Network(depth=2),
    Network(depth=2, residual=True, positional=Sinusoidal()),
    Network(depth=3, residual=True, mask=SlidingWindow(4), positional=Rotary()),
    Network(depth=2, residual=True, mask=Prefix(3), positional=DecayBias(0.22)),
]


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_kernels_mixing_and_rollouts_are_those_of_a_plain_loop(network):
    sequences, n = 15, SMALL.tokens
    made = scrambled(network)
    rollout = trained_rollout(made, sequences)
    for member, seed in enumerate(made.experiment.seeds):
        found = [plain_forward(made, member, tokens) for tokens, _ in shown(SMALL, seed, sequences, 1)]
        kernels = np.mean([one[1] for one in found], axis=0)
        lam = np.mean([one[2] for one in found], axis=0) if network.residual else np.ones(network.depth)
        np.testing.assert_allclose(rollout.attention[member], kernels, rtol=2e-4, atol=1e-6)
        np.testing.assert_allclose(rollout.mixing[member], lam, rtol=1e-5)
        for name, share in (("attention", np.ones(network.depth)), ("residual", lam)):
            product = np.eye(n)
            for kernel, part in zip(kernels, share, strict=True):
                product = ((1 - part) * np.eye(n) + part * kernel) @ product
            if name in rollout.profiles:
                np.testing.assert_allclose(rollout.profiles[name][member], product[-1], rtol=1e-4, atol=1e-7)
    for masses in rollout.profiles.values():
        np.testing.assert_allclose(masses.sum(axis=1), 1.0, rtol=1e-6)
    expected = list(LABELS) if network.residual else ["attention", "theory"]
    assert list(rollout.profiles) == expected


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_the_theory_is_that_of_the_architecture(network):
    rollout = trained_rollout(scrambled(network), 5)
    expected = dense_influence(network.architecture(), SMALL.tokens)
    np.testing.assert_allclose(rollout.profiles["theory"], np.tile(expected, (2, 1)), rtol=1e-12, atol=1e-300)
    if network.residual:
        for member in range(2):
            mixing = PerLayer(tuple(rollout.mixing[member].tolist()))
            measured = Architecture(network.depth, network.architecture().layers, mixing)
            np.testing.assert_allclose(
                rollout.profiles["theory_measured"][member],
                dense_influence(measured, SMALL.tokens),
                rtol=1e-12,
                atol=1e-300,
            )
    left_out = isinstance(network.positional, Rotary | Sinusoidal)
    assert left_out == any("mask and mixing only" in one for one in rollout.assumptions)


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


def test_a_profile_is_the_mean_over_members():
    network = Network(depth=2, residual=True)
    rollout = trained_rollout(train(Experiment(SMALL, network, (0, 1, 2), iterations=20)), 50)
    profile = rollout.profile("residual")
    masses = rollout.profiles["residual"]
    np.testing.assert_allclose(profile.mass, masses.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(profile.se, masses.std(axis=0, ddof=1) / math.sqrt(3))
    assert profile.query == SMALL.tokens - 1


def test_masses_of_items_and_predicted_gaps_by_hand():
    mass = np.array([[0.10, 0.05, 0.20, 0.15, 0.0, 0.0, 0.12, 0.30, 0.08]])
    rollout = Rollout(np.zeros((1, 1, 9, 9)), np.ones((1, 1)), {"attention": mass}, (), 1)
    np.testing.assert_allclose(rollout.of_items("attention"), [[0.05, 0.15, 0.0, 0.30]])
    np.testing.assert_allclose(rollout.of_items("attention", "item"), [[0.10, 0.20, 0.0, 0.12]])
    np.testing.assert_allclose(rollout.of_items("attention", "both"), [[0.15, 0.35, 0.0, 0.42]])
    assert rollout.gap("attention", 0, 3)[0] == pytest.approx(-0.25 / 0.35)
    assert rollout.gap("attention", 3, 0)[0] == pytest.approx(0.25 / 0.35)
    assert rollout.gap("attention", 0, 2)[0] == 1.0
    assert rollout.gap("attention", 2, 2)[0] == 0.0


def test_answering_in_proportion_to_label_mass_gives_the_predicted_gap():
    # the claim behind `gap`: labels drawn at random with chances p(y_a), p(y_b) among the two
    rng = np.random.default_rng(0)
    a, b = 0.15, 0.05
    tells_a = rng.random(20_000) < a / (a + b)
    gap = tells_a.mean() - (~tells_a).mean()
    assert abs(gap - (a - b) / (a + b)) <= 4 * 2 * math.sqrt(0.25 * 0.75 / 20_000)


@pytest.mark.parametrize("residual", [False, True])
def test_a_network_that_copies_the_last_label_agrees_with_its_own_rollout(residual):
    made = last_label(PAPER, residual=residual)
    evaluation, rollout = evaluate(made, 200), trained_rollout(made, 50)
    for name, found in agreement(rollout, evaluation).items():
        assert found.predicted["first-last"].value == pytest.approx(-1.0), name
        assert found.signs["first-last"] == found.signs["middle-last"] == "holds"
        assert found.orders["first-middle > first-last"] == "holds"
        assert found.order == "holds"


def test_a_network_that_copies_the_first_label_contradicts_a_recency_profile():
    made = copier(PAPER, 0)
    evaluation = evaluate(made, 200)
    own = trained_rollout(made, 50)
    assert agreement(own, evaluation)["attention"].signs["first-last"] == "holds"
    assert agreement(own, evaluation)["attention"].predicted["first-last"].value == pytest.approx(1.0)
    recency = trained_rollout(last_label(PAPER), 50)
    found = agreement(recency, evaluation)["theory"]
    assert found.signs["first-last"] == "fails"
    assert found.order == "fails"


def evaluation_of(gaps: dict[str, list[float]], error: float = 0.01) -> Evaluation:
    places = {"first-middle": (0, 2), "first-last": (0, 3), "middle-last": (2, 3)}

    def averages(values: list[float]) -> Averages:
        given = np.array(values)
        return Averages(given, np.full(given.shape, error), np.full(given.shape, 100))

    made = {
        name: Gap(*places[name], averages(values), averages(values), np.ones(len(values)))
        for name, values in gaps.items()
    }
    none = averages([0.5] * len(gaps["first-last"]))
    empty = np.zeros((len(none.values), 4))
    return Evaluation((0,), 100, 0, made, none, none, empty, empty, 1.0, {})


def rollout_of(labels: list[list[float]]) -> Rollout:
    mass = np.zeros((len(labels), 9))
    mass[:, 1:8:2] = labels
    mass[:, 8] = 1.0 - mass.sum(axis=1)
    return Rollout(np.zeros((len(labels), 1, 9, 9)), np.ones((len(labels), 1)), {"attention": mass}, (), 1)


PRIMACY = [[0.4, 0.2, 0.2, 0.1]] * 3


@pytest.mark.parametrize(
    ("labels", "gaps", "sign", "order"),
    [
        (PRIMACY, [0.30, 0.31, 0.32], "holds", "undecided"),
        (PRIMACY, [-0.30, -0.31, -0.32], "fails", "undecided"),
        (PRIMACY, [-0.1, 0.1, 0.02], "undecided", "undecided"),
        # three members need 4.3 standard errors: this mean is 3.5 of its own from zero
        (PRIMACY, [0.10, 0.04, 0.10], "undecided", "undecided"),
        # no preference predicted
        ([[0.2, 0.2, 0.2, 0.2]] * 3, [0.30, 0.31, 0.32], "fails", "undecided"),
        # a prediction that is noise itself
        (
            [[0.2, 0.1, 0.1, 0.3], [0.3, 0.1, 0.1, 0.2], [0.21, 0.1, 0.1, 0.2]],
            [0.30, 0.31, 0.32],
            "undecided",
            "undecided",
        ),
        # one member: its error over sequences decides
        (PRIMACY[:1], [0.3], "holds", "undecided"),
        (PRIMACY[:1], [0.01], "undecided", "undecided"),
    ],
)
def test_signs_hold_fail_or_stay_undecided(labels, gaps, sign, order):
    evaluation = evaluation_of(dict.fromkeys(("first-middle", "first-last", "middle-last"), gaps))
    found = agreement(rollout_of(labels), evaluation)["attention"]
    assert found.signs["first-last"] == sign
    assert found.order == order


def test_orders_hold_or_fail_where_gaps_differ_significantly():
    noise = np.array([-0.001, 0.0, 0.001])
    # predicted: first-middle .33, first-last .6, middle-last .33
    for first_middle, first_last, expected in ((0.1, 0.3, "holds"), (0.3, 0.1, "fails")):
        gaps = {
            "first-middle": (first_middle + noise).tolist(),
            "first-last": (first_last - noise).tolist(),
            "middle-last": (first_middle + noise[::-1] / 2).tolist(),
        }
        found = agreement(rollout_of(PRIMACY), evaluation_of(gaps))["attention"]
        assert found.orders["first-middle > first-last"] == expected
        assert found.order == expected
        written = as_json(GapAgreement.of(found))
        assert written["order"] == expected
        assert written["label"] == LABELS["attention"]


def test_stopped_members_are_left_out():
    made = scrambled(Network(depth=2, residual=True), seeds=(0, 1, 2))
    weights = made.weights | {"value": made.weights["value"].clone()}
    weights["value"][2] = math.nan
    lame = Ensemble(made.experiment, weights, stopped={2: 5})
    rollout = trained_rollout(lame, 10)
    whole = trained_rollout(made, 10)
    for name, masses in rollout.profiles.items():
        assert np.isnan(masses[2]).all()
        np.testing.assert_allclose(masses[:2], whole.profiles[name][:2], rtol=1e-6)
    assert rollout.profile("residual").tokens == SMALL.tokens
    assert as_json(RolloutPart.of(rollout))["profiles"]["residual"][2][0] is None
    for found in agreement(rollout, evaluate(lame, 20)).values():
        assert found.predicted["first-last"].n == 2
    none = trained_rollout(Ensemble(made.experiment, weights, stopped={0: 1, 1: 1, 2: 1}), 5)
    with pytest.raises(InvalidValueError, match="every member was stopped"):
        none.profile("theory")


def test_bad_input_is_named():
    rollout = rollout_of(PRIMACY)
    with pytest.raises(InvalidValueError, match="carrier: 'y' given, one of label, item, both needed"):
        rollout.of_items("attention", "y")  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="name: 'theory' given, one of attention needed"):
        rollout.profile("theory")
    with pytest.raises(InvalidValueError, match="sequences: 0 given"):
        trained_rollout(untrained(Network(depth=1)), 0)
    assert list(CARRIERS) == ["label", "item", "both"]
