"""What if: each varied profile is the profile of the varied architecture."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from dense import dense_influence
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from posbias.core.errors import InvalidValueError
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal, ScalableSoftmax, StepScale
from posbias.theory.huggingface import from_huggingface
from posbias.theory.masks import BlockSparse, Causal, Chunked, Dilated, Full, Prefix, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PerLayer
from posbias.theory.normalisers import Unnormalised
from posbias.theory.positional import ALiBi, DecayBias, KerpleLog, RoPE
from posbias.theory.rollout.dispatch import influence
from posbias.theory.rope_scaling import DynamicNTK, LinearScaling, Llama3Scaling, YaRN
from posbias.theory.variation import QUANTITIES, STEPS, values_of, vary, vary_two

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


def stack(*layers: Layer, mixing=ConstantMixing(0.3)) -> Architecture:  # noqa: B008
    return Architecture(len(layers), layers, mixing)


def under(*masks) -> Architecture:
    """A layer of two ALiBi heads under each mask."""
    return stack(*(Layer(heads=2, positional=ALiBi(), mask=mask) for mask in masks))


NEAR, FULL, BARE = SlidingWindow(8, 1), Causal(), Layer(heads=2)
FORGETTING = {"content": ConstantDiagonal((0.0,), (-3.0, -3.0)), "normaliser": Unnormalised()}
STATE = Layer(2, positional=ALiBi((0.1, 0.2)), **FORGETTING)
"""A layer that divides by nothing: it has no window to vary."""


def one(lam: float = 0.3, **fields) -> Architecture:
    """Three layers of two heads."""
    return Architecture(3, (Layer(heads=2, **fields),), ConstantMixing(lam))


def mixed(lams) -> Architecture:
    return stack(LOCAL, GLOBAL, LOCAL, GLOBAL, mixing=PerLayer(lams))


def scaled(cls, *numbers) -> Architecture:
    return one(positional=ALiBi(), query_scale=cls(*numbers))


TURNED, PAIR = RoPE(((2.0, 1.0),), dimension=4), RoPE(((3.0,),), frequencies=(0.1,))
LONG = replace(TURNED, scaling=DynamicNTK(1.0, 32))
STRETCHED, LOGS = replace(TURNED, scaling=LinearScaling(2.0)), KerpleLog((0.5,), (2.0,))
SUNK, LISTED = ConstantDiagonal((1.0,), first_column=(0.5,)), PerLayer([0.5, 0.3, 0.1])
VARIED = [
    ("depth", interleaved(), {depth: interleaved(depth) for depth in (1, 2, 3, 7)}),
    ("depth", stack(*[GLOBAL] * 3, mixing=LISTED), {2: stack(GLOBAL, GLOBAL, mixing=PerLayer([0.5, 0.3]))}),
    ("mixing", interleaved(), {lam: interleaved(lam=lam) for lam in (0.0, 0.5, 1.0)}),
    ("mixing_exponent", interleaved(), {0.5: mixed([0.3 / (t + 1) ** 0.5 for t in range(4)])}),
    ("window", interleaved(), {width: interleaved(width=width) for width in (2, 30)}),
    ("window", under(FULL, FULL), {5: under(SlidingWindow(5), SlidingWindow(5))}),
    ("window", stack(STATE, GLOBAL), {5: stack(STATE, replace(GLOBAL, mask=SlidingWindow(5)))}),
    ("prefix", one(), {7: one(mask=Prefix(7))}),
    ("prefix", one(mask=Prefix(3)), {7: one(mask=Prefix(7))}),
    ("chunk", one(), {7: one(mask=Chunked(7))}),
    ("chunk", one(mask=Chunked(5)), {7: one(mask=Chunked(7))}),
    ("dilated", one(mask=Dilated(2, 5)), {3: one(mask=Dilated(3, 5))}),
    ("blocks", one(mask=BlockSparse(8, 2, 1)), {4: one(mask=BlockSparse(4, 2, 1))}),
    ("full_period", interleaved(), {1: under(*[FULL] * 4), 3: under(NEAR, NEAR, FULL, NEAR)}),
    ("full_period", interleaved(), {9: under(*[NEAR] * 4)}),
    ("full_period", under(NEAR, NEAR), {2: under(NEAR, FULL)}),
    ("full_place", interleaved(), {0: under(FULL, NEAR, FULL, NEAR), 1: interleaved()}),
    ("sinks", interleaved(), {3: under(*[SlidingWindow(8, 3), FULL] * 2)}),
    ("heads", stack(GLOBAL, GLOBAL), {8: stack(*[Layer(8, positional=ALiBi())] * 2)}),
    ("gate", one(positional=ALiBi()), {0.25: one(0.3 * 0.25 / (0.7 + 0.3 * 0.25), positional=ALiBi())}),
    ("slopes", one(positional=ALiBi(scale=0.5)), {3.0: one(positional=ALiBi(scale=1.5))}),
    ("rope_base", one(positional=TURNED), {50.0: one(positional=replace(TURNED, base=50.0))}),
    ("rope_angle", one(positional=PAIR), {0.4: one(positional=replace(PAIR, frequencies=(0.4,)))}),
    (
        "rope_factor",
        one(positional=STRETCHED),
        {8.0: one(positional=replace(TURNED, scaling=LinearScaling(8.0)))},
    ),
    ("rope_linear", one(positional=TURNED), {2.0: one(positional=STRETCHED)}),
    ("rope_ntk", one(positional=TURNED), {8.0: one(positional=replace(TURNED, base=TURNED.base * 8.0**2))}),
    ("rope_yarn", one(positional=LONG), {8.0: one(positional=replace(TURNED, scaling=YaRN(8.0, 32)))}),
    (
        "rope_llama3",
        one(positional=LONG),
        {8.0: one(positional=replace(LONG, scaling=Llama3Scaling(8.0, 32)))},
    ),
    ("kerple", one(positional=LOGS), {4.0: one(positional=KerpleLog((2.0,), (2.0,)))}),
    ("diagonal", one(), {-1.5: one(content=ConstantDiagonal((-1.5,)))}),
    ("diagonal", one(content=SUNK), {-1.5: one(content=replace(SUNK, diagonal=(-1.5,)))}),
    ("first_column", one(), {2.0: one(content=ConstantDiagonal((0.0,), first_column=(2.0,)))}),
    ("sink_logit", one(), {0.0: one(sinks=(0.0,))}),
    ("decay", stack(BARE, BARE), {0.25: stack(*[Layer(heads=2, positional=DecayBias(0.25))] * 2)}),
    ("nope_period", stack(*[GLOBAL] * 3), {1: stack(*[BARE] * 3), 2: stack(GLOBAL, BARE, GLOBAL)}),
    ("temperature", stack(GLOBAL), {2.0: stack(replace(GLOBAL, temperature=2.0))}),
    (
        "scalable_softmax",
        scaled(ScalableSoftmax, (0.2,), (0.5,)),
        {0.6: scaled(ScalableSoftmax, (0.6,), (0.5,))},
    ),
    ("step_scale", scaled(StepScale, 0.1, 4), {0.6: scaled(StepScale, 0.6, 4)}),
]


@pytest.mark.parametrize(("quantity", "before", "expected"), VARIED)
def test_each_varied_profile_is_that_of_the_varied_architecture(quantity, before, expected):
    varied = vary(before, quantity, [*expected], 50)
    for (_, profile), architecture in zip(varied, expected.values(), strict=True):
        np.testing.assert_allclose(profile.mass, dense_influence(architecture, 50), rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(profile.mass, influence(architecture, 50).mass, rtol=1e-13)


def test_every_quantity_is_tried():
    assert {quantity for quantity, _, _ in VARIED} | {"fixed", "tokens"} == {*QUANTITIES}


@pytest.mark.parametrize(
    ("config", "windowed"),
    [
        ({"model_type": "qwen3_next", "full_attention_interval": 4}, [3, 7]),
        ({"model_type": "lfm2", "layer_types": ["conv", "full_attention"] * 4}, [1, 3, 5, 7]),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-*-M-*-"}, [2, 6]),
    ],
)
def test_a_window_is_given_to_attention_and_to_no_state_convolution_or_token_alone(config, windowed):
    sizes = {"num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64}
    before = from_huggingface(sizes | config, "small")
    [(_, profile)] = vary(before, "window", [5], 50)
    masks = [SlidingWindow(5) if t in windowed else layer.mask for t, layer in enumerate(before.stack)]
    layers = tuple(replace(layer, mask=mask) for layer, mask in zip(before.stack, masks, strict=True))
    np.testing.assert_array_equal(profile.mass, influence(replace(before, layers=layers), 50).mass)
    assert [t for t, layer in enumerate(before.stack) if layer.mask == Causal() and t in windowed] == windowed


@pytest.mark.parametrize(
    ("spelling", "name", "values"),
    [
        ("depth=1:4", "depth", [1, 2, 3, 4]),
        ("depth=2,8,4", "depth", [2, 8, 4]),
        ("depth=5", "depth", [5]),
        ("mixing=0:1:5", "mixing", [0, 0.25, 0.5, 0.75, 1]),
        ("window=1:100:3", "window", [1, 10, 100]),
    ],
)
def test_spellings(spelling, name, values):
    found, numbers = values_of(spelling)
    assert found == name
    np.testing.assert_allclose(numbers, values)


@given(st.permutations(["depth", "window", "full_period"]))
def test_two_at_once_are_one_after_the_other(names):
    """Whichever is named first: depth is changed before the window, the window before the period."""
    one, other = names[:2]
    values = {"depth": [2, 7], "window": [3, 9], "full_period": [1, 3]}
    profiles = vary_two(interleaved(), [(one, values[one]), (other, values[other])], 40)
    for i, j in itertools.product(range(2), repeat=2):
        architecture = interleaved()
        for name in ("depth", "window", "full_period"):
            if name in (one, other):
                architecture = QUANTITIES[name].change(architecture, values[name][i if name == one else j])
        np.testing.assert_array_equal(profiles[i][j].mass, influence(architecture, 40).mass)


def test_the_length_of_the_text_is_varied_alone_and_with_another():
    architecture = interleaved()
    for value, profile in vary(architecture, "tokens", [10, 20], 50):
        np.testing.assert_array_equal(profile.mass, influence(architecture, int(value)).mass)
    (row,) = vary_two(architecture, [("mixing", [0.5]), ("tokens", [10, 20])], 50)
    assert [profile.tokens for profile in row] == [10, 20]
    assert len(values_of("mixing=0:1")[1]) == STEPS
    _, widths = values_of("window=16:100000")
    assert len(widths) == STEPS
    assert all(isinstance(width, int) for width in widths)


def test_what_cannot_be_varied_is_refused():
    unclear = "dept=1:4 depth depth=4:1 depth=a:3 mixing=0:1:x mixing=0:1:100000000 mixing=0:1:2:3"
    beyond = "slopes=0:1 depth=0:5 mixing=0:2 window=0:100:3 tokens=64,0"
    for spelling in (*unclear.split(), *beyond.split()):
        with pytest.raises(InvalidValueError):
            values_of(spelling)
    wrong = {"mixing": 1.5, "heads": 2.5, "sinks": -1, "full_place": 2, "kerple": 2.0, "rope_base": 10.0}
    wrong |= {"rope_factor": 2.0, "rope_angle": 0.1}
    wrong |= dict.fromkeys(("window", "depth", "prefix", "tokens", "full_period", "nope_period"), 0)
    for name, value in wrong.items():
        refused(name, lambda name=name, value=value: vary(interleaved(), name, [value], 50))
    mixed = stack(GLOBAL, Layer(2, positional=DecayBias(1.0)))
    nothing = {"chunk": under(Full()), "full_place": under(NEAR, NEAR), "window": stack(STATE)}
    nothing |= dict.fromkeys(("slopes", "step_scale"), stack(BARE))
    nothing |= dict.fromkeys(("rope_yarn", "rope_llama3"), one(positional=TURNED))
    nothing |= dict.fromkeys(("full_period", "nope_period", "sinks"), mixed)
    for name, architecture in nothing.items():
        refused(name, lambda name=name, held=architecture: vary(held, name, [2], 50))
    refused("vary", lambda: vary(interleaved(), "head", [3], 50))
    refused("threads", lambda: vary(interleaved(), "depth", [1, 2], 50, threads=0))
    refused("depth", lambda: vary(stack(GLOBAL, mixing=PerLayer([0.5])), "depth", [4], 50))
    twice, three = [("depth", [1]), ("depth", [2])], [("depth", [1]), ("mixing", [0.1]), ("window", [2])]
    many = [("depth", [1] * 101), ("mixing", [0.1] * 100)]
    refused(
        "vary",
        *(lambda axes=axes: vary_two(interleaved(), axes, 50) for axes in (twice, twice[:1], three, many)),
    )
