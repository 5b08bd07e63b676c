"""The transform against the dense kernel, entry by entry, and its error bound against exact sums.

Dense products are `kernel.layer_kernel`; the raw sums of the levels are done again in extended precision.
"""

import numpy as np
import pytest
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal, NoContent
from posbias.theory.encodings import T5, ALiBi, DenseLogits, KerpleLog, KerplePower, RoPE, Tabulated
from posbias.theory.masks import Causal, Prefix, SlidingWindow
from posbias.theory.mixing import ConstantMixing
from posbias.theory.rollout import convolution, stream
from posbias.theory.rollout.dispatch import influence
from posbias.theory.rollout.kernel import dense_influence, layer_kernel

LONGEST = 700


def _tables(heads: int) -> dict[str, Tabulated]:
    """Tables that are hard on a transform: steep, rising, stepped, spiked, random over many magnitudes."""
    rng = np.random.default_rng(heads)
    d = np.arange(LONGEST)
    each = rng.uniform(0.3, 1, (heads, 1))
    return {
        "flat": Tabulated(np.zeros((heads, LONGEST))),
        "falling": Tabulated(-0.8 * each * d),
        "rising": Tabulated(0.8 * each * d),
        "stepped": Tabulated(-30.0 * each * (d // 150)),
        "spiked": Tabulated(np.where(d % 97 == 0, 80.0, rng.normal(0, 1, (heads, LONGEST)))),
        "random": Tabulated(rng.normal(0, 40, (heads, LONGEST))),
        "bent": Tabulated(-0.01 * each * np.minimum(d, 300) - 0.8 * np.maximum(d - 300, 0)),
        "plunging": Tabulated(-3.0 * each * d),
    }


def positionals(heads: int) -> st.SearchStrategy:
    def each(numbers, count=heads):
        return st.lists(numbers, min_size=count, max_size=count)

    return st.one_of(
        st.builds(RoPE, each(each(st.floats(-8, 8), 4)), dimension=st.just(8), base=st.floats(2, 1e6)),
        st.builds(RoPE, each(each(st.floats(-1, 1), 16)), dimension=st.just(32)),
        st.builds(T5, each(each(st.floats(-20, 20), 8)), st.integers(5, 600), st.booleans()),
        st.builds(KerpleLog, each(st.floats(0, 12)), each(st.floats(0.001, 10))),
        st.builds(KerplePower, each(st.floats(0, 2)), each(st.floats(0.1, 2))),
        st.sampled_from(list(_tables(heads).values())),
    )


contents = st.one_of(
    st.just(NoContent()),
    st.builds(
        lambda diagonal, first: ConstantDiagonal([diagonal], first_column=[first]),
        st.floats(-30, 30),
        st.floats(-30, 30),
    ),
)
masks = st.one_of(
    st.just(Causal()),
    st.builds(
        SlidingWindow, st.one_of(st.integers(60, 80), st.integers(1, 800)), st.sampled_from([0, 1, 4, 100])
    ),
)


@st.composite
def layers(draw) -> Layer:
    heads = draw(st.integers(1, 3))
    return Layer(
        heads=heads,
        mask=draw(masks),
        positional=draw(positionals(heads)),
        content=draw(contents),
        head_weights=[[1.0], [0.7, 0.3], [0.5, 0.2, 0.3]][heads - 1],
        temperature=draw(st.sampled_from([1.0, 2.0])),
        sinks=draw(st.none() | st.lists(st.floats(-20, 20), min_size=heads, max_size=heads)),
    )


ROWS = ("dense", "one", "wide", "early", "late", "steps", "spikes")


def row_of(kind: str, tokens: int, seed: int = 0) -> np.ndarray:
    """Rows whose entries are alike, are one alone, or span many orders of magnitude in one order or another."""
    rng = np.random.default_rng(seed)
    x = np.arange(tokens) / tokens
    return {
        "dense": rng.random(tokens),
        "one": (np.arange(tokens) == rng.integers(tokens)).astype(float),
        "wide": 10.0 ** rng.uniform(-60, 0, tokens),
        "early": (1 - x) ** 31 + 1e-40,
        "late": np.exp(-100 * (1 - x)) + (x > 0.999),
        "steps": np.where(x < 0.5, 1e-30, 1.0),
        "spikes": np.where(np.arange(tokens) % 89 == seed % 89, 1.0, 1e-25),
    }[kind]


def agree(layer: Layer, lam: float, row: np.ndarray) -> None:
    kernel = layer_kernel(layer, len(row))
    expected = (1 - lam) * row + lam * (row @ kernel)
    out, lost = convolution.push(layer, lam, row)
    large = expected > 1e-250
    np.testing.assert_allclose(out[large], expected[large], rtol=convolution.TOLERANCE, atol=0)
    assert (out[~large] <= 1.1e-250).all()
    assert (out >= 0).all()
    assert abs(lost - lam * (row @ (1 - kernel.sum(axis=1)))) <= 1e-12 * row.sum()
    how = convolution.accuracy(layer, lam, row)
    assert how.error <= convolution.TOLERANCE


@given(
    layers(),
    st.one_of(st.just(1.0), st.floats(0, 1)),
    st.integers(257, LONGEST),
    st.sampled_from(ROWS),
    st.integers(0, 99),
)
@examples(120)
def test_every_entry_is_within_the_tolerance(layer, lam, tokens, kind, seed):
    agree(layer, lam, row_of(kind, tokens, seed))


@pytest.mark.parametrize("kind", ["dense", "wide", "early"])
@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(700, 4)])
def test_two_thousand_tokens(mask, kind):
    rng = np.random.default_rng(3)
    for positional in (
        RoPE(rng.normal(0, 0.5, (2, 32)), dimension=64),
        RoPE(rng.normal(0, 4, (2, 32)), dimension=64),
        KerpleLog([1.5, 9.0]),
    ):
        content = ConstantDiagonal([2.0, -1.0], first_column=[3.0, 0.0])
        agree(Layer(2, mask, positional, content), 0.8, row_of(kind, 2003))


def exact_sums(u: np.ndarray, bias: np.ndarray, level: convolution.Level, keys: np.ndarray) -> np.ndarray:
    """Σ over groups and over the queries that each key meets at a level, in extended precision."""
    sums = np.zeros(len(keys), dtype=np.longdouble)
    reach = bias.shape[1] - 1
    for place, key in enumerate(keys):
        own = key // level.block
        end = (own // convolution.RADIX + 2) * convolution.RADIX * level.block
        queries = np.arange((own + 2) * level.block, min(end, key + reach + 1, u.shape[1]))
        terms = u[:, queries].astype(np.longdouble) * bias[:, queries - key].astype(np.longdouble)
        sums[place] = terms.sum()
    return sums


def prepared(layer: Layer, tokens: int) -> convolution.Prepared:
    made = convolution.prepare(layer, tokens)
    assert made is not None
    assert made.levels
    return made


@given(layers(), st.integers(257, LONGEST), st.sampled_from(ROWS), st.integers(0, 99))
@examples(60)
def test_the_bound_holds_for_raw_transforms(layer, tokens, kind, seed):
    made = convolution.prepare(layer, tokens)
    assume(made is not None and made.levels)
    u = row_of(kind, tokens, seed) * made.draw
    with np.errstate(over="ignore", invalid="ignore"):
        parts, errors = convolution.far(made, u)
    keys = np.arange(1, tokens, 7)
    for level, part, error in zip(made.levels, parts, errors, strict=True):
        exact = exact_sums(u, made.bias, level, keys)
        finite = np.isfinite(error[keys])
        off = np.abs(part[keys] - exact)[finite]
        # 1e-290: beyond what a double can tell from zero once it has been summed
        assert (off <= error[keys][finite] + exact[finite] * 1e-14 + 1e-290).all()


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision on this machine")
@pytest.mark.parametrize("length", [128, 512, 2048, 8192, 32_768, 131_072])
def test_a_transform_errs_as_little_as_the_bound_supposes(length):
    """In norm by at most STEPS·ε·log₂N, against the same transform in extended precision; and not far less."""
    n = np.arange(length)
    inputs = [row_of(kind, length, length) for kind in ROWS]
    inputs += [1 + np.cos(2 * np.pi * n * k / length) for k in (1, 3, length // 8, length // 3, length // 2)]
    inputs += [
        np.exp(-n / 7.0),
        1.0 / (1 + n),
        np.ones(length) / 3,
        np.where(n < length // 2, np.exp(n / 99.0 % 9), 0),
    ]
    supposed = convolution.STEPS * convolution.EPSILON * np.log2(length)
    worst = 0.0
    for given_row in inputs:
        there = np.asarray(given_row, dtype=np.longdouble)
        spectrum = convolution.fft.rfft(there)
        off = np.linalg.norm((convolution.fft.rfft(given_row) - spectrum).astype(complex))
        worst = max(worst, off / np.linalg.norm(spectrum.astype(complex)))
        back = convolution.fft.irfft(spectrum.astype(complex), length) - convolution.fft.irfft(
            spectrum.astype(complex).astype(np.clongdouble), length
        )
        worst = max(worst, float(np.linalg.norm(back) / np.linalg.norm(there)))
    assert supposed / 100 < worst < supposed


@pytest.mark.parametrize("kind", ["dense", "early", "late", "spikes", "signs"])
def test_the_bound_holds_for_long_transforms(kind):
    """Blocks of up to 4,096 tokens; `signs` lines the entries up with one frequency, so that it peaks."""
    tokens = 20_000
    rng = np.random.default_rng(5)
    made = prepared(Layer(2, positional=RoPE(rng.normal(0, 0.4, (2, 16)), dimension=32)), tokens)
    wave = 1.0 + np.cos(np.pi * np.arange(tokens) / 4)
    u = made.draw * (wave if kind == "signs" else row_of(kind, tokens))
    parts, errors = convolution.far(made, u)
    assert made.levels[-1].block == 4096
    keys = rng.integers(1, tokens, 60)
    tightest = 0.0
    for level, part, error in zip(made.levels, parts, errors, strict=True):
        off = np.abs(part[keys] - exact_sums(u, made.bias, level, keys)).astype(float)
        assert (off <= error[keys]).all()
        tightest = max(tightest, float(np.max(off[error[keys] > 0] / error[keys][error[keys] > 0])))
    # a bound ten thousand times too wide would make the recomputation needless work
    assert tightest > 1e-4


def test_what_the_transform_cannot_do_is_added_directly():
    """Here the raw transforms miss by far more than the tolerance; the bound says so and the sums are redone."""
    tokens = 690
    layer = Layer(2, SlidingWindow(300), Tabulated(np.random.default_rng(2).normal(0, 12, (2, LONGEST))))
    row = row_of("wide", tokens, 4)
    made = prepared(layer, tokens)
    u = row * made.draw
    raw = convolution.near(made, row, u) + convolution.far(made, u)[0].sum(axis=0)
    expected = row @ layer_kernel(layer, tokens)
    assert np.abs(raw / expected - 1).max() > 100 * convolution.TOLERANCE
    how = convolution.accuracy(layer, 1.0, row)
    assert how.engine == "fft"
    assert how.error <= convolution.TOLERANCE
    assert 0 < how.recomputed < 1
    agree(layer, 1.0, row)


def test_where_everything_is_doubtful_the_stream_takes_over():
    layer = Layer(positional=Tabulated(np.random.default_rng(1).normal(0, 60, LONGEST)))
    row = row_of("wide", LONGEST, 1)
    assert convolution.accuracy(layer, 1.0, row).engine == "stream"
    np.testing.assert_array_equal(convolution.push(layer, 1.0, row)[0], stream.push(layer, 1.0, row)[0])


@pytest.mark.parametrize("kind", ["dense", "early", "late"])
@pytest.mark.parametrize(
    "positional",
    [
        RoPE(np.random.default_rng(0).normal(0, 0.3, (2, 16)), dimension=32),
        KerpleLog([0.5, 2.0]),
        T5(np.random.default_rng(0).normal(0, 3, (2, 32))),
        Tabulated(-0.02 * np.arange(3000)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_ordinary_layers_need_no_recomputation(positional, kind):
    """Without it the choice of the transform would be a slow way to the stream; tilting does it for slopes."""
    for mask in (Causal(), SlidingWindow(1000, 4)):
        how = convolution.accuracy(Layer(2, mask, positional), 0.3, row_of(kind, 3000))
        assert how.engine == "fft"
        # a window cuts off what a row that rises by e^33 within it has there, so that some sums are doubtful
        assert how.recomputed < (0.3 if kind == "late" and mask != Causal() else 0.01)


def test_a_nan_is_never_passed_on(monkeypatch):
    """A transform that breaks down in one block: its sums are doubted and added directly."""
    inverse = convolution.fft.irfft

    def broken(*args, **kwargs):
        values = inverse(*args, **kwargs)
        values[0] = np.nan
        return values

    monkeypatch.setattr(convolution.fft, "irfft", broken)
    layer = Layer(2, positional=KerpleLog([0.5, 2.0]))
    agree(layer, 0.5, row_of("dense", 700))
    assert convolution.accuracy(layer, 0.5, row_of("dense", 700)).recomputed > 0


def test_layers_that_are_not_kept_give_the_same(monkeypatch):
    layer, row = Layer(2, positional=KerpleLog([0.5, 2.0])), row_of("dense", 700)
    kept = convolution.push(layer, 0.5, row)[0]
    np.testing.assert_array_equal(convolution.push(layer, 0.5, row)[0], kept)
    monkeypatch.setattr(convolution, "KEPT", 0)
    np.testing.assert_array_equal(convolution.push(layer, 0.5, row)[0], kept)


@pytest.mark.parametrize(
    "layer",
    [
        Layer(2, Prefix(9), KerpleLog([1.0, 2.0])),
        Layer(2, Causal(), DenseLogits(np.random.default_rng(0).normal(0, 2, (400, 400)))),
        Layer(2, Causal(), ALiBi()),
    ],
    ids=lambda layer: f"{type(layer.mask).__name__}-{type(layer.positional).__name__}",
)
def test_other_layers_are_pushed_all_the_same(layer):
    agree(layer, 0.5, row_of("dense", 400))


@pytest.mark.parametrize("lam", [0.2, 1.0])
@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(200, 2)])
def test_an_influence_through_many_layers(mask, lam):
    """Errors of layers add up: four of them stay within four tolerances, and by far."""
    rng = np.random.default_rng(8)
    stack = tuple(
        Layer(2, mask, RoPE(rng.normal(0, 0.6, (2, 8)), dimension=16), ConstantDiagonal([1.0]))
        for _ in range(4)
    )
    architecture = Architecture(4, stack, ConstantMixing(lam))
    profile = influence(architecture, 900, method="fft")
    assert profile.attrs["method"] == {"fft": 4}
    np.testing.assert_allclose(profile.mass, dense_influence(architecture, 900), rtol=1e-12)


def test_the_text_that_is_one_block_or_less_is_streamed():
    assert convolution.accuracy(Layer(positional=KerpleLog([1.0])), 0.5, np.ones(100)).engine == "stream"
