"""Time and peak memory of measuring SmolLM2-135M, next to plain passes and `output_attentions=True`.

Each case runs in a process of its own, one thread, one prompt of the bundled text: this file, called with what to
do and the number of tokens, says how long it took (CPU time, so that other work on the machine matters little)
and the largest memory the process had while it ran, weights included. Plain passes have fused attention (sdpa);
what is measured has what `measure` takes at that length.
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
REPEATS = {256: 5, 1024: 2}
PROMPTS = {256: 3, 1024: 2, 4096: 1}
"""Prompts of a whole measurement: from the second on, what the first left behind counts too."""
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
    [(what, tokens) for tokens in (256, 1024) for what in WORK],
)
def test_measurement(benchmark, what, tokens):
    result = benchmark.pedantic(once, (what, tokens), rounds=1)
    benchmark.extra_info.update(result)
    assert result["bytes"] < LIMIT or what == "output_attentions"


def test_measuring_costs_little_more_than_the_passes_it_needs():
    """At 256 and 1,024 tokens at most 1.7 × a forward and backward pass with fused attention."""
    for tokens in (256, 1024):
        assert once("measure", tokens)["seconds"] <= 1.7 * once("forward_backward", tokens)["seconds"]


def test_announced_memory_is_right_within_a_fifth():
    for tokens in PROMPTS:
        found = once("whole", tokens)
        assert 1 / 1.2 < (found["bytes"] - found["before"]) / found["estimated"] <= 1.2, tokens


def test_announced_memory_in_bfloat16_is_enough():
    found = once("whole in bfloat16", 256)
    assert 1 / 1.5 < (found["bytes"] - found["before"]) / found["estimated"] <= 1


# --- in the process of one case -------------------------------------------------------------------------------


def _status(key: str) -> float:
    """A size of this process in bytes, as Linux tells it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def _work(what: str, tokens: int):
    """The model in the attention that the case needs, and what to run."""
    import torch

    from posbias.measurement import MeasurementJob, for_length, load_model, measure, prompts_from, read_text
    from posbias.measurement.prompt_meter import PromptMeter
    from posbias.measurement.quantities.influence import gradients, predict

    torch.set_num_threads(1)
    loaded = load_model("smollm2-135m", attention={"output_attentions": "eager"}.get(what, "sdpa"))
    if what in ("measure", "whole", "whole in bfloat16"):
        dtype = "bfloat16" if what.endswith("bfloat16") else "float32"
        loaded = for_length(load_model("smollm2-135m", dtype=dtype), tokens)
    sum(
        float(weight.detach().sum()) for weight in loaded.model.parameters()
    )  # weights are in memory from here on
    if what.startswith("whole"):
        return loaded, lambda: measure(loaded, tokens=tokens, prompts=PROMPTS[tokens], threads=1)
    drawn = prompts_from(loaded.tokenizer, read_text(None), tokens=tokens, prompts=1, seed=0)
    ids = torch.from_numpy(drawn.ids[0])

    def forward(**more):
        with torch.no_grad():
            return loaded.model(ids[None], use_cache=False, **more)

    if what == "measure":
        PromptMeter(loaded, MeasurementJob(tokens=64), ids[:64]).measure(drawn.ids[0][:64], "a short prompt")
        meter = PromptMeter(loaded, MeasurementJob(tokens=tokens), ids[:64])
        return loaded, lambda: meter.measure(drawn.ids[0], "the prompt")
    works = {
        "forward": forward,
        "forward_backward": lambda: gradients(predict(loaded.model, ids), ids),
        "output_attentions": lambda: forward(output_attentions=True),
    }
    return loaded, works[what]


def _main(what: str, tokens: int) -> None:
    from posbias.measurement import MeasurementJob
    from posbias.measurement.memory import announced

    loaded, work = _work(what, tokens)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    seconds = []
    for _ in range(1 if what.startswith("whole") else REPEATS[tokens]):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    peak = _status("VmHWM")
    request = MeasurementJob(tokens=tokens, prompts=PROMPTS.get(tokens, 1))
    estimated = sum(announced(loaded, request).values())
    result = {"seconds": min(seconds), "bytes": peak, "before": before, "estimated": estimated}
    print(json.dumps(result))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
