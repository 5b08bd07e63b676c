"""Sparse selection: expected rows against all subsets and against draws, and how far the ratio of means is off."""

import itertools
import math

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.core.spec import decode, encode
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.encodings import Tabulated
from posbias.theory.mixing import ConstantMixing
from posbias.theory.positional import Selected, selection_rates
from posbias.theory.rollout import influence
from posbias.theory.rollout.kernel import layer_kernel

STEP, LEAST = 0.2, -40.0
"""The integral's step in ln t and where it begins: exact to rounding, as it is analytic for |Im ln t| < π/2."""


def expected_row(rates, logits) -> np.ndarray:
    """The mean of a row of attention over keys that are selected independently at these rates, as an integral:

    E[A_j] = s_j ∫_0^∞ z_j·e^(−t·z_j) · Π_(k≠j) (1 − s_k + s_k·e^(−t·z_k)) dt, with s the rates and z = e^logit.
    """
    rates, weights = np.asarray(rates, float), np.exp(np.asarray(logits, float) - np.max(logits))
    grid = np.exp(np.arange(LEAST, 5.0 - np.log(weights.min()), STEP))
    decayed = grid[:, None] * weights
    with np.errstate(divide="ignore"):
        missed = np.where(rates == 1.0, -decayed, np.log1p(rates * np.expm1(-decayed)))
    others = missed.sum(axis=1, keepdims=True) - missed
    return rates * STEP * (decayed * np.exp(others - decayed)).sum(axis=0)


rates = st.one_of(st.just(1.0), st.floats(0.01, 1))


def by_subsets(chances, logits) -> np.ndarray:
    """Σ over all subsets of the chance of each times its softmax."""
    row, weights = np.zeros(len(chances)), np.exp(np.array(logits) - max(logits))
    for chosen in itertools.product([False, True], repeat=len(chances)):
        chance = math.prod(s if taken else 1 - s for s, taken in zip(chances, chosen, strict=True))
        total = weights[list(chosen)].sum()
        if total > 0:
            row += chance * np.where(chosen, weights, 0.0) / total
    return row


@given(st.data(), st.integers(1, 7))
@examples(60)
def test_expected_rows_are_the_mean_over_all_subsets(data, keys):
    chances = data.draw(st.lists(rates, min_size=keys, max_size=keys))
    logits = data.draw(st.lists(st.floats(-12, 12), min_size=keys, max_size=keys))
    np.testing.assert_allclose(expected_row(chances, logits), by_subsets(chances, logits), rtol=1e-12)


def softmaxes(chosen, logits) -> np.ndarray:
    """A softmax over the chosen keys of each draw."""
    weights = np.where(chosen, np.exp(logits), 0.0)
    return weights / weights.sum(axis=-1, keepdims=True)


def test_as_many_of_equal_logits_make_the_rates_exact():
    """8 of 40 keys by noisy scores: the kernel of the rates is the mean of the draws' softmaxes."""
    rng, keys, count, draws = np.random.default_rng(3), 40, 8, 20_000
    scores = 0.1 * np.arange(keys) + rng.gumbel(size=(draws, keys))
    chosen = scores >= np.sort(scores, axis=1)[:, [-count]]
    drawn = softmaxes(chosen, np.zeros(keys))
    by_distance = chosen.mean(axis=0)[::-1]
    row = layer_kernel(Layer(positional=Selected((by_distance.tolist(),))), keys)[-1]
    np.testing.assert_allclose(row, drawn.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(row.sum(), 1.0, rtol=1e-14)


def test_independent_selection_of_unequal_logits_is_the_integral_and_the_ratio_of_means_is_off_by_little():
    """16 of 200 keys on average, the query's own always: the law within 4.5 standard errors of 40,000 draws."""
    rng, keys, draws = np.random.default_rng(5), 200, 40_000
    distance = np.arange(keys)[::-1]
    chances = np.where(distance == 0, 1.0, 0.4 / (1 + distance / 12))
    logits = np.where(distance == 0, 1.0, 0.0)
    law = expected_row(chances, logits)
    mean, square = np.zeros(keys), np.zeros(keys)
    for _ in range(10):
        rows = softmaxes(rng.random((draws // 10, keys)) < chances, logits)
        mean, square = mean + rows.sum(axis=0), square + (rows**2).sum(axis=0)
    mean /= draws
    error = np.sqrt((square / draws - mean**2) / draws)
    assert (np.abs(mean - law) < 4.5 * error + 1e-12).all()
    layer = Layer(positional=Selected((chances[::-1].tolist(),)), content=ConstantDiagonal((1.0,)))
    approximate = layer_kernel(layer, keys)[-1]
    off = 0.5 * np.abs(approximate - law).sum()
    # an approximation: far from nothing against the error of the draws, and small in all
    assert np.abs(approximate - law).max() > 10 * error.max()
    assert 0.001 < off < 0.02


def test_the_mean_of_rollouts_of_independent_layers_is_the_product_of_mean_kernels():
    """Two layers of independent selections, each layer's rows drawn anew: 3,000 draws, 4.5 standard errors."""
    rng, keys, lam, draws = np.random.default_rng(7), 12, 0.6, 3000
    distance = np.subtract.outer(np.arange(keys), np.arange(keys))
    chances = np.where(distance < 0, 0.0, np.where(distance == 0, 1.0, 0.5 / (1 + np.abs(distance))))
    kernel = np.zeros((keys, keys))
    for i in range(keys):
        kernel[i, : i + 1] = expected_row(chances[i, : i + 1], np.zeros(i + 1))
    step = (1 - lam) * np.eye(keys) + lam * kernel
    chosen = rng.random((draws, 2, keys, keys)) < chances
    steps = (1 - lam) * np.eye(keys) + lam * softmaxes(chosen, np.zeros(keys))
    rows = np.einsum("dj,djk->dk", steps[:, 1, -1], steps[:, 0])
    error = rows.std(axis=0, ddof=1) / math.sqrt(draws)
    assert (np.abs(rows.mean(axis=0) - (step @ step)[-1]) < 4.5 * error).all()


@given(st.lists(rates, min_size=12, max_size=12), st.integers(1, 12), st.floats(0, 1))
def test_it_is_a_softmax_with_the_logarithm_of_rates(chances, tokens, lam):
    layer = Layer(positional=Selected((chances,)), content=ConstantDiagonal((0.5,)))
    kernel = np.zeros((tokens, tokens))
    for i in range(tokens):
        weights = [chances[i - j] * math.exp(0.5 * (i == j)) for j in range(i + 1)]
        kernel[i, : i + 1] = np.array(weights) / math.fsum(weights)
    np.testing.assert_allclose(layer_kernel(layer, tokens), kernel, rtol=1e-12)
    step = (1 - lam) * np.eye(tokens) + lam * kernel
    found = influence(Architecture(2, (layer,), ConstantMixing(lam)), tokens)
    np.testing.assert_allclose(found.mass, (step @ step)[-1], rtol=1e-9, atol=1e-15)
    assert not found.attrs["exact"]


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 3))
def test_rates_are_counted_pair_by_pair(tokens, first, seed):
    selected = np.random.default_rng(seed).random((2, tokens, tokens)) < 0.5
    found = selection_rates(selected, first)
    for d in range(tokens):
        pairs = [
            selected[text, i, i - d]
            for text in range(2)
            for i in range(max(d, min(first, tokens - 1)), tokens)
        ]
        assert found[d] == (sum(pairs) + 0.5) / (len(pairs) + 1)


def test_what_is_said_of_it_and_what_cannot_be():
    layer = Layer(positional=Selected((0.5, 0.25)))
    architecture = Architecture(1, (layer,), ConstantMixing(0.5))
    assert any("count by their rates" in line for line in architecture.assumptions)
    assert decode(Layer, encode(layer)) == layer
    assert Tabulated((0.0,)).exact
    with pytest.raises(InvalidValueError, match="rates: "):
        Selected((0.5, 0.0))
    with pytest.raises(InvalidValueError, match="table: 2 distances given, at least 3"):
        influence(architecture, 3)
    with pytest.raises(InvalidValueError, match="selected: booleans"):
        selection_rates(np.ones((1, 2, 3), dtype=bool))
