"""The search of a space: all of it where it is small, else evolution from its Pareto front.

A generation of points is drawn, measured, and joins what is known; parents of the next are points of the front,
half of them among its nearest to the target. A child takes each place from one of two parents and moves a few
steps in some. Draws depend on the seed and on what was measured alone: whoever has measurements kept goes on as if
never stopped. Most of what may change is counted (layers, windows, periods): there is no gradient to follow.
"""

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from posbias.core.seeds import stream
from posbias.designs.front import on_front
from posbias.designs.space import Point, Space

Costs = tuple[float, ...]
Measure = Callable[[Sequence[Point]], list[Costs | None]]
"""What some points cost, the less the better and the first first; None where values do not go together."""
GENERATION = 32
FRESH, STEP = 0.1, 0.5
"""The share of children without parents; the chance that a move in a list of values ends at a step."""
TRIES = 200
"""Children that are known already, in a row, before one without parents is drawn."""


def search(space: Space, measure: Measure, evaluations: int, seed: int) -> dict[Point, Costs | None]:
    """The costs of all points of a space of at most `evaluations` points, else of so many that evolution chose."""
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
