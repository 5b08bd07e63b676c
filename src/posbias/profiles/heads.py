"""What attention heads attend to: the share of its attention that a head gives to each part of the context.

shares = posbias.head_shares(posbias.load_measurement("m.nc"), last=6)    # measured with head_kernels
ranked(shares["first"])[:3]          # the three heads that give most to the first keys: layer, head, share
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.core.errors import wrong
from posbias.core.spec import NaturalNumber
from posbias.profiles.measurements import load_measurement
from posbias.profiles.summary import at_ends

if TYPE_CHECKING:
    from posbias.profiles.measurements import AnyMeasurement

Head = tuple[NaturalNumber, NaturalNumber]
"""Layer and head."""
LEAST_KEYS = 5
"""Keys of a query that has all parts."""


def head_shares(measurement: "AnyMeasurement", last: int = 1) -> "dict[str, Float[np.ndarray, 'layer head']]":
    """By part of the context, the attention that each head gives it, mean over the `last` queries and prompts.

    Of a query with n keys, its own among them, and k = max(1, round(0.05·n)): `sink` is key 0, `first` the k keys
    behind it, `middle` the middle half, `last` the k keys before the own, `own` the query's key. Layers without a
    softmax are NaN. Raises `InvalidValueError` without `kernel_head`, and for more queries than have all parts.
    """
    measurement = load_measurement(measurement)
    if "kernel_head" not in measurement:
        raise wrong("measurement", "kernel_head (posbias measure --head-kernels)", got="none")
    tokens = measurement.sizes["query"]
    if not 1 <= last <= tokens - LEAST_KEYS + 1:
        raise wrong("last", f"1 to {tokens - LEAST_KEYS + 1} queries", last)
    rows, found = measurement["kernel_head"].values, dict[str, np.ndarray]()
    for own in range(tokens - last, tokens):
        for name, part in parts_of(own + 1).items():
            found[name] = found.get(name, 0.0) + rows[:, :, own, slice(*part)].sum(axis=-1) / last
    return found


def parts_of(keys: int) -> dict[str, tuple[int, int]]:
    """The parts of a context of so many keys: the first key, and the one behind the last."""
    ends, quarter, own = at_ends(keys), keys // 4, keys - 1
    parts = {"sink": (0, 1), "first": (1, 1 + ends), "middle": (quarter, keys - quarter)}
    return parts | {"last": (own - ends, own), "own": (own, keys)}


def ranked(shares: Float[np.ndarray, "layer head"]) -> list[tuple[int, int, float]]:
    """Layer, head and number of all heads, the most first; without those that have NaN."""
    order = [divmod(int(place), shares.shape[1]) for place in np.argsort(-shares, axis=None, kind="stable")]
    return [(*head, float(shares[head])) for head in order if not np.isnan(shares[head])]
