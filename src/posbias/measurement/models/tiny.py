"""A small decoder whose encoding of positions is one field, and nothing else differs.

Pre-norm layers, RMS norms, a GELU perceptron, tied embeddings: the ordinary decoder of its day, written as a
Hugging Face model so that whatever measures one measures this. The encodings, for query i and key j ≤ i:

- `alibi`: −m_h (i − j) added to the scaled logits, m_h = 2^(−8 (h+1) / heads) (Press et al. 2022);
- `nope`: nothing: only the causal mask tells positions apart;
- `rope`: queries and keys rotated by position (Su et al. 2024), base 10,000;
- `learned`: a trained vector for each position added to the token's embedding;
- `window`: `rope`, and only the last `window` keys, the query's own among them, are seen.

Attention is plain torch: `eager` through a softmax, `sdpa` through torch's fused function. There is no cache.
"""

from collections import OrderedDict
from typing import Any

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput

from posbias.core.errors import one_of, shortened, wrong

ENCODINGS = ("alibi", "rope", "nope", "learned", "window")
"""The encodings, in the order they are trained."""


class TinyConfig(PreTrainedConfig):
    """Sizes and encoding of a `TinyForCausalLM`; every field is one of Hugging Face's usual names but two.

    `encoding`: one of `ENCODINGS`. `sliding_window`: keys seen by each query, for `window` alone, else None.
    Raises `InvalidValueError` for an unknown encoding, a width without a window or a window without a width,
    and heads that do not divide the hidden size.
    """

    model_type = "posbias_tiny"

    encoding: str = "alibi"
    vocab_size: int = 2048
    hidden_size: int = 128
    intermediate_size: int = 384
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    max_position_embeddings: int = 256
    sliding_window: int | None = None
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = True
    use_cache: bool = False

    def __post_init__(self, **kwargs: Any):
        one_of("encoding", self.encoding, ENCODINGS)
        window, heads = self.sliding_window, self.num_attention_heads
        if (self.encoding == "window") != isinstance(window, int) or window == 0:
            what = "an integer ≥ 1 with encoding 'window', None with any other"
            raise wrong("sliding_window", what, got=f"{shortened(window)} with {self.encoding!r}")
        if self.hidden_size % (2 * heads):
            half = f"hidden_size / 2 = {self.hidden_size / 2:g}"
            raise wrong("num_attention_heads", f"a divisor of {half}", heads)
        self.head_dim = self.hidden_size // heads
        # transformers takes any field by name
        super().__post_init__(**kwargs)


def alibi_slopes(heads: int) -> Float[Tensor, "head"]:
    """Slopes 2^(−8 (h+1) / heads), for any number of heads (Press et al. 2022, Section 3)."""
    return 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)


class Rotary(nn.Module):
    """Cosine and sine of position × frequency, frequencies base^(−2c / head_dim), halves as in Llama."""

    def __init__(self, config: TinyConfig):
        super().__init__()
        self._base, self._channels = config.rope_theta, config.head_dim

    def forward(self, like: Tensor, position_ids: Num[Tensor, "batch position"]) -> tuple[Tensor, Tensor]:
        """Return cos and sin [batch, position, channel], in the dtype of `like`."""
        precise = {"dtype": torch.promote_types(like.dtype, torch.float32), "device": like.device}
        exponent = torch.arange(0, self._channels, 2, **precise) / self._channels
        angle = position_ids[..., None].to(**precise) * self._base**-exponent
        angle = torch.cat([angle, angle], dim=-1)
        return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate [batch, head, position, channel] by angles of cos and sin [batch, position, channel]."""
    first, second = states.chunk(2, dim=-1)
    return states * cos[:, None] + torch.cat([-second, first], dim=-1) * sin[:, None]


class TinyAttention(nn.Module):
    """Multi-head attention; `forward` returns its output [batch, position, hidden] and, eager, the weights."""

    def __init__(self, config: TinyConfig):
        super().__init__()
        size = config.hidden_size
        self.config = config
        self.head_dim, self.scaling = config.head_dim, config.head_dim**-0.5
        self.q_proj = nn.Linear(size, size, bias=False)
        self.k_proj = nn.Linear(size, size, bias=False)
        self.v_proj = nn.Linear(size, size, bias=False)
        self.o_proj = nn.Linear(size, size, bias=False)

    def forward(
        self,
        hidden_states: Float[Tensor, "batch position hidden"],
        attention_mask: Tensor | None = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """`attention_mask` is added to the scaled logits (None: causal and no bias), [1 or batch, head, i, j]."""
        query, key, value = (
            linear(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        if position_embeddings is not None:
            query, key = rotate(query, *position_embeddings), rotate(key, *position_embeddings)
        if output_attentions or self.config._attn_implementation == "eager":
            logits = query @ key.transpose(-1, -2) * self.scaling + attention_mask
            weights = functional.softmax(logits, dim=-1)
            out = weights @ value
        else:
            weights = None
            out = functional.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=attention_mask,
                is_causal=attention_mask is None,
                scale=self.scaling,
            )
        return self.o_proj(out.transpose(1, 2).flatten(2)), weights


class TinyDecoderLayer(GradientCheckpointingLayer):
    """Attention and perceptron, each after a norm and added to the stream."""

    def __init__(self, config: TinyConfig):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = TinyAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        up = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        down = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.mlp = nn.Sequential(OrderedDict(up_proj=up, gelu=nn.GELU(), down_proj=down))

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """Return the stream [batch, position, hidden] after this layer, and the attention weights or None."""
        update, weights = self.self_attn(self.input_layernorm(hidden_states), **kwargs)
        hidden_states = hidden_states + update
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states)), weights


class TinyPreTrainedModel(PreTrainedModel):
    """What transformers wants to know of the family."""

    config: TinyConfig
    config_class = TinyConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["TinyDecoderLayer"]  # noqa: RUF012

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        """transformers guesses this from the source; here the configuration is read at every pass."""
        return True

    def _init_weights(self, module: nn.Module) -> None:
        """Matrices of variance 1 / columns, gains 1; training draws its own (`train.fresh_model`)."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
        elif isinstance(module, nn.RMSNorm):
            nn.init.ones_(module.weight)


class TinyModel(TinyPreTrainedModel):
    """The decoder without the last linear map."""

    def __init__(self, config: TinyConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        if config.encoding == "learned":
            self.embed_positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.layers = nn.ModuleList(TinyDecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = Rotary(config) if config.encoding in ("rope", "window") else None
        self.post_init()

    def forward(
        self,
        input_ids: Int[Tensor, "batch position"] | None = None,
        attention_mask: Int[Tensor, "batch position"] | None = None,
        position_ids: Int[Tensor, "batch position"] | None = None,
        inputs_embeds: Float[Tensor, "batch position hidden"] | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """As any Hugging Face decoder; positions are 0-based, `attention_mask` is 1 at tokens, 0 at padding.

        Raises `InvalidValueError` for a position beyond the learned ones, and unless exactly one of `input_ids`
        and `inputs_embeds` is given.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise wrong("input_ids, inputs_embeds", "exactly one of the two", got="both or none")
        stream = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        tokens = stream.shape[1]
        if position_ids is None:
            position_ids = torch.arange(tokens, device=stream.device)[None]
        if self.config.encoding == "learned":
            last, most = int(position_ids.max()), self.config.max_position_embeddings - 1
            if last > most:
                what = f"at most {most + 1} tokens (learned positions)"
                raise wrong("input_ids", what, got=f"position {last}")
            stream = stream + self.embed_positions(position_ids)
        eager = output_attentions or self.config._attn_implementation == "eager"
        bias = attention_bias(self.config, stream, attention_mask, needed=bool(eager))
        rotary = None if self.rotary_emb is None else self.rotary_emb(stream, position_ids)
        attentions = []
        for layer in self.layers:
            stream, weights = layer(
                stream,
                attention_mask=bias,
                position_embeddings=rotary,
                output_attentions=bool(output_attentions),
            )
            attentions.append(weights)
        attentions = tuple(attentions) if output_attentions else None
        return BaseModelOutput(last_hidden_state=self.norm(stream), attentions=attentions)


def attention_bias(
    config: TinyConfig, stream: Tensor, padding: Int[Tensor, "batch position"] | None, needed: bool
) -> Float[Tensor, "#batch #head query key"] | None:
    """What is added to the scaled logits: ALiBi, and the dtype's lowest number where nothing may be seen.

    None where the causal mask alone would do and it is not `needed` as a tensor.
    """
    if not needed and padding is None and config.encoding not in ("alibi", "window"):
        return None
    tokens = stream.shape[1]
    place = torch.arange(tokens, device=stream.device)
    distance = place[:, None] - place
    hidden = ((distance < 0) | (distance >= (config.sliding_window or tokens)))[None, None]
    if padding is not None:
        hidden = hidden | (padding[:, None, None, :] == 0)
    bias = torch.zeros((), dtype=stream.dtype, device=stream.device)
    if config.encoding == "alibi":
        slopes = alibi_slopes(config.num_attention_heads).to(stream)
        bias = -slopes[:, None, None] * distance
    return torch.where(hidden, torch.finfo(stream.dtype).min, bias)


class TinyForCausalLM(TinyPreTrainedModel):
    """The decoder and its tied output map."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: TinyConfig):
        super().__init__(config)
        self.model = TinyModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Int[Tensor, "batch position"] | None = None,
        labels: Int[Tensor, "batch position"] | None = None,
        logits_to_keep: int = 0,
        **kwargs: Any,
    ) -> CausalLMOutput:
        """Logits [batch, position, token].

        `labels`: the tokens of which the loss is given, each predicted from those before it (-100: none), as by
        any model of transformers. `logits_to_keep`: only that many last positions (0: all). Other arguments as
        `TinyModel.forward`.
        """
        out = self.model(input_ids, **kwargs)
        logits = self.lm_head(out.last_hidden_state[:, -logits_to_keep:])
        loss = None if labels is None else self.loss_function(logits, labels, self.config.vocab_size)
        return CausalLMOutput(loss=loss, logits=logits, attentions=out.attentions)


def register() -> None:
    """Let `AutoConfig` and `AutoModelForCausalLM` know the family; calling it again does nothing."""
    AutoConfig.register(TinyConfig.model_type, TinyConfig, exist_ok=True)
    AutoModelForCausalLM.register(TinyConfig, TinyForCausalLM, exist_ok=True)
