"""Rollouts pushed through recomputed blocks against dense float64 products, and head gains against Jacobians."""

import gc
import math
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from dense import last_row
from hypothesis import given
from hypothesis import strategies as st
from tiny import RUNS, tiny_model

from posbias.core.errors import InvalidValueError, ModelError
from posbias.core.machine import stream
from posbias.measurement.capture.forward import Capture, SeenLayer
from posbias.measurement.capture.rerun import recording
from posbias.measurement.capture.scores import Factored
from posbias.measurement.models.families import decoder_layers
from posbias.measurement.quantities import rollouts as module
from posbias.measurement.quantities.influence import Economy, predict
from posbias.measurement.quantities.jacobian import (
    HeadGains,
    HeadJacobian,
    estimated_gains,
    gains_of,
    stretch,
)
from posbias.measurement.quantities.rollouts import Rollouts


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
            2 * draw(heads, tokens, 3),
            draw(shared, tokens, 3),
            scale=0.7,
            causal=True,
            mask=mask,
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
