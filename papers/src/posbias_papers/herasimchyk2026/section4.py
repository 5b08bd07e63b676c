"""Section 4's check of Assumption 4.1: how often averaged attention is not stochastically monotone.

`corrected` is the measurement's own count, on attention averaged over prompts and heads, beside the rate that
sampling noise alone would give. `published` repeats the paper's notebook: ALiBi's biases are added to averaged
attention, and a second softmax follows. What it counts is nearly ALiBi alone, which is monotone by construction.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Above, Evidence, Near
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.claims import AtHand, claims_of
from posbias_papers.herasimchyk2026.levels import need, published_slopes
from posbias_papers.herasimchyk2026.measurements import Measurements, once, study_of
from posbias_papers.herasimchyk2026.printed import CORPORA, GAP, SHORTFALL, TOKENS, VIOLATIONS, Reading
from posbias_papers.herasimchyk2026.standing import EFFORT, SCOPE, decided_by
from posbias_papers.pages import Table
from posbias_papers.study import Expected

if TYPE_CHECKING:
    import xarray as xr

PUBLISHED_TOLERANCE = 1e-10
"""Gaps up to this are none in the paper's notebook."""
SAME_ORDER = Near(0.0, 0.5)
"""Powers of ten up to which a size is of the order that is said: a factor of √10."""
FLOORS = 1.5
"""A rate of violations up to so many noise floors is within the noise, whose own spread is not known."""
HEAD = (
    "model", "corpus", "violating triples", "noise floor", "mean gap of those", "expected shortfall", "worst",
)  # fmt: skip


@dataclass(frozen=True)
class Order:
    """Violating triples of a model on a corpus, over all layers: their share, mean gap, and the noise floor.

    `floor` is the share expected from sampling noise alone, NaN where it was not measured or means nothing.
    """

    model: str
    corpus: str
    rate: float
    gap: float
    floor: float
    worst: int
    """The layer with the highest rate."""


def order_of(measurement: "xr.Dataset", corpus: str, reading: Reading = "corrected") -> Order:
    """The violations of one measurement. Raises `InvalidValueError` where a variable is missing.

    `published` needs the variable `kernel`, which measurements of long prompts do not have. All triples of all
    layers count alike. Source: Herasimchyk et al. 2026, Assumption 4.1 and after.
    """
    name = str(measurement.attrs.get("model", ""))
    if reading == "published":
        rates, gaps = _again(measurement)
        floors = np.full(len(rates), np.nan)
    else:
        need(measurement, ("monotonicity_rate", "monotonicity_gap", "monotonicity_floor"))
        rates = measurement["monotonicity_rate"].values[:, 0]
        gaps, floors = measurement["monotonicity_gap"].values, measurement["monotonicity_floor"].values
    total = rates.sum()
    gap = float((rates * gaps).sum() / total) if total else 0.0
    return Order(name, corpus, float(rates.mean()), gap, float(floors.mean()), int(rates.argmax()))


def _again(measurement: "xr.Dataset") -> tuple[np.ndarray, np.ndarray]:
    """Rate and mean gap per layer after ALiBi's biases and a second softmax."""
    from posbias.profiles.stochastic_order import monotonicity

    need(measurement, ("kernel",))
    kernels = measurement["kernel"].values.astype(np.float64)
    tokens = kernels.shape[-1]
    position = np.arange(tokens)
    seen = np.tri(tokens, dtype=bool)
    distance = np.where(seen, position[:, None] - position, 0)
    slopes = np.array(published_slopes(measurement.sizes["head"]))
    found = []
    for kernel in kernels:
        average = np.zeros_like(kernel)
        for slope in slopes:
            average += masked_softmax(kernel - slope * distance, seen) / len(slopes)
        found.append(monotonicity(average, PUBLISHED_TOLERANCE))
    return np.array([one.rate for one in found]), np.array([one.mean_gap for one in found])


@once
def orders(results: Measurements) -> list[Order]:
    """Violations of Assumption 4.1 in each cell of the tables' length where they can be counted."""
    published = results.reading == "published"
    needed = ("kernel",) if published else ("monotonicity_rate", "monotonicity_gap")
    keys = [key for key in results.keys if all(name in results.cells[key] for name in needed)]
    return [order_of(results.cells[key], key.corpus, results.reading) for key in keys]


def _below_rate(results: Measurements) -> Iterable[Evidence]:
    return map(_rate, orders(results))


def _rate(order: Order) -> Evidence:
    """By how many powers of ten a rate is below the paper's; undecided within sampling noise."""
    floor = f", noise floor {order.floor:.2g}" if math.isfinite(order.floor) else ""
    where = f"{order.model}, {order.corpus} (rate {order.rate:.2g}{floor})"
    if VIOLATIONS < order.rate <= FLOORS * order.floor:
        return Evidence(where, flaw="within the noise of so few prompts")
    return Evidence(where, Estimate(math.log10(VIOLATIONS) - math.log10(max(order.rate, 1e-12))))


def _gaps(results: Measurements) -> Iterator[Evidence]:
    """By how many powers of ten the mean gap of violating triples is above the paper's."""
    for order in orders(results):
        where = f"{order.model}, {order.corpus} (gap {order.gap:.2g})"
        if not order.rate:
            yield Evidence(where, flaw="no triple violates the order")
        elif order.rate <= FLOORS * order.floor:
            yield Evidence(where, flaw="within the noise of so few prompts")
        else:
            yield Evidence(where, Estimate(math.log10(order.gap) - math.log10(GAP)))


def _shortfall() -> Iterator[Evidence]:
    """By how many powers of ten the largest share times the mean gap is above the shortfall, all as printed."""
    product = VIOLATIONS * GAP
    yield Evidence(f"share times gap {product:.0e}", Estimate(math.log10(product) - math.log10(SHORTFALL)))


def _tables(results: Measurements) -> Iterator[Table]:
    rows = []
    for order in orders(results):
        floor = f"{order.floor:.2g}" if math.isfinite(order.floor) else "–"
        sizes = [f"{order.rate:.2g}", floor, f"{order.gap:.2g}", f"{order.rate * order.gap:.2g}"]
        rows.append([order.model, order.corpus, *sizes, f"layer {order.worst}"])
    yield Table("Measured here", HEAD, rows)
    printed = ["all five", "all three", f"≤ {VIOLATIONS:.0e}", "–", f"{GAP:.0e}", f"{SHORTFALL:.0e}", "–"]
    yield Table("Printed in the paper", HEAD, [printed])


def _claims() -> Iterator[Claim]:
    """How many triples violate the order, by how much, and what is left of it over all."""
    about = {"scope": f"averaged attention in all layers of {SCOPE}, {', '.join(CORPORA)}", "effort": EFFORT}
    claim = claims_of("herasimchyk2026/section4", "Section 4", **about)
    words = (
        f"At most {VIOLATIONS:.0e} of all triples violate stochastic monotonicity (powers of ten below that)"
    )
    yield claim(1, words, _below_rate, Above(least=0.0))
    words = f"The mean gap of violating triples is about {GAP:.0e} (powers of ten above that, within ± .5)"
    yield claim(2, words, _gaps, SAME_ORDER)
    words = (
        f"The expected shortfall is of the order of {SHORTFALL:.0e} (share times gap, powers of ten above it)"
    )
    yield claim(3, f"(the paper's own numbers) {words}", AtHand(_shortfall), SAME_ORDER)


STUDY = study_of(
    "section4",
    "Violations of stochastic monotonicity (Assumption 4.1)",
    "Is averaged attention stochastically monotone, up to a part in a million of all triples?",
    _claims(),
    _tables,
    lambda results: {"rows": [vars(order) for order in orders(results)]},
    lambda results: (
        f"{results.note} Triples (i < i′, k) whose later row holds more of the prefix 0 … k (Assumption 4.1); the "
        "noise floor is what sampling noise would give were the true kernels monotone."
    ),
    missing=lambda results: "" if orders(results) else "no averaged attention",
    decided_by=decided_by("section4", TOKENS, ", ".join(CORPORA)),
    expected=(
        Expected("violating triples, at most", VIOLATIONS, 0.0, "Section 4"),
        Expected("mean gap of violating triples, about", GAP, 0.0, "Section 4"),
        Expected("expected shortfall, of the order of", SHORTFALL, 0.0, "Section 4"),
    ),
)
