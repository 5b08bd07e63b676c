"""Table 6: how homogeneous mean content logits are on the diagonal and below it, beside a null.

The similarity (Eq. 9) depends on the bins as much as on the entries. `corrected` bins every head's own range;
`published` bins the range of all layers and heads together, so that a head of small logits looks homogeneous
whatever it does. The null says what of it is the shape of any noise: normal numbers with the mean and deviation of
each head's entries, under the same bins.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.core.seeds import stream
from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Above, Evidence, mean
from posbias_papers.claims import AtHand, claims_of
from posbias_papers.herasimchyk2026.measurements import Measurements, once, study_of
from posbias_papers.herasimchyk2026.printed import BINS, TABLE6, TOKENS, Reading
from posbias_papers.herasimchyk2026.rows import Ours, beside, beside_table, expected, row_claim
from posbias_papers.herasimchyk2026.standing import EFFORT, OURS, SCOPE
from posbias_papers.pages import Table

HEAD = ("model", "within-diag similarity", "normal numbers", "within-off-diag similarity", "normal numbers")

LOW = 1 / 3
"""Up to this a similarity counts as low here, on its scale from 0 to 1."""
PLACES = {"diagonal, mean": "on the diagonal", "below it, mean": "below it"}


@dataclass(frozen=True)
class Homogeneity:
    """Similarities [layer, head] within the diagonal and below it, and of normal numbers in their place."""

    model: str
    diagonal: Float[np.ndarray, "layer head"]
    below: Float[np.ndarray, "layer head"]
    diagonal_null: Float[np.ndarray, "layer head"]
    below_null: Float[np.ndarray, "layer head"]

    def regions(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Either region's name, its similarities and those of its null, of all heads where both are defined."""
        for name, value, null in (
            ("diagonal", self.diagonal, self.diagonal_null),
            ("below it", self.below, self.below_null),
        ):
            kept = np.isfinite(value) & np.isfinite(null)
            yield name, value[kept], null[kept]


def homogeneity(
    model: str,
    content: Float[np.ndarray, "layer head query key"],
    reading: Reading = "corrected",
    bins: int = BINS,
    seed: int = 0,
) -> Homogeneity:
    """The similarities of mean content matrices (NaN where masked), with their null drawn from `seed`.

    Raises `InvalidValueError` for fewer than two bins or another shape. Source: Herasimchyk et al. 2026, Eq. (9).
    """
    from posbias_papers.measurement.similarity import content_similarity

    span = "own" if reading == "corrected" else "shared"
    real = content_similarity(content, bins, span)
    null = content_similarity(_normal(content, seed), bins, span)
    return Homogeneity(model, real.diagonal, real.below, null.diagonal, null.below)


def _normal(
    content: Float[np.ndarray, "layer head query key"], seed: int
) -> Float[np.ndarray, "layer head query key"]:
    """Normal numbers in place of the entries, with the mean and deviation of each head's two regions."""
    generator = stream(seed, "herasimchyk2026.homogeneity")
    tokens = content.shape[-1]
    made = np.full_like(content, np.nan)
    own, below = np.eye(tokens, dtype=bool), np.tri(tokens, k=-1, dtype=bool)
    for place in np.ndindex(*content.shape[:2]):
        for region in (own, below):
            seen = region & np.isfinite(content[place])
            entries = content[place][seen]
            if entries.size:
                made[place][seen] = generator.normal(entries.mean(), entries.std(), entries.size)
    return made


@once
def homogeneities(results: Measurements) -> list[Homogeneity]:
    """How homogeneous the mean content logits of each model are."""
    options = results.reading, results.bins, results.seed
    return [homogeneity(model, content, *options) for model, content in results.contents.items()]


def _above_null(results: Measurements) -> Iterable[Evidence]:
    """Over layers and heads, which share their prompts, so that errors are too small."""
    return [
        mean(f"{one.model}, {region}", value - null)
        for one in homogeneities(results)
        for region, value, null in one.regions()
    ]


def _ours(results: Measurements) -> Ours:
    """Means and deviations, with the error of each over heads."""
    for one in homogeneities(results):
        for region, values, _ in one.regions():
            found = Estimate.of_mean(values)
            yield one.model, "", f"{region}, mean", found
            yield one.model, "", f"{region}, deviation", Estimate(float(values.std()), found.se / np.sqrt(2))


def _tables(results: Measurements) -> Iterator[Table]:
    rows = [
        [one.model, *(_spread(part) for _, *parts in one.regions() for part in parts)]
        for one in homogeneities(results)
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


def _claims() -> Iterator[Claim]:
    """That mean content beats a null of ours, and what the text says of the printed numbers."""
    words = "Mean content logits are more homogeneous than normal numbers of the same mean and deviation"
    claim = claims_of("herasimchyk2026/table6", "Appendix D")
    yield claim(1, words, _above_null, **OURS)
    about = {"scope": f"{SCOPE}, FineWeb-Edu, n = {TOKENS}", "effort": EFFORT}
    own = "(the paper's own numbers)"
    words = f"{own} Similarities within both regions are moderate to high across all models (above {LOW:.2f} of 1)"
    yield claim(2, words, AtHand(_moderate), strength="hedged", **about)
    words = f"{own} This is most pronounced for bloom-176b, where both similarities are highest"
    yield claim(3, words, AtHand(_most_pronounced), **about)


def _in_print() -> Iterator[tuple[str, str, float]]:
    """Model, region and printed mean."""
    for model, regions in TABLE6.items():
        for region, (value, _) in zip(PLACES.values(), regions, strict=True):
            yield model, region, value


def _least_first(pieces: Iterable[Evidence]) -> list[Evidence]:
    return sorted(pieces, key=lambda piece: piece.estimate.value)


def _moderate() -> list[Evidence]:
    return _least_first(
        Evidence(f"{model}, {region}", Estimate(value), test=Above(LOW))
        for model, region, value in _in_print()
    )


def _most_pronounced() -> list[Evidence]:
    largest = {region: value for model, region, value in _in_print() if model == "bloom-176b"}
    return _least_first(
        Evidence(f"bloom-176b less {model}, {region}", Estimate(largest[region] - value))
        for model, region, value in _in_print()
        if model != "bloom-176b"
    )


def _row_words(model: str) -> str:
    regions = zip(PLACES.values(), TABLE6[model], strict=True)
    return f"similarity {', '.join(f'{mean:.2f} ± {sd:.2f} {region}' for region, (mean, sd) in regions)}"


STUDY = study_of(
    "table6",
    "Homogeneity of mean content logits on and below the diagonal",
    "Are mean content logits a constant with another one on the diagonal?",
    _claims(),
    _tables,
    lambda results: {
        "bins": results.bins,
        "rows": [
            {"model": one.model, "diagonal": one.diagonal, "below": one.below}
            for one in homogeneities(results)
        ],
        **beside("table6", _ours(results)),
    },
    _note,
    missing=lambda results: "" if results.contents else "no measurement with mean content matrices",
    expected=expected("table6", lambda one: f"{one.model}, similarity {PLACES[one.what]}"),
    row_claims=tuple(row_claim("table6", model, _row_words(model)) for model in TABLE6),
)
