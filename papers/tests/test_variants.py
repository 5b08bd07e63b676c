"""Variants: the engine against loops written from the equations, and what must hold; adjacency against loops."""

import math
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.core.machine import sequence
from posbias.profiles.estimate import Estimate
from posbias.simulation import RecencyModel, simulate_recency
from posbias.simulation.tally import Layout, Tally
from posbias.simulation.token_space import STREAM, block_size, embeddings, layer_scores
from posbias.theory.positional import alibi_slopes
from posbias_papers.simulation import (
    VARIANTS,
    OverNetworks,
    Variant,
    draw_inputs,
    draw_weights,
    recency_share,
    run_layers,
    simulate_variant,
)


def plain_norm(row, model):
    if model.norm == "none":
        return row
    mean = sum(row) / len(row) if model.norm == "layernorm" else 0.0
    size = math.sqrt(sum((entry - mean) ** 2 for entry in row) / len(row))
    return np.array([(entry - mean) / size * model.gain + model.bias for entry in row])


def turned(vector, position):
    half = len(vector) // 2
    out = np.array(vector)
    for pair in range(half):
        angle = position * 10_000 ** (-2 * pair / len(vector))
        turn = complex(vector[pair], vector[pair + half]) * complex(math.cos(angle), math.sin(angle))
        out[pair], out[pair + half] = turn.real, turn.imag
    return out


def head_vectors(row, weights, name, variant, of="key"):
    """What each head has of one normalised token: its slice of the projection, or its group's."""
    size, within = variant.head_dimension, variant.heads // variant.key_heads
    mine = "query" if name == "key" and variant.projections == "tied" else name
    projected = row @ weights[mine] if mine in weights else row
    slices = [projected[k : k + size] for k in range(0, len(projected), size)]
    if name == "query":
        return slices
    groups = [range(g * within, (g + 1) * within) for g in range(variant.key_heads)]
    kept = slices if name in weights else [sum(slices[h] for h in group) / within for group in groups]
    return [kept[h // within] for h in range(variant.heads)]


def plain_layers(x, variant, weights):
    """One input through all layers, token by token and head by head."""
    model, size, n = variant.model, variant.head_dimension, variant.model.tokens
    scale = math.sqrt(size) * model.temperature
    for layer in weights:
        y = [plain_norm(row, model) for row in x]
        q, k, v = (
            [head_vectors(row, layer, name, variant) for row in y] for name in ("query", "key", "value")
        )
        score, content, attention = (np.full((variant.heads, n, n), np.nan) for _ in range(3))
        out = []
        for i in range(n):
            heads = []
            for h in range(variant.heads):
                for j in range(i + 1):
                    content[h, i, j] = q[i][h] @ k[j][h] / scale
                    score[h, i, j] = content[h, i, j]
                    if variant.positional == "rope":
                        score[h, i, j] = turned(q[i][h], i) @ turned(k[j][h], j) / scale
                    if variant.positional == "alibi":
                        score[h, i, j] -= alibi_slopes(variant.heads)[h] * (i - j)
                top = max(score[h, i, : i + 1])
                weight = [math.exp(score[h, i, j] - top) for j in range(i + 1)]
                attention[h, i, : i + 1] = np.array(weight) / sum(weight)
                heads.append(sum(attention[h, i, j] * v[j][h] for j in range(i + 1)))
            mixed = np.concatenate(heads)
            mixed = mixed @ layer["output"] if variant.values else mixed
            out.append(mixed + x[i] if model.residual else mixed)
        if variant.feed_forward:
            out = [o + np.maximum(plain_norm(o, model) @ layer["up"], 0) @ layer["down"] for o in out]
        x = out
        yield score, content, attention


@st.composite
def variant_values(draw):
    heads = draw(st.sampled_from([1, 2, 4]))
    norm = draw(st.sampled_from(["layernorm", "rmsnorm", "none"]))
    model = RecencyModel(
        tokens=draw(st.integers(3, 5)),
        dimension=heads * draw(st.sampled_from([2, 4])) + (4 if heads == 1 else 0),
        anisotropy=draw(st.sampled_from([0.0, 0.6])),
        norm=norm,
        residual=draw(st.booleans()),
        depth=3,
        temperature=draw(st.sampled_from([1.0, 1.7])),
        gain=1.0 if norm == "none" else draw(st.sampled_from([1.0, 0.8])),
        bias=draw(st.sampled_from([0.0, 0.3])) if norm == "layernorm" else 0.0,
    )
    return Variant(
        model,
        projections=draw(st.sampled_from(["none", "tied", "independent"])),
        values=draw(st.booleans()),
        heads=heads,
        groups=draw(st.sampled_from([None, *(g for g in (1, 2, 4) if heads % g == 0)])),
        feed_forward=draw(st.booleans()),
        positional=draw(st.sampled_from(["none", "rope", "alibi"])),
        direction=draw(st.sampled_from(["network", "input"])),
    )


@given(variant=variant_values(), seed=st.integers(0, 2**32))
@examples(60)
def test_layers_are_those_of_plain_loops(variant, seed):
    weights = draw_weights(variant, seed, 1)
    (x,) = draw_inputs(variant, seed, 1, 2)
    seen = np.tri(variant.model.tokens, dtype=bool)
    for one in range(2):
        layers = zip(run_layers(x, variant, weights), plain_layers(x[one], variant, weights), strict=True)
        for mine, plain in layers:
            for a, b in zip(mine, plain, strict=True):
                np.testing.assert_allclose(a[one][:, seen], b[:, seen], rtol=1e-9, atol=1e-11)
            assert (mine[2][one][:, ~seen] == 0).all()


def test_shares_are_those_of_the_tally():
    scores = np.random.default_rng(0).normal(size=(1, 40, 7, 7))
    place = Layout(7).shares
    tally = Tally.of_scores(scores, scores)
    share = recency_share(scores[0][:, None])
    assert share.mean() == pytest.approx(tally.mean[0, place], rel=1e-14)
    assert ((share - share.mean()) ** 2).sum() == pytest.approx(tally.squares[0, place], rel=1e-12)
    both = recency_share(np.stack([scores[0], -scores[0]], axis=1))
    np.testing.assert_allclose(both, 0.5, rtol=1e-15)  # heads count alike


@pytest.mark.parametrize("positional", ["none", "rope"])
@pytest.mark.parametrize("heads", [1, 4])
def test_minus_w_q_turns_every_score_around(positional, heads):
    """So that the recency probability over networks with independent W_Q and W_K is ½."""
    model = RecencyModel(dimension=16, depth=3)
    variant = Variant(model, projections="independent", values=True, heads=heads, positional=positional)
    weights = draw_weights(variant, 3, 0)
    flipped = (*weights[:-1], weights[-1] | {"query": -weights[-1]["query"]})
    (x,) = draw_inputs(variant, 3, 0, 50)
    *_, (score, _, _) = run_layers(x, variant, weights)
    *_, (other, _, _) = run_layers(x, variant, flipped)
    np.testing.assert_array_equal(score, -other)
    np.testing.assert_allclose(recency_share(score) + recency_share(other), 1.0, rtol=1e-14)


def test_rotation_keeps_lengths_and_sees_distances_only():
    """Equal tokens: rotary scores depend on i − j alone, and are the content's on the diagonal."""
    variant = Variant(RecencyModel(dimension=12, depth=1), heads=2, positional="rope")
    x = np.repeat(np.random.default_rng(0).normal(size=(3, 1, 12)), 10, axis=1)
    ((score, content, _),) = run_layers(x, variant, ({},))
    np.testing.assert_allclose(score[..., 1:, 1:], score[..., :-1, :-1], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(np.diagonal(score, 0, 2, 3), np.diagonal(content, 0, 2, 3), rtol=1e-12)
    assert np.abs(score - content).max() > 0.1


@pytest.mark.parametrize("name", ["plain", "block", "rope"])
def test_a_smaller_run_is_the_beginning_of_a_larger_one(name):
    small, same, more = (simulate_variant(VARIANTS[name], *size, seed=4) for size in ((2, 8), (2, 8), (3, 8)))
    for part in ("score", "content"):
        one, two = (getattr(each, part) for each in (small, same))
        assert (one.share.tobytes(), one.noise.tobytes()) == (two.share.tobytes(), two.noise.tobytes())
    np.testing.assert_array_equal(small.score.share, more.score.share[:2])
    assert (simulate_variant(VARIANTS[name], 2, 8, seed=5).score.share != small.score.share).any()
    short, long = (np.concatenate(list(draw_inputs(VARIANTS[name], 4, 1, inputs))) for inputs in (8, 20))
    np.testing.assert_array_equal(short, long[:8])


def test_variants_with_equal_parts_get_equal_numbers():
    tied, independent = (draw_weights(VARIANTS[name], 2, 5) for name in ("block-tied", "block"))
    for a, b in zip(tied, independent, strict=True):
        assert set(b) - set(a) == {"key"}
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
    assert (tied[0]["query"] != tied[1]["query"]).any()
    assert (tied[0]["query"] != draw_weights(VARIANTS["block-tied"], 2, 6)[0]["query"]).any()


def test_weights_keep_variance():
    variant = Variant(projections="independent", values=True, heads=4, groups=1, feed_forward=True)
    (layer, *_) = draw_weights(replace(variant, model=RecencyModel(dimension=512, depth=1)), 0, 0)
    z = np.random.default_rng(1).normal(size=(200, 512))
    hidden = np.maximum(z @ layer["up"], 0.0)
    for out in (z @ layer["query"], z @ layer["key"], z @ layer["value"], hidden @ layer["down"]):
        assert np.mean(out**2) == pytest.approx(1.0, abs=0.05)
    assert layer["key"].shape == layer["value"].shape == (512, 128)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"heads": 7}, "heads"),
        ({"heads": 4, "groups": 3}, "groups"),
        ({"heads": 64, "positional": "rope"}, "heads"),
        ({"projections": "both"}, "projections"),
        ({"model": RecencyModel(tokens=2)}, "tokens"),
        ({"model": RecencyModel(order="post")}, "order"),
    ],
)
def test_variants_that_cannot_be_are_refused(options, name):
    with pytest.raises(InvalidValueError, match=name):
        Variant(**options)


@pytest.mark.parametrize("options", [{"networks": 0}, {"inputs": 1}, {"seed": -1}])
def test_runs_that_cannot_be_are_refused(options):
    with pytest.raises(InvalidValueError, match="".join(options)):
        simulate_variant(VARIANTS["plain"], **({"networks": 1, "inputs": 2} | options))


# --- networks and what is known of them --------------------------------------------------------------------

HALF = Estimate(0.5, 0.0, 1)


def apart(a: Estimate, b: Estimate) -> float:
    """a − b in units of their standard error."""
    return (a.value - b.value) / math.hypot(a.se, b.se)


@pytest.mark.parametrize("norm", ["layernorm", "none"])
def test_over_networks_it_has_the_gram_engines_probabilities(norm):
    model = RecencyModel(dimension=64, norm=norm)
    theirs = simulate_recency(model, 100_000, seed=1, threads=1).recency_probability
    mine = simulate_variant(Variant(model), 400, 25, seed=2).score.recency_probability
    for layer in range(4):
        assert abs(apart(mine[layer], theirs[layer])) <= 4
    if norm == "layernorm":
        assert abs(mine[1].value - 0.5544) <= 4 * mine[1].se  # Kim et al. 2026, Section 3


def test_a_direction_per_input_has_the_mean_of_one_per_network():
    per_network = simulate_variant(Variant(), 300, 20, seed=3).score
    per_input = simulate_variant(Variant(direction="input"), 300, 20, seed=4).score
    for a, b in zip(per_network.recency_probability, per_input.recency_probability, strict=True):
        assert abs(apart(a, b)) <= 4
    # a direction's length differs from network to network; with one per input, networks are all alike
    assert per_network.variance[3].value >= 4 * per_network.variance[3].se
    for variance in per_input.variance:
        assert abs(variance.value) <= 4 * variance.se


def test_apart_projections_lose_the_sign_and_keep_a_spread():
    found, bare = (
        simulate_variant(VARIANTS[name], 150, 40, seed=6).score
        for name in ("independent", "independent-no-norm")
    )
    for probability in found.recency_probability:
        assert abs(apart(probability, HALF)) <= 4
    for layer in (1, 2, 3):
        assert found.variance[layer].value >= 4 * found.variance[layer].se
        # it is the norm's: without one, little of it is left
        assert apart(found.variance[layer], bare.variance[layer]) >= 4


@pytest.mark.parametrize("spread", [pytest.param(0.0, marks=pytest.mark.slow), 0.02])
def test_spread_is_free_of_the_inputs_noise(spread):
    rng, networks, inputs = np.random.default_rng(12), 40, 10

    def variance():
        truth = 0.5 + spread * rng.normal(size=(networks, 1))
        drawn = truth + 0.1 * rng.normal(size=(networks, inputs))
        noise = drawn.var(axis=1, ddof=1) / inputs
        return OverNetworks(drawn.mean(axis=1)[:, None], noise[:, None]).variance[0]

    found = [variance() for _ in range(400)]
    mean = Estimate.of_mean(np.array([one.value for one in found]))
    assert abs(mean.value - spread**2) <= 4 * mean.se
    # errors are those that repetition shows
    assert np.mean([one.se for one in found]) == pytest.approx(mean.se * math.sqrt(400), rel=0.2)


# --- adjacency ---------------------------------------------------------------------------------------------


def adjacent_shares(scores):
    """Of every layer and sample, how often the key before the query scores higher than an earlier one."""
    pairs = [(i, k) for i in range(2, scores.shape[-1]) for k in range(i - 1)]
    return np.mean([scores[..., i, i - 1] > scores[..., i, k] for i, k in pairs], axis=0)


@given(
    st.integers(3, 7), st.integers(3, 12), st.floats(0, 0.9), st.sampled_from(["layernorm", "rmsnorm", "none"]),
    st.booleans(), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=25)
def test_it_is_the_share_of_keys_that_the_neighbour_beats(tokens, dimension, alpha, norm, residual, seed):
    model = RecencyModel(tokens, dimension, alpha, norm, residual, depth=3)
    samples = 40
    rng = np.random.default_rng(sequence(seed, STREAM, 0))
    shares = adjacent_shares(layer_scores(model, embeddings(rng, model, block_size(model))[:samples])[0])
    found = simulate_recency(model, samples, seed=seed, engine="token_space").adjacency_probability
    assert found[0].value == pytest.approx(shares[0].mean(), rel=1e-12)
    for layer in (1, 2):
        slope = np.cov(shares[layer], shares[0])[0, 1] / shares[0].var(ddof=1) if np.ptp(shares[0]) else 0.0
        expected = shares[layer].mean() - slope * (shares[0].mean() - 0.5)
        assert found[layer].value == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_two_tokens_have_none():
    result = simulate_recency(RecencyModel(tokens=2), 10)
    with pytest.raises(InvalidValueError, match=r"^tokens: "):
        print(result.adjacency_probability)
