"""Table 6: how homogeneous mean content logits are on the diagonal and below it, beside normal numbers."""

from collections.abc import Iterable, Iterator

import numpy as np

from posbias.claims import Claim, Evidence, mean
from posbias.estimate import Estimate
from posbias.papers.herasimchyk2026.measurements import Measurements, study_of
from posbias.papers.herasimchyk2026.printed import TABLE6
from posbias.papers.herasimchyk2026.rows import Ours, beside_data, beside_table, expected, row_claim
from posbias.reports.pages import Table

HEAD = ("model", "within-diag similarity", "normal numbers", "within-off-diag similarity", "normal numbers")

PLACES = {"diagonal, mean": "on the diagonal", "below it, mean": "below it"}


def _above_null(results: Measurements) -> Iterable[Evidence]:
    """Over layers and heads, which share their prompts, so that errors are too small."""
    return [
        mean(f"{one.model}, {region}", value - null)
        for one in results.homogeneities
        for region, value, null in one.regions()
    ]


def _ours(results: Measurements) -> Ours:
    """Means and deviations, with the error of each over heads."""
    for one in results.homogeneities:
        for region, values, _ in one.regions():
            found = Estimate.of(values)
            yield one.model, "", f"{region}, mean", found
            yield one.model, "", f"{region}, deviation", Estimate(float(values.std()), found.se / np.sqrt(2))


def _tables(results: Measurements) -> Iterator[Table]:
    rows = [
        [one.model, *(_spread(part) for _, *parts in one.regions() for part in parts)]
        for one in results.homogeneities
    ]
    yield Table("Measured here, mean ± standard deviation over layers and heads", HEAD, rows)
    rows = [[model, *(f"{mean:.2f} ± {sd:.2f}" for mean, sd in regions)] for model, regions in TABLE6.items()]
    yield Table("Printed in the paper", [HEAD[0], HEAD[1], HEAD[3]], rows)
    yield beside_table("table6", _ours(results))


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ± {values.std():.2f}" if values.size else "–"


def _note(results: Measurements) -> str:
    how = "each head's own range" if results.reading == "corrected" else "the range of all heads together"
    return (
        f"{results.note} Shannon similarity (Eq. 9) of mean content logits, {results.bins} bins over {how}; "
        "beside it the similarity of normal numbers of the same mean and deviation. Errors are over heads."
    )


def _row_words(model: str) -> str:
    regions = zip(PLACES.values(), TABLE6[model], strict=True)
    return f"similarity {', '.join(f'{mean:.2f} ± {sd:.2f} {region}' for region, (mean, sd) in regions)}"


STUDY = study_of(
    "table6",
    "Homogeneity of mean content logits on and below the diagonal",
    "Are mean content logits a constant with another one on the diagonal?",
    [
        Claim(
            "herasimchyk2026/table6/1",
            "Appendix D",
            "Mean content logits are more homogeneous than normal numbers of the same mean and deviation",
            _above_null,
            provenance="ours",
        )
    ],
    _tables,
    lambda results: {
        "bins": results.bins,
        "rows": [
            {"model": one.model, "diagonal": one.diagonal, "below": one.below}
            for one in results.homogeneities
        ],
        **beside_data("table6", _ours(results)),
    },
    _note,
    missing=lambda results: "" if results.contents else "no measurement with mean content matrices",
    expected=expected("table6", lambda one: f"{one.model}, similarity {PLACES[one.what]}"),
    row_claims=tuple(row_claim("table6", model, _row_words(model)) for model in TABLE6),
)
