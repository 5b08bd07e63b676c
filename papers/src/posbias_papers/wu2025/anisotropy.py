"""The gap by the strength λ of the direction that a vocabulary shares, which no figure shows.

Networks have two layers and no encoding, without and with residual connections; these are ours, as is how strong
shared directions are beside the paper's λ = .75 and 0.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from posbias.profiles.claims import Claim
from posbias.profiles.evidence import Evidence, Near, difference
from posbias_papers.claims import Maker, Quantity, claims_of
from posbias_papers.study import Study, minutes_text
from posbias_papers.wu2025 import quantities as q
from posbias_papers.wu2025.drawing import draw_groups
from posbias_papers.wu2025.outcomes import PAIRS, Gaps
from posbias_papers.wu2025.power import more_accurate, together
from posbias_papers.wu2025.settings import Setting
from posbias_papers.wu2025.settled import decided_by, withholds

STRENGTHS = (0.0, 0.5, 0.75, 1.0)
"""λ of the vocabularies that are compared."""
MIXTURE = "mixture"


def by_strength(known: Study, scope: str, effort: str) -> Study:
    """The gap by λ beside the Gaussian mixture, made of a figure whose cells are trained the same way."""
    names: dict[Setting, str] = {}
    for residual in (False, True):
        names[Setting(residual=residual)] = MIXTURE
        for strength in STRENGTHS:
            cell = Setting(residual=residual, inputs="fixed_vocabulary", shared_direction=strength)
            names[cell] = f"λ = {strength:g}"
    claim = claims_of("wu2025/anisotropy", "Appendix L", scope=scope, effort=effort)
    minutes = {"quick": 1.9, "full": 225}
    return replace(
        known,
        key="wu2025/anisotropy",
        title="Gap by the strength λ of the direction that a vocabulary shares, beside the Gaussian mixture",
        question="Do networks with λ = 0 resemble those with the Gaussian mixture, and what does λ do to the gap?",
        cells=tuple(names),
        claims=tuple(_strength_claims(claim, names)),
        minutes=minutes,
        draw=partial(draw_groups, groups=names),
        uses=(),
        withholds=partial(withholds, curved=True),
        decided_by=decided_by("anisotropy", minutes_text(minutes["full"]), True),
    )


def _strength_claims(claim: Maker, names: dict[Setting, str]) -> Iterator[Claim]:
    at = {(cell.row, name): cell for cell, name in names.items()}
    rows = [*dict.fromkeys(row for row, _ in at)]
    alike = [(row, at[row, "λ = 0"], at[row, MIXTURE]) for row in rows]
    sentence = "With λ = 0 results closely resemble those of the Gaussian mixture"
    yield claim(1, f"{sentence} (accuracy and gaps within .05)", _alike(alike), strength="hedged")
    apart = [(row, at[row, "λ = 0"], at[row, "λ = 1"]) for row in rows]
    sentence = (
        "A stronger shared direction makes the task harder: in-context accuracy is lower at λ = 1 than at 0"
    )
    yield claim(2, sentence, q.of_gaps(more_accurate, apart), strength="hedged")
    place = "Section 5.2, the geometry of embeddings"
    sentence = "The geometry of embeddings may affect the bias: first–last differs between λ = 0 and 1"
    either = q.surest_of(q.of_gaps(q.differs, apart))
    yield claim(3, sentence, either, place=place, strength="hedged")


def _alike(places: list[tuple[str, Setting, Setting]]) -> Quantity:
    """Accuracy and every gap, near to each other in both settings of each place."""
    parts = [q.of_gaps(_near_accuracy, places)]
    parts += [q.of_gaps(_near, [(*place, pair) for place in places]) for pair in PAIRS]
    return together(*parts)


def _near_accuracy(where: str, one: Gaps, other: Gaps) -> Evidence:
    return replace(more_accurate(where, one, other), test=Near())


def _near(where: str, one: Gaps, other: Gaps, pair: str) -> Evidence:
    return difference(f"{where} {pair}", one.of(pair), other.of(pair), draws=q.NETWORKS, test=Near())
