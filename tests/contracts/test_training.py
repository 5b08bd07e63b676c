"""Experiments of spec files become cells: what is trained, kept, tested, and resumed to the bit."""

import dataclasses
import json
from pathlib import Path

import piecework
import pytest
from answers import plain
from command import called
from heard import Heard
from hypothesis import given
from hypothesis import strategies as st
from project import ROOT
from setting import logged

from posbias.core import store as checkpoints
from posbias.core.running import Processes, Task
from posbias.core.spec import decode, encode
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias.training import cells, loop
from posbias.training.cells import run_cells
from posbias.training.experiments import Experiment, expand
from posbias.training.loop import train
from posbias.training.network import ENCODINGS, Network
from posbias.training.task import RetrievalTask

TASK = RetrievalTask(items=4, dimension=16, classes=64, labels=4, burstiness=2)


def tiny(depth: int = 1, **changes) -> Experiment:
    return Experiment(**{"task": TASK, "network": Network(depth=depth), "seeds": (0, 1), "iterations": 30,
                         "batch": 16, "evaluate_every": 10} | changes)  # fmt: skip


TINY = tiny()
ROPE = Network(2, True, positional=ENCODINGS["rope"])
JOB = [
    tiny(network=network, seeds=seeds, learning_rate=1e-2, evaluate_every=12)
    for network, seeds in ((Network(2), (0, 1)), (ROPE, (0,)))
]


masks = st.sampled_from([Causal(), Full(), SlidingWindow(3), Prefix(2)])
encodings = st.sampled_from(list(ENCODINGS.values()))
networks = st.builds(Network, st.integers(1, 9), st.booleans(), masks, encodings)


@given(networks, st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True), st.integers(1, 99))
def test_what_an_experiment_says_of_itself_is_a_spec_of_it(network, seeds, iterations):
    one = Experiment(TASK, network, tuple(seeds), iterations)
    assert expand(encode(one)) == [one]
    assert expand(json.loads(json.dumps(encode(one)))) == [one]


def test_finished_cells_are_taken_and_the_others_trained(tmp_path):
    heard = Heard()
    how = {"sequences": 50, "workers": 1, "on_event": heard}
    (first,) = run_cells([TINY], tmp_path, **how)
    assert heard[-1] == 60
    assert first.path is not None
    assert heard == sorted(heard)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert [path.suffix for path in before] == [".nc"]
    heard.clear()
    other = tiny(seeds=(2,))
    with logged() as said:
        both = run_cells([other, TINY, other], tmp_path, **how)
    assert heard[-1] == 30
    assert [cell.experiment for cell in both] == [other, TINY, other]
    assert plain(both[1].evaluation) == plain(first.evaluation)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert len(list(tmp_path.iterdir())) == 2
    assert not said
    # more sequences test again
    (many,) = run_cells([TINY], tmp_path, **how | {"sequences": 90, "on_event": refuse})
    assert many.evaluation.sequences == 90
    assert many.path == first.path.with_name(f"{first.path.stem}-2.nc")
    assert many.trained.cost == first.trained.cost


def refuse(event):
    assert not event.total, "nothing is to be trained"


def test_compatible_cells_train_together(tmp_path):
    experiments = [tiny(), tiny(network=Network(depth=1, mask=Full()), seeds=(5,)), tiny(depth=2)]
    assert len(cells._grouped(experiments, tmp_path, {}, side_by_side=False)) == 3
    groups = cells._grouped(experiments, tmp_path, {}, side_by_side=True)
    assert sorted(map(len, groups)) == [1, 2]
    (group,) = (group for group in groups if len(group) == 2)
    team, heard = cells.Together(group), Heard()
    together = [team.of(one, heard) for one in group]
    assert len(heard) == 30
    assert not team.trained
    assert bits(together) == bits(train(group))


@pytest.mark.parametrize(
    "experiments", [[tiny()], pytest.param([tiny(), tiny(depth=2)], marks=pytest.mark.slow)]
)
def test_an_interruption_keeps_what_is_done_and_the_same_call_goes_on(tmp_path, monkeypatch, experiments):
    for module, name in ((checkpoints, "LEAST"), (loop, "PATIENCE")):  # a checkpoint after every iteration
        monkeypatch.setattr(module, name, 0.0)
    whole = run_cells(experiments, tmp_path / "whole", sequences=50, workers=1)
    total = sum(len(one.seeds) * one.iterations for one in experiments)
    with pytest.raises(KeyboardInterrupt) as caught:
        run_cells(experiments, tmp_path / "cut", sequences=50, workers=1, on_event=Heard(stop=0.7 * total))
    finished = len(experiments) - 1
    assert f"{finished} of {len(experiments)} cells" in str(caught.value)
    assert len(list((tmp_path / "cut").glob("*.nc"))) == finished
    heard = Heard()
    resumed = run_cells(experiments, tmp_path / "cut", sequences=50, workers=1, on_event=heard)
    assert heard[0] > 0.3 * heard[-1]
    for one, two in zip(whole, resumed, strict=True):
        assert plain(one.evaluation) == plain(two.evaluation)
    assert bits(one.trained for one in whole) == bits(one.trained for one in resumed)
    assert not list((tmp_path / "cut").glob(".*"))


def test_what_was_trained_and_not_tested_is_not_trained_again(tmp_path, monkeypatch):
    (whole,) = run_cells([TINY], tmp_path / "whole", sequences=50, workers=1)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cells, "measure_cell", interrupted)
        with pytest.raises(KeyboardInterrupt, match="0 of 1 cells"):
            run_cells([TINY], tmp_path / "cut", sequences=50, workers=1)
    monkeypatch.setattr(loop.Ensemble, "step", interrupted)
    (resumed,) = run_cells([TINY], tmp_path / "cut", sequences=50, workers=1)
    assert plain(resumed.evaluation) == plain(whole.evaluation)
    assert [path.suffix for path in (tmp_path / "cut").iterdir()] == [".nc"]


@pytest.mark.parametrize(
    "inputs",
    [
        {"within_class_noise": 0.5},
        {"inputs": "fixed_vocabulary", "shared_direction": 0.25, "test_direction": "drawn"},
    ],
)
def test_every_option_reaches_the_experiment(tmp_path, inputs):
    task = {"items": 6, "dimension": 12, "classes": 50, "labels": 5, "burstiness": 3}
    task |= {"middle": 2, "embedding": "deviation"} | inputs
    steps = {"batch": 8, "learning_rate": 0.002, "weight_decay": 0.01, "precision": "float32"}
    others = {"mask": "window=5", "positional": "rope", "depth": 1, "answers": "first,last", "networks": 1}
    others |= {"effort": "2e1", "sequences": 30, "threads": 1}
    options = (task | steps | others).items()
    words = [word for name, value in options for word in (f"--{name.replace('_', '-')}", value)]
    answer = json.loads(called("train", *words, "--no-residual", "--out", "o", "--json", cwd=tmp_path).stdout)
    network = Network(1, False, SlidingWindow(5), ENCODINGS["rope"])
    expected = Experiment(RetrievalTask(**task, answers=(0, 5)), network, (0,), 20, **steps)
    assert decode(Experiment, answer["experiment"]) == expected
    assert answer["gaps"]["first-middle"]["items"] == [0, 2]
    assert Path(answer["file"]).parent == Path("o")


@pytest.fixture(autouse=True)
def _write_at_every_iteration(monkeypatch):
    monkeypatch.setattr(loop, "PATIENCE", 0.0)
    monkeypatch.setattr(checkpoints, "LEAST", 0.0)


@pytest.fixture(scope="module")
def uninterrupted():
    """The training without an interruption."""
    return train(JOB, threads=1)


def bits(trained):
    """All that was trained, to the bit, but for what it cost."""
    return [plain(dataclasses.replace(one, cost={})) for one in trained]


def interrupted(checkpoint, at, job=JOB):
    """Train until iteration `at`, and stop."""
    with pytest.raises(KeyboardInterrupt):
        train(job, checkpoint=checkpoint, threads=1, on_event=Heard(stop=at))


@pytest.mark.parametrize("at", [1, 12, 30])
def test_resumed_results_are_bit_identical(uninterrupted, tmp_path, at):
    checkpoint = tmp_path / "job.npz"
    interrupted(checkpoint, at)
    heard = Heard()
    assert bits(train(JOB, checkpoint=checkpoint, threads=1, on_event=heard)) == bits(uninterrupted)
    assert heard == list(range(at + 1, 31))
    assert {path.name for path in tmp_path.iterdir()} == {"job.npz", "job.log.jsonl"}


def test_a_worker_that_is_asked_to_end_keeps_the_iteration_that_was_reached(
    uninterrupted, tmp_path, monkeypatch
):
    """By the SIGTERM that a stopped engine sends."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "support"))
    checkpoint, before, heard = tmp_path / "job.npz", Heard(stop=9), Heard()
    with pytest.raises(KeyboardInterrupt):
        Processes(1).run(
            [Task(piecework.train_slowly, {"experiments": JOB, "checkpoint": str(checkpoint)})],
            lambda _, news: before(news),
        )
    assert bits(train(JOB, checkpoint=checkpoint, threads=1, on_event=heard)) == bits(uninterrupted)
    assert heard[0] > before[-1]
    assert heard == list(range(heard[0], 31))


def test_a_stopped_member_stays_stopped(tmp_path):
    job = [dataclasses.replace(JOB[0], learning_rate=1e30)]
    straight = train(job, threads=1)
    assert straight[0].stopped.keys() == {0, 1}
    interrupted(tmp_path / "job", 1, job)
    assert bits(train(job, checkpoint=tmp_path / "job", threads=1)) == bits(straight)
