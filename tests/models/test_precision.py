"""What is measured in half precision is what float32 gives, to two roundings; weights are held once."""

import pytest
import torch
from precision import LARGEST, beyond, differences
from tiny import RUNS, tiny_model

from posbias.core import machine
from posbias.core.errors import InvalidValueError, ModelError
from posbias.measurement import LoadedModel, estimate_cost, load_model, measure, selfcheck, selfchecks
from posbias.measurement.job import Request, fingerprint_of
from posbias.measurement.memory import check_memory, memory_parts
from posbias.measurement.models.formats import Placement
from posbias.measurement.models.sources import Files

GPU = torch.device("cuda:0")


@pytest.fixture(scope="module", params=["tiny-alibi", "tiny-rope"])
def exact(request):
    return request.param, measure(load_model(request.param), tokens=64, prompts=3)


def test_bfloat16_is_within_two_roundings_of_float32_and_off_by_more_than_float32_is(exact):
    name, reference = exact
    loaded = load_model(name, dtype="bfloat16")
    off = differences(reference, measure(loaded, tokens=64, prompts=3))
    assert beyond(off, "bfloat16", 2) == {}
    # rounding is there: what is compared is not one measurement with itself
    assert all(off[key] > 1e-6 for key in LARGEST)
    assert set(beyond(off, "float32", 6)) >= {"attention_received"}
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    assert all(weight.grad is None for weight in loaded.model.parameters())


def test_float16_is_within_two_of_its_roundings(exact):
    name, reference = exact
    off = differences(reference, measure(load_model(name, dtype="float16"), tokens=64, prompts=3))
    assert beyond(off, "float16", 2) == {}


@pytest.mark.real_model
def test_smollm2_in_bfloat16_is_within_six_roundings():
    """Thirty layers and massive activations; the most likely next tokens are the same."""
    reference = measure(load_model("smollm2-135m"), tokens=64, prompts=3)
    off = differences(reference, measure(load_model("smollm2-135m", dtype="bfloat16"), tokens=64, prompts=3))
    assert beyond(off, "bfloat16", 6) == {}
    assert off["same_next_token"] == 1
    assert off["spearman_mean"] > 0.999


def test_a_measurement_of_other_weights_is_beyond_the_limits(exact):
    """The limits can be missed: all weights 10 % larger."""
    name, reference = exact
    loaded = load_model(name)
    with torch.no_grad():
        for weight in loaded.model.parameters():
            weight.mul_(1.1)
    off = differences(reference, measure(loaded, tokens=64, prompts=3))
    assert set(beyond(off, "bfloat16", 6)) >= {"kernel", "loss_largest"}


def test_precision_is_part_of_what_was_asked_and_of_the_result(text):
    jobs = {}
    for dtype in (torch.float32, torch.bfloat16):
        loaded = tiny_model("llama")
        loaded.model.to(dtype)
        jobs[loaded.dtype] = fingerprint_of(Request(text=text, tokens=12, prompts=1).of(loaded))
        found = measure(loaded, text=text, tokens=12, prompts=1).attrs
        assert (found["dtype"], found["device"]) == (loaded.dtype, "cpu")
        assert found["fingerprint"] == jobs[loaded.dtype]
    assert len(set(jobs.values())) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("family", "number", "attention"), RUNS)
def test_the_self_check_holds_in_bfloat16_for_every_family(family, number, attention):
    """Attention is off by half a rounding where it is rounded once, by one where its factors are, never by two."""
    loaded = tiny_model(family, number, attention)
    loaded.model.to(torch.bfloat16)
    found = selfcheck(loaded, torch.arange(3, 35).flip(0).roll(5))
    assert 0 < found["max_deviation"] <= 2.0**-8
    assert 0 < found["mixed_deviation"] <= 2 * 2.0**-8


def test_a_capture_that_is_off_by_more_than_bfloat16_rounds_is_refused(ids):
    loaded = tiny_model("llama", 0, "sdpa")
    loaded.model.to(torch.bfloat16)
    selfcheck(loaded, ids)
    shares = selfchecks._shares
    try:
        # 1 % of the largest weight: a third more than two roundings
        selfchecks._shares = lambda scores: shares(scores) * 0.99
        with pytest.raises(ModelError, match="at most 8e-03"):
            selfcheck(loaded, ids)
    finally:
        selfchecks._shares = shares


# --- memory ---------------------------------------------------------------------------------------------------


def test_memory_in_half_precision_is_less_than_in_float32_and_more_than_half():
    config = tiny_model("llama", 0, "sdpa").model.config
    for tokens in (64, 512, 2048):
        half, whole = (
            memory_parts(config, Request(tokens=tokens), dtype=dtype)
            for dtype in (torch.bfloat16, torch.float32)
        )
        assert half["means"] == whole["means"], "kept in float64"
        assert half["one layer"] == whole["one layer"], "reduced in float32 and float64"
        assert whole["graph"] / 2 < half["graph"] < whole["graph"], "norms keep float32"
        assert half["outputs"] < whole["outputs"]


class Elsewhere(LoadedModel):
    """A model that says it lies on a GPU."""

    @property
    def accelerators(self):
        return [GPU]


def on_a_gpu(monkeypatch, free):
    """A tiny model as if on a GPU with so many bytes free, of which torch holds some that nobody uses."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free - 100, 1 << 40))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 150)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 50)
    return Elsewhere(**vars(tiny_model("llama")))


def test_a_gpu_holds_the_passes_and_this_machine_the_means(monkeypatch, text):
    request = Request(text=text, tokens=24, prompts=1)
    loaded = on_a_gpu(monkeypatch, 0)
    parts = memory_parts(loaded.model.config, request, dtype=torch.float32, device=GPU)
    there = sum(parts[name] for name in ("graph", "outputs", "one layer"))
    check_memory(on_a_gpu(monkeypatch, there), request)
    with pytest.raises(InvalidValueError, match=r"^tokens: .* cuda:0"):
        check_memory(on_a_gpu(monkeypatch, there - 1), request)
    monkeypatch.setattr(machine, "available", lambda: sum(parts.values()) - there - 1)
    with pytest.raises(InvalidValueError, match=r"^tokens: (?!.*cuda)"):
        check_memory(on_a_gpu(monkeypatch, there), request)
    assert len(estimate_cost(loaded, request).lines()) == 3


def test_weights_larger_than_a_gpu_are_refused_before_they_are_read(monkeypatch, folder):
    stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    on_a_gpu(monkeypatch, stored // 2)
    Placement(torch.bfloat16, GPU).need_memory(Files(folder, "tiny"), torch.float32)
    with pytest.raises(InvalidValueError, match=r"^model: .* cuda:0"):
        Placement(torch.float32, GPU).need_memory(Files(folder, "tiny"), torch.float32)
