"""Temperature by position as configurations are read, against the logits of models that transformers builds."""

import numpy as np
import pytest
import torch

from families import build, plain
from posbias.measurement.capture.forward import Capture
from posbias.measurement.models.families import FAMILIES, generic
from posbias.measurement.quantities.influence import predict
from posbias.theory.content import StepScale
from posbias.theory.huggingface import from_huggingface
from posbias.theory.masks import Causal, Chunked

PROMPT = torch.arange(1, 31)


def lowest_logits(family, **changes):
    """The lowest layer's logits [head, query, key] of a tiny model, and that layer as it is read."""
    config, model = build(family, **changes)
    seen = {}
    with Capture(model, FAMILIES.get(family) or generic(family), lambda one: seen.update({one.layer: one})):
        predict(model, PROMPT)
    return seen[0].logits.numpy().astype(np.float64), from_huggingface(plain(config)).stack[0]


def test_llama_4_grows_in_layers_without_an_encoding():
    one = {"num_hidden_layers": 1, "no_rope_layers": [0], "floor_scale": 4, "attn_scale": 0.5}
    one |= {"layer_types": ["full_attention"], "moe_layers": []}
    scaled, layer = lowest_logits("llama4_text", **one)
    flat, bare = lowest_logits("llama4_text", **one, attn_temperature_tuning=False)
    assert layer.query_scale == StepScale(0.5, 4)
    assert bare.query_scale is None
    compare(scaled, flat, layer)


def test_ministral_3_grows_everywhere_one_token_later():
    def parameters(beta):
        return {"rope_type": "default", "rope_theta": 1e4, "llama_4_scaling_beta": beta,
                "original_max_position_embeddings": 8}  # fmt: skip

    scaled, layer = lowest_logits("ministral3", rope_parameters=parameters(0.5))
    flat, still = lowest_logits("ministral3", rope_parameters=parameters(0.0))
    assert layer.query_scale == StepScale(0.5, 8, first=0)
    assert still.query_scale == StepScale(0.0, 8, first=0)
    compare(scaled, flat, layer)


def compare(scaled, flat, layer):
    """Row i of one is that of the other times the factor, in float32."""
    factors = layer.query_scale.factors_at(np.arange(len(PROMPT)), layer.heads)
    assert factors.max() > 1.3
    seen = np.isfinite(flat) & np.isfinite(scaled)
    assert seen.sum() > 100
    expected = flat * factors[:, :, None]
    np.testing.assert_allclose(scaled[seen], expected[seen], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("given", [{}, {"no_rope_layers": [1, 1, 0, 1, 1]}, {"no_rope_layer_interval": 2}])
def test_llama_4_is_read_with_its_defaults(given):
    architecture = from_huggingface(
        {"model_type": "llama4", "text_config": {"num_hidden_layers": 5, **given}}
    )
    bare = {3} if not given else {2} if "no_rope_layers" in given else {1, 3}
    for t, layer in enumerate(architecture.stack):
        assert layer.mask == (Causal() if t in bare else Chunked(8192))
        assert layer.positional.kind == ("nope" if t in bare else "needs_measurement")
        assert layer.query_scale == (StepScale(0.1, 8192) if t in bare else None)
    assert any("chunks of 8,192 tokens" in line for line in architecture.remarks)


def test_ministral_3_without_parameters_has_those_of_transformers():
    config = {"model_type": "ministral3", "num_hidden_layers": 2, "num_attention_heads": 2}
    assert from_huggingface(config).layers[0].query_scale == StepScale(0.1, 16384, first=0)
    without = from_huggingface(config | {"rope_parameters": {"rope_theta": 1e4}})
    assert without.layers[0].query_scale is None
