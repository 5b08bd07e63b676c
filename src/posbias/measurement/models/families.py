"""What cannot be inferred about model families, as a table (families.toml).

The capture finds layers, attention, scale, positions and the update itself (see `capture/`). A row says what no
look at one forward pass can tell: which attention implementations transformers computes correctly for the family,
what kind of position encoding it is to expect, and known defects. Tests prove every row on a tiny model of it. A
family without a row gets `generic`, and has to prove itself each time.
"""

import functools
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from posbias.core import packages
from posbias.core.errors import ModelError, wrong
from posbias.core.files import data_table


@dataclass(frozen=True)
class Gains:
    """Where a plain layer keeps what the energy rollout needs; dotted paths of modules from the layer.

    `norm` is an RMS norm before attention, y = g · x / √(mean(x²) + ε), with gain `weight`, its ε at `epsilon`;
    `value` and `output` are linear, and nothing else stands between the stream and the update.
    """

    norm: str = "input_layernorm"
    epsilon: str = "input_layernorm.variance_epsilon"
    value: str = "self_attn.v_proj"
    output: str = "self_attn.o_proj"


@dataclass(frozen=True)
class Family:
    """A family of models: what holds for it and cannot be seen from outside.

    `attention` lists the implementations that are right, the one to take by default first. `positional` is
    "rotary", "mixed" (rotary in some layers, nothing in others), "alibi", "learned", "none", several of these
    where `configured` has a key of the configuration and the kind for each of its values, or "inferred" for a
    family without a row. `rotation` is a dotted path, from the layer, of a table [sin | cos] where rotations do
    not arrive as an argument of the layer. `parallel`, `window`, `sinks` and `soft_cap` say what models of the
    family may have.
    """

    model_type: str
    positional: str = "rotary"
    attention: tuple[str, ...] = ("eager", "sdpa")
    causal: bool = True
    parallel: bool = False
    window: bool = False
    sinks: bool = False
    soft_cap: bool = False
    configured: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rotation: str | None = None
    gains: Gains | None = None
    defects: tuple[str, ...] = ()
    checked: bool = True

    def positional_kind(self, config: Any) -> str:
        """Return the position encoding of a model of this family with this configuration."""
        for key, kinds in self.configured.items():
            return kinds[str(getattr(config.get_text_config(), key)).lower()]
        return self.positional


_HELD = data_table(__file__)
_ROWS = {model_type: {"model_type": model_type} | row for model_type, row in _HELD["rows"].items()}
FAMILIES = TypeAdapter(dict[str, Family], config=ConfigDict(extra="forbid")).validate_python(_ROWS)
RECURRENCES = {family: name for name, families in _HELD["recurrences"].items() for family in families}
"""Families → the function of transformers that their layers without a softmax call (`capture/recurrences.py`)."""
MISREAD: dict[str, str] = _HELD["misread"]
"""What is right and may still be misread, of families where it is so."""


def generic(model_type: str) -> Family:
    """Return a row that assumes nothing, for a family not in the table: each use must pass the self-check."""
    return Family(model_type, "inferred", checked=False)


def family_for(config: Any) -> Family:
    """Return the family's row for a model's configuration, a generic one when it is not in the table.

    The row of a family that another package brings is not proven. Raises `PluginError` for what is no row.
    """
    model_type = config.get_text_config().model_type
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    found = packages.family(model_type)
    if found is None or found.capture is None:
        return generic(model_type)
    if not isinstance(found.capture, Family):
        what = f"capture of {model_type}: expected a row Family(…), got a {type(found.capture).__name__}"
        raise packages.failed(found.package, what)
    return replace(found.capture, model_type=model_type, checked=False)


def part(root: Any, path: str) -> Any:
    """Return the part of a module at a dotted `path`. Raises `ModelError` when it is not there."""
    found = functools.reduce(lambda here, name: getattr(here, name, None), path.split("."), root)
    if found is None:
        raise ModelError(f"model: {type(root).__name__} has no part {path!r}, its family's table row says so")
    return found


def decoder_config(config: Any) -> Any:
    """Return the text part of a configuration, of a decoder taken out of a pair with the decoder's own sizes."""
    text = config.get_text_config()
    depth = getattr(text, "decoder_layers", None)
    if not getattr(text, "is_decoder", False) or depth is None:
        return text
    text = copy(text)
    text.num_hidden_layers, text.num_attention_heads = depth, text.decoder_attention_heads
    return text


def decoder_layers(model: Any) -> list[Any]:
    """Return the layers, bottom first: the list of modules as long as the configuration's depth.

    Of several such lists the one with most parameters. Raises `ModelError` when there is none.
    """
    from torch import nn

    depth = getattr(decoder_config(model.config), "num_hidden_layers", 0)
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    right = [layers for layers in lists if len(layers) == depth >= 1]
    if not right:
        what = f"a list of {depth} decoder layers (one at least), as the configuration says"
        got = f"lists of {sorted({len(layers) for layers in lists})} modules"
        raise wrong("model", what, got=got, kind=ModelError)
    return list(max(right, key=lambda layers: sum(weight.numel() for weight in layers.parameters())))


def embedding_table(model: Any) -> Any:
    """Return a model's input embeddings [token, channel]. Raises `ModelError` when it looks none up in a table."""
    table = getattr(model.get_input_embeddings(), "weight", None)
    if table is None:
        what = "a model that looks up embeddings of tokens"
        raise wrong("model", what, got=type(model).__name__, kind=ModelError)
    return table


def adds_to_stream(family: Family, config: Any) -> bool:
    """Whether a layer's output is its input plus what attention and the feed-forward block write, and no more.

    Not where a norm comes after the addition, as in BERT and some models of OPT, or stands in the place of the
    input, as in some of Bloom; of a family without a row nobody knows.
    """
    text = config.get_text_config()
    normed = not getattr(text, "do_layer_norm_before", True)
    normed |= not family.causal or getattr(text, "apply_residual_connection_post_layernorm", False)
    return family.checked and not normed
