"""What a measurement will take, announced before it starts: memory from its sizes, time from one short prompt.

Memory is the sum of what is held at the same time: the sums over prompts and one prompt's share of them in
float64, what the backward pass needs of the forward pass, the outputs, and the buffers of one layer. Only what was
asked for by head grows with layers × heads × tokens²; attention kept for the backward pass does too, unless it is
fused or layers are computed again, as they are in long prompts unless memory is ample. Of a model on a GPU the
sums stay in this machine's memory. SmolLM2 on a CPU took .95 to .98 times the announced memory at 256 and 1,024
tokens; at 2,048 with its layers remembered .91, computed again .5; at 8,192 so .78.
Time is that of a short prompt, scaled by multiplications; it is right within a factor of 3.
"""

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from posbias.core import machine
from posbias.measurement.job import MeasurementJob
from posbias.measurement.models.families import decoder_config
from posbias.measurement.models.formats import free_on, require_on
from posbias.measurement.prompt_meter import FUSED, PromptMeter
from posbias.measurement.quantities.attention import KERNEL_TOKENS, queries_at_once
from posbias.measurement.quantities.influence import BLOCK
from posbias.measurement.result import WHOLE_GRAPH

if TYPE_CHECKING:
    from posbias.measurement.models.loading import LoadedModel

_CPU = torch.device("cpu")
_SHORT = 64
"""Tokens of the prompt that is timed."""
_HERE = ("program", "means")
"""Parts that lie in this machine's memory wherever the model is."""
_PROGRAM = 140 << 20
"""Code and buffers that the first prompt brings in."""
_COPIES = 14
"""Float32 copies of a block's logits that are alive at once while it is reduced, in float64 most of them."""
_DENSE_COPIES = 5
"""Of a layer's logits under eager attention: scores, masked scores, softmax, what the capture looks at."""
_NORMS, _OTHERS = 2, 7
"""Copies of the stream that a layer keeps for the backward pass: inputs of norms, in float32 at least, and
others."""
_STATES = 5
"""Copies of a layer's stream in float64 at once, while the norms of updates are taken."""
_INPUTS = 2
"""What stays of each recomputed layer, in copies of its input: that, and what fused attention gave."""
_LOSS = 8
"""Bytes for each output of a block while the loss is taken from it in float32."""
AMPLE = 0.8
"""What a process counts on of the free memory of a GPU. On a CPU it is multiplied by the share that its threads
have of the cores: other processes may begin at the same time, and a machine without memory left ends one."""
MARGIN = 1.1
"""For what no part names."""


@dataclass(frozen=True)
class Cost:
    """Estimated cost: `bytes` on top of the loaded weights at the peak, by `parts`, and `seconds` of measuring.

    `device` is the GPU that holds all but means and program, "" where there is none.
    """

    bytes: int
    seconds: float
    parts: dict[str, int]
    device: str = ""

    def lines(self) -> list[str]:
        """Return it in words."""
        minutes = f"about {self.seconds / 60:,.0f} minutes" if self.seconds >= 90 else f"{self.seconds:.0f} s"
        there = {name: size for name, size in self.parts.items() if self.device and name not in _HERE}
        here = {name: size for name, size in self.parts.items() if name not in there}
        lines = [_listed("", here), f"time: {minutes}"]
        return [_listed(f" on {self.device}", there), *lines] if there else lines


def estimate_cost(loaded: "LoadedModel", job: MeasurementJob) -> Cost:
    """Return what measuring `job` on a loaded model will take; measures one short prompt.

    `seconds` are of one process and of the speed that the machine has at this moment.
    """
    config, parts = decoder_config(loaded.model.config), announced(loaded, job)
    short = min(job.tokens, _SHORT)
    ids = torch.arange(short) % config.vocab_size
    meter = PromptMeter(loaded, replace(job, tokens=short), ids)
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        meter.measure(ids.numpy(), "the prompt that is timed")
        seconds.append(time.perf_counter() - begin)
    weights = sum(weight.numel() for weight in loaded.model.parameters())
    pairs = 2 * config.num_hidden_layers * config.hidden_size
    longer = job.tokens / short
    scale = job.prompts * longer * (weights + pairs * job.tokens) / (weights + pairs * short)
    scale *= longer if "outputs" in job.influences else 1.0  # a pass for each
    return Cost(sum(parts.values()), min(seconds) * scale, parts, ", ".join(map(str, loaded.accelerators)))


def recomputes(loaded: "LoadedModel", job: MeasurementJob) -> bool:
    """Whether layers are to be computed again in the backward pass.

    So it is above `KERNEL_TOKENS` tokens, but where remembering every layer fits what `AMPLE` says.
    """
    if job.tokens <= KERNEL_TOKENS or not WHOLE_GRAPH.isdisjoint(job.influences):
        return False
    device, *_ = loaded.accelerators or [_CPU]
    share = min(1.0, torch.get_num_threads() / machine.cores()) if device == _CPU else 1.0
    free = free_on(device)
    return free is None or sum(announced(loaded, job, recompute=False).values()) > AMPLE * share * free


def memory_parts(
    config: Any,
    job: MeasurementJob,
    recompute: bool = False,
    dtype: torch.dtype | None = None,
    device: torch.device = _CPU,
) -> dict[str, int]:
    """Return an estimate of the memory, in bytes on top of the loaded weights, that measuring takes, by parts.

    `config` is that of the model's language part. `recompute`: whether layers are computed again in the backward
    pass. `dtype` is that of weights and activations, by default the
    configuration's; `device` is the one that computes.
    """
    tokens, square = job.tokens, job.tokens**2
    depth, heads, hidden = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    each = (dtype or getattr(config, "dtype", None) or torch.float32).itemsize
    single = max(each, 4)
    by_head = heads * square * (2 * job.dense_logits + job.head_kernels)
    halved = 10 * heads * tokens + (2 * square if tokens <= KERNEL_TOKENS else 0)
    graph = tokens * (single * _NORMS * hidden + each * (_OTHERS * hidden + 3 * inner))
    layer = max(
        _COPIES * 4 * heads * tokens * queries_at_once(heads, tokens, device),
        8 * (_STATES * tokens * hidden + 2 * hidden * hidden),
    )
    if getattr(config, "_attn_implementation", "eager") != "sdpa":
        # the softmax keeps what it made in float32, the product with the values what that was rounded to
        graph += (single + (each if each < single else 0)) * heads * square
        layer += 4 * _DENSE_COPIES * heads * square
    outputs = BLOCK * (_LOSS + each) if tokens > FUSED else each * tokens + max(each * tokens, BLOCK * _LOSS)
    parts = {
        "program": _PROGRAM,
        # sums and the prompt at hand; even and odd prompts are summed apart
        "means": 8 * depth * (min(job.prompts, 3) * halved + min(job.prompts, 2) * by_head),
        "graph": graph + _INPUTS * depth * each * tokens * hidden if recompute else depth * graph,
        "outputs": config.vocab_size * outputs,
        "one layer": layer,
    }
    return {name: int(MARGIN * size) for name, size in parts.items()}


def check_memory(loaded: "LoadedModel", job: MeasurementJob) -> None:
    """Raise `InvalidValueError` when a measurement would need more memory than is free, here or on the GPU.

    Of a model on several GPUs only this machine's part is checked.
    """
    by_head = [name for name in ("dense_logits", "head_kernels") if getattr(job, name)]
    given = f"{job.tokens} with {' and '.join(by_head)}" if by_head else str(job.tokens)
    parts, places = announced(loaded, job), loaded.accelerators
    total, here = sum(parts.values()), sum(parts[name] for name in _HERE)
    machine.require(here if places else total, "tokens", given)
    if len(places) == 1:
        require_on(places[0], total - here, "tokens", given)


def announced(loaded: "LoadedModel", job: MeasurementJob, recompute: bool | None = None) -> dict[str, int]:
    """The `memory_parts` of measuring a loaded model, where it is; by default as `recomputes` says."""
    config, (device, *_) = decoder_config(loaded.model.config), loaded.accelerators or [_CPU]
    again = recomputes(loaded, job) if recompute is None else recompute
    return memory_parts(config, job, again, loaded.model.dtype, device)


def _listed(where: str, parts: dict[str, int]) -> str:
    listed = ", ".join(f"{name} {_size(size)}" for name, size in parts.items())
    return f"memory: about {_size(sum(parts.values()))}{where} on top of the weights ({listed})"


def _size(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"
