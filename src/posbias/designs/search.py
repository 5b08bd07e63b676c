"""The search of a space: all of it where it is small, else evolution from its Pareto front.

A generation of points is drawn, measured, and joins what is known; parents of the next are points of the front,
half of them among its nearest to the target. A child takes each place from one of two parents and moves a few
steps in some. Draws depend on the seed and on what was measured alone: whoever has measurements kept goes on as if
never stopped. Most of what may change is counted (layers, windows, periods): there is no gradient to follow.

What was measured is kept in a JSON file that is written anew every second: a point's costs depend on nothing but
the job that the fingerprint stands for, so those of any search may be used by any other of the same job.

    {"fingerprint": "…", "points": [[0, 3, 1], …], "costs": [[.031, 4096, -812], …], "digest": "…"}
"""

import logging
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.errors import InputFileError
from posbias.core.formats import parse_json, save_json, undamaged
from posbias.core.machine import stream
from posbias.designs.space import Point, Space

log = logging.getLogger(__name__)
PAUSE = 1.0
"""Seconds between two writings at least."""

Costs = tuple[float, ...]
Measure = Callable[[Sequence[Point]], list[Costs | None]]
"""What some points cost, the less the better and the first first; None where values do not go together."""
GENERATION = 32
FRESH, STEP = 0.1, 0.5
"""The share of children without parents; the chance that a move in a list of values ends at a step."""
TRIES = 200
"""Children that are known already, in a row, before one without parents is drawn."""


def search(space: Space, measure: Measure, evaluations: int, seed: int) -> dict[Point, Costs | None]:
    """The costs of all points of a space of at most `evaluations` points, else of those that evolution chose."""
    measured: dict[Point, Costs | None] = {}
    if space.size <= evaluations:
        points = space.points()
        while generation := list(islice(points, GENERATION)):
            measured.update(zip(generation, measure(generation), strict=True))
        return measured
    random, front = stream(seed, "design"), list[tuple[Point, Costs]]()
    while len(measured) < evaluations:
        room = min(GENERATION, evaluations - len(measured))
        children = _children(random, space.shape, [point for point, _ in front], measured, room)
        new = dict(zip(children, measure(children), strict=True))
        measured |= new
        front += [(point, costs) for point, costs in new.items() if costs is not None]
        front = pareto(front)
    return measured


def pareto(measured: Sequence[tuple[Point, Costs]]) -> list[tuple[Point, Costs]]:
    """Those that no other dominates, by rising costs, the first of them first."""
    if not measured:
        return []
    kept = on_front(np.array([costs for _, costs in measured], dtype=np.float64))
    return sorted((one for one, keeps in zip(measured, kept, strict=True) if keeps), key=lambda one: one[1])


def _children(
    random: np.random.Generator,
    shape: Sequence[int],
    parents: Sequence[Point],
    known: dict[Point, Costs | None],
    room: int,
) -> list[Point]:
    """So many points that are not known yet. `parents` are a front, the nearest first."""
    found: dict[Point, None] = {}
    tries = 0
    while len(found) < room:
        if not parents or tries >= TRIES or random.random() < FRESH:
            child = tuple(int(place) for place in random.integers(shape))
        else:
            child = _child(random, shape, _parent(random, parents), _parent(random, parents))
        tries += 1
        if child not in known and child not in found:
            found[child] = None
            tries = 0
    return list(found)


def _parent(random: np.random.Generator, front: Sequence[Point]) -> Point:
    """One of the front, every other time one of its nearest quarter."""
    nearest = random.random() < 0.5
    return front[int(random.integers(-(-len(front) // 4) if nearest else len(front)))]


def _child(random: np.random.Generator, shape: Sequence[int], one: Point, other: Point) -> Point:
    """Each place from one of two parents; one of them at least, and one more on average, moved."""
    mixed = np.where(random.random(len(shape)) < 0.5, one, other)
    moved = random.random(len(shape)) < 1.0 / len(shape)
    moved[random.integers(len(shape))] = True
    steps = random.geometric(STEP, len(shape)) * random.choice([-1, 1], len(shape))
    places = np.clip(mixed + np.where(moved, steps, 0), 0, np.array(shape) - 1)
    return tuple(int(place) for place in places)


def on_front(costs: Float[np.ndarray, "row cost"]) -> Bool[np.ndarray, "row"]:
    """Which rows no other dominates: is nowhere larger and somewhere smaller; of equal ones the first alone.

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


class KeptCosts(dict[Point, Costs | None]):
    """Costs by point, with the file they are kept in; with path None in memory alone.

    A file that is damaged or of another job is as good as none.
    """

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
            data = {"fingerprint": self._fingerprint, "points": [*self], "costs": [*self.values()]}
            save_json(data, self._path)
        self._next = time.monotonic() + PAUSE
