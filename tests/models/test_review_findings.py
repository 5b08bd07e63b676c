"""What a review found wrong once: prompts counted twice, half precision, models that look both ways."""

import threading
from copy import deepcopy

import numpy as np
import pytest
import torch
import transformers
from tiny import seen_layers, tiny_model

from posbias.errors import InvalidValueError, ModelError
from posbias.measure import LoadedModel, load_model, measure
from posbias.measure.accumulate import State
from posbias.measure.content import hidden
from posbias.measure.proof import selfcheck
from posbias.measure.sharing import Group
from posbias.measure.streaming import Stream
from posbias.papers.herasimchyk2026.cells import Effort, check
from posbias.papers.herasimchyk2026.levels import curves_of, slopes_of
from posbias.predictors import predictions

IDS = torch.arange(3, 35).flip(0).roll(5)


class _Meter:
    """Measures a prompt's own number, and is interrupted at one of them."""

    economy = None

    def __init__(self, stop):
        self._stop = stop

    def measure(self, ids, prompt, target):
        if int(ids[0]) == self._stop:
            raise KeyboardInterrupt
        return {"mean": ids.astype(float)}, {"value": ids.astype(float)}


class _Drawn:
    ids = np.arange(8)[:, None]

    def place(self, index):
        return str(index)


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

        def merged(self, thing, merge):
            state = State()
            for one in deepcopy(self.exchange(thing)):
                state = merge(state, one)
            return state

    def work(rank):
        stream = Stream(
            _Meter(stops[rank]),
            _Drawn(),
            Together(rank, len(stops), rank),
            spare=lambda: None,
            target=None,
            progress=lambda done, total: None,
            say=lambda line: None,
        )
        try:
            answers[rank] = stream.run(path, "fingerprint")[0]
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
    path = tmp_path / "job.npz"
    assert _run(path, (4, 5)) is None
    for stops in between:
        assert _run(path, stops) is None
    state = _run(path, (None, None))
    assert state.column("index").tolist() == list(range(8))
    assert state.finished == 8
    np.testing.assert_allclose(state.means["mean"], 3.5)


@pytest.mark.parametrize(("family", "number"), [("mpt", 0), ("mpt", 1), ("gptj", 0), ("gpt2", 1)])
def test_a_half_precision_mask_hides_after_scores_are_upcast(family, number):
    loaded = tiny_model(family, number)
    loaded.model.to(torch.float16)
    later = torch.ones(len(IDS), len(IDS), dtype=torch.bool).triu(1)
    for seen in seen_layers(loaded, IDS):
        assert torch.equal(hidden(seen.logits), later)
        if seen.content is not None:
            assert torch.equal(hidden(seen.content.dense()[0]), later)
    selfcheck(loaded, IDS)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_an_alibi_model_in_half_precision_is_one(dtype):
    """The bias rounds with the logits: neither a wrong capture, nor another encoding, nor a learned sink."""
    measurement = measure(load_model("tiny-alibi", dtype=dtype), tokens=64, prompts=2)
    exact = slopes_of(measure(load_model("tiny-alibi"), tokens=64, prompts=2))
    slopes = slopes_of(measurement)
    assert slopes is not None
    np.testing.assert_allclose(slopes, exact, rtol=0.02)
    assert curves_of(measurement, "").remarks == ()
    for name in ("content_diagonal", "content_first_column"):
        measurement[name][0] = np.nan
    assert slopes_of(measurement) is None


def test_a_model_outside_the_table_that_looks_both_ways_is_refused(tiny, text):
    config = transformers.RobertaConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=80,
        attn_implementation="eager",
    )
    both = LoadedModel.of(transformers.RobertaForCausalLM(config), tiny.tokenizer, "both")
    assert not both.verified
    with pytest.raises(ModelError, match="both attends to later tokens"):
        measure(both, text=text, tokens=8, prompts=2)


def test_texts_of_one_name_would_be_one_column():
    effort = Effort("few", 2, 2)
    with pytest.raises(InvalidValueError, match=r"corpora: two texts are called x\.txt"):
        check(["tiny-alibi"], ["a/x.txt", None, "b/x.txt"], [16], effort)
    check(["tiny-alibi"], ["a/x.txt", "b/y.txt", "datasets:a/x.txt"], [16], effort)


def test_every_predictor_knows_a_sliding_window():
    """Keys beyond the window have no logit: they get no weight, and the report of a windowed model is written."""
    measurement = measure("tiny-window", tokens=96, prompts=2)
    found = predictions(measurement)
    assert len(found) == 5
    for key, profile in found.items():
        assert profile.mass.sum() == pytest.approx(1, abs=1e-9), key
    # one layer's reach is 63 tokens back: without the residual stream, too, six layers reach everything
    assert (found["attention_only"].mass > 0).all()
    single = measurement.isel(layer=[0])
    for key in ("attention_only", "positional", "fitted"):
        mass = predictions(single)[key].mass
        assert (mass[: 96 - 64] == 0).all(), key
        assert (mass[96 - 64 :] > 0).all(), key
