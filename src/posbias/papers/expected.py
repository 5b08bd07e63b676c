"""The numbers that the papers print, study by study, each with the deviation that is within what is printed.

Kim et al. 2026 print six recency probabilities, each of ten million samples: ours may lie four standard errors
of the difference away. Herasimchyk et al. 2026 print Tables 1 to 6 with two digits, for models and texts of their
own: a table's tolerance is half of the last digit, to which the interval over our prompts is added. Wu et al. 2025
print no numbers of their experiments.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    """A number that a paper prints: of what, its value, how far ours may lie from it, and where it stands."""

    what: str
    value: float
    tolerance: float
    where: str


ROUNDING = 0.005
"""Half of the last digit that the tables of Herasimchyk et al. 2026 print."""
FOUR_ERRORS = 0.0002
"""Four standard errors of the difference between a printed probability and ours, at ten million samples each."""


def expected_of(paper: str, name: str) -> tuple[Expected, ...]:
    """What a paper prints of one of its studies."""
    if paper == "kim2026":
        return tuple(_kim(name))
    return tuple(_herasimchyk(name)) if paper == "herasimchyk2026" else ()


def _kim(name: str) -> Iterator[Expected]:
    """The six probabilities; the panels of Figure 1 carry four digits of the same six."""
    if name not in ("fig1", "section3"):
        return
    from posbias.papers.kim2026.models import PRINTED, describe

    for printed, model in PRINTED:
        what = f"recency probability of {describe(model)}, d = {model.dimension}, layer 2"
        yield Expected(what, float(printed), FOUR_ERRORS, "Section 3")


def _herasimchyk(name: str) -> Iterator[Expected]:
    from posbias.papers.herasimchyk2026 import printed

    match name:
        case "table1":
            for model, (_, depth) in printed.TABLE1.items():
                yield Expected(f"{model}, depth", depth, 0.0, "Table 1")
        case "table2" | "table4":
            yield from _levels(name, printed.TABLE4, "Spearman")
        case "table3" | "table5":
            yield from _levels(name, printed.TABLE5, "Wasserstein")
        case "table6":
            for model, regions in printed.TABLE6.items():
                for region, (mean, _) in zip(("on the diagonal", "below it"), regions, strict=True):
                    yield Expected(f"{model}, similarity {region}", mean, ROUNDING, "Table 6")
        case "section4":
            yield Expected("violating triples, at most", printed.VIOLATIONS, 0.0, "Section 4")


def _levels(name: str, table: dict, score: str) -> Iterator[Expected]:
    from posbias.papers.herasimchyk2026.printed import CORPORA, FEATURED, LEVELS

    where = f"Table {name.removeprefix('table')}"
    models, corpora = (FEATURED, CORPORA[:1]) if name in ("table2", "table3") else (table, CORPORA)
    for model in models:
        for corpus in corpora:
            for level, value in zip(LEVELS, table[model][corpus], strict=True):
                yield Expected(f"{model}, {corpus}, ({level}), {score}", value, ROUNDING, where)
