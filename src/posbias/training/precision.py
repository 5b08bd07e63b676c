"""In what numbers matrices are multiplied while training; sums, weights and the optimiser are float32 throughout.

float32     as it is
tf32        on a GPU: factors rounded to 10 bits of mantissa
bfloat16    on a CPU where torch multiplies in it (AVX-512 BF16, AMX): factors rounded to 7 bits of mantissa

What is faster changes the numbers that are learnt, so it is part of an experiment. Tests are float32 always.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

import torch

from posbias.core.errors import InvalidValueError, shortened

Precision = Literal["float32", "tf32", "bfloat16"]


@contextmanager
def multiplying(precision: Precision, device: str) -> Iterator[None]:
    """Multiply matrices in this precision. Raises `InvalidValueError` where the device does not."""
    possible = precisions(device)
    if precision not in possible:
        raise InvalidValueError(
            f"precision: {shortened(precision)} given, one of {', '.join(possible)} needed on this {device}"
        )
    with _set(precision, device):
        yield


def precisions(device: str) -> list[Precision]:
    """The precisions in which a device multiplies faster or as well as in float32."""
    if torch.device(device).type == "cuda":
        return ["float32", "tf32"]
    return ["float32", "bfloat16"] if _rounds() else ["float32"]


@cache
def _rounds() -> bool:
    """Whether torch rounds factors to bfloat16 here when asked to: on some processors that could, it does not."""
    factor, made = torch.full((64, 64), 1 + 2**-10), []
    for precision in ("float32", "bfloat16"):
        with _set(precision, "cpu"):
            made.append(factor @ factor)
    return not torch.equal(*made)


@contextmanager
def _set(precision: Precision, device: str) -> Iterator[None]:
    backends: Any = torch.backends
    matmul = (backends.mkldnn if torch.device(device).type == "cpu" else backends.cuda).matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = {"float32": "ieee", "bfloat16": "bf16"}.get(precision, precision)
    try:
        yield
    finally:
        matmul.fp32_precision = before
