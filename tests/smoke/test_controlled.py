"""Controlled cases: LayerNorm's recency by simulation, small networks that retrieve."""

from pathlib import Path

import pytest
import torch
from command import SMALL_TASK
from heard import Heard

import posbias
from posbias.training import read_experiments

SMALL = "seeds = [0, 1]\niterations = 60\nbatch = 16\nevaluate_every = 20" + SMALL_TASK
WORDS = ("--sequences", 50, "--threads", 1)


def recency(answer):
    return {row["layer"]: (row["value"], row["se"]) for row in answer["recency_probability"]}


@pytest.mark.parametrize(("engine", "samples"), [("gram", 20_000), ("token_space", 5000)])
def test_recency_probabilities(engine, samples, answered):
    """Kim et al. 2026, Section 3: .638 in layer 2 at d = 16, α = .5; one half in layer 1."""
    probabilities = recency(answered("simulate", "layernorm", "--effort", samples, "--engine", engine))
    for layer, expected in ((1, 0.5), (2, 0.6382)):
        value, error = probabilities[layer]
        assert abs(value - expected) < 4 * error


def test_until_a_standard_error(answered):
    answer = answered("simulate", "layernorm", "--until-se", 0.002, "--layers", 2)
    assert all(error <= 0.002 for _, error in recency(answer).values())


def test_a_cell_of_networks(answered):
    Path("one.toml").write_text(SMALL)
    answer = answered("train", "one.toml", *WORDS, "--out", "kept")
    assert answer["gaps"].keys() == {"first-middle", "first-last", "middle-last"}
    assert len(answer["in_context_accuracy"]["members"]) == 2


def test_a_sweep_whose_finished_cells_are_not_trained_again(answered):
    Path("sweep.toml").write_text(SMALL + "[sweep]\nnetwork.depth = [1, 2]\n")
    first = answered("train", "sweep.toml", *WORDS, "--out", "kept")
    files = {path: path.stat().st_mtime_ns for path in Path("kept").rglob("*.nc")}
    again = answered("train", "sweep.toml", *WORDS, "--out", "kept")
    assert len(first["cells"]) == len(again["cells"]) == 2
    assert files == {path: path.stat().st_mtime_ns for path in Path("kept").rglob("*.nc")}


def test_an_interrupted_training_ends_with_the_same_weights(folder):
    Path("one.toml").write_text(SMALL)
    ((experiment,), _) = read_experiments("one.toml")
    whole = posbias.train(experiment, threads=1)
    with pytest.raises(KeyboardInterrupt):
        posbias.train(experiment, threads=1, checkpoint=folder / "c.safetensors", on_event=Heard(stop=40))
    resumed = posbias.train(experiment, threads=1, checkpoint=folder / "c.safetensors")
    assert all(torch.equal(resumed.weights[name], weight) for name, weight in whole.weights.items())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_cuda(answered):
    Path("one.toml").write_text(SMALL)
    assert answered("train", "one.toml", *WORDS, "--device", "cuda", "--out", "kept")["loss"]["value"] > 0
