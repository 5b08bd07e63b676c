"""Refusing what cannot fit, before it is tried.

A measurement's memory is known from its sizes: two sets of float64 means (the running one and the current
prompt's), what autograd keeps for one backward pass, and the buffers of one layer's reductions.
"""

from posbias import memory


def bytes_needed(config, tokens: int, dense_logits: bool) -> int:
    """Return an estimate of the memory, in bytes, that measuring takes beside the loaded weights."""
    depth, heads, hidden = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    square = tokens * tokens
    means = 2 * depth * square * 8 * (2 + (heads if dense_logits else 0))
    # per layer: the attention, about sixteen vectors of hidden size and five of the MLP's
    inner = getattr(config, "intermediate_size", 4 * hidden)
    kept = depth * (heads * square + tokens * (16 * hidden + 5 * inner)) * 4
    outputs = 4 * tokens * config.vocab_size * 4
    one_layer = 12 * heads * square * 4
    return means + kept + outputs + one_layer


def check_memory(config, tokens: int, dense_logits: bool) -> None:
    """Raise `InvalidValueError` when a measurement would need more memory than is available."""
    given = f"{tokens} with dense_logits" if dense_logits else str(tokens)
    memory.require(bytes_needed(config, tokens, dense_logits), "tokens", given)
