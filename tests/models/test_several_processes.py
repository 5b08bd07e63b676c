"""Several processes on one measurement: the result of one, whatever happens to one of them on the way."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from setting import logged

from posbias.core.errors import InvalidValueError, ModelError, NonFiniteError
from posbias.measurement import for_length, load_model, measure, prompt_meter
from posbias.measurement.quantities.influence import economy
from posbias.profiles.measurements import load_measurement, save_measurement

TOKENS, PROMPTS = 10, 20


def close(one: xr.Dataset, other: xr.Dataset, tolerance: float = 1e-7) -> None:
    """Equal to rounding: means come from other sums, and may be stored as float32."""
    assert set(one.variables) == set(other.variables)
    for name in one.variables:
        np.testing.assert_allclose(
            one[name].values, other[name].values, rtol=tolerance, atol=tolerance / 1e3, err_msg=str(name)
        )
    for name in ("fingerprint", "starts", "prompts", "skipped"):
        assert one.attrs[name] == other.attrs[name]


def started(folder: Path, text: Path, out: Path, processes: int) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(processes),
    ]
    command += ["-m", "posbias", "measure", str(folder), "--text", str(text), "--out", str(out)]
    command += ["--tokens", str(TOKENS), "--prompts", str(PROMPTS)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=out.parent
    )


@pytest.mark.slow
@pytest.mark.waits
def test_two_processes_give_what_one_gives_and_one_that_is_killed_costs_a_prompt(folder, text, tmp_path):
    """One run is whole; in another, the second process is killed after its first prompts, and a third resumes."""
    whole = measure(for_length(load_model(folder), TOKENS), text=text, tokens=TOKENS, prompts=PROMPTS)
    whole = load_measurement(save_measurement(whole, tmp_path / "whole.nc"))  # kernels are stored as float32
    out = tmp_path / "two.nc"
    with started(folder, text, out, 2) as run:
        killed = kill_second(tmp_path)
        _, errors_out = run.communicate(timeout=240)
    assert killed
    assert run.returncode != 0
    assert not out.exists()
    kept = sorted(path.name for path in tmp_path.glob(".two-*.partial*.safetensors"))
    assert len(kept) == 2, (kept, errors_out)
    assert "the same command goes on from there" in errors_out or "SIGKILL" in errors_out
    with started(folder, text, out, 2) as run:
        answer, errors_out = run.communicate(timeout=240)
    assert run.returncode == 0, errors_out
    assert "resuming after" in errors_out
    close(load_measurement(out), whole)
    assert load_measurement(out).attrs["processes"] == 2
    assert answer.count("measurement: ") == 1, "only the first process speaks"
    assert not list(tmp_path.glob(".two-*"))


def kill_second(folder: Path) -> bool:
    """Kill the process that keeps the second checkpoint as soon as it has one."""
    until = time.monotonic() + 200
    while time.monotonic() < until:
        if list(folder.glob(".two-*.partial.1.safetensors")) and list(
            folder.glob(".two-*.partial.safetensors")
        ):
            for place in Path("/proc").glob("[0-9]*"):
                try:
                    environment = (place / "environ").read_bytes().split(b"\0")
                    command = (place / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if b"LOCAL_RANK=1" in environment and str(folder / "two.nc").encode() in command:
                    os.kill(int(place.name), signal.SIGKILL)
                    return True
        time.sleep(0.001)
    return False


def test_checkpoints_of_more_processes_count_for_fewer(tiny, text, tmp_path):
    job = {"text": text, "tokens": TOKENS, "prompts": PROMPTS}
    whole = measure(tiny, **job)
    left = tmp_path / "job.safetensors"

    def interrupt(event):
        if event.done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(tiny, **job, checkpoint=left, on_event=interrupt)
    left.rename(tmp_path / "job.3.safetensors")
    heard = []
    resumed = measure(tiny, **job, checkpoint=left, on_event=lambda event: heard.append(event.done))
    assert heard == list(range(7, PROMPTS + 1))
    close(resumed, whole)
    # what was taken over is not counted twice
    again = measure(tiny, **job, checkpoint=left)
    assert (tmp_path / "job.3.safetensors").exists()
    close(again, whole)


def test_a_prompt_that_is_not_finite_is_skipped_and_counted(tiny, text, monkeypatch):
    """Any prompt with a certain token in it breaks the last layer: the others give what they gave."""
    job = {"text": text, "tokens": TOKENS, "prompts": PROMPTS}
    whole = measure(tiny, **job)
    calls = iter(range(10**6))
    broken = []

    def poison(module, given, output):
        if armed and next(calls) in (2, 5):
            broken.append(True)
            return output * float("nan")
        return output

    armed = []
    hook = tiny.model.model.layers[1].mlp.register_forward_hook(poison)
    try:
        with logged() as said:
            found = measure(tiny, **job, on_event=armed.append)
    finally:
        hook.remove()
    assert len(broken) == 2, "the passes of prompts 2 and 5"
    kept = [index for index in range(PROMPTS) if index not in (2, 5)]
    assert found.sizes["prompt"] == PROMPTS - 2
    assert found["prompt"].values.tolist() == kept
    np.testing.assert_array_equal(found["influence"].values, whole["influence"].values[kept])
    assert found.attrs["skipped"].count("of layer 2 is not finite in prompt") == 2
    assert sum("is not finite in prompt 5" in line and line.endswith(": skipped") for line in said) == 1


def test_a_model_that_is_never_finite_is_an_error(tiny, text):
    armed = []

    def poison(module, given, output):
        return output * float("nan") if armed else output

    hook = tiny.model.model.layers[1].mlp.register_forward_hook(poison)
    try:
        with pytest.raises(ModelError) as caught:
            measure(tiny, text=text, tokens=TOKENS, prompts=4, on_event=armed.append)
    finally:
        hook.remove()
    assert not isinstance(caught.value, NonFiniteError)


@pytest.mark.parametrize("enough", [True, False])
def test_when_memory_runs_out_layers_are_computed_again(tiny, text, enough, monkeypatch):
    """The first try of the third prompt fails, or every one."""
    job = {"text": text, "tokens": TOKENS, "prompts": 5}
    whole = measure(tiny, **job)
    finished, failures, proving = [0], iter([MemoryError()] * (1 if enough else 99)), []

    def scarce(module, given):
        if finished[0] == 2 and not proving:
            for failure in failures:
                raise failure

    def proof(*given):
        proving.append(True)
        found = economy(*given)
        proving.clear()
        return found

    monkeypatch.setattr(prompt_meter, "economy", proof)

    def on_event(event):
        finished[0] = event.done

    hook = tiny.model.model.layers[1].mlp.register_forward_pre_hook(scarce)
    try:
        if enough:
            # recomputed layers: float32 sums in another order
            close(measure(tiny, **job, on_event=on_event), whole, 1e-4)
        else:
            with pytest.raises(InvalidValueError):
                measure(tiny, **job, on_event=on_event)
    finally:
        hook.remove()
