"""The stream against the dense kernel: every mask, encoding and content, and logits of any size."""

import numpy as np
import pytest
from architectures import LONGEST, SHORTEST, layers
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from posbias.theory.architecture import Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.encodings import DenseLogits, KerplePower, Tabulated
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias.theory.rollout import stream
from posbias.theory.rollout.kernel import layer_kernel


def rows(tokens: int, seed: int, kind: str) -> np.ndarray:
    """A row that is dense, spans thirty orders of magnitude, has a few entries, or one."""
    rng = np.random.default_rng(seed)
    row = rng.random(tokens) * 10.0 ** rng.uniform(-30, 0, tokens)
    if kind == "sparse":
        row[rng.random(tokens) < 0.8] = 0.0
    if kind == "one":
        row = np.zeros(tokens)
        row[rng.integers(tokens)] = 1.0
    return rng.random(tokens) if kind == "dense" else row


kinds = st.sampled_from(["dense", "wide", "sparse", "one"])


def agree(layer: Layer, lam: float, row: np.ndarray) -> None:
    kernel = layer_kernel(layer, len(row))
    expected = (1 - lam) * row + lam * (row @ kernel)
    out, lost = stream.push(layer, lam, row)
    large = expected > 1e-250
    np.testing.assert_allclose(out[large], expected[large], rtol=1e-12, atol=0)
    assert (out[~large] <= 1.1e-250).all()
    assert (out >= 0).all()
    assert abs(lost - lam * (row @ (1 - kernel.sum(axis=1)))) <= 1e-12 * row.sum()


@given(
    layers(),
    st.floats(0, 1),
    st.one_of(st.integers(SHORTEST, 20), st.integers(100, LONGEST)),
    st.integers(0, 9),
    kinds,
)
@examples(300)
def test_a_row_equals_its_product_with_the_kernel(layer, lam, tokens, seed, kind):
    agree(layer, lam, rows(tokens, seed, kind))


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(1), SlidingWindow(3, 2), Prefix(1), Full()])
def test_the_shortest_texts(mask, tokens):
    table = [[0.3 * (d % 3) for d in range(tokens + 1)]]
    layer = Layer(mask=mask, positional=Tabulated(table, after=table), sinks=[0.5])
    agree(layer, 0.6, rows(tokens, 0, "dense"))


@pytest.mark.parametrize("far", [-1000.0, 1000.0])
@pytest.mark.parametrize("diagonal", [-1000.0, 0.0, 1000.0])
@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(7, 3), Full()])
def test_logits_beyond_the_exponential(mask, diagonal, far):
    rng = np.random.default_rng(1)
    table = [np.where(rng.random(60) < 0.5, far, rng.normal(0, 3, 60)).tolist() for _ in range(2)]
    content = ConstantDiagonal([diagonal, -diagonal], first_column=[far, 2.0])
    layer = Layer(2, mask, Tabulated(table, after=table[::-1]), content, sinks=[far, -far])
    agree(layer, 0.4, rows(60, 2, "wide"))
    dense = DenseLogits((np.array(table[0])[:, None] + rng.normal(0, 300, (60, 60))).tolist())
    agree(Layer(2, mask, dense, content, sinks=[1.0]), 0.4, rows(60, 3, "dense"))


@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(900, 2)])
def test_a_decay_far_beyond_the_exponential_needs_no_softmax_per_query(mask):
    """Every query sees a logit near its head's largest, so what vanishes has no weight."""
    layer = Layer(2, mask, KerplePower([0.9, 3.0]), ConstantDiagonal([1.0], first_column=[-2.0]))
    assert stream.tables(layer, 1500) is not None
    agree(layer, 0.5, rows(1500, 4, "wide"))


def test_no_table_where_a_query_sees_only_what_vanishes():
    """A far distance that outweighs all near ones by e^900: early queries would be left without weights."""
    layer = Layer(positional=Tabulated([[0.0] * 30 + [900.0] * 10]))
    assert stream.tables(layer, 40) is None
    assert stream.tables(layer, 30) is not None
    agree(layer, 1.0, rows(40, 5, "dense"))


def test_a_sum_over_a_long_text_keeps_its_digits():
    """100,000 equal terms: Z_i = i + 1 exactly, and every entry is a harmonic sum."""
    tokens = 100_000
    layer = Layer(positional=Tabulated([[0.1] * tokens]))
    row = np.zeros(tokens)
    row[[50_000, 99_999]] = 0.25, 0.75
    out, _ = stream.push(layer, 1.0, row)
    expected = np.full(tokens, 0.75 / 100_000)
    expected[:50_001] += 0.25 / 50_001
    np.testing.assert_allclose(out, expected, rtol=1e-14)
