"""The compiled products of attention against tensor operations in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posbias.training.products import _exponential, mix, mix_plain, rotate, unmix, unmix_plain


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


def single(*tensors):
    """In float32, the same tensor once."""
    made = {id(one): one.float() for one in tensors}
    return [made[id(one)] for one in tensors]


def close(ours, theirs, scale=1.0):
    """Within 3e-6 of the size of what was added: rounding of scores times their slope."""
    if theirs is None:
        assert ours is None
    else:
        assert float((ours - theirs).abs().max()) <= 3e-6 * scale


@given(problems())
def test_mixed_tokens_are_those_of_tensor_operations(problem):
    query, key, y, bias, _ = problem
    mixed, weight = mix(*single(query, key, y, bias))
    exact, exact_weight = mix_plain(query, key, y, bias)
    size = 1 + float((query.abs() @ key.abs().transpose(2, 3)).max() + bias[bias.isfinite()].abs().max())
    close(weight, exact_weight, size)
    close(mixed, exact, size * float(y.abs().max()))
    forbidden = ~bias[:, None, -query.shape[2] :].isfinite().expand_as(weight)
    assert (weight[forbidden] == 0).all()


@given(problems(), st.booleans())
def test_gradients_are_those_of_tensor_operations(problem, wanted):
    query, key, y, bias, grad = problem
    _, weight = mix_plain(query, key, y, bias)
    exact = unmix_plain(grad, query, key, y, weight, wanted)
    grad_, query_, key_, y_, bias_, weight_ = single(grad, query, key, y, bias, weight)
    ours = unmix(grad_, query_, key_, y_, bias_, weight_, wanted)
    tokens = y.shape[2]
    slope = float((grad.abs() @ y.abs().transpose(2, 3)).max())
    scales = slope * tokens * (1 + float(key.abs().max())), slope * tokens * (1 + float(query.abs().max()))
    close(ours[0], exact[0], scales[0])
    for one, other in zip(ours[1:], exact[1:], strict=True):
        close(one, other, scales[1] + tokens * float(grad.abs().max()))


def test_exponentials_are_within_two_units_in_the_last_place():
    x = np.concatenate([-np.logspace(-9, np.log10(87), 20_000), [0.0]]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    ours = np.array([_exponential(one) for one in x], dtype=np.float64)
    assert (np.abs(ours / exact - 1)).max() <= 2 * np.finfo(np.float32).eps
    assert _exponential(np.float32(0)) == 1
    assert _exponential(np.float32(-87.01)) == 0
    assert _exponential(np.float32(-np.inf)) == 0


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
    for way in (mix, mix_plain):
        mixed, weight = way(y, y, y, bias)
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
