"""Hyper-connections: rollouts over (stream, position) against dense products of the whole matrices."""

import numpy as np
import pytest
from architectures import SHORTEST, architectures, fractions
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.core.spec import decode, encode, fingerprint
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.encodings import ALiBi, KerpleLog
from posbias.theory.masks import Chunked, SlidingWindow
from posbias.theory.mixing import Connection, ConstantMixing, HyperConnections, PerLayer
from posbias.theory.rollout import influence, rollout, trajectory
from posbias.theory.rollout.kernel import dense_influence, layer_kernel

THREE = Connection(((0.8, 0.1, 0.1), (0.2, 0.5, 0.3), (0.0, 0.4, 0.6)), (0.2, 0.3, 0.5), (1.0, 0.5, 0.0))


def shares(count: int) -> st.SearchStrategy:
    numbers = st.lists(st.integers(0, 8), min_size=count, max_size=count).filter(any)
    return numbers.map(lambda given: tuple(one / sum(given) for one in given))


@st.composite
def streams(draw, depth: int, count: int | None = None):
    count = draw(st.integers(1, 4)) if count is None else count

    def connection():
        mix = tuple(draw(shares(count)) for _ in range(count))
        write = draw(st.one_of(st.none(), st.tuples(*[fractions] * count)))
        return Connection(mix, draw(shares(count)), write)

    return HyperConnections(
        tuple(connection() for _ in range(draw(st.sampled_from([1, depth])))), draw(shares(count))
    )


@st.composite
def cases(draw):
    architecture = draw(architectures(max_depth=3))
    given = draw(streams(architecture.depth))
    fields = {name: getattr(architecture, name) for name in ("depth", "layers", "mixing", "name")}
    return Architecture(**fields, streams=given)


def naive(architecture, tokens: int) -> np.ndarray:
    """The last token's row of ∏ R over all pairs (stream, position), summed over streams at the bottom."""
    given = architecture.streams
    count = len(given.collapse)
    product = np.eye(count * tokens)
    for t, layer in enumerate(architecture.stack):
        lam, kernel = architecture.coefficients[t], layer_kernel(layer, tokens)
        one = given.connections[t % len(given.connections)]
        blocks = [[None] * count for _ in range(count)]
        for s in range(count):
            written = lam * (1.0 if one.write is None else one.write[s])
            for r in range(count):
                blocks[s][r] = (1 - written) * one.mix[s][r] * np.eye(tokens) + written * one.read[r] * kernel
        product = np.block(blocks) @ product
    top = np.zeros(count * tokens)
    for s in range(count):
        top[s * tokens + tokens - 1] = given.collapse[s]
    return (top @ product).reshape(count, tokens).sum(axis=0)


@given(cases(), st.integers(SHORTEST, 24))
@examples(60)
def test_any_architecture_equals_the_product_over_streams_and_positions(architecture, tokens):
    expected = naive(architecture, tokens)
    for found in (influence(architecture, tokens).mass, dense_influence(architecture, tokens)):
        large = expected > 1e-250
        np.testing.assert_allclose(found[large], expected[large], rtol=1e-10, atol=0)


@given(architectures(max_depth=4), st.integers(SHORTEST, 40))
@examples(40)
def test_one_stream_is_the_residual_of_today(architecture, tokens):
    one = HyperConnections((Connection(((1.0,),), (1.0,)),), (1.0,))
    fields = {name: getattr(architecture, name) for name in ("depth", "layers", "mixing", "name")}
    plain, found = influence(architecture, tokens), influence(Architecture(**fields, streams=one), tokens)
    large = plain.mass > 1e-250
    np.testing.assert_allclose(found.mass[large], plain.mass[large], rtol=1e-11, atol=0)
    assert found.missing_mass == pytest.approx(plain.missing_mass, abs=1e-12)


@given(streams(4, count=3), fractions)
def test_mass_is_kept_and_streams_that_are_alike_are_one(given_, lam):
    layer = Layer(heads=2, positional=ALiBi((0.1, 0.5)))
    profile = influence(Architecture(4, (layer,), ConstantMixing(lam), streams=given_), 30)
    assert profile.mass.sum() == pytest.approx(1.0, abs=1e-12)
    even = (1 / 3,) * 3
    same = HyperConnections((Connection((even,) * 3, even),), even)
    plain = influence(Architecture(4, (layer,), ConstantMixing(lam)), 30)
    np.testing.assert_allclose(
        influence(Architecture(4, (layer,), ConstantMixing(lam), streams=same), 30).mass,
        plain.mass,
        rtol=1e-11,
    )


def test_every_engine_takes_its_layers_and_sinks_lose_as_much():
    layers = (
        Layer(heads=2, positional=ALiBi((0.1, 0.5)), sinks=(0.3,)),
        Layer(mask=SlidingWindow(40, 2), positional=KerpleLog((0.5,))),
        Layer(mask=Chunked(700)),
    )
    given = HyperConnections((THREE,), (0.5, 0.25, 0.25))
    architecture = Architecture(6, layers, PerLayer((0.9, 0.2, 0.5, 0.4, 0.8, 0.3)), streams=given)
    found = influence(architecture, 2100)
    assert found.attrs["method"] == {"sweep": 4, "fft": 2}
    slow = influence(architecture, 2100, method="stream")
    np.testing.assert_allclose(found.mass, slow.mass, rtol=1e-8, atol=1e-14)
    assert found.mass.sum() + found.missing_mass == pytest.approx(1.0, abs=1e-12)
    assert found.missing_mass == pytest.approx(slow.missing_mass, rel=1e-10)
    assert found.missing_mass > 0.01


def test_rows_and_layers_on_the_way():
    per_layer = HyperConnections(
        (THREE, Connection(((1.0, 0.0, 0.0),) * 3, (1.0, 0.0, 0.0))), (0.0, 0.0, 1.0)
    )
    architecture = Architecture(2, (Layer(),), ConstantMixing(0.5), streams=per_layer)
    matrix = rollout(architecture, 9)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(matrix[-1], naive(architecture, 9), rtol=1e-12)
    profiles = trajectory(architecture, 9)
    np.testing.assert_allclose(profiles[2].mass, matrix[-1], rtol=1e-12)
    first = Architecture(
        1, (Layer(),), ConstantMixing(0.5), streams=HyperConnections((THREE,), (0.0, 0.0, 1.0))
    )
    np.testing.assert_allclose(profiles[1].mass, naive(first, 9), rtol=1e-12)


def test_it_is_written_only_where_there_are_streams():
    assert "streams" not in encode(Architecture(2))
    assert fingerprint(Architecture(2)) == "62bf4d5c56add288"
    architecture = Architecture(2, streams=HyperConnections((THREE,), (0.5, 0.25, 0.25)))
    assert decode(Architecture, encode(architecture)) == architecture
    assert "streams: 3 (HyperConnections)" in str(architecture)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Connection(((0.5, 0.4), (0.5, 0.5)), (0.5, 0.5)), "mix: "),
        (lambda: Connection(((1.5, -0.5), (0.5, 0.5)), (0.5, 0.5)), "mix: 2 rows of 2 numbers ≥ 0"),
        (lambda: Connection(((1.0,),), (0.5, 0.5)), "mix: 2 rows of 2 numbers ≥ 0"),
        (lambda: Connection(((1.0,),), (0.5,)), "read: "),
        (lambda: Connection(((1.0,),), (1.0,), (0.5, 0.5)), "write: "),
        (lambda: HyperConnections((THREE,), (1.0,)), "connections: "),
        (lambda: HyperConnections((), (1.0,)), "connections: "),
        (
            lambda: Architecture(3, streams=HyperConnections((THREE, THREE), (1.0, 0.0, 0.0))),
            "connections: ",
        ),
    ],
)
def test_what_cannot_be_is_refused(made, words):
    with pytest.raises(InvalidValueError, match=words):
        made()
