"""The state of a measurement: running means over prompts, and one row of numbers for each prompt.

Means follow Welford's update in float64, pooled variances Chan's. A new state leaves the one before it as it
was, and takes the place of it in one assignment: whatever interrupts a measurement, the state at hand is that
of a whole number of prompts.

The averaged kernel is kept as two means, over even and over odd prompts: what the halves disagree by is the
sampling noise of the whole (`stochastic_order.noise_floor`), at no more memory than one running mean and one
sample. Of all else that predictions rest on, the mean over even prompts is kept beside that over all: a
prediction from one half of the prompts can then be judged on the other.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from jaxtyping import Float

from posbias.core.store import Tensors

Arrays = dict[str, np.ndarray]

SPREADS = {"content_variance": "content_mean", "content_distance_variance": "content_distance"}
"""Variances over prompts and pairs → the means they are about; a sample holds those of one prompt."""
SPLIT = "kernel"
"""The quantity whose mean is kept for even and odd prompts apart, as `kernel_even` and `kernel_odd`."""
EVEN = "_even"
"""What the name of a mean over prompts with even numbers ends with."""
_HALVES = (SPLIT + EVEN, f"{SPLIT}_odd")
HALVED = (
    "energy_kernel",
    "positional_distance",
    "logits_distance",
    "logits_diagonal",
    "logits_first_column",
    "content_mean",
    "content_diagonal",
    "content_first_column",
)
"""Quantities whose mean over even prompts is kept too, under the same name with `_even`."""
_INDEX = "index"
_MEAN, _ROW = "mean.", "row."


@dataclass(frozen=True)
class State:
    """Means over the `finished` prompts, their rows in order, and the seconds they took.

    Each row also holds `index`, the number of its prompt.
    """

    finished: int = 0
    means: Arrays = field(default_factory=dict)
    rows: tuple[Arrays, ...] = ()
    seconds: float = 0.0

    def extended(self, sample: Arrays, row: Arrays, seconds: float, index: int | None = None) -> "State":
        """Return the state after one more prompt: `sample` enters the means, `row` is kept as it is.

        `index` is the number of the prompt, by default that of prompts finished before it. The arrays of
        `sample` (float64) become the new means: they are overwritten, the old means are not.
        """
        index = self.finished if index is None else index
        if SPLIT in sample:
            sample[_HALVES[index % 2]] = sample.pop(SPLIT)
        if index % 2 == 0:
            sample |= {name + EVEN: sample[name].copy() for name in HALVED if name in sample}
        single = State(1, sample, (row | {_INDEX: np.array(index)},), seconds)
        return self.merged(single)

    def merged(self, other: "State") -> "State":
        """Return the state of the prompts of both, which must be different ones, rows ordered by prompt.

        The means of `other` are overwritten. Up to rounding it does not matter in which order prompts come.
        """
        if not self.finished or not other.finished:
            return other if not self.finished else self
        means = other.means
        for name, about in SPREADS.items():
            if name in means:
                share = _share(self, other, about)
                between = share * (1 - share) * (means[about] - self.means[about]) ** 2
                _move(self.means[name], means[name], share)
                means[name] += between
        for name, mean in self.means.items():
            if name not in means:
                means[name] = mean
            elif name not in SPREADS:
                _move(mean, means[name], _share(self, other, name))
        rows = tuple(sorted((*self.rows, *other.rows), key=lambda row: int(row[_INDEX])))
        return State(self.finished + other.finished, means, rows, self.seconds + other.seconds)

    def even(self) -> Arrays:
        """Return the means over even prompts that are kept, under the names of the whole; empty unless both
        halves have prompts."""
        if not 0 < self.share_of_even() < 1:
            return {}
        return {name.removesuffix(EVEN): mean for name, mean in self.means.items() if name.endswith(EVEN)}

    def tensors(self) -> Tensors:
        """All of it, for a checkpoint; without finished prompts nothing."""
        if not self.rows:
            return Tensors({})
        means = {_MEAN + name: mean for name, mean in self.means.items()}
        rows = {_ROW + name: self.column(name) for name in self.rows[0]}
        return Tensors(means | rows, {"finished": self.finished, "seconds": self.seconds})

    @classmethod
    def of(cls, stored: Tensors) -> "State":
        """The state that `tensors` told."""
        means, columns = (
            {name.removeprefix(kind): array for name, array in stored.arrays.items() if name.startswith(kind)}
            for kind in (_MEAN, _ROW)
        )
        finished = stored.note["finished"]
        rows = tuple({name: column[index] for name, column in columns.items()} for index in range(finished))
        return cls(finished, means, rows, stored.note["seconds"])

    def column(self, name: str) -> np.ndarray:
        """Return one quantity of all rows, stacked along a first axis: the prompts."""
        return np.stack([row[name] for row in self.rows])

    def halves(
        self,
    ) -> tuple[Float[np.ndarray, "layer query key"], Float[np.ndarray, "layer query key"]] | None:
        """Return the mean kernels of even and of odd prompts; None unless both have some."""
        even, odd = (self.means.get(name) for name in _HALVES)
        return None if even is None or odd is None else (even, odd)

    def share_of_even(self) -> float:
        """Return the part of the prompts that have even numbers."""
        return _count(self, _HALVES[0]) / self.finished

    def kernel(self) -> Float[np.ndarray, "layer query key"] | None:
        """Return the kernel averaged over all prompts; None where none was kept."""
        halves = self.halves()
        if halves is None:
            return next((self.means[name] for name in _HALVES if name in self.means), None)
        share = self.share_of_even()
        kernel = share * halves[0]
        for layer, odd in zip(kernel, halves[1], strict=True):
            layer += (1 - share) * odd
        return kernel


def merged(states: Iterable[State]) -> State:
    """Return one state of all the prompts that several processes measured; the states are used up."""
    return reduce(State.merged, states, State())


def _move(mean: np.ndarray, new: np.ndarray, share: float) -> None:
    """Set `new` to the mean of both, of which `new` weighs `share`."""
    new -= mean
    new *= share
    new += mean


def _count(state: State, name: str) -> int:
    """The number of prompts that a mean is over."""
    even = name.endswith(EVEN)
    if not even and name not in _HALVES:
        return state.finished
    return sum((int(row[_INDEX]) % 2 == 0) == even for row in state.rows)


def _share(before: State, new: State, name: str) -> float:
    count = _count(new, name)
    return count / (_count(before, name) + count)
