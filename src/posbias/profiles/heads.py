"""What attention heads attend to: the share of its attention that a head gives to each part of the context.

shares = posbias.head_shares(posbias.load_measurement("m.nc"), last=6)    # measured with head_kernels
ranked(shares["first"])[:3]          # the three heads that give most to the first keys: (layer, head), share
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError, wrong
from posbias.profiles.summary import at_ends

if TYPE_CHECKING:
    import xarray as xr

Head = tuple[int, int]
"""Layer and head."""
LEAST_KEYS = 5
"""Keys of a query that has all parts."""


def head_shares(measurement: "xr.Dataset", last: int = 1) -> "dict[str, Float[np.ndarray, 'layer head']]":
    """By part of the context, the attention that each head gives it, mean over the `last` queries and prompts.

    Of a query with n keys, its own among them, and k = max(1, round(0.05·n)): `sink` is key 0, `first` the k keys
    behind it, `middle` the middle half, `last` the k keys before the own, `own` the query's key. Layers without a
    softmax are NaN. Raises `InvalidValueError` without `kernel_head`, and for more queries than have all parts.
    """
    if "kernel_head" not in measurement:
        what = "one with kernel_head (posbias measure --head-kernels)"
        raise InvalidValueError(f"measurement: expected {what}, got one without")
    tokens = measurement.sizes["query"]
    if not 1 <= last <= tokens - LEAST_KEYS + 1:
        raise wrong("last", f"1 to {tokens - LEAST_KEYS + 1} queries", last)
    rows = measurement["kernel_head"].values
    found = []
    for own in range(tokens - last, tokens):
        ends, quarter = at_ends(own + 1), (own + 1) // 4
        parts = {"sink": (0, 1), "first": (1, 1 + ends), "middle": (quarter, own + 1 - quarter)}
        parts |= {"last": (own - ends, own), "own": (own, own + 1)}
        found.append({name: rows[:, :, own, slice(*part)].sum(axis=-1) for name, part in parts.items()})
    return {name: np.mean([one[name] for one in found], axis=0, dtype=np.float64) for name in found[0]}


def ranked(shares: Float[np.ndarray, "layer head"]) -> list[tuple[Head, float]]:
    """All heads with what they have, the most first; without those that have NaN."""
    order = np.argsort(-shares, axis=None, kind="stable")
    places = (divmod(int(place), shares.shape[1]) for place in order)
    return [(place, float(shares[place])) for place in places if not np.isnan(shares[place])]
