"""What if: each varied profile is the profile of the varied architecture."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.cli.terminal import describe_variation
from posbias.core.errors import InvalidValueError
from posbias.core.tables import plain
from posbias.profiles.profile import uniform
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal, ScalableSoftmax, StepScale
from posbias.theory.encodings import ALiBi, DecayBias, KerpleLog, RoPE
from posbias.theory.huggingface import from_huggingface
from posbias.theory.masks import BlockSparse, Causal, Chunked, Dilated, Full, Prefix, SlidingWindow
from posbias.theory.mixing import AttentionOnly, ConstantMixing, PerLayer
from posbias.theory.normalisers import Unnormalised
from posbias.theory.rollout.dispatch import influence
from posbias.theory.rollout.kernel import dense_influence
from posbias.theory.rope_scaling import LinearScaling
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


def test_a_layer_that_divides_by_nothing_gets_no_window():
    passed = ConstantDiagonal(diagonal=(0.0,), constant=(-3.0, -3.0))
    state = Layer(2, positional=ALiBi((0.1, 0.2)), content=passed, normaliser=Unnormalised())
    stack = Architecture(2, (state, GLOBAL), ConstantMixing(0.3))
    windowed = replace(GLOBAL, mask=SlidingWindow(5))
    same(vary(stack, "window", [5], 50), [replace(stack, layers=(state, windowed))])
    with pytest.raises(InvalidValueError, match="window: no attention has the mask SlidingWindow or Causal"):
        vary(Architecture(2, (state,), ConstantMixing(0.3)), "window", [5], 50)


def test_decay_and_temperature_reach_every_layer():
    decayed = Layer(heads=2, positional=DecayBias(0.25))
    bare = Architecture(3, (Layer(heads=2),), ConstantMixing(0.3))
    same(vary(bare, "decay", [0.25], 50), [Architecture(3, (decayed,), ConstantMixing(0.3))])
    hot = Layer(heads=2, positional=ALiBi(), temperature=2.0)
    same(vary(Architecture(3, (GLOBAL,), ConstantMixing(0.3)), "temperature", [2.0], 50),
         [Architecture(3, (hot,), ConstantMixing(0.3))])  # fmt: skip


def test_the_flattest_value_is_named():
    values = [0.0, 0.2, 0.6, 1.0]
    varied = vary(interleaved(), "mixing", values, 50)
    flatness = [1 - 0.5 * float(np.abs(p.mass / p.mass.sum() - 1 / 50).sum()) for _, p in varied]
    best = values[flatness.index(max(flatness))]
    assert (
        describe_variation("mixing", varied)[-1]
        == f"flattest of these: mixing {best:g}, flatness {max(flatness):.3f}"
    )


def architecture_with(depth: int = 3, lam: float = 0.3, **fields) -> Architecture:
    return Architecture(depth, (Layer(heads=2, **fields),), ConstantMixing(lam))


ROTARY, PAIR = RoPE(((2.0, 1.0),), dimension=4), RoPE(((3.0,),), frequencies=(0.1,))
KNOBS = {
    "prefix": ({}, 7, {"mask": Prefix(7)}),
    "prefix again": ({"mask": Prefix(3)}, 7, {"mask": Prefix(7)}),
    "scalable_softmax": (
        {"positional": ALiBi(), "query_scale": ScalableSoftmax((0.2,), (0.5,))},
        0.6,
        {"positional": ALiBi(), "query_scale": ScalableSoftmax((0.6,), (0.5,))},
    ),
    "step_scale": (
        {"positional": ALiBi(), "query_scale": StepScale(0.1, 4)},
        0.6,
        {"positional": ALiBi(), "query_scale": StepScale(0.6, 4)},
    ),
    "chunk": ({}, 7, {"mask": Chunked(7)}),
    "chunk again": ({"mask": Chunked(5)}, 7, {"mask": Chunked(7)}),
    "dilated": ({"mask": Dilated(2, 5)}, 3, {"mask": Dilated(3, 5)}),
    "blocks": ({"mask": BlockSparse(8, 2, 1)}, 4, {"mask": BlockSparse(4, 2, 1)}),
    "rope_base": ({"positional": ROTARY}, 50.0, {"positional": RoPE(((2.0, 1.0),), dimension=4, base=50.0)}),
    "rope_angle": ({"positional": PAIR}, 0.4, {"positional": RoPE(((3.0,),), frequencies=(0.4,))}),
    "rope_factor": (
        {"positional": RoPE(((2.0, 1.0),), dimension=4, scaling=LinearScaling(2.0))},
        8.0,
        {"positional": RoPE(((2.0, 1.0),), dimension=4, scaling=LinearScaling(8.0))},
    ),
    "kerple": (
        {"positional": KerpleLog((0.5,), (2.0,))},
        4.0,
        {"positional": KerpleLog((2.0,), (2.0,))},
    ),
    "gate": ({"positional": ALiBi()}, 0.25, {"positional": ALiBi(), "lam": 0.3 * 0.25 / (0.7 + 0.3 * 0.25)}),
    "slopes": ({"positional": ALiBi(scale=0.5)}, 3.0, {"positional": ALiBi(scale=1.5)}),
    "diagonal": ({}, -1.5, {"content": ConstantDiagonal((-1.5,))}),
    "diagonal again": (
        {"content": ConstantDiagonal((1.0,), first_column=(0.5,))},
        -1.5,
        {"content": ConstantDiagonal((-1.5,), first_column=(0.5,))},
    ),
    "first_column": ({}, 2.0, {"content": ConstantDiagonal((0.0,), first_column=(2.0,))}),
    "sink_logit": ({}, 0.0, {"sinks": (0.0,)}),
}


@pytest.mark.parametrize("case", KNOBS)
def test_a_knob_makes_the_architecture_that_has_its_value(case):
    before, value, after = KNOBS[case]
    varied = vary(architecture_with(**before), case.split()[0], [value], 24)
    naive = dense_influence(architecture_with(**after), 24)
    np.testing.assert_allclose(varied[0][1].mass, naive, rtol=1e-10, atol=1e-15)
    unchanged = dense_influence(architecture_with(**before), 24)
    assert np.abs(naive - unchanged).max() > 1e-4


@given(st.floats(0.01, 2), st.floats(0.5, 5), st.integers(1, 5), st.integers(2, 20))
def test_rotary_pairs_of_any_angle_are_products_of_dense_kernels(angle, amplitude, depth, tokens):
    pair = RoPE(((amplitude,),), frequencies=(0.1,))
    architecture = Architecture(depth, (Layer(positional=pair),), AttentionOnly())
    row = np.eye(tokens)[-1]
    for _ in range(depth):
        logits = np.array(
            [[amplitude * math.cos((i - j) * angle) for j in range(tokens)] for i in range(tokens)]
        )
        weights = np.exp(logits) * np.tri(tokens)
        row = row @ (weights / weights.sum(axis=1, keepdims=True))
    [(_, profile)] = vary(architecture, "rope_angle", [angle], tokens)
    np.testing.assert_allclose(profile.mass, row, rtol=1e-9, atol=1e-14)


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
        ("slopes=0:1", "slopes: 0 given, a number above zero needed"),
        ("depth=0:5", "depth: 0 given, 1 to 100,000 needed .number of layers."),
        ("mixing=0:2", "mixing: 2 given, 0 to 1 needed"),
        ("window=0:100:3", "window: 0 given, at least 1 needed"),
        ("tokens=64,0", "tokens: 0 given, at least 1 needed"),
    ],
)
def test_a_wrong_spelling_is_named(spelling, words):
    with pytest.raises(InvalidValueError, match=words):
        values_of(spelling)


@pytest.mark.parametrize(
    ("value", "text"),
    [(16384, "16,384"), (131072.0, "131,072"), (0.25, "0.25"), (1e-5, "0.00001"), (12345.6, "12,346"),
     (1 / 3, "0.3333"), (1e6, "1,000,000"), (-3.5, "-3.5"), (0.0, "0"), (math.inf, "inf")],
)  # fmt: skip
def test_numbers_are_written_without_exponents(value, text):
    assert plain(value) == text
    table = describe_variation("window", [(value, uniform(9))])
    assert table[1].startswith(f"{text} ")


@pytest.mark.parametrize(
    ("quantity", "value", "words"),
    [
        ("mixing", 1.5, "mixing: 1.5 given, 0 to 1 needed"),
        ("window", 0, "window: 0 given, at least 1 needed"),
        ("depth", 0, "depth: 0 given, 1 to 100,000 needed"),
        ("prefix", 0, "prefix: 0 given, at least 1 needed"),
        ("rope_base", 10.0, "^rope_base: "),
        ("rope_factor", 2.0, "^rope_factor: "),
        ("rope_angle", 0.1, "^rope_angle: "),
        ("kerple", 2.0, "^kerple: "),
        ("tokens", 0, "tokens: 0 given"),
        ("head", 3, "vary: 'head' given, one of.*did you mean 'heads'"),
        ("heads", 2.5, "heads: 2.5 given"),
        ("full_period", 0, "full_period: 0 given"),
        ("nope_period", 0, "nope_period: 0 given"),
        ("sinks", -1, "sinks: -1 given"),
        ("slopes", 0, "scale: 0"),
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


def under_windows(*masks: SlidingWindow | Causal, **fields) -> Architecture:
    layers = tuple(Layer(heads=2, positional=ALiBi(), mask=mask, **fields) for mask in masks)
    return Architecture(len(masks), layers, ConstantMixing(0.3))


def test_full_layers_come_every_so_many():
    near, full = SlidingWindow(8, 1), Causal()
    expected = [[full] * 4, [near, near, full, near], [near] * 4]
    same(vary(interleaved(), "full_period", [1, 3, 9], 50), [under_windows(*masks) for masks in expected])
    same(vary(under_windows(near, near), "full_period", [2], 50), [under_windows(near, full)])


def test_the_full_layer_may_stand_anywhere_in_its_period():
    near, full = SlidingWindow(8, 1), Causal()
    expected = [[full, near, full, near], [near, full, near, full]]
    same(vary(interleaved(), "full_place", [0, 1], 50), [under_windows(*masks) for masks in expected])
    with pytest.raises(InvalidValueError, match="full_place: 2 given, at most 1 needed in a pattern of 2"):
        vary(interleaved(), "full_place", [2], 50)
    with pytest.raises(InvalidValueError, match="a pattern of 0 causal layers and 1 kinds of others given"):
        vary(under_windows(near, near), "full_place", [0], 50)


def test_mixing_falls_with_depth_from_that_of_the_bottom_layer():
    falling = Architecture(4, (LOCAL, GLOBAL), PerLayer([0.3 / (t + 1) ** 0.5 for t in range(4)]))
    same(vary(interleaved(), "mixing_exponent", [0, 0.5], 50), [interleaved(), falling])


def test_sinks_heads_and_slopes():
    wide = [SlidingWindow(8, 3), Causal(), SlidingWindow(8, 3), Causal()]
    same(vary(interleaved(), "sinks", [3], 50), [under_windows(*wide)])
    bare = Architecture(2, (Layer(heads=2),), ConstantMixing(0.3))
    same(
        vary(replace(bare, layers=(GLOBAL,)), "heads", [8], 50),
        [replace(bare, layers=(Layer(8, positional=ALiBi()),))],
    )
    halved = Layer(2, positional=ALiBi(scale=0.25))
    scaled = replace(bare, layers=(Layer(2, positional=ALiBi(scale=0.5)),))
    same(vary(scaled, "slopes", [0.5], 50), [replace(bare, layers=(halved,))])


def test_layers_without_an_encoding_come_every_so_many():
    with_it, bare = Layer(2, positional=ALiBi()), Layer(2)
    stack = Architecture(5, (with_it,), ConstantMixing(0.3))
    expected = [(bare,) * 5, (with_it, bare, with_it, bare, with_it)]
    same(vary(stack, "nope_period", [1, 2], 50), [replace(stack, layers=layers) for layers in expected])


@pytest.mark.parametrize(
    ("quantity", "words"),
    [
        ("full_period", "2 kinds given, 0 under"),
        ("nope_period", "2 encodings"),
        ("sinks", "^sinks: "),
    ],
)
def test_what_has_nothing_to_vary_is_refused(quantity, words):
    mixed = Architecture(2, (GLOBAL, Layer(2, positional=DecayBias(1.0))), ConstantMixing(0.3))
    with pytest.raises(InvalidValueError, match=words):
        vary(mixed, quantity, [2], 50)
    with pytest.raises(InvalidValueError, match=r"^slopes: "):
        vary(Architecture(1), "slopes", [2], 50)
    with pytest.raises(InvalidValueError, match=r"^step_scale: "):
        vary(Architecture(1), "step_scale", [0.2], 50)
    with pytest.raises(
        InvalidValueError, match="chunk: no attention has the mask Chunked or Causal, at least one"
    ):
        vary(Architecture(1, (Layer(mask=Full()),)), "chunk", [2], 50)


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


def test_two_at_once_may_be_the_length_of_the_text():
    (row,) = vary_two(interleaved(), [("mixing", [0.5]), ("tokens", [10, 20])], 50)
    assert [profile.tokens for profile in row] == [10, 20]


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ([("depth", [1]), ("depth", [2])], "two different quantities"),
        ([("depth", [1])], "two different quantities"),
        ([("depth", [1]), ("mixing", [0.1]), ("window", [2])], "two different quantities"),
        ([("depth", [1] * 101), ("mixing", [0.1] * 100)], "101 × 100 values given, 1 to 10,000"),
    ],
)
def test_axes_that_cannot_be_are_refused(axes, words):
    with pytest.raises(InvalidValueError, match=words):
        vary_two(interleaved(), axes, 50)
