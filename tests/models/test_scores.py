"""Blocks of logits and attention against a plain float64 computation of the whole."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posbias.measurement.capture.scores import Factored, Given

LOWEST = torch.finfo(torch.float32).min


def plain(query, key, scale, cap, mask, causal, sinks):
    """Logits and attention by loops over heads, queries and keys, in float64; `mask` is added, −inf hides."""
    heads, tokens, _ = query.shape
    logits = np.full((heads, tokens, tokens), -np.inf)
    attention = np.zeros_like(logits)
    for h in range(heads):
        shared = h * key.shape[0] // heads
        for i in range(tokens):
            for j in range(tokens):
                logit = scale * float(np.dot(query[h, i], key[shared, j]))
                logit = cap * np.tanh(logit / cap) if cap else logit
                logits[h, i, j] = -np.inf if causal and j > i else logit + mask[h, i, j]
            weights = np.exp(logits[h, i])
            attention[h, i] = weights / (weights.sum() + (np.exp(sinks[h]) if sinks is not None else 0))
    return logits, attention


@given(st.data())
@settings(max_examples=40)
def test_factored_rows_equal_the_plain_computation(data):
    draw = data.draw
    groups, shared, tokens = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 9))
    heads, causal = groups * shared, draw(st.booleans())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    query = torch.randn(heads, tokens, 4, generator=generator)
    key = torch.randn(shared, tokens, 4, generator=generator)
    scale, cap = draw(st.floats(0.1, 2)), draw(st.sampled_from([None, 1.5]))
    sinks = torch.randn(heads, generator=generator) if draw(st.booleans()) else None
    kind = draw(st.sampled_from(["none", "boolean", "additive", "hiding", "bias per key"]))
    hidden = torch.rand(draw(st.sampled_from([1, heads])), tokens, tokens, generator=generator) < 0.3
    hidden &= ~torch.eye(tokens, dtype=torch.bool)
    bias = torch.randn(heads, 1 if kind == "bias per key" else tokens, tokens, generator=generator)
    added, mask = torch.zeros(heads, tokens, tokens), None
    if kind in ("boolean", "hiding"):
        added = added.masked_fill(hidden, -torch.inf)
        mask = ~hidden if kind == "boolean" else bias.masked_fill(hidden, LOWEST)
    elif kind == "additive":
        added, mask = bias.masked_fill(hidden, -torch.inf), bias.masked_fill(hidden, LOWEST)
    elif kind == "bias per key":
        added, mask = bias.expand(-1, tokens, -1), bias
    scores = Factored(query, key, scale, mask, kind == "hiding", causal, cap, sinks)
    numbers = [query.double().numpy(), key.double().numpy(), scale, cap, added.double().numpy(), causal]
    logits, attention = plain(*numbers, None if sinks is None else sinks.double().numpy())
    size = draw(st.integers(1, tokens))
    blocks = list(scores.blocks(size))
    assert [block[0].start for block in blocks] == list(range(0, tokens, size))
    for queries, *found in blocks:
        keys = queries.stop if causal else tokens  # nothing of a block lies behind its last query
        for one, whole, close in zip(found, (logits, attention), (1e-5, 1e-6), strict=True):
            assert one.shape[2] == keys
            np.testing.assert_allclose(one, whole[:, queries, :keys], rtol=1e-5, atol=close)
    np.testing.assert_allclose(scores.diagonal(), np.diagonal(logits, axis1=1, axis2=2), rtol=1e-5, atol=1e-5)


@given(
    st.integers(1, 4), st.integers(1, 12), st.integers(1, 12), st.sampled_from([torch.float32, torch.float16])
)
def test_given_rows_are_slices_with_masks_made_infinite(heads, tokens, size, dtype):
    logits = torch.randn(heads, tokens, tokens, generator=torch.Generator().manual_seed(tokens)).to(dtype)
    later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    masked = logits.masked_fill(later, torch.finfo(dtype).min)
    attention = masked.float().softmax(-1).to(dtype)
    shift = torch.arange(heads * tokens, dtype=torch.float32).reshape(heads, tokens)
    scores = Given(masked, attention, shift)
    expected = (logits.float() - shift[:, :, None]).masked_fill(later, -torch.inf)
    whole = [
        torch.cat(parts, dim=1) for parts in zip(*[block[1:] for block in scores.blocks(size)], strict=True)
    ]
    assert torch.equal(whole[0], expected)
    assert torch.equal(whole[1], attention.float())
    assert torch.equal(scores.diagonal(), expected.diagonal(dim1=1, dim2=2))


def test_a_shift_changes_logits_and_never_attention():
    query, key = torch.randn(2, 3, 6, 4, generator=torch.Generator().manual_seed(2))
    sinks, shift = torch.tensor([0.3, -1.0, 2.0]), torch.linspace(-3, 3, 18).reshape(3, 6)
    one = Factored(query, key, 0.7, causal=True, sinks=sinks)
    other = Factored(query, key, 0.7, causal=True, sinks=sinks, shift=shift)
    assert torch.allclose(one.dense()[0] - shift[:, :, None], other.dense()[0], atol=1e-6)
    assert torch.allclose(one.dense()[1], other.dense()[1], atol=1e-6)


def test_a_query_that_sees_nothing_has_no_attention():
    query = torch.ones(1, 3, 2)
    blind = torch.tensor([[[True, False, False], [False, False, False], [True, True, True]]])
    attention = Factored(query, query, 1.0, mask=blind).dense()[1]
    assert torch.allclose(attention.sum(-1), torch.tensor([[1.0, 0.0, 1.0]]))
    assert not attention[0, 1].any()
