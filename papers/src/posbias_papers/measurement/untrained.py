"""Networks of random weights from a family's own configuration, at its depth and a fraction of its width.

Matrices are drawn wider by the root of that fraction and embeddings are not, so that every matrix, and every
update relative to the stream it is added to, is as large as at the full width.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from posbias.core.arguments import one_of, whole
from posbias.core.plugins import bundled
from posbias.measurement.models.cache import (
    REGISTERED,
    check_folder,
    check_name,
    model_folder,
)
from posbias.measurement.models.tiny.model import register

CONFIGS: dict[str, dict[str, int]] = {
    "gpt2": {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_inner": 3072},
    "qwen2": {
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "hidden_size": 896,
        "intermediate_size": 4864,
    },
}
"""The shapes of GPT-2 (124M) and Qwen2 (0.5B)."""
_WIDTHS = ("n_embd", "n_inner", "hidden_size", "intermediate_size")
_STANDARD_DEVIATION = 0.02
"""That of both families' weights."""
VOCABULARY = 2048
"""That of the tokenizer of the bundled models."""


def untrained(family: str, narrower: int, context: int, seed: int, *, positions: bool = True) -> Any:
    """A network of a family of `CONFIGS`, `narrower` times as narrow, in evaluation mode and float32.

    Without `positions` learned ones, or rotary frequencies, are zero; the same seed gives the same other weights.
    Raises `InvalidValueError` for another family or narrower < 1.
    """
    shape = CONFIGS[one_of("family", family, tuple(CONFIGS))]
    wide = whole("narrower", narrower, 1) ** 0.5
    sizes = {name: size // narrower if name in _WIDTHS else size for name, size in shape.items()}
    sizes |= {
        "vocab_size": VOCABULARY,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "max_position_embeddings": context,
    }
    options = {"initializer_range": _STANDARD_DEVIATION * wide, "tie_word_embeddings": True}
    config = AutoConfig.for_model(family, **sizes, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", trust_remote_code=False
        ).eval()
    with torch.no_grad():
        model.get_input_embeddings().weight.div_(wide)
        if family == "gpt2":
            model.transformer.wpe.weight.mul_(positions / wide)
        elif not positions:
            model.model.rotary_emb.inv_freq.zero_()
    return model


def untrained_like(name: str, seed: int) -> Any:
    """A network of random weights from the configuration of a model that is here, and drawn as that says.

    `name` is one that `posbias models` lists; evaluation mode, float32. The same seed gives the same weights.
    Raises `ModelError` for another name, or one whose files are not here.
    """
    check_name(name)
    register()
    folder = folder_of(name)
    check_folder(folder)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="eager", trust_remote_code=False
        ).eval()


def folder_of(name: str) -> Path:
    """Where the files of a model lie that `posbias models` lists, its tokenizer's among them."""
    return model_folder(name) if name in REGISTERED else bundled()[name]
