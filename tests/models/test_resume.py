"""An interrupted measurement goes on from its finished prompts and ends with the same bits."""

import signal
import subprocess
import sys

import pytest
from project import ROOT

from posbias.core.errors import InputFileError, OutputFileError
from posbias.measurement import discard_checkpoint, job_fingerprint, load_model, measure


@pytest.fixture
def job(text):
    return {"text": text, "tokens": 10, "prompts": 12}


def reported():
    """A callback for events and the list of finished prompts it fills."""
    numbers = []
    return numbers, lambda event: numbers.append(event.done)


def stop_after(prompts, error):
    def on_event(event):
        if event.done == prompts:
            raise error

    return on_event


@pytest.mark.parametrize(
    ("prompts", "error"), [(1, RuntimeError("power")), (7, KeyboardInterrupt()), (12, KeyboardInterrupt())]
)
def test_resumed_results_are_bit_identical(tiny, job, tmp_path, prompts, error):
    whole = measure(tiny, **job)
    checkpoint = tmp_path / "job.safetensors"
    with pytest.raises(type(error)):
        measure(tiny, **job, checkpoint=checkpoint, on_event=stop_after(prompts, error))
    heard, on_event = reported()
    resumed = measure(tiny, **job, checkpoint=checkpoint, on_event=on_event)
    assert heard == list(range(prompts, 13))
    assert resumed.equals(whole)
    assert checkpoint.exists(), "only the caller knows when the result is safe"
    discard_checkpoint(checkpoint)
    discard_checkpoint(checkpoint)
    assert not list(tmp_path.glob("*job*"))


def test_an_interruption_inside_a_prompt_loses_that_prompt_only(tiny, job, tmp_path):
    whole = measure(tiny, **job)
    checkpoint, calls, armed = tmp_path / "job.safetensors", iter(range(10**6)), []

    def interrupt(module, given):
        # five prompts, then the sixth
        if armed and next(calls) == 5:
            raise KeyboardInterrupt

    hook = tiny.model.model.layers[2].mlp.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        measure(tiny, **job, checkpoint=checkpoint, on_event=lambda event: armed.append(True))
    hook.remove()
    heard, on_event = reported()
    assert measure(tiny, **job, checkpoint=checkpoint, on_event=on_event).equals(whole)
    assert heard[0] == 5


@pytest.mark.waits
@pytest.mark.parametrize("kill", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_killed_process_resumes_bit_identically(folder, job, tmp_path, kill):
    checkpoint = tmp_path / "job.safetensors"
    script = ROOT / "tests" / "support" / "resumable.py"
    command = [sys.executable, script, folder, job["text"], checkpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 4:
                process.send_signal(kill)
                break
        last = max([4, *(int(line) for line in process.stdout)])
        process.wait()
    assert process.returncode != 0
    heard, on_event = reported()
    loaded = load_model(folder)
    resumed = measure(loaded, **job, checkpoint=checkpoint, on_event=on_event)
    assert 1 <= heard[0] < 12
    if kill == signal.SIGINT:
        assert heard[0] >= last
    assert resumed.equals(measure(loaded, **job))


def test_another_jobs_checkpoint_is_refused(tiny, job, tmp_path):
    checkpoint = tmp_path / "job.safetensors"
    measure(tiny, **job, checkpoint=checkpoint)
    before = checkpoint.read_bytes()
    with pytest.raises(InputFileError, match=r"checkpoint: .*job\.safetensors belongs to another job"):
        measure(tiny, **{**job, "seed": 1}, checkpoint=checkpoint)
    assert checkpoint.read_bytes() == before


def test_a_checkpoint_that_cannot_be_written_is_an_error(tiny, job, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputFileError, match="cannot write"):
        measure(tiny, **job, checkpoint=tmp_path / "file" / "job.safetensors")


def test_the_fingerprint_follows_everything_that_decides_the_numbers(tiny, build, job, tmp_path):
    other_text = tmp_path / "other.txt"
    other_text.write_text(job["text"].read_text() + " w1", encoding="utf-8")
    base = job_fingerprint(tiny, **job)
    assert base == job_fingerprint(build(), **job, seed=0, dense_logits=False)
    others = [
        job_fingerprint(build(rms_norm_eps=1e-5), **job),
        job_fingerprint(tiny, **{**job, "text": other_text}),
        job_fingerprint(tiny, **{**job, "tokens": 9}),
        job_fingerprint(tiny, **{**job, "prompts": 19}),
        job_fingerprint(tiny, **job, seed=1),
        job_fingerprint(tiny, **job, dense_logits=True),
    ]
    assert len({base, *others}) == 7
