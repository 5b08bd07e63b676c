"""One table or figure at a time: from the cells to a page and, for figures, a picture."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from posbias.papers.herasimchyk2026.agreement import Agreement
from posbias.papers.herasimchyk2026.beside import (
    beside_block,
    beside_data,
    compare,
    scores,
    similarities,
    sizes,
)
from posbias.papers.herasimchyk2026.cells import Cells, Key, names
from posbias.papers.herasimchyk2026.drawing import draw_contents, draw_curves, draw_mixings
from posbias.papers.herasimchyk2026.homogeneity import Fit, fit, homogeneity
from posbias.papers.herasimchyk2026.levels import Curves, curves_of, slopes_of
from posbias.papers.herasimchyk2026.order import order_of
from posbias.papers.herasimchyk2026.pages import Page
from posbias.papers.herasimchyk2026.printed import BINS, Reading
from posbias.papers.herasimchyk2026.schedules import corpora_claims, mixing_claims
from posbias.papers.herasimchyk2026.statements import (
    content_claims,
    homogeneity_claims,
    level_claims,
    order_claims,
    printed_claims,
    spearman_claims,
    wasserstein_claims,
)
from posbias.papers.herasimchyk2026.tables import (
    Specification,
    agreement_blocks,
    agreement_data,
    homogeneity_blocks,
    mixing_blocks,
    mixing_data,
    order_blocks,
    shape_blocks,
    shape_data,
    specification_blocks,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Result = tuple[Page, "Figure | None"] | None
"""A page, with a picture if it is a figure; None where there is nothing to show."""


@dataclass(frozen=True)
class Material:
    """Everything that tables and figures are made of; `tokens` is the length of all but Figures 1 and 4."""

    cells: Cells
    unmeasured: Sequence[Curves] = ()
    tokens: int = 256
    reading: Reading = "corrected"
    bins: int = BINS
    seed: int = 0
    _curves: dict[Key, Curves] = field(default_factory=dict)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The cells of the length of the tables, model by model."""
        return tuple(key for key in self.cells if key.tokens == self.tokens)

    def first(self, model: str) -> str:
        """The corpus that a model was measured on first."""
        return next(key.corpus for key in self.cells if key.model == model)

    @property
    def leading(self) -> Iterator[Key]:
        """The cells of the tables' length on each model's first corpus."""
        return (key for key in self.keys if key.corpus == self.first(key.model))

    def curves(self, key: Key) -> Curves:
        """A cell's measured influence with its levels, computed once."""
        if key not in self._curves:
            first = self.cells.get(Key(key.model, self.first(key.model), key.tokens))
            self._curves[key] = curves_of(self.cells[key], key.corpus, self.reading, first)
        return self._curves[key]

    def mixings(self, keys: Sequence[Key]) -> dict[Key, np.ndarray]:
        """λ by prompt and layer of some cells: of Eq. (1), or, as published, averaged over tokens."""
        name = "mixing" if self.reading == "corrected" else "mixing_token"
        return {key: self.cells[key][name].values for key in keys}

    @property
    def note(self) -> str:
        """In a line, what was measured."""
        if not self.keys:
            return f"Nothing measured at {self.tokens} tokens; {self.reading} reading."
        found = names(self.keys, "model")
        prompts = sorted({self.cells[key].sizes["prompt"] for key in self.keys})
        many = "–".join(map(str, dict.fromkeys((prompts[0], prompts[-1]))))
        return f"{', '.join(found)}: {many} prompts of {self.tokens} tokens; {self.reading} reading."


def table1(given: Material) -> Result:
    shown = []
    for key in given.leading:
        cell = given.cells[key]
        count = cell.attrs.get("parameters")
        positions = (
            "ALiBi"
            if slopes_of(cell) is not None
            else str(cell.attrs.get("positional", "through queries and keys"))
        )
        size = cell.sizes
        shown.append(
            Specification(
                key.model, None if count is None else int(count), size["layer"], size["head"], positions
            )
        )
    compared = compare("table1", sizes((one.model, one.parameters, one.depth) for one in shown))
    blocks = (*specification_blocks(shown), beside_block(compared, "table1"))
    data = {"models": [one.row for one in shown], **beside_data(compared, "table1")}
    return Page("Table 1", "Architectural specifications.", blocks, [], data), None


def table2(given: Material) -> Result:
    return _agreements(given, "spearman", featured=True)


def table3(given: Material) -> Result:
    return _agreements(given, "wasserstein", featured=True)


def table4(given: Material) -> Result:
    return _agreements(given, "spearman", featured=False)


def table5(given: Material) -> Result:
    return _agreements(given, "wasserstein", featured=False)


def table6(given: Material) -> Result:
    shown = [
        homogeneity(
            key.model, cell["content"].values.astype(np.float64), given.reading, given.bins, given.seed
        )
        for key in given.leading
        if "content" in (cell := given.cells[key])
    ]
    if not shown:
        return None
    how = "each head's own range" if given.reading == "corrected" else "the range of all heads together"
    note = (
        f"{given.note} Shannon similarity (Eq. 9) of mean content logits, {given.bins} bins over {how}; beside it "
        "the similarity of normal numbers of the same mean and deviation. Errors are over heads."
    )
    compared = compare("table6", similarities(shown))
    data = {
        "bins": given.bins,
        "rows": [{"model": one.model, "diagonal": one.diagonal, "below": one.below} for one in shown],
        **beside_data(compared, "table6"),
    }
    blocks = (*homogeneity_blocks(shown), beside_block(compared, "table6"))
    return Page("Table 6", note, blocks, homogeneity_claims(shown), data), None


def fig1(given: Material) -> Result:
    mixings = given.mixings([key for key in given.cells if key.corpus == given.first(key.model)])
    return _mixing_page(given, "Figure 1", mixings, mixing_claims(mixings)) if mixings else None


def fig4(given: Material) -> Result:
    further = [key for key in given.cells if key.corpus != given.first(key.model)]
    if not further:
        return None
    return _mixing_page(
        given, "Figure 4", given.mixings(further), corpora_claims(given.mixings(list(given.cells)))
    )


def fig2(given: Material) -> Result:
    shown = [one for key in given.leading if (one := given.curves(key)).additive]
    first = {one.model: one for one in reversed(given.unmeasured)}
    return _curves_page(
        given, "Figure 2", [*shown, *(one for one in given.unmeasured if one is first[one.model])]
    )


def fig3(given: Material) -> Result:
    return _curves_page(
        given, "Figure 3", [one for key in given.leading if not (one := given.curves(key)).additive]
    )


def fig5(given: Material) -> Result:
    contents = {
        key.model: cell["content"].values.astype(np.float64)
        for key in given.leading
        if "content" in (cell := given.cells[key])
    }
    if not contents:
        return None
    fits: dict[str, Fit] = {}
    for key in given.leading:
        if key.model in contents:
            cell = given.cells[key]
            noise = (
                cell["content_variance"].values / cell.sizes["prompt"] if "content_variance" in cell else None
            )
            fits[key.model] = fit(contents[key.model], noise)
    claims = content_claims(fits)
    note = f"{given.note} Mean content logits in softmax units; colours end at the 1 and 99 % percentiles."
    data = {
        "models": [
            {"model": model, "offset": one.offset, "r2": one.r2, "most": one.most}
            for model, one in fits.items()
        ]
    }
    return Page("Figure 5", note, (), claims, data), draw_contents(contents, fits, claims, note)


def section4(given: Material) -> Result:
    wanted = ("kernel",) if given.reading == "published" else ("monotonicity_rate", "monotonicity_gap")
    keys = [key for key in given.keys if all(name in given.cells[key] for name in wanted)]
    if not keys:
        return None
    shown = [order_of(given.cells[key], key.corpus, given.reading) for key in keys]
    note = (
        f"{given.note} Triples (i < i′, k) whose later row holds more of the prefix 0 … k (Assumption 4.1); the "
        "noise floor is what sampling noise would give were the true kernels monotone."
    )
    data = {"rows": [vars(one) for one in shown]}
    return Page("Section 4", note, order_blocks(shown), order_claims(shown), data), None


MAKERS: Mapping[str, Callable[[Material], Result]] = {
    one.__name__: one
    for one in (table1, table2, table3, table4, table5, table6, fig1, fig2, fig3, fig4, fig5, section4)
}
"""What makes each table and figure; each gives nothing where the cells have nothing for it."""
NOTHING = {
    "table6": "no measurement with mean content matrices",
    "fig5": "no measurement with mean content matrices",
    "fig2": "no model that adds a line by distance to its logits, and no rollout files",
    "fig3": "every model adds a line by distance to its logits (see fig2)",
    "fig4": "one corpus only",
    "section4": "no averaged attention",
}
"""Why there may be nothing to make."""


def _agreements(given: Material, score: str, featured: bool) -> Result:
    keys = list(given.leading) if featured else given.keys
    shown = [Agreement(given.curves(key), given.seed) for key in keys]
    number = {("spearman", True): 2, ("wasserstein", True): 3, ("spearman", False): 4}.get(
        (score, featured), 5
    )
    claims = (spearman_claims if score == "spearman" else wasserstein_claims)(shown) if shown else []
    if not featured:
        claims = [*claims, *printed_claims(score)]
    better = "higher is better" if score == "spearman" else "on positions over n − 1, lower is better"
    note = (
        f"{given.note} {score.capitalize()} against the measured influence, {better}; ceiling: half the prompts "
        "against the other half."
    )
    compared = compare(f"table{number}", scores(score, shown))
    blocks = agreement_blocks(score, shown, given.unmeasured, featured)
    blocks = (*blocks, beside_block(compared, f"table{number}"))
    data = {**agreement_data(score, shown), **beside_data(compared, f"table{number}")}
    return Page(f"Table {number}", note, blocks, claims, data), None


def _mixing_page(given: Material, title: str, mixings: dict, claims: list) -> Result:
    kind = "Frobenius norms, Eq. (1)" if given.reading == "corrected" else "mean over tokens"
    note = f"λ by layer ({kind}), mean over prompts with its 95 % interval."
    page = Page(title, note, mixing_blocks(mixings), claims, mixing_data(mixings))
    return page, draw_mixings(mixings, claims, note)


def _curves_page(given: Material, title: str, shown: Sequence[Curves]) -> Result:
    if not shown:
        return None
    claims = level_claims(shown, given.seed)
    remarks = dict.fromkeys(f"{one.model}: {remark}" for one in shown for remark in one.remarks)
    note = " ".join(
        [f"{given.note} Influence on the last token, even spread = 1.", *(f"{one}." for one in remarks)]
    )
    page = Page(title, note, shape_blocks(shown), claims, shape_data(shown))
    return page, draw_curves(shown, claims, note)
