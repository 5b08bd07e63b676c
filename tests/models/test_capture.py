"""The capture sees what the model does and changes nothing."""

import dataclasses

import pytest
import torch

from posbias.errors import ModelError
from posbias.measure import LoadedModel, selfcheck
from posbias.measure.capture import Capture
from posbias.measure.influence import predict


def seen_layers(loaded, ids):
    layers = []
    with Capture(loaded.model, loaded.family, layers.append):
        outputs = predict(loaded.model, ids).outputs.detach()
    return layers, outputs


def test_attention_rebuilt_from_captured_logits_is_the_models_own(tiny, ids):
    with torch.no_grad():
        own = tiny.model(ids[None], output_attentions=True).attentions
    layers, _ = seen_layers(tiny, ids)
    assert [seen.layer for seen in layers] == [0, 1, 2]
    for seen, attention in zip(layers, own, strict=True):
        assert (seen.logits.double().softmax(-1) - attention[0]).abs().max() < 1e-5
        assert torch.equal(seen.attention, attention[0])
        assert attention.std() > 0.05, "a test on uniform attention would prove little"


def test_outputs_are_bit_identical_with_and_without_capture(tiny, ids):
    with torch.no_grad():
        plain = tiny.model(ids[None]).logits[0]
    _, captured = seen_layers(tiny, ids)
    with torch.no_grad():
        after = tiny.model(ids[None]).logits[0]
    assert torch.equal(plain, captured)
    assert torch.equal(plain, after)


def test_gradients_are_bit_identical_with_and_without_capture(tiny, ids):
    def gradient(prediction):
        return torch.autograd.grad(prediction.outputs[-1].sum(), prediction.embeddings)[0]

    plain = gradient(predict(tiny.model, ids))
    with Capture(tiny.model, tiny.family, lambda seen: None):
        prediction = predict(tiny.model, ids)
    assert torch.equal(plain, gradient(prediction))


def test_nothing_stays_hooked_after_an_error_inside(tiny, ids):
    def fail(seen):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Capture(tiny.model, tiny.family, fail):
        predict(tiny.model, ids)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in tiny.model.modules())


def test_selfcheck_reports_what_it_compared(tiny, ids):
    report = selfcheck(tiny, ids)
    assert report["outputs_identical"] is True
    assert report["max_deviation"] < 1e-6
    assert report["rotation_deviation"] < 1e-6
    assert (report["tokens"], report["layers"]) == (12, 3)


def test_attention_without_softmax_is_refused(tiny, ids):
    tiny.model.set_attn_implementation("sdpa")
    with pytest.raises(ModelError, match="seen in 0 of 3 layers"):
        seen_layers(tiny, ids)


def test_selfcheck_refuses_a_wrong_table_row(tiny, ids):
    wrong = dataclasses.replace(tiny, family=dataclasses.replace(tiny.family, query="k_proj"))
    with pytest.raises(ModelError, match=r"the capture is wrong for tiny: .*rotation-free"):
        selfcheck(wrong, ids)


def test_selfcheck_refuses_a_model_that_answers_differently_each_time(build, ids):
    restless, calls = build(), iter(range(9))
    restless.model.lm_head.register_forward_hook(lambda module, given, made: made + 1e-6 * next(calls))
    with pytest.raises(ModelError, match="differ with and without capture"):
        selfcheck(restless, ids)


def test_a_model_in_memory_is_known_by_its_weights(tiny, build):
    assert tiny.checksum == build().checksum
    other = build()
    other.model.lm_head.weight.data[0, 0] += 1e-3
    assert LoadedModel.of(other.model, other.tokenizer, "tiny").checksum != tiny.checksum
