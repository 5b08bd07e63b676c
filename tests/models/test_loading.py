"""Models by name, folder or hub id come out as they are in their files, or one line says why not."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import small_hub
import torch
import transformers
from tiny import llama, specimen, word_tokenizer, write_gguf

from posbias.core import machine
from posbias.core.errors import InputFileError, InvalidValueError, ModelError
from posbias.measurement import LoadedModel, available_models, load_model
from posbias.measurement.models.families import FAMILIES


def save(model, path, **saving):
    model.save_pretrained(path, **saving)
    word_tokenizer().save_pretrained(path)
    return path


def refusal(kind, *given, **named):
    with pytest.raises(kind) as caught:
        load_model(*given, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def logits(model, ids):
    with torch.no_grad():
        return model(ids[None], use_cache=False).logits


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# every family


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_of_every_family_loads_as_it_was_saved(name, tmp_path, ids):
    model = specimen(name)
    loaded = load_model(save(model, tmp_path / name))
    assert type(loaded.model) is type(model)
    assert loaded.family is FAMILIES[name]
    assert loaded.verified
    assert loaded.attention == FAMILIES[name].attention[0] == loaded.model.config._attn_implementation
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    assert torch.equal(logits(loaded.model, ids), logits(model, ids))


def test_a_family_outside_the_table_loads_unverified(tmp_path):
    assert "nemotron" not in FAMILIES
    config = transformers.NemotronConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
    )
    loaded = load_model(save(transformers.NemotronForCausalLM(config), tmp_path / "other"))
    assert (loaded.verified, loaded.family.model_type) == (False, "nemotron")


def test_an_encoder_loads_with_its_head_or_bare(tmp_path, ids):
    masked = specimen("bert")
    headed = load_model(save(masked, tmp_path / "headed")).model
    assert type(headed) is transformers.BertForMaskedLM
    bare = load_model(save(masked.bert, tmp_path / "bare")).model
    assert type(bare) is transformers.BertModel
    with torch.no_grad():
        assert torch.equal(bare(ids[None]).last_hidden_state, masked.bert(ids[None]).last_hidden_state)


def test_a_model_of_two_streams_is_refused(tmp_path):
    config = transformers.T5Config(vocab_size=64, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=4)
    folder = save(transformers.T5ForConditionalGeneration(config), tmp_path / "two")
    refusal(ModelError, folder)


# numbers and attention


def test_numbers_are_those_asked_for(tmp_path):
    half = llama().to(torch.bfloat16)
    folder = save(half, tmp_path / "half")
    assert load_model(folder).dtype == "float32"
    assert load_model(folder, dtype="auto").dtype == "bfloat16"
    for dtype in ("bfloat16", "float16"):
        loaded = load_model(folder, dtype=dtype)
        assert loaded.dtype == dtype
        expected = half.model.embed_tokens.weight.to(getattr(torch, dtype))
        assert torch.equal(loaded.model.model.embed_tokens.weight, expected)


@pytest.mark.parametrize(
    "given",
    [
        {"dtype": "float23"},
        {"device": "tpu:7"},
        {"device_map": "evenly"},
        {"device_map": {}},
        {"device_map": {"model": "tpu:7"}},
        {"device_map": {"model": True}},
        {"attention": "flash"},
        {"revision": "v2"},
    ],
)
def test_what_cannot_be_right_is_refused(folder, given):
    assert refusal(InvalidValueError, folder, **given).startswith(f"{next(iter(given))}: ")


def test_the_attention_asked_for_is_used_or_refused_with_the_reason(folder, tmp_path, ids):
    eager, fused = load_model(folder), load_model(folder, attention="sdpa")
    assert (eager.attention, fused.attention) == ("eager", "sdpa")
    torch.testing.assert_close(logits(fused.model, ids), logits(eager.model, ids), rtol=1e-4, atol=1e-4)
    falcon = save(specimen("falcon"), tmp_path / "falcon")
    assert "eager counts ALiBi twice" in refusal(InvalidValueError, falcon, attention="eager")


def test_a_model_in_memory_is_switched_or_refused(tiny):
    assert LoadedModel.of(tiny.model, tiny.tokenizer, "tiny", "sdpa").attention == "sdpa"
    config = transformers.FalconConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, alibi=True
    )
    made = transformers.FalconForCausalLM._from_config(config, attn_implementation="eager")
    with pytest.raises(ModelError, match="attn_implementation='sdpa'"):
        LoadedModel.of(made, tiny.tokenizer, "falcon")


# places


def test_a_map_onto_one_device_changes_no_bit(folder, tmp_path, ids):
    plain = logits(load_model(folder).model, ids)
    file = tmp_path / "map.json"
    file.write_text('{"": "cpu"}')
    for given in ({"": "cpu"}, file, str(file)):
        assert torch.equal(logits(load_model(folder, device_map=given).model, ids), plain)
    file.write_text("{")
    refusal(InputFileError, folder, device_map=file)


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
    assert embedded.grad is not None
    assert embedded.grad.norm() > 0
    del loaded, embedded
    gc.collect()
    assert not any((tmp_path / "offloaded").iterdir())


def test_weights_larger_than_memory_are_refused_before_they_are_read(folder, monkeypatch):
    bytes_stored = (folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(machine, "available", lambda: bytes_stored - 1)
    assert refusal(InvalidValueError, folder).startswith("model: tiny-llama in float32")
    assert load_model(folder, dtype="bfloat16").dtype == "bfloat16"
    assert load_model(folder, device_map="auto").attention == "eager"


# what is in the files


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
    assert "--trust-remote-code" in refusal(ModelError, folder)
    assert not (tmp_path / "ran").exists()
    loaded = load_model(folder, trust_remote_code=True)
    assert (tmp_path / "ran").exists()
    assert (loaded.family.model_type, loaded.verified) == ("curious", False)
    assert torch.equal(logits(loaded.model, ids), plain)
    before = loaded.checksum
    (folder / "curious.py").write_text((folder / "curious.py").read_text() + "\n")
    assert load_model(folder, trust_remote_code=True).checksum != before


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
    refusal(ModelError, folder)
    assert not (tmp_path / "ran").exists()


def test_a_missing_part_of_the_weights_is_named(tmp_path):
    folder = save(llama(), tmp_path / "parts", max_shard_size="20KB")
    parts = sorted(folder.glob("model-*.safetensors"))
    assert len(parts) > 1
    load_model(folder)
    parts[1].unlink()
    assert parts[1].name in refusal(ModelError, folder)
    (folder / "model.safetensors.index.json").write_text("[]")
    refusal(ModelError, folder)


# models that come with the package


def test_a_folder_that_a_package_brings_is_a_model_by_its_name(tmp_path, monkeypatch, ids):
    model = specimen("posbias_tiny")
    save(model, tmp_path / "tiny-try")
    monkeypatch.setattr("posbias.core.packages.load", lambda group, name: tmp_path)
    assert [record.name for record in available_models()][-1] == "tiny-try"
    assert torch.equal(logits(load_model("tiny-try").model, ids), logits(model, ids))
    said = refusal(ModelError, "tiny-tray")
    assert "did you mean 'tiny-try'" in said
    (tmp_path / "tiny-try" / "model.safetensors").unlink()
    assert available_models()[-1].state == "damaged"


# models from a hub


@pytest.fixture
def cached(folder, tmp_path, monkeypatch):
    """The tiny model in a hub's cache, at the branch main and at one commit."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    place = tmp_path / "hub" / "models--someone--small"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(small_hub.COMMIT)
    (place / "snapshots").mkdir()
    folder.rename(place / "snapshots" / small_hub.COMMIT)
    return place / "snapshots" / small_hub.COMMIT


def test_a_hub_id_loads_from_the_cache_without_a_network(cached, ids):
    loaded = load_model(small_hub.NAME)
    assert (loaded.name, loaded.revision) == (small_hub.NAME, small_hub.COMMIT)
    same = load_model(small_hub.NAME, revision=small_hub.COMMIT)
    assert same.checksum == loaded.checksum == load_model(cached).checksum
    assert torch.equal(logits(loaded.model, ids), logits(load_model(cached).model, ids))


def test_what_the_cache_lacks_is_said_with_what_to_do(cached):
    for given in ({"name": "someone/other"}, {"name": small_hub.NAME, "revision": "v2"}):
        assert "HF_HUB_OFFLINE is set" in refusal(ModelError, **given)
    (cached / "model.safetensors").unlink()
    refusal(ModelError, small_hub.NAME)


def test_a_folder_goes_before_a_hub_id(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "someone").mkdir()
    folder.rename(tmp_path / small_hub.NAME)
    assert load_model(small_hub.NAME).revision is None


def test_an_interrupted_download_is_one_line_and_keeps_what_is_whole(tmp_path):
    files = {
        "config.json": b'{"model_type": "llama"}',
        "model.safetensors": bytes(300_000),
        "extra.md": b"not read",
        "consolidated.safetensors": b"a copy for another program",
        "code.py": b"only on trust",
    }
    script = (
        "import sys\n"
        "from posbias.core.errors import ModelError\n"
        "from posbias.measurement.models.fetching import find\n"
        "try: print(find(sys.argv[1], sys.argv[2] or None).path)\n"
        "except ModelError as error: print(error)\n"
    )

    def ask(hub, name=small_hub.NAME, revision="", offline="0"):
        environment = os.environ | {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path),
            "HF_HUB_OFFLINE": offline,
            "HF_HUB_DISABLE_XET": "1",
            "NO_PROXY": "127.0.0.1",
        }
        command = [sys.executable, "-c", script, name, revision]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert "Fetching" not in done.stderr, "bars are for a terminal"
        return done.stdout.strip()

    with small_hub.serving(files, breaks="model.safetensors") as hub:
        said = ask(hub)
        assert said.startswith(f"model: '{small_hub.NAME}' could not be downloaded: ")
        assert "\n" not in said
        assert "could not be downloaded" in ask(hub, offline="1")
        hub.breaks = None
        hub.asked.clear()
        snapshot = Path(ask(hub))
        assert hub.asked == ["model.safetensors"]
        assert {file.name for file in snapshot.iterdir()} == {"config.json", "model.safetensors"}
        assert (snapshot / "model.safetensors").read_bytes() == files["model.safetensors"]
        assert ask(hub, offline="1") == str(snapshot)
        assert "no such revision" in ask(hub, revision="v9")
        assert "not on the hub, or private there" in ask(hub, name="someone/else")
    assert ask(hub) == str(snapshot), "a hub that is gone is not needed"


# GGUF files


def test_a_gguf_file_loads_as_the_model_it_holds(tmp_path, ids):
    model = llama()
    path = write_gguf(model, tmp_path / "small.gguf")
    loaded = load_model(path)
    assert (loaded.name, loaded.family.model_type, loaded.dtype) == ("small.gguf", "llama", "float32")
    assert torch.equal(logits(loaded.model, ids), logits(model, ids))
    half = load_model(path, dtype="bfloat16", attention="sdpa")
    assert (half.dtype, half.attention, half.checksum) == ("bfloat16", "sdpa", loaded.checksum)
    path.write_bytes(path.read_bytes()[:200])
    assert str(path) in refusal(ModelError, path)


def test_a_tokenizer_that_makes_rust_panic_is_one_line(tmp_path):
    path = write_gguf(llama(), tmp_path / "odd.gguf", merge="! !")
    assert str(path) in refusal(ModelError, path)
