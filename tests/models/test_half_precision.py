"""Models in half precision: masks hide after scores are upcast, and ALiBi is seen as what it is."""

import numpy as np
import pytest
import torch
from tiny import seen_layers, tiny_model

from posbias.measurement import load_model, measure
from posbias.measurement.quantities.attention import hidden
from posbias.measurement.selfchecks import selfcheck
from posbias_papers.herasimchyk2026.levels import curves_of, slopes_of

IDS = torch.arange(3, 35).flip(0).roll(5)


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


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
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
