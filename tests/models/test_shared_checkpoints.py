"""Processes that share a checkpoint: a prompt is counted once, however many processes go on with it."""

import threading
from copy import deepcopy

import numpy as np
import pytest

from posbias.measurement.result import Quantity, State
from posbias.measurement.streaming import Group, over_prompts

QUANTITIES = {"mean": Quantity(("layer",), "a number"), "value": Quantity(("prompt", "layer"), "the same")}


def _until(stop):
    """Measures a prompt's own number, and is interrupted at one of them."""

    def measure(index):
        if index == stop:
            raise KeyboardInterrupt
        return {"mean": np.array([float(index)]), "value": np.array([float(index)])}

    return measure


def _run(path, stops):
    """One run with as many processes, here threads, as there are prompts to stop at; the first one's answer."""
    meeting, table = threading.Barrier(len(stops)), [None] * len(stops)
    answers = [None] * len(stops)

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
        group = Together(rank, len(stops), rank)
        asked = {"checkpoint": path, "fingerprint": "fingerprint", "processes": group}
        try:
            answers[rank] = over_prompts(_until(stops[rank]), 8, QUANTITIES, **asked)[0]
        except (KeyboardInterrupt, threading.BrokenBarrierError):
            meeting.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(stops))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers[0]


@pytest.mark.parametrize("between", [[(6,)], [(6,), (6, None)]])
def test_a_checkpoint_taken_over_by_fewer_processes_does_not_count_again_for_more(tmp_path, between):
    path = tmp_path / "job.safetensors"
    assert _run(path, (4, 5)) is None
    for stops in between:
        assert _run(path, stops) is None
    state = _run(path, (None, None))
    assert [*state.rows] == list(range(8))
    np.testing.assert_array_equal(state.column("value")[:, 0], range(8))
    np.testing.assert_allclose(state.means()["mean"], 3.5)
