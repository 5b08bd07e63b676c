"""The sink metric by prompt against loops over the model's own attention, and the numbers that come along."""

import numpy as np
import pytest
import torch

from posbias.measurement import load_model
from posbias.measurement.job import Request
from posbias.measurement.run import prepared
from posbias_papers.wu2025.observed import MODELS, SMALL, even_sinks, observed, prompt_sinks, sinks_by_prompt

TOKENS, WINDOW = 70, 64


def naive_metric(attention, allowed):
    """Σ_i 1{A_ij > .2} / Σ_i M_ij by loops, mean over heads, in float64."""
    tokens = len(allowed)
    found = np.zeros(tokens)
    for key in range(tokens):
        seers = [query for query in range(tokens) if allowed[query, key]]
        shares = [np.mean([head[query, key] > 0.2 for query in seers]) for head in attention]
        found[key] = np.mean(shares)
    return found


@pytest.mark.parametrize("name", ["tiny-nope", "tiny-window"])
def test_the_metric_is_that_of_the_model_s_own_attention_and_of_even_attention(name):
    loaded = load_model(name)
    measured = sinks_by_prompt(loaded, tokens=TOKENS, prompts=2, seed=1, threads=1)
    apart = np.subtract.outer(np.arange(256), np.arange(256))
    allowed = (apart >= 0) & (apart < (WINDOW if name == "tiny-window" else 256))
    even = naive_metric((allowed / allowed.sum(axis=1, keepdims=True))[None], allowed)
    np.testing.assert_allclose(even_sinks(loaded), even, atol=1e-12)
    allowed = allowed[:TOKENS, :TOKENS]
    drawn = prepared(loaded, Request(text=None, tokens=TOKENS, prompts=2, seed=1)).ids
    for prompt, ids in enumerate(drawn):
        with torch.no_grad():
            layers = loaded.model(torch.from_numpy(ids)[None], output_attentions=True).attentions
        for layer, weights in enumerate(layers):
            own = measured["sink_metric"].values[prompt, layer]
            np.testing.assert_allclose(own, naive_metric(weights[0].numpy(), allowed), atol=1e-12)


@pytest.mark.parametrize(
    "name", [*SMALL[1::3], pytest.param(MODELS[0], marks=[pytest.mark.real_model, pytest.mark.slow])]
)
def test_recorded_sinks_are_those_of_the_models_that_come_along(name):
    """The first prompt again: shares of queries may differ by a few whose weight is next to the threshold."""
    recorded, loaded = observed()[name], load_model(name)
    assert recorded["checksum"] == loaded.checksum
    request = Request(
        text=None, tokens=recorded["tokens"], prompts=recorded["prompts"], seed=recorded["seed"]
    )
    assert request.source.sha256 == recorded["text_sha256"]
    found = prompt_sinks(loaded, prepared(loaded, request).ids[0], "prompt 0")
    metric = found["sink_metric"].mean(axis=0)
    np.testing.assert_allclose(metric[0], recorded["first"][0], atol=1e-3)
    np.testing.assert_allclose(metric[recorded["strongest"]], recorded["other"][0], atol=0.02)
    np.testing.assert_allclose(even_sinks(loaded)[: len(recorded["even"])], recorded["even"], atol=1e-6)


def test_recorded_sinks_agree_with_one_another():
    for name, one in observed().items():
        assert len(one["first"]) == len(one["other"]) == one["prompts"], name
        np.testing.assert_allclose(np.mean(one["first"]), one["by_token"][0], atol=2e-6)
        np.testing.assert_allclose(np.mean(one["by_layer"]), one["by_token"][0], atol=2e-6)
    assert list(observed()) == list(MODELS)
