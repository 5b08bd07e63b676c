"""A study as a value: a question, what every cell does, what varies between cells, and what is claimed of them.

    question = "Does the recency bias vanish with the dimension?"
    [base]
    kind = "simulate"
    [sweep]
    model.dimension = [16, 64, 256]
    [[claims]]
    claim = "The second layer's recency is weaker at d = 64 than at d = 16"
    quantity = "recency_probability.1"
    of = {"model.dimension" = 16}
    than = {"model.dimension" = 64}
    above = 0.0

A cell is one combination of the sweep with one seed; neither the study's name nor its claims nor the other cells
change its fingerprint. A claim is about the combinations that have the values `of`, and holds if it holds for
each. With `than` it is about differences: each combination of `of` minus the one of `than` that agrees with it in
everything that neither names.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, FiniteFloat

from posbias.core import store, sweeps
from posbias.core.errors import InvalidValueError, PosbiasError, errors_of, nearest, wrong
from posbias.core.files import read_mapping
from posbias.core.formats import Header
from posbias.core.progress import OnEvent
from posbias.core.spec import Count, Naturals, NonNegative, decode, encode, fingerprint, value
from posbias.profiles.claims import Above, Below, Near, Test
from posbias.study.quantities import check_place
from posbias.study.verbs import class_of, decode_verb, known_paths

BOUNDS = ("above", "below", "equals")
Combinations = Sequence[tuple[Mapping[str, Any], Any]]
"""What each combination of a study chooses, and the verb that it makes."""
_ROUNDING = 1e-12
_LONGEST = 60


@value
class StatedClaim:
    """A sentence about a `quantity` ("name", or "name.0" for one of a list) of some cells, and its bound.

    Exactly one of `above`, `below` (both strict) and `equals` is given, the last up to `tolerance`. Raises
    `InvalidValueError` otherwise.
    """

    claim: str
    quantity: str
    of: Mapping[str, Any] = Field(default_factory=dict)
    than: Mapping[str, Any] | None = None
    above: FiniteFloat | None = None
    below: FiniteFloat | None = None
    equals: FiniteFloat | None = None
    tolerance: NonNegative | None = None

    def __post_init__(self):
        given = [name for name in BOUNDS if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise wrong(repr(self.claim), f"one of {', '.join(BOUNDS)}", got=got)
        if self.tolerance is not None and self.equals is None:
            raise wrong("tolerance", "with equals alone", got=f"it with {given[0]}")

    @property
    def bound(self) -> tuple[str, float]:
        """'above', 'below' or 'equals', and the number."""
        return next((name, float(getattr(self, name))) for name in BOUNDS if getattr(self, name) is not None)

    @property
    def test(self) -> Test:
        """The same as a test. A study's bound is its own: on its wrong side is wrong, whatever the unit."""
        kind, bound = self.bound
        if kind == "equals":
            return Near(bound, (self.tolerance or 0.0) + _ROUNDING * max(1.0, abs(bound)))
        return Above(bound, least=0.0) if kind == "above" else Below(bound, least=0.0)

    def check(self, combinations: Combinations) -> None:
        """Raise `InvalidValueError` if there are no such cells, or its cells no such quantity."""
        with errors_of(f"claim {self.claim!r}", InvalidValueError):
            about = {number for pair in self.pairs(combinations) for number in pair if number is not None}
            for number in about:
                check_place(combinations[number][1].quantities, self.quantity)

    def pairs(self, combinations: Combinations) -> list[tuple[int, int | None]]:
        """Numbers of the combinations that the claim is about, each with that of the one to subtract, or None.

        Raises `InvalidValueError` for none.
        """
        ones = _selected(combinations, self.of, "of")
        if self.than is None:
            return [(one, None) for one in ones]
        others = _selected(combinations, self.than, "than")
        named = {path for path, _ in (*sweeps.leaves(self.of), *sweeps.leaves(self.than))}
        rest = [
            {path: json.dumps(held, default=str) for path, held in chosen.items() if path not in named}
            for chosen, _ in combinations
        ]
        found: list[tuple[int, int | None]] = [
            (one, other) for one in ones for other in others if one != other and rest[one] == rest[other]
        ]
        if not found:
            what = f"cells that agree with those of {dict(self.of)!r} in all else"
            raise wrong("than", what, dict(self.than))
        return found


def _selected(combinations: Combinations, wanted: Mapping[str, Any], key: str) -> list[int]:
    """The numbers of the combinations that have some values. Raises `InvalidValueError` for none."""
    found = list(range(len(combinations)))
    for path, given in sweeps.leaves(wanted):
        held = {number: _values(combinations[number], path) for number in range(len(combinations))}
        # as JSON has it: 16 is 16.0, but true is not 1
        found = [
            number
            for number in found
            if any(one == given and isinstance(one, bool) == isinstance(given, bool) for one in held[number])
        ]
        if not found:
            there = ", ".join(dict.fromkeys(repr(one) for values in held.values() for one in values))
            if there:
                raise wrong(f"{key}.{path}", f"one of {there}", got=repr(given))
            axes = {axis for chosen, _ in combinations for axis in chosen}
            raise wrong(key, "a path of the cells", got=f"{path!r}{nearest(path, axes)}")
    return found


def _values(combination: tuple[Mapping[str, Any], Any], path: str) -> list[Any]:
    """What a combination chose at a path, and what its verb has there."""
    chosen, verb = combination
    return ([chosen[path]] if path in chosen else []) + sweeps.values_at(encode(verb), path)


@dataclass(frozen=True, eq=False)
class Cell(store.Cell):
    """One combination of a study with one seed: the verb it performs, and what the sweep chose for it.

    Its result has "quantities" and "about" (`posbias.study.verbs`).
    """

    spec: Any
    seed: int
    chosen: Mapping[str, Any]
    cores: int = 1
    gpus: float = 0.0

    kind = "study_cell"
    schema = 2

    @property
    def packages(self) -> tuple[str, ...]:
        """Those of its verb."""
        return self.spec.packages

    @cached_property
    def mapping(self) -> dict[str, Any]:
        """The whole spec, defaults included, as plain dictionaries."""
        return encode(self.spec)

    @property
    def specification(self) -> dict[str, Any]:
        """What decides the result: the spec and the seed."""
        return {"spec": self.mapping, "seed": self.seed}

    @property
    def label(self) -> str:
        """'model.dimension = 16, seed 0', for people."""
        return ", ".join([*([sweeps.words_of(self.chosen)] if self.chosen else []), f"seed {self.seed}"])

    @property
    def name(self) -> str:
        """The words of the cell's file: its verb, what the sweep chose, the seed."""
        words = [self.spec.kind]
        words += [f"{path.rpartition('.')[2]}{_short(given)}" for path, given in self.chosen.items()]
        text = re.sub(r"[^A-Za-z0-9.+=_-]+", "", "-".join([*words, f"seed{self.seed}"]))
        return text[:_LONGEST].rstrip(".-")

    def compute(self, on_event: OnEvent) -> dict[str, Any]:
        """Perform the verb. Raises what its own functions raise."""
        quantities, about = self.spec.perform(self.seed, self.cores, on_event)
        return {"quantities": quantities, "about": about}

    def from_content(self, header: Header, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result. Raises KeyError where a part is missing."""
        return {name: content[name] for name in ("quantities", "about")}


def _short(given: Any) -> str:
    if isinstance(given, Mapping):
        return str(given.get("kind", ""))
    if isinstance(given, str):
        return f"={Path(given).name}"
    return f"{given:g}" if isinstance(given, float) else str(given)


@value
class Study:
    """A question and its cells: `base` with every combination of `sweep` (or each of `cells`), once per seed.

    `base` has the keys of a verb (`posbias.study.verbs`). `sweep` maps paths to lists, whose values replace what
    the base has there; `cells` is a list of tables to put over the base instead, for what is no product. Every
    cell runs on `cores` threads; on a cluster it is given `gpus` too (None: one for a cell on CUDA). Raises
    `InvalidValueError` for what cannot be right in any cell or claim, naming it; no cell is computed for that.
    """

    question: str
    base: Mapping[str, Any]
    sweep: Mapping[str, Any] = Field(default_factory=dict)
    seeds: Naturals = (0,)
    claims: tuple[StatedClaim, ...] = ()
    cells: tuple[Mapping[str, Any], ...] = ()
    name: str = "study"
    cores: Count = 1
    gpus: NonNegative | None = None

    def __post_init__(self):
        if not self.question.strip():
            raise wrong("question", "a sentence", got="''")
        if len(set(self.seeds)) < len(self.seeds):
            raise wrong("seeds", "different seeds", list(self.seeds))
        if self.sweep and self.cells:
            raise wrong("cells", "either cells or a sweep", got="both")
        for chosen, verb in self.combinations:
            if not verb.draws and len(self.seeds) > 1:
                where = f" (where {sweeps.words_of(chosen)})" if chosen and self.cells else ""
                count = len(self.seeds)
                raise wrong("seeds", f"one, as {verb.kind} draws nothing", got=f"{count}{where}")
        for claim in self.claims:
            claim.check(self.combinations)

    @cached_property
    def combinations(self) -> tuple[tuple[Mapping[str, Any], Any], ...]:
        """What each combination chooses, and the verb that it makes. Raises as the study does."""
        if self.cells:
            chosen = [dict(sweeps.leaves(table)) for table in self.cells]
            listed, where = [(one, sweeps.with_values(self.base, one)) for one in chosen], "cells"
        else:
            known = known_paths(class_of(self.base))
            listed, where = sweeps.expand(self.base, self.sweep, known), "sweep"
        return tuple(sweeps.build(listed, decode_verb, "cell", fingerprint, where))

    @cached_property
    def all_cells(self) -> tuple[Cell, ...]:
        """Every cell, combinations in their order, the seeds of each together."""
        return tuple(
            Cell(verb, seed, chosen, self.cores, _gpus(verb) if self.gpus is None else self.gpus)
            for chosen, verb in self.combinations
            for seed in self.seeds
        )

    @property
    def axes(self) -> tuple[str, ...]:
        """The paths that differ between combinations, in their order."""
        return tuple(dict.fromkeys(path for chosen, _ in self.combinations for path in chosen))


def study(question: str, base: Any, **fields: Any) -> Study:
    """A study of a verb given as a value, or as its keys; `fields` as in `Study`. Raises as `Study`."""
    return Study(question, base if isinstance(base, Mapping) else encode(base), **fields)


def read_study(path: str | os.PathLike[str]) -> Study:
    """The study of a TOML, YAML or JSON file, called after the file unless it has a name.

    Raises `InputFileError` for a file that cannot be read, `InvalidValueError` naming file and key for the rest.
    """
    data = read_mapping(path)
    try:
        return study_of(data, Path(path).stem)
    except PosbiasError as error:
        raise InvalidValueError(f"{path}: {error}") from None


def study_of(data: Mapping[str, Any], name: str = "study") -> Study:
    """A study from what a file holds. Raises `InvalidValueError`."""
    if isinstance(data.get("sweep"), list):
        raise wrong("sweep", "a table of paths with lists", data["sweep"])
    return decode(Study, {"name": name} | dict(data))


def as_dict(given: Study) -> dict[str, Any]:
    """A study as a file would have it."""
    return {key: held for key, held in encode(given).items() if held not in (None, {}, [])}


def _gpus(verb: Any) -> float:
    """How many GPUs a cell takes: one for what runs on CUDA."""
    return float(getattr(verb, "device", "cpu").startswith("cuda"))
