"""`posbias.encodings`: every positional encoding, and the rotary positions that a model's own file states.

rotary_of(config)             # angles and gain, from the contents of a config.json
rope_of(config, amplitudes)   # the encoding that has them, with amplitudes that are measured or chosen
"""

import math
from collections.abc import Mapping
from typing import Any

from posbias.theory.huggingface import rotation, rotation_of_family
from posbias.theory.positional import *  # noqa: F403
from posbias.theory.positional import RoPE
from posbias.theory.rope_scaling import Rotary, plain_angles


def rotary_of(config: Mapping[str, Any], layer_type: str | None = None) -> Rotary:
    """Angles and gain of the rotary positions of a Hugging Face model, from the contents of its `config.json`.

    `layer_type` is a word of `layer_types` ("full_attention"), needed where types of layers differ. They are the
    `inv_freq` and `attention_scaling` of the model's rotary embedding in transformers, for a text within the
    trained length; what the file leaves out is the default of the family's class. Raises `InvalidValueError` for a
    family or a type of layers that does not rotate, keys that are wrong, and scalings that are not known.
    """
    base, dimension, scaling = rotation_of_family(config, layer_type)
    if scaling is None:
        return Rotary(plain_angles(base, dimension), 1.0)
    return Rotary(scaling.angles_of(base, dimension), math.sqrt(scaling.gain))


def rope_of(
    config: Mapping[str, Any], amplitudes: Any, phases: Any = ((0.0,),), *, layer_type: str | None = None
) -> RoPE:
    """The `RoPE` of a configuration, with amplitudes and phases that are given: no configuration holds them.

    `config` and `layer_type` as in `rotary_of`, but no family fills in what is left out. DeepSeek's factor on all
    logits (`mscale_all_dim`) is a `Layer.temperature`, and not read. Raises `InvalidValueError` for keys that are
    missing or wrong and for a scaling that has no class here.
    """
    base, dimension, scaling = rotation(config, layer_type)
    return RoPE(amplitudes, phases, base, dimension, scaling=scaling)
