"""What the smoke tests share: one tiny measurement, one tiny retrieval."""

import random

import pytest
from answers import answered, folder  # noqa: F401
from tiny import WORDS, llama, word_tokenizer

import posbias


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    """The file of a measurement of two layers of tiny-alibi: 8 prompts of 32 tokens."""
    path = tmp_path_factory.mktemp("smoke") / "tiny.nc"
    found = posbias.measure("tiny-alibi", tokens=32, prompts=8).isel(layer=slice(0, 2))
    posbias.save_measurement(found, path)
    return path


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory):
    """A random Llama of three layers with a tokenizer of words, in a folder, and a text in the same place."""

    folder = tmp_path_factory.mktemp("smoke") / "llama"
    llama().save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    (folder / "words.txt").write_text(" ".join(random.Random(5).choices(WORDS, k=400)), encoding="utf-8")
    return folder
