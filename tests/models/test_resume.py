"""An interrupted measurement, of one process or several, ends with the result of one that was not interrupted."""

import threading
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from heard import Heard
from setting import logged

from posbias.core import machine
from posbias.core.errors import InputFileError, InvalidValueError, ModelError, NonFiniteError, OutputFileError
from posbias.measurement import discard_checkpoint, job_fingerprint, measure, prompt_meter
from posbias.measurement.job import MeasurementJob
from posbias.measurement.memory import AMPLE, announced, recomputes
from posbias.measurement.quantities.influence import economy
from posbias.measurement.result import Quantity, State
from posbias.measurement.streaming import Group, over_prompts

PROMPTS = 8


@pytest.fixture
def job(text):
    return {"text": text, "tokens": 10, "prompts": PROMPTS}


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path / "job.safetensors"


@pytest.fixture
def treated(tiny):
    """The tiny model, for tests whose hooks make it fail."""
    return replace(tiny, treatment={"name": "a hook that fails"})


def close(one, other, tolerance=1e-7):
    """Equal to rounding: means come from other sums, and may be stored as float32."""
    assert set(one.variables) == set(other.variables)
    for name in one.variables:
        limits = {"rtol": tolerance, "atol": tolerance / 1e3}
        np.testing.assert_allclose(one[name].values, other[name].values, **limits, err_msg=str(name))
    for name in ("fingerprint", "starts", "prompts", "skipped"):
        assert one.attrs[name] == other.attrs[name]


# ── one process ──


def test_an_interruption_inside_a_prompt_loses_that_prompt_only(treated, job, checkpoint):
    whole, calls, armed = measure(treated, **job), iter(range(10**6)), []

    def interrupt(module, given):
        # five prompts, then the sixth
        if armed and next(calls) == 5:
            raise KeyboardInterrupt

    hook = treated.model.model.layers[2].mlp.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        measure(treated, **job, checkpoint=checkpoint, on_event=armed.append)
    hook.remove()
    for done in (5, PROMPTS):
        heard = Heard(PROMPTS)
        with pytest.raises(KeyboardInterrupt):
            measure(treated, **job, checkpoint=checkpoint, on_event=heard)
        assert heard == list(range(done, PROMPTS + 1))
    assert measure(treated, **job, checkpoint=checkpoint).equals(whole)
    assert checkpoint.exists(), "only the caller knows when the result is safe"
    discard_checkpoint(checkpoint)
    discard_checkpoint(checkpoint)
    assert not list(checkpoint.parent.glob("*job*"))


def test_a_checkpoint_of_another_job_or_in_no_folder_is_refused(tiny, job, checkpoint):
    measure(tiny, **job, checkpoint=checkpoint)
    before = checkpoint.read_bytes()
    with pytest.raises(InputFileError, match=r"^checkpoint: "):
        measure(tiny, **{**job, "seed": 1}, checkpoint=checkpoint)
    assert checkpoint.read_bytes() == before
    with pytest.raises(OutputFileError):
        measure(tiny, **job, checkpoint=checkpoint / "job.safetensors")


def test_the_fingerprint_follows_everything_that_decides_the_numbers(tiny, build, job, tmp_path):
    other_text = tmp_path / "other.txt"
    other_text.write_text(job["text"].read_text() + " w1", encoding="utf-8")
    base = job_fingerprint(tiny, **job)
    assert base == job_fingerprint(build(), **job, seed=0, dense_logits=False)
    changes = {"text": other_text}, {"tokens": 9}, {"prompts": 19}, {"seed": 1}, {"dense_logits": True}
    others = [job_fingerprint(tiny, **job | change) for change in changes]
    others.append(job_fingerprint(build(rms_norm_eps=1e-5), **job))
    half = build()
    half.model.to(torch.bfloat16)
    others.append(job_fingerprint(half, **job))
    assert len({base, *others}) == 8
    found = measure(half, **job).attrs
    assert (found["dtype"], found["device"], found["fingerprint"]) == ("bfloat16", "cpu", others[-1])


# ── prompts that fail ──


@pytest.fixture
def poisoned(treated):
    """The tiny model with a list of the passes after the first event whose layer 1 gives no number."""
    poisoned, armed, calls = [], [], iter(range(10**6))

    def poison(module, given, output):
        return output * float("nan") if armed and next(calls) in poisoned else output

    treated.model.model.layers[1].mlp.register_forward_hook(poison)
    return treated, poisoned, armed


def test_a_prompt_that_is_not_finite_is_skipped_and_counted(poisoned, job):
    model, bad, armed = poisoned
    whole, kept = measure(model, **job), [index for index in range(PROMPTS) if index not in (2, 5)]
    bad += [2, 5]
    with logged() as said:
        found = measure(model, **job, on_event=armed.append)
    assert found["prompt"].values.tolist() == kept
    np.testing.assert_array_equal(found["influence"].values, whole["influence"].values[kept])
    assert len(found.attrs["skipped"].split(" is not finite in prompt")) == 3
    assert sum("prompt 5" in line for line in said) == 1


def test_a_model_that_is_never_finite_is_an_error(poisoned, job):
    model, bad, armed = poisoned
    bad += range(100)
    with pytest.raises(ModelError) as caught:
        measure(model, **job, on_event=armed.append)
    assert not isinstance(caught.value, NonFiniteError)


@pytest.mark.parametrize("enough", [True, False])
def test_when_memory_runs_out_layers_are_computed_again(treated, job, enough, monkeypatch):
    """The first try of the third prompt fails, or every one."""
    job |= {"prompts": 5}
    whole = measure(treated, **job)
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

    def on_event(event):
        finished[0] = event.done

    monkeypatch.setattr(prompt_meter, "economy", proof)
    treated.model.model.layers[1].mlp.register_forward_pre_hook(scarce)
    if enough:  # recomputed layers: float32 sums in another order
        close(measure(treated, **job, on_event=on_event), whole, 1e-4)
    else:
        with pytest.raises(InvalidValueError):
            measure(treated, **job, on_event=on_event)


def test_layers_of_long_prompts_are_remembered_where_memory_is_ample(monkeypatch, tiny, text):
    for module in ("memory", "prompt_meter"):
        monkeypatch.setattr(f"posbias.measurement.{module}.KERNEL_TOKENS", 8)
    monkeypatch.setattr(prompt_meter, "FUSED", 8)
    job = {"text": text, "tokens": 12, "prompts": 2}
    request = MeasurementJob(tokens=12)
    kept, again = (sum(announced(tiny, request, recompute).values()) for recompute in (False, True))
    assert kept > again
    found = []
    enough = kept / AMPLE * machine.cores()
    for free, expected in ((int(enough) + 1, kept), (int(enough) - 1, again)):
        monkeypatch.setattr(machine, "available", lambda free=free: free)
        found.append(measure(tiny, **job, threads=1))
        with machine.torch_threads(1):
            assert recomputes(tiny, request) == (expected == again)
            assert sum(announced(tiny, request).values()) == expected
    close(*found, 1e-4)


# ── several processes ──


def test_checkpoints_of_more_processes_count_for_fewer(tiny, job, checkpoint):
    whole = measure(tiny, **job)
    with pytest.raises(KeyboardInterrupt):
        measure(tiny, **job, checkpoint=checkpoint, on_event=Heard(stop=5))
    other = checkpoint.rename(checkpoint.with_name("job.3.safetensors"))
    heard = Heard()
    close(measure(tiny, **job, checkpoint=checkpoint, on_event=heard), whole)
    assert heard == list(range(5, PROMPTS + 1))
    # what was taken over is not counted twice
    close(measure(tiny, **job, checkpoint=checkpoint), whole)
    assert other.exists()


QUANTITIES = {"mean": Quantity(("layer",), "a number"), "value": Quantity(("prompt", "layer"), "the same")}


def run(path, stops):
    """One run with as many processes, here threads, as there are prompts to stop at; the first one's answer."""
    meeting, table, answers = threading.Barrier(len(stops)), [None] * len(stops), [None] * len(stops)

    class Together(Group):
        def exchange(self, thing):
            table[self.rank] = thing
            meeting.wait(20)
            everyone = list(table)
            meeting.wait(20)
            return everyone

        def merged(self, state):
            whole = State(QUANTITIES)
            for one in deepcopy(self.exchange(state)):
                whole.merge(one)
            return whole

    def work(rank):
        def number(index):
            if index == stops[rank]:
                raise KeyboardInterrupt
            return {"mean": np.array([float(index)]), "value": np.array([float(index)])}

        shared = {"checkpoint": path, "fingerprint": "one", "processes": Together(rank, len(stops), rank)}
        try:
            answers[rank] = over_prompts(number, 8, QUANTITIES, **shared)[0]
        except (KeyboardInterrupt, threading.BrokenBarrierError):
            meeting.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(stops))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers[0]


@pytest.mark.parametrize("between", [[(6,)], [(6,), (6, None)]])
def test_a_prompt_is_counted_once_however_many_processes_go_on(checkpoint, between):
    for stops in ((4, 5), *between):
        assert run(checkpoint, stops) is None
    state = run(checkpoint, (None, None))
    assert [*state.rows] == list(range(8))
    np.testing.assert_array_equal(state.column("value")[:, 0], range(8))
    np.testing.assert_allclose(state.means()["mean"], 3.5)
