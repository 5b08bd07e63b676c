"""The gradient influence against finite differences in float64, its economies against none."""

import copy

import by_hand
import numpy as np
import pytest
import torch
from tiny import CASES, specimen, tiny_model
from torch.autograd.graph import saved_tensors_hooks

from posbias.core.errors import InvalidValueError
from posbias.measurement.capture.rerun import recomputed
from posbias.measurement.models.families import decoder_layers
from posbias.measurement.quantities.influence import Economy, economy, gradients, predict
from posbias.measurement.result import INFLUENCES

ALL = tuple(kind for kind in INFLUENCES if kind != "outputs")


def test_gradients_equal_finite_differences(tiny, ids, monkeypatch):
    # Llama's norm and softmax compute in torch.float32 by name; here that name means float64
    monkeypatch.setattr(torch, "float32", torch.float64)
    model, short = tiny.model.double(), ids[:6]
    row = gradients(predict(model, short), short, ALL, target=3)
    start, chosen = model.get_input_embeddings()(short[None]), int(row["next_token"])

    def said(embeddings):
        with torch.no_grad():
            outputs = model(inputs_embeds=embeddings).logits[0, -1]
        share = outputs.softmax(-1)
        return torch.stack([share[chosen], outputs[chosen], share[chosen].log(), share[3]]).numpy()

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


def test_influence_on_all_outputs_of_a_decoder(tiny, ids):
    """Outputs before a token do not depend on it."""
    found = gradients(predict(tiny.model, ids), ids, ("probability", "outputs"))
    exact = copy.deepcopy(tiny.model).double()
    plain = np.stack([by_hand.influence(exact, ids, query).numpy() for query in range(len(ids))])
    np.testing.assert_allclose(found["influence_outputs"], plain.mean(axis=0), rtol=1e-4)
    assert (plain[np.triu_indices(len(ids), 1)] == 0).all()


@pytest.mark.parametrize(("family", "number"), CASES)
def test_economies_leave_every_family_as_it_is(family, number, ids):
    loaded = tiny_model(family, number)
    layers = decoder_layers(loaded.model, loaded.family)
    saving = economy(loaded.model, layers, ids[:8])
    assert saving.notes == ()
    assert saving.recompute == tuple(layers)
    prediction = predict(loaded.model, ids)
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


def test_a_recomputed_layer_remembers_each_of_its_fused_attentions():
    """Of two in a layer, through two backward passes."""

    class Twice(torch.nn.Module):
        def forward(self, states):
            for turn in (1.0, 2.0):
                fused = torch.nn.functional.scaled_dot_product_attention
                states = states + fused(turn * states, states, states, is_causal=True)
            return states

    layer, states = Twice(), torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(0))
    states.requires_grad_()
    (plain,) = torch.autograd.grad(layer(states).square().sum(), states)
    with recomputed([layer]):
        total = layer(states).square().sum()
    for _ in range(2):
        assert torch.equal(torch.autograd.grad(total, states, retain_graph=True)[0], plain)


def test_recomputed_layers_keep_no_attention(tiny):
    ids, kept = torch.arange(1, 49), []

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


def test_an_economy_that_changes_outputs_is_not_taken(tiny, ids):
    layers = decoder_layers(tiny.model)
    own = layers[1].forward
    # a layer that changes its input in place cannot be run again from it
    layers[1].forward = lambda states, *given, **named: own(states.mul_(1.5), *given, **named)
    saving = economy(tiny.model, layers, ids)
    assert (saving.recompute, saving.trunk, len(saving.notes)) == ((), tiny.model.model, 1)
    layers[1].forward = own

    # a head that looks at all tokens cannot be given one
    def mean_of_all(module, given):
        return (given[0] + given[0].mean(dim=1, keepdim=True),)

    with tiny.model.lm_head.register_forward_pre_hook(mean_of_all):
        saving = economy(tiny.model, layers, ids)
    assert (saving.recompute, saving.trunk, len(saving.notes)) == (tuple(layers), None, 1)


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


# ── refusals ──


@pytest.mark.parametrize(
    ("kinds", "target", "argument"),
    [
        (("logits",), None, "kinds"),
        (("target",), None, "target"),
        (("target",), 64, "target"),
        (("outputs",), None, "kinds"),  # given with one row of outputs
    ],
)
def test_wrong_kinds_and_targets_are_refused(tiny, ids, kinds, target, argument):
    prediction = predict(tiny.model, ids, Economy(trunk=tiny.model.model))
    with pytest.raises(InvalidValueError, match=f"^{argument}: "):
        gradients(prediction, ids, kinds, target=target)
