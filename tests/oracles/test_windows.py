"""The sweep under windows, prefixes and full masks against the dense kernel, and long windows against mpmath."""

import dataclasses

import mpmath
import numpy as np
import pytest
from architectures import exponential, fractions
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.theory.architecture import Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.encodings import ALiBi, DecayBias, KerpleLog, NeedsMeasurement, NoPE
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias.theory.rollout import sweep, windows
from posbias.theory.rollout.kernel import layer_kernel

diagonals = st.one_of(st.just(0.0), st.floats(-30, 30), st.sampled_from([-1000.0, 1000.0]))
bounded = st.one_of(st.just(0.0), st.floats(-5, 5), st.floats(-50, 50), st.sampled_from([-50.0, 50.0]))
extreme = st.sampled_from([0.0, 1e-12, 1e-5, 0.7, 20.0, 900.0])
lengths = st.one_of(st.integers(1, 12), st.integers(120, 140), st.integers(250, 300))


@st.composite
def cases(draw) -> tuple[Layer, int]:
    """A layer that the sweep takes, and a number of tokens that its mask allows."""
    tokens = draw(lengths)
    widths = st.one_of(st.integers(1, 9), st.integers(1, 400))
    mask = draw(
        st.one_of(
            st.builds(
                SlidingWindow, widths, st.one_of(st.sampled_from([0, 0, 1, 2, 5]), st.integers(0, 320))
            ),
            st.builds(Prefix, st.integers(1, tokens)),
            st.just(Full()),
            st.just(Causal()),
        )
    )
    heads = draw(st.integers(1, 5))
    few = draw(st.booleans())

    def each(numbers):
        # lists of one number make all heads equal, which the sweep merges
        return st.lists(numbers, min_size=1 if few else heads, max_size=1 if few else heads)

    raw = draw(st.lists(st.integers(0, 8), min_size=heads, max_size=heads).filter(any))
    layer = Layer(
        heads=heads,
        mask=mask,
        positional=draw(
            st.one_of(exponential(heads), st.builds(ALiBi, each(extreme)), st.builds(DecayBias, extreme))
        ),
        content=draw(st.builds(ConstantDiagonal, each(diagonals), each(bounded), each(bounded))),
        head_weights=[one / sum(raw) for one in raw] if draw(st.booleans()) else None,
        temperature=draw(st.sampled_from([1.0, 1.0, 3.0])),
        sinks=draw(st.one_of(st.none(), each(st.floats(-50, 0)))),
    )
    return layer, tokens


def rows(tokens: int, seed: int, kind: str) -> np.ndarray:
    """A row that is dense, spans thirty orders of magnitude, has a few entries, or one."""
    rng = np.random.default_rng(seed)
    row = rng.random(tokens)
    if kind == "wide":
        row *= 10.0 ** rng.uniform(-30, 0, tokens)
    if kind == "sparse":
        row[rng.random(tokens) < 0.8] = 0.0
    if kind == "one":
        row = np.zeros(tokens)
        row[rng.integers(tokens)] = 1.0
    return row


kinds = st.sampled_from(["dense", "wide", "sparse", "one"])


def agree(layer: Layer, lam: float, row: np.ndarray) -> None:
    kernel = layer_kernel(layer, len(row))
    expected = (1 - lam) * row + lam * (row @ kernel)
    given = row.copy()
    out, lost = windows.push(layer, lam, row)
    np.testing.assert_array_equal(row, given)
    large = expected > 1e-250
    np.testing.assert_allclose(out[large], expected[large], rtol=1e-12, atol=0)
    assert (out[~large] <= 1.1e-250).all()
    assert (out >= 0).all()
    assert (out[expected == 0] == 0).all()
    assert abs(lost - lam * (row @ (1 - kernel.sum(axis=1)))) <= 1e-12 * row.sum()


@given(cases(), fractions, st.integers(0, 9), kinds)
@examples(400)
def test_a_row_equals_its_product_with_the_kernel(case, lam, seed, kind):
    layer, tokens = case
    agree(layer, lam, rows(tokens, seed, kind))


@pytest.mark.parametrize("sinks", [0, 1, 2, 7])
@pytest.mark.parametrize("width", [*range(1, 8), 127, 128, 129, 130, 131, 200, 256, 257, 258, 385, 386])
def test_blocks_and_tiles_of_every_alignment(width, sinks):
    content = ConstantDiagonal([1.0, -2.0], first_column=[3.0, -1.0])
    layer = Layer(2, SlidingWindow(width, sinks), ALiBi([0.05, 0.0]), content, sinks=[0.5])
    for tokens in (1, 2, 3, 129, 257, 258, 386, 387, 520):
        agree(layer, 0.7, rows(tokens, tokens, "wide"))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 127, 128, 129, 130, 131, 257, 258, 300])
@pytest.mark.parametrize(
    "positional", [NoPE(), ALiBi([0.3, 0.01]), DecayBias(0.3), NeedsMeasurement("rotary")]
)
def test_prefixes_of_every_alignment(length, positional):
    layer = Layer(2, Prefix(length), positional, ConstantDiagonal([1.0, -2.0], first_column=[3.0, -1.0]))
    for tokens in (length, length + 1, length + 130):
        agree(layer, 0.7, rows(tokens, tokens, "wide"))


@pytest.mark.parametrize("diagonal", [-1000.0, 0.0, 1000.0])
@pytest.mark.parametrize("slope", [0.0, 1e-12, 1.0, 30.0, 900.0])
@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(2), SlidingWindow(140, 3), Prefix(40), Full()])
def test_logits_beyond_the_exponential(mask, slope, diagonal):
    for first in (-50.0, 0.0, 50.0):
        for sink in (-50.0, 50.0):
            content = ConstantDiagonal([diagonal, 1.0], first_column=[first, -first])
            for positional in (ALiBi([slope, 0.1]), DecayBias(slope)):
                layer = Layer(2, mask, positional, content, sinks=[sink, 0.0])
                agree(layer, 0.4, rows(150, 2, "wide"))


def test_what_a_token_hardly_keeps_keeps_its_digits():
    """(1 − λ) + λ·exp(δ)/Z with λ near 1: no difference may be taken."""
    for mask in (SlidingWindow(5), Prefix(3), Full()):
        layer = Layer(mask=mask, content=ConstantDiagonal([-40.0]))
        for lam in (1.0, 1.0 - 1e-8):
            agree(layer, lam, np.eye(200)[-1])


@given(cases(), fractions, st.integers(0, 9), st.integers(0, 3))
@examples(60)
def test_a_window_of_the_whole_text_is_causal(case, lam, seed, more):
    layer, tokens = case
    row = rows(tokens, seed, "wide")
    causal = dataclasses.replace(layer, mask=Causal())
    out, lost = windows.push(causal, lam, row)
    wide = dataclasses.replace(layer, mask=SlidingWindow(tokens + more))
    if tokens > 1:
        np.testing.assert_allclose(windows.push(wide, lam, row)[0], out, rtol=1e-13, atol=1e-260)
    swept, taken = sweep.sweep(sweep.plan((causal,), np.array([lam]), tokens), row)
    np.testing.assert_allclose(out, swept, rtol=1e-12, atol=1e-250)
    np.testing.assert_allclose(lost, taken, rtol=1e-10, atol=1e-13 * row.sum())


LONG = 1_000_000


def exact_entry(layer: Layer, row: np.ndarray, key: int) -> mpmath.mpf:
    """(row · A)_key by the definition, for a window alone and a row with few entries."""
    total = mpmath.mpf(0)
    width = layer.mask.width
    fixed = layer.head_logits()
    for m, delta in zip(fixed.slopes, fixed.diagonal, strict=True):
        m, own = mpmath.mpf(float(m)), mpmath.exp(mpmath.mpf(float(delta)))
        for query in np.flatnonzero(row).tolist():
            if not 0 <= query - key < width:
                continue
            seen = min(query, width - 1)
            # m + m² + … is exp(−m)·(1 − exp(−m·seen))/(1 − exp(−m))
            before = mpmath.exp(-m) * mpmath.expm1(-m * seen) / mpmath.expm1(-m) if m else mpmath.mpf(seen)
            weight = own if query == key else mpmath.exp(-m * (query - key))
            total += mpmath.mpf(float(row[query])) * weight / (own + before) / layer.heads
    return total


@pytest.mark.parametrize("slope", [0.0, 1e-12, 1e-6, 3e-5, 5.4e-4])
def test_a_long_window_keeps_its_digits(slope):
    """A window of 1,000,000 over 2,300,000 tokens, entries down to 1e-240."""
    tokens = 2_300_000
    layer = Layer(1, SlidingWindow(LONG), ALiBi([slope]), ConstantDiagonal([1.5]))
    for queries in ([2_299_999], [1_200_000, 1_999_998, 2_100_007], [999_999, 1_000_000, 1_000_001]):
        row = np.zeros(tokens)
        row[queries] = np.linspace(0.3, 0.6, len(queries))
        out, _ = windows.push(layer, 1.0, row)
        edges = [query - d for query in queries for d in (0, 1, 130, LONG - 1, LONG)]
        with mpmath.workdps(40):
            for key in {*edges, 1, 500_000, 1_000_000, 1_300_001, 1_555_555, 2_000_000}:
                exact = exact_entry(layer, row, key) if key >= 0 else None
                if exact is None or exact < mpmath.mpf("1e-250"):
                    assert key < 0 or out[key] <= 1.1e-250
                else:
                    assert abs(mpmath.mpf(float(out[key])) / exact - 1) < 1e-12


def test_the_rounding_of_the_decay_does_not_add_up():
    """3,000,000 tokens with the decay, of a thousand, whose power over a tile is rounded most."""
    tokens = 3_000_000
    slopes = np.linspace(1.7e-4, 1.8e-4, 1000)
    exact = np.exp(-slopes.astype(np.longdouble) * windows.TILE)
    slope = float(slopes[np.argmax(np.abs(exact.astype(np.float64) / exact - 1))])
    last = np.zeros(tokens)
    last[-1] = 1.0
    out, _ = windows.push(Layer(positional=ALiBi([slope])), 1.0, last)
    first, _ = windows.push(Layer(mask=Full(), positional=ALiBi([slope])), 1.0, last[::-1])
    with mpmath.workdps(40):
        m = mpmath.mpf(slope)
        total = mpmath.expm1(-m * tokens) / mpmath.expm1(-m)
        for key in (1, 1000, 500_000, 1_400_000, 2_999_999):
            exact = mpmath.exp(-m * (tokens - 1 - key)) / total
            assert abs(mpmath.mpf(float(out[key])) / exact - 1) < 1e-12
            assert abs(mpmath.mpf(float(first[tokens - 1 - key])) / exact - 1) < 1e-12


@pytest.mark.parametrize("slope", [0.0, 1e-12, 1e-6, 1e-4])
def test_a_sum_of_a_million_equal_terms_keeps_its_digits(slope):
    """Where whole windows before and after fit the text, columns of the kernel sum to one like its rows."""
    layer = Layer(1, SlidingWindow(LONG), ALiBi([slope]))
    out, _ = windows.push(layer, 1.0, np.full(2_500_000, 0.1))
    np.testing.assert_allclose(out[LONG : 2_500_000 - LONG], 0.1, rtol=1e-12)


def test_a_full_mask_over_a_long_text_keeps_its_digits():
    """No encoding: every entry is the mean of the row; with decay the last token draws exp(−m·d)/Z."""
    out, _ = windows.push(Layer(mask=Full()), 1.0, np.full(LONG, 0.1))
    np.testing.assert_allclose(out, 0.1, rtol=1e-12)
    last = np.zeros(LONG)
    last[-1] = 1.0
    out, _ = windows.push(Layer(mask=Full(), positional=ALiBi([5e-4])), 1.0, last)
    with mpmath.workdps(40):
        m = mpmath.mpf(5e-4)
        total = mpmath.expm1(-m * LONG) / mpmath.expm1(-m)
        for key in np.linspace(0, LONG - 1, 50).astype(int).tolist():
            exact = mpmath.exp(-m * (LONG - 1 - key)) / total
            assert abs(mpmath.mpf(float(out[key])) / exact - 1) < 1e-12


def test_streaming_sinks_over_a_long_text_keep_their_digits():
    """A narrow window hands what sinks receive on through 50,000 blocks."""
    tokens, slope = 100_000, 5e-3
    layer = Layer(1, SlidingWindow(3, sinks=2), ALiBi([slope]))
    row = np.zeros(tokens)
    row[-1] = 1.0
    out, _ = windows.push(layer, 1.0, row)
    with mpmath.workdps(40):
        m = mpmath.mpf(slope)
        near = 1 + mpmath.exp(-m) + mpmath.exp(-2 * m)
        far = [mpmath.exp(-m * (tokens - 1 - key)) for key in (0, 1)]
        for key in (0, 1):
            exact = far[key] / (near + sum(far))
            assert exact > mpmath.mpf("1e-250")
            assert abs(mpmath.mpf(float(out[key])) / exact - 1) < 1e-12


def test_streaming_sinks_add_a_million_equal_terms():
    """No encoding: a sink receives a share 1/(sinks + width) from every query that sees all it can."""
    tokens = 1_000_000
    out, _ = windows.push(Layer(1, SlidingWindow(2, sinks=1)), 1.0, np.full(tokens, 0.1))
    # queries 0 and 1 see themselves and what is before them, the others three keys
    exact = 0.1 * (1 + 1 / 2 + (tokens - 2) / 3)
    assert abs(out[0] / exact - 1) < 1e-12


def test_other_encodings_and_prefixes_beyond_the_text_are_refused():
    with pytest.raises(InvalidValueError, match=r"^positional: "):
        windows.push(Layer(positional=KerpleLog([1.0], [1.0])), 0.5, np.ones(5))
    with pytest.raises(InvalidValueError, match=r"^length: "):
        windows.push(Layer(mask=Prefix(6)), 0.5, np.ones(5))
