"""Encodings under control: what is shown of a model is what was measured and what plain loops predict."""

import json

import numpy as np
import pytest
import torch

from posbias.core.errors import InvalidValueError
from posbias.measurement import load_model, measure
from posbias_papers.encodings import MODELS, encoding_of, make

pytest.importorskip("matplotlib")
TOKENS = 40


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def measured():
    return {name: measure(load_model(f"tiny-{name}"), tokens=TOKENS, prompts=4) for name in ("alibi", "nope")}


def rollout(logits, allowed, mixing):
    """Influence on the last token from one head's worth of logits [head, query, key], layer by layer."""
    kernel = np.where(allowed, np.exp(logits - logits.max(-1, keepdims=True)), 0.0)
    kernel = (kernel / kernel.sum(-1, keepdims=True)).mean(0)
    row = np.eye(TOKENS)[-1]
    for share in mixing[::-1]:
        row = (1 - share) * row + share * row @ kernel
    return row


def test_predictions_are_rollouts_of_each_architecture(measured):
    place = np.arange(TOKENS)
    distance = place[:, None] - place
    slopes = 2.0 ** -np.arange(1, 9)
    cases = {
        "alibi": (-slopes[:, None, None] * np.abs(distance), distance >= 0),
        "nope": (np.zeros((8, TOKENS, TOKENS)), distance >= 0),
    }
    for name, (logits, allowed) in cases.items():
        shown = encoding_of(measured[name])
        mixing = measured[name]["mixing"].values.mean(0)
        for letter, shares in (("a", np.ones_like(mixing)), ("b", mixing)):
            expected = rollout(logits, allowed, shares)
            # measured slopes are read off float32 logits
            assert np.abs(shown.curves.levels[letter].mass - expected).max() < 2e-5
        assert np.array_equal(shown.mixing, measured[name]["mixing"].values)
        raw = measured[name]["influence"].values.mean(0)
        assert np.allclose(shown.curves.influence.mass, raw / raw.sum(), rtol=1e-12)


def test_mixing_is_that_of_the_tensors_themselves(measured):
    from posbias.measurement import prompts_from, read_text

    loaded = load_model("tiny-nope")
    prompts = prompts_from(loaded.tokenizer, read_text(None), tokens=TOKENS, prompts=4, seed=0)
    seen = {}
    for index, layer in enumerate(loaded.model.model.layers):
        layer.self_attn.register_forward_hook(lambda _, __, out, at=index: seen.update({at: out[0]}))
    for row, ids in enumerate(prompts.ids):
        states = loaded.model(torch.from_numpy(ids)[None], output_hidden_states=True).hidden_states
        for layer in range(6):
            update, stream = (float(one.double().norm()) for one in (seen[layer], states[layer]))
            found = float(measured["nope"]["mixing"][row, layer])
            assert abs(found - update / (stream + update)) < 1e-6


@pytest.mark.slow
def test_the_figure_is_made_once_and_found_again(tmp_path):
    models, events = [MODELS[0], MODELS[1]], []
    made = make(tmp_path, models=models, prompts=3, tokens=TOKENS, on_event=events.append)
    assert sorted(path.suffix for path in made.written) == [".json", ".md", ".png", ".svg"]
    data = json.loads((tmp_path / "encodings.json").read_text(encoding="utf-8"))
    assert [one["model"] for one in data["models"]] == models
    assert len(data["models"][0]["mixing"]) == 6
    assert [len(claim["effects"]) for claim in data["claims"]] == [2, 2, 2]
    assert [block.caption.split()[0] for block in made.page.tables] == ["Measured", "Spearman", "Wasserstein"]
    assert all([row[0] for row in block.rows] == models for block in made.page.tables)
    drawn = (tmp_path / "encodings.svg").read_bytes()
    assert events[-1].done == events[-1].total
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    make(tmp_path, models=models, prompts=3, tokens=TOKENS)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()} == stamps
    assert (tmp_path / "encodings.svg").read_bytes() == drawn


def test_what_cannot_be_measured_is_refused(tmp_path):
    with pytest.raises(InvalidValueError, match="prompts: 1 given"):
        make(tmp_path, prompts=1)
    with pytest.raises(InvalidValueError, match="models: none given"):
        make(tmp_path, models=[])
