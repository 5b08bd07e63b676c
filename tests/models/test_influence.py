"""The gradient influence against finite differences in genuine float64, and its economies against none."""

import warnings

import numpy as np
import pytest
import torch
from tiny import CASES, specimen, tiny_model
from torch.autograd.graph import saved_tensors_hooks

from posbias.core.errors import InvalidValueError
from posbias.measurement.models.families import decoder_layers
from posbias.measurement.quantities.influence import KINDS, Economy, economy, gradients, predict

ALL = tuple(kind for kind in KINDS if kind != "outputs")


def test_gradients_equal_finite_differences(tiny, ids, monkeypatch):
    # Llama's norm and softmax compute in torch.float32 by name; here that name means float64
    monkeypatch.setattr(torch, "float32", torch.float64)
    model = tiny.model.double()
    short = ids[:6]
    row = gradients(predict(model, short), short, ALL, target=3)
    start = model.get_input_embeddings()(short[None])
    chosen = int(row["next_token"])

    def said(embeddings):
        with torch.no_grad():
            outputs = model(inputs_embeds=embeddings).logits[0, -1]
        probabilities = outputs.softmax(-1)
        return torch.stack(
            [probabilities[chosen], outputs[chosen], probabilities[chosen].log(), probabilities[3]]
        ).numpy()

    step, slopes = 1e-5, np.zeros((4, 6, 32))
    for position in range(6):
        for channel in range(32):
            nudge = torch.zeros_like(start)
            nudge[0, position, channel] = step
            slopes[:, position, channel] = (said(start + nudge) - said(start - nudge)) / (2 * step)
    names = ("influence", "influence_logit", "influence_log_probability", "influence_target")
    for name, slope in zip(names, slopes, strict=True):
        np.testing.assert_allclose(row[name], np.linalg.norm(slope, axis=1), rtol=1e-6, err_msg=name)
    inner = abs((slopes[0] * start[0].numpy()).sum(axis=1))
    np.testing.assert_allclose(row["influence_input"], inner, rtol=1e-5, atol=1e-9)
    assert float(row["probability"]) == pytest.approx(said(start)[0], rel=1e-12)
    assert float(row["target_probability"]) == pytest.approx(said(start)[3], rel=1e-12)


def test_influence_is_not_normalised_and_positive(tiny, ids):
    result = gradients(predict(tiny.model, ids), ids)
    assert (result["influence"] > 0).all()
    assert result["influence"].sum() != pytest.approx(1)


def test_loss_is_the_cross_entropy_of_the_text(tiny, ids):
    with torch.no_grad():
        outputs = tiny.model(ids[None]).logits[0, :-1]
    expected = float(torch.nn.functional.cross_entropy(outputs.double(), ids[1:]))
    trunk = Economy(trunk=tiny.model.model)
    for saving in (None, trunk):
        assert gradients(predict(tiny.model, ids, saving), ids)["loss"] == pytest.approx(expected, rel=1e-6)


def test_a_target_that_is_the_prediction_gives_the_same(tiny, ids):
    chosen = int(gradients(predict(tiny.model, ids), ids)["next_token"])
    row = gradients(predict(tiny.model, ids), ids, ("probability", "target"), target=chosen)
    np.testing.assert_array_equal(row["influence"], row["influence_target"])
    assert row["target_probability"] == row["probability"]


@pytest.mark.parametrize(("family", "number"), CASES)
def test_economies_leave_every_family_as_it_is(family, number, ids):
    loaded = tiny_model(family, number)
    layers = decoder_layers(loaded.model, loaded.family)
    saving = economy(loaded.model, layers, ids[:8])
    assert saving.notes == ()
    assert saving.recompute == tuple(layers)
    with torch.no_grad():
        outputs = loaded.model(input_ids=ids[None], use_cache=False).logits[0]
    prediction = predict(loaded.model, ids)
    assert torch.equal(prediction.outputs, outputs)
    plain = gradients(prediction, ids, ALL, target=3)
    again = gradients(predict(loaded.model, ids, Economy(saving.recompute)), ids, ALL, target=3)
    lean = gradients(predict(loaded.model, ids, saving), ids, ALL, target=3)
    length = prediction.embeddings.detach()[0].norm(dim=1).numpy()
    # gradient × input may cancel to nothing: it does where embeddings are normalised first, as in Bloom
    size = {"influence_input": plain["influence"] * length}
    for name, values in plain.items():
        np.testing.assert_array_equal(again[name], values, err_msg=name)
        # one row of outputs instead of all is one other product of matrices
        within = 3e-5 * abs(size.get(name, values)).max()
        np.testing.assert_allclose(lean[name], values, atol=within, err_msg=name)


def test_recomputed_layers_keep_no_attention(tiny):
    ids = torch.arange(1, 49)
    kept = []

    def pack(tensor):
        kept.append(tensor.numel())
        return tensor

    attention = 4 * 48 * 48
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        predict(tiny.model, ids)
    assert sum(size >= attention for size in kept) >= 3
    kept.clear()
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        predict(tiny.model, ids, Economy(tuple(decoder_layers(tiny.model)), tiny.model.model))
    assert max(kept, default=0) < attention


def test_an_economy_that_is_wrong_is_refused_with_a_word(tiny, ids):
    layers = decoder_layers(tiny.model)
    own = layers[1].forward
    # a layer that changes its input in place cannot be run again from it
    layers[1].forward = lambda states, *given, **named: own(states.mul_(1.5), *given, **named)
    saving = economy(tiny.model, layers, ids)
    assert saving.recompute == ()
    assert saving.trunk is tiny.model.model
    assert len(saving.notes) == 1
    assert "not recomputed" in saving.notes[0]
    layers[1].forward = own

    # a head that looks at all tokens cannot be given one
    def mean_of_all(module, given):
        return (given[0] + given[0].mean(dim=1, keepdim=True),)

    with tiny.model.lm_head.register_forward_pre_hook(mean_of_all):
        saving = economy(tiny.model, layers, ids)
    assert saving.trunk is None
    assert saving.recompute == tuple(layers)
    assert "not made in blocks: that would change its outputs" in saving.notes[0]


@pytest.mark.parametrize(("dtype", "relative"), [(torch.bfloat16, 0.1), (torch.float16, 0.02)])
def test_half_precision_keeps_small_gradients(dtype, relative, ids):
    model = specimen("llama")
    # large embeddings make the gradients to them small: near what float16 rounds to nothing
    model.get_input_embeddings().weight.data.mul_(2.0**11)
    exact = gradients(predict(model, ids), ids)
    saving = economy(model.to(dtype), decoder_layers(model), ids)
    assert saving.notes == ()
    row = gradients(predict(model, ids, saving), ids)
    # at the far end below the smallest number of float16, 6e-8
    assert exact["influence"].min() < 5e-8
    np.testing.assert_allclose(row["influence"], exact["influence"], rtol=relative)


def test_weights_that_are_elsewhere_come_when_they_are_needed(tiny, ids):
    from accelerate import cpu_offload

    plain = gradients(predict(tiny.model, ids), ids, ALL, target=3)
    layers = decoder_layers(tiny.model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cpu_offload(tiny.model, execution_device=torch.device("cpu"))
    assert tiny.model.get_input_embeddings().weight.device.type == "meta"
    saving = economy(tiny.model, layers, ids)
    assert saving.notes == ()
    again = gradients(predict(tiny.model, ids, Economy(saving.recompute)), ids, ALL, target=3)
    for name, values in plain.items():
        np.testing.assert_array_equal(again[name], values)


def test_refusals(tiny, ids):
    prediction = predict(tiny.model, ids)
    with pytest.raises(InvalidValueError, match=r"kinds: 'logits' given.*did you mean 'logit'"):
        gradients(prediction, ids, ("logits",))
    with pytest.raises(InvalidValueError, match="target: None given"):
        gradients(prediction, ids, ("target",))
    with pytest.raises(InvalidValueError, match="target: 64 given"):
        gradients(prediction, ids, ("target",), target=64)
