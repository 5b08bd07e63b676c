"""In what numbers matrices are multiplied while training; sums, weights and the optimiser are float32 throughout.

float32     as it is
tf32        on a GPU: factors rounded to 10 bits of mantissa
bfloat16    on a CPU that multiplies it (AVX-512 BF16, AMX): factors rounded to 7 bits of mantissa

What is faster changes the numbers that are learnt, so it is part of an experiment. Tests are float32 always.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError

Precision = Literal["float32", "tf32", "bfloat16"]


@contextmanager
def multiplying(precision: Precision, device: str) -> Iterator[None]:
    """Multiply matrices in this precision. Raises `InvalidValueError` where the device does not."""
    possible = precisions(device)
    if precision not in possible:
        raise InvalidValueError(
            f"precision: {shortened(precision)} given, one of {', '.join(possible)} needed on this {device}"
        )
    backends: Any = torch.backends
    matmul = (backends.mkldnn if torch.device(device).type == "cpu" else backends.cuda).matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = {"float32": "ieee", "bfloat16": "bf16"}.get(precision, precision)
    try:
        yield
    finally:
        matmul.fp32_precision = before


def precisions(device: str) -> list[Precision]:
    """The precisions in which a device multiplies faster or as well as in float32."""
    if torch.device(device).type == "cuda":
        return ["float32", "tf32"]
    bfloat16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return ["float32", "bfloat16"] if bfloat16 else ["float32"]
