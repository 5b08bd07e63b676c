"""The training loop: members are independent, AdamW is torch's, NaN stops one and no other."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from ensembles import member_of
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from setting import logged
from torch import nn

from posbias.theory.masks import Full, SlidingWindow
from posbias.training import loop
from posbias.training.experiments import Experiment, compatible
from posbias.training.loop import train
from posbias.training.network import ENCODINGS, Network, forward, initial_weights, wire
from posbias.training.task import Batch, Feed, RetrievalTask, make_world, novel_sequences

TASK = RetrievalTask(items=4, dimension=16, classes=32, labels=4, burstiness=2)
BASE = Experiment(TASK, Network(2), (0, 1, 2), iterations=40, batch=32, evaluate_every=20)
MIXED = [
    BASE,
    Experiment(TASK, Network(2, True, SlidingWindow(3), ENCODINGS["rope"]), (1,), 40, 32, evaluate_every=20),
    Experiment(
        dataclasses.replace(TASK, answers=(0, 3), inputs="fixed_vocabulary", classes=20),
        Network(2, True, Full(), ENCODINGS["sinusoidal"]),
        (0, 7),
        iterations=40,
        batch=32,
        evaluate_every=20,
    ),
    Experiment(TASK, Network(2, positional=ENCODINGS["decay"]), (5,), 40, 32, evaluate_every=20),
]


def alike(one, other, tolerance):
    """Weights agree to `tolerance` of their size."""
    for name, weight in one.weights.items():
        assert float((weight - other.weights[name]).abs().max()) <= tolerance * float(weight.abs().max()), (
            name
        )


def test_a_member_of_an_ensemble_is_its_solo_run():
    """20 iterations in float32; AdamW amplifies rounding where a gradient is near zero, hence 1e-3 of a weight."""
    mixed = [dataclasses.replace(one, iterations=20, evaluate_every=20) for one in MIXED]
    together = train(mixed, threads=1)
    for experiment, ensemble_run in zip(mixed, together, strict=True):
        for index, seed in enumerate(experiment.seeds):
            solo = train(dataclasses.replace(experiment, seeds=(seed,)), threads=1)
            member = member_of(ensemble_run, index)
            assert member.experiment == solo.experiment
            alike(member, solo, 1e-3)
            assert member.curves["loss"] == pytest.approx(solo.curves["loss"], rel=1e-5)
            for name in ("accuracy", "in_context_accuracy", "first-middle", "first-last", "middle-last"):
                assert member.curves[name] == pytest.approx(solo.curves[name], abs=0.02)


def test_members_depend_on_nobody_to_the_bit():
    """The same shapes with another neighbour: not one bit differs."""
    one, other = (dataclasses.replace(BASE, seeds=seeds) for seeds in ((0, 1, 2), (4, 1, 9)))
    first, second = (member_of(train(each, threads=1), 1) for each in (one, other))
    assert all(torch.equal(weight, second.weights[name]) for name, weight in first.weights.items())
    for name, curve in first.curves.items():
        assert np.array_equal(curve, second.curves[name])


@pytest.mark.parametrize("weight_decay", [0.0, 1e-6, 0.3])
def test_training_is_torch_adamw_on_a_solo_network(weight_decay):
    """Weights after 15 steps, against torch's unfused AdamW on each member's tensors, stepping alone."""
    experiment = dataclasses.replace(
        BASE, iterations=15, evaluate_every=15, weight_decay=weight_decay, learning_rate=1e-2
    )
    trained = train(experiment, threads=1)
    for index, seed in enumerate(experiment.seeds):
        weights = {name: nn.Parameter(one) for name, one in initial_weights(2, TASK, [seed]).items()}
        wiring = wire([experiment.network], TASK.tokens, TASK.dimension)
        optimiser = torch.optim.AdamW(
            weights.values(), lr=1e-2, weight_decay=weight_decay, foreach=False, fused=False
        )
        losses, right, feed = [], [], Feed([TASK], [seed], 32)
        for iteration in range(15):
            batch = Batch(*feed.batch(iteration))
            logits = forward(weights, wiring, batch.tokens)[0]
            loss = nn.functional.cross_entropy(logits, batch.target[0])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
            right.append(float((logits.argmax(-1) == batch.target[0]).double().mean()))
        own = member_of(trained, index)
        for name, one in weights.items():
            assert float((own.weights[name] - one.detach()).abs().max()) <= 2e-4 * float(
                one.detach().abs().max()
            )
        assert own.curves["loss"][0, 0] == pytest.approx(np.mean(losses), rel=1e-5)
        assert own.curves["accuracy"][0, 0] == pytest.approx(np.mean(right), abs=0.005)


def test_the_curves_are_what_they_are_called():
    trained = train(dataclasses.replace(BASE, iterations=50), threads=1)
    curves = trained.curves
    assert curves["iteration"].tolist() == [20, 40, 50]
    for name, curve in curves.items():
        assert curve.shape == ((3,) if name == "iteration" else (3, 3))
    assert curves["loss"][:, 0] == pytest.approx(math.log(4), abs=0.3)
    # the three gaps are differences of shares of the same number of sequences
    for name in ("first-middle", "first-last", "middle-last"):
        assert np.allclose(curves[name] * loop.FEWEST, np.round(curves[name] * loop.FEWEST))
    drawn = novel_sequences(TASK, make_world(TASK, [1]), loop.TEST_SET, loop.FEWEST)
    test, member = drawn.asking(), member_of(trained, 1)
    logits = forward(member.weights, wire([BASE.network], TASK.tokens, TASK.dimension), test.tokens)
    accuracy = float((logits.argmax(-1) == test.target).double().mean())
    assert member.curves["in_context_accuracy"][0, -1] == pytest.approx(accuracy, abs=1 / loop.FEWEST)


def test_training_ends_when_everyone_is_stopped():
    with logged() as said:
        trained = train(dataclasses.replace(BASE, learning_rate=1e30, iterations=10_000), threads=1)
    assert set(trained.stopped) == {0, 1, 2}
    assert len(said) == 3
    assert trained.curves["iteration"][-1] <= 200


@given(iterations=st.integers(1, 10**6), every=st.none() | st.integers(1, 2 * 10**6))
def test_curves_end_at_the_last_iteration(iterations, every):
    points = dataclasses.replace(BASE, iterations=iterations, evaluate_every=every).points
    assert points[-1] == iterations
    assert all(a < b for a, b in itertools.pairwise(points))
    if every is None and iterations >= 4000:
        assert len(points) == 40
        steps = np.diff(np.log(points))
        assert points[0] == pytest.approx(iterations / 100, abs=0.5)
        assert steps == pytest.approx(np.full(39, math.log(100) / 39), abs=0.04)


def test_watching_changes_nothing():
    seldom = train(dataclasses.replace(BASE, evaluate_every=1000), threads=1)
    often = train(dataclasses.replace(BASE, evaluate_every=10), threads=1)
    assert all(torch.equal(weight, often.weights[name]) for name, weight in seldom.weights.items())
    assert seldom.curves["loss"][:, 0] == pytest.approx(
        np.average(often.curves["loss"], axis=1, weights=np.diff(often.curves["iteration"], prepend=0)),
        rel=1e-6,
    )


def test_products_are_in_float32_whatever_torch_was_set_to():
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    for matmul.fp32_precision in ("bf16", before):
        with loop.multiplying("float32", "cpu"):
            assert matmul.fp32_precision == "ieee"


def test_a_member_that_turns_nan_is_stopped_and_no_other(monkeypatch):
    """One network's weights are spoilt on the way: the others do not change by a bit."""
    whole = train(BASE, threads=1)
    step = loop.Ensemble.step

    def spoilt(self):
        if self.iteration == 27:
            with torch.no_grad():
                self.weights["value"][1, 0, 0, 0] = float("nan")
        step(self)

    monkeypatch.setattr(loop.Ensemble, "step", spoilt)
    with logged() as said:
        trained = train(BASE, threads=1)
    assert trained.stopped == {1: 27}
    assert len(said) == 1
    for member in (0, 2):
        assert all(
            torch.equal(weight, member_of(whole, member).weights[name])
            for name, weight in member_of(trained, member).weights.items()
        )
    own = member_of(trained, 1)
    assert own.stopped == {1: 27}
    assert member_of(trained, 0).stopped == {}
    assert all(one.isnan().all() for one in own.weights.values())
    assert np.isfinite(own.curves["loss"][0, 0])
    assert np.isnan(own.curves["loss"][0, 1])


TOGETHER = (
    {"seeds": (8,)},
    {"network": Network(2, True, Full(), ENCODINGS["rope"])},
    {"task": dataclasses.replace(TASK, answers=(0,), classes=64, burstiness=1)},
)
APART = (
    {"network": Network(3)},
    *({"task": dataclasses.replace(TASK, **one)} for one in ({"labels": 5}, {"dimension": 8}, {"items": 6})),
    *(
        {"batch": 16},
        {"iterations": 41},
        {"learning_rate": 1e-2},
        {"weight_decay": 0.0},
        {"evaluate_every": 7},
    ),
    {"precision": "tf32"},
)


@pytest.mark.parametrize("change", [*TOGETHER, *APART], ids=str)
def test_which_experiments_train_together(change):
    other = dataclasses.replace(BASE, **change)
    assert compatible(BASE, other) == compatible(other, BASE) == (change in TOGETHER)
    if change in APART:
        refused("experiment", lambda: train([BASE, other]))


def test_what_cannot_be_an_experiment_or_trained_on_is_refused():
    def experiment(**wrong):
        return lambda: dataclasses.replace(BASE, **wrong)

    refused("seeds", *(experiment(seeds=wrong) for wrong in ((), (1, 1), (0, 2**63))))
    refused("iterations", experiment(iterations=0))
    refused("mask.width", experiment(network=Network(2, mask=SlidingWindow(10))))
    odd = dataclasses.replace(TASK, dimension=15)
    refused("task.dimension", experiment(network=Network(positional=ENCODINGS["rope"]), task=odd))
    refused("precision", lambda: train(dataclasses.replace(BASE, precision="tf32")))
    refused("device", lambda: train(BASE, device="cuda:99"), lambda: train(BASE, device="gpu"))
    refused("threads", lambda: train(BASE, threads=0))
    refused("experiment", lambda: train([]))
