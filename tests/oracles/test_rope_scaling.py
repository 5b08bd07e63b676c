"""Rotary scalings: angles pair by pair from their equations, and the logits and rows that follow from them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dense import dense_influence
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from posbias.core.spec import decode, encode
from posbias.encodings import rope_of
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.critical_distances import (
    critical_distance,
    distance_curve,
    drift_distance,
    modal_distance,
    rope_critical_distance,
)
from posbias.theory.mixing import ConstantMixing
from posbias.theory.positional import DecayBias, NoPE, RoPE
from posbias.theory.rollout import influence
from posbias.theory.rollout.kernel import layer_kernel
from posbias.theory.rope_scaling import (
    ROPE_SCALINGS,
    DynamicNTK,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    ProportionalRoPE,
    YaRN,
)

factors = st.floats(1, 64)
lengths = st.integers(16, 100_000)
dimensions = st.sampled_from([4, 6, 64, 128])


def scalings() -> st.SearchStrategy:
    """Any rotary scaling."""
    every = {
        LinearScaling: st.builds(LinearScaling, factors),
        DynamicNTK: st.builds(DynamicNTK, factors, lengths, st.one_of(st.none(), lengths)),
        YaRN: st.builds(
            YaRN,
            factors,
            lengths,
            st.floats(8, 64),
            st.floats(0.5, 4),
            st.booleans(),
            st.one_of(st.none(), st.floats(0.5, 2)),
        ),
        Llama3Scaling: st.builds(Llama3Scaling, factors, lengths, st.floats(0.5, 2), st.floats(3, 8)),
        LongRoPE: st.builds(
            LongRoPE,
            st.lists(factors, min_size=64, max_size=64),
            st.lists(factors, min_size=64, max_size=64),
            factors,
            lengths,
            st.one_of(st.none(), st.floats(0.5, 2)),
            st.one_of(st.none(), lengths),
        ),
        ProportionalRoPE: st.builds(ProportionalRoPE, st.floats(0, 1), factors),
    }
    assert set(every) == set(ROPE_SCALINGS), "a new rotary scaling needs a strategy here"
    return st.one_of(*every.values())


def of_pairs(scaling, pairs: int):
    """The scaling of so many pairs, where it has a number for each."""
    if not isinstance(scaling, LongRoPE):
        return scaling
    return replace(scaling, short=scaling.short[:pairs], long=scaling.long[:pairs])


def angle(scaling, pair: int, base: float, dimension: int) -> float:
    """The angle of one pair in plain Python, from the equation of each scaling."""
    theta = base ** (-2 * pair / dimension)
    match scaling:
        case LinearScaling():
            return theta / scaling.factor
        case DynamicNTK():
            tokens = max(scaling.trained, scaling.tokens or 0)
            grown = scaling.factor * tokens / scaling.trained - (scaling.factor - 1)
            return (base * grown ** (dimension / (dimension - 2))) ** (-2 * pair / dimension)
        case YaRN():
            # the pair that turns so many times within the trained length, as a number with a fraction
            ends = [
                dimension * math.log(scaling.trained / (turns * 2 * math.pi)) / (2 * math.log(base))
                for turns in (scaling.fast, scaling.slow)
            ]
            low, high = (math.floor(ends[0]), math.ceil(ends[1])) if scaling.truncate else ends
            low, high = max(low, 0), min(high, dimension - 1)
            high += 0.001 * (high == low)
            slowed = min(max((pair - low) / (high - low), 0), 1)
            return (1 - slowed) * theta + slowed * theta / scaling.factor
        case Llama3Scaling():
            wavelength = 2 * math.pi / theta
            if wavelength < scaling.trained / scaling.high:
                return theta
            if wavelength > scaling.trained / scaling.low:
                return theta / scaling.factor
            smooth = (scaling.trained / wavelength - scaling.low) / (scaling.high - scaling.low)
            return (1 - smooth) * theta / scaling.factor + smooth * theta
        case LongRoPE():
            by_pair = scaling.long if scaling.tokens and scaling.tokens > scaling.trained else scaling.short
            return theta / by_pair[pair]
        case ProportionalRoPE():
            return theta / scaling.factor if pair + 1 <= scaling.share * dimension / 2 else 0.0
    raise AssertionError


@given(scalings(), st.floats(10, 1e6), dimensions)
@examples(300)
def test_angles_are_those_of_the_equations(scaling, base, dimension):
    scaling = of_pairs(scaling, dimension // 2)
    expected = [angle(scaling, pair, base, dimension) for pair in range(dimension // 2)]
    rope = RoPE((1.0,), base=base, dimension=dimension, scaling=scaling)
    np.testing.assert_allclose(rope.angles, expected, rtol=1e-9)
    assert decode(RoPE, encode(rope)) == rope


@given(scalings(), st.floats(2, 500), st.integers(1, 40), st.floats(0, 1))
@examples(60)
def test_rows_are_softmaxes_of_sums_of_cosines(scaling, base, tokens, lam):
    """Dense and every engine, with the angles and the gain written out; a dynamic scaling is of this length."""
    scaling = of_pairs(scaling, 3)
    rope = RoPE(((1.0, 0.4, -0.7),), ((0.2,),), base, 6, scaling=scaling)
    held = scaling.at(tokens)
    gain = 1.0
    if isinstance(scaling, YaRN):
        gain = (scaling.attention_factor or 0.1 * math.log(scaling.factor) + 1) ** 2
    if isinstance(scaling, LongRoPE):
        gain = math.sqrt(1 + math.log(scaling.factor) / math.log(scaling.trained)) ** 2
        gain = gain if scaling.attention_factor is None else scaling.attention_factor**2
    angles = [angle(held, pair, base, 6) for pair in range(3)]
    kernel = np.zeros((tokens, tokens))
    for i in range(tokens):
        for j in range(i + 1):
            cosines = [math.cos((i - j) * theta + 0.2) for theta in angles]
            kernel[i, j] = math.exp(
                gain * math.fsum(a * c for a, c in zip((1.0, 0.4, -0.7), cosines, strict=True))
            )
    kernel /= kernel.sum(axis=1, keepdims=True)
    layer = Layer(positional=rope)
    np.testing.assert_allclose(layer_kernel(layer, tokens), kernel, rtol=1e-9)
    architecture = Architecture(3, (layer,), ConstantMixing(lam))
    step = (1 - lam) * np.eye(tokens) + lam * kernel
    for method in ("stream", "fft"):
        found = influence(architecture, tokens, method=method).mass
        np.testing.assert_allclose(found, np.linalg.matrix_power(step, 3)[-1], rtol=1e-8, atol=1e-13)


def test_a_dynamic_base_is_of_the_whole_text_also_for_an_earlier_token():
    layer = Layer(positional=RoPE((2.0,), dimension=8, scaling=DynamicNTK(4.0, 16)))
    architecture = Architecture(2, (layer,), ConstantMixing(0.5))
    row = influence(architecture, 48, query=20, method="fft").mass
    np.testing.assert_allclose(row, dense_influence(architecture, 48, 20), rtol=1e-8, atol=1e-13)


def test_a_scaling_moves_the_critical_distance():
    pair = RoPE((3.0,), base=100.0, dimension=2, scaling=LinearScaling(2.0))
    assert distance_curve(pair, [4], 60).predicted[0] == pytest.approx(rope_critical_distance(4, 0.5, 1.5))
    grown = replace(pair, scaling=YaRN(1.0, 64, attention_factor=2.0))
    assert distance_curve(grown, [4], 60).predicted[0] == pytest.approx(rope_critical_distance(4, 1.0, 6.0))


def test_what_has_no_critical_distance_is_refused():
    refused(
        "depth", *(lambda depth=depth: critical_distance(depth, 0.1) for depth in (0, math.inf, math.nan))
    )
    refused("rate", lambda: critical_distance(4, -0.1), lambda: modal_distance(4, 0.0))
    refused("logits", lambda: drift_distance(np.zeros(1), 4), lambda: drift_distance(np.full(3, np.inf), 4))
    refused("depths", lambda: distance_curve(DecayBias(0.1), [], 8))
    for other in (NoPE(), RoPE(((1.0,),), dimension=4), RoPE(((1.0,),), ((0.5,),), dimension=2)):
        refused("positional", lambda other=other: distance_curve(other, [2], 8))
    assert [critical_distance(depth, 0.0) for depth in (1, 2)] == [0, math.inf]


def test_what_cannot_be_is_refused():
    def turned(scaling, **more):
        return lambda: RoPE((1.0,), **({"dimension": 4} | more), scaling=scaling)

    refused("scaling", turned(LinearScaling(2.0), dimension=None, frequencies=(0.1,)))
    refused("dimension", turned(DynamicNTK(2.0, 64), dimension=2))
    refused("base", turned(YaRN(2.0, 64), base=1.0))
    refused("fast", lambda: YaRN(2.0, 64, fast=1.0, slow=2.0))
    refused("trained", lambda: LongRoPE([1.0], [1.0], 2.0, 1))
    refused("long", turned(LongRoPE([1.0, 2.0], [1.0], 2.0, 64)))
    refused("high", lambda: Llama3Scaling(2.0, 64, 4.0, 3.0))
    sized = {"head_dim": 4, "rope_theta": 10.0, "max_position_embeddings": 8}
    types = {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {}}
    refused("rope_type", lambda: rope_of(sized | {"rope_scaling": {"type": "xdrope"}}, [1.0]))
    refused(
        "rope_theta",
        lambda: rope_of({"head_dim": 64}, [1.0]),
        lambda: rope_of(sized | {"rope_theta": 0}, [1.0]),
    )
    refused("layer_type", lambda: rope_of({"rope_parameters": types}, [1.0]))
    refused("short_factor", lambda: rope_of(sized | {"rope_scaling": {"rope_type": "longrope"}}, [1.0]))
