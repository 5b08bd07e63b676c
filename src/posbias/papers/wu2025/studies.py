"""Figures 2 to 24 as studies: which networks are trained for each, what is claimed of them, how they are drawn.

Figures 13 to 18 and 20 to 23 repeat others with a fixed vocabulary; 19 and 24 are captions of these.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from posbias.claims import Claim
from posbias.papers.claims import Maker, claims_of
from posbias.papers.study import Studies, Study
from posbias.papers.wu2025 import depth, sinks
from posbias.papers.wu2025.biased_training import training_claims
from posbias.papers.wu2025.drawing import (
    draw_biased_training,
    draw_curves,
    draw_depths,
    draw_maps,
    draw_sinks,
)
from posbias.papers.wu2025.recorded import recorded
from posbias.papers.wu2025.settings import (
    ABSOLUTE,
    DEEP,
    DEPTHS,
    EFFORT,
    RELATIVE,
    Inputs,
    Setting,
    effort_of,
)
from posbias.papers.wu2025.tables import data, note, tables
from posbias.theory.masks import Causal, Full, Mask, Prefix, SlidingWindow

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
PLACES = {2: "Section 5.1", 3: "Section 5.2", 4: "Appendix K.1", 5: "Appendix K.2"}
PLACES |= dict.fromkeys((6, 7, 8), "Appendix K.3") | dict.fromkeys((9, 10, 11, 12), "Appendix K.4")
"""Where the paper speaks of a figure; of all others in Appendix L."""


def _depths() -> Iterator[Study]:
    yield from _figures(
        "Gap by depth, without and with residual connections",
        "Does depth turn a network without any bias in its data towards earlier items, and do decay and rotary "
        "encodings work against it?",
        "",
        quick={2: 11},
        full=1039,
        cells=[*ALONE, *(cell for cell in RESIDUAL if cell.depth in DEPTHS)],
        claims=depth.both_kinds,
        draw=draw_depths,
    )
    yield from _figures(
        "Gap by depth, attention layers alone",
        "Does each further layer without residual connections favour earlier items more?",
        "Does depth favour earlier items when inputs are a fixed set of correlated vectors?",
        quick={4: 5.1, 13: 2.8},
        full=461,
        cells=ALONE,
        claims=depth.pure_attention,
        draw=draw_depths,
    )
    yield from _figures(
        "Gap by depth up to ten layers, with residual connections",
        "With residual connections, does the bias still grow with depth, or rise and fall?",
        "With residual connections and a fixed vocabulary, does every pair of layers add to the bias?",
        quick={5: 12, 14: 6.9},
        full=1625,
        cells=RESIDUAL,
        claims=depth.with_residuals,
        draw=draw_depths,
    )


def _answers() -> Iterator[Study]:
    for number, again, answers, asked in ANSWERS:
        question = f"Which masks and encodings learn a preference for {asked}?"
        if asked == "both ends":
            question = "Does the causal mask let a network learn a preference for either end, "
            question += "and does the middle get lost?"
        encodings = [(mask, word) for mask in (Full(), Causal()) for word in ABSOLUTE]
        yield from _figures(
            f"Gap after training that asks for the {' and the '.join(answers)} item",
            question,
            f"Is a preference for {asked} learnt with a fixed vocabulary too?",
            quick={number: 2.4, again: 0.9},
            full=158,
            cells=[Setting(mask=mask, positional=word, answers=answers) for mask, word in encodings],
            claims=training_claims,
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
        claims=sinks.causal,
        draw=draw_maps,
    )
    yield from _figures(
        "Sink metric under the causal mask",
        "Is the first token a sink, beyond what even attention and untrained networks give it?",
        "Is the first token a sink with a fixed vocabulary too?",
        quick={10: 0.7, 21: 0.3},
        full=45,
        cells=_two_layers(Causal()),
        claims=sinks.causal,
        draw=draw_sinks,
    )
    yield from _figures(
        "Sink metric under sliding windows of 5, 9 and 13 tokens",
        "Is the first token more of a sink the wider the window?",
        "Is the first token more of a sink under wider windows with a fixed vocabulary too?",
        quick={11: 1.8, 22: 0.7},
        full=123,
        cells=_two_layers(*map(SlidingWindow, (5, 9, 13))),
        claims=sinks.windows,
        draw=draw_sinks,
    )
    yield from _figures(
        "Sink metric under prefix masks of 2, 4 and 6 tokens",
        "Are all tokens of the prefix sinks, and not the first alone?",
        "Are all tokens of a prefix sinks with a fixed vocabulary too?",
        quick={12: 1.7, 23: 0.7},
        full=115,
        cells=_two_layers(*map(Prefix, (2, 4, 6))),
        claims=sinks.prefixes,
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
    claims: Callable[[Maker, Sequence[Setting]], Iterable[Claim]],
    draw: Callable[..., Any],
) -> Iterator[Study]:
    """A figure and, with the question `repeated`, the one that repeats it with a fixed vocabulary.

    `quick` are their minutes by number; those of the effort `full` are reckoned from the rates of quick runs.
    """
    uses = ("liu2024", "the middle that gets lost")
    if draw in (draw_maps, draw_sinks):
        uses = ("xiao2024", "attention sinks")
    titles = title, f"Figure {next(iter(quick))}, fixed vocabulary"
    told = zip(titles, (question, repeated), get_args(Inputs), strict=True)
    for (number, minutes), (title, question, kind) in zip(quick.items(), told, strict=False):
        name, own = f"wu2025/fig{number}", tuple(replace(cell, inputs=kind) for cell in cells)
        yield Study(
            name,
            title,
            question,
            own,
            tuple(claims(claims_of(name, PLACES.get(number, "Appendix L")), own)),
            EFFORT,
            "iterations",
            {"quick": minutes, "full": full},
            tables,
            data,
            note,
            draw,
            captioned=True,
            needs="torch",
            uses=(uses,),
            recorded=recorded,
            of_number=effort_of,
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


def _along_training(figure: Study) -> Study:
    """A study of our own on the networks of Figure 2: does what is said of them depend on when they are asked?"""
    key = "wu2025/curves"
    return replace(
        figure,
        key=key,
        title="Learning curves of the networks of Figure 2",
        question="Are gaps settled, and does depth add to them relative to accuracy, and at equal loss?",
        claims=tuple(depth.along_training(claims_of(key, PLACES[2]), figure.cells)),
        draw=draw_curves,
    )


def _all() -> Iterator[Study]:
    known = {study.name: study for study in (*_depths(), *_answers(), *_sinks())}
    question = "Do networks with a fixed vocabulary learn the preferences of their training data?"
    known["fig19"] = _caption(19, question, (3.8, 631), *(known[f"fig{part}"] for part in range(15, 19)))
    question = "Are there sinks with a fixed vocabulary, under each of the three masks?"
    known["fig24"] = _caption(24, question, (1.7, 283), *(known[f"fig{part}"] for part in range(21, 24)))
    yield from (known[f"fig{number}"] for number in range(2, 25))
    yield _along_training(known["fig2"])


STUDIES = Studies(_all())
"""Every number from 2 to 24, and the learning curves of Figure 2."""
