"""A model in memory is measured as it is and given back as it was; tokenizers come from objects and folders."""

import copy
import shutil
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tiny import llama, word_tokenizer

import posbias
from posbias.core.errors import InvalidValueError, ModelError
from posbias.measurement import LoadedModel, job_fingerprint, load_model, measure
from posbias.measurement.models.loading import name_of
from posbias.retrieval.trials import retrieval_job

JOB: dict[str, Any] = {"tokens": 8, "prompts": 2, "threads": 1}


def state(model):
    """Everything that measuring could leave behind in a model, in addition to its weights."""
    modules = {
        name: {key: len(held) if isinstance(held, dict) else str(held) for key, held in vars(module).items()}
        for name, module in model.named_modules()
    }
    parameters = {
        name: (
            one.requires_grad,
            one.grad is None or one.grad.double().sum().item(),
            one.dtype,
            one.data_ptr(),
        )
        for name, one in model.named_parameters()
    }
    return modules, parameters, model.config._attn_implementation, copy.deepcopy(model.config.to_dict())


def in_training():
    """A model amid training: sdpa, some layers frozen, one in evaluation, gradients and a hook on it."""
    model = llama()
    model.set_attn_implementation("sdpa")
    model.train()
    model.model.layers[1].eval()
    model.model.embed_tokens.weight.requires_grad_(False)
    model(torch.tensor([[1, 2, 3, 4]])).logits.square().mean().backward()
    model.model.layers[0].register_forward_hook(lambda module, given, result: None)
    return model


def test_a_model_in_training_is_measured_and_given_back_as_it_was(text):
    model, tokenizer = in_training(), word_tokenizer()
    before = state(model)
    found = measure(model, tokenizer=tokenizer, text=text, **JOB)
    assert state(model) == before
    assert (found.attrs["model"], found.attrs["windows"]) == ("LlamaForCausalLM", "{}")
    # the marks that go with hooks are put back too: the model still gives its attention
    model.set_attn_implementation("eager")
    assert len(model(torch.tensor([[1, 2, 3]]), output_attentions=True).attentions) == 3
    expected = measure(LoadedModel.of(llama(), tokenizer, "tiny"), text=text, **JOB)
    np.testing.assert_array_equal(found["influence"], expected["influence"])
    assert found.attrs["attention"] == expected.attrs["attention"] == "eager"


def test_it_is_given_back_after_an_error_too(text, tmp_path):
    model = in_training()
    before = state(model)
    with pytest.raises(InvalidValueError, match="tokens: "):
        measure(model, tokenizer=word_tokenizer(), text=text, tokens=65)
    assert state(model) == before


def test_the_tokenizer_may_be_a_folder_and_the_model_has_the_name_it_came_from(folder, text):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert name_of(model) == folder.name
    model.config._name_or_path = "organisation/model"
    assert name_of(model) == "organisation/model"
    by_folder = measure(model, tokenizer=folder, text=text, **JOB)
    by_object = measure(model, tokenizer=word_tokenizer(), text=text, **JOB)
    assert by_folder.attrs["fingerprint"] == by_object.attrs["fingerprint"]
    np.testing.assert_array_equal(by_folder["influence"], by_object["influence"])
    asked = {name: JOB[name] for name in ("tokens", "prompts")}
    assert job_fingerprint(model, tokenizer=folder, text=text, **asked) == by_folder.attrs["fingerprint"]


def test_a_fact_is_retrieved_from_it():
    model = transformers.AutoModelForCausalLM.from_config(
        load_model("tiny-nope").model.config, attn_implementation="eager"
    ).train()
    before = state(model)
    job = retrieval_job(prompts=2, positions=3, pairs=4)
    found = posbias.retrieve(model, job, tokenizer=load_model("tiny-nope").tokenizer, threads=1)
    assert found.attrs["posbias_kind"] == "retrieval"
    assert state(model) == before


@pytest.fixture
def apart(folder, tmp_path):
    """A model's folder without its tokenizer, and the tokenizer's folder without its model."""
    model, tokenizer = tmp_path / "model-alone", tmp_path / "tokenizer-alone"
    shutil.copytree(folder, model)
    for file in model.glob("*token*"):
        file.unlink()
    word_tokenizer().save_pretrained(tokenizer)
    return model, tokenizer


def test_a_folder_without_a_tokenizer_is_refused(apart):
    with pytest.raises(ModelError, match="--tokenizer FOLDER"):
        load_model(apart[0])


def test_another_folder_gives_it(apart, folder, text):
    model, tokenizer = apart
    loaded = load_model(model, tokenizer=tokenizer)
    assert loaded.tokenizer("w3 w4")["input_ids"] == word_tokenizer()("w3 w4")["input_ids"]
    found = measure(model, tokenizer=tokenizer, text=text, **JOB)
    np.testing.assert_array_equal(found["influence"], measure(folder, text=text, **JOB)["influence"])
    # another tokenizer is another job
    other = word_tokenizer()
    other.add_tokens(["w1w2"])
    other.save_pretrained(model.parent / "other")
    assert load_model(model, tokenizer=model.parent / "other").checksum != loaded.checksum


def test_what_is_no_model_or_no_tokenizer_is_refused_in_one_line(tiny, tmp_path):
    wide = word_tokenizer()
    wide.add_tokens([f"new{number}" for number in range(3)])
    large = llama(vocab_size=10)
    (tmp_path / "empty").mkdir()
    meta = torch.nn.Module.to(llama(), "meta")
    for given, tokenizer, names in (
        (["layers"], None, "model"),
        (torch.nn.Linear(2, 2), None, "model"),
        (tiny.model, None, "tokenizer"),
        (tiny, tiny.tokenizer, "tokenizer"),
        ("tiny-nope", tiny.tokenizer, "tokenizer"),
        (tiny.model, tmp_path / "nowhere", "tokenizer"),
        (tiny.model, tmp_path / "empty", "tokenizer"),
        (large, wide, "model"),
        (meta, wide, "model"),
    ):
        with pytest.raises((InvalidValueError, ModelError), match=f"^{names}: ") as caught:
            measure(given, tokenizer=tokenizer, tokens=8, prompts=1)
        assert "\n" not in str(caught.value)
