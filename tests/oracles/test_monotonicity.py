"""Violations of stochastic monotonicity against the loop over all triples, and the floor that noise sets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.core import machine
from posbias.core.errors import InvalidValueError
from posbias.profiles.stochastic_order import TOLERANCES, noise_floor, prefix_shares, violations


def naive(kernel, tolerance):
    """Rate and mean surplus by three loops over rows i < i′ and cutoffs k, all but the last."""
    tokens = len(kernel)
    rows = [[float(value) / sum(map(float, row)) for value in row] for row in kernel]
    surpluses = [
        sum(rows[later][: k + 1]) - sum(rows[i][: k + 1])
        for i in range(tokens)
        for later in range(i + 1, tokens)
        for k in range(tokens - 1)
    ]
    violated = [surplus for surplus in surpluses if surplus > tolerance]
    return len(violated) / max(1, len(surpluses)), float(np.mean(violated)) if violated else 0.0


def random_kernel(tokens, seed, causal=True):
    kernel = np.random.default_rng(seed).gamma(0.5, size=(tokens, tokens)) + 1e-3
    return np.tril(kernel) if causal else kernel


def decaying(tokens, slope):
    position = np.arange(tokens)
    kernel = np.tril(np.exp(-slope * np.abs(position[:, None] - position)))
    return kernel / kernel.sum(axis=1, keepdims=True)


@given(st.integers(1, 11), st.integers(0, 10**6), st.booleans())
def test_merging_counts_what_the_three_loops_count(tokens, seed, causal):
    # tolerances above the rounding of sums, where the loop's order of summation could decide a triple
    tolerances = (1e-12, 1e-4, 1e-2, 0.3)
    kernel = random_kernel(tokens, seed, causal)
    found = violations(kernel, tolerances)
    expected = [naive(kernel, tolerance) for tolerance in tolerances]
    np.testing.assert_allclose(found.rate, [rate for rate, _ in expected], rtol=1e-14)
    assert found.gap == pytest.approx(expected[0][1], rel=1e-9, abs=1e-15)


def test_a_case_done_by_hand():
    # prefixes .5, .8 | .2, .6 | .4, .5: of the six triples only row 1 → 2 at cutoff 0 rises, by .2
    kernel = np.array([[0.5, 0.3, 0.2], [0.2, 0.4, 0.4], [0.4, 0.1, 0.5]])
    found = violations(kernel, (0.0, 0.1, 0.3))
    np.testing.assert_allclose(found.rate, [1 / 6, 1 / 6, 0])
    assert found.gap == pytest.approx(0.2)


@pytest.mark.parametrize("slope", [0.0, 0.1, 2.0])
def test_kernels_that_keep_the_order_have_no_violation(slope):
    assert violations(decaying(90, slope), (1e-15,)).rate[0] == 0


def test_rows_are_renormalised_in_float64():
    kernel = decaying(120, 0.0).astype(np.float32)
    off = kernel * np.linspace(1, 1 + 1e-6, 120, dtype=np.float32)[:, None]
    # causal rows hold all of a prefix that they end in: exactly one, whatever float32 made of the sums
    assert violations(off).rate[TOLERANCES.index(1e-6)] == 0
    raw = off.cumsum(axis=1)[:, :-1]
    assert (np.diff(raw, axis=0) > 0).any()


@given(st.integers(2, 10), st.integers(0, 10**6), st.booleans())
def test_the_floor_is_twice_what_breaks_in_the_mean_but_not_in_both_halves(tokens, seed, tied):
    even, odd = (random_kernel(tokens, 2 * seed + half) for half in (0, 1))
    if tied:
        even[tokens // 2 :] = even[tokens // 2]
        odd[-1] = odd[-2]
    first, second = prefix_shares(even), prefix_shares(odd)
    count = 0
    for i in range(tokens):
        for later in range(i + 1, tokens):
            a, b = first[later] - first[i], second[later] - second[i]
            count += int(((a + b > 0) & ~((a > 0) & (b > 0))).sum())
    triples = tokens * (tokens - 1) // 2 * (tokens - 1)
    assert noise_floor(even, odd) == pytest.approx(2 * count / triples, rel=1e-14)


def halves(kernel, prompts, seed, concentration=5.0):
    """Mean kernels of even and odd prompts, whose rows are Dirichlet about those of `kernel`."""
    rng = machine.stream(seed, "kernels")
    drawn = np.tril(rng.gamma(kernel * concentration + 1e-12, size=(prompts, *kernel.shape)))
    drawn += 1e-12 * np.eye(len(kernel))
    drawn /= drawn.sum(axis=2, keepdims=True)
    return drawn[::2].mean(axis=0), drawn[1::2].mean(axis=0)


@pytest.mark.parametrize("slope", [0.0, 0.05])
@pytest.mark.parametrize("prompts", [8, 64])
def test_the_floor_is_near_the_rate_of_a_monotone_kernel(slope, prompts):
    """Over eight draws: the floor is above the rate seen, and by no more than a half."""
    rates, floors = [], []
    for seed in range(8):
        even, odd = halves(decaying(40, slope), prompts, seed)
        rates.append(violations((even + odd) / 2, (0.0,)).rate[0])
        floors.append(noise_floor(even, odd))
    assert np.mean(rates) > 0.005
    assert 1 < np.mean(floors) / np.mean(rates) < 1.5


def test_a_kernel_that_breaks_the_order_stands_above_its_floor():
    kernel = decaying(40, 0.05)
    kernel[20:30] = kernel[20:30][:, ::-1]
    kernel = np.tril(kernel) / np.tril(kernel).sum(axis=1, keepdims=True)
    even, odd = halves(kernel, 64, 3)
    rate = violations((even + odd) / 2, (0.0,)).rate[0]
    assert rate > 2.5 * noise_floor(even, odd)


def test_halves_that_agree_have_no_floor():
    kernel = random_kernel(20, 1)
    assert noise_floor(kernel, kernel) == 0


def test_unequal_halves_weigh_as_their_prompts():
    even, odd = halves(decaying(24, 0.05), 9, 4)
    assert noise_floor(even, odd, share=5 / 9) != noise_floor(even, odd)
    assert noise_floor(even, odd, share=5 / 9) == pytest.approx(
        noise_floor(odd, even, share=4 / 9), rel=1e-14
    )
    for share in (0, 1, np.nan):
        with pytest.raises(InvalidValueError, match="share"):
            noise_floor(even, odd, share)


@pytest.mark.parametrize(
    ("kernel", "tolerances", "says"),
    [
        (np.ones((2, 3)), (0.0,), "shape"),
        (-np.eye(2), (0.0,), "negative"),
        (np.full((2, 2), np.nan), (0.0,), "not finite"),
        (np.diag([1.0, 0.0]), (0.0,), "row 1 is empty"),
        (np.eye(2), (-1.0,), "tolerances"),
        (np.eye(2), (np.inf,), "tolerances"),
    ],
)
def test_what_is_no_kernel_is_refused(kernel, tolerances, says):
    with pytest.raises(InvalidValueError, match=says):
        violations(kernel, tolerances)
