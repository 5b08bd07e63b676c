"""What TransformerLens and nnsight save, and heads' first order by the former: in an environment with both.

Elsewhere `tests/oracles/test_attention.py` has objects of the same structure.
"""

import numpy as np
import pytest

from posbias import Attention

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
IDS = torch.arange(21).reshape(3, 7)


@pytest.fixture
def model():
    """A tiny Llama of twelve layers (layer 10's name comes before layer 2's), and its attention."""
    from tiny import llama

    model = llama(num_hidden_layers=12)
    return model, [layer.detach() for layer in model(IDS, output_attentions=True).attentions]


def test_an_activation_cache_and_its_dictionary_of_patterns(model, tmp_path):
    bridge = pytest.importorskip("transformer_lens.model_bridge").TransformerBridge
    from tiny import save

    lens = bridge.boot_transformers(str(save(model[0], tmp_path)), hf_model=model[0])
    _, cache = lens.run_with_cache(IDS)
    patterns = {name: cache[name] for name in sorted(cache.keys()) if name.endswith("hook_pattern")}
    for saved in (cache, patterns):
        np.testing.assert_allclose(Attention.from_arrays(saved).layers, model[1], atol=1e-6)
    _, one_text = lens.run_with_cache(IDS[:1], remove_batch_dim=True)
    assert Attention.from_arrays(one_text).depth == 12


def test_the_first_order_of_heads(model, tmp_path):
    """Attribution by hooks: a head's output times the gradient there, summed over tokens and channels."""
    bridge = pytest.importorskip("transformer_lens.model_bridge").TransformerBridge
    from tiny import save, word_tokenizer
    from torch.nn.functional import cross_entropy

    from posbias.measurement import LoadedModel
    from posbias.measurement.interventions import head_scales

    with head_scales(LoadedModel.of(model[0], word_tokenizer(), "tiny"), np.zeros((12, 4, 1))) as scales:
        logits = model[0](IDS[:1], use_cache=False).logits[0]
        (slopes,) = torch.autograd.grad(cross_entropy(logits[:-1], IDS[0, 1:]), scales)
    lens, held = bridge.boot_transformers(str(save(model[0], tmp_path)), hf_model=model[0]), []

    def keep(z, hook):
        # its weights need no gradients: the first layer's output is a leaf
        held.append(z.requires_grad_())
        z.retain_grad()
        return z

    hooks = [(f"blocks.{layer}.attn.hook_z", keep) for layer in range(12)]
    cross_entropy(lens.run_with_hooks(IDS[:1], fwd_hooks=hooks)[0, :-1], IDS[0, 1:]).backward()
    expected = torch.stack([(z * z.grad).reshape(7, 4, -1).sum(dim=(0, 2)) for z in held])
    torch.testing.assert_close(slopes, expected, rtol=1e-5, atol=1e-6)


def test_what_nnsight_saved(model):
    traced = pytest.importorskip("nnsight").NNsight(model[0])
    with traced.trace(IDS, output_attentions=True) as tracer:
        cache = tracer.cache()
        outputs = [].save()
        for layer in traced.model.layers:
            outputs.append(layer.self_attn.output)
        whole = traced.output.save()
    for saved in (cache, outputs, whole):
        np.testing.assert_allclose(Attention.from_arrays(saved).layers, model[1], atol=1e-6)
