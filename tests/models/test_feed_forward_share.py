"""What the feed-forward block writes, against the block's own output, and where it cannot be known."""

import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_model

from posbias.measurement import measure
from posbias.measurement.models.families import FAMILIES, adds_to_stream
from posbias.measurement.quantities.mixing import feed_forward_share

BLOCKS = {
    "llama": "mlp",
    "gpt2": "mlp",
    "gpt_neox": "mlp",  # parallel: attention and block read the same stream
    "olmo2": "post_feedforward_layernorm",  # what is added is normed first
    "gemma2": "post_feedforward_layernorm",
    "qwen3": "mlp",
    "posbias_tiny": "mlp",
}
"""What of a layer gives the block's update as it is added."""


def norm(tensor):
    return float(np.sqrt((tensor.double().numpy() ** 2).sum()))


def added(loaded, ids):
    """By layer ‖Attn(X)‖ and ‖M‖: the block's output from a hook, attention from what else the layer changed."""
    layers = next(module for module in loaded.model.modules() if isinstance(module, torch.nn.ModuleList))
    block = BLOCKS[loaded.family.model_type]
    found, hooks = [], []
    for layer in layers:

        def note(module, positional, named, output):
            stream = positional[0] if positional else named["hidden_states"]
            left = output if torch.is_tensor(output) else output[0]
            found[-1]["other"] = norm((left - stream - found[-1]["block"])[0])

        def begin(module, positional, named):
            found.append({})

        def keep(module, positional, output):
            found[-1]["block"] = output

        hooks += [
            layer.register_forward_pre_hook(begin, with_kwargs=True),
            getattr(layer, block).register_forward_hook(keep),
            layer.register_forward_hook(note, with_kwargs=True),
        ]
    with torch.no_grad():
        loaded.model(ids[None])
    for hook in hooks:
        hook.remove()
    return [(one["other"], norm(one["block"][0])) for one in found]


@pytest.mark.parametrize("family", BLOCKS)
def test_the_share_is_that_of_the_block_s_own_output(family, text):
    loaded = tiny_model(family)
    measured = measure(loaded, text=text, tokens=10, prompts=1, seed=2)
    import json

    words = loaded.tokenizer(text.read_text(), add_special_tokens=False)["input_ids"]
    start = json.loads(measured.attrs["starts"])[0]
    expected = [
        block / (attention + block)
        for attention, block in added(loaded, torch.tensor(words[start : start + 10]))
    ]
    np.testing.assert_allclose(measured["feed_forward_share"].values[0], expected, rtol=1e-4)


@given(st.integers(0, 2**32), st.floats(0.0, 50.0))
@examples(30)
def test_the_share_follows_the_size_of_what_is_written(seed, size):
    rng = np.random.default_rng(seed)
    stream, attention, block = (torch.from_numpy(rng.normal(size=(6, 4))) for _ in range(3))
    found = feed_forward_share(stream, attention, stream + attention + size * block)
    expected = size * norm(block) / (norm(attention) + size * norm(block))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_where_nothing_is_added_there_is_no_share():
    stream = torch.ones(3, 2)
    assert np.isnan(feed_forward_share(stream, torch.zeros(3, 2), stream))
    assert feed_forward_share(stream, torch.zeros(3, 2), stream + 1) == 1.0
    assert feed_forward_share(stream, torch.ones(3, 2), stream + 1) == 0.0


def test_a_layer_that_norms_what_it_added_has_no_share(text):
    loaded = tiny_model("opt", 1)
    assert loaded.model.config.do_layer_norm_before is False
    assert not adds_to_stream(FAMILIES["opt"], loaded.model.config)
    assert "feed_forward_share" not in measure(loaded, text=text, tokens=10, prompts=1)
    assert adds_to_stream(FAMILIES["opt"], tiny_model("opt", 0).model.config)
