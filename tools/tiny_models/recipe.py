"""What every encoding's training has in common: sizes, schedule, first weights, order of the text, loss.

Step s of every encoding sees the same windows: each epoch cuts the text at one random offset into windows and
shuffles them, as a function of seed and epoch alone. Every weight is drawn from a stream named after it, so
the weights that two encodings share begin equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from posbias.core import machine
from posbias.core.errors import InputFileError, InvalidValueError
from posbias.measurement.models.tiny import TinyConfig, TinyForCausalLM


@dataclass(frozen=True)
class Training:
    """All that decides a training; the rate rises over `warmup` steps, then falls linearly to nought.

    `window` is the width of the encoding of that name. Raises `InvalidValueError` for counts below one.
    """

    encoding: str = "alibi"
    steps: int = 1500
    batch: int = 8
    context: int = 256
    vocabulary: int = 2048
    hidden: int = 128
    perceptron: int = 384
    layers: int = 6
    heads: int = 8
    window: int = 64
    rate: float = 3e-3
    warmup: int = 100
    betas: tuple[float, float] = (0.9, 0.95)
    decay: float = 0.1
    clip: float = 1.0
    seed: int = 0
    log_every: int = 50

    def __post_init__(self):
        for name in ("steps", "batch", "context", "warmup", "log_every"):
            if getattr(self, name) < 1:
                raise InvalidValueError(f"{name}: expected an integer ≥ 1, got {getattr(self, name)}")

    def config(self) -> TinyConfig:
        """The model's configuration. Raises `InvalidValueError` for sizes that do not fit."""
        return TinyConfig(
            encoding=self.encoding,
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.perceptron,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            max_position_embeddings=self.context,
            sliding_window=self.window if self.encoding == "window" else None,
        )

    def rate_at(self, step: int) -> float:
        """Learning rate of step `step` (0-based)."""
        rising = (step + 1) / self.warmup
        falling = (self.steps - step) / max(self.steps - self.warmup, 1)
        return self.rate * min(rising, falling, 1.0)


def fresh_model(training: Training) -> TinyForCausalLM:
    """The model before training: each matrix drawn from a stream named after it, so shared weights are equal.

    Variance 1 / columns; the maps that write to the stream are divided by √(2 · layers).
    """
    model = TinyForCausalLM(training.config())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                writes = "o_proj" in name or "down_proj" in name
                deviation = (weight.shape[1] * (2 * training.layers if writes else 1)) ** -0.5
                drawn = machine.stream(training.seed, f"tiny {name}").standard_normal(tuple(weight.shape))
                weight.copy_(torch.from_numpy(deviation * drawn))
    return model


def batches(ids: Int[np.ndarray, "position"], training: Training) -> Iterator[Int[Tensor, "batch position"]]:
    """Windows of context + 1 tokens by step; what step s sees depends on the seed and s alone.

    Raises `InputFileError` for a text shorter than one batch.
    """
    length = training.context + 1
    per_epoch = (ids.size - length) // training.context // training.batch
    if per_epoch < 1:
        raise InputFileError(
            f"text: expected at least {length + training.batch * training.context} tokens, got {ids.size}"
        )
    epoch, starts = -1, np.empty(0, dtype=np.int64)
    for step in range(training.steps):
        if step // per_epoch != epoch:
            epoch = step // per_epoch
            order = np.random.default_rng(machine.sequence(training.seed, "tiny windows", epoch))
            offset = order.integers(training.context)
            starts = offset + training.context * order.permutation(per_epoch * training.batch)
        place = step % per_epoch
        chosen = starts[place * training.batch : (place + 1) * training.batch]
        yield torch.from_numpy(ids[chosen[:, None] + np.arange(length)])


def loss_of(model: TinyForCausalLM, windows: Int[Tensor, "batch position"]) -> Tensor:
    """Mean cross-entropy, in nats, of each window's tokens but the first given those before."""
    # inputs and targets apart: a slice of the logits would be copied
    logits = model(windows[:, :-1]).logits
    return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(
    model: TinyForCausalLM, ids: Int[np.ndarray, "position"], limit: int | None = None
) -> float:
    """Mean cross-entropy over the text's windows that do not overlap, the first `limit` of them (None: all)."""
    windows = _held_out(model, ids, limit)
    return sum(float(loss_of(model, part)) * len(part) for part in windows.split(8)) / len(windows)


def _held_out(
    model: TinyForCausalLM, ids: Int[np.ndarray, "position"], limit: int | None
) -> Int[Tensor, "window position"]:
    """The text's windows that do not overlap, of context + 1 tokens, the first `limit` of them."""
    context = model.config.max_position_embeddings
    count = min((ids.size - 1) // context, limit or ids.size)
    starts = context * np.arange(count)
    return torch.from_numpy(ids[starts[:, None] + np.arange(context + 1)])
