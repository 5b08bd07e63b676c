"""On a GPU: what is measured is what the CPU gives in float32, and takes no more memory than announced."""

import pytest
import torch
from precision import beyond, differences

from posbias.measurement import estimate_cost, for_length, load_model, measure
from posbias.measurement.job import Request
from posbias.measurement.models.formats import let_go

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU is needed")
SMOLLM = pytest.param("smollm2-135m", marks=pytest.mark.real_model)


@pytest.mark.parametrize("model", ["tiny-alibi", "tiny-rope", SMOLLM])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_gpu_measures_what_the_cpu_does_in_float32(model, attention):
    """In float32 to 1e-4, in bfloat16 to six of its roundings."""
    asked = {"tokens": 64, "prompts": 3}
    exact = measure(load_model(model, attention=attention), **asked)
    for dtype in ("float32", "bfloat16"):
        loaded = load_model(model, dtype=dtype, device="cuda", attention=attention)
        other = measure(loaded, **asked)
        assert (other.attrs["dtype"], other.attrs["device"]) == (dtype, "cuda")
        assert other.attrs["fingerprint"] != exact.attrs["fingerprint"]
        assert beyond(differences(exact, other), dtype, 6) == {}


@pytest.mark.real_model
@pytest.mark.parametrize("tokens", [256, 1024, 4096])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_announced_memory_of_a_gpu_is_enough(dtype, tokens):
    loaded = for_length(load_model("smollm2-135m", dtype=dtype, device="cuda"), tokens)
    cost = estimate_cost(loaded, Request(tokens=tokens, prompts=2))
    assert cost.device == "cuda:0"
    let_go()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    measure(loaded, tokens=tokens, prompts=2)
    taken = torch.cuda.max_memory_allocated() - before
    assert taken <= sum(cost.parts[name] for name in ("graph", "outputs", "one layer"))


@pytest.mark.real_model
def test_loading_takes_no_more_of_a_gpu_than_the_weights():
    let_go()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loaded = load_model("smollm2-135m", dtype="bfloat16", device="cuda")
    weights = sum(weight.nbytes for weight in loaded.model.parameters())
    assert torch.cuda.max_memory_allocated() - before < 1.2 * weights
