"""What if: each varied profile is the profile of the varied architecture."""

import numpy as np
import pytest

from posbias.errors import InvalidValueError
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.encodings import ALiBi, DecayBias
from posbias.theory.masks import Causal, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PerLayer
from posbias.theory.rollout.dispatch import influence
from posbias.theory.variation import QUANTITIES, STEPS, values_of, vary

LOCAL, GLOBAL = (
    Layer(heads=2, positional=ALiBi(), mask=SlidingWindow(8, 1)),
    Layer(heads=2, positional=ALiBi()),
)


def interleaved(depth: int = 4, lam: float = 0.3, width: int = 8) -> Architecture:
    layers = [
        LOCAL if width == 8 else Layer(heads=2, positional=ALiBi(), mask=SlidingWindow(width, 1)),
        GLOBAL,
    ]
    return Architecture(depth, tuple(layers * depth)[:depth], ConstantMixing(lam))


def same(varied, expected, tokens=50):
    for (_, profile), architecture in zip(varied, expected, strict=True):
        np.testing.assert_array_equal(profile.mass, influence(architecture, tokens).mass)


def test_depth_goes_on_with_the_pattern():
    same(vary(interleaved(), "depth", [1, 2, 3, 7], 50), [interleaved(depth) for depth in (1, 2, 3, 7)])


def test_mixing_replaces_the_schedule():
    same(
        vary(interleaved(), "mixing", [0.0, 0.5, 1.0], 50), [interleaved(lam=lam) for lam in (0.0, 0.5, 1.0)]
    )


def test_a_window_changes_only_where_there_is_one():
    same(vary(interleaved(), "window", [2, 30], 50), [interleaved(width=width) for width in (2, 30)])
    everywhere = Architecture(2, (GLOBAL,), ConstantMixing(0.3))
    windowed = Layer(heads=2, positional=ALiBi(), mask=SlidingWindow(5))
    same(vary(everywhere, "window", [5], 50), [Architecture(2, (windowed,), ConstantMixing(0.3))])
    assert everywhere.layers[0].mask == Causal()


def test_decay_and_temperature_reach_every_layer():
    decayed = Layer(heads=2, positional=DecayBias(0.25))
    bare = Architecture(3, (Layer(heads=2),), ConstantMixing(0.3))
    same(vary(bare, "decay", [0.25], 50), [Architecture(3, (decayed,), ConstantMixing(0.3))])
    hot = Layer(heads=2, positional=ALiBi(), temperature=2.0)
    same(vary(Architecture(3, (GLOBAL,), ConstantMixing(0.3)), "temperature", [2.0], 50),
         [Architecture(3, (hot,), ConstantMixing(0.3))])  # fmt: skip


def test_tokens_vary_the_text():
    architecture = interleaved()
    for value, profile in vary(architecture, "tokens", [10, 20], 50):
        np.testing.assert_array_equal(profile.mass, influence(architecture, int(value)).mass)


@pytest.mark.parametrize(
    ("spelling", "name", "values"),
    [
        ("depth=1:4", "depth", [1, 2, 3, 4]),
        ("depth=2,8,4", "depth", [2, 8, 4]),
        ("depth=5", "depth", [5]),
        ("mixing=0:1:5", "mixing", [0, 0.25, 0.5, 0.75, 1]),
        ("window=1:100:3", "window", [1, 10, 100]),
        ("tokens=2:8", "tokens", [2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_spellings(spelling, name, values):
    found, numbers = values_of(spelling)
    assert found == name
    np.testing.assert_allclose(numbers, values)


def test_a_long_range_has_a_sensible_number_of_values():
    assert len(values_of("mixing=0:1")[1]) == STEPS
    _, widths = values_of("window=16:100000")
    assert len(widths) == STEPS
    assert all(isinstance(width, int) for width in widths)


@pytest.mark.parametrize(
    ("spelling", "words"),
    [
        ("dept=1:4", "did you mean 'depth'"),
        ("depth", "for instance depth=1:64 needed"),
        ("depth=4:1", "a range that rises"),
        ("depth=a:3", "depth: 'a' given, an integer needed"),
        ("mixing=0:1:x", "mixing: 'x' given"),
        ("mixing=0:1:1", "1 values given, at least 2"),
        ("mixing=0:1:100000000", "100000000 values given, at least 2 and at most 10,000"),
        ("mixing=0:1:2:3", "LOW:HIGH:COUNT needed"),
        ("window=0:100:3", "a number above zero needed"),
    ],
)
def test_a_wrong_spelling_is_named(spelling, words):
    with pytest.raises(InvalidValueError, match=words):
        values_of(spelling)


@pytest.mark.parametrize(
    ("quantity", "value", "words"),
    [
        ("mixing", 1.5, "value: 1.5 given"),
        ("window", 0, "width: 0 given"),
        ("depth", 0, "depth: 0 given"),
        ("tokens", 0, "tokens: 0 given"),
        ("heads", 3, "vary: 'heads' given, one of"),
    ],
)
def test_a_value_that_cannot_be_is_refused(quantity, value, words):
    with pytest.raises(InvalidValueError, match=words):
        vary(interleaved(), quantity, [value], 50)


@pytest.mark.parametrize("threads", [0, -1])
def test_a_wrong_number_of_threads_is_refused(threads):
    with pytest.raises(InvalidValueError, match=f"threads: {threads} given"):
        vary(interleaved(), "depth", [1, 2], 50, threads=threads)


def test_measured_mixing_ends_where_it_was_measured():
    measured = Architecture(3, (GLOBAL,), PerLayer([0.5, 0.3, 0.1]))
    two = Architecture(2, (GLOBAL,), PerLayer([0.5, 0.3]))
    same(vary(measured, "depth", [2], 50), [two])
    with pytest.raises(InvalidValueError, match="depth: 4 given, at most the 3 layers"):
        vary(measured, "depth", [4], 50)


def test_every_quantity_says_what_it_is():
    assert all(quantity.what and quantity.name == name for name, quantity in QUANTITIES.items())
