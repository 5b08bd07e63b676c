"""`posbias.encodings`: every positional encoding, and what a model's own file says of its rotation."""

from collections.abc import Mapping
from typing import Any

from posbias.theory.distance import (
    T5,
    DenseLogits,
    DistanceFunction,
    KerpleLog,
    KerplePower,
    RoPE,
    Tabulated,
)
from posbias.theory.huggingface import rotary
from posbias.theory.positional import (
    POSITIONALS,
    ALiBi,
    DecayBias,
    NeedsMeasurement,
    NoPE,
    Positional,
    Rotary,
    alibi_slopes,
)
from posbias.theory.sandwich import Sandwich
from posbias.theory.selection import Selected

__all__ = [
    "POSITIONALS",
    "T5",
    "ALiBi",
    "DecayBias",
    "DenseLogits",
    "DistanceFunction",
    "KerpleLog",
    "KerplePower",
    "NeedsMeasurement",
    "NoPE",
    "Positional",
    "RoPE",
    "Rotary",
    "Sandwich",
    "Selected",
    "Tabulated",
    "alibi_slopes",
    "rotary_of",
]


def rotary_of(config: Mapping[str, Any], layer_type: str | None = None) -> Rotary:
    """Angles and gain of the rotary positions of a Hugging Face model, from the contents of its `config.json`.

    `layer_type` is a word of `layer_types` ("full_attention"), needed where types of layers differ. They are the
    `inv_freq` and `attention_scaling` of the model's rotary embedding in transformers, for a text within the
    trained length; what the file leaves out is the default of the family's class. Raises `InvalidValueError` for a
    family or a type of layers that does not rotate, keys that are wrong, and scalings that are not known.
    """
    return rotary(dict(config), layer_type)
