"""What the paper's tables and figures are made of: measured models, levels from the authors' files, a reading.

Everything that claims, tables and drawing share (levels, fits, counts) is computed `once` for each `Measurements`.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from posbias.profiles.claims import Claim, Judged, undecided
from posbias_papers.claims import AtHand
from posbias_papers.herasimchyk2026.cells import EFFORTS, Cells, Key, names
from posbias_papers.herasimchyk2026.curves import Curves
from posbias_papers.herasimchyk2026.levels import curves_of
from posbias_papers.herasimchyk2026.printed import BINS, TOKENS, Reading
from posbias_papers.herasimchyk2026.standing import corpus_of, decided_by, model_of, stand_in
from posbias_papers.pages import Table
from posbias_papers.study import ELSEWHERE, HERE, Study, judge_each

PAPER = "herasimchyk2026"
SOURCES = (
    ("abnar2020", "attention rollout"),
    ("press2022", "ALiBi"),
    ("bigscience2022", "BLOOM, one of the paper's models"),
    ("mosaic2023a", "MPT-7B, one of the paper's models"),
    ("mosaic2023b", "MPT-30B, one of the paper's models"),
    ("penedo2023", "Falcon-RW, one of the paper's models"),
)
"""What every study uses of whom."""
LEVELS = (
    ("simonyan2014", "influence as a gradient"),
    ("wu2025", "the level without residual connections"),
)
"""The same where levels stand beside measured influence."""
Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class Measurements:
    """Measured models and how they are read.

    `from_files` are levels of models that were not measured, `tokens` is the length of all but Figures 1 and 4,
    `mixings` are λ by layer of such models as in Figure 1, `bins` are those of Table 6, `layers` and `heads` those
    of Figure 5 (none: some of all); `kept` is what was computed of them already, by cell or `once`. What is a part
    of others has its curves from `whole`.
    """

    cells: Cells
    from_files: Sequence[Curves] = ()
    mixings: Mapping[str, Float[np.ndarray, "layer"]] = field(default_factory=dict, kw_only=True)
    tokens: int = TOKENS
    reading: Reading = "corrected"
    bins: int = BINS
    seed: int = 0
    layers: Sequence[int] = ()
    heads: Sequence[int] = ()
    kept: dict[Any, Any] = field(default_factory=dict)
    whole: "Measurements | None" = None

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The cells of the length of the tables, model by model."""
        return tuple(key for key in self.cells if key.tokens == self.tokens)

    def first(self, model: str) -> str:
        """The corpus that a model was measured on first."""
        return next(key.corpus for key in self.cells if key.model == model)

    @property
    def leading(self) -> tuple[Key, ...]:
        """The cells of the tables' length on each model's first corpus."""
        return tuple(key for key in self.keys if key.corpus == self.first(key.model))

    def curves(self, key: Key) -> Curves:
        """A cell's measured influence with its levels."""
        if self.whole is not None:
            return self.whole.curves(key)
        if key not in self.kept:
            first = self.cells.get(Key(key.model, self.first(key.model), key.tokens))
            self.kept[key] = curves_of(self.cells[key], key.corpus, self.reading, first, self.seed)
        return self.kept[key]

    @property
    def contents(self) -> dict[str, Float[np.ndarray, "layer head query key"]]:
        """Mean content logits of each model that has them, on its first corpus."""
        return {
            key.model: self.cells[key]["content"].values.astype(np.float64)
            for key in self.leading
            if "content" in self.cells[key]
        }

    @property
    def stand_in(self) -> str:
        """Which models stand in for the paper's, in a sentence; "" if none does."""
        return stand_in(names(self.cells, "model"), (curves.model for curves in self.from_files))

    @cached_property
    def parted(self) -> "tuple[Measurements, Measurements]":
        """What is of the paper's models on its texts, levels from the authors' files among it, and all else."""
        own = {key: cell for key, cell in self.cells.items() if model_of(key.model) and corpus_of(key.corpus)}
        others = {key: cell for key, cell in self.cells.items() if key not in own}
        whole = self.whole or self
        return (
            replace(self, cells=own, kept={}, whole=whole),
            replace(self, cells=others, from_files=(), mixings={}, kept={}, whole=whole),
        )

    @property
    def note(self) -> str:
        """In a line, what was measured."""
        if not self.keys:
            return f"Nothing measured at {self.tokens} tokens; {self.reading} reading."
        prompts = sorted({self.cells[key].sizes["prompt"] for key in self.keys})
        many = "–".join(map(str, dict.fromkeys((prompts[0], prompts[-1]))))
        models = ", ".join(names(self.keys, "model"))
        return f"{models}: {many} prompts of {self.tokens} tokens; {self.reading} reading."


def once(compute: Callable[[Measurements], Found]) -> Callable[[Measurements], Found]:
    """A decorator: what a function makes of the same measurements is computed once."""

    @functools.wraps(compute)
    def kept(results: Measurements) -> Found:
        if compute not in results.kept:
            results.kept[compute] = compute(results)
        return results.kept[compute]

    return kept


def judge_extended(study: Study, results: Measurements) -> Iterator[Judged]:
    """The claims of a study judged on what is of the paper's models; on other models, as claims of ours.

    A claim of the paper of which only the second is known is left open, saying so.
    """
    own, others = results.parted
    stand_in = results.stand_in or ("other models or texts than the paper's too" if others.cells else "")
    for claim in study.claims:
        about_models = claim.strength != "printed" and not isinstance(claim.quantity, AtHand)
        if not stand_in or claim.provenance == "ours" or not about_models:
            yield from judge_each([claim], results)
            continue
        ours = replace(claim, id=f"{claim.id}{ELSEWHERE}", provenance="ours", scope=HERE, alias_of="")
        extended = [*judge_each([ours], others)]
        decided = [*judge_each([claim], own)]
        seen = [f"measured on these, see {ours.id}"] if extended else []
        reason = "; ".join([stand_in, *seen, study.decided_by])
        if extended and not decided:
            decided = [undecided(claim, reason, "")]
        for verdict in decided:
            left_open = verdict.evidence and verdict.verdict == "undecided"
            yield replace(verdict, why=f"{verdict.why}; {reason}") if left_open else verdict
        yield from extended


def study_of(
    name: str,
    title: str,
    question: str,
    claims: Iterable[Claim],
    tables: Callable[[Measurements], Iterable[Table]],
    data: Callable[[Measurements], Mapping[str, Any]],
    note: Callable[[Measurements], str] = lambda results: results.note,
    uses: tuple[tuple[str, str], ...] = (),
    **options: Any,
) -> Study:
    """A study of this paper: `Study` with what all of them share. What is measured is asked for at each run."""

    def whole(results: Measurements) -> dict[str, Any]:
        measured = [*names(results.cells, "model")]
        return {"measured": measured, "stand_in": results.stand_in, **data(results)}

    def told(results: Measurements) -> str:
        return note(results) + (f" Here {results.stand_in}." if results.stand_in else "")

    shared: dict[str, Any] = {"minutes": {"quick": 3, "full": 35}, "counts": {"quick": 2, "full": 2}}
    shared |= {"decided_by": decided_by(name, TOKENS)}
    options = shared | options
    return Study(
        f"{PAPER}/{name}",
        title,
        question,
        (),
        tuple(claims),
        EFFORTS,
        "prompts",
        tables=tables,
        data=whole,
        note=told,
        needs="models",
        uses=(*SOURCES, *uses),
        judge=judge_extended,
        **options,
    )
