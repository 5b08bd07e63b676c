"""Table 1 and Figures 1 to 24 as studies: which networks are trained for each, and how they are drawn.

Figures 13 to 18 and 20 to 23 repeat others with a fixed vocabulary; 19 and 24 are captions of these. Added are
the learning curves of Figure 2, windows and normalisers of which Section 4.1 speaks, and the gap by the
strength λ of the direction that a vocabulary shares (Appendix L); no figure shows these, and how strong shared
directions are, other than the paper's λ = .75 and 0, is ours. What is claimed of each stands in `claims.csv`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from posbias.profiles.claims import Claim
from posbias.theory.masks import Causal, Full, Mask, Prefix, SlidingWindow
from posbias_papers.contrasts import read_claims
from posbias_papers.study import Studies, Study, minutes_text
from posbias_papers.wu2025 import functions
from posbias_papers.wu2025.drawing import (
    draw_biased_training,
    draw_curves,
    draw_depths,
    draw_groups,
    draw_maps,
    draw_sinks,
)
from posbias_papers.wu2025.masks import FIGURE
from posbias_papers.wu2025.observed import STUDY as OBSERVED
from posbias_papers.wu2025.recorded import recorded
from posbias_papers.wu2025.settings import (
    ABSOLUTE,
    DEEP,
    DEPTHS,
    EFFORT,
    NORMALISERS,
    RELATIVE,
    Inputs,
    Setting,
    effort_of,
)
from posbias_papers.wu2025.settled import decided_by, withholds
from posbias_papers.wu2025.table import table
from posbias_papers.wu2025.table1 import TABLE
from posbias_papers.wu2025.tables import data, note, tables

ALONE = [Setting(layers, False, positional=word) for word in RELATIVE for layers in DEPTHS]
RESIDUAL = [Setting(layers, True, positional=word) for word in RELATIVE for layers in DEEP]
"""Causal networks by encoding and depth, without and with residual connections."""
ANSWERS = (
    (3, 15, ("first", "last"), "both ends"),
    (6, 16, ("first",), "the first item"),
    (7, 17, ("middle",), "the middle item"),
    (8, 18, ("last",), "the last item"),
)
"""Figures on biased training, those that repeat them, and the items that training asks for."""
WINDOWS, PREFIXES = tuple(map(SlidingWindow, (5, 9, 13))), tuple(map(Prefix, (2, 4, 6)))
"""The masks of Figures 11 and 12."""
STRENGTHS = (0.0, 0.5, 0.75, 1.0)
"""λ of the vocabularies that are compared."""


def _main_text() -> list[Claim]:
    """The findings of the main text that Figures 13 and 15 repeat: those of Figures 4 and 3."""
    wanted = {"fig4": range(1, 10), "fig3": range(2, 7)}
    return [claim for name, numbers in wanted.items() for claim in CLAIMS[name] if _number(claim) in numbers]


def _number(claim: Claim) -> int:
    return int(claim.id.rpartition("/")[2])


CLAIMS = read_claims(
    Path(__file__).with_name("claims.csv"),
    {
        "spared": functions.spared,
        "equally_accurate": functions.equally_accurate,
        "equally_low": functions.equally_low,
        "harder_to_train": functions.harder_to_train,
        "learnt_less": functions.learnt_less,
        "most_of_main_text": functions.most_of(_main_text),
    },
)


def _study(
    name: str,
    title: str,
    question: str,
    cells: Iterable[Setting],
    draw: Callable[..., Any],
    minutes: tuple[float, float],
    *,
    curved: bool = True,
    compared: Sequence[Setting] = (),
) -> Study:
    """A study of trained networks; `curved` says whether what is claimed has learning curves (sinks have none).

    Claims may look at further networks, `compared`.
    """
    cells = tuple(dict.fromkeys(cells))
    sinks = ("xiao2024", "attention sinks"), ("gu2025", "the metric of attention sinks")
    return Study(
        f"wu2025/{name}",
        title,
        question,
        cells,
        tuple(CLAIMS.get(name, ())),
        EFFORT,
        "iterations",
        dict(zip(EFFORT, minutes, strict=True)),
        tables,
        data,
        note,
        draw,
        captioned=True,
        needs="torch",
        uses=(("liu2024", "the middle that gets lost"),) if curved else sinks[:1],
        table=lambda results: table(results, (*cells, *compared)),
        recorded=recorded,
        of_number=effort_of,
        withholds=partial(withholds, curved=curved),
        decided_by=decided_by(name, minutes_text(minutes[1]), curved),
    )


def _depths() -> Iterator[Study]:
    yield from _figures(
        "Gap by depth, without and with residual connections",
        "Does depth turn a network without any bias in its data towards earlier items, and do decay and rotary "
        "encodings work against it?",
        "",
        quick={2: 11},
        full=1039,
        cells=[*ALONE, *(cell for cell in RESIDUAL if cell.depth in DEPTHS)],
        draw=draw_depths,
    )
    yield from _figures(
        "Gap by depth, attention layers alone",
        "Does each further layer without residual connections favour earlier items more?",
        "Does depth favour earlier items when inputs are a fixed set of correlated vectors?",
        quick={4: 5.1, 13: 2.8},
        full=461,
        cells=ALONE,
        draw=draw_depths,
    )
    yield from _figures(
        "Gap by depth up to ten layers, with residual connections",
        "With residual connections, does the bias still grow with depth, or rise and fall?",
        "With residual connections and a fixed vocabulary, does every pair of layers add to the bias?",
        quick={5: 12, 14: 6.9},
        full=1625,
        cells=RESIDUAL,
        draw=draw_depths,
    )


def _biased(answers: tuple[str, ...]) -> list[Setting]:
    """The networks of a figure on biased training."""
    encodings = [(mask, word) for mask in (Full(), Causal()) for word in ABSOLUTE]
    return [Setting(mask=mask, positional=word, answers=answers) for mask, word in encodings]


def _answers() -> Iterator[Study]:
    for number, again, answers, asked in ANSWERS:
        question = f"Which masks and encodings learn a preference for {asked}?"
        if asked == "both ends":
            question = "Does the causal mask let a network learn a preference for either end, "
            question += "and does the middle get lost?"
        yield from _figures(
            f"Gap after training that asks for the {' and the '.join(answers)} item",
            question,
            f"Is a preference for {asked} learnt with a fixed vocabulary too?",
            quick={number: 2.4, again: 0.9},
            full=158,
            cells=_biased(answers),
            draw=draw_biased_training,
        )


def _sinks() -> Iterator[Study]:
    yield from _figures(
        "Attention maps of two-layer causal networks",
        "Does attention gather on the first token when nothing in the data prefers it?",
        "Does attention gather on the first token with a fixed vocabulary too?",
        quick={9: 0.7, 20: 0.3},
        full=45,
        cells=_two_layers(Causal()),
        draw=draw_maps,
    )
    yield from _figures(
        "Sink metric under the causal mask",
        "Is the first token a sink, beyond what even attention and untrained networks give it?",
        "Is the first token a sink with a fixed vocabulary too?",
        quick={10: 0.7, 21: 0.3},
        full=45,
        cells=_two_layers(Causal()),
        draw=draw_sinks,
    )
    yield from _figures(
        "Sink metric under sliding windows of 5, 9 and 13 tokens",
        "Is the first token more of a sink the wider the window?",
        "Is the first token more of a sink under wider windows with a fixed vocabulary too?",
        quick={11: 1.8, 22: 0.7},
        full=123,
        cells=_two_layers(*WINDOWS),
        draw=draw_sinks,
    )
    yield from _figures(
        "Sink metric under prefix masks of 2, 4 and 6 tokens",
        "Are all tokens of the prefix sinks, and not the first alone?",
        "Are all tokens of a prefix sinks with a fixed vocabulary too?",
        quick={12: 1.7, 23: 0.7},
        full=115,
        cells=_two_layers(*PREFIXES),
        draw=draw_sinks,
    )


def _two_layers(*masks: Mask) -> list[Setting]:
    """The networks whose sinks are looked at, without and with residual connections."""
    return [Setting(residual=residual, mask=mask) for residual in (False, True) for mask in masks]


def _figures(
    title: str,
    question: str,
    repeated: str,
    *,
    quick: Mapping[int, float],
    full: float,
    cells: Sequence[Setting],
    draw: Callable[..., Any],
) -> Iterator[Study]:
    """A figure and, with the question `repeated`, the one that repeats it with a fixed vocabulary.

    `quick` are their minutes by number; those of the effort `full` are reckoned from the rates of quick runs.
    """
    titles = title, f"Figure {next(iter(quick))}, fixed vocabulary"
    kinds = zip(titles, (question, repeated), get_args(Inputs), strict=True)
    for (number, minutes), (title, question, kind) in zip(quick.items(), kinds, strict=False):
        own = [replace(cell, inputs=kind) for cell in cells]
        # what Appendix L says of the main text's findings together is judged with Figure 13
        both_ends = [replace(cell, inputs=kind) for cell in _biased(("first", "last"))]
        yield _study(
            f"fig{number}",
            title,
            question,
            own,
            draw,
            (minutes, full),
            curved=draw not in (draw_maps, draw_sinks),
            compared=both_ends if number == 13 else (),
        )


def _beyond_figures() -> Iterator[Study]:
    masks = [
        Setting(residual=kind, mask=mask)
        for kind in (False, True)
        for mask in (Causal(), *WINDOWS, *PREFIXES)
    ]
    yield _study(
        "masks",
        "What windows and prefixes do to the gap",
        "How much of the gap do windows and prefixes take away, the narrower the more, and at what accuracy?",
        masks,
        partial(draw_groups, groups={cell: cell.masked for cell in masks}),
        (4.2, 283),
    )
    rows = [Setting(residual=False, normaliser=name) for name in NORMALISERS]
    yield _study(
        "normalisers",
        "Gap and sinks by what makes rows of attention",
        "Does attention without a softmax, or with a sink added to it, favour earlier items less, and gather less "
        "on the first token?",
        rows,
        partial(draw_groups, groups={cell: cell.normaliser.replace("_", " ") for cell in rows}),
        (2.4, 98),
    )
    names: dict[Setting, str] = {}
    for residual in (False, True):
        names[Setting(residual=residual)] = "mixture"
        for strength in STRENGTHS:
            cell = Setting(residual=residual, inputs="fixed_vocabulary", shared_direction=strength)
            names[cell] = f"λ = {strength:g}"
    yield _study(
        "anisotropy",
        "Gap by the strength λ of the direction that a vocabulary shares, and with the Gaussian mixture",
        "Do networks with λ = 0 resemble those with the Gaussian mixture, and what does λ do to the gap?",
        names,
        partial(draw_groups, groups=names),
        (1.9, 225),
    )


def _caption(number: int, question: str, minutes: tuple[float, float], *parts: Study) -> Study:
    """A number that is the caption of other figures, which stand for it."""
    first, last = (part.name.removeprefix("fig") for part in (parts[0], parts[-1]))
    return replace(
        parts[0],
        key=f"wu2025/fig{number}",
        title=f"Caption of Figures {first} to {last}",
        question=question,
        cells=tuple(dict.fromkeys(cell for part in parts for cell in part.cells)),
        claims=(),
        minutes=dict(zip(EFFORT, minutes, strict=True)),
        draw=None,
        parts=parts,
    )


def _all() -> Iterator[Study]:
    known = {study.name: study for study in (*_depths(), *_answers(), *_sinks())}
    question = "Do networks with a fixed vocabulary learn the preferences of their training data?"
    known["fig19"] = _caption(19, question, (3.8, 631), *(known[f"fig{part}"] for part in range(15, 19)))
    question = "Are there sinks with a fixed vocabulary, under each of the three masks?"
    known["fig24"] = _caption(24, question, (1.7, 283), *(known[f"fig{part}"] for part in range(21, 24)))
    yield from (TABLE, FIGURE)
    yield from (known[f"fig{number}"] for number in range(2, 25))
    yield _study(
        "curves",
        "Learning curves of the networks of Figure 2",
        "Are gaps settled, and does depth add to them relative to accuracy, and at equal loss?",
        known["fig2"].cells,
        draw_curves,
        (11, 1039),
    )
    yield OBSERVED
    yield from _beyond_figures()


STUDIES = Studies(_all())
"""Table 1, every figure from 1 to 24, the learning curves of Figure 2, and what Section 4.1 and Appendix L add."""
