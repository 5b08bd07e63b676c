"""The gradient influence against finite differences in float64, its economies against none; keys taken out of
attention against a plain loop, to the bit where none is, and as a capture sees it.
"""

import copy

import by_hand
import numpy as np
import pytest
import torch
from tiny import CASES, llama, specimen, tiny_model, word_tokenizer
from torch.autograd.graph import saved_tensors_hooks

from posbias import measure
from posbias.core.errors import InvalidValueError, ModelError
from posbias.measurement.capture.forward import Capture
from posbias.measurement.capture.removal import altered, column, kept_out, masked, strongest
from posbias.measurement.capture.rerun import recomputed
from posbias.measurement.models.families import decoder_layers
from posbias.measurement.models.loading import LoadedModel
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


# ── keys taken out ──

IDS = torch.tensor([7, 3, 9, 3, 22, 41, 5, 17, 30, 2, 11, 48])
WAYS = {
    "kept out": kept_out(column(0)),
    "masked": masked(column(0)),
    "early": kept_out(column(4)),
    "strongest": kept_out(strongest),
}


@pytest.fixture(scope="module")
def loaded():
    return LoadedModel.of(llama().double(), word_tokenizer(), "random")


def seen_in(loaded, way):
    found = []
    with altered(loaded.model, way), torch.no_grad(), Capture(loaded.model, loaded.family, found.append):
        outputs = predict(loaded.model, IDS).outputs.detach()
    return found, outputs


def plain_row(logits, values, name, query):
    """What one head gives one query, written out: a share for every key it sees, and what the shares carry."""
    weights = [np.exp(logits[query, key] - logits[query, : query + 1].max()) for key in range(query + 1)]
    out = {"kept out": 0, "masked": 0, "early": 4}.get(name)
    if name == "strongest" and query > 0:
        out = max(range(1, query + 1), key=lambda key: weights[key])
    taken = out is not None and query > out if name != "strongest" else query > 0
    total = sum(
        weight for key, weight in enumerate(weights) if not (taken and key == out and name == "masked")
    )
    mixed = np.zeros(values.shape[1])
    for key, weight in enumerate(weights):
        if not (taken and key == out):
            mixed += weight / total * values[key]
    return mixed


@pytest.mark.parametrize("name", WAYS)
def test_a_layer_gives_what_a_plain_loop_gives(loaded, name):
    """In the bottom layer, which both models enter alike, from the logits and values of the unaltered one."""
    plain, _ = seen_in(loaded, None)
    found, _ = seen_in(loaded, WAYS[name].only(0))
    logits, values = plain[0].logits.numpy(), plain[0].values.numpy()
    rows = [
        np.concatenate([plain_row(one, each, name, query) for one, each in zip(logits, values, strict=True)])
        for query in range(len(IDS))
    ]
    np.testing.assert_allclose(found[0].mixed.numpy(), rows, rtol=1e-12, atol=1e-14)


def test_a_token_that_is_taken_out_stays_as_it_was_and_the_rest_is_the_text_without_it(loaded):
    """Positions are relative here: the model without key 0 in any layer is that which begins one token later."""
    plain, outputs = seen_in(loaded, None)
    for name in ("kept out", "masked", "strongest"):
        found, other = seen_in(loaded, WAYS[name])
        assert all(
            torch.equal(one.stream[0], before.stream[0]) for one, before in zip(found, plain, strict=True)
        )
        assert torch.allclose(other[0], outputs[0], rtol=0, atol=1e-12)
        assert not torch.allclose(other[1:], outputs[1:], rtol=0, atol=1e-3)
    _, outputs = seen_in(loaded, WAYS["masked"])
    with torch.no_grad():
        later = predict(loaded.model, IDS[1:]).outputs
    torch.testing.assert_close(outputs[1:], later, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_where_nothing_is_taken_out_outputs_and_gradients_are_the_same_bits(dtype):
    model, answers = llama().to(dtype), []
    for way in (None, kept_out(column(0)).only()):
        with altered(model, way):
            prediction = predict(model, IDS)
            answers.append((prediction.outputs.detach(), gradients(prediction, IDS)["influence"]))
    assert torch.equal(answers[0][0], answers[1][0])
    assert np.array_equal(answers[0][1], answers[1][1])


@pytest.mark.parametrize("name", WAYS)
def test_gradients_are_those_of_the_altered_attention(name):
    """Against differences, by all its factors: the key that is kept out still decides how much is."""
    random = torch.Generator().manual_seed(2)
    factors = [torch.randn(1, heads, 7, 3, dtype=torch.float64, generator=random) for heads in (4, 2, 2)]
    later = torch.full((7, 7), torch.finfo(torch.float64).min, dtype=torch.float64).triu(1)

    def attend(query, key, value):
        return WAYS[name](None, query, key, value, later[None, None], 0.6)[0]

    assert torch.autograd.gradcheck(attend, [factor.requires_grad_() for factor in factors])
    slopes = torch.autograd.grad(attend(*factors)[0, 1:].square().sum(), factors)
    key, value = (bool(slope[0, :, 0].any()) for slope in slopes[1:])
    assert (key, value) == {"kept out": (True, False), "masked": (False, False)}.get(name, (True, True))


def test_a_measurement_sees_the_altered_attention(text):
    """The capture's self-check passes, and the averaged kernel has no first column but its rows' rest."""
    given = {"text": text, "tokens": 16, "prompts": 4, "tokenizer": word_tokenizer()}
    model, found = llama(), {}
    for name, way in {"plain": None, **{one: WAYS[one] for one in ("kept out", "masked")}}.items():
        with altered(model, way):
            found[name] = measure(model, **given)["kernel"].values
    for name in ("kept out", "masked"):
        assert not found[name][:, 1:, 0].any()
    np.testing.assert_allclose(1 - found["kept out"][0].sum(axis=1)[1:], found["plain"][0, 1:, 0], atol=1e-6)
    np.testing.assert_allclose(found["masked"].sum(axis=2), 1, atol=1e-6)
    assert np.array_equal(measure(model, **given)["kernel"].values, found["plain"])
    with altered(model, WAYS["strongest"]), pytest.raises(ModelError, match="heads that see the same keys"):
        measure(model, **given)  # each head loses a key of its own


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


def test_keys_are_taken_out_of_eager_attention_alone():
    model = llama()
    model.set_attn_implementation("sdpa")
    with pytest.raises(ModelError), altered(model, WAYS["masked"]):
        pass
