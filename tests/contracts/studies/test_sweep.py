"""Spec files become experiments, experiments become cells: what is trained, skipped, kept and refused."""

import dataclasses
import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from answers import plain
from hypothesis import given
from hypothesis import strategies as st
from setting import logged

from posbias.core import store as checkpoints
from posbias.core.errors import InputFileError, InvalidValueError
from posbias.core.running import InProcess, Processes
from posbias.core.spec import decode, encode
from posbias.core.store import Store
from posbias.theory.masks import Causal, Dilated, Full, Prefix, SlidingWindow
from posbias.training import cells, loop
from posbias.training.cells import Job, _jobs, finish, run_cells, untested
from posbias.training.experiments import (
    Experiment,
    answers_of,
    common_words,
    encoding_of,
    expand,
    mask_of,
    name_of,
    read_experiments,
)
from posbias.training.network import ENCODINGS, Network
from posbias.training.task import RetrievalTask

TASK = RetrievalTask(items=4, dimension=16, classes=64, labels=4, burstiness=2)
TINY = Experiment(TASK, Network(depth=1), seeds=(0, 1), iterations=30, batch=16, evaluate_every=10)


def tiny(depth: int = 1, **changes) -> Experiment:
    return Experiment(**{"task": TASK, "network": Network(depth=depth), "seeds": (0, 1), "iterations": 30,
                         "batch": 16, "evaluate_every": 10} | changes)  # fmt: skip


# ── spec files ──


def test_a_sweep_is_all_combinations_the_last_key_fastest():
    made = expand(
        {
            "iterations": 7,
            "network": {"residual": True},
            "sweep": {"network": {"depth": [2, 4]}, "network.positional": ["none", "rope", "decay"]},
        }
    )
    expected = [
        Experiment(network=Network(depth=depth, residual=True, positional=ENCODINGS[name]), iterations=7)
        for depth in (2, 4)
        for name in ("none", "rope", "decay")
    ]
    assert made == expected


def test_words_and_tables_say_the_same():
    words = {"mask": ["full", "causal", "window=9", "prefix=4", "window=5:2", "dilated=2:3"]}
    tables = {"mask": [{"kind": "full"}, {"kind": "causal"}, {"kind": "sliding_window", "width": 9},
                       {"kind": "prefix", "length": 4}, {"kind": "sliding_window", "width": 5, "sinks": 2},
                       {"kind": "dilated", "stride": 2, "width": 3}]}  # fmt: skip
    made = expand({"sweep": {"network": words}})
    assert made == expand({"sweep": {"network": tables}})
    expected = [Full(), Causal(), SlidingWindow(9), Prefix(4), SlidingWindow(5, 2), Dilated(2, 3)]
    assert [one.network.mask for one in made] == expected


def test_answers_may_be_words_whose_meaning_the_task_decides():
    made = expand({"task": {"answers": "first,middle"}, "sweep": {"task.middle": [2, 3]}})
    assert [one.task.answers for one in made] == [(0, 2), (0, 3)]
    made = expand({"sweep": {"task.answers": ["all", "first,last", [4]]}})
    assert [one.task.answers for one in made] == [None, (0, 7), (4,)]


@pytest.mark.parametrize("suffix", ["toml", "json", "yaml"])
def test_a_file_of_any_kind_is_one_experiment_or_a_sweep(tmp_path, suffix):
    path = tmp_path / f"one.{suffix}"
    lines = {"toml": "seeds = [3, 1]\n[task]\nitems = 4\n", "yaml": "seeds: [3, 1]\ntask: {items: 4}\n"}
    path.write_text(lines.get(suffix, '{"seeds": [3, 1], "task": {"items": 4}}'))
    made, swept = read_experiments(path)
    assert made == [Experiment(RetrievalTask(items=4), seeds=(3, 1))]
    assert swept is False
    data = {"seeds": [3, 1], "task": {"items": 4}, "sweep": {"batch": [8, 16]}}
    (tmp_path / "many.json").write_text(json.dumps(data))
    made, swept = read_experiments(tmp_path / "many.json")
    assert ([one.batch for one in made], swept) == ([8, 16], True)


masks = st.sampled_from([Causal(), Full(), SlidingWindow(3), Prefix(2)])
encodings = st.sampled_from(list(ENCODINGS.values()))
networks = st.builds(Network, st.integers(1, 9), st.booleans(), masks, encodings)


@given(networks, st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True), st.integers(1, 99))
def test_what_an_experiment_says_of_itself_is_a_spec_of_it(network, seeds, iterations):
    one = Experiment(TASK, network, tuple(seeds), iterations)
    assert expand(encode(one)) == [one]
    assert expand(json.loads(json.dumps(encode(one)))) == [one]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"sweep": {"network.dept": [2]}}, "did you mean 'network.depth'"),
        ({"sweep": {"iterations": {}}}, "iterations"),
        ({"sweep": {"network.depth": [2, "x"]}}, "where"),
        ({"sweep": {"network.depth": [2, 2]}}, "network.depth"),
        ({"network": {"mask": "window=5"}, "sweep": {"network.mask.width": [2, 3]}}, "network.mask.width"),
        ({"netwrk": {}}, "did you mean 'network'"),
        ({"network": {"positional": "rop"}}, "positional"),
        ({"network": {"mask": "window=30"}}, "width"),
        ({"task": {"burstiness": 3}}, "burstiness"),
        ({"task": {"labels": 5000}}, "labels"),
        ({"task": {"answers": [9]}}, "answers"),
        ({"sweep": {"seeds": [[0, 0]]}}, "seeds"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line(data, words):
    with pytest.raises(InvalidValueError) as caught:
        expand(data)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_file_is_named(tmp_path):
    (tmp_path / "twice.toml").write_text("[sweep]\nbatch = [1]\nbatch = [2]\n")
    with pytest.raises(InputFileError, match=r"twice\.toml: not valid TOML"):
        read_experiments(tmp_path / "twice.toml")
    (tmp_path / "wrong.toml").write_text("batch = 0\n")
    with pytest.raises(InvalidValueError, match=r"wrong\.toml: batch: 0 given"):
        read_experiments(tmp_path / "wrong.toml")
    with pytest.raises(InputFileError, match=r"no such file; did you mean 'wrong\.toml'"):
        read_experiments(tmp_path / "wrng.toml")


@pytest.mark.parametrize(
    ("read", "word", "needed"),
    [
        (mask_of, "windw=3", "did you mean 'window'"),
        (
            mask_of,
            "window",
            "one of causal, full, window=WIDTH[:SINKS], prefix=LENGTH, chunk=WIDTH, dilated=",
        ),
        (mask_of, "chunk=4:2", "expected chunk=WIDTH"),
        (mask_of, "dilated=2:0", "width: "),
        (mask_of, "window=", "with integers"),
        (mask_of, "prefix=2.5", "with integers"),
        (mask_of, "window=0", "width: "),
        (mask_of, "causal=3", "one of causal, full"),
        (encoding_of, "rotary", "one of none, sinusoidal, rope, decay needed"),
        (lambda word: answers_of(word, TASK), "0,first", "item 0 once needed"),
        (lambda word: answers_of(word, TASK), "", "all, or first, middle, last"),
    ],
)
def test_a_word_that_is_none_is_refused(read, word, needed):
    with pytest.raises(InvalidValueError) as caught:
        read(word)
    assert needed in str(caught.value)


def test_names_tell_experiments_apart_and_say_what_they_are():
    many = expand(
        {
            "sweep": {
                "network.mask": ["causal", "window=9"],
                "task.inputs": ["gaussian_mixture", "fixed_vocabulary"],
                "task.answers": ["all", "first,last"],
                "learning_rate": [1e-3, 2e-3],
            }
        }
    )
    assert len({name_of(one) for one in many}) == len(set(common_words(many))) == len(many)
    assert name_of(many[-1]).startswith("window9-none-depth2-vocabulary-answers0+7-")
    assert common_words(many)[-1] == "window9-none-depth2-vocabulary-answers0+7 learning_rate=0.002"


# ── cells ──


def counted():
    """A list of (done, total), and what fills it."""
    heard = []
    return heard, lambda event: heard.append((event.done, event.total))


def test_finished_cells_are_taken_and_the_others_trained(tmp_path):
    heard, on_event = counted()
    first = run_cells([TINY], tmp_path, sequences=50, workers=1, on_event=on_event)
    assert heard[-1] == (60, 60)
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(path.suffix for path in before) == [".nc", ".safetensors"]
    heard.clear()
    other = tiny(seeds=(2,))
    with logged() as said:
        both = run_cells([other, TINY, other], tmp_path, sequences=50, workers=1, on_event=on_event)
    assert heard[-1] == (30, 30)
    assert [cell.experiment for cell in both] == [other, TINY, other]
    assert plain(both[1].evaluation) == plain(first[0].evaluation)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert len(list(tmp_path.iterdir())) == 4
    assert not said


def test_again_writes_a_second_cell_and_finds_the_same(tmp_path):
    (one,) = run_cells([TINY], tmp_path, sequences=50, workers=1)
    (two,) = run_cells([TINY], tmp_path, sequences=50, workers=1, again=True)
    assert one.path is not None
    assert two.path == one.path.with_name(f"{one.path.stem}-2.nc")
    assert one.path.exists()
    assert plain(two.evaluation) == plain(one.evaluation)
    (kept,) = run_cells([TINY], tmp_path, sequences=50, workers=1)
    assert kept.path == two.path


def test_more_sequences_test_again_and_do_not_train(tmp_path):
    heard, on_event = counted()
    (few,) = run_cells([TINY], tmp_path, sequences=50, workers=1)
    with logged() as said:
        (many,) = run_cells([TINY], tmp_path, sequences=90, workers=1, on_event=on_event)
    assert many.evaluation.sequences == 90
    assert many.path == few.path.with_name(f"{few.path.stem}-2.nc")
    assert few.path.exists()
    assert many.trained.cost == few.trained.cost
    assert not heard
    assert len(said) == 1
    assert "testing again, on 90 sequences" in said[0]
    (fewer,) = run_cells([TINY], tmp_path, sequences=50, workers=1)
    assert fewer.evaluation.sequences == 90


@pytest.mark.slow
def test_cells_side_by_side_are_the_cells_one_by_one(tmp_path):
    experiments = [tiny(depth, network=Network(depth=depth, residual=True)) for depth in (1, 2)]
    heard, on_event = counted()
    apart = run_cells(experiments, tmp_path / "apart", sequences=50, workers=1)
    parallel = run_cells(experiments, tmp_path / "parallel", sequences=50, workers=2, on_event=on_event)
    for one, two in zip(apart, parallel, strict=True):
        assert plain(one.evaluation) == plain(two.evaluation)
        assert plain(one.sinks) == plain(two.sinks)
    assert heard[-1] == (120, 120)
    assert not list((tmp_path / "parallel").glob(".*"))


@pytest.mark.slow
def test_compatible_cells_train_together_and_become_what_they_are_alone(tmp_path):
    experiments = [tiny(), tiny(network=Network(depth=1, mask=Full()), seeds=(5,)), tiny(depth=2)]
    made = _jobs(experiments, Store(tmp_path), together=True)
    assert sorted(len(job.experiments) for job in made) == [1, 2]
    assert len(_jobs(experiments, Store(tmp_path), together=False)) == 3
    (job,) = (job for job in made if len(job.experiments) == 2)
    assert decode(Job, json.loads(json.dumps(encode(job)))) == job
    finish(job, sequences=50, device="cpu", threads=1)
    together = run_cells(experiments[:2], tmp_path, sequences=50, workers=1)
    alone = run_cells(experiments[:2], tmp_path / "alone", sequences=50, workers=1)
    for one, two in zip(together, alone, strict=True):
        for name, weights in one.trained.weights.items():
            np.testing.assert_allclose(weights, two.trained.weights[name], rtol=0, atol=2e-4)


def test_cells_train_together_that_need_the_same(tmp_path):
    """No cell pays for rotations or residual connections that only another one needs."""
    rope = ENCODINGS["rope"]
    plain, again = tiny(), tiny(task=dataclasses.replace(TASK, answers=(0,)))
    networks = [Network(1), Network(1, True), Network(1, positional=rope), Network(1, True, positional=rope)]
    experiments = [
        dataclasses.replace(base, network=network, seeds=seeds)
        for network in networks
        for base, seeds in ((plain, (0, 1)), (again, (2, 3)))
    ]
    groups = [job.experiments for job in _jobs(experiments, Store(tmp_path), together=True)]
    assert sorted(map(len, groups)) == [2, 2, 2, 2]
    for group in groups:
        assert len({(one.network.residual, one.network.positional) for one in group}) == 1


@pytest.mark.parametrize(
    "experiments", [[tiny()], pytest.param([tiny(), tiny(depth=2)], marks=pytest.mark.slow)]
)
def test_an_interruption_keeps_what_is_done_and_the_same_call_goes_on(tmp_path, monkeypatch, experiments):
    for module, name in ((checkpoints, "LEAST"), (loop, "PATIENCE")):  # a checkpoint after every iteration
        monkeypatch.setattr(module, name, 0.0)
    whole = run_cells(experiments, tmp_path / "whole", sequences=50, workers=1)
    total = sum(len(one.seeds) * one.iterations for one in experiments)

    def stop_late(event) -> None:
        if event.done > 0.7 * total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        run_cells(experiments, tmp_path / "cut", sequences=50, workers=1, on_event=stop_late)
    finished = len(experiments) - 1
    assert f"{finished} of {len(experiments)} cells" in str(caught.value)
    assert len(list((tmp_path / "cut").glob("*.nc"))) == finished
    heard, on_event = counted()
    with logged() as said:
        resumed = run_cells(experiments, tmp_path / "cut", sequences=50, workers=1, on_event=on_event)
    assert "resuming after" in said[0]
    assert heard[0][0] > 0.3 * heard[-1][1]
    for one, two in zip(whole, resumed, strict=True):
        assert plain(one.evaluation) == plain(two.evaluation)
        for name, weights in one.trained.weights.items():
            assert (weights == two.trained.weights[name]).all()
    assert not list((tmp_path / "cut").glob(".*"))


def test_what_was_trained_and_not_tested_is_not_trained_again(tmp_path, monkeypatch):
    (whole,) = run_cells([TINY], tmp_path / "whole", sequences=50, workers=1)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cells, "measure_cell", interrupted)
        with pytest.raises(KeyboardInterrupt, match="0 of 1 cells"):
            run_cells([TINY], tmp_path / "cut", sequences=50, workers=1)
    monkeypatch.setattr(cells, "train", interrupted)
    (resumed,) = run_cells([TINY], tmp_path / "cut", sequences=50, workers=1)
    assert plain(resumed.evaluation) == plain(whole.evaluation)
    assert sorted(path.suffix for path in (tmp_path / "cut").iterdir()) == [".nc", ".safetensors"]


def test_training_and_testing_apart_give_the_same_cells(tmp_path):
    experiments = [tiny(), tiny(2)]
    whole = run_cells(experiments, tmp_path / "whole", sequences=50, workers=1)
    folder = tmp_path / "apart"
    assert run_cells(experiments[:1], folder, tests=False, workers=1) == []
    assert untested(folder, experiments[0]).exists()
    assert not list(folder.glob("*.nc"))
    heard, on_event = counted()
    assert run_cells(experiments, folder, tests=False, workers=1, on_event=on_event) == []
    assert heard[-1][1] == len(experiments[1].seeds) * experiments[1].iterations
    assert run_cells(experiments, folder, tests=False, workers=1, on_event=refuse) == []
    tested = run_cells(experiments, folder, sequences=50, workers=1)
    for one, two in zip(whole, tested, strict=True):
        assert plain(one.evaluation) == plain(two.evaluation)
        for name, weights in one.trained.weights.items():
            assert (weights == two.trained.weights[name]).all()
    assert not list(folder.glob(".*"))


def test_weights_kept_for_a_test_that_is_done_are_removed_and_later_ones_are_not(tmp_path):
    (cell,) = run_cells([TINY], tmp_path, sequences=50, workers=1)
    left = untested(tmp_path, TINY)
    left.write_bytes(cell.path.with_suffix(".safetensors").read_bytes())
    written = cell.path.stat().st_mtime_ns
    for later, kept in ((1, True), (-1, False)):
        os.utime(left, ns=(written, written + later * 10**9))
        assert run_cells([TINY], tmp_path, sequences=50, workers=1, on_event=refuse)[0].path == cell.path
        assert left.exists() == kept


def refuse(event):
    raise AssertionError("nothing is to be trained")


def test_learning_curves_can_be_read_while_it_trains(tmp_path):
    seen = []

    def look(_):
        logs = [path.read_text().splitlines() for path in tmp_path.glob("*.log.jsonl")]
        seen.extend([json.loads(line) for line in lines] for lines in logs)

    (cell,) = run_cells([TINY], tmp_path, sequences=50, workers=1, on_event=look)
    assert seen
    assert not list(tmp_path.glob("*.jsonl"))
    curves = cell.trained.curves
    for step, row in enumerate(seen[-1]):
        assert row["iteration"] == curves["iteration"][step]
        np.testing.assert_array_equal(row["loss"], curves["loss"][:, step])
        np.testing.assert_array_equal(row["first-last"], curves["first-last"][:, step])


def test_wrong_settings_are_refused_before_anything_is_trained(tmp_path):
    for settings, words in (
        ({"sequences": 0}, "sequences: 0 given, an integer ≥ 1 needed"),
        ({"workers": 0}, "workers: 0 given, an integer ≥ 1 needed"),
        ({"device": "cuda:77"}, "device"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            run_cells([TINY], tmp_path / "none", **settings)
    with pytest.raises(InvalidValueError, match="three different items needed"):
        run_cells([TINY, tiny(task=RetrievalTask(items=2, burstiness=1))], tmp_path / "none")
    assert not list(tmp_path.glob("none/*.nc"))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_one_cell_that_fails_does_not_stop_the_others(tmp_path, workers):
    experiments = [tiny(depth) for depth in (3, 2, 1)]
    jobs_made = _jobs(experiments, Store(tmp_path), together=False)
    for job in jobs_made[:2]:  # a folder stands where the first two would go on from
        job.checkpoint.mkdir(parents=True)
    failing = pytest.raises(InputFileError, match=re.escape(str(jobs_made[0].checkpoint)))
    with logged() as said, failing:
        run_cells(experiments, tmp_path, sequences=50, workers=workers)
    assert [path.stem for path in tmp_path.glob("*.nc")] == [jobs_made[2].label]
    assert any(str(jobs_made[1].checkpoint) in line for line in said)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_and_its_cell_finished(tmp_path):
    long = tiny(iterations=400)
    whole = run_cells([long], tmp_path / "whole", sequences=50, workers=1)
    heard = []

    def children() -> set[int]:
        lists = (path.read_text() for path in Path("/proc/self/task").glob("*/children"))
        every = {int(word) for words in lists for word in words.split()}
        return {one for one in every if "spawn_main" in Path(f"/proc/{one}/cmdline").read_text()}

    before = children()

    def kill(event) -> None:
        heard.append((event.done, event.total))
        if len(heard) == 1:
            for one in children() - before:
                os.kill(one, signal.SIGKILL)

    with logged() as said:
        cut = run_cells([long], tmp_path / "cut", sequences=50, engine=Processes(1), on_event=kill)
    assert any("its worker ended" in line and "tried again (1 of 1)" in line for line in said)
    for one, two in zip(whole, cut, strict=True):
        assert plain(one.evaluation) == plain(two.evaluation)
    assert children() <= before
    assert heard[-1][0] == heard[-1][1]


class Afar:
    """An engine whose workers see no disk of ours: a process, moved to another folder."""

    shares_disk = False

    def run(self, tasks, hear):
        Processes(1).run(tasks, hear)


@pytest.mark.slow
def test_cells_from_another_machine_are_the_cells_trained_here(tmp_path):
    experiments = [tiny(), tiny(2)]
    here = run_cells(experiments, tmp_path / "here", sequences=50, engine=InProcess())
    afar = run_cells(experiments, tmp_path / "afar", sequences=50, engine=Afar())
    for one, two in zip(here, afar, strict=True):
        assert plain(one.evaluation) == plain(two.evaluation)
        assert one.path is not None
        assert two.path == tmp_path / "afar" / one.path.name
    names = {path.name for path in (tmp_path / "here").iterdir()}
    assert {path.name for path in (tmp_path / "afar").iterdir()} == names


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": InProcess(), "workers": 2}, "workers: 2 given together with an engine"),
        ({"gpus_per_cell": 0.5}, "gpus_per_cell: 0.5 given without a cluster"),
        (
            {"engine": Afar(), "gpus_per_cell": 1},
            "gpus_per_cell: 1 given with device cpu, device cuda needed",
        ),
        ({"engine": Afar(), "device": "cuda"}, "device: cuda given on a cluster with gpus_per_cell 0"),
        ({"engine": Afar(), "gpus_per_cell": -1}, "gpus_per_cell: -1 given, a number ≥ 0 needed"),
    ],
)
def test_engines_and_gpus_that_do_not_fit_are_refused(tmp_path, settings, words):
    with pytest.raises(InvalidValueError, match=words):
        run_cells([TINY], tmp_path / "none", **settings)
    assert not (tmp_path / "none").exists()
