"""What each means that Section 4 speaks of does to the gap of trained networks: studies of our own.

Section 6 hopes for transformers without position bias. Decay mask, RoPE and residual connections are those of
Figure 2; windows and prefixes those of Figures 11 and 12, whose gaps no figure shows; normalisers other than the
softmax are what Section 4.1 reports of others. Each is held against the same network without it: a means mitigates
where the gap first–last is smaller in size, whichever its sign. What it does to accuracy is said beside.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from posbias.profiles.claims import Claim
from posbias.profiles.evidence import Evidence, difference, mean
from posbias.theory.masks import Causal, Mask, Prefix, SlidingWindow
from posbias_papers.claims import Maker, claims_of
from posbias_papers.study import Study, minutes_text
from posbias_papers.wu2025 import quantities as q
from posbias_papers.wu2025.drawing import draw_mitigations
from posbias_papers.wu2025.outcomes import Gaps, Sinks
from posbias_papers.wu2025.recorded import recorded
from posbias_papers.wu2025.settings import DEPTHS, EFFORT, FULL, NORMALISERS, RELATIVE, Setting, effort_of
from posbias_papers.wu2025.settled import decided_by, withholds
from posbias_papers.wu2025.tables import data, note, tables

WIDE = "first-last"
Pairs = Sequence[tuple[str, Setting, Setting]]
"""Where, the network without the means, and the same with it."""


def smaller_gap(where: str, plain: Gaps, changed: Gaps) -> Evidence:
    """By how much |first–last| is smaller in the second cell, each with the sign of its mean over networks."""
    sides = [gaps.of(WIDE) for gaps in (plain, changed)]
    if min(side.size for side in sides) < 2:
        return difference(where, *sides, draws=q.NETWORKS)
    wide, narrow = (np.sign(side.mean()) * side for side in sides)
    return difference(where, wide, narrow, draws=q.NETWORKS)


def as_accurate(where: str, plain: Gaps, changed: Gaps) -> Evidence:
    """By how much in-context accuracy is higher in the second cell, over all networks that were not stopped."""
    ours, theirs = (gaps.accuracy[np.isfinite(gaps.loss)] for gaps in (changed, plain))
    return difference(where, ours, theirs, draws="networks")


def least_left(where: str, changed: Gaps) -> Evidence:
    """That the gap first–last is there in a cell, whichever its sign."""
    return q.present(where, changed, WIDE)


def of_means(claim: Maker, means: Sequence[tuple[str, Pairs]]) -> Iterator[Claim]:
    """Three claims for each means: on the gap, on what is left of it, on accuracy."""
    for place, (name, pairs) in enumerate(means):
        first = 3 * place + 1
        yield claim(first, f"{name}: the gap first–last is smaller in size", q.of_gaps(smaller_gap, pairs))
        left = [(where, changed) for where, _, changed in pairs]
        yield claim(first + 1, f"{name}: a gap first–last is left", q.of_gaps(least_left, left))
        accuracy = q.of_gaps(as_accurate, pairs)
        yield claim(first + 2, f"{name}: in-context accuracy is higher", accuracy)


def _of_figure_2(claim: Maker, depths: Sequence[int]) -> Iterator[Claim]:
    def pairs(**change: Any) -> Pairs:
        return [(f"depth {depth}", Setting(depth, False), _with(depth, **change)) for depth in depths]

    residual = [
        (f"{RELATIVE[word]}, depth {depth}", Setting(depth, False, positional=word), _with(depth, word, True))
        for word in RELATIVE
        for depth in depths
    ]
    means = [
        ("Decay mask, no residual", pairs(positional="decay")),
        ("RoPE, no residual", pairs(positional="rope")),
        ("Residual connections", residual),
    ]
    yield from of_means(claim, means)


def _with(depth: int, positional: str = "none", residual: bool = False) -> Setting:
    return Setting(depth, residual, positional=positional)


def _cells_of_figure_2(depths: Sequence[int]) -> list[Setting]:
    return [_with(depth, word, kind) for kind in (False, True) for word in RELATIVE for depth in depths]


def _of_masks(claim: Maker) -> Iterator[Claim]:
    def pairs(masks: Iterable[Mask]) -> Pairs:
        cells = [(Setting(residual=kind), mask) for mask in masks for kind in (False, True)]
        changed = [(plain, Setting(residual=plain.residual, mask=mask)) for plain, mask in cells]
        return [(f"{one.masked}, {one.row}", plain, one) for plain, one in changed]

    yield from of_means(claim, [("Window", pairs(WINDOWS)), ("Prefix", pairs(PREFIXES))])
    rows = [[Setting(residual=kind, mask=mask) for mask in (*WINDOWS, Causal())] for kind in (False, True)]
    ends = [_widened(row[0], row[-1]) for row in rows]
    said: dict[str, Any] = {
        "provenance": "paper",
        "strength": "hedged",
        "place": "Section 4.1, after Theorem 4.2",
    }
    sentence = (
        "A smaller window mitigates the bias to early items: first–last is smaller under a window of 5 than"
    )
    yield claim(7, f"{sentence} under the causal mask", q.of_gaps(q.rises, ends), **said)
    steps = [_widened(*step) for row in rows for step in pairwise(row)]
    sentence = "Every wider window adds to the bias to early items, up to the causal mask"
    yield claim(8, sentence, q.of_gaps(q.rises, steps))


def _widened(narrow: Setting, wide: Setting) -> tuple[str, Setting, Setting]:
    return f"{narrow.row}, {wide.masked} − {narrow.masked},", wide, narrow


def _of_normalisers(claim: Maker) -> Iterator[Claim]:
    plain = Setting(residual=False)
    cells = {name: Setting(residual=False, normaliser=name) for name in NORMALISERS if name != "softmax"}
    yield from of_means(claim, [(NORMALISERS[name], [(name, plain, cell)]) for name, cell in cells.items()])
    after = 3 * len(cells)
    for place, (name, cell) in enumerate(cells.items(), start=1):
        sinks = q.of_sinks(q.wider, [(f"softmax − {name}", plain, cell, _first)])
        # the text reports it of ReLU alone, as found by others
        said: dict[str, Any] = {"provenance": "paper", "strength": "hedged"} if name == "relu" else {}
        sentence = f"{NORMALISERS[name]}: the first token is less of a sink than under the softmax"
        yield claim(after + place, sentence, sinks, **said)
    beside = q.of_sinks(first_against_even, list(cells.items()))
    sentence = "Other normalisers than softmax: the first token draws less than under even attention"
    yield claim(after + len(cells) + 1, sentence, beside)


def _first(sinks: Sinks) -> np.ndarray:
    return sinks.trained[:, 0]


def first_against_even(where: str, sinks: Sinks) -> Evidence:
    """By how much even attention gives the first token more than the trained networks do."""
    return mean(where, sinks.uniform[0] - sinks.trained[:, 0])


WINDOWS = tuple(map(SlidingWindow, (5, 9, 13)))
PREFIXES = tuple(map(Prefix, (2, 4, 6)))
"""The masks of Figures 11 and 12."""


def _study(
    name: str,
    place: str,
    question: str,
    title: str,
    cells: Iterable[Setting],
    claims: Callable[[Maker], Iterable[Claim]],
    minutes: tuple[float, float],
) -> Study:
    cells = tuple(cells)
    layers = ", ".join(map(str, sorted({cell.depth for cell in cells})))
    claim = claims_of(
        f"wu2025/{name}",
        place,
        provenance="ours",
        scope=f"attention-only networks of {layers} layers on the retrieval task with the Gaussian mixture, "
        "embeddings of variance 1/d",
        effort=f"{FULL.iterations[2]:,} iterations, {len(FULL.seeds)} networks, {FULL.sequences:,} test sequences",
    )
    return Study(
        f"wu2025/{name}",
        title,
        question,
        cells,
        tuple(claims(claim)),
        EFFORT,
        "iterations",
        dict(zip(EFFORT, minutes, strict=True)),
        tables,
        data,
        note,
        draw_mitigations,
        captioned=True,
        needs="torch",
        uses=(("liu2024", "the middle that gets lost"), ("gu2025", "the metric of attention sinks")),
        recorded=recorded,
        of_number=effort_of,
        withholds=withholds,
        decided_by=decided_by(name, minutes_text(minutes[1]), True),
    )


STUDIES: tuple[Study, ...] = (
    _study(
        "mitigations",
        "Section 6",
        "How much of the gap do decay mask, RoPE and residual connections take away, and at what accuracy?",
        "What encodings and residual connections do to the gap",
        _cells_of_figure_2(DEPTHS[:1]),
        partial(_of_figure_2, depths=DEPTHS[:1]),
        (2.8, 160),
    ),
    _study(
        "deep-mitigations",
        "Section 6",
        "Do decay mask, RoPE and residual connections take as much of the gap away from deeper networks?",
        "What encodings and residual connections do to the gap of deeper networks",
        _cells_of_figure_2(DEPTHS[1:]),
        partial(_of_figure_2, depths=DEPTHS[1:]),
        (8.2, 879),
    ),
    _study(
        "masks",
        "Section 6",
        "How much of the gap do windows and prefixes take away, the narrower the more, and at what accuracy?",
        "What windows and prefixes do to the gap",
        (
            Setting(residual=kind, mask=mask)
            for kind in (False, True)
            for mask in (Causal(), *WINDOWS, *PREFIXES)
        ),
        _of_masks,
        (4.2, 283),
    ),
    _study(
        "normalisers",
        "Section 4.1, the role of softmax",
        "Does attention without a softmax, or with a sink beside it, favour earlier items less, and gather less "
        "on the first token?",
        "Gap and sinks by what makes rows of attention",
        (Setting(residual=False, normaliser=name) for name in NORMALISERS),
        _of_normalisers,
        (2.4, 98),
    ),
)
"""Over the cells of Figure 2 at depth 2 (on record at the paper's iterations) and deeper, over those of Figures 10
to 12, and by normaliser at depth 2."""
