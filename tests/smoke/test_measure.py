"""Measure: what a real model does, position by position."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from heard import Heard
from tiny import llama, word_tokenizer, write_gguf

import posbias
from posbias.measurement import LoadedModel, MeasurementJob, load_model

SMALL = {"tokens": 12, "prompts": 3}


def test_the_bundled_text_on_a_bundled_model(measured):
    measurement = posbias.load_measurement(measured)
    assert dict(measurement.sizes)["prompt"] == 8
    influence = posbias.measured_influence(measurement)
    assert influence.mass.sum() == pytest.approx(1.0, abs=1e-12)
    assert (influence.se > 0).all()


def test_a_folder_from_the_command_line(answered, llama_folder):
    answer = answered(
        *("measure", llama_folder, "--text", llama_folder / "words.txt", "--tokens", 12, "--prompts", 3),
        *("--out", "m.nc"),
    )
    assert sum(answer["influence"]) == pytest.approx(1.0)
    assert answer["selfcheck"]["max_deviation"] < 1e-5


def test_a_gguf_file(folder):
    model = llama()
    loaded = load_model(write_gguf(model, folder / "model.gguf"))
    ids = torch.arange(1, 13)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-4)


def test_a_model_of_the_hub_from_the_cache(folder, llama_folder, monkeypatch):
    import huggingface_hub.constants

    place, commit = folder / "cache" / "models--someone--small", "a" * 40
    (place / "snapshots").mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    (place / "snapshots" / commit).symlink_to(llama_folder)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "cache"))
    assert load_model("someone/small").revision == commit


def test_a_model_in_memory(llama_folder):
    text = llama_folder / "words.txt"
    measurement = posbias.measure(llama(), tokenizer=word_tokenizer(), text=text, **SMALL)
    assert measurement["mixing"].dims == ("prompt", "layer")
    assert (measurement["mixing"] > 0).all()


def test_mixing_is_the_ratio_of_frobenius_norms(llama_folder):
    """Herasimchyk et al. 2026, Eq. 1, by hooks: λ = ‖Attn(X)‖ / (‖X‖ + ‖Attn(X)‖)."""
    loaded, streams, updates = load_model(llama_folder), [], []
    job = {"tokens": 12, "prompts": 1, "text": llama_folder / "words.txt"}
    measurement = posbias.measure(loaded, **job)
    for layer in loaded.model.model.layers:
        layer.register_forward_pre_hook(lambda _, given: streams.append(given[0].norm()))
        layer.self_attn.register_forward_hook(lambda *given: updates.append(given[2][0].norm()))
    with torch.no_grad():
        loaded.model(torch.from_numpy(MeasurementJob(**job).draw(loaded).ids))
    expected = [float(update / (stream + update)) for stream, update in zip(streams, updates, strict=True)]
    np.testing.assert_allclose(measurement["mixing"].values[0], expected, rtol=1e-5)


def test_an_encoder(llama_folder):
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.BertForMaskedLM(config).eval()
    measurement = posbias.measure(
        LoadedModel.of(model, word_tokenizer(), "bert"), text=llama_folder / "words.txt", **SMALL
    )
    assert measurement["influence"].shape == (3, 12)


def test_half_precision():
    exact, half = (
        posbias.measure(load_model("tiny-alibi", dtype=dtype), tokens=32, prompts=1)
        for dtype in ("float32", "bfloat16")
    )
    np.testing.assert_allclose(half["mixing"].values, exact["mixing"].values, rtol=0.02)


def test_an_interrupted_measurement_ends_with_the_same_bits(folder, llama_folder):
    job = {"text": llama_folder / "words.txt", "tokens": 10, "prompts": 6}
    loaded = load_model(llama_folder)
    whole = posbias.measure(loaded, **job)
    with pytest.raises(KeyboardInterrupt):
        posbias.measure(loaded, **job, checkpoint=folder / "c.safetensors", on_event=Heard(stop=3))
    heard = Heard()
    resumed = posbias.measure(loaded, **job, checkpoint=folder / "c.safetensors", on_event=heard)
    assert heard == [3, 4, 5, 6]
    assert resumed.equals(whole)


@pytest.mark.slow
def test_processes_of_torchrun_share_the_prompts(folder, llama_folder):
    words = ["measure", llama_folder, "--text", llama_folder / "words.txt", "--tokens", 10, "--prompts", 6]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    command += ["-m", "posbias", *words, "--out", "two.nc"]
    subprocess.run([*map(str, command)], check=True, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"})
    one = posbias.measure(load_model(llama_folder), text=llama_folder / "words.txt", tokens=10, prompts=6)
    two = posbias.load_measurement(folder / "two.nc")
    np.testing.assert_allclose(two["influence"], one["influence"], rtol=1e-6)


def test_logits_rollouts_and_sinks(llama_folder):
    measurement = posbias.measure(
        load_model(llama_folder),
        text=llama_folder / "words.txt",
        rollouts=("kernel", "energy"),
        influences=("logit",),
        **SMALL,
    )
    for name in ("logits_distance", "content_mean", "kernel", "rollout_kernel", "rollout_energy"):
        assert np.isfinite(measurement[name].values).any(), name
    np.testing.assert_allclose(measurement["kernel"].sum("key"), 1.0, rtol=1e-5)
    np.testing.assert_allclose(measurement["rollout_kernel"].sum("position"), 1.0, rtol=1e-5)


def test_heads_by_what_they_attend_to(answered, folder, llama_folder):
    small = ("--text", llama_folder / "words.txt", "--tokens", 28, "--prompts", 3, "--out", "heads.nc")
    answered("measure", llama_folder, *small, "--head-kernels")
    answer = answered("heads", "heads.nc", "--last", 2, "--plot", "heads.png")
    rows = posbias.load_measurement("heads.nc")["kernel_head"].values[:, :, -2:]
    shares = {part: {(t, h): share for t, h, share in held} for part, held in answer["parts"].items()}
    expected = {"sink": rows[..., 0], "first": rows[..., 1:2], "own": rows[:, :, [0, 1], [26, 27]]}
    expected |= {"last": rows[:, :, [0, 1], [25, 26]]}
    for part, held in expected.items():
        each = held.reshape(3, 4, -1).sum(-1) / 2
        assert shares[part] == pytest.approx(dict(np.ndenumerate(each)), abs=1e-6)
        assert [one[2] for one in answer["parts"][part]] == sorted(shares[part].values(), reverse=True)
    middle = (rows[:, :, 0, 6:21].sum(-1) + rows[:, :, 1, 7:21].sum(-1)) / 2
    assert shares["middle"][2, 1] == pytest.approx(middle[2, 1], abs=1e-6)
    assert (folder / "heads.png").exists()
    with pytest.raises(posbias.PosbiasError, match="kernel_head"):
        posbias.head_shares(posbias.load_measurement("heads.nc").drop_vars("kernel_head"))


def test_with_and_without_bos(llama_folder):
    loaded = load_model(llama_folder)
    loaded.tokenizer.bos_token = "w49"
    for bos in (True, False):
        ids = MeasurementJob(text=llama_folder / "words.txt", bos=bos, **SMALL).draw(loaded).ids
        assert (ids[:, 0] == 50).all() == bos


def test_time_and_memory_are_said_before(answered):
    cost = answered("measure", "tiny-alibi", "--tokens", 64, "--prompts", 4, "--dry-run")
    assert 1e7 < cost["bytes"] < 1e9
    assert cost["seconds"] > 0


@pytest.mark.slow
@pytest.mark.real_model
def test_smollm2(answered):
    answer = answered("measure", "smollm2-135m", "--tokens", 64, "--prompts", 2, "--out", "m.nc")
    assert len(answer["mixing"]) == 30
    assert answer["influence"][-1] > 1 / 64
