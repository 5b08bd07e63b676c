"""Influence on several queries, and values by head, against plain computing with the model's own parts."""

import numpy as np
import pytest
import torch

from posbias.core.errors import InvalidValueError, ModelError
from posbias.core.plugins import bundled
from posbias.measurement import load_model
from posbias.measurement.job import Request
from posbias.measurement.quantities.influence import gradients, predict
from posbias.measurement.run import prepared
from posbias_papers.measurement.query_influence import query_influence
from posbias_papers.measurement.untrained import folder_of, untrained_like
from posbias_papers.measurement.values import values_by_head

TOKENS = 48


def ids_of(loaded, **more):
    return prepared(loaded, Request(text=None, tokens=TOKENS, prompts=2, **more)).ids


@pytest.mark.parametrize("scramble", [False, True])
def test_each_query_has_the_influence_of_the_prompt_that_ends_there(scramble):
    """A causal model: cut after the query, the prompt says the same of it (float32, 1e-4)."""
    loaded, queries = load_model("tiny-rope"), (7, 30, TOKENS - 1)
    rows = query_influence(loaded, tokens=TOKENS, prompts=2, scramble=scramble, queries=queries, threads=1)[
        "influence"
    ].values
    for prompt, ids in enumerate(ids_of(loaded, scramble=scramble)):
        for row, query in zip(rows[prompt], queries, strict=True):
            cut = torch.from_numpy(ids[: query + 1])
            alone = gradients(predict(loaded.model, cut), cut, ("log_probability",))
            np.testing.assert_allclose(row[: query + 1], alone["influence_log_probability"], rtol=1e-4)
            assert not row[query + 1 :].any()


def test_long_prompts_spare_memory_and_say_the_same(monkeypatch):
    from posbias_papers.measurement import query_influence as module

    plain = query_influence("tiny-alibi", tokens=TOKENS, prompts=2, threads=1)["influence"].values
    monkeypatch.setattr(module, "FUSED", TOKENS - 1)
    np.testing.assert_allclose(
        query_influence("tiny-alibi", tokens=TOKENS, prompts=2, threads=1)["influence"],
        plain,
        rtol=1e-4,
        atol=1e-9,
    )


@pytest.mark.parametrize("query", [TOKENS, -TOKENS - 1, 1.5])
def test_a_query_that_is_no_position_is_refused(query):
    with pytest.raises(InvalidValueError, match="queries"):
        query_influence("tiny-nope", tokens=TOKENS, prompts=1, queries=(query,))


def test_values_and_what_heads_write_are_the_model_s_own():
    """From the model's own value projection and attention weights (float32, 1e-4)."""
    loaded = load_model("tiny-learned")
    data = values_by_head(loaded, tokens=TOKENS, prompts=2, threads=1)
    streams: dict[int, torch.Tensor] = {}
    for layer, block in enumerate(loaded.model.model.layers):
        block.self_attn.v_proj.register_forward_hook(
            lambda module, given, output, layer=layer: streams.update({layer: output})
        )
    for prompt, ids in enumerate(ids_of(loaded)):
        with torch.no_grad():
            layers = loaded.model(torch.from_numpy(ids)[None], output_attentions=True).attentions
        for layer, weights in enumerate(layers):
            attention = weights[0].double().numpy()
            values = streams[layer][0].double().numpy().reshape(TOKENS, 8, -1).swapaxes(0, 1)
            seen = data.isel(prompt=prompt, layer=layer)
            np.testing.assert_allclose(seen["value_norm"], np.sqrt((values**2).sum(-1)), rtol=1e-4)
            np.testing.assert_allclose(seen["value_variance"], values.var(-1), rtol=1e-4)
            np.testing.assert_allclose(seen["mixed_variance"], (attention @ values).var(-1), rtol=1e-4)
            np.testing.assert_allclose(seen["sink_share"], attention[:, 1:, 0].mean(axis=1), rtol=1e-4)
            np.testing.assert_allclose(
                seen["sink_metric"], (attention[:, :, 0] > 0.2).mean(axis=1), atol=0.03
            )


def test_heads_that_share_values_repeat_them():
    from posbias.measurement.models.tiny_configs import specimen

    model = specimen("llama", vocab_size=2048, max_position_embeddings=64)
    data = values_by_head(model, tokenizer=bundled()["tiny-nope"], tokens=TOKENS, prompts=1, threads=1)
    norms = data["value_norm"].values[0]
    assert norms.shape[1] == 4
    np.testing.assert_array_equal(norms[:, 0], norms[:, 1])
    assert not np.allclose(norms[:, 0], norms[:, 2])


def test_an_untrained_model_has_the_configuration_of_its_namesake_and_weights_by_seed():
    trained, before = load_model("tiny-window").model, torch.random.get_rng_state()
    one, same, other = (untrained_like("tiny-window", seed) for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert one.config.sliding_window == trained.config.sliding_window
    for (name, weight), known in zip(one.named_parameters(), trained.parameters(), strict=True):
        assert weight.shape == known.shape
        if weight.ndim > 1:
            assert not torch.equal(weight, known), name
    pairs = [*zip(one.parameters(), same.parameters(), strict=True)]
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert folder_of("tiny-window") == bundled()["tiny-window"]
    with pytest.raises(ModelError, match="'tiny-windows' given"):
        untrained_like("tiny-windows", 0)
