"""Shannon similarity (Eq. 9) against counting by hand, and both readings of its range."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias_papers.herasimchyk2026.configs import BINS
from posbias_papers.herasimchyk2026.quantities import fit, shannon_similarity, similarity


def naive(entries, bins, low, high):
    """Bin by bin with plain floats; a bin holds its lower edge, the last one both."""
    counts = [0] * bins
    for entry in entries:
        if low <= entry <= high:
            counts[min(bins - 1, int((entry - low) / (high - low) * bins))] += 1
    total = sum(counts)
    entropy = -sum(count / total * math.log(count / total) for count in counts if count)
    return 1 - entropy / math.log(bins)


def matrices(layers=2, heads=3, tokens=7):
    """Random content, NaN above the diagonal."""
    drawn = np.random.default_rng(0).normal(size=(layers, heads, tokens, tokens))
    drawn *= np.arange(1, heads + 1)[:, None, None]
    drawn[..., np.triu(np.ones((tokens, tokens), bool), 1)] = np.nan
    return drawn


@given(st.lists(st.integers(-40, 40), min_size=1, max_size=30), st.integers(2, 9))
def test_similarity_is_one_minus_normalised_entropy(entries, bins):
    # a span of bins · 16 around integers: no entry is within rounding of an edge it is not on
    low, high = -64.0, -64.0 + 16 * bins
    inside = [entry for entry in entries if low <= entry <= high]
    found = shannon_similarity(np.array(entries, float), bins, (low, high))
    if inside:
        assert found == pytest.approx(naive(inside, bins, low, high), abs=1e-14)
        assert -1e-15 <= found <= 1
    else:
        assert math.isnan(found)


def test_extremes():
    assert shannon_similarity(np.full(5, 2.0), 10, (2.0, 2.0)) == 1
    assert shannon_similarity(np.full(5, 2.0), 10, (0.0, 3.0)) == 1
    assert shannon_similarity(np.arange(8.0), 8, (0.0, 7.0)) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("reading", ["corrected", "published"])
@pytest.mark.parametrize("bins", [2, 20, BINS])
def test_similarity_of_each_region_of_mean_content(reading, bins):
    """In each set's own range, or in one from quantiles of all entries; masked ones do not count."""
    content = matrices(tokens=30)
    content[0, 0, 5, 1] = np.nan
    shared = np.quantile(content[~np.isnan(content)], (0.005, 0.995)).tolist()
    found = similarity(content, reading, bins)
    for layer, head in np.ndindex(2, 3):
        matrix = content[layer, head]
        lower = [matrix[i, j] for i in range(30) for j in range(i) if not math.isnan(matrix[i, j])]
        for values, found_here in ((np.diag(matrix), found["diagonal"]), (lower, found["below it"])):
            span = shared if reading == "published" else (min(values), max(values))
            assert found_here[layer, head] == pytest.approx(naive(values, bins, *span), abs=1e-12)
    assert np.isnan(similarity(np.ones((1, 1, 1, 1)), bins=5)["below it"][0, 0])


def test_one_bin_is_refused():
    with pytest.raises(InvalidValueError, match=r"^bins: "):
        similarity(matrices(), bins=1)


def test_the_fit_of_whole_matrices_finds_constant_and_offset():
    rng = np.random.default_rng(2)
    matrix = np.tril(np.full((2, 9, 9), -1.5)) + 4.0 * np.eye(9)
    matrix[:, np.triu_indices(9, 1)[0], np.triu_indices(9, 1)[1]] = np.nan
    exact = fit(matrix[None])
    np.testing.assert_allclose((exact.offset[0], exact.r2[0]), [[4.0] * 2, [1.0] * 2])
    noisy = matrix + rng.normal(size=matrix.shape)
    pairs = [(i, j) for i in range(9) for j in range(1, i + 1)]
    design = np.array([[1.0, float(i == j)] for i, j in pairs])
    for head, r2 in zip(noisy, fit(noisy[None]).r2[0], strict=True):
        values = np.array([head[pair] for pair in pairs])
        left = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
        np.testing.assert_allclose(r2, 1 - (left**2).sum() / ((values - values.mean()) ** 2).sum())
