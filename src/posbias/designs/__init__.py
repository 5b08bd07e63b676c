"""Architectures that meet a target: a Pareto front of distance to it, size of the cache, and reach.

    from posbias.designs import design

    found = design(architecture, {"window": [64, 256, 1024], "full_period": [1, 2, 4]}, target="flat", tokens=4096)
    print(found)                      # the verdict first
    found.front[0].architecture

What may change are quantities of the architecture, a target is a shape of the profile (`posbias.designs.space`),
and each candidate is predicted by the sweep (`posbias.theory.rollout`). All of it is theory: what training puts
into queries, keys and values has no part in it.
"""

import hashlib
import json
import logging
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from posbias.core.errors import InvalidValueError, whole, wrong
from posbias.core.machine import cores
from posbias.core.progress import Deferred, Event, OnEvent
from posbias.core.spec import encode
from posbias.core.store import Checkpoint, Tensors
from posbias.core.terminal import plain
from posbias.designs.space import Costs, Point, Space, Target, pareto, search, target_of
from posbias.theory.architecture import LAMBDA, Architecture
from posbias.theory.cache import cache_of
from posbias.theory.configs import AnyArchitecture, load_architecture
from posbias.theory.prediction import said_under, under_each

__all__ = ["Candidate", "Designs", "design"]

log = logging.getLogger(__name__)
DesignVerdict = Literal["met", "no difference", "not met", "not known"]
THEORY = (
    "theory alone: influence by mask, encoding by distance and residual mixing; what training puts into queries, "
    "keys and values has no part in it"
)
EVALUATIONS = 2000
"""Architectures that are looked at unless another number is given."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """An architecture, how far its profile is from the target, and what it costs and gives.

    `values` are those of the quantities that may change, empty of the baseline. Of a text of the job's length
    `cache`, `read` and `size` are keys, those read for each token and bytes (`Cache`), `reach` the fewest of the
    last tokens that hold 90 % of the mass, `shares` what the first 5 %, the middle half and the last 5 % hold.
    Where λ was not given, `under` has the distance under each known λ, and distance, reach and shares are those
    under the λ that is worst. `left_out` is what else decides the profile and is not known.
    """

    values: Mapping[str, float]
    architecture: Architecture
    distance: float
    cache: int
    reach: int
    read: int
    size: float | None
    shares: tuple[float, float, float]
    left_out: tuple[str, ...] = ()
    under: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Designs:
    """What was found: the Pareto front by rising distance to the target, and the baseline.

    `looked_at` architectures of the space were predicted; of `impossible` ones the values do not go together.
    `fingerprint` is that of the job: equal jobs give equal designs.
    """

    space: Space
    target: Target
    tokens: int
    seed: int
    baseline: Candidate
    front: tuple[Candidate, ...]
    looked_at: int
    impossible: int
    fingerprint: str

    @property
    def exhaustive(self) -> bool:
        """Whether the whole space was looked at, so that the front is that of the space."""
        return self.looked_at + self.impossible == self.space.size

    def meets(self, candidate: Candidate) -> bool:
        """Whether a candidate is as near as the target asks for."""
        return candidate.distance <= self.target.within

    def surely_meets(self, candidate: Candidate) -> bool:
        """Whether it is so under every known λ where λ was not given, and nothing else is left out."""
        distances = (candidate.distance, *candidate.under.values())
        return not candidate.left_out and max(distances) <= self.target.within

    def nearer(self, candidate: Candidate) -> dict[str, bool]:
        """Whether a candidate is nearer to the target than the baseline under each known λ, if λ was not given."""
        own, base = candidate, self.baseline
        return {
            name: own.under.get(name, own.distance) < base.under.get(name, base.distance)
            for name in own.under or base.under
        }

    @property
    def verdict(self) -> DesignVerdict:
        """Whether anything meets the target; "no difference" where the baseline does. "Not known" where what
        decides a profile is left out (`Architecture.left_out`) of the one that the verdict rests on, or λ was not
        given and it is not the same under every known one."""
        if self.surely_meets(self.baseline):
            return "no difference"
        if any(map(self.surely_meets, self.front)):
            return "met"
        deciding = self._deciding
        return "not known" if deciding.left_out or deciding.under or self.meets(deciding) else "not met"

    @property
    def _deciding(self) -> Candidate:
        return self.baseline if self.meets(self.baseline) or not self.front else self.front[0]

    @property
    def said(self) -> str:
        """The verdict in a sentence."""
        verdict, deciding = self.verdict, self._deciding
        asked = self.meets if verdict == "not known" else self.surely_meets
        met = list(filter(asked, self.front))
        if self.meets(self.baseline) and verdict != "met":
            near = f"(distance {self.baseline.distance:.3g}, {self.target.within:g} needed)"
            said = f"the baseline meets the target as it is {near}"
        elif met:
            least = min(met, key=lambda one: (one.cache, one.distance))
            said = (
                f"met by {len(met)} of {len(self.front)} architectures on the front; the smallest cache of them "
                f"is {least.cache:,} keys, with {_words(least.values)}"
            )
        else:
            among = f"of the {self.space.size:,} in the space"
            if not self.exhaustive:
                among = f"among the {self.looked_at + self.impossible:,} looked at, of {self.space.size:,},"
            nearest = self.front[0] if self.front else self.baseline
            said = f"no architecture {among} meets the target; the nearest is {_words(nearest.values)} (distance "
            said += f"{nearest.distance:.3g})"
        if verdict != "not known":
            return f"{said}; so under every known λ" if deciding.under else said
        why = [f"{' and '.join(deciding.left_out)} left out"] if deciding.left_out else []
        if deciding.under:
            under = said_under({name: far <= self.target.within for name, far in deciding.under.items()})
            why.append(f"λ not given, {_words(deciding.values)} meets the target under {under}")
        return f"not known: {' and '.join(why)}; as it stands, {said}"

    @property
    def assumptions(self) -> list[str]:
        """What the designs rest on."""
        of_target = [f"target: {self.target.caveat}"] if self.target.caveat else []
        return [THEORY, *of_target, *self.space.base.assumptions_at(self.tokens)]

    def __str__(self) -> str:
        lines = [
            f"{one.distance:.4f}  {one.cache:,}  {one.reach:,}  {_words(one.values)}" for one in self.front
        ]
        return "\n".join([self.said, *lines, THEORY])


def _words(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {plain(value)}" for name, value in values.items()) or "the baseline"


def design(
    architecture: AnyArchitecture,
    varied: Mapping[str, Sequence[float]],
    *,
    tokens: int,
    target: str = "flat",
    within: float | None = None,
    evaluations: int = EVALUATIONS,
    seed: int = 0,
    threads: int | None = None,
    kept: Path | None = None,
    on_event: OnEvent | None = None,
) -> Designs:
    """Look for architectures whose predicted influence on the last token meets a target.

    `varied` has the values of each quantity that may change (`posbias.theory.variation`), everything else is as
    `architecture` (a value, a name or a file) has it; `target` and `within` as in `target_of`. At most
    `evaluations` architectures are predicted: all of the space if it has no more, else those that evolution from
    `seed` chooses. Where λ is not given, each is ranked by the known λ that is worst for it. `kept` is a file of
    what was predicted, written as the search goes and resumed from; it stays for the caller to remove. The
    result depends neither on `threads` nor on interruptions. `on_event` counts architectures. Raises
    `InvalidValueError` as `Space`, `target_of` and `influence`, `OutputFileError` where `kept` cannot be written,
    `InputFileError` where it is another job's, KeyboardInterrupt on Ctrl-C.
    """
    target_at = target_of(target, whole("tokens", tokens, 1), within)
    job = DesignJob(Space(load_architecture(architecture), varied), target_at, tokens, evaluations, seed)
    return job.run(threads, kept, on_event)


@dataclass(frozen=True)
class DesignJob:
    """What decides the designs: the space, the target, the length of the text, how many are looked at, the seed.

    Raises `InvalidValueError` for tokens or evaluations < 1, and a seed < 0.
    """

    space: Space
    target: Target
    tokens: int
    evaluations: int = EVALUATIONS
    seed: int = 0

    def __post_init__(self):
        whole("tokens", self.tokens, 1)
        whole("evaluations", self.evaluations, 1)
        whole("seed", self.seed, 0)

    @property
    def fingerprint(self) -> str:
        """Equal for equal jobs."""
        # an exhaustive search has no use for the seed, nor for what may be looked at beyond the space
        drawn = None if self.space.size <= self.evaluations else [self.evaluations, self.seed]
        return _digest(["4", self.of_costs, drawn])

    @property
    def of_costs(self) -> str:
        """Equal where points have the same costs, however they are chosen."""
        curve = None if self.target.curve is None else self.target.curve.tolist()
        varied = [[name, [*self.space.varied[name]]] for name in self.space.names]
        wanted = self.target.specification, curve, self.tokens
        return _digest(["worst", encode(self.space.base), varied, *wanted])

    def run(self, threads: int | None, kept: Path | None, on_event: OnEvent | None) -> Designs:
        """Search and measure, as `design` says."""
        checkpoint, done = Checkpoint(kept, self.of_costs, 0.0), 0
        memory = _costs_in(checkpoint.load())
        if memory:
            log.info("resuming after %d architectures from %s", len(memory), kept)
        with Deferred() as interruption, ThreadPoolExecutor(cores(threads)) as pool:

            def measure(points: Sequence[Point]) -> list[Costs | None]:
                nonlocal done
                if fresh := [point for point in points if point not in memory]:
                    memory.update(zip(fresh, pool.map(self._costs, fresh), strict=True))
                    checkpoint.write(lambda: _tensors(memory))
                done += len(points)
                if on_event is not None:
                    on_event(Event(done, min(self.space.size, self.evaluations), "architecture"))
                interruption.check()
                return [memory[point] for point in points]

            found = search(self.space, measure, self.evaluations, self.seed)
            return self._designs(found, pool)

    def _designs(self, found: Mapping[Point, Costs | None], pool: ThreadPoolExecutor) -> Designs:
        possible = [(point, costs) for point, costs in found.items() if costs is not None]
        if not possible:
            raise wrong("vary", "a combination that is possible", got=f"none among {len(found):,}")
        places = [point for point, _ in pareto(possible)]
        architectures = [self.space.base, *map(self.space.architecture, places)]
        values = [{}, *map(self.space.values, places)]
        baseline, *front = pool.map(self._candidate, architectures, values)
        return Designs(
            space=self.space,
            target=self.target,
            tokens=self.tokens,
            seed=self.seed,
            baseline=baseline,
            front=tuple(front),
            looked_at=len(possible),
            impossible=len(found) - len(possible),
            fingerprint=self.fingerprint,
        )

    def _candidate(self, architecture: Architecture, values: Mapping[str, float]) -> Candidate:
        """An architecture, measured, under every known λ where λ was not given. Raises as `influence`."""
        every = under_each(architecture, self.tokens, threads=1)
        distance = {name: self.target.distance(one) for name, one in every.items()}
        worst = max(distance, key=lambda name: distance[name])
        parts = (part for one in every.values() for part in one.left_out if part != LAMBDA)
        cache, shape = cache_of(architecture, self.tokens), every[worst].summary
        return Candidate(
            values,
            architecture,
            distance[worst],
            cache.keys,
            shape.effective_range,
            cache.read,
            cache.size,
            shape.shares,
            tuple(dict.fromkeys(parts)),
            distance if len(every) > 1 else {},
        )

    def _costs(self, point: Point) -> Costs | None:
        """Distance, size of the cache and reach, the last negative; None where values do not go together."""
        try:
            architecture = self.space.architecture(point)
        except InvalidValueError:
            return None
        one = self._candidate(architecture, {})
        return one.distance, float(one.cache), -float(one.reach)


def _tensors(memory: Mapping[Point, Costs | None]) -> Tensors:
    """Points and their costs, NaN where values do not go together."""
    costs = [[math.nan] * 3 if one is None else one for one in memory.values()]
    return Tensors({"points": np.array([*memory]), "costs": np.array(costs)})


def _costs_in(stored: Tensors | None) -> dict[Point, Costs | None]:
    """The costs that a checkpoint holds, if there is one."""
    points, costs = (
        ([], []) if stored is None else (stored.arrays[name].tolist() for name in ("points", "costs"))
    )
    known = (None if math.isnan(one[0]) else tuple(one) for one in costs)
    return dict(zip(map(tuple, points), known, strict=True))


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
