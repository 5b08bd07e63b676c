"""Tiny random models of every family, as `LoadedModel`s with a real tokenizer; shared by the tests here."""

import hashlib

from small_llama import word_tokenizer
from specimens import specimen, variants

from posbias.measurement.capture.forward import Capture
from posbias.measurement.models.families import FAMILIES
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.quantities.influence import predict

CASES = [(name, number) for name in FAMILIES for number in range(variants(name))]
"""Every family in the table with the number of each of its tiny models."""
RUNS = [(name, number, attention) for name, number in CASES for attention in FAMILIES[name].attention]
"""The same with every attention implementation that its row calls right."""


def tiny_model(family="llama", number=0, attention=None, **changes):
    """A tiny model of a family in the attention implementation asked for (default: its row's first)."""
    model = specimen(family, number, attention, **changes)
    name = f"tiny-{family}"
    checksum = hashlib.sha256(f"{name} {number} {sorted(changes.items())}".encode()).hexdigest()
    return LoadedModel(model, word_tokenizer(), FAMILIES[family], name, checksum)


def seen_layers(loaded, ids):
    """What the capture sees of every layer in one pass over `ids`."""
    layers = []
    with Capture(loaded.model, loaded.family, layers.append):
        predict(loaded.model, ids)
    return layers
