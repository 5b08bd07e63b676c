"""The stacked network against one written out from the paper, one member at a time, in float64."""

import math

import numpy as np
import pytest
import torch
from ensembles import Reference
from refused import refused
from torch import nn

from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias.theory.normalisers import Sigmoid
from posbias.training.attention import NORMALISERS, SinkSoftmax, attend
from posbias.training.network import ENCODINGS, Network, forward, initial_weights, wire
from posbias.training.task import RetrievalTask

MASKS = {
    "causal": Causal(),
    "window": SlidingWindow(3),
    "sinks": SlidingWindow(2, sinks=1),
    "prefix": Prefix(4),
    "full": Full(),
}
TOKENS, DIMENSION, LABELS = 9, 8, 5


def stacked(depth, members, *normaliser):
    """Weights of several members in float64, large enough that attention is far from uniform."""
    weights = initial_weights(depth, task_of(DIMENSION, LABELS), range(members), *normaliser)
    return {name: each.double().mul_(1.5).requires_grad_() for name, each in weights.items()}


def task_of(dimension, labels):
    """A task with networks of this size."""
    return RetrievalTask(dimension=dimension, labels=labels)


def close(ours, theirs, tolerance=1e-9):
    """Relative to the largest entry: 1e-9, of which float64 leaves some 1e-13."""
    ours, theirs = ours.detach(), theirs.detach()
    assert float((ours - theirs).abs().max()) <= tolerance * float(theirs.abs().max())


def compare(networks, short, single=2e-4):
    """Logits, attention and the gradient of every weight, member by member, with a reference in float64.

    In float64, and in float32, in which attention is compiled: its rounding leaves some 1e-5 of a gradient.
    """
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(len(networks), 6, TOKENS, DIMENSION, generator=rng, dtype=torch.float64)
    target = torch.randint(LABELS, (len(networks), 6), generator=rng)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, single)):
        made = stacked(networks[0].depth, len(networks), networks[0].normaliser)
        weights = {name: one.detach().to(dtype).requires_grad_() for name, one in made.items()}
        attention = None if short else []
        logits = forward(weights, wire(networks, TOKENS, DIMENSION, dtype=dtype), x.to(dtype), attention)
        nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum").backward()
        for member, network in enumerate(networks):
            own = Reference(network, {name: one[member] for name, one in weights.items()})
            expected, expected_attention, _ = own(x[member])
            nn.functional.cross_entropy(expected, target[member], reduction="sum").backward()
            close(logits[member], expected, tolerance)
            for name, one in own.weights.items():
                if name != "sink" or network.normaliser.learned:
                    close(weights[name].grad[member], one.grad, tolerance)
            for layer, theirs in zip(attention or [], expected_attention, strict=not short):
                close(layer[member], theirs, tolerance)
                assert torch.equal(layer[member] == 0, theirs == 0)
                if network.normaliser.kind == "softmax":
                    close(layer[member].sum(-1), torch.ones(6, TOKENS), 8 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("mask", MASKS)
def test_logits_attention_and_gradients_are_the_plain_networks(mask, encoding, residual):
    for depth in (1, 2, 3):
        network = Network(depth, residual, MASKS[mask], ENCODINGS[encoding])
        compare([network], short=depth != 2)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("normaliser", [*NORMALISERS.values(), SinkSoftmax(-0.7, learned=True), Sigmoid(0.5)])
def test_every_normaliser_gives_the_plain_networks_logits_attention_and_gradients(normaliser, residual):
    each = zip(MASKS.values(), [*ENCODINGS.values(), ENCODINGS["none"]], strict=True)
    for number, (mask, encoding) in enumerate(each):
        network = Network(2, residual, mask, encoding, normaliser)
        # a ReLU's row may be all but empty, and then float32 keeps few digits of its gradient
        short, single = (number + residual) % 2 == 1, 2e-2 if normaliser.kind == "relu" else 2e-4
        compare([network, network], short, single)


@pytest.mark.parametrize("short", [False, True])
def test_different_networks_side_by_side_are_each_what_they_are_alone(short):
    networks = [
        Network(4, residual, mask, encoding)
        for residual, mask, encoding in zip(
            (False, True) * 4, [*MASKS.values()] * 2, [*ENCODINGS.values()] * 2, strict=False
        )
    ]
    compare(networks, short)
    compare([one for one in networks if one.positional.kind != "rotary"], short)


def test_initial_weights_are_those_of_torch_linear_layers_in_distribution():
    weights = initial_weights(3, task_of(64, 32), [0, 1])
    for one in weights.values():
        assert float(one.abs().max()) <= 1 / 8
        n = one.numel()
        assert abs(float(one.mean())) < 4 / 8 / math.sqrt(3 * n)
        assert float(one.var()) == pytest.approx(1 / 64 / 3, rel=4 / math.sqrt(n))
    again, other = (initial_weights(3, task_of(64, 32), [seed]) for seed in (0, 1))
    assert all(torch.equal(one[:1], again[name]) for name, one in weights.items())
    assert not any(torch.equal(again[name], other[name]) for name in weights)
    # deeper networks begin as shallower ones with more layers
    deep = initial_weights(5, task_of(64, 32), [0, 1])
    for name, one in weights.items():
        assert torch.equal(one, deep[name][:, :3] if name in ("query", "key", "value") else deep[name])


def test_the_theory_knows_the_architecture():
    assert ENCODINGS["decay"].rate == pytest.approx(-math.log(0.8))
    assert ENCODINGS["rope"].base == ENCODINGS["sinusoidal"].base == 10_000
    rotary = Network(2, True, positional=ENCODINGS["rope"]).architecture()
    assert any("rotary" in line for line in rotary.assumptions)

    def layer(normaliser):
        return Network(normaliser=normaliser).architecture().layers[0]

    assert layer(SinkSoftmax(1.5, learned=True)).sinks == (1.5,)
    assert layer(NORMALISERS["sigmoid"]).normaliser == NORMALISERS["sigmoid"]
    assert layer(NORMALISERS["relu"]).constant.tolist() == [1.0]
    assert layer(NORMALISERS["softmax"]).sinks is None
    assert Network(normaliser=NORMALISERS["relu"]).architecture().assumptions


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_so_and_spoils_no_other_sequence(bad):
    y = torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    y[0, 1, 2, 0] = bad
    mixed, _, weight = attend(y, torch.eye(4)[None], None, torch.zeros(1, 3, 3), None, False)
    assert not weight[0, 1, 2].isfinite().any()
    assert not mixed[0, 1, 2].isfinite().any()
    assert mixed[0, 0].isfinite().all()


def test_networks_that_do_not_fit_side_by_side_and_masks_wider_than_the_sequence_are_refused():
    refused(
        "networks", lambda: wire([Network(2), Network(2, normaliser=NORMALISERS["relu"])], TOKENS, DIMENSION)
    )
    refused("networks", lambda: wire([Network(2), Network(3)], TOKENS, DIMENSION))
    refused("mask.width", lambda: wire([Network(mask=SlidingWindow(10))], TOKENS, DIMENSION))
    refused("mask.length", lambda: wire([Network(mask=Prefix(10))], TOKENS, DIMENSION))
    wire([Network(mask=Prefix(9))], TOKENS, DIMENSION)
