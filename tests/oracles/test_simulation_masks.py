"""Simulated masks: both engines on the same vectors, triples counted by loops, the causal mask as the widest."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.core.spec import decode, encode
from posbias.core.store import Store
from posbias.simulation import RecencyModel, gram, simulate_recency, token_space
from posbias.simulation.tally import Layout, Tally
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias_papers.simulation.cell import RecencyCell
from posbias_papers.simulation.variants import Variant

windows = st.builds(SlidingWindow, st.integers(1, 6), st.integers(0, 2))
masks = st.one_of(windows, st.just(Causal()), st.builds(Prefix, st.integers(1, 4)), st.just(Full()))


@given(
    st.integers(4, 8), st.integers(9, 20), st.sampled_from(["layernorm", "rmsnorm", "none"]), st.booleans(),
    windows, st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_the_compiled_engine_is_the_plain_one_on_the_same_vectors(tokens, d, norm, residual, mask, seed):
    """The rows of a block's triangular factor, as vectors in d dimensions; scores agree to 1e-9, orders in all."""
    model = RecencyModel(tokens, d, 0.6, norm, residual, depth=3, mask=mask)
    normals, chis = gram.draw_block(model, seed, 0)
    rows = np.zeros((tokens, min(tokens, model.freedom), gram.LANES))
    gram.embed(rows, normals, chis, 0, model.shared, 1 / math.sqrt(d), 0, model.freedom)
    start = np.eye(d)
    start[:, 0] = 1.0 if norm == "layernorm" else start[:, 0]
    basis = np.linalg.qr(start)[0][:, int(norm == "layernorm") :][:, : rows.shape[1]]
    scores, attention = token_space.layer_scores(model, np.einsum("tks,dk->std", rows, basis))
    assert (attention[..., ~mask.allowed(tokens)] == 0).all()
    plain, fast = Tally.of_scores(scores, attention, mask), gram.run_block(model, seed, 0, gram.LANES)
    np.testing.assert_allclose(fast.mean, plain.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(fast.squares, plain.squares, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(fast.products, plain.products, rtol=1e-7, atol=1e-8)


@given(st.integers(4, 7), masks, st.integers(0, 99))
@settings(max_examples=40)
def test_shares_are_of_triples_whose_query_sees_both_keys(tokens, mask, seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(2, 3, tokens, tokens))
    tally, allowed = Tally.of_scores(scores, np.abs(scores), mask), mask.allowed(tokens)
    for layer in range(2):
        groups: dict[str, list[float]] = {}
        for i in range(tokens):
            for j in range(1, i):
                for k in range(j):
                    if allowed[i, j] and allowed[i, k]:
                        share = float(np.mean(scores[layer, :, i, j] > scores[layer, :, i, k]))
                        for name in ("all", f"query {i}", f"gap {j - k}", f"distance {i - j}"):
                            groups.setdefault(name, []).append(share)
        names = ["all", *(f"query {i}" for i in range(2, tokens))]
        names += [f"{kind} {size}" for kind in ("gap", "distance") for size in range(1, tokens - 1)]
        expected = [np.mean(groups[name]) if name in groups else 0.0 for name in names]
        layout = Layout(tokens, mask)
        np.testing.assert_allclose(tally.mean[layer, layout.shares :], expected, rtol=1e-12)
        assert layout.triples.tolist() == [len(groups.get(name, ())) for name in names]


@pytest.mark.parametrize("norm", ["layernorm", "none"])
def test_a_window_as_wide_as_the_text_is_the_causal_mask_to_the_byte(norm):
    causal, wide = (
        simulate_recency(RecencyModel(6, norm=norm, depth=3, mask=mask), 3000).tally
        for mask in (Causal(), SlidingWindow(6))
    )
    assert all(
        getattr(causal, part).tobytes() == getattr(wide, part).tobytes() for part in ("mean", "squares")
    )


def test_what_no_triple_is_of_is_not_a_number():
    result = simulate_recency(RecencyModel(8, mask=SlidingWindow(3), depth=2), 3000)
    assert np.isfinite(result.by_distance.value[1][1])
    assert np.isnan(result.by_distance.value[1][2:]).all()
    assert np.isnan(result.by_gap.se[1][2:]).all()
    scores = result.mean_scores.value[1]
    np.testing.assert_array_equal(np.isfinite(scores), SlidingWindow(3).allowed(8))
    assert result.recency_probability[1].value == pytest.approx(result.adjacency_probability[1].value)
    # steps from a key that is seen to one that is not decide nothing
    verdict = result.exhibits_recency()[1]
    assert verdict.query - verdict.key <= 2
    assert "NaN" not in json.dumps(result.model.as_dict())


def test_the_full_mask_prefers_no_key():
    result = simulate_recency(RecencyModel(8, depth=3, mask=Full()), 8000, engine="token_space")
    for probability in result.recency_probability:
        assert abs(probability.value - 0.5) < 4 * probability.se


@pytest.mark.parametrize("mask", [Full(), Prefix(3)])
def test_the_compiled_engine_refuses_masks_that_look_ahead(mask):
    with pytest.raises(InvalidValueError, match=r"^mask: .*token_space"):
        simulate_recency(RecencyModel(mask=mask), 100)


def test_a_prefix_beyond_the_text_and_a_masked_variant_are_refused():
    with pytest.raises(InvalidValueError, match="got 11"):
        RecencyModel(mask=Prefix(11))
    with pytest.raises(InvalidValueError, match=r"mask: .*causal one needed in a variant"):
        Variant(RecencyModel(mask=SlidingWindow(3)))


def test_a_mask_is_kept_with_its_cell_and_the_causal_one_goes_without_saying(tmp_path):
    model = RecencyModel(5, depth=2, mask=SlidingWindow(3, sinks=1))
    assert decode(RecencyModel, encode(model)) == model
    assert "mask" not in RecencyModel().as_dict()
    store, result = Store(tmp_path), simulate_recency(model, 100)
    store.save(RecencyCell(model), result, amount=100)
    assert store.find(RecencyCell(RecencyModel(5, depth=2)), at_least=1) is None
    found = store.find(RecencyCell(model), at_least=100).result
    assert found.tally.mean.tobytes() == result.tally.mean.tobytes()
    assert found.model.as_dict()["mask"]["width"] == 3
