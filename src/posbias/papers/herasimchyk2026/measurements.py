"""What the paper's tables and figures are made of: measured models, levels from the authors' files, a reading.

Everything that several tables or figures need (levels, agreements, fits) is computed once for each `Measurements`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.claims import Claim
from posbias.papers.herasimchyk2026.cells import EFFORTS, Cells, Key, names
from posbias.papers.herasimchyk2026.printed import BINS, TOKENS, Reading
from posbias.papers.herasimchyk2026.standing import stand_in
from posbias.papers.study import Study
from posbias.reports.pages import Table

if TYPE_CHECKING:
    from posbias.papers.herasimchyk2026.agreement import Agreement
    from posbias.papers.herasimchyk2026.homogeneity import Fit, Homogeneity
    from posbias.papers.herasimchyk2026.levels import Curves
    from posbias.papers.herasimchyk2026.order import Order

PAPER = "herasimchyk2026"


@dataclass(frozen=True, eq=False)
class Measurements:
    """Measured models and how they are read.

    `from_files` are levels of models that were not measured, `tokens` is the length of all but Figures 1 and 4,
    `bins` are those of Table 6.
    """

    cells: Cells
    from_files: "Sequence[Curves]" = ()
    tokens: int = TOKENS
    reading: Reading = "corrected"
    bins: int = BINS
    seed: int = 0
    _curves: "dict[Key, Curves]" = field(default_factory=dict)

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

    def curves(self, key: Key) -> "Curves":
        """A cell's measured influence with its levels."""
        from posbias.papers.herasimchyk2026.levels import curves_of

        if key not in self._curves:
            first = self.cells.get(Key(key.model, self.first(key.model), key.tokens))
            self._curves[key] = curves_of(self.cells[key], key.corpus, self.reading, first)
        return self._curves[key]

    @cached_property
    def agreements(self) -> "dict[Key, Agreement]":
        """How well the levels of each cell of the tables' length agree with what was measured."""
        from posbias.papers.herasimchyk2026.agreement import Agreement

        return {key: Agreement(self.curves(key), self.seed) for key in self.keys}

    @property
    def contents(self) -> dict[str, Float[np.ndarray, "layer head query key"]]:
        """Mean content logits of each model that has them, on its first corpus."""
        return {
            key.model: self.cells[key]["content"].values.astype(np.float64)
            for key in self.leading
            if "content" in self.cells[key]
        }

    @cached_property
    def homogeneities(self) -> "tuple[Homogeneity, ...]":
        """How homogeneous they are."""
        from posbias.papers.herasimchyk2026.homogeneity import homogeneity

        options = self.reading, self.bins, self.seed
        return tuple(homogeneity(model, content, *options) for model, content in self.contents.items())

    @cached_property
    def fits(self) -> "dict[str, Fit]":
        """Constant and diagonal fitted to them, by model."""
        from posbias.papers.herasimchyk2026.homogeneity import fit

        cells, fits = {key.model: self.cells[key] for key in self.leading}, {}
        for model, content in self.contents.items():
            variance, prompts = cells[model].get("content_variance"), cells[model].sizes["prompt"]
            fits[model] = fit(content, None if variance is None else variance.values / prompts)
        return fits

    @cached_property
    def orders(self) -> "tuple[Order, ...]":
        """Violations of Assumption 4.1 in each cell of the tables' length where they can be counted."""
        from posbias.papers.herasimchyk2026.order import order_of

        published = self.reading == "published"
        needed = ("kernel",) if published else ("monotonicity_rate", "monotonicity_gap")
        keys = [key for key in self.keys if all(name in self.cells[key] for name in needed)]
        return tuple(order_of(self.cells[key], key.corpus, self.reading) for key in keys)

    def mixings(self, keys: Iterable[Key]) -> "dict[Key, Float[np.ndarray, 'prompt layer']]":
        """λ by prompt and layer of some cells: of Eq. (1), or, as published, averaged over tokens."""
        name = "mixing" if self.reading == "corrected" else "mixing_token"
        return {key: self.cells[key][name].values for key in keys}

    @property
    def stand_in(self) -> str:
        """Which models stand in for the paper's, in a sentence; "" if none does."""
        return stand_in(names(self.cells, "model"), (curves.model for curves in self.from_files))

    @property
    def note(self) -> str:
        """In a line, what was measured."""
        if not self.keys:
            return f"Nothing measured at {self.tokens} tokens; {self.reading} reading."
        prompts = sorted({self.cells[key].sizes["prompt"] for key in self.keys})
        many = "–".join(map(str, dict.fromkeys((prompts[0], prompts[-1]))))
        models = ", ".join(names(self.keys, "model"))
        return f"{models}: {many} prompts of {self.tokens} tokens; {self.reading} reading."


def study_of(
    name: str,
    title: str,
    question: str,
    claims: Iterable[Claim],
    tables: Callable[[Measurements], Iterable[Table]],
    data: Callable[[Measurements], Mapping[str, Any]],
    note: Callable[[Measurements], str] = lambda results: results.note,
    **options: Any,
) -> Study:
    """A study of this paper: `Study` with what all of them share. What is measured is asked for at each run."""

    def whole(results: Measurements) -> dict[str, Any]:
        measured = [*names(results.cells, "model")]
        return {"measured": measured, "stand_in": results.stand_in, **data(results)}

    def told(results: Measurements) -> str:
        return note(results) + (f" Here {results.stand_in}." if results.stand_in else "")

    shared = {"minutes": {"quick": 3, "full": 35}, "counts": {"quick": 2, "full": 2}}
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
        captioned="draw" in options,
        needs="models",
        **options,
    )
