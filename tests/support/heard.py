"""What a callback hears of a computation, and where it presses Ctrl-C."""

import math

from posbias.core.progress import Event


class Heard(list):
    """How much was done, event by event; `error` is raised once that is `stop`."""

    def __init__(self, stop: float = math.inf, error: BaseException | None = None):
        super().__init__()
        self.stop, self.error = stop, error or KeyboardInterrupt()

    def __bool__(self) -> bool:
        return True  # a callback, if it has heard nothing too

    def __call__(self, event: Event) -> None:
        self.append(event.done)
        if event.done >= self.stop:
            raise self.error
