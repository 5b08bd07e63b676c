"""What a GGUF file says of positions and masks, brought to transformers' configuration, which drops much of it.

    angles = take_over(Path("model.gguf"), config)   # raises for a key that is not understood
    check_angles(model, angles, "model.gguf")

llama.cpp turns pair k of a head by position · base^(−2k/size) / f_k, and multiplies cosine and sine by a gain. The
divisors f_k are a factor (linear), a blend of 1 and a factor (YaRN), the tensor `rope_freqs.weight` (which holds
Llama 3's scaling), or one of `rope_factors_long` and `rope_factors_short`. LongRoPE of transformers divides by any
list, so each scaling is handed over as one. Other keys on positions, windows, masks and logits of attention are
taken over, or say what the configuration does, or are refused by name.
"""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from transformers.modeling_gguf_pytorch_utils import read_field

from posbias.core.errors import ModelError, is_integer, shortened
from posbias.measurement.models.families import family_for

_CONCERNS = re.compile(
    r"rope[._](?!scaling\.finetuned)|\battention\.(?!head_count|layer_norm)|attn_logit|alibi|window|causal|position|"
    r"rel_b|sinks"
)
"""Keys and tensors on positions, masks and logits of attention."""
Angles = Float[np.ndarray, "pair"]
_TRAINED = "original_max_position_embeddings"


def take_over(path: Path, config: Any) -> Angles | None:
    """Change a configuration to what its GGUF file says; return the angles per token, None where none are said.

    Of layers with settings of their own the angles are those of full attention, of LongRoPE those of short texts.
    Raises `ModelError` for a key or a tensor that has no place in the configuration.
    """
    import gguf

    reader, held = gguf.GGUFReader(path), config.to_dict()
    [architecture] = read_field(reader, "general.architecture")
    prefix = f"{architecture}."
    keys = [key for key in reader.fields if key.startswith(prefix) and _CONCERNS.search(key)]
    values = {key.removeprefix(prefix): read_field(reader, key) for key in keys}
    said: dict[str, Any] = {key: value[0] if len(value) == 1 else value for key, value in values.items()}
    said |= {tensor.name: tensor.data for tensor in reader.tensors if _CONCERNS.search(tensor.name)}
    local = held.get("head_dim") or config.hidden_size // config.num_attention_heads
    # heads of full attention may have a size of their own (Gemma 4)
    size = max([local, *(one.get("head_dim", 0) for one in (held.get("per_layer_config") or {}).values())])
    slides = [kind != "full_attention" for kind in held.get("layer_types") or []]
    pattern: Any = said.get("attention.sliding_window_pattern")
    # every so many layers one sees all, or layer by layer
    if is_integer(pattern) and pattern > 0 and slides == [(k + 1) % pattern != 0 for k in range(len(slides))]:
        del said["attention.sliding_window_pattern"]
    right: dict[str, Any] = {
        **{"attention.key_length": size, "attention.value_length": size},
        **{"attention.key_length_swa": local, "attention.value_length_swa": local},
        "rope.dimension_count_swa": local,
        **{"attention.sliding_window": 0, "attention.sliding_window_pattern": slides},
        **{"attention.causal": True, "rope.scaling.yarn_ext_factor": 1.0},
        "attention.shared_kv_layers": held.get("num_kv_shared_layers"),
        "attention.max_alibi_bias": 8.0 if held["model_type"] == "bloom" else None,
        "attn_logit_softcapping": held.get("attn_logit_softcapping"),
    }
    # a width that layers read, and none, where a family's default is not this model's
    if "sliding_window" in held and any(slides or [True]):
        width = said.pop("attention.sliding_window", held["sliding_window"] if slides else 0)
        config.sliding_window = width or None
    angles = _rotation(said, config, size) if held.get("rope_parameters") else None
    family = family_for(config)
    has = {"attn_sinks": family.sinks, "position_embd": family.positional == "learned"}
    for key, value in said.items():
        tensor = isinstance(value, np.ndarray)
        if not (any(name in key and has[name] for name in has) if tensor else value == right.get(key)):
            given = "a tensor" if tensor else shortened(value)
            raise ModelError(
                f"model: {path.name} says {key} ({given}), which {family.model_type} does not take"
            )
    return angles


def _rotation(said: dict[str, Any], config: Any, size: int) -> Angles | None:
    """Take rotary positions out of what is said, into the settings of all layers or those of full attention."""

    def take(key: str, default: Any) -> Any:
        return said.pop(f"rope.{key}", default)

    full = config.rope_parameters.get("full_attention", config.rope_parameters)
    local = config.rope_parameters.get("sliding_attention", full)
    full["rope_theta"] = base = take("freq_base", full["rope_theta"])
    if local is not full or said.get("rope.freq_base_swa") == base:
        local["rope_theta"] = take("freq_base_swa", local["rope_theta"])
    share = 1.0 if full["rope_type"] == "proportional" else full.get("partial_rotary_factor", 1.0)
    turned = take("dimension_count", int(size * share))
    if turned != int(size * share):
        full["partial_rotary_factor"] = turned / size
    angles = base ** -(np.arange(turned // 2) * 2.0 / turned)
    if not any(re.match(r"rope_|rope\.scal", key) for key in said):
        return angles if full["rope_type"] == "default" else None
    # as llama.cpp reads them: a factor is linear unless a type is named, and 0 is none
    kind, factor = take("scaling.type", "linear"), take("scaling.factor", 0) or take("scale_linear", 0) or 1.0
    trained = take("scaling.original_context_length", config.max_position_embeddings)
    gain = take("scaling.attn_factor", 1.0) * take("scaling.yarn_attn_factor", 1.0)
    divisors = np.full(angles.size, 1.0 if kind == "none" else factor)
    if kind == "yarn":
        turns = np.array([take("scaling.yarn_beta_fast", 32.0), take("scaling.yarn_beta_slow", 1.0)])
        ends = turned * np.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))
        if full.get("truncate", True):
            ends = math.floor(ends[0]), math.ceil(ends[1])
        low, high = max(ends[0], 0), min(ends[1], turned - 1)
        blend = np.clip((np.arange(angles.size) - low) / max(high - low, 0.001), 0.0, 1.0)
        divisors, gain = 1.0 / (1.0 - blend + blend / factor), gain * (1.0 + 0.1 * math.log(factor))
    divisors = divisors * said.pop("rope_freqs.weight", 1.0)
    short, long = (divisors * said.pop(f"rope_factors_{text}.weight", 1.0) for text in ("short", "long"))
    if full["rope_type"] != "proportional":
        for key in full.keys() - {"rope_theta", "partial_rotary_factor"}:
            del full[key]
        full |= {"rope_type": "longrope", "short_factor": short.tolist(), "long_factor": long.tolist()}
        full |= {"factor": 1.0, "attention_factor": gain, _TRAINED: trained}
        if hasattr(config, _TRAINED):
            setattr(config, _TRAINED, trained)
    return angles / short


def check_angles(model: Any, angles: Angles, name: str) -> None:
    """Raise `ModelError` where a loaded model turns by other angles than its file says."""
    for key, buffer in model.named_buffers():
        if key.endswith("inv_freq") and not re.search("original|sliding", key):
            own = buffer.double().cpu().numpy()
            if own.shape != angles.shape or not np.allclose(own, angles, rtol=1e-5, atol=1e-12):
                raise ModelError(
                    f"model: {name} says other rotary angles than {type(model).__name__} has ({key})"
                )
