"""Time and peak memory of measuring SmolLM2-135M, beside plain passes and `output_attentions=True`.

Each case runs in a process of its own, one thread, one prompt of the bundled text: this file, called with what to
do and the number of tokens, says how long it took (CPU time, so that other work on the machine matters little)
and the largest memory the process had while it ran, weights included. Attention is eager up to 1,024 tokens;
above, it is fused (sdpa) and layers are computed again in the backward pass, as `measure` does.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

RESULTS: dict[tuple[str, int], dict[str, float]] = {}
"""(what, tokens) → seconds and bytes, of this run."""
WORK = ("forward", "forward_backward", "output_attentions", "measure")
REPEATS = {256: 5, 1024: 2, 2048: 1, 4096: 1}
LIMIT = 6e9


def once(what: str, tokens: int) -> dict[str, float]:
    """Run one case in a fresh process; its medians are kept for all tests here."""
    if (what, tokens) not in RESULTS:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, __file__, what, str(tokens)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"{what} of {tokens} tokens ended with {done.returncode}: {done.stderr[-500:]}")
        RESULTS[what, tokens] = json.loads(done.stdout)
    return RESULTS[what, tokens]


@pytest.fixture(autouse=True)
def model():
    from posbias.measurement import available_models

    if not any(record.name == "smollm2-135m" and record.cached for record in available_models()):
        pytest.skip("smollm2-135m is not in the cache: run `posbias models --fetch smollm2-135m`")


@pytest.mark.parametrize(
    ("what", "tokens"),
    [(what, tokens) for tokens in (256, 1024) for what in WORK]
    + [("output_attentions", 2048), ("measure", 2048), ("measure", 4096)],
)
def test_measurement(benchmark, what, tokens):
    result = benchmark.pedantic(once, (what, tokens), rounds=1)
    benchmark.extra_info.update(result)
    assert result["bytes"] < LIMIT or what == "output_attentions"


def test_measuring_costs_little_more_than_the_passes_it_needs():
    """At 256 tokens at most 1.3 × a forward pass plus a forward and backward pass."""
    passes = once("forward", 256)["seconds"] + once("forward_backward", 256)["seconds"]
    assert once("measure", 256)["seconds"] <= 1.3 * passes


def test_measuring_takes_less_memory_than_keeping_attention():
    assert once("measure", 2048)["bytes"] < once("output_attentions", 2048)["bytes"]


def test_the_estimate_of_memory_is_within_a_factor_of_one_and_a_half():
    for tokens in (256, 1024, 2048, 4096):
        found = once("measure", tokens)
        assert found["estimated"] / 1.5 < found["bytes"] - found["before"] < found["estimated"] * 1.5, tokens


# --- in the process of one case -------------------------------------------------------------------------------


def _status(key: str) -> float:
    """A size of this process in bytes, as Linux tells it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def _work(what: str, tokens: int):
    """The model in the attention that the case needs, and what to run."""
    import torch

    from posbias.measurement import Request, load_model, prompts_from, read_text
    from posbias.measurement.models.families import decoder_layers
    from posbias.measurement.prompt_meter import PromptMeter
    from posbias.measurement.quantities.influence import economy, gradients, predict
    from posbias.measurement.quantities.jacobian import gains_of
    from posbias.measurement.quantities.kernels import KERNEL_TOKENS

    torch.set_num_threads(1)
    long = tokens > KERNEL_TOKENS and what == "measure"
    loaded = load_model("smollm2-135m", attention="sdpa" if long else "eager")
    drawn = prompts_from(loaded.tokenizer, read_text(None), tokens=tokens, prompts=1, seed=0)
    ids = torch.from_numpy(drawn.ids[0])

    def forward(**more):
        with torch.no_grad():
            return loaded.model(ids[None], use_cache=False, **more)

    if what == "measure":
        layers = decoder_layers(loaded.model, loaded.family)
        saving = economy(loaded.model, layers, ids[:64]) if long else None
        gains = gains_of(loaded.model, loaded.family, ids[:64])
        PromptMeter(loaded, Request(tokens=64), gains=gains, economy=saving).measure(
            drawn.ids[0][:64], "a short prompt"
        )
        meter = PromptMeter(loaded, Request(tokens=tokens), gains=gains, economy=saving)
        return loaded, lambda: meter.measure(drawn.ids[0], "the prompt")
    works = {
        "forward": forward,
        "forward_backward": lambda: gradients(predict(loaded.model, ids), ids),
        "output_attentions": lambda: forward(output_attentions=True),
    }
    return loaded, works[what]


def _main(what: str, tokens: int) -> None:
    from posbias.measurement import Request
    from posbias.measurement.memory import memory_parts

    loaded, work = _work(what, tokens)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    seconds = []
    for _ in range(REPEATS[tokens]):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    peak = _status("VmHWM")
    estimated = sum(memory_parts(loaded.model.config, Request(tokens=tokens)).values())
    result = {"seconds": min(seconds), "bytes": peak, "before": before, "estimated": estimated}
    print(json.dumps(result))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
