"""Studies that compare what no figure does: the gap by window, and by the direction that a vocabulary shares.

Networks have two layers and no encoding, without and with residual connections; these are ours, as is how strong
shared directions are beside the paper's λ = .75 and 0.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

from posbias.claims import Claim
from posbias.evidence import Evidence, Near, difference
from posbias.papers.claims import Maker, Quantity, claims_of
from posbias.papers.study import Study, minutes_text
from posbias.papers.wu2025 import quantities as q
from posbias.papers.wu2025.drawing import draw_groups
from posbias.papers.wu2025.outcomes import PAIRS, Gaps
from posbias.papers.wu2025.power import more_accurate, together
from posbias.papers.wu2025.settings import Setting
from posbias.papers.wu2025.settled import decided_by, withholds
from posbias.theory.masks import Causal, SlidingWindow

STRENGTHS = (0.0, 0.5, 0.75, 1.0)
"""λ of the vocabularies that are compared."""
MASKS = (*map(SlidingWindow, (5, 9, 13)), Causal())
"""From the narrowest window of Figure 11 to all tokens."""
MIXTURE = "mixture"


def _rows() -> tuple[bool, bool]:
    return (False, True)


def by_window(known: Study, scope: str, effort: str) -> Study:
    """The gap by window, made of the figure on sinks under windows."""
    cells = tuple(Setting(residual=residual, mask=mask) for residual in _rows() for mask in MASKS)
    claim = claims_of("wu2025/windows", "Section 4.1, after Theorem 4.2", scope=scope, effort=effort)
    return _study(
        known,
        "windows",
        "Gap under sliding windows of 5, 9 and 13 tokens and under the causal mask",
        "Does a smaller window mitigate the bias to early items?",
        cells,
        tuple(_window_claims(claim, cells)),
        {"quick": 2.8, "full": 180},
        {cell: cell.masked for cell in cells},
    )


def _window_claims(claim: Maker, cells: tuple[Setting, ...]) -> Iterator[Claim]:
    half = len(cells) // 2
    rows = cells[:half], cells[half:]
    ends = [(f"{row[0].row}, {row[-1].masked} − {row[0].masked},", row[-1], row[0]) for row in rows]
    sentence = (
        "A smaller window mitigates the bias to early items: first–last is smaller under a window of 5 than"
    )
    yield claim(1, f"{sentence} under the causal mask", q.of_gaps(q.rises, ends), strength="hedged")
    steps = [
        (f"{narrow.row}, {wide.masked} − {narrow.masked},", wide, narrow)
        for row in rows
        for narrow, wide in pairwise(row)
    ]
    sentence = "Every wider window adds to the bias to early items, up to the causal mask"
    yield claim(2, sentence, q.of_gaps(q.rises, steps), provenance="ours")


def by_strength(known: Study, scope: str, effort: str) -> Study:
    """The gap by λ beside the Gaussian mixture, made of the figure on windows."""
    names: dict[Setting, str] = {}
    for residual in _rows():
        names[Setting(residual=residual)] = MIXTURE
        for strength in STRENGTHS:
            cell = Setting(residual=residual, inputs="fixed_vocabulary", shared_direction=strength)
            names[cell] = f"λ = {strength:g}"
    claim = claims_of("wu2025/anisotropy", "Appendix L", scope=scope, effort=effort)
    return _study(
        known,
        "anisotropy",
        "Gap by the strength λ of the direction that a vocabulary shares, beside the Gaussian mixture",
        "Do networks with λ = 0 resemble those with the Gaussian mixture, and what does λ do to the gap?",
        tuple(names),
        tuple(_strength_claims(claim, names)),
        {"quick": 1.9, "full": 225},
        names,
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


def _study(
    known: Study,
    name: str,
    title: str,
    question: str,
    cells: tuple[Setting, ...],
    claims: tuple[Claim, ...],
    minutes: dict[str, float],
    groups: dict[Setting, str],
) -> Study:
    return replace(
        known,
        key=f"wu2025/{name}",
        title=title,
        question=question,
        cells=cells,
        claims=claims,
        minutes=minutes,
        draw=partial(draw_groups, groups=groups),
        uses=(),
        withholds=partial(withholds, curved=True),
        decided_by=decided_by(name, minutes_text(minutes["full"]), True),
    )
