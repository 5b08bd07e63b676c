"""What changes a model beyond its weights is named: nothing plain is taken for something treated."""

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from heard import Heard
from refused import refused
from tiny import llama, word_tokenizer

from posbias.core.errors import InputFileError, ModelError
from posbias.measurement import (
    LoadedModel,
    MeasurementJob,
    Quantity,
    find_or_compute,
    find_or_measure,
    job_fingerprint,
    load_model,
    measure,
    per_prompt,
)
from posbias.measurement.models.loading import hooked
from posbias.profiles.measurements import load_measurement, load_retrieval, save_retrieval
from posbias.retrieval import retrieval_fingerprint, retrieval_job, retrieve

HALVED = {"name": "halved", "layer": 1, "factor": 0.5}
KEYS = retrieval_job("keys", pairs=4, positions=3, prompts=2)
REFUSED = r"^model: expected one without hooks, or a treatment that names them, got hooks on model\.layers\.1"


@pytest.fixture
def job(text):
    return MeasurementJob(text, tokens=10, prompts=3)


def halve(model):
    """Let layer 1 write half of what it does."""
    mlp = model.model.layers[1].mlp
    return mlp.register_forward_hook(lambda module, given, made: made * HALVED["factor"])


# ── the plain model's files and checkpoints ──


def test_a_hooked_model_is_not_answered_from_the_plain_ones_file(tiny, job, tmp_path):
    plain, file = find_or_measure(tiny, tmp_path / "results", job)
    hook = halve(tiny.model)
    with pytest.raises(ModelError, match=REFUSED):
        find_or_measure(tiny, tmp_path / "results", job)
    treated, other = find_or_measure(tiny, tmp_path / "results", job, treatment=HALVED)
    assert (file.parent.name, other.parent.name) == ("results", "results-2")
    assert not np.allclose(treated["influence"], plain["influence"])
    assert treated.attrs["fingerprint"] != plain.attrs["fingerprint"]
    assert json.loads(load_measurement(other).attrs["treatment"]) == HALVED
    assert "treatment" not in plain.attrs
    again = find_or_measure(tiny, tmp_path / "results", job, treatment=dict(reversed(HALVED.items())))
    assert again[1] == other
    assert again[0]["influence"].equals(treated["influence"])
    hook.remove()
    assert find_or_measure(tiny, tmp_path / "results", job)[1] == file


def test_a_treatment_has_no_part_in_the_plain_ones_checkpoint(tiny, job, tmp_path):
    checkpoint = tmp_path / "job.npz"
    with pytest.raises(KeyboardInterrupt):
        measure(tiny, job, checkpoint=checkpoint, on_event=Heard(stop=2))
    halve(tiny.model)
    with pytest.raises(ModelError, match=REFUSED):
        measure(tiny, job, checkpoint=checkpoint)
    with pytest.raises(InputFileError, match="belongs to another job"):
        measure(tiny, job, checkpoint=checkpoint, treatment=HALVED)


def test_each_name_and_parameter_has_a_fingerprint_of_its_own(tiny, job):
    treatments = [None, HALVED, HALVED | {"factor": 0.25}, HALVED | {"name": "quartered"}]
    assert len({job_fingerprint(tiny, job, treatment=one) for one in treatments}) == 4
    assert job_fingerprint(replace(tiny, treatment=HALVED), job) == job_fingerprint(
        tiny, job, treatment=HALVED
    )


def test_a_hooked_model_in_memory_is_refused_and_given_back(text):
    model, tokenizer = llama(), word_tokenizer()
    halve(model)
    how = {"tokenizer": tokenizer, "text": text, "tokens": 10, "prompts": 2}
    with pytest.raises(ModelError, match=REFUSED):
        measure(model, **how)
    assert all(weight.requires_grad for weight in model.parameters())
    found = measure(model, **how, treatment=HALVED)
    expected = LoadedModel.of(llama(), tokenizer, "tiny")
    halve(expected.model)
    assert found.equals(measure(expected, text=text, tokens=10, prompts=2, treatment=HALVED))


def test_what_is_measured_by_a_function_of_ones_own_knows_it_too(tiny, job):
    def first(loaded, ids, prompt):
        return {"first": loaded.model(torch.from_numpy(ids)[None]).logits[0, -1, :1].double().numpy()}

    quantities = {"first": Quantity(("prompt", "token"), "logit of token 0")}
    plain = per_prompt("first", quantities, first, job, model=tiny)
    halve(tiny.model)
    with pytest.raises(ModelError, match=REFUSED):
        per_prompt("first", quantities, first, job, model=tiny)
    treated = per_prompt("first", quantities, first, job, model=tiny, treatment=HALVED)
    assert treated.attrs["fingerprint"] != plain.attrs["fingerprint"]
    assert not np.allclose(treated["first"], plain["first"])


def test_a_retrieval_of_a_hooked_model_is_not_that_of_the_plain_one(tmp_path):
    """Nothing that a plain retrieval read or kept is in the treated one that comes after it."""

    def kept(loaded):
        compute = functools.partial(retrieve, loaded, KEYS, threads=1)
        how = (retrieval_fingerprint(loaded, KEYS), load_retrieval, save_retrieval, compute)
        return find_or_compute(tmp_path / "results", "retrieval", *how)

    loaded, anew = load_model("tiny-nope"), load_model("tiny-nope")
    plain, file = kept(loaded)
    for one in (loaded, anew):
        halve(one.model)
        for refuse in (kept, lambda model: retrieve(model, KEYS)):
            with pytest.raises(ModelError, match=REFUSED):
                refuse(one)
    treated, other = kept(replace(loaded, treatment=HALVED))
    assert file != other
    assert json.loads(treated.attrs["treatment"]) == HALVED
    assert not np.allclose(treated["log_probability"], plain["log_probability"])
    expected = retrieve(anew, KEYS, treatment=HALVED, threads=1)
    assert expected.attrs["fingerprint"] == treated.attrs["fingerprint"]
    np.testing.assert_array_equal(treated["log_probability"], expected["log_probability"])


# ── what is a hook, and what is none ──


def wrap(module):
    """As people do it: the new function bears the name of the old one."""
    forward = module.forward
    module.forward = functools.wraps(forward)(lambda *given, **named: forward(*given, **named))


CHANGES = {
    "forward": lambda module: module.register_forward_hook(lambda *given: None),
    "partial": lambda module: module.register_forward_hook(functools.partial(lambda *given: None)),
    "before": lambda module: module.register_forward_pre_hook(lambda *given: None),
    "backward": lambda module: module.register_full_backward_hook(lambda *given: None),
    "wrapped": wrap,
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_hooks_of_all_kinds_are_seen_and_named(tiny, job, change):
    assert hooked(tiny.model) == []
    CHANGES[change](tiny.model.model.layers[2].mlp)
    assert hooked(tiny.model) == ["model.layers.2.mlp"]
    with pytest.raises(ModelError, match=r"model\.layers\.2\.mlp$"):
        job_fingerprint(tiny, job)


def test_many_hooks_are_counted_and_those_on_everything_are_seen(tiny, job):
    for part in (tiny.model, *(layer.mlp for layer in tiny.model.model.layers)):
        part.register_forward_hook(lambda *given: None)
    with pytest.raises(ModelError, match=r"the model itself, .*0\.mlp, .*1\.mlp and 1 more$"):
        job_fingerprint(tiny, job)
    with torch.nn.modules.module.register_module_forward_hook(lambda *given: None):
        assert hooked(llama()) == ["all modules"]
    assert hooked(llama()) == []


def test_hooks_of_the_libraries_and_of_the_capture_are_none_of_the_users(build, job):
    from accelerate.hooks import AlignDevicesHook, ModelHook, add_hook_to_module, remove_hook_from_module

    loaded = build()
    plain = job_fingerprint(loaded, job)
    measure(loaded, job)  # which asks for attentions: transformers records them by hooks that stay
    assert any(module._forward_hooks for module in loaded.model.modules())
    part = loaded.model.model.layers[1].mlp
    add_hook_to_module(part, AlignDevicesHook("cpu"))
    assert job_fingerprint(loaded, job) == plain
    remove_hook_from_module(part)
    assert job_fingerprint(loaded, job) == plain

    class Own(ModelHook):
        """A hook of accelerate's kind that is not accelerate's."""

    add_hook_to_module(part, Own())
    assert hooked(loaded.model) == ["model.layers.1.mlp"]


@pytest.mark.parametrize("treatment", [{}, "halved", {"factor": 0.5}, [HALVED], {"name": ""}])
def test_a_treatment_has_a_name(tiny, job, treatment):
    refused("treatment", lambda: measure(tiny, job, treatment=treatment))


# ── a job in one value ──


def test_a_job_and_keywords_ask_for_the_same(tiny, job, text):
    by_keywords = job_fingerprint(tiny, text=text, tokens=10, prompts=3)
    assert job_fingerprint(tiny, job) == by_keywords == job_fingerprint(tiny, job, seed=0)
    assert job_fingerprint(tiny, replace(job, seed=1)) == job_fingerprint(tiny, job, seed=1) != by_keywords
    with pytest.raises(TypeError, match="tokenz"):
        measure(tiny, tokenz=3)


def test_a_target_may_be_a_text(tiny, job):
    asked = {"influences": ("target",), "target": "w7"}
    number = word_tokenizer()("w7")["input_ids"][0]
    assert job_fingerprint(tiny, job, **asked) == job_fingerprint(tiny, job, **asked | {"target": number})
    found = measure(tiny, job, **asked)
    assert set(found["target_token"].values) == {number}
    refused("target", lambda: measure(tiny, job, **asked | {"target": "w7 w8"}))


def test_a_measurement_is_found_resumed_and_made_again_by_name(tmp_path):
    job = MeasurementJob(tokens=16, prompts=3)
    how = {"loading": {"dtype": "bfloat16"}, "threads": 1}
    with pytest.raises(KeyboardInterrupt):
        find_or_measure("tiny-nope", tmp_path / "a.nc", job, **how, on_event=Heard(stop=2))
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]
    heard = Heard()
    found, file = find_or_measure("tiny-nope", tmp_path / "a.nc", job, **how, on_event=heard)
    assert heard == [2, 3]
    assert file == tmp_path / "a.nc"
    assert found.attrs["dtype"] == "bfloat16"
    heard.clear()
    again, same = find_or_measure("tiny-nope", tmp_path / "a.nc", job, **how, on_event=heard)
    assert same == file
    assert list(heard) == []
    assert again.attrs["fingerprint"] == found.attrs["fingerprint"]
    assert find_or_measure("tiny-nope", file, job, **how, rerun=True)[1] == tmp_path / "a-2.nc"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-2.nc", "a.nc"]
