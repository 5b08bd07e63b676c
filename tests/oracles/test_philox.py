"""Counter-based random numbers: the published algorithm, compiled and in tensor operations, to the bit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from posbias.training.philox import LEVELS, Draws, below, normals_of, philox, quantiles

SEEDS = (0, 7, 2**62)
WORD = 2**32 - 1


def plain(key, counter):
    """Philox 4x32-10 by its definition, in Python's integers."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        one, other = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (other >> 32) ^ b ^ k, other & WORD, (one >> 32) ^ d ^ m, one & WORD
        k, m = (k + 0x9E3779B9) & WORD, (m + 0xBB67AE85) & WORD
    return a, b, c, d


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((WORD,) * 4, (WORD, WORD), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_authors_known_answers(counter, key, expected):
    """Salmon et al. 2011, the test vectors of Random123."""
    assert plain(key, counter) == expected


@given(
    number=st.integers(0, 2**63 - 1),
    start=st.integers(0, 2**31),
    rows=st.integers(1, 4),
    each=st.integers(1, 21),
)
def test_compiled_words_and_those_of_tensors_are_the_algorithms(number, start, rows, each):
    draws = Draws(SEEDS, "test", 3)
    words = draws.words(number, rows, each, start)
    keys = draws._held
    assert torch.equal(words, philox(keys, number, start, rows, each))
    assert torch.equal(words, philox(keys, torch.tensor(number), start, rows, each))
    for member, row in np.ndindex(len(SEEDS), rows):
        counters = [(block, start + row, number & WORD, number >> 32) for block in range(-(-each // 4))]
        expected = [word for counter in counters for word in plain(keys[member].tolist(), counter)][:each]
        assert words[member, row].tolist() == expected
    normals = draws.normals(number, rows, each, start)
    assert torch.equal(normals, normals_of(philox(keys, number, start, rows, (each + 1) // 2), each))


def test_streams_of_other_seeds_names_and_places_are_others():
    drawn = [
        Draws([seed], name, *place).words(0, 1, 8)
        for seed in (0, 1)
        for name in ("one", "other")
        for place in ((), (0,), (1, 2))
    ]
    assert len({tuple(words.flatten().tolist()) for words in drawn}) == 12


def test_normal_numbers_are_normal():
    values = quantiles().double().numpy()
    assert len(values) == LEVELS
    assert abs(values.mean()) < 1e-8
    assert abs(values.var() - 1) < 1e-6
    # the distribution function, at and between the values
    steps = (np.arange(LEVELS) + 0.5) / LEVELS
    assert np.abs(stats.norm.cdf(values) - steps).max() < 1e-5
    assert stats.kurtosis(values) == pytest.approx(0, abs=2e-3)
    drawn = Draws(range(20), "normal").normals(5, 100, 250).flatten().double().numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    neighbours = drawn.reshape(-1, 2)
    assert abs(np.corrcoef(neighbours.T)[0, 1]) < 4 / np.sqrt(len(neighbours))


@pytest.mark.parametrize("limit", [1, 2, 7, 2048])
def test_integers_are_equally_likely(limit):
    drawn = Draws([5], "integers").below(limit, 0, 200, 512).flatten()
    counts = torch.bincount(drawn, minlength=limit).numpy()
    assert len(counts) == limit
    if limit > 1:
        assert stats.chisquare(counts).pvalue > 1e-4
    assert below(limit, torch.tensor([0, WORD])).tolist() == [0, limit - 1]


def test_uniform_numbers_fill_the_interval():
    drawn = Draws([1, 2], "uniform").uniform(9, 100, 100).flatten().double()
    assert -1 <= float(drawn.min()) < -0.99
    assert 0.99 < float(drawn.max()) < 1
    assert stats.kstest(drawn.numpy(), stats.uniform(-1, 2).cdf).pvalue > 1e-4
