"""Laws every rollout obeys, over every variant of mask, encoding, content and mixing."""

import dataclasses

import numpy as np
from architectures import SHORTEST, architectures, layers
from dense import dense_influence
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from refused import refused

from posbias.core.spec import decode, encode, fingerprint
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.graph import reachable
from posbias.theory.masks import Causal, Chunked, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PerLayer
from posbias.theory.positional import ALiBi, Sandwich
from posbias.theory.rollout import influence, rollout, trajectory
from posbias.theory.rollout.kernel import layer_kernel

tokens_up_to_300 = st.one_of(st.integers(SHORTEST, 12), st.integers(120, 140), st.integers(250, 300))


@given(architectures(scaled=True), tokens_up_to_300)
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
    assert (matrix[~reachable(architecture, tokens, architecture.depth)] == 0).all()


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


@given(architectures())
def test_a_value_survives_its_spelling(architecture):
    again = decode(Architecture, encode(architecture))
    assert again == architecture
    assert fingerprint(again) == fingerprint(architecture)
    deeper = Architecture(depth=architecture.depth + 1, mixing=ConstantMixing(0.1))
    assert fingerprint(deeper) != fingerprint(architecture)


def test_wrong_arguments_and_matrices_beyond_the_memory_are_refused():
    architecture = Architecture(2)
    for tokens in (0, -5, True, 10**13):
        refused("tokens", lambda tokens=tokens: influence(architecture, tokens))
    refused("tokens", lambda: rollout(architecture, 3_000_000))
    refused("query", lambda: influence(architecture, 5, 5), lambda: influence(architecture, 5, -6))
