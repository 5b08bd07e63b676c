"""Rollouts pushed through recomputed blocks against dense float64 products, head gains against Jacobians, and the
gradient influence against finite differences in float64, its economies against none.
"""

import copy
import gc
import math
import weakref
from dataclasses import replace

import by_hand
import numpy as np
import pytest
import torch
from dense import last_row
from hypothesis import given
from hypothesis import strategies as st
from tiny import CASES, RUNS, specimen, tiny_model
from torch.autograd.graph import saved_tensors_hooks

from posbias.core.errors import InvalidValueError, ModelError
from posbias.core.machine import stream
from posbias.measurement.capture.forward import Capture, SeenLayer
from posbias.measurement.capture.rerun import recomputed, recording
from posbias.measurement.capture.scores import Factored
from posbias.measurement.models.families import decoder_layers
from posbias.measurement.quantities import rollouts as module
from posbias.measurement.quantities.influence import Economy, economy, gradients, predict
from posbias.measurement.quantities.jacobian import (
    HeadGains,
    HeadJacobian,
    estimated_gains,
    gains_of,
    stretch,
)
from posbias.measurement.quantities.rollouts import Rollouts
from posbias.measurement.result import INFLUENCES


def dense(layers, gains):
    """The three rollouts as products of whole matrices, written from their definitions; the bottom layer first."""
    kernels, weighted, mixing, energies = [], [], [], np.eye(layers[0].scores.tokens)
    for layer in layers:
        attention, values = layer.attention.double().numpy(), layer.values.double().numpy()
        x, added = layer.stream.double().numpy(), layer.update.double().numpy()
        mixing.append(np.linalg.norm(added) / (np.linalg.norm(x) + np.linalg.norm(added)))
        writing = layer.output_weight.double().numpy().reshape(x.shape[1], len(attention), -1)
        sizes = np.linalg.norm(np.einsum("dhc,hjc->hjd", writing, values), axis=2)
        by_size = np.einsum("hij,hj->ij", attention, sizes)
        kernels.append(attention.mean(axis=0))
        weighted.append(by_size / by_size.sum(axis=1, keepdims=True))
        centred, norm = x - x.mean(axis=1, keepdims=True), gains.norm[layer.layer]
        squares = {"rms": (x**2).mean(axis=1), "layer": (centred**2).mean(axis=1), "none": np.ones(len(x))}
        square = squares[norm] + (norm != "none") * gains.epsilon[layer.layer]
        energy = np.einsum("h,hij->ij", gains.strength[layer.layer], attention**2) / square
        if gains.stretched[layer.layer]:
            factor = stretch(layer.update, layer.mixed, layer.output_weight).numpy()
            energy = factor[:, None] ** 2 * energy
        energies = energies + energy @ energies
    rows = {"rollout_kernel": last_row(kernels, mixing), "rollout_value": last_row(weighted, mixing)}
    return rows | {"rollout_energy": np.sqrt(energies[-1])}


def synthetic(seed, heads, shared, tokens, depth, window):
    """Layers with random factors, in float64: no model."""
    rng = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)  # noqa: E731
    keys = torch.arange(tokens)
    mask = (keys[:, None] - keys[None, :] < window)[None] if window else None
    layers = []
    for index in range(depth):
        scores = Factored(
            2 * draw(heads, tokens, 3), draw(shared, tokens, 3), scale=0.7, causal=True, mask=mask
        )
        layers.append(
            SeenLayer(
                layer=index,
                stream=draw(tokens, 6) * torch.exp(draw(tokens, 1)),
                update=draw(tokens, 6),
                scores=scores,
                values=draw(heads, tokens, 2),
                mixed=draw(tokens, 2 * heads),
                output_weight=draw(6, 2 * heads),
            )
        )
    gains = HeadGains(
        strength=draw(depth, heads).square().numpy(),
        norm=tuple(("rms", "layer", "none")[index % 3] for index in range(depth)),
        epsilon=(1e-3,) * depth,
        stretched=tuple(index % 2 == 1 for index in range(depth)),
    )
    return layers, gains


@given(
    seed=st.integers(0, 10_000),
    grouped=st.sampled_from([(1, 1), (2, 1), (4, 2), (3, 3)]),
    tokens=st.integers(1, 17),
    depth=st.integers(1, 4),
    window=st.sampled_from([0, 1, 3]),
    block=st.integers(1, 20),
    still=st.booleans(),
)
def test_rows_equal_dense_products(seed, grouped, tokens, depth, window, block, still):
    layers, gains = synthetic(seed, *grouped, tokens, depth, window)
    if still:  # no attention leaves everything where it is
        layers = [replace(layer, update=torch.zeros_like(layer.update)) for layer in layers]
        gains = replace(gains, strength=np.zeros_like(gains.strength))
    rollouts = Rollouts(tokens, gains=gains)
    for layer in layers:
        rollouts.see(layer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_ENTRIES", block * grouped[0] * tokens)
        rows = rollouts.rows()
    expected = dense(layers, gains)
    assert rows.keys() == expected.keys()
    for name, row in rows.items():
        np.testing.assert_allclose(row, expected[name], rtol=1e-11, atol=1e-300, err_msg=name)
        assert not still or (row == np.eye(tokens)[-1]).all()
    assert rows["rollout_value"].sum() == pytest.approx(1)
    assert rows["rollout_kernel"].sum() == pytest.approx(1)


@pytest.mark.parametrize(("family", "number", "attention"), RUNS)
def test_every_family_against_dense_products(family, number, attention, ids):
    loaded = tiny_model(family, number, attention)
    layers = decoder_layers(loaded.model)
    gains = gains_of(loaded.model, loaded.family, ids, probes=2)
    seen, kept = [], Rollouts(len(ids), gains=gains)
    calls = []
    again = Rollouts(len(ids), gains=gains, calls=calls)

    def see(layer):
        seen.append(layer)
        kept.see(layer)
        again.see(layer)

    with recording(layers, calls), Capture(loaded.model, loaded.family, see):
        predict(loaded.model, ids, Economy(tuple(layers)))
    rows, repeated = kept.rows(), again.rows()
    for name, expected in dense(seen, gains).items():
        # factors and attention are float32: rows of the model's own softmax sum to one to 1e-7
        np.testing.assert_allclose(rows[name], expected, rtol=2e-5, atol=1e-7, err_msg=name)
        np.testing.assert_array_equal(repeated[name], rows[name], err_msg=name)
        assert (rows[name] >= 0).all()


def test_attention_that_the_model_makes_is_not_kept(tiny):
    ids = torch.arange(1, 33)
    layers, alive = decoder_layers(tiny.model), []
    calls = []
    rollouts = Rollouts(32, ("kernel",), calls=calls)

    def see(layer):
        alive.append(weakref.ref(layer.scores.attention))
        rollouts.see(layer)

    with recording(layers, calls), Capture(tiny.model, tiny.family, see):
        predict(tiny.model, ids, Economy(tuple(layers)))
    gc.collect()
    assert [one() for one in alive] == [None, None, None]
    assert rollouts.rows()["rollout_kernel"].sum() == pytest.approx(1)


def test_jacobian_products_equal_whole_jacobians():
    rng = torch.Generator().manual_seed(2)
    gain, reading, writing = (torch.randn(*shape, generator=rng).double() for shape in [(6,), (4, 6), (6, 8)])

    def values_of(x):
        normed = torch.nn.functional.layer_norm(x, (6,)) * gain
        return (normed @ reading.T).unflatten(-1, (2, 2)).transpose(-2, -3)

    x = torch.randn(1, 3, 6, generator=rng).double().requires_grad_(True)
    found = HeadJacobian(x, values_of(x), writing)
    assert found.norm() == "layer"
    direction = torch.randn(1, 3, 6, generator=rng).double()
    whole = torch.autograd.functional.jacobian(lambda one: values_of(one[None, None])[0], x[0, 1].detach())
    expected = [
        (writing[:, 2 * h : 2 * h + 2] @ whole[h // 2, 0] @ direction[0, 1]).square().sum() for h in range(4)
    ]
    np.testing.assert_allclose(found.square(direction)[:, 1].numpy(), expected, rtol=1e-12)
    # random ±1 directions: unbiased for the squared Frobenius norm
    samples = found.squares(stream(0, "test"), 400)[:, :, 1]
    exact = [float((writing[:, 2 * h : 2 * h + 2] @ whole[h // 2, 0]).square().sum()) / 6 for h in range(4)]
    error = samples.std(axis=0, ddof=1) / math.sqrt(400)
    assert (abs(samples.mean(axis=0) - exact) <= 4 * error).all()


def test_estimated_gains_of_llama_agree_with_exact_ones(tiny):
    ids = torch.arange(1, 49)
    exact = gains_of(tiny.model, tiny.family, ids)
    found = estimated_gains(tiny.model, decoder_layers(tiny.model), ids, probes=24)
    assert exact.se is None
    assert found.se is not None
    assert found.norm == exact.norm == ("rms",) * 3
    assert found.epsilon == exact.epsilon
    with torch.no_grad(), recording(decoder_layers(tiny.model)) as calls:
        tiny.model(ids[None], use_cache=False)
    for layer, call in enumerate(calls):
        # the exact strength counts the token's own direction too, which the norm takes out
        left_out = _own_direction(call.layer, call.positional[0][0])
        assert (left_out > 0).all()
        truth = exact.strength[layer] - left_out
        assert (abs(found.strength[layer] - truth) <= 4 * found.se[layer]).all()
        assert (found.se[layer] <= 0.05 * truth).all()


def _own_direction(layer, states):
    """Mean over tokens of what J loses to the norm: ‖M x̂‖² (2 − s) s / d, x̂ of length one, s = ‖x‖²/(d r²)."""
    x = states.double()
    size = x.square().mean(dim=1)
    share = (size / (size + layer.input_layernorm.variance_epsilon))[:, None]
    unit = x / x.norm(dim=1, keepdim=True) * layer.input_layernorm.weight.double()
    values = (unit @ layer.self_attn.v_proj.weight.double().T).unflatten(1, (2, -1)).repeat_interleave(2, 1)
    writing = layer.self_attn.o_proj.weight.double().unflatten(1, (4, -1))
    parts = torch.einsum("dhc,jhc->jhd", writing, values).square().sum(dim=2) / x.shape[1]
    return (parts * (2 - share) * share).mean(dim=0).numpy()


NORM = {
    **dict.fromkeys(["llama", "gemma2", "phi3", "granite", "gpt_oss"], "rms"),
    **dict.fromkeys(["gpt2", "opt", "gpt_neox", "falcon", "bloom", "mpt", "cohere2", "gptj"], "layer"),
    **dict.fromkeys(["olmo2", "bert"], "none"),
}


@pytest.mark.parametrize("family", NORM)
def test_the_norm_before_attention_is_found_from_the_jacobian(family, ids):
    loaded = tiny_model(family)
    found = estimated_gains(loaded.model, decoder_layers(loaded.model), ids, probes=2)
    assert set(found.norm) == {NORM[family]}
    assert set(found.stretched) == {family in ("gemma2", "olmo2", "granite")}


def test_what_cannot_be_rolled_out_is_refused():
    layers, gains = synthetic(0, 2, 2, 5, 2, 0)
    for refused, error in (
        (lambda: Rollouts(4, ("kernels",)), InvalidValueError),
        (lambda: Rollouts(4, ("energy",)), InvalidValueError),
        (lambda: Rollouts(5, gains=gains).see(layers[1]), InvalidValueError),
        (lambda: Rollouts(6, gains=gains).see(layers[0]), InvalidValueError),
        (lambda: Rollouts(5, gains=gains).see(replace(layers[0], values=None)), ModelError),
    ):
        with pytest.raises(error):
            refused()


ALL = tuple(kind for kind in INFLUENCES if kind != "outputs")


# ── influence ──


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
    layers = decoder_layers(loaded.model)
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
