"""What differs between model families, as a table.

The capture itself needs no model name (see `capture.py`). What does: where the decoder layers stand, which
modules make queries, keys, values and outputs, and which norm precedes attention. A family is one row
here. A model of an unknown family is refused, with the lines to add; it is never guessed at.
"""

from dataclasses import dataclass
from typing import Any

from posbias.errors import ModelError, nearest


@dataclass(frozen=True)
class Family:
    """Where a family of models keeps its parts; names are dotted paths of modules or attributes.

    `layers`, `rotary` start at the model, `norm`, `attention` at a layer, the others at the attention module
    (`epsilon` at the norm). The norm must be an RMS norm y = g · x / √(mean(x²) + ε) with gain `weight`, and
    positions must enter by rotating the outputs of `query` and `key`.
    """

    model_type: str
    layers: str
    rotary: str
    norm: str
    epsilon: str
    attention: str
    query: str
    key: str
    value: str
    output: str
    scaling: str


_ROWS = (
    Family(
        model_type="llama",
        layers="model.layers",
        rotary="model.rotary_emb",
        norm="input_layernorm",
        epsilon="variance_epsilon",
        attention="self_attn",
        query="q_proj",
        key="k_proj",
        value="v_proj",
        output="o_proj",
        scaling="scaling",
    ),
)
FAMILIES = {row.model_type: row for row in _ROWS}


def family_of(model_type: str) -> Family:
    """Return the row for a Hugging Face `model_type`. Raises `ModelError` for a family not in the table."""
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    fields = ", ".join(f"{name}=…" for name in Family.__dataclass_fields__ if name != "model_type")
    raise ModelError(
        f"model: family {model_type!r} is not known, known: {', '.join(FAMILIES)}"
        f"{nearest(model_type, FAMILIES)}; "
        f"to add it, add to posbias/measure/families.py: Family(model_type={model_type!r}, {fields})"
    )


def part(root: Any, path: str) -> Any:
    """Return the part of a module at a dotted `path`. Raises `ModelError` when it is not there."""
    here = root
    for name in path.split("."):
        here = getattr(here, name, None)
        if here is None:
            raise ModelError(
                f"model: {type(root).__name__} has no part {path!r}, its family's table row says so"
            )
    return here


def decoder_layers(model: Any, family: Family) -> list[Any]:
    """Return the decoder layers, bottom first. Raises `ModelError` when there are none or another number."""
    layers = list(part(model, family.layers))
    depth = model.config.num_hidden_layers
    if not layers or len(layers) != depth:
        raise ModelError(
            f"model: {len(layers)} decoder layers found at {family.layers!r}, the configuration "
            f"says {depth}; a model with at least one decoder layer is needed"
        )
    return layers
