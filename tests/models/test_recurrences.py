"""Layers without a softmax: their matrix is the recurrence, and what is made of it in a measurement."""

import gated_delta
import numpy as np
import pytest
import torch
import zoo
from by_hand import influence
from dense import last_row
from tiny import word_tokenizer

from posbias.comparison.predictors import predictions
from posbias.measurement import LoadedModel, MeasurementJob, measure
from posbias.measurement.capture.recurrences import recurrence_matrix
from posbias.measurement.prompt_meter import PromptMeter
from posbias.measurement.quantities.attention import layer_means

IDS = torch.arange(3, 23)


@pytest.mark.parametrize("case", gated_delta.CASES.values())
@pytest.mark.parametrize("removes", [True, False])
def test_the_matrix_is_the_recurrence(case, removes):
    *given, value = gated_delta.drawn(*case)
    state, outputs = torch.zeros(case[0], value.shape[1], dtype=value.dtype), []
    for q, k, g, b, v in zip(*given, value, strict=True):
        state = state * g.exp()
        state = state + b * torch.outer(k, v - k @ state if removes else v)
        outputs.append(q @ state)
    outputs = torch.stack(outputs)
    torch.testing.assert_close(recurrence_matrix(*given, removes) @ value, outputs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", gated_delta.CASES.values())
def test_without_removal_of_keys_outputs_are_wrong_and_reach_too_long(case):
    (error, of_heuristic, _), (exact, heuristic, alike) = gated_delta.errors_and_reach(*case)
    assert error < 4e-7 < 0.2 < of_heuristic
    assert heuristic > 1.7 * exact or case[2] == 0.1
    assert abs(alike - exact) <= 2  # by reach, the mend is right where directions are alike


@pytest.mark.parametrize(("family", "kind"), [("qwen3_next", "delta"), ("bamba", "Mamba"), ("lfm2", "short")])
def test_matrices_of_a_layer_are_its_kernel(family, kind, text):
    """Signed in the capture, where they give the model's own result; their sizes in a measurement."""
    seen, _ = zoo.layers_seen(zoo.tiny(family), family, IDS)
    states = [one for one in seen.values() if one.content is None]
    for one in states:
        rebuilt = (one.attention @ one.values.double()).transpose(0, 1).flatten(1)
        torch.testing.assert_close(rebuilt, one.mixed.double(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(layer_means(one)["kernel"], one.attention.abs().mean(dim=0), rtol=1e-12)
    job = MeasurementJob(text=text, tokens=20, prompts=1, rollouts=("kernel",))
    found = measure(zoo.tiny(family), job, tokenizer=word_tokenizer(), threads=1)
    assert found.attrs["layer_kinds"].count(kind) == len(states) == 6
    kernels = found["kernel"].values
    expected = last_row(kernels / kernels.sum(axis=2, keepdims=True), found["mixing"].values[0])
    np.testing.assert_allclose(found["rollout_kernel"].values[0], expected, rtol=1e-6)
    np.testing.assert_allclose(predictions(found)["measured_kernels"].mass, expected, rtol=1e-6)


def test_influence_is_split_by_kind_of_layer():
    """Six convolutions of three tokens alone do not reach far."""
    loaded = LoadedModel.of(zoo.tiny("lfm2"), word_tokenizer(), "lfm2")
    job = MeasurementJob(tokens=20, influences=("softmax", "others"))
    found = PromptMeter(loaded, job, IDS).measure(IDS.numpy(), "a prompt")
    for kind, cut in (("softmax", "conv"), ("others", "self_attn")):
        model = zoo.tiny("lfm2")
        for mixer in [getattr(layer, cut) for layer in model.model.layers if hasattr(layer, cut)]:
            mixer.out_proj.register_forward_hook(lambda *given: given[-1].detach())
        np.testing.assert_allclose(found[f"influence_{kind}"], influence(model, IDS), rtol=1e-4, atol=1e-7)
    assert list(found["influence_others"] > 0) == [False] * 7 + [True] * 13
