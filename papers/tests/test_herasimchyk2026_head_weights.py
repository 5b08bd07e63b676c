"""Heads weighted by what they write against plain dense rollouts, and against even weights."""

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from measured import CONSTANT, DELTA, DEPTH, HEADS, PROMPTS, SLOPES, TOKENS, measurement

from posbias.profiles.profile import spearman, wasserstein
from posbias_papers.herasimchyk2026 import STUDIES
from posbias_papers.herasimchyk2026.cells import Key
from posbias_papers.herasimchyk2026.head_weights import gain, output_shares, rows, weighted, weighted_levels
from posbias_papers.herasimchyk2026.levels import architectures, profile_of
from posbias_papers.herasimchyk2026.measurements import Measurements


def written(shares, **options):
    """The measurement whose heads write these shares on average, each prompt its own."""
    cell = measurement(**options)
    noise = 1 + np.random.default_rng(4).uniform(-0.5, 0.5, (PROMPTS // 2, *np.shape(shares)))
    by_prompt = np.concatenate([noise, 2 - noise]) * shares * 0.7
    return cell.assign(mixing_head=(("prompt", "layer", "head"), by_prompt))


def dense(logits, shares, mixing):
    """The last row of R_T ⋯ R_1 with Σ_h w_h A_h in place of the mean, by the definition."""
    seen, product = np.tri(TOKENS, dtype=bool), np.eye(TOKENS)
    for layer, row, lam in zip(logits, shares, mixing, strict=True):
        weights = np.where(seen, np.exp(layer), 0.0)
        heads = weights / weights.sum(axis=-1, keepdims=True)
        product = ((1 - lam) * np.eye(TOKENS) + lam * np.einsum("h,hqk->qk", row, heads)) @ product
    return product[-1]


@given(st.lists(st.floats(0.01, 1), min_size=DEPTH, max_size=DEPTH))
@examples(20)
def test_weighted_levels_are_the_dense_rollouts(first_shares):
    shares = np.stack([first_shares, 1 - 0.9 * np.array(first_shares)], axis=1)
    cell = written(shares / shares.sum(axis=1, keepdims=True))
    found = output_shares(cell)
    np.testing.assert_allclose(found, shares / shares.sum(axis=1, keepdims=True), rtol=1e-12)
    distance = np.maximum(np.subtract.outer(np.arange(TOKENS), np.arange(TOKENS)), 0)
    positional = np.tile(-SLOPES[:, None, None] * distance, (DEPTH, 1, 1, 1))
    offset = (DELTA * (1 + np.arange(DEPTH))[:, None])[..., None, None]
    content = offset * np.eye(TOKENS) + CONSTANT[:, None, None]
    lam, levels = cell["mixing"].values.mean(axis=0), weighted_levels(cell)
    for level, logits in (("b", positional), ("c", positional + content)):
        np.testing.assert_allclose(levels[level].mass, dense(logits, found, lam), rtol=1e-9, atol=1e-15)


def test_even_weights_are_the_even_level_and_one_head_alone_is_its_own():
    even = architectures(measurement())["b"]
    shares = np.full((DEPTH, HEADS), 1 / HEADS)
    np.testing.assert_allclose(
        profile_of("b", weighted(even, shares), TOKENS).mass, profile_of("b", even, TOKENS).mass, rtol=1e-12
    )
    alone = profile_of("b", weighted(even, np.tile([0.0, 1.0], (DEPTH, 1))), TOKENS).mass
    assert np.abs(alone - profile_of("b", even, TOKENS).mass).max() > 1e-3


def test_the_gain_is_that_of_the_scores_and_claims_are_ours():
    key = Key("toy", "noise", TOKENS)
    results = Measurements({key: written(np.tile([0.9, 0.1], (DEPTH, 1)))}, tokens=TOKENS)
    curves, levels = results.curves(key), weighted_levels(results.cells[key])
    for score, of, sign in (("spearman", spearman, 1.0), ("wasserstein", wasserstein, -1.0)):
        for row in rows(results, score):
            level = row["level"]
            expected = [float(of(one[level].mass, curves.influence.mass)) for one in (curves.levels, levels)]
            assert [row["even"], row["weighted"]] == pytest.approx(expected, rel=1e-12)
            better = gain(results, key, level, score).estimate
            assert better is not None
            assert better.value == pytest.approx(sign * (expected[1] - expected[0]), abs=1e-12)
            assert row["largest_weight"] == pytest.approx(0.9)
    for name in ("table4", "table5"):
        judged = {claim.id: claim for claim in STUDIES[name].judged(results)}
        own = [judged[f"herasimchyk2026/{name}/{number}"].as_dict() for number in (12, 13)]
        assert [one["provenance"] for one in own] == ["ours", "ours"]
        assert "in place of evenly" in list(STUDIES[name].tables(results))[-1].caption


def test_nothing_is_said_where_it_was_not_measured_what_heads_write():
    key = Key("toy", "noise", TOKENS)
    results = Measurements({key: measurement()}, tokens=TOKENS)
    assert rows(results, "spearman") == []
    assert not {"herasimchyk2026/table4/12"} & {claim.id for claim in STUDIES["table4"].judged(results)}
    assert STUDIES["table4"].data(results)["weighted_heads"] == []
