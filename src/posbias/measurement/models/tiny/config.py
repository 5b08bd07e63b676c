"""Sizes and encoding of the small decoders: the configuration, and ALiBi's slopes.

`encoding` is the one field in which the family's members differ; `model` says what each does.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedConfig

from posbias.core.arguments import one_of, shortened
from posbias.core.errors import InvalidValueError

ENCODINGS = ("alibi", "rope", "nope", "learned", "window")
"""The encodings, in the order they are trained."""


class TinyConfig(PreTrainedConfig):
    """Sizes and encoding of a `TinyForCausalLM`; every field is one of Hugging Face's usual names but two.

    `encoding`: one of `ENCODINGS`. `sliding_window`: keys seen by each query, for `window` alone, else None.
    Raises `InvalidValueError` for an unknown encoding, a width without a window or a window without a width,
    and heads that do not divide the hidden size.
    """

    model_type = "posbias_tiny"

    def __init__(
        self,
        encoding: str = "alibi",
        vocab_size: int = 2048,
        hidden_size: int = 128,
        intermediate_size: int = 384,
        num_hidden_layers: int = 6,
        num_attention_heads: int = 8,
        max_position_embeddings: int = 256,
        sliding_window: int | None = None,
        rope_theta: float = 10_000.0,
        rms_norm_eps: float = 1e-6,
        tie_word_embeddings: bool = True,
        **kwargs: Any,
    ):
        one_of("encoding", encoding, ENCODINGS)
        if (encoding == "window") != isinstance(sliding_window, int) or sliding_window == 0:
            raise InvalidValueError(
                f"sliding_window: {shortened(sliding_window)} given "
                f"with encoding {encoding!r}; an integer ≥ 1 needed "
                "with 'window', None with any other"
            )
        if hidden_size % (2 * num_attention_heads):
            raise InvalidValueError(
                f"num_attention_heads: {num_attention_heads} given, a divisor of hidden_size / 2 = "
                f"{hidden_size / 2:g} needed"
            )
        self.encoding = encoding
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.head_dim = hidden_size // num_attention_heads
        self.max_position_embeddings = max_position_embeddings
        self.sliding_window = sliding_window
        self.rope_theta = rope_theta
        self.rms_norm_eps = rms_norm_eps
        self.use_cache = False
        # transformers takes any field by name
        super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)  # pyright: ignore[reportCallIssue]


def alibi_slopes(heads: int) -> Float[Tensor, "head"]:
    """Slopes 2^(−8 (h+1) / heads), for any number of heads (Press et al. 2022, Section 3)."""
    return 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
