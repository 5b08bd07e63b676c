"""What a measurement will take, told before it starts: memory from its sizes, time from one short prompt.

Memory is the sum of what is held at the same time: the state and one sample in float64, what the backward pass
needs of the forward pass, the outputs, and the buffers of one layer. Only what was asked for by head grows with
layers × heads × tokens²; attention kept for the backward pass does too, unless it is fused or layers are
computed again. In half precision not all is half: norms and softmax keep float32 for the backward pass, and sums
are taken in float32 and float64. Of a model on a GPU the means stay in this machine's memory. Time is that of a
short forward pass, scaled by multiplications, and of the statistics of one small layer, scaled by its attention
weights. Announced memory was 1.08 to 1.36 times what 1 to 3 prompts of SmolLM2 took on a CPU at 256 to 4,096
tokens in float32, 1.2 to 1.35 times in bfloat16 at 256 to 1,024; time is right within a factor of 3.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from posbias.core import memory
from posbias.measurement.capture.forward import SeenLayer
from posbias.measurement.capture.scores import Factored
from posbias.measurement.job import Request
from posbias.measurement.models.device_placement import require_on
from posbias.measurement.models.families import decoder_config
from posbias.measurement.prompt_meter import FUSED, KERNEL_TOKENS, layer_means, queries_at_once
from posbias.measurement.quantities.influence import BLOCK

if TYPE_CHECKING:
    from posbias.measurement.models.loading import LoadedModel

_CPU = torch.device("cpu")
_SHORT = 64
_BACKWARD = 1.3
"""A backward pass to the embeddings, in forward passes: gradients to weights are off."""
_COPIES = 14
"""Float32 copies of a block's logits that are alive at once while it is reduced, in float64 most of them."""
_DENSE_COPIES = 5
"""Of a layer's logits under eager attention: scores, masked scores, softmax, what the capture looks at."""


_PROGRAM = 140 << 20
"""Code and buffers that the first prompt brings in."""
_NORMS = 2
"""Of the states that a layer keeps for the backward pass: inputs of norms, which compute in float32 at least."""
_STATES = 5
"""Copies of a layer's states in float64 at once, while the norms of updates are taken."""
_LOSS = 8
"""Bytes for each output of a block while the loss is taken from it in float32."""
_HERE = ("program", "means")
"""Parts that lie in this machine's memory wherever the model is."""
_KEPT_BACK = 3
"""What the allocator keeps of each recomputed layer between the inputs that stay, in inputs."""
MARGIN = 1.12
"""For what no part names."""


@dataclass(frozen=True)
class Cost:
    """Estimated cost: `bytes` beside the loaded weights at the peak, by `parts`, and `seconds` of measuring.

    `device` is the GPU that holds all but means and program, "" where there is none.
    """

    bytes: int
    seconds: float
    parts: dict[str, int]
    device: str = ""

    def lines(self) -> list[str]:
        """Return what to tell a person."""
        minutes = f"about {self.seconds / 60:,.0f} minutes" if self.seconds >= 90 else f"{self.seconds:.0f} s"
        there = {name: size for name, size in self.parts.items() if self.device and name not in _HERE}
        here = {name: size for name, size in self.parts.items() if name not in there}
        lines = [_told("", here), f"time: {minutes}"]
        return [_told(f" on {self.device}", there), *lines] if there else lines


def estimate_cost(loaded: "LoadedModel", request: Request) -> Cost:
    """Return what measuring `request` on a loaded model will take; runs the model on one short prompt.

    `seconds` are of one process and of the speed that the machine has at this moment.
    """
    parts = _parts(loaded, request)
    seconds = request.prompts * _seconds(loaded, request)
    return Cost(sum(parts.values()), seconds, parts, ", ".join(map(str, loaded.accelerators)))


def _parts(loaded: "LoadedModel", request: Request) -> dict[str, int]:
    device, *_ = loaded.accelerators or [_CPU]
    config = decoder_config(loaded.model.config)
    return memory_parts(config, request, dtype=loaded.model.dtype, device=device)


def memory_parts(
    config: Any,
    request: Request,
    recompute: bool | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device = _CPU,
) -> dict[str, int]:
    """Return an estimate of the memory, in bytes beside the loaded weights, that measuring takes, by parts.

    `config` is that of the model's language part. `recompute`: whether layers are computed again in the backward
    pass, by default above `KERNEL_TOKENS` tokens. `dtype` is that of weights and activations, by default the
    configuration's; `device` is the one that computes.
    """
    tokens = request.tokens
    remembered = tokens <= KERNEL_TOKENS or "outputs" in request.influences
    recompute = not remembered if recompute is None else recompute
    depth, heads, hidden = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    eager = getattr(config, "_attn_implementation", "eager") != "sdpa"
    each = (dtype or getattr(config, "dtype", None) or torch.float32).itemsize
    single = max(each, 4)
    square, inner = tokens * tokens, getattr(config, "intermediate_size", None) or 4 * hidden
    one_graph = tokens * (single * _NORMS * hidden + each * ((9 - _NORMS) * hidden + 3 * inner))
    if eager:
        # the softmax keeps what it made in float32, the product with the values what that was rounded to
        one_graph += (single + (each if each < single else 0)) * heads * square
    block = 4 * heads * tokens * queries_at_once(heads, tokens, device)
    states = 8 * (_STATES * tokens * hidden + 2 * hidden * hidden)
    inputs = (1 + _KEPT_BACK) * depth * each * tokens * hidden
    said, some = each * tokens, BLOCK * (_LOSS + (each if tokens > FUSED else 0))
    parts = {
        "program": _PROGRAM,
        "means": 8 * depth * _kept(heads, request),
        "graph": one_graph + inputs if recompute else depth * one_graph,
        "outputs": config.vocab_size * (some if tokens > FUSED else said + max(said, some)),
        "one layer": max(_COPIES * block, states) + (4 * _DENSE_COPIES * heads * square if eager else 0),
    }
    return {name: int(MARGIN * size) for name, size in parts.items()}


def _kept(heads: int, request: Request) -> int:
    """Numbers of a state and a sample, for each layer."""
    tokens, square = request.tokens, request.tokens**2
    kernels = 7 * square if tokens <= KERNEL_TOKENS else 0
    by_head = 2 * square * heads * (2 * request.dense_logits + request.head_kernels)
    return kernels + by_head + 2 * 10 * heads * tokens


def check_memory(loaded: "LoadedModel", request: Request) -> None:
    """Raise `InvalidValueError` when a measurement would need more memory than is free, here or on the GPU.

    Of a model on several GPUs only this machine's part is checked.
    """
    by_head = [name for name in ("dense_logits", "head_kernels") if getattr(request, name)]
    given = f"{request.tokens} with {' and '.join(by_head)}" if by_head else str(request.tokens)
    parts, places = _parts(loaded, request), loaded.accelerators
    total, here = sum(parts.values()), sum(parts[name] for name in _HERE)
    memory.require(here if places else total, "tokens", given)
    if len(places) == 1:
        require_on(places[0], total - here, "tokens", given)


def _seconds(loaded: "LoadedModel", request: Request) -> float:
    """Seconds for one prompt."""
    model, config, tokens = loaded.model, decoder_config(loaded.model.config), request.tokens
    short = min(tokens, _SHORT)
    forward = _forward(model, config, short) * _products(model, config, tokens)
    forward /= _products(model, config, short)
    backward = 1 + sum(kind in request.influences for kind in ("logit", "target"))
    every = tokens if "outputs" in request.influences else 0
    again = tokens > KERNEL_TOKENS and not every
    pairs = config.num_hidden_layers * config.num_attention_heads * tokens**2
    statistics = pairs * _seconds_a_pair(config, loaded.device) * (1.5 if request.rollouts else 1.0)
    return forward * (1 + (backward + every) * (_BACKWARD + again)) + statistics


def _products(model: Any, config: Any, tokens: int) -> float:
    """Multiplications of a forward pass: every weight once a token, every pair twice a channel."""
    embedding = model.get_input_embeddings().weight.numel()
    tied = getattr(config, "tie_word_embeddings", False)
    weights = sum(weight.numel() for weight in model.parameters()) - (0 if tied else embedding)
    return tokens * (weights + 2 * tokens * config.num_hidden_layers * config.hidden_size)


def _forward(model: Any, config: Any, tokens: int) -> float:
    device = model.get_input_embeddings().weight.device
    ids = torch.arange(tokens, device="cpu" if device.type == "meta" else device)[None] % config.vocab_size
    with torch.no_grad():
        return _timed(lambda: float(model(input_ids=ids, use_cache=False).logits[0, -1, 0]))


def _seconds_a_pair(config: Any, device: torch.device) -> float:
    """Seconds of one layer's statistics for each query, key and head, where the model computes."""
    tokens, heads = 4 * _SHORT, config.num_attention_heads
    query = torch.linspace(-1, 1, heads * tokens * 8, device=device).reshape(heads, tokens, 8)
    scores, stream = Factored(query, query, 1.0, causal=True), torch.ones(tokens, 1, device=device)
    layer = SeenLayer(0, stream, stream, scores, scores)
    return _timed(lambda: layer_means(layer, Request())) / (heads * tokens**2)


def _timed(work: Any) -> float:
    """The quicker of two runs after a first one."""
    work()
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def _told(where: str, parts: dict[str, int]) -> str:
    told = ", ".join(f"{name} {_size(size)}" for name, size in parts.items())
    return f"memory: about {_size(sum(parts.values()))}{where} beside the weights ({told})"


def _size(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"
