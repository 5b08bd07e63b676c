"""Section 4's check of Assumption 4.1: how often averaged attention is not stochastically monotone."""

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from posbias.claims import Claim, Evidence
from posbias.estimate import Estimate
from posbias.papers.herasimchyk2026.measurements import Measurements, study_of
from posbias.papers.herasimchyk2026.printed import GAP, VIOLATIONS
from posbias.papers.study import Expected
from posbias.reports.pages import Table

if TYPE_CHECKING:
    from posbias.papers.herasimchyk2026.order import Order

FLOORS = 1.5
"""A rate of violations up to so many noise floors is within the noise, whose own spread is not known."""
HEAD = (
    "model", "corpus", "violating triples", "noise floor", "mean gap of those", "expected shortfall", "worst",
)  # fmt: skip


def _below_rate(results: Measurements) -> Iterable[Evidence]:
    return map(_rate, results.orders)


def _rate(order: "Order") -> Evidence:
    """By how many powers of ten a rate is below the paper's; undecided within sampling noise."""
    floor = f", noise floor {order.floor:.2g}" if math.isfinite(order.floor) else ""
    where = f"{order.model}, {order.corpus} (rate {order.rate:.2g}{floor})"
    if VIOLATIONS < order.rate <= FLOORS * order.floor:
        return Evidence(where, flaw="within the noise of so few prompts")
    return Evidence(where, Estimate(math.log10(VIOLATIONS) - math.log10(max(order.rate, 1e-12))))


def _tables(results: Measurements) -> Iterator[Table]:
    rows = []
    for order in results.orders:
        floor = f"{order.floor:.2g}" if math.isfinite(order.floor) else "–"
        sizes = [f"{order.rate:.2g}", floor, f"{order.gap:.2g}", f"{order.rate * order.gap:.2g}"]
        rows.append([order.model, order.corpus, *sizes, f"layer {order.worst}"])
    yield Table("Measured here", HEAD, rows)
    printed = ["all five", "all three", f"≤ {VIOLATIONS:.0e}", "–", f"{GAP:.0e}", "1e-12", "–"]
    yield Table("Printed in the paper", HEAD, [printed])


STUDY = study_of(
    "section4",
    "Violations of stochastic monotonicity (Assumption 4.1)",
    "Is averaged attention stochastically monotone, up to a part in a million of all triples?",
    [
        Claim(
            "herasimchyk2026/section4/1",
            "Section 4",
            f"At most {VIOLATIONS:.0e} of all triples violate stochastic monotonicity (powers of ten below that)",
            _below_rate,
        )
    ],
    _tables,
    lambda results: {"rows": [vars(order) for order in results.orders]},
    lambda results: (
        f"{results.note} Triples (i < i′, k) whose later row holds more of the prefix 0 … k (Assumption 4.1); the "
        "noise floor is what sampling noise would give were the true kernels monotone."
    ),
    missing=lambda results: "" if results.orders else "no averaged attention",
    expected=(Expected("violating triples, at most", VIOLATIONS, 0.0, "Section 4"),),
)
