"""Parts of a layer that engines have to compute: each against its equation, pair by pair or over dense products.

Normalisers, temperatures by position, gates, streams, sparse selection and Sandwich's biases.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from architectures import SHORTEST, architectures, fractions, query_scales
from dense import dense_influence, last_row
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from refused import refused

from posbias import gated
from posbias.core.spec import decode, encode, fingerprint
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal, ScalableSoftmax, StepScale
from posbias.theory.masks import Causal, Chunked, CustomMask, Full, Prefix, SlidingWindow, mask_of
from posbias.theory.mixing import AttentionOnly, Connection, ConstantMixing, HyperConnections, MeasuredMixing
from posbias.theory.normalisers import NORMALISERS, ReLU, Sigmoid, Softmax, Unnormalised
from posbias.theory.positional import (
    T5,
    ALiBi,
    DecayBias,
    DenseLogits,
    KerpleLog,
    KerplePower,
    NoPE,
    RoPE,
    Sandwich,
    Selected,
    Tabulated,
    selection_rates,
)
from posbias.theory.rollout import influence, rollout, trajectory
from posbias.theory.rollout.kernel import layer_kernel, masked_softmax
from posbias.training.network import Network


def close(found, expected, rtol: float = 1e-12) -> None:
    """Relative where numbers are above 1e-250."""
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-250)


# --- rows by every normaliser, at every temperature by position ----------------------------------------------


def factor(scale, query: int, head: int) -> float:
    """What a row of logits is multiplied by, from its equation."""
    if scale is None:
        return 1.0
    if isinstance(scale, StepScale):
        return 1.0 + scale.beta * math.log(1.0 + math.floor((query + scale.first) / scale.period))
    bias, slope = (numbers[head % len(numbers)] for numbers in (scale.bias, scale.scale))
    return bias + slope * math.log(query + 1)


def weights_by_hand(normaliser, logits: list[float], sink: float | None, tokens: int) -> list[float]:
    """What one row gives to the keys that it sees, from the normaliser's equation."""
    if isinstance(normaliser, Sigmoid):
        bias = -math.log(tokens) if normaliser.bias is None else normaliser.bias
        return [1.0 / (1.0 + math.exp(-logit - bias)) for logit in logits]
    weighed = [max(one, 0.0) if isinstance(normaliser, ReLU) else math.exp(one) for one in logits]
    if isinstance(normaliser, Unnormalised):
        return weighed
    total = math.fsum(weighed) + (0.0 if sink is None else math.exp(sink))
    return [one / total if total > 0 else 0.0 for one in weighed]


def kernel_by_hand(layer: Layer, tokens: int) -> np.ndarray:
    """Pair by pair in plain Python: (positional + content) · factor, a sink that no factor touches."""
    allowed, kernel = layer.mask.allowed(tokens), np.zeros((tokens, tokens))
    for head, i in np.ndindex(layer.heads, tokens):
        keys, logits = np.flatnonzero(allowed[i]).tolist(), []
        for j in keys:
            content = layer.content.constant[0]
            content += layer.content.diagonal[0] * (i == j) + layer.content.first_column[0] * (j == 0)
            positional = float(layer.positional.logits_at(np.array([i - j]), layer.heads)[head, 0])
            logits.append((positional + content) / layer.temperature * factor(layer.query_scale, i, head))
        sink = None if layer.sinks is None else layer.sinks[0]
        for j, weight in zip(keys, weights_by_hand(layer.normaliser, logits, sink, tokens), strict=True):
            kernel[i, j] += weight / layer.heads
    return kernel


@st.composite
def simple_layers(draw, tokens: int) -> Layer:
    """A layer by any normaliser, whose rows sum to one at most."""
    prefix = Prefix(draw(st.integers(1, tokens)))
    odd = CustomMask(lambda query, key: (key <= query) & ((key == query) | ((query + key) % 3 == 0)))
    masks = [
        Causal(),
        SlidingWindow(draw(st.integers(1, 6)), draw(st.integers(0, 2))),
        prefix,
        Full(),
        Chunked(5),
        odd,
    ]
    # sums of sigmoids stay below one where logits are below zero, those of exponentials below −2·ln 14
    kind, heads = draw(st.sampled_from(NORMALISERS)), draw(st.integers(1, 3))
    level = draw(st.floats(*{Sigmoid: (-3, 0), Unnormalised: (-9, -5.3)}.get(kind, (-2, 3))))
    extra = 0.0 if kind in (Sigmoid, Unnormalised) else draw(st.floats(-3, 3))
    softmax = kind is Softmax
    return Layer(
        heads=heads,
        mask=draw(st.sampled_from(masks)),
        positional=draw(st.sampled_from([NoPE(), ALiBi(), DecayBias(0.3), KerpleLog((0.5,))])),
        content=ConstantDiagonal((extra,), (level,), (-extra / 2,)),
        temperature=draw(st.sampled_from([1.0, 2.0])),
        sinks=(draw(st.floats(-4, 4)),) if softmax and draw(st.booleans()) else None,
        normaliser=Sigmoid(-4.0 if draw(st.booleans()) else None) if kind is Sigmoid else kind(),
        query_scale=draw(query_scales(heads)) if softmax and draw(st.booleans()) else None,
    )


@given(st.integers(1, 14), st.data(), fractions)
@examples(100)
def test_rollouts_are_products_of_rows_made_by_hand(tokens, data, lam):
    layer, query = data.draw(simple_layers(tokens)), data.draw(st.integers(0, tokens - 1))
    kernel = kernel_by_hand(layer, tokens)
    np.testing.assert_allclose(layer_kernel(layer, tokens), kernel, rtol=1e-12, atol=1e-15)
    row = last_row([kernel] * 3, [lam] * 3, query)
    profile = influence(Architecture(3, (layer,), ConstantMixing(lam)), tokens, query, threads=1)
    np.testing.assert_allclose(profile.mass, row, rtol=1e-12, atol=1e-15)
    assert profile.missing_mass == pytest.approx(1 - row.sum(), abs=1e-12)


POSITIVE = st.floats(-5, 5, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-9)


@given(st.lists(POSITIVE, min_size=1, max_size=12))
def test_relu_keeps_positive_logits_alone_and_softmax_keeps_every_edge(logits):
    row = np.array(logits)
    kept = ReLU().weights_of(row)
    assert ((kept > 0) == (row > 0)).all()
    assert kept.sum() == pytest.approx(1.0 if (row > 0).any() else 0.0)
    assert (Softmax().weights_of(row) > 0).all()
    assert np.allclose(ReLU().weights_of(2.0**-40 * row), kept, rtol=1e-12, atol=1e-200)


@st.composite
def recurrences(draw):
    """What heads remember from token to token, what each lets in, λ, depth and a length of text."""
    kept = draw(st.lists(st.floats(0.01, 1), min_size=1, max_size=3))
    tokens = draw(st.integers(1, 40))
    # so much that no row exceeds one
    gains = [draw(st.floats(0.05, 1 - 1e-9)) / sum(one**d for d in range(tokens)) for one in kept]
    return kept, gains, draw(fractions), draw(st.integers(1, 4)), tokens


@given(recurrences())
def test_decay_kernels_are_states_that_forget(recurrence):
    """Layers x ← (1 − λ)x + λ·mean_h s_h with s_h ← γ_h·s_h + g_h·x, run token by token on a one at each token."""
    kept, gains, lam, depth, tokens = recurrence
    content = ConstantDiagonal((0.0,), tuple(np.log(gains).tolist()))
    rates = ALiBi(tuple((-np.log(kept)).tolist()))
    layer = Layer(len(kept), positional=rates, content=content, normaliser=Unnormalised())
    profile = influence(Architecture(depth, (layer,), ConstantMixing(lam)), tokens, threads=1)
    streams = np.eye(tokens)
    for _ in range(depth):
        states, after = np.zeros((tokens, len(kept))), np.zeros((tokens, tokens))
        for token, entering in enumerate(streams.T):
            states = np.array(kept) * states + np.array(gains) * entering[:, None]
            after[:, token] = (1 - lam) * entering + lam * states.mean(axis=1)
        streams = after
    close(profile.mass, streams[:, -1])
    assert profile.missing_mass == pytest.approx(1 - streams[:, -1].sum(), abs=1e-12)


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=5), st.integers(1, 6), st.integers(1, 30))
def test_short_convolutions_end_hard_and_lack_what_is_before_the_text(weights, depth, tokens):
    """Against repeated `numpy.convolve`: nothing beyond depth·(k − 1), what stood before token 0 is missing."""
    weights = np.array(weights) / sum(weights) * (1 - 1e-15)
    table = Tabulated(tuple(np.log(weights).tolist()))
    layer = Layer(mask=SlidingWindow(len(weights)), positional=table, normaliser=Unnormalised())
    profile = influence(Architecture(depth, (layer,), AttentionOnly()), tokens, threads=1)
    by_distance = np.ones(1)
    for _ in range(depth):
        by_distance = np.convolve(by_distance, weights)
    expected = np.zeros(max(tokens, len(by_distance)))
    expected[: len(by_distance)] = by_distance
    close(profile.mass[::-1], expected[:tokens])
    assert profile.missing_mass == pytest.approx(1 - expected[:tokens].sum(), abs=1e-12)


def test_a_factor_leaves_what_is_masked_masked_and_multiplies_logits_of_any_normaliser():
    matrix = np.where(np.tri(6, k=-1, dtype=bool) & (np.arange(6) % 2 == 1), -np.inf, 0.0)
    masked = Layer(positional=DenseLogits(matrix), query_scale=ScalableSoftmax((0.0,)))
    assert layer_kernel(masked, 6)[5].tolist() == pytest.approx([0.25, 0, 0.25, 0, 0.25, 0.25])
    level = ConstantDiagonal((0.0,), (-2.0,))
    sigmoid = Layer(content=level, normaliser=Sigmoid(-3.0), query_scale=StepScale(1.0, 2))
    expected = 1 / (1 + math.exp(2 * (1 + math.log(1 + 5 // 2)) + 3))
    close(influence(Architecture(1, (sigmoid,), ConstantMixing(1.0)), 5).mass, expected)


# --- gates -------------------------------------------------------------------------------------------------


@given(architectures(max_depth=3, sinks=False), st.data(), st.integers(SHORTEST, 20))
@examples(60)
def test_any_gates_equal_the_gated_sum_of_kernels(architecture, data, tokens):
    """Rows of (1 − λ)I + λ·Σ_h w_h·g_h·A_h over their sums."""
    assume(not architecture.mixing.assumed)
    gate = st.one_of(st.just(0.0), st.floats(0.01, 2))
    gates = [data.draw(st.lists(gate, min_size=one.heads, max_size=one.heads)) for one in architecture.stack]
    weights = [layer.head_logits.weights for layer in architecture.stack]
    assume(all(np.dot(row, shares) > 0 for row, shares in zip(gates, weights, strict=True)))
    product = np.eye(tokens)
    for layer, row, lam in zip(architecture.stack, gates, architecture.coefficients, strict=True):
        step = (1 - lam) * np.eye(tokens)
        for head, (one, weight) in enumerate(zip(row, layer.head_logits.weights, strict=True)):
            alone = [float(h == head) for h in range(layer.heads)]
            step += lam * weight * one * layer_kernel(replace(layer, head_weights=alone), tokens)
        product = step / step.sum(axis=1, keepdims=True) @ product
    close(influence(gated(architecture, gates), tokens).mass, product[-1], 1e-9)


def test_shut_gates_leave_the_token_alone_and_lambda_that_has_the_gates_in_it_stays():
    shut = gated(Architecture(3, (Layer(heads=2), Layer()), ConstantMixing(0.3)), 0.0)
    assert influence(shut, 10).mass.tolist() == [0.0] * 9 + [1.0]
    measured = MeasuredMixing((0.2, 0.4), tokens=256, text="a text")
    grouped = Architecture(2, (Layer(heads=4, groups=2),), measured)
    kept, changed = gated(grouped, [0.9, 0.3], in_mixing=True), gated(grouped, [0.9, 0.3])
    assert kept.mixing is measured
    np.testing.assert_allclose(kept.layers[0].head_weights, (0.375, 0.375, 0.125, 0.125), rtol=1e-15)
    # where and on what λ was measured travels along
    assert (changed.mixing.tokens, changed.mixing.text) == (256, "a text")
    np.testing.assert_allclose(changed.coefficients, [0.12 / 0.92, 0.24 / 0.84], rtol=1e-14)


# --- streams -----------------------------------------------------------------------------------------------

THREE = Connection(((0.8, 0.1, 0.1), (0.2, 0.5, 0.3), (0.0, 0.4, 0.6)), (0.2, 0.3, 0.5), (1.0, 0.5, 0.0))


@st.composite
def streams(draw, depth: int):
    count = draw(st.integers(1, 4))
    numbers = st.lists(st.integers(0, 8), min_size=count, max_size=count).filter(any)
    shares = numbers.map(lambda raw: tuple(one / sum(raw) for one in raw))
    write = st.one_of(st.none(), st.tuples(*[fractions] * count))
    connection = st.builds(Connection, st.tuples(*[shares] * count), shares, write)
    many = draw(st.sampled_from([1, depth]))
    return HyperConnections(tuple(draw(connection) for _ in range(many)), draw(shares))


def over_streams(architecture, tokens: int) -> np.ndarray:
    """The last token's row of ∏ R over all pairs (stream, position), summed over streams at the bottom."""
    given = architecture.streams
    count = len(given.collapse)
    product = np.eye(count * tokens)
    for t, layer in enumerate(architecture.stack):
        lam, kernel = architecture.coefficients[t], layer_kernel(layer, tokens)
        one = given.connections[t % len(given.connections)]
        written = [lam * (1.0 if one.write is None else one.write[s]) for s in range(count)]
        blocks = [
            [(1 - to) * one.mix[s][r] * np.eye(tokens) + to * one.read[r] * kernel for r in range(count)]
            for s, to in enumerate(written)
        ]
        product = np.block(blocks) @ product
    top = np.kron(given.collapse, np.eye(tokens)[-1])
    return (top @ product).reshape(count, tokens).sum(axis=0)


@given(architectures(max_depth=3), st.data(), st.integers(SHORTEST, 24))
@examples(60)
def test_any_architecture_equals_the_product_over_streams_and_positions(architecture, data, tokens):
    wide = replace(architecture, streams=data.draw(streams(architecture.depth)))
    expected = over_streams(wide, tokens)
    close(influence(wide, tokens).mass, expected, 1e-10)
    close(dense_influence(wide, tokens), expected, 1e-10)
    # one stream, and streams that are alike, are the residual stream
    plain, even = influence(architecture, tokens), (1 / 3,) * 3
    for alike in (((1.0,), Connection(((1.0,),), (1.0,))), (even, Connection((even,) * 3, even))):
        found = influence(replace(architecture, streams=HyperConnections((alike[1],), alike[0])), tokens)
        close(found.mass, plain.mass, 1e-11)
        assert found.missing_mass == pytest.approx(plain.missing_mass, abs=1e-12)


def test_every_engine_takes_its_layers_of_streams_and_sinks_lose_as_much():
    sunk, far = Layer(2, positional=ALiBi((0.1, 0.5)), sinks=(0.3,)), KerpleLog((0.5,))
    stack = (sunk, Layer(mask=SlidingWindow(40, 2), positional=far), Layer(mask=Chunked(700)))
    given = HyperConnections((THREE,), (0.5, 0.25, 0.25))
    architecture = Architecture(6, stack, ConstantMixing(0.5), streams=given)
    found, slow = influence(architecture, 2100), influence(architecture, 2100, method="stream")
    assert found.method == {"sweep": 4, "fft": 2}
    np.testing.assert_allclose(found.mass, slow.mass, rtol=1e-8, atol=1e-14)
    assert found.mass.sum() + found.missing_mass == pytest.approx(1.0, abs=1e-12)
    assert 0.01 < found.missing_mass == pytest.approx(slow.missing_mass, rel=1e-10)
    matrix, profiles = rollout(architecture, 9), trajectory(architecture, 9)
    close(profiles[6].mass, matrix[-1])
    close(profiles[1].mass, over_streams(replace(architecture, depth=1, layers=stack[:1]), 9))


# --- sparse selection and Sandwich -------------------------------------------------------------------------

rates = st.one_of(st.just(1.0), st.floats(0.01, 1))


def softmaxes(chosen, logits) -> np.ndarray:
    """A softmax over the chosen keys of each draw."""
    weights = np.where(chosen, np.exp(logits), 0.0)
    return weights / weights.sum(axis=-1, keepdims=True)


def test_rates_are_exact_for_as_many_of_equal_logits_and_near_for_independent_ones():
    """8 of 40 keys by noisy scores; 16 of 200 on average, the query's own always, against 40,000 draws."""
    rng, keys = np.random.default_rng(3), 40
    scores = 0.1 * np.arange(keys) + rng.gumbel(size=(20_000, keys))
    chosen = scores >= np.sort(scores, axis=1)[:, [-8]]
    selected = Selected((chosen.mean(axis=0)[::-1].tolist(),))
    row = layer_kernel(Layer(positional=selected), keys)[-1]
    close(row, softmaxes(chosen, np.zeros(keys)).mean(axis=0))
    distance = np.arange(200)[::-1]
    chances, logits = np.where(distance == 0, 1.0, 0.4 / (1 + distance / 12)), 1.0 * (distance == 0)
    drawn = [softmaxes(rng.random((4000, 200)) < chances, logits).mean(axis=0) for _ in range(10)]
    layer = Layer(positional=Selected((chances[::-1].tolist(),)), content=ConstantDiagonal((1.0,)))
    assert 0.001 < 0.5 * np.abs(layer_kernel(layer, 200)[-1] - np.mean(drawn, axis=0)).sum() < 0.02


@given(st.lists(rates, min_size=12, max_size=12), st.integers(1, 12), fractions)
def test_selection_is_a_softmax_with_the_logarithm_of_rates(chances, tokens, lam):
    layer = Layer(positional=Selected((chances,)), content=ConstantDiagonal((0.5,)))
    kernel = np.zeros((tokens, tokens))
    for i in range(tokens):
        weights = [chances[i - j] * math.exp(0.5 * (i == j)) for j in range(i + 1)]
        kernel[i, : i + 1] = np.array(weights) / math.fsum(weights)
    close(layer_kernel(layer, tokens), kernel)
    found = influence(Architecture(2, (layer,), ConstantMixing(lam)), tokens)
    np.testing.assert_allclose(found.mass, last_row([kernel] * 2, [lam] * 2), rtol=1e-9, atol=1e-15)
    assert found.exact is False


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 3))
def test_rates_are_counted_pair_by_pair(tokens, first, seed):
    selected = np.random.default_rng(seed).random((2, tokens, tokens)) < 0.5
    found, begin = selection_rates(selected, first), min(first, tokens - 1)
    for d in range(tokens):
        pairs = [selected[text, i, i - d] for text in range(2) for i in range(max(d, begin), tokens)]
        assert found[d] == (sum(pairs) + 0.5) / (len(pairs) + 1)


@given(st.floats(0, 9), st.floats(0.01, 2), st.integers(-60, 60))
def test_encodings_by_distance_are_their_equations(first, second, distance):
    size = abs(distance)
    for encoding, expected in (
        (ALiBi((first,)), -first * size),
        (DecayBias(second), -second * max(distance, 0)),
        (KerpleLog((first,), (second,)), -first * math.log(1 + second * size)),
        (KerplePower((first,), (second,)), -first * size**second),
    ):
        (found,) = encoding.logits_at(np.array([distance]), 1)[0]
        assert found == pytest.approx(expected, rel=1e-14, abs=1e-300), encoding


@given(
    st.lists(st.floats(0.1, 20), min_size=3, max_size=3),
    st.sampled_from([2, 8, 128]),
    st.sampled_from([10.0, 10_000.0, 5e5]),
    st.lists(st.integers(-5000, 5000), min_size=1, max_size=5),
)
def test_sandwich_has_the_biases_of_its_paper(ratios, dimension, base, distances):
    """Chi et al. 2023, term by term; ratios that are left out are eight times the share of heads."""
    angles = [base ** (-2 * k / dimension) for k in range(1, dimension // 2 + 1)]
    sums = [math.fsum(math.cos(distance * angle) for angle in angles) for distance in distances]
    logits = Sandwich(ratios, dimension, base).logits_at(np.array(distances), 3)
    expected = np.array(sums) / np.array(ratios)[:, None]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-11 * dimension / min(ratios))
    shares = Sandwich([8 / 3, 16 / 3, 8.0])
    np.testing.assert_array_equal(Sandwich().logits_at(np.arange(9), 3), shares.logits_at(np.arange(9), 3))


# --- as written and what cannot be -------------------------------------------------------------------------


def test_parts_are_written_only_where_there_are_any():
    """Fingerprints are those of values from before there were such parts."""
    known = {
        Layer(): "79e9d8471256248d",
        Architecture(2): "62bf4d5c56add288",
        RoPE((1.0,), dimension=4): "1739a5903faa2a66",
    }
    assert {value: fingerprint(value) for value in known} == known
    plain = {"depth": 2, "residual": False, "mask": {"kind": "causal"}, "positional": {"kind": "nope"}}
    assert fingerprint(Network()) == fingerprint(plain)
    streamed = Architecture(2, streams=HyperConnections((THREE,), (0.5, 0.25, 0.25)))
    scales = (ScalableSoftmax((0.5, 1.0), (0.1,)), StepScale(0.1, 16384, 0))
    layers = [Layer(2, query_scale=one) for one in scales] + [Layer(normaliser=one()) for one in NORMALISERS]
    for value in (streamed, *layers, Layer(positional=Selected((0.5, 0.25)))):
        assert decode(type(value), encode(value)) == value


def test_what_cannot_be_is_refused():
    even, one = ((0.5, 0.5),) * 2, Connection(((1.0,),), (1.0,))
    refused("sinks", lambda: Layer(sinks=(0.0,), normaliser=ReLU()))
    refused("groups", lambda: Layer(heads=4, groups=3))
    refused("head_weights", *(lambda w=w: Layer(heads=2, head_weights=w) for w in ((1.0,), (0.5, 0.4))))
    refused("layers", lambda: Architecture(1, (Layer(), Layer())))
    refused("scale", lambda: Layer(heads=2, query_scale=ScalableSoftmax((1.0, 2.0, 3.0))))
    refused("beta", lambda: StepScale(-0.1, 4))
    refused("dimension", lambda: Sandwich(dimension=7))
    refused("rates", lambda: Selected((0.5, 0.0)))
    refused("dimension", lambda: RoPE((1.0,), dimension=3))
    refused("frequencies", lambda: RoPE((1.0,), dimension=2, frequencies=(1.0,)))
    refused("amplitudes", lambda: RoPE(((1.0, 2.0, 3.0),), dimension=4))
    refused("biases", *(lambda rows=rows: T5(rows) for rows in (((0.0,),), ((0.0, 1.0), (0.0, 1.0, 2.0)))))
    refused("biases", lambda: T5(((0.0,) * 5,), bidirectional=True))
    refused("max_distance", lambda: T5(((0.0,) * 8,), max_distance=4))
    refused("exponent", lambda: KerplePower((1.0,), (2.5,)))
    refused(
        "table",
        lambda: Tabulated(((0.0,), (0.0, 1.0))),
        lambda: Layer(positional=Tabulated(((0.0,),))).bias(np.arange(2)),
    )
    refused("after", lambda: Layer(positional=Tabulated(((0.0, 1.0),))).bias(np.arange(-1, 2)))
    refused("positional", lambda: Layer(positional=DenseLogits(((0.0,),))).bias(np.arange(1)))
    refused("positional", lambda: Layer(positional=DecayBias(1e308)).bias(np.arange(1_000)))
    refused("temperature", lambda: Layer(positional=ALiBi((1.0,)), temperature=1e-320).head_logits)
    refused("bias", lambda: Sigmoid().weights_of(np.zeros((1, 2))))
    refused("logits", lambda: masked_softmax(np.array([[np.nan]]), np.ones((1, 1), dtype=bool)))
    refused("allowed", lambda: masked_softmax(np.zeros((1, 1)), np.zeros((1, 1), dtype=bool)))
    words = ("windw=4", "window", "window=x", "window=0", "window=4:1:1:1", "causal=3")
    refused("mask", *(lambda word=word: mask_of(word) for word in words))
    refused(
        "table",
        lambda: influence(Architecture(1, (Layer(positional=Selected((0.5, 0.25))),), AttentionOnly()), 3),
    )
    refused("selected", lambda: selection_rates(np.ones((1, 2, 3), dtype=bool)))
    scaled = Layer(query_scale=StepScale(0.1, 4))
    refused("method", lambda: influence(Architecture(1, (scaled,)), 8, method="sweep"))
    for normaliser, constant in ((Sigmoid(), 3.0), (Unnormalised(), 0.0), (Unnormalised(), 800.0)):
        much = Layer(content=ConstantDiagonal((0.0,), (constant,)), normaliser=normaliser)
        refused("normaliser", lambda much=much: influence(Architecture(1, (much,), AttentionOnly()), 9))
    refused("mix", lambda: Connection(((0.5, 0.4), (0.5, 0.5)), (0.5, 0.5)))
    refused(
        "mix",
        lambda: Connection(((1.5, -0.5), (0.5, 0.5)), (0.5, 0.5)),
        lambda: Connection(((1.0,),), (0.5, 0.5)),
    )
    refused("read", lambda: Connection(even, (0.5, 0.4)))
    refused("write", lambda: Connection(((1.0,),), (1.0,), (0.5, 0.5)))
    refused("connections", lambda: HyperConnections((THREE,), (1.0,)), lambda: HyperConnections((), (1.0,)))
    three = HyperConnections((one,) * 2, (1.0,))
    refused("connections", lambda: Architecture(3, streams=three))
    half, wide = (
        Architecture(2, mixing=ConstantMixing(0.5)),
        Architecture(2, (Layer(3),), ConstantMixing(0.5)),
    )
    refused(
        "gates",
        lambda: gated(half, [[0.5]] * 3),
        lambda: gated(wide, [0.5, 0.5]),
        lambda: gated(half, [-0.5]),
    )
    refused("gates", lambda: gated(half, []), lambda: gated(replace(half, mixing=AttentionOnly()), [0.0]))
    refused("in_mixing", lambda: gated(Architecture(2), [0.5]))
    refused("in_mixing", lambda: gated(replace(half, streams=HyperConnections((one,), (1.0,))), [0.5]))
