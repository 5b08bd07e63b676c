"""The capture sees what the model does and changes nothing."""

import pytest
import torch
from tiny import seen_layers, tiny_model
from torch.utils.checkpoint import checkpoint

from posbias.core.errors import ModelError
from posbias.measurement import selfcheck
from posbias.measurement.capture.forward import Capture
from posbias.measurement.capture.tracer import Derived, Twin, Watch, mark_of, set_mark
from posbias.measurement.quantities.influence import predict

ATTENTIONS = ["eager", "sdpa"]


def both(loaded, ids):
    layers = []
    with Capture(loaded.model, loaded.family, layers.append):
        outputs = predict(loaded.model, ids).outputs.detach()
    return layers, outputs


def test_attention_rebuilt_from_captured_logits_is_the_models_own(tiny, ids):
    with torch.no_grad():
        own = tiny.model(ids[None], output_attentions=True).attentions
    layers = seen_layers(tiny, ids)
    assert [seen.layer for seen in layers] == [0, 1, 2]
    for seen, attention in zip(layers, own, strict=True):
        assert (seen.logits.double().softmax(-1) - attention[0]).abs().max() < 1e-5
        assert torch.equal(seen.attention, attention[0])
        assert attention.std() > 0.05, "a test on uniform attention would prove little"


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_outputs_are_bit_identical_with_and_without_capture(attention, ids):
    loaded = tiny_model("llama", 0, attention)
    with torch.no_grad():
        plain = loaded.model(ids[None]).logits[0]
    _, captured = both(loaded, ids)
    with torch.no_grad():
        after = loaded.model(ids[None]).logits[0]
    assert torch.equal(plain, captured)
    assert torch.equal(plain, after)


@pytest.mark.parametrize("family", ["llama", "bloom", "falcon", "gpt_oss", "llama4_text", "gptj"])
def test_gradients_are_bit_identical_with_and_without_capture(family, ids):
    loaded = tiny_model(family)

    def gradient(prediction):
        return torch.autograd.grad(prediction.outputs[-1].sum(), prediction.embeddings)[0]

    plain = gradient(predict(loaded.model, ids))
    with Capture(loaded.model, loaded.family, lambda seen: None):
        prediction = predict(loaded.model, ids)
    assert torch.equal(plain, gradient(prediction))


def test_nothing_stays_hooked_or_marked_after_an_error_inside(ids):
    loaded = tiny_model("gptj")

    def fail(seen):
        assert mark_of(loaded.model.transformer.h[0].attn.embed_positions) is not None
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Capture(loaded.model, loaded.family, fail):
        predict(loaded.model, ids)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in loaded.model.modules())
    assert all(mark_of(tensor) is None for tensor in [*loaded.model.buffers(), *loaded.model.parameters()])


def test_a_layer_that_is_computed_again_is_seen_once(tiny, ids):
    """As activation checkpointing does it: each layer runs a second time in the backward pass."""
    layers, calls = [], [0]
    for layer in tiny.model.model.layers:
        forward = layer.forward

        def again(*given, forward=forward, **named):
            calls[0] += 1
            return checkpoint(forward, *given, use_reentrant=False, **named)

        layer.forward = again
    with Capture(tiny.model, tiny.family, layers.append):
        prediction = predict(tiny.model, ids)
        (gradient,) = torch.autograd.grad(prediction.outputs[-1].sum(), prediction.embeddings)
    assert [seen.layer for seen in layers] == [0, 1, 2]
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gpt_neox"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_models_in_half_precision_are_seen_to_their_rounding(dtype, family, attention, ids):
    loaded = tiny_model(family, 0, attention)
    loaded.model.to(dtype)
    report = selfcheck(loaded, ids)
    assert report["outputs_identical"] is True
    exact = seen_layers(tiny_model(family, 0, attention), ids)
    for seen, reference in zip(seen_layers(loaded, ids)[:1], exact, strict=False):
        assert seen.stream.dtype == dtype
        assert seen.logits.dtype == torch.float32
        assert (seen.attention - reference.attention).abs().max() < 0.2


def test_positions_that_no_argument_carries_are_not_guessed(ids):
    """Rotations computed where no layer gets them: content is None, and the row that needs it is refused."""
    loaded = tiny_model("llama")
    for layer in loaded.model.model.layers:
        forward = layer.forward
        # a rotation the layer fetches for itself
        layer.forward = lambda x, forward=forward, **named: forward(x, **named, position_embeddings=stash[0])
    stash, trunk = [], loaded.model.model
    rotary = trunk.rotary_emb.forward

    def hide(*given, **named):
        stash[:] = [rotary(*given, **named)]

    trunk.rotary_emb.forward = hide
    for layer in trunk.layers:
        # dropped from the arguments before anybody can see it
        layer.register_forward_pre_hook(
            lambda m, given, named: (given, {k: v for k, v in named.items() if k != "position_embeddings"}),
            with_kwargs=True,
        )
    assert all(seen.content is None for seen in seen_layers(loaded, ids))
    with pytest.raises(ModelError, match="in 0 of 3 layers"):
        selfcheck(loaded, ids)


@pytest.mark.parametrize("first", ["turned", "plain"])
def test_what_is_written_into_a_part_of_a_tensor_is_turned_in_the_twin_of_the_whole(first):
    """As families with latent attention make their keys: half of the channels rotates, the other half does not."""
    turned, twin, rest = (torch.randn(1, 4, 3) for _ in range(3))
    set_mark(turned, Twin(twin))
    watch = Watch(torch.zeros(1, 4, 6))
    whole = torch.zeros(1, 4, 6)
    parts = {"turned": (slice(3, 6), turned), "plain": (slice(0, 3), rest)}
    for name in (first, *(name for name in parts if name != first)):
        place, given = parts[name]
        view = watch.run(torch.Tensor.__getitem__, (whole, (..., place)), {})
        watch.run(torch.Tensor.copy_, (view, given), {})
    assert torch.equal(whole, torch.cat((rest, turned), -1))
    mark = mark_of(whole)
    assert isinstance(mark, Twin)
    assert torch.equal(mark.tensor, torch.cat((rest, twin), -1))


def test_a_bias_for_all_positions_is_no_stream():
    """GPT-NeoX Japanese adds the bias of its last output projection by itself."""
    watch, attention, bias = Watch(torch.randn(1, 4, 6)), torch.randn(1, 4, 6), torch.randn(6)
    set_mark(attention, Derived())
    update = watch.run(torch.add, (attention, bias.expand_as(attention)), {})
    assert not watch.done
    watch.run(torch.add, (update, watch.stream), {})
    assert watch.update is not None
    assert torch.equal(watch.update, attention + bias)


def test_selfcheck_refuses_a_model_that_answers_differently_each_time(build, ids):
    restless, calls = build(), iter(range(9))
    restless.model.lm_head.register_forward_hook(lambda module, given, made: made + 1e-6 * next(calls))
    with pytest.raises(ModelError, match="differ with and without capture"):
        selfcheck(restless, ids)


def test_what_is_not_finite_is_named(ids):
    loaded = tiny_model("llama", 0, "sdpa")
    loaded.model.model.layers[1].self_attn.q_proj.weight[0, 0] = torch.inf
    with pytest.raises(
        ModelError, match="the attention of layer 1 is not finite in the prompt of the self-check"
    ):
        selfcheck(loaded, ids)


@pytest.mark.parametrize("family", ["llama", "bloom", "gptj"])
def test_layers_whose_weights_come_and_go_are_seen_alike(family, ids):
    """Weights off the device between uses, as accelerate leaves models larger than one device."""
    import accelerate

    plain = seen_layers(tiny_model(family), ids)
    loaded = tiny_model(family)
    accelerate.cpu_offload(loaded.model, execution_device=torch.device("cpu"))
    for one, other in zip(plain, seen_layers(loaded, ids), strict=True):
        assert torch.equal(one.update, other.update)
        assert torch.equal(one.attention, other.attention)
        assert torch.equal(one.content.dense()[0], other.content.dense()[0])
        assert torch.equal(one.output_weight, other.output_weight)
