"""A study as a value: a question, what every cell does, what varies between cells, and what is claimed of them.

    question = "Does the recency bias vanish with the dimension?"
    [base]
    kind = "simulate"
    [sweep]
    model.dimension = [16, 64, 256]
    [[claims]]
    claim = "At d = 16 the second layer favours recent keys"
    quantity = "recency_probability.1"
    of = {"model.dimension" = 16}
    above = 0.5

A cell is one combination of the sweep with one seed. What it is called is decided by what it does alone: neither
the study's name nor its claims nor the other cells change its fingerprint.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from posbias.core import sweeps
from posbias.core.errors import InvalidValueError, PosbiasError
from posbias.core.spec import Count, NaturalNumber, NonNegative, decode, encode, fingerprint, value
from posbias.core.store import Header, JsonCodec
from posbias.study.claimed import StatedClaim
from posbias.study.verbs import class_of, decode_verb, known_paths

Seeds = Annotated[
    tuple[NaturalNumber, ...],
    Field(min_length=1),
    BeforeValidator(lambda given: tuple(given) if isinstance(given, list) else given),
]
Tables = Annotated[
    tuple[Mapping[str, Any], ...],
    BeforeValidator(lambda given: tuple(given) if isinstance(given, list) else given),
]
_LONGEST = 60


@dataclass(frozen=True, eq=False)
class Cell:
    """One combination of a study with one seed: the verb it performs, and what the sweep chose for it."""

    spec: Any
    seed: int
    chosen: Mapping[str, Any]

    kind = "study_cell"
    schema = 2
    codec = JsonCodec()

    @cached_property
    def mapping(self) -> dict[str, Any]:
        """The whole spec, defaults included, as plain dictionaries."""
        return encode(self.spec)

    @property
    def specification(self) -> dict[str, Any]:
        """What decides the result: the spec and the seed."""
        return {"spec": self.mapping, "seed": self.seed}

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of the specification, equal for equal ones in any order of keys."""
        return fingerprint(self.specification)

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

    def to_content(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """What was found, as `performing.perform` returns it: "quantities" and "about"."""
        return result

    def from_content(self, header: Header, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same. Raises KeyError where one is missing."""
        return {name: content[name] for name in ("quantities", "about")}


@value
class Study:
    """A question and its cells: `base` with every combination of `sweep` (or each of `cells`), once per seed.

    `base` is a verb (`posbias.study.verbs`) or its keys; given as a verb, what the sweep varies replaces what it
    holds. `sweep` maps paths to lists (`sweeps`); `explicit` (`cells` in a file) is a list of tables to
    put over the base instead, for what is no product. Every cell runs on `cores` threads; on a cluster it is given
    `gpus` too (None: one for a cell on CUDA). Raises `InvalidValueError` for what cannot be right in any cell or
    claim, naming it; no cell is computed for that.
    """

    question: str
    base: Mapping[str, Any]
    sweep: Mapping[str, Any] = Field(default_factory=dict)
    seeds: Seeds = (0,)
    claims: tuple[StatedClaim, ...] = ()
    explicit: Tables = ()
    name: str = "study"
    cores: Count = 1
    gpus: NonNegative | None = None

    def __post_init__(self):
        if not self.question.strip():
            raise InvalidValueError("question: '' given, a sentence needed")
        if len(set(self.seeds)) < len(self.seeds):
            raise InvalidValueError(f"seeds: {list(self.seeds)} given, different ones needed")
        if self.sweep and self.explicit:
            raise InvalidValueError("cells: given beside a sweep, one of the two needed")
        self.cells()
        for claim in self.claims:
            claim.check(self.combinations)

    @cached_property
    def combinations(self) -> tuple[tuple[Mapping[str, Any], Any], ...]:
        """What each combination chooses, and the verb that it makes. Raises as the study does."""
        if self.explicit:
            chosen = [dict(sweeps.leaves(table)) for table in self.explicit]
            listed = [(one, sweeps.with_values(self.base, one)) for one in chosen]
            where = "cells"
        else:
            known = known_paths(class_of(self.base))
            listed, where = sweeps.expand(self.base, self.sweep, known), "sweep"
        return tuple(sweeps.build(listed, decode_verb, "cell", _key, where))

    def cells(self) -> tuple[Cell, ...]:
        """Every cell, combinations in their order, the seeds of each together."""
        return self._cells

    @cached_property
    def _cells(self) -> tuple[Cell, ...]:
        for chosen, verb in self.combinations:
            if not verb.draws and len(self.seeds) > 1:
                where = f" (where {sweeps.words_of(chosen)})" if chosen and self.explicit else ""
                raise InvalidValueError(
                    f"seeds: {len(self.seeds)} given, one needed: {verb.kind} draws nothing{where}"
                )
        return tuple(Cell(verb, seed, chosen) for chosen, verb in self.combinations for seed in self.seeds)

    @property
    def axes(self) -> tuple[str, ...]:
        """The paths that differ between combinations, in their order."""
        return tuple(dict.fromkeys(path for chosen, _ in self.combinations for path in chosen))


def study(question: str, base: Any, **fields: Any) -> Study:
    """A study of a verb given as a value; `fields` as in `Study`. Raises as `Study`.

    What the sweep varies replaces what the verb holds.
    """
    mapping = base if isinstance(base, Mapping) else encode(base)
    for path, _ in sweeps.leaves(fields.get("sweep", {})):
        mapping = _without(mapping, path.split("."))
    return Study(question, mapping, **fields)


def read_study(path: str | os.PathLike[str]) -> Study:
    """The study of a TOML, YAML or JSON file, called after the file unless it has a name.

    Raises `InputFileError` for a file that cannot be read, `InvalidValueError` naming file and key for the rest.
    """
    data = sweeps.read_swept(path)
    try:
        return study_of(data, Path(path).stem)
    except PosbiasError as error:
        raise InvalidValueError(f"{path}: {error}") from None


def study_of(data: Mapping[str, Any], name: str = "study") -> Study:
    """A study from what a file holds. Raises `InvalidValueError`."""
    if "explicit" in data:
        raise InvalidValueError("unknown key 'explicit'; did you mean 'cells'?")
    keys = {"name": name} | {("explicit" if key == "cells" else key): given for key, given in data.items()}
    if isinstance(keys.get("sweep"), list):
        raise InvalidValueError(f"sweep: {keys['sweep']!r} given, a table of paths with lists needed")
    return decode(Study, keys)


def as_dict(given: Study) -> dict[str, Any]:
    """A study as a file would have it."""
    data = {("cells" if key == "explicit" else key): held for key, held in encode(given).items()}
    return {key: held for key, held in data.items() if held not in (None, {}, [])}


def _key(verb: Any) -> str:
    return json.dumps(encode(verb), sort_keys=True)


def _short(given: Any) -> str:
    if isinstance(given, Mapping):
        return str(given.get("kind", ""))
    if isinstance(given, str):
        return f"={Path(given).name}"
    return f"{given:g}" if isinstance(given, float) else str(given)


def _without(data: Any, steps: list[str]) -> Any:
    """A copy of a mapping without what stands at a path."""
    if isinstance(data, list):
        return [_without(entry, steps) for entry in data]
    if not isinstance(data, Mapping) or steps[0] not in data:
        return data
    kept = {key: held for key, held in data.items() if key != steps[0]}
    return kept if len(steps) == 1 else kept | {steps[0]: _without(data[steps[0]], steps[1:])}
