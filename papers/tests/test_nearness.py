"""Cosines by distance, recency by layer and loss by position against naive computations on tiny models."""

import numpy as np
import pytest
import torch

from posbias.core.errors import InvalidValueError
from posbias.measurement import load_model
from posbias_papers.measurement.nearness import cosines_by_distance, nearness

TOKENS, PROMPTS = 14, 2


def naive_cosines(states):
    """Mean cosine by distance, keys from 1, by loops in float64; NaN at the last distance."""
    x = np.asarray(states, dtype=np.float64)
    found = np.full(len(x), np.nan)
    for distance in range(len(x) - 1):
        pairs = [(x[j + distance], x[j]) for j in range(1, len(x) - distance)]
        found[distance] = np.mean([a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in pairs])
    return found


def naive_recency(scores, adjacent=False):
    """Share of triples i > j > k whose key j scores higher, by loops; `adjacent`: of those with j = i − 1."""
    won = [
        scores[i, j] > scores[i, k]
        for i in range(len(scores))
        for j in range(i)
        for k in range(j)
        if not adjacent or j == i - 1
    ]
    return np.mean(won)


def plain_pass(model, ids):
    """Streams and normed streams entering attention, attention [layer][head query key], outputs: plain hooks."""
    streams, normed, hooks = [], [], []
    for layer in model.model.layers:
        hooks.append(layer.register_forward_pre_hook(lambda module, given: streams.append(given[0][0])))
        hooks.append(
            layer.input_layernorm.register_forward_hook(lambda module, given, made: normed.append(made[0]))
        )
    with torch.no_grad():
        made = model(ids[None], output_attentions=True)
    for hook in hooks:
        hook.remove()
    return streams, normed, [weights[0].double().numpy() for weights in made.attentions], made.logits[0]


@pytest.mark.parametrize("name", ["tiny-nope", "tiny-rope", "tiny-alibi"])
def test_every_number_is_that_of_the_model_s_own_states_and_weights(name):
    loaded = load_model(name)
    measured = nearness(loaded, tokens=TOKENS, prompts=PROMPTS, seed=1, threads=1)
    starts = loaded.tokenizer(_text(), add_special_tokens=False, verbose=False)["input_ids"]
    ids = np.array(starts[: len(starts) // TOKENS * TOKENS]).reshape(-1, TOKENS)
    losses = measured["loss_position"].values
    for prompt in range(PROMPTS):
        row = ids[_drawn(len(ids), PROMPTS, 1)[prompt]]
        streams, normed, attention, outputs = plain_pass(loaded.model, torch.from_numpy(row))
        for layer, (stream, behind, weights) in enumerate(zip(streams, normed, attention, strict=True)):
            of = {
                key: values.values[prompt, layer]
                for key, values in measured.items()
                if "layer" in values.dims
            }
            np.testing.assert_allclose(of["cosine"], naive_cosines(stream), atol=1e-12)
            np.testing.assert_allclose(of["cosine_normed"], naive_cosines(behind), atol=1e-12)
            # weights are in the order of logits; ties by underflow do not occur among so few tokens
            np.testing.assert_allclose(of["recency"], [naive_recency(one) for one in weights])
            np.testing.assert_allclose(of["adjacency"], [naive_recency(one, True) for one in weights])
            if name == "tiny-nope":
                np.testing.assert_array_equal(of["recency_content"], of["recency"])
        chosen = outputs.double().log_softmax(dim=1).numpy()[np.arange(TOKENS - 1), row[1:]]
        np.testing.assert_allclose(losses[prompt, :-1], -chosen, atol=1e-6)
    assert np.isnan(losses[:, -1]).all()


def _text():
    from posbias.measurement import read_text

    return read_text(None).content


def _drawn(windows, prompts, seed):
    from posbias.core import seeds

    return seeds.stream(seed, "prompts").choice(windows, size=prompts, replace=False)


def test_content_has_positions_taken_out():
    """Of a layer under RoPE: queries and keys made from the weights, not rotated."""
    loaded = load_model("tiny-rope")
    measured = nearness(loaded, tokens=TOKENS, prompts=1, seed=1, threads=1)
    ids = np.array(loaded.tokenizer(_text(), add_special_tokens=False, verbose=False)["input_ids"])
    ids = ids[: len(ids) // TOKENS * TOKENS].reshape(-1, TOKENS)
    row = torch.from_numpy(ids[_drawn(len(ids), 1, 1)[0]])
    _, normed, _, _ = plain_pass(loaded.model, row)
    for layer, states in enumerate(normed):
        block, x = loaded.model.model.layers[layer].self_attn, states.double().numpy()
        query, key = (
            (x @ one.weight.double().numpy().T).reshape(TOKENS, 8, 16) for one in (block.q_proj, block.k_proj)
        )
        scores = np.einsum("ihc,jhc->hij", query, key)
        found = measured["recency_content"].values[0, layer]
        np.testing.assert_allclose(found, [naive_recency(one) for one in scores])
        assert not np.array_equal(found, measured["recency"].values[0, layer])


def test_cosines_do_not_change_with_the_size_of_states():
    states = torch.from_numpy(np.random.default_rng(0).normal(size=(9, 5)))
    sizes = torch.logspace(-3, 3, 9, dtype=torch.float64)
    np.testing.assert_allclose(
        cosines_by_distance(states), cosines_by_distance(states * sizes[:, None]), atol=1e-12
    )
    np.testing.assert_allclose(cosines_by_distance(states), naive_cosines(states), atol=1e-12)


def test_a_window_leaves_out_what_is_not_seen():
    found = nearness("tiny-window", tokens=70, prompts=1, threads=1)
    assert np.isfinite(found["recency"].values).all()
    # beyond the window of 64 the query sees as many triples as at its end
    assert np.isfinite(found["recency_query"].values[..., 2:]).all()


def test_an_encoding_without_end_goes_beyond_the_context_and_others_are_refused():
    longer = nearness("tiny-nope", tokens=260, prompts=1, threads=1)
    assert longer.sizes["position"] == 260
    assert np.isfinite(longer["loss_position"].values[:, :-1]).all()
    for name in ("tiny-rope", "tiny-learned"):
        with pytest.raises(InvalidValueError, match="tokens: 260 given, at most 256 fit the context"):
            nearness(name, tokens=260, prompts=1, threads=1)


def test_what_comes_later_in_a_prompt_changes_nothing_before_it():
    """Causality: the first tokens of a longer prompt have the losses of a shorter one."""
    loaded = load_model("tiny-nope")
    from posbias_papers.measurement.nearness import prompt_nearness

    ids = np.arange(5, 45)
    short, long = (prompt_nearness(loaded, one, "x")["loss_position"] for one in (ids[:20], ids))
    np.testing.assert_allclose(short[:19], long[:19], rtol=1e-5)
