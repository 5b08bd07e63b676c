"""What was measured before an interruption: a JSON file that is written anew every second, removed at the end.

    {"fingerprint": "…", "points": [[0, 3, 1], …], "costs": [[.031, 4096, -812], …], "digest": "…"}

A point's costs depend on nothing but the job that the fingerprint stands for, so those of any search may be used
by any other of the same job. A file that is damaged or of another job is as good as none.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from posbias.core.errors import InputFileError
from posbias.core.store import parse_json, save_json, undamaged
from posbias.designs.evolution import Costs
from posbias.designs.space import Point

log = logging.getLogger(__name__)
PAUSE = 1.0
"""Seconds between two writings at least."""


class KeptCosts(dict[Point, Costs | None]):
    """Costs by point, with the file they are kept in; with path None in memory alone."""

    def __init__(self, path: Path | None, fingerprint: str):
        super().__init__()
        self._path, self._fingerprint, self._next = path, fingerprint, time.monotonic() + PAUSE
        if path is not None and path.is_file():
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            held = undamaged(parse_json(path), path)
            if held["fingerprint"] != self._fingerprint:
                return
            points = [tuple(map(int, point)) for point in held["points"]]
            costs = [None if one is None else tuple(map(float, one)) for one in held["costs"]]
            self.update(zip(points, costs, strict=True))
        except (InputFileError, KeyError, TypeError, ValueError):
            log.warning("%s is damaged: starting over", path)
            return
        log.info("resuming after %d architectures from %s", len(self), path)

    def keep_up(self, points: Sequence[Point], costs: Sequence[Costs | None]) -> None:
        """Take in what was measured, and write it all if the last writing is a while ago."""
        self.update(zip(points, costs, strict=True))
        if time.monotonic() >= self._next:
            self.write()

    def write(self) -> None:
        """Write all of it, whole or not at all. Raises `OutputFileError`."""
        if self._path is not None and self:
            told = {"fingerprint": self._fingerprint, "points": [*self], "costs": [*self.values()]}
            save_json(told, self._path)
        self._next = time.monotonic() + PAUSE

    def discard(self) -> None:
        """Remove the file; a missing one is fine."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
