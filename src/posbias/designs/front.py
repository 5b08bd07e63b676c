"""Pareto fronts: what nothing else beats in all that counts.

A row of costs dominates another if it is nowhere larger and somewhere smaller. Of equal rows the first stays.
"""

import numpy as np
from jaxtyping import Bool, Float


def on_front(costs: Float[np.ndarray, "row cost"]) -> Bool[np.ndarray, "row"]:
    """Which rows no other dominates; of equal ones the first alone.

    In the order of the costs a row can be dominated by earlier ones alone, and then by one of the front.
    """
    keep = np.zeros(len(costs), dtype=bool)
    order = np.lexsort((np.arange(len(costs)), *costs.T[::-1]))
    front = np.empty((0, costs.shape[1]))
    for row in order:
        if not (front <= costs[row]).all(axis=1).any():
            keep[row] = True
            front = np.vstack([front, costs[row]])
    return keep
