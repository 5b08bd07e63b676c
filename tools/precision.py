"""How far a measurement in another precision, or on another device, is from float32 on the CPU.

python tools/precision.py                                            the table of docs/measurement.md
python tools/precision.py smollm2-135m --dtype bfloat16 float32 --device cuda --threads 8

The same prompts are measured twice. Shares of attention and λ are compared as they are, influence as profiles, the
loss in nats. The gradient influence is that of the most likely next token: where two are nearly as likely,
rounding may choose the other, and what is differentiated is another function. Such prompts are counted, and left
out of the comparison of single profiles, not of the mean. What the prompts alone make uncertain, two halves of
them in float32 against each other, stands beside.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr

from posbias.curves import spearman, wasserstein
from posbias.measurement import load_model, measure

MODELS = ("tiny-alibi", "tiny-nope", "tiny-rope", "tiny-learned", "tiny-window", "smollm2-135m")
LARGEST = ("mixing", "sink_share", "attention_received", "kernel")
"""Shares in [0, 1] whose largest difference, over prompts, layers, heads and positions, is told."""


LEAST = 1e-4
"""What float32 may be off by on another device, whose sums are taken in another order."""


def masses(influence: np.ndarray) -> np.ndarray:
    """Influence by prompt and position as shares of each prompt's whole."""
    return influence / influence.sum(axis=-1, keepdims=True)


def differences(exact: xr.Dataset, other: xr.Dataset) -> dict[str, float]:
    """What `other`, measured on the same prompts, is off by.

    Largest absolute differences of shares; of the influence of single prompts with the same next token the least
    Spearman correlation and the largest Wasserstein distance (as a share of the context), and the same of the mean
    profiles of all prompts; the mean and the largest difference of a prompt's loss in nats; the share of prompts
    with the same most likely next token.
    """
    found = {name: float(np.nanmax(abs(other[name].values - exact[name].values))) for name in LARGEST}
    one, two = (masses(each["influence"].values) for each in (exact, other))
    same = exact["next_token"].values == other["next_token"].values
    loss = other["loss"].values - exact["loss"].values
    return found | {
        "spearman_prompt": float(spearman(one[same], two[same]).min()),
        "wasserstein_prompt": float(wasserstein(one[same], two[same]).max()),
        "spearman_mean": float(spearman(one.mean(axis=0), two.mean(axis=0))),
        "wasserstein_mean": float(wasserstein(one.mean(axis=0), two.mean(axis=0))),
        "loss_mean": float(loss.mean()),
        "loss_largest": float(abs(loss).max()),
        "same_next_token": float(same.mean()),
    }


def beyond(off: dict[str, float], dtype: str, roundings: int) -> dict[str, float]:
    """Those of `differences` (shares, profiles of single prompts, loss) that are off by more than `roundings`.

    A rounding is 2⁻⁸ in bfloat16, 2⁻¹¹ in float16: the relative error of one number.
    """
    limit = max(LEAST, roundings * torch.finfo(getattr(torch, dtype)).eps / 2)
    held = {name: off[name] for name in (*LARGEST, "wasserstein_prompt", "loss_largest")}
    held["1 - spearman_prompt"] = 1 - off["spearman_prompt"]
    # written so that a NaN is over it
    return {name: value for name, value in held.items() if not value <= limit}


def halves(exact: xr.Dataset) -> tuple[float, float]:
    """Spearman and Wasserstein of the mean profiles of the even and of the odd prompts."""
    even, odd = (masses(exact["influence"].values[start::2]).mean(axis=0) for start in (0, 1))
    return float(spearman(even, odd)), float(wasserstein(even, odd))


def rows(
    model: str,
    dtypes: Sequence[str],
    device: str,
    *,
    tokens: int,
    prompts: int,
    threads: int,
    attention: str | None,
) -> list[str]:
    """The table's lines for one model."""
    asked: dict[str, Any] = {"tokens": tokens, "prompts": prompts, "threads": threads}
    exact = measure(load_model(model, attention=attention), **asked)
    rank, distance = halves(exact)
    lines = []
    for dtype in dtypes:
        other = measure(load_model(model, dtype=dtype, device=device, attention=attention), **asked)
        off = differences(exact, other)
        cells = [
            *(f"{off[name]:.1e}" for name in LARGEST),
            f"{off['spearman_prompt']:.4f} / {off['wasserstein_prompt']:.1e}",
            f"{off['spearman_mean']:.5f} / {off['wasserstein_mean']:.1e}",
            f"{rank:.3f} / {distance:.1e}",
            f"{off['loss_mean']:+.1e} / {off['loss_largest']:.1e}",
            f"{off['same_next_token']:.2f}",
        ]
        lines.append(f"| {model} | {dtype} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--dtype", nargs="+", default=["bfloat16", "float16"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--attention")
    asked = vars(parser.parse_args())
    models, dtypes, device = (asked.pop(name) for name in ("models", "dtype", "device"))
    print(
        "| model | precision | λ | sink share | attention received | kernel | influence of a prompt | "
        "mean influence | two halves of the prompts | loss | same next token |"
    )
    print("|---|---|" + "---|" * 9)
    for model in models:
        for line in rows(model, dtypes, device, **asked):
            print(line, flush=True)


if __name__ == "__main__":
    main()
