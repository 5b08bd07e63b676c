"""Refusing what cannot fit, before it is tried.

A measurement's memory is known from its sizes: two sets of float64 means (the running one and the current
prompt's), what autograd keeps for one backward pass, and the buffers of one layer's reductions.
"""

import os
from pathlib import Path

from posbias.errors import InvalidValueError

_GIB = 1 << 30


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
    needed, available = bytes_needed(config, tokens, dense_logits), available_bytes()
    if available is not None and needed > available:
        with_dense = " with dense_logits" if dense_logits else ""
        raise InvalidValueError(
            f"tokens: {tokens} given, measuring that{with_dense} needs about {needed / _GIB:.1f} GiB of "
            f"memory, {available / _GIB:.1f} GiB are available; give fewer tokens"
            f"{' or leave dense_logits out' * dense_logits}"
        )


def available_bytes() -> int | None:
    """Return the memory this process may still take, in bytes; None where the system does not say."""
    limits = [_free_of_the_machine(), _free_of_the_group()]
    return min((limit for limit in limits if limit is not None), default=None)


def _free_of_the_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _free_of_the_group() -> int | None:
    """What a container's control group (version 2) still allows."""
    group = Path("/sys/fs/cgroup")
    try:
        most = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        return None if most == "max" else max(0, int(most) - used)
    except (OSError, ValueError):
        return None
