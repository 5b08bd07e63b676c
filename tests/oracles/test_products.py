"""The products of attention and their gradients against automatic differentiation in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posbias.training.attention import mix, rotate, unmix


@st.composite
def problems(draw):
    """Queries, keys, tokens, a bias under any mask that lets a token attend to itself, and a gradient."""
    members, sequences = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    tokens, dimension = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    asked = draw(st.sampled_from([1, tokens]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    allowed = (rng.random((members, tokens, tokens)) < draw(st.floats(0, 1))) | np.eye(tokens, dtype=bool)
    bias = np.where(allowed, draw(st.sampled_from([0, 1, 50])) * rng.normal(size=allowed.shape), -np.inf)

    def rows(count, scale=1.0):
        return torch.tensor(scale * rng.normal(size=(members, sequences, count, dimension)))

    y = rows(tokens)
    key = y if draw(st.booleans()) else rows(tokens)
    return rows(asked, draw(st.sampled_from([0.1, 1, 5]))), key, y, torch.tensor(bias), rows(asked)


@given(problems(), st.booleans())
def test_gradients_are_those_of_automatic_differentiation(problem, wanted):
    query, key, y, bias, grad = problem
    tied = key is y
    query, y = query.requires_grad_(), y.requires_grad_()
    key = y if tied else key.requires_grad_()
    scores = query @ key.transpose(2, 3) + bias[:, None, -query.shape[2] :]
    exact_weight = torch.softmax(scores, dim=-1)
    exact = exact_weight @ y
    mixed, weight = mix(query.detach(), key.detach(), y.detach(), bias)
    torch.testing.assert_close(mixed, exact)
    torch.testing.assert_close(weight, exact_weight)
    forbidden = ~bias[:, None, -query.shape[2] :].isfinite().expand_as(weight)
    assert (weight[forbidden] == 0).all()
    exact.backward(grad)
    given_y = y.detach()
    given_key = given_y if tied else key.detach()
    query_grad, key_grad, y_grad = unmix(grad, query.detach(), given_key, given_y, weight, wanted)
    torch.testing.assert_close(query_grad, query.grad)
    assert (key_grad is None) == tied
    assert (y_grad is None) != wanted
    if not tied:
        torch.testing.assert_close(key_grad, key.grad)
    if wanted:
        torch.testing.assert_close(y_grad, y.grad)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_so_and_spoils_no_other_sequence(bad):
    y = torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    bias = torch.zeros(1, 3, 3)
    query = y.clone()
    query[0, 1, 2, 0] = bad
    mixed, weight = mix(query, y, y, bias)
    assert not weight[0, 1, 2].isfinite().any()
    assert not mixed[0, 1, 2].isfinite().any()
    assert mixed[0, 0].isfinite().all()
    assert mixed[0, 1, :2].isfinite().all()


def test_a_query_that_may_attend_to_nothing_has_no_number_in_either_way():
    y = torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    bias = torch.zeros(1, 3, 3)
    bias[0, 1] = -torch.inf
    mixed, weight = mix(y, y, y, bias)
    assert mixed[:, :, 1].isnan().all()
    assert weight[:, :, 1].isnan().all()
    assert mixed[:, :, [0, 2]].isfinite().all()


def test_turned_pairs_are_complex_products():
    rng = torch.Generator().manual_seed(0)
    rows = torch.randn(2, 3, 5, 8, generator=rng, dtype=torch.float64)
    angle = torch.rand(2, 5, 4, generator=rng, dtype=torch.float64)
    rotation = torch.polar(torch.ones_like(angle), angle)
    exact = rotate(rows, rotation)
    assert float((rotate(rows.float(), rotation.to(torch.complex64)) - exact).abs().max()) <= 1e-6
    last = rotate(rows[:, :, -1:].float().contiguous(), rotation.to(torch.complex64))
    assert float((last - exact[:, :, -1:]).abs().max()) <= 1e-6
