"""What may change of an architecture, what it is to achieve, and the search of all combinations.

    Space(architecture, {"window": [64, 256, 1024], "full_period": [1, 2, 4, 8]})

Quantities are those of `posbias.theory.variation`; where several change, they change in the order of that table:
depth before windows, windows before the period of full layers. A point is a tuple of places in lists of values.

A target is a shape of the profile, and how far a profile is from it:

    flat            a uniform profile
    middle=0.5      at least half of the mass in the middle half of the text
    reach=2000      at least this many of the last tokens hold 90 % of the mass
    FILE            another model's curve, by share of the text

The distance to a curve is Wasserstein's, on positions divided by their number less one (Herasimchyk et al. 2026,
Appendix B.2); to the others by how much a profile falls short: a share of the mass, or of the reach.

A small space is searched whole, another by evolution from its Pareto front. Draws depend on the seed and on what
was measured alone, so that whoever has measurements kept goes on as if never stopped. Most of what may change is
counted (layers, windows, periods): there is no gradient to follow. `toml_of` writes an architecture that was
chosen.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.errors import nearest, one_of, shortened, wrong
from posbias.core.machine import stream
from posbias.core.spec import encode
from posbias.profiles.curves import at_shares, wasserstein
from posbias.profiles.measurements import load_profile
from posbias.profiles.profile import Profile, uniform
from posbias.theory.architecture import Architecture
from posbias.theory.configs import read_architecture
from posbias.theory.prediction import predict
from posbias.theory.variation import QUANTITIES

Point = tuple[int, ...]
MOST = 10**12
"""Combinations that a space may have at most."""


@dataclass(frozen=True, eq=False)
class Space:
    """A base architecture and the values of each quantity that may change.

    Raises `InvalidValueError` for no quantity, an unknown one, `tokens`, a list that is empty or has a value
    twice, a value that no architecture can take, and more than `MOST` combinations.
    """

    base: Architecture
    varied: Mapping[str, Sequence[float]]

    def __post_init__(self):
        if not self.varied:
            raise wrong("vary", "a quantity that may change", got="none")
        for name, values in self.varied.items():
            quantity = QUANTITIES[one_of("vary", name, [one for one in QUANTITIES if one != "tokens"])]
            if not len(values) or len(set(values)) < len(values):
                raise wrong("vary", f"different values of {name}", list(values))
            for one in values:
                quantity.typed(one)
        if self.size > MOST:
            raise wrong("vary", f"at most {MOST:,} combinations", got=f"{self.size:,}")

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities, in the order in which they change an architecture."""
        return tuple(name for name in QUANTITIES if name in self.varied)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each quantity has."""
        return tuple(len(self.varied[name]) for name in self.names)

    @property
    def size(self) -> int:
        """How many combinations there are."""
        return math.prod(self.shape)

    def points(self) -> Iterator[Point]:
        """All of them, the last quantity's values changing first."""
        return product(*map(range, self.shape))

    def values(self, point: Point) -> dict[str, float]:
        """What each quantity is at a point."""
        return {name: self.varied[name][place] for name, place in zip(self.names, point, strict=True)}

    def architecture(self, point: Point) -> Architecture:
        """The architecture there. Raises `InvalidValueError` where values do not go together."""
        architecture = self.base
        for name, number in self.values(point).items():
            architecture = QUANTITIES[name].change(architecture, number)
        return architecture


# --- the search -----------------------------------------------------------------------------------------------

Costs = tuple[float, ...]
Measure = Callable[[Sequence[Point]], list[Costs | None]]
"""What some points cost, the less the better and the first first; None where values do not go together."""
GENERATION = 32
FRESH, TRIES = 0.1, 200
"""The share of children without parents; known children in a row before one without parents is drawn."""


def search(space: Space, measure: Measure, evaluations: int, seed: int) -> dict[Point, Costs | None]:
    """The costs of all points of a space of at most `evaluations` points, else of those that evolution chose.

    A generation of points is drawn, measured, and joins what is known; parents of the next are points of the
    front.
    """
    measured: dict[Point, Costs | None] = {}
    points, random, front = space.points(), stream(seed, "design"), list[tuple[Point, Costs]]()
    while room := min(GENERATION, min(space.size, evaluations) - len(measured)):
        if space.size <= evaluations:
            chosen = list(islice(points, room))
        else:
            chosen = _children(random, space.shape, [point for point, _ in front], measured, room)
        new = dict(zip(chosen, measure(chosen), strict=True))
        measured |= new
        front = pareto([*front, *((point, costs) for point, costs in new.items() if costs is not None)])
    return measured


def _children(
    random: np.random.Generator,
    shape: Sequence[int],
    front: Sequence[Point],
    known: Collection[Point],
    room: int,
) -> list[Point]:
    """New points: each place from one of two of the front, some moved by a few steps; some drawn anywhere."""
    found, tries, last = dict[Point, None](), 0, np.array(shape) - 1
    while len(found) < room:
        if not front or tries >= TRIES or random.random() < FRESH:
            places = random.integers(shape)
        else:
            one, other = (front[int(random.integers(len(front)))] for _ in range(2))
            moved = random.random(last.size) < 1.0 / last.size
            moved[random.integers(last.size)] = True
            steps = random.geometric(0.5, last.size) * random.choice([-1, 1], last.size) * moved
            places = np.clip(np.where(random.random(last.size) < 0.5, one, other) + steps, 0, last)
        child = tuple(map(int, places))
        tries = tries + 1 if child in known or child in found else 0
        if not tries:
            found[child] = None
    return list(found)


def pareto(measured: Sequence[tuple[Point, Costs]]) -> list[tuple[Point, Costs]]:
    """Those that no other dominates, by rising costs, the first of them first."""
    if not measured:
        return []
    kept = on_front(np.array([costs for _, costs in measured], dtype=np.float64))
    return sorted((one for one, keeps in zip(measured, kept, strict=True) if keeps), key=lambda one: one[1])


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


# --- targets --------------------------------------------------------------------------------------------------

CLOSE = 0.02
"""A curve this near, in units of the text's length, meets a target unless another number is given."""


@dataclass(frozen=True, eq=False)
class Target:
    """What a design is to achieve, to a distance of at most `within`.

    `least`: the share of the mass in the middle half of the text, or the reach (`Summary.effective_range`) that is
    wanted; or `curve`: mass by position of a text of any length, summing to 1, of which `caveat` says what its
    prediction leaves out (`Profile.caveat`).
    """

    kind: Literal["curve", "middle", "reach"]
    name: str
    within: float
    least: float = 0.0
    curve: Float[np.ndarray, "position"] | None = None
    caveat: str = ""

    @property
    def specification(self) -> dict[str, Any]:
        """What it asks for, ready for JSON."""
        return {name: getattr(self, name) for name in ("kind", "name", "within")}

    def distance(self, profile: Profile) -> float:
        """Wasserstein distance to the curve at the profile's length, or what falls short as a share; 0 to 1."""
        if self.kind == "reach":
            return max(0.0, 1.0 - profile.summary.effective_range / self.least)
        if self.curve is None:
            return max(0.0, self.least - profile.summary.middle_mass)
        mass = profile.mass / profile.mass.sum()
        same = self.curve.size == mass.size
        return float(wasserstein(mass, self.curve if same else at_shares(self.curve, mass.size, total=True)))


def target_of(spelling: str, tokens: int, within: float | None = None) -> Target:
    """The target that is written `flat`, `middle=SHARE`, `reach=TOKENS`, or as a file with a curve.

    A file is a measurement's .nc, the JSON of a prediction, a list of weights, or an architecture, which is
    predicted at `tokens`. `within` is how near is near enough. Raises `InvalidValueError` for another word, a
    number that cannot be, or a curve that is no mass; `InputFileError` as `load_profile` and `read_architecture`.
    """
    if within is not None and not 0 <= within < 1:
        raise wrong("within", "a number from 0 to below 1", got=f"{within:g}")
    word, equals, number = spelling.partition("=")
    if equals and word in ("middle", "reach"):
        try:
            least = float(number) if word == "middle" else int(number)
        except ValueError:
            least = math.nan
        if not 0 < least <= (1 if word == "middle" else tokens):
            what = "a share above 0 and up to 1" if word == "middle" else f"a reach of 1 to {tokens:,} tokens"
            raise wrong("target", what, spelling)
        name = f"at least {least:g} of the mass in the middle half"
        name = name if word == "middle" else f"a reach of at least {least:,} tokens"
        return Target(word, name, within or 0.0, least)
    name = "a uniform profile" if spelling == "flat" else Path(spelling).name
    profile = uniform(tokens) if spelling == "flat" else _curve_in(spelling, tokens)
    if profile.kind != "mass":
        raise wrong("target", "influence that sums to 1", got=f"a {profile.kind} in {shortened(spelling)}")
    curve = profile.mass / profile.mass.sum()
    return Target("curve", name, CLOSE if within is None else within, curve=curve, caveat=profile.caveat)


def _curve_in(spelling: str, tokens: int) -> Profile:
    """The curve of a file: of a measurement, a prediction, a list, or of an architecture at `tokens`."""
    path = Path(spelling)
    try:
        exists = path.exists()
    except OSError:  # what no file can be called
        exists = False
    if not exists:
        hint = nearest(spelling.partition("=")[0], ("flat", "middle", "reach"))
        wanted = "flat, middle=SHARE, reach=TOKENS or a file with a curve"
        raise wrong("target", wanted, got=f"{shortened(spelling)}{hint}")
    if path.is_dir() or path.suffix.lower() in (".toml", ".yaml", ".yml") or path.name == "config.json":
        return predict(read_architecture(path).architecture, tokens)
    return load_profile(path)


# --- writing --------------------------------------------------------------------------------------------------


def toml_of(architecture: Architecture, remarks: tuple[str, ...] = (), *, tokens: int | None = None) -> str:
    """An architecture in TOML that `posbias predict` reads, `remarks` as comments above it; a line for each layer.

    `tokens` is the length of text that it is meant for, which commands then take where none is asked for.
    Numbers are written in full, and what is None is left out, as it is the default. Raises `InvalidValueError` as
    `encode`.
    """
    lines = [f"# {line}" for remark in remarks for line in remark.splitlines()]
    lines += [] if tokens is None else [f"tokens = {tokens}"]
    for key, held in encode(architecture).items():
        if key == "layers":
            lines += [f"{key} = [", *(f"  {_toml(layer)}," for layer in held), "]"]
        elif held is not None:
            lines.append(f"{key} = {_toml(held)}")
    return "\n".join(lines) + "\n"


def _toml(held: Any) -> str:
    if isinstance(held, Mapping):
        inner = (f"{_key(key)} = {_toml(one)}" for key, one in held.items() if one is not None)
        return f"{{ {', '.join(inner)} }}"
    if isinstance(held, list):
        return f"[{', '.join(map(_toml, held))}]"
    if isinstance(held, str):
        # JSON leaves DEL as it is, which TOML does not have
        return json.dumps(held, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(held)


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)
