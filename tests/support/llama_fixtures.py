"""Fixtures: tiny Llama models with a real tokenizer, and texts for them, in milliseconds."""

import random

import pytest
import torch
from small_llama import WORDS, llama, word_tokenizer

from posbias.measurement import LoadedModel

# (torch may have been imported before OMP_NUM_THREADS was set)
torch.set_num_threads(1)


@pytest.fixture
def build():
    """A function that builds a `LoadedModel` with the configuration's fields changed."""
    return lambda **changes: LoadedModel.of(llama(**changes), word_tokenizer(), "tiny")


@pytest.fixture
def tiny(build):
    return build()


@pytest.fixture
def text(tmp_path):
    """A text of 200 words."""
    path = tmp_path / "words.txt"
    path.write_text(" ".join(random.Random(5).choices(WORDS, k=200)), encoding="utf-8")
    return path


@pytest.fixture
def folder(tiny, tmp_path):
    """The tiny model as a folder in Hugging Face's layout."""
    path = tmp_path / "tiny-llama"
    tiny.model.save_pretrained(path)
    tiny.tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def ids():
    """One prompt of 12 tokens."""
    return torch.tensor(random.Random(8).choices(range(1, 51), k=12))
