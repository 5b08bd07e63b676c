"""Gaps, accuracies and attention maps of trained ensembles: against plain loops and networks known by hand."""

import math

import numpy as np
import pytest
import torch
from answers import as_json
from ensembles import SMALL, Ensemble, copier, last_label, plain_forward, scrambled, shown, untrained

from posbias.core.errors import InvalidValueError
from posbias.reports.answers.experiments import Average, Cell
from posbias.theory.encodings import DecayBias, NoPE
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias.training.kernels import attention_example, attention_maps
from posbias.training.network import Network, Rotary, Sinusoidal
from posbias.training.probes import (
    Averages,
    alone,
    average,
    blocks,
    compared,
    estimate_members,
    evaluate,
    gap_of,
    largest_gap,
    paired_gap,
)
from posbias.training.results import measure_cell
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


@pytest.fixture
def short_blocks(monkeypatch):
    """Blocks of 20, so that 30 sequences take two."""
    monkeypatch.setattr("posbias.training.task.BLOCK", 20)


def plain_gap(made: Ensemble, member: int, first: int, second: int) -> tuple[list[int], list[bool]]:
    """Paired differences and informativeness, one sequence at a time."""
    task, seed = made.experiment.task, made.experiment.seeds[member]
    differences, informative = [], []
    drawn = novel_sequences(task, make_world(task, [seed]), 1, SEQUENCES, place=(first, second))
    tests = drawn.paired(first, second)
    for s in range(SEQUENCES):
        right = [
            int(
                np.argmax(plain_forward(made, member, side.tokens[0, s].numpy())[0]) == int(side.target[0, s])
            )
            for side in (tests.first, tests.second)
        ]
        differences.append(right[0] - right[1])
        informative.append(int(tests.first.target[0, s]) != int(tests.second.target[0, s]))
    return differences, informative


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_gaps_are_those_of_a_plain_loop(network, short_blocks):
    made = scrambled(network)
    gap = paired_gap(made, 0, 3, SEQUENCES)
    for member in range(2):
        differences, informative = (np.array(one) for one in plain_gap(made, member, 0, 3))
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
        for s, (tokens, target) in enumerate(shown(task, seed, SEQUENCES, 1, item)):
            logits = plain_forward(made, member, tokens)[0]
            right[member, item, s] = np.argmax(logits) == target
            entropy[member, item, s] = np.log(np.exp(logits - logits[target]).sum())
    curve = evaluation.accuracy_alone if sharp else evaluation.accuracy_by_position
    np.testing.assert_allclose(curve, right.mean(axis=2), atol=1e-15)
    if not sharp:
        accuracy, loss = evaluation.in_context_accuracy, evaluation.loss
        np.testing.assert_allclose(accuracy.values, right.mean(axis=(1, 2)), atol=1e-15)
        np.testing.assert_allclose(loss.values, entropy.mean(axis=(1, 2)), rtol=1e-5)
        error = entropy.mean(axis=1).std(axis=1, ddof=1) / math.sqrt(SEQUENCES)
        np.testing.assert_allclose(loss.errors, error, rtol=1e-4)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_attention_maps_are_means_of_plain_attention(network, short_blocks):
    made = scrambled(network)
    maps = attention_maps(made, SEQUENCES, seed=3)
    for member, seed in enumerate(made.experiment.seeds):
        found = [plain_forward(made, member, tokens)[1] for tokens, _ in shown(SMALL, seed, SEQUENCES, 4)]
        np.testing.assert_allclose(maps[member], np.mean(found, axis=0), rtol=2e-4, atol=1e-6)
        if member == 0:
            for sequence in (0, SEQUENCES - 1):
                example = attention_example(made, sequence, seed=3)
                np.testing.assert_allclose(example, found[sequence], rtol=2e-4, atol=1e-6)
    np.testing.assert_allclose(maps.sum(axis=-1), 1.0, rtol=1e-6)
    assert not maps[:, :, ~network.mask.allowed(SMALL.tokens)].any()


@pytest.mark.parametrize(("item", "sign"), [(0, (1, 1, 0)), (4, (-1, 0, 1)), (7, (0, -1, -1))])
def test_a_network_that_copies_one_label_shows_the_largest_gaps(item, sign):
    evaluation = evaluate(copier(PAPER, item), 500)
    assert evaluation.largest_gap == pytest.approx(0.5536, abs=1e-4)
    for gap, expected in zip(evaluation.gaps.values(), sign, strict=True):
        if expected:
            assert (gap.over_informative.values == expected).all()
            # a copied label is right on both sides of an uninformative sequence
            np.testing.assert_allclose(gap.over_all.values, expected * gap.share, atol=1e-12)
            found = gap.over_all.over_sequences
            assert abs(found.value - expected * evaluation.largest_gap) <= 4 * found.se
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


def test_predictions_fed_by_hand():
    # predicted: the first item's label, always
    labels = np.array([[[1, 1], [1, 2], [3, 0], [2, 2]]])
    first, second = labels[..., 0], labels[..., 1]
    gap = gap_of(0, 3, first == first, first == second, first != second)
    assert gap.over_informative.values == 1.0
    assert gap.over_all.values == gap.share == 0.5
    back = gap_of(3, 0, first == second, first == first, first != second)
    assert back.over_informative.values == -1.0


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


def test_a_member_has_the_same_numbers_in_any_company():
    made = scrambled(NETWORKS[0], seeds=(4, 2, 9))
    whole, one = evaluate(made, 100), evaluate(made.member(1), 100)
    for name, gap in whole.gaps.items():
        # float32 rounding may turn an answer over: one in a hundred at most
        assert gap.over_all.values[1] == pytest.approx(one.gaps[name].over_all.values[0], abs=0.011)
    assert whole.loss.values[1] == pytest.approx(one.loss.values[0], rel=1e-5)
    np.testing.assert_allclose(attention_maps(made, 50)[1], attention_maps(made.member(1), 50)[0], atol=1e-6)


def test_members_and_sets_have_sequences_of_their_own():
    made = scrambled(NETWORKS[0], seeds=(0, 1))
    drawn = [next(blocks(made, 10, number)).asking().tokens for number in (0, 1)]
    items = [tokens[:, 0::2] for batch in drawn for tokens in batch]
    for a in range(4):
        for b in range(a):
            assert not torch.equal(items[a], items[b])


def test_errors_over_sequences_are_what_repeated_tests_show():
    made = last_label(PAPER, seeds=(0,))
    gaps = [paired_gap(made, 0, 7, 60, seed=seed).over_all for seed in range(100)]
    values = np.array([gap.values[0] for gap in gaps])
    said = math.sqrt(np.mean([gap.errors[0] ** 2 for gap in gaps]))
    # the standard deviation of 100 values is known to 7 %; four of these
    assert values.std(ddof=1) == pytest.approx(said, rel=0.29)
    assert abs(values.mean() + largest_gap(PAPER)) <= 4 * said / 10


def test_averages_and_estimates_by_hand():
    made = average(np.array([[1.0, 3.0, 9.0], [2.0, 5.0, 5.0]]), np.array([[True, True, False], [True] * 3]))
    np.testing.assert_allclose(made.values, [2.0, 4.0])
    np.testing.assert_allclose(made.errors, [1.0, 1.0])
    assert made.over_members == estimate_members(np.array([2.0, 4.0]))
    assert made.over_members.se == pytest.approx(1.0)
    assert made.over_sequences.se == pytest.approx(math.sqrt(2) / 2)
    assert made.over_sequences.n == 5
    same = estimate_members(np.array([0.1, 0.1, 0.1]))
    assert (same.value, same.se, same.n) == (0.1, 0.0, 3)
    nothing = average(np.zeros((1, 2)), np.zeros((1, 2), dtype=bool))
    assert math.isnan(nothing.over_members.value)
    assert math.isnan(nothing.over_sequences.value)
    one = Average.of(Averages(np.array([0.5]), np.array([0.1]), np.array([9])))
    assert as_json(one) == {"value": 0.5, "se": None, "se_sequences": pytest.approx(0.1), "members": [0.5]}


def test_stopped_members_are_left_out_and_the_rest_stay():
    made = scrambled(NETWORKS[0], seeds=(0, 1, 2))
    broken = {name: one.clone() for name, one in made.weights.items()}
    broken["value"][2] = math.nan
    lame = Ensemble(made.experiment, broken, stopped={0: 17})
    found, whole = evaluate(lame, 40), evaluate(made, 40)
    gap = found.gaps["first-last"]
    np.testing.assert_array_equal(np.isnan(gap.over_all.values), [True, False, True])
    assert gap.all.n == 1
    assert gap.all.value == whole.gaps["first-last"].over_all.values[1]
    assert found.loss.over_sequences.n == 40
    assert np.isnan(attention_maps(lame, 10)[[0, 2]]).all()
    written = as_json(Average.of(gap.over_all))
    assert written["members"][0] is None
    assert written["se"] is None
    none = evaluate(Ensemble(made.experiment, broken, stopped={0: 17, 1: 3}), 10)
    assert math.isnan(none.gaps["first-last"].all.value)


def test_a_cell_in_json_begins_with_the_gaps():
    written = as_json(Cell.of(measure_cell(untrained(Network(depth=1)), 20)))
    assert list(written)[:2] == ["gaps", "accuracy_by_position"]
    assert list(written["gaps"]) == ["first-middle", "first-last", "middle-last"]
    assert {"value", "se", "se_sequences", "informative"} <= set(written["gaps"]["first-middle"])
    assert len(written["accuracy_by_position"]["value"]) == len(written["accuracy_alone"]["se"]) == 4


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: evaluate(m, 0), "sequences: 0 given, an integer ≥ 1 needed"),
        (lambda m: evaluate(m, 2.5), "sequences: 2.5 given"),
        (lambda m: evaluate(m, 10, seed=-1), "seed: -1 given, an integer ≥ 0 needed"),
        (lambda m: attention_maps(m, True), "sequences: True given"),
        (lambda m: paired_gap(m, 0, 4), "second: 4 given, an item from 0 to 3 needed"),
        (lambda m: paired_gap(m, -1, 3), "first: -1 given"),
        (lambda m: paired_gap(m, 2, 2), "second: 2 given, another item"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(InvalidValueError, match=said):
        call(untrained(Network(depth=1, mask=Causal(), positional=NoPE())))


def test_too_few_items_to_compare_are_refused():
    task = RetrievalTask(items=2, burstiness=1, dimension=8, classes=8, labels=2)
    with pytest.raises(InvalidValueError, match="three different items needed"):
        compared(task)
    with pytest.raises(InvalidValueError, match="first 0, middle 3, last 3"):
        evaluate(untrained(Network(depth=1), RetrievalTask(**{**vars_of(SMALL), "middle": 3})), 10)


def vars_of(task: RetrievalTask) -> dict:
    return {name: getattr(task, name) for name in ("items", "dimension", "classes", "labels", "burstiness")}
