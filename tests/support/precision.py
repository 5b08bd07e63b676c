"""How far a measurement in another precision, or on another device, is from float32 on the CPU.

The same prompts are measured twice. Where two next tokens are nearly as likely, rounding may choose the other, and
what is differentiated is another function: such prompts are left out of the comparison of single profiles.
"""

import numpy as np
import torch
import xarray as xr

from posbias.profiles.curves import spearman, wasserstein

LARGEST = ("mixing", "sink_share", "attention_received", "kernel")
"""Shares in [0, 1] whose largest difference, over prompts, layers, heads and positions, is reported."""


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
