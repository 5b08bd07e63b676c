"""The state of a measurement: running means over prompts, and one row of numbers for each prompt.

Means follow Welford's update in float64. A new state never shares memory with the one before it, and takes
the place of it in one assignment: whatever interrupts a measurement, the state at hand is that of a whole
number of prompts.
"""

from dataclasses import dataclass, field

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class State:
    """Means over the `finished` prompts, their rows in order, and the seconds they took."""

    finished: int = 0
    means: Arrays = field(default_factory=dict)
    rows: tuple[Arrays, ...] = ()
    seconds: float = 0.0

    def extended(self, sample: Arrays, row: Arrays, seconds: float) -> "State":
        """Return the state after one more prompt: `sample` enters the means, `row` is kept as it is.

        The arrays of `sample` (float64) become the new means: they are overwritten, the old means are not.
        """
        finished = self.finished + 1
        if self.finished:
            for name, mean in self.means.items():
                change = sample[name]
                change -= mean
                change /= finished
                change += mean
        return State(finished, sample, (*self.rows, row), self.seconds + seconds)

    def column(self, name: str) -> np.ndarray:
        """Return one quantity of all rows, stacked along a first axis: the prompts."""
        return np.stack([row[name] for row in self.rows])
