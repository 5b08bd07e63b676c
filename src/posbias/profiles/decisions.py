"""Decisions: which option was chosen, of those that stood in which order, under which labels.

The same item is decided several times, its options in other orders; so what is an option's own cancels, and what
is its place's remains (`posbias.choice.effects`). `Decisions` holds rows whose options are numbered within items.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from posbias.core.errors import DamagedError, InvalidValueError, wrong
from posbias.core.formats import Header, JsonCodec, dump_json, versions_here

KIND, SCHEMA = "decisions", 1
TIE, REFUSED = -1, -2
"""What stands in place of the slot that was chosen: a tie between options, or none of them."""
_ARRAYS = ("item", "order", "chosen", "labels", "scores", "influence")


@dataclass(frozen=True, eq=False)
class Decisions:
    """One row a decision: the item, which option stood in which slot, and the slot that was chosen.

    `item`: the number of the item. `order`: by slot the number of the option within its item. `chosen`: a slot,
    `TIE` or `REFUSED`. `labels`: by slot the number of the label shown there, None where no label was shown or
    each slot always had the same. `scores`: by slot the log-probability of choosing it, in nats, where it is
    known. `influence`: by slot that of the option's tokens on the choice (`LocalModel.influence`). `options`: by
    item its options; items that share an option belong to one set (`sets`), unless `shared` is false (the scores
    of a scale). `names`: of the items. `right`: by item the right option, −1 where nobody knows. `sides`: by item,
    whose each option is (two systems that are compared, say). `label_names`: of
    the labels. `asked`: of whom. `job`: what was asked. Raises `InvalidValueError` for rows that do not fit.
    """

    item: Int[np.ndarray, "decision"]
    order: Int[np.ndarray, "decision slot"]
    chosen: Int[np.ndarray, "decision"]
    options: Sequence[Sequence[str]]
    labels: Int[np.ndarray, "decision slot"] | None = None
    scores: Float[np.ndarray, "decision slot"] | None = None
    influence: Float[np.ndarray, "decision slot"] | None = None
    names: Sequence[str] = ()
    right: Sequence[int] = ()
    sides: Sequence[Sequence[str]] = ()
    label_names: Sequence[str] = ()
    shared: bool = True
    asked: Mapping[str, Any] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        for name in _ARRAYS:
            if (held := getattr(self, name)) is not None:
                kind = np.float64 if name in ("scores", "influence") else np.int64
                object.__setattr__(self, name, np.asarray(held, dtype=kind))
        rows, k = self.order.shape if self.order.ndim == 2 else (0, 0)
        if rows == 0 or k < 2 or (np.sort(self.order, axis=1) != np.arange(k)).any():
            what = "every option of an item once in each row, two or more"
            raise wrong("order", what, got=f"{k} slots in {rows} rows that do not have them")
        if any(len(held) != k or len({*held}) != k for held in self.options):
            raise InvalidValueError(f"options: expected {k} options that differ for each item, got others")
        if not ((self.chosen >= REFUSED) & (self.chosen < k)).all():
            raise InvalidValueError(f"chosen: expected slots below {k}, got {self.chosen.max()}")

    @property
    def slots(self) -> int:
        """The number of options of every item."""
        return self.order.shape[1]

    @cached_property
    def slot_of(self) -> Int[np.ndarray, "decision option"]:
        """By decision and option, the slot where it stood."""
        return self.order.argsort(axis=1)

    @property
    def option(self) -> Int[np.ndarray, "decision"]:
        """The option that was chosen, `TIE` or `REFUSED`."""
        held = np.take_along_axis(self.order, np.maximum(self.chosen, 0)[:, None], axis=1)[:, 0]
        return np.where(self.chosen < 0, self.chosen, held)

    @cached_property
    def contents(self) -> Int[np.ndarray, "item option"]:
        """By item and option the number of what it says; of options that are not `shared`, of its item alone."""
        number: dict[tuple[int, str], int] = {}
        items = [0] * len(self.options) if self.shared else range(len(self.options))
        keys = [[(item, option) for option in own] for item, own in zip(items, self.options, strict=True)]
        return np.array([[number.setdefault(key, len(number)) for key in own] for own in keys])

    @cached_property
    def sets(self) -> Int[np.ndarray, "item"]:
        """By item the number of its set of contents: items that share an option, by whatever chain, are one."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        items, columns = len(self.contents), len(self.contents) + self.contents.ravel()
        rows, nodes = np.repeat(np.arange(items), self.slots), columns.max() + 1
        graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(nodes, nodes))
        return np.unique(connected_components(graph, directed=False)[1][:items], return_inverse=True)[1]

    @cached_property
    def pairs(self) -> Int[np.ndarray, "pair two"]:
        """The numbers of any two decisions on one item."""
        rows = np.argsort(self.item, kind="stable")
        bounds = np.flatnonzero(np.diff(self.item[rows], prepend=-1, append=-1))
        found = []
        for size in np.unique(sizes := np.diff(bounds)):
            first, second = np.triu_indices(size, 1)
            starts = bounds[:-1][sizes == size][:, None]
            found.append(np.stack([rows[starts + first].ravel(), rows[starts + second].ravel()], axis=1))
        return np.concatenate(found)

    @cached_property
    def same_order(self) -> Bool[np.ndarray, "pair"]:
        """By pair, whether the options stood in the same order, under the same labels."""
        first, second = self.pairs.T
        same = (self.order[first] == self.order[second]).all(axis=1)
        if self.labels is not None:
            same &= (self.labels[first] == self.labels[second]).all(axis=1)
        return same

    @cached_property
    def differ(self) -> Bool[np.ndarray, "pair"]:
        """By pair, whether the decisions are for other options; ties and refusals differ from a choice."""
        first, second = self.pairs.T
        return self.option[first] != self.option[second]

    @cached_property
    def first(self) -> Bool[np.ndarray, "decision"]:
        """Whether a decision is the first on its item with this order and these labels, not asked again."""
        found = np.full(len(self.item), True)
        found[self.pairs[self.same_order].max(axis=1)] = False
        return found

    @property
    def balanced(self) -> bool:
        """Whether in each item every option stood equally often in every slot, orders asked again apart."""
        counts = np.zeros((len(self.options), self.slots, self.slots), dtype=np.int64)
        some = self.first
        np.add.at(counts, (self.item[some, None], np.arange(self.slots), self.order[some]), 1)
        seen = counts[np.unique(self.item)]
        return bool((seen == seen[:, :1, :1]).all())

    def as_dict(self) -> dict[str, Any]:
        """In JSON's terms, what is not there left out."""
        held = json.loads(dump_json({one.name: getattr(self, one.name) for one in fields(self)}))
        return {name: one for name, one in held.items() if one not in (None, [], {})}


def save_decisions(decisions: Decisions, path: str | os.PathLike[str]) -> Path:
    """Write decisions to a JSON file, whole or not at all. Raises `OutputFileError`."""
    specification = {"job": dict(decisions.job), "asked": dict(decisions.asked)}
    header = Header(KIND, SCHEMA, specification, versions=versions_here())
    JsonCodec().write(Path(path), header, {"decisions": decisions.as_dict()})
    return Path(path)


def load_decisions(path: str | os.PathLike[str]) -> Decisions:
    """What `save_decisions` wrote. Raises `InputFileError`, `DamagedError`."""
    _, content = JsonCodec().read(Path(path), KIND, SCHEMA)
    try:
        held = content["decisions"]
        return Decisions(**held | {name: np.array(held[name]) for name in _ARRAYS if name in held})
    except (TypeError, KeyError, ValueError) as error:
        raise DamagedError(f"{path}: damaged, its decisions are not whole ({error!s:.80})") from None
