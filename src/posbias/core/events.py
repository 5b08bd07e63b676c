"""Progress: what long work tells of itself while it runs.

A function that takes long has a parameter `on_event: OnEvent | None = None` and calls it with how far it has come,
in the thread that it was called in. Words are not progress: they go through `logging` (see `posbias.core.logs`).
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """How far work has come: `done` of `total` (None: nobody knows how much there is), both in `unit`.

    `share` is what is done of all, in [0, 1]; 0 for an unknown total, 1 where there is nothing to do.
    """

    done: float
    total: float | None = None
    unit: str = ""

    @property
    def share(self) -> float:
        if self.total is None:
            return 0.0
        return min(1.0, self.done / self.total) if self.total > 0 else 1.0


OnEvent = Callable[[Event], None]
