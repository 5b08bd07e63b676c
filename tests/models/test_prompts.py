"""Prompts are disjoint windows of the text, drawn by the seed alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.errors import InputFileError
from posbias.measure import prompts_from
from posbias.measure.text import Text, read_text


def letters(text, **_):
    """Characters as tokens: enough of a tokenizer for cutting."""
    return {"input_ids": [ord(letter) for letter in text]}


@given(st.text(st.characters(codec="ascii"), min_size=4, max_size=60), st.integers(2, 6), st.data())
def test_prompts_are_disjoint_windows(content, tokens, data):
    windows = len(content) // tokens
    text = Text("letters", content, "")
    if windows == 0:
        with pytest.raises(InputFileError, match="shorter than one prompt"):
            prompts_from(letters, text, tokens=tokens, prompts=1, seed=0)
        return
    prompts = data.draw(st.integers(1, windows))
    drawn = prompts_from(letters, text, tokens=tokens, prompts=prompts, seed=data.draw(st.integers(0, 99)))
    assert drawn.ids.shape == (prompts, tokens)
    assert len(set(drawn.starts.tolist())) == prompts
    for ids, start in zip(drawn.ids, drawn.starts, strict=True):
        assert start % tokens == 0
        assert "".join(map(chr, ids)) == content[start : start + tokens]


def test_another_seed_draws_other_prompts_and_the_same_seed_the_same(tiny):
    text = read_text(None)
    draws = [prompts_from(tiny.tokenizer, text, tokens=16, prompts=8, seed=seed).starts for seed in (4, 4, 5)]
    assert (draws[0] == draws[1]).all()
    assert not np.array_equal(draws[0], draws[2])


def test_no_special_tokens_are_added(tiny, text):
    source = read_text(text)
    drawn = prompts_from(tiny.tokenizer, source, tokens=200, prompts=1, seed=0)
    assert tiny.tokenizer.convert_ids_to_tokens(drawn.ids[0]) == source.content.split()
