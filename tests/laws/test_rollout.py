"""Laws every rollout obeys, over every variant of mask, encoding, content and mixing."""

import dataclasses

import numpy as np
import pytest
from architectures import SHORTEST, architectures, exponential, layers
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from posbias.core import errors
from posbias.core.spec import decode, encode, fingerprint
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.content import ConstantDiagonal
from posbias.theory.encodings import ALiBi, DecayBias, NoPE
from posbias.theory.masks import Causal, Chunked, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PerLayer
from posbias.theory.positional import Sandwich
from posbias.theory.rollout import influence, rollout, sweep, trajectory
from posbias.theory.rollout.kernel import dense_influence, layer_kernel

tokens_up_to_300 = st.one_of(st.integers(SHORTEST, 12), st.integers(120, 140), st.integers(250, 300))


@given(architectures(), tokens_up_to_300)
@examples(300)
def test_influence_equals_dense_product_within_1e_12_relative(architecture, tokens):
    swept = influence(architecture, tokens).mass
    dense = dense_influence(architecture, tokens)
    large = dense > 1e-250
    np.testing.assert_allclose(swept[large], dense[large], rtol=1e-12, atol=0)
    assert (swept[~large] <= 1e-250).all()


@given(architectures(), st.integers(SHORTEST, 40))
def test_every_row_is_a_distribution_over_what_it_may_see(architecture, tokens):
    matrix = rollout(architecture, tokens)
    sinks = any(layer.sinks is not None for layer in architecture.layers)
    if not sinks:
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
    last = influence(architecture, tokens)
    assert abs(last.mass.sum() + last.missing_mass - 1.0) < 1e-12
    assert sinks or last.missing_mass == 0.0
    assert (matrix >= 0).all()
    reach = [max(layer.mask.reach(i, tokens) for layer in architecture.layers) for i in range(tokens)]
    seen = np.arange(tokens)[None, :] <= np.array(reach)[:, None]
    assert (matrix[~seen] == 0).all()


@given(layers(), st.floats(0, 1), st.integers(SHORTEST, 200))
def test_the_sink_takes_what_the_tokens_lack(layer, lam, tokens):
    """Against the dense kernel: what its row lacks to one, weighted by the row that is pushed through it."""
    two = Architecture(depth=2, layers=(layer,), mixing=ConstantMixing(lam))
    lacking = 1.0 - layer_kernel(layer, tokens).sum(axis=1)
    first = influence(Architecture(depth=1, layers=(layer,), mixing=ConstantMixing(lam)), tokens)
    expected = lam * lacking[-1] + lam * first.mass @ lacking
    np.testing.assert_allclose(influence(two, tokens).missing_mass, expected, rtol=1e-9, atol=1e-12)


@given(architectures(max_depth=4), st.integers(SHORTEST, 60))
def test_the_trajectory_ends_where_the_influence_is(architecture, tokens):
    path = trajectory(architecture, tokens)
    assert len(path) == architecture.depth + 1
    assert path[0].mass[-1] == 1.0
    np.testing.assert_allclose(path[-1].mass, influence(architecture, tokens).mass, rtol=1e-12, atol=1e-250)
    shallow = Architecture(1, architecture.stack[:1], PerLayer(architecture.coefficients[:1]))
    np.testing.assert_allclose(path[1].mass, influence(shallow, tokens).mass, rtol=1e-12, atol=1e-250)


@given(architectures(positional=exponential), st.integers(SHORTEST, 200))
def test_engines_agree(architecture, tokens):
    streamed = influence(architecture, tokens, method="stream")
    auto = influence(architecture, tokens)
    np.testing.assert_allclose(auto.mass, streamed.mass, rtol=1e-12, atol=1e-250)
    np.testing.assert_allclose(auto.missing_mass, streamed.missing_mass, rtol=1e-12, atol=1e-14)
    assert set(streamed.attrs["method"]) == {"stream"}


@given(st.integers(1, 20), st.integers(0, 7), st.integers(1, 9))
def test_a_pattern_repeats_up_to_any_depth(depth, local, window):
    """Full layers where transformers has them; the shortest pattern of the stack is the stack again."""
    architecture = Architecture.pattern(depth, local=local, window=window, layer=Layer(2, positional=ALiBi()))
    near, full = Layer(2, SlidingWindow(window), ALiBi()), Layer(2, positional=ALiBi())
    expected = tuple(near if (t + 1) % (local + 1) else full for t in range(depth))
    assert architecture.stack == expected
    assert Architecture(depth, shortest_pattern(expected)).stack == expected
    chunked = Architecture.pattern(depth, local=local, window=Chunked(window), layer=Layer(2))
    kinds = [type(layer.mask) for layer in chunked.stack]
    assert kinds == [Chunked if (t + 1) % (local + 1) else Causal for t in range(depth)]
    whole = Architecture(depth, expected)
    np.testing.assert_array_equal(influence(architecture, 12).mass, influence(whole, 12).mass)


@given(layers(mask=st.just(Causal())), st.integers(1, 60), st.integers(0, 3))
def test_a_window_of_the_whole_text_is_causal(layer, tokens, more):
    window = dataclasses.replace(layer, mask=SlidingWindow(tokens + more))
    causal, windowed = (
        influence(Architecture(depth=3, layers=(one,), mixing=ConstantMixing(0.4)), tokens).mass
        for one in (layer, window)
    )
    np.testing.assert_allclose(windowed, causal, rtol=1e-12, atol=1e-250)


@given(layers(sinks=False), st.integers(SHORTEST, 60))
def test_heads_count_through_their_weights_alone(layer, tokens):
    """Doubling every head, by list or by groups, changes nothing."""
    # slopes and ratios that are not given follow from the number of heads
    given = [getattr(layer.positional, name, ()) for name in ("slopes", "ratios")]
    assume(not isinstance(layer.positional, ALiBi | Sandwich) or None not in given)
    grouped = dataclasses.replace(
        layer, heads=2 * layer.heads, groups=layer.heads, head_weights=_halved(layer.head_weights)
    )
    one, two = (
        influence(Architecture(depth=2, layers=(each,), mixing=ConstantMixing(0.7)), tokens).mass
        for each in (layer, grouped)
    )
    np.testing.assert_allclose(two, one, rtol=1e-12, atol=1e-250)


def _halved(weights):
    return None if weights is None else [weight / 2 for weight in weights for _ in range(2)]


@given(architectures(), st.integers(SHORTEST, 40), st.data())
def test_influence_of_a_query_is_its_row(architecture, tokens, data):
    query = data.draw(st.integers(-tokens, tokens - 1))
    row = rollout(architecture, tokens)[query]
    np.testing.assert_array_equal(rollout(architecture, tokens, rows=[0, query])[1], row)
    np.testing.assert_array_equal(influence(architecture, tokens, query).mass, row)


@given(layers(), st.integers(SHORTEST, 30))
def test_layer_kernel_rows_are_distributions_with_masked_zeros(layer, tokens):
    kernel = layer_kernel(layer, tokens)
    if layer.sinks is None:
        np.testing.assert_allclose(kernel.sum(axis=1), 1.0, atol=1e-12)
    assert (kernel.sum(axis=1) < 1 + 1e-12).all()
    assert (kernel[~layer.mask.allowed(tokens)] == 0).all()


@given(layers(), st.integers(SHORTEST, 200), st.integers(1, 5))
def test_without_mixing_nothing_moves(layer, tokens, depth):
    still = Architecture(depth=depth, layers=(layer,), mixing=ConstantMixing(0.0))
    assert influence(still, tokens).mass[-1] == 1.0


@given(layers(), st.integers(SHORTEST, 200))
def test_slope_zero_is_no_encoding(layer, tokens):
    def with_positional(positional):
        return Architecture(
            depth=3, layers=(dataclasses.replace(layer, positional=positional),), mixing=ConstantMixing(0.4)
        )

    expected = influence(with_positional(NoPE()), tokens).mass
    for zero in (ALiBi([0.0] * layer.heads), DecayBias(0.0)):
        np.testing.assert_array_equal(influence(with_positional(zero), tokens).mass, expected)


@given(architectures(max_depth=4), layers(), st.floats(0, 1), st.integers(SHORTEST, 40))
def test_one_more_layer_is_one_more_factor(architecture, layer, lam, tokens):
    taller = Architecture(
        depth=architecture.depth + 1,
        layers=(*architecture.stack, layer),
        mixing=PerLayer([*architecture.coefficients, lam]),
    )
    transition = (1 - lam) * np.eye(tokens) + lam * layer_kernel(layer, tokens)
    np.testing.assert_allclose(
        rollout(taller, tokens), transition @ rollout(architecture, tokens), rtol=1e-11, atol=1e-280
    )


@given(architectures(), st.integers(1, 5))
def test_order_of_layers_matters_only_through_the_product(architecture, shift):
    """Rolling the stack rolls the factors: a reversed layer order would show."""
    tokens = 17
    stack, lams = architecture.stack, architecture.coefficients
    k = shift % architecture.depth
    rolled = Architecture(
        depth=architecture.depth, layers=stack[k:] + stack[:k], mixing=PerLayer(np.roll(lams, -k))
    )
    product = np.eye(tokens)
    for layer, lam in zip(rolled.stack, rolled.coefficients, strict=True):
        product = ((1 - lam) * np.eye(tokens) + lam * layer_kernel(layer, tokens)) @ product
    np.testing.assert_allclose(rollout(rolled, tokens), product, rtol=1e-11, atol=1e-280)


@pytest.mark.parametrize("tokens", [4096, 4097, 20_000, 33_333])
@pytest.mark.parametrize("threads", [2, 3, 7])
def test_any_number_of_threads_gives_the_same_bytes(tokens, threads):
    rng = np.random.default_rng(tokens)
    stack = tuple(
        Layer(heads=4, positional=ALiBi(rng.uniform(0, 0.5, 4)), content=ConstantDiagonal(rng.normal(size=4)))
        for _ in range(5)
    )
    architecture = Architecture(depth=5, layers=stack, mixing=PerLayer(rng.uniform(size=5)))
    one = influence(architecture, tokens, threads=1).mass
    assert influence(architecture, tokens, threads=threads).mass.tobytes() == one.tobytes()


def test_tokens_after_the_query_have_no_influence():
    profile = influence(Architecture(depth=4, mixing=ConstantMixing(0.3)), 100, query=40)
    assert (profile.mass[41:] == 0).all()
    np.testing.assert_array_equal(
        profile.mass[:41], influence(Architecture(depth=4, mixing=ConstantMixing(0.3)), 41).mass
    )


@given(architectures())
def test_a_value_survives_its_spelling(architecture):
    again = decode(Architecture, encode(architecture))
    assert again == architecture
    assert fingerprint(again) == fingerprint(architecture)
    deeper = Architecture(depth=architecture.depth + 1, mixing=ConstantMixing(0.1))
    assert fingerprint(deeper) != fingerprint(architecture)


@given(st.integers(1, 3000))
def test_spans_cover_every_token_once_last_first(blocks):
    tokens = blocks * 37
    covered = [token for low, high in reversed(sweep._spans(tokens)) for token in (low, high)]
    assert covered[0] == 0
    assert covered[-1] == tokens
    assert covered[1:-1:2] == covered[2:-1:2]


@pytest.mark.parametrize(
    ("tokens", "query", "argument"),
    [(0, -1, "tokens"), (-5, -1, "tokens"), (True, -1, "tokens"), (10**13, -1, "tokens"), (5, 5, "query"),
     (5, -6, "query")],
)  # fmt: skip
def test_wrong_arguments_are_named(tokens, query, argument):
    with pytest.raises(errors.InvalidValueError, match=f"^{argument}: "):
        influence(Architecture(depth=2), tokens, query)


def test_a_matrix_that_memory_cannot_hold_is_refused_before_it_is_made():
    with pytest.raises(
        errors.InvalidValueError, match=r"tokens: 3000000 given; that takes about 72,000\.0 GB"
    ):
        rollout(Architecture(depth=2), 3_000_000)
