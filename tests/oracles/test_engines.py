"""Engines that push a row through a layer: against the dense kernel and mpmath, over texts of any length.

Dense products are `kernel.layer_kernel`, itself a law of test_rollout; what sums of a transform may be off by is
held against extended precision.
"""

import mpmath
import numpy as np
import pytest
from architectures import LONGEST, SHORTEST, curved, exponential, fractions, masks
from architectures import layers as any_layers
from dense import dense_influence
from examples import examples
from hypothesis import assume, example, given
from hypothesis import strategies as st
from refused import refused

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.masks import Causal, Chunked, Full, Prefix, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PerLayer
from posbias.theory.positional import (
    T5,
    ALiBi,
    DecayBias,
    DenseLogits,
    KerpleLog,
    KerplePower,
    NoPE,
    RoPE,
    Tabulated,
)
from posbias.theory.rollout import convolution, dispatch, influence, stream, sweep
from posbias.theory.rollout.dispatch import push_pieces, sweep_pieces
from posbias.theory.rollout.kernel import layer_kernel

FAR = 700
KINDS = ("dense", "wide", "sparse", "one", "early", "late", "steps", "spikes")


def row_of(kind: str, tokens: int, seed: int = 0) -> np.ndarray:
    """Rows whose entries are alike, are few, or span many orders of magnitude in one order or another."""
    rng, x = np.random.default_rng(seed), np.arange(tokens) / tokens
    wide = rng.random(tokens) * 10.0 ** rng.uniform(-60, 0, tokens)
    return {
        "dense": rng.random(tokens),
        "wide": wide,
        "sparse": np.where(rng.random(tokens) < 0.8, 0.0, wide),
        "one": (np.arange(tokens) == rng.integers(tokens)).astype(float),
        "early": (1 - x) ** 31 + 1e-40,
        "late": np.exp(-100 * (1 - x)) + (x > 0.999),
        "steps": np.where(x < 0.5, 1e-30, 1.0),
        "spikes": np.where(np.arange(tokens) % 89 == seed % 89, 1.0, 1e-25),
    }[kind]


def agree(push, layer: Layer, lam: float, row: np.ndarray, rtol: float = 1e-12) -> None:
    """What comes out is (1 − λ)x + λ·xA by the dense kernel, what is lost what its rows lack to one."""
    kernel, given = layer_kernel(layer, len(row)), row.copy()
    expected = (1 - lam) * row + lam * (row @ kernel)
    out, lost = push(layer, lam, row)
    np.testing.assert_array_equal(row, given)
    large = expected > 1e-250
    np.testing.assert_allclose(out[large], expected[large], rtol=rtol, atol=0)
    assert (out[~large] <= 1.1e-250).all()
    assert (out >= 0).all()
    assert (out[expected == 0] == 0).all()
    assert abs(lost - lam * (row @ (1 - kernel.sum(axis=1)))) <= 1e-12 * row.sum()


# --- windows, prefixes and full masks ----------------------------------------------------------------------


@st.composite
def swept(draw) -> tuple[Layer, int]:
    """A layer that the sweep takes, and a number of tokens that its mask allows."""
    tokens = draw(st.one_of(st.integers(1, 12), st.integers(120, 140), st.integers(250, 300)))
    mask = masks(400, tokens, SlidingWindow | Prefix | Full | Causal)
    many_sinks = st.builds(SlidingWindow, st.integers(1, 400), st.integers(0, 320))
    layer = draw(any_layers(mask=mask | many_sinks, positional=exponential))
    assume("sweep" in dispatch.engines(layer))
    return layer, tokens


@given(swept(), fractions, st.integers(0, 9), st.sampled_from(KINDS[:4]))
@examples(400)
def test_a_swept_row_equals_its_product_with_the_kernel(case, lam, seed, kind):
    layer, tokens = case
    agree(sweep.push, layer, lam, row_of(kind, tokens, seed))


ALIGNED = (*range(1, 8), 127, 128, 129, 130, 131, 200, 256, 257, 258, 385, 386)


@pytest.mark.parametrize("encoding", [NoPE(), ALiBi([0.05, 0.0])])
def test_windows_and_prefixes_of_every_alignment_with_blocks_and_tiles(encoding):
    content = ConstantDiagonal([1.0, -2.0], first_column=[3.0, -1.0])
    for width in ALIGNED:
        prefix, window = Prefix(width), SlidingWindow(width, (0, 1, 2, 7)[width % 4])
        cases = [(prefix, width + more) for more in (0, 1, 130)]
        for mask, tokens in (*cases, *((window, tokens) for tokens in (1, 2, 3, 129, 257, 258, 387, 520))):
            layer = Layer(2, mask, encoding, content, sinks=[0.5])
            agree(sweep.push, layer, 0.7, row_of("wide", tokens, tokens))


@pytest.mark.parametrize("diagonal", [-1000.0, 0.0, 1000.0])
@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(2), SlidingWindow(140, 3), Prefix(40), Full()])
def test_logits_beyond_the_exponential(mask, diagonal):
    row = row_of("wide", 150, 2)
    for slope in (0.0, 1e-12, 1.0, 30.0, 900.0):
        for first, sink in ((-50.0, 50.0), (0.0, -50.0), (50.0, 50.0)):
            content = ConstantDiagonal([diagonal, 1.0], first_column=[first, -first])
            for encoding in (ALiBi([slope, 0.1]), DecayBias(slope)):
                agree(sweep.push, Layer(2, mask, encoding, content, sinks=[sink, 0.0]), 0.4, row)
    rng = np.random.default_rng(1)
    for far in (-1000.0, 1000.0):
        table = [np.where(rng.random(150) < 0.5, far, rng.normal(0, 3, 150)).tolist() for _ in range(2)]
        content = ConstantDiagonal([diagonal, -diagonal], first_column=[far, 2.0])
        layer = Layer(2, mask, Tabulated(table, after=table[::-1]), content, sinks=[far, -far])
        agree(stream.push, layer, 0.4, row)
        dense = DenseLogits(np.array(table[0])[:, None] + rng.normal(0, 300, (150, 150)))
        agree(stream.push, Layer(2, mask, dense, content, sinks=[1.0]), 0.4, row)


# --- against mpmath ----------------------------------------------------------------------------------------


def off(found: float, exact: mpmath.mpf) -> float:
    return float(abs(mpmath.mpf(float(found)) / exact - 1))


def exact_row(architecture: Architecture, tokens: int) -> list:
    """e_nᵀ R_T ⋯ R_1 with R = (1 − λ)I + λ·mean_h softmax(δ·1[i = j] − m(i − j)), entry by entry."""
    row = [mpmath.mpf(0)] * (tokens - 1) + [mpmath.mpf(1)]
    for layer, lam in list(zip(architecture.stack, architecture.coefficients, strict=True))[::-1]:
        lam = mpmath.mpf(float(lam))
        out = [(1 - lam) * p for p in row]
        fixed = layer.head_logits
        for m, delta in zip(fixed.slopes, fixed.diagonal, strict=True):
            m, delta = mpmath.mpf(float(m)), mpmath.mpf(float(delta))
            for i in range(tokens):
                weights = [mpmath.exp(-m * (i - j)) for j in range(i)] + [mpmath.exp(delta)]
                total = mpmath.fsum(weights)
                for j in range(i + 1):
                    out[j] += lam * row[i] * weights[j] / total / layer.heads
        row = out
    return row


BEYOND = [[(slope, delta)] for slope in (0.0, 0.5, 700.0, 900.0) for delta in (-1e6, -800.0, 800.0, 1e6)]
HEADS = st.lists(st.tuples(st.floats(0, 25), st.floats(-40, 40)), min_size=1, max_size=3)


@given(
    st.integers(1, 30),
    st.one_of(HEADS, st.sampled_from(BEYOND)),
    st.lists(st.floats(0.001, 1), min_size=1, max_size=3),
)
@example(48, [(12.0, 3.0), (20.0, -2.0)], [0.3] * 3)
@examples(60)
def test_every_entry_is_right_to_1e_12_at_60_digits(tokens, heads, mixing):
    slopes, diagonal = zip(*heads, strict=True)
    layer = Layer(heads=len(heads), positional=ALiBi(slopes), content=ConstantDiagonal(diagonal))
    architecture = Architecture(len(mixing), (layer,), PerLayer(mixing))
    with mpmath.workdps(60):
        for truth, got in zip(
            exact_row(architecture, tokens), influence(architecture, tokens).mass, strict=True
        ):
            assert off(got, truth) < 1e-12 if truth > mpmath.mpf("1e-250") else got <= 1.1e-250


@pytest.mark.parametrize("diagonal", [-40.0, -30.0])
def test_a_token_that_hardly_keeps_itself_keeps_its_digits(diagonal):
    """What the last token keeps is (1 − λ) + λ·exp(δ)/Z, however small; no difference may be taken."""
    layer = Layer(content=ConstantDiagonal([diagonal]))
    for tokens in (2, 3, 4, 127, 128, 129, 130, 131, 257, 259):
        for lam in (1.0, 1.0 - 1e-8, 0.5):
            mass = influence(Architecture(1, (layer,), ConstantMixing(lam)), tokens).mass
            with mpmath.workdps(40):
                own = mpmath.exp(diagonal)
                assert (
                    off(mass[-1], (1 - mpmath.mpf(lam)) + mpmath.mpf(lam) * own / (own + tokens - 1)) < 1e-12
                )
    for mask in (SlidingWindow(5), Prefix(3), Full()):
        for lam in (1.0, 1.0 - 1e-8):
            agree(sweep.push, Layer(mask=mask, content=ConstantDiagonal([diagonal])), lam, np.eye(200)[-1])


def exact_entry(slope: float, width: int, delta: float, row: np.ndarray, key: int) -> mpmath.mpf:
    """(row · A)_key by the definition, for a window alone and a row with few entries."""
    total, m, own = mpmath.mpf(0), mpmath.mpf(slope), mpmath.exp(mpmath.mpf(delta))
    for query in np.flatnonzero(row).tolist():
        if 0 <= query - key < width:
            seen = min(query, width - 1)
            # m + m² + … is exp(−m)·(1 − exp(−m·seen))/(1 − exp(−m))
            before = mpmath.exp(-m) * mpmath.expm1(-m * seen) / mpmath.expm1(-m) if m else mpmath.mpf(seen)
            weight = own if query == key else mpmath.exp(-m * (query - key))
            total += mpmath.mpf(float(row[query])) * weight / (own + before)
    return total


LONG = 1_000_000


@pytest.mark.parametrize("slope", [0.0, 1e-6, 5.4e-4])
def test_a_long_window_keeps_its_digits(slope):
    """A window of 1,000,000 over 2,300,000 tokens, entries down to 1e-240."""
    layer = Layer(1, SlidingWindow(LONG), ALiBi([slope]), ConstantDiagonal([1.5]))
    for queries in ([2_299_999], [1_200_000, 1_999_998, 2_100_007], [999_999, 1_000_000, 1_000_001]):
        row = np.zeros(2_300_000)
        row[queries] = np.linspace(0.3, 0.6, len(queries))
        out, _ = sweep.push(layer, 1.0, row)
        edges = {query - d for query in queries for d in (0, 1, 130, LONG - 1, LONG) if query >= d}
        with mpmath.workdps(40):
            for key in edges | {1, 500_000, 1_000_000, 1_300_001, 1_555_555, 2_000_000}:
                exact = exact_entry(slope, LONG, 1.5, row, key)
                assert off(out[key], exact) < 1e-12 if exact > mpmath.mpf("1e-250") else out[key] <= 1.1e-250


@pytest.mark.parametrize("engine", ["sweep", "windows", "full"])
def test_the_rounding_of_the_decay_does_not_add_up(engine):
    """The row of the last token is exp(−m·d)/Z, with the decay of a thousand whose power is rounded most."""
    tokens, slopes = (
        (55_000, 0.0101 + 1e-6 * np.arange(9))
        if engine == "sweep"
        else (3_000_000, np.linspace(1.7e-4, 1.8e-4, 1000))
    )
    exact = np.exp(-slopes.astype(np.longdouble) * sweep.BLOCK)
    slope = float(slopes[np.argmax(np.abs(exact.astype(np.float64) / exact - 1))])
    last = np.eye(1, tokens, tokens - 1)[0]
    layer = Layer(mask=Full() if engine == "full" else Causal(), positional=ALiBi([slope]))
    if engine == "sweep":
        out = influence(Architecture(1, (layer,), ConstantMixing(1.0)), tokens).mass
    else:
        out, _ = sweep.push(layer, 1.0, last)
    with mpmath.workdps(40):
        m = mpmath.mpf(slope)
        total = mpmath.expm1(-m * tokens) / mpmath.expm1(-m)
        for key in np.linspace(1, tokens - 1, 50).astype(int).tolist():
            assert off(out[key], mpmath.exp(-m * (tokens - 1 - key)) / total) < 1e-12


def test_sums_of_a_million_equal_terms_keep_their_digits():
    """Where whole windows before and after fit the text, columns of a kernel sum to one like its rows."""
    for slope in (0.0, 1e-12, 1e-6, 1e-4):
        out, _ = sweep.push(Layer(1, SlidingWindow(LONG), ALiBi([slope])), 1.0, np.full(2_500_000, 0.1))
        np.testing.assert_allclose(out[LONG : 2_500_000 - LONG], 0.1, rtol=1e-12)
    out, _ = sweep.push(Layer(mask=Full()), 1.0, np.full(LONG, 0.1))
    np.testing.assert_allclose(out, 0.1, rtol=1e-12)
    # a sink receives 1/(sinks + width) from every query that sees all it can; queries 0 and 1 see less
    out, _ = sweep.push(Layer(1, SlidingWindow(2, sinks=1)), 1.0, np.full(LONG, 0.1))
    assert abs(out[0] / (0.1 * (1 + 1 / 2 + (LONG - 2) / 3)) - 1) < 1e-12
    row = np.zeros(100_000)
    row[[50_000, 99_999]] = 0.25, 0.75
    out, _ = stream.push(Layer(positional=Tabulated([[0.1] * 100_000])), 1.0, row)
    np.testing.assert_allclose(
        out, 0.75 / 100_000 + 0.25 / 50_001 * (np.arange(100_000) <= 50_000), rtol=1e-14
    )
    # a narrow window hands what sinks receive on through 50,000 blocks
    out, _ = sweep.push(
        Layer(1, SlidingWindow(3, sinks=2), ALiBi([5e-3])), 1.0, np.eye(1, 100_000, 99_999)[0]
    )
    far = [mpmath.exp(-mpmath.mpf(5e-3) * (99_999 - key)) for key in (0, 1)]
    total = sum(far) + sum(mpmath.exp(-mpmath.mpf(5e-3) * d) for d in range(3))
    assert max(off(out[key], far[key] / total) for key in (0, 1)) < 1e-12


# --- the stream --------------------------------------------------------------------------------------------


@given(
    any_layers(),
    fractions,
    st.one_of(st.integers(SHORTEST, 20), st.integers(100, LONGEST)),
    st.integers(0, 9),
    st.sampled_from(KINDS[:4]),
)
@examples(300)
def test_a_streamed_row_equals_its_product_with_the_kernel(layer, lam, tokens, seed, kind):
    agree(stream.push, layer, lam, row_of(kind, tokens, seed))


def test_tables_are_shared_by_queries_where_none_sees_only_what_vanishes():
    for mask in (Causal(), SlidingWindow(900, 2)):
        layer = Layer(2, mask, KerplePower([0.9, 3.0]), ConstantDiagonal([1.0], first_column=[-2.0]))
        assert stream.tables(layer, 1500) is not None
        agree(stream.push, layer, 0.5, row_of("wide", 1500, 4))
    # a far distance that outweighs all near ones by e^900: early queries would be left without weights
    layer = Layer(positional=Tabulated([[0.0] * 30 + [900.0] * 10]))
    assert stream.tables(layer, 40) is None
    assert stream.tables(layer, 30) is not None
    agree(stream.push, layer, 1.0, row_of("dense", 40))


# --- chunks ------------------------------------------------------------------------------------------------

chunks = st.builds(Chunked, st.one_of(st.integers(1, 9), st.integers(100, 400)))


@given(any_layers(mask=chunks, positional=exponential), fractions, st.integers(1, 300), st.integers(0, 9))
@examples(60)
def test_each_chunk_is_a_causal_text_to_every_engine(layer, lam, tokens, seed):
    """The first column is that of the first chunk alone; what chunks lose to the sink adds up."""
    row, cuts = np.random.default_rng(seed).random(tokens), layer.mask.pieces(tokens)
    agree(lambda *given: dispatch._pushed("stream", *given), layer, lam, row)
    if "sweep" in dispatch.engines(layer):
        agree(lambda *given: push_pieces(sweep.push, *given), layer, lam, row)
        agree(lambda layer, lam, row: sweep_pieces([layer], np.array([lam]), row, cuts, 1), layer, lam, row)


@given(any_layers(mask=st.builds(Chunked, st.integers(260, 400)), positional=curved), st.integers(0, 9))
@examples(15)
def test_transforms_take_chunk_by_chunk(layer, seed):
    row = np.random.default_rng(seed).random(600)
    agree(lambda *given: push_pieces(convolution.push, *given), layer, 0.7, row, 2e-10)


@given(
    st.lists(
        st.sampled_from([Chunked(150), Causal(), SlidingWindow(40), Chunked(400)]), min_size=1, max_size=6
    )
)
@examples(15)
def test_layers_that_are_cut_alike_are_swept_together(masks):
    content = ConstantDiagonal((0.4,), first_column=(1.5,))
    stack = tuple(Layer(2, mask, ALiBi(), content, sinks=(0.3,)) for mask in masks)
    architecture = Architecture(len(stack), stack, PerLayer(tuple(np.linspace(0.3, 0.8, len(stack)))))
    profile, dense = influence(architecture, 700), dense_influence(architecture, 700)
    np.testing.assert_allclose(profile.mass, dense, rtol=1e-12, atol=1e-250)
    assert profile.method == {"sweep": len(stack)}
    for threads in (1, 3):
        np.testing.assert_array_equal(influence(architecture, 700, threads=threads).mass, profile.mass)


# --- transforms --------------------------------------------------------------------------------------------


def _tables(heads: int) -> list[Tabulated]:
    """Tables that are hard on a transform: flat, steep, rising, stepped, spiked, random, bent."""
    rng, d = np.random.default_rng(heads), np.arange(FAR)
    each = rng.uniform(0.3, 1, (heads, 1))
    tables = [
        np.zeros((heads, FAR)),
        -0.8 * each * d,
        0.8 * each * d,
        -3.0 * each * d,
        -30.0 * each * (d // 150),
    ]
    tables += [np.where(d % 97 == 0, 80.0, rng.normal(0, 1, (heads, FAR))), rng.normal(0, 40, (heads, FAR))]
    return [
        *map(Tabulated, tables),
        Tabulated(-0.01 * each * np.minimum(d, 300) - 0.8 * np.maximum(d - 300, 0)),
    ]


def transformed() -> st.SearchStrategy[Layer]:
    """Layers that transforms are for: logits by distance that are no exponential family."""
    widths = st.one_of(st.integers(60, 80), st.integers(1, 800))
    windows = st.builds(SlidingWindow, widths, st.sampled_from([0, 1, 4, 100]))
    return any_layers(
        mask=st.just(Causal()) | windows,
        positional=lambda heads: st.one_of(curved(heads), st.sampled_from(_tables(heads))),
    )


def transform_agrees(layer: Layer, lam: float, row: np.ndarray) -> None:
    agree(convolution.push, layer, lam, row, convolution.TOLERANCE)
    if (sums := convolution.transform(layer, lam, row)) is not None:
        least = sums.exact + np.maximum(sums.parts - sums.errors, 0.0).sum(axis=0)
        assert (sums.errors.sum(axis=0) <= convolution.TOLERANCE * np.maximum(least, 1e-290)).all()


@given(transformed(), fractions, st.integers(257, FAR), st.sampled_from(KINDS), st.integers(0, 99))
@examples(120)
def test_every_transformed_entry_is_within_the_tolerance(layer, lam, tokens, kind, seed):
    transform_agrees(layer, lam, row_of(kind, tokens, seed))


def exact_sums(u: np.ndarray, bias: np.ndarray, level: convolution.Level, keys: np.ndarray) -> np.ndarray:
    """Σ over groups and over the queries that each key meets at a level, in extended precision."""
    sums, reach = np.zeros(len(keys), dtype=np.longdouble), bias.shape[1] - 1
    for place, key in enumerate(keys):
        own = key // level.block
        end = (own // convolution.RADIX + 2) * convolution.RADIX * level.block
        queries = np.arange((own + 2) * level.block, min(end, key + reach + 1, u.shape[1]))
        sums[place] = (
            u[:, queries].astype(np.longdouble) * bias[:, queries - key].astype(np.longdouble)
        ).sum()
    return sums


@given(transformed(), st.integers(257, FAR), st.sampled_from(KINDS), st.integers(0, 99))
@examples(60)
def test_the_bound_holds_for_raw_transforms(layer, tokens, kind, seed):
    made = convolution.prepare(layer, tokens)
    assume(made is not None and made.levels)
    u = row_of(kind, tokens, seed) * made.draw
    with np.errstate(over="ignore", invalid="ignore"):
        parts, errors = convolution.far(made, u)
    keys = np.arange(1, tokens, 7)
    for level, part, error in zip(made.levels, parts, errors, strict=True):
        exact, finite = exact_sums(u, made.bias, level, keys), np.isfinite(error[keys])
        apart = np.abs(part[keys] - exact)[finite]
        # 1e-290: beyond what a double can tell from zero once it has been summed
        assert (apart <= error[keys][finite] + exact[finite] * 1e-14 + 1e-290).all()


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision on this machine")
@pytest.mark.parametrize("length", [128, 2048, 131_072])
def test_a_transform_errs_as_little_as_the_bound_supposes(length):
    """In norm by at most STEPS·ε·log₂N, against the same transform in extended precision; and not far less."""
    n, worst = np.arange(length), 0.0
    supposed = convolution.STEPS * convolution.EPSILON * np.log2(length)
    waves = [1 + np.cos(2 * np.pi * n * k / length) for k in (1, 3, length // 8, length // 3, length // 2)]
    for row in (*(row_of(kind, length, length) for kind in KINDS), *waves, np.exp(-n / 7.0), 1.0 / (1 + n)):
        there = np.asarray(row, dtype=np.longdouble)
        spectrum = convolution.fft.rfft(there)
        rounded = spectrum.astype(complex)
        apart = np.linalg.norm((convolution.fft.rfft(row) - spectrum).astype(complex))
        back = convolution.fft.irfft(rounded, length) - convolution.fft.irfft(
            rounded.astype(np.clongdouble), length
        )
        worst = max(
            worst, apart / np.linalg.norm(rounded), float(np.linalg.norm(back) / np.linalg.norm(there))
        )
    assert supposed / 100 < worst < supposed


@pytest.mark.parametrize("kind", ["dense", "early", "late", "spikes", "signs"])
def test_the_bound_holds_for_long_transforms(kind):
    """Blocks of up to 4,096 tokens; `signs` lines the entries up with one frequency, so that it peaks."""
    tokens, rng = 20_000, np.random.default_rng(5)
    made = convolution.prepare(Layer(2, positional=RoPE(rng.normal(0, 0.4, (2, 16)), dimension=32)), tokens)
    wave = 1.0 + np.cos(np.pi * np.arange(tokens) / 4)
    u = made.draw * (wave if kind == "signs" else row_of(kind, tokens))
    parts, errors = convolution.far(made, u)
    assert made.levels[-1].block == 4096
    keys, tightest = rng.integers(1, tokens, 60), 0.0
    for level, part, error in zip(made.levels, parts, errors, strict=True):
        apart = np.abs(part[keys] - exact_sums(u, made.bias, level, keys)).astype(float)
        assert (apart <= error[keys]).all()
        tightest = max(tightest, float(np.max(apart[error[keys] > 0] / error[keys][error[keys] > 0])))
    # a bound ten thousand times too wide would make the recomputation needless work
    assert tightest > 1e-4


def test_what_the_transform_cannot_do_is_added_directly_or_streamed(monkeypatch):
    """Here raw transforms miss by far more than the tolerance; the bound says so and the sums are redone."""
    layer = Layer(2, SlidingWindow(300), Tabulated(np.random.default_rng(2).normal(0, 12, (2, FAR))))
    row = row_of("wide", 690, 4)
    made = convolution.prepare(layer, 690)
    u = row * made.draw
    raw = convolution.near(made, row, u) + convolution.far(made, u)[0].sum(axis=0)
    assert np.abs(raw / (row @ layer_kernel(layer, 690)) - 1).max() > 100 * convolution.TOLERANCE
    sums = convolution.transform(layer, 1.0, row)
    assert sums is not None
    assert 0 < sums.recomputed < 1
    transform_agrees(layer, 1.0, row)
    doubtful = Layer(positional=Tabulated(np.random.default_rng(1).normal(0, 60, FAR)))
    for one, short in (
        (doubtful, row_of("wide", FAR, 1)),
        (Layer(positional=KerpleLog([1.0])), np.ones(100)),
    ):
        assert convolution.transform(one, 1.0, short) is None
        np.testing.assert_array_equal(convolution.push(one, 1.0, short)[0], stream.push(one, 1.0, short)[0])
    for one in (Layer(2, Prefix(9), KerpleLog([1.0, 2.0])), Layer(2, positional=ALiBi())):
        transform_agrees(one, 0.5, row_of("dense", 400))
    # a transform that breaks down in one block: its sums are doubted and added directly
    inverse = convolution.fft.irfft

    def broken(*args, **kwargs):
        values = inverse(*args, **kwargs)
        values[0] = np.nan
        return values

    monkeypatch.setattr(convolution.fft, "irfft", broken)
    layer, row = Layer(2, positional=KerpleLog([0.5, 2.0])), row_of("dense", 700)
    transform_agrees(layer, 0.5, row)
    assert convolution.transform(layer, 0.5, row).recomputed > 0


@pytest.mark.parametrize("kind", ["dense", "early", "late"])
@pytest.mark.parametrize("positional", [RoPE(np.random.default_rng(0).normal(0, 0.3, (2, 16)), dimension=32),
    KerpleLog([0.5, 2.0]), T5(np.random.default_rng(0).normal(0, 3, (2, 32))), Tabulated(-0.02 * np.arange(3000))],
    ids=lambda one: type(one).__name__)  # fmt: skip
def test_ordinary_layers_need_no_recomputation(positional, kind):
    """Without it the choice of the transform would be a slow way to the stream; tilting does it for slopes."""
    for mask in (Causal(), SlidingWindow(1000, 4)):
        sums = convolution.transform(Layer(2, mask, positional), 0.3, row_of(kind, 3000))
        assert sums is not None
        # a window cuts off what a row that rises by e^33 within it has there, so that some sums are doubtful
        assert sums.recomputed < (0.3 if kind == "late" and mask != Causal() else 0.01)


@pytest.mark.parametrize("lam", [0.2, 1.0])
@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(200, 2)])
def test_transforms_of_many_layers_kept_or_not(mask, lam, monkeypatch):
    """Errors of layers add up: four of them stay within four tolerances, and by far."""
    rng = np.random.default_rng(8)
    rotary = [RoPE(rng.normal(0, 0.6, (2, 8)), dimension=16) for _ in range(4)]
    stack = tuple(Layer(2, mask, one, ConstantDiagonal([1.0])) for one in rotary)
    architecture = Architecture(4, stack, ConstantMixing(lam))
    profile = influence(architecture, 900, method="fft")
    assert profile.method == {"fft": 4}
    np.testing.assert_allclose(profile.mass, dense_influence(architecture, 900), rtol=1e-12)
    monkeypatch.setattr(convolution, "KEPT", 0)
    np.testing.assert_array_equal(influence(architecture, 900, method="fft").mass, profile.mass)


def test_other_encodings_and_prefixes_beyond_the_text_are_refused():
    refused("positional", lambda: sweep.push(Layer(positional=KerpleLog([1.0], [1.0])), 0.5, np.ones(5)))
    refused("length", lambda: sweep.push(Layer(mask=Prefix(6)), 0.5, np.ones(5)))
